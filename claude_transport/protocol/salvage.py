"""A Struct from a JSON object that does not quite fit it: one odd field costs that field, not the message.

What fits is kept; a value that does not fit is replaced by the field's default and its wire path is noted. A tagged object inside a
message becomes the fallback member of its union (`UnknownBlock`, `UnknownControl`) when no member has its tag, or when an essential
field of the one that has does not fit.
"""

from __future__ import annotations

import types
from functools import cache
from typing import Any, Final, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo, fields

from claude_transport.protocol.envelope import FALLBACK_TAG, HIDDEN, Part

__all__ = ["salvage"]

S = TypeVar("S", bound=msgspec.Struct)


class _Misfit:
    """The answer "there is no value for this field"."""


_MISFIT: Final = _Misfit()


def salvage(cls: type[S], data: dict[str, Any], *, misfits: list[str] | None = None, path: str = "") -> S:
    """A `cls` made of whatever in `data` fits; the wire paths of what did not are appended to `misfits`. Never raises."""
    return _build(cls, data, [] if misfits is None else misfits, path)[0]


def _build(cls: type[S], data: dict[str, Any], misfits: list[str], path: str) -> tuple[S, bool]:
    """The Struct, and whether every essential field of its own fitted (misfits further down are theirs to mend)."""
    whole = _convert(data, cls)
    if not isinstance(whole, _Misfit):
        struct: S = whole
        return struct, True
    values: dict[str, Any] = {}
    intact = True
    for field in _fields(cls):
        if field.encode_name not in data:
            continue
        where = f"{path}{field.encode_name}"
        value = _fit(data[field.encode_name], field.type, misfits, where)
        if isinstance(value, _Misfit):
            misfits.append(where)
            intact = intact and not _is_essential(field)
        else:
            values[field.name] = value
    return cls(**values), intact


@cache
def _fields(cls: type[msgspec.Struct]) -> tuple[FieldInfo, ...]:
    return tuple(field for field in fields(cls) if not field.encode_name.startswith(HIDDEN))


def _is_essential(field: FieldInfo) -> bool:
    """Optional fields default to None or to an empty tuple; without any other one, an object is not what its tag says.

    A permission question with the wrong `input` must not look like one about an empty input: it becomes the fallback, and is refused.
    """
    return field.default is not None and field.default != ()


def _convert(value: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, ValueError, RecursionError):
        return _MISFIT


def _fit(value: Any, kind: Any, misfits: list[str], path: str) -> Any:
    """`value` as a `kind`, mended where its parts can be; `_MISFIT` when it is something else altogether."""
    converted = _convert(value, kind)
    if not isinstance(converted, _Misfit):
        return converted
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _fit_union(value, arguments, misfits, path)
    if origin is tuple and isinstance(value, str):
        return _fit_text(value, arguments[0], misfits, path)
    if origin is tuple and isinstance(value, list):
        return _fit_items(value, arguments[0], misfits, path)
    if origin is dict and isinstance(value, dict):
        fitted = {key: _fit(item, arguments[1], misfits, f"{path}.{key}") for key, item in value.items()}
        misfits.extend(f"{path}.{key}" for key, item in fitted.items() if isinstance(item, _Misfit))
        return {key: item for key, item in fitted.items() if not isinstance(item, _Misfit)}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and isinstance(value, dict):
        return _build(kind, value, misfits, f"{path}.")[0]
    return _MISFIT


def _fit_items(items: list[Any], kind: Any, misfits: list[str], path: str) -> tuple[Any, ...]:
    kept = []
    for index, item in enumerate(items):
        where = f"{path}.{index}"
        value = _fit(item, kind, misfits, where)
        if isinstance(value, _Misfit):
            misfits.append(where)
        else:
            kept.append(value)
    return tuple(kept)


def _fit_text(text: str, kind: Any, misfits: list[str], path: str) -> Any:
    """Text where a list of blocks should be is one text block."""
    fallback = _fallback(get_args(kind))
    block = fallback.from_wire(text) if fallback is not None else None
    if block is None:
        return _MISFIT
    misfits.append(path)
    return (block,)


def _fit_union(value: Any, members: tuple[Any, ...], misfits: list[str], path: str) -> Any:
    if isinstance(value, dict) and (fallback := _fallback(members)) is not None:
        return _fit_tagged(value, members, fallback, misfits, path)
    for member in members:
        if member is not type(None) and _same_shape(value, member):
            return _fit(value, member, misfits, path)
    return _MISFIT


def _fit_tagged(value: dict[str, Any], members: tuple[Any, ...], fallback: type[Part], misfits: list[str], path: str) -> Any:
    """The member whose tag `value` carries, or the fallback around it when there is none or its shape is wrong."""
    for member in members:
        if member is not fallback and _tag_of(member, value) == member.__struct_config__.tag:
            inner: list[str] = []
            struct, intact = _build(member, value, inner, f"{path}.")
            if intact:
                misfits.extend(inner)
                return struct
            misfits.append(path)
            break
    return fallback.from_wire(value)


def _tag_of(member: Any, value: dict[str, Any]) -> Any:
    return value.get(member.__struct_config__.tag_field)


def _fallback(members: tuple[Any, ...]) -> type[Part] | None:
    for member in members:
        if isinstance(member, type) and issubclass(member, Part) and member.__struct_config__.tag == FALLBACK_TAG:
            return member
    return None


def _same_shape(value: Any, kind: Any) -> bool:
    """Whether `value` is the JSON shape (object, array) that `kind` is made of; scalars either fit at once or not at all."""
    origin = get_origin(kind) or kind
    if isinstance(value, dict):
        return origin is dict or (isinstance(origin, type) and issubclass(origin, msgspec.Struct))
    return origin is tuple and isinstance(value, list)
