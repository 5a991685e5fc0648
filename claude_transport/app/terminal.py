"""What may be shown where: which streams are terminals, whether colours are wanted, and text made safe to look at."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import select
import shutil
from collections.abc import Mapping
from typing import Final, TextIO

import msgspec

# Everything that moves the cursor, changes colours, rings or hides: C0 but tab and newline, DEL, C1, surrogates, separators of lines, and
# the marks that reorder text or have no width. The two joiners stay: scripts and emoji are written with them.
_INVISIBLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_STYLES: Final = {"dim": "2", "bold": "1", "red": "31", "green": "32", "yellow": "33"}
_MAX_SPACES: Final = 4096
"""Characters of white space that are looked through for more words of one line."""
MAX_WIDTH: Final = 100
"""Columns; longer lines of prose are hard to read, however wide the terminal is."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """How things are shown: `color` on stdout and stderr, Markdown and movement with `rich`, and the width in columns."""

    stdout_color: bool = False
    stderr_color: bool = False
    rich: bool = False
    width: int = 80
    unicode: bool = True

    def paint(self, text: str, style: str, *, stderr: bool = False) -> str:
        """`text` in a style (dim, bold, red, green, yellow), when colours are on for that stream."""
        if not text or not (self.stderr_color if stderr else self.stdout_color):
            return text
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"

    def symbol(self, name: str) -> str:
        """A mark: `tool`, `good`, `bad`, `dot`; plain ASCII where the terminal's encoding has no more."""
        return {"tool": "●*", "good": "✓+", "bad": "✗x", "dot": "·-"}[name][0 if self.unicode else 1]


def choose_look(
    stdout: TextIO, stderr: TextIO, *, env: Mapping[str, str], plain: bool = False, no_color: bool = False, width: int | None = None
) -> Look:
    """The look that the streams, the environment (`NO_COLOR`, `TERM`) and the options allow."""
    out, err = is_terminal(stdout), is_terminal(stderr)
    colorful = not (plain or no_color or env.get("NO_COLOR") or env.get("TERM") == "dumb")
    encodings = [(getattr(stream, "encoding", None) or "ascii").lower().replace("-", "") for stream in (stdout, stderr)]
    return Look(
        stdout_color=colorful and out,
        stderr_color=colorful and err,
        rich=colorful and out and importlib.util.find_spec("rich") is not None,
        width=min(width or _common_width(stdout, stderr, env=env), MAX_WIDTH),
        unicode=all(encoding.startswith("utf") for encoding in encodings),
    )


def is_terminal(stream: TextIO) -> bool:
    """Whether a stream leads to a terminal; a closed one does not."""
    try:
        return os.isatty(stream.fileno())
    except (OSError, ValueError, AttributeError):
        return False


def width_of(stream: TextIO) -> int | None:
    """Columns of the terminal that a stream leads to, as it is now; None when there is no terminal, or it does not say."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError, AttributeError):
        return None


def _common_width(stdout: TextIO, stderr: TextIO, *, env: Mapping[str, str]) -> int:
    """`COLUMNS`, else the width of the terminal that either of them is; `shutil` asks stdout only, which may be a file."""
    return (None if env.get("COLUMNS") else width_of(stdout) or width_of(stderr)) or shutil.get_terminal_size().columns


def takes_more(stream: TextIO) -> bool:
    """Whether a terminal would show something now: not one that was stopped (Ctrl-S), is full, or belongs to another job than this.

    Writing would block in the first two cases, and draw over somebody else's work in the last. True where none of it can be known.
    """
    if os.name != "posix":
        return True
    try:
        descriptor = stream.fileno()
        _, writable, _ = select.select([], [descriptor], [], 0)
    except (OSError, ValueError):
        return True  # what becomes of it is for the writing to find out
    try:
        in_front = os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        in_front = True  # not the terminal that controls this process: there are no jobs on it
    return bool(writable) and in_front


def visible(text: str) -> str:
    """`text` without anything that a terminal would obey: a model must not be able to move a cursor or hide a command."""
    return _INVISIBLE.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def json_for_terminals(data: bytes) -> bytes:
    """The same JSON with escapes for what a terminal would obey, such as `\\u009b`; U+FFFD in place of bytes that are no UTF-8."""
    text = data.decode("utf-8", "replace")
    return _INVISIBLE.sub(lambda match: json.dumps(match[0])[1:-1], text).encode("utf-8")


def one_line(text: str, *, width: int) -> str:
    """`text` on one line of at most `width` characters. What it costs does not grow with `text`."""
    flat = " ".join(visible(text[: _MAX_SPACES + width]).split())
    return flat if len(flat) <= width else flat[: max(width - 1, 0)] + "…"
