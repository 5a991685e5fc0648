"""The schemas of the package are what the classes say, for each range of the CLI, and name everything that a host can ask."""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loading import load_generator

from claude_transport import wire
from claude_transport.client.controls import Asking, Controls
from claude_transport.client.query import Query
from claude_transport.errors import UsageError
from claude_transport.launch.features import NEWEST_CLI, OLDEST_CLI, parse_version, supports
from claude_transport.launch.payloads import INITIALIZE_FIELDS, PAYLOADS
from claude_transport.protocol.codec import decode_message
from claude_transport.protocol.messages import SYSTEM_SUBTYPES
from claude_transport.wire import WIRE_RANGES, wire_range
from claude_transport.wire.check import KEYWORDS
from claude_transport.wire.documents import schema_on_tape


@pytest.fixture(scope="module")
def generator() -> Any:
    return load_generator("schema")


def files_below(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in folder.rglob("*") if path.is_file()}


def test_the_committed_documents_are_what_the_classes_say(generator: Any) -> None:
    assert files_below(generator.DOCUMENTS) == generator.render(), "run: python docs/generate_schema.py"


def test_main_writes_every_document(generator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "DOCUMENTS", tmp_path)
    generator.main()
    assert files_below(tmp_path) == generator.render()


def test_each_range_has_a_document_for_each_direction(generator: Any) -> None:
    assert generator.tables.RANGES == WIRE_RANGES
    assert [*generator.render()] == [f"{start}/{direction}.json" for start in WIRE_RANGES for direction in ("out", "in")]
    for start in WIRE_RANGES:
        for direction in ("in", "out"):
            document = schema_on_tape(direction, cli_version=start)
            assert (document["$id"], document["$schema"]) == (
                f"urn:claude-transport:wire:{start}:{direction}",
                "https://json-schema.org/draft/2020-12/schema",
            )


def test_the_ranges_cover_every_supported_version() -> None:
    assert WIRE_RANGES[0] == OLDEST_CLI
    assert [parse_version(start) for start in WIRE_RANGES] == sorted(filter(None, map(parse_version, WIRE_RANGES)))
    assert (parse_version(WIRE_RANGES[-1]) or ()) <= (parse_version(NEWEST_CLI) or ())


@pytest.mark.parametrize(
    ("version", "start"),
    [
        (None, "2.1.330"),
        ("2.1.92", "2.1.92"),
        ("2.1.190", "2.1.92"),
        ("2.1.191", "2.1.191"),
        ("2.1.329", "2.1.275"),
        ("3.0.0", "2.1.330"),
        ("2.1.1", "2.1.92"),
        ("2.1.257-beta.1", "2.1.257"),
    ],
)
def test_a_version_belongs_to_the_range_that_begins_last_before_it(version: str | None, start: str) -> None:
    assert wire_range(version) == start


def test_a_version_or_direction_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="'newest' is not a version of claude"):
        wire_range("newest")
    with pytest.raises(UsageError, match="direction is 'received' or 'sent', not 'both'"):
        wire.schema("both")  # type: ignore[arg-type]


def test_a_schema_is_the_callers_own() -> None:
    wire.schema("received")["$defs"].clear()
    assert wire.schema("received")["$defs"]


def test_the_page_links_every_document_in_the_row_of_its_range() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "schema.md").read_text("utf-8")
    rows = re.findall(r"^\| (2\.1\.\d+) (?:to (2\.1\.\d+)|and newer) \| (.*) \| (.*) \|$", page, re.MULTILINE)
    assert [row[0] for row in rows] == [*reversed(WIRE_RANGES)]
    for start, last, out, host in rows:
        assert f"<../../claude_transport/wire/schemas/{start}/out.json>" in out
        assert f"<../../claude_transport/wire/schemas/{start}/in.json>" in host
        assert not last or wire_range(last) == start
    for last, start in zip([row[1] for row in rows[1:]], [row[0] for row in rows], strict=False):
        following = f"2.1.{(parse_version(last) or (0, 0, 0))[2] + 1}"
        assert following == start


# ------------------------------------------------------------------------------------------------------------- what they say


def test_nothing_in_a_schema_forbids_what_it_does_not_know() -> None:
    for start in WIRE_RANGES:
        for direction in ("in", "out"):
            for schema in parts_of(schema_on_tape(direction, cli_version=start)):
                assert schema.keys() <= KEYWORDS
                assert schema.get("additionalProperties") is not False


