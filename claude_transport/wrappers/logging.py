"""`LoggingTransport`: logs each line and event of a transport: direction, type, size and ids, and on request the text."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

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
"""Stands in each line with a fragment of a text: of Claude (`include_partial_messages`), and of agents that speak JSON-RPC."""

_FRAGMENTS: Final = frozenset({"text", "thinking", "partial_json", "signature", "delta"})
"""Fields that hold the fragment."""

_NAMES: Final = "|".join(sorted(_FRAGMENTS))
_FRAGMENT: Final = re.compile(rf"""("(?:{_NAMES})"\s*+:\s*+)("[^"\\]*+(?:\\.[^"\\]*+)*+\\?"?)""".encode(), re.DOTALL)
"""Such a field, and its string. A quotation mark inside a string has a backslash before it, so this cannot begin there."""
_UNUSUAL: Final = re.compile(rf"""\\u00|"(?:{_NAMES})"\s*+:\s*+\[""".encode())
"""What only a reader of JSON understands: letters that are written as escapes, and fragments in a list."""

_PLAIN_FRAGMENT: Final = re.compile(rf'''"(?:{_NAMES})":"([^"\\\x00-\x1f\x7f-\xff]*+)"'''.encode("latin-1"))
"""Such a field as the CLI writes it, with a fragment that means what it looks like."""
_UUID_FIELD: Final = b'"uuid":"'
_UUID: Final = re.compile(rb'[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?=")')
_MAX_REPEATED: Final = 64
_MAX_REPEATED_BYTES: Final = 1024
"""The most lines that are remembered, and the most bytes of one. They bound the memory of a session that is logged: 130 KiB."""
_LENGTH_CHARS: Final = 20
"""Characters in which the length of a fragment is told."""

Seen: TypeAlias = tuple[dict[str, str], str]
"""The names in a line, by the fields of its record, and its text: as they are logged."""


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
        # a redactor that is a class of its own is asked about each line, and a text that may be too long is cut
        may_repeat = bodies and max_body_chars >= _MAX_REPEATED_BYTES + _LENGTH_CHARS
        self._repeated = _RepeatedLines() if may_repeat and (redactor is None or type(redactor) is Redactor) else None

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
        whole = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else bytes(data)
        self._log_lines("sent", [line for line in whole.split(b"\n") if line.strip()])

    def on_write_failed(self, data: str | bytes, error: BaseException) -> None:
        """Log a record `write_failed` with `error`, redacted; `data` is not logged again. Called by `write()`."""
        self._log_failure("write_failed", "the write failed", error)

    def on_lines(self, lines: Sequence[bytes]) -> None:
        """Log a record `line` for each of `lines`, as received. Called when a reader gets lines."""
        self._log_lines("received", lines)

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
        """Hand a record to the logger, which is enabled."""
        self._logger.handle(self._new_record(message, args, fields))

    def _new_record(self, message: str, args: tuple[object, ...], fields: dict[str, object]) -> logging.LogRecord:
        """Make a record that names this place: to find its own by the stack is slow."""
        place = (__file__, LoggingTransport._record.__code__.co_firstlineno)
        return self._logger.makeRecord(self._logger.name, self._level, *place, message, args, None, "_record", fields)

    def _log_failure(self, event: str, what: str, error: BaseException, **fields: object) -> None:
        fields["error"] = name = type(error).__name__
        if isinstance(error, ClaudeTransportError):
            fields["code"] = error.code
        fields["reason"] = reason = self._clean(str(error), at_most=_MAX_ERROR_CHARS)
        self._log(event, "%s: %s%s", what, name, f": {reason}" if reason else "", **fields)

    def _log_lines(self, direction: str, lines: Sequence[bytes]) -> None:
        if self.is_idle:
            return  # the logger was disabled during this iteration
        several = len(lines) > 1 and _makes_plain_records(self._logger)
        shared: dict[str, object] = {"claude_event": "line", "claude_direction": direction}
        pattern = self._new_record("", (), shared) if several else None
        left = iter(lines)
        for line in left:  # once, and once more after each line that could not be logged
            self._tell(self._log_from, line, left, shared, pattern)

    def _log_from(self, line: bytes, left: Iterator[bytes], shared: dict[str, object], pattern: logging.LogRecord | None) -> None:
        """Log `line` and all lines that are left."""
        self._log_line(line, shared, pattern)
        for line in left:
            self._log_line(line, shared, pattern)

    def _log_line(self, line: bytes, shared: dict[str, object], pattern: logging.LogRecord | None) -> None:
        size = line.size if isinstance(line, OversizedLine) else len(line)
        names, body = self._look_at(line) if self._repeated is None else self._repeated.read(line, self._look_at, self._secrets)
        what = " ".join(names.values()) or "a line that is no message"
        fields: dict[str, object]
        args: tuple[object, ...]
        if self._bodies:
            fields = {"claude_size": size, **names, "claude_body": body}
            message, args = "%s %s (%d bytes): %s", (shared["claude_direction"], what, size, body)
        else:
            fields = {"claude_size": size, **names}
            message, args = "%s %s (%d bytes)", (shared["claude_direction"], what, size)
        if pattern is None:
            self._record(message, args, {**shared, **fields})
        else:
            self._logger.handle(_record_like(pattern, message, args, fields))

    def _look_at(self, line: bytes) -> Seen:
        """Return the names in a line and its text, without secrets and short. The text is empty when bodies are not logged."""
        limit = self._max_body_chars
        text, is_whole = redacted_head(line, redact=self._without_secrets, at_most=limit) if self._bodies else ("", True)
        shown = printable(text, at_most=limit if is_whole else len(text))
        names = _names_in(line)
        if shown is not text or not _has_strings(text, names.values()) or sum(map(len, names.values())) > _MAX_NAME_CHARS:
            names = self._clean_names(names)
        if is_whole:
            return names, shown
        size = line.size if isinstance(line, OversizedLine) else len(line)
        return names, f"{shown[:limit]}… ({size} bytes in all)"

    def _clean_names(self, names: dict[str, str]) -> dict[str, str]:
        """Return the names in a line without secrets, and short."""
        together = "\n".join(names.values())
        if self._secrets.text(together) != together:
            return {name: self._clean(value, at_most=_MAX_NAME_CHARS) for name, value in names.items()}
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


class _RepeatedLines:
    """Knows lines that differ in a fragment of a text and in their `uuid` alone: a streamed text consists of thousands of them.

    What stands around the two is looked at once.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, bytes, bytes], tuple[str, str, str, str]] = {}

    def read(self, line: bytes, look_at: Callable[[bytes], Seen], redactor: Redactor) -> Seen:
        """Return what `look_at(line)` returns, without calling it for a line that repeats another one. It redacts with `redactor`."""
        fragment = _PLAIN_FRAGMENT.search(line)
        if fragment is None or len(line) > _MAX_REPEATED_BYTES:
            return look_at(line)
        begin = line.find(_UUID_FIELD, fragment.end()) + len(_UUID_FIELD)
        if (uuid := _UUID.match(line, begin)) is None:
            return look_at(line)
        around = line[: fragment.start(1)], line[fragment.end(1) : begin], line[uuid.end() :]
        own_id, shown = uuid[0].decode(), f"[{fragment.end(1) - fragment.start(1)} characters]"
        known = self._known.get(around)
        if known is not None and not redactor.may_know(uuid[0]):
            kind, before, between, behind = known
            return {"claude_type": kind, "claude_uuid": own_id}, f"{before}{shown}{between}{own_id}{behind}"
        names, body = look_at(line)
        if not names.keys() ^ {"claude_type", "claude_uuid"} and b"".join(around).count(_UUID_FIELD) == 1 and _DELTA.search(around[0]):
            before, between, behind = (part.decode("utf-8", "backslashreplace") for part in around)
            if body == f"{before}{shown}{between}{own_id}{behind}":
                if len(self._known) == _MAX_REPEATED:
                    self._known.clear()
                self._known[around] = names["claude_type"], before, between, behind
        return names, body


