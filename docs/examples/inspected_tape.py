"""What a conversation took, asserted on in a test or an evaluation: from the tape of it, without a line of parsing."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import anyio

import claude_transport as ct
from claude_transport.inspection import read_timeline, render_page, summarize


def said(*blocks: dict[str, Any], message_id: str) -> dict[str, Any]:
    usage = {"input_tokens": 400, "output_tokens": 30}
    api = {"id": message_id, "role": "assistant", "model": "claude-haiku-4-5", "content": list(blocks), "usage": usage}
    return {"type": "assistant", "message": api, "parent_tool_use_id": None}


def rehearsed_claude() -> ct.Transport:
    """A claude that looks into a directory which is not there, and says so."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls reports"}}
    failed = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "ls: reports: No such file or directory", "is_error": True}
    result = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 2, "result": "There are no reports."}
    return ct.MockTransport(
        [
            said({"type": "text", "text": "I will look."}, call, message_id="msg_1"),
            {"type": "user", "message": {"role": "user", "content": [failed]}, "parent_tool_use_id": None},
            said({"type": "text", "text": "There are no reports."}, message_id="msg_2"),
            {**result, "total_cost_usd": 0.0012, "usage": {"input_tokens": 800, "output_tokens": 60}},
        ]
    )


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        tape = Path(folder, "reports.ndjson")
        async with ct.Query(ct.RecordingTransport(rehearsed_claude(), tape)) as query:
            await (await query.send("Which reports are there?")).result()

        summary = summarize(tape)
        (turn,) = summary.turns
        print(f"{turn.prompt} -> {turn.outcome}, {turn.tokens.input_tokens} tokens in, {turn.tokens.output_tokens} out, ${turn.cost_usd}")
        for tool in summary.tools:
            print(f"{tool.name}: {tool.calls} call, {tool.errors} failed")
        for problem in summary.problems:
            print(f"{problem.level}: {problem.text}")

        timeline = read_timeline(tape)
        print([event.kind for event in timeline.events if event.lane in ("user", "assistant", "tools")])
        Path(folder, "reports.html").write_text("".join(render_page(timeline, title="reports")), "utf-8")


if __name__ == "__main__":
    anyio.run(main)
