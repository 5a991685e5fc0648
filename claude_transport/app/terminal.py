"""What a terminal shows and how: its look, text that is safe for it, output that does not block, and a progress display.

The plain standard streams are in `standard_streams`, the answer of a model in `render`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import select
import shutil
import stat
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final, Self, TextIO

import anyio
import msgspec

from claude_transport.app.standard_streams import told_as_output_failure

# Everything that moves the cursor, changes colours, rings or hides: C0 except tab and newline, DEL, C1, surrogates, line separators, and
# the marks that reorder text or have no width. The two joiners stay: scripts and emoji need them.
_INVISIBLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_STYLES: Final = {"dim": "2", "bold": "1", "red": "31", "green": "32", "yellow": "33"}
_SYMBOLS: Final = {"tool": "●*", "good": "✓+", "bad": "✗x", "dot": "·-"}
_MAX_SPACES: Final = 4096
"""How many characters of white space `one_line()` looks through for more words."""
MAX_WIDTH: Final = 100
"""The widest line of prose, in columns. Longer ones are hard to read, however wide the terminal is."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """How output looks: colours on stdout and stderr, Markdown with `rich`, the width in columns, and whether symbols may be Unicode."""

    stdout_color: bool = False
    stderr_color: bool = False
    rich: bool = False
    width: int = 80
    unicode: bool = True

    def paint(self, text: str, style: str, *, stderr: bool = False) -> str:
        """Return `text` in a style (dim, bold, red, green, yellow), or unchanged if that stream has no colours."""
        if not text or not (self.stderr_color if stderr else self.stdout_color):
            return text
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"

    def symbol(self, name: str) -> str:
        """Return the mark `tool`, `good`, `bad` or `dot`, in ASCII if the encoding of the streams needs it."""
        return _SYMBOLS[name][0 if self.unicode else 1]


def choose_look(
    stdout: TextIO, stderr: TextIO, *, env: Mapping[str, str], plain: bool = False, no_color: bool = False, width: int | None = None
) -> Look:
    """Return the look that the streams, the environment (`NO_COLOR`, `TERM`) and the options allow."""
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
    """Return whether a stream leads to a terminal. A closed one does not."""
    try:
        return os.isatty(stream.fileno())
    except (OSError, ValueError, AttributeError):
        return False


def width_of(stream: TextIO) -> int | None:
    """Return the present width of the terminal behind a stream, in columns. None if there is no terminal, or its width is unknown."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError, AttributeError):
        return None


def _common_width(stdout: TextIO, stderr: TextIO, *, env: Mapping[str, str]) -> int:
    """Return `COLUMNS`, or the width of either terminal. `shutil` asks only stdout, which may be a file."""
    return (None if env.get("COLUMNS") else width_of(stdout) or width_of(stderr)) or shutil.get_terminal_size().columns


def visible(text: str) -> str:
    """Return `text` with U+FFFD in place of control characters, so that a model cannot move the cursor or hide a command."""
    return _INVISIBLE.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def json_for_terminals(data: bytes) -> bytes:
    """Return the same JSON with escapes such as `\\u009b` for control characters, and U+FFFD for bytes that are not UTF-8."""
    text = data.decode("utf-8", "replace")
    return _INVISIBLE.sub(lambda match: json.dumps(match[0])[1:-1], text).encode("utf-8")


def one_line(text: str, *, width: int) -> str:
    """Return `text` on one line of at most `width` characters, without control characters. The cost does not grow with `text`."""
    flat = " ".join(visible(text[: _MAX_SPACES + width]).split())
    return flat if len(flat) <= width else flat[: max(width - 1, 0)] + "…"


_CHUNK_BYTES: int = getattr(select, "PIPE_BUF", 512)
"""The bytes that a writable pipe takes at once: PIPE_BUF, 4096 on Linux. POSIX promises 512."""


class TerminalOutput:
    """Writes to a text stream at once, and never blocks the event loop.

    Nothing stays in a buffer, so a reader sees each word when it is written. Before writing to a pipe or socket, it waits for room: a plain
    write would block the whole program, Ctrl-C included, while the reader (a pager, for example) does not read.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._descriptor = _waitable_descriptor(stream)
        self._encoding = getattr(stream, "encoding", None) or "utf-8"

    async def write(self, text: str) -> None:
        """Write text. Characters that the stream's encoding lacks become `?`. Raises as `write_bytes()` does."""
        await self.write_bytes(text.encode(self._encoding, "replace"))

    async def write_bytes(self, data: bytes) -> None:
        """Write bytes as they are. Raises `BrokenPipeError` if the reader has gone, and the error of `output_failure()` otherwise."""
        with told_as_output_failure():
            self._stream.flush()
            if self._descriptor is not None:
                rest = memoryview(data)
                while rest:
                    await anyio.wait_writable(self._descriptor)
                    rest = rest[os.write(self._descriptor, rest[:_CHUNK_BYTES]) :]
                return
            buffer = getattr(self._stream, "buffer", None)
            if buffer is None:  # a stand-in without bytes beneath, such as StringIO
                self._stream.write(data.decode(self._encoding, "replace"))
            else:
                buffer.write(data)
            self._stream.flush()


