"""`WireCheck`: counts what lines of a conversation say that the schemas do not, by message and path.

`Walker` compares one value with a schema. It knows the keywords that `docs/generate_schema.py` writes, a small part of JSON Schema.
Beside what is invalid, it tells what the schema does not mention: a field, or a kind of message. That is valid: a newer CLI may say more.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, NoReturn, TypeAlias

import msgspec

from claude_transport.protocol.envelope import JSONTextError, parse_json
from claude_transport.wire.documents import WireDirection, schema_on_tape, wire_range

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


MAX_FINDINGS: Final = 1000
"""Findings that are kept. A peer that makes up names could fill the memory otherwise."""
_OF_A_KIND: Final = 60
"""Characters of a type or subtype that are kept."""


class WireFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One place of one kind of message that differs from the schema, and how often.

    `kind`: `unknown` (a field or a type that the schema does not have), `missing` (a required field), `type` (a value of another type),
    `unreadable` (a line that is not a JSON object). `message` is the type of the line, with its subtype: `assistant`, `system/init`,
    `control_response/get_plan`. `path` is the place in it; `[]` is any item of a list, and `*` any key of a mapping. `expected` and `found`
    are the types of JSON; `found` of an unknown type of message is its name.
    """

    kind: Kind
    direction: WireDirection
    message: str
    path: str
    expected: str = ""
    found: str = ""
    count: int = 1


class WireCheck:
    """Compares the lines of a conversation with the schemas of its CLI, and counts the differences in `findings`.

    Feed every line with its direction to `add()`, in their order: what an answer may say depends on its question. `lines` is the number of
    lines so far. A field that is unknown is no mistake of the peer, but something that this library does not know.

    Args:
        cli_version: the version of the CLI, which chooses the schemas; None means the newest ones.

    Raises:
        UsageError: `cli_version` is not a version.
    """

    def __init__(self, *, cli_version: str | None = None) -> None:
        self.cli_version = cli_version
        self.range: str = wire_range(cli_version)
        self.lines: int = 0
        self.unlisted: int = 0
        self._walkers = {direction: Walker(schema_on_tape(direction, cli_version=cli_version)) for direction in _DIRECTIONS}
        self._questions: dict[tuple[WireDirection, str], str] = {}  # who asked, and the request id -> subtype
        self._found: Counter[tuple[WireDirection, str, Difference]] = Counter()

    @property
    def findings(self) -> tuple[WireFinding, ...]:
        """The differences so far, by direction, message and path. There are at most 1000; `unlisted` counts what came after these."""
        found = sorted(self._found.items(), key=lambda item: item[0])
        return tuple([_finding(direction, message, difference, count) for (direction, message, difference), count in found])

    def add(self, direction: WireDirection, line: bytes) -> tuple[WireFinding, ...]:
        """Compare one line with the schema, and return the differences. `direction` is `in` for a line of the host and `out` for one of the
        CLI. Blank lines do not count.
        """
        if not line.strip():
            return ()
        self.lines += 1
        try:
            message, differences = self._compare(direction, _read(line))
        except RecursionError:
            message, differences = "", [_unreadable("nested too deeply")]
        except ValueError:
            message, differences = "", [_unreadable("not JSON")]
        for difference in differences:
            key = (direction, message, difference)
            if key in self._found or len(self._found) < MAX_FINDINGS:
                self._found[key] += 1
            else:
                self.unlisted += 1
        return tuple([_finding(direction, message, difference, 1) for difference in differences])

    def _compare(self, direction: WireDirection, value: Any) -> tuple[str, list[Difference]]:
        """Return the name of the message, and what differs."""
        if not isinstance(value, dict):
            return "", [_unreadable("JSON, but no object")]
        differences = self._walkers[direction].differences(value)
        message = _name(value.get("type"))
        request, reply = value.get("request"), value.get("response")
        if message == "system":
            return f"{message}/{_name(value.get('subtype'))}", differences
        if message == "control_request" and isinstance(request, dict):
            return f"{message}/{self._note_question(direction, value, request)}", differences
        if message == "control_response" and isinstance(reply, dict):
            subtype = self._questions.get(("in" if direction == "out" else "out", _id_in(reply)))
            if subtype is not None:
                return f"{message}/{_name(subtype)}", differences + self._compare_payload(direction, subtype, reply)
        return message, differences

    def _note_question(self, direction: WireDirection, value: dict[str, Any], request: dict[str, Any]) -> str:
        """Keep what was asked, for the answer. Returns the name of the question."""
        subtype, given = request.get("subtype"), request.get("input")
        self._questions[direction, _id_in(value)] = str(subtype)
        if subtype == "hook_callback" and isinstance(given, dict) and "hook_event_name" in given:
            return f"{subtype}/{_name(given['hook_event_name'])}"
        return _name(subtype)

    def _compare_payload(self, direction: WireDirection, subtype: str, reply: dict[str, Any]) -> list[Difference]:
        """Compare what a successful answer carries with what its question asked for."""
        payload, definition = reply.get("response"), f"answer.{subtype}"
        walker = self._walkers[direction]
        if reply.get("subtype") != "success" or not isinstance(payload, dict) or not walker.knows(definition):
            return []
        return [one._replace(path=f"response.response.{one.path}") for one in walker.differences(payload, definition)]


_DIRECTIONS: Final[tuple[WireDirection, ...]] = ("in", "out")


def find_cli_version(lines: Iterable[bytes]) -> str | None:
    """Return the version that a CLI names in its lines; None when it names none."""
    for line in lines:
        if b'"claude_code_version"' not in line:
            continue
        try:
            value, _ = parse_json(line)
        except JSONTextError:
            continue
        reply = value.get("response") if isinstance(value, dict) else None
        payload = reply.get("response") if isinstance(reply, dict) else None
        for holder in (value, payload):
            version = holder.get("claude_code_version") if isinstance(holder, dict) else None
            if isinstance(version, str):
                return version
    return None


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


_strict = json.JSONDecoder(parse_constant=_refuse)


def _read(line: bytes) -> Any:
    """Read a line as any language does: NaN, bare control characters and bytes that are not UTF-8 are no JSON; half a pair is."""
    return _strict.decode(line.decode("utf-8"))


def _unreadable(found: str) -> Difference:
    return Difference("unreadable", "", "", found)


def _finding(direction: WireDirection, message: str, difference: Difference, count: int) -> WireFinding:
    return WireFinding(direction=direction, message=message, count=count, **difference._asdict())


def _id_in(value: dict[str, Any]) -> str:
    return str(value.get("request_id"))


def _name(value: object) -> str:
    return value[:_OF_A_KIND] if isinstance(value, str) else "?"
