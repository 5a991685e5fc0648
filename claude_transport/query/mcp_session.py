"""`McpSession`: one life of one in-process MCP server, from a handshake to the next, with the CLI at the other end.

Messages are handed over without waiting in either direction, so their order is the order in which they came, a server that
does not listen blocks nobody, and a withdrawn question can be passed on from a place that must not wait.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio
import anyio.lowlevel

from claude_transport.background import BackgroundTask
from claude_transport.printable import printable
from claude_transport.query.cancellation import guarded, meant_for_the_program, without_cancellation

if TYPE_CHECKING:
    from mcp.server import Server
    from mcp.shared.message import SessionMessage

__all__ = ["INTERNAL_ERROR", "McpCall", "McpSession", "OnFailure"]

logger: logging.Logger = logging.getLogger(__name__)

INTERNAL_ERROR = -32603
_INVALID_REQUEST = -32600
_CANCELLED = -32800
"""JSON-RPC error codes: "internal error", "invalid request", and the one the Language Server Protocol gave to cancelled requests."""

OnFailure = Callable[[str, BaseException], object]
"""Told what failed, and what it raised."""

_HANG_UP_GRACE = 2.0
_CANCEL_GRACE = 1.0
"""Seconds a server gets to end when its client has hung up, and then when it is cancelled: one that blocks in a thread or resists
its cancellation is not worth hanging for."""


class McpSession:
    """A JSON-RPC connection to `server`, whose own messages go to `tell(message)`.

    The server's lifespan is entered when the session begins and left when it ends: once for every handshake, that is at least
    once for every conversation. `after` is the session that this one replaces: it is ended first, so that two lives of a server
    within one conversation never overlap.
    """

    def __init__(
        self,
        name: str,
        server: Server[Any],
        *,
        tell: Callable[[dict[str, Any]], None],
        on_failure: OnFailure,
        after: McpSession | None = None,
    ) -> None:
        self._name = name
        self._server = server
        self._tell = tell
        self._on_failure = on_failure
        self._after = after
        self._waiting: dict[str | int, McpCall] = {}
        self._over = False
        # without a bound of its own: the CLI has only so many questions open at once
        self._to_server, self._from_cli = anyio.create_memory_object_stream[Any](math.inf)
        self._task = BackgroundTask.spawn(self._run, name=f"MCP server {name}", at_end=self._end)

    def accept(self, message: dict[str, Any]) -> McpCall:
        """Hand a message of the CLI to the server, at once; what comes of it is the call's to say."""
        request_id = message.get("id")
        if "method" not in message or request_id is None:
            self._note_cancellation(message)
            self._pass_on(message)
            return McpCall({"jsonrpc": "2.0", "result": {}})  # it needs no answer, but the control request around it does
        # the server's own parser takes a request with a strange id for a notification, and would never answer
        if not _is_id(request_id):
            return McpCall.failed(request_id, _INVALID_REQUEST, f"a request id is a string or an integer, not {request_id!r}")
        if request_id in self._waiting:
            return McpCall.failed(request_id, _INVALID_REQUEST, f"the request id {request_id!r} is already in use")
        if self._over:
            return McpCall.failed(request_id, INTERNAL_ERROR, self._gone)
        if not self._pass_on(message):
            return McpCall.failed(request_id, _INVALID_REQUEST, "this is no JSON-RPC request")
        call = self._waiting[request_id] = McpCall(on_withdrawal=lambda: self._withdraw(request_id, call))
        return call

    def _withdraw(self, request_id: str | int, call: McpCall) -> None:
        if self._waiting.get(request_id) is call:
            del self._waiting[request_id]
            self._pass_on({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}})

    async def aclose(self) -> None:
        """Hang up, and wait for the server to end; one that does not is cancelled, and given up in the end."""
        # hanging up first: a server that is cancelled could not await anything while it leaves its lifespan
        self._to_server.close()
        try:
            with anyio.move_on_after(_HANG_UP_GRACE, shield=True):
                await self._task.wait()
        finally:
            self._task.cancel()
        with anyio.move_on_after(_CANCEL_GRACE, shield=True):
            await self._task.wait()
        if not self._task.finished:
            logger.warning("the MCP server %r did not end in %g s and was given up", self._name, _HANG_UP_GRACE + _CANCEL_GRACE)

    async def _run(self) -> None:
        if self._after is not None:
            predecessor, self._after = self._after, None
            await predecessor.aclose()
        try:
            options = self._server.create_initialization_options()
            await guarded(self._server.run(self._from_cli, _ToCli(self._hear), options))
        except BaseException as exc:
            # a server is a callback, too: whatever it raises is noted, and calls are answered
            error = without_cancellation(exc)
            if error is None:
                raise
            self._on_failure(f"the MCP server {self._name!r}", error)
            if (exit_of_program := meant_for_the_program(error)) is not None:
                raise exit_of_program from None

    def _end(self) -> None:
        """Also when the task was cancelled before its first step."""
        self._over = True
        self._to_server.close()
        self._from_cli.close()
        for request_id in tuple(self._waiting):
            self._settle(request_id, _error(INTERNAL_ERROR, self._gone))

    @property
    def _gone(self) -> str:
        return f"the server {self._name!r} has ended"

    def _settle(self, request_id: str | int, outcome: Mapping[str, Any]) -> bool:
        """Give a call its answer, and with it the id free; False when nobody waits for it."""
        call = self._waiting.pop(request_id, None)
        if call is None:
            return False
        call.fill(_answer_to(request_id, outcome))
        return True

    def _hear(self, item: SessionMessage) -> None:
        """A message of the server: the answer somebody waits for, or something of its own."""
        message: dict[str, Any] = item.message.model_dump(by_alias=True, mode="json", exclude_none=True)
        if "method" in message:
            self._tell(message)
            return
        outcome: dict[str, Any] = {key: message[key] for key in ("result", "error") if key in message}
        if not self._settle(message.get("id", ""), outcome):
            logger.debug("the MCP server %r answered a request that nobody waits for: %s", self._name, printable(message.get("id")))

    def _note_cancellation(self, message: Mapping[str, Any]) -> None:
        """A cancelled request gets no answer from the server, but the control request around it still needs one."""
        params = message.get("params")
        if message.get("method") == "notifications/cancelled" and isinstance(params, dict) and _is_id(params.get("requestId")):
            self._settle(params["requestId"], _error(_CANCELLED, "cancelled"))

    def _pass_on(self, message: dict[str, Any]) -> bool:
        """Hand a message to the server; False when it is none. To a server that has ended it is of no interest."""
        from mcp.shared.message import SessionMessage
        from mcp.types import jsonrpc_message_adapter

        try:
            parsed = jsonrpc_message_adapter.validate_python(message)
        except ValueError:
            logger.warning("the CLI sent the MCP server %r something that is no JSON-RPC message", self._name)
            return False
        try:
            self._to_server.send_nowait(SessionMessage(parsed))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            logger.debug("the MCP server %r does not listen any more", self._name)
        return True


