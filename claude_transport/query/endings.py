"""How a conversation ended: with which typed cause, or with none."""

from __future__ import annotations

from claude_transport.errors import ClaudeTransportError, CLIJSONDecodeError, ConnectionLost, ProcessError
from claude_transport.protocol.codec import DecodeCounters
from claude_transport.protocol.messages import ResultMessage

__all__ = ["cause_of_end", "translated"]


def translated(exc: Exception, what: str) -> ClaudeTransportError:
    """`exc` as an error of this library: somebody else's transport may raise anything."""
    if isinstance(exc, ClaudeTransportError):
        return exc
    lost = ConnectionLost(f"{what}: {exc!r}")
    lost.__cause__ = exc
    return lost


def cause_of_end(
    error: ClaudeTransportError | None, *, last: ResultMessage | None, counters: DecodeCounters
) -> ClaudeTransportError | None:
    """Why the stream ended; None when all is well."""
    if isinstance(error, ProcessError) and error.exit_code == 1 and last is not None and last.is_error is True:
        return None  # the CLI's exit code repeats what its last result said (PROTOCOL (e)): it is no crash
    messages = counters.typed + counters.salvaged + counters.unknown + counters.lossy
    if error is None and not messages and counters.noise + counters.malformed:
        return CLIJSONDecodeError("the peer ended, and nothing that it said was a JSON message")
    return error
