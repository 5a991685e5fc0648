"""`Checked`: frozen data whose wrong fields are errors of this library, at the line that writes them.

The parts of a scenario are made of it. Without it, msgspec checks no type before the data are read from JSON, in another process.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import re
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from claude_transport.errors import ConfigurationError


class _Checking(msgspec.StructMeta):
    if not TYPE_CHECKING:  # type checkers read the fields, not this

        def __call__(cls, *values: Any, **fields: Any) -> Any:  # noqa: N805 - a metaclass: this is a class
            given = cls.respell(_bind(cls, values, fields))
            _check_types(cls, given)
            for name in cls.filled:
                _check_placeholders(f"{cls.__name__}.{name}", given.get(name), option=name)
            return super().__call__(**given)


class Checked(msgspec.Struct, metaclass=_Checking, frozen=True, forbid_unknown_fields=True):
    """Raise `ConfigurationError` for a field that does not exist, is missing, has another type, or must be given by name.

    The strings in the fields `filled` may contain placeholders; an unknown one is an error, too.
    """

    filled: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def respell(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Return the fields as they are stored; `given` may hold shorter ways to write them."""
        return given


def check_not_negative(step: str, field: str, value: float | None) -> None:
    if value is not None and not 0 <= value < math.inf:
        raise ConfigurationError(f"{step}.{field} must be a number that is not negative, got {value!r}", option=field)


def own_fields(what: str, changes: dict[str, Any], **own: Any) -> dict[str, Any]:
    """Return `changes` and the fields that `what` sets by itself; no field may be in both."""
    for name in own.keys() & changes.keys():
        raise ConfigurationError(f"{what} sets {name!r} by itself", option=name)
    return {**changes, **own}


def _bind(cls: type[Checked], values: tuple[Any, ...], fields: dict[str, Any]) -> dict[str, Any]:
    """Return all given fields by their names."""
    known = inspect.signature(cls).parameters
    by_position = [name for name, parameter in known.items() if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    what = cls.__name__
    if len(values) > len(by_position):
        rest = [name for name in known if name not in by_position]
        if not rest:
            raise ConfigurationError(f"{what} takes {len(by_position)} values, got {len(values)}", option=what)
        without = f"only {', '.join(by_position)}" if by_position else "no value"
        by_name = ", ".join(f"{name}=" for name in rest)
        remedy = f"name {'the others' if by_position else 'each'}: {by_name}"
        raise ConfigurationError(f"{what} takes {without} without a name; {remedy}", option=rest[0])
    given = dict(zip(by_position, values, strict=False))
    for name in fields:
        if name in given:
            raise ConfigurationError(f"{what}.{name} is given twice, without a name and with it", option=name)
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            remedy = f"did you mean {near[0]!r}?" if near else f"its fields are: {', '.join(known) or 'none'}"
            raise ConfigurationError(f"{what} has no field {name!r}; {remedy}", option=name)
    given.update(fields)
    missing = [name for name, parameter in known.items() if parameter.default is parameter.empty and name not in given]
    if missing:
        raise ConfigurationError(f"{what} needs {missing[0]!r}", option=missing[0])
    return given


def _check_types(cls: type[Checked], given: dict[str, Any]) -> None:
    types = _types_of(cls)
    for name, value in given.items():
        try:
            msgspec.convert(msgspec.to_builtins(value), types[name])
        except (TypeError, ValueError, RecursionError) as error:
            what, _, path = str(error).partition(" - at `$")
            raise ConfigurationError(f"{cls.__name__}.{name}{path.rstrip('`')}: {what}", option=name) from None  # the text says it all


PLACEHOLDER = re.compile(r"\{\{([A-Za-z_]\w*)((?:\.[^{}\s]+)*)\}\}")
_OF_THE_TURN = ("user_uuid", "user_uuids", "prompt", "excerpt", "text", "message_id", "tool_use_id", "result_index", "hook", "answer")
PLACEHOLDERS = ("session_id", "uuid", "pid", "cwd", "directory", "model", "version", "timestamp", "open", *_OF_THE_TURN)


def _check_placeholders(where: str, value: Any, *, option: str) -> None:
    """Raise `ConfigurationError` for a placeholder that does not exist, anywhere in `value`."""
    if isinstance(value, str):
        for found in PLACEHOLDER.finditer(value):
            if found[1] not in PLACEHOLDERS:
                near = difflib.get_close_matches(found[1], PLACEHOLDERS, n=1)
                remedy = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(PLACEHOLDERS)}"
                raise ConfigurationError(f"{where}: unknown placeholder {found[0]}; {remedy}", option=option)
    elif isinstance(value, dict):
        for item in value.values():
            _check_placeholders(where, item, option=option)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _check_placeholders(where, item, option=option)


@functools.cache
def _types_of(cls: type[Checked]) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(cls)}
