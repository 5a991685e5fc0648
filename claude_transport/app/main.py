"""`main()`: the program's arguments in, its exit code out; no error leaves it as a traceback."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from claude_transport.app.arguments import build_parser
from claude_transport.app.failures import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, report_failure
from claude_transport.app.standard_streams import last_flush, open_missing_streams
from claude_transport.app.writing import output_failure


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program with `argv` (default: the process's own arguments): its exit code.

    0: it worked. 1: the run failed, or its output could not be written. 2: nothing was run, because of how it was asked for, or because
    there is nothing to run. 3: the model's side failed (credential, limits, API), after every retry. 130: interrupted.
    """
    open_missing_streams()
    code = _run(argv)
    lost = last_flush(sys.stdout)
    if lost is not None and code == EXIT_OK:
        code = EXIT_FAILED if isinstance(lost, BrokenPipeError) else report_failure(output_failure(lost))
    last_flush(sys.stderr)
    return code


def _run(argv: Sequence[str] | None) -> int:
    parser = build_parser()
    try:
        args = parser.parse_args(_without_arguments_of_claude(sys.argv[1:] if argv is None else argv))
        if args.command is None:
            parser.print_help(sys.stderr)
            return EXIT_USAGE
        return _find_command(args.command)(args)
    except SystemExit as stop:  # argparse has said what there was to say
        return stop.code if isinstance(stop.code, int) else EXIT_USAGE
    except KeyboardInterrupt:  # before or after the event loop, which has a handler of its own
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return EXIT_FAILED  # whoever read the output has seen enough; there is nobody to tell
    except Exception as error:  # noqa: BLE001 - this is the last seam: a user gets one line, never a traceback unless asked for
        return report_failure(error)


def _find_command(name: str) -> Callable[[argparse.Namespace], int]:
    """What runs this command. Each is imported when it is called, so that none waits for what only another one needs."""
    match name:
        case "doctor":
            from claude_transport.app.doctor import run
        case "serve":
            from claude_transport.app.serve import run
        case "inspect":
            from claude_transport.app.inspect_tape import run
        case "record":
            from claude_transport.app.record import run
        case "replay":
            from claude_transport.app.replay import run
        case "bench":
            from claude_transport.app.bench import run
        case "completion":
            from claude_transport.app.shell_completion import run
        case "mcp-bridge":
            from claude_transport.app.mcp_bridge import run
        case _:
            from claude_transport.app.ask import run
    return run


def _without_arguments_of_claude(argv: Sequence[str]) -> Sequence[str]:
    """What is meant for this program: behind the `--` of `replay` is what a host passes to its claude."""
    return argv[: argv.index("--")] if argv[:1] == ["replay"] and "--" in argv else argv