def _waitable_descriptor(stream: TextIO) -> int | None:
    """Return the descriptor to wait for. None where waiting is impossible (Windows, stand-ins) or not needed (files, terminals)."""
    try:
        descriptor = stream.fileno()
        mode = os.fstat(descriptor).st_mode
    except (OSError, ValueError):
        return None
    return descriptor if os.name == "posix" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)) else None


_PATIENCE: Final = 0.4
"""Seconds before progress is shown. Shorter work needs none."""
_PACE: Final = 0.1
"""Seconds between two pictures."""
_BAR: Final = 20
"""Columns of the bar. Without room for it, a percentage is shown."""
_SHORTEST_LABEL: Final = 8
"""Columns. A shorter label says nothing."""
_CLEAR: Final = "\r\x1b[K"


def open_progress(
    label: str,
    *,
    stream: TextIO,
    look: Look,
    env: Mapping[str, str] = os.environ,
    plain: bool = False,
    unit: str = "MB",
    scale: float = 1e6,
    clock: Callable[[], float] = time.monotonic,
) -> Progress:
    """Return a progress display. It shows nothing if `plain`, or if `stream` is not a terminal that can clear a line.

    Counts are divided by `scale` and named by `unit`. With a scale of 1 they are whole numbers.
    """
    is_shown = not plain and env.get("TERM", "") not in {"", "dumb"} and is_terminal(stream)
    return Progress(label, stream=stream, look=look, is_shown=is_shown, unit=unit, scale=scale, clock=clock)


class Progress:
    """One line of a terminal that shows how far some work is. It disappears at the end of the `with` block, or with `close()`.

    It never raises and never blocks. If the terminal is gone, only the display ends. A terminal that was stopped, or that belongs to
    another job, is left alone. `clock` returns seconds. `label` may be changed at any time.
    """

    def __init__(
        self,
        label: str,
        *,
        stream: TextIO,
        look: Look,
        is_shown: bool,
        unit: str = "",
        scale: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.label = label
        self._stream = stream
        self._look = look
        self._is_shown = is_shown
        self._unit = unit
        self._scale = scale
        self._clock = clock
        self._next = clock() + _PATIENCE
        self._is_there = False

    def update(self, done: float, total: float | None = None) -> None:
        """Show that `done` of `total` is done; `total` may be unknown. Most calls cost next to nothing: it draws ten times a second."""
        if not self._is_shown:
            return
        now = self._clock()
        if now >= self._next:
            self._next = now + _PACE
            if self._write(_CLEAR + self._picture(done, total)):
                self._is_there = True

    def close(self) -> None:
        """Clear the line. `update()` shows it again."""
        if self._is_there and self._write(_CLEAR):
            self._is_there = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.close()

    def _picture(self, done: float, total: float | None) -> str:
        """Return as much of label, bar, percentage and amount as fits, less one column: a line that wraps cannot be cleared."""
        amount = self._amount(done) if not total else f"{self._amount(done)} of {self._amount(total)}"
        amount = f"{amount} {self._unit}".rstrip()
        room = min(self._look.width, width_of(self._stream) or self._look.width) - 1
        bar, percent = "", ""
        if total:
            share = min(max(done / total, 0.0), 1.0)
            percent = f"{share * 100:3.0f} %  "
            if room >= _BAR + 1 + len(percent) + len(amount) + _SHORTEST_LABEL + 1:
                full = round(share * _BAR)
                marks = "█░" if self._look.unicode else "#."
                bar = marks[0] * full + marks[1] * (_BAR - full) + " "
            elif room < len(percent) + len(amount):
                percent = ""
        left = room - len(bar) - len(percent) - len(amount) - 1
        label = "" if left < _SHORTEST_LABEL else one_line(self.label, width=left) + " "
        if not self._look.unicode:
            label = label.replace("…", "~").encode("ascii", "replace").decode()  # stderr would replace it with more columns
        return f"{label}{self._look.paint(bar, 'green', stderr=True)}{percent}{self._look.paint(amount[:room], 'dim', stderr=True)}"

    def _amount(self, number: float) -> str:
        scaled = number / self._scale
        return f"{scaled:,.1f}" if self._scale != 1 else f"{scaled:,.0f}"

    def _write(self, text: str) -> bool:
        """Write, and return whether the terminal took it."""
        try:
            if not takes_more(self._stream):
                return False
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            self._is_shown = False
        return True


def takes_more(stream: TextIO) -> bool:
    """Return whether a terminal would show output now. Where that cannot be known, the answer is True.

    A terminal that was stopped with Ctrl-S, or is full, would block the writer. On a terminal that belongs to another job, output would
    draw over that job's.
    """
    if os.name != "posix":
        return True
    try:
        descriptor = stream.fileno()
        _, writable, _ = select.select([], [descriptor], [], 0)
    except (OSError, ValueError):
        return True  # the write will fail with the reason
    try:
        in_front = os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        in_front = True  # not the controlling terminal of this process, so it has no jobs
    return bool(writable) and in_front
