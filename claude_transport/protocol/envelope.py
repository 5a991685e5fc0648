"""What every message has: its original bytes, its wire type, and a way back to a dict that loses nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, ClassVar, TypeAlias

import msgspec
from msgspec import field

from claude_transport.errors import UsageError

# --- Bytes that claim to be JSON, read by whatever reader can read them.


_decode = msgspec.json.Decoder().decode
# strict=False: a raw control character inside a string is wrong JSON, but there is no doubt about what it means
_lenient = json.JSONDecoder(strict=False)


class JSONTextError(ValueError):
    """The bytes are no JSON for any reader; `kind` is one of `malformed`, `invalid_utf8`, `too_deep`, `out_of_range`.

    `position` is the character at which reading stopped, where the reader says so.
    """

    def __init__(self, message: str, *, kind: str = "malformed", position: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.position = position


def parse_json(data: bytes) -> tuple[Any, bool]:
    """`(value, lossy)`: the JSON value in `data`, and whether only the lenient reader could read it. Raises `JSONTextError`."""
    try:
        return _decode(data), False
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass  # the lenient reader below either reads it or says what is wrong
    replaced = False
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("utf-8", errors="replace")
        replaced = True
    try:
        return _lenient.decode(text), True
    except RecursionError:
        raise JSONTextError("nested too deeply", kind="too_deep") from None
    except json.JSONDecodeError as error:
        # no position in the text is quoted: the line may hold what the user said
        what = f"{error.msg} (character {error.pos})"
        raise JSONTextError(what, kind="invalid_utf8" if replaced else "malformed", position=error.pos) from None
    except ValueError as error:  # an integer with more digits than the interpreter is willing to read
        raise JSONTextError(str(error), kind="out_of_range") from None


Number: TypeAlias = int | float
"""A measured quantity: an integer in every recording, but JavaScript would write a fraction just as readily."""

# Characters of the private-use area, because msgspec allows no control characters in field names. A peer that wrote such a key all the
# same gains nothing: `raw` is always overwritten, and no JSON value is ever a `Damage`.
HIDDEN = "\ue000"
"""The first character of the wire name of a field that exists on this side only: not in `repr`, equality or `to_dict()`."""
HIDDEN_FIELDS = frozenset({"raw", "damage"})
"""The hidden fields that every message has."""
FALLBACK_TAG = HIDDEN + "unknown"
"""The tag of the union member that takes what no other member knows (`UnknownBlock`, `UnknownControl`)."""


class Damage:
    """What was wrong with a line whose message could be saved; immutable by convention, shared by nobody."""

    __slots__ = ("lossy", "misfits")

    def __init__(self, misfits: tuple[str, ...] = (), *, lossy: bool = False) -> None:
        self.misfits: tuple[str, ...] = misfits
        self.lossy: bool = lossy

    def __repr__(self) -> str:
        return f"Damage({self.misfits!r}, lossy={self.lossy!r})"


# gc=False on both: what comes out of JSON has no cycles, and a program that keeps 200 000 messages spent more time in the collector
# (3.0 µs a message) than in decoding (0.4 µs); without tracking it is 1.8 µs.


class Part(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An object inside a message. `to_dict()` gives its known fields in wire spelling; unknown ones are kept by the message."""

    # fields that are written even when they hold an empty default, because readers insist on the key
    always_written: ClassVar[frozenset[str]] = frozenset()

    def to_dict(self) -> dict[str, Any]:
        """The fields that are set, in wire spelling, ready for JSON."""
        return _fields_to_wire(self)

    @classmethod
    def from_wire(cls, data: Any) -> Part | None:
        """For union members tagged `FALLBACK_TAG`: this Part around `data` that no other member takes, or None when it cannot."""
        del data
        return None


