"""`claude-transport serve`: runs a gateway until SIGTERM or Ctrl-C, and then until the running turns have ended.

The gateway itself is the package `gateway`; here are its settings from the command line, and the log on stderr.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
import ssl
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from claude_transport.agents.registry import find_agent
from claude_transport.app.agent_options import options_for, refuse_foreign
from claude_transport.app.arguments import split_rules
from claude_transport.app.event_loop import run_on
from claude_transport.app.failures import EXIT_OK
from claude_transport.app.standard_streams import write_out
from claude_transport.errors import ConfigurationError, WorkingDirectoryError
from claude_transport.gateway.gateway import Gateway
from claude_transport.gateway.service import GatewaySettings, serve
from claude_transport.launch.options import AgentOptions, ClaudeOptions
from claude_transport.serving.choices import DEFAULT_CHOICES
from claude_transport.serving.door import GatewayLimits, GatewayTokens
from claude_transport.text.printable import printable, printable_lines

_MAX_MESSAGE: Final = 4000
"""Characters of a record's message in the log."""

_MAX_TRACEBACK: Final = 8000
"""Characters of a traceback in a line of JSON. Its end is kept, which says most."""

_FIELD: Final = "gateway_"
"""The prefix of the gateway's own fields in log records."""


def run(args: SimpleNamespace) -> int:
    """Serve until a signal arrives, and return the exit code. Raises what `failures` can report."""
    if args.offline and args.cli_path is not None:
        raise ConfigurationError("--offline and --cli-path name two different programs. Give one of them.", option="cli_path")
    settings: GatewaySettings = {
        "listen": args.listen,
        "tokens": read_tokens(args),
        "ssl_context": _ssl_context(args),
        "origins": args.origin,
        "hosts": args.host_name,
        "choices": DEFAULT_CHOICES.union(split_rules(args.choice)) if not args.no_choices else frozenset(args.choice),
        "limits": GatewayLimits(lease=args.lease, sessions=args.max_sessions, total_sessions=args.max_total_sessions),
        "modes": (args.mode,) if args.mode else ("link", "plain"),
        "compression": args.compression,
        "allow_plaintext": args.allow_plaintext,
        "drain_timeout": args.drain_timeout,
        "close_timeout": args.close_timeout,
        "observable": args.observable,
    }
    return run_on(args.backend, partial(_serve, args, settings))


async def _serve(args: SimpleNamespace, settings: GatewaySettings) -> int:
    with ExitStack() as stack:
        stack.enter_context(log_to_stderr(as_json=args.json, verbose=args.verbose))
        options = _options(args, stack)
        check_place(options)
        await serve(options, on_started=_announce, **settings)
    return EXIT_OK


def check_place(options: Any) -> None:
    """Raise `CLINotFoundError`, `NotExecutableError` or `WorkingDirectoryError` when no session could be started.

    Otherwise only the clients would learn of it.
    """
    if options.cwd is not None and not Path(options.cwd).is_dir():
        said = f"the working directory {os.fspath(options.cwd)!r} does not exist or is not a directory. Make it, or correct cwd."
        raise WorkingDirectoryError(said)
    find_agent(options).find(options, os.environ)


def _options(args: SimpleNamespace, stack: ExitStack) -> AgentOptions:
    """Return how each process is run. Raises `ConfigurationError` for an argument that the agent cannot fulfil."""
    if args.agent != "claude-code":
        agent = find_agent(args.agent)
        options: AgentOptions = options_for(args, agent, base=agent.options_type())
        return options
    refuse_foreign(args, args.agent)
    return claude_options(args, stack)


def claude_options(args: SimpleNamespace, stack: ExitStack) -> ClaudeOptions:
    """Return how each claude is run. With `--offline` it is a simulated one, until `stack` is closed."""
    cli_path = args.cli_path
    if args.offline:
        from claude_transport.testing.fake_claude import FakeClaude
        from claude_transport.testing.scenario import Scenario

        cli_path = str(stack.enter_context(FakeClaude(Scenario.simulated())).path)
    return ClaudeOptions(
        cli_path=cli_path,
        model=args.model,
        permission_mode=args.permission_mode,
        allowed_tools=tuple(split_rules(args.allowed_tools)),
        cwd=args.cwd,
    )


def _announce(gateway: Gateway) -> None:
    """Print the URLs on stdout, one per line: also for scripts that asked for port 0."""
    for url in gateway.urls:
        write_out(url)


def read_tokens(args: SimpleNamespace) -> GatewayTokens:
    """Return the tokens that the command line names. The variable of one is taken out of the environment."""
    tokens = GatewayTokens()
    if args.token_file is not None:
        tokens = tokens.joined(GatewayTokens.from_file(args.token_file))
    if args.token_env is not None:
        tokens = tokens.joined(GatewayTokens.from_environment(args.token_env))
        del os.environ[args.token_env]  # otherwise every claude and every tool it runs would inherit it
    return tokens


def _ssl_context(args: SimpleNamespace) -> ssl.SSLContext | None:
    if args.certificate is None:
        if args.key is not None or args.client_ca is not None:
            raise ConfigurationError("--key and --client-ca need --certificate", option="certificate")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    given = f"--certificate {args.certificate}" + (f" and --key {args.key}" if args.key is not None else "")
    needs = "a chain and its private key as PEM" if args.key is None else "a chain, and the private key of its certificate, as PEM"
    with _used(given, needs, option="certificate"):
        context.load_cert_chain(args.certificate, args.key)
    if args.client_ca is not None:
        with _used(f"--client-ca {args.client_ca}", "a certificate as PEM", option="client_ca"):
            context.load_verify_locations(args.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


@contextmanager
def _used(given: str, needs: str, *, option: str) -> Iterator[None]:
    """A block that reads files which the command line names. Its errors become a `ConfigurationError`: OpenSSL's name no file."""
    try:
        yield
    except ssl.SSLError as exc:
        raise ConfigurationError(f"{given} cannot be used: it needs {needs} ({exc.reason or exc})", option=option) from exc
    except OSError as exc:
        raise ConfigurationError(f"{given} cannot be read: {exc.strerror or exc}", option=option) from exc


@contextmanager
def log_to_stderr(*, as_json: bool, verbose: bool) -> Iterator[None]:
    """A block in which the library's log goes to stderr, one line for each record."""
    logger = logging.getLogger("claude_transport")
    before = (logger.level, logger.propagate)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JSONLines() if as_json else _PrintableLines("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if verbose else logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        level, logger.propagate = before
        logger.setLevel(level)


class _PrintableLines(logging.Formatter):
    """Formats a record as one printable line. Lines of a traceback follow it, indented, so that none looks like a record."""

    def format(self, record: logging.LogRecord) -> str:
        first, _, more = super().format(record).partition("\n")
        return printable(first, at_most=_MAX_MESSAGE) + (f"\n{printable_lines(more)}" if more else "")


class _JSONLines(logging.Formatter):
    """Formats a record as one line of JSON: `time`, `level`, `logger`, `message`, and the gateway's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {name.removeprefix(_FIELD): _bounded(value) for name, value in vars(record).items() if name.startswith(_FIELD)}
        time = dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds")
        line = {"time": time, "level": record.levelname.lower(), "logger": record.name, "message": _bounded(record.getMessage()), **fields}
        if record.exc_info is not None:
            line["exception"] = self.formatException(record.exc_info)[-_MAX_TRACEBACK:]
        return json.dumps(line, default=str)


def _bounded(value: object) -> object:
    return printable(value, at_most=_MAX_MESSAGE) if isinstance(value, str) else value
