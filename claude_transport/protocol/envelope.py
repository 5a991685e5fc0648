"""What every message has: its original bytes, its wire type, a lossless way back to a dict, and the JSON reader and writer below it.

The messages of a conversation are in `messages`; how a line becomes one of them is in `codec`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, TypeAlias

import msgspec
from msgspec import field

from claude_transport.errors import UsageError

_decode = msgspec.json.Decoder().decode
# strict=False accepts a raw control character inside a string: wrong JSON with a clear meaning
_lenient = json.JSONDecoder(strict=False)


class JSONTextError(ValueError):
    """No reader can read the bytes as JSON; `kind` is `malformed`, `invalid_utf8`, `too_deep` or `out_of_range`.

    `position` is the character at which reading stopped, or None when the reader does not report it.
    """

    def __init__(self, message: str, *, kind: str = "malformed", position: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.position = position


def parse_json(data: bytes) -> tuple[Any, bool]:
    """Read JSON, strictly first and leniently when that fails.

    Returns:
        The value, and True when only the lenient reader could read it.

    Raises:
        JSONTextError: neither reader can read `data`.
    """
    try:
        return _decode(data), False
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass  # the lenient reader below reads it or reports what is wrong
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
        # the text is not quoted: it may hold what the user said
        what = f"{error.msg} (character {error.pos})"
        raise JSONTextError(what, kind="invalid_utf8" if replaced else "malformed", position=error.pos) from None
    except ValueError as error:  # an integer with more digits than Python is set to read
        raise JSONTextError(str(error), kind="out_of_range") from None


Number: TypeAlias = int | float
"""A measured quantity. Every recording holds integers, but JavaScript may also write a fraction."""

# Characters of the private-use area, because msgspec allows no control characters in field names. A peer that sends such a key gains
# nothing: `raw` is always overwritten, and no JSON value is a `Damage`.
HIDDEN = "\ue000"
"""First character of the wire name of a field that is never sent. Such fields are not in `repr`, equality or `to_dict()`."""
HIDDEN_FIELDS = frozenset({"raw", "damage"})
"""The hidden fields that every message has."""
FALLBACK_TAG = HIDDEN + "unknown"
"""Tag of the union member that takes objects of unknown types (`UnknownBlock`, `UnknownControl`)."""


class Damage:
    """What was wrong with a line whose message could be saved. Do not change it after it was made."""

    __slots__ = ("lossy", "misfits")

    def __init__(self, misfits: tuple[str, ...] = (), *, lossy: bool = False) -> None:
        self.misfits: tuple[str, ...] = misfits
        self.lossy: bool = lossy

    def __repr__(self) -> str:
        return f"Damage({self.misfits!r}, lossy={self.lossy!r})"


class WireStruct(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Base of everything that is read from the wire and written to it."""

    # gc=False: values from JSON have no cycles. With 200 000 messages in memory, the collector took 3.0 µs for each of them, decoding
    # 0.4 µs; untracked they cost 1.8 µs.

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that are set, in wire spelling, ready for JSON."""
        config = self.__struct_config__
        wire: dict[str, Any] = {}
        if config.tag_field is not None:
            wire[config.tag_field] = config.tag
        for name, wire_name, empty_is_absent in _written_fields(type(self)):
            value = getattr(self, name)
            if value is not None and (value or not empty_is_absent):
                wire[wire_name] = to_wire(value)
        return wire

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        names = zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True)
        return [(name, getattr(self, name)) for name, wire_name in names if not wire_name.startswith(HIDDEN)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"


class Part(WireStruct, frozen=True, kw_only=True, gc=False):
    """An object inside a message. `to_dict()` gives its known fields in wire spelling; unknown ones are kept by the message."""

    # fields that are written although they hold an empty default, because readers require the key
    always_written: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def from_wire(cls, data: Any) -> Part | None:
        """Wrap `data`, which no other member of the union takes; only members tagged `FALLBACK_TAG` do. None when it cannot be wrapped."""
        del data
        return None


class Message(WireStruct, frozen=True, kw_only=True, gc=False):
    """Base class of all messages, both those of the CLI and those of the host. Use it for annotations and `isinstance`.

    `raw` is the line that was received. `damage` is None for a line that was read without a problem; see `misfits` and `lossy`.

    Equality compares the fields, not the original bytes in `raw`. When you change a copy, drop the old bytes as well:
    `msgspec.structs.replace(message, uuid="…", raw=b"")`. Otherwise `to_dict()` and `encode_message()` return the old content.
    """

    raw: bytes = field(name=HIDDEN + "raw", default=b"")
    """The line that was decoded, without noise in front of the JSON; empty for a message that you built yourself."""
    damage: Damage | None = field(name=HIDDEN + "damage", default=None)
    """None for a line that was read without a problem; see `misfits` and `lossy`."""

    @property
    def type(self) -> str:
        """The `type` of this message on the wire, such as `assistant` or `result`; every class has its own, but all system messages share
        `system`.
        """
        return str(self.__struct_config__.tag)

    @property
    def misfits(self) -> tuple[str, ...]:
        """The places of values that did not fit their field, as wire paths (`usage`, `message.content.0`). Those fields hold their default.
        Empty when everything fitted.
        """
        return self.damage.misfits if self.damage is not None else ()

    @property
    def lossy(self) -> bool:
        """True when the strict JSON reader refused the line and only a lenient one could read it (lone surrogate, bytes that are not UTF-8,
        `NaN`, …). Bytes that are not UTF-8 are then replaced by U+FFFD in the fields.
        """
        return self.damage is not None and self.damage.lossy

    def to_dict(self) -> dict[str, Any]:
        """Return the message as a new dict in wire spelling. For a received message it is everything on the line, also fields that have no
        attribute here; for a message you built, the fields that are set.
        """
        if self.raw:
            try:
                value, _ = parse_json(self.raw)
            except JSONTextError:
                value = None  # `raw` was set by hand to something that is not JSON
            if isinstance(value, dict):
                return value
        return super().to_dict()

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other):
            return NotImplemented
        return all(value == getattr(other, name) for name, value in self.__rich_repr__())

    def __hash__(self) -> int:
        # like any frozen Struct: hashable exactly when the fields are (payload dicts are not)
        return hash((type(self), *(value for _, value in self.__rich_repr__())))


@cache
def _written_fields(cls: type[WireStruct]) -> tuple[tuple[str, str, bool], ...]:
    """Return attribute, wire name, and whether an empty value is left out, for each field that is not hidden."""
    always = cls.always_written if issubclass(cls, Part) else frozenset()
    return tuple(
        (field.name, field.encode_name, field.name not in always and (field.default == () or field.default_factory is dict))
        for field in msgspec.structs.fields(cls)
        if not field.encode_name.startswith(HIDDEN)
    )


def to_wire(value: Any) -> Any:
    """Replace every Struct in `value` by its dict in wire spelling; other JSON values are returned as they are."""
    if isinstance(value, WireStruct):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {key: to_wire(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_wire(item) for item in value]
    return value


def as_float(number: Number) -> float:
    """Convert a number from the wire to a float. A whole number that is too large for a float becomes infinite."""
    try:
        return float(number)
    except OverflowError:
        return math.copysign(math.inf, number > 0 or -1)


class UnknownMessage(Message, frozen=True, kw_only=True):
    """A JSON object with a `type` that this library does not know, or without one; `to_dict()` is the object. A newer CLI may send these;
    you can ignore them.

    An object of a known `type` also becomes one when so many of its values do not fit that a repair would take too long.
    """

    wire_type: str = ""

    @property
    def type(self) -> str:
        """The `type` that the object has on the wire; an empty string when it has none."""
        return self.wire_type

    def __eq__(self, other: object) -> bool:
        return self.to_dict() == other.to_dict() if isinstance(other, UnknownMessage) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.wire_type)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object as it came, as a new dict; for an `UnknownMessage` that you built, only its `type`."""
        whole = super().to_dict()
        return whole if self.raw else {"type": self.wire_type}


