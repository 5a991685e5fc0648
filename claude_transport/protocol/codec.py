"""Lines to messages: one fast decode, and a ladder of more lenient readers for lines that do not fit.

The rungs, each with its own counter:

1. *typed*: msgspec decodes the line into its class.
2. *salvaged*: the `type` is known, but some values do not fit. Unknown blocks become `UnknownBlock`; other fields keep their default.
3. *unknown*: the `type` is missing or unknown, or too many values do not fit: `UnknownMessage`.
4. *lossy*: the line is not UTF-8, or only the standard library can read it (see `envelope.parse_json`); then 2 or 3.
5. `DecodeFailure` (*noise*, *malformed*) or `OversizedMessage` (*oversized*): this one line is lost, and reported.

So a newer CLI never ends a session. Every message keeps its original line. `framing` cuts the stream into lines before this.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from itertools import repeat
from typing import Any, Final, NamedTuple, get_args

import msgspec
from msgspec.structs import force_setattr

from claude_transport.errors import CLIJSONDecodeError, LineTooLong, ProtocolError, UsageError
from claude_transport.protocol import messages
from claude_transport.protocol.control import ControlCancelRequest, ControlRequest, ControlResponse
from claude_transport.protocol.envelope import Damage, DecodeFailure, JSONTextError, Message, OversizedMessage, UnknownMessage, parse_json
from claude_transport.protocol.framing import OversizedLine
from claude_transport.protocol.messages import SYSTEM_SUBTYPES, AssistantMessage, ResultMessage, StreamEvent, SystemMessage, UserMessage
from claude_transport.protocol.salvage import salvage

_AnyMessage = (
    StreamEvent
    | AssistantMessage
    | UserMessage
    | SystemMessage
    | ResultMessage
    | ControlRequest
    | ControlResponse
    | ControlCancelRequest
    | messages.RateLimitEvent
    | messages.ToolProgress
    | messages.CommandLifecycle
    | messages.ConversationReset
    | messages.TranscriptMirror
    | messages.KeepAlive
    | messages.UpdateEnvironmentVariables
    | messages.ActiveGoal
    | messages.AuthStatus
    | messages.PromptSuggestion
    | messages.ToolUseSummary
)
_CLASSES: Final[dict[str, type[Message]]] = {str(cls.__struct_config__.tag): cls for cls in get_args(_AnyMessage)}

_decode: Final[Callable[[bytes], Message]] = msgspec.json.Decoder(_AnyMessage).decode
decode_dict: Final[Callable[[bytes], dict[str, Any]]] = msgspec.json.Decoder(dict[str, Any]).decode
# A system line is decoded twice, first for its subtype: such lines are rare, and msgspec supports one tag per Struct. Their decoders are
# made at first use: most subtypes never come, and making all decoders took half of this module's import time.
_subtype_decoders: Final[dict[str, Callable[[bytes], SystemMessage]]] = {}

# What msgspec raises for bad input: its own errors, UnicodeDecodeError (a ValueError), and RecursionError for 10 000 nested brackets.
REFUSED: Final = (msgspec.MsgspecError, ValueError, RecursionError)

_NO_KINDS: Final[frozenset[object]] = frozenset()
_BYTES_ONLY: Final[frozenset[type]] = frozenset({bytes})

_BOM: Final = b"\xef\xbb\xbf"
_HEAD_BYTES: Final = 1024  # kept of a line over `max_line_bytes`, to identify it in a log
_MAX_GLUED_TRIES: Final = 8  # places in a noise line at which a parse is tried; bounds the work for a hostile line
_GLUED_BYTES: Final = 64 * 2**10  # bytes that those tries may read beyond the length of the line


class DecodeCounters(msgspec.Struct, kw_only=True):
    """The number of lines that ended on each rung. A line counts once; noise in front of a message also adds one to `noise`."""

    lines: int = 0
    """All lines, including blank ones."""
    typed: int = 0
    salvaged: int = 0
    unknown: int = 0
    """Lines with an unknown `type`, or with too many values that do not fit."""
    lossy: int = 0
    noise: int = 0
    malformed: int = 0
    """Lines that are not a JSON object: broken JSON, an array, a scalar, nested too deeply."""
    oversized: int = 0
    blank: int = 0
    dicts: int = 0
    """Lines that the dict view decoded at once, without checking their content."""


class _Reading(NamedTuple):
    """One decoded line: the message (None for a blank line), its rung, and the noise in front of it.

    `reach` is the number of bytes that the reader of a malformed object read.
    """

    message: Message | None
    rung: str
    noise: bytes = b""
    reach: int = 0


def decode_message(line: bytes) -> Message:
    """Decode one line of the wire to a typed message. Never raises for any bytes; `raw` of the message is the line.

    Returns:
        A typed message; an `UnknownMessage` for an unknown `type`; a `DecodeFailure` or `OversizedMessage` for a line without a message, a
        `DecodeFailure` also for a blank line.

    Raises:
        UsageError: `line` is not bytes.
    """
    message = _read(line).message
    return message if message is not None else DecodeFailure(kind="blank", error="a blank line", raw=bytes(line))


class LineDecoder:
    """Decodes the lines of one stream, in batches: `messages()` for typed messages, `dicts()` and `as_dict()` for plain dicts. `counters`
    counts the lines by how they could be read.

    A line without a message becomes a `DecodeFailure` or `OversizedMessage` in its place.

    Args:
        strict: raise `CLIJSONDecodeError` or `LineTooLong` for such a line instead. `before_failure` then has the messages of the same
            batch before it.
        max_line_bytes: limit of a line in bytes. None means no limit here, for lines that a framer with its own limit has cut.
        on_noise: called with each piece of noise as bytes: a line that does not look like JSON, or the text in front of a message.
    """

    __slots__ = ("_max_line_bytes", "_on_noise", "_strict", "before_failure", "counters", "kinds")

    def __init__(
        self, *, strict: bool = False, max_line_bytes: int | None = None, on_noise: Callable[[bytes], object] | None = None
    ) -> None:
        self._strict = strict
        self._max_line_bytes = max_line_bytes
        self._on_noise = on_noise
        self.counters: DecodeCounters = DecodeCounters()
        self.before_failure: list[Message] | list[dict[str, Any]] = []
        self.kinds: AbstractSet[object] = _NO_KINDS
        """The types of the messages in the last batch. Observers use it to skip a batch without looking at each message."""

    def messages(self, lines: Sequence[bytes]) -> list[Message]:
        """Decode a batch of lines (bytes) to typed messages: one for each line, in order. Blank lines give none. A line without a message
        gives a `DecodeFailure` or `OversizedMessage`.

        Raises:
            CLIJSONDecodeError: only when `strict`: a line is not a JSON object.
            LineTooLong: only when `strict`: a line is over the limit.
        """
        if self._max_line_bytes is not None:
            lines = self._bounded(lines)
        if len(lines) == 1 and (line := lines[0]).__class__ is bytes:  # the usual case in a conversation
            try:
                message = _decode(line)
                if message.__class__ is SystemMessage:
                    message = _second_look(message, line)
            except REFUSED:
                pass  # read again below, more leniently
            else:
                force_setattr(message, "raw", line)
                self.kinds = _kind_alone(message.__class__)
                self.counters.lines += 1
                self.counters.typed += 1
                return [message]
        elif (plain := _read_plain(lines)) is not None:
            good, self.kinds = plain
            self.counters.lines += len(good)
            self.counters.typed += len(good)
            return good
        return self._messages_one_by_one(lines)

    def dicts(self, lines: Sequence[bytes]) -> tuple[list[dict[str, Any]], list[DecodeFailure | OversizedMessage]]:
        """Decode a batch of lines (bytes) to dicts in wire spelling. Of duplicate keys the last one counts. Blank lines give nothing.

        Returns:
            The objects in order, and the failures for lines that are not objects or are over the limit.

        Raises:
            CLIJSONDecodeError: only when `strict`: a line is not a JSON object.
            LineTooLong: only when `strict`: a line is over the limit.
        """
        out: list[dict[str, Any]] = []
        failures: list[DecodeFailure | OversizedMessage] = []
        try:
            for line in lines:
                message = self.as_dict(line)
                if isinstance(message, dict):
                    out.append(message)
                elif message is not None:
                    failures.append(message)
        except ProtocolError:
            self.before_failure = out
            raise
        return out, failures

    def as_dict(self, line: bytes) -> dict[str, Any] | DecodeFailure | OversizedMessage | None:
        """Decode one line (bytes) to a dict in wire spelling, whatever its `type`. Returns None for a blank line, and the failure for a
        line that is not an object or is over the limit.

        Raises:
            CLIJSONDecodeError: only when `strict`: the line is not a JSON object.
            LineTooLong: only when `strict`: the line is over the limit.
        """
        counters = self.counters
        counters.lines += 1
        if self._max_line_bytes is not None:
            (line,) = self._bounded((line,))
        if line.__class__ is bytes:
            try:
                message = decode_dict(line)
            except REFUSED:
                pass  # read again below, more leniently
            else:
                counters.dicts += 1
                return message
        saved = self._rescue(line, counters.lines)
        return saved if saved is None or isinstance(saved, (DecodeFailure, OversizedMessage)) else saved.to_dict()

    def _messages_one_by_one(self, lines: Sequence[bytes]) -> list[Message]:
        """Do what `messages()` does, for a batch with a line that does not fit its class."""
        out: list[Message] = []
        append, decode, set_raw = out.append, _decode, force_setattr
        first, rescued, blank, failed = self.counters.lines, 0, 0, 0
        remaining, line = iter(lines), b""
        try:
            while True:
                try:  # one `try` for the whole batch keeps the cost of a good line low
                    for line in remaining:
                        message = decode(line)
                        if message.__class__ is SystemMessage or line.__class__ is not bytes:
                            message = _second_look(message, line)
                        set_raw(message, "raw", line)
                        append(message)
                    break
                except REFUSED:
                    rescued += 1
                    saved = self._rescue(line, first + len(out) + blank + 1)
                    if saved is None:
                        blank += 1
                    else:
                        append(saved)
        except ProtocolError:
            failed = 1
            self.before_failure = out
            raise
        finally:
            consumed = len(out) + blank + failed
            self.counters.lines = first + consumed
            self.counters.typed += consumed - rescued
            self.kinds = set(map(type, out))
        return out

    def note_dicts(self, count: int) -> None:
        """Count lines that the caller has decoded with `decode_dict()`."""
        self.counters.lines += count
        self.counters.dicts += count

    def _bounded(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        limit = self._max_line_bytes
        if limit is None or max(map(len, lines), default=0) <= limit:
            return lines
        return [OversizedLine(line[:_HEAD_BYTES], size=len(line), limit=limit) if len(line) > limit else line for line in lines]

    def _rescue(self, line: bytes, number: int) -> Message | None:
        """Decode a line with the lenient rungs and count it; raises for a failure when strict."""
        message, rung, noise, _ = _read(line)
        setattr(self.counters, rung, getattr(self.counters, rung) + 1)
        if noise:
            if rung != "noise":
                self.counters.noise += 1
            if self._on_noise is not None:
                self._on_noise(noise)
        if isinstance(message, (DecodeFailure, OversizedMessage)):
            force_setattr(message, "line_number", number)
            if self._strict:
                raise _error_for(message)
        return message


def _error_for(message: DecodeFailure | OversizedMessage) -> ProtocolError:
    number = message.line_number
    if isinstance(message, OversizedMessage):
        text = f"line {number} has {message.size} bytes, over the limit of {message.limit}"
        return LineTooLong(text, size=message.size, limit=message.limit)
    return CLIJSONDecodeError(f"line {number} is not a JSON object: {message.error}", line=message.raw, line_number=number)


@cache
def _kind_alone(kind: type[Message]) -> frozenset[object]:
    """Return the set of one type. It is shared, because each stream keeps the set of its last batch."""
    return frozenset({kind})


def _read_plain(lines: Sequence[bytes]) -> tuple[list[Message], set[type[Message]]] | None:
    """Decode a batch in which every line is plain, without interpreter steps for each line; None for other batches."""
    if not _BYTES_ONLY.issuperset(map(type, lines)):
        return None
    try:
        out: list[Message] = list(map(_decode, lines))
        kinds = set(map(type, out))
        if SystemMessage in kinds:
            out = list(map(_second_look, out, lines))
            kinds = set(map(type, out))
    except REFUSED:
        return None
    deque(map(force_setattr, out, repeat("raw"), lines), maxlen=0)
    return out, kinds


def _second_look(message: Message, line: bytes) -> Message:
    """Decode a system message as the class of its subtype. Raises `ValueError` for a line of a bytes subclass."""
    if line.__class__ is not bytes:
        raise ValueError("not plain bytes")  # an OversizedLine stays oversized even if its head is valid JSON
    if isinstance(message, SystemMessage) and (decode := _decoder_of(message.subtype)) is not None:
        return decode(line)
    return message


def _decoder_of(subtype: str) -> Callable[[bytes], SystemMessage] | None:
    """Return the decoder of a subtype, or None when it has no class of its own."""
    decode = _subtype_decoders.get(subtype)
    if decode is None and (cls := SYSTEM_SUBTYPES.get(subtype)) is not None:
        decode = _subtype_decoders[subtype] = msgspec.json.Decoder(cls).decode
    return decode


def _read(line: bytes) -> _Reading:
    """Decode one line with all rungs."""
    if isinstance(line, OversizedLine):
        return _Reading(OversizedMessage(size=line.size, limit=line.limit, raw=bytes(line)), "oversized")
    if not isinstance(line, (bytes, bytearray, memoryview)):
        raise UsageError(f"a line must be bytes, not {type(line).__name__}")
    line = bytes(line)
    body = line.strip().removeprefix(_BOM).lstrip()
    if not body:
        return _Reading(None, "blank")
    if body.startswith(b"{"):
        return _read_object(body if _BOM in line[: len(line) - len(body)] else line)
    try:
        parse_json(body)
    except JSONTextError:
        return _read_noise(line)
    return _Reading(DecodeFailure(kind="not_object", error="JSON, but not an object", raw=line), "malformed")


def _read_object(line: bytes) -> _Reading:
    """Decode a line that begins with `{`."""
    try:
        message = _second_look(_decode(line), line)
        force_setattr(message, "raw", line)
        return _Reading(message, "typed")
    except REFUSED:
        pass  # try the next rungs
    try:
        value, lossy = parse_json(line)
    except JSONTextError as error:
        reach = len(line) if error.position is None else error.position
        return _Reading(DecodeFailure(kind=error.kind, error=str(error), raw=line), "malformed", reach=reach)
    if not isinstance(value, dict):
        return _Reading(DecodeFailure(kind="not_object", error="JSON, but not an object", raw=line), "malformed", reach=len(line))
    message, rung = _build(value, lossy=lossy)
    force_setattr(message, "raw", line)
    return _Reading(message, rung, reach=len(line))


def _build(value: dict[str, Any], *, lossy: bool) -> tuple[Message, str]:
    """Make a message of an object that the typed decoder refused; returns it with its rung."""
    kind = value.get("type")
    cls = _CLASSES.get(kind) if isinstance(kind, str) else None
    if cls is None:
        return _unknown(kind, lossy=lossy)
    if cls is SystemMessage and isinstance(subtype := value.get("subtype"), str):
        cls = SYSTEM_SUBTYPES.get(subtype, cls)
    misfits: list[str] = []
    message = salvage(cls, value, misfits=misfits)
    if message is None:
        return _unknown(kind, lossy=lossy)
    force_setattr(message, "damage", Damage(tuple(misfits), lossy=lossy) if misfits or lossy else None)
    return message, "lossy" if lossy else "salvaged"


def _unknown(kind: object, *, lossy: bool) -> tuple[Message, str]:
    message = UnknownMessage(wire_type=kind if isinstance(kind, str) else "", damage=Damage(lossy=True) if lossy else None)
    return message, "lossy" if lossy else "unknown"


def _read_noise(line: bytes) -> _Reading:
    """Look for a message at the end of a noise line. It needs a `type`: an object without one may be part of a log line."""
    at, unread = -1, len(line) + _GLUED_BYTES
    for _ in range(_MAX_GLUED_TRIES):
        at = line.find(b'{"', at + 1)
        if at < 0 or unread < 0:
            break
        message, rung, _, reach = _read_object(line[at:])
        if message is not None and not isinstance(message, DecodeFailure) and message.type:
            return _Reading(message, rung, line[:at])
        unread -= reach
    return _Reading(DecodeFailure(kind="noise", error="does not look like JSON", raw=line), "noise", line)


def is_torn(tail: bytes) -> bool:
    """Return whether `tail`, the end of a stream after its last newline, is only the beginning of a JSON object."""
    if not tail.lstrip().startswith(b"{"):
        return False
    message = decode_message(tail)
    return isinstance(message, DecodeFailure) and message.kind in ("malformed", "invalid_utf8")
