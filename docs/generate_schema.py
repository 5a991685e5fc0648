"""Write the JSON Schemas of the wire from the classes of its messages: `python docs/generate_schema.py`.

Each range of CLI versions has two documents in claude_transport/wire/schemas, one for each direction. They are committed, because
programs in any language read them, and a test compares them with what is rendered here.

Types and names come from the classes in claude_transport/protocol, and those of a host's requests from docs/wire_tables.py. A field is
required when its class gives it no "nothing" (None), and every recorded object of that class has it. What is not required may be
missing, and what is not listed may be there.
"""

from __future__ import annotations

import inspect
import json
import sys
import types
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec

from claude_transport.launch.features import find_feature, parse_version
from claude_transport.protocol import hooks
from claude_transport.protocol.control import (
    ControlCancelRequest,
    ControlReply,
    ControlRequest,
    ControlResponse,
    HookCallback,
)
from claude_transport.protocol.envelope import FALLBACK_TAG, HIDDEN, Message
from claude_transport.protocol.messages import SYSTEM_SUBTYPES, SystemMessage, UserContent, UserMessage

sys.path.insert(0, str(Path(__file__).parent))

import wire_tables as tables
from wire_tables import Optional

__all__ = ["DOCUMENTS", "main", "render"]

DOCUMENTS = Path(__file__).parent.parent / "claude_transport" / "wire" / "schemas"
TESTS = Path(__file__).parent.parent / "tests"
RECORDINGS = TESTS / "recordings"

