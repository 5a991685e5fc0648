"""`BridgeConnection`: one bridge that was let in, and its conversation with one server, until either of them ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

import anyio
from anyio.abc import ByteStream, TaskGroup

from claude_transport.bridge.outbox import Outbox
from claude_transport.bridge.rpc import (
    BUSY,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    decode_rpc,
    encode_rpc,
    is_request_id,
    rpc_error,
)
from claude_transport.protocol.framing import LineFramer
from claude_transport.query.mcp_session import McpCall

__all__ = ["BridgeConnection", "HostSession", "OpenSession"]

logger: logging.Logger = logging.getLogger(__name__)

_CLOSING: Final = 5.0
"""Seconds for a server to end when its bridge has gone, those that it gives itself included."""

_GONE = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)


class HostSession(Protocol):
    """One life of a server of the host, for one bridge."""

    def accept(self, message: dict[str, Any]) -> McpCall:
        """Hand it a message, without waiting; what comes of it is the call's to say."""
        ...

    async def aclose(self) -> None:
        """End it, tools and all; bounded."""
        ...


OpenSession = Callable[[Callable[[dict[str, Any]], None]], HostSession]
"""Makes the session, from what it is to tell its own messages to."""


class BridgeConnection:
    """Carries messages between `stream` and the session that `open_session` makes.

    At most `max_calls` requests are open at once; more are answered with an error, so that a cancellation is always read. A line of the
    bridge, and an answer to it, has at most `max_line_bytes` bytes.
    """

    def __init__(self, stream: ByteStream, *, open_session: OpenSession, max_calls: int, max_line_bytes: int) -> None:
        self._stream = stream
        self._max_calls = max_calls
        self._max_line_bytes = max_line_bytes
        self._outbox = Outbox()
        self._open: set[str | int] = set()
        self._cancelled: set[str | int] = set()
        self._dropped = 0
        self._session = open_session(self._tell)

    async def serve(self, framer: LineFramer, *, first: Iterable[bytes] = ()) -> None:
        """Return when the bridge has hung up or the caller is cancelled; the session is ended then, and its tools are cancelled.

        `framer` holds what was read behind the greeting, and `first` are lines that came with it.
        """
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._write, tasks)
                for line in first:
                    await self._take(line, tasks)
                await self._read(framer, tasks)
                tasks.cancel_scope.cancel()
        finally:
            if self._dropped:
                logger.warning("a bridge did not read: %d messages that need no answer were dropped", self._dropped)
            with anyio.move_on_after(_CLOSING, shield=True):
                await self._session.aclose()

    async def _write(self, tasks: TaskGroup) -> None:
        try:
            await self._outbox.write_to(self._stream)
        except _GONE:
            tasks.cancel_scope.cancel()

    async def _read(self, framer: LineFramer, tasks: TaskGroup) -> None:
        while True:
            try:
                chunk = await self._stream.receive()
            except _GONE:
                return
            for line in framer.feed(chunk):
                await self._take(line, tasks)

    async def _take(self, line: bytes, tasks: TaskGroup) -> None:
        message = decode_rpc(line)
        if message is None:
            await self._outbox.put(encode_rpc(rpc_error(None, PARSE_ERROR, "this is no JSON object, or it is too long")))
            return
        request_id = message.get("id")
        if "method" not in message or "id" not in message:
            self._note_cancellation(message)
            self._session.accept(message)
        elif not is_request_id(request_id):
            await self._outbox.put(encode_rpc(rpc_error(None, INVALID_REQUEST, "a request id is a string or an integer")))
        elif request_id in self._open:
            # answered under the same id, it would be taken for the answer of the first
            await self._outbox.put(encode_rpc(rpc_error(None, INVALID_REQUEST, f"the request id {request_id!r} is already in use")))
        elif len(self._open) >= self._max_calls:
            text = f"the host has {self._max_calls} calls of this bridge to answer already"
            await self._outbox.put(encode_rpc(rpc_error(request_id, BUSY, text, reason="bridge.busy")))
        else:
            self._open.add(request_id)
            tasks.start_soon(self._answer, request_id, self._session.accept(message))

    def _note_cancellation(self, message: dict[str, Any]) -> None:
        params = message.get("params")
        if message.get("method") == "notifications/cancelled" and isinstance(params, dict):
            request_id = params.get("requestId")
            if is_request_id(request_id) and request_id in self._open:
                self._cancelled.add(request_id)

    async def _answer(self, request_id: str | int, call: McpCall) -> None:
        answer = await call.answer()
        self._open.discard(request_id)
        if request_id in self._cancelled:  # MCP: a cancelled request gets no answer
            self._cancelled.discard(request_id)
            return
        await self._outbox.put(self._line_of(request_id, answer))

    def _line_of(self, request_id: str | int, answer: dict[str, Any]) -> bytes:
        try:
            line = encode_rpc(answer)
        except (TypeError, ValueError) as exc:
            logger.error("an answer of a host's tool cannot be written as JSON: %s", type(exc).__name__)  # noqa: TRY400 - it quotes the answer
            return encode_rpc(rpc_error(request_id, INTERNAL_ERROR, "the tool's answer cannot be written as JSON"))
        if len(line) > self._max_line_bytes:
            text = f"the answer has {len(line)} bytes, more than the {self._max_line_bytes} that this host hands on"
            return encode_rpc(rpc_error(request_id, INTERNAL_ERROR, text, reason="bridge.too_large"))
        return line

    def _tell(self, message: dict[str, Any]) -> None:
        """A message of the server's own. One that asks something and cannot be passed on is left to the server's patience."""
        if not self._outbox.offer(encode_rpc(message)):
            self._dropped += 1