class _ToCli:
    """The server's writing side, as far as `mcp` uses it: what is sent is heard at once."""

    def __init__(self, hear: Callable[[SessionMessage], None]) -> None:
        self._hear = hear

    async def send(self, item: SessionMessage, /) -> None:
        # a server that reports progress in a tight loop must let others run; before, so that a cancelled send has sent nothing
        await anyio.lowlevel.checkpoint()
        self._hear(item)

    async def aclose(self) -> None:
        """There is nothing to close: the session ends when the server does."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None) -> None:
        return None


class McpCall:
    """One message of the CLI, from the moment it was handed to the server until it has its answer or is withdrawn."""

    def __init__(self, answer: dict[str, Any] | None = None, *, on_withdrawal: Callable[[], None] | None = None) -> None:
        self._answer = answer
        self._answered = anyio.Event()
        self._on_withdrawal = on_withdrawal

    @classmethod
    def failed(cls, request_id: object, code: int, text: str) -> McpCall:
        """A call that was over before it began."""
        return cls(_answer_to(request_id, _error(code, text)))

    def fill(self, answer: dict[str, Any]) -> None:
        """Here is the answer."""
        self._answer = answer
        self._answered.set()

    async def answer(self) -> dict[str, Any]:
        """The JSON-RPC answer to a request; an empty one for everything that needs none."""
        while self._answer is None:
            try:
                await self._answered.wait()
            except anyio.get_cancelled_exc_class():
                self.withdraw()
                raise
        return self._answer

    def withdraw(self) -> None:
        """Nobody waits for the answer any more; the server is told so, unless it has given it. Does not wait."""
        if self._answer is None and self._on_withdrawal is not None:
            self._on_withdrawal()


def _is_id(value: object) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool)


def _error(code: int, text: str) -> dict[str, Any]:
    """The part of a JSON-RPC answer that says what went wrong."""
    return {"error": {"code": code, "message": text}}


def _answer_to(request_id: Any, outcome: Mapping[str, Any]) -> dict[str, Any]:
    """A whole JSON-RPC answer, under the id of its request."""
    return {"jsonrpc": "2.0", "id": request_id, **outcome}
