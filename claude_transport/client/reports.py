"""What a `Query` reports: `CloseReport`, `ResumePoint`, and the errors that explain the end of a CLI."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from claude_transport.errors import ClaudeTransportError, CLIJSONDecodeError, ConnectionLost, ProcessError
from claude_transport.protocol.codec import DecodeCounters
from claude_transport.protocol.envelope import DecodeFailure, OversizedMessage
from claude_transport.protocol.framing import OversizedLine
from claude_transport.protocol.messages import ResultMessage
from claude_transport.protocol.redaction import Redactor
from claude_transport.text.printable import printable
from claude_transport.transport import TransportInfo

_PROSE_BYTES: Final = 4096
"""Bytes that are kept of a first line that held no message."""
_SHOWN_CHARS: Final = 200
"""Characters of it in the message of an error."""


class CloseReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `Query.aclose()` returns: how the conversation was closed, and what was cut off.

    `ended_by_itself` is False when the peer did not end in time, so that it was cut off. `lost_turns` are the uuids of prompts without a
    result. `dropped_tasks` are the background agents that were still at work: task id to description. `exit_code` and `signal` say how the
    process ended, if there is one; `killed` is True when it had to be ended by a signal. `unstored_entries` counts what the `session_store`
    did not get of the transcript.
    """

    ended_by_itself: bool = True
    lost_turns: tuple[str, ...] = ()
    dropped_tasks: dict[str, str] = {}
    exit_code: int | None = None
    signal: int | None = None
    killed: bool = False
    unstored_entries: int = 0


class ResumePoint(msgspec.Struct, frozen=True):
    """Where a new process can continue a conversation: `ClaudeOptions(resume=session_id, resume_session_at=last_uuid)`. `last_uuid` is the
    uuid of the last message of the main conversation; None before there is one.
    """

    session_id: str
    last_uuid: str | None = None


def cause_of_end(
    error: ClaudeTransportError | None,
    *,
    last: ResultMessage | None,
    counters: DecodeCounters,
    explain: Callable[[], ClaudeTransportError | None],
) -> ClaudeTransportError | None:
    """Return the error that ended the stream; None when it ended well.

    `error` is what the transport raised, `last` the last result, and `counters` tell whether any line was a message. `explain` makes the
    error for a peer of which no line was.
    """
    if isinstance(error, ProcessError) and error.exit_code == 1 and last is not None and last.is_error is True:
        return None  # not a crash: after a failed result, the CLI exits with code 1 (docs/reference/protocol.md#exit-codes)
    messages = counters.typed + counters.salvaged + counters.unknown + counters.lossy
    if error is None and not messages and counters.noise + counters.malformed:
        return explain()
    return error


class Prose(NamedTuple):
    """The first line that held no message. A peer that sends nothing else may be another program, which explains itself there."""

    line: bytes
    line_number: int | None

    @classmethod
    def of(cls, failure: DecodeFailure | OversizedMessage) -> Prose:
        """Keep the beginning of the line."""
        line = failure.raw
        if len(line) > _PROSE_BYTES:
            line = OversizedLine(line[:_PROSE_BYTES], size=len(line), limit=_PROSE_BYTES)
        return cls(line, getattr(failure, "line_number", None))

    def error(self, info: TransportInfo, redactor: Redactor) -> CLIJSONDecodeError:
        """Return the error for a peer that has ended, and whose output was nothing but such lines."""
        # redacted before it is cut: half a key does not look like one
        shown = printable(redactor.line(self.line).decode("utf-8", "backslashreplace").strip(), at_most=_SHOWN_CHARS)
        return CLIJSONDecodeError(
            f"{end_of(info)}, and none of its output was a message of the Claude CLI. It began with {shown!r}. {check_peer(info)}",
            line=self.line,
            line_number=self.line_number,
        )


def end_of(info: TransportInfo) -> str:
    """Return how the peer ended, in words: its program, or what is known of it, and the exit code."""
    if info.exit_code is not None:
        return f"{info.cli_path or 'the process'} ended with exit code {info.exit_code}"
    return f"{info.cli_path or 'the peer'} closed the connection"


def check_peer(info: TransportInfo) -> str:
    """Return what to do about a peer that does not speak like a Claude CLI."""
    if info.cli_path is None:
        return "Check that the Claude CLI, or a gateway to it, is at the other end."
    return (
        f"Run `{info.cli_path} --version`: it must answer `… (Claude Code)`. "
        "If it does not, name another program (cli_path, CLAUDE_CLI_PATH)."
    )


def ended_before_answer(info: TransportInfo, *, failure: ClaudeTransportError | None = None) -> ConnectionLost:
    """Return the error for the requests that a peer had not answered when it ended well. `failure` is why it got no more lines, if so."""
    if not info.bytes_read and not info.lines_read and info.exit_code is not None:
        lost = ConnectionLost(f"{end_of(info)} and said nothing: it is probably no Claude CLI. {check_peer(info)}")
    else:
        how = f"the conversation ended before the request was answered: {end_of(info)}"
        lost = ConnectionLost(f"{how}. Start a new session and ask again.")
    lost.__cause__ = failure
    return lost
