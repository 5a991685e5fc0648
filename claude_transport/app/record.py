"""`claude-transport record`: `ask`, with the conversation on a tape."""

from __future__ import annotations

import argparse
from pathlib import Path

from claude_transport.app.arguments import PROGRAM
from claude_transport.app.ask import read_prompt, run_through
from claude_transport.app.failures import EXIT_FAILED, EXIT_OK
from claude_transport.app.writing import write_remark
from claude_transport.errors import ConfigurationError
from claude_transport.printable import printable
from claude_transport.transport import Transport
from claude_transport.wrappers.recording import RecordingTransport


def run(args: argparse.Namespace) -> int:
    """Ask each prompt, keep everything but secrets, return the exit code. Raises as `ask` does, and for a tape that cannot be written."""
    if args.prompts.count("-") > 1:
        raise ConfigurationError("stdin can be read only once: give `-` once", option="prompt")
    prompts = [read_prompt(prompt) for prompt in args.prompts or [None]]
    path = Path(args.output)
    if path.exists() and not args.force:
        raise ConfigurationError(f"{args.output} is there already; --force overwrites it", option="output")
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise ConfigurationError(f"{args.output} is no place for a file", option="output")
    recordings: list[RecordingTransport] = []

    def around(transport: Transport) -> Transport:
        recordings.append(RecordingTransport(transport, path))
        return recordings[0]

    try:
        code = run_through(args, prompts, around)
    finally:
        failure = next((recording.failure for recording in recordings), None)
        if failure is not None:
            write_remark(f"{PROGRAM}: the tape {printable(args.output)} is not whole: {printable(failure)} [tape.incomplete]")
    return EXIT_FAILED if code == EXIT_OK and failure is not None else code
