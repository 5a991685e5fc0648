"""`serve()`: runs a gateway until a signal, and drains it. Its settings as one typed dictionary: `GatewaySettings`."""

from __future__ import annotations

import logging
import signal
import ssl
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from typing import TypedDict, Unpack

import anyio

from claude_transport.gateway.arrival import Mode
from claude_transport.gateway.gateway import Gateway, Launch
from claude_transport.launch.options import AgentOptions
from claude_transport.loggers import logger_for
from claude_transport.serving.door import GatewayLimits, GatewayTokens

logger: logging.Logger = logger_for(__name__)


class GatewaySettings(TypedDict, total=False):
    """The type of a dict with keyword arguments of `Gateway`. Each key is optional, with the meaning and the default of the argument.

    Use it as `**settings: Unpack[GatewaySettings]` in a function that passes them on: type checkers then know every name.
    """

    listen: Sequence[str]
    command: Sequence[str] | None
    tokens: GatewayTokens | Mapping[str, str] | None
    ssl_context: ssl.SSLContext | None
    origins: Collection[str]
    hosts: Collection[str]
    choices: Collection[str]
    limits: GatewayLimits | None
    modes: Collection[Mode]
    compression: bool
    allow_plaintext: bool
    drain_timeout: float
    close_timeout: float
    observable: bool
    launch: Launch | None


async def serve(
    options: AgentOptions | None = None,
    *,
    handle_signals: bool = True,
    on_started: Callable[[Gateway], object] | None = None,
    **settings: Unpack[GatewaySettings],
) -> None:
    """Run a `Gateway(options, **settings)`: start it, and return when a signal or a call of its `aclose()` has closed it.

    Args:
        options: how each `claude` is run, or each process of another agent, by its options.
        handle_signals: drain and close at SIGTERM or SIGINT; a second signal ends the drain at once. Outside the main thread signals cannot
            be received: cancel the call to end it.
        on_started: called with the gateway when clients can connect.
        settings: arguments of `Gateway`.

    Raises:
        ConfigurationError: as `Gateway` and `Gateway.start()`.
    """
    gateway = Gateway(options, **settings)
    with ExitStack() as stack:
        signals = None
        if handle_signals:
            try:
                signals = stack.enter_context(anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT))
            except (NotImplementedError, RuntimeError, ValueError):
                pass  # not the main thread, or not this operating system
        async with gateway:
            if on_started is not None:
                on_started(gateway)
            async with anyio.create_task_group() as tasks:
                if signals is not None:
                    tasks.start_soon(_obey, signals, gateway)
                await gateway.wait_closed()
                tasks.cancel_scope.cancel()


async def _obey(signals: AsyncIterator[signal.Signals], gateway: Gateway) -> None:
    """Drain the gateway at the first signal. Close it after the drain, or at the second signal."""
    number = await anext(signals)
    logger.info("%s: draining", number.name, extra={"gateway_event": "signal", "gateway_signal": number.name})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_cut_short, signals, tasks.cancel_scope)
        await gateway.drain()
        tasks.cancel_scope.cancel()
    await gateway.aclose()


async def _cut_short(signals: AsyncIterator[signal.Signals], scope: anyio.CancelScope) -> None:
    await anext(signals)
    scope.cancel()
