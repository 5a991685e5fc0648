"""Make text from outside safe for one line of a log, an error message or a terminal.

Without this, a peer could write log records of its own, move the cursor of a terminal, reorder what a reader sees, or fill a disk. Use
`printable()` where text from outside is logged or printed, and `printable_lines()` for text with several lines, such as a traceback.
`ClaudeTransportError` does it for the messages of all errors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

MAX_LINE_CHARS: Final = 1000
"""Default maximum of characters on one line."""

MARGIN_CHARS: Final = 2**14
"""Characters behind a cut that are redacted with a text: a secret on the cut is not longer."""

_MAX_LINES: Final = 200
"""Maximum lines of a longer text: more than a traceback through the deepest callback has."""


def printable(text: object, *, at_most: int = MAX_LINE_CHARS) -> str:
    """Return `text` (or `str(text)`) on one line, with escapes for unprintable characters, cut after `at_most` characters.

    Unprintable are, as for `str.isprintable()`: control characters, line and paragraph separators, marks that reorder or hide text,
    surrogates, and all spaces but the ordinary one. The cost does not grow with `text`.
    """
    text = text if isinstance(text, str) else str(text)
    shown = text[:at_most]
    if not shown.isprintable():
        shown = "".join(letter if letter.isprintable() else _escape(letter) for letter in shown)[:at_most]
    return shown if len(text) <= at_most else f"{shown}… ({len(text) - at_most} more characters)"


def last_lines(text: str, *, at_most: int = 500) -> str:
    """Return the last lines of `text` on one line, with ` | ` between them: as many as fit into `at_most` characters."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    kept = lines.pop()[-at_most:] if lines else ""
    while lines and len(longer := f"{lines.pop()} | {kept}") <= at_most:
        kept = longer
    return kept


def redacted_head(text: str, redact: Callable[[str], str], *, at_most: int) -> str:
    """Return `redact` of the first `at_most` characters of `text`, without the first part of a secret that lies on the cut.

    Half a secret does not look like one. So what follows is redacted, too, and what changes by that is left out. The cost does not grow
    with `text`.
    """
    if len(text) <= at_most:
        return redact(text)
    shorter, longer = redact(text[:at_most]), redact(text[: at_most + MARGIN_CHARS])
    return shorter[: _same(shorter, longer)]


def redacted_tail(text: str, redact: Callable[[str], str], *, at_most: int) -> str:
    """Return `redact` of the last `at_most` characters of `text`, without the last part of a secret that lies on the cut."""
    if len(text) <= at_most:
        return redact(text)
    shorter, longer = redact(text[-at_most:]), redact(text[-at_most - MARGIN_CHARS :])
    return shorter[len(shorter) - _same(shorter[::-1], longer[::-1]) :]


def _same(one: str, other: str) -> int:
    """Return how many characters at the beginning are the same."""
    return next((at for at, (left, right) in enumerate(zip(one, other, strict=False)) if left != right), min(len(one), len(other)))


def is_encodable(text: str) -> bool:
    """Return whether UTF-8 can hold `text`: it has no half of a surrogate pair, which no file, no database and no connection takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable_lines(text: str, *, indent: str = "  ") -> str:
    """Return `text` with each line made `printable()` and indented, so that no line can pass for a log record.

    Of more than 200 lines the last ones are kept, because a traceback ends with the error.
    """
    lines = text.rstrip("\n").rsplit("\n", _MAX_LINES)
    left_out = lines[0].count("\n") + 1 if len(lines) > _MAX_LINES else 0
    kept = [printable(line) for line in (lines[1:] if left_out else lines)]
    return "\n".join(f"{indent}{line}" for line in ([f"({left_out} lines before)"] if left_out else []) + kept)


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape", "surrogatepass").decode("ascii")
