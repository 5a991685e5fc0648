"""The option tables of the program's page, from the program's own parser: `python docs/generate_program.py` writes them.

What stands between the marks is written; all else on the page is left as it is. The page is committed, so that it can be read without
building anything; a test holds that its tables are what the parser says.
"""

from __future__ import annotations

import re
from pathlib import Path

from claude_transport.app.arguments import build_parser
from claude_transport.app.parser import Argument, Parser

__all__ = ["PAGE", "main", "render"]

PAGE = Path(__file__).parent / "reference" / "program.md"
MARKED = re.compile(
    r"(?P<begin><!-- options of (?P<name>[\w-]+): written by docs/generate_program.py -->\n).*?(?P<end><!-- end -->)", re.DOTALL
)


def cell(text: str) -> str:
    """`text` as it may stand in a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


def written(argument: Argument) -> str:
    """The argument as it is typed."""
    value = "" if argument.kind == "switch" else argument.metavar or "|".join(argument.choices)
    spellings = [f"{flag} {value}".rstrip() for flag in argument.flags] or [value]
    return ", ".join(f"`{cell(spelling)}`" for spelling in spellings)


def table(command: Parser) -> str:
    """Every argument of a command but `--help`, which all of them have."""
    arguments = [argument for argument in command.arguments() if argument.name != "help"]
    rows = [f"| {written(argument)} | {cell(argument.help)} |\n" for argument in arguments]
    return "".join(["| option | meaning |\n", "|---|---|\n", *rows])


def render(page: str) -> str:
    """The page with its tables as they should be. Raises `ValueError` when a command has no marks on it, or marks name no command."""
    commands = build_parser().commands
    marked = [found["name"] for found in MARKED.finditer(page)]
    if sorted(marked) != sorted(commands):
        raise ValueError(f"the page has tables of {sorted(marked)}, the program has the commands {sorted(commands)}")
    return MARKED.sub(lambda found: f"{found['begin']}\n{table(commands[found['name']])}\n{found['end']}", page)


def main() -> None:
    """Write the page to its place."""
    PAGE.write_text(render(PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
