"""`serve()`: a gateway, from its first client to its last."""

from __future__ import annotations

import logging
import signal
import ssl
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from typing import TypedDict, Unpack

import anyio

from claude_transport.gateway.arrival import Mode
from claude_transport.gateway.door import GatewayLimits, GatewayTokens
from claude_transport.gateway.gateway import Gateway
from claude_transport.gateway.starting import Launch
from claude_transport.launch.options import ClaudeOptions

logger: logging.Logger = logging.getLogger(__name__)


class GatewaySettings(TypedDict, total=False):
    """What `Gateway` takes beside its options, each key with the meaning and the default that it has there.

    For `**settings: Unpack[GatewaySettings]`: type checkers then know every name, and refuse a misspelt one.
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
    launch: Launch | None


async def serve(
    options: ClaudeOptions | None = None,
    *,
    handle_signals: bool = True,
    on_started: Callable[[Gateway], object] | None = None,
    **settings: Unpack[GatewaySettings],
) -> None:
    """Run a `Gateway(options, **settings)` until it is told to end, and drain it then; or until somebody else has closed it.

    With `handle_signals`, SIGTERM and SIGINT begin the drain, and a second one cuts it short; where signals cannot be received (other
    threads), cancelling the call ends it at once. `on_started` gets the gateway when clients can connect.

    Raises:
        ConfigurationError: as `Gateway` and `Gateway.start()`.
    """
    gateway = Gateway(options, **settings)
    with ExitStack() as stack:
        signals = _signals(stack) if handle_signals else None
        async with gateway:
            if on_started is not None:
                on_started(gateway)
            async with anyio.create_task_group() as tasks:
                if signals is not None:
                    tasks.start_soon(_obey, signals, gateway)
                await gateway.wait_closed()
                tasks.cancel_scope.cancel()


async def _obey(signals: AsyncIterator[signal.Signals], gateway: Gateway) -> None:
    """Drain at the first signal, and close when that is done, or at the second one."""
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


def _signals(stack: ExitStack) -> AsyncIterator[signal.Signals] | None:
    try:
        return stack.enter_context(anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT))
    except (NotImplementedError, RuntimeError, ValueError):
        return None