class DecodeFailure(Message, frozen=True, kw_only=True):
    """Stands in the place of a line that is not a JSON object. `raw` is the line, `error` says what is wrong; `line_number`, where known,
    counts from 1 and includes blank lines.

    `kind`: `noise` (does not look like JSON), `not_object` (JSON, but an array or a scalar), `malformed`, `invalid_utf8`, `too_deep`,
    `out_of_range` (a number with too many digits), `blank` (only from `decode_message`).
    """

    kind: str = "malformed"
    error: str = ""
    line_number: int | None = None

    @property
    def type(self) -> str:
        """Always the text `decode_failure`. No message on the wire has this type."""
        return "decode_failure"

    def __eq__(self, other: object) -> bool:
        return (self.kind, self.raw) == (other.kind, other.raw) if isinstance(other, DecodeFailure) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.kind, self.raw))

    def to_dict(self) -> dict[str, Any]:
        """Return a new dict for logs with `type`, `kind`, `error`, `line_number` and the `line` as text. Bytes that are not UTF-8 are
        escapes in it.
        """
        line = self.raw.decode("utf-8", errors="backslashreplace")
        return {"type": self.type, "kind": self.kind, "error": self.error, "line_number": self.line_number, "line": line}


class OversizedMessage(Message, frozen=True, kw_only=True):
    """Stands in the place of a line of `size` bytes, which is over the `limit` in bytes. `raw` holds only its beginning. The next line is
    not affected.
    """

    size: int = 0
    limit: int = 0
    line_number: int | None = None

    @property
    def type(self) -> str:
        """Always the text `oversized_message`. No message on the wire has this type."""
        return "oversized_message"

    def to_dict(self) -> dict[str, Any]:
        """Return a new dict for logs with `type`, `size`, `limit` and `line_number`, without the content of the line."""
        return {"type": self.type, "size": self.size, "limit": self.limit, "line_number": self.line_number}


