"""Tapes made line by line, for cases without a recording."""

from __future__ import annotations

import json
from typing import Any

from claude_transport.protocol.tape import Tape, TapeRecord

UUID = "00000000-0000-4000-8000-{:012d}"


class TapeMaker:
    """Adds records to a tape, each a tenth of a second after the last."""

    def __init__(self) -> None:
        self.tape = Tape()

    def put(self, direction: str, line: dict[str, Any] | bytes, *, after: float = 0.1) -> TapeMaker:
        """Add a record."""
        t = (self.tape.records[-1].t if self.tape.records else 0.0) + after
        data = line if isinstance(line, bytes) else json.dumps(line).encode()
        self.tape.append(TapeRecord(round(t, 6), direction, data))  # type: ignore[arg-type]
        return self

    def prompt(self, text: str, *, number: int | None = 1, **more: Any) -> TapeMaker:
        """Add a prompt with the uuid of this number."""
        uuid = {} if number is None else {"uuid": UUID.format(number)}
        return self.put("in", {"type": "user", "message": {"role": "user", "content": text}, **uuid, **more})

    def says(self, *blocks: dict[str, Any], message_id: str = "msg_1", tokens: tuple[int, int] = (10, 5), **more: Any) -> TapeMaker:
        """Add the blocks of one API message, each on its own line, as the CLI does."""
        usage = {"input_tokens": tokens[0], "output_tokens": tokens[1]}
        for block in blocks:
            api = {"id": message_id, "role": "assistant", "model": "claude-test", "content": [block], "usage": usage}
            self.put("out", {"type": "assistant", "message": api, "parent_tool_use_id": None, **more})
        return self

    def answers_tool(self, call_id: str, text: str, *, failed: bool = False) -> TapeMaker:
        """Add the result of a tool."""
        block = {"type": "tool_result", "tool_use_id": call_id, "content": text, "is_error": failed}
        return self.put("out", {"type": "user", "message": {"role": "user", "content": [block]}, "parent_tool_use_id": None})

    def result(self, text: str = "done", *, cost: float = 0.01, tokens: tuple[int, int] = (10, 5), **more: Any) -> TapeMaker:
        """Add the result of a turn."""
        usage = {"input_tokens": tokens[0], "output_tokens": tokens[1]}
        fields = {"subtype": "success", "is_error": False, "result": text, "total_cost_usd": cost, "usage": usage, "num_turns": 1}
        return self.put("out", {"type": "result", **fields, **more})


def text(words: str) -> dict[str, Any]:
    """Return a text block."""
    return {"type": "text", "text": words}


def use(call_id: str, name: str = "Bash", **tool_input: Any) -> dict[str, Any]:
    """Return a tool_use block."""
    return {"type": "tool_use", "id": call_id, "name": name, "input": tool_input}
