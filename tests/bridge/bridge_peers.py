"""Clients for the tests of a bridge: the CLI's end of a stdio MCP server, and a connection to the host without a bridge."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.abc import ByteStream

from claude_transport.bridge.configuration import BridgeWelcome, Greeting, decode_welcome, encode_greeting, read_bridge_settings
from claude_transport.protocol.framing import LineFramer
from claude_transport.streams.process import ProcessConnectable
from claude_transport.streams.sockets import SocketConnectable

PATIENCE = 30.0  # seconds; a hang fails instead of hanging the suite
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "claude-code", "version": "2.1.329"}}


class Client:
    """An MCP client over a byte stream of lines."""

    def __init__(self, stream: ByteStream) -> None:
        self.stream = stream
        self._framer = LineFramer()
        self._lines: list[bytes] = []
        self.heard: list[dict[str, Any]] = []
        """All messages so far, in order."""

    async def line(self) -> bytes:
        """Wait for the next line."""
        with anyio.fail_after(PATIENCE):
            while not self._lines:
                self._lines = self._framer.feed(await self.stream.receive())
        return self._lines.pop(0)

    async def next(self) -> dict[str, Any]:
        """Wait for the next message."""
        self.heard.append(json.loads(await self.line()))
        return self.heard[-1]

    async def send(self, *lines: bytes) -> None:
        await self.stream.send(b"".join(line + b"\n" for line in lines))

    async def say(self, method: str, *, id: Any = None, **params: Any) -> None:  # noqa: A002 - the wire's word
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        await self.send(json.dumps(message if id is None else {**message, "id": id}).encode())

    async def ask(self, method: str, *, id: Any = 1, **params: Any) -> dict[str, Any]:  # noqa: A002 - the wire's word
        """Send a request and return its answer; messages before it are in `heard`."""
        await self.say(method, id=id, **params)
        return await self.answer(id)

    async def answer(self, request_id: Any) -> dict[str, Any]:
        while True:
            message = await self.next()
            if "method" not in message and message.get("id") == request_id:
                return message

    async def call(self, tool: str, *, id: Any = 2, **arguments: Any) -> dict[str, Any]:  # noqa: A002 - the wire's word
        return await self.ask("tools/call", id=id, name=tool, arguments=arguments, _meta={"progressToken": id})

    async def shake_hands(self) -> dict[str, Any]:
        answer = await self.ask("initialize", id=0, **HELLO)
        await self.say("notifications/initialized")
        return answer


@asynccontextmanager
async def bridge_process(config: Mapping[str, Any]) -> AsyncIterator[Client]:
    """The program of the bridge, started as the CLI starts it from an entry of `mcp_servers`."""
    package = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}  # the program is that of this package
    env = {"PATH": "/usr/bin:/bin", **package, **config["env"]}
    with anyio.fail_after(2 * PATIENCE):
        stream = await ProcessConnectable([config["command"], *config["args"]], env=env).connect()
        try:
            yield Client(stream)
        finally:
            await stream.aclose()


@asynccontextmanager
async def knock(
    config: Mapping[str, Any], *, token: str | None = None, server: str | None = None
) -> AsyncIterator[tuple[Client, BridgeWelcome]]:
    """A connection to the host without a bridge, and the host's answer to the greeting."""
    settings = read_bridge_settings(config["env"])
    with anyio.fail_after(2 * PATIENCE):
        stream = await SocketConnectable(settings.address).connect()
        try:
            client = Client(stream)
            await stream.send(encode_greeting(Greeting(server=server or settings.server, token=token or settings.token)))
            yield client, decode_welcome(await client.line())
        finally:
            await stream.aclose()


def text_of(answer: Mapping[str, Any]) -> str:
    """Return the text of a tool's result."""
    return "".join(block["text"] for block in answer["result"]["content"])
