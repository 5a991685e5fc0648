"""`BridgeConnection`: one bridge that was let in, and its conversation with one server, until either of them ends."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeGuard

import anyio
import msgspec
from anyio.abc import ByteSendStream, ByteStream, TaskGroup

from claude_transport.client.mcp import McpCall
from claude_transport.errors import ProtocolError
from claude_transport.protocol.framing import LineFramer

# --- `Outbox`: the lines that wait to be written to a bridge, bounded in bytes, written in batches.


DEFAULT_MAX_WAITING_BYTES: Final = 8 * 2**20
"""Bytes that wait for a bridge that does not read; after that, answers wait with their tools, and what needs no answer is dropped."""


class Outbox:
    """Lines for one bridge, in the order they came; one line may exceed the bound, since it has to go somewhere."""

    def __init__(self, *, max_waiting_bytes: int = DEFAULT_MAX_WAITING_BYTES) -> None:
        self._max_waiting_bytes = max_waiting_bytes
        self._lines: list[bytes] = []
        self._waiting_bytes = 0  # what is being written counts until it is written
        self._work = anyio.Event()
        self._room = anyio.Event()

    async def put(self, line: bytes) -> None:
        """Add a line; waits while there is no room."""
        while self._waiting_bytes >= self._max_waiting_bytes:
            await self._room.wait()
        self._add(line)

    def offer(self, line: bytes) -> bool:
        """Add a line if there is room for it, without waiting; False when there is none."""
        if self._waiting_bytes >= self._max_waiting_bytes:
            return False
        self._add(line)
        return True

    async def write_to(self, stream: ByteSendStream) -> None:
        """Write what comes, until cancelled, or until the stream breaks (what it raises)."""
        while True:
            while not self._lines:
                self._work = anyio.Event()
                await self._work.wait()
            batch, self._lines = b"".join(self._lines), []
            await stream.send(batch)
            self._waiting_bytes -= len(batch)
            self._room.set()
            self._room = anyio.Event()

    def _add(self, line: bytes) -> None:
        self._lines.append(line)
        self._waiting_bytes += len(line)
        self._work.set()


# --- JSON-RPC messages, one on each line, as MCP's stdio transport has them: read, written, and refused.


PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
"""JSON-RPC 2.0, section 5.1."""

HOST_GONE: Final = -32000
BUSY: Final = -32001
"""Of the range that JSON-RPC leaves to servers: the host cannot be reached (any more), and it has too much to do."""

CANCELLED: Final = -32800
"""What the Language Server Protocol calls a cancelled request."""


def decode_rpc(line: bytes) -> dict[str, Any] | None:
    """The JSON object on `line`; None when there is none, or none that can be read. Lone surrogates (JavaScript writes them) are kept."""
    try:
        found = msgspec.json.decode(line)
    except RecursionError:
        return None
    except ValueError:  # msgspec's own errors too; what it does not read for being no Unicode, Python's reader does
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            return None
    return found if isinstance(found, dict) else None


def encode_rpc(message: dict[str, Any]) -> bytes:
    """The message as a line, with its end."""
    try:
        return msgspec.json.encode(message) + b"\n"
    except ValueError:  # a lone surrogate: written as the escape it came as
        return json.dumps(message).encode("ascii") + b"\n"


def is_request_id(value: object) -> TypeGuard[str | int]:
    """Whether a request can have this id: a string or an integer (MCP leaves the rest of JSON-RPC's out)."""
    return isinstance(value, str | int) and not isinstance(value, bool)


def rpc_error(request_id: object, code: int, text: str, *, reason: str | None = None) -> dict[str, Any]:
    """A JSON-RPC answer that says what went wrong; `reason` is the stable code for programs, in `error.data.code`."""
    error: dict[str, Any] = {"code": code, "message": text}
    if reason is not None:
        error["data"] = {"code": reason}
    return {"jsonrpc": "2.0", "id": request_id, "error": error}


# --- The first line in each direction between a bridge and its host; from the second on, all lines are JSON-RPC messages.


GREETING_VERSION: Final = 1
MAX_GREETING_BYTES: Final = 4096
"""Bytes that somebody who has not shown a token yet may send."""

Refusal: TypeAlias = Literal["auth", "server", "busy", "version"]


class Greeting(msgspec.Struct, frozen=True, kw_only=True):
    """What a bridge says first."""

    mcp_bridge: int = GREETING_VERSION
    server: str
    token: str

    def __repr__(self) -> str:
        """Without the token."""
        return f"Greeting(server={self.server!r})"


class Welcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the host answers; `refused` is why not."""

    mcp_bridge: int
    refused: Refusal | None = None


def encode_greeting(greeting: Greeting | Welcome) -> bytes:
    """The line, with its end."""
    return msgspec.json.encode(greeting) + b"\n"


def decode_greeting(line: bytes) -> Greeting:
    """What a bridge said; `ProtocolError` for everything else. The line is not quoted: there may be a token in it."""
    try:
        return msgspec.json.decode(line, type=Greeting)
    except (ValueError, RecursionError):
        raise ProtocolError("this is not how a bridge begins", code="bridge.protocol") from None


def decode_welcome(line: bytes) -> Welcome:
    """What a host answered; `ProtocolError` for everything else."""
    try:
        return msgspec.json.decode(line, type=Welcome)
    except (ValueError, RecursionError):
        raise ProtocolError("what answered is not the host of a bridge", code="bridge.protocol") from None


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
