"""Builds one result from the messages of a run: text, tokens, cost and warnings. Pure, and used for both paths.

Odd messages never raise: what is missing, null or of the wrong kind adds nothing.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Final, Literal, TypeAlias, TypeGuard

import msgspec

from claude_transport.errors import ConfigurationError
from claude_transport.protocol.blocks import TextBlock, ToolUseBlock
from claude_transport.protocol.envelope import DecodeFailure, Message, OversizedMessage, Usage, as_float
from claude_transport.protocol.messages import (
    AssistantMessage,
    BackgroundTasksChanged,
    InitMessage,
    ModelRefusalFallback,
    ResultMessage,
    StreamEvent,
    TaskNotification,
    TaskStarted,
    TaskUpdated,
    UserMessage,
)

# Advice about a run that reports success but waits for a user, or left work running.


AdviceCategory: TypeAlias = Literal["interactive", "background-task"]

ADVICE: Final[dict[AdviceCategory, str]] = {"interactive": "interactive-hang", "background-task": "background-task"}
"""Category → prefix of its warning. People search for the prefix in logs."""

_WAITING: Final = re.compile(r"\b(waiting on|still waiting|continuing|in progress|in the background)\b", re.IGNORECASE)
_ASKING_TOOL: Final = "AskUserQuestion"
_AGENT_TOOLS: Final = frozenset(
    {"Task", "Agent"}
)  # one tool with two names: `Task` in the CLI's list, `Agent` in calls of the model (docs/reference/protocol.md#tool-names)
_ENDED: Final = frozenset({"completed", "killed", "stopped", "failed"})


class Advice(msgspec.Struct, frozen=True):
    """A suspicion about a run that reported success: its category, and a warning that begins with the prefix of the category."""

    category: AdviceCategory
    warning: str


def advise(messages: Sequence[Message]) -> Advice | None:
    """Look for signs that a run did not finish, in all of its messages in order. Returns None when there are none.

    * `interactive`: there was one turn. It ended by itself (`end_turn`) with a question mark or with an AskUserQuestion call.
    * `background-task`: an agent launched with `run_in_background: true` had not ended before the last result. The CLI's task messages
      decide when there are any; otherwise the last words do (`still waiting`, `in the background`, …), or too few turns.

    `interactive` wins when both fit. Messages of subagents are not considered.
    """
    last = max((index for index, message in enumerate(messages) if isinstance(message, ResultMessage)), default=None)
    result = None if last is None else messages[last]
    if not isinstance(result, ResultMessage) or result.is_error is True:
        return None
    # what a task does after the last result reaches no answer: the CLI kills it, or does not report it [24j]
    messages = messages[:last]
    spoken = [message for message in messages if isinstance(message, AssistantMessage) and message.parent_tool_use_id is None]
    return _interactive(spoken, result) or _background(messages, spoken, result)


def _interactive(spoken: Sequence[AssistantMessage], result: ResultMessage) -> Advice | None:
    last = _last_message(spoken)
    if result.num_turns > 1 or not last:
        return None
    # the CLI leaves stop_reason null on the blocks of a streamed message, and reports it with the result [01]
    stopped = last[-1].message.stop_reason or result.stop_reason
    if stopped != "end_turn":
        return None
    if any(tool.name == _ASKING_TOOL for message in last for tool in message.tool_uses):
        return _advice("interactive", f"the run ended with an {_ASKING_TOOL} call without an answer")
    if _text_of(last).rstrip().endswith("?"):
        return _advice("interactive", "the run ended with a question without an answer")
    return None


def _background(messages: Sequence[Message], spoken: Sequence[AssistantMessage], result: ResultMessage) -> Advice | None:
    launched = [tool for tool in _tools_of(messages) if tool.name in _AGENT_TOOLS and tool.input.get("run_in_background") is True]
    if not launched:
        return None
    told = _tasks(messages, {tool.id for tool in launched})
    if told is not None:
        return _advice("background-task", f"{_count(told)} still running when the run ended") if told else None
    if _WAITING.search(_text_of(spoken)):
        return _advice("background-task", f"{_count(len(launched))} launched, and the last words speak of waiting")
    if result.num_turns < len(launched) + 2:
        few = f"the run took {result.num_turns} turn{'s' if result.num_turns != 1 else ''}, too few to have seen them end"
        return _advice("background-task", f"{_count(len(launched))} launched, and {few}")
    return None


def _tasks(messages: Iterable[Message], launches: set[str]) -> int | None:
    """Count the launched tasks that had not ended by the last message. None when the CLI reported nothing about them."""
    running: dict[str, bool] = {}
    for message in messages:
        if isinstance(message, TaskStarted) and message.tool_use_id in launches:
            running[message.task_id] = True
        elif _has_ended(message, running):
            running[message.task_id] = False
        elif isinstance(message, BackgroundTasksChanged):
            alive = {task.task_id for task in message.tasks}
            running = {task: is_running and task in alive for task, is_running in running.items()}
    return sum(running.values()) if running else None


def _has_ended(message: Message, running: Container[str]) -> TypeGuard[TaskUpdated | TaskNotification]:
    """Whether `message` reports the end of one of the `running` tasks."""
    if isinstance(message, TaskUpdated):
        return message.patch.status in _ENDED and message.task_id in running
    return isinstance(message, TaskNotification) and message.task_id in running


def _last_message(spoken: Sequence[AssistantMessage]) -> list[AssistantMessage]:
    """Return the parts of the last API message. It arrives as one `AssistantMessage` for each block, all with one id."""
    if not spoken:
        return []
    last = spoken[-1].message.id
    return [message for message in spoken if message.message.id == last] if last else [spoken[-1]]


def _tools_of(messages: Iterable[Message]) -> list[ToolUseBlock]:
    return [tool for message in messages if isinstance(message, AssistantMessage) for tool in message.tool_uses]


def _text_of(spoken: Iterable[AssistantMessage]) -> str:
    blocks = (block for message in spoken for block in message.content)
    return "\n".join(block.text for block in blocks if isinstance(block, TextBlock) and block.text)


def _count(tasks: int) -> str:
    return "1 background task was" if tasks == 1 else f"{tasks} background tasks were"


def _advice(category: AdviceCategory, text: str) -> Advice:
    return Advice(category, f"{ADVICE[category]}: {text}")


NO_RESULT: Final = "no-result: the stream ended without a result; token counts and cost are unknown"
"""Warning for a run that ended well without a result."""

_CONTENT: Final = "message.content"

_OF_THE_CLI: Final = "stop_sequence"
"""Stop reason of the message in which the CLI reports a failure."""

_GUESSED: Final = "unknown"
"""Value of `costBasis` when the CLI does not know a price and guesses it."""


class Assembly(msgspec.Struct, frozen=True, kw_only=True):
    """What the messages of one run add up to. Tokens are 0 and `cost_usd` (US dollars) is None when the run did not report them.

    `failure` is the first result that reports one; `result` is the last result. `text` and `text_blocks` belong to the main conversation,
    without subagents and without error messages of the CLI. Each of the `warnings` begins with a fixed prefix.
    """

    text: str = ""
    text_blocks: tuple[str, ...] = ()
    usage: Usage = Usage()
    cost_usd: float | None = None
    model: str | None = None
    stop_reason: str | None = None
    api_key_source: str | None = None
    session_id: str | None = None
    result: ResultMessage | None = None
    failure: ResultMessage | None = None
    warnings: tuple[str, ...] = ()
    events: tuple[Message, ...] = ()


def assemble(messages: Sequence[Message]) -> Assembly:
    """Add up all `messages` of a run, in order. Never raises."""
    spoken = _spoken(messages)
    blocks = tuple(block.text for message in spoken for block in message.content if isinstance(block, TextBlock) and block.text)
    results = [message for message in messages if isinstance(message, ResultMessage)]
    last = results[-1] if results else None
    # `usage` belongs to one turn, and a run may have several turns with a result each: add them up
    # (docs/reference/protocol.md#usage-and-cost)
    return Assembly(
        text="\n".join(blocks),
        text_blocks=blocks,
        usage=_total([result.usage for result in results]),
        cost_usd=_cost(results),
        model=_model(messages, spoken),
        stop_reason=_stop_reason(last, spoken),
        api_key_source=next((found.api_key_source for found in _inits(messages) if found.api_key_source), None),
        session_id=_session_id(messages),
        result=last,
        failure=next((result for result in results if result.outcome.ok is False), None),
        warnings=_warnings(messages, results),
        events=tuple(messages),
    )


def build_api_message(messages: Sequence[Message], *, usage: Usage, failed: bool = False) -> dict[str, Any]:
    """Build the reply as one message of the Messages API, in wire shape, from the messages of a run. A failed run has no content.

    Tool calls that have an answer among `messages` are left out: the CLI has run them, and they must not run again. The stop reason stays.
    """
    spoken = [] if failed else _spoken(messages)
    answered = [result.tool_use_id for message in messages if isinstance(message, UserMessage) for result in message.tool_results]
    content = [block for message in spoken for block in _wire_blocks(message) if block.get("id") is None or block["id"] not in answered]
    assembly = assemble(messages)
    last = spoken[-1].message if spoken else None
    return {
        "id": "" if last is None else last.id,
        "type": "message",
        "role": "assistant",
        "model": assembly.model or "",
        "content": content,
        "stop_reason": assembly.stop_reason,
        "stop_sequence": None if last is None else last.stop_sequence,
        "stop_details": None if last is None else last.stop_details,
        "usage": usage.to_dict(),
    }


def may_have_side_effects(messages: Iterable[Message]) -> bool:
    """Whether a tool was called, or was about to be, in the main conversation or in a subagent. Such a run must not be repeated."""
    return any(_calls_a_tool(message) for message in messages)


class _Piece(msgspec.Struct, frozen=True):
    """A piece of text. `message_id` and `index` name the block that it belongs to; `begins_block` is True for the first piece of one."""

    text: str
    message_id: str
    index: int
    begins_block: bool


class TextFlow:
    """Collects the text of the main conversation as it is written. Pass each message to `hear()`, in order.

    With partial messages, the pieces add up to `Assembly.text`. Without them, each block is one piece.
    """

    def __init__(self) -> None:
        self._pieces: list[_Piece] = []
        self._streamed: set[str] = set()
        self._ids: dict[str, str] = {}  # uuid → message id
        self._current = ""
        self._new_block = True
        self.was_taken_back: bool = False
        """Whether the CLI gave up a message after a part of it, and asks for it again."""
        self.was_refused: bool = False
        """Whether it did so because the model refused to go on."""

    @property
    def text(self) -> str:
        """All text so far."""
        return "\n".join(self.blocks)

    @property
    def blocks(self) -> tuple[str, ...]:
        """The text so far, block by block."""
        found: list[list[str]] = []
        for piece in self._pieces:
            if piece.begins_block or not found:
                found.append([])
            found[-1].append(piece.text)
        return tuple(map("".join, found))

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def hear(self, message: Message) -> str:
        """Return the text that `message` adds; empty when it adds none."""
        for name in _refused(message):
            self._take_back(self._ids.get(name, name), 0, refused=True)
        if isinstance(message, StreamEvent):
            return self._hear_event(message) if message.parent_tool_use_id is None else ""
        if not isinstance(message, AssistantMessage):
            return ""
        if message.uuid:
            self._ids[message.uuid] = message.message.id
        if not _spoken((message,)) or message.message.id in self._streamed:
            return ""
        texts = [block.text for block in message.content if isinstance(block, TextBlock)]
        return "".join([self._add(text, new_block=True, source=(message.message.id, 0)) for text in texts])

    def _hear_event(self, message: StreamEvent) -> str:
        match message.event_type:
            case "message_start":
                started = message.event.get("message")
                found = started.get("id") if isinstance(started, Mapping) else None
                self._current = found if isinstance(found, str) else ""
            case "content_block_start":
                self._new_block = True
            case "content_block_delta" if message.text:
                if self._current:
                    self._streamed.add(self._current)
                new_block, self._new_block = self._new_block, False
                return self._add(message.text, new_block=new_block, source=(self._current, _whole(message.event.get("index"))))
        if (abandoned := message.abandoned_blocks) is not None:
            self._take_back(abandoned.get("api_message_id"), _whole(abandoned.get("from_block_index")))
        return ""

    def _add(self, text: str, *, new_block: bool, source: tuple[str, int]) -> str:
        if not text:
            return ""
        is_first = not self._pieces
        self._pieces.append(_Piece(text, *source, new_block))
        return "\n" + text if new_block and not is_first else text

    def _take_back(self, message_id: object, first: int, *, refused: bool = False) -> None:
        """Drop the blocks that the CLI gave up: those of a message from an index on."""
        kept = [piece for piece in self._pieces if piece.message_id != message_id or piece.index < first]
        if len(kept) < len(self._pieces):
            self._pieces = kept
            self.was_taken_back = True
            self.was_refused = self.was_refused or refused


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def _spoken(messages: Sequence[Message]) -> list[AssistantMessage]:
    """Return the messages that the model wrote in the main conversation.

    An API error has the same shape, and is left out. So is a message that was refused, after which the CLI asked again.
    """
    given_up = {name for message in messages for name in _refused(message)}
    return [
        message
        for message in messages
        if isinstance(message, AssistantMessage)
        and message.parent_tool_use_id is None
        and not (message.error or message.is_api_error_message)
        # content that is not a list of blocks adds nothing, although the decoder keeps its text
        and _CONTENT not in message.misfits
        and given_up.isdisjoint((message.message.id, message.uuid))
    ]


def _refused(message: Message) -> tuple[str, ...]:
    """Return the messages that the CLI gives up with this one, because the model refused: their ids at the API, or their uuids."""
    if isinstance(message, UserMessage) and message.refused_message_id:
        return (message.refused_message_id,)
    return (message.retracted_message_uuids or ()) if isinstance(message, ModelRefusalFallback) else ()


def _inits(messages: Iterable[Message]) -> list[InitMessage]:
    return [message for message in messages if isinstance(message, InitMessage)]


def _stop_reason(last: ResultMessage | None, spoken: Sequence[AssistantMessage]) -> str | None:
    """Return why the model stopped. After a failure, the CLI reports the `stop_sequence` of its own words: that is not the model's."""
    if last is not None and last.is_error and last.stop_reason == _OF_THE_CLI:
        return "max_tokens" if last.api_error == "max_output_tokens" else None
    stops = (message.message.stop_reason for message in reversed(spoken) if message.message.stop_reason)
    return (last.stop_reason if last is not None else None) or next(stops, None)


