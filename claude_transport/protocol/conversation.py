"""The state machine of a conversation: what each message means, decided without a clock, a task or any I/O.

Every stimulus (`send`, `request`, `received`, `abandoned`, `ended`, …) returns frozen actions for somebody else to perform.
All the hard knowledge about the CLI lives here and next door:

* **Which result belongs to which prompt** (`prompts`). Only `result` and the end of the stream are needed to finish a turn.
* **Which session this is** (`session`), and whether it is the one that was asked for.
* **What is outstanding.** Requests are registered before they are written, answers may come in any order, and the end of the
  stream settles everything at once.
* **When nothing can be asked any more**, so that input may end (`quiet`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import Any, Final

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
    SessionStateChanged,
    StreamEvent,
    TaskNotification,
    TaskStarted,
    UserMessage,
)
from claude_transport.protocol.session import SessionIdentity

# --- Where a prompt is on its way to a result, and every step it may take.


class TurnState(StrEnum):
    """Where a prompt is: waiting, running, or in one of four ends."""

    QUEUED = "queued"
    """It was sent, and waits for its turn."""
    STARTED = "started"
    """Claude works on it."""
    DONE = "done"
    """It had a turn of its own, and this is its result."""
    FOLDED = "folded"
    """It was taken into another prompt's turn and shares that one's result (recordings 10f, 10i)."""
    DROPPED = "dropped"
    """It was cancelled before it ran (recordings 10e, 07f); there will be no result."""
    LOST = "lost"
    """The conversation ended first; there will be no result."""


class TurnEvent(StrEnum):
    """What can happen to a prompt."""

    TAKEN = "taken"
    """The CLI began to work on it."""
    LED = "led"
    """A result came, and this prompt is the one it answers."""
    JOINED = "joined"
    """A result came that answers this prompt along with an earlier one."""
    RETURNED = "returned"
    """The turn it seemed to have was one that nobody asked for, as its result says; it waits again."""
    CANCELLED = "cancelled"
    """The CLI took it out of its queue."""
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
"""Every legal step of a prompt. The four ends have no way out: what comes after them changes nothing."""


# --- What a `Conversation` asks of whoever performs it: frozen, and nothing but data.


class Deliver(msgspec.Struct, frozen=True):
    """Hand on `messages`, in order; they belong to the turns of the prompts `turns` (none: to no turn)."""

    messages: list[Message]
    turns: tuple[str, ...]


class Settle(msgspec.Struct, frozen=True):
    """The prompt `uuid` is now in `state`; `result` comes with `done` and `folded`."""

    uuid: str
    state: TurnState
    result: ResultMessage | None = None


class Resolve(msgspec.Struct, frozen=True):
    """The request `request_id` has this answer."""

    request_id: str
    response: ControlResponse


class Reject(msgspec.Struct, frozen=True):
    """The request `request_id` will never be answered: the run failed before it began, as `result` says (recording 16g)."""

    request_id: str
    result: ResultMessage


class Start(msgspec.Struct, frozen=True):
    """The CLI asks: find an answer to `request` while reading goes on."""

    request: ControlRequest


class Cancel(msgspec.Struct, frozen=True):
    """The CLI no longer wants an answer to its request `request_id`; stop working on it and send none."""

    request_id: str


Action = Deliver | Settle | Resolve | Reject | Start | Cancel


# --- Which prompt a turn, a message and a result belong to.


_SEEN_LIMIT = 100_000
"""Prompt uuids that are remembered, to refuse a repeated one: the CLI would drop it (docs/reference/protocol.md#repeated-uuids)."""

_PRIORITIES: Final = {"now": 0, "next": 1, "later": 2}
"""In this order the CLI takes them from its queue, those of one priority in the order of sending (2.1.329, real)."""


class _Prompt:
    """A prompt without an end."""

    __slots__ = ("has_waited", "is_command", "priority", "state")

    def __init__(self, *, priority: int, is_command: bool) -> None:
        self.state = TurnState.QUEUED
        self.priority = priority
        self.is_command = is_command
        self.has_waited = False  # a result came while it was in the queue


class Prompts:
    """The prompts of one conversation, the turn that is running, and who is in it."""

    def __init__(self) -> None:
        self._open: dict[str, _Prompt] = {}  # in the order of sending
        self._seen: dict[str, None] = {}
        self._in_turn = False  # a turn is running, perhaps one that nobody asked for
        self._is_unasked = False  # it began while nobody waited for one
        self._folding: tuple[str, ...] = ()  # what the CLI takes into the turn when it goes on after a tool
        self._are_named = False  # this CLI says which prompt a frame belongs to
        self._is_cli = False  # the peer says that it is a CLI, which takes its queue as CLIs do
        self._last_result: ResultMessage | None = None
        self.current: tuple[str, ...] = ()
        """Those that the running turn is about; none when it is nobody's, or when no turn runs."""
        self.is_steady: bool = False
        """True while a turn runs and `spoke()` would change nothing (plain attributes both: they are read for every message)."""

    # --------------------------------------------------------------------------------------------------------------- facts

    @property
    def open(self) -> tuple[str, ...]:
        """Those that have neither a result nor another end, in the order of sending."""
        return tuple(self._open)

    @property
    def is_running(self) -> bool:
        """True while one is open, or a turn runs that nobody asked for."""
        return bool(self._open) or self._in_turn

    @property
    def last_result(self) -> ResultMessage | None:
        """The result that came last."""
        return self._last_result

    def state_of(self, uuid: str) -> TurnState | None:
        """Where an open prompt is; None when it has reached its end, or was never sent."""
        prompt = self._open.get(uuid)
        return None if prompt is None else prompt.state

    # ---------------------------------------------------------------------------------------------------------------- ours

    def add(self, uuid: str, *, priority: str | None, is_command: bool) -> None:
        """Register one before it is written. A uuid used before is refused: the CLI would drop it silently."""
        if uuid in self._seen:
            raise UsageError(f"a message with the uuid {uuid} was sent before; the CLI drops repeated uuids without an answer")
        self._seen[uuid] = None
        if len(self._seen) > _SEEN_LIMIT:
            del self._seen[next(iter(self._seen))]
        self._open[uuid] = _Prompt(priority=_PRIORITIES.get(priority or "next", 1), is_command=is_command)

    def withdraw(self, uuid: str) -> None:
        """Forget one that was never written."""
        self._open.pop(uuid, None)
        self._seen.pop(uuid, None)
        self.current = tuple(other for other in self.current if other != uuid)

    # -------------------------------------------------------------------------------------------------------------- theirs

    def began(self, message: InitMessage) -> None:
        """A turn begins, or says again that it has begun."""
        self._are_named = self._are_named or bool(message.user_message_uuids)
        self._is_cli = self._is_cli or bool(message.claude_code_version)
        named = self._known(message.user_message_uuids)
        if named:
            self._begin(named)
        elif not self._in_turn:
            # Nobody waits, or the CLI would have said for whom it is: a background task woke the session. A peer that is no CLI may
            # well introduce itself before it is asked anything.
            unasked = self._are_named or (self._is_cli and not self._open)
            self._begin(() if unasked else self._next() if self._open else (), in_turn=unasked or bool(self._open))

    def spoke(self) -> tuple[str, ...]:
        """The main thread says something: whose it is. Without names, a turn that begins with it takes the next of the queue."""
        if self._folding:
            self._begin((*self.current, *self._known(self._folding)))
        elif not self._in_turn and not self._are_named and self._open:
            self._begin(self._next())
        return self.current

    def worked(self) -> None:
        """A tool of the running turn has ended. Unnamed prompts that were sent before are folded into the turn if it goes on (10h);
        if it was interrupted it does not, and they stay in the queue."""
        if self._in_turn and self._is_cli and not self._are_named:
            waiting = [uuid for uuid, prompt in self._open.items() if prompt.priority < _PRIORITIES["later"] and not prompt.is_command]
            self._folding = tuple(uuid for uuid in waiting if uuid not in self.current)
            self.is_steady = not self._folding

    def noted(self, message: CommandLifecycle) -> tuple[tuple[str, ...], list[Settle]]:
        """The CLI says what became of a prompt: whose message that is, and what is settled by it."""
        self._are_named = True
        uuid = message.command_uuid
        if uuid not in self._open:
            return (), []
        if message.state == "started":
            self._begin((*self.current, uuid) if self._in_turn else (uuid,))
        elif message.state == "cancelled":
            return (uuid,), self._step((uuid,), TurnEvent.CANCELLED)
        elif message.state == "completed" and not (self._in_turn and uuid in self.current) and self._last_result is not None:
            # it was worked on, and no result of a turn that still runs will name it: the last one is the one it shares
            return (uuid,), self._step((uuid,), TurnEvent.JOINED, self._last_result)
        return (uuid,), []

    def answered(self, message: ResultMessage) -> tuple[tuple[str, ...], list[Settle]]:
        """The turn is over: the prompts that this is the result of, the one it answers first, and what is settled by it."""
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
        """Whether this result was said before: it must not count for the next prompt."""
        return message.uuid is not None and self._last_result is not None and message.uuid == self._last_result.uuid

    def ended(self) -> list[Settle]:
        """Nothing more will come: every open prompt is lost."""
        self._rest()
        return self._step(tuple(self._open), TurnEvent.ENDED)

    # ---------------------------------------------------------------------------------------------------------------- turns

    def _answered_by(self, message: ResultMessage) -> tuple[str, ...]:
        uuids = message.user_message_uuids or ((message.user_message_uuid,) if message.user_message_uuid else ())
        if uuids:
            self._are_named = True
            return tuple(dict.fromkeys((*self._known(uuids), *self.current)))
        if self._are_named and self._in_turn:
            return self.current  # empty: a turn that nobody asked for
        if message.is_unsolicited:
            return self.current if self._is_unasked else ()  # what is in it was folded into it, or only seemed to be its beginning
        if self._is_cli and self._in_turn:
            return self.current
        return self.current or (self._next() if self._open else ())

    def _next(self) -> tuple[str, ...]:
        """Of a queue without names, those that the turn that begins now takes: the next, and what the CLI merges with it (10j)."""
        if not self._is_cli:
            return (next(iter(self._open)),)
        queue = sorted(self._open, key=lambda uuid: self._open[uuid].priority)  # stable: those of one priority stay in order
        first = self._open[queue[0]]
        taken = [queue[0]]
        # When a turn ends, all that wait are taken at once, but not a slash command, nor a later one with others (2.1.329, real).
        # Those sent since then found no turn running: the first of them began one (10b).
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
        """No turn is running."""
        self._in_turn = self.is_steady = False
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


class Conversation:
    """One conversation, from the host's side."""

    def __init__(self) -> None:
        self._prompts = Prompts()
        self._session = SessionIdentity()
        self._expects_structure = False  # a JSON schema was asked for
        self._pending: dict[str, str] = {}  # our requests: id -> subtype
        self._inbound: set[str] = set()  # theirs
        self._agent_tasks: dict[str, str] = {}  # background agents at work: task id -> description
        self._started_agents: dict[str, str] = {}  # the same of a CLI that never lists its background tasks; foreground ones, too
        self._lists_tasks = False
        self._wake_up_due = False  # an agent is done, and the turn that it wakes the session for has not begun
        self._session_state: str | None = None
        self._assistant_error: str | None = None  # what the last message of the main thread said went wrong, in this turn
        self._resets_at: dt.datetime | None = None
        self._next_request = 0
        self.late_responses: int = 0
        """Answers that came for requests nobody waits for any more."""
        self.has_ended: bool = False
        self.capabilities: tuple[str, ...] = ()
        """What the CLI said at the start of the last turn that it can do."""

    # ---------------------------------------------------------------------------------------------------------- properties

    @property
    def open_turns(self) -> tuple[str, ...]:
        """Prompts that have neither a result nor another end, in the order of sending."""
        return self._prompts.open

    def state_of(self, uuid: str) -> TurnState | None:
        """Where an open prompt is; None when it has reached its end, or was never sent."""
        return self._prompts.state_of(uuid)

    @property
    def is_running(self) -> bool:
        """True while there is something an interrupt could stop."""
        return self._prompts.is_running

    @property
    def last_result(self) -> ResultMessage | None:
        """The result that came last."""
        return self._prompts.last_result

    @property
    def session_id(self) -> str | None:
        """The session, as the last init named it; None before the first, and between a `/clear` and the next."""
        return self._session.session_id

    @property
    def last_uuid(self) -> str | None:
        """The last message of the main thread: where a resumed session would go on."""
        return self._session.last_uuid

    @property
    def pending_requests(self) -> dict[str, str]:
        """Our unanswered requests: id to subtype."""
        return dict(self._pending)

    @property
    def background_agents(self) -> dict[str, str]:
        """Background agents at work: task id to description. They will wake the session when they are done."""
        return self._agent_tasks | self._started_agents

    @property
    def open_questions(self) -> tuple[str, ...]:
        """Ids of the CLI's requests that wait for our answer."""
        return tuple(sorted(self._inbound))

    @property
    def quiet(self) -> bool:
        """True when nothing is under way that could still ask the host for something, so that input may end.

        Background agents hold it open, because the turn they will start may need hooks and permissions; background shells
        do not, because they may never end (docs/reference/protocol.md#background-work). Between the end of an agent and
        that turn some 10 ms pass, in which only the session state, where the CLI reports it, says that something is still to come [15c].
        """
        return not (self.is_running or self._session_state == "running" or self._inbound or self.background_agents or self._wake_up_due)

    # ------------------------------------------------------------------------------------------------------- stimuli: ours

    def expect(self, *, session_id: str | None = None, fork: bool = False, structured_output: bool = False) -> None:
        """What the options ask of this conversation: a session, or with `fork` a copy of it, and results that keep to a JSON schema."""
        self._session.expect(session_id, fork=fork)
        self._expects_structure = structured_output

    def send(self, uuid: str, *, priority: str | None = None, is_command: bool = False) -> None:
        """Register a prompt, before it is written. A uuid used before is refused: the CLI would drop it silently.

        `priority` as the prompt has it ("next" when it has none), and `is_command` for a slash command: they say how a CLI that
        names no prompts takes them from its queue.
        """
        self._prompts.add(uuid, priority=priority, is_command=is_command)

    def withdraw(self, uuid: str) -> None:
        """Forget a prompt that was never written."""
        self._prompts.withdraw(uuid)

    def request(self, subtype: str) -> str:
        """Register a request, before it is written: the id to write it with."""
        self._next_request += 1
        request_id = f"req_{self._next_request}"
        self._pending[request_id] = subtype
        return request_id

    def abandoned(self, request_id: str) -> None:
        """Nobody waits for the answer to `request_id` any more."""
        self._pending.pop(request_id, None)

    def answered(self, request_id: str) -> bool:
        """Whether an answer to the CLI's request may still be sent: False when it was cancelled meanwhile."""
        if request_id not in self._inbound:
            return False
        self._inbound.discard(request_id)
        return True

    # ----------------------------------------------------------------------------------------------------- stimuli: theirs

    def received(self, messages: Sequence[Message], kinds: AbstractSet[object] | None = None) -> list[Action]:
        """What to do about a batch of messages, in order. Runs of messages with the same owner become one `Deliver`.

        `kinds` are the types of the messages, from somebody who knows them already.
        """
        if messages and self._prompts.is_steady and _HANDLERS.keys().isdisjoint(map(type, messages) if kinds is None else kinds):
            return [Deliver(list(messages), self._prompts.current)]  # nothing but data for the turn that runs: asked of all at once
        actions: list[Action] = []
        run: list[Message] = []
        owners: tuple[str, ...] = ()
        prompts = self._prompts
        for message in messages:
            handler = _HANDLERS.get(type(message))
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
        """The stream has ended: every open prompt is lost. Pending requests are the caller's to fail, with the cause it knows."""
        self.has_ended = True
        self._pending.clear()
        cancelled: list[Action] = [Cancel(request_id) for request_id in sorted(self._inbound)]
        self._inbound.clear()
        self._agent_tasks.clear()
        self._started_agents.clear()
        self._wake_up_due = False
        self._session_state = None
        return cancelled + list(self._prompts.ended())

    # ------------------------------------------------------------------------------------------------------------ handlers
    # Each returns: whether the message is for the user, the turns it belongs to, and the actions that follow it.

    def _owners_of(self, message: Message) -> tuple[str, ...]:
        """Whose a message is that only carries data. A turn may begin with one, but not with a straggler of the last turn."""
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
        # a slash command and a turn that nobody asked for owe no answer to a schema
        owes_structure = self._expects_structure and message.local_command is None and not message.is_unsolicited
        force_setattr(message, "expects_structured_output", owes_structure)
        self._assistant_error = None
        return True, answered, [*self._rejected_by(message), *settled]

    def _rejected_by(self, message: ResultMessage) -> list[Action]:
        """A start that failed ends in a result, and leaves every request unanswered for ever (docs/reference/protocol.md#failed-starts)."""
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
            self._started_agents[message.task_id] = message.description
        return True, self._owners_of(message), ()

    def _on_task_notification(self, message: TaskNotification) -> _Verdict:
        # older CLIs tell the end of a foreground agent, too, but always within its turn
        was_at_work = self._started_agents.pop(message.task_id, None) is not None
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
                return False, (), ()  # said twice: one answer is being worked on
            self._inbound.add(request_id)
        return False, (), (Start(message),)

    def _on_control_response(self, message: ControlResponse) -> _Verdict:
        request_id = message.request_id
        if request_id is None or self._pending.pop(request_id, None) is None:
            self.late_responses += 1
            return False, (), ()
        return False, (), (Resolve(request_id, message),)

    def _on_control_cancel(self, message: ControlCancelRequest) -> _Verdict:
        if message.request_id in self._inbound:
            self._inbound.discard(message.request_id)
            return False, (), (Cancel(message.request_id),)
        return False, (), ()

    def _on_keep_alive(self, _message: KeepAlive) -> _Verdict:
        return False, (), ()


_Verdict = tuple[bool, tuple[str, ...], Sequence[Action]]

_FIRST_WORDS = (StreamEvent, DecodeFailure, OversizedMessage, UnknownMessage)
"""What, of the messages without a handler, a turn may begin with; a line that could not be read may have been its beginning."""

_HANDLERS: dict[type[Message], Callable[[Conversation, Any], _Verdict]] = {
    InitMessage: Conversation._on_init,  # noqa: SLF001 - the table belongs to the class above
    AssistantMessage: Conversation._on_assistant,  # noqa: SLF001
    UserMessage: Conversation._on_user,  # noqa: SLF001
    CommandLifecycle: Conversation._on_lifecycle,  # noqa: SLF001
    ConversationReset: Conversation._on_reset,  # noqa: SLF001
    RateLimitEvent: Conversation._on_rate_limit,  # noqa: SLF001
    ResultMessage: Conversation._on_result,  # noqa: SLF001
    SessionStateChanged: Conversation._on_session_state,  # noqa: SLF001
    BackgroundTasksChanged: Conversation._on_background_tasks,  # noqa: SLF001
    TaskStarted: Conversation._on_task_started,  # noqa: SLF001
    TaskNotification: Conversation._on_task_notification,  # noqa: SLF001
    ControlRequest: Conversation._on_control_request,  # noqa: SLF001
    ControlResponse: Conversation._on_control_response,  # noqa: SLF001
    ControlCancelRequest: Conversation._on_control_cancel,  # noqa: SLF001
    KeepAlive: Conversation._on_keep_alive,  # noqa: SLF001
}
"""What each type of message does to the state. All other types are data: they are handed on to the turn that runs."""
