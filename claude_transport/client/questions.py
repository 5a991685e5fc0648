"""`Questions`: the callbacks of one conversation, which answer what the CLI asks. Each question is answered in a task of its own.

Here are the two callbacks that guard tools, `can_use_tool` and hooks, the fallback `on_request`, and what is answered when a callback
fails, is late, or is withdrawn. MCP servers of this program are in `mcp`. How a question is read and its answer written is in `query`.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import Context, ContextVar, copy_context
from typing import Any, Literal, NoReturn

import anyio
import msgspec

from claude_transport.client.mcp import McpCall, McpServers
from claude_transport.errors import ConfigurationError, ControlRequestFailed, ProtocolError, UsageError
from claude_transport.exchange.arguments import check_callback
from claude_transport.exchange.failures import CallbackFailures, guarded, tell_watchers, without_cancellation
from claude_transport.launch.features import require, supports
from claude_transport.loggers import logger_for
from claude_transport.loops.current import LightEvent
from claude_transport.protocol.control import (
    CanUseTool,
    ControlRequest,
    HookCallback,
    InitializationInfo,
    McpMessage,
    PermissionUpdate,
    encode_control_error,
    encode_control_success,
)
from claude_transport.text.printable import printable

logger: logging.Logger = logger_for(__name__)

OnCallbackError = Literal["deny", "allow"]

DEFAULT_HOOK_TIMEOUT = 600.0
"""Seconds that a hook gets for its answer unless its matcher says otherwise: as many as the CLI gives it."""

_CLI_PATIENCE = 86_400.0
"""Seconds that the CLI is told to wait longer than this program. An older CLI goes on when its own time is over, as if the hook had
agreed. So the time of this program must be over first, also when it is busy."""

_LONGEST_HOOK_TIMEOUT = 2_000_000.0
"""Seconds. The timers of the CLI end at once beyond 2**31 milliseconds, which is a little more."""

_DEFERRED_TWICE = "a tool call that is deferred twice does not run"

MAX_QUESTIONS = 10_000
"""Callbacks that work at the same time. A CLI asks a few dozen questions at most before it waits for an answer."""

MAX_QUESTION_BYTES = 64 * 2**20
"""Bytes of the questions that these callbacks hold. One question alone may be longer."""


class Allow(msgspec.Struct, frozen=True):
    """Answer of a `can_use_tool` callback: run the tool. `updated_input` replaces the arguments that the model wrote; `updated_permissions`
    are changes of the permission rules that the CLI is to apply.
    """

    updated_input: dict[str, Any] | None = None
    updated_permissions: Sequence[PermissionUpdate] = ()


class Deny(msgspec.Struct, frozen=True):
    """Answer of a `can_use_tool` callback: do not run the tool. The model is told `message`; `interrupt=True` also ends the turn."""

    message: str = "The user does not allow this."
    interrupt: bool = False


class CallbackContext(msgspec.Struct, frozen=True, kw_only=True):
    """The last argument of `can_use_tool` and of hook callbacks: what belongs to the question, beside the main arguments.

    `cancel_scope` is cancelled when the CLI withdraws its question: after an interrupt, or when the question was answered elsewhere. That
    of a hook is also cancelled when the hook's `timeout` is over. `request_id` is the id of the CLI's request, `tool_use_id` the id of the
    tool call that the question is about. `requires_user_interaction` is True when a person has to answer, not a rule.

    For permission questions only: `agent_id` names the subagent that asks, None for the main conversation. `suggestions` are rules that
    would allow such calls, `blocked_path` is a path that the rules do not allow. `title` is a whole sentence for people, `display_name`
    says in a word or two what the tool does, `description` says more. `decision_reason` is why the CLI asks, for instance the reason that a
    hook gave. The CLI may leave out each.
    """

    cancel_scope: anyio.CancelScope
    request_id: str = ""
    tool_use_id: str | None = None
    agent_id: str | None = None
    suggestions: tuple[PermissionUpdate, ...] = ()
    blocked_path: str | None = None
    title: str | None = None
    display_name: str | None = None
    description: str | None = None
    decision_reason: str | None = None
    requires_user_interaction: bool = False


CanUseToolCallback = Callable[[str, dict[str, Any], CallbackContext], Awaitable[Allow | Deny]]
HookCallable = Callable[[Any, str | None, CallbackContext], Awaitable[object]]
"""`await callback(input, tool_use_id, context)`. `input` is the typed input of the event, and can be read like a dict
(`input["tool_name"]`). The answer is one of the outputs of `claude_transport.hooks`, a mapping in wire spelling, or None."""
OnRequest = Callable[[str, dict[str, Any]], Awaitable[Mapping[str, Any] | None]]
Reply = Callable[[str, bytes], bool]
"""Takes the id of a question and the line that answers it. Returns False when the answer is not wanted any more."""
OnCrash = Callable[[str, BaseException], Awaitable[None]]
"""Takes the name of a callback, and what it raised that is no `Exception`."""

_answering: ContextVar[tuple[object, ...]] = ContextVar("_answering", default=())
"""The mark of each question that the running code answers, and of the MCP servers that it is in. Tasks that a callback starts inherit them,
also when they outlive it. Other code may keep the context: a mark keeps no session alive."""


class HookMatcher(msgspec.Struct, frozen=True):
    """Hook callbacks for one event, as `Query` takes them in `hooks`. `matcher` names the tools for which they are called; None is all
    tools.

    `hooks` are async functions that are called as `callback(input, tool_use_id, context)` and return an output of `claude_transport.hooks`,
    a mapping or None. `timeout` is in seconds, 600 by default. A hook that has not answered by then has failed, and is cancelled. For
    events whose hooks can refuse nothing, the CLI itself applies `timeout`, and its own default without it.
    """

    matcher: str | None = None
    hooks: Sequence[HookCallable] = ()
    timeout: float | None = None


class Question:
    """One request of the CLI, from the moment it was read until it is answered or withdrawn."""

    def __init__(self, request: ControlRequest, request_id: str, *, call: McpCall | None) -> None:
        self.request = request
        self.request_id = request_id
        self.call = call
        """The message to an MCP server that the request holds, if it holds one."""
        self.scope: anyio.CancelScope = anyio.CancelScope()


class Questions:
    """The callbacks of one conversation, and the questions that they work on.

    Args:
        can_use_tool, hooks, on_request, on_error: as `Query` takes them.
        mcp: the MCP servers of this program.
        failures: counts and logs the callbacks that fail.
    """

    def __init__(
        self,
        can_use_tool: CanUseToolCallback | None,
        hooks: Mapping[str, Sequence[HookMatcher]] | None,
        on_request: OnRequest | None,
        *,
        on_error: OnCallbackError,
        mcp: McpServers,
        failures: CallbackFailures,
    ) -> None:
        _check_on_error(on_error)
        check_callback("can_use_tool", can_use_tool)
        check_callback("on_request", on_request)
        self._mcp = mcp
        self._failures = failures
        self._can_use_tool = can_use_tool
        self._allows_on_error = on_error == "allow"
        self._hooks = HookRegistry(hooks, fails_open=self._allows_on_error)
        self._on_request = on_request
        self._open: dict[str, Question] = {}
        self._working = 0
        self._working_bytes = 0
        self._servers_mark = object()  # an MCP server outlives each question, and the end of the conversation waits for it
        self._marks: dict[object, None] = {}  # of the questions whose callbacks are at work
        self._deferral_problem: str | None = None
        self._cli_checked = LightEvent()
        kinds = {"can_use_tool": can_use_tool is not None, "hooks": self._hooks.config is not None, "mcp": bool(mcp.names)}
        self.kinds: frozenset[str] = frozenset(kind for kind, there in kinds.items() if there)
        """What these callbacks can answer, as `Client.answers` names it."""

    @property
    def hook_config(self) -> dict[str, list[dict[str, Any]]] | None:
        """The `hooks` field of `initialize`; None without hooks."""
        return self._hooks.config

    @property
    def guards(self) -> tuple[str, ...]:
        """Events of registered hooks whose failure has to stop something: a tool, a prompt or a turn."""
        return self._hooks.guards

    def check_hooks(self, initialization: InitializationInfo, *, version: str | None, asked: bool) -> None:
        """Raise when the CLI that answered `initialization` will not ask the hooks, or not heed their answers.

        `version` is used when the answer has none. `asked` is True when the CLI was told of any hooks, of this program or of others.

        Raises:
            ConfigurationError: it did not register the hooks; or its version is not known, and not every CLI heeds one of the guards.
            CLIVersionMismatch: it does not heed what a hook denies at one of the events.
        """
        if asked:
            import claude_transport.protocol.hooks  # noqa: F401 - at the start, because later there may be no file descriptor to read it
        if asked and initialization.hooks_applied is False:
            raise ConfigurationError(
                "the CLI did not register the hooks, so they would never be called: its session was begun by another client. "
                "Begin a new session, or leave out hooks",
                option="hooks",
            )
        version = initialization.claude_code_version or version
        heeds_denials = initialization.hook_on_failure_supported is True
        self._deferral_problem = None if heeds_denials else _deferral_problem(version)
        self._cli_checked.set()
        if heeds_denials:
            return
        for event in self.guards:
            denial = f"hook.{event}.denial"
            require(denial, version=version)
            if supports(denial, version=version) is None:
                raise ConfigurationError(
                    f"hooks[{event!r}] cannot be kept: a CLI of unknown version may ignore what this hook denies. "
                    'Use a CLI that tells its version, leave out the hook, or say on_callback_error="allow" if it guards nothing',
                    option="hooks",
                )

    @property
    def open(self) -> tuple[str, ...]:
        """Request ids of the questions that are being worked on."""
        return tuple(self._open)

    def am_i_answering(self) -> bool:
        """Return True inside one of these callbacks, which must not wait for the end of the conversation that waits for them.

        In a task that a callback started, this is True until that callback is over.
        """
        return any(mark is self._servers_mark or mark in self._marks for mark in _answering.get())

    def take(self, request: ControlRequest) -> Question | None:
        """Note a question before its task is started, so that it can be withdrawn from the first moment on.

        Returns None for a request without an id, which cannot be answered.

        Raises:
            ProtocolError: the CLI asks more than this program can hold, and does not wait for answers.
        """
        if request.request_id is None:
            logger.warning("the CLI sent a '%s' request without an id: it cannot be answered", printable(request.subtype))
            return None
        size = len(request.raw)
        if self._working >= MAX_QUESTIONS or (self._working and self._working_bytes + size > MAX_QUESTION_BYTES):
            raise ProtocolError(
                f"the CLI has asked {self._working + 1} questions of {self._working_bytes + size} bytes without waiting for an answer: "
                f"at most {MAX_QUESTIONS} questions and {MAX_QUESTION_BYTES} bytes are worked on at the same time"
            )
        self._working += 1
        self._working_bytes += size
        call = None
        body = request.request
        if isinstance(body, McpMessage) and body.server_name in self._mcp:
            # at once, because tasks that are started together run in any order, and a cancellation must not overtake its call;
            # in a context of its own, because the server's tools are callbacks too
            call = self._context_of_servers().run(self._mcp.accept, body.server_name, body.message)
        question = self._open[request.request_id] = Question(request, request.request_id, call=call)
        return question

    def _context_of_servers(self) -> Context:
        context = copy_context()
        context.run(_answering.set, (*_answering.get(), self._servers_mark))
        return context

    def cancel(self, request_id: str) -> None:
        """Withdraw a question: its callback is cancelled."""
        question = self._open.get(request_id)
        if question is not None:
            if question.call is not None:
                question.call.withdraw()
            question.scope.cancel()

    async def answer(self, question: Question, reply: Reply, on_crash: OnCrash) -> None:
        """Work on a question and hand the line that answers it to `reply(request_id, line)`.

        There is an answer also when the callback cancelled its own scope, and when its time is over, whatever the callback does then.
        `on_crash(name, error)` is called last, when the callback raised what is no `Exception`.
        """
        mark = object()
        self._marks[mark] = None
        _answering.set((*_answering.get(), mark))
        limit = self._hooks.limit_of(question.request.request)
        crash: BaseException | None = None
        try:
            if limit is None:
                crash = await self._work(question, reply)
            else:
                deadline = anyio.current_time() + limit
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._answer_when_late, question, deadline, limit, reply)
                    crash = await self._work(question, reply, deadline=deadline, limit=limit)
                    tasks.cancel_scope.cancel()
        finally:
            del self._marks[mark]  # only now: a callback may go on although its question is closed
            self._working -= 1
            self._working_bytes -= len(question.request.raw)
        if crash is not None:
            await on_crash(self._name_of(question), crash)

    async def _answer_when_late(self, question: Question, deadline: float, limit: float, reply: Reply) -> None:
        """Answer for a callback that overruns its time, and cancel it. A callback that resists is not waited for."""
        await anyio.sleep_until(deadline)
        if self._close(question):
            self._answer_for_failure(question, reply, _late(limit))
            question.scope.cancel()

    async def _work(self, question: Question, reply: Reply, *, deadline: float = math.inf, limit: float = math.inf) -> BaseException | None:
        """Call the callback and answer. Returns what it raised, if that was no `Exception`."""
        line, error = None, None
        try:
            with question.scope:
                if not question.scope.cancel_called:
                    line, error = await self._line_for(question)
        finally:
            is_current = self._close(question)
        # a callback may outlive its question, and the CLI may by then have asked another one under the same id (recording 08e)
        if not is_current:
            if line is not None:
                self._failures.note_late(self._name_of(question))
        elif line is None:
            self._answer_for_failure(question, reply, "cancelled")
        elif error is None and anyio.current_time() >= deadline:
            # the event loop stood still, so the callback has returned before the timer could answer for it
            self._answer_for_failure(question, reply, _late(limit))
        elif not reply(question.request_id, line):
            self._failures.note_late(self._name_of(question))
        return None if isinstance(error, Exception) else error

    def _close(self, question: Question) -> bool:
        """Stop working on a question. Returns False when that was done before."""
        if is_current := self._open.get(question.request_id) is question:
            del self._open[question.request_id]
        return is_current

    def _answer_for_failure(self, question: Question, reply: Reply, what: str) -> None:
        """Answer in place of a callback that has no answer, and note its failure, if the question still stands."""
        if reply(question.request_id, self._line_for_failure(question, what)):
            self._failures.note(self._name_of(question), what=what)

    async def _line_for(self, question: Question) -> tuple[bytes, BaseException | None]:
        """Return the line that answers the question, and what the callback raised, if that is a failure."""
        try:
            response = await self._without_deferral(question, await self._response_to(question))
            return encode_control_success(question.request_id, response), None
        except BaseException as exc:
            error = without_cancellation(exc)
            if error is None:
                raise
            # whatever went wrong here, the CLI must hear of it: it would wait for ever (docs/reference/protocol.md#unanswered-questions)
            if isinstance(error, ControlRequestFailed) and not self._is_for_a_guard(question):
                return encode_control_error(question.request_id, str(error.args[0]), error.error_code), None  # how on_request refuses
            self._failures.note(self._name_of(question), error)
            return self._line_for_failure(question, type(error).__name__), error

    async def _without_deferral(self, question: Question, response: dict[str, Any] | None) -> dict[str, Any] | None:
        """Return `response`, or a denial in place of a hook's `defer`, when the CLI may later run the call that it defers.

        A resumed CLI may ask in the same moment as it answers `initialize`. Then this waits until that answer is checked, which the time
        limit of the start bounds.
        """
        specific = response.get("hookSpecificOutput") if response and isinstance(question.request.request, HookCallback) else None
        if not isinstance(specific, Mapping) or specific.get("permissionDecision") != "defer":
            return response
        await self._cli_checked.wait()
        if self._deferral_problem is None:
            return response
        from claude_transport.protocol.hooks import denial_of  # loaded with the first hook

        self._failures.note(self._name_of(question), what=self._deferral_problem)
        return denial_of("PreToolUse", self._deferral_problem)

    def _is_for_a_guard(self, question: Question) -> bool:
        """Return whether can_use_tool is asked, or a hook that can say no: a registered one, or one that `initialize=` named."""
        body = question.request.request
        if isinstance(body, HookCallback):
            return body.callback_id in self._hooks or _can_refuse(body.event)
        return isinstance(body, CanUseTool) and self._can_use_tool is not None

    def _name_of(self, question: Question) -> str:
        """Return which callback works on the question, for the log."""
        body = question.request.request
        if isinstance(body, CanUseTool) and self._can_use_tool is not None:
            return f"can_use_tool, asked about {body.tool_name!r},"
        if isinstance(body, HookCallback) and body.callback_id in self._hooks:
            return f"the {self._hooks.event_of(body)} hook"
        if isinstance(body, McpMessage) and body.server_name in self._mcp:
            return f"the MCP server {body.server_name!r}"
        return f"on_request, asked {question.request.subtype!r},"

    def _line_for_failure(self, question: Question, what: str) -> bytes:
        """Return the answer when the callback has none, or one that cannot be written."""
        body = question.request.request
        if isinstance(body, CanUseTool):
            decision = Allow() if self._allows_on_error else Deny(f"The permission check itself failed ({what}).")
            return encode_control_success(question.request_id, _permission(decision, body))
        if isinstance(body, HookCallback):
            denial = self._hooks.answer_for_failure(body, what)
            if denial is not None:
                return encode_control_success(question.request_id, denial)
        return encode_control_error(question.request_id, f"the host's callback failed ({what})")

    async def _response_to(self, question: Question) -> dict[str, Any] | None:
        request, body = question.request, question.request.request
        if isinstance(body, CanUseTool) and self._can_use_tool is not None:
            context = _permission_context(body, question)
            return _permission(await guarded(self._can_use_tool(body.tool_name, body.input, context)), body)
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
        if isinstance(body, CanUseTool):  # denied, as the CLI itself would do
            name = f"can_use_tool, asked about {body.tool_name!r},"
            tell_watchers(name, None, what="no callback: Query(can_use_tool=…) was not given, and the CLI would not ask")
            return _permission(Deny("This program gives no permission: it has no can_use_tool callback."), body)
        raise ControlRequestFailed(f"Unsupported control request subtype: {request.subtype}", error_code="unsupported_request")


class HookRegistry:
    """The hook callbacks: each has an id, which `initialize` names and the CLI calls it by.

    With `fails_open`, a hook that fails lets things go on.
    """

    def __init__(self, hooks: Mapping[str, Sequence[HookMatcher]] | None, *, fails_open: bool) -> None:
        self._fails_open = fails_open
        self._callbacks: dict[str, tuple[str, HookCallable, float | None]] = {}
        self._config: dict[str, list[dict[str, Any]]] = {}
        if hooks is not None and not isinstance(hooks, Mapping):
            raise ConfigurationError(f"hooks maps events to lists of HookMatcher, and is no {type(hooks).__name__}", option="hooks")
        for event, matchers in (hooks or {}).items():
            _check_hook_event(event)
            _check_sequence("hooks", matchers, of=HookMatcher, what=f"hooks[{event!r}]")
            self._config[event] = [self._register(event, matcher) for matcher in matchers]

    @property
    def config(self) -> dict[str, list[dict[str, Any]]] | None:
        """The `hooks` field of `initialize`; None without hooks."""
        return self._config or None

    @property
    def guards(self) -> tuple[str, ...]:
        """Events of registered hooks whose failure has to stop something: a tool, a prompt or a turn."""
        return () if self._fails_open else tuple(event for event in self._config if _can_refuse(event))

    def _register(self, event: str, matcher: HookMatcher) -> dict[str, Any]:
        if not isinstance(matcher.hooks, Sequence):
            raise ConfigurationError(f"the hooks of a HookMatcher for {event} are a list of async functions", option="hooks")
        told = _checked_timeout(event, matcher.timeout)
        limit = None
        if _can_refuse(event):
            limit = told or DEFAULT_HOOK_TIMEOUT
            told = limit + _CLI_PATIENCE
        ids = []
        for callback in matcher.hooks:
            check_callback("hooks", callback)
            callback_id = f"hook_{len(self._callbacks)}"
            self._callbacks[callback_id] = (event, callback, limit)
            ids.append(callback_id)
        if not ids:
            raise ConfigurationError(f"a HookMatcher for {event!r} has no callbacks", option="hooks")
        config: dict[str, Any] = {"matcher": matcher.matcher, "hookCallbackIds": ids}
        if told is not None:
            config["timeout"] = told
        if not self._fails_open:
            # for what this program cannot answer, such as its own death: without it the CLI goes on (recordings 05g, 05h)
            config["onFailure"] = "block"
        return config

    async def answer(self, body: HookCallback, context: CallbackContext) -> dict[str, Any]:
        """Call the hook and return its output as the response payload. Raises what it raised, and `UsageError` for a wrong output."""
        from claude_transport.protocol.hooks import encode_hook_output, parse_hook_input  # loaded with the first hook

        event, callback, _ = self._callbacks[body.callback_id]
        output = await guarded(callback(parse_hook_input(event, body.input), body.tool_use_id, context))
        return encode_hook_output(event, output)

    def answer_for_failure(self, body: HookCallback, what: str) -> dict[str, Any] | None:
        """Return the response payload for a hook that failed; None when only an error can be answered."""
        if self._fails_open:
            return {}
        event = self.event_of(body)
        from claude_transport.protocol.hooks import denial_of  # as above

        return denial_of(event, f"The {event} hook of this program failed ({what}), so the answer is no.")

    def event_of(self, body: HookCallback) -> str:
        """Return the event that the hook was registered for; for a hook that is not registered here, the one that the CLI names."""
        registered = self._callbacks.get(body.callback_id)
        return body.event if registered is None else registered[0]

    def limit_of(self, body: object) -> float | None:
        """Return the seconds that a hook gets for its answer; None for another question, or when the CLI ends the waiting."""
        registered = self._callbacks.get(body.callback_id) if isinstance(body, HookCallback) else None
        return None if registered is None else registered[2]

    def __contains__(self, callback_id: str) -> bool:
        return callback_id in self._callbacks


def _can_refuse(event: str) -> bool:
    """Return True for an event whose hooks can refuse something."""
    from claude_transport.protocol.hooks import DENIABLE  # its many classes are made for conversations with hooks only

    return event in DENIABLE


def _checked_timeout(event: str, timeout: object) -> float | None:
    """Return the timeout of a matcher, or raise `ConfigurationError` for a value that is no number of seconds."""
    if timeout is None:
        return None
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not is_number or not 0 < timeout <= _LONGEST_HOOK_TIMEOUT:  # type: ignore[operator]
        raise ConfigurationError(
            f"a HookMatcher for {event} has the timeout {timeout!r}: give seconds, above 0 and at most {_LONGEST_HOOK_TIMEOUT:.0f}",
            option="hooks",
        )
    return float(timeout)  # type: ignore[arg-type]


def _deferral_problem(version: str | None) -> str | None:
    """Return why a tool call must not be deferred on this CLI; None when it may be.

    A session that is resumed asks the hook again. CLI 2.1.191 and older run the call when the hook then defers it once more. A CLI that
    tells no version is an old one.
    """
    is_safe = supports(_DEFERRED_TWICE, version=version)
    if is_safe or (is_safe is None and version is not None):
        return None
    claude = "a claude of unknown version" if version is None else f"claude {version}"
    return f"the call is denied, not deferred: {claude} may run it when it is resumed. Update claude to 2.1.257 or newer"


def _late(limit: float) -> str:
    return f"no answer in {limit:g} s"


def _permission(decision: object, body: CanUseTool) -> dict[str, Any]:
    """Return the response payload of a decision; raises `UsageError` for what is no decision."""
    if isinstance(decision, Allow):
        updated = body.input if decision.updated_input is None else decision.updated_input
        if not isinstance(updated, Mapping):
            raise UsageError(f"Allow.updated_input is a mapping, not {type(updated).__name__}")  # the CLI would refuse the answer [04g]
        answer: dict[str, Any] = {"behavior": "allow", "updatedInput": updated}
        if decision.updated_permissions:
            answer["updatedPermissions"] = [update.to_dict() for update in decision.updated_permissions]
        return answer
    if isinstance(decision, Deny):
        answer = {"behavior": "deny", "message": str(decision.message)}
        if decision.interrupt:
            answer["interrupt"] = True
        return answer
    raise UsageError(f"can_use_tool returned {type(decision).__name__}, not Allow or Deny")


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


def _check_on_error(value: object) -> None:
    """Raise `ConfigurationError` unless `value` is "deny" or "allow"."""
    if value not in ("deny", "allow"):
        _refuse("on_callback_error", f'on_callback_error must be "deny" or "allow", not {value!r}')


def _check_hook_event(event: object) -> None:
    """Raise `ConfigurationError` unless `event` is a known hook event: hooks of an unknown one would never run."""
    from claude_transport.protocol.hooks import HookEvent  # its many classes are made for conversations with hooks only

    if not isinstance(event, str) or event not in [*HookEvent]:
        close: list[str] = []
        with contextlib.suppress(OSError):  # the import fails when no file descriptor is free; then the message has no hint
            import difflib  # only when the hint is needed

            close = difflib.get_close_matches(str(event), [*HookEvent], n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        _refuse("hooks", f"there is no hook event {event!r}{hint} (for an event of a newer CLI, pass its hooks in initialize=)")


def _check_sequence(option: str, value: Any, *, of: type, what: str) -> None:
    """Raise `ConfigurationError` unless `value` is a sequence of `of`. `what` names the value in the message."""
    is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes | Mapping)
    if not is_list or not all(isinstance(item, of) for item in value):
        _refuse(option, f"{what} must be a list of {of.__name__}, not {value!r}")


def _refuse(option: str, message: str) -> NoReturn:
    raise ConfigurationError(message, option=option)
