"""`SessionSpans`: makes the OpenTelemetry spans of one session. Each turn has a span, and each of its tool calls a span below that.

This module imports OpenTelemetry, so `tracing` imports it only when it is needed. The names of attributes are in `gen_ai`. Which prompt a
message belongs to is decided in `prompt_watch`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, ClassVar, Final

import msgspec
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from claude_transport.agents.readers import PromptFollower, SpanTexts, WrittenPrompt
from claude_transport.protocol.blocks import ToolResultBlock, ToolUseBlock
from claude_transport.protocol.conversation import Settle, TurnState
from claude_transport.protocol.envelope import Message, to_wire
from claude_transport.protocol.messages import AssistantMessage, InitMessage, ResultMessage, UserMessage
from claude_transport.protocol.redaction import Redactor
from claude_transport.wrappers import gen_ai
from claude_transport.wrappers.gen_ai import Attributes
from claude_transport.wrappers.prompt_watch import PromptWatch

STATE: Final = "claude_transport.turn.state"
"""The attribute with the final state of a prompt."""

_UNASKED: Final = ""
"""Stands for the uuid of the prompt in a turn that no prompt began, for example one that a background task began."""

_REMEMBERED: Final = 1000
"""The largest number of entries in each of three dicts, which could otherwise grow without limit:

