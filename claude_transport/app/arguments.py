"""What can be said on the command line. Nothing here loads more than argparse, so that `--help` is quick."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from claude_transport.app.inspect_arguments import add_inspect
from claude_transport.app.manual import MANUAL
from claude_transport.app.parser import PROGRAM, Parser
from claude_transport.app.record_arguments import add_record, add_replay
from claude_transport.app.serve_arguments import add_serve

__all__ = ["PROGRAM", "build_parser", "split_rules"]

# Written out, because asking `launch.options` for them would need a Struct; a test holds that they are the same.
PERMISSION_MODES: Final = ("default", "acceptEdits", "auto", "bypassPermissions", "dontAsk", "manual", "plan")
TRANSPORTS: Final = ("auto", "cli", "api")  # those of `completion.resolution`, written out for the same reason
SHELLS: Final = ("bash", "zsh", "fish")
_COMMAS_OUTSIDE_PARENTHESES: Final = re.compile(r",(?![^()]*\))")


class _Version(argparse.Action):
    """Looks the version up only when it is asked for: reading package metadata takes longer than the rest of the start."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from importlib.metadata import version

        print(f"{PROGRAM} {version('claude-transport')}")
        parser.exit()


def build_parser() -> Parser:
    """The parser of the whole program; `command` is None when none was given."""
    manual = MANUAL[""]
    parser = Parser(prog=PROGRAM, description=manual.set_description, epilog=manual.set_epilog)
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", parser_class=Parser)
    for name, add in _ADDERS.items():
        manual = MANUAL[name]
        command = commands.add_parser(name, help=manual.summary, description=manual.set_description, epilog=manual.set_epilog)
        command.summary = manual.summary
        add(command)
        parser.commands[name] = command
    return parser


def _add_ask(parser: Parser) -> None:
    parser.add_argument(
        "prompt", nargs="?", metavar="PROMPT", help="what to ask; `-`, or nothing with a pipe on stdin, reads it from there"
    )
    parser.add_argument("--offline", action="store_true", help="ask a simulated Claude: no claude, no network, no key")
    parser.add_argument("--json", action="store_true", help="every message as one line of JSON, exactly as it came")
    _add_claude(parser)
    run = _add_run(parser, quiet=True)
    _add_transport(run, "ask through claude, or the Messages API with a key")
    _add_timeout(run, what="start to end")


def _add_claude(parser: Parser) -> None:
    claude = parser.add_argument_group("claude")
    claude.add_argument("--model", metavar="NAME", help="alias (haiku, sonnet, opus) or full name (default: claude's own)")
    claude.add_argument("--system-prompt", metavar="TEXT", help="the system prompt (default: claude's own)")
    claude.add_argument(
        "--permission-mode",
        choices=PERMISSION_MODES,
        metavar="MODE",
        help=f"what claude may do without a question: {', '.join(PERMISSION_MODES)} (default: as claude's settings say)",
    )
    claude.add_argument(
        "--allowed-tools",
        action="append",
        default=[],
        metavar="RULES",
        help="tools that need no question, separated by commas: `Read,Bash(git log:*)`; repeatable",
    )
    claude.add_argument("--max-turns", type=_positive_integer, metavar="N", help="fail after so many turns of claude (default: no limit)")
    claude.add_argument("--cwd", metavar="DIR", help="where claude works (default: here)")


def _add_timeout(run: argparse._ArgumentGroup, *, what: str) -> None:
    run.add_argument(
        "--timeout", type=_positive_number, metavar="SECONDS", help=f"give up after so long, {what}, with exit code 1 (default: never)"
    )


def _add_doctor(parser: Parser) -> None:
    parser.add_argument("--offline", action="store_true", help="make the test run with the simulated Claude")
    parser.add_argument("--json", action="store_true", help="the report as one JSON object")
    parser.add_argument(
        "--login-status", action="store_true", help="ask claude itself whether it is logged in: starts it once, in your own environment"
    )
    run = _add_run(parser, verbose="also say where claude was looked for")
    _add_transport(run, "say where `ask` with this choice would go")
    run.add_argument(
        "--timeout",
        type=_positive_number,
        default=60.0,
        metavar="SECONDS",
        help="give up the test run after so long (default: %(default)g)",
    )


