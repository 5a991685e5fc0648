"""`printable()`: text from outside, made safe for one line of a log, of an error message or of a terminal.

A peer must not be able to write a log record of its own, to move the cursor of a terminal, to reorder what a reader sees, or to fill a
disk. So whatever comes from outside goes through `printable()` where it is logged or printed, and through `printable_lines()` where it
has several lines by nature, such as a traceback. `ClaudeTransportError` does it for the messages of all errors.
"""

from __future__ import annotations

from typing import Final

MAX_LINE_CHARS: Final = 1000
"""Characters of one line, unless the caller says otherwise."""

_MAX_LINES: Final = 200
"""Lines of a text with several: a traceback through the deepest callback has fewer."""


def printable(text: object, *, at_most: int = MAX_LINE_CHARS) -> str:
    """Return `text` (or `str(text)`) on one line: escapes for what is not printable, and a remark for what is beyond `at_most` characters.

    Not printable is what `str.isprintable()` calls so: control characters of both sets, line and paragraph separators, the marks that
    reorder or hide text, surrogates, and every space but the ordinary one. What it costs does not grow with `text`.
    """
    text = text if isinstance(text, str) else str(text)
    shown = text[:at_most]
    if not shown.isprintable():
        shown = "".join(letter if letter.isprintable() else _escape(letter) for letter in shown)[:at_most]
    return shown if len(text) <= at_most else f"{shown}… ({len(text) - at_most} more characters)"


def printable_lines(text: str, *, indent: str = "  ") -> str:
    """Return `text` with each of its lines made `printable()` and indented: none of them can be taken for a record of a log.

    Of more than 200 lines the last ones are kept, because a traceback ends with the error.
    """
    lines = text.rstrip("\n").rsplit("\n", _MAX_LINES)
    left_out = lines[0].count("\n") + 1 if len(lines) > _MAX_LINES else 0
    kept = [printable(line) for line in (lines[1:] if left_out else lines)]
    return "\n".join(f"{indent}{line}" for line in ([f"({left_out} lines before)"] if left_out else []) + kept)


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape", "surrogatepass").decode("ascii")
