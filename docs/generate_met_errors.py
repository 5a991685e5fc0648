"""Write the page of the errors that users meet most, as they are printed: `python docs/generate_met_errors.py`.

Each error is provoked by what the page shows above it (`met_errors.py`). A test provokes them all, and compares the page with reality.
"""

from __future__ import annotations

import inspect
import re
import shlex
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).parent))

from met_errors import COMMANDS, PYTHON, Command, Snippet, World, provoke

__all__ = ["CASES", "PAGE", "anchor", "entry", "index", "main", "render"]

PAGE = Path(__file__).parent / "reference" / "met-errors.md"
CASES: tuple[Command | Snippet, ...] = (*COMMANDS, *PYTHON)
SHOWN = {"ANTHROPIC_BASE_URL"}
"""Variables that the page shows before a command."""

INTRODUCTION = f"""\
# The errors that users meet most

<!-- Written by docs/generate_met_errors.py from docs/met_errors.py: change that, and run it again. -->

These are {len(CASES)} errors as they are printed. Above each one is what provokes it. The first line says what happened and why; the last
one says what to do. A test provokes each of them, on asyncio and on trio.

`error.code` is for programs, and stays the same between releases. [Every code](codes.md) and [what is tried again](errors-and-codes.md)
have pages of their own.

## By code

"""


def anchor(title: str) -> str:
    """Return the anchor of an entry, as MyST makes it."""
    return re.sub(r"[^\w-]", "", title.lower().replace(" ", "-"))


def index() -> dict[str, list[str]]:
    """Return the titles of the entries of each code."""
    found: dict[str, list[str]] = {}
    for case in CASES:
        found.setdefault(case.code, []).append(case.title)
    return dict(sorted(found.items()))


def provoked_by(case: Command | Snippet) -> str:
    """Return the block with what provokes the error."""
    if isinstance(case, Command):
        variables = "".join(f"{name}={value} " for name, value in case.env.items() if name in SHOWN)
        # not "bash": a test holds that the commands in such blocks are right ones
        return f"```shell\n{variables}claude-transport {shlex.join(case.line)}\n```"
    body = inspect.getsource(case.run).partition(":\n")[2]
    return f"```python\n{re.sub(r'  # type: ignore.*', '', textwrap.dedent(body)).rstrip()}\n```"


def entry(case: Command | Snippet, printed: str) -> str:
    """Return one section of the page."""
    return f"### {case.title}\n\n{case.why}\n\n{provoked_by(case)}\n\n```text\n{printed.rstrip()}\n```\n"


def render(printed: Mapping[str, str]) -> str:
    """Return the page, from what is printed for each title."""
    links = [f"| `{code}` | {', '.join(f'[{title}](#{anchor(title)})' for title in titles)} |" for code, titles in index().items()]
    table = "\n".join(["| `code` | Entries |", "| --- | --- |", *links])
    parts = [f"{INTRODUCTION}{table}\n"]
    for heading, cases in (("On the command line", COMMANDS), ("In Python", PYTHON)):
        parts += [f"## {heading}\n", *(entry(case, printed[case.title]) for case in cases)]
    return "\n".join(parts)


async def collect(world: World) -> dict[str, str]:
    """Provoke every error, and return what is printed for each title."""
    return {case.title: await provoke(case, world, backend="asyncio") for case in CASES}


def main() -> None:
    """Write the page."""
    with World() as world:
        printed = anyio.run(collect, world)
    PAGE.write_text(render(printed), "utf-8")


if __name__ == "__main__":
    main()
