"""Checks whether an answer fits a JSON schema, for an agent that does not check it by itself. Pure.

`check_schema` refuses a schema that cannot be checked here; `find_misfit` says why a value does not fit. `claude` checks its own answers.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, TypeAlias

from claude_transport.errors import ConfigurationError

Schema: TypeAlias = Mapping[str, Any] | bool

_ANNOTATIONS: Final = frozenset(
    {
        *("$schema", "$id", "$comment", "$anchor", "$defs", "definitions", "title", "description", "default", "examples"),
        *("deprecated", "readOnly", "writeOnly", "format"),
    }
)
"""Keywords that restrict no value. `format` restricts none either, as JSON Schema has it by default."""

_ONE: Final = frozenset({"additionalProperties", "items", "not"})
_MANY: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_NAMED: Final = frozenset({"properties", "patternProperties", "$defs", "definitions"})
_LIMIT: Final = 120
"""Characters of a value or a list that a sentence about a misfit repeats."""

_TYPES: Final[dict[str, Callable[[Any], bool]]] = {
    "object": lambda value: isinstance(value, Mapping),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: _is_number(value),  # noqa: PLW0108 - the function is defined below
    "integer": lambda value: _is_number(value) and (isinstance(value, int) or value.is_integer()),
}


def check_schema(schema: Mapping[str, Any]) -> None:
    """Check that `find_misfit` understands all of `schema`. Raises `ConfigurationError` that names the first keyword that it does not."""
    try:
        for part in _parts_of(schema):
            _check_part(part, schema)
    except RecursionError:
        raise _refused("the schema is nested too deep") from None


def find_misfit(value: Any, schema: Mapping[str, Any]) -> str | None:
    """Return why `value` does not fit the checked `schema`, in a sentence with the place; None when it fits."""
    try:
        return next(_Checker(schema).misfits(value, schema, "the answer"), None)
    except RecursionError:
        return "the answer is nested too deep to be checked"


class _Checker:
    """Finds what does not fit. `root` is the schema that references start from."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def misfits(self, value: Any, schema: Schema, place: str) -> Iterator[str]:
        """Yield a sentence for each misfit of `value`, which is at `place` of the answer."""
        if isinstance(schema, bool):
            if not schema:
                yield f"{place} is not allowed"
            return
        if "$ref" in schema:
            yield from self.misfits(value, _follow(self._root, schema["$ref"]), place)
        yield from _misfits_of_value(value, schema, place)
        yield from self._misfits_of_choice(value, schema, place)
        if isinstance(value, Mapping):
            yield from self._misfits_of_object(value, schema, place)
        elif isinstance(value, list):
            yield from self._misfits_of_array(value, schema, place)

    def fits(self, value: Any, schema: Schema) -> bool:
        """Whether `value` fits `schema`."""
        return next(self.misfits(value, schema, ""), None) is None

    def _misfits_of_choice(self, value: Any, schema: Mapping[str, Any], place: str) -> Iterator[str]:
        for each in schema.get("allOf", ()):
            yield from self.misfits(value, each, place)
        if "anyOf" in schema and not any(self.fits(value, each) for each in schema["anyOf"]):
            yield f"{place} fits none of the schemas of anyOf"
        if "oneOf" in schema and (fitting := sum(self.fits(value, each) for each in schema["oneOf"])) != 1:
            yield f"{place} fits {fitting} of the schemas of oneOf, not 1"
        if "not" in schema and self.fits(value, schema["not"]):
            yield f"{place} fits the schema of not"

    def _misfits_of_object(self, value: Mapping[str, Any], schema: Mapping[str, Any], place: str) -> Iterator[str]:
        yield from (f"{place} has no {name!r}" for name in schema.get("required", ()) if name not in value)
        yield from _misfits_of_size(len(value), schema, ("minProperties", "maxProperties"), f"{place} has {len(value)} properties")
        properties, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        for name, each in value.items():
            known = [properties[name]] if name in properties else []
            known += [part for pattern, part in patterns.items() if re.search(pattern, name)]
            for part in known or [schema.get("additionalProperties", True)]:
                yield from self.misfits(each, part, f"{place}.{name}")

    def _misfits_of_array(self, value: Sequence[Any], schema: Mapping[str, Any], place: str) -> Iterator[str]:
        yield from _misfits_of_size(len(value), schema, ("minItems", "maxItems"), f"{place} has {len(value)} items")
        first = schema.get("prefixItems", ())
        for index, each in enumerate(value):
            yield from self.misfits(each, first[index] if index < len(first) else schema.get("items", True), f"{place}[{index}]")
        if schema.get("uniqueItems") is True:
            doubles = (index for index, each in enumerate(value) if any(_are_equal(each, other) for other in value[:index]))
            yield from (f"{place}[{index}] is there twice" for index in doubles)


