"""Write the option tables of the program's page from the program's own commands: `python docs/generate_program.py`.

It replaces what stands between the marks, and leaves the rest of the page as it is. The page is committed, so that it can be read without
building anything. A test holds that its tables are up to date.
"""

from __future__ import annotations

import re
from pathlib import Path

import click

from claude_transport.app.arguments import COMMANDS, Command

__all__ = ["PAGE", "main", "render"]

PAGE = Path(__file__).parent / "reference" / "program.md"
MARKED = re.compile(
    r"(?P<begin><!-- options of (?P<name>[\w-]+): written by docs/generate_program.py -->\n).*?(?P<end><!-- end -->)", re.DOTALL
)


def cell(text: str) -> str:
    """Return `text` as it may stand in a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


def table(command: Command) -> str:
    """Return the table of a command's arguments, without `--help`, which every command has."""
    rows = []
    for param in command.params:
        if param.name == "help":
            continue
        value = "" if isinstance(param, click.Option) and param.is_flag else f" {param.metavar}"
        spellings = [f"{flag}{value}" for flag in param.opts] if isinstance(param, click.Option) else [value.strip()]
        rows.append(f"| {', '.join(f'`{cell(spelling)}`' for spelling in spellings)} | {cell(getattr(param, 'help', ''))} |\n")
    return "".join(["| option | meaning |\n", "|---|---|\n", *rows])


def render(page: str) -> str:
    """Return the page with its tables up to date. Raises `ValueError` if the marks on it are not those of the commands."""
    commands = {str(command.name): command for command in COMMANDS}
    marked = [found["name"] for found in MARKED.finditer(page)]
    if sorted(marked) != sorted(commands):
        raise ValueError(f"the page has tables of {sorted(marked)}, the program has the commands {sorted(commands)}")
    return MARKED.sub(lambda found: f"{found['begin']}\n{table(commands[found['name']])}\n{found['end']}", page)


def main() -> None:
    """Write the page to its place."""
    PAGE.write_text(render(PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
