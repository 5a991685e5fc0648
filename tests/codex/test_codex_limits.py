"""When a usage limit of Codex ends: the error of a turn says it, as with Claude, and a call waits for it or gives up at once."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

import claude_transport as ct
from claude_transport.codex.conversation import CodexConversation
from claude_transport.codex.errors import resets_at_of
from claude_transport.codex.messages import CodexNotification, decode_message

AT = 1_795_389_533
MOMENT = dt.datetime.fromtimestamp(AT, dt.UTC)


def window(percent: Any, at: Any = AT) -> dict[str, Any]:
    return {"usedPercent": percent, "windowDurationMins": 300, "resetsAt": at}


@pytest.mark.parametrize(
    ("limits", "moment"),
    [
        ({"primary": window(100), "secondary": None}, MOMENT),
        ({"primary": window(99), "secondary": window(100, AT + 60)}, MOMENT + dt.timedelta(seconds=60)),
        ({"primary": window(100, AT + 60), "secondary": window(100)}, MOMENT + dt.timedelta(seconds=60)),
        ({"primary": window(99), "secondary": window(20)}, None),
        ({"primary": window(100, None)}, None),
        ({"primary": window("100"), "secondary": window(100, "soon")}, None),
        ({"primary": window(100, 10**400), "secondary": window(100, 1e400)}, None),
        ({"primary": window(True, True), "secondary": []}, None),
        ({}, None),
        (None, None),
        ("full", None),
    ],
)
def test_a_full_window_says_when_it_ends_and_nothing_else_does(limits: Any, moment: dt.datetime | None) -> None:
    assert resets_at_of(limits) == moment


def error_after(*lines: dict[str, Any], info: str = "usageLimitExceeded") -> ct.ResultError:
    """The error of a turn that fails after these notifications."""
    conversation, turn = CodexConversation(), {"id": "t", "status": "inProgress", "items": [], "error": None}
    conversation.expect("x")
    conversation.claim("x", "t")
    failed = {**turn, "status": "failed", "error": {"message": "m", "codexErrorInfo": info}}
    record = None
    for line in (*lines, {"method": "turn/completed", "params": {"threadId": "x", "turn": failed}}):
        message = decode_message(json.dumps(line).encode())
        assert isinstance(message, CodexNotification)
        record = conversation.take(message)
    assert record is not None
    assert record.result is not None
    assert record.result.error is not None
    with pytest.raises(ct.ResultError) as caught:
        record.result.raise_for_error()
    assert (type(caught.value), caught.value.resets_at) == (type(record.result.error), record.result.error.resets_at)
    return record.result.error


def updated(**limits: Any) -> dict[str, Any]:
    return {"method": "account/rateLimits/updated", "params": {"rateLimits": limits}}


def test_the_error_of_a_limit_has_the_moment_at_which_the_limit_lifts() -> None:
    assert error_after(updated(primary=window(100))).resets_at == MOMENT
    assert error_after(updated(primary=window(100)), updated(primary=None, secondary=None)).resets_at == MOMENT, "a sparse update"
    assert error_after(updated(primary=window(100)), updated(primary=window(3))).resets_at is None, "the window has begun anew"
    assert error_after().resets_at is None
    assert error_after(updated(primary=window(100)), info="internalServerError").resets_at is None
