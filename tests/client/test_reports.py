"""Errors that several tasks wait for: each of them gets a copy of its own."""

from __future__ import annotations

import pytest

from claude_transport.client.reports import Prose, ended_before_answer
from claude_transport.errors import ConnectionLost
from claude_transport.exchange.failures import raised_again
from claude_transport.protocol.envelope import DecodeFailure
from claude_transport.protocol.framing import OversizedLine
from claude_transport.protocol.redaction import Redactor
from claude_transport.transport import TransportInfo


def test_a_note_on_the_error_of_one_waiter_is_not_on_that_of_another() -> None:
    error = ConnectionLost("the peer is gone")
    error.add_note("seen at the end")
    first, second = raised_again(error), raised_again(error)
    first.add_note("added by the first")
    assert (first.__notes__, second.__notes__) == (["seen at the end", "added by the first"], ["seen at the end"])


KEY = "sk-ant-api03-abcdefghijklmnop"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"  Usage: claudette [FILE]\n", "'Usage: claudette [FILE]'"),
        (b"x" * 1000, f"'{'x' * 200}… (800 more characters)'"),
        (b"\x1b[2J\xff" + KEY.encode(), r"'\\x1b[2J\\xff[secret]'"),
    ],
)
def test_the_first_line_of_another_program_is_shown_short_and_without_secrets(line: bytes, shown: str) -> None:
    error = Prose.of(DecodeFailure(raw=line, kind="noise", line_number=1)).error(TransportInfo(kind="test"), Redactor())
    assert f"It began with {shown}." in str(error.args[0])
    assert (error.line, error.line_number) == (line, 1)


def test_of_a_long_first_line_the_beginning_is_kept_with_its_size() -> None:
    line = Prose.of(DecodeFailure(raw=b"x" * 5000, kind="noise", line_number=1)).line
    assert isinstance(line, OversizedLine)
    assert (line, line.size, line.limit) == (b"x" * 4096, 5000, 4096)


@pytest.mark.parametrize(
    ("info", "told"),
    [
        (TransportInfo(kind="test", exit_code=0), "the process ended with exit code 0 and said nothing: it is probably no Claude CLI"),
        (TransportInfo(kind="test"), "the conversation ended before the request was answered: the peer closed the connection"),
        (
            TransportInfo(kind="test", exit_code=0, bytes_read=9),
            "the conversation ended before the request was answered: the process ended with exit code 0",
        ),
    ],
)
def test_a_peer_that_ended_without_an_answer_is_no_cli_only_when_its_process_said_nothing(info: TransportInfo, told: str) -> None:
    error = ended_before_answer(info, failure=(cause := ConnectionLost("before")))
    assert str(error).startswith(told)
    assert error.__cause__ is cause
