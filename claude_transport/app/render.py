"""`Face`: how an answer is shown as plain text. Only the answer goes to stdout; everything else is a line on stderr."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TextIO

import anyio

from claude_transport.app.answer import Paragraph, Piece, Remark, ToolCall, Words
from claude_transport.app.output import Output
from claude_transport.app.progress import Progress
from claude_transport.app.terminal import Look, is_terminal, json_for_terminals, one_line, visible

CALM: Final = 2
"""Ticks without a word before there is said how long it takes; else something would flicker between the words."""


class Face:
    """Shows the pieces of an answer as they come.

    With `quiet`, stderr has what went wrong, and questions, and nothing else. On a terminal it keeps stdout and stderr from running
    into each other. `lock` is held while something is shown or asked, so that a question stays the last thing on the screen until it
    is answered. `progress` is where it shows how long things take, if it may.
    """

    def __init__(self, stdout: TextIO, stderr: TextIO, *, look: Look, quiet: bool = False, progress: Progress | None = None) -> None:
        self._quiet = quiet
        self._progress = progress
        self._activity = ""
        self._calm = 0  # ticks since something was shown
        self.lock: anyio.Lock = anyio.Lock()
        self.look = look
        self._output = Output(stdout)
        self._stderr = stderr
        self._on_terminal = is_terminal(stdout)
        self._shares_terminal = self._on_terminal and is_terminal(stderr)
        self._in_line = False  # something is written on the current line of stdout
        self._written = False
        self._new_paragraph = False
        self._after_words = False  # the last thing on the terminal was the answer
        self._shown: dict[str, anyio.Event] = {}

    # ---------------------------------------------------------------------------------------------------------- the answer

    async def show(self, piece: Piece) -> None:
        """Show one piece."""
        async with self.lock:
            match piece:
                case Words():
                    self._activity = "claude is writing"
                    await self._words(visible(piece.text) if self._on_terminal else piece.text)
                case Paragraph():
                    self._new_paragraph = True
                case ToolCall():
                    self._new_paragraph = True
                    indent = "  " if piece.nested else ""
                    self._activity = f"claude uses {piece.name}"
                    self.mention(f"{indent}{self.look.symbol('tool')} {piece.name}: {piece.gist}", cut=True)
                    self.shown(piece.tool_use_id).set()
                case Remark(problem=True):
                    self.say(f"  {self.look.symbol('bad')} {piece.text}", style="yellow", cut=True)
                case Remark():
                    self.mention(f"  {self.look.symbol('dot')} {piece.text}", cut=True)

    def shown(self, tool_use_id: str) -> anyio.Event:
        """Set when the line about this tool call is there to be seen."""
        return self._shown.setdefault(tool_use_id, anyio.Event())

    async def raw(self, line: bytes) -> None:
        """A line of NDJSON for stdout, as it is; for a terminal the same JSON, with escapes for what a terminal would obey."""
        async with self.lock:
            self._activity = "claude is at work"
            self._rest()
            await self._output.write_bytes((json_for_terminals(line) if self._on_terminal else line) + b"\n")

    async def finish(self) -> None:
        """The answer is over: end its last line."""
        self._rest()
        if self._in_line:
            self._in_line = False
            await self._output.write("\n")

    async def _words(self, text: str) -> None:
        if self._new_paragraph:
            self._new_paragraph = False
            text = text.lstrip("\n")
            if self._written:
                text = ("\n\n" if self._in_line else "\n") + text
        if text:
            self._rest()
            await self._output.write(text)
            self._written = self._after_words = True
            self._in_line = not text.endswith("\n")

    # ------------------------------------------------------------------------------------------------------- beside the answer

    def say(self, text: str, *, style: str = "", cut: bool = False, end: str = "\n") -> None:
        """One line on stderr, at once; `cut` keeps it to the width of the terminal. A line break in `text` is shown as what it is not."""
        self._rest()
        text = one_line_kept(text, width=self.look.width) if cut else visible(text).replace("\n", "\N{REPLACEMENT CHARACTER}")
        try:
            if self._shares_terminal and self._after_words:
                self._make_room()
            self._stderr.write((self.look.paint(text, style, stderr=True) if style else text) + end)
            self._stderr.flush()
        except OSError:
            pass  # nobody reads stderr; the answer is still worth giving

    def mention(self, text: str, *, cut: bool = False) -> None:
        """A line on stderr that is good to know: not for who wants quiet."""
        if not self._quiet:
            self.say(text, style="dim", cut=cut)

    def _make_room(self) -> None:
        """An empty line between the answer and what comes to stand under it."""
        self._stderr.write("\n\n" if self._in_line else "\n")
        self._in_line = self._after_words = False
        self._new_paragraph = True

    # --------------------------------------------------------------------------------------------------------------- how long

    def waiting(self, what: str) -> None:
        """Something takes a while: for faces that can show it without leaving a trace."""
        self._activity = what

    @property
    def on_tick(self) -> Callable[[float], None] | None:
        """To be told now and then how many seconds it has taken so far; None for a face that shows nothing of it."""
        return None if self._progress is None else self._tick

    def _tick(self, seconds: float) -> None:
        self._calm += 1
        in_the_way = self.lock.locked() or (self._shares_terminal and self._in_line)
        if self._progress is not None and self._calm >= CALM and not in_the_way:
            self._progress.label = self._activity
            self._progress.update(seconds)

    def _rest(self) -> None:
        """Something else is to be shown: what says how long it takes goes away, and may come back behind it."""
        self._calm = 0
        if self._progress is not None:
            self._progress.close()


def one_line_kept(text: str, *, width: int) -> str:
    """`one_line`, with the indentation kept."""
    indent = text[: len(text) - len(text.lstrip(" "))]
    return indent + one_line(text, width=width - len(indent))
