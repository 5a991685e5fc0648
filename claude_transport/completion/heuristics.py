"""Advice about a run that reports success and is none: it waits for a user who is not there, or has left work running (S2.7).

Advice is never an error. It is given only after a result, and never over one that reports a failure itself.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from typing import Final, Literal, TypeAlias, TypeGuard

import msgspec

from claude_transport.protocol.envelope import Message
from claude_transport.protocol.messages import AssistantMessage, ResultMessage, TextBlock, ToolUseBlock
from claude_transport.protocol.tasks import BackgroundTasksChanged, TaskNotification, TaskStarted, TaskUpdated

__all__ = ["ADVICE", "Advice", "AdviceCategory", "advise"]

AdviceCategory: TypeAlias = Literal["interactive", "background-task"]

ADVICE: Final[dict[AdviceCategory, str]] = {
    "interactive": "interactive-hang",
    "background-task": "background-task",
}
"""The prefix of the warning of each category; people search for it in logs."""

_WAITING: Final = re.compile(r"\b(waiting on|still waiting|continuing|in progress|in the background)\b", re.IGNORECASE)
_ASKING_TOOL: Final = "AskUserQuestion"
_AGENT_TOOLS: Final = frozenset(
    {"Task", "Agent"}
)  # one tool: `Task` in what the CLI lists, `Agent` in what the model calls (docs/reference/protocol.md#tool-names)
_ENDED: Final = frozenset({"completed", "killed", "stopped", "failed"})


class Advice(msgspec.Struct, frozen=True):
    """What a run that went well should still be suspected of: a category, and a warning that begins with its prefix."""

    category: AdviceCategory
    warning: str


def advise(messages: Sequence[Message]) -> Advice | None:
    """The advice about a whole run, from all of its messages in order; None when there is nothing to say.

    * `interactive`: one turn only, which ended of itself (`end_turn`) with a question mark or with an AskUserQuestion call.
    * `background-task`: an agent launched with `run_in_background: true` had not ended before the last result. The CLI's task messages
      decide, when it sent any about those launches; else the last words (`still waiting`, `in the background`, …) or too few turns do.

    The first wins over the second. Messages of subagents say nothing about whether the run itself hangs.
    """
    last = max((index for index, message in enumerate(messages) if isinstance(message, ResultMessage)), default=None)
    result = None if last is None else messages[last]
    if not isinstance(result, ResultMessage) or result.is_error is True:
        return None
    # what a task does after the last result is in nobody's answer any more: the CLI kills it, or nobody is told [24j]
    messages = messages[:last]
    spoken = [message for message in messages if isinstance(message, AssistantMessage) and message.parent_tool_use_id is None]
    return _interactive(spoken, result) or _background(messages, spoken, result)


def _interactive(spoken: Sequence[AssistantMessage], result: ResultMessage) -> Advice | None:
    last = _last_message(spoken)
    if result.num_turns > 1 or not last:
        return None
    # the CLI leaves stop_reason null on the blocks of a streamed message, and tells it with the result [01]
    stopped = last[-1].message.stop_reason or result.stop_reason
    if stopped != "end_turn":
        return None
    if any(tool.name == _ASKING_TOOL for message in last for tool in message.tool_uses):
        return _advice("interactive", f"the run ended with an {_ASKING_TOOL} call that nobody answered")
    if _text_of(last).rstrip().endswith("?"):
        return _advice("interactive", "the run ended with a question that nobody answered")
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
    """How many of the launched tasks had not ended by the last message; None when the CLI said nothing of them. [15a, 24a]"""
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
    """Whether `message` says that one of the `running` tasks has ended, however."""
    if isinstance(message, TaskUpdated):
        return message.patch.status in _ENDED and message.task_id in running
    return isinstance(message, TaskNotification) and message.task_id in running


def _last_message(spoken: Sequence[AssistantMessage]) -> list[AssistantMessage]:
    """The parts of the last API message: one arrives as an `AssistantMessage` for each of its blocks, all with one id."""
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
