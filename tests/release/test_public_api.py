"""A change of the public API is acknowledged: it is a change of `public_api.txt`, too."""

from __future__ import annotations

import pytest
from public_api import SNAPSHOT, differences, read_api


@pytest.fixture(scope="module")
def now() -> list[str]:
    return read_api()


def test_the_snapshot_is_that_of_this_checkout(now: list[str]) -> None:
    assert "\n".join(differences(now)) == ""


def test_a_change_is_shown_with_the_command_that_acknowledges_it(now: list[str]) -> None:
    gone = next(line for line in now if line.startswith("async claude_transport.Query.send("))
    more = "claude_transport.unheard_of() -> None"
    *found, advice = differences([*(line for line in now if line != gone), more])
    assert {f"-{gone}", f"+{more}"} <= set(found)
    assert "python tests/release/public_api.py --write" in advice


@pytest.mark.parametrize(
    "line",
    [
        "class claude_transport.Query",
        "claude_transport.client.Query is claude_transport.Query",
        "claude_transport.MockTransport.__init__(responses: Iterable[Mapping[str, Any] | bytes] = (), *,",
        "async claude_transport.complete(prompt: Prompt, *, model: str | None = None,",
        "claude_transport.ClaudeOptions.model: str | None",
        "claude_transport.errors.",
        "claude_transport.codex.CodexOptions.sandbox: ",
    ],
)
def test_the_snapshot_has_names_members_fields_and_defaults(line: str) -> None:
    assert any(each.startswith(line) for each in SNAPSHOT.read_text("utf-8").splitlines()), line
