"""`LoggingTransport`: logs each line and event of a transport: direction, type, size and ids, and on request the text."""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections.abc import Sequence
from typing import Final

from claude_transport.errors import ClaudeTransportError, ConfigurationError
from claude_transport.protocol.framing import OversizedLine
from claude_transport.protocol.peek import peek
from claude_transport.protocol.redaction import Place, Redactor, rewrite_strings
from claude_transport.text.printable import printable
from claude_transport.transport import AtOnce, TransportLike
from claude_transport.wrappers.base import ObservingWrapper
from claude_transport.wrappers.redactor import redacted_head, redactor_for

DEFAULT_LOGGER = "claude_transport.wire"
"""The default logger. It is separate, so that one line of configuration switches it without touching the library's own warnings."""

DEFAULT_MAX_BODY_CHARS = 2000
"""Characters of a line's text: mostly enough for a tool's arguments, and too few for a file."""

_MAX_NAME_CHARS = 100
"""The most characters of a type or an id. Real ones have at most 50, but the peer chooses them."""

_MAX_ERROR_CHARS = 500
"""Characters of an error's text."""

_DELTA: Final = re.compile(rb'"content_block_delta"|"method"\s*:\s*"[\w/]{1,60}[dD]elta"')
"""Stands in each line with a fragment of a text: of Claude (`include_partial_messages`) and of Codex."""

_FRAGMENTS: Final = frozenset({"text", "thinking", "partial_json", "signature", "delta"})
"""Fields that hold the fragment."""

_NAMES: Final = "|".join(sorted(_FRAGMENTS))
_FRAGMENT: Final = re.compile(rf"""("(?:{_NAMES})"\s*+:\s*+)("[^"\\]*+(?:\\.[^"\\]*+)*+\\?"?)""".encode(), re.DOTALL)
"""Such a field, and its string. A quotation mark inside a string has a backslash before it, so this cannot begin there."""
_UNUSUAL: Final = re.compile(rf"""\\u00|"(?:{_NAMES})"\s*+:\s*+\[""".encode())
"""What only a reader of JSON understands: letters that are written as escapes, and fragments in a list."""


