"""Both ends of an in-process MCP server: the CLI, as it speaks to one over the control channel, and servers that do it wrong."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter
from peers import ForeignTransport, Frame, soon

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "claude-code", "version": "2.1.329"}}


class Cli:
    """The CLI's end of the control channel; `transport` goes to the Query."""

    def __init__(self, server: str = "box") -> None:
        self.transport = ForeignTransport()
        self.server = server
        self._asked = 0

    def say(self, message: Frame) -> str:
        """Send a JSON-RPC message to the server: the id of the control request around it."""
        self._asked += 1
        request_id = f"q{self._asked}"
        body = {"subtype": "mcp_message", "server_name": self.server, "message": {"jsonrpc": "2.0", **message}}
        self.transport.say({"type": "control_request", "request_id": request_id, "request": body})
        return request_id

    def call(self, tool: str, *, id: Any = 2, **arguments: Any) -> str:  # noqa: A002 - the wire's word
        params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": id}}
        return self.say({"id": id, "method": "tools/call", "params": params})

    def withdraw(self, request_id: str) -> None:
        self.transport.say({"type": "control_cancel_request", "request_id": request_id})

    def cancel(self, rpc_id: object) -> str:
        return self.say({"method": "notifications/cancelled", "params": {"requestId": rpc_id, "reason": "interrupted"}})

    async def reply(self, request_id: str) -> Frame:
        """The JSON-RPC answer: there is always one, and it is always inside of a success."""
        await soon(lambda: request_id in self.transport.responses())
        response = self.transport.responses()[request_id]
        assert response["subtype"] == "success", response
        answer: Frame = response["response"]["mcp_response"]
        return answer

    def replies(self, request_id: str) -> list[Frame]:
        """Every control response to this request; more than one is one too many."""
        frames = [frame["response"] for frame in self.transport.written if frame["type"] == "control_response"]
        return [response for response in frames if response["request_id"] == request_id]

    async def shake_hands(self) -> Frame:
        """As the CLI does: `initialize` under id 0, and then the notification."""
        reply = await self.reply(self.say({"id": 0, "method": "initialize", "params": HELLO}))
        await self.reply(self.say({"method": "notifications/initialized"}))
        return reply

    def told(self, method: str) -> list[Frame]:
        """What the server said by itself, with this method."""
        messages = [frame["request"]["message"] for frame in self.transport.requests("mcp_message")]
        return [message for message in messages if message["method"] == method]


class OddServer:
    """A server with a mind of its own: `act(self, message)` decides what becomes of everything but the handshake."""

    def __init__(self, act: Callable[[OddServer, Frame], Awaitable[object]]) -> None:
        self._act = act
        self._write: Any = None

    def create_initialization_options(self) -> object:
        return object()

    async def run(self, read: Any, write: Any, _options: object) -> None:
        self._write = write
        async for item in read:
            message = item.message.model_dump(by_alias=True, exclude_none=True)
            if message["method"] == "initialize":
                await self.answer(message["id"], protocolVersion="2025-11-25", capabilities={}, serverInfo={"name": "odd", "version": "1"})
            elif "initialized" not in message["method"]:
                await self._act(self, message)

    async def answer(self, rpc_id: object, **result: Any) -> None:
        await self.say({"id": rpc_id, "result": result})

    async def say(self, message: Frame) -> None:
        await self._write.send(SessionMessage(jsonrpc_message_adapter.validate_python({"jsonrpc": "2.0", **message})))
