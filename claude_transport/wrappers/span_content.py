"""What was said, as attributes of spans, for those who ask for it: redacted, and cut."""

from __future__ import annotations

import json
from typing import Any

from claude_transport.protocol.messages import ResultMessage, ToolResultBlock, ToolUseBlock, UserMessage, to_wire
from claude_transport.protocol.redaction import Redactor
from claude_transport.wrappers.gen_ai import Attributes

__all__ = ["SpanContent"]


class SpanContent:
    """Prompts, answers, and what tools were given and gave, each as JSON without secrets, of at most `limit` characters."""

    def __init__(self, *, redactor: Redactor, limit: int) -> None:
        self._redactor = redactor
        self._limit = limit

    def of_prompt(self, message: UserMessage) -> Attributes:
        """The prompt of a turn."""
        return {"gen_ai.input.messages": self._written([{"role": "user", "parts": [{"type": "text", "content": message.text}]}])}

    def of_result(self, result: ResultMessage) -> Attributes:
        """The answer of a turn; nothing when there is none."""
        if not result.result:
            return {}
        parts = [{"type": "text", "content": result.result}]
        return {"gen_ai.output.messages": self._written([{"role": "assistant", "parts": parts}])}

    def of_call(self, block: ToolUseBlock) -> Attributes:
        """What a tool was given."""
        return {"gen_ai.tool.call.arguments": self._written(block.input)}

    def of_answer(self, block: ToolResultBlock) -> Attributes:
        """What a tool gave."""
        return {"gen_ai.tool.call.result": self._written(to_wire(block.content))}

    def _written(self, value: Any) -> str:
        line = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        text = self._redactor.line(line).decode("utf-8", "replace")
        return text if len(text) <= self._limit else text[: self._limit] + "…"
