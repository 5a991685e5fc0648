"""What the CLI asks of its host, answered beside the reading: each question in a task of its own, withdrawn when the CLI withdraws it."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import Context, ContextVar, copy_context
from typing import Any

import anyio

from claude_transport.errors import ControlRequestFailed, ProtocolError
from claude_transport.printable import printable
from claude_transport.protocol.control import (
    CanUseTool,
    ControlRequest,
    HookCallback,
    McpMessage,
    encode_control_error,
    encode_control_success,
)
from claude_transport.protocol.hooks import DENIABLE
from claude_transport.protocol.initialization import InitializationInfo
from claude_transport.protocol.redaction import Redactor
from claude_transport.query.arguments import check_callback, check_on_error
from claude_transport.query.cancellation import guarded, without_cancellation
from claude_transport.query.failures import CallbackFailures
from claude_transport.query.handlers import (
    CallbackContext,
    CanUseToolCallback,
    HookMatcher,
    HookRegistry,
    OnCallbackError,
    PermissionHandler,
)
from claude_transport.query.mcp import McpServers
from claude_transport.query.mcp_session import McpCall

__all__ = ["MAX_QUESTIONS", "MAX_QUESTION_BYTES", "OnRequest", "Question", "Questions"]

logger: logging.Logger = logging.getLogger(__name__)

OnRequest = Callable[[str, dict[str, Any]], Awaitable[Mapping[str, Any] | None]]
Reply = Callable[[str, bytes], bool]
"""Takes the id of a question and the line that answers it; False when the answer is not wanted any more."""
OnCrash = Callable[[str, BaseException], Awaitable[None]]
"""Told which callback raised what is no `Exception`."""

MAX_QUESTIONS = 10_000
"""Callbacks that work at the same time. A CLI asks a few dozen questions at most before it waits for an answer."""

MAX_QUESTION_BYTES = 64 * 2**20
"""Bytes of the questions that these callbacks hold. One question alone may be longer."""

_answering: ContextVar[tuple[Questions, ...]] = ContextVar("_answering", default=())


class Question:
    """One request of the CLI, from the moment it was read until it is answered or withdrawn."""

    def __init__(self, request: ControlRequest, request_id: str) -> None:
        self.request = request
        self.request_id = request_id
        self.scope: anyio.CancelScope = anyio.CancelScope()
        self.call: McpCall | None = None
        self.deadline: float = math.inf
        """When the callback must have answered, on the clock of the event loop."""
        self.failed: bool = False
        """Whether the callback has raised, which is noted and answered for."""
        self.crash: BaseException | None = None
        """What the callback raised, if that was no `Exception`."""


class Questions:
    """The callbacks of one conversation, and the questions they are working on."""

    def __init__(
        self,
        can_use_tool: CanUseToolCallback | None,
        hooks: Mapping[str, Sequence[HookMatcher]] | None,
        on_request: OnRequest | None,
        *,
        on_error: OnCallbackError,
        mcp_servers: Mapping[str, Any] | None = None,
        make_redactor: Callable[[], Redactor] = Redactor,
    ) -> None:
        check_on_error(on_error)
        check_callback("can_use_tool", can_use_tool)
        check_callback("on_request", on_request)
        self.failures: CallbackFailures = CallbackFailures(make_redactor)
        self.mcp: McpServers = McpServers(mcp_servers, on_failure=self.failures.note)
        self._permission = PermissionHandler(can_use_tool, on_error=on_error)
        self._hooks = HookRegistry(hooks, on_error=on_error)
        self._on_request = on_request
        self._open: dict[str, Question] = {}
        self._working = 0
        self._working_bytes = 0
        kinds = {"can_use_tool": can_use_tool is not None, "hooks": self._hooks.config is not None, "mcp": bool(self.mcp.names)}
        self.kinds: frozenset[str] = frozenset(kind for kind, there in kinds.items() if there)
        """What these callbacks can answer, as `Transport.announce` is told it."""

    @property
    def hook_config(self) -> dict[str, list[dict[str, Any]]] | None:
        """The `hooks` field of `initialize`."""
        return self._hooks.config

    @property
    def guards(self) -> tuple[str, ...]:
        """Events at which a hook that fails must stop something."""
        return self._hooks.guards

    def check_hooks(self, initialization: InitializationInfo, *, version: str | None, asked: bool) -> None:
        """Raise `ConfigurationError` when the CLI that answered `initialization` will not ask the hooks that it was `asked` to."""
        self._hooks.check_kept(initialization, version=version, asked=asked)

    @property
    def open(self) -> tuple[str, ...]:
        """Request ids of the questions that are being worked on."""
        return tuple(self._open)

    def am_i_answering(self) -> bool:
        """True inside one of these callbacks, which must not wait for the end of the conversation that waits for them."""
        return self in _answering.get()

    def take(self, request: ControlRequest) -> Question | None:
        """Note a question before its task is started, so that it can be withdrawn from the first moment on.

        Raises:
            ProtocolError: the CLI asks more than this program can hold, and does not wait for answers.
        """
        if request.request_id is None:
            logger.warning("the CLI sent a '%s' request without an id: it cannot be answered", printable(request.subtype))
            return None
        question = Question(request, request.request_id)
        self._note_work(question)
        self._open[request.request_id] = question
        body = request.request
        if isinstance(body, McpMessage) and body.server_name in self.mcp:
            # at once, because tasks that are started together run in any order, and a cancellation must not overtake its call;
            # in a context of its own, because the server's tools are callbacks too
            question.call = self._answering_context().run(self.mcp.accept, body.server_name, body.message)
        return question

    def _note_work(self, question: Question) -> None:
        size = len(question.request.raw)
        if self._working >= MAX_QUESTIONS or (self._working and self._working_bytes + size > MAX_QUESTION_BYTES):
            raise ProtocolError(
                f"the CLI has asked {self._working + 1} questions of {self._working_bytes + size} bytes without waiting for an answer: "
                f"at most {MAX_QUESTIONS} questions and {MAX_QUESTION_BYTES} bytes are worked on at the same time"
            )
        self._working += 1
        self._working_bytes += size

    def _answering_context(self) -> Context:
        context = copy_context()
        context.run(_answering.set, (*_answering.get(), self))
        return context

    def cancel(self, request_id: str) -> None:
        """The CLI has withdrawn the question."""
        question = self._open.get(request_id)
        if question is not None:
            if question.call is not None:
                question.call.withdraw()
            question.scope.cancel()

    async def answer(self, question: Question, reply: Reply, on_crash: OnCrash) -> None:
        """Work on a question and hand the line that answers it to `reply(request_id, line)`, which says whether it was still wanted.

        Also when its scope was cancelled, which the callback itself may do, and when its time is over, whatever the callback does then.
        `on_crash(name, error)` is called last, when the callback `name` raised what is no `Exception`.
        """
        try:
            await self._answer(question, reply)
        finally:
            self._working -= 1
            self._working_bytes -= len(question.request.raw)
        if question.crash is not None:
            await on_crash(self._name_of(question), question.crash)

    async def _answer(self, question: Question, reply: Reply) -> None:
        _answering.set((*_answering.get(), self))
        limit = self._limit_of(question)
        if limit is None:
            await self._work(question, reply)
            return
        question.deadline = anyio.current_time() + limit
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._answer_when_late, question, limit, reply)
            await self._work(question, reply)
            tasks.cancel_scope.cancel()

    async def _answer_when_late(self, question: Question, limit: float, reply: Reply) -> None:
        """Answer for a callback that overruns its time. One that resists its cancellation is not waited for."""
        await anyio.sleep_until(question.deadline)
        if self._close(question):
            self._answer_for_failure(question, reply, _late(limit))
            question.scope.cancel()

    async def _work(self, question: Question, reply: Reply) -> None:
        line = None
        try:
            with question.scope:
                if not question.scope.cancel_called:
                    line = await self._line_for(question)
        finally:
            is_current = self._close(question)
        # a callback may outlive its question, and the CLI may by then have asked another one under the same id (recording 08e)
        if not is_current:
            if line is not None:
                self.failures.note_late(self._name_of(question))
        elif line is None:
            self._answer_for_failure(question, reply, "cancelled")
        elif not question.failed and anyio.current_time() >= question.deadline:
            # the event loop stood still, so the callback has returned before the timer could answer for it
            self._answer_for_failure(question, reply, _late(self._limit_of(question) or 0.0))
        elif not reply(question.request_id, line):
            self.failures.note_late(self._name_of(question))

    def _close(self, question: Question) -> bool:
        """Stop to work on a question; False when that was done before."""
        if is_current := self._open.get(question.request_id) is question:
            del self._open[question.request_id]
        return is_current

    def _answer_for_failure(self, question: Question, reply: Reply, what: str) -> None:
        """Answer in the place of a callback that has no answer of its own, and note its failure, if the question still stands."""
        if reply(question.request_id, self._line_for_failure(question, what)):
            self.failures.note(self._name_of(question), what=what)

    def _limit_of(self, question: Question) -> float | None:
        body = question.request.request
        return self._hooks.limit_of(body) if isinstance(body, HookCallback) else None

    async def _line_for(self, question: Question) -> bytes:
        try:
            return encode_control_success(question.request_id, await self._response_to(question))
        except BaseException as exc:
            error = without_cancellation(exc)
            if error is None:
                raise
            # whatever went wrong here, the CLI must hear of it: it would wait for ever (docs/reference/protocol.md#unanswered-questions)
            if isinstance(error, ControlRequestFailed) and not self._is_for_a_guard(question):
                return encode_control_error(question.request_id, str(error.args[0]), error.error_code)  # how on_request refuses
            question.failed = True
            if not isinstance(error, Exception):
                question.crash = error
            self.failures.note(self._name_of(question), error)
            return self._line_for_failure(question, type(error).__name__)

    def _is_for_a_guard(self, question: Question) -> bool:
        """Return whether can_use_tool is asked, or a hook: one of ours, or one that `initialize=` named and that can say no."""
        body = question.request.request
        if isinstance(body, HookCallback):
            return body.callback_id in self._hooks or body.event in DENIABLE
        return isinstance(body, CanUseTool) and self._permission.has_callback

    def _name_of(self, question: Question) -> str:
        """Which callback works on it, for people who read a log."""
        body = question.request.request
        if isinstance(body, CanUseTool) and self._permission.has_callback:
            return f"can_use_tool, asked about {body.tool_name!r},"
        if isinstance(body, HookCallback) and body.callback_id in self._hooks:
            return f"the {self._hooks.event_of(body)} hook"
        if isinstance(body, McpMessage) and body.server_name in self.mcp:
            return f"the MCP server {body.server_name!r}"
        return f"on_request, asked {question.request.subtype!r},"

    def _line_for_failure(self, question: Question, what: str) -> bytes:
        """The answer when the callback has none, or one that cannot be written down."""
        body = question.request.request
        if isinstance(body, CanUseTool):
            return encode_control_success(question.request_id, self._permission.answer_for_failure(body, what))
        if isinstance(body, HookCallback):
            denial = self._hooks.answer_for_failure(body, what)
            if denial is not None:
                return encode_control_success(question.request_id, denial)
        return encode_control_error(question.request_id, f"the host's callback failed ({what})")

    async def _response_to(self, question: Question) -> dict[str, Any] | None:
        request, body = question.request, question.request.request
        if isinstance(body, CanUseTool) and self._permission.has_callback:
            return await self._permission.answer(body, _permission_context(body, question))
        if isinstance(body, HookCallback) and body.callback_id in self._hooks:
            context = CallbackContext(cancel_scope=question.scope, request_id=question.request_id, tool_use_id=body.tool_use_id)
            return await self._hooks.answer(body, context)
        if question.call is not None:
            return {"mcp_response": await question.call.answer()}
        if self._on_request is not None:
            fields = body.to_dict()
            fields.pop("subtype", None)
            answer = await guarded(self._on_request(request.subtype, fields))
            if answer is not None:
                return dict(answer)
        if isinstance(body, CanUseTool):
            return await self._permission.answer(body, _permission_context(body, question))
        raise ControlRequestFailed(f"Unsupported control request subtype: {request.subtype}", error_code="unsupported_request")


def _late(limit: float) -> str:
    return f"no answer in {limit:g} s"


def _permission_context(body: CanUseTool, question: Question) -> CallbackContext:
    return CallbackContext(
        cancel_scope=question.scope,
        request_id=question.request_id,
        tool_use_id=body.tool_use_id,
        agent_id=body.agent_id,
        suggestions=tuple(body.permission_suggestions or ()),
        blocked_path=body.blocked_path,
        title=body.title,
        display_name=body.display_name,
        description=body.description,
        decision_reason=body.decision_reason,
        requires_user_interaction=bool(body.requires_user_interaction),
    )