def _names_in(line: bytes) -> dict[str, str]:
    """Return the type, subtype, uuid and request id of a message, as far as it has them, by the fields of its record."""
    found = peek(line)
    names: dict[str, str] = {}
    if found.type is not None:
        names["claude_type"] = found.type
    if found.subtype is not None:
        names["claude_subtype"] = found.subtype
    if found.uuid is not None:
        names["claude_uuid"] = found.uuid
    if found.request_id is not None:
        names["claude_request_id"] = found.request_id
    return names


def _has_strings(clean: str, values: Iterable[str]) -> bool:
    """Return whether `values` are strings in `clean`, a line without secrets, so that they have none."""
    for value in values:  # noqa: SIM110 - runs for every line, and takes half the time of all() with a generator
        if f'"{value}"' not in clean:
            return False
    return True


def _makes_plain_records(logger: logging.Logger) -> bool:
    """Return whether `logger` makes records as the standard library does, so that nothing else may have a part in each."""
    return logging.getLogRecordFactory() is logging.LogRecord and type(logger) in (logging.Logger, logging.RootLogger)


def _record_like(pattern: logging.LogRecord, message: str, args: tuple[object, ...], fields: dict[str, object]) -> logging.LogRecord:
    """Return a record of now, with the place, the process and the thread of `pattern`: to ask for these takes longer than all the rest."""
    now = time.time()
    record = logging.LogRecord.__new__(logging.LogRecord)
    record.__dict__ = {
        **vars(pattern),
        **fields,
        "msg": message,
        "args": args,
        "created": now,
        "msecs": float(int(now % 1 * 1000)),
        "relativeCreated": pattern.relativeCreated + (now - pattern.created) * 1000,
    }
    return record


def _without_fragment(line: bytes) -> bytes:
    """Return a line with the length of its fragment in place of the text."""
    if not (b"[" in line or b"\\u00" in line) or not _UNUSUAL.search(line):
        return _FRAGMENT.sub(_length_of_match, line)
    return rewrite_strings(line, _length_of_fragment, keep=lambda _name: False, number=lambda _place: False)


def _length_of_match(match: re.Match[bytes]) -> bytes:
    key, token = match.groups()
    is_whole = token.endswith(b'"', 1)  # a line may be cut in the middle of a string
    text = token[1:-1] if is_whole else token[1:]
    said = _decoded(text.decode("utf-8", "surrogateescape"))
    return b'%s"[%d characters]%s' % (key, len(said), b'"' if is_whole else b"")


def _decoded(text: str) -> str:
    """Return the text that stands in JSON as `text`; `text` itself when it is cut in an escape."""
    if "\\" in text:
        with contextlib.suppress(ValueError):
            return str(json.loads(f'"{text}"'))
    return text


def _length_of_fragment(text: str, place: Place) -> str:
    return f"[{len(text)} characters]" if place.name in _FRAGMENTS and not place.is_key else text


def _level_of(level: int | str) -> int:
    number = logging.getLevelNamesMapping().get(level.upper()) if isinstance(level, str) else level
    if isinstance(number, bool) or not isinstance(number, int):
        raise ConfigurationError(f"level must be a number or a name such as DEBUG, not {level!r}", option="level")
    return number
