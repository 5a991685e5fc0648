"""What can be said to `claude-transport serve`. Nothing here loads more than argparse."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

__all__ = ["add_serve"]


def add_serve(
    parser: argparse.ArgumentParser, *, integer: Callable[[str], int], number: Callable[[str], float], permission_modes: Sequence[str]
) -> None:
    """Adds them; `integer` and `number` read positive ones, as the other commands do."""
    parser.add_argument("--offline", action="store_true", help="serve the simulated Claude: no claude, no network, no key")
    parser.add_argument("--json", action="store_true", help="the log as lines of JSON")
    doors = parser.add_argument_group("where, and who may come in")
    doors.add_argument(
        "--listen",
        action="append",
        required=True,
        metavar="URL",
        help="tcp://HOST:PORT, tls://, unix:///PATH, ws://HOST:PORT/PATH or wss://; port 0 is any free one; repeatable",
    )
    doors.add_argument("--token-file", metavar="FILE", help="lines of `NAME TOKEN`, or only a token; refused when others can read it")
    doors.add_argument("--token-env", metavar="NAME", help="the environment variable that holds a token")
    doors.add_argument("--certificate", metavar="FILE", help="the certificate chain for tls:// and wss://, as PEM")
    doors.add_argument("--key", metavar="FILE", help="its private key, when it is in another file")
    doors.add_argument("--client-ca", metavar="FILE", help="ask clients for a certificate of this authority (mutual TLS)")
    doors.add_argument(
        "--origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="a web page that may connect, https://example.org (default: none); repeatable",
    )
    doors.add_argument("--allow-plaintext", action="store_true", help="other machines may connect without TLS: a proxy in front has it")
    doors.add_argument("--mode", choices=("link", "plain"), help="speak only this language (default: both)")
    doors.add_argument("--compression", action="store_true", help="compress for clients that want it")
    _add_claude(parser, permission_modes=permission_modes)
    limits = parser.add_argument_group("limits")
    limits.add_argument("--lease", type=number, default=60.0, metavar="SECONDS", help="until a client is back (default: %(default)g)")
    limits.add_argument("--max-sessions", type=integer, default=16, metavar="N", help="of one token (default: %(default)d)")
    limits.add_argument("--max-total-sessions", type=integer, default=64, metavar="N", help="of all (default: %(default)d)")
    limits.add_argument(
        "--drain-timeout",
        type=number,
        default=30.0,
        metavar="SECONDS",
        help="for running turns (default: %(default)g)",
    )
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio", help="event loop (default: %(default)s)")
    parser.add_argument("-v", "--verbose", action="store_true", help="log more")


def _add_claude(parser: argparse.ArgumentParser, *, permission_modes: Sequence[str]) -> None:
    claude = parser.add_argument_group("claude")
    claude.add_argument("--model", metavar="NAME", help="alias (haiku, sonnet, opus) or full name")
    claude.add_argument("--permission-mode", choices=permission_modes, metavar="MODE", help=", ".join(permission_modes))
    claude.add_argument(
        "--allowed-tools", action="append", default=[], metavar="RULES", help="tools that need no question, separated by commas; repeatable"
    )
    claude.add_argument("--cwd", metavar="DIR", help="where claude works (default: here)")
    claude.add_argument("--choice", action="append", default=[], metavar="OPTION", help="one more that clients may choose; repeatable")
    claude.add_argument("--no-choices", action="store_true", help="only what --choice names may be chosen")
    claude.add_argument("--cli-path", metavar="PATH", help="the claude to run (default: CLAUDE_CLI_PATH, else look for it)")
