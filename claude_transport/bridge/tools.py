"""`HostTool`: a function of this program that a model may call; and the MCP server for a list of them, without the package `mcp`."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final, TypeAlias

import anyio
import msgspec

from claude_transport.bridge.configuration import (
    CANCELLED,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    is_request_id,
    rpc_error,
)
from claude_transport.client.mcp import McpCall, OnFailure
from claude_transport.errors import ConfigurationError
from claude_transport.exchange.failures import guarded
from claude_transport.loops.background import LoopTask

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


class ToolContext:
    """One call of a tool. The host makes it and passes it to the function of a `HostTool`, as the second argument.

    `tool` is the name of the tool, `request_id` the JSON-RPC id of the call. `tell_progress` sends a progress report to the CLI; None when
    the CLI did not ask for progress.
    """

    def __init__(self, tool: str, *, request_id: str | int, tell_progress: Callable[[dict[str, Any]], None] | None) -> None:
        self.tool = tool
        self.request_id = request_id
        self._tell_progress = tell_progress

    def report_progress(self, done: float, *, total: float | None = None, message: str | None = None) -> None:
        """Tell the CLI how far this call is. Never waits. Does nothing when the CLI did not ask for progress.

        Args:
            done: how much is done, in any unit.
            total: how much there is to do, in the same unit; None when unknown.
            message: a text about what is being done.
        """
        if self._tell_progress is not None:
            told = {"progress": done, "total": total, "message": message}
            self._tell_progress({name: value for name, value in told.items() if value is not None})


ToolFunction: TypeAlias = Callable[[dict[str, Any], ToolContext], Awaitable[Any]]


class HostTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool for `BridgeHost`: an async function of this program that the model may call. It does not need the package `mcp`.

    * `name`: 1 to 128 letters, digits and `_ . -`.
    * `call`: called as `await call(arguments, context)`. It returns what the model gets: a text, a mapping (structured content, also given
      as JSON text), a list of MCP content blocks, or None. An exception becomes a failed tool result with its text. When the CLI cancels
      the call, the function is cancelled.
    * `description`: for the model; by default the docstring of `call`.
    * `input_schema`: JSON schema of an object. Only its `required` is checked here; the rest is for the model.
    * `read_only`: tells the CLI that the tool changes nothing, so it may run beside other tools.

    Raises:
        ConfigurationError: a field is not valid.
    """

    name: str
    call: ToolFunction
    description: str = ""
    input_schema: Mapping[str, Any] = msgspec.field(default_factory=lambda: {"type": "object"})
    read_only: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ConfigurationError(
                f"{self.name!r} is not a valid name of a tool: use 1 to 128 letters, digits and the characters _ . -", option="name"
            )
        if not callable(self.call):
            raise ConfigurationError(f"the tool {self.name!r} cannot be called: give an async function", option="call")
        if not isinstance(self.input_schema, Mapping) or self.input_schema.get("type") != "object":
            raise ConfigurationError(
                f'the input_schema of {self.name!r} does not describe an object: begin with {{"type": "object", ...}}',
                option="input_schema",
            )

    def described(self) -> dict[str, Any]:
        """Return what the CLI is told about this tool: its entry in the MCP answer to `tools/list`.

        It has the name, the description, the input schema, and with `read_only` a hint about that.
        """
        words = self.description or inspect.getdoc(self.call) or ""
        whole: dict[str, Any] = {"name": self.name, "description": words, "inputSchema": dict(self.input_schema)}
        return {**whole, "annotations": {"readOnlyHint": True}} if self.read_only else whole

    def missing(self, arguments: Mapping[str, Any]) -> list[str]:
        """Return the names of arguments that the `input_schema` requires and that `arguments` does not have.

        The host calls it before each call. When names are missing, the CLI gets an error, and the tool is not called.
        """
        required = self.input_schema.get("required", ())
        return [name for name in required if name not in arguments]