class LoggingTransport(ObservingWrapper):
    """Logs what happens on `transport`: a record for each line and for each event, such as connecting and closing.

    Args:
        logger: a `logging.Logger` or its name.
        level: the level of the records, as a number or a name.
        bodies: log the text of each line as well, redacted. In place of a fragment of a text (`include_partial_messages`) stands its
            length, because a secret in several fragments cannot be found. The whole text is in the message that follows them.
        max_body_chars: the most characters that a record has of a text. Of a line over 64 KiB only the beginning is redacted; a few
            characters less may be shown then, and never a part of a secret (of up to 64 KiB).
        redactor: the `Redactor` for texts. The default one removes what looks secret, and the secrets in this process's environment and in
            the transport's options.

    The fields of a record, for formatters, filters and other logging libraries:

    * `claude_event`: `line`, `connecting`, `connected`, `connect_failed`, `write_failed`, `input_ended`, `output_ended`, `closing` or
      `closed`
    * for a line: `claude_direction` (`sent`, `received`), `claude_size` (bytes), and where the line has them `claude_type`,
      `claude_subtype`, `claude_uuid`, `claude_request_id` and `claude_body`
    * `claude_pid` when connected; `claude_exit_code` and `claude_signal` when the output has ended, if they are known
    * for a failure: `claude_error` (the class), `claude_code`, `claude_reason` (its text, redacted)

    A line is logged as sent before it is written, so that its answer is logged after it. While the logger is not enabled for the level, the
    wrapper does nothing. After it was enabled, writes and events are logged at once, and lines that are read from the next iterator on. A
    log handler that raises an exception breaks nothing.

    Raises:
        ConfigurationError: an argument has the wrong type or is out of range.
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
            raise ConfigurationError(f"logger must be a logging.Logger or a name, not {type(logger).__name__}", option="logger")
        if isinstance(max_body_chars, bool) or not isinstance(max_body_chars, int) or max_body_chars < 1:
            raise ConfigurationError(
                f"max_body_chars must be a whole number of at least 1, not {max_body_chars!r}", option="max_body_chars"
            )
        self._logger = logging.getLogger(logger) if isinstance(logger, str) else logger
        self._level = _level_of(level)
        self._bodies = bodies
        self._max_body_chars = max_body_chars
        self._redactor = redactor

    @property
    def is_idle(self) -> bool:
        """True while the logger is not enabled for the level. Then nothing is logged, and reading costs nothing extra."""
        return not self._logger.isEnabledFor(self._level)

    def pass_at_once(self, inner: AtOnce) -> AtOnce | None:
        """Have lines written without waiting while nothing is logged."""
        return self.pass_while_idle(inner)

    def on_connecting(self) -> None:
        """Log a record `connecting`. Called by `connect()` when an attempt begins."""
        self._log("connecting", "connecting")

    def on_connected(self) -> None:
        """Log a record `connected`, with the id of the process if there is one. Called by `connect()`."""
        pid = self.info.pid
        if pid is None:
            self._log("connected", "connected")
        else:
            self._log("connected", "connected to process %d", pid, pid=pid)

    def on_connect_failed(self, error: BaseException) -> None:
        """Log a record `connect_failed` with `error`, redacted. Called by `connect()`."""
        self._log_failure("connect_failed", "connecting failed", error)

    def on_writing(self, data: str | bytes) -> None:
        """Log a record `line` for each line of `data`, as sent. Called by `write()` before it writes."""
        for line in (data.encode("utf-8", "surrogatepass") if isinstance(data, str) else bytes(data)).split(b"\n"):
            if line.strip():
                self._tell(self._log_line, "sent", line)

    def on_write_failed(self, data: str | bytes, error: BaseException) -> None:
        """Log a record `write_failed` with `error`, redacted; `data` is not logged again. Called by `write()`."""
        self._log_failure("write_failed", "the write failed", error)

    def on_lines(self, lines: Sequence[bytes]) -> None:
        """Log a record `line` for each of `lines`, as received. Called when a reader gets lines."""
        for line in lines:
            self._tell(self._log_line, "received", line)

    def on_input_ended(self) -> None:
        """Log a record `input_ended`. Called by `end_input()`."""
        self._log("input_ended", "the input has ended")

    def on_read_end(self, error: Exception | None) -> None:
        """Log a record `output_ended`, with the exit code, the signal and `error` if there are any. Called when reading has ended."""
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
        """Log a record `closing`. Called by `close()` when it begins."""
        self._log("closing", "closing")

    def on_closed(self, error: BaseException | None) -> None:
        """Log a record `closed`, with `error` if closing has failed. Called by `close()` at its end."""
        if error is None:
            self._log("closed", "closed")
        else:
            self._log_failure("closed", "closed", error)

    def _log(self, event: str, message: str, *args: object, **fields: object) -> None:
        if not self.is_idle:
            self._record(message, args, {"claude_event": event, **{f"claude_{name}": value for name, value in fields.items()}})

    def _record(self, message: str, args: tuple[object, ...], fields: dict[str, object]) -> None:
        """Hand a record to the logger, which is enabled. A record always names this place: to find its own by the stack is slow."""
        place = (__file__, LoggingTransport._record.__code__.co_firstlineno)
        record = self._logger.makeRecord(self._logger.name, self._level, *place, message, args, None, "_record", fields)
        self._logger.handle(record)

    def _log_failure(self, event: str, what: str, error: BaseException, **fields: object) -> None:
        fields["error"] = name = type(error).__name__
        if isinstance(error, ClaudeTransportError):
            fields["code"] = error.code
        fields["reason"] = reason = self._clean(str(error), at_most=_MAX_ERROR_CHARS)
        self._log(event, "%s: %s%s", what, name, f": {reason}" if reason else "", **fields)

    def _log_line(self, direction: str, line: bytes) -> None:
        if self.is_idle:
            return  # the logger was disabled during this iteration
        size = line.size if isinstance(line, OversizedLine) else len(line)
        limit = self._max_body_chars
        text, is_whole = redacted_head(line, redact=self._without_secrets, at_most=limit) if self._bodies else ("", True)
        fields: dict[str, object] = {"claude_event": "line", "claude_direction": direction, "claude_size": size}
        names = self._clean_names(line, text)
        for name, value in names.items():
            fields[f"claude_{name}"] = value
        what = " ".join(names.values()) or "a line that is no message"
        if not self._bodies:
            self._record("%s %s (%d bytes)", (direction, what, size), fields)
            return
        text = printable(text, at_most=limit if is_whole else len(text))
        fields["claude_body"] = body = text if is_whole else f"{text[:limit]}… ({size} bytes in all)"
        self._record("%s %s (%d bytes): %s", (direction, what, size, body), fields)

    def _clean_names(self, line: bytes, clean: str) -> dict[str, str]:
        """Return the names in a line without secrets. Those that are strings in `clean`, a text without secrets, have none."""
        names = _names_in(line)
        values = names.values()
        if not all(f'"{value}"' in clean for value in values) and self._secrets.text(together := "\n".join(values)) != together:
            return {name: self._clean(value, at_most=_MAX_NAME_CHARS) for name, value in names.items()}
        together = "".join(values)
        if together.isprintable() and len(together) <= _MAX_NAME_CHARS:
            return names
        return {name: printable(value, at_most=_MAX_NAME_CHARS) for name, value in names.items()}

    @property
    def _secrets(self) -> Redactor:
        if self._redactor is None:
            self._redactor = redactor_for(self.transport)
        return self._redactor

    def _without_secrets(self, line: bytes) -> bytes:
        return self._secrets.line(_without_fragment(line) if _DELTA.search(line) else line)

    def _clean(self, text: str, *, at_most: int) -> str:
        """Return `text` without secrets, on one line."""
        return printable(self._secrets.text(text), at_most=at_most)


def _names_in(line: bytes) -> dict[str, str]:
    """Return the type, subtype, uuid and request id of a message, as far as it has them; nothing for a line without a message."""
    found = peek(line)
    names = {"type": found.type, "subtype": found.subtype, "uuid": found.uuid, "request_id": found.request_id}
    return {name: value for name, value in names.items() if value is not None}


def _without_fragment(line: bytes) -> bytes:
    """Return a line with the length of its fragment in place of the text."""
    if not (b"[" in line or b"\\u00" in line) or not _UNUSUAL.search(line):
        return _FRAGMENT.sub(_length_of_match, line)
    return rewrite_strings(line, _length_of_fragment, keep=lambda _name: False, number=lambda _place: False)


def _length_of_match(match: re.Match[bytes]) -> bytes:
    key, token = match[1], match[2]
    end = b'"' if len(token) > 1 and token.endswith(b'"') else b""  # a line may be cut in the middle of a string
    text = token[1 : len(token) - len(end)].decode("utf-8", "surrogateescape")
    if "\\" in text:
        with contextlib.suppress(ValueError):
            text = json.loads(token)
    return b'%s"[%d characters]%s' % (key, len(text), end)


def _length_of_fragment(text: str, place: Place) -> str:
    return f"[{len(text)} characters]" if place.name in _FRAGMENTS and not place.is_key else text


def _level_of(level: int | str) -> int:
    number = logging.getLevelNamesMapping().get(level.upper()) if isinstance(level, str) else level
    if isinstance(number, bool) or not isinstance(number, int):
        raise ConfigurationError(f"level must be a number or a name such as DEBUG, not {level!r}", option="level")
    return number
