"""What can be said on the command line. Nothing here loads more than argparse, so that `--help` is quick."""

from __future__ import annotations

import argparse
import math
import re
from typing import Any, Final, NoReturn

from claude_transport.app.inspect_arguments import add_inspect
from claude_transport.app.record_arguments import add_record, add_replay
from claude_transport.app.serve_arguments import add_serve

__all__ = ["PROGRAM", "build_parser", "split_rules"]

PROGRAM: Final = "claude-transport"
# Written out, because asking `launch.options` for them would need a Struct; a test holds that they are the same.
PERMISSION_MODES: Final = ("default", "acceptEdits", "auto", "bypassPermissions", "dontAsk", "manual", "plan")
TRANSPORTS: Final = ("auto", "cli", "api")  # those of `completion.resolution`, written out for the same reason
EXIT_CODES: Final = (
    "exit codes: 0 it worked · 1 the run failed · 2 nothing was run (usage, configuration, no claude) · "
    "3 the model's side failed (credential, limit, API), after every retry · 130 interrupted"
)
_COMMAS_OUTSIDE_PARENTHESES: Final = re.compile(r",(?![^()]*\))")


class _Parser(argparse.ArgumentParser):
    """Reports mistakes as the rest of the program does: one line, with a code."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{PROGRAM}: {message} [usage.error]\n  {self.format_usage().strip()}\n")


class _Version(argparse.Action):
    """Looks the version up only when it is asked for: reading package metadata takes longer than the rest of the start."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from importlib.metadata import version

        print(f"{PROGRAM} {version('claude-transport')}")
        parser.exit()


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole program; `command` is None when none was given."""
    parser = _Parser(
        prog=PROGRAM, description="Ask a Claude, and find out what would run when you do.", epilog=EXIT_CODES, allow_abbrev=False
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    _add_ask(commands.add_parser("ask", help="one prompt, its answer as it is written", epilog=EXIT_CODES, allow_abbrev=False))
    _add_doctor(
        commands.add_parser("doctor", help="what would run, who would pay, and does it work", epilog=EXIT_CODES, allow_abbrev=False)
    )
    serve = commands.add_parser("serve", help="let clients elsewhere talk to the claude here", epilog=EXIT_CODES, allow_abbrev=False)
    add_serve(serve, integer=_positive_integer, number=_positive_number, permission_modes=PERMISSION_MODES)
    add_inspect(commands.add_parser("inspect", help="what is on a tape: figures, or a page", epilog=EXIT_CODES, allow_abbrev=False))
    record = commands.add_parser("record", help="ask, and keep the conversation on a tape", epilog=EXIT_CODES, allow_abbrev=False)
    add_record(record)
    _add_claude(record)
    _add_timeout(_add_run(record))
    add_replay(commands.add_parser("replay", help="play a tape as the claude on it", epilog=EXIT_CODES, allow_abbrev=False))
    bridge = commands.add_parser(
        "mcp-bridge", help="a stdio MCP server with the tools of another program: for claude to start", allow_abbrev=False
    )
    bridge.add_argument("--url", help="where the host is: unix:///PATH or tcp://127.0.0.1:PORT (default: CLAUDE_TRANSPORT_BRIDGE_URL)")
    bridge.add_argument("--server", metavar="NAME", help="which of its servers (default: CLAUDE_TRANSPORT_BRIDGE_SERVER)")
    return parser


def _add_ask(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "prompt", nargs="?", metavar="PROMPT", help="what to ask; `-`, or nothing with a pipe on stdin, reads it from there"
    )
    parser.add_argument("--offline", action="store_true", help="ask a simulated Claude: no claude, no network, no key")
    parser.add_argument("--json", action="store_true", help="every message as one line of JSON, exactly as it came")
    _add_claude(parser)
    run = _add_run(parser)
    _add_transport(run)
    _add_timeout(run)


def _add_claude(parser: argparse.ArgumentParser) -> None:
    claude = parser.add_argument_group("claude")
    claude.add_argument("--model", metavar="NAME", help="alias (haiku, sonnet, opus) or full name")
    claude.add_argument("--system-prompt", metavar="TEXT", help="in place of claude's own")
    claude.add_argument("--permission-mode", choices=PERMISSION_MODES, metavar="MODE", help=", ".join(PERMISSION_MODES))
    claude.add_argument(
        "--allowed-tools",
        action="append",
        default=[],
        metavar="RULES",
        help="tools that need no question: `Read,Bash(git log:*)`; repeatable",
    )
    claude.add_argument("--max-turns", type=_positive_integer, metavar="N", help="stop after so many turns")
    claude.add_argument("--cwd", metavar="DIR", help="where claude works (default: here)")


def _add_timeout(run: argparse._ArgumentGroup) -> None:
    run.add_argument("--timeout", type=_positive_number, metavar="SECONDS", help="give up after so long, start to end (default: never)")


def _add_doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--offline", action="store_true", help="make the test run with the simulated Claude")
    parser.add_argument("--json", action="store_true", help="the report as one JSON object")
    parser.add_argument(
        "--login-status", action="store_true", help="ask claude itself whether it is logged in: starts it once, in your own environment"
    )
    run = _add_run(parser)
    _add_transport(run)
    run.add_argument(
        "--timeout", type=_positive_number, default=60.0, metavar="SECONDS", help="for the whole test run (default: %(default)g)"
    )


def _add_transport(run: argparse._ArgumentGroup) -> None:
    run.add_argument(
        "--transport",
        choices=TRANSPORTS,
        help="ask through claude, or the Messages API with a key (default: CLAUDE_TRANSPORT, else auto: claude when there is one)",
    )


def _add_run(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    run = parser.add_argument_group("the run")
    run.add_argument("--cli-path", metavar="PATH", help="the claude to run (default: look for it)")
    run.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio", help="event loop (default: %(default)s)")
    run.add_argument("--plain", action="store_true", help="no colours, no Markdown, nothing that moves")
    run.add_argument("--no-color", action="store_true", help="no colours (also when NO_COLOR is set)")
    run.add_argument("-v", "--verbose", action="store_true", help="say more, on stderr")
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
