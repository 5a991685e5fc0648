"""What a newcomer reads first is true: the landing page, its comparison with the official SDK, and the page about notebooks."""

from __future__ import annotations

import ast
import asyncio
import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from test_docs_examples import fenced, load

import claude_transport as ct

PROJECT = Path(__file__).parent.parent
DOCS = PROJECT / "docs"
LANDING = (DOCS / "index.md").read_text("utf-8")
NOTEBOOK = (DOCS / "how-to" / "notebooks.md").read_text("utf-8")


def test_the_landing_page_shows_the_code_of_the_readme_which_is_ten_lines() -> None:
    (code,) = fenced("python")
    assert len([line for line in code.splitlines() if line.strip()]) == 10
    assert ':::{literalinclude} ../README.md\n:language: python\n:start-after: "```python"\n:end-before: "```"\n:::' in LANDING


def test_the_landing_page_and_the_readme_install_with_the_same_command() -> None:
    assert re.findall(r"^```bash\n(.*?)^```$", LANDING, re.DOTALL | re.MULTILINE) == fenced("bash")[:1]


def rows() -> dict[str, list[str]]:
    """Return the rows of the comparison: what a reader wants, and what each of the two says."""
    table = re.search(r"^\| you want \|.*?\n\n", LANDING, re.DOTALL | re.MULTILINE)
    assert table is not None
    cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table[0].splitlines()[2:] if line]
    return {first: rest for first, *rest in cells}


def test_the_comparison_says_of_speed_what_the_benchmark_measured() -> None:
    summary = (DOCS / "benchmarks" / "speed-summary.inc").read_text("utf-8")
    small, large, _, requests, _ = re.findall(r"^\d\. (.*)$", summary, re.MULTILINE)
    multiples = [float(found) for found in re.findall(r"([\d.]+) and ([\d.]+) times the processor time", small + large) for found in found]
    assert min(multiples) > 1.5
    assert rows()["little processor time for each message"] == ["[several times as much](benchmarks/speed.md)", "yes"]
    opening = re.search(r"to open and close a session, ([\d.]+) and ([\d.]+) times the processor time", requests)
    assert opening is not None
    assert all(1 < float(each) < 1.5 for each in opening.groups())
    assert rows()["the cheapest start of a session"] == ["yes", "[a little dearer](benchmarks/speed.md)"]


def test_the_official_sdk_skips_a_message_that_it_does_not_know_and_this_library_hands_it_on() -> None:
    from claude_agent_sdk import ClaudeSDKClient

    line = b'{"type":"from_the_future","session_id":"s"}'
    assert isinstance(message := ct.decode_message(line), ct.UnknownMessage)
    assert message.raw == line

    class Peer:
        """A transport of the official SDK that says one unknown thing and then ends."""

        def __init__(self) -> None:
            self.answers: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

        async def connect(self) -> None: ...

        async def write(self, data: str) -> None:
            request = ct.decode_message(data.encode())
            answer = {"subtype": "success", "request_id": getattr(request, "request_id", ""), "response": {}}
            for each in ({"type": "control_response", "response": answer}, {"type": "from_the_future"}, None):
                self.answers.put_nowait(each)

        async def read_messages(self) -> Any:
            while (message := await self.answers.get()) is not None:
                yield message

        async def close(self) -> None: ...

        async def end_input(self) -> None: ...

        def is_ready(self) -> bool:
            return True

    heard: list[Any] = []

    async def converse() -> None:
        async with ClaudeSDKClient(transport=Peer()) as client:  # type: ignore[arg-type]
            heard.extend([message async for message in client.receive_messages()])

    asyncio.run(converse())
    assert heard == []
    assert rows()["messages of a newer CLI"][0] == "unknown ones are skipped"


async def run_cell(code: str, names: dict[str, Any]) -> Any:
    """Run a cell as a notebook does: with `await` at its top level, and its last expression as its value."""
    tree = ast.parse(code)
    if isinstance(last := tree.body[-1], ast.Expr):
        tree.body[-1] = ast.Assign([ast.Name("_", ast.Store())], last.value)
    compiled = compile(ast.fix_missing_locations(tree), "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if (waiting := eval(compiled, names)) is not None:
        await waiting
    return names.pop("_", None)


async def test_the_cells_of_the_notebook_page_run_one_after_the_other_each_in_a_task_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first_conversation = load(PROJECT / "examples" / "first_conversation.py")
    monkeypatch.setattr(ct, "SubprocessTransport", first_conversation.rehearsed_claude)
    cells = re.findall(r"^```python\n(.*?)^```$", NOTEBOOK, re.DOTALL | re.MULTILINE)[1:]
    names: dict[str, Any] = {}
    values = []

    async def run(code: str) -> None:
        values.append(await run_cell(code, names))

    with anyio.fail_after(30):
        for code in cells:
            async with anyio.create_task_group() as tasks:  # a notebook runs each cell in a new task
                tasks.start_soon(run, code)
    assert capsys.readouterr().out == "Hello! What shall we build?\n"
    assert values == [None, None, 1, True]


async def test_a_second_event_loop_is_refused_with_the_words_that_the_page_quotes(anyio_backend_name: str) -> None:
    with pytest.raises(RuntimeError) as refused:
        anyio.run(anyio.sleep, 0)
    assert f"RuntimeError: {refused.value}".replace("trio", "asyncio") in NOTEBOOK
