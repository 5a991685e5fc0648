"""What the text of the project refers to is in the project: documents, files, and no ids of requirements outside of the tests' maps."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from proof_map import PAIN_ROWS, SYSTEM_ROWS

PROJECT = Path(__file__).parents[1]
HOMES = ("claude_transport", "docs", "benchmarks", "tests")
TEXTS = {".css", ".html", ".inc", ".js", ".md", ".py", ".pyi", ".toml", ".txt"}
WRITTEN_ELSEWHERE = {"recordings", "changelog.d", "__pycache__", "_build"}

ID = re.compile(rf"(?<![\w.#/$-])(?:{'|'.join(sorted(map(re.escape, [*PAIN_ROWS, *SYSTEM_ROWS]), key=len, reverse=True))})(?![\w-]|\.\d)")
NO_ID = (
    re.compile(r"\bC0\b.*\bC1\b"),  # the two sets of control characters
    re.compile(r"<path "),  # the commands of a picture
    re.compile(r'"C4", "C90"'),  # the rules of ruff
    re.compile(r"\bP0\b"),  # numbered names in a sample of code
)
ELSEWHERE = re.compile(
    r"\bPROTOCOL\b(?!_)|\bhouse-2\b|\b(?:rows?|pains?) [A-Z]\d|\bissues? \d+\b|/shared/",
)
FILE = re.compile(r"(?<![\w/.*<>{}~-])((?:\.\./)*[\w./-]*\w\.md|(?:docs|tests|benchmarks|claude_transport)/[\w./-]*\w)(?![\w*{<-])")
NAMES_OF_USERS = re.compile(r"CLAUDE\.md|SKILL\.md|MEMORY\.md|review\.md|tests/checkout\b.*")
"""Files that users of the CLI have, or that an example makes up: not files of this project."""


def texts() -> list[Path]:
    """Return the files of the project that hold words."""
    files = [path for home in HOMES for path in (PROJECT / home).rglob("*")] + list(PROJECT.glob("*.md"))
    return sorted(path for path in files if path.suffix in TEXTS and path.is_file() and not WRITTEN_ELSEWHERE & {*path.parts})


@cache
def words(path: Path) -> tuple[tuple[int, str], ...]:
    """Return the lines of words in a file, with their numbers: of Python code the comments and strings, without the tests' maps."""
    source = path.read_text("utf-8")
    if path.suffix not in {".py", ".pyi"}:
        return tuple(enumerate(source.splitlines(), 1))
    maps = list(lines_of_maps(source)) if path.name.startswith("test_") else []
    kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type in kinds]
    found = ((token.start[0] + offset, line) for token in tokens for offset, line in enumerate(token.string.splitlines()))
    return tuple((number, line) for number, line in found if not any(number in lines for lines in maps))


def lines_of_maps(source: str) -> Iterator[range]:
    """Yield the lines of the module's maps of requirements: what is assigned to `PROOFS`, `ROWS` and their like."""
    for node in ast.parse(source).body:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        if any(isinstance(target, ast.Name) and re.search(r"PROOFS|PROVEN|ROWS|PAINS", target.id) for target in targets):
            yield range(node.lineno, (node.end_lineno or node.lineno) + 1)


def find_ids(path: Path) -> list[str]:
    """Return where a file names a requirement, or a document that no reader of the project has."""
    return [
        f"{path.relative_to(PROJECT)}:{number}: {line.strip()}"
        for number, line in words(path)
        if (ID.search(line) or ELSEWHERE.search(line)) and not any(form.search(line) for form in NO_ID)
    ]


def test_requirements_and_documents_from_elsewhere_are_named_in_the_tests_maps_only() -> None:
    checked = [path for path in texts() if path not in {PROJECT / "tests" / "proofs.toml", Path(__file__)}]
    assert len(checked) > 300
    assert [found for path in checked for found in find_ids(path)] == []


@pytest.mark.parametrize(
    "line",
    [
        "text that is cut (S1.6)",
        "row L16",
        "Transport.connect; L4, L5",
        "**R9** says so",
        "C15: recordings",
        "see PROTOCOL (d) 10",
        "house-2 §3",
        "as issue 12 asks",
    ],
)
def test_each_form_of_an_id_is_found(line: str, tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(line, "utf-8")
    assert ID.search(line) or ELSEWHERE.search(line)
    assert words(path) == ((1, line),)


@pytest.mark.parametrize(
    "line", ["C0 but tab, DEL, C1", "0xB5", "page A4x", "L17 and S6.1", "S11", "v1.2", "sha A6-B2", "PROTOCOL_VERSION"]
)
def test_what_only_looks_like_an_id_is_none(line: str) -> None:
    assert any(form.search(line) for form in NO_ID) or not (ID.search(line) or ELSEWHERE.search(line))


def test_ids_in_code_and_in_maps_are_not_words(tmp_path: Path) -> None:
    path = tmp_path / "test_map.py"
    path.write_text('PROOFS = {"L1": "a"}\nL2 = 1  # the L3 row\n', "utf-8")
    assert words(path) == ((2, "# the L3 row"),)


def resolves(name: str, path: Path) -> bool:
    """Tell whether a file that is named in `path` is there: relative to it, or to one of the folders that names are relative to."""
    roots = (path.parent, PROJECT, *(PROJECT / home for home in HOMES), PROJECT / "docs" / "reference")
    return any((root / name).exists() or any(root.glob(f"{name}*")) for root in roots)


def test_every_file_that_is_named_is_in_the_tree() -> None:
    pages = {path.name for path in texts()}
    named = {
        (path.relative_to(PROJECT).as_posix(), name)
        for path in texts()
        if "tests" not in path.parts
        for _, line in words(path)
        if "://" not in line
        for name in FILE.findall(line)
        if not NAMES_OF_USERS.fullmatch(name)
    }
    assert len(named) > 200
    assert sorted((path, name) for path, name in named if not resolves(name, PROJECT / path) and name not in pages) == []
