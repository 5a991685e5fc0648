"""`LoggingTransport`: what goes over the wire, in the log: direction, type, size and ids; what was said only when asked for."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from claude_transport.errors import ClaudeTransportError, ConfigurationError
from claude_transport.printable import printable
from claude_transport.protocol.framing import OversizedLine
from claude_transport.protocol.redaction import Redactor
from claude_transport.transport import TransportLike
from claude_transport.wrappers.base import ObservingWrapper
from claude_transport.wrappers.redactor import redacted_head, redactor_for

DEFAULT_LOGGER = "claude_transport.wire"
"""The name of the logger, so that one line of configuration turns the wire on or off and leaves the library's own warnings alone."""

DEFAULT_MAX_BODY_CHARS = 2000
"""Characters: a tool's arguments are mostly shorter, a file's content longer."""

_MAX_NAME_CHARS = 100
"""Characters of a type or an id: real ones have at most 50, and the peer decides what it sends as one."""

_MAX_ERROR_CHARS = 500
"""Characters of an error's text."""


class LoggingTransport(ObservingWrapper):
    """Logs what happens on `transport` to `logger` (a `logging.Logger` or its name), at `level` (a number or a name).

    Args:
        bodies: also what was said, redacted, at most `max_body_chars` characters of each line. Of a line longer than 64 KiB only the
            beginning is redacted: a few characters less may be shown, and never a part of a secret (that is no longer than 64 KiB).
        redactor: does the redacting in a way of its own; by default it knows what looks secret, and the secrets in this process's
            environment and in the transport's options.

    One record for each line and each event. Its fields, for formatters, filters and other logging libraries:

    * `claude_event`: `line`, `connecting`, `connected`, `connect_failed`, `write_failed`, `input_ended`, `output_ended`, `closing` or
      `closed`
    * of a line: `claude_direction` (`sent`, `received`), `claude_size` (bytes), and where it has them `claude_type`, `claude_subtype`,
      `claude_uuid`, `claude_request_id`, and `claude_body`
    * `claude_pid` when connected, `claude_exit_code` and `claude_signal` when the output has ended, as far as they are known
    * of a failure: `claude_error` (the class), `claude_code`, `claude_reason` (its text, redacted)

    A line is logged as sent when it is about to be, so that its answer comes after it. While the logger is not enabled for the level,
    nothing is done; switching it on takes effect on the reading with the next iteration. A handler that raises breaks nothing.
    """

    def __init__(
        self,
        transport: TransportLike,
        *,
        logger: logging.Logger | str = DEFAULT_LOGGER,
        level: int | str = logging.DEBUG,
        bodies: bool = False,
        max_body_chars: int = DEFAULT_MAX_BODY_CHARS,
        redactor: Redactor | None = None,
    ) -> None:
        super().__init__(transport)
        if not isinstance(logger, logging.Logger | str):
            raise ConfigurationError(f"logger is a logging.Logger or a name, not {type(logger).__name__}", option="logger")
        if isinstance(max_body_chars, bool) or not isinstance(max_body_chars, int) or max_body_chars < 1:
            raise ConfigurationError(f"max_body_chars is a whole number, at least 1, not {max_body_chars!r}", option="max_body_chars")
        self._logger = logging.getLogger(logger) if isinstance(logger, str) else logger
        self._level = _level_of(level)
        self._bodies = bodies
        self._max_body_chars = max_body_chars
        self._redactor = redactor

    @property
    def is_idle(self) -> bool:
        """True while the logger is not enabled for the level."""
        return not self._logger.isEnabledFor(self._level)

    # ----------------------------------------------------------------------------------------------------------- what happens

    def on_connecting(self) -> None:
        """Log it."""
        self._log("connecting", "connecting")

    def on_connected(self) -> None:
        """Log it, with the process id when there is one."""
        pid = self.info.pid
        if pid is None:
            self._log("connected", "connected")
        else:
            self._log("connected", "connected to process %d", pid, pid=pid)

    def on_connect_failed(self, error: BaseException) -> None:
        """Log it."""
        self._log_failure("connect_failed", "connecting failed", error)

    def on_writing(self, data: str | bytes) -> None:
        """Log each line."""
        for line in (data.encode("utf-8", "surrogatepass") if isinstance(data, str) else bytes(data)).split(b"\n"):
            if line.strip():
                self._tell(self._log_line, "sent", line)

    def on_write_failed(self, data: str | bytes, error: BaseException) -> None:
        """Log it."""
        self._log_failure("write_failed", "the write failed", error)

    def on_lines(self, lines: Sequence[bytes]) -> None:
        """Log each line."""
        for line in lines:
            self._tell(self._log_line, "received", line)

    def on_input_ended(self) -> None:
        """Log it."""
        self._log("input_ended", "the input has ended")

    def on_read_end(self, error: Exception | None) -> None:
        """Log it, with how the peer ended."""
        info = self.info
        ended = {
            "exit_code": getattr(error, "exit_code", info.exit_code),
            "signal": getattr(error, "signal", info.signal),
        }
        known = {name: value for name, value in ended.items() if value is not None}
        if error is None:
            self._log("output_ended", "the output has ended", **known)
        else:
            self._log_failure("output_ended", "the output has ended", error, **known)

    def on_closing(self) -> None:
        """Log it."""
        self._log("closing", "closing")

    def on_closed(self, error: BaseException | None) -> None:
        """Log it."""
        if error is None:
            self._log("closed", "closed")
        else:
            self._log_failure("closed", "closed", error)

    # ------------------------------------------------------------------------------------------------------------- the record

    def _log(self, event: str, message: str, *args: object, **fields: object) -> None:
        extra = {f"claude_{name}": value for name, value in fields.items()}
        self._logger.log(self._level, message, *args, extra={"claude_event": event, **extra})

    def _log_failure(self, event: str, what: str, error: BaseException, **fields: object) -> None:
        fields["error"] = name = type(error).__name__
        if isinstance(error, ClaudeTransportError):
            fields["code"] = error.code
        fields["reason"] = reason = self._clean(str(error), at_most=_MAX_ERROR_CHARS)
        self._log(event, "%s: %s%s", what, name, f": {reason}" if reason else "", **fields)

    def _log_line(self, direction: str, line: bytes) -> None:
        if self.is_idle:
            return  # switched off while it is being read
        size = line.size if isinstance(line, OversizedLine) else len(line)
        names = {name: self._clean(value, at_most=_MAX_NAME_CHARS) for name, value in _names_in(line).items()}
        fields: dict[str, object] = {"direction": direction, "size": size, **names}
        what = " ".join(names.values()) or "a line that is no message"
        if not self._bodies:
            self._log("line", "%s %s (%d bytes)", direction, what, size, **fields)
            return
        text, is_whole = redacted_head(line, redact=self._secrets.line, at_most=self._max_body_chars)
        limit = self._max_body_chars
        text = printable(text, at_most=limit if is_whole else len(text))
        fields["body"] = body = text if is_whole else f"{text[:limit]}… ({size} bytes in all)"
        self._log("line", "%s %s (%d bytes): %s", direction, what, size, body, **fields)

    @property
    def _secrets(self) -> Redactor:
        if self._redactor is None:
            self._redactor = redactor_for(self.transport)
        return self._redactor

    def _clean(self, text: str, *, at_most: int) -> str:
        """`text` without secrets, on one line."""
        return printable(self._secrets.text(text), at_most=at_most)


