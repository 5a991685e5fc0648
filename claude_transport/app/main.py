"""`main()`: runs one command of the program and returns its exit code. No error leaves it as a traceback.

Arguments are parsed in `arguments`, errors are reported in `failures`. Each command is imported when it is called, so that none waits
for the imports of another one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Final

from claude_transport.app.failures import (
    COMPLETE_VARIABLE,
    EXIT_INTERRUPTED,
    EXIT_NO_READER,
    EXIT_OK,
    EXIT_USAGE,
    PROGRAM,
    report_failure,
    report_usage,
)
from claude_transport.app.standard_streams import (
    last_flush,
    open_missing_streams,
    output_failure,
    told_as_output_failure,
    warnings_as_log,
    warnings_to_stderr,
    write_remark,
)
from claude_transport.errors import ConfigurationError

_INSTALL: Final = "pip install 'claude-transport[cli]'"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program with `argv` (default: the arguments of this process).

    Returns:
        The exit code. 0: it worked. 1: the run failed, or its output could not be written. 2: nothing was run, because of the usage, the
        configuration, or because there is nothing to run. 3: the model's side failed (credential, limits, API), after every retry.
        130: interrupted. 141: the reader of the output has gone.
    """
    open_missing_streams()
    with warnings_as_log():
        code = _run(sys.argv[1:] if argv is None else argv)
    lost = last_flush(sys.stdout)
    if lost is not None and code == EXIT_OK:
        code = EXIT_NO_READER if isinstance(lost, BrokenPipeError) else report_failure(output_failure(lost))
    last_flush(sys.stderr)
    return code


def _run(argv: Sequence[str]) -> int:
    try:
        if argv[:1] == ["mcp-bridge"] and not {"-h", "--help"} & set(argv):
            from claude_transport.app import mcp_bridge

            return mcp_bridge.run(mcp_bridge.read_arguments(argv[1:]))
        if argv[:1] == ["record"] and _stands_in_for_claude(argv):
            from claude_transport.app import record_as_claude

            return record_as_claude.run(record_as_claude.read_arguments(argv[1:]))
        return _run_with_click(_without_arguments_of_claude(argv))
    except KeyboardInterrupt:  # before or after the event loop, which has its own handler
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return EXIT_NO_READER
    except Exception as error:  # noqa: BLE001 - the last seam: users get one line, and a traceback only on request
        return report_failure(error)


def _run_with_click(argv: Sequence[str]) -> int:
    try:
        import click
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"the program needs the package click, which is not installed: {_INSTALL}", option="click") from error
    from claude_transport.app.arguments import explain_mistake, help_text, parse

    instruction = os.environ.get(COMPLETE_VARIABLE)
    if instruction:
        from claude_transport.app.shell_completion import answer

        return answer(instruction)
    try:
        with told_as_output_failure():  # of the help
            args = parse(argv)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.UsageError as mistake:
        what, hint = explain_mistake(mistake)
        return report_usage(what, hint, command=PROGRAM if mistake.ctx is None else mistake.ctx.command_path)
    if args is None:
        write_remark(help_text())
        return EXIT_USAGE
    try:
        with warnings_to_stderr():
            return _find_command(args.command)(args)
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - as in `_run()`, and here it is known what the user wants to see
        return report_failure(error, verbose=getattr(args, "verbose", False))


def _find_command_for_tapes(name: str) -> Callable[[SimpleNamespace], int]:
    match name:
        case "inspect":
            from claude_transport.app.inspect_tape import run
        case "record":
            from claude_transport.app.ask import run_recorded as run
        case "replay":
            from claude_transport.app.replay import run
        case _:
            from claude_transport.app.wire import run
    return run


def _find_command(name: str) -> Callable[[SimpleNamespace], int]:
    match name:
        case "inspect" | "record" | "replay" | "wire":
            return _find_command_for_tapes(name)
        case "doctor":
            from claude_transport.app.doctor import run
        case "serve":
            from claude_transport.app.serve import run
        case "worker":
            from claude_transport.app.worker import run
        case "sessions":
            from claude_transport.app.sessions import run
        case "watch":
            from claude_transport.app.watch import run
        case "mcp-bridge":
            from claude_transport.app.mcp_bridge import run
        case "bench":
            from claude_transport.app.bench import run
        case "completion":
            from claude_transport.app.shell_completion import run
        case _:
            from claude_transport.app.ask import run
    return run


def _stands_in_for_claude(argv: Sequence[str]) -> bool:
    """Return whether a host has started this in place of claude: what follows `--` is not for this program."""
    own = argv[: argv.index("--")] if "--" in argv else argv
    return any(word.partition("=")[0] == "--as-claude" for word in own) and not {"-h", "--help"} & set(own)


def _without_arguments_of_claude(argv: Sequence[str]) -> Sequence[str]:
    """Return `argv` without what follows the `--` of `replay`: a host adds there what it passes to its claude."""
    return argv[: argv.index("--")] if argv[:1] == ["replay"] and "--" in argv else argv