* ended tool calls: a subagent in the background goes on after its call has returned, and its own calls need the context;
* open tool calls: calls of such a subagent may never return;
* contexts of prompts that are not yet written: a withdrawn prompt is never written.
"""


class _OpenToolCall(msgspec.Struct):
    """A tool call that has not returned. `turn` is the uuid of its prompt, or `_UNASKED`."""

    span: Span
    turn: str
    by_subagent: bool


class SessionSpans:
    """Starts and ends spans as `TracingTransport` reports prompts and messages, in order. Without `content`, spans contain no texts."""

    agent: ClassVar[str] = "claude"

    def __init__(self, tracer: Tracer, *, content: SpanTexts | None = None) -> None:
        self._tracer = tracer
        self._content = content
        self._watch: PromptFollower = PromptWatch()
        self._turns: dict[str, Span] = {}
        self._noted: dict[str, Context] = {}
        self._tools: dict[str, _OpenToolCall] = {}
        self._ended_tools: dict[str, Context] = {}
        self._model: str | None = None

    def noted(self, uuid: str, *, context: Context) -> None:
        """Remember `context` as the parent of the turn of the prompt `uuid`. The prompt may be written later, and by another task."""
        self._noted[uuid] = context
        if len(self._noted) > _REMEMBERED:
            del self._noted[next(iter(self._noted))]

    def writing(self, data: str | bytes, *, context: Context | None = None) -> None:
        """Begin the spans of the prompts in `data`, which is about to be written. `context` is for prompts without a `noted()` one."""
        for prompt in self._watch.writing(data):
            self._begin(prompt.uuid, context=self._noted.pop(prompt.uuid, None) or context, prompt=prompt)

    def written(self, data: str | bytes) -> None:
        """Note that `data` has been written."""
        self._watch.written(data)

    def not_written(self, data: str | bytes, error: BaseException) -> None:
        """End the spans of the prompts in `data`, because writing it failed with `error`."""
        for prompt in self._watch.not_written(data):
            self._end_with_error(self._turns.pop(prompt.uuid, None), error)

    def received(self, message: Message, *, context: Context | None = None) -> None:
        """Begin, change and end spans as `message` requires. `context` is the parent of a turn that no prompt began."""
        if not isinstance(self._watch, PromptWatch):
            return
        verdict = self._watch.received(message)
        match message:
            case InitMessage():
                self._model = message.model or self._model
                for owner in verdict.owners:
                    self._note(owner, gen_ai.of_turn(session_id=message.session_id, model=self._model))
            case AssistantMessage():
                self._on_assistant(message, self._turn_of(message, verdict.owners, context))
            case UserMessage() if not message.is_replay:
                for block in message.tool_results:
                    self._end_tool(block)
            case ResultMessage() if not verdict.settled:
                self._end_unasked(message)
            case _:
                pass
        for settled in verdict.settled:
            self._settle(settled)

    def ended(self, error: BaseException | None) -> None:
        """End all open spans as failed, because no message will follow. `error` is why the session ended; None for a normal end."""
        self._watch.ended()
        for tool in self._tools.values():
            self._end_with_error(tool.span, error)
        for span in self._turns.values():
            span.set_attribute(STATE, TurnState.LOST.value)
            self._end_with_error(span, error)
        self._tools.clear()
        self._turns.clear()

    def _begin(self, uuid: str, *, context: Context | None, prompt: WrittenPrompt | None = None) -> Span:
        attributes = gen_ai.of_turn(session_id=self._watch.session_id, model=self._model, agent=self.agent)
        if self._content is not None and prompt is not None:
            attributes |= self._content.of_prompt(prompt.message)
        span = self._tracer.start_span(f"invoke_agent {self.agent}", context=context, kind=SpanKind.CLIENT, attributes=attributes)
        self._turns[uuid] = span
        return span

    def _turn_of(self, message: AssistantMessage, owners: Iterable[str], context: Context | None) -> str:
        """Return the turn that `message` belongs to. Begins an unasked turn for a message that no prompt explains."""
        for owner in owners:
            if owner in self._turns:
                return owner
        # a background task has begun this turn [15a]; messages of a subagent in the background do not begin one
        if message.parent_tool_use_id is None and _UNASKED not in self._turns:
            self._begin(_UNASKED, context=context).set_attribute("claude_transport.turn.unasked", True)
        return _UNASKED

    def _settle(self, settled: Settle) -> None:
        """End the span of the turn `settled`, with its state and result."""
        span = self._turns.pop(settled.uuid, None)
        self._end_tools_of(settled.uuid)
        if span is None:
            return
        span.set_attribute(STATE, settled.state.value)
        if settled.state is TurnState.LOST:
            self._end_with_error(span, None)
            return
        # a prompt that was folded into another turn has the result of that turn, whose tokens must be counted only once
        if settled.state is TurnState.DONE and settled.result is not None:
            self._add_result(span, settled.result)
        self._set_outcome(span, settled.result)
        span.end()

    def _end_unasked(self, result: ResultMessage) -> None:
        self._end_tools_of(_UNASKED)
        span = self._turns.pop(_UNASKED, None)
        if span is not None:
            self._add_result(span, result)
            self._set_outcome(span, result)
            span.end()

    def _add_result(self, span: Span, result: ResultMessage) -> None:
        span.set_attributes(gen_ai.of_result(result))
        if self._content is not None:
            span.set_attributes(self._content.of_result(result))

    @staticmethod
    def _set_outcome(span: Span, result: ResultMessage | None) -> None:
        outcome = None if result is None else result.outcome
        if outcome is not None and not outcome.ok:
            span.set_attribute("error.type", outcome.code)
            span.set_status(Status(StatusCode.ERROR, outcome.text))  # a fixed sentence, without secrets and model output

    def _note(self, uuid: str, attributes: gen_ai.Attributes) -> None:
        span = self._turns.get(uuid)
        if span is not None:
            span.set_attributes(attributes)

    def _on_assistant(self, message: AssistantMessage, turn: str) -> None:
        if message.parent_tool_use_id is None and message.model and not message.is_synthetic:
            self._note(turn, {"gen_ai.response.model": gen_ai.limited(message.model)})
        for block in message.tool_uses:
            if block.id not in self._tools:
                self._begin_tool(block, message, turn)

    def _begin_tool(self, block: ToolUseBlock, message: AssistantMessage, turn: str) -> None:
        parent = message.parent_tool_use_id
        if parent in self._tools:
            context: Context | None = set_span_in_context(self._tools[parent].span)
        elif parent in self._ended_tools:
            context = self._ended_tools[parent]
        else:
            span = self._turns.get(turn)
            context = None if span is None else set_span_in_context(span)
        attributes = gen_ai.of_tool(name=block.name, call_id=block.id, session_id=message.session_id or self._watch.session_id)
        if self._content is not None:
            attributes |= self._content.of_call(block)
        name = f"execute_tool {gen_ai.limited(block.name)}"
        span = self._tracer.start_span(name, context=context, kind=SpanKind.INTERNAL, attributes=attributes)
        self._tools[block.id] = _OpenToolCall(span, turn, by_subagent=parent is not None)
        if len(self._tools) > _REMEMBERED:
            oldest = next(iter(self._tools))
            self._remember_ended(oldest, self._tools[oldest].span)  # the parent of calls that this one may still make
            self._give_up_tool(oldest, why=f"More than {_REMEMBERED} tool calls were open, and this was the oldest.")

    def _end_tool(self, block: ToolResultBlock) -> None:
        tool = self._tools.pop(block.tool_use_id, None)
        if tool is None:
            return
        self._remember_ended(block.tool_use_id, tool.span)
        if self._content is not None:
            tool.span.set_attributes(self._content.of_answer(block))
        if block.is_error:
            tool.span.set_attribute("error.type", "tool_error")
            tool.span.set_status(Status(StatusCode.ERROR))
        tool.span.end()

    def _remember_ended(self, call_id: str, span: Span) -> None:
        self._ended_tools[call_id] = set_span_in_context(span, Context())
        if len(self._ended_tools) > _REMEMBERED:
            del self._ended_tools[next(iter(self._ended_tools))]

    def _give_up_tool(self, call_id: str, *, why: str) -> None:
        span = self._tools.pop(call_id).span
        span.set_attribute("error.type", "unfinished")
        span.set_status(Status(StatusCode.ERROR, why))
        span.end()

    def _end_tools_of(self, turn: str) -> None:
        """End the spans of the open tool calls of a turn that is over, except calls of subagents: those may go on in the background."""
        for call_id, tool in list(self._tools.items()):
            if tool.turn == turn and not tool.by_subagent:
                self._give_up_tool(call_id, why="The turn was over before the tool returned.")

    @staticmethod
    def _end_with_error(span: Span | None, error: BaseException | None) -> None:
        if span is None:
            return
        # not the message of the error, which may quote the output of a process
        span.set_attribute("error.type", "session_ended" if error is None else gen_ai.error_type(error))
        span.set_status(Status(StatusCode.ERROR, "The session was over before there was a result."))
        span.end()


class SpanContent:
    """Makes the attributes that contain texts: prompts, answers, and the input and output of tools.

    Each is JSON, redacted by `redactor` and cut to `limit` characters.
    """

    def __init__(self, *, redactor: Redactor, limit: int) -> None:
        self._redactor = redactor
        self._limit = limit

    def of_prompt(self, message: UserMessage) -> Attributes:
        """Return the attribute with the prompt of a turn."""
        return {"gen_ai.input.messages": self._to_json([{"role": "user", "parts": [{"type": "text", "content": message.text}]}])}

    def of_result(self, result: ResultMessage) -> Attributes:
        """Return the attribute with the answer of a turn; empty when the result has no text."""
        if not result.result:
            return {}
        parts = [{"type": "text", "content": result.result}]
        return {"gen_ai.output.messages": self._to_json([{"role": "assistant", "parts": parts}])}

    def of_call(self, block: ToolUseBlock) -> Attributes:
        """Return the attribute with the input of a tool call."""
        return {"gen_ai.tool.call.arguments": self._to_json(block.input)}

    def of_answer(self, block: ToolResultBlock) -> Attributes:
        """Return the attribute with the output of a tool call."""
        return {"gen_ai.tool.call.result": self._to_json(to_wire(block.content))}

    def _to_json(self, value: Any) -> str:
        line = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        text = self._redactor.line(line).decode("utf-8", "replace")
        return text if len(text) <= self._limit else text[: self._limit] + "…"
