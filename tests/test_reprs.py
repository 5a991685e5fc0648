"""Whatever holds what a process said on standard error keeps it to itself: neither `str()` nor `repr()` of it shows a secret."""

from __future__ import annotations

import inspect
import pickle
import traceback
from typing import Any

import msgspec
import pytest

from claude_transport import errors
from claude_transport.link.machine import ProcessEnd, decode_frame, encode_frame
from claude_transport.transport import TransportInfo

SECRET = "Madder-Grebe-6612"
SAID = f"warning: x-route: {SECRET}\nand more"


def classes_with_stderr() -> list[type[Exception]]:
    found = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, errors.ClaudeTransportError)]
    return [kind for kind in found if "stderr_tail" in vars(kind("text"))]


def test_these_errors_hold_what_was_said_on_standard_error() -> None:
    names = {kind.__name__ for kind in classes_with_stderr()}
    assert {"ProcessError", "CLIVersionMismatch", "ConnectTimeout", "ControlTimeout", "TransportClosed"} <= names


@pytest.mark.parametrize("kind", classes_with_stderr(), ids=lambda kind: kind.__name__)
def test_an_error_shows_the_end_of_standard_error_without_a_secret(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROUTE_TOKEN", SECRET)
    error = kind("it ended", stderr_tail=SAID)
    assert error.reason == "warning: x-route: [secret] | and more"
    assert str(error) == f"it ended: {error.reason}"
    for shown in (repr(error), "".join(traceback.format_exception(error)), repr(pickle.loads(pickle.dumps(error)))):
        assert SECRET not in shown
        assert error.reason in shown
    assert error.stderr_tail == SAID  # for programs


@pytest.mark.parametrize("holder", [TransportInfo(kind="x", pid=7, stderr_tail=SAID), ProcessEnd(after=1, exit_code=7, stderr_tail=SAID)])
def test_what_is_known_of_a_process_shows_how_much_it_said_and_not_what(holder: Any) -> None:
    for shown in (str(holder), repr(holder), repr([holder]), repr(list(holder.__rich_repr__()))):
        assert SECRET not in shown
        assert f"<{len(SAID)} characters>" in shown
        assert "=7" in shown or "', 7" in shown  # the rest is there
    assert holder.stderr_tail == SAID
    assert msgspec.structs.asdict(holder)["stderr_tail"] == SAID


def test_without_last_words_there_is_nothing_to_hide() -> None:
    assert "stderr_tail=''" in repr(TransportInfo(kind="x"))
    assert decode_frame(encode_frame(ProcessEnd(after=1, stderr_tail=SAID)).rstrip()) == ProcessEnd(after=1, stderr_tail=SAID)