# Only the outermost names are decoded; what is inside stays bytes, and is skipped.
class _Inner(msgspec.Struct):
    subtype: Any = None
    request_id: Any = None


class _Envelope(msgspec.Struct):
    type: Any = None
    subtype: Any = None
    uuid: Any = None
    request_id: Any = None
    request: msgspec.Raw = msgspec.Raw(b"null")
    response: msgspec.Raw = msgspec.Raw(b"null")


_envelopes = msgspec.json.Decoder(_Envelope)
_inners = msgspec.json.Decoder(_Inner | None)


def _names_in(line: bytes) -> dict[str, str]:
    """The type, subtype, uuid and request id of a message, as far as it has them; nothing for what is none."""
    try:
        envelope = _envelopes.decode(line)
        names = {"type": envelope.type, "subtype": envelope.subtype, "uuid": envelope.uuid, "request_id": envelope.request_id}
        if envelope.type in ("control_request", "control_response"):
            # these are named by what they ask or answer
            inner = _inners.decode(envelope.request if envelope.type == "control_request" else envelope.response)
            if inner is not None:
                names["subtype"] = inner.subtype
                names["request_id"] = envelope.request_id or inner.request_id
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    return {name: value for name, value in names.items() if isinstance(value, str) and value}


def _level_of(level: int | str) -> int:
    number = logging.getLevelNamesMapping().get(level.upper()) if isinstance(level, str) else level
    if isinstance(number, bool) or not isinstance(number, int):
        raise ConfigurationError(f"level is a number or a name such as DEBUG, not {level!r}", option="level")
    return number
