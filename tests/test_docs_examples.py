"""What the documentation shows is what runs: every file in examples and docs/examples, the code in README.md, and its second command."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType

import anyio
import anyio.to_thread
import pytest
from loading import load_file

import claude_transport

PROJECT = Path(__file__).parent.parent
FIRST = PROJECT / "examples"
EXAMPLES = sorted([*FIRST.glob("*.py"), *(FIRST / "middleware").glob("*.py"), *(PROJECT / "docs" / "examples").glob("*.py")])
README = (PROJECT / "README.md").read_text("utf-8")


def fenced(language: str) -> list[str]:
    """The code blocks of README.md in this language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def load(path: Path) -> ModuleType:
    """The example as a module, under a name that does not run its `if __name__ == "__main__"` block."""
    return load_file(path, f"docs_example_{path.stem}")


@pytest.mark.one_loop  # it shows the example; what it shows has tests of its own on both
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
async def test_an_example_runs_and_prints_what_its_page_says(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with anyio.fail_after(30):
        main = load(path).main
        await (main() if inspect.iscoroutinefunction(main) else anyio.to_thread.run_sync(main))
    assert capsys.readouterr().out == path.with_suffix(".txt").read_text("utf-8")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_shown_on_a_page_together_with_its_output(path: Path) -> None:
    pages = "".join(page.read_text("utf-8") for page in (PROJECT / "docs").rglob("*.md"))
    inside_docs = path.is_relative_to(PROJECT / "docs")
    folder = "../examples" if inside_docs else f"../../{path.parent.relative_to(PROJECT).as_posix()}"
    for name in (path.name, path.with_suffix(".txt").name):
        assert f"{{literalinclude}} {folder}/{name}\n" in pages, f"no page includes {folder}/{name}"


def test_the_examples_to_begin_with_are_ten_and_their_list_names_each() -> None:
    listed = re.findall(r"^\| \[`(\w+\.py)`\]\(\1\) \|", (FIRST / "README.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(listed) == [path.name for path in EXAMPLES if path.parent == FIRST]
    assert len(listed) == 10


def test_every_import_that_a_page_shows_can_be_made() -> None:
    pages = [page for page in (PROJECT / "docs").rglob("*.md") if "_build" not in page.parts]
    shown = {
        (page.name, line)
        for page in pages
        for line in re.findall(r"^from claude_transport\S* import [\w, ]+$", page.read_text("utf-8"), re.MULTILINE)
    }
    assert shown
    for name, line in sorted(shown):
        try:
            exec(line, {})
        except ImportError as exc:
            pytest.fail(f"{name}: {line}: {exc}")


async def test_the_code_in_the_readme_runs_against_a_mock(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = fenced("python")
    started: list[Callable[[], Awaitable[None]]] = []
    first_conversation = load(PROJECT / "examples" / "first_conversation.py")
    with monkeypatch.context() as patched:
        patched.setattr(anyio, "run", started.append)
        patched.setattr(claude_transport, "SubprocessTransport", first_conversation.rehearsed_claude)
        exec(code, {})
        with anyio.fail_after(30):
            await started[0]()
    assert capsys.readouterr().out == "Hello! What shall we build?\n"


def test_the_second_command_of_the_readme_is_what_ci_runs() -> None:
    _first, second = fenced("bash")[:2]
    assert second.strip() in (PROJECT / ".ci" / "run").read_text("utf-8")


def test_the_readme_links_only_to_files_that_are_there() -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", README):
        assert target.startswith("https://") or (PROJECT / target).exists(), target


def test_the_readme_names_only_test_folders_that_are_there() -> None:
    for target in re.findall(r"\btests/[\w/.]+", README):
        assert (PROJECT / target).exists(), target