def _model(messages: Iterable[Message], spoken: Sequence[AssistantMessage]) -> str | None:
    answered = next((message.model for message in reversed(spoken) if message.model and not message.is_synthetic), None)
    return answered or next((found.model for found in _inits(messages) if found.model), None)


def _session_id(messages: Sequence[Message]) -> str | None:
    """Return the session id that was named last: `/clear` and forks change it (docs/reference/protocol.md#session-ids)."""
    for message in reversed(messages):
        found = getattr(message, "session_id", None)
        if isinstance(found, str) and found:
            return found
    return None


def _total(usages: Sequence[Usage]) -> Usage:
    """Add up the usage of several turns. With one turn, return it with all details."""
    if len(usages) == 1:
        return usages[0]
    return Usage(
        input_tokens=sum(usage.input_tokens for usage in usages),
        output_tokens=sum(usage.output_tokens for usage in usages),
        cache_creation_input_tokens=sum(usage.cache_creation_input_tokens for usage in usages),
        cache_read_input_tokens=sum(usage.cache_read_input_tokens for usage in usages),
    )


def _cost(results: Sequence[ResultMessage]) -> float | None:
    """Return the US dollars of this run. `total_cost_usd` also counts earlier runs of a resumed session."""
    if not results:
        return None
    if all(result.model_usage_since_last_result is not None for result in results):
        costs = (used.cost_usd for result in results for used in (result.model_usage_since_last_result or {}).values())
        return float(sum(map(as_float, costs)))
    return as_float(results[-1].total_cost_usd)