Schema = dict[str, Any]
Struct = type[msgspec.Struct]
SCALARS: Mapping[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
REQUIRED_OF_HOSTS: Mapping[Struct, tuple[str, ...]] = {
    UserMessage: ("message",),
    UserContent: ("role", "content"),
    ControlRequest: ("request",),
    ControlResponse: ("response",),
    ControlReply: ("subtype", "request_id"),
    ControlCancelRequest: ("request_id",),
}
"""What a host must say; the recordings have lines that say less, and what the CLI answered."""


class Evidence(NamedTuple):
    """How many objects of each class the recordings of the CLI have, and how many of them have each field."""

    objects: Counter[Struct]
    fields: Counter[tuple[Struct, str]]


class Fields(NamedTuple):
    """The fields of one class on the wire, with their types."""

    types: dict[str, Any]
    never_none: frozenset[str]


@cache
def fields_of(cls: Struct) -> Fields:
    """Return the fields of a class, without those that are never on the wire."""
    found = {field.encode_name: field for field in msgspec.structs.fields(cls) if not field.encode_name.startswith(HIDDEN)}
    return Fields(
        {name: field.type for name, field in found.items()},
        frozenset(name for name, field in found.items() if type(None) not in members(field.type) and field.type is not Any),
    )


def members(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the type itself."""
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def tag_of(cls: Struct) -> str | None:
    """Return the value of the field by which an object is known as one of this class; None for a class without a tag."""
    if issubclass(cls, SystemMessage) and cls is not SystemMessage:
        return str(cls().subtype)
    tag = cls.__struct_config__.tag
    return None if tag is None else str(tag)


def tagged(kind: Any) -> tuple[str, dict[str, Struct]] | None:
    """Return the tag field and the classes by their tags, for a union of tagged classes; None for other types."""
    found = {str(tag_of(cls)): cls for cls in members(kind) if is_struct(cls) and cls.__struct_config__.tag is not None}
    if FALLBACK_TAG not in found:
        return None
    field = str(found.pop(FALLBACK_TAG).__struct_config__.tag_field)
    return field, found


# ------------------------------------------------------------------------------------------------------------------- evidence


class Observer:
    """Counts what the recordings of the CLI have, class by class."""

    def __init__(self) -> None:
        self.evidence = Evidence(Counter(), Counter())

    def see(self, kind: Any, value: Any) -> None:
        """Count the objects in a value that is one of `kind`."""
        choice = tagged(kind)
        if choice is not None and isinstance(value, dict):
            cls = choice[1].get(str(value.get(choice[0])))
            if cls is not None:
                self.see_object(cls, value)
            return
        for member in members(kind):
            origin = get_origin(member)
            if is_struct(member) and isinstance(value, dict):
                self.see_object(member, value)
            elif origin is tuple and isinstance(value, list):
                for item in value:
                    self.see(get_args(member)[0], item)
            elif origin is dict and isinstance(value, dict):
                for item in value.values():
                    self.see(get_args(member)[1], item)

    def see_object(self, cls: Struct, value: dict[str, Any]) -> None:
        """Count one object of a class."""
        self.evidence.objects[cls] += 1
        self.evidence.fields.update((cls, name) for name in value)
        for name, kind in fields_of(cls).types.items():
            if name in value:
                self.see(kind, value[name])
        if cls is HookCallback:
            self.see_hook(value.get("input"))

    def see_hook(self, given: Any) -> None:
        """Count the input of a hook."""
        if isinstance(given, dict) and given.get("hook_event_name") in hooks.INPUTS:
            self.see_object(hooks.INPUTS[given["hook_event_name"]], given)


def recorded() -> Iterator[list[tuple[str, Any]]]:
    """Yield the lines of each recording that are JSON objects, with their directions."""
    for path in sorted(RECORDINGS.glob("*.ndjson")):
        entries = [json.loads(text) for text in path.read_text("utf-8").splitlines()]
        lines = []
        for entry in entries:
            if entry["dir"] in {"in", "out"} and "trimmed_from_chars" not in entry:
                try:
                    value = json.loads(entry["line"])
                except ValueError:
                    continue
                if isinstance(value, dict):
                    lines.append((entry["dir"], value))
        yield lines


@cache
def evidence() -> Evidence:
    """Return what the recordings show."""
    observer = Observer()
    for lines in recorded():
        asked: dict[str, str] = {}
        for direction, value in lines:
            if direction == "in":
                note_question(asked, value)
                continue
            cls = line_class(value)
            if cls is not None:
                observer.see_object(cls, value)
            see_answer(observer, asked, value)
    for text in (TESTS / "protocol" / "control_answers.ndjson").read_text("utf-8").splitlines():
        row = json.loads(text)
        see_payload(observer, row["subtype"], row["response"])
    for text in (TESTS / "protocol" / "hook_inputs.ndjson").read_text("utf-8").splitlines():
        observer.see_hook(json.loads(text))
    return observer.evidence


def note_question(asked: dict[str, str], value: Mapping[str, Any]) -> None:
    request = value.get("request")
    if value.get("type") == "control_request" and isinstance(request, dict):
        asked[str(value.get("request_id"))] = str(request.get("subtype"))


def see_answer(observer: Observer, asked: Mapping[str, str], value: Mapping[str, Any]) -> None:
    reply = value.get("response")
    if value.get("type") == "control_response" and isinstance(reply, dict) and reply.get("subtype") == "success":
        see_payload(observer, asked.get(str(reply.get("request_id")), ""), reply.get("response"))


def see_payload(observer: Observer, subtype: str, payload: Any) -> None:
    row = tables.REQUESTS.get(subtype)
    if row is not None and is_struct(row.answer) and isinstance(payload, dict):
        observer.see_object(row.answer, payload)


def line_class(value: Mapping[str, Any]) -> Struct | None:
    """Return the class of a line of the CLI."""
    kind = str(value.get("type"))
    if kind == "system":
        return SYSTEM_SUBTYPES.get(str(value.get("subtype")), SystemMessage)
    return classes_by_type().get(kind)


@cache
def classes_by_type() -> Mapping[str, Struct]:
    """Return the classes of lines, by their `type`."""
    found: dict[str, Struct] = {}
    pending: list[type[Message]] = [Message]
    while pending:
        cls = pending.pop()
        pending += [each for each in cls.__subclasses__() if each.__module__.startswith("claude_transport.protocol.")]
        if cls.__struct_config__.tag and not (issubclass(cls, SystemMessage) and cls is not SystemMessage):
            found[str(cls.__struct_config__.tag)] = cls
    return found


# ------------------------------------------------------------------------------------------------------------------ documents


class Document:
    """The schema of one direction, for the CLIs of one range."""

    def __init__(self, direction: Literal["in", "out"], start: str) -> None:
        self.direction = direction
        self.start = start
        self.end = next((version for version in tables.RANGES if older(start, version)), None)
        self.definitions: dict[str, Schema] = {}

    def render(self) -> Schema:
        """Return the whole document."""
        names = tables.FROM_CLI if self.direction == "out" else tables.FROM_HOST
        choices = {name: self.reference(classes_by_type()[name]) for name in names}
        self.add_payloads()
        until = "and newer" if self.end is None else f"up to, not including, {self.end}"
        who = "claude writes to its standard output" if self.direction == "out" else "a host writes to the standard input of claude"
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": f"urn:claude-transport:wire:{self.start}:{self.direction}",
            "title": f"A line that {who}, stream-json, CLI {self.start} {until}",
            "type": "object",
            "properties": {"type": {"type": "string"}},
            "required": ["type"],
            "allOf": choose("type", choices),
            "$defs": dict(sorted(self.definitions.items())),
        }

    def add_payloads(self) -> None:
        """Add what a successful control response carries: it depends on the request, so no line says it by itself."""
        if self.direction == "out":
            for subtype, row in tables.REQUESTS.items():
                if self.has(subtype):
                    self.definitions[f"answer.{subtype}"] = self.payload(row.answer)
            return
        for subtype, fields in tables.ANSWERS_OF_HOSTS.items():
            self.definitions[f"answer.{subtype}"] = self.plain(fields)
        self.definitions["answer.hook_callback"] = self.hook_output()

    def payload(self, kind: Any) -> Schema:
        if kind is None:
            return self.plain({})
        return self.plain(kind) if isinstance(kind, Mapping) else self.shape(kind)

    def has(self, feature: str) -> bool:
        """Return whether some CLI of this range may have a feature of the table of features."""
        found = find_feature(feature)
        if found is None or self.end is None or older(found.since, self.end):
            return True
        *_, lacking = parse_version(found.lacked_by) or (0,)  # the versions between this one and the first with it may have it
        *_, end = parse_version(self.end) or (0,)
        return lacking + 1 < end

    # -- classes

    def reference(self, cls: Struct) -> Schema:
        """Return a reference to the definition of a class, which is made when it is not there."""
        if cls.__name__ not in self.definitions:
            self.definitions[cls.__name__] = {}  # a class may refer to itself
            self.definitions[cls.__name__] = self.definition(cls)
        return {"$ref": f"#/$defs/{cls.__name__}"}

    def definition(self, cls: Struct) -> Schema:
        known = fields_of(cls)
        properties = {name: self.shape(kind) for name, kind in known.types.items()}
        tag_field = cls.__struct_config__.tag_field
        if tag_field is not None:
            properties = {tag_field: {"type": "string"}, **properties}
        made: Schema = {"description": meaning(cls), "type": "object", "properties": properties}
        required = [*([tag_field] if tag_field else []), *self.required(cls)]
        if cls is SystemMessage:
            made["allOf"] = choose("subtype", {name: self.reference(each) for name, each in sorted(SYSTEM_SUBTYPES.items())})
            required = ["type", "subtype"]
        if cls is HookCallback:
            inputs = {str(event): self.reference(each) for event, each in hooks.INPUTS.items() if self.has(f"hook.{event}")}
            properties["input"] = {"type": "object", "allOf": choose("hook_event_name", inputs)}
        if cls is ControlRequest and self.direction == "in":
            properties["request"] = self.request()
        if required:
            made["required"] = required
        return made

    def required(self, cls: Struct) -> list[str]:
        if self.direction == "in":
            return [*REQUIRED_OF_HOSTS.get(cls, ())]
        seen, known = evidence(), fields_of(cls)
        return [name for name in known.types if name in known.never_none and self.always(seen, cls, name)]

    def always(self, seen: Evidence, cls: Struct, name: str) -> bool:
        """Return whether every object of the class has this field, in every CLI of this range."""
        if not seen.objects[cls] or seen.fields[cls, name] < seen.objects[cls]:
            return False
        since = tables.SINCE.get(f"{cls.__name__}.{name}")
        return since is None or not older(self.start, since)

    # -- types

    def shape(self, kind: Any) -> Schema:
        """Return the schema of a type."""
        choice = tagged(kind)
        if choice is not None:
            field, found = choice
            choices = {name: self.reference(cls) for name, cls in found.items()}
            return {"type": "object", "properties": {field: {"type": "string"}}, "required": [field], "allOf": choose(field, choices)}
        if get_origin(kind) in (Union, types.UnionType):
            return self.union(members(kind))
        if kind is Any:
            return {}
        if is_struct(kind):
            return self.reference(kind)
        if get_origin(kind) is Literal:  # a newer CLI may say more than we know
            return {"type": "string"}
        if get_origin(kind) is tuple:
            return with_part({"type": "array"}, "items", self.shape(get_args(kind)[0]))
        if get_origin(kind) is dict:
            return with_part({"type": "object"}, "additionalProperties", self.shape(get_args(kind)[1]))
        if inspect.isclass(get_origin(kind)):  # Mapping and Sequence, in what a host says
            return {"type": "object"} if issubclass(get_origin(kind), Mapping) else {"type": "array"}
        return {"type": SCALARS[kind]}

    def union(self, kinds: tuple[Any, ...]) -> Schema:
        shapes = [self.shape(kind) for kind in kinds]
        names = [shape["type"] for shape in shapes if [*shape] == ["type"]]
        simple = {"type": one_or_all(without_integer_in_number(names))} if names else None
        others = [shape for shape in shapes if [*shape] != ["type"]]
        if not others:
            return simple or {}
        return {"anyOf": [*others, *([simple] if simple else [])]}

    def plain(self, fields: Mapping[str, Any]) -> Schema:
        """Return the schema of an object whose fields are in a table."""
        required = [name for name, kind in fields.items() if not isinstance(kind, Optional)]
        kinds = {name: kind.type if isinstance(kind, Optional) else kind for name, kind in fields.items()}
        made: Schema = {"type": "object", "properties": {name: self.shape(kind) for name, kind in kinds.items()}}
        return {**made, "required": required} if required else made

    # -- what a host says

    def request(self) -> Schema:
        """Return the schema of the body of a host's request."""
        for subtype, row in tables.REQUESTS.items():
            if self.has(subtype):
                fields = {name: kind for name, kind in row.fields.items() if self.has(f"{subtype}.{name}")}
                made = self.plain({"subtype": str, **fields})
                self.definitions[f"request.{subtype}"] = {**since(subtype), **made}
        choices = {subtype: {"$ref": f"#/$defs/request.{subtype}"} for subtype in tables.REQUESTS if self.has(subtype)}
        return {
            "type": "object",
            "properties": {"subtype": {"type": "string"}},
            "required": ["subtype"],
            "allOf": choose("subtype", choices),
        }

    def hook_output(self) -> Schema:
        """Return the schema of what a hook answers."""
        known = {
            name: self.shape(kind)
            for name, kind in fields_of(hooks.HookOutput).types.items()
            if name not in {"extra", "hookSpecificOutput"}
        }
        events: dict[str, Schema] = {}
        for cls in specific_outputs():
            for event in cls.events:
                mine = events.setdefault(str(event), {"type": "object", "properties": {"hookEventName": {"type": "string"}}})
                mine["properties"] |= {name: self.shape(kind) for name, kind in fields_of(cls).types.items()}
        specific = {"type": "object", "allOf": choose("hookEventName", dict(sorted(events.items())))}
        asynchronous = {"async": {"type": "boolean"}, "asyncTimeout": {"type": "number"}}
        return {"type": "object", "properties": {**known, **asynchronous, "hookSpecificOutput": specific}}


def specific_outputs() -> list[type[hooks.SpecificOutput]]:
    """Return the classes of outputs that only some events accept."""
    return sorted(hooks.SpecificOutput.__subclasses__(), key=lambda cls: cls.__name__)


def choose(field: str, choices: Mapping[str, Schema]) -> list[Schema]:
    """Return the parts of a schema that choose by a tag. A tag that none of them has is valid: a newer CLI may have more."""
    return [{"if": {"properties": {field: {"const": name}}, "required": [field]}, "then": schema} for name, schema in choices.items()]


def with_part(schema: Schema, keyword: str, part: Schema) -> Schema:
    return {**schema, keyword: part} if part else schema


def without_integer_in_number(names: list[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name != "integer" or "number" not in names]


def one_or_all(names: list[str]) -> str | list[str]:
    return names[0] if len(names) == 1 else names


def since(subtype: str) -> Schema:
    feature = find_feature(subtype)
    return {} if feature is None else {"description": f"Since CLI {feature.since}."}


def meaning(cls: Struct) -> str:
    """Return the first sentence of the docstring."""
    text = " ".join((inspect.getdoc(cls) or "").split("\n\n")[0].split())
    return text.split(". ")[0].removesuffix(".") + "."


def older(version: str, other: str) -> bool:
    return (parse_version(version) or ()) < (parse_version(other) or ())


def written(document: Schema) -> str:
    """Return a document as text, with one line for each definition and each choice of the root: short, and good to compare."""
    lines = []
    for keyword, value in document.items():
        if keyword == "$defs":
            inside = ",\n".join(f"{compact(name)}: {compact(each)}" for name, each in value.items())
            lines.append(f'"{keyword}": {{\n{inside}\n}}')
        elif keyword == "allOf":
            inside = ",\n".join(map(compact, value))
            lines.append(f'"{keyword}": [\n{inside}\n]')
        else:
            lines.append(f"{compact(keyword)}: {compact(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def render() -> dict[str, str]:
    """Return the documents, by their paths below `DOCUMENTS`."""
    directions: tuple[Literal["in", "out"], ...] = ("out", "in")
    return {
        f"{start}/{direction}.json": written(Document(direction, start).render()) for start in tables.RANGES for direction in directions
    }


def main() -> None:
    """Write the documents."""
    for name, text in render().items():
        path = DOCUMENTS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
