"""`Walker`: compares JSON values with a schema of this package, and says what differs by path.

It knows the keywords that `docs/generate_schema.py` writes, which is a small part of JSON Schema. Beside what is invalid, it tells what
the schema does not mention: a field, or a kind of message. That is valid, because a newer CLI may say more than the schema knows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["unknown", "missing", "type", "unreadable"]
Schema: TypeAlias = Mapping[str, Any]

KEYWORDS: Final = frozenset(
    {"$schema", "$id", "$defs", "$ref", "title", "description"}
    | {"type", "const", "properties", "required", "additionalProperties", "items", "allOf", "anyOf", "if", "then"}
)
"""The keywords that the walker knows. `allOf`, `if`, `then` and `const` only choose by a tag; nothing else is read from them."""

_EVERYTHING: Final = frozenset({"*"})
"""Stands for the names of all properties: the schema describes each, or none by its name."""
_OF_A_NAME: Final = 60
"""Characters of a name that are kept. The peer chooses it."""


class Difference(NamedTuple):
    """One place where a value differs from the schema.

    `path` is the wire path in the value: `message.content[].text`; `*` is any key of a mapping, and an empty path the value itself.
    """

    kind: Kind
    path: str
    expected: str
    found: str


class Walker:
    """Compares values with one schema document. The walk ends with the value: a schema that refers to itself is no problem."""

    def __init__(self, document: Schema) -> None:
        self._document = document
        self._definitions: Mapping[str, Schema] = document["$defs"]
        self._choices: dict[int, tuple[str, dict[str, Schema]]] = {}

    def knows(self, definition: str) -> bool:
        """Return whether the document has a definition of this name."""
        return definition in self._definitions

    def differences(self, value: Any, definition: str | None = None) -> list[Difference]:
        """Return where `value` differs from the whole document, or from one of its definitions. The value is valid when all kinds are
        `unknown`.
        """
        found: list[Difference] = []
        self._visit(self._document if definition is None else self._definitions[definition], value, "", found)
        return found

    def _visit(self, schema: Schema, value: Any, path: str, found: list[Difference]) -> None:
        """Compare a value with the schema of its place, and report the fields that no part of the schema names."""
        known = self._apply(schema, value, path, found)
        if isinstance(value, dict) and known is not None and known is not _EVERYTHING:
            found += [Difference("unknown", _below(path, name), "", type_of(value[name])) for name in value.keys() - known]

    def _apply(self, schema: Schema, value: Any, path: str, found: list[Difference]) -> frozenset[str] | None:
        """Compare a value with one part of a schema. Returns the names of the properties that the part describes; None for no opinion."""
        known: frozenset[str] | None = None
        if "$ref" in schema:
            known = self._apply(self._definitions[schema["$ref"].removeprefix("#/$defs/")], value, path, found)
        allowed = schema.get("type")
        if allowed is not None and not any(_is_a(value, name) for name in _names(allowed)):
            found.append(Difference("type", path, " or ".join(_names(allowed)), type_of(value)))
            return _EVERYTHING
        if isinstance(value, dict):
            known = _joined(known, self._apply_to_object(schema, value, path, found))
        elif isinstance(value, list) and "items" in schema:
            for item in value:
                self._visit(schema["items"], item, f"{path}[]", found)
        if "anyOf" in schema:
            known = _joined(known, self._apply_best(schema["anyOf"], value, path, found))
        if "allOf" in schema:
            known = _joined(known, self._apply_choice(schema["allOf"], value, path, found))
        return known

    def _apply_to_object(self, schema: Schema, value: dict[str, Any], path: str, found: list[Difference]) -> frozenset[str] | None:
        described: Mapping[str, Schema] | None = schema.get("properties")
        found += [Difference("missing", _below(path, name), "", "") for name in schema.get("required", ()) if name not in value]
        for name in (described or {}).keys() & value.keys():
            self._visit((described or {})[name], value[name], _below(path, name), found)
        if "additionalProperties" in schema:
            for name in value.keys() - (described or {}).keys():
                self._visit(schema["additionalProperties"], value[name], _below(path, "*"), found)
            return _EVERYTHING
        return None if described is None else frozenset(described)

    def _apply_best(self, choices: Sequence[Schema], value: Any, path: str, found: list[Difference]) -> frozenset[str] | None:
        """Compare with the choice that fits, or else with the one for this type of value, whose differences say most."""
        best: tuple[list[Difference], frozenset[str] | None] | None = None
        for choice in choices:
            tried: list[Difference] = []
            known = self._apply(choice, value, path, tried)
            if all(one.kind == "unknown" for one in tried):
                found += tried
                return known
            if not any(one.kind == "type" and one.path == path for one in tried):
                best = best or (tried, known)
        if best is None:
            expected = " or ".join(name for choice in choices for name in self._types_of(choice))
            best = [Difference("type", path, expected, type_of(value))], _EVERYTHING
        found += best[0]
        return best[1]

    def _types_of(self, schema: Schema) -> Iterator[str]:
        if "$ref" in schema:
            yield from self._types_of(self._definitions[schema["$ref"].removeprefix("#/$defs/")])
        yield from _names(schema.get("type", ()))

    def _apply_choice(self, choices: Sequence[Schema], value: Any, path: str, found: list[Difference]) -> frozenset[str] | None:
        """Compare an object with the choice that its tag names. A tag that none of them has is unknown."""
        if not isinstance(value, dict):
            return None
        key = id(choices)  # the document lives as long as the walker
        if key not in self._choices:
            self._choices[key] = _read_choices(choices)
        tag, by_name = self._choices[key]
        name = value.get(tag)
        if not isinstance(name, str):
            return _EVERYTHING
        if name not in by_name:
            found.append(Difference("unknown", _below(path, tag), "", repr(name[:_OF_A_NAME])))
            return _EVERYTHING
        return self._apply(by_name[name], value, path, found)


def _read_choices(choices: Sequence[Schema]) -> tuple[str, dict[str, Schema]]:
    """Return the tag by which these parts choose, and what each of its values stands for."""
    (tag,) = {name for part in choices for name in part["if"]["required"]}
    return tag, {part["if"]["properties"][tag]["const"]: part["then"] for part in choices}


def type_of(value: Any) -> str:
    """Return the name of the JSON type of a value, as schemas spell it."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "integer" if _is_a(value, "integer") else "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def _is_a(value: Any, name: str) -> bool:
    match name:
        case "integer" | "number":
            if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
                return False
            return name == "number" or isinstance(value, int) or value.is_integer()
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case "array":
            return isinstance(value, list)
    return isinstance(value, dict)


def _is_finite(value: float) -> bool:
    """Return whether other languages can hold this number, whose numbers end at 1.8e308."""
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def _names(types: str | Sequence[str]) -> Sequence[str]:
    return (types,) if isinstance(types, str) else types


def _joined(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    if one is None or other is None:
        return one if other is None else other
    return _EVERYTHING if one is _EVERYTHING or other is _EVERYTHING else one | other


def _below(path: str, name: str) -> str:
    kept = name if len(name) <= _OF_A_NAME else f"{name[:_OF_A_NAME]}…"
    return f"{path}.{kept}" if path else kept
