"""Makes a Struct of a JSON object that does not quite fit: one wrong field costs only that field.

Values that fit are kept. A value that does not fit is replaced by the field's default, and its wire path is recorded. A tagged object
inside a message becomes the fallback of its union (`UnknownBlock`, `UnknownControl`) when its tag is unknown, or when an essential field
does not fit.

The work is bounded for every input: at most `MAX_SALVAGE_DECODES` values are decoded, and nested Structs are repaired down to level
`_MAX_LEVELS`. So each byte of a line is read a constant number of times.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NamedTuple, Self, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo, fields, replace

from claude_transport.protocol.envelope import FALLBACK_TAG, HIDDEN, Part

MAX_SALVAGE_DECODES: Final = 1000
"""Maximum number of values that are decoded to save one object: ten times what any recorded message needs. They take about 2 ms."""

_MAX_LEVELS: Final = 6
"""Maximum depth of nested Structs. A message, its `message`, a block and a block inside that are four."""

_GROUP: Final = 32
"""Items of a list that are decoded together."""

_MAX_KEY: Final = 100
"""Characters of a key that are quoted in a wire path. The peer chooses the key, and it may be repeated for many fields."""

S = TypeVar("S", bound=msgspec.Struct)


class _Misfit:
    """Marks that a value does not fit its field."""


_MISFIT: Final = _Misfit()


class _TooMuchWorkError(Exception):
    """An object would need more than `MAX_SALVAGE_DECODES`."""


def salvage(cls: type[S], data: dict[str, Any], *, misfits: list[str] | None = None) -> S | None:
    """Make a `cls` of the values in `data` that fit. Never raises.

    Args:
        cls: the Struct to make.
        data: a JSON object.
        misfits: the list to which the wire paths of values that do not fit are appended.

    Returns:
        The Struct; None when this would need more than `MAX_SALVAGE_DECODES` decodes, or more stack than is left.
    """
    mending = _Mending()
    try:
        struct = mending.build(cls, data)
    except (_TooMuchWorkError, RecursionError):
        return None
    if misfits is not None:
        misfits += mending.misfits
    return struct


class Salvaged(Part, frozen=True, kw_only=True):
    """Base of `Answer` and `HookInput`: a payload of the CLI with typed fields. `raw` is the whole payload.

    A field whose value does not fit holds its default and is named in `misfits`.
    """

    misfits: tuple[str, ...] = msgspec.field(name=HIDDEN + "misfits", default=())
    """Wire paths of the values that did not fit; their fields hold the default."""
    raw: dict[str, Any] = msgspec.field(name=HIDDEN + "raw", default_factory=dict)
    """The payload as it came."""

    @classmethod
    def _salvage(cls, data: Mapping[str, Any]) -> Self | None:
        misfits: list[str] = []
        raw = dict(data)
        struct = salvage(cls, raw, misfits=misfits)
        return None if struct is None else replace(struct, misfits=tuple(misfits), raw=raw)

    def to_dict(self) -> dict[str, Any]:
        """Return the whole payload, in wire spelling."""
        return dict(self.raw) if self.raw else super().to_dict()


class _Mending:
    """The state of saving one object: its misfits, and the number of decodes that are left."""

    def __init__(self) -> None:
        self.misfits: list[str] = []
        self._left = MAX_SALVAGE_DECODES
        self._level = 0

    def build(self, cls: type[S], data: dict[str, Any]) -> S:
        """Make the outermost Struct."""
        whole = self._decode(data, cls)
        if not isinstance(whole, _Misfit):
            struct: S = whole
            return struct
        return self._mend_struct(cls, data, "")[0]

    def _decode(self, value: Any, kind: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise _TooMuchWorkError
        try:
            if isinstance(kind, type):
                return msgspec.convert(value, kind)
            return msgspec.convert({"value": value}, _holder(kind)).value
        except (msgspec.ValidationError, ValueError, RecursionError):
            return _MISFIT

    def _fit(self, value: Any, kind: Any, path: str) -> Any:
        """Convert `value` to `kind`, repairing its parts where possible; `_MISFIT` when it cannot be one."""
        converted = self._decode(value, kind)
        return self._mend(value, kind, path) if isinstance(converted, _Misfit) else converted

    def _mend(self, value: Any, kind: Any, path: str) -> Any:
        """Do the same for a value that is known not to fit as a whole."""
        shape = _shape(kind)
        if shape.is_union:
            return self._mend_union(value, shape, path)
        if shape.origin is tuple and isinstance(value, str):
            return self._mend_text(value, shape.arguments[0], path)
        if shape.origin is tuple and isinstance(value, list):
            return self._mend_items(value, kind, path)
        if shape.origin is dict and isinstance(value, dict):
            return self._mend_values(value, shape.arguments[1], path)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and isinstance(value, dict):
            return self._mend_struct(kind, value, f"{path}.")[0] if self._level < _MAX_LEVELS else _MISFIT
        return _MISFIT

    def _mend_struct(self, cls: type[S], data: dict[str, Any], path: str) -> tuple[S, bool]:
        """Return the Struct, and True when all of its own essential fields fitted."""
        values: dict[str, Any] = {}
        intact = True
        self._level += 1
        for field in _fields(cls):
            if field.encode_name not in data:
                continue
            where = f"{path}{field.encode_name}"
            value = self._fit(data[field.encode_name], field.type, where)
            if isinstance(value, _Misfit):
                self.misfits.append(where)
                intact = intact and not _is_essential(field)
            else:
                values[field.name] = value
        self._level -= 1
        return cls(**values), intact

    def _mend_values(self, data: dict[str, Any], kind: Any, path: str) -> dict[str, Any]:
        fitted: dict[str, Any] = {}
        odd: list[str] = []
        for key, item in data.items():
            where = f"{path}.{key if len(key) <= _MAX_KEY else key[:_MAX_KEY] + '…'}"
            value = self._fit(item, kind, where)
            if isinstance(value, _Misfit):
                odd.append(where)
            else:
                fitted[key] = value
        self.misfits += odd
        return fitted

    def _mend_items(self, items: list[Any], kind: Any, path: str) -> tuple[Any, ...]:
        """Return the items that fit. Long lists are decoded in groups, so that one wrong item among thousands costs little."""
        kept: list[Any] = []
        item_kind = get_args(kind)[0]
        for start in range(0, len(items), _GROUP):
            group = items[start : start + _GROUP]
            whole = self._decode(group, kind) if len(items) > _GROUP else _MISFIT
            if not isinstance(whole, _Misfit):
                kept += whole
                continue
            for index, item in enumerate(group, start):
                where = f"{path}.{index}"
                value = self._fit(item, item_kind, where)
                if isinstance(value, _Misfit):
                    self.misfits.append(where)
                else:
                    kept.append(value)
        return tuple(kept)

    def _mend_text(self, text: str, kind: Any, path: str) -> Any:
        """Turn text in place of a list of blocks into one text block."""
        fallback = _shape(kind).fallback
        block = fallback.from_wire(text) if fallback is not None else None
        if block is None:
            return _MISFIT
        self.misfits.append(path)
        return (block,)

    def _mend_union(self, value: Any, shape: _Shape, path: str) -> Any:
        if isinstance(value, dict) and shape.fallback is not None:
            return self._mend_tagged(value, shape, shape.fallback, path)
        for member in shape.arguments:
            if member is not type(None) and _is_like(value, member):
                return self._mend(value, member, path)
        return _MISFIT

    def _mend_tagged(self, value: dict[str, Any], shape: _Shape, fallback: type[Part], path: str) -> Any:
        """Return the member with the tag of `value`, or the fallback when the tag is unknown or the shape is wrong."""
        tag = value.get(shape.tag_field)
        member = shape.by_tag.get(tag) if isinstance(tag, str) else None
        if member is None:
            return fallback.from_wire(value)
        if self._level >= _MAX_LEVELS:
            self.misfits.append(path)
            return fallback.from_wire(value)
        before = len(self.misfits)
        struct, intact = self._mend_struct(member, value, f"{path}.")
        if intact:
            return struct
        del self.misfits[before:]
        self.misfits.append(path)
        return fallback.from_wire(value)


class _Shape(NamedTuple):
    """The parts of an annotation."""

    origin: Any
    arguments: tuple[Any, ...]
    is_union: bool
    tag_field: str
    by_tag: dict[str, type[Part]]
    fallback: type[Part] | None


@cache
def _shape(kind: Any) -> _Shape:
    origin, arguments = get_origin(kind), get_args(kind)
    parts = [member for member in arguments if isinstance(member, type) and issubclass(member, Part)]
    by_tag = {str(member.__struct_config__.tag): member for member in parts if member.__struct_config__.tag is not None}
    fallback = by_tag.pop(FALLBACK_TAG, None)
    tag_field = str(fallback.__struct_config__.tag_field) if fallback is not None else ""
    return _Shape(origin, arguments, origin in (Union, types.UnionType), tag_field, by_tag, fallback)


@cache
def _holder(kind: Any) -> Any:
    """Make a Struct with one field `value` of this kind. msgspec caches how to decode a Struct, but not how to decode other kinds."""
    return msgspec.defstruct("Holder", [("value", kind)])


@cache
def _fields(cls: type[msgspec.Struct]) -> tuple[FieldInfo, ...]:
    return tuple(field for field in fields(cls) if not field.encode_name.startswith(HIDDEN))


def _is_essential(field: FieldInfo) -> bool:
    """True when the field has no empty default (None or an empty tuple): without it, the object is not what its tag says.

    A permission question with a wrong `input` must not look like one with an empty input. It becomes the fallback, and is refused.
    """
    return field.default is not None and field.default != ()


def _is_like(value: Any, kind: Any) -> bool:
    """True when `value` has the JSON shape (object, array) of `kind`. Scalars never need repair."""
    origin = get_origin(kind) or kind
    if isinstance(value, dict):
        return origin is dict or (isinstance(origin, type) and issubclass(origin, msgspec.Struct))
    return origin is tuple and isinstance(value, list)
