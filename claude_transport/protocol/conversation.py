"""The state machine of a conversation. It decides what each message means, without a clock, tasks or I/O.

Its methods are called for each event (`send`, `request`, `received`, `abandoned`, `ended`, …). They return frozen actions, which the caller
performs; `client.query` does. The knowledge about the CLI's behaviour is here:

* **The prompt of each result** (`Prompts`). A `result` or the end of the stream is enough to finish a turn.
* **The session** (`SessionIdentity`), and whether it is the one that was requested.
* **Open requests.** They are registered before they are written. Answers may come in any order, and the end of the stream settles them all.
* **`quiet`**: when the CLI cannot ask the host for anything any more, so that its input may end.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import Any, ClassVar, Final

import msgspec
from msgspec.structs import force_setattr

from claude_transport.errors import UsageError
from claude_transport.protocol.control import ControlCancelRequest, ControlRequest, ControlResponse
from claude_transport.protocol.envelope import DecodeFailure, Message, OversizedMessage, UnknownMessage
from claude_transport.protocol.messages import (
    AssistantMessage,
    BackgroundTasksChanged,
    CommandLifecycle,
    ConversationReset,
    InitMessage,
    KeepAlive,
    RateLimitEvent,
    ResultMessage,
    SessionForked,
    SessionStateChanged,
    StreamEvent,
    TaskNotification,
    TaskStarted,
    UserMessage,
)


class TurnState(StrEnum):
    """The state of a prompt: queued, running, or one of four final states."""

    QUEUED = "queued"
    """Sent, and waiting for its turn."""
    STARTED = "started"
    """Claude works on it."""
    DONE = "done"
    """It had its own turn and has its result."""
    FOLDED = "folded"
    """It was added to the turn of another prompt and shares that result."""
    DROPPED = "dropped"
    """It was cancelled before its turn began; there will be no result."""
    LOST = "lost"
    """The conversation ended before its result; there will be none."""


class TurnEvent(StrEnum):
    """An event that changes the state of a prompt."""

    TAKEN = "taken"
    """The CLI began to work on it."""
    LED = "led"
    """A result came whose main prompt this is."""
    JOINED = "joined"
    """A result came that answers this prompt together with an earlier one."""
    RETURNED = "returned"
    """The result shows that the running turn did not belong to this prompt; it is queued again."""
    CANCELLED = "cancelled"
    """The CLI removed it from its queue."""
    ENDED = "ended"
    """The stream ended."""


TURN_TRANSITIONS: dict[tuple[TurnState, TurnEvent], TurnState] = {
    (TurnState.QUEUED, TurnEvent.TAKEN): TurnState.STARTED,
    (TurnState.QUEUED, TurnEvent.LED): TurnState.DONE,
    (TurnState.QUEUED, TurnEvent.JOINED): TurnState.FOLDED,
    (TurnState.QUEUED, TurnEvent.CANCELLED): TurnState.DROPPED,
    (TurnState.QUEUED, TurnEvent.ENDED): TurnState.LOST,
    (TurnState.STARTED, TurnEvent.TAKEN): TurnState.STARTED,
    (TurnState.STARTED, TurnEvent.LED): TurnState.DONE,
    (TurnState.STARTED, TurnEvent.JOINED): TurnState.FOLDED,
    (TurnState.STARTED, TurnEvent.RETURNED): TurnState.QUEUED,
    (TurnState.STARTED, TurnEvent.CANCELLED): TurnState.DROPPED,
    (TurnState.STARTED, TurnEvent.ENDED): TurnState.LOST,
}
"""All legal transitions of a prompt. Nothing changes a prompt in a final state."""


class Deliver(msgspec.Struct, frozen=True):
    """Deliver `messages`, in order, to the turns of the prompts `turns`; empty means that they belong to no turn."""

    messages: list[Message]
    turns: tuple[str, ...]


class Settle(msgspec.Struct, frozen=True):
    """The prompt `uuid` reached the final state `state`. `result` is set for `done` and `folded`."""

    uuid: str
    state: TurnState
    result: ResultMessage | None = None


class Resolve(msgspec.Struct, frozen=True):
    """The request `request_id` got this answer."""

    request_id: str
    response: ControlResponse


class Reject(msgspec.Struct, frozen=True):
    """The request `request_id` will never be answered, because the start failed; `result` says why."""

    request_id: str
    result: ResultMessage


class Start(msgspec.Struct, frozen=True):
    """The CLI sent `request`: begin to answer it, and go on reading meanwhile."""

    request: ControlRequest


class Cancel(msgspec.Struct, frozen=True):
    """The CLI withdrew its request `request_id`: stop working on it and send no answer."""

    request_id: str


Action = Deliver | Settle | Resolve | Reject | Start | Cancel

_Verdict = tuple[bool, tuple[str, ...], Sequence[Action]]
"""True when the message is for the user, the prompts it belongs to, and the actions that follow it."""

_FIRST_WORDS = (StreamEvent, DecodeFailure, OversizedMessage, UnknownMessage)
"""The messages without a handler with which a turn may begin. A line that could not be read may have been the first of a turn."""


class Conversation:
    """The state of one conversation, as the host sees it."""

    def __init__(self) -> None:
        self._prompts = Prompts()
        self._session = SessionIdentity()
        self._expects_structure = False  # a JSON schema was asked for
        self._pending: dict[str, str] = {}  # unanswered requests of the host: id -> subtype
        self._inbound: dict[str, None] = {}  # ids of unanswered requests of the CLI
        self._agent_tasks: dict[str, str] = {}  # running background agents: task id -> description
        self._started_agents: dict[str, str] = {}  # running agents of a CLI that does not list its background tasks; also foreground ones
        self._lists_tasks = False
        self._wake_up_due = False  # an agent ended, and the turn that this starts has not begun yet
        self._session_state: str | None = None
        self._assistant_error: str | None = None  # the `error` of the last assistant message of this turn
        self._resets_at: dt.datetime | None = None
        self._next_request = 0
        self.late_responses: int = 0
        """Number of answers to requests that had been given up."""
        self.has_ended: bool = False
        self.capabilities: tuple[str, ...] = ()
        """The capabilities that the CLI reported at the start of the last turn."""

    @property
    def open_turns(self) -> tuple[str, ...]:
        """Uuids of the prompts that have no result and no other final state, in the order of sending."""
        return self._prompts.open

    def state_of(self, uuid: str) -> TurnState | None:
        """Return the state of an open prompt; None when it reached a final state or was never sent."""
        return self._prompts.state_of(uuid)

    @property
    def is_running(self) -> bool:
        """True while a prompt is open or a turn runs, so that an interrupt can stop something."""
        return self._prompts.is_running

    @property
    def last_result(self) -> ResultMessage | None:
        """The last result, or None."""
        return self._prompts.last_result

    @property
    def session_id(self) -> str | None:
        """The session id from the last init message. None before the first one, and between a `/clear` and the next one."""
        return self._session.session_id

    @property
    def last_uuid(self) -> str | None:
        """Uuid of the last message of the main thread, at which a resumed session would continue."""
        return self._session.last_uuid

    @property
    def pending_requests(self) -> dict[str, str]:
        """The unanswered requests of the host: id to subtype."""
        return dict(self._pending)

    @property
    def background_agents(self) -> dict[str, str]:
        """The running background agents: task id to description. The end of one starts a turn."""
        return self._agent_tasks | self._started_agents

    @property
    def open_questions(self) -> tuple[str, ...]:
        """Ids of the CLI's requests that are not answered yet."""
        return tuple(sorted(self._inbound))

    @property
    def quiet(self) -> bool:
        """True when nothing is running that could still ask the host for something, so that the input may end.

        Running background agents count: the turn that they start may need hooks and permissions. Background shells do not, because they may
        never end (docs/reference/protocol.md#background-work). About 10 ms pass between the end of an agent and its turn. During that time,
        only the session state shows that a turn will come, on CLIs that report it.
        """
        return not (self.is_running or self._session_state == "running" or self._inbound or self.background_agents or self._wake_up_due)

    def expect(self, *, session_id: str | None = None, fork: bool = False, structured_output: bool = False) -> None:
        """Set what the options request: a session id, with `fork` a copy of it under a new id, and results that follow a JSON schema."""
        self._session.expect(session_id, fork=fork)
        self._expects_structure = structured_output

    def send(self, uuid: str, *, priority: str | None = None, is_command: bool = False, is_named: bool = True) -> None:
        """Register a prompt before it is written.

        Args:
            uuid: the uuid of the message. A repeated one is refused, because the CLI would silently drop it.
            is_named: False when the message has no uuid, and this one is made up. The CLI names no such prompt.
            priority: the priority that is written; None counts as "next".
            is_command: True for a slash command. Priority and this tell in which order an older CLI, which does not name prompts, takes
                them.

        Raises:
            UsageError: the uuid was used before.
        """
        self._prompts.add(uuid, priority=priority, is_command=is_command, is_named=is_named)

    def withdraw(self, uuid: str) -> None:
        """Forget a prompt that could not be written."""
        self._prompts.withdraw(uuid)

    def request(self, subtype: str) -> str:
        """Register a request before it is written, and return the id to write it with."""
        self._next_request += 1
        request_id = f"req_{self._next_request}"
        self._pending[request_id] = subtype
        return request_id

    def abandoned(self, request_id: str) -> None:
        """Forget a request whose answer is not needed any more. An answer that still comes counts in `late_responses`."""
        self._pending.pop(request_id, None)

    def answered(self, request_id: str) -> bool:
        """Mark a request of the CLI as answered. Returns False when the CLI has withdrawn it: then send no answer."""
        if request_id not in self._inbound:
            return False
        del self._inbound[request_id]
        return True

    def received(self, messages: Sequence[Message], kinds: AbstractSet[object] | None = None) -> list[Action]:
        """Process a batch of messages and return the actions for it, in order. Consecutive messages with the same owner become one
        `Deliver`.

        Args:
            messages: the messages of the batch.
            kinds: the set of their types, if the caller already has it.
        """
        if messages and self._prompts.is_steady:
            if kinds is None:
                kinds = set(map(type, messages))
            if self._ONE_BY_ONE.isdisjoint(kinds):
                if AssistantMessage in kinds:
                    self._note_last_answer(messages)
                return [Deliver(list(messages), self._prompts.current)]
        actions: list[Action] = []
        run: list[Message] = []
        owners: tuple[str, ...] = ()
        prompts, handlers = self._prompts, self._HANDLERS
        for message in messages:
            handler = handlers.get(type(message))
            if handler is None:
                turns = prompts.current if prompts.is_steady else self._owners_of(message)
                after: Sequence[Action] = ()
            else:
                delivered, turns, after = handler(self, message)
                if not delivered:
                    if run:
                        actions.append(Deliver(run, owners))
                        run = []
                    actions.extend(after)
                    continue
            if run and turns != owners:
                actions.append(Deliver(run, owners))
                run = []
            owners = turns
            run.append(message)
            if after:
                actions.append(Deliver(run, owners))
                run = []
                actions.extend(after)
        if run:
            actions.append(Deliver(run, owners))
        return actions

    def ended(self) -> list[Action]:
        """Process the end of the stream: every open prompt is lost. The caller fails its pending requests, because it knows the cause."""
        self.has_ended = True
        self._pending.clear()
        cancelled: list[Action] = [Cancel(request_id) for request_id in sorted(self._inbound)]
        self._inbound.clear()
        self._agent_tasks.clear()
        self._started_agents.clear()
        self._wake_up_due = False
        self._session_state = None
        return cancelled + list(self._prompts.ended())

    def _owners_of(self, message: Message) -> tuple[str, ...]:
        """Return the prompts to which a message without a handler belongs. Such a message may begin a turn, unless it belongs to a
        subagent.
        """
        if isinstance(message, _FIRST_WORDS) and not (isinstance(message, StreamEvent) and message.parent_tool_use_id):
            return self._prompts.spoke()
        return self._prompts.current

    def _on_init(self, message: InitMessage) -> _Verdict:
        self._wake_up_due = False
        self.capabilities = message.capabilities
        self._prompts.began(message)
        forked = self._session.entered(message.session_id)
        turns = self._prompts.current
        return True, turns, () if forked is None else (Deliver([forked], turns),)

    def _on_assistant(self, message: AssistantMessage) -> _Verdict:
        if message.parent_tool_use_id is not None:
            return True, self._prompts.current, ()
        self._session.spoke(message.uuid)
        self._assistant_error = message.error
        return True, self._prompts.spoke(), ()

    def _note_last_answer(self, messages: Sequence[Message]) -> None:
        """Do for the assistant messages of a batch what `_on_assistant()` does. The last one replaces what the others set."""
        is_last = True
        for message in reversed(messages):
            if isinstance(message, AssistantMessage) and message.parent_tool_use_id is None:
                if is_last:
                    self._assistant_error = message.error
                    is_last = False
                if message.uuid:
                    self._session.spoke(message.uuid)
                    break

    def _on_user(self, message: UserMessage) -> _Verdict:
        if message.parent_tool_use_id is None and message.tool_results:
            self._prompts.worked()
        return True, self._prompts.current, ()

    def _on_lifecycle(self, message: CommandLifecycle) -> _Verdict:
        return True, *self._prompts.noted(message)

    def _on_result(self, message: ResultMessage) -> _Verdict:
        if self._prompts.is_repeated(message):
            return True, (), ()
        self._wake_up_due = self._wake_up_due and not message.is_unsolicited
        answered, settled = self._prompts.answered(message)
        force_setattr(message, "assistant_error", self._assistant_error)
        force_setattr(message, "resets_at", self._resets_at)
        force_setattr(message, "prompt_uuids", answered)
        # the schema does not apply to slash commands, nor to turns that no prompt started
        expects_structure = self._expects_structure and message.local_command is None and not message.is_unsolicited
        force_setattr(message, "expects_structured_output", expects_structure)
        self._assistant_error = None
        return True, answered, [*self._rejected_by(message), *settled]

    def _rejected_by(self, message: ResultMessage) -> list[Action]:
        """Reject all requests when the start failed: it ends in a result without any answer (docs/reference/protocol.md#failed-starts)."""
        failed_start = message.is_error is True and message.terminal_reason is None and "initialize" in self._pending.values()
        rejected: list[Action] = [Reject(request_id, message) for request_id in self._pending] if failed_start else []
        if failed_start:
            self._pending.clear()
        return rejected

    def _on_reset(self, _message: ConversationReset) -> _Verdict:
        self._session.reset()
        return True, self._prompts.current, ()

    def _on_rate_limit(self, message: RateLimitEvent) -> _Verdict:
        self._resets_at = message.rate_limit_info.resets_at_time
        return True, self._prompts.current, ()

    def _on_session_state(self, message: SessionStateChanged) -> _Verdict:
        self._session_state = message.state
        return True, self._prompts.current, ()

    def _on_task_started(self, message: TaskStarted) -> _Verdict:
        if message.task_type == "local_agent" and message.is_backgrounded is None and not self._lists_tasks:
            self._started_agents[message.task_id[:MAX_AGENT_CHARS]] = message.description[:MAX_AGENT_CHARS]
            if len(self._started_agents) > MAX_AGENTS:
                del self._started_agents[next(iter(self._started_agents))]
        return True, self._owners_of(message), ()

    def _on_task_notification(self, message: TaskNotification) -> _Verdict:
        # older CLIs also report the end of a foreground agent, but always within its turn
        was_at_work = self._started_agents.pop(message.task_id[:MAX_AGENT_CHARS], None) is not None
        if was_at_work and self._session_state is None and not self.is_running:
            self._wake_up_due = True
        return True, self._owners_of(message), ()

    def _on_background_tasks(self, message: BackgroundTasksChanged) -> _Verdict:
        self._lists_tasks = True
        self._started_agents.clear()
        before, self._agent_tasks = self._agent_tasks, {t.task_id: t.description for t in message.tasks if t.task_type == "local_agent"}
        if self._session_state is None and not before.keys() <= self._agent_tasks.keys():
            self._wake_up_due = True
        return True, self._prompts.current, ()

    def _on_control_request(self, message: ControlRequest) -> _Verdict:
        request_id = message.request_id
        if request_id is not None:
            if request_id in self._inbound:
                return False, (), ()  # a repeated request: the first one is still being answered
            self._inbound[request_id] = None
        return False, (), (Start(message),)

    def _on_control_response(self, message: ControlResponse) -> _Verdict:
        request_id = message.request_id
        if request_id is None or self._pending.pop(request_id, None) is None:
            self.late_responses += 1
            return False, (), ()
        return False, (), (Resolve(request_id, message),)

    def _on_control_cancel(self, message: ControlCancelRequest) -> _Verdict:
        if message.request_id in self._inbound:
            del self._inbound[message.request_id]
            return False, (), (Cancel(message.request_id),)
        return False, (), ()

    def _on_keep_alive(self, _message: KeepAlive) -> _Verdict:
        return False, (), ()

    _HANDLERS: ClassVar[dict[type[Message], Callable[[Conversation, Any], _Verdict]]] = {
        InitMessage: _on_init,
        AssistantMessage: _on_assistant,
        UserMessage: _on_user,
        CommandLifecycle: _on_lifecycle,
        ConversationReset: _on_reset,
        RateLimitEvent: _on_rate_limit,
        ResultMessage: _on_result,
        SessionStateChanged: _on_session_state,
        BackgroundTasksChanged: _on_background_tasks,
        TaskStarted: _on_task_started,
        TaskNotification: _on_task_notification,
        ControlRequest: _on_control_request,
        ControlResponse: _on_control_response,
        ControlCancelRequest: _on_control_cancel,
        KeepAlive: _on_keep_alive,
    }
    """How each type of message changes the state. Messages of all other types are only delivered to the running turn."""

    _ONE_BY_ONE: ClassVar[frozenset[object]] = frozenset(_HANDLERS.keys() - {AssistantMessage})
    """The types that change more than the next message of the same type would replace. A steady batch without them has one owner."""


