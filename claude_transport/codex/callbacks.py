"""What Codex asks this program during a turn: approvals, and calls of the program's own tools. Everything else is refused.

Approvals fail closed: whatever goes wrong with the callback, the answer is `decline`. How a conversation runs is in `codex.session`.
"""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias, runtime_checkable

import anyio

from claude_transport.codex.messages import ApprovalRequest, CodexMessage, CodexRequest, RequestId, ToolCallRequest
from claude_transport.errors import ConfigurationError, JSONRPCError
from claude_transport.exchange.arguments import check_callback
from claude_transport.exchange.failures import CallbackFailures, guarded, without_cancellation
from claude_transport.loggers import logger_for
from claude_transport.text.printable import printable

logger: logging.Logger = logger_for(__name__)

ApprovalDecision: TypeAlias = Literal["accept", "accept_for_session", "decline", "cancel"]
"""What `on_approval` returns. The first two allow it, the second one also for the same question later on. The last two refuse it: the turn
goes on, or ends.
"""

OnApproval: TypeAlias = Callable[[ApprovalRequest], Awaitable[ApprovalDecision]]

_ON_THE_WIRE: Final[Mapping[str, str]] = {
    "accept": "accept",
    "accept_for_session": "acceptForSession",
    "decline": "decline",
    "cancel": "cancel",
}
_METHOD_NOT_FOUND: Final = -32601


class CodexToolContext:
    """One call of a tool by Codex, the second argument of the tool's function.

    `tool` is its name, `request_id` the id of the call, `thread_id` and `turn_id` say in which turn the model made it.
    """

    def __init__(self, request: ToolCallRequest) -> None:
        self.tool: str = request.tool
        self.request_id: str = request.call_id
        self.thread_id: str = request.thread_id
        self.turn_id: str = request.turn_id

    def report_progress(self, done: float, *, total: float | None = None, message: str | None = None) -> None:
        """Do nothing: Codex takes no reports of progress. The method is here so that a `HostTool` works with Codex, too."""


@runtime_checkable
class CodexTool(Protocol):
    """A tool of this program, as `claude_transport.bridge.HostTool` is one: its name, its function, and what the model is told."""

    @property
    def name(self) -> str: ...
    @property
    def call(self) -> Callable[[dict[str, Any], Any], Awaitable[Any]]: ...
    def described(self) -> dict[str, Any]: ...
    def missing(self, arguments: Mapping[str, Any]) -> list[str]: ...


