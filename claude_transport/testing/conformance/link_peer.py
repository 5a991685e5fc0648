"""`LinkPeer`: the peer behind a resumable link. It speaks the server's side of the protocol; the kit plays the process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream

from claude_transport.link.carrier import LinkCarrier, LinkInbox
from claude_transport.link.machine import (
    LINK_VERSION,
    Bye,
    Data,
    End,
    Hello,
    LinkEnd,
    LinkEvent,
    Refusal,
    Welcome,
    decode_frame,
    encode_frame,
)
from claude_transport.loops.current import Wakeup
from claude_transport.testing.conformance.subject import Peer

_SESSION = "the-only-session"

_CHUNK_BYTES = 64 * 2**10
"""Bytes that are sent or read at once."""


class LinkPeer(Peer):
    """A server of one session. `serve()` gets each connection; the newest one is used.

    `lease` is the promised lease in seconds. `heartbeat` are the seconds of silence before it asks for a sign of life. `failure` is the
    exit code of `fail()`. `window` and `replay_bytes` bound the bytes on their way to the peer and from it.
    """

    def __init__(
        self, *, window: int = 65536, replay_bytes: int = 65536, lease: float = 60.0, heartbeat: float = 15.0, failure: int = 3
    ) -> None:
        super().__init__()
        self.end: LinkEnd = LinkEnd(window=window, replay_bytes=replay_bytes)
        self.hellos: list[Hello] = []
        self.refusal: Refusal | None = None
        self._lease = lease
        self._failure = failure
        self._changed = Wakeup()
        self._carrier = LinkCarrier(self.end, on_event=self._on_event, on_chunk=self._changed.fire, heartbeat=heartbeat)
        self._reads = True
        self._stays = False
        self._unread = LinkInbox()
        self._connection = anyio.CancelScope()
        self._one_at_a_time = anyio.Lock()

    @asynccontextmanager
    async def listening(self, accept: Callable[[], Awaitable[ByteStream]]) -> AsyncIterator[LinkPeer]:
        """Serve every connection that `accept()` returns, until the end of the block."""
        async with anyio.create_task_group() as tasks:

            async def listen() -> None:
                while True:
                    tasks.start_soon(self.serve, await accept())

            tasks.start_soon(listen)
            try:
                yield self
            finally:
                tasks.cancel_scope.cancel()

    async def serve(self, stream: ByteStream) -> None:
        """Answer the hello, then carry the session over this connection until it is cut or replaced."""
        try:
            said = b""
            while b"\n" not in said:
                said += await stream.receive()
            line, _, unread = said.partition(b"\n")
            hello = decode_frame(line)
            if not isinstance(hello, Hello):
                return
            self.hellos.append(hello)
            if self.refusal is None and hello.session not in {None, _SESSION}:
                self.refusal = Refusal(code="session", text="there is no such session")
            if self.refusal is not None:
                await stream.send(encode_frame(self.refusal))
                return
            self._connection.cancel()
            # the connection before it must release the link first, or it would disconnect this one
            async with self._one_at_a_time:
                with anyio.CancelScope() as self._connection:
                    await self._carry(stream, hello, unread)
        except (anyio.EndOfStream, anyio.BrokenResourceError, OSError):
            pass  # cut during the handshake; the client may connect again
        finally:
            await anyio.aclose_forcefully(stream)

    async def _carry(self, stream: ByteStream, hello: Hello, unread: bytes) -> None:
        end = self.end
        welcome = Welcome(
            version=LINK_VERSION,
            session=_SESSION,
            lease=self._lease,
            received=end.received,
            replay_from=end.replay_from,
            window=end.window,
        )
        end.resume(received=hello.received, replay_from=hello.replay_from, window=hello.window)
        await stream.send(encode_frame(welcome))
        await self._carrier.carry(stream, unread=unread)

    def _on_event(self, event: LinkEvent) -> None:
        match event:
            case Data(_, data):
                self._unread.put(data)
            case End() | Bye():
                if self._reads:
                    self._read()
                self.input_over()
                if not self._stays:
                    self.end.end_process(exit_code=0)
        if self._reads:
            self._read()
        self._carrier.wake()

    def _read(self) -> None:
        while self._unread:
            self.take(self._unread.take(_CHUNK_BYTES))
        self.end.consume(self.end.received)
        self._carrier.acknowledge_soon()

    def cut(self) -> None:
        """Cut the current connection; the session goes on."""
        self._connection.cancel()

    async def send(self, data: bytes) -> None:
        """Send `data`. Waits while too many sent bytes are not acknowledged."""
        for start in range(0, len(data), _CHUNK_BYTES):
            while not self.end.has_room:
                await self._changed.wait()
            self.end.send(data[start : start + _CHUNK_BYTES])
            self._carrier.wake()

    async def finish(self) -> None:
        """Exit with 0."""
        self._exit(0)
        await anyio.lowlevel.checkpoint()

    async def fail(self) -> None:
        """Exit with the code `failure`."""
        self._exit(self._failure)
        await anyio.lowlevel.checkpoint()

    def _exit(self, code: int) -> None:
        self.end.end_process(exit_code=code, stderr_tail="that was all" if code else "")
        self._carrier.wake()

    async def stop_reading(self) -> None:
        """Stop acknowledging what arrives."""
        self._reads = False
        await anyio.lowlevel.checkpoint()

    async def resume_reading(self) -> None:
        """Read and acknowledge again."""
        self._reads = True
        self._read()
        self._carrier.wake()
        await anyio.lowlevel.checkpoint()

    async def persist(self) -> None:
        """Stay when the input ends and when the client asks it to exit."""
        self._stays = True
        await anyio.lowlevel.checkpoint()