class Usage(Part, frozen=True, kw_only=True):
    """The token counts of an API message or of a turn. A count that is missing, null or not a number is 0.

    `input_tokens` counts only the input that the cache did not take part in; `cache_creation_input_tokens` was written to the cache and
    `cache_read_input_tokens` read from it.
    """

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
        """All tokens that the model read: `input_tokens`, those written to the cache, and those read from it, added up."""
        return self.input_tokens + self.cache_creation_input_tokens + self.cache_read_input_tokens

    @property
    def reasoning_tokens(self) -> int:
        """The tokens of the output that the model thought with; they are also in `output_tokens`. 0 when they were not reported."""
        found = (self.output_tokens_details or {}).get("thinking_tokens")
        return found if isinstance(found, int) and not isinstance(found, bool) else 0


class ModelUsage(Part, rename="camel", frozen=True, kw_only=True):
    """The tokens and the cost (`cost_usd`, in US dollars) of one model.

    In `ResultMessage.model_usage` they are added up since the conversation began, also over a resume, and start at 0 again after `/clear`.
    In `model_usage_since_last_result` they are those since the last result.
    """

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


def _replace_struct(value: object) -> object:
    if isinstance(value, (WireStruct, Mapping)):
        return to_wire(value)
    raise TypeError(f"JSON cannot hold a {type(value).__name__}")


# The standard library's encoder: msgspec writes NaN as null, bytes as base64 and dates as strings instead of refusing them.
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_replace_struct).encode
_encode_ascii = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"), default=_replace_struct).encode

# Legal inside JSON strings, but line ends for readers that split like `str.splitlines` or like JavaScript; the CLI escapes them too [23e]
_LINE_ENDS = (("\u2028", "\\u2028"), ("\u2029", "\\u2029"), ("\x85", "\\u0085"))


def encode_line(obj: Mapping[str, Any] | Message) -> bytes:
    """Encode a mapping or a `Message` as one line of UTF-8 JSON. Returns the bytes, which end in exactly one newline. A received `Message`
    gives its original bytes.

    Lone surrogates are escaped, so everything that could be read can be written again. (The CLI exits on a line that it cannot parse.)

    Raises:
        UsageError: `obj` is not a mapping or Message, is a `DecodeFailure` or `OversizedMessage`, or holds what JSON cannot express: NaN,
            Infinity, bytes, dates, sets, cycles.
    """
    if not isinstance(obj, Mapping):
        if not isinstance(obj, Message):
            raise UsageError(f"cannot write a {type(obj).__name__} as a line; pass a mapping or a Message")
        return encode_message(obj)
    return encode_json(obj if isinstance(obj, dict) else dict(obj)) + b"\n"


def holds_half_a_pair(value: object) -> bool:
    """Return whether a text in `value` holds half of a surrogate pair. Any other trouble with `value` is left to `encode_json`."""
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        return True
    except Exception:  # noqa: BLE001 - that is told where the value is written
        return False
    return False


def encode_json(value: object) -> bytes:
    """Encode a JSON value as UTF-8 without line ends. Raises `UsageError` for what JSON cannot express."""
    try:
        text = _encode(value)
        for plain, escaped in _LINE_ENDS:
            if plain in text:
                text = text.replace(plain, escaped)
        try:
            return text.encode()
        except UnicodeEncodeError:  # a lone surrogate, which can only be written as an escape
            return _encode_ascii(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"the object cannot be written as JSON: {error}") from error


def encode_message(message: Message) -> bytes:
    """Encode a message as one line. Returns the bytes with a newline: the original bytes of a received message, else its fields as JSON.

    Raises:
        UsageError: `message` is a `DecodeFailure` or `OversizedMessage`, or a field holds what JSON cannot express.
    """
    if isinstance(message, (DecodeFailure, OversizedMessage)):
        raise UsageError(f"a {type(message).__name__} cannot be encoded: it reports a line that was not a message")
    line = message.raw.strip(b"\r\n")
    if line and b"\n" not in line and b"\r" not in line:
        return line + b"\n"
    return encode_line(message.to_dict())
