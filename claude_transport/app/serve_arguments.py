"""What can be said to `claude-transport serve`. Nothing here loads more than argparse."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence


def add_serve(
    parser: argparse.ArgumentParser, *, integer: Callable[[str], int], number: Callable[[str], float], permission_modes: Sequence[str]
) -> None:
    """Adds them; `integer` and `number` read positive ones, as the other commands do."""
    parser.add_argument("--offline", action="store_true", help="serve the simulated Claude: no claude, no network, no key")
    parser.add_argument("--json", action="store_true", help="the log as lines of JSON")
    _add_doors(parser)
    _add_claude(parser, permission_modes=permission_modes)
    _add_limits(parser, integer=integer, number=number)
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio", help="event loop (default: %(default)s)")
    parser.add_argument("-v", "--verbose", action="store_true", help="log more: every event, not only what matters")


def _add_doors(parser: argparse.ArgumentParser) -> None:
    doors = parser.add_argument_group("where, and who may come in")
    doors.add_argument(
        "--listen",
        action="append",
        required=True,
        metavar="URL",
        help="tcp://HOST:PORT, tls://, unix:///PATH, ws://HOST:PORT/PATH or wss://; port 0 is any free one; repeatable",
    )
    doors.add_argument(
        "--token-file", metavar="FILE", help="who may come in: lines of `NAME TOKEN`, or only a token; refused when others can read it"
    )
    doors.add_argument("--token-env", metavar="NAME", help="the environment variable that holds a token (default: none)")
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
    doors.add_argument(
        "--host-name",
        action="append",
        default=[],
        metavar="NAME",
        help="a host name under which /healthz and /metrics may be asked for (default: loopback's, and those of --listen); repeatable",
    )
    doors.add_argument("--allow-plaintext", action="store_true", help="other machines may connect without TLS: a proxy in front has it")
    doors.add_argument(
        "--mode",
        choices=("link", "plain"),
        help="speak only this: the link, which survives a lost connection, or plain lines (default: both)",
    )
    doors.add_argument("--compression", action="store_true", help="compress what goes to clients that want it (default: no)")


def _add_claude(parser: argparse.ArgumentParser, *, permission_modes: Sequence[str]) -> None:
    claude = parser.add_argument_group("claude")
    claude.add_argument("--model", metavar="NAME", help="alias (haiku, sonnet, opus) or full name (default: claude's own)")
    claude.add_argument(
        "--permission-mode",
        choices=permission_modes,
        metavar="MODE",
        help=f"what claude may do without a question: {', '.join(permission_modes)} (default: as claude's settings say)",
    )
    claude.add_argument(
        "--allowed-tools", action="append", default=[], metavar="RULES", help="tools that need no question, separated by commas; repeatable"
    )
    claude.add_argument("--cwd", metavar="DIR", help="where claude works (default: here)")
    claude.add_argument(
        "--choice",
        action="append",
        default=[],
        metavar="OPTION",
        help="one more of the options of ClaudeOptions that clients may choose for themselves; repeatable",
    )
    claude.add_argument("--no-choices", action="store_true", help="clients may choose only what --choice names")
    claude.add_argument("--cli-path", metavar="PATH", help="the claude to run (default: CLAUDE_CLI_PATH, else look for it)")


def _add_limits(parser: argparse.ArgumentParser, *, integer: Callable[[str], int], number: Callable[[str], float]) -> None:
    limits = parser.add_argument_group("limits")
    limits.add_argument(
        "--lease",
        type=number,
        default=60.0,
        metavar="SECONDS",
        help="how long a session waits for a client whose connection was lost (default: %(default)g)",
    )
    limits.add_argument(
        "--max-sessions", type=integer, default=16, metavar="N", help="sessions of one token at a time (default: %(default)d)"
    )
    limits.add_argument(
        "--max-total-sessions", type=integer, default=64, metavar="N", help="sessions of all tokens at a time (default: %(default)d)"
    )
    limits.add_argument(
        "--drain-timeout",
        type=number,
        default=30.0,
        metavar="SECONDS",
        help="how long running turns may take to end in the drain (default: %(default)g)",
    )
