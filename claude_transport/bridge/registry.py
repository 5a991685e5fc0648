"""`RegistrySession`: the MCP server that a plain registry of functions is for one bridge, without the package `mcp`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any, Final

import anyio

from claude_transport.background import BackgroundTask
from claude_transport.bridge.rpc import (
    CANCELLED,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    is_request_id,
    rpc_error,
)
from claude_transport.bridge.tools import HostTool, ToolContext, result_of
from claude_transport.query.cancellation import guarded
from claude_transport.query.mcp_session import McpCall, OnFailure

__all__ = ["PROTOCOL_VERSIONS", "RegistrySession"]

PROTOCOL_VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Of MCP, newest first: in all of them tools are listed and called alike."""

_GRACE: Final = 3.0
"""Seconds that cancelled tools get to end when their bridge has gone; one that resists is not worth hanging for."""


class RegistrySession:
    """One bridge's conversation with `tools`; what they say of their progress goes to `tell(message)`."""

    def __init__(self, name: str, tools: Mapping[str, HostTool], *, tell: Callable[[dict[str, Any]], None], on_failure: OnFailure) -> None:
        self._name = name
        self._tools = tools
        self._tell = tell
        self._on_failure = on_failure
        self._running: dict[str | int, BackgroundTask] = {}

    def accept(self, message: dict[str, Any]) -> McpCall:
        """Hand it a message of the CLI; what comes of it is the call's to say."""
        request_id, method = message.get("id"), message.get("method")
        given = message.get("params")
        params = given if isinstance(given, dict) else {}
        if "id" not in message or method is None:
            if method == "notifications/cancelled":
                self._cancel(params.get("requestId"))
            return McpCall({})  # a notification, or the answer to a question that was never asked
        if not is_request_id(request_id):
            return McpCall.failed(request_id, INVALID_REQUEST, "a request id is a string or an integer")
        match method:
            case "initialize":
                return _answered(request_id, self._introduction(params.get("protocolVersion")))
            case "ping":
                return _answered(request_id, {})
            case "tools/list":
                return _answered(request_id, {"tools": [tool.described() for tool in self._tools.values()]})
            case "tools/call":
                return self._call(request_id, params)
        return McpCall.failed(request_id, METHOD_NOT_FOUND, "Method not found")

    async def aclose(self) -> None:
        """Cancel the tools that still run, and wait for them."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        with anyio.move_on_after(_GRACE, shield=True):
            for task in running:
                await task.wait()

    def _introduction(self, wanted: object) -> dict[str, Any]:
        return {
            "protocolVersion": wanted if wanted in PROTOCOL_VERSIONS else PROTOCOL_VERSIONS[0],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": self._name, "version": version("claude-transport")},
        }

    def _call(self, request_id: str | int, params: Mapping[str, Any]) -> McpCall:
        name = params.get("name")
        tool = self._tools.get(name) if isinstance(name, str) else None
        arguments = params.get("arguments", {})
        if tool is None:
            return McpCall.failed(request_id, INVALID_PARAMS, f"there is no tool {str(name)[:128]!r}")
        if not isinstance(arguments, dict):
            return McpCall.failed(request_id, INVALID_PARAMS, "the arguments of a tool are an object")
        if missing := tool.missing(arguments):
            return McpCall.failed(request_id, INVALID_PARAMS, f"{tool.name} needs {', '.join(map(str, missing))}")
        if request_id in self._running:
            return McpCall.failed(request_id, INVALID_REQUEST, f"the request id {request_id!r} is already in use")
        outcome: list[dict[str, Any]] = []
        call = McpCall(on_withdrawal=lambda: self._cancel(request_id))

        async def work() -> None:
            outcome.append({"jsonrpc": "2.0", "id": request_id, "result": await self._result(tool, arguments, request_id, params)})

        def end() -> None:
            self._running.pop(request_id, None)
            call.fill(outcome[0] if outcome else rpc_error(request_id, CANCELLED, "cancelled"))

        self._running[request_id] = BackgroundTask.spawn(work, name=f"tool {tool.name}", at_end=end)
        return call

    async def _result(self, tool: HostTool, arguments: dict[str, Any], request_id: str | int, params: Mapping[str, Any]) -> dict[str, Any]:
        meta = params.get("_meta")
        progress_token = meta.get("progressToken") if isinstance(meta, dict) else None

        def tell_progress(told: dict[str, Any]) -> None:
            self._tell({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": progress_token, **told}})

        context = ToolContext(tool.name, request_id=request_id, tell_progress=None if progress_token is None else tell_progress)
        try:
            return result_of(await guarded(tool.call(arguments, context)))
        except Exception as exc:  # noqa: BLE001 - a tool is a callback: whatever it raises is noted, and told to the model
            self._on_failure(f"the tool {tool.name!r} of {self._name!r}", exc)
            return {"content": [{"type": "text", "text": str(exc) or type(exc).__name__}], "isError": True}

    def _cancel(self, request_id: object) -> None:
        task = self._running.get(request_id) if is_request_id(request_id) else None
        if task is not None:
            task.cancel()


def _answered(request_id: str | int, result: dict[str, Any]) -> McpCall:
    return McpCall({"jsonrpc": "2.0", "id": request_id, "result": result})