def _misfits_of_value(value: Any, schema: Mapping[str, Any], place: str) -> Iterator[str]:
    kinds = schema.get("type")
    if kinds is not None and not any(_TYPES[kind](value) for kind in ([kinds] if isinstance(kinds, str) else kinds)):
        yield f"{place} is {_shown(value)}, and not of the type {_shown(kinds)}"
    if "const" in schema and not _are_equal(value, schema["const"]):
        yield f"{place} is {_shown(value)}, and not {_shown(schema['const'])}"
    if "enum" in schema and not any(_are_equal(value, each) for each in schema["enum"]):
        yield f"{place} is {_shown(value)}, and none of {_shown(schema['enum'])}"
    if isinstance(value, str):
        yield from _misfits_of_size(len(value), schema, ("minLength", "maxLength"), f"{place} has {len(value)} characters")
        if "pattern" in schema and not re.search(schema["pattern"], value):
            yield f"{place} is {_shown(value)}, and does not match {_shown(schema['pattern'])}"
    elif _is_number(value):
        yield from _misfits_of_size(value, schema, ("minimum", "maximum"), f"{place} is {value}")
        for name, holds in (("exclusiveMinimum", operator.gt), ("exclusiveMaximum", operator.lt)):
            if name in schema and not holds(value, schema[name]):
                yield f"{place} is {value}, and {name} is {schema[name]}"
        if "multipleOf" in schema and Fraction(str(value)) % Fraction(str(schema["multipleOf"])):
            yield f"{place} is {value}, and no multiple of {schema['multipleOf']}"


def _misfits_of_size(size: float, schema: Mapping[str, Any], names: tuple[str, str], told: str) -> Iterator[str]:
    least, most = names
    if least in schema and size < schema[least]:
        yield f"{told}, and {least} is {schema[least]}"
    if most in schema and size > schema[most]:
        yield f"{told}, and {most} is {schema[most]}"


# The schema itself.


def _parts_of(schema: object) -> Iterator[Mapping[str, Any]]:
    """Yield every schema in `schema`, itself first. Raises `ConfigurationError` for one that is neither an object nor a boolean."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        raise _refused(f"{_shown(schema)} is no schema")
    yield schema
    for name, value in schema.items():
        inner: Iterable[object] = ()
        if name in _ONE:
            inner = (value,)
        elif name in _MANY:
            inner = _expected(name, value, isinstance(value, list | tuple), "a list of schemas")
        elif name in _NAMED:
            inner = _expected(name, value, isinstance(value, Mapping), "an object of schemas").values()
        for each in inner:
            yield from _parts_of(each)


def _check_part(part: Mapping[str, Any], root: Mapping[str, Any]) -> None:
    for name, value in part.items():
        if name in _ANNOTATIONS or name in _ONE or name in _MANY:
            continue
        check = _CHECKS.get(name)
        if check is None:
            raise _refused(f"the keyword {name!r} is not known here, so the answer could not be checked")
        check(name, value)
    if "$ref" in part:
        _follow(root, part["$ref"])


def _check_types(name: str, value: Any) -> None:
    kinds = [value] if isinstance(value, str) else value
    _expected(name, value, isinstance(kinds, list | tuple) and all(kind in _TYPES for kind in kinds), f"one of {', '.join(_TYPES)}")


def _check_number(name: str, value: Any) -> None:
    _expected(name, value, _is_number(value) and (name != "multipleOf" or value > 0), "a number")


def _check_texts(name: str, value: Any) -> None:
    _expected(name, value, isinstance(value, list | tuple) and all(isinstance(each, str) for each in value), "a list of texts")


def _check_list(name: str, value: Any) -> None:
    _expected(name, value, isinstance(value, list | tuple), "a list")


def _check_boolean(name: str, value: Any) -> None:
    _expected(name, value, isinstance(value, bool), "a boolean")


def _check_text(name: str, value: Any) -> None:
    _expected(name, value, isinstance(value, str), "a text")


def _check_pattern(name: str, value: Any) -> None:
    for pattern in value if isinstance(value, Mapping) else (value,):
        try:
            re.compile(pattern)
        except (re.error, TypeError):
            raise _refused(f"{name}: {_shown(pattern)} is no pattern that Python can match") from None


def _check_nothing(name: str, value: Any) -> None:
    """Accept any value."""


_CHECKS: Final[dict[str, Callable[[str, Any], None]]] = {
    "type": _check_types,
    "required": _check_texts,
    "enum": _check_list,
    "const": _check_nothing,
    "properties": _check_nothing,
    "patternProperties": _check_pattern,
    "pattern": _check_pattern,
    "uniqueItems": _check_boolean,
    "$ref": _check_text,
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), _check_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _check_number),
}
"""The keywords that restrict a value, and the check of what stands there."""


def _follow(root: Mapping[str, Any], reference: str) -> Schema:
    """Return the schema that a reference into the same document names. Raises `ConfigurationError` for any other one."""
    found: Any = root
    if not reference.startswith("#"):
        raise _refused(f"$ref: {_shown(reference)} does not name a place in the schema itself")
    for step in filter(None, reference[1:].split("/")):
        name = step.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping | bool):
        raise _refused(f"$ref: there is no schema at {_shown(reference)}")
    return found


def _expected(name: str, value: Any, fits: bool, what: str) -> Any:
    if not fits:
        raise _refused(f"{name} must be {what}, not {_shown(value)}")
    return value


def _refused(text: str) -> ConfigurationError:
    return ConfigurationError(f"output_format: {text}", option="output_format")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf


def _are_equal(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal. Python also takes true for 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_are_equal(value, other[name]) for name, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_are_equal, one, other))
    return bool(one == other)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LIMIT else text[:_LIMIT] + "…"
