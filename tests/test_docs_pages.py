"""What pages tell people to type and to do: command lines that parse, the plugin's first and second run, a wrapper that makes a mistake."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.exceptions import Exit
from loading import load_file

from claude_transport.app.arguments import parse
from claude_transport.testing import FakeClaude, Scenario
from claude_transport.testing.conformance import media, run_conformance

pytest_plugins = ["pytester"]

DOCS = Path(__file__).parent.parent / "docs"
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if not {"_build", "changelog.d"} & set(page.parts)]
LONGEST_BLOCK = 10  # lines; what is longer is an example, and a file that is run


def commands(page: Path) -> Iterator[str]:
    """Every command line of the program that a page has in a block, without what a shell makes of its end."""
    for block in re.findall(r"^```(?:bash|sh|console)\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        for line in re.findall(r"^(?:\$ |exec )?(claude-transport .+)$", block, re.MULTILINE):
            yield re.split(r" [<>|] | -- ", line)[0]


@pytest.mark.parametrize("command", sorted({command for page in PAGES for command in commands(page)}))
def test_a_command_line_on_a_page_is_one_that_the_program_takes(command: str) -> None:
    words = shlex.split(command, comments=True)[1:]
    if words[0] == "help":
        with pytest.raises(Exit, match=r"^0$"):  # it has printed
            parse(words)
    else:
        assert parse(words) is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_long_piece_of_python_on_a_page_is_a_file_that_is_run(page: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert [block for block in blocks if len(block.splitlines()) > LONGEST_BLOCK] == []


def test_the_example_of_the_plugin_is_recorded_once_and_then_needs_no_claude(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(DOCS / "examples" / "pytest" / "test_greeting.py", pytester.path)
    tape = pytester.path / "tapes" / "test_greeting" / "test_greeting_of_the_real_claude.ndjson"
    alone = os.environ["PATH"]

    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=2, failed=2)
    assert not tape.exists()

    with FakeClaude(Scenario.text("Hello there!")) as fake:
        monkeypatch.setenv("PATH", f"{fake.path.parent}:{alone}")
        pytester.runpytest_subprocess("-p", "no:cacheprovider", "--claude-record=once").assert_outcomes(passed=4)
    assert tape.exists()

    monkeypatch.setenv("PATH", "/nowhere")
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=4)


def test_the_mistake_of_the_tutorial_breaks_the_clause_that_the_tutorial_names() -> None:
    first_wrapper = load_file(DOCS / "examples" / "first_wrapper.py")
    tutorial = (DOCS / "tutorial" / "your-own-wrapper.md").read_text("utf-8")
    (mistake,) = re.findall(r"^```python\n(.*?)^```$", tutorial, re.DOTALL | re.MULTILINE)
    made: dict[str, object] = {}
    exec(mistake, made)
    mistaken: Any = type("Mistaken", (first_wrapper.ByteCount,), {"close": made["close"]})

    report = run_conformance(media.wrapped(media.memory(), mistaken), clauses=["close.wakes-reader", "read.order"], timeout=1)
    assert {row.clause for row in report.failed} == {"close.wakes-reader"}
