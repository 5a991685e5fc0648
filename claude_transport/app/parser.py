"""`Parser`: argparse, with the program's own mistakes, help of 80 columns, and an outline of what it reads for whoever needs one."""

from __future__ import annotations

import argparse
import re
import shutil
import textwrap
from typing import Any, Final, NamedTuple, NoReturn

PROGRAM: Final = "claude-transport"
HELP_WIDTH: Final = 80
"""Columns of the help, at most: what a terminal has when nobody made it wider, and what a manual page is set in."""
_IN_FRONT: Final = re.compile(r"\w{1,3} {2,}")
_PLACES: Final = {"FILE": "file", "TAPE": "file", "PATH": "file", "DIR": "directory"}


class Argument(NamedTuple):
    """One option, or one place for a value. No Struct: `--help` must not wait for msgspec.

    `kind` says what it takes: `switch` (nothing), `file`, `directory`, `choice` (one of `choices`) or `text`. `flags` is empty for a
    positional argument. `default` is None when leaving it away means nothing in particular.
    """

    name: str
    flags: tuple[str, ...]
    kind: str
    metavar: str
    choices: tuple[str, ...]
    help: str
    default: object
    repeatable: bool


class _Formatter(argparse.HelpFormatter):
    """Wraps at 80 columns however wide the terminal is; description and epilog are set already, and only made narrower."""

    def __init__(self, prog: str, **kwargs: Any) -> None:
        width = min(shutil.get_terminal_size().columns, HELP_WIDTH) - 2
        super().__init__(prog, **{**kwargs, "width": width, "max_help_position": 26})

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(_narrowed(indent + line, width + 2) for line in text.splitlines())


def _narrowed(line: str, width: int) -> str:
    """A line that is too long as several, indented as it is; a word is never broken, for it may be there to be copied."""
    if len(line) <= width:
        return line
    text = line.lstrip()
    indent = line[: len(line) - len(text)]
    hanging = _IN_FRONT.match(text)  # an exit code stands in front of its meaning
    inner = indent + " " * (hanging.end() if hanging else 0)
    return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=inner, break_long_words=False, break_on_hyphens=False)


class Parser(argparse.ArgumentParser):
    """Reports mistakes as the rest of the program does: one line, with a code. `commands` are the parsers of its commands."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"formatter_class": _Formatter, "allow_abbrev": False, **kwargs})
        self.commands: dict[str, Parser] = {}
        self.summary = ""

    def error(self, message: str) -> NoReturn:
        """The mistake and the usage on stderr, and exit code 2."""
        self.exit(2, f"{PROGRAM}: {message} [usage.error]\n  {self.format_usage().strip()}\n")

    def arguments(self) -> list[Argument]:
        """What it reads, in the order of its help; its commands are not among them."""
        return [self._outline_of(action) for action in self._actions if not self._has_commands(action)]

    def _outline_of(self, action: argparse.Action) -> Argument:
        choices = tuple(str(choice) for choice in action.choices or ())
        metavar = action.metavar if isinstance(action.metavar, str) else ""
        if action.nargs == 0:
            kind = "switch"
        elif choices:
            kind = "choice"
        else:
            kind = _PLACES.get(metavar, "text")
        return Argument(
            name=action.dest,
            flags=tuple(action.option_strings),
            kind=kind,
            metavar=metavar,
            choices=choices,
            help=(action.help or "") % {**vars(action), "prog": self.prog},
            default=None if action.default in (argparse.SUPPRESS, False, None) or action.default == [] else action.default,
            repeatable=isinstance(action.default, list) or "repeatable" in (action.help or "") or action.nargs == "*",
        )

    def _has_commands(self, action: argparse.Action) -> bool:
        return bool(self.commands) and action.dest == "command"
