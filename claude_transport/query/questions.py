"""What the CLI asks of its host, answered beside the reading: each question in a task of its own, withdrawn when the CLI withdraws it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import anyio

from claude_transport.errors import ControlRequestFailed
from claude_transport.protocol.control import (
    CanUseTool,
    ControlRequest,
    HookCallback,
    encode_control_error,
    encode_control_success,
)
from claude_transport.query.handlers import (
    CallbackContext,
    CanUseToolCallback,
    HookMatcher,
    HookRegistry,
    OnCallbackError,
    PermissionHandler,
)

__all__ = ["OnRequest", "Questions"]

logger = logging.getLogger(__name__)

OnRequest = Callable[[str, dict[str, Any]], Awaitable[Mapping[str, Any] | None]]

_answering: ContextVar[Questions | None] = ContextVar("_answering", default=None)


class Questions:
    """The callbacks of one conversation, and the questions they are working on."""

    def __init__(
        self,
        can_use_tool: CanUseToolCallback | None,
        hooks: Mapping[str, Sequence[HookMatcher]] | None,
        on_request: OnRequest | None,
        *,
        on_error: OnCallbackError,
    ) -> None:
        self._permission = PermissionHandler(can_use_tool, on_error=on_error)
        self._hooks = HookRegistry(hooks, on_error=on_error)
        self._on_request = on_request
        self._scopes: dict[str, anyio.CancelScope] = {}
        kinds = {"can_use_tool": can_use_tool is not None, "hooks": self._hooks.config is not None}
        self.kinds = frozenset(kind for kind, there in kinds.items() if there)
        """What these callbacks can answer, as `Transport.announce` is told it."""

    @property
    def hook_config(self) -> dict[str, list[dict[str, Any]]] | None:
        """The `hooks` field of `initialize`."""
        return self._hooks.config

    @property
    def open(self) -> tuple[str, ...]:
        """Request ids of the questions that are being worked on."""
        return tuple(self._scopes)

    def am_i_answering(self) -> bool:
        """True inside one of these callbacks, which must not wait for the end of the conversation that waits for them."""
        return _answering.get() is self

    def cancel(self, request_id: str) -> None:
        """The CLI has withdrawn the question."""
        scope = self._scopes.get(request_id)
        if scope is not None:
            scope.cancel()

    async def answer(self, request: ControlRequest, reply: Callable[[str, bytes], None]) -> None:
        """Work on a question and hand the line that answers it to `reply(request_id, line)`."""
        request_id = request.request_id
        if request_id is None:
            logger.warning("the CLI sent a %r request without an id: it cannot be answered", request.subtype)
            return
        _answering.set(self)
        with anyio.CancelScope() as scope:
            self._scopes[request_id] = scope
            try:
                line = encode_control_success(request_id, await self._response_to(request, request_id, scope))
            except ControlRequestFailed as exc:
                line = encode_control_error(request_id, str(exc), exc.error_code)
            except Exception as exc:
                # whatever went wrong here, the CLI must hear of it: it would wait for ever (PROTOCOL (g) 4)
                logger.exception("answering %r failed", request.subtype)
                line = encode_control_error(request_id, f"the host's callback failed ({type(exc).__name__})")
            finally:
                self._scopes.pop(request_id, None)
            reply(request_id, line)

    async def _response_to(self, request: ControlRequest, request_id: str, scope: anyio.CancelScope) -> dict[str, Any] | None:
        body = request.request
        if isinstance(body, CanUseTool):
            context = CallbackContext(
                cancel_scope=scope,
                request_id=request_id,
                tool_use_id=body.tool_use_id,
                agent_id=body.agent_id,
                suggestions=tuple(body.permission_suggestions or ()),
                blocked_path=body.blocked_path,
                description=body.description,
                requires_user_interaction=bool(body.requires_user_interaction),
            )
            return await self._permission.answer(body, context)
        if isinstance(body, HookCallback) and body.callback_id in self._hooks:
            return await self._hooks.answer(body, CallbackContext(cancel_scope=scope, request_id=request_id, tool_use_id=body.tool_use_id))
        if self._on_request is not None:
            fields = body.to_dict()
            answer = await self._on_request(request.subtype, {name: value for name, value in fields.items() if name != "subtype"})
            if answer is not None:
                return dict(answer)
        raise ControlRequestFailed(f"Unsupported control request subtype: {request.subtype}", error_code="unsupported_request")
