"""`split_by_parent`: tells the messages of the main thread from those of subagents, which all come through the same stream."""

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
"""Tool calls that are remembered with the lane that made them. Messages about an older call count as the main thread's."""


class Lane(msgspec.Struct, frozen=True, eq=False):
    """The main conversation, or one subagent of it; `split_by_parent()` gives each message together with its lane.

    `tool_use_id` is the tool call that started the subagent, `parent` the lane that made this call. Both are None for the main
    conversation. There is one object for each lane, so that it can be the key of a dict. `agent_id` is the same as in the context of
    permission callbacks and in the input of hooks. `agent_id`, `subagent_type` and `description` are None as long as no message named them.
    """

    tool_use_id: str | None = None
    parent: Lane | None = None
    agent_id: str | None = None
    subagent_type: str | None = None
    description: str | None = None

    @property
    def is_main(self) -> bool:
        """True for the lane of the main conversation, False for a subagent."""
        return self.tool_use_id is None

    @property
    def depth(self) -> int:
        """How deep the subagent is nested: 0 for the main conversation, 1 for its subagents, 2 for their subagents."""
        return 0 if self.parent is None else self.parent.depth + 1


MAIN = Lane()
"""The main thread of every conversation."""


class Lanes:
    """Finds the lane of each message: the main conversation, or the subagent that it belongs to. Pass it all messages in the order in which
    they came, with `place()`. It works on a list, a tape or a log as well as on a live stream.

    * Messages of and to a subagent name the call that started it in `parent_tool_use_id`.
    * Messages *about* a tool call (progress, denials, tasks) belong to the lane that made the call. So does `ToolProgress`, although its
      `parent_tool_use_id` is not empty: it names the call itself, also on the main thread.
    * All others belong to the main conversation: results, session state, limits.
    """

    def __init__(self) -> None:
        self._calls: dict[str, tuple[Lane, ToolUseBlock]] = {}
        self._lanes: dict[str, Lane] = {}

    @property
    def subagents(self) -> tuple[Lane, ...]:
        """The lanes of all subagents that have had a message so far, in the order of their first messages."""
        return tuple(self._lanes.values())

    def place(self, message: Message) -> Lane:
        """Return the lane to which `message` belongs, and remember the tool calls in it. Call it once for each message, in order."""
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
            # what the call did not tell, and partial messages do not know yet
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
    """Iterate over messages together with their lanes: `async for lane, message in split_by_parent(query.messages()): ...`.

    `messages` is a `Turn`, `query.messages()`, a one-shot `query()`, or any other async iteration of messages. Messages keep their order,
    none is left out, and none is read ahead, so you can leave the loop at any time. `lane.is_main` is True for the main conversation. Lanes
    can be keys of a dict.

    A subagent runs in the background by default, and outlives the turn that started it. A `Turn` ends with its result, so only
    `query.messages()` has what comes after.
    """
    return SplitMessages(messages)


class SplitMessages:
    """The iteration of `split_by_parent()`; `lanes.subagents` are the subagents so far."""

    def __init__(self, messages: AsyncIterable[Message]) -> None:
        self._messages: AsyncIterator[Message] = aiter(messages)
        self.lanes: Lanes = Lanes()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[Lane, Message]:
        message = await anext(self._messages)
        return self.lanes.place(message), message

    async def aclose(self) -> None:
        """Close the source, when it can be closed, as `query()` can."""
        aclose = getattr(self._messages, "aclose", None)
        if aclose is not None:
            await aclose()
