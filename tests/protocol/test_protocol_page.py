"""The page of the wire is held to the recordings, and what the source cites of both is there."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from loading import load_generator

PROJECT = Path(__file__).parents[2]
E2E = PROJECT / "tests" / "e2e"
PAGE = (PROJECT / "docs" / "reference" / "protocol.md").read_text("utf-8")
MESSAGES = (PROJECT / "docs" / "reference" / "messages.md").read_text("utf-8")
RECORDINGS = {path.stem: path for path in sorted((PROJECT / "tests" / "recordings").glob("*.ndjson"))}
CITING = [
    path
    for folder in ("claude_transport", "tests", "docs", "benchmarks")
    for path in sorted((PROJECT / folder).rglob("*"))
    if path.suffix in {".py", ".md", ".toml"} and path != Path(__file__) and "changelog.d" not in path.parts
]
MARK = r"\d\d[a-z]{0,2}(?:_\w+)?"
BRACKETS = re.compile(rf"(?<=\s)\[((?:{MARK})(?:, {MARK})*)\](?!\()|\brecordings? ({MARK})\b(?!\d)")


def slug(heading: str) -> str:
    """The anchor that readers of Markdown make of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


ANCHORS = [slug(heading) for heading in re.findall(r"^#{1,3} (.+)$", PAGE, re.MULTILINE)]
SECTIONS = dict(re.findall(r"^### (.+)\n([\s\S]+?)(?=^##|\Z)", PAGE, re.MULTILINE))
WORDS = set(re.findall(r"`([^`\n]+)`", PAGE))


@cache
def frames(name: str) -> tuple[tuple[str, dict[str, Any]], ...]:
    """The messages of a recording with their directions; trimmed lines and what is no object are left out."""
    lines = (json.loads(line) for line in RECORDINGS[name].read_text("utf-8").splitlines())
    kept = ((line["dir"], line["line"]) for line in lines if line["dir"] in ("in", "out") and "trimmed_from_chars" not in line)
    found: list[tuple[str, dict[str, Any]]] = []
    for direction, text in kept:
        try:
            value = json.loads(text)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append((direction, value))
    return tuple(found)


@cache
def exit_code(name: str) -> int | None:
    """The exit code in the driver's notes; a signal is negative."""
    found = re.findall(r"exit code (-?\d+)", RECORDINGS[name].read_text("utf-8"))
    return int(found[-1]) if found else None


def everything(direction: str) -> Iterator[dict[str, Any]]:
    for name in RECORDINGS:
        yield from (frame for found, frame in frames(name) if found == direction)


def rows(section: str) -> list[list[str]]:
    """The cells of each row of a section's table."""
    lines = [line for line in SECTIONS[section].splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines[2:]]


def named(text: str) -> list[str]:
    """The recordings that a text names."""
    return re.findall(rf"`({MARK})`", text)


# ------------------------------------------------------------------------------------------------------------------- citations


def test_every_citation_of_the_page_leads_to_an_anchor() -> None:
    cited = {(path.name, anchor) for path in CITING for anchor in re.findall(r"(?<![\w-])protocol\.md#([\w-]+)", path.read_text("utf-8"))}
    cited |= {("protocol.md", anchor) for anchor in re.findall(r"\]\(#([\w-]+)\)", PAGE)}
    assert len(cited) > 30
    assert sorted((file, anchor) for file, anchor in cited if anchor not in ANCHORS) == []


def test_no_anchor_is_there_twice() -> None:
    assert sorted({anchor for anchor in ANCHORS if ANCHORS.count(anchor) > 1}) == []


def test_every_recording_on_the_page_is_there_and_every_recording_is_on_the_page() -> None:
    assert set(named(PAGE)) == set(RECORDINGS)


def test_every_file_of_tests_on_the_page_is_there() -> None:
    assert [name for name in re.findall(r"`(test_\w+\.py)`", PAGE) if not (E2E / name).is_file()] == []


def test_every_recording_that_the_source_or_another_page_cites_is_there() -> None:
    package = [path for path in CITING if "tests" not in path.relative_to(PROJECT).parts[0]]
    cited = {
        (path.name, mark)
        for path in package
        for brackets, alone in BRACKETS.findall(path.read_text("utf-8"))
        for mark in (brackets or alone).split(", ")
    }
    assert len(cited) > 50
    assert sorted((file, mark) for file, mark in cited if not any(name.startswith(mark) for name in RECORDINGS)) == []


def test_no_docstring_cites_a_recording_because_the_pages_do() -> None:
    told = [
        f"{path.relative_to(PROJECT)}:{node.lineno}: {found[0]}"
        for path in CITING
        if path.suffix == ".py" and "claude_transport" in path.relative_to(PROJECT).parts[0]
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for found in BRACKETS.finditer(node.value.value)
    ]
    assert told == []


def test_every_name_in_the_table_of_recordings_is_on_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = tomllib.loads((PROJECT / "docs" / "recordings.toml").read_text("utf-8"))
    names = [name for table in tables.values() for name in table]
    assert len(names) > 100
    pages = ""
    for generator in (load_generator("messages"), load_generator("controls")):
        monkeypatch.setattr(generator, "SHOWN_BY", {name: [f"shows {name}"] for name in generator.SHOWN_BY})
        pages += generator.render()
    assert [name for name in names if f" [shows {name}] |" not in pages] == []


def test_a_recording_that_the_words_on_a_message_cite_holds_such_a_message() -> None:
    found = []
    for type_, words in re.findall(r"^\| `(\w+)` \| `\w+` \| (.*?) \| ", MESSAGES, re.MULTILINE):
        marks = [mark.partition(":")[0] for brackets in re.findall(r"\[(\d\d[^\]]*)\]", words) for mark in brackets.split(", ")]
        for mark in marks:
            texts = [path.read_text("utf-8") for name, path in RECORDINGS.items() if name.startswith(mark.rstrip("*"))]
            found.append((type_, mark, any(f'\\"{type_}\\"' in text for text in texts)))
    assert len(found) > 30
    assert [(type_, mark) for type_, mark, held in found if not held] == []


