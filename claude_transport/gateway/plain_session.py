"""`PlainSession`: bare lines both ways, as the CLI speaks them; the process ends with its connection."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import ClassVar, Final

import anyio
from anyio.abc import ByteStream

from claude_transport.errors import ClaudeTransportError, ProcessError, TransportClosed, TruncatedStream
from claude_transport.gateway.session import GONE, Session, Surroundings, close_quietly
from claude_transport.gateway.turned_away import TurnedAway
from claude_transport.protocol.envelope import encode_line
from claude_transport.transport import Transport

_CHUNK_BYTES: Final = 64 * 2**10
_LINGER: Final = 2.0
"""Seconds for the client to take the last words and hang up: a socket closed over unread input would destroy them on their way."""


class PlainSession(Session):
    """Carries lines between one connection and one process until either ends."""

    mode: ClassVar[str] = "plain"

    def __init__(self, transport: Transport, *, surroundings: Surroundings, on_end: Callable[[Session], object]) -> None:
        super().__init__(transport, surroundings=surroundings, on_end=on_end)
        self._attached = False
        self._over = anyio.Event()
        self._reported = False
        self._scope = anyio.CancelScope()

    @property
    def attached(self) -> bool:
        """Whether its connection is there; without it, there is soon no session."""
        return self._attached

    async def close(self, reason: str) -> None:
        """End the process; the connection ends after its last words."""
        self._note_end(reason)
        await self.transport.close()
        with anyio.move_on_after(_LINGER):
            await self._over.wait()
        self._scope.cancel()  # the client does not take them
        await self._over.wait()

    async def attend(self, stream: ByteStream, unread: bytes) -> None:
        """Serve the connection until process or client ends; `unread` is what the client has said already. Closes the process.

        Raises:
            TurnedAway: the client did what it may not; it was told, and the process ended.
        """
        self._attached = True
        refused: list[TurnedAway] = []
        try:
            with self._scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._listen, stream, unread, refused)
                    await self._speak(stream, refused)
                    tasks.cancel_scope.cancel()
                await self._process_over()
                with anyio.move_on_after(_LINGER):
                    await _end_politely(stream, refused)
        finally:
            self._attached = False
            await self._process_over()
            self._over.set()
        if refused:
            raise refused[0]

    async def _process_over(self) -> None:
        await close_quietly(self.transport)
        if not self._reported:
            self._reported = True
            self._note_end("ended")
            self._on_end(self)  # not after the last words: who does not hang up must not keep a place

    async def _listen(self, stream: ByteStream, unread: bytes, refused: list[TurnedAway]) -> None:
        try:
            if unread:
                await self.take_input(unread)
            while True:
                try:
                    chunk = await stream.receive(_CHUNK_BYTES)
                except anyio.EndOfStream:
                    await self.end_input()
                    return
                await self.take_input(chunk)
        except TurnedAway as exc:
            refused.append(exc)
            self._note_end(exc.reason)
            await close_quietly(self.transport)
        except TransportClosed:
            return  # the process has ended; who listens to it knows how
        except (*GONE, ClaudeTransportError):
            self._note_end("client")
            await close_quietly(self.transport)

    async def _speak(self, stream: ByteStream, refused: list[TurnedAway]) -> None:
        """Send what the process says until it has ended."""
        try:
            async for batch in self.transport.read_lines():
                await stream.send(b"\n".join(batch) + b"\n")
                self.count_output(batch)
        except TurnedAway as exc:
            refused.append(exc)
            self._note_end(exc.reason)
        except (TruncatedStream, ProcessError) as exc:
            torn = exc if isinstance(exc, TruncatedStream) else exc.__cause__
            if isinstance(torn, TruncatedStream):
                await _send_quietly(stream, torn.bytes_tail)
            if isinstance(exc, ProcessError):
                self._note_end("failed")
                self.log(logging.WARNING, "process_failed", f"{exc}", exit_code=exc.exit_code, signal=exc.signal)
        except GONE:
            self._note_end("client")
        except ClaudeTransportError as exc:
            self._note_end("failed")
            self.log(logging.WARNING, "process_failed", f"{type(exc).__name__} while reading from it")


def plain_refusal(refused: TurnedAway) -> bytes:
    """The line that tells a client in plain mode why it is turned away."""
    error = {"code": refused.reason, "message": str(refused), "retryable": refused.retryable}
    return encode_line({"type": "system", "subtype": "refused", "error": error})


async def _end_politely(stream: ByteStream, refused: list[TurnedAway]) -> None:
    try:
        if refused:
            await stream.send(plain_refusal(refused[0]))
        await stream.send_eof()
        while True:
            await stream.receive(_CHUNK_BYTES)  # what comes now is for nobody
    except (*GONE, ClaudeTransportError):
        return  # nobody is refused for how they hang up


async def _send_quietly(stream: ByteStream, data: bytes) -> None:
    try:
        await stream.send(data)
    except GONE:
        return
