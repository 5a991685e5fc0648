"""What can be said to `claude-transport inspect`. Nothing here loads more than argparse."""

from __future__ import annotations

import argparse


def add_inspect(parser: argparse.ArgumentParser) -> None:
    """Adds them."""
    parser.add_argument("tape", metavar="TAPE", help="a tape, as `record` and RecordingTransport write it")
    parser.add_argument(
        "--html",
        metavar="FILE",
        help="write a page with the whole timeline, which needs no other file; `-` is stdout, in place of the figures",
    )
    parser.add_argument("--json", action="store_true", help="the figures as one JSON object")
    parser.add_argument("--plain", action="store_true", help="no colours, nothing that moves")
    parser.add_argument("--no-color", action="store_true", help="no colours (also when NO_COLOR is set)")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="every turn, tool, request and problem, not only the first dozen of each"
    )
