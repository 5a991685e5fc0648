"""`synthetic_turn`: the lines of a turn that no CLI has run, for a wrapper that answers a prompt itself."""

from __future__ import annotations

import uuid as uuids
from typing import Any

from claude_transport.protocol.envelope import encode_line

SYNTHETIC_MODEL = "<synthetic>"
"""The name that the CLI itself gives as the model of a message that no model wrote (CLI 2.1.329)."""


def synthetic_turn(uuid: str, text: str, *, session_id: str = "") -> list[bytes]:
    """Return the lines, without newlines, that a CLI would say when it answered the prompt `uuid` with `text`, at no cost.

    Give them to `LineWrapper.inject()` in this order, while no other turn runs: the CLI merges prompts that run at the same time into one
    turn, and so would the reader. `session_id` is that of the conversation; `peek()` finds it on the lines that the CLI says.

    The order of the lines is that of docs/reference/protocol.md#the-order-of-a-turn.
    """
    common = {"session_id": session_id}

    def fresh() -> dict[str, str]:
        return {"uuid": str(uuids.uuid4()), **common}

    usage = {"input_tokens": 0, "output_tokens": 0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    message = {
        "id": f"msg_{uuids.uuid4().hex}",
        "type": "message",
        "role": "assistant",
        "model": SYNTHETIC_MODEL,
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": usage,
    }
    result = {
        "subtype": "success",
        "is_error": False,
        "duration_ms": 0,
        "duration_api_ms": 0,
        "num_turns": 1,
        "result": text,
        "stop_reason": "end_turn",
        "total_cost_usd": 0,
        "usage": usage,
        "modelUsage": {},
        "permission_denials": [],
    }
    frames: list[dict[str, Any]] = [
        {"type": "command_lifecycle", "command_uuid": uuid, "state": "queued", **fresh()},
        {"type": "command_lifecycle", "command_uuid": uuid, "state": "started", **fresh()},
        {"type": "assistant", "message": message, "parent_tool_use_id": None, **fresh()},
        {"type": "result", **result, **fresh()},
        {"type": "command_lifecycle", "command_uuid": uuid, "state": "completed", **fresh()},
    ]
    return [encode_line(frame)[:-1] for frame in frames]