def test_the_page_says_for_which_versions_it_was_seen() -> None:
    recorded = {frame["claude_code_version"] for frame in everything("out") if frame.get("subtype") == "init"}
    (versions,) = re.findall(r"^\*\*Versions\.\*\* (.+)$", PAGE, re.MULTILINE)
    assert all(version in versions for version in recorded)


# --------------------------------------------------------------------------------------------------------------------- the wire


def test_every_type_that_was_recorded_is_on_the_page() -> None:
    out = {frame["type"] for frame in everything("out")} | {frame["subtype"] for frame in everything("out") if frame["type"] == "system"}
    said = {frame["type"] for frame in everything("in") if "type" in frame}
    assert sorted((out | said) - WORDS) == []


def test_every_control_request_that_was_recorded_is_on_the_page() -> None:
    asked = {(frame.get("request") or {}).get("subtype") for way in ("in", "out") for frame in everything(way) if "request" in frame}
    assert sorted(str(subtype) for subtype in asked - WORDS - {None, "nonexistent", "totally_unknown"}) == []


def test_every_reason_and_every_code_that_was_recorded_is_on_the_page() -> None:
    results = [frame for frame in everything("out") if frame["type"] == "result"]
    reasons = {frame.get("terminal_reason") for frame in results} | {frame["subtype"] for frame in results}
    codes = {frame["response"].get("error_code") for frame in everything("out") if frame["type"] == "control_response"}
    assert sorted(str(word) for word in (reasons | codes) - {None, "success"} - WORDS) == []


def test_every_capability_and_every_error_that_was_recorded_is_on_the_page() -> None:
    capabilities = {name for frame in everything("out") for name in frame.get("capabilities", ())}
    errors = {frame["error"] for frame in everything("out") if frame["type"] == "assistant" and frame.get("error")}
    assert len(capabilities) > 10
    assert sorted((capabilities | errors) - WORDS) == []


def test_a_result_always_has_the_fields_that_the_page_says() -> None:
    always = set.intersection(*({*frame} for frame in everything("out") if frame["type"] == "result")) - {"type"}
    (sentence,) = re.findall(r"It always has (.+?)\.\n", PAGE.partition("\n## Results\n")[2], re.DOTALL)
    assert set(re.findall(r"`(\w+)`", sentence)) == always


def test_no_other_message_is_without_a_session_and_a_uuid() -> None:
    without = {frame["type"] for frame in everything("out") if not {"session_id", "uuid"} <= {*frame}}
    (sentence,) = re.findall(r"except (.+?)\.\n", SECTIONS["Common fields"], re.DOTALL)
    assert without <= set(re.findall(r"`(\w+)`", sentence))


@pytest.mark.parametrize("row", rows("API failures"), ids=lambda row: row[0].replace(" ", "-"))
def test_a_failure_of_the_api_was_recorded_as_its_row_says(row: list[str]) -> None:
    _cause, error, status, reason, seen = row
    for name in named(seen):
        out = [frame for direction, frame in frames(name) if direction == "out"]
        result = next(frame for frame in out if frame["type"] == "result" and frame["is_error"])
        said = next(frame["error"] for frame in out if frame["type"] == "assistant" and frame.get("error"))
        assert f"`{said}`" in error, name
        assert f"`{result['terminal_reason']}`" == reason, name
        assert str(result["api_error_status"] or "none") in status.split(", "), name
        assert result["subtype"] == "success", name


@pytest.mark.parametrize(
    ("row", "code"), [*zip(rows("Signals"), (143, 129, 0, -9), strict=True)], ids=lambda part: part[0] if isinstance(part, list) else ""
)
def test_a_signal_ends_the_cli_as_its_row_says(row: list[str], code: int) -> None:
    assert code < 0 or str(code) in row[1]
    assert {name: exit_code(name) for name in named(row[2])} == dict.fromkeys(named(row[2]), code)


@pytest.mark.parametrize("row", rows("Lines to the CLI"), ids=lambda row: row[0].replace(" ", "-")[:40])
def test_a_line_is_ignored_read_or_fatal_as_its_row_says(row: list[str]) -> None:
    for name in named(row[2]):
        fatal = "**ends**" in row[1]
        results = [frame for direction, frame in frames(name) if direction == "out" and frame["type"] == "result"]
        assert exit_code(name) == (1 if fatal else 0), name
        assert bool(results) is not fatal, name


@pytest.mark.parametrize("row", rows("Failed starts"), ids=lambda row: row[0].replace(" ", "-")[:40])
def test_a_start_fails_as_its_row_says(row: list[str]) -> None:
    """With code 1, where the recording says how it ended (one does not), and with a result only where the table says so."""
    for name in named(row[2]):
        out = [frame["type"] for direction, frame in frames(name) if direction == "out"]
        assert exit_code(name) in {1, None} if name == "19_root_bypass_refused" else exit_code(name) == 1, name
        assert out == (["result"] if "error_during_execution" in row[1] else []), name


def test_the_exit_code_repeats_the_last_result() -> None:
    """Except after a signal: SIGTERM and SIGHUP have codes of their own, SIGINT ends with 0."""
    for name in RECORDINGS:
        results = [frame for direction, frame in frames(name) if direction == "out" and frame["type"] == "result"]
        if results and exit_code(name) in (0, 1) and "sigint" not in name:
            assert exit_code(name) == int(results[-1]["is_error"]), name