class Message(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Any message, in either direction: use it in annotations and `isinstance`.

    Equality compares what a message says, not the bytes that said it. A changed copy must drop the old bytes:
    `msgspec.structs.replace(message, uuid="…", raw=b"")`, or `to_dict()` and `encode_message()` keep telling the old story.
    """

    raw: bytes = msgspec.field(name=HIDDEN + "raw", default=b"")
    """The line this was decoded from, as it was handed over, less noise in front of the JSON; empty for a message built by hand."""
    damage: Damage | None = msgspec.field(name=HIDDEN + "damage", default=None)
    """None for a line that was as it should be; see `misfits` and `lossy`."""

    @property
    def type(self) -> str:
        """The wire's `type`."""
        return str(self.__struct_config__.tag)

    @property
    def misfits(self) -> tuple[str, ...]:
        """Wire paths (`usage`, `message.content.0`) of fields whose value did not fit and which hold their default instead."""
        return self.damage.misfits if self.damage is not None else ()

    @property
    def lossy(self) -> bool:
        """Whether the line could only be read leniently (lone surrogate, bytes that are not UTF-8, `NaN`, …)."""
        return self.damage is not None and self.damage.lossy

    def to_dict(self) -> dict[str, Any]:
        """The message as a new dict. For a received one everything that was on the line; else the fields that are set."""
        if self.raw:
            try:
                value, _ = parse_json(self.raw)
            except JSONTextError:
                value = None  # raw bytes set by hand that are no JSON: the fields are all there is
            if isinstance(value, dict):
                return value
        return _fields_to_wire(self)

    def _shown(self) -> Iterator[tuple[str, Any]]:
        for name, wire_name in zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True):
            if not wire_name.startswith(HIDDEN):
                yield name, getattr(self, name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._shown())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return list(self._shown())

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other):
            return NotImplemented
        return all(value == getattr(other, name) for name, value in self._shown())

    def __hash__(self) -> int:
        # like any frozen Struct: hashable exactly when the fields are (payload dicts are not)
        return hash((type(self), *(value for _, value in self._shown())))


def as_float(number: Number) -> float:
    """Convert a number of the wire; one that is larger than every float becomes infinite. JSON writes whole numbers of any size."""
    try:
        return float(number)
    except OverflowError:
        return math.copysign(math.inf, number > 0 or -1)


def to_wire(value: Any) -> Any:
    """`value` with every Struct in it replaced by its dict in wire spelling; JSON values come back as they are."""
    if isinstance(value, (Message, Part)):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {key: to_wire(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_wire(item) for item in value]
    return value


def _fields_to_wire(struct: Message | Part) -> dict[str, Any]:
    """The tag first, then what is set: None is never said, an empty container only where absence would mean something else."""
    config = struct.__struct_config__
    wire: dict[str, Any] = {}
    if config.tag_field is not None:
        wire[config.tag_field] = config.tag
    for name, wire_name, empty_is_absent in _written_fields(type(struct)):
        value = getattr(struct, name)
        if value is None or (empty_is_absent and not value):
            continue
        wire[wire_name] = to_wire(value)
    return wire


@cache
def _written_fields(cls: type[Message | Part]) -> tuple[tuple[str, str, bool], ...]:
    """Attribute, wire name, and whether its default is an empty container; hidden fields left out."""
    always = cls.always_written if issubclass(cls, Part) else frozenset()
    return tuple(
        (field.name, field.encode_name, field.name not in always and (field.default == () or field.default_factory is dict))
        for field in msgspec.structs.fields(cls)
        if not field.encode_name.startswith(HIDDEN)
    )


# --- What stands in place of a line that no typed message could be made of: nothing is skipped, nothing ends a stream.


class UnknownMessage(Message, frozen=True, kw_only=True):
    """A JSON object whose `type` this version does not know (or that has none); `to_dict()` is the object. A newer CLI sends these.

    So is an object of a known `type` in which so much does not fit that saving the rest would cost too much (see `salvage`).
    """

    wire_type: str = ""

    @property
    def type(self) -> str:
        """The wire's `type`, or an empty string."""
        return self.wire_type

    def __eq__(self, other: object) -> bool:
        return self.to_dict() == other.to_dict() if isinstance(other, UnknownMessage) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.wire_type)

    def to_dict(self) -> dict[str, Any]:
        """The object as it came."""
        whole = super().to_dict()
        return whole if self.raw else {"type": self.wire_type}


class DecodeFailure(Message, frozen=True, kw_only=True):
    """A line that is no JSON object. `raw` is the line; `line_number` counts from 1, blank lines included, where it is known.

    `kind`: `noise` (does not look like JSON), `not_object` (JSON, but an array or a scalar), `malformed`, `invalid_utf8`,
    `too_deep`, `out_of_range`, `blank`.
    """

    kind: str = "malformed"
    error: str = ""
    line_number: int | None = None

    @property
    def type(self) -> str:
        """Always `decode_failure`, which is never on the wire."""
        return "decode_failure"

    def __eq__(self, other: object) -> bool:
        return (self.kind, self.raw) == (other.kind, other.raw) if isinstance(other, DecodeFailure) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.kind, self.raw))

    def to_dict(self) -> dict[str, Any]:
        """A description for logs; the line as text, with escapes for bytes that are not UTF-8."""
        line = self.raw.decode("utf-8", errors="backslashreplace")
        return {"type": self.type, "kind": self.kind, "error": self.error, "line_number": self.line_number, "line": line}