def parts_of(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The schema, and every schema in it."""
    yield schema
    named = [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values()]
    single = [schema[keyword] for keyword in ("items", "additionalProperties", "if", "then") if keyword in schema]
    for part in (*named, *single, *schema.get("anyOf", ()), *schema.get("allOf", ())):
        yield from parts_of(part)


def tags(choices: list[dict[str, Any]]) -> set[str]:
    return {part["if"]["properties"][name]["const"] for part in choices for name in part["if"]["required"]}


def test_every_message_that_the_library_decodes_is_in_the_schema_of_its_direction() -> None:
    out, host = wire.schema("received"), wire.schema("sent")
    known = tags(out["allOf"]) | tags(host["allOf"])
    assert [name for name in known if type(decode_message(json.dumps({"type": name}).encode())).__name__ == "UnknownMessage"] == []
    assert tags(out["$defs"]["SystemMessage"]["allOf"]) == set(SYSTEM_SUBTYPES)
    assert "update_environment_variables" in tags(host["allOf"])
    assert "stream_event" not in tags(host["allOf"])


def test_a_field_is_required_where_every_cli_of_the_range_sends_it() -> None:
    required = {start: wire.schema("received", cli_version=start)["$defs"]["InitMessage"]["required"] for start in WIRE_RANGES}
    assert all({"type", "tools", "model", "permissionMode"} <= set(names) for names in required.values())
    assert [start for start, names in required.items() if "capabilities" in names] == ["2.1.257", "2.1.275", "2.1.330"]
    result = wire.schema("received")["$defs"]["ResultMessage"]
    assert {"is_error", "subtype", "usage"} <= set(result["required"])
    assert not {"result", "errors", "user_message_uuids", "structured_output"} & set(result["required"])


def test_a_class_that_no_recording_shows_requires_its_tag_alone() -> None:
    assert wire.schema("received")["$defs"]["ToolUseSummary"]["required"] == ["type"]


def test_a_range_has_the_requests_that_some_of_its_versions_may_know() -> None:
    for start in WIRE_RANGES:
        definitions = wire.schema("sent", cli_version=start)["$defs"]
        asked = {name.partition(".")[2] for name in definitions if name.startswith("request.")}
        everything = {name.partition(".")[2] for name in wire.schema("sent")["$defs"] if name.startswith("request.")}
        assert [name for name in everything if supports(name, version=start) and name not in asked] == []
    assert "request.get_plan" not in wire.schema("sent", cli_version="2.1.92")["$defs"]
    assert "request.get_plan" in wire.schema("sent", cli_version="2.1.191")["$defs"]  # since 2.1.204
    assert "request.get_sandbox_dialog" in wire.schema("sent", cli_version="2.1.275")["$defs"]  # 2.1.329 answered it
    assert "planModeInstructions" in wire.schema("sent")["$defs"]["request.initialize"]["properties"]


def sent_by(method: Any) -> Iterator[tuple[str, set[str], bool]]:
    """The requests that a method sends: subtype, names of fields, and whether there may be more."""
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(method)))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in {"request", "_ask", "_tell"}:
            (subtype,) = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            names = {keyword.arg for keyword in node.keywords if keyword.arg not in {None, "timeout"}}
            yield subtype, {str(name) for name in names}, any(keyword.arg is None for keyword in node.keywords)


def test_every_request_of_a_query_is_in_the_schema_with_its_fields_and_no_other(generator: Any) -> None:
    groups: list[type[Asking]] = [*Controls.__bases__]
    methods = [member for group in groups for name, member in vars(group).items() if inspect.iscoroutinefunction(member) and name[0] != "_"]
    sent: dict[str, tuple[set[str], bool]] = {}
    for subtype, names, open_ended in (found for method in methods for found in sent_by(method)):
        known, was_open = sent.get(subtype, (set(), False))
        sent[subtype] = (known | names, was_open or open_ended)
    assert set(generator.tables.REQUESTS) == {*sent, "initialize"}
    for subtype, (names, open_ended) in sent.items():
        fields = set(generator.tables.REQUESTS[subtype].fields)
        assert names <= fields, subtype
        assert open_ended or names == fields, subtype


def test_every_field_of_initialize_that_an_option_or_a_query_sends_is_in_the_schema() -> None:
    known = set(wire.schema("sent")["$defs"]["request.initialize"]["properties"])
    of_query = set(re.findall(r'"(\w+)":', re.findall(r"own = \{.*?\}", inspect.getsource(Query.__init__))[0]))
    assert of_query == {"agents", "hooks", "sdkMcpServers"}
    assert {*(row.field for row in INITIALIZE_FIELDS), *(row.field for row in PAYLOADS), *of_query, "plugins", "jsonSchema"} <= known
