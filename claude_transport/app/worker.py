"""`claude-transport worker`: runs sessions of a fleet on this machine until SIGTERM or Ctrl-C, and then gives them to other workers.

The worker itself is in the package `fleet`; here are its settings from the command line.
"""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

import anyio

from claude_transport.app.arguments import split_rules
from claude_transport.app.event_loop import run_on
from claude_transport.app.failures import EXIT_OK
from claude_transport.app.serve import check_place, claude_options, log_to_stderr, read_tokens
from claude_transport.app.standard_streams import write_out
from claude_transport.errors import ClaudeTransportError, ConfigurationError
from claude_transport.serving.choices import DEFAULT_CHOICES
from claude_transport.serving.door import GatewayLimits

if TYPE_CHECKING:
    from claude_transport.fleet.worker import FleetWorker
    from claude_transport.launch.session_store import SessionStore

BROKER_VARIABLE: Final = "CLAUDE_TRANSPORT_BROKER"
"""The environment variable with the URL of the broker, which may hold a password."""

STORE_VARIABLE: Final = "CLAUDE_TRANSPORT_SESSION_STORE"
"""The environment variable with the place of the session store, which may hold a password."""


def broker_of(args: SimpleNamespace) -> str:
    """Return the URL of the broker. Raises `ConfigurationError` when there is none."""
    url: str = args.broker or os.environ.get(BROKER_VARIABLE, "")
    if not url:
        raise ConfigurationError(f"there is no broker: give --broker redis://HOST:PORT, or set {BROKER_VARIABLE}", option="broker")
    return url


def run(args: SimpleNamespace) -> int:
    """Serve until a signal arrives, and return the exit code. Raises what `failures` can report."""
    if args.offline and args.cli_path is not None:
        raise ConfigurationError("--offline and --cli-path name two different programs. Give one of them.", option="cli_path")
    url, tokens = broker_of(args), read_tokens(args)
    secrets = {name: _secret(name) for name in args.secret_env}
    os.environ.pop(BROKER_VARIABLE, None)  # otherwise every claude and every tool it runs would inherit the password
    args.session_store = args.session_store or os.environ.get(STORE_VARIABLE) or None
    os.environ.pop(STORE_VARIABLE, None)  # as above
    return run_on(args.backend, partial(_serve, args, {"url": url, "tokens": tokens, "secrets": secrets}))


def _secret(name: str) -> str:
    """Take a secret out of the environment, so that no process inherits it."""
    if name not in os.environ:
        raise ConfigurationError(f"the environment variable {name} is not set: put the secret in it", option="secret_env")
    return os.environ.pop(name)


async def _serve(args: SimpleNamespace, settings: dict[str, object]) -> int:
    from claude_transport.fleet.worker import FleetWorker

    with ExitStack() as stack:
        stack.enter_context(log_to_stderr(as_json=args.json, verbose=args.verbose))
        choices = DEFAULT_CHOICES.union(split_rules(args.choice)) if not args.no_choices else frozenset(args.choice)
        options = claude_options(args, stack).replace(session_store=_store(args.session_store))
        worker = FleetWorker(
            **settings,  # type: ignore[arg-type] # the three values that may be secret
            options=options,
            name=args.name,
            capacity=args.capacity,
            labels=tuple(args.label),
            choices=choices,
            limits=GatewayLimits(sessions=args.max_sessions),
            lease=args.lease,
            drain_timeout=args.drain_timeout,
            metrics_port=args.metrics_port,
            metrics_host=args.metrics_host,
            hosts=args.host_name,
        )
        check_place(options)
        await serve_until_signal(worker)
    return EXIT_OK


def _store(place: str | None) -> SessionStore | None:
    if place is None:
        return None
    from claude_transport.sessions.opening import open_session_store

    return open_session_store(place)


async def serve_until_signal(worker: FleetWorker) -> None:
    """Serve, print the name of the worker, and drain it at the first signal; a second one ends it at once. Before the first contact with
    the broker there is nothing to drain, and the first signal ends it.

    Raises:
        CLIConnectionError: the broker cannot be reached.
        ClaudeTransportError: the name cannot be printed (`output.failed`).
        BrokenPipeError: the reader of stdout has gone.
    """
    failures: list[ClaudeTransportError | OSError] = []  # raised outside of the task group, which would wrap them

    async def serve() -> None:
        try:
            await worker.serve()
        except ClaudeTransportError as exc:
            failures.append(exc)
        tasks.cancel_scope.cancel()

    async def listen() -> None:
        await anext(signals)
        asked.set()
        await anext(signals)
        tasks.cancel_scope.cancel()

    asked = anyio.Event()
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            tasks.start_soon(listen)
            if await _is_first(worker.started, asked):
                try:
                    write_out(worker.name)
                except (ClaudeTransportError, BrokenPipeError) as exc:
                    failures.append(exc)
                else:
                    await asked.wait()
                await worker.drain()
            tasks.cancel_scope.cancel()
    if failures:
        raise failures[0]


async def _is_first(one: anyio.Event, other: anyio.Event) -> bool:
    """Wait for either, and return True when `one` is set. What sets them bounds the wait: the broker is not waited for longer than 60 s."""

    async def wait_for(event: anyio.Event) -> None:
        await event.wait()
        waiting.cancel_scope.cancel()

    async with anyio.create_task_group() as waiting:
        waiting.start_soon(wait_for, one)
        waiting.start_soon(wait_for, other)
    return one.is_set()
