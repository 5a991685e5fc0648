"""`CodexSpans`: the spans of one session of Codex. A prompt has a span, and each tool call a span below that, as with Claude.

This module imports OpenTelemetry, so `tracing` imports it only when it is needed. `codex_prompts` decides which prompt an item belongs to.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import ClassVar, Final

from opentelemetry.context import Context
from opentelemetry.trace import Status, StatusCode, Tracer

from claude_transport.agents.readers import SpanTexts
from claude_transport.codex.messages import ItemCompleted, ItemStarted, decode_message
from claude_transport.codex.prompts import CodexPrompts, without_codex_deltas
from claude_transport.codex.tool_calls import tool_call_of
from claude_transport.codex.watch import PromptJoined, PromptRefused, RunningTurn, TurnBegan, TurnEnded
from claude_transport.errors import JSONRPCError
from claude_transport.protocol.blocks import ToolResultBlock, ToolUseBlock
from claude_transport.protocol.messages import APIMessage, AssistantMessage
from claude_transport.wrappers import gen_ai
from claude_transport.wrappers.spans import STATE, SessionSpans

_UNASKED: Final = "unasked-"


class CodexSpans(SessionSpans):
    """Starts and ends the spans of a session of Codex. Several turns may run at once, one in each thread."""

    agent: ClassVar[str] = "codex"

    def __init__(self, tracer: Tracer, *, content: SpanTexts | None = None) -> None:
        super().__init__(tracer, content=content)
        self._prompts = CodexPrompts()
        self._watch = self._prompts

    def telling(self, lines: Sequence[bytes]) -> list[bytes]:
        """Return the lines without pieces of messages, which concern no span."""
        return without_codex_deltas(lines)

    def heard(self, line: bytes, *, context: Context | None = None) -> None:
        """Begin, change and end spans as a line of Codex requires. `context` is the parent of a turn that no prompt began."""
        message = decode_message(line)
        for event in self._prompts.received(message):
            match event:
                case TurnBegan() | PromptJoined():
                    self._turn_began(event.turn, context)
                case PromptRefused():
                    self._refused(event)
                case TurnEnded():
                    self._turn_ended(event)
                case _:
                    pass
        if isinstance(message, ItemStarted | ItemCompleted):
            self._item(message)

    def _turn_began(self, turn: RunningTurn, context: Context | None) -> None:
        owners = self._prompts.names_of(turn)
        if not owners and f"{_UNASKED}{turn.id}" not in self._turns:
            self._begin(f"{_UNASKED}{turn.id}", context=context).set_attribute("claude_transport.turn.unasked", True)
        for owner in owners or [f"{_UNASKED}{turn.id}"]:
            self._note(owner, gen_ai.of_turn(session_id=turn.thread_id, model=turn.model, agent=self.agent))
            if turn.model:
                self._note(owner, {"gen_ai.response.model": gen_ai.limited(turn.model)})

    def _turn_ended(self, event: TurnEnded) -> None:
        unasked = f"{_UNASKED}{event.turn.id}"
        self._end_tools_of(self._place_of(event.turn))
        settled = self._prompts.settled_by(event)
        for prompt in settled:
            self._settle(prompt)
        span = self._turns.pop(unasked, None)
        if span is not None:
            # a prompt that joined a turn has its own span, and the tokens are counted once
            if not settled:
                self._add_result(span, event.result)
            self._set_outcome(span, event.result)
            span.end()

    def _refused(self, event: PromptRefused) -> None:
        for settled in self._prompts.settled_by(event):
            span = self._turns.pop(settled.uuid, None)
            if span is not None:
                span.set_attribute(STATE, settled.state.value)
                span.set_attribute("error.type", JSONRPCError.code)
                span.set_status(Status(StatusCode.ERROR, "The prompt was refused."))
                span.end()

    def _item(self, message: ItemStarted | ItemCompleted) -> None:
        is_over = isinstance(message, ItemCompleted)
        call = tool_call_of(message.item, is_over=is_over)
        turn = self._prompts.turn(message.turn_id)
        if call is None or turn is None:
            return
        call_id = f"{message.turn_id}/{message.item.id}"  # the ids of items repeat
        if call_id not in self._tools:
            block = ToolUseBlock(id=call_id, name=call.name, input=call.input)
            said = AssistantMessage(message=APIMessage(model=turn.model, content=(block,)), session_id=turn.thread_id)
            self._on_assistant(said, self._place_of(turn))
        if is_over:
            output = call.output if isinstance(call.output, str) or call.output is None else json.dumps(call.output)
            self._end_tool(ToolResultBlock(tool_use_id=call_id, content=output, is_error=call.status in ("error", "denied")))

    def _place_of(self, turn: RunningTurn) -> str:
        """Return the name of the span of a turn: that of its first prompt, or that of a turn without one."""
        return next((name for name in self._prompts.names_of(turn) if name in self._turns), f"{_UNASKED}{turn.id}")
