"""`claude-transport inspect`: what is on a tape, as figures on the terminal, as JSON, or as a page with the whole timeline.

The package `inspection` reads the tape and makes the page; here are the command, the text for terminals, and where the page is written.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import msgspec

from claude_transport.agents.scene import CallStats, Problem, TurnSummary
from claude_transport.app.failures import EXIT_OK, PROGRAM
from claude_transport.app.standard_streams import told_as_output_failure, write_out, write_remark
from claude_transport.app.terminal import Look, choose_look, json_for_terminals, one_line, open_progress, visible
from claude_transport.errors import ConfigurationError
from claude_transport.inspection.page import render_page
from claude_transport.inspection.summary import TapeSummary
from claude_transport.inspection.timeline import Timeline, read_timeline, summarize
from claude_transport.inspection.wording import bytes_text, count_text, dollars_text, plural, seconds_text
from claude_transport.platform.winapi import make_private

_LABEL: Final = 12
"""Columns of the first column."""
_MAX_ENTRY: Final = 500
"""Characters of an entry. Names of models and sessions are what a peer says."""
_FEW: Final = 12
"""Rows of each list, unless everything is wanted."""


def run(args: SimpleNamespace) -> int:
    """Show the tape, and return 0, whatever went wrong in the conversation.

    Raises `ConfigurationError` if the file is not a tape, or the page cannot be written.
    """
    if args.html == "-" and args.json:
        raise ConfigurationError("--html - and --json both write to stdout. Give one of them, or a FILE to --html.", option="html")
    look = choose_look(sys.stdout, sys.stderr, env=os.environ, plain=args.plain, no_color=args.no_color)
    name = Path(args.tape).name
    html: str | None = args.html
    _refuse_to_overwrite(args.tape, html)
    timeline: Timeline | None = None
    with open_progress(f"Reading {name}", stream=sys.stderr, look=look, plain=args.plain) as progress:
        if html is None:
            summary = summarize(args.tape, on_progress=progress.update)
        else:
            timeline = read_timeline(args.tape, on_progress=progress.update)
            summary = timeline.summary
    if timeline is not None and html is not None:
        _write_page(timeline, name, html)
    if args.html != "-":
        _show(summary, name, look, args)
    return EXIT_OK


def _show(summary: TapeSummary, name: str, look: Look, args: SimpleNamespace) -> None:
    if args.json:
        write_out(json_for_terminals(msgspec.json.format(msgspec.json.encode(summary))).decode())
        return
    for line in inspection_lines(summary, name=name, look=look, everything=args.verbose):
        write_out(line)


def _refuse_to_overwrite(tape: str, page: str | None) -> None:
    if page is None or page == "-":
        return
    with contextlib.suppress(OSError):
        if os.path.samefile(tape, page):  # noqa: PTH121 - both may be links
            raise ConfigurationError(f"the page would overwrite the tape {tape}", option="html")


def _write_page(timeline: Timeline, name: str, target: str) -> None:
    """Write the page to stdout, or in one step to a file that only its owner can read, like the tape."""
    pieces = render_page(timeline, title=name)
    if target == "-":
        with told_as_output_failure():
            for piece in _encoded(pieces):
                sys.stdout.buffer.write(piece)
            sys.stdout.flush()
        return
    path = Path(target)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.touch(mode=0o600)
        make_private(beside)
        with beside.open("wb") as file:
            file.writelines(_encoded(pieces))
            size = file.tell()
        beside.replace(path)
    except OSError as error:
        raise ConfigurationError(f"cannot write the page {target}: {error.strerror or error}", option="html") from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
    write_remark(f"{PROGRAM}: {visible(target)} has {plural(len(timeline.events), 'event')}, {bytes_text(size)}")


def _encoded(pieces: Iterator[str]) -> Iterator[bytes]:
    return (piece.encode("utf-8", "replace") for piece in pieces)


def inspection_lines(summary: TapeSummary, *, name: str, look: Look, everything: bool = False) -> Iterator[str]:
    """Yield the figures of a tape as lines of text. Each list is cut to its first dozen rows, unless `everything` is true."""
    yield from _head(summary, name, look)
    few = None if everything else _FEW
    for title, columns, rows in (
        ("turns", ("", "", "took", "prompt", "outcome", "in", "out", "cost"), [_turn(turn, look) for turn in summary.turns]),
        ("tools", ("", "calls", "failed", "denied", "open", "mean", "longest"), [_call(stats) for stats in summary.tools]),
        ("requests", ("", "of", "calls", "failed", "open", "mean", "longest"), [_request(stats) for stats in summary.requests]),
    ):
        if rows:
            yield ""
            yield look.paint(title, "bold")
            yield from _table(columns, rows[:few], look)
            yield from _rest(len(rows), few, look)
    if summary.problems:
        yield ""
        yield look.paint("problems", "bold")
        yield from (_problem(problem, look) for problem in summary.problems[:few])
        yield from _rest(summary.problem_count, few if few is not None else len(summary.problems), look)


def _head(summary: TapeSummary, name: str, look: Look) -> Iterator[str]:
    dot = look.symbol("dot")
    failed = sum(turn.outcome != "ok" for turn in summary.turns)
    how = "no turns" if not summary.turns else plural(len(summary.turns), "turn") + (f", {failed} failed" if failed else ", all ok")
    verdict = look.paint(how, "red" if failed else "green" if summary.turns else "yellow")
    yield f"{look.paint(one_line(name, width=_MAX_ENTRY), 'bold')} {dot} {verdict} {dot} {seconds_text(summary.seconds)}"
    made = [
        plural(summary.records, "record"),
        f"{bytes_text(summary.bytes_in)} to {summary.agent}, {bytes_text(summary.bytes_out)} from it",
        "" if summary.created_at is None else f"{summary.created_at:%Y-%m-%d %H:%M:%S} UTC",
        "secrets taken out" if summary.scrubbed else "",
        "torn: its last line is not whole" if summary.is_torn else "",
    ]
    tokens = summary.tokens
    cached = f" ({count_text(tokens.cache_read_input_tokens)} from the cache)" if tokens.cache_read_input_tokens else ""
    read = tokens.input_tokens + tokens.cache_creation_input_tokens + tokens.cache_read_input_tokens
    ended = f"by signal {summary.signal}" if summary.signal is not None else f"with code {summary.exit_code}"
    entries = {
        "tape": f" {dot} ".join(part for part in made if part),
        summary.agent: summary.cli_version or "",
        "model": ", ".join(summary.models),
        "session": ", ".join(summary.session_ids[:3]) + (", …" if len(summary.session_ids) > 3 else ""),
        "tokens": f"{count_text(read)} in{cached}, {count_text(tokens.output_tokens)} out, {plural(summary.api_messages, 'API message')}",
        "cost": dollars_text(summary.cost_usd),
        "retries": count_text(summary.retries) if summary.retries else "",
        "unreadable": plural(summary.unreadable_lines, "line") if summary.unreadable_lines else "",
        "exit": ended if summary.signal is not None or summary.exit_code is not None else "",
    }
    for label, text in entries.items():
        if text:
            yield look.paint(f"{label:<{_LABEL}}", "dim") + one_line(text, width=_MAX_ENTRY)


def _turn(turn: TurnSummary, look: Look) -> tuple[str, ...]:
    tokens = turn.tokens
    read = tokens.input_tokens + tokens.cache_creation_input_tokens + tokens.cache_read_input_tokens
    prompt = turn.prompt or ("(a task woke the session)" if not turn.prompts else "(empty)")
    return (
        str(turn.number),
        look.symbol("good" if turn.outcome == "ok" else "bad"),
        seconds_text(turn.seconds),
        one_line(prompt, width=max(18, look.width - 58)),
        one_line(turn.outcome, width=40),
        count_text(read),
        count_text(tokens.output_tokens),
        dollars_text(turn.cost_usd),
    )


def _call(stats: CallStats) -> tuple[str, ...]:
    counts = (stats.calls, stats.errors, stats.denied, stats.open)
    return (one_line(stats.name, width=32), *(count_text(number) if number else "-" for number in counts), *_times(stats))


def _request(stats: CallStats) -> tuple[str, ...]:
    counts = (stats.calls, stats.errors, stats.open)
    return (one_line(stats.name, width=32), stats.asked_by, *(count_text(number) if number else "-" for number in counts), *_times(stats))


def _times(stats: CallStats) -> tuple[str, str]:
    ended = stats.calls - stats.open
    return (seconds_text(stats.seconds / ended), seconds_text(stats.longest)) if ended else ("-", "-")


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], look: Look) -> Iterator[str]:
    """Yield a table. Columns are as wide as their widest cell; words are on the left, figures on the right."""
    widths = [max(len(cell) for cell in column) for column in zip(columns, *rows, strict=True)]
    words = {"", "prompt", "outcome", "of"}

    def line(cells: Sequence[str]) -> str:
        placed = (
            f"{cell:<{width}}" if title in words else f"{cell:>{width}}" for cell, width, title in zip(cells, widths, columns, strict=True)
        )
        return "  " + "  ".join(placed).rstrip()

    yield look.paint(line(columns), "dim")
    for row in rows:
        shown = line(row)
        yield look.paint(shown, "red") if look.symbol("bad") in row else shown


def _problem(problem: Problem, look: Look) -> str:
    style = "red" if problem.level == "error" else "yellow"
    return f"  {problem.t:9.3f} s  " + look.paint(one_line(problem.text, width=max(30, look.width - 15)), style)


def _rest(count: int, few: int | None, look: Look) -> Iterator[str]:
    if few is not None and count > few:
        yield look.paint(f"  and {count_text(count - few)} more", "dim")
