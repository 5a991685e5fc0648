"""`Shard`: the connections to one server of a fleet's broker. A cluster has several, and `Broker` knows which of them has a key."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

import anyio

from claude_transport.backoff import Backoff
from claude_transport.loggers import logger_for
from claude_transport.loops.current import Wakeup
from claude_transport.redis.address import RedisAddress
from claude_transport.redis.client import COMMAND_TIMEOUT, RespConnection, RespCut, first_of
from claude_transport.streams.sockets import dial
from claude_transport.text.printable import printable

logger: logging.Logger = logger_for(__name__)

RECONNECTING: Final = Backoff(first=0.05, factor=2.0, maximum=1.0)
"""Delays between attempts to reach a server that was lost."""


class Shard:
    """The connections to one server, which are made again whenever they are lost, as long as `run()` runs.

    Channels have a connection of their own. A server ends a connection that is told more than it takes, and any client of the fleet may say
    much on a channel: calls do not suffer from that. `generation` grows with each loss of the connection for calls: what was known before
    it has to be asked again.

    Args:
        address: the server.
        greeted: called with what the server says of itself. It may raise: then the server is not used, and is asked again later.
        heard: called with what the server says unasked on the connection for channels.
        changed: called when the connection for calls is there, or lost, or could not be made.
        listening: called when the connection for channels is there.
    """

    def __init__(
        self,
        address: RedisAddress,
        *,
        greeted: Callable[[Mapping[bytes, Any]], object],
        heard: Callable[[Shard, list[Any]], object],
        changed: Callable[[Shard], object],
        listening: Callable[[Shard], object],
    ) -> None:
        self.address: RedisAddress = address
        self.generation: int = 0
        self.link: RespConnection | None = None
        """The connection for calls; None while there is none."""
        self.ear: RespConnection | None = None
        """The connection for channels."""
        self.tuned: set[bytes] = set()
        """The channels that `ear` was told to follow."""
        self.failure: Exception | None = None
        """Why there is no connection."""
        self._greeted, self._heard, self._changed, self._listening = greeted, heard, changed, listening
        self._woken = Wakeup()
        self._scope = anyio.CancelScope()

    async def run(self) -> None:
        """Keep the connections until `stop()`, or until the call is cancelled."""
        with self._scope:
            retry = 0
            while True:
                try:
                    await self._run_once()
                    retry = 0
                except Exception as exc:  # noqa: BLE001 - a task group inside wraps each error in a group
                    self.failure = first_of(exc)
                    logger.info("%s: the connection was lost (%s)", self.address, type(self.failure).__name__)
                    self._changed(self)
                finally:
                    self.drop(self.link)
                await anyio.sleep(RECONNECTING.delay(retry))
                retry += 1

    def stop(self) -> None:
        """End the connections soon."""
        self._scope.cancel()

    def drop(self, link: RespConnection | None) -> None:
        """Give `link` up, when it is the connection in use."""
        if link is not None and link is self.link:
            self.link = None
            self.generation += 1
            self._woken.fire()
            self._changed(self)

    async def _run_once(self) -> None:
        """Connect, and carry calls until the connection is lost. Raises what kept it from being made."""
        async with anyio.create_task_group() as tasks, self._connected(self.drop) as link:
            with anyio.fail_after(COMMAND_TIMEOUT):
                await link.call(["PING"])  # a server that reads its file says so now
            tasks.start_soon(self._listen)
            with anyio.fail_after(COMMAND_TIMEOUT):
                while self.ear is None:
                    await self._woken.wait()
            self.link, self.failure = link, None
            self._changed(self)
            while self.link is link:
                await self._woken.wait()
            tasks.cancel_scope.cancel()

    @contextlib.asynccontextmanager
    async def _connected(self, lost: Callable[[RespConnection], object]) -> AsyncIterator[RespConnection]:
        """Make a connection, and carry it. Calls `lost` with it when it is lost."""
        with anyio.fail_after(COMMAND_TIMEOUT):
            link = await RespConnection.open(self.address, heard=self._pushed, timeout=COMMAND_TIMEOUT, dial=dial)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._carry, link, lost)  # which closes it at its end
            with anyio.fail_after(COMMAND_TIMEOUT):
                self._greeted(await link.greet(self.address))
            yield link
            tasks.cancel_scope.cancel()

    def _pushed(self, items: list[Any]) -> None:
        self._heard(self, items)

    async def _carry(self, link: RespConnection, lost: Callable[[RespConnection], object]) -> None:
        try:
            await link.run()
        except RespCut as exc:
            logger.info("%s: a connection was lost (%s)", self.address, printable(exc, at_most=200))
            lost(link)

    def _ear_lost(self, ear: RespConnection) -> None:
        if ear is self.ear:
            self.ear = None
            self._woken.fire()

    async def _listen(self) -> None:
        """Keep the connection for channels, until the call is cancelled. One that is lost soon is made again ever more slowly."""
        retry = 0
        while True:
            began = anyio.current_time()
            try:
                async with self._connected(self._ear_lost) as ear:
                    self.ear = ear
                    self._woken.fire()
                    self._listening(self)
                    while self.ear is ear:
                        await self._woken.wait()
            except Exception as exc:  # noqa: BLE001 - a task group inside wraps each error in a group
                logger.info("%s: its channels cannot be heard now (%s)", self.address, type(first_of(exc)).__name__)
            finally:
                self.ear = None
                self.tuned.clear()
            retry = 0 if anyio.current_time() - began > RECONNECTING.maximum else retry + 1
            await anyio.sleep(RECONNECTING.delay(retry))