class Callbacks:
    """Answers the requests of Codex.

    Args:
        on_approval: called with each question for approval; None declines them all.
        tools: the tools that Codex may call.
    """

    def __init__(self, *, on_approval: OnApproval | None, tools: Iterable[CodexTool] | None) -> None:
        check_callback("on_approval", on_approval)
        self._on_approval = on_approval
        self._tools = _checked(tools)
        self._scopes: dict[RequestId, anyio.CancelScope] = {}
        self._refused: set[str] = set()
        self.failures: CallbackFailures = CallbackFailures()

    @property
    def dynamic_tools(self) -> list[dict[str, Any]]:
        """What `thread/start` tells Codex of the tools."""
        told = (tool.described() for tool in self._tools.values())
        return [
            {"type": "function", "name": each["name"], "description": each["description"], "inputSchema": each["inputSchema"]}
            for each in told
        ]

    def expect(self, request_id: RequestId) -> None:
        """Note a request that will be answered: from now on it can be withdrawn. `forget()` follows its answer."""
        self._scopes[request_id] = anyio.CancelScope()

    def forget(self, request_id: RequestId) -> None:
        """Note that a request was answered."""
        self._scopes.pop(request_id, None)

    def withdraw(self, request_id: RequestId) -> None:
        """Cancel the callback of a request that needs no answer any more. One that has not begun does not begin."""
        scope = self._scopes.get(request_id)
        if scope is not None:
            scope.cancel()

    async def answer(self, request: CodexMessage) -> dict[str, Any]:
        """Return the result for a request of Codex.

        Raises:
            JSONRPCError: the request is one that this program does not answer.
        """
        if isinstance(request, ApprovalRequest):
            return {"decision": await self._decision(request)}
        if isinstance(request, ToolCallRequest) and self._tools:
            return await self._tool_result(request)
        if request.type not in self._refused and len(self._refused) < 100:
            self._refused.add(request.type)
            logger.warning("codex asked for %s, which this program does not answer: refused", printable(request.type))
        raise JSONRPCError(f"this host does not answer {request.type[:200]}", rpc_code=_METHOD_NOT_FOUND)

    def _is_withdrawn(self, request: CodexRequest) -> bool:
        return self._scopes[request.id].cancel_called

    # Approvals

    async def _decision(self, request: ApprovalRequest) -> str:
        if self._on_approval is None:
            return "decline"
        decided: object = None
        if self._is_withdrawn(request):
            return "decline"
        try:
            with self._scopes[request.id]:
                decided = self._on_approval(request)
                if not inspect.isawaitable(decided):
                    raise TypeError(f"on_approval must be an async function, and returned {type(decided).__name__}")  # noqa: TRY301
                decided = await guarded(decided)
        except BaseException as exc:  # whatever the callback raises, Codex waits for an answer
            if not isinstance(error := without_cancellation(exc), Exception):
                raise
            self.failures.note("on_approval", error)
            return "decline"
        if self._is_withdrawn(request):
            self.failures.note_late("on_approval")
            return "decline"
        if isinstance(decided, str) and decided in _ON_THE_WIRE:
            return _ON_THE_WIRE[decided]
        self.failures.note("on_approval", what=f"it returned {decided!r:.200}, not one of {', '.join(_ON_THE_WIRE)}")
        return "decline"

    # Tools

    async def _tool_result(self, request: ToolCallRequest) -> dict[str, Any]:
        tool = self._tools.get(request.tool)
        arguments = request.arguments if request.arguments is not None else {}
        if tool is None or request.namespace is not None:
            return _failed(f"there is no tool {request.tool[:128]!r}")
        if not isinstance(arguments, dict):
            return _failed("the arguments of a tool must be an object")
        if missing := tool.missing(arguments):
            return _failed(f"{tool.name} needs {', '.join(map(str, missing))}")
        if self._is_withdrawn(request):
            return _failed("cancelled")
        try:
            with self._scopes[request.id]:
                returned = await guarded(tool.call(arguments, CodexToolContext(request)))
                return {"success": True, "contentItems": _content(returned)}
        except BaseException as exc:  # the tool's exception is reported to the host and to the model
            if not isinstance(error := without_cancellation(exc), Exception):
                raise
            self.failures.note(f"the tool {tool.name!r}", error)
            return _failed(str(error) or type(error).__name__)
        return _failed("cancelled")


def _checked(tools: Iterable[CodexTool] | None) -> dict[str, CodexTool]:
    """Return the tools by name. Raises `ConfigurationError` for what is no tool, and for two of one name."""
    if isinstance(tools, str | Mapping) or not isinstance(tools, Iterable | None):
        raise ConfigurationError(f"tools must be a list of HostTool, not {type(tools).__name__}", option="tools")
    found: dict[str, CodexTool] = {}
    for tool in tools or ():
        if not isinstance(tool, CodexTool):
            raise ConfigurationError(f"tools holds a {type(tool).__name__}: pass claude_transport.bridge.HostTool objects", option="tools")
        if tool.name in found:
            raise ConfigurationError(f"two tools are named {tool.name!r}: rename one of them", option="tools")
        found[tool.name] = tool
    return found


def _failed(text: str) -> dict[str, Any]:
    return {"success": False, "contentItems": [{"type": "inputText", "text": text}]}


def _content(returned: object) -> list[dict[str, Any]]:
    """Return what a tool returned in the form of Codex. Raises `TypeError` for what Codex cannot take."""
    match returned:
        case None:
            return []
        case str():
            return [{"type": "inputText", "text": returned}]
        case Mapping():
            return [{"type": "inputText", "text": json.dumps(returned, ensure_ascii=False)}]
        case Sequence() if all(isinstance(block, Mapping) for block in returned):
            return [_content_item(block) for block in returned]
    raise TypeError(f"a tool returned {type(returned).__name__}: return a text, a mapping, content blocks or None")


def _content_item(block: Mapping[str, Any]) -> dict[str, Any]:
    """Translate a content block of MCP. One in the form of Codex is passed on."""
    match block:
        case {"type": "text", "text": str(text)}:
            return {"type": "inputText", "text": text}
        case {"type": "image" | "audio" as kind, "data": str(data), "mimeType": str(mime)}:
            name = kind.capitalize()
            return {"type": f"input{name}", f"{kind}Url": f"data:{mime};base64,{data}"}
        case {"type": "inputText" | "inputImage" | "inputAudio"}:
            return dict(block)
    raise TypeError(f"a tool returned a content block of type {block.get('type')!r}: Codex takes text, image and audio")
