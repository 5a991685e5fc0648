"""`Speech`: reads prompts, answers, tool calls and tasks into the lanes of user, assistant and tools.

`StreamedBlocks` puts the pieces of a streamed answer together. `timeline.py` calls all this; `scene.py` collects the events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from claude_transport.agents.scene import CallBook, Level, gist_of, gist_of_input, json_text
from claude_transport.inspection.turn_book import TurnScene
from claude_transport.protocol.blocks import (
    ContentBlock,
    MCPToolResultBlock,
    MCPToolUseBlock,
    RedactedThinkingBlock,
    ServerToolUseBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from claude_transport.protocol.envelope import Usage
from claude_transport.protocol.messages import (
    AssistantMessage,
    PermissionDeniedMessage,
    StreamEvent,
    TaskNotification,
    TaskStarted,
    UserMessage,
)
from claude_transport.protocol.token_counts import token_counts

_KEPT_CHARS = 65_536
"""Characters kept of a block that is being streamed. Most blocks arrive whole later, and then these are not needed."""


class BlockTimes(NamedTuple):
    """The times at which a block and its API message began, and the number of its pieces."""

    began: float
    message_began: float
    pieces: int


class Unfinished(NamedTuple):
    """A block that was streamed and never arrived whole."""

    kind: str
    began: float
    ended: float
    text: str
    chars: int
    parent: str | None
    """The id of the call that started its subagent; None for the main conversation."""


class _Block:
    """A block that is being streamed."""

    __slots__ = ("began", "chars", "kept", "kind", "last", "pieces", "texts")

    def __init__(self, kind: str, began: float) -> None:
        self.kind = kind
        self.began = self.last = began
        self.pieces = self.chars = self.kept = 0
        self.texts: list[str] = []

    def add(self, text: str, t: float) -> None:
        self.pieces += 1
        self.chars += len(text)
        self.last = t
        if self.kept < _KEPT_CHARS:
            self.texts.append(text)
            self.kept += len(text)


class _Thread:
    """The main conversation or one subagent. Each streams one message at a time."""

    __slots__ = ("began", "blocks", "message_id")

    def __init__(self, message_id: str, began: float) -> None:
        self.message_id = message_id
        self.began = began
        self.blocks: dict[str, _Block] = {}


class StreamedBlocks:
    """Remembers when each streamed block began, until the block arrives whole. Blocks arrive in the order of their streams."""

    def __init__(self) -> None:
        self._threads: dict[str | None, _Thread] = {}
        self._unfinished: list[Unfinished] = []

    def read(self, message: StreamEvent, t: float) -> tuple[str, Usage | None]:
        """Take a stream event at time `t`. Return the id of its API message (may be empty) and the usage that it reports."""
        parent = message.parent_tool_use_id
        event, kind = message.event, message.event_type
        if kind == "message_start":
            self._give_up(parent)
            about = event.get("message")
            about = about if isinstance(about, dict) else {}
            thread = self._threads[parent] = _Thread(str(about.get("id", "")), t)
            return thread.message_id, _usage(about.get("usage"))
        thread_now = self._threads.get(parent)
        if thread_now is None:
            return "", None
        place = str(event.get("index"))  # a number; as text, because a hostile peer may send a value that cannot be a key
        if kind == "content_block_start":
            block = event.get("content_block")
            thread_now.blocks[place] = _Block(str(block.get("type", "")) if isinstance(block, dict) else "", t)
        elif kind == "content_block_delta" and (writing := thread_now.blocks.get(place)) is not None:
            writing.add(message.text or message.thinking or _partial_json(event), t)
        elif kind == "message_delta":
            return thread_now.message_id, _usage(event.get("usage"))
        return thread_now.message_id, None

    def arrived(self, message_id: str, *, parent: str | None) -> BlockTimes | None:
        """Note that the next block of this message has arrived whole. Return its times, or None when it was not streamed."""
        thread = self._threads.get(parent)
        if thread is None or thread.message_id != message_id or not thread.blocks:
            return None
        block = thread.blocks.pop(next(iter(thread.blocks)))
        return BlockTimes(block.began, thread.began, block.pieces)

    def unfinished(self, *, at_end: bool = False) -> list[Unfinished]:
        """Return, once each, the blocks that cannot arrive any more; with `at_end` also those that were being streamed."""
        if at_end:
            for parent in tuple(self._threads):
                self._give_up(parent)
        found, self._unfinished = self._unfinished, []
        return found

    def _give_up(self, parent: str | None) -> None:
        thread = self._threads.pop(parent, None)
        for block in thread.blocks.values() if thread is not None else ():
            if block.chars:
                self._unfinished.append(Unfinished(block.kind, block.began, block.last, "".join(block.texts), block.chars, parent))


def _partial_json(event: dict[str, Any]) -> str:
    delta = event.get("delta")
    text = delta.get("partial_json") if isinstance(delta, dict) else None
    return text if isinstance(text, str) else ""


def _usage(value: Any) -> Usage | None:
    try:
        return msgspec.convert(value, Usage) if isinstance(value, dict) else None
    except msgspec.ValidationError:
        return None  # an unknown form of usage counts as none


_SERVER_RESULTS: Final = frozenset({"web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result", "mcp_tool_result"})
_INTERRUPTED: Final = "[Request interrupted by user"
_WHOSE: Final = ("nested", "agent", "parent")
_REMEMBERED: Final = 4096
"""Ids remembered, of denied calls and of calls that may have started a subagent. What belongs together is close on a tape."""


class Speech:
    """Reads the messages of user, model and tools into a scene."""

    def __init__(self, scene: TurnScene) -> None:
        self._scene = scene
        self.tools: CallBook = CallBook("model")
        self.tasks: CallBook = CallBook("model")
        self._streamed = StreamedBlocks()
        self._denied: dict[str, None] = {}
        self._agents: dict[str, tuple[int | None, str]] = {}  # by the id of the call that started them: its event, and a description
        self._asked_at: float | None = None  # the time of the last prompt or tool result
        self._message_id = ""

    def prompt(self, message: UserMessage) -> None:
        """Read a user message of the host."""
        scene = self._scene
        for result in message.tool_results:
            self._tool_result(result, parent=None)
        text = text_of_content(message.content)
        fields: dict[str, Any] = {"priority": message.priority} if message.priority else {}
        if message.should_query is False:
            fields["shouldQuery"] = False
        event = scene.add("user", "prompt", "Prompt", gist=text, sections=scene.text("text", text))
        if fields:
            scene.shelf.extend(event, *scene.text("options", json_text(fields)))
        known = scene.turns.prompted(message.uuid, text=text, event=event, t=scene.t, priority=message.priority)
        if not known:
            scene.worsen(event, "warning", "the uuid of this prompt was used before, and the CLI drops the prompt", status="dropped")
        else:
            scene.shelf.change(event, turn=scene.turns.current)
        if self._asked_at is None:
            self._asked_at = scene.t

    def user(self, message: UserMessage) -> None:
        """Read a user message of the CLI: results of tools, echoes of prompts, and its own messages in the user's name."""
        nested = message.parent_tool_use_id is not None
        if nested:
            self._name_agent(message)
        for result in message.tool_results:
            self._tool_result(result, parent=message.parent_tool_use_id)
        if message.tool_results:
            if not nested:
                self._asked_at = self._scene.t
            return
        text = text_of_content(message.content)
        level: Level = "normal"
        kind, title = "synthetic", "In the user's name"
        if text.startswith(_INTERRUPTED):
            kind, title, level = "interrupted", "Interrupted", "warning"
        elif nested:
            kind, title = "task prompt", "Prompt of a subagent"
        elif message.is_replay:
            kind, title, level = "echo", "Echo of a prompt", "minor"
        self._scene.add(
            "user",
            kind,
            title,
            gist=text,
            level=level,
            sections=self._scene.text("text", text),
            **self._whose(message.parent_tool_use_id),
        )

    def partial(self, message: StreamEvent) -> None:
        """Read a piece of a streamed answer."""
        message_id, usage = self._streamed.read(message, self._scene.t)
        if message_id:
            self._scene.turns.ledger.message(message_id, usage, is_subagent=message.parent_tool_use_id is not None)
        if message.parent_tool_use_id is None and message.event_type == "message_start":
            self._scene.turns.spoke(self._scene.t)
        self.give_up()

    def assistant(self, message: AssistantMessage) -> None:
        """Read an answer of the model, block by block."""
        api, nested = message.message, message.parent_tool_use_id is not None
        if not message.is_synthetic:
            self._scene.turns.ledger.message(api.id, api.usage, is_subagent=nested)
            if not nested:
                self._scene.turns.spoke(self._scene.t)
        if message.error is not None:
            text = message.text
            self._scene.add(
                "assistant", "error", f"Error: {message.error}", gist=text, level="error", sections=self._scene.text("text", text)
            )
            return
        if nested:
            self._name_agent(message)
        first = api.id != self._message_id or not api.id
        for block in api.content:
            times = self._streamed.arrived(api.id, parent=message.parent_tool_use_id)
            fields = self._fields(message, times, is_first=first and not nested)
            self._block(block, fields)
            first = False
        if not nested:
            self._message_id = api.id

    def _fields(self, message: AssistantMessage, times: BlockTimes | None, *, is_first: bool) -> dict[str, Any]:
        """Return the fields that the events of a block share: its duration and its subagent, and for the first block the tokens."""
        fields: dict[str, Any] = self._whose(message.parent_tool_use_id)
        if message.aborted:
            fields["status"] = "aborted"
        if times is not None:
            fields |= {"t": times.began, "seconds": max(0.0, self._scene.t - times.began), "pieces": times.pieces or None}
        if is_first:
            asked, self._asked_at = self._asked_at, None
            if asked is not None:
                fields["waited"] = max(0.0, (self._scene.t if times is None else times.message_began) - asked)
            if message.message.usage is not None and not message.is_synthetic:
                fields["tokens"] = token_counts(message.message.usage)
        return fields

    def _block(self, block: ContentBlock, fields: dict[str, Any]) -> None:
        scene = self._scene
        if isinstance(block, TextBlock):
            scene.add("assistant", "text", "Text", gist=block.text or "(empty)", sections=scene.text("text", block.text), **fields)
        elif isinstance(block, ThinkingBlock | RedactedThinkingBlock):
            thought = block.thinking if isinstance(block, ThinkingBlock) else "(redacted by the API)"
            scene.add("assistant", "thinking", "Thinking", gist=thought, sections=scene.text("text", thought), **fields)
        elif isinstance(block, ToolUseBlock | ServerToolUseBlock | MCPToolUseBlock):
            for late in ("t", "seconds", "status"):  # a call begins when its input is complete, and lasts until its result
                fields.pop(late, None)
            self._tool_use(block.id, block.name, block.input, fields)
        elif str((wire := block.to_dict()).get("type")) in _SERVER_RESULTS:
            failed = isinstance(block, MCPToolResultBlock) and block.is_error is True
            self._close(str(wire.get("tool_use_id", "")), json_text(wire.get("content")), failed=failed, whose=fields)
        else:
            text = json_text(wire)
            scene.add("assistant", "block", str(wire.get("type") or "Block"), gist=text, sections=scene.text("block", text), **fields)

    def give_up(self, *, at_end: bool = False) -> None:
        """Add events for blocks that were streamed and never arrived whole."""
        for block in self._streamed.unfinished(at_end=at_end):
            title = {"text": "Text", "thinking": "Thinking", "tool_use": "Tool input"}.get(block.kind, "Block")
            self._scene.add(
                "assistant",
                block.kind or "block",
                f"{title}, unfinished",
                gist=block.text,
                level="warning",
                status="aborted",
                t=block.began,
                seconds=max(0.0, block.ended - block.began),
                sections=self._scene.text("text", block.text),
                **self._whose(block.parent),
            )

    def _tool_use(self, call_id: str, name: str, tool_input: Mapping[str, Any], fields: dict[str, Any]) -> None:
        scene = self._scene
        event = scene.add(
            "tools",
            "tool",
            name or "(a tool without a name)",
            gist=gist_of_input(tool_input),
            status="open",
            sections=scene.text("input", json_text(tool_input)),
            **fields,
        )
        scene.turns.used_tool()
        self._remember_agent(call_id, event, gist_of(str(tool_input.get("description") or tool_input.get("subagent_type") or name)))
        self.tools.began(call_id, name=name, event=event, t=scene.t)

    def _tool_result(self, block: ToolResultBlock, *, parent: str | None) -> None:
        self._close(block.tool_use_id, text_of_content(block.content), failed=block.is_error is True, whose=self._whose(parent))

    def _close(self, call_id: str, text: str, *, failed: bool, whose: Mapping[str, Any]) -> None:
        scene = self._scene
        status = "denied" if failed and call_id in self._denied else "error" if failed else "ok"
        call = self.tools.ended(call_id, t=scene.t, status=status)
        if failed:
            scene.turns.tool_failed()
        if call is None:
            level: Level = "warning" if failed else "normal"
            title = "Result of an earlier call"
            fields = {name: whose[name] for name in _WHOSE}
            scene.add("tools", "tool result", title, gist=text, level=level, status=status, sections=scene.text("result", text), **fields)
            return
        scene.close(call, status, scene.text("result", text))
        if failed:
            words = "was not allowed" if status == "denied" else "failed"
            scene.worsen(call.event, "warning", f"{call.name} {words}: {' '.join(text[:160].split())}")

    def denied(self, call_id: str | None) -> None:
        """Note that a call was not allowed. Its result will be an error."""
        if call_id:
            self._denied[call_id] = None
            if len(self._denied) > _REMEMBERED:
                del self._denied[next(iter(self._denied))]

    def refused(self, message: PermissionDeniedMessage) -> None:
        """Read the message of the CLI that it did not allow a call."""
        self.denied(message.tool_use_id)
        if self.tools.find(message.tool_use_id) is None:
            self._scene.add("tools", "denied", f"{message.tool_name} was not allowed", gist=message.message, level="warning")

    def _whose(self, call_id: str | None) -> dict[str, Any]:
        """Return the fields that name the subagent of an event: the one that the call with this id started. None is the main conversation.

        Several subagents may work at once, and their lines come in any order.
        """
        event, agent = (None, "") if call_id is None else self._agents.get(call_id, (None, ""))
        return {"nested": call_id is not None, "agent": agent, "parent": event}

    def _remember_agent(self, call_id: str, event: int | None, agent: str) -> None:
        self._agents.pop(call_id, None)  # an id may be used twice: the newer call counts
        self._agents[call_id] = (event, agent)
        if len(self._agents) > _REMEMBERED:
            del self._agents[next(iter(self._agents))]

    def _name_agent(self, message: AssistantMessage | UserMessage) -> None:
        """Take the description of a subagent from its own message, when the call that started it is not on the tape."""
        call_id, said = message.parent_tool_use_id, message.task_description or message.subagent_type
        if call_id is not None and said and call_id not in self._agents:
            self._remember_agent(call_id, None, gist_of(said))

    def task_started(self, message: TaskStarted) -> None:
        """Read the start of a subagent or of a background shell."""
        what = {"local_agent": "Subagent", "local_bash": "Background shell"}.get(message.task_type or "", "Task")
        name = f"{what} {message.subagent_type}" if message.subagent_type else what
        scene = self._scene
        text = json_text({key: value for key, value in message.to_dict().items() if key not in ("type", "uuid", "session_id")})
        event = scene.add("tools", "task", name, gist=message.description, status="open", sections=scene.text("task", text))
        self.tasks.began(message.task_id, name=name, event=event, t=scene.t)

    def task_ended(self, message: TaskNotification) -> None:
        """Read the end of a task."""
        scene = self._scene
        call = self.tasks.ended(message.task_id, t=scene.t, status="error" if message.status == "failed" else "ok")
        if call is None:
            scene.add("tools", "task", f"Task {message.status}", gist=message.summary, sections=scene.text("summary", message.summary))
            return
        scene.close(call, message.status, scene.text("summary", message.summary))
        if message.status == "failed":
            scene.worsen(call.event, "warning", f"{call.name} failed: {message.summary[:160]}")


def text_of_content(content: str | Sequence[ContentBlock] | None) -> str:
    """Return the text of a message or of a tool's answer. Images and other data become a note in brackets."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(_text_of_block(block) for block in content)


def _text_of_block(block: ContentBlock) -> str:
    if isinstance(block, TextBlock):
        return block.text
    wire = block.to_dict()
    source = wire.get("source")
    data = source.get("data") if isinstance(source, dict) else None
    if isinstance(data, str) and isinstance(source, dict):
        return f"[{wire.get('type')}: {source.get('media_type', 'data')}, {len(data):,} characters of base64]"
    return json_text(wire)