def _warnings(messages: Sequence[Message], results: Sequence[ResultMessage]) -> tuple[str, ...]:
    warnings = [] if results else [NO_RESULT]
    if lost := sum(isinstance(message, DecodeFailure | OversizedMessage) for message in messages):
        warnings.append(f"lost-lines: {lost} line{'s' if lost > 1 else ''} held no message and {'were' if lost > 1 else 'was'} left out")
    guessed = {
        name for result in results for name, used in (result.model_usage_since_last_result or {}).items() if used.cost_basis == _GUESSED
    }
    if guessed:
        warnings.append(f"guessed-cost: the CLI does not know the price of {', '.join(sorted(guessed))}, and has guessed it")
    return tuple(warnings)


def _wire_blocks(message: AssistantMessage) -> list[dict[str, Any]]:
    """Return the content blocks as they arrived, with fields that this version does not know."""
    said = message.to_dict().get("message")
    content = said.get("content") if isinstance(said, Mapping) else None
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _calls_a_tool(message: Message) -> bool:
    if isinstance(message, AssistantMessage):
        return any(block.type.endswith("tool_use") for block in message.content)
    if isinstance(message, StreamEvent) and message.event_type == "content_block_start":
        block = message.event.get("content_block")
        return isinstance(block, Mapping) and str(block.get("type", "")).endswith("tool_use")
    return False


def require_anthropic() -> None:
    """Raise `ConfigurationError` when `anthropic` is not installed. It says how to install it."""
    if find_spec("anthropic") is None:
        raise ConfigurationError("the Messages API needs the package anthropic: pip install anthropic", option="transport")
