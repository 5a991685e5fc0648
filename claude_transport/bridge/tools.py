"""`HostTool`: a function of the host that a model may call, and `ToolContext`, what it knows of the call."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from claude_transport.errors import ConfigurationError

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


class ToolContext:
    """One call of a tool: its name, the JSON-RPC id it has, and a way to say how far it is."""

    def __init__(self, tool: str, *, request_id: str | int, tell_progress: Callable[[dict[str, Any]], None] | None) -> None:
        self.tool = tool
        self.request_id = request_id
        self._tell_progress = tell_progress

    def report_progress(self, done: float, *, total: float | None = None, message: str | None = None) -> None:
        """Say how far the call is; without effect when the caller did not ask to be told. Does not wait."""
        if self._tell_progress is not None:
            told = {"progress": done, "total": total, "message": message}
            self._tell_progress({name: value for name, value in told.items() if value is not None})


ToolFunction: TypeAlias = Callable[[dict[str, Any], ToolContext], Awaitable[Any]]


class HostTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool for `BridgeHost` without the package `mcp`: an async function, and the schema of what it takes.

    `call(arguments, context)` returns what the model gets: a text; a mapping (structured content, and the same as JSON text); a list of
    content blocks as MCP has them; or None. What it raises is a failed tool with the text of the exception; a cancelled call is
    cancelled. `input_schema` is a JSON schema of an object; only its `required` is checked here, the rest is for the model.
    `read_only` lets the CLI call it beside others.
    """

    name: str
    call: ToolFunction
    description: str = ""
    input_schema: Mapping[str, Any] = msgspec.field(default_factory=lambda: {"type": "object"})
    read_only: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ConfigurationError(f"a tool is named by 1 to 128 letters, digits and _ . -, not by {self.name!r}", option="name")
        if not callable(self.call):
            raise ConfigurationError(f"the tool {self.name!r} cannot be called", option="call")
        if not isinstance(self.input_schema, Mapping) or self.input_schema.get("type") != "object":
            raise ConfigurationError(
                f'the input_schema of {self.name!r} describes an object: {{"type": "object", ...}}', option="input_schema"
            )

    def described(self) -> dict[str, Any]:
        """As `tools/list` has it."""
        words = self.description or inspect.getdoc(self.call) or ""
        whole: dict[str, Any] = {"name": self.name, "description": words, "inputSchema": dict(self.input_schema)}
        return {**whole, "annotations": {"readOnlyHint": True}} if self.read_only else whole

    def missing(self, arguments: Mapping[str, Any]) -> list[str]:
        """The names of required arguments that are not there."""
        required = self.input_schema.get("required", ())
        return [name for name in required if name not in arguments]


def result_of(returned: object) -> dict[str, Any]:
    """What a tool has returned, as the result of `tools/call`; `TypeError` for what cannot be told to a model."""
    match returned:
        case None:
            return {"content": []}
        case str():
            return {"content": [{"type": "text", "text": returned}]}
        case Mapping():
            return {"content": [{"type": "text", "text": json.dumps(returned, ensure_ascii=False)}], "structuredContent": dict(returned)}
        case Sequence() if all(isinstance(block, Mapping) and isinstance(block.get("type"), str) for block in returned):
            return {"content": [dict(block) for block in returned]}
    raise TypeError(f"a tool returns a text, a mapping, content blocks or None, not {type(returned).__name__}")
