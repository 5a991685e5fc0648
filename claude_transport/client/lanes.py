"""`split_by_parent`: the main thread of a conversation apart from its subagents, which all talk through the same stream."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from typing import Self

import msgspec
from msgspec.structs import force_setattr

from claude_transport.protocol.blocks import ToolUseBlock
from claude_transport.protocol.envelope import Message, UnknownMessage
from claude_transport.protocol.messages import (
    AssistantMessage,
    PermissionDeniedMessage,
    StreamEvent,
    TaskNotification,
    TaskProgress,
    TaskStarted,
    ToolProgress,
    UserMessage,
)

_CALLS_LIMIT = 10_000
"""Tool calls remembered, to know in which lane they were made; what is said about an older one is taken for the main thread's."""


class Lane(msgspec.Struct, frozen=True, eq=False):
    """The main thread, or one subagent: `tool_use_id` is the call that started it, `parent` the lane that made this call.

    One object for each lane, so that it can be a key. `agent_id` is what permission and hook callbacks get as `context.agent_id`.
    `subagent_type` and `description` are None where nobody said.
    """

    tool_use_id: str | None = None
    parent: Lane | None = None
    agent_id: str | None = None
    subagent_type: str | None = None
    description: str | None = None

    @property
    def is_main(self) -> bool:
        """True for the main thread."""
        return self.tool_use_id is None

    @property
    def depth(self) -> int:
        """0 for the main thread, 1 for its subagents, 2 for theirs."""
        return 0 if self.parent is None else self.parent.depth + 1


MAIN = Lane()
"""The main thread of every conversation."""


class Lanes:
    """Says of each message, in the order they came, whose it is. Pure: for a list, a tape or a log as well as for a live stream.

    * What a subagent says, and is told, names the call that started it in `parent_tool_use_id`. [15a]
    * What is said *about* a tool call (progress, denials, tasks) belongs to the lane that made the call. `ToolProgress` too, although its
      `parent_tool_use_id` is not empty: it is the call itself, also on the main thread. [17c]
    * Everything else is of the main thread: results, session state, limits.
    """

    def __init__(self) -> None:
        self._calls: dict[str, tuple[Lane, ToolUseBlock]] = {}
        self._lanes: dict[str, Lane] = {}

    @property
    def subagents(self) -> tuple[Lane, ...]:
        """Every lane beside the main thread so far, in the order they were first heard of."""
        return tuple(self._lanes.values())

    def place(self, message: Message) -> Lane:
        """The lane of this message."""
        match message:
            case AssistantMessage():
                lane = self._lane(message.parent_tool_use_id, message)
                for block in message.tool_uses:
                    self._remember(lane, block)
                return lane
            case UserMessage():
                return self._lane(message.parent_tool_use_id, message)
            case StreamEvent():
                return self._lane(message.parent_tool_use_id)
            case ToolProgress():
                return self._caller(message.parent_tool_use_id)
            case TaskStarted() | TaskProgress() | TaskNotification() | PermissionDeniedMessage():
                return self._caller(message.tool_use_id)
            case UnknownMessage():
                parent = message.to_dict().get("parent_tool_use_id")
                return self._lane(parent if isinstance(parent, str) else None)
        return MAIN

    def _lane(self, tool_use_id: str | None, said: AssistantMessage | UserMessage | None = None) -> Lane:
        if tool_use_id is None:
            return MAIN
        lane = self._lanes.get(tool_use_id)
        if lane is None:
            parent, call = self._calls.get(tool_use_id, (MAIN, None))
            lane = Lane(tool_use_id, parent, None, _text(call, "subagent_type"), _text(call, "description"))
            self._lanes[tool_use_id] = lane
        if said is not None:
            # what the call did not say, and what a partial message does not know yet
            force_setattr(lane, "agent_id", lane.agent_id or said.agent_id)
            force_setattr(lane, "subagent_type", lane.subagent_type or said.subagent_type)
            force_setattr(lane, "description", lane.description or said.task_description)
        return lane

    def _caller(self, tool_use_id: str | None) -> Lane:
        return MAIN if tool_use_id is None else self._calls.get(tool_use_id, (MAIN, None))[0]

    def _remember(self, lane: Lane, block: ToolUseBlock) -> None:
        self._calls[block.id] = (lane, block)
        if len(self._calls) > _CALLS_LIMIT:
            del self._calls[next(iter(self._calls))]


def _text(call: ToolUseBlock | None, field: str) -> str | None:
    value = None if call is None else call.input.get(field)
    return value if isinstance(value, str) else None


def split_by_parent(messages: AsyncIterable[Message]) -> SplitMessages:
    """Each message together with its lane: `async for lane, message in split_by_parent(query.messages()): ...`.

    `messages` is a `Turn`, `query.messages()`, a one-shot `query()`, or any other iteration of messages. Nothing is held back, reordered or
    left out, and nothing is read ahead: leaving the loop loses nothing that the source would not lose. `lane.is_main` is the filter for a
    clean main thread; lanes can be keys of a dict.

    A subagent runs in the background by default, and outlives the turn that started it [15a]: a `Turn` ends with its result, and only
    `query.messages()` has what comes after.
    """
    return SplitMessages(messages)


class SplitMessages:
    """The iteration of `split_by_parent()`; `lanes.subagents` are those it has met so far."""

    def __init__(self, messages: AsyncIterable[Message]) -> None:
        self._messages: AsyncIterator[Message] = aiter(messages)
        self.lanes: Lanes = Lanes()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[Lane, Message]:
        message = await anext(self._messages)
        return self.lanes.place(message), message

    async def aclose(self) -> None:
        """End the source, when it is one that can be ended, as `query()` is."""
        aclose = getattr(self._messages, "aclose", None)
        if aclose is not None:
            await aclose()
