"""The reference page of all options, from the tables that the library itself works by: `python docs/generate_options.py` writes it.

The page is committed, so that it can be read without building anything; a test holds that it is what the tables say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from claude_transport.launch.argv import FIXED_ARGUMENTS, FLAGS, RESERVED_FLAGS
from claude_transport.launch.environ import ALWAYS_ALLOWED, NESTING, POLICIES, VARIABLES
from claude_transport.launch.options import HOST_ONLY, ClaudeOptions, default_of
from claude_transport.launch.payloads import INITIALIZE_FIELDS, PAYLOADS

__all__ = ["PAGE", "main", "render"]

PAGE = Path(__file__).parent / "reference" / "options.md"

INTRODUCTION = """\
# Options, and what each of them becomes

<!-- Written by docs/generate_options.py from the tables in claude_transport/launch: change those, and run it again. -->

Each field of `ClaudeOptions` goes to exactly one of five places: the command line; a private file (for a CLI on another machine, the
`initialize` request); only the `initialize` request; the environment of the child; or nothing outside of this process. The library uses
the same tables that are shown below. Names in brackets like `[04h]` are recordings of the CLI in which a fact was observed.
"""

FLAG_INTRODUCTION = f"""\
Each value is bound to its flag as one argument, `--flag=value`, so the CLI never reads it as a flag. These arguments are always passed:
`{" ".join(FIXED_ARGUMENTS)}`.
The command line has at most 8,000 characters. Long lists of rules move into the settings; an option that is too long and cannot move is
refused. Flags marked *hidden* are in the binary, but not in `claude --help`.
"""

PAYLOAD_INTRODUCTION = """\
These values are large or secret, so they are never on the command line. By default each is written to a file that only its owner can
read, and that is deleted after the close. For a CLI on another machine it travels in a field of the `initialize` request.
"""

INITIALIZE_INTRODUCTION = """\
`Query` sends these. A transport without a `Query` logs that they are not sent.
"""

ENVIRONMENT_INTRODUCTION = """\
These variables are set for the child only, over the ones it inherits. `env` wins over them. The environment of this process is never
changed.
"""

INHERITANCE = """\
## What is never inherited, and what always may be

The marks of an enclosing session are removed, so that a host that itself runs under Claude starts a session of its own: {nesting}.

With `env_mode="allowlist"`, these are inherited without being listed: {allowed}.
"""


def cell(text: str) -> str:
    """`text` as it may stand in a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


def described(row: Any) -> str:
    return cell(f"{row.doc} {row.note}")


def shown_default(option: str) -> str:
    """The default of an option, as one writes it in Python."""
    field = next(field for field in msgspec.structs.fields(ClaudeOptions) if field.name == option)
    return f"`{default_of(field)!r}`"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    columns = [*head]
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def flag_rows() -> Iterator[list[str]]:
    for row in FLAGS:
        if row.flag:
            written = f"`{row.flag}`" if row.form == "switch" else f"`{row.flag}=…`{' each' if row.form == 'repeat' else ''}"
        else:
            written = "`--name`, `--name=…`"
        yield [f"`{row.option}`", f"{written} *hidden*" if row.hidden else written, shown_default(row.option), described(row)]


def tables() -> Iterator[tuple[str, str, str]]:
    """Title, introduction and table of each section that a table of the library fills."""
    yield "On the command line", FLAG_INTRODUCTION, table(("Option", "Argument", "Default", "Meaning"), flag_rows())
    payloads = ([f"`{row.option}`", f"`{row.flag}`", f"`{row.field}`", shown_default(row.option), described(row)] for row in PAYLOADS)
    head = ("Option", "Flag of the file", "Field", "Default", "Meaning")
    yield "In a private file, or in `initialize`", PAYLOAD_INTRODUCTION, table(head, payloads)
    fields = ([f"`{row.option}`", f"`{row.field}`", shown_default(row.option), described(row)] for row in INITIALIZE_FIELDS)
    yield "In `initialize` alone", INITIALIZE_INTRODUCTION, table(("Option", "Field", "Default", "Meaning"), fields)
    variables = ([f"`{row.option}`", f"`{row.name}`", shown_default(row.option), described(row)] for row in VARIABLES)
    yield "In the environment", ENVIRONMENT_INTRODUCTION, table(("Option", "Variable", "Default", "Meaning"), variables)
    for title, options in (("About the environment as a whole", POLICIES), ("In this process only", HOST_ONLY)):
        yield title, "", table(("Option", "Default", "Meaning"), ([f"`{o}`", shown_default(o), cell(text)] for o, text in options.items()))
    refused = ([f"`--{name}`", cell(why)] for name, why in RESERVED_FLAGS.items())
    yield "Flags that `extra_args` may not name", "", table(("Flag", "Why"), refused)


def names(found: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in found)


def render() -> str:
    """The whole page, as MyST Markdown."""
    inherited = INHERITANCE.format(nesting=names(sorted(NESTING)), allowed=names(ALWAYS_ALLOWED))
    sections = ["\n".join(part for part in (f"## {title}\n", text, body) if part) for title, text, body in tables()]
    return "\n".join([INTRODUCTION, *sections, inherited])


def main() -> None:
    """Write the page to its place."""
    PAGE.write_text(render(), "utf-8")


if __name__ == "__main__":
    main()
