"""The state machine of a conversation: what each message means, decided without a clock, a task or any I/O.

Every stimulus (`send`, `request`, `received`, `abandoned`, `ended`, …) returns frozen actions for somebody else to perform.
All the hard knowledge about the CLI lives here:

* **Which result belongs to which prompt.** Results cannot be counted against prompts: waiting prompts are merged into one
  turn, a prompt sent while a tool runs is folded into the running turn, and a finished background task starts a turn that
  nobody asked for (PROTOCOL (d) 5, 6). Prompts carry a uuid, and `command_lifecycle`, `user_message_uuids` and `origin` say
  what became of it. An older CLI that sends none of these is followed in the order of sending: only `result` and the end of
  the stream are needed to finish a turn.
* **What is outstanding.** Requests are registered before they are written, answers may come in any order, and the end of the
  stream settles everything at once.
* **When nothing can be asked any more**, so that input may end (`quiet`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import force_setattr

from claude_transport.errors import UsageError
from claude_transport.protocol.actions import Action, Cancel, Deliver, Reject, Resolve, Settle, Start
from claude_transport.protocol.control import ControlCancelRequest, ControlRequest, ControlResponse
from claude_transport.protocol.messages import (
    AssistantMessage,
    BackgroundTasksChanged,
    CommandLifecycle,
    ConversationReset,
    InitMessage,
    KeepAlive,
    Message,
    RateLimitEvent,
    ResultMessage,
    SessionStateChanged,
)
from claude_transport.protocol.turn_states import TURN_TRANSITIONS, TurnEvent, TurnState

__all__ = [
    "TURN_TRANSITIONS",
    "Action",
    "Cancel",
    "Conversation",
    "Deliver",
    "Reject",
    "Resolve",
    "Settle",
    "Start",
    "TurnEvent",
    "TurnState",
]


_SEEN_LIMIT = 100_000
"""Prompt uuids remembered so that a repeated one is refused: the CLI would drop it without a word (PROTOCOL (b), 18u)."""


class Conversation:
    """One conversation, from the host's side."""

    def __init__(self) -> None:
        self._open: dict[str, TurnState] = {}  # prompts without an end, in the order of sending
        self._seen: dict[str, None] = {}
        self._group: tuple[str, ...] = ()  # the prompts of the turn that is running
        self._in_turn = False  # a turn is running, perhaps one that nobody asked for
        self._speaks_uuids = False  # this CLI says which prompt a frame belongs to
        self._pending: dict[str, str] = {}  # our requests: id -> subtype
        self._inbound: set[str] = set()  # theirs
        self._agent_tasks: dict[str, str] = {}  # background agents at work: task id -> description
        self._session_state: str | None = None
        self._assistant_error: str | None = None  # what the last message of the main thread said went wrong, in this turn
        self._resets_at: dt.datetime | None = None
        self._next_request = 0
        self.session_id: str | None = None
        self.last_result: ResultMessage | None = None
        self.last_uuid: str | None = None
        """The last message of the main thread: where a resumed session would go on."""
        self.late_responses = 0
        """Answers that came for requests nobody waits for any more."""
        self.has_ended = False

    # ---------------------------------------------------------------------------------------------------------- properties

    @property
    def open_turns(self) -> tuple[str, ...]:
        """Prompts that have neither a result nor another end, in the order of sending."""
        return tuple(self._open)

    def state_of(self, uuid: str) -> TurnState | None:
        """Where an open prompt is; None when it has reached its end, or was never sent."""
        return self._open.get(uuid)

    @property
    def is_running(self) -> bool:
        """True while there is something an interrupt could stop."""
        return bool(self._open) or self._in_turn

    @property
    def pending_requests(self) -> dict[str, str]:
        """Our unanswered requests: id to subtype."""
        return dict(self._pending)

    @property
    def background_agents(self) -> dict[str, str]:
        """Background agents at work: task id to description. They will wake the session when they are done."""
        return dict(self._agent_tasks)

    @property
    def open_questions(self) -> tuple[str, ...]:
        """Ids of the CLI's requests that wait for our answer."""
        return tuple(sorted(self._inbound))

    @property
    def quiet(self) -> bool:
        """True when nothing is under way that could still ask the host for something, so that input may end.

        Background agents hold it open, because the turn they will start may need hooks and permissions; background shells
        do not, because they may never end (PROTOCOL (d) 11).
        """
        return not (self.is_running or self._session_state == "running" or self._inbound or self._agent_tasks)

    # ------------------------------------------------------------------------------------------------------- stimuli: ours

    def send(self, uuid: str) -> None:
        """Register a prompt, before it is written. A uuid used before is refused: the CLI would drop it silently."""
        if uuid in self._seen:
            raise UsageError(f"a message with the uuid {uuid} was sent before; the CLI drops repeated uuids without an answer")
        self._seen[uuid] = None
        if len(self._seen) > _SEEN_LIMIT:
            del self._seen[next(iter(self._seen))]
        self._open[uuid] = TurnState.queued

    def withdraw(self, uuid: str) -> None:
        """Forget a prompt that was never written."""
        self._open.pop(uuid, None)
        self._seen.pop(uuid, None)
        self._group = tuple(other for other in self._group if other != uuid)

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

    def received(self, messages: Iterable[Message]) -> list[Action]:
        """What to do about a batch of messages, in order. Runs of messages with the same owner become one `Deliver`."""
        actions: list[Action] = []
        run: list[Message] = []
        owners: tuple[str, ...] = ()
        for message in messages:
            handler = _HANDLERS.get(type(message))
            if handler is None:
                turns = self._group if self._in_turn else self._begin_by_order()
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
        self._in_turn = False
        self._group = ()
        self._pending.clear()
        cancelled: list[Action] = [Cancel(request_id) for request_id in sorted(self._inbound)]
        self._inbound.clear()
        self._agent_tasks.clear()
        self._session_state = None
        return cancelled + self._step(tuple(self._open), TurnEvent.ended)

    # ------------------------------------------------------------------------------------------------------------ handlers
    # Each returns: whether the message is for the user, the turns it belongs to, and the actions that follow it.

    def _on_init(self, message: InitMessage) -> _Verdict:
        self._enter_session(message.session_id)
        named = self._known(message.user_message_uuids)
        if message.user_message_uuids:
            self._speaks_uuids = True
        if named:
            self._begin(named)
        elif not self._in_turn:
            if self._speaks_uuids:
                self._begin(())  # a turn nobody asked for: a background task woke the session
            else:
                self._begin_by_order()
        return True, self._group, ()

    def _on_assistant(self, message: AssistantMessage) -> _Verdict:
        if message.parent_tool_use_id is None:
            self.last_uuid = message.uuid or self.last_uuid
            self._assistant_error = message.error
        return True, self._group if self._in_turn else self._begin_by_order(), ()

    def _on_lifecycle(self, message: CommandLifecycle) -> _Verdict:
        self._speaks_uuids = True
        uuid = message.command_uuid
        if uuid not in self._open:
            return True, (), ()
        if message.state == "started":
            self._begin((*self._group, uuid) if self._in_turn else (uuid,))
        elif message.state == "cancelled":
            return True, (uuid,), self._step((uuid,), TurnEvent.cancelled)
        elif message.state == "completed" and not (self._in_turn and uuid in self._group) and self.last_result is not None:
            # it was worked on, and no result of a turn that still runs will name it: the last one is the one it shares
            return True, (uuid,), self._step((uuid,), TurnEvent.joined, self.last_result)
        return True, (uuid,), ()

    def _on_result(self, message: ResultMessage) -> _Verdict:
        if message.uuid is not None and self.last_result is not None and message.uuid == self.last_result.uuid:
            return True, (), ()  # said twice: it must not count for the next prompt
        force_setattr(message, "assistant_error", self._assistant_error)
        force_setattr(message, "resets_at", self._resets_at)
        self.last_result = message
        self._enter_session(message.session_id)
        answered = self._answered_by(message)
        self._in_turn = False
        self._group = ()
        self._assistant_error = None
        rejected = self._rejected_by(message)
        settled = self._step(answered[:1], TurnEvent.led, message) + self._step(answered[1:], TurnEvent.joined, message)
        return True, answered, rejected + settled

    def _answered_by(self, message: ResultMessage) -> tuple[str, ...]:
        """The open prompts that this is the result of, the one it answers first."""
        uuids = message.user_message_uuids or ((message.user_message_uuid,) if message.user_message_uuid else ())
        if uuids:
            self._speaks_uuids = True
            return tuple(dict.fromkeys((*self._known(uuids), *self._group)))
        if self._speaks_uuids and self._in_turn:
            return self._group  # empty: a turn that nobody asked for
        if message.is_unsolicited:
            return ()
        return self._group or tuple(self._open)[:1]

    def _rejected_by(self, message: ResultMessage) -> list[Action]:
        """A start that failed ends in a result, and leaves every request unanswered for ever (PROTOCOL (d) 13)."""
        failed_start = message.is_error is True and message.terminal_reason is None and "initialize" in self._pending.values()
        rejected: list[Action] = [Reject(request_id, message) for request_id in self._pending] if failed_start else []
        if failed_start:
            self._pending.clear()
        return rejected

    def _on_reset(self, message: ConversationReset) -> _Verdict:
        self._enter_session(message.new_conversation_id)
        return True, self._group, ()

    def _on_rate_limit(self, message: RateLimitEvent) -> _Verdict:
        self._resets_at = message.rate_limit_info.resets_at_time
        return True, self._group, ()

    def _enter_session(self, session_id: str | None) -> None:
        if session_id and session_id != self.session_id:
            self.session_id = session_id
            self.last_uuid = None  # what was said in the session before is no place to resume this one at

    def _on_session_state(self, message: SessionStateChanged) -> _Verdict:
        self._session_state = message.state
        return True, self._group, ()

    def _on_background_tasks(self, message: BackgroundTasksChanged) -> _Verdict:
        self._agent_tasks = {task.task_id: task.description for task in message.tasks if task.task_type == "local_agent"}
        return True, self._group, ()

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

    # --------------------------------------------------------------------------------------------------------------- turns

    def _known(self, uuids: Iterable[str] | None) -> tuple[str, ...]:
        return tuple(uuid for uuid in uuids or () if uuid in self._open)

    def _begin(self, uuids: tuple[str, ...]) -> None:
        self._in_turn = True
        self._group = tuple(dict.fromkeys(uuids))
        self._step(self._group, TurnEvent.taken)

    def _begin_by_order(self) -> tuple[str, ...]:
        """For a CLI that names no prompts: the turn that begins answers the prompt that waits longest."""
        if not self._speaks_uuids and self._open:
            self._begin((next(iter(self._open)),))
        return self._group

    def _step(self, uuids: Iterable[str], event: TurnEvent, result: ResultMessage | None = None) -> list[Action]:
        settled: list[Action] = []
        for uuid in tuple(dict.fromkeys(uuids)):
            state = TURN_TRANSITIONS[self._open[uuid], event]
            if state is TurnState.started:
                self._open[uuid] = state
                continue
            del self._open[uuid]
            self._group = tuple(other for other in self._group if other != uuid)
            settled.append(Settle(uuid, state, result))
        return settled


_Verdict = tuple[bool, tuple[str, ...], Sequence[Action]]

_HANDLERS: dict[type[Message], Callable[[Conversation, Any], _Verdict]] = {
    InitMessage: Conversation._on_init,  # noqa: SLF001 - the table belongs to the class above
    AssistantMessage: Conversation._on_assistant,  # noqa: SLF001
    CommandLifecycle: Conversation._on_lifecycle,  # noqa: SLF001
    ConversationReset: Conversation._on_reset,  # noqa: SLF001
    RateLimitEvent: Conversation._on_rate_limit,  # noqa: SLF001
    ResultMessage: Conversation._on_result,  # noqa: SLF001
    SessionStateChanged: Conversation._on_session_state,  # noqa: SLF001
    BackgroundTasksChanged: Conversation._on_background_tasks,  # noqa: SLF001
    ControlRequest: Conversation._on_control_request,  # noqa: SLF001
    ControlResponse: Conversation._on_control_response,  # noqa: SLF001
    ControlCancelRequest: Conversation._on_control_cancel,  # noqa: SLF001
    KeepAlive: Conversation._on_keep_alive,  # noqa: SLF001
}
"""What each type of message does to the state. All other types are data: they are handed on to the turn that runs."""
