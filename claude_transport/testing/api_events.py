"""How a scripted reply looks on the wire: the steps of its stream, or its whole body. Pure: no clock, no socket."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec

from claude_transport.testing.replies import Block, MessageReply, encode_event

__all__ = ["Cut", "Gate", "Pause", "Send", "Step", "encode_message", "encode_steps"]

CHARACTERS_PER_TOKEN = 4  # a rule of thumb, good enough to be plausible
DELTA_CHARACTERS = 32
MAX_DELTAS = 64


class Send(msgspec.Struct, frozen=True):
    """Send these bytes: one SSE event."""

    data: bytes


class Pause(msgspec.Struct, frozen=True):
    """Wait so many seconds."""

    seconds: float


class Gate(msgspec.Struct, frozen=True):
    """Wait until the gate of this name is open."""

    name: str


class Cut(msgspec.Struct, frozen=True):
    """Drop the connection."""


Step: TypeAlias = Send | Pause | Gate | Cut


def encode_steps(reply: MessageReply, *, model: str, serial: int, input_tokens: int) -> list[Step]:
    """What to do, in order, to stream `reply` as SSE; `serial` makes the ids of message and tool calls unique."""
    steps: list[Step] = []
    deltas = 0
    if reply.gate is not None and reply.gate_after <= 0:
        steps.append(Gate(reply.gate))
    for sent, event in enumerate(_events(reply, model=model, serial=serial, input_tokens=input_tokens)):
        if reply.cut_after is not None and sent >= reply.cut_after:
            break
        if reply.failure is not None and sent >= reply.failure_after:
            break
        is_delta = event["type"] == "content_block_delta"
        if is_delta and deltas and reply.delay:
            steps.append(Pause(reply.delay))
        steps.append(Send(encode_event(event)))
        deltas += is_delta
        if is_delta and reply.gate is not None and deltas == reply.gate_after:
            steps.append(Gate(reply.gate))
    if reply.failure is not None:
        steps.append(Send(encode_event({"type": "error", "error": {"type": reply.failure[0], "message": reply.failure[1]}})))
    if reply.cut_after is not None:
        steps.append(Cut())
    return steps


def encode_message(reply: MessageReply, *, model: str, serial: int, input_tokens: int) -> bytes:
    """The reply as one JSON message, for a request that did not ask for a stream."""
    content = [_with_id(block, serial=serial, index=index) for index, block in enumerate(reply.blocks)]
    head = _head(reply, model=model, serial=serial)
    ending = {"content": content, "stop_reason": reply.stop_reason, **_details(reply)}
    return msgspec.json.encode({**head, **ending, "usage": _usage(reply, input_tokens=input_tokens)})


def _events(reply: MessageReply, *, model: str, serial: int, input_tokens: int) -> Iterator[dict[str, Any]]:
    usage = _usage(reply, input_tokens=input_tokens)
    yield {"type": "message_start", "message": {**_head(reply, model=model, serial=serial), "usage": {**usage, "output_tokens": 1}}}
    yield {"type": "ping"}
    for index, block in enumerate(reply.blocks):
        start, deltas = _opened(_with_id(block, serial=serial, index=index), reply=reply)
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    delta = {"stop_reason": reply.stop_reason, "stop_sequence": None, **_details(reply)}
    yield {"type": "message_delta", "delta": delta, "usage": usage}
    yield {"type": "message_stop"}


def _opened(block: Block, *, reply: MessageReply) -> tuple[Block, list[dict[str, Any]]]:
    """The block as `content_block_start` shows it, and the deltas that fill it."""
    match block["type"]:
        case "text":
            pieces = _split(block["text"], chunks=reply.chunks)
            return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces]
        case "thinking":
            thoughts = [{"type": "thinking_delta", "thinking": piece} for piece in _split(block["thinking"], chunks=None)]
            return {**block, "thinking": "", "signature": ""}, [*thoughts, {"type": "signature_delta", "signature": block["signature"]}]
        case "tool_use":
            pieces = _split(msgspec.json.encode(block["input"]).decode(), chunks=None)
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces)]
        case _:
            return block, []  # e.g. redacted_thinking: it comes whole


def _split(text: str, *, chunks: int | tuple[str, ...] | None) -> list[str]:
    if isinstance(chunks, tuple):
        return list(chunks)
    if chunks is None:
        chunks = min(MAX_DELTAS, -(-len(text) // DELTA_CHARACTERS))
    size = max(1, -(-len(text) // max(1, chunks)))
    return [text[start : start + size] for start in range(0, len(text), size)]


def _with_id(block: Block, *, serial: int, index: int) -> Block:
    if block["type"] != "tool_use" or "id" in block:
        return block
    return {**block, "id": f"toolu_fake{serial:06d}{index:02d}"}


def _head(reply: MessageReply, *, model: str, serial: int) -> dict[str, Any]:
    return {
        "id": f"msg_fake{serial:08d}",
        "type": "message",
        "role": "assistant",
        "model": reply.model or model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _details(reply: MessageReply) -> dict[str, Any]:
    return {"stop_details": reply.stop_details} if reply.stop_details is not None else {}


def _usage(reply: MessageReply, *, input_tokens: int) -> dict[str, int]:
    written = sum(len(str(block.get("text") or block.get("thinking") or block.get("input") or "")) for block in reply.blocks)
    usage = reply.usage
    return {
        "input_tokens": input_tokens if usage.input_tokens is None else usage.input_tokens,
        "cache_creation_input_tokens": usage.cache_creation_input_tokens,
        "cache_read_input_tokens": usage.cache_read_input_tokens,
        "output_tokens": max(1, written // CHARACTERS_PER_TOKEN) if usage.output_tokens is None else usage.output_tokens,
    }
