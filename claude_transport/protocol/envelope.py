"""What every message has: its original bytes, its wire type, and a way back to a dict that loses nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, ClassVar, TypeAlias

import msgspec

from claude_transport.protocol.jsontext import JSONTextError, parse_json

__all__ = ["FALLBACK_TAG", "HIDDEN", "HIDDEN_FIELDS", "Damage", "Message", "Number", "Part", "as_float", "to_wire"]

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
