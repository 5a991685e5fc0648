"""`RichFace` shows an answer as Markdown on a terminal. Finished blocks stay; only the block that is being written is drawn again.

It needs rich, and is imported only when rich is installed and stdout is a terminal with colours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import ClassVar, Final, TextIO

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.markdown import Heading, Markdown, MarkdownElement
from rich.segment import Segment
from rich.spinner import Spinner
from rich.text import Text
from rich.theme import Theme

from claude_transport.app.render import CALM, Face
from claude_transport.app.terminal import Look, one_line

_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")
_ITEM: Final = re.compile(r" {0,3}([-*+]|\d{1,9}[.)]) ")
_LONGEST_MARKER: Final = len("   999999999. ")
_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")
_FRAMES_PER_SECOND: Final = 12
_THEME: Final = Theme({"markdown.code": "bold cyan"})  # without the black background, which shows on other backgrounds


class RichFace(Face):
    """Shows Markdown while it is written. stdout must be a terminal."""

    def __init__(self, stdout: TextIO, stderr: TextIO, *, look: Look, quiet: bool = False) -> None:
        super().__init__(stdout, stderr, look=look, quiet=quiet)
        self._console = Console(file=stdout, width=look.width, highlight=False, theme=_THEME)
        self._text = ""  # the end of the answer, whose look may still change
        self._live: Live | None = None
        self._spinner: Spinner | None = None  # while `_live` shows a spinner
        self._gap = False

    def waiting(self, what: str) -> None:
        """Show a spinner until there is other output."""
        super().waiting(what)
        if self._live is None and not self._quiet:
            self._spin(what)

    @property
    def on_tick(self) -> Callable[[float], None] | None:
        """The callback that shows the seconds beside the spinner. None if quiet."""
        return None if self._quiet else self._tick

    def _tick(self, seconds: float) -> None:
        self._calm += 1
        if self._calm >= CALM and not self.lock.locked() and not self._text.strip():
            self._spin(f"{one_line(self._activity, width=max(self.look.width - 12, 8))} {seconds:,.0f} s")

    def _spin(self, what: str) -> None:
        text = Text(what, "dim", no_wrap=True, overflow="crop")
        if self._spinner is not None:
            self._spinner.update(text=text)
            return
        self._spinner = Spinner("dots", text, style="dim")
        self._start(self._spinner)

    async def finish(self) -> None:
        """Print the rest of the answer."""
        self._settle()

    async def _words(self, text: str) -> None:
        if self._new_paragraph:
            self._new_paragraph = False
            self._settle()
            text = text.lstrip("\n")
        self._text += text
        *blocks, self._text = split_blocks(self._text)
        if blocks:
            self._stop()
            for block in blocks:
                self._print(block)
        self._calm = 0
        if self._text.strip():
            tail = _Tail(self._text, after_gap=self._gap)
            self._spinner = None
            if self._live is None:
                self._start(tail)
            else:
                self._live.update(tail)

    def say(self, text: str, *, style: str = "", cut: bool = False, end: str = "\n") -> None:
        """Write a line to stderr as `Face` does. On a shared terminal, the animation is stopped first."""
        if self._shares_terminal:
            self._settle()
        super().say(text, style=style, cut=cut, end=end)

    def _make_room(self) -> None:
        self._console.print()
        self._after_words = False

    def _settle(self) -> None:
        self._stop()
        text, self._text = self._text, ""
        if text.strip():
            self._print(text)

    def _print(self, block: str) -> None:
        if self._gap:
            self._console.print()
        self._console.print(_MarkdownBlock(block))
        self._gap = self._after_words = True

    def _start(self, renderable: Spinner | _Tail) -> None:
        # no redirection: it would replace sys.stdout and sys.stderr, to which `Face` writes
        self._live = Live(
            renderable,
            console=self._console,
            transient=True,
            refresh_per_second=_FRAMES_PER_SECOND,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start(refresh=True)

    def _stop(self) -> None:
        self._calm = 0
        self._spinner = None
        live, self._live = self._live, None
        if live is not None:
            live.stop()


class _MarkdownBlock:
    """A block of Markdown, without the spaces that rich adds at the ends of lines: they would be copied with the text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self._lines(console, options):
            yield from line
            yield Segment.line()

    def _lines(self, console: Console, options: ConsoleOptions) -> list[list[Segment]]:
        return [_trimmed(line) for line in console.render_lines(_markdown(self._text), options, pad=False)]


class _Tail(_MarkdownBlock):
    """The last lines of a block that is being written: as many as fit on the screen."""

    def __init__(self, text: str, *, after_gap: bool) -> None:
        super().__init__(text)
        self._after_gap = after_gap

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines: list[list[Segment]] = [*([[]] if self._after_gap else []), *self._lines(console, options)]
        for index, line in enumerate(lines[-max(console.height - 2, 1) :]):
            if index:
                yield Segment.line()
            yield from line


def _trimmed(line: list[Segment]) -> list[Segment]:
    while line and not line[-1].text.strip():
        line = line[:-1]
    return [*line[:-1], Segment(line[-1].text.rstrip(" "), line[-1].style)] if line else line


class _Heading(Heading):
    """A heading as a bold line, without rich's box around it."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self.text.copy()
        text.justify = "left"
        text.stylize("bold underline" if self.tag == "h1" else "bold")
        yield text


class _AnswerMarkdown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "heading_open": _Heading}


def _markdown(text: str) -> Markdown:
    return _AnswerMarkdown(text.strip("\n"), code_theme="ansi_dark", hyperlinks=False)


def split_blocks(text: str) -> list[str]:
    """Split `text` into blocks of Markdown that can be shown on their own. Only the last one may still grow.

    A block ends at an empty line outside of fences. A list stays in one block.
    """
    return list(_blocks(text))


def _blocks(text: str) -> Iterator[str]:
    block: list[str] = []
    fence = ""
    after_gap = False
    for line in _LINE.findall(text):
        if after_gap and not fence and line.strip() and _begins_block(line, in_list=bool(_ITEM.match(block[0]))):
            yield "".join(block)
            block = []
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence) and not line.strip().strip(fence[0]):
            fence = ""
        after_gap = not line.strip() and bool(block)
        if line.strip() or block:
            block.append(line)
    yield "".join(block)


def _begins_block(line: str, *, in_list: bool) -> bool:
    """Return whether a line after an empty one begins a new block. If the line is not complete, only what cannot change counts."""
    if line.startswith((" ", "\t")):
        return False
    undecided = not line.endswith("\n") and len(line) <= _LONGEST_MARKER
    return not (in_list and (undecided or _ITEM.match(line)))
