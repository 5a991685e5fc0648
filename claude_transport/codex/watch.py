"""`CodexWatch`: which prompt began which turn, and what a turn used, for observers that only see the messages of both directions pass.

Metrics, traces and the inspector use it. It tells the end of a turn as a `CodexTurnEnd`, which is a `ResultMessage`. So what reads the
results of Claude reads those of Codex, too, with the same codes, and with tokens counted in the same way.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, TypeAlias

import msgspec

from claude_transport.codex.errors import error_of, interrupted, is_unreachable
from claude_transport.codex.items import AgentMessageItem, ReasoningItem
from claude_transport.codex.messages import (
    AgentMessageDelta,
    AnswerError,
    CodexAnswer,
    CodexMessage,
    CodexTokens,
    CodexTurnError,
    CodexUsage,
    ErrorNotification,
    ItemCompleted,
    ItemStarted,
    ThreadClosed,
    ThreadTokenUsageUpdated,
    TurnCompleted,
    TurnData,
    TurnStarted,
    UnknownRequest,
)
from claude_transport.codex.turn_table import MOST_TURNS, TurnTable
from claude_transport.protocol.envelope import ModelUsage, Usage
from claude_transport.protocol.messages import ResultMessage

PROMPTS: Final = frozenset({"turn/start", "turn/steer"})
"""Requests of the host that carry a prompt."""


class SentPrompt(msgspec.Struct, frozen=True):
    """A prompt on its way to Codex. `key` stands for the id of its request (see `key_of`)."""

    key: str
    thread_id: str
    text: str


class CodexTurnEnd(ResultMessage, frozen=True, kw_only=True):
    """The end of a turn of Codex, with the fields of a result of Claude that it has. `uuid` is the id of the turn, `session_id` its thread.

    `outcome` has the code that the error of `codex.errors` has. A cost is not known, and so 0.
    """

    agent: ClassVar[str] = "codex"
    """Whose turn it was."""


class RunningTurn(msgspec.Struct, kw_only=True):
    """A turn. `prompts` are the prompts that it answers; the first one began it. `model` is that of its thread, if it is known.

    `tokens` and `requests` count what it has used so far: the tokens, and the answers of the API. `spoke` is True once the model has begun
    to speak, and `text` is its last whole message. `unreachable` is what Codex said when it could not reach the API; the host ends the turn
    then.
    """

    id: str
    thread_id: str
    prompts: list[SentPrompt] = []
    model: str = ""
    tokens: CodexTokens = CodexTokens()
    requests: int = 0
    spoke: bool = False
    text: str = ""
    unreachable: CodexTurnError | None = None

    @property
    def usage(self) -> Usage:
        """The tokens so far, as the Messages API counts them."""
        return usage_of(self.tokens)


class TurnBegan(msgspec.Struct, frozen=True):
    """A turn has begun. It has no prompt when nothing that the host has sent began it, such as a review."""

    turn: RunningTurn


class PromptJoined(msgspec.Struct, frozen=True):
    """A prompt has joined a turn that was running."""

    turn: RunningTurn
    prompt: SentPrompt


class PromptRefused(msgspec.Struct, frozen=True):
    """Codex has refused a prompt: it belongs to no turn."""

    prompt: SentPrompt
    error: AnswerError


class ModelSpoke(msgspec.Struct, frozen=True):
    """The model has begun to speak in this turn."""

    turn: RunningTurn


class APIAnswered(msgspec.Struct, frozen=True):
    """The API has answered a request of this turn; `usage` is what that used."""

    turn: RunningTurn
    usage: Usage


class TurnEnded(msgspec.Struct, frozen=True):
    """A turn is over. `result` says how."""

    turn: RunningTurn
    result: CodexTurnEnd


WatchEvent: TypeAlias = TurnBegan | PromptJoined | PromptRefused | ModelSpoke | APIAnswered | TurnEnded


class CodexWatch:
    """Follows one connection to `codex app-server`. Give it the messages of both directions, in order."""

    def __init__(self) -> None:
        self._turns: TurnTable[str, SentPrompt, RunningTurn] = TurnTable()
        self._models: dict[str, str] = {}  # by thread
        self.last_thread: str | None = None
        """The thread of the last message that belongs to one."""

    @property
    def turns(self) -> tuple[RunningTurn, ...]:
        """The running turns, the oldest first."""
        return tuple(self._turns.running.values())

    def turn(self, turn_id: str) -> RunningTurn | None:
        """Return the running turn with this id, or None."""
        return self._turns.running.get(turn_id)

    def said(self, message: CodexMessage) -> SentPrompt | None:
        """Note a message of the host. Return the prompt that it carries, or None."""
        if not isinstance(message, UnknownRequest) or message.wire_method not in PROMPTS:
            return None
        prompt = SentPrompt(key_of(message.id), message.thread_id, text_of_input(message.params))
        self._turns.ask(prompt.key, prompt)
        return prompt

    def unsaid(self, prompt: SentPrompt) -> None:
        """Forget a prompt whose write has failed."""
        self._turns.asked.pop(prompt.key, None)

    def heard(self, message: CodexMessage) -> list[WatchEvent]:
        """Note a message of Codex. Return what it means for the prompts and turns."""
        thread = getattr(message, "thread_id", "")
        if thread:
            self.last_thread = thread
        match message:
            case CodexAnswer():
                return self._answered(message)
            case TurnStarted():
                return self._began(message.turn.id, message.thread_id)
            case TurnCompleted():
                return self._ended(message.turn, message.thread_id)
            case ThreadTokenUsageUpdated():
                return self._used(message.turn_id, message.token_usage)
            case ItemStarted() | ItemCompleted() | AgentMessageDelta():
                return self._spoke(message)
            case ErrorNotification(will_retry=True, error=failure) if is_unreachable(failure):
                if (turn := self.turn(message.turn_id)) is not None:
                    turn.unreachable = failure
                return []
            case ThreadClosed():
                lost = [TurnData(id=turn_id, status="interrupted") for turn_id in self._turns.of_thread(message.thread_id)]
                return [event for told in lost for event in self._ended(told, message.thread_id)]
            case _:
                return []

    def ended(self) -> tuple[list[RunningTurn], list[SentPrompt]]:
        """Note that nothing more will come. Return the turns without an end, and the prompts without an answer."""
        turns, prompts = list(self.turns), list(self._turns.asked.values())
        self._turns.forget()
        return turns, prompts

    def _answered(self, answer: CodexAnswer) -> list[WatchEvent]:
        result = answer.result if isinstance(answer.result, dict) else {}
        thread, model = result.get("thread"), result.get("model")
        if isinstance(thread, dict) and isinstance(model, str) and isinstance(thread.get("id"), str) and len(self._models) < MOST_TURNS:
            self._models[thread["id"]] = model
        prompt = self._turns.asked.pop(key_of(answer.id), None)
        if prompt is None:
            return []
        if answer.error is not None:
            return [PromptRefused(prompt, answer.error)]
        turn = result.get("turn")
        turn_id = turn.get("id") if isinstance(turn, dict) else result.get("turnId")
        return self._began(turn_id, prompt.thread_id, prompt) if isinstance(turn_id, str) else []

    def _began(self, turn_id: str, thread_id: str, prompt: SentPrompt | None = None) -> list[WatchEvent]:
        begun = self._turns.begin(turn_id, lambda: self._new_turn(turn_id, thread_id))
        turn = begun or self.turn(turn_id)
        if turn is None:
            return []
        joined = prompt if len(turn.prompts) < MOST_TURNS else None
        if joined is not None:
            turn.prompts.append(joined)
        if begun is not None:
            return [TurnBegan(begun)]
        return [] if joined is None else [PromptJoined(turn, joined)]

    def _new_turn(self, turn_id: str, thread_id: str) -> RunningTurn:
        return RunningTurn(id=turn_id, thread_id=thread_id, model=self._models.get(thread_id, ""))

    def _used(self, turn_id: str, usage: CodexUsage) -> list[WatchEvent]:
        turn = self.turn(turn_id)
        if turn is None:  # a resumed thread tells what it has used before
            return []
        turn.requests += 1
        turn.tokens = _sum(turn.tokens, usage.last)
        return [APIAnswered(turn, usage_of(usage.last))]

    def _spoke(self, message: ItemStarted | ItemCompleted | AgentMessageDelta) -> list[WatchEvent]:
        turn = self.turn(message.turn_id)
        item = None if isinstance(message, AgentMessageDelta) else message.item
        if turn is None or not (item is None or isinstance(item, AgentMessageItem | ReasoningItem)):
            return []
        if isinstance(message, ItemCompleted) and isinstance(item, AgentMessageItem):
            turn.text = item.text
        if turn.spoke:
            return []
        turn.spoke = True
        return [ModelSpoke(turn)]

    def _ended(self, told: TurnData, thread_id: str) -> list[WatchEvent]:
        if not told.id or self._turns.is_over(told.id):
            return []
        turn = self._turns.end(told.id) or self._new_turn(told.id, thread_id)
        return [TurnEnded(turn, result_of(told, turn))]


def key_of(request_id: object) -> str:
    """Return a name for the id of a request, different for the number 1 and the text "1"."""
    return f"{request_id:x}" if isinstance(request_id, int) else repr(request_id)  # decimals of a huge number are refused


def text_of_input(params: Any) -> str:
    """Return the text of a prompt from the `params` of its request. Other inputs become a note in brackets."""
    parts = params.get("input") if isinstance(params, dict) else None
    if not isinstance(parts, list):
        return ""
    texts = []
    for part in parts:
        text = part.get("text") if isinstance(part, dict) else None
        if isinstance(text, str):
            texts.append(text)
        elif isinstance(part, dict):
            texts.append(f"[{part.get('type', 'input')}]")
    return "\n".join(texts)


def usage_of(tokens: CodexTokens) -> Usage:
    """Return counts of Codex as those of the Messages API: no token is in two of them."""
    cached, written = max(0, tokens.cached_input_tokens), max(0, tokens.cache_write_input_tokens)
    return Usage(
        input_tokens=max(0, tokens.input_tokens - cached - written),
        output_tokens=max(0, tokens.output_tokens),
        cache_creation_input_tokens=written,
        cache_read_input_tokens=cached,
    )


def _sum(one: CodexTokens, other: CodexTokens) -> CodexTokens:
    return CodexTokens(**{name: max(0, getattr(one, name)) + max(0, getattr(other, name)) for name in CodexTokens.__struct_fields__})


_TERMINAL: Final = {
    "result.interrupted": "aborted_streaming",
    "result.prompt_too_long": "prompt_too_long",
    "result.budget": "budget_exhausted",
}
_STATUSES: Final = {
    "exec.cli.auth_failed": 401,
    "result.billing": 402,
    "result.model_not_found": 404,
    "result.rate_limited": 429,
    "result.server_error": 500,
    "result.overloaded": 529,
}


def result_of(told: TurnData, turn: RunningTurn) -> CodexTurnEnd:
    """Return the end of a turn as a result. Its outcome has the same code as the error that `codex.errors` makes of it."""
    usage = turn.usage
    facts: dict[str, Any] = {}
    if told.status not in ("completed", "inProgress"):
        failure = turn.unreachable if told.status == "interrupted" else told.error or CodexTurnError()
        error = interrupted() if failure is None else error_of(failure)
        facts = {"is_error": True, "errors": (), **_facts_of(error.code)}
    used = {turn.model: ModelUsage(**{name: getattr(usage, name) for name in _COUNTS})} if turn.model else {}
    return CodexTurnEnd(
        subtype="success",
        result=None if facts else turn.text,
        duration_ms=told.duration_ms or 0,
        num_turns=turn.requests,
        session_id=turn.thread_id or None,
        uuid=told.id,
        usage=usage,
        model_usage_since_last_result=used,
        **facts,
    )


_COUNTS: Final = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def _facts_of(code: str) -> dict[str, Any]:
    """Return the fields of a result whose outcome has this code."""
    if code in _TERMINAL:
        return {"terminal_reason": _TERMINAL[code]}
    if code in _STATUSES:
        return {"terminal_reason": "api_error", "api_error_status": _STATUSES[code]}
    if code == "result.connection_failed":
        return {"terminal_reason": "api_error", "api_error": "connection_failed"}
    if code == "result.invalid_request":
        return {"terminal_reason": "api_error", "api_error_status": 400}
    if code == "result.refusal":
        return {"stop_reason": "refusal"}
    return {"terminal_reason": "api_error"}
