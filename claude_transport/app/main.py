"""`main()`: the program's arguments in, its exit code out; no error leaves it as a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from claude_transport.app.arguments import build_parser
from claude_transport.app.failures import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, report_failure

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program with `argv` (default: the process's own arguments): its exit code.

    0: it worked. 1: the run failed, or nobody reads the output any more. 2: nothing was run, because of how it was asked for, or because
    there is nothing to run. 3: the model's side failed (credential, limits, API), after every retry. 130: interrupted.
    """
    parser = build_parser()
    try:
        args = parser.parse_args(argv)
        if args.command is None:
            parser.print_help(sys.stderr)
            return EXIT_USAGE
        if args.command == "doctor":
            from claude_transport.app import doctor

            return doctor.run(args)
        from claude_transport.app import ask

        return ask.run(args)
    except SystemExit as stop:  # argparse has said what there was to say
        return stop.code if isinstance(stop.code, int) else EXIT_USAGE
    except KeyboardInterrupt:  # before or after the event loop, which has a handler of its own
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        return EXIT_FAILED
    except Exception as error:  # noqa: BLE001 - this is the last seam: a user gets one line, never a traceback unless asked for
        return report_failure(error)


def _forget_stdout() -> None:
    """Let the interpreter's last flush go nowhere, or it would complain about the closed pipe once more."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):  # not a real file: there is nothing that would be flushed
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
