"""`Relay`: carries TCP connections to a port on loopback, and lets happen to them what happens to connections."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Literal, NamedTuple

import anyio
import anyio.abc
from anyio.abc import SocketAttribute, SocketStream

Direction = Literal["up", "down"]
"""Up is from the client to the server."""

BOTH_WAYS: frozenset[Direction] = frozenset({"up", "down"})
_RESET_AT_ONCE = struct.pack("ii", 1, 0)  # linger on, for no time: closing is a RST, not a FIN


class Cut(NamedTuple):
    """Where a connection ends: after so many bytes of a direction (None: never of this one); `hard` is a RST, else it is closed."""

    up: int | None
    down: int | None
    hard: bool


class Passage:
    """One connection, and what was carried on it so far."""

    def __init__(self, client: SocketStream, server: SocketStream, cut: Cut | None) -> None:
        self.streams: dict[Direction, SocketStream] = {"up": client, "down": server}  # by who is read from
        self.carried: dict[Direction, bytearray] = {"up": bytearray(), "down": bytearray()}
        self.cut = cut
        self.scope = anyio.CancelScope()
        self.swallowed = False

    def room(self, direction: Direction) -> int | None:
        """The bytes until it is cut."""
        limit = None if self.cut is None else (self.cut.up if direction == "up" else self.cut.down)
        return None if limit is None else limit - len(self.carried[direction])

    def end(self) -> None:
        if self.cut is not None and self.cut.hard:
            for stream in self.streams.values():
                with suppress(OSError):  # the server was killed, and the event loop has closed this end already
                    stream.extra(SocketAttribute.raw_socket).setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_ONCE)
        self.scope.cancel()


class Relay:
    """What passes through. `cut_next(cuts)` says, for each new connection, where it will be cut; `cuts` counts those that were."""

    def __init__(self, port: int, *, cut_next: Callable[[int], Cut | None] | None = None) -> None:
        self._port = port
        self._cut_next = cut_next
        self._silent: frozenset[Direction] = frozenset()
        self._changed = anyio.Event()
        self.passages: list[Passage] = []
        self.asked = 0  # connections that clients have opened
        self.cuts = 0
        self.url = ""

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when it holds; looked at whenever something has happened here."""
        with anyio.fail_after(30):
            while not condition():
                await self._changed.wait()

    def lead_to(self, port: int) -> None:
        """Carry new connections to another port."""
        self._port = port

    def fall_silent(self, directions: frozenset[Direction] = BOTH_WAYS) -> None:
        """From now on nothing gets through in these directions, not even an end; nobody is told."""
        self._silent = directions
        self._note()

    def heal(self, *, late: bool) -> None:
        """What was under way arrives after all (`late`), or never: then the connections of before stay silent for good."""
        if not late:
            for passage in self.passages:
                passage.swallowed = True
        self._silent = frozenset()
        self._note()

    async def attend(self, client: SocketStream) -> None:
        self.asked += 1
        self._note()
        await self._until_it_may_pass("up")
        async with client:
            try:
                server = await anyio.connect_tcp("127.0.0.1", self._port)
            except OSError:
                return  # no server is there, and the client finds a connection that ends
            await self._carry(client, server)

    async def _carry(self, client: SocketStream, server: SocketStream) -> None:
        async with server:
            passage = Passage(client, server, None if self._cut_next is None else self._cut_next(self.cuts))
            self.passages.append(passage)
            with passage.scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._pump, passage, "up", server)
                    tasks.start_soon(self._pump, passage, "down", client)
            for stream in (client, server):
                with anyio.CancelScope(shield=True):
                    await anyio.aclose_forcefully(stream)

    async def _pump(self, passage: Passage, direction: Direction, sink: SocketStream) -> None:
        carried = passage.carried[direction]
        while True:
            room = passage.room(direction)
            if room is not None and room <= 0:
                self.cuts += not passage.scope.cancel_called  # both directions may have come to their end
                passage.end()
                return
            try:
                data = await passage.streams[direction].receive(4096 if room is None else min(room, 4096))
            except anyio.EndOfStream:
                data = b""
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                data = None
            await self._until_it_may_pass(direction)
            if passage.swallowed:
                await anyio.sleep_forever()  # until the relay is taken away
            try:
                if data == b"":
                    await sink.send_eof()
                    return
                if data is not None:
                    await sink.send(data)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                data = None
            if data is None:
                passage.end()
                return
            carried += data
            self._note()

    async def _until_it_may_pass(self, direction: Direction) -> None:
        while direction in self._silent:
            await self._changed.wait()

    def _note(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()


@asynccontextmanager
async def relay_to(url: str, *, cut_next: Callable[[int], Cut | None] | None = None) -> AsyncIterator[Relay]:
    """A relay to the `tcp://` URL of a gateway, as long as the block; `url` of the relay is where clients go instead."""
    relay = Relay(int(url.rpartition(":")[2]), cut_next=cut_next)
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        relay.url = f"tcp://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        tasks.start_soon(listener.serve, relay.attend)
        yield relay
        tasks.cancel_scope.cancel()
