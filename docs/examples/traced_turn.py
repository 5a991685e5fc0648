"""Shows a turn and its tool call as spans. A small tracer provider stands in for an SDK."""

from __future__ import annotations

from typing import Any

import anyio
from opentelemetry import trace

import claude_transport as ct

TOOL = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}
MESSAGES = [
    {"type": "assistant", "message": {"id": "msg_1", "model": "claude-haiku", "content": [TOOL]}},
    {"type": "user", "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "README.md"}]}},
    {"type": "result", "is_error": False, "result": "One file.", "usage": {"input_tokens": 12, "output_tokens": 7}},
]


class PrintedSpan(trace.NonRecordingSpan):
    """Prints what it is told at its end. An SDK would export it."""

    def __init__(self, name: str, attributes: dict[str, Any]) -> None:
        super().__init__(trace.INVALID_SPAN_CONTEXT)
        self.name, self.attributes = name, dict(attributes)

    def set_attribute(self, key: str, value: Any) -> None:
        self.attributes[key] = value

    def set_attributes(self, attributes: Any) -> None:
        self.attributes.update(attributes)

    def end(self, end_time: int | None = None) -> None:
        print(self.name)
        for key in ("gen_ai.tool.call.id", "gen_ai.response.model", "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"):
            if key in self.attributes:
                print(f"    {key} = {self.attributes[key]}")


class PrintingTracer(trace.NoOpTracer):
    def start_span(self, name: str, context: Any = None, kind: Any = None, attributes: Any = None, *more: Any, **named: Any) -> trace.Span:
        return PrintedSpan(name, attributes or {})


class PrintingProvider(trace.TracerProvider):
    def get_tracer(self, *args: Any, **kwargs: Any) -> trace.Tracer:
        return PrintingTracer()


async def main() -> None:
    transport = ct.TracingTransport(ct.MockTransport(MESSAGES), tracer_provider=PrintingProvider())
    async with ct.Query(transport) as query:
        await (await query.send("What is here?")).result()


if __name__ == "__main__":
    anyio.run(main)