_SEEN_LIMIT = 100_000
"""Number of prompt uuids that are remembered to refuse repeated ones (docs/reference/protocol.md#repeated-uuids)."""

MAX_AGENTS: Final = 10_000
"""Number of running agents that are remembered from the reports of their starts. When there are more, the oldest is forgotten."""

MAX_AGENT_CHARS: Final = 300
"""Characters that are kept of the id and of the description of each."""

_PRIORITIES: Final = {"now": 0, "next": 1, "later": 2}
"""The order in which the CLI takes prompts from its queue; prompts of one priority are taken in the order of sending (2.1.329)."""


class _Prompt:
    """A prompt that has no final state yet."""

    __slots__ = ("has_waited", "is_command", "is_named", "priority", "state")

    def __init__(self, *, priority: int, is_command: bool, is_named: bool) -> None:
        self.state = TurnState.QUEUED
        self.priority = priority
        self.is_command = is_command
        self.is_named = is_named
        self.has_waited = False  # a result came while it was queued


class Prompts:
    """The open prompts of one conversation, and those of the running turn."""

    def __init__(self) -> None:
        self._open: dict[str, _Prompt] = {}  # in the order of sending
        self._seen: dict[str, None] = {}
        self._in_turn = False  # a turn is running, with or without a prompt
        self._is_unasked = False  # the turn began without a prompt
        self._folding: tuple[str, ...] = ()  # prompts that join the turn if it goes on after a tool
        self._are_named = False  # this CLI reports which prompt a message belongs to
        self._is_cli = False  # the peer reports a CLI version, so it orders its queue as the CLI does
        self._last_result: ResultMessage | None = None
        self.current: tuple[str, ...] = ()
        """Prompts of the running turn; empty when no prompt started it, or when no turn runs."""
        self.is_steady: bool = True
        """True while it is known that `spoke()` would change nothing: a turn runs, or no prompt waits for one. (A plain attribute, like
        `current`: both are read for every message.)
        """

    @property
    def open(self) -> tuple[str, ...]:
        """The prompts without a final state, in the order of sending."""
        return tuple(self._open)

    @property
    def is_running(self) -> bool:
        """True while a prompt is open, or a turn runs without one."""
        return bool(self._open) or self._in_turn

    @property
    def last_result(self) -> ResultMessage | None:
        """The last result, or None."""
        return self._last_result

    def state_of(self, uuid: str) -> TurnState | None:
        """Return the state of an open prompt; None when it reached a final state or was never sent."""
        prompt = self._open.get(uuid)
        return None if prompt is None else prompt.state

    def add(self, uuid: str, *, priority: str | None, is_command: bool, is_named: bool) -> None:
        """Register a prompt. Raises `UsageError` when its uuid was used before."""
        if uuid in self._seen:
            raise UsageError(
                f"a message with the uuid {uuid} was sent before; use a new uuid, because the CLI silently drops repeated ones"
            )
        self._seen[uuid] = None
        if len(self._seen) > _SEEN_LIMIT:
            del self._seen[next(iter(self._seen))]
        self._open[uuid] = _Prompt(priority=_PRIORITIES.get(priority or "next", 1), is_command=is_command, is_named=is_named)
        if not self._in_turn:
            self.is_steady = False

    def withdraw(self, uuid: str) -> None:
        """Forget a prompt that could not be written."""
        self._open.pop(uuid, None)
        self._seen.pop(uuid, None)
        self.current = tuple(other for other in self.current if other != uuid)

    def began(self, message: InitMessage) -> None:
        """Process an init message: a turn begins, or its beginning is repeated."""
        self._are_named = self._are_named or bool(message.user_message_uuids)
        self._is_cli = self._is_cli or bool(message.claude_code_version)
        named = self._known(message.user_message_uuids)
        if named:
            self._begin(named)
        elif not self._in_turn:
            # A CLI starts a turn without a prompt only because a background task ended. A peer that is not a CLI may send its init message
            # before the first prompt.
            waiting = self._unnamed()
            self._begin(self._next(waiting) if waiting else (), in_turn=bool(waiting) or self._are_named or self._is_cli)

    def spoke(self) -> tuple[str, ...]:
        """Process a message of the main thread and return its prompts. Without names, a turn that begins with it takes the next queued
        prompt.
        """
        if self._folding:
            self._begin((*self.current, *self._known(self._folding)))
        elif not self._in_turn and not self._are_named and self._open:
            self._begin(self._next(self._unnamed()))
        return self.current

    def worked(self) -> None:
        """Process the end of a tool of the running turn.

        A CLI that does not name prompts adds the waiting ones to the turn if it goes on. After an interrupt they stay
        queued.
        """
        if self._in_turn and self._is_cli and not self._are_named:
            waiting = [uuid for uuid, prompt in self._open.items() if prompt.priority < _PRIORITIES["later"] and not prompt.is_command]
            self._folding = tuple(uuid for uuid in waiting if uuid not in self.current)
            self.is_steady = not self._folding

    def noted(self, message: CommandLifecycle) -> tuple[tuple[str, ...], list[Settle]]:
        """Process a state report of the CLI about a prompt. Returns the owner of the message, and the prompts that it settles."""
        self._are_named = True
        uuid = message.command_uuid
        if uuid not in self._open:
            return (), []
        if message.state == "started":
            self._begin((*self.current, uuid) if self._in_turn else (uuid,))
        elif message.state == "cancelled":
            return (uuid,), self._step((uuid,), TurnEvent.CANCELLED)
        elif message.state == "completed" and not (self._in_turn and uuid in self.current) and self._last_result is not None:
            # it was completed outside of the running turn, so it shares the last result
            return (uuid,), self._step((uuid,), TurnEvent.JOINED, self._last_result)
        return (uuid,), []

    def answered(self, message: ResultMessage) -> tuple[tuple[str, ...], list[Settle]]:
        """Process a result. Returns the answered prompts, the main one first, and the steps that settle prompts."""
        answered = self._answered_by(message)
        mistaken = self.current if not answered else ()
        self._last_result = message
        self._rest()
        settled = self._step(answered[:1], TurnEvent.LED, message) + self._step(answered[1:], TurnEvent.JOINED, message)
        self._step(self._known(mistaken), TurnEvent.RETURNED)
        for prompt in self._open.values():
            prompt.has_waited = True
        return answered, settled

    def is_repeated(self, message: ResultMessage) -> bool:
        """True when this result already came: it must not count for the next prompt."""
        return message.uuid is not None and self._last_result is not None and message.uuid == self._last_result.uuid

    def ended(self) -> list[Settle]:
        """Process the end of the stream: every open prompt is lost."""
        self._rest()
        return self._step(tuple(self._open), TurnEvent.ENDED)

    def _answered_by(self, message: ResultMessage) -> tuple[str, ...]:
        uuids = message.user_message_uuids or ((message.user_message_uuid,) if message.user_message_uuid else ())
        if uuids:
            self._are_named = True
            return tuple(dict.fromkeys((*self._known(uuids), *self.current)))
        is_guess = message.is_unsolicited and bool(self.current) and not any(self._open[uuid].is_named for uuid in self.current)
        if self._are_named and self._in_turn and not is_guess:
            return self.current  # empty for a turn that no prompt started
        if message.is_unsolicited:
            return self.current if self._is_unasked else ()  # its prompts joined it, or were taken for its beginning by mistake
        if self._is_cli and self._in_turn:
            return self.current
        waiting = self._unnamed() or tuple(self._open)
        return self.current or (self._next(waiting) if waiting else ())

    def _unnamed(self) -> tuple[str, ...]:
        """Return the open prompts whose turn does not name them: all of them with a CLI that names none."""
        return tuple(uuid for uuid, prompt in self._open.items() if not (self._are_named and prompt.is_named))

    def _next(self, waiting: tuple[str, ...]) -> tuple[str, ...]:
        """Return those that an unnamed turn takes: the next one, and those that the CLI merges with it."""
        if not self._is_cli:
            return waiting[:1]
        queue = sorted(waiting, key=lambda uuid: self._open[uuid].priority)  # stable: equal priorities stay in order
        first = self._open[queue[0]]
        taken = [queue[0]]
        # When a turn ends, the CLI merges all waiting prompts of one priority, except slash commands (2.1.329). A prompt that is sent
        # while no turn runs begins a turn by itself [10b].
        if first.has_waited and not first.is_command:
            for uuid in queue[1:]:
                prompt = self._open[uuid]
                if prompt.is_command or prompt.priority != first.priority or not prompt.has_waited:
                    break
                taken.append(uuid)
        return tuple(taken)

    def _known(self, uuids: Iterable[str] | None) -> tuple[str, ...]:
        return tuple(uuid for uuid in uuids or () if uuid in self._open)

    def _begin(self, uuids: tuple[str, ...], *, in_turn: bool = True) -> None:
        if not self._in_turn:
            self._is_unasked = not uuids
        self._in_turn = self.is_steady = in_turn
        self._folding = ()
        self.current = tuple(dict.fromkeys(uuids))
        self._step(self.current, TurnEvent.TAKEN)

    def _rest(self) -> None:
        """Note that no turn is running."""
        self._in_turn = False
        self.is_steady = not self._open
        self._folding = ()
        self.current = ()

    def _step(self, uuids: Iterable[str], event: TurnEvent, result: ResultMessage | None = None) -> list[Settle]:
        settled: list[Settle] = []
        for uuid in tuple(dict.fromkeys(uuids)):
            prompt = self._open[uuid]
            prompt.state = TURN_TRANSITIONS[prompt.state, event]
            if prompt.state in (TurnState.QUEUED, TurnState.STARTED):
                continue
            del self._open[uuid]
            self.current = tuple(other for other in self.current if other != uuid)
            settled.append(Settle(uuid, prompt.state, result))
        return settled


