"""`RichFace`: Markdown on a terminal. Finished blocks are printed for good; only the one being written moves."""

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
_THEME: Final = Theme({"markdown.code": "bold cyan"})  # without the black background that shows on every other one


class RichFace(Face):
    """Shows Markdown as it is written, on a terminal that stdout leads to."""

    def __init__(self, stdout: TextIO, stderr: TextIO, *, look: Look, quiet: bool = False) -> None:
        super().__init__(stdout, stderr, look=look, quiet=quiet)
        self._console = Console(file=stdout, width=look.width, highlight=False, theme=_THEME)
        self._text = ""  # the end of the answer that may still change its looks
        self._live: Live | None = None
        self._spinner: Spinner | None = None  # when it is what moves
        self._gap = False

    def waiting(self, what: str) -> None:
        """A spinner, gone as soon as anything is said."""
        super().waiting(what)
        if self._live is None and not self._quiet:
            self._spin(what)

    @property
    def on_tick(self) -> Callable[[float], None] | None:
        """The same; shown by the spinner, which comes back when nothing is said for a while."""
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
        """Print the rest for good."""
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
        """The same; what moves is stopped first, where it would be in the way."""
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
        self._console.print(_Block(block))
        self._gap = self._after_words = True

    def _start(self, renderable: Spinner | _Tail) -> None:
        # redirecting would put a proxy in front of stdout and stderr, which have an owner already
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


class _Block:
    """A block of Markdown, without the spaces that rich puts at the ends of lines: nobody wants to copy those."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self._lines(console, options):
            yield from line
            yield Segment.line()

    def _lines(self, console: Console, options: ConsoleOptions) -> list[list[Segment]]:
        return [_trimmed(line) for line in console.render_lines(_markdown(self._text), options, pad=False)]


class _Tail(_Block):
    """The last lines of a block that is being written, as many as fit on the screen."""

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
    """A bold line: a box around a title is too much for an answer."""

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
    """`text` as blocks of Markdown that can be shown on their own; only the last one may still grow.

    Blocks end at empty lines outside of fences, but what belongs to a list stays with it.
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
    """Whether a line after an empty one begins something new. Of a line that is still being written only what cannot change counts."""
    if line.startswith((" ", "\t")):
        return False
    undecided = not line.endswith("\n") and len(line) <= _LONGEST_MARKER
    return not (in_list and (undecided or _ITEM.match(line)))
