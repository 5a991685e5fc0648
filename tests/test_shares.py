"""What saves time in CI loses no case: each is in CI or in the nightly run, and what workers share is made once."""

from __future__ import annotations

import pytest
from shares import once_in_a_run, share


def test_every_case_is_in_ci_or_nightly() -> None:
    cases = share(range(5), ci=[0, 3])
    assert [case.values for case in cases] == [(0,), (1,), (2,), (3,), (4,)]
    assert [[mark.name for mark in case.marks] for case in cases] == [[], ["nightly"], ["nightly"], [], ["nightly"]]


@pytest.mark.parametrize("ci", [[], [5], [0, 5]], ids=str)
def test_a_share_of_nothing_or_of_what_is_no_case_is_refused(ci: list[int]) -> None:
    with pytest.raises(ValueError, match="are not all among the cases"):
        share(range(5), ci=ci)


def test_what_two_ask_for_is_made_once_and_a_failure_is_tried_again(tmp_path_factory: pytest.TempPathFactory) -> None:
    made: list[str] = []

    def make(text: str) -> str:
        made.append(text)
        if text == "broken":
            raise OSError
        return text

    with pytest.raises(OSError):
        once_in_a_run(tmp_path_factory, "tried", lambda: make("broken"))
    assert [once_in_a_run(tmp_path_factory, name, lambda: make("whole")) for name in ("tried", "tried", "another try")] == ["whole"] * 3
    assert made == ["broken", "whole", "whole"]