def _add_transport(run: argparse._ArgumentGroup, what: str) -> None:
    run.add_argument(
        "--transport",
        choices=TRANSPORTS,
        help=f"{what} (default: CLAUDE_TRANSPORT, else auto: claude when there is one)",
    )


def _add_run(
    parser: Parser, *, quiet: bool = False, verbose: str = "on stderr also what claude says there, and a summary"
) -> argparse._ArgumentGroup:
    run = parser.add_argument_group("the run")
    run.add_argument("--cli-path", metavar="PATH", help="the claude to run (default: CLAUDE_CLI_PATH, else look for it)")
    run.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio", help="event loop (default: %(default)s)")
    run.add_argument("--plain", action="store_true", help="no colours, no Markdown, nothing that moves" if quiet else "no colours")
    run.add_argument(
        "--no-color",
        action="store_true",
        help="no colours, no Markdown (also when NO_COLOR is set)" if quiet else "no colours (also when NO_COLOR is set)",
    )
    talk = run.add_mutually_exclusive_group()
    talk.add_argument("-v", "--verbose", action="store_true", help=verbose)
    if quiet:
        talk.add_argument("-q", "--quiet", action="store_true", help="on stderr only what went wrong, and questions")
    return run


def _positive_integer(text: str) -> int:
    number = int(text) if re.fullmatch(r"\d{1,9}", text) else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no positive whole number")
    return number


def _positive_number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not number > 0 or math.isinf(number):
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number of seconds")
    return number


def split_rules(values: list[str]) -> list[str]:
    """Permission rules from comma-separated lists of them; commas inside parentheses belong to the rule."""
    rules = (rule.strip() for value in values for rule in _COMMAS_OUTSIDE_PARENTHESES.split(value))
    return [rule for rule in rules if rule]


def _add_serve(parser: Parser) -> None:
    add_serve(parser, integer=_positive_integer, number=_positive_number, permission_modes=PERMISSION_MODES)


def _add_record(parser: Parser) -> None:
    add_record(parser)
    _add_claude(parser)
    _add_timeout(_add_run(parser, quiet=True), what="all prompts together")


def _add_mcp_bridge(parser: Parser) -> None:
    parser.add_argument(
        "--url", metavar="URL", help="where the host is: unix:///PATH or tcp://127.0.0.1:PORT (default: CLAUDE_TRANSPORT_BRIDGE_URL)"
    )
    parser.add_argument("--server", metavar="NAME", help="which of the host's servers to be (default: CLAUDE_TRANSPORT_BRIDGE_SERVER)")


def _add_bench(parser: Parser) -> None:
    parser.add_argument(
        "--messages",
        type=_positive_integer,
        default=20_000,
        metavar="N",
        help="messages in each run, a million at most (default: %(default)d)",
    )
    parser.add_argument("--json", action="store_true", help="the figures as one JSON object")
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio", help="event loop (default: %(default)s)")
    parser.add_argument("--plain", action="store_true", help="no colours, nothing that moves")
    parser.add_argument("--no-color", action="store_true", help="no colours (also when NO_COLOR is set)")


def _add_completion(parser: Parser) -> None:
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help="the shell that will read it: bash, zsh or fish")


_ADDERS: Final[Mapping[str, Callable[[Parser], None]]] = {
    "ask": _add_ask,
    "doctor": _add_doctor,
    "serve": _add_serve,
    "inspect": add_inspect,
    "record": _add_record,
    "replay": add_replay,
    "mcp-bridge": _add_mcp_bridge,
    "bench": _add_bench,
    "completion": _add_completion,
}
"""What each command reads, in the order of the help."""
