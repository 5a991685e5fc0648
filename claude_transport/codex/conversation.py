"""The state machine of a conversation with Codex: which turn a message belongs to, what it adds, and which turn it ends.

One process has many threads, each thread at most one running turn. Ids of items repeat, so everything is found by thread and turn. It has
no task, no clock and no I/O; the shell around it is `codex.session`. What a failure means is in `codex.errors`.
"""

from __future__ import annotations

import datetime as dt
from collections import deque
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from claude_transport.codex.errors import error_of, interrupted, is_unreachable, names_windows, resets_at_of
from claude_transport.codex.items import AgentMessageItem, CodexItem, FileChangeItem, FileUpdate
from claude_transport.codex.messages import (
    AgentMessageDelta,
    ApprovalRequest,
    CodexNotification,
    CodexTokens,
    CodexTurnError,
    ErrorNotification,
    ItemCompleted,
    ItemStarted,
    RateLimitsUpdated,
    RequestId,
    RequestResolved,
    ThreadStatus,
    ThreadStatusChanged,
    ThreadTokenUsageUpdated,
    TurnCompleted,
    TurnStarted,
)
from claude_transport.errors import RateLimited, ResultError

TurnStatus: TypeAlias = Literal["inProgress", "completed", "interrupted", "failed"]
"""How far a turn is, or how it ended, in the words of Codex."""

MAX_UNCLAIMED: Final = 256
"""Turns that no prompt of this program started and that are followed all the same. A peer cannot make them grow without end."""

MAX_KEPT: Final = 256
"""Messages of the model and open file changes that are kept of one turn. The oldest go first."""

MAX_TEXT_CHARS: Final = 64 * 2**20
"""Characters of text that are kept of one turn. What comes after them is in the messages only."""

_FINAL: Final = "final_answer"


class CodexTurnResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a turn ended. `CodexTurn.result()` returns it, also for a failed turn; `raise_for_error()` raises instead.

    * `status`: `completed`, `interrupted` or `failed`.
    * `error`: why it failed, as an error of this library with a stable `code`; None unless `status` is `failed`.
    * `text`: the answer: the last message of the model, or what there was of it when the turn was cut short.
    * `usage`: the tokens of this turn alone; `thread_usage` those of its thread so far.
    * `retries`: how often Codex asked the model again; retries are no failures.
    * `duration_ms`: how long the turn took, in milliseconds, as Codex says.
    * `turn_error`: the failure as Codex wrote it.
    """

    thread_id: str
    turn_id: str
    status: TurnStatus
    error: ResultError | None = None
    text: str = ""
    usage: CodexTokens = CodexTokens()
    thread_usage: CodexTokens = CodexTokens()
    retries: int = 0
    duration_ms: int | None = None
    turn_error: CodexTurnError | None = None

    @property
    def ok(self) -> bool:
        """True when the turn ran to its end."""
        return self.status == "completed"

    def raise_for_error(self) -> None:
        """Do nothing after a complete turn; raise otherwise.

        Raises:
            ResultError: the turn failed; the class says why (`AuthFailed`, `RateLimited`, `Overloaded`, …).
            RunInterrupted: the turn was interrupted.
        """
        if self.error is not None:  # a new one each time: raising one object again and again would mix up its tracebacks
            error = error_of(self.turn_error or CodexTurnError(), result=self.error.result)
            error.resets_at = self.error.resets_at
            raise error
        if self.status != "completed":
            raise interrupted(result=self)


class _GrowingText:
    """A text that grows by pieces. They are joined when the text is asked for."""

    __slots__ = ("_pieces",)

    def __init__(self, text: str = "") -> None:
        self._pieces = [text]

    def add(self, piece: str) -> None:
        self._pieces.append(piece)

    @property
    def whole(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0]


class NewText:
    """Finds in the messages of a turn what the model has not said before, so that the text can be shown as it grows.

    After a cut stream the model says its message again from the start, often under another id. As long as the new text repeats the old one,
    it adds nothing. When it takes another course, it is given whole, because what was shown cannot be taken back.
    """

    def __init__(self) -> None:
        self._cut: _GrowingText | None = None  # what was shown of the message that a cut stream left unfinished
        self._shown: dict[str, _GrowingText] = {}
        self._repeated: dict[str, int] = {}  # characters of the shown text that were said again

    def of(self, message: CodexNotification) -> str:
        """Return the text that this message adds; empty for a message without new text."""
        match message:
            case ErrorNotification(will_retry=True):
                self._cut = next((shown for shown in self._shown.values() if shown.whole), self._cut)
                self._shown.clear()
                self._repeated.clear()
            case ItemStarted(item=AgentMessageItem(id=name)):
                self._begin(name)
            case ItemCompleted(item=AgentMessageItem(id=name, text=text)):
                return self._complete(name, text)
            case AgentMessageDelta(item_id=name, delta=delta):
                return self._add(name, delta)
            case _:
                pass
        return ""

    def _begin(self, name: str) -> None:
        if name not in self._shown and self._cut is not None:
            self._shown[name], self._cut = self._cut, None
        if name in self._shown:
            self._repeated[name] = 0

    def _add(self, name: str, delta: str) -> str:
        if name not in self._shown:
            self._begin(name)
        shown = self._shown.setdefault(name, _GrowingText())
        if name not in self._repeated:
            shown.add(delta)
            return delta
        old, place = shown.whole, self._repeated[name]
        if old.startswith(delta, place):
            self._repeated[name] += len(delta)
            return ""
        del self._repeated[name]
        said = old[:place] + delta
        self._shown[name] = _GrowingText(said)
        return said.removeprefix(old)

    def _complete(self, name: str, text: str) -> str:
        if name not in self._shown:
            self._begin(name)
        shown = self._shown.pop(name, _GrowingText()).whole
        self._repeated.pop(name, None)
        return text.removeprefix(shown)


class _Speech:
    """One message of the model: its text, and the phase that the model says it belongs to."""

    __slots__ = ("phase", "text")

    def __init__(self, text: str, phase: str | None) -> None:
        self.text: _GrowingText = _GrowingText(text)
        self.phase: str | None = phase


class TurnRecord:
    """What is known of one turn. `CodexTurn` shows it to the program."""

    def __init__(self, thread_id: str, turn_id: str) -> None:
        self.thread_id: str = thread_id
        self.turn_id: str = turn_id
        self.status: TurnStatus = "inProgress"
        self.usage: CodexTokens = CodexTokens()
        self.thread_usage: CodexTokens = CodexTokens()
        self.retries: int = 0
        self.result: CodexTurnResult | None = None
        """How the turn ended; None while it runs."""
        self.claims: int = 0
        """Prompts of this program that are part of the turn."""
        self.has_begun: bool = False
        """True from the first message of the turn on. Before that, Codex refuses to interrupt it."""
        self.unreachable: CodexTurnError | None = None
        """The error with which Codex began to wait for the API without an end. The turn is interrupted then."""
        self._speeches: deque[_Speech] = deque(maxlen=MAX_KEPT)
        self._open: dict[str, _Speech] = {}
        self._characters = 0
        self._file_changes: dict[str, FileChangeItem] = {}

    @property
    def text(self) -> str:
        """The answer so far: the last message that the model calls final, or else its last one."""
        finals = [speech for speech in self._speeches if speech.phase == _FINAL]
        spoken = finals or self._speeches
        return spoken[-1].text.whole if spoken else ""

    def take(self, message: CodexNotification) -> None:
        """Note what a message of this turn adds."""
        self.has_begun = True
        match message:
            case ItemStarted(item=AgentMessageItem() as item):
                self._speak(item)
            case ItemCompleted(item=AgentMessageItem() as item):
                speech = self._open.get(item.id) or self._speak(item)
                speech.text, speech.phase = _GrowingText(item.text), item.phase
                del self._open[item.id]
            case AgentMessageDelta(item_id=name, delta=delta):
                speech = self._open.get(name) or self._speak(AgentMessageItem(id=name))
                self._characters += len(delta)
                if self._characters <= MAX_TEXT_CHARS:
                    speech.text.add(delta)
            case ItemStarted(item=FileChangeItem() as change):
                _bound(self._file_changes)
                self._file_changes[change.id] = change
            case ErrorNotification(will_retry=True, error=failure):
                self.retries += 1
                if self.unreachable is None and is_unreachable(failure):
                    self.unreachable = replace(failure, message=failure.additional_details or failure.message)
            case TurnCompleted():
                self._end(message)
            case _:
                pass

    def changes_of(self, item_id: str) -> tuple[FileUpdate, ...]:
        """Return the changes of a file change of this turn; empty for an unknown one."""
        item = self._file_changes.get(item_id)
        return item.changes if item is not None else ()

    def _speak(self, item: AgentMessageItem) -> _Speech:
        """Begin a message of the model, or begin it again: the later one counts."""
        _bound(self._open)
        speech = self._open[item.id] = _Speech(item.text, item.phase)
        self._speeches.append(speech)
        return speech

    def add_usage(self, last: CodexTokens, total: CodexTokens) -> None:
        """Add the tokens of one request to the model."""
        names = CodexTokens.__struct_fields__
        self.usage = CodexTokens(**{name: getattr(self.usage, name) + getattr(last, name) for name in names})
        self.thread_usage = total

    def _end(self, message: TurnCompleted) -> None:
        turn = message.turn
        status: TurnStatus = "failed" if turn.error is not None else "completed"
        if turn.status in ("completed", "interrupted", "failed"):
            status = turn.status  # type: ignore[assignment]
        failure = turn.error
        if status == "interrupted" and self.unreachable is not None:
            status, failure = "failed", self.unreachable
        self.status = status
        self.result = CodexTurnResult(
            thread_id=self.thread_id,
            turn_id=self.turn_id,
            status=status,
            error=error_of(failure or CodexTurnError(), result=message) if status == "failed" else None,
            text=self.text or _last_text(turn.items),
            usage=self.usage,
            thread_usage=self.thread_usage,
            retries=self.retries,
            duration_ms=turn.duration_ms,
            turn_error=failure,
        )


def _bound(table: dict[str, Any]) -> None:
    """Make room for one more entry: the oldest one goes when there are too many."""
    if len(table) >= MAX_KEPT:
        del table[next(iter(table))]


def _last_text(items: tuple[CodexItem, ...]) -> str:
    """Return the last message of the model in the summary of a turn; its notifications may have been silenced."""
    return next((item.text for item in reversed(items) if isinstance(item, AgentMessageItem)), "")


class ThreadRecord:
    """What is known of one thread: its running turn, what it has used, and its status."""

    def __init__(self, thread_id: str) -> None:
        self.thread_id: str = thread_id
        self.running: TurnRecord | None = None
        """The turn that runs; None between turns."""
        self.usage: CodexTokens = CodexTokens()
        self.status: ThreadStatus = ThreadStatus(type="idle")
        self.starting: int = 0
        """Prompts that were sent and whose turn is not known yet."""


class CodexConversation:
    """The threads and turns of one Codex process, and the questions that it waits with.

    Give each notification to `take()`. A prompt is announced with `expect()` before it is sent, and claims its turn with `claim()` when the
    answer says which one it is. The turn may have begun, and even ended, in between.
    """

    def __init__(self) -> None:
        self._threads: dict[str, ThreadRecord] = {}
        self._turns: dict[tuple[str, str], TurnRecord] = {}
        self._questions: dict[RequestId, ApprovalRequest] = {}
        self._resets_at: dt.datetime | None = None  # when the usage limit of the account ends

    @property
    def pending_approvals(self) -> tuple[ApprovalRequest, ...]:
        """The questions for approval that wait for an answer."""
        return tuple(self._questions.values())

    @property
    def running(self) -> tuple[TurnRecord, ...]:
        """The turns that run, in all threads."""
        return tuple(thread.running for thread in self._threads.values() if thread.running is not None)

    def thread(self, thread_id: str) -> ThreadRecord:
        """Return the record of a thread, made when it is new."""
        found = self._threads.get(thread_id)
        if found is None:
            found = self._threads[thread_id] = ThreadRecord(thread_id)
        return found

    def expect(self, thread_id: str) -> None:
        """Note that a prompt is about to be sent. `claim()` or `give_up()` follows."""
        self.thread(thread_id).starting += 1

    def claim(self, thread_id: str, turn_id: str) -> TurnRecord:
        """Return the turn that the answer to a prompt names. It is the running one when the prompt was folded into it."""
        self._forget_expectation(thread_id)
        turn = self._turns.get((thread_id, turn_id)) or self._begin(thread_id, turn_id)
        turn.claims += 1
        self._tidy(thread_id)
        return turn

    def give_up(self, thread_id: str) -> None:
        """Note that a prompt was not sent, was refused, or is no longer waited for."""
        self._forget_expectation(thread_id)
        self._tidy(thread_id)

    def take(self, message: CodexNotification) -> TurnRecord | None:
        """Note what a notification says. Returns the turn that it belongs to, which has a `result` once it has ended."""
        turn: TurnRecord | None
        match message:
            case TurnStarted() if message.thread_id in self._threads:
                turn = self._turn_of(message, message.turn.id) or self._begin(message.thread_id, message.turn.id)
            case TurnCompleted():
                return self._complete(message)
            case ThreadStatusChanged(thread_id=thread_id, status=status) if thread_id in self._threads:
                self._threads[thread_id].status = status
                return None
            case ThreadTokenUsageUpdated():
                return self._count(message)
            case RequestResolved(request_id=request_id):
                self._questions.pop(request_id, None)
                return None
            case RateLimitsUpdated(rate_limits=limits):
                self._resets_at = resets_at_of(limits) if names_windows(limits) else self._resets_at
                return None
            case _:
                turn = self._turn_of(message, message.turn_id)
        if turn is not None:
            turn.take(message)
        return turn

    def ask(self, request: ApprovalRequest) -> None:
        """Note that a question for approval waits."""
        self._questions[request.id] = request

    def changes_of(self, request: ApprovalRequest) -> tuple[FileUpdate, ...]:
        """Return the file changes that a question is about; empty when they are not known."""
        turn = self._turns.get((request.thread_id, request.turn_id))
        return turn.changes_of(request.item_id) if turn is not None else ()

    def answer(self, request_id: RequestId) -> bool:
        """Note that a question is answered. Returns False when it was moot: an interrupt has settled it."""
        return self._questions.pop(request_id, None) is not None

    def forget_questions(self) -> None:
        """Note that no answer can reach Codex any more."""
        self._questions.clear()

    def _turn_of(self, message: CodexNotification, turn_id: str) -> TurnRecord | None:
        return self._turns.get((message.thread_id, turn_id))

    def _begin(self, thread_id: str, turn_id: str) -> TurnRecord:
        turn = self._turns[(thread_id, turn_id)] = TurnRecord(thread_id, turn_id)
        self.thread(thread_id).running = turn
        unclaimed = [key for key, each in self._turns.items() if not each.claims]
        for key in unclaimed[:-MAX_UNCLAIMED]:
            del self._turns[key]
        return turn

    def _complete(self, message: TurnCompleted) -> TurnRecord | None:
        turn = self._turn_of(message, message.turn.id)
        thread = self._threads.get(message.thread_id)
        if turn is None:
            if thread is None or not thread.starting:
                return None
            turn = self._begin(message.thread_id, message.turn.id)
        turn.take(message)
        if turn.result is not None and isinstance(turn.result.error, RateLimited):
            turn.result.error.resets_at = self._resets_at
        if thread is not None and thread.running is turn:
            thread.running = None
        self._tidy(message.thread_id)
        return turn

    def _count(self, message: ThreadTokenUsageUpdated) -> TurnRecord | None:
        """Note the tokens. After a resume or a fork Codex repeats an old turn's, which is none of the turns here."""
        turn = self._turn_of(message, message.turn_id)
        thread = self._threads.get(message.thread_id)
        if thread is not None:
            if turn is not None and message.token_usage.total != thread.usage:
                turn.add_usage(message.token_usage.last, message.token_usage.total)
            thread.usage = message.token_usage.total
        return turn

    def _forget_expectation(self, thread_id: str) -> None:
        thread = self.thread(thread_id)
        thread.starting = max(thread.starting - 1, 0)

    def _tidy(self, thread_id: str) -> None:
        """Forget the turns of a thread that have ended, unless the answer to a prompt may still name one of them."""
        if self.thread(thread_id).starting:
            return
        ended = [key for key, turn in self._turns.items() if key[0] == thread_id and turn.result is not None]
        for key in ended:
            del self._turns[key]