class OversizedMessage(Message, frozen=True, kw_only=True):
    """A line of `size` bytes, over the `limit` in bytes, of which only the head (`raw`) was kept; the next line is not affected."""

    size: int = 0
    limit: int = 0
    line_number: int | None = None

    @property
    def type(self) -> str:
        """Always `oversized_message`, which is never on the wire."""
        return "oversized_message"

    def to_dict(self) -> dict[str, Any]:
        """A description for logs, without the head."""
        return {"type": self.type, "size": self.size, "limit": self.limit, "line_number": self.line_number}


# --- Token counts and costs.


class Usage(Part, frozen=True, kw_only=True):
    """Tokens of a message or turn. Whatever is missing, null or not a number counts as 0 and never raises."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens_details: dict[str, Any] | None = None
    cache_creation: dict[str, Any] | None = None
    server_tool_use: dict[str, Any] | None = None
    service_tier: str | None = None
    inference_geo: str | None = None
    iterations: tuple[Any, ...] | None = None
    speed: str | None = None
    fallback_credit: Any = None

    @property
    def total_input_tokens(self) -> int:
        """Everything the model read: fresh, written to the cache, and read from it."""
        return self.input_tokens + self.cache_creation_input_tokens + self.cache_read_input_tokens


class ModelUsage(Part, rename="camel", frozen=True, kw_only=True):
    """What one model used and cost, cumulative over the process (and over the session, when resumed)."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_creation_ephemeral_5m_input_tokens: int | None = field(name="cacheCreationEphemeral5mInputTokens", default=None)
    cache_creation_ephemeral_1h_input_tokens: int | None = field(name="cacheCreationEphemeral1hInputTokens", default=None)
    thinking_tokens: int | None = None
    web_search_requests: int = 0
    cost_usd: Number = field(name="costUSD", default=0)
    cost_basis: str | None = None
    context_window: int | None = None
    max_output_tokens: int | None = None
    canonical_model: str | None = None
    provider: str | None = None


# --- Objects to lines: exactly one `\n` at the end, never a CR, and nothing that a JSON reader could stumble over.


def _replace_struct(value: object) -> object:
    if isinstance(value, (Message, Part, Mapping)):
        return to_wire(value)
    raise TypeError(f"{type(value).__name__} has no place in JSON")


# The standard library's encoder, because msgspec writes what it should refuse: NaN as null, bytes as base64, dates as strings.
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_replace_struct).encode
_encode_ascii = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"), default=_replace_struct).encode

# Legal inside JSON strings, yet line ends for readers that split like `str.splitlines` or like JavaScript [23e: the CLI escapes them too]
_LINE_ENDS = (("\u2028", "\\u2028"), ("\u2029", "\\u2029"), ("\x85", "\\u0085"))


def encode_line(obj: Mapping[str, Any] | Message) -> bytes:
    """`obj` as one line of UTF-8 JSON with its newline.

    Lone surrogates are escaped, so whatever could be read can be written again. Raises `UsageError` for what JSON cannot say: NaN and
    Infinity, bytes, dates, sets, circular structures. (The CLI exits on a line it cannot parse [18a].)
    """
    if not isinstance(obj, Mapping):
        if not isinstance(obj, Message):
            raise UsageError(f"a line is a JSON object, not {type(obj).__name__}")
        return encode_message(obj)
    try:
        text = _encode(obj if isinstance(obj, dict) else dict(obj))
        for plain, escaped in _LINE_ENDS:
            if plain in text:
                text = text.replace(plain, escaped)
        try:
            return text.encode() + b"\n"
        except UnicodeEncodeError:  # a lone surrogate, which only an escape can carry
            return _encode_ascii(obj if isinstance(obj, dict) else dict(obj)).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"this cannot be written as JSON: {error}") from error


def encode_message(message: Message) -> bytes:
    """`message` as one line with its newline: byte for byte as it was received, or from its fields when it was built by hand.

    Raises `UsageError` for a `DecodeFailure` or `OversizedMessage`, which were no messages to begin with.
    """
    if isinstance(message, (DecodeFailure, OversizedMessage)):
        raise UsageError(f"a {type(message).__name__} stands for a line that was no message; there is nothing to encode")
    line = message.raw.strip(b"\r\n")
    if line and b"\n" not in line and b"\r" not in line:
        return line + b"\n"
    return encode_line(message.to_dict())