def _result_of(returned: object) -> dict[str, Any]:
    """Return the result of `tools/call` for what a tool returned. Raise `TypeError` for a value that MCP cannot carry."""
    match returned:
        case None:
            return {"content": []}
        case str():
            return {"content": [{"type": "text", "text": returned}]}
        case Mapping():
            return {"content": [{"type": "text", "text": json.dumps(returned, ensure_ascii=False)}], "structuredContent": dict(returned)}
        case Sequence() if all(isinstance(block, Mapping) and isinstance(block.get("type"), str) for block in returned):
            return {"content": [dict(block) for block in returned]}
    raise TypeError(f"a tool returned {type(returned).__name__}: return a text, a mapping, content blocks or None")


PROTOCOL_VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Versions of MCP, the newest first. Listing and calling tools is the same in all of them."""

_GRACE: Final = 3.0
"""Seconds for cancelled tools to end when their bridge has gone."""


class ToolsSession:
    """The MCP server for a list of `HostTool`s and one bridge.

    Args:
        name: the name of the server.
        tools: the tools by name.
        tell: sends a message (progress) to the bridge.
        on_failure: called with a description and the exception of a tool that failed.
    """

    def __init__(self, name: str, tools: Mapping[str, HostTool], *, tell: Callable[[dict[str, Any]], None], on_failure: OnFailure) -> None:
        self._name = name
        self._tools = tools
        self._tell = tell
        self._on_failure = on_failure
        self._running: dict[str | int, LoopTask] = {}

    def accept(self, message: dict[str, Any]) -> McpCall:
        """Take a JSON-RPC message of the CLI, without waiting. Return a call whose `answer()` waits for the answer."""
        request_id, method = message.get("id"), message.get("method")
        given = message.get("params")
        params = given if isinstance(given, dict) else {}
        if "id" not in message or method is None:
            if method == "notifications/cancelled":
                self._cancel(params.get("requestId"))
            return McpCall({})  # other notifications need nothing, and this server asks no questions
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
        """Cancel the running tools, and wait a moment for them."""
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
            return McpCall.failed(request_id, INVALID_PARAMS, "the arguments of a tool must be an object")
        if missing := tool.missing(arguments):
            return McpCall.failed(request_id, INVALID_PARAMS, f"{tool.name} needs {', '.join(map(str, missing))}")
        if request_id in self._running:
            return McpCall.failed(request_id, INVALID_REQUEST, f"the request id {request_id!r} is already in use")
        outcome: list[dict[str, Any]] = []
        call = McpCall(on_withdrawal=lambda _: self._cancel(request_id))

        async def work() -> None:
            outcome.append({"jsonrpc": "2.0", "id": request_id, "result": await self._result(tool, arguments, request_id, params)})

        def end() -> None:
            self._running.pop(request_id, None)
            call.fill(outcome[0] if outcome else rpc_error(request_id, CANCELLED, "cancelled"))

        self._running[request_id] = LoopTask.spawn(work, name=f"tool {tool.name}", at_end=end)
        return call

    async def _result(self, tool: HostTool, arguments: dict[str, Any], request_id: str | int, params: Mapping[str, Any]) -> dict[str, Any]:
        meta = params.get("_meta")
        progress_token = meta.get("progressToken") if isinstance(meta, dict) else None

        def tell_progress(told: dict[str, Any]) -> None:
            self._tell({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": progress_token, **told}})

        context = ToolContext(tool.name, request_id=request_id, tell_progress=None if progress_token is None else tell_progress)
        try:
            return _result_of(await guarded(tool.call(arguments, context)))
        except Exception as exc:  # noqa: BLE001 - the tool's exception is reported to the host and to the model
            self._on_failure(f"the tool {tool.name!r} of {self._name!r}", exc)
            return {"content": [{"type": "text", "text": str(exc) or type(exc).__name__}], "isError": True}

    def _cancel(self, request_id: object) -> None:
        task = self._running.get(request_id) if is_request_id(request_id) else None
        if task is not None:
            task.cancel()


def _answered(request_id: str | int, result: dict[str, Any]) -> McpCall:
    return McpCall({"jsonrpc": "2.0", "id": request_id, "result": result})
