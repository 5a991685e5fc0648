"""The moving picture of the program: a real run on a terminal, as an SVG that shows it word by word: `python docs/generate_terminal.py`.

The words are those of the run. The times are made up here, so that the picture is the same in each run.
"""

from __future__ import annotations

import contextlib
import fcntl
import html
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PICTURE = Path(__file__).parent / "_static" / "terminal.svg"
COLUMNS = 72
CELL, LINE, MARGIN = 8.4, 22.0, 20.0  # the width of a character of 14 px, the height of a line, and what is around the text
PROMPT = "Hello, Claude"
COMMAND = f'claude-transport ask --offline "{PROMPT}"'
TOKEN = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|([^\x1b])", re.DOTALL)
TOOK = re.compile(r"\b\d+\.\d s\b")
STYLE = """\
text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#e6e6e6;white-space:pre}
.d{fill:#9a9a9a}.p{fill:#7ec699}
g text{animation:a .01s var(--t) both}
@keyframes a{from{opacity:0}}
@media (prefers-reduced-motion:reduce){g text{animation:none}}"""


class Word(NamedTuple):
    """A word on the screen."""

    row: int
    column: int
    text: str
    dim: bool


def run() -> bytes:
    """Run the command on a terminal, with a home of its own, and return everything that it wrote."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    with tempfile.TemporaryDirectory() as home:
        environment = {"PATH": os.defpath, "HOME": home, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        command = [sys.executable, "-m", "claude_transport", "ask", "--offline", PROMPT]
        with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True) as process:
            os.close(slave)
            wrote = bytearray()
            with contextlib.suppress(OSError):  # EIO: the program has ended
                while chunk := os.read(master, 65536):
                    wrote += chunk
        os.close(master)
        if process.returncode:
            raise SystemExit(f"{COMMAND} ended with {process.returncode}: {wrote.decode()}")
    return bytes(wrote)


def screen(wrote: bytes) -> list[list[tuple[str, bool]]]:
    """Return the lines that are left on the screen: each character, and whether it is dim. Other sequences are ignored."""
    lines: list[list[tuple[str, bool]]] = [[]]
    row = column = 0
    dim = False
    for numbers, action, character in TOKEN.findall(wrote.decode()):
        if action == "m":
            dim = numbers == "2"
        elif action == "A":
            row -= int(numbers or 1)
        elif action == "K":
            lines[row] = []
        elif character == "\r":
            column = 0
        elif character == "\n":
            row += 1
            lines += [[]] * (row == len(lines))
            lines[row] = list(lines[row])
        elif character:
            lines[row][column:] = [*([(" ", False)] * (column - len(lines[row]))), (character, dim)]
            column += 1
    return lines


def words(lines: list[list[tuple[str, bool]]]) -> Iterator[Word]:
    """Yield the words of the screen."""
    for row, line in enumerate(lines):
        if took := TOOK.search("".join(character for character, _ in line)):
            line[slice(*took.span())] = [(character, True) for character in "1.2 s"]
        for found in re.finditer(r"\S+", "".join(character for character, _ in line)):
            yield Word(row, found.start(), found[0], line[found.start()][1])


def render(shown: list[Word]) -> str:
    """Return the picture: the command as it is typed, and then what the program says."""
    rows = 2 + max(word.row for word in shown)
    width, height = COLUMNS * CELL + 2 * MARGIN, rows * LINE + 2 * MARGIN
    said = html.escape(" ".join(word.text for word in shown))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">',
        f"<title>A terminal: {html.escape(COMMAND, quote=False)} prints: {said}</title>",
        f"<style>{STYLE}</style>",
        f'<rect width="{width:g}" height="{height:g}" rx="8" fill="#1e1e1e"/>',
        f'<text class="p" x="{MARGIN:g}" y="{place(0):g}">$</text><g>',
    ]
    time = 0.6
    for at, character in enumerate(COMMAND):
        time += 0.04
        if character != " ":
            parts.append(text(Word(-1, at + 2, character, dim=False), time))
    time += 0.5
    for word in shown:
        time += 0.02 if word.dim else 0.12
        parts.append(text(word, time))
    return "\n".join([*parts, "</g></svg>", ""])


def place(row: int) -> float:
    """Return the height of the base line of a row."""
    return MARGIN + (row + 0.75) * LINE


def text(word: Word, time: float) -> str:
    """Return a word that appears after `time` seconds."""
    dim = ' class="d"' if word.dim else ""
    where = f'x="{MARGIN + word.column * CELL:g}" y="{place(word.row + 1):g}"'
    return f'<text{dim} {where} style="--t:{time:.2f}s">{html.escape(word.text, quote=False)}</text>'


def picture() -> str:
    """Run the program, and return the picture of the run."""
    return render(list(words(screen(run()))))


def main() -> None:
    PICTURE.write_text(picture(), "utf-8")


if __name__ == "__main__":
    main()
