"""`claude-transport inspect`: what is on a tape: figures on the terminal, as JSON, or a page with the whole timeline."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from claude_transport.app.arguments import PROGRAM
from claude_transport.app.failures import EXIT_OK
from claude_transport.app.progress import Progress, open_progress
from claude_transport.app.render_inspection import inspection_lines
from claude_transport.app.terminal import Look, choose_look, json_for_terminals, visible
from claude_transport.app.writing import told_as_output_failure, write_out, write_remark
from claude_transport.errors import ConfigurationError
from claude_transport.inspection.page import render_page
from claude_transport.inspection.scene import bytes_text, plural
from claude_transport.inspection.summary import TapeSummary
from claude_transport.inspection.timeline import Timeline, read_timeline, summarize


def run(args: argparse.Namespace) -> int:
    """Show the tape: 0, whatever went wrong on it. Raises `ConfigurationError` for what is no tape, or a page that cannot be written."""
    look = choose_look(sys.stdout, sys.stderr, env=os.environ, plain=args.plain, no_color=args.no_color)
    name = Path(args.tape).name
    _refuse_to_overwrite(args.tape, args.html)
    if args.html is None:
        with _progress(f"Reading {name}", look, args) as progress:
            summary = summarize(args.tape, on_progress=progress.update)
    else:
        with _progress(f"Reading {name}", look, args) as progress:
            timeline = read_timeline(args.tape, on_progress=progress.update)
        summary = timeline.summary
        _write_page(timeline, name, args.html)
    if args.html != "-":
        _show(summary, name, look, args)
    return EXIT_OK


def _progress(label: str, look: Look, args: argparse.Namespace) -> Progress:
    return open_progress(label, stream=sys.stderr, look=look, plain=args.plain)


def _show(summary: TapeSummary, name: str, look: Look, args: argparse.Namespace) -> None:
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
    """Into a file that only its owner can read, as the tape is, in one step; or to stdout."""
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
