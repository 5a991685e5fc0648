"""What can be said to `claude-transport record` and `replay`. Nothing here loads more than argparse."""

from __future__ import annotations

import argparse


def add_record(parser: argparse.ArgumentParser) -> None:
    """Adds what `record` has beyond `ask`."""
    parser.add_argument(
        "prompts",
        nargs="*",
        metavar="PROMPT",
        help="what to ask, one after the other; `-`, or nothing with a pipe on stdin, reads one from there",
    )
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="TAPE",
        help="the tape to write, readable for you alone; a file that is there already is refused",
    )
    parser.add_argument("--force", action="store_true", help="overwrite a file that is there")
    parser.add_argument("--offline", action="store_true", help="ask a simulated Claude: no claude, no network, no key")
    parser.add_argument("--json", action="store_true", help="every message as one line of JSON, exactly as it came")
    parser.set_defaults(transport="cli")


def add_replay(parser: argparse.ArgumentParser) -> None:
    """Adds all of `replay`."""
    parser.add_argument("tape", metavar="TAPE", help="a tape, as `record` writes it; what follows behind a `--` is for claude, and ignored")
    parser.add_argument(
        "--speed",
        type=float,
        default=0.0,
        metavar="TIMES",
        help="1 plays in the recorded time, 2 in half of it; 0 as fast as the host allows (default: %(default)g)",
    )
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio", help="event loop (default: %(default)s)")