class SessionIdentity:
    """The session id and the message to resume at. The id is taken only from `system/init`.

    Other messages have a session id, too, but it can be wrong. The result of a failed resume names the requested session, which does not
    exist. The `new_conversation_id` of a reset is not the id of the session that follows.
    """

    def __init__(self) -> None:
        self._expected: str | None = None
        self._fork_requested = False
        self.session_id: str | None = None
        self.last_uuid: str | None = None
        """Uuid of the last message of the main thread, at which a resumed session would continue."""

    def expect(self, session_id: str | None, *, fork: bool = False) -> None:
        """Set the session id that the options name; with `fork` they request a copy of it under a new id."""
        self._expected = session_id
        self._fork_requested = fork

    def entered(self, session_id: str | None) -> SessionForked | None:
        """Process the session id of an init message. Returns the message to deliver when it is not the expected session."""
        if not session_id or session_id == self.session_id:
            return None
        expected, requested = self.session_id or self._expected, self._fork_requested
        # a message of the previous session cannot be a place to resume this one
        self.session_id, self.last_uuid = session_id, None
        self._expected, self._fork_requested = None, False
        return None if expected in (None, session_id) else SessionForked(expected=expected or "", actual=session_id, requested=requested)

    def spoke(self, uuid: str | None) -> None:
        """Remember the uuid of a message of the main thread."""
        self.last_uuid = uuid or self.last_uuid

    def reset(self) -> None:
        """Process a `/clear`: the next init message names a new session, as expected."""
        self.session_id = self.last_uuid = None
        self._expected = None
