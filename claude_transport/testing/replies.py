"""The replies of `FakeMessagesAPI` and `FakeResponsesAPI`: one function for each kind, from plain text to a stream that is cut.

A reply is a value. `times` says how many requests it answers. The default is 1 for content. It is `None`, all further requests, for
failures (`error`, `sse_error`, `refusal`, `max_tokens`, `empty`), because the real CLI repeats a failed request, and a script need not
count that. CLI 2.1.329 sends six requests after a 400, two after a 404, three after a 529, and four after a mid-stream error.

A reply says what the model says, and each API puts it into its own words. For `FakeResponsesAPI`, text is a message, a thought is the
summary of a `reasoning` item, a tool call is a `function_call`, and `sse_error()` is `response.failed`. `exec_command()`, `apply_patch()`,
`failed()` and `usage_limit()` are for that API alone.

`Reply` is the type of any reply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from claude_transport.errors import ConfigurationError

__all__ = [
    "ErrorReply",
    "MessageReply",
    "RawReply",
    "Reply",
    "Usage",
    "apply_patch",
    "custom_tool_use_block",
    "cut",
    "empty",
    "error",
    "exec_command",
    "failed",
    "gated",
    "huge",
    "max_tokens",
    "message",
    "raw",
    "refusal",
    "slow",
    "sse_error",
    "text",
    "text_block",
    "thinking",
    "thinking_block",
    "tool_use",
    "tool_use_block",
    "usage_limit",
]

Block: TypeAlias = dict[str, Any]

ERROR_TYPES: Mapping[int, tuple[str, str]] = {
    400: ("invalid_request_error", "The request is not valid."),
    401: ("authentication_error", "invalid x-api-key"),
    402: ("billing_error", "Your credit balance is too low to access the Anthropic API."),  # the CLI recognises this text
    403: ("permission_error", "This key may not do that."),
    404: ("not_found_error", "Not found."),
    413: ("request_too_large", "Request exceeds the maximum size."),
    429: ("rate_limit_error", "This request would exceed the rate limit."),
    500: ("api_error", "Internal server error."),
    504: ("timeout_error", "The request took too long."),
    529: ("overloaded_error", "Overloaded"),
}
"""Status → (error type, a plausible message) of the Messages API."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts of one message, as the API reports them. `None` means an estimate: one token for four characters.

    `cache_creation_input_tokens` is only in the Messages API, `reasoning_output_tokens` only in the Responses API.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    reasoning_output_tokens: int = 0


class MessageReply(msgspec.Struct, frozen=True, kw_only=True):
    """A message with content blocks, and the delays and failures of its transfer. The request says whether it is streamed."""

    blocks: tuple[Block, ...] = ()
    stop_reason: str = "end_turn"
    stop_details: dict[str, Any] | None = None
    usage: Usage = Usage()
    model: str | None = None
    """The model in the answer; `None`: the requested one."""
    chunks: int | tuple[str, ...] | None = None
    """The number of text deltas, or the deltas themselves. `None`: 32 characters each, but at most 64 deltas."""
    headers: dict[str, str] = {}
    delay: float = 0.0
    """Seconds between two deltas."""
    gate: str | None = None
    """The gate to wait at, after `gate_after` deltas."""
    gate_after: int = 1
    cut_after: int | None = None
    """Drop the connection after this number of SSE events; 0: before the status line."""
    failure: tuple[str, str] | None = None
    """(error type, message) of an SSE `error` event, after `failure_after` events."""
    failure_after: int = 0
    times: int | None = 1


class ErrorReply(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP error in the shape of the API. `details` are more fields of the error, which only the Responses API sends."""

    status: int
    error_type: str
    message: str
    headers: dict[str, str] = {}
    details: dict[str, Any] = {}
    times: int | None = None


class RawReply(msgspec.Struct, frozen=True, kw_only=True):
    """SSE events sent exactly as given, and `body` for a request that did not ask for a stream."""

    events: tuple[bytes, ...]
    body: bytes = b"{}"
    headers: dict[str, str] = {}
    times: int | None = 1


Reply: TypeAlias = MessageReply | ErrorReply | RawReply


def text_block(text: str) -> Block:
    """Make a text block for `message()`."""
    return {"type": "text", "text": text}


def thinking_block(thinking: str, *, signature: str = "ZmFrZQ==") -> Block:
    """Make a thinking block for `message()`. The CLI accepts the invented signature."""
    return {"type": "thinking", "thinking": thinking, "signature": signature}


def tool_use_block(name: str, input: Mapping[str, Any] | None = None, *, id: str | None = None) -> Block:  # noqa: A002 - wire names
    """Make a tool call for `message()`; without `id` each answer gets a new one."""
    block: Block = {"type": "tool_use", "name": name, "input": dict(input or {})}
    return {**block, "id": id} if id else block


def custom_tool_use_block(name: str, input: str, *, id: str | None = None) -> Block:  # noqa: A002 - wire names
    """Make a tool call whose input is a text, for `message()`: a `custom_tool_call` of the Responses API."""
    block: Block = {"type": "custom_tool_use", "name": name, "input": input}
    return {**block, "id": id} if id else block


def message(*blocks: Block, stop_reason: str | None = None, usage: Usage | None = None, times: int | None = 1) -> MessageReply:
    """Answer with several content blocks in one message. The stop reason defaults to `tool_use` if one of them is a tool call."""
    if stop_reason is None:
        stop_reason = "tool_use" if any(block.get("type") == "tool_use" for block in blocks) else "end_turn"
    return MessageReply(blocks=blocks, stop_reason=stop_reason, usage=usage or Usage(), times=times)


def text(
    text: str, *, chunks: int | Sequence[str] | None = None, usage: Usage | None = None, model: str | None = None, times: int | None = 1
) -> MessageReply:
    """Answer with text. `chunks` is the number of streamed deltas, or the deltas themselves.

    Raises `ConfigurationError` when the given deltas joined are not the text.
    """
    return MessageReply(blocks=(text_block(text),), chunks=_checked(chunks, text=text), usage=usage or Usage(), model=model, times=times)


def tool_use(
    name: str,
    input: Mapping[str, Any] | None = None,  # noqa: A002 - the wire name
    *,
    text_before: str = "",
    id: str | None = None,  # noqa: A002 - the wire name
    usage: Usage | None = None,
    times: int | None = 1,
) -> MessageReply:
    """Answer with a tool call, after `text_before` if given. The CLI runs the tool and asks again with its result."""
    before = (text_block(text_before),) if text_before else ()
    return message(*before, tool_use_block(name, input=input, id=id), usage=usage, times=times)


def exec_command(cmd: str, *, thought: str = "", id: str | None = None, times: int | None = 1, **arguments: Any) -> MessageReply:  # noqa: A002
    """Let the model run a shell command, after a `thought` if given. The agent asks `FakeResponsesAPI` again with its output.

    `arguments` are more arguments of the tool `exec_command`, such as `yield_time_ms`.
    """
    before = (thinking_block(thought),) if thought else ()
    return message(*before, tool_use_block("exec_command", input={"cmd": cmd, **arguments}, id=id), times=times)


def apply_patch(patch: str, *, id: str | None = None, times: int | None = 1) -> MessageReply:  # noqa: A002 - the wire name
    """Let the model change files, for `FakeResponsesAPI`: `patch` is the text from `*** Begin Patch` to `*** End Patch`."""
    return message(custom_tool_use_block("apply_patch", patch, id=id), times=times)


def thinking(thought: str, *, text: str = "", signature: str = "ZmFrZQ==", usage: Usage | None = None) -> MessageReply:
    """Answer with a thinking block, then `text`. (Without text, CLI 2.1.329 asks again.)"""
    after = (text_block(text),) if text else ()
    return message(thinking_block(thought, signature=signature), *after, usage=usage)


def huge(size: int, *, chunks: int = 32) -> MessageReply:
    """Answer with `size` bytes of ASCII text, in `chunks` deltas."""
    return text("x" * size, chunks=chunks)


def gated(
    text: str, *, gate: str = "main", after_chunks: int = 1, chunks: int | Sequence[str] | None = 2, times: int | None = 1
) -> MessageReply:
    """Answer with text, but wait after `after_chunks` deltas until the test calls `api.open_gate(gate)`.

    A request that did not ask for a stream waits at the gate before its whole answer.
    """
    return MessageReply(blocks=(text_block(text),), chunks=_checked(chunks, text=text), gate=gate, gate_after=after_chunks, times=times)


def slow(text: str, *, delay: float = 0.05, chunks: int | Sequence[str] | None = None, times: int | None = 1) -> MessageReply:
    """Answer with text, with `delay` seconds between its deltas. This is for demonstrations; use `gated` in tests."""
    return MessageReply(blocks=(text_block(text),), chunks=_checked(chunks, text=text), delay=delay, times=times)


def error(
    status: int,
    *,
    error_type: str | None = None,
    message: str | None = None,
    headers: Mapping[str, str] | None = None,
    details: Mapping[str, Any] | None = None,
    times: int | None = None,
) -> ErrorReply:
    """Answer with an HTTP error. The error type and a plausible message follow from `status`.

    `details` are more fields of the error in the body; only `FakeResponsesAPI` sends them.

    With `times=None` all further requests get it, until the script is replaced. The CLI and the anthropic SDK obey
    `headers={"retry-after": "1"}` and `{"x-should-retry": "false"}`. Raises `ConfigurationError` when `status` is not 400 to 599.
    """
    if not 400 <= status <= 599:
        raise ConfigurationError(f"error({status}): an HTTP error status is 400 to 599", option="status")
    known_type, known_message = ERROR_TYPES.get(status, ("invalid_request_error" if status < 500 else "api_error", "Scripted error."))
    return ErrorReply(
        status=status,
        error_type=error_type or known_type,
        message=message or known_message,
        headers=dict(headers or {}),
        details=dict(details or {}),
        times=times,
    )


def usage_limit(*, resets_at: int | None = None, plan_type: str = "plus", times: int | None = None) -> ErrorReply:
    """Answer as the Responses API does when the usage of a ChatGPT plan is used up: status 429, `usage_limit_reached`.

    `resets_at` is when it ends, in seconds since 1970.
    """
    details = {"plan_type": plan_type, **({} if resets_at is None else {"resets_at": resets_at})}
    said = "The usage limit has been reached"
    return error(429, error_type="usage_limit_reached", message=said, details=details, times=times)


def failed(code: str, *, message: str = "The response failed.", after_events: int = 1, times: int | None = None) -> MessageReply:
    """Send `response.failed` of the Responses API with this code, after `after_events` SSE events: `context_length_exceeded`, …"""
    return MessageReply(failure=(code, message), failure_after=after_events, times=times)


def cut(reply: MessageReply | str = "This sentence is never", *, after_events: int = 4, times: int | None = 1) -> MessageReply:
    """Drop the connection of an answer after `after_events` SSE events; 0 drops it before the status line.

    Without streaming, half of the body is sent. CLI 2.1.329 asks again after a cut stream, at last without streaming
    (docs/reference/protocol.md#api-failures).
    """
    whole = text(reply) if isinstance(reply, str) else reply
    return msgspec.structs.replace(whole, cut_after=after_events, times=times)


def sse_error(
    error_type: str = "overloaded_error",
    *,
    message: str | None = None,
    after_events: int = 4,
    reply: MessageReply | str = "This sentence is never",
    times: int | None = None,
) -> MessageReply:
    """Send an `error` event after `after_events` SSE events. Without streaming, answer with the HTTP error of the same type."""
    whole = text(reply) if isinstance(reply, str) else reply
    known = next((said for kind, said in ERROR_TYPES.values() if kind == error_type), "Scripted error.")
    return msgspec.structs.replace(whole, failure=(error_type, message or known), failure_after=after_events, times=times)


def empty(*, times: int | None = None) -> MessageReply:
    """Answer with a message without content. The CLI asks once more, then reports success with an empty result."""
    return MessageReply(times=times)


def refusal(text: str = "", *, category: str | None = None, explanation: str | None = None, times: int | None = None) -> MessageReply:
    """Answer with a message that stops with `refusal`, after `text` if given."""
    details = {"type": "refusal", "category": category, "explanation": explanation} if category or explanation else None
    return MessageReply(blocks=(text_block(text),) if text else (), stop_reason="refusal", stop_details=details, times=times)


def max_tokens(text: str = "This goes on and", *, times: int | None = None) -> MessageReply:
    """Answer with text that stops with `max_tokens`. The CLI asks for three continuations before it gives up."""
    return MessageReply(blocks=(text_block(text),), stop_reason="max_tokens", times=times)


def raw(events: Sequence[Mapping[str, Any] | str | bytes], *, body: Mapping[str, Any] | bytes = b"{}", times: int | None = 1) -> RawReply:
    """Answer with your own SSE events. A mapping is encoded under its `type`; text and bytes are sent unchanged, even if invalid."""
    encoded = tuple(
        event if isinstance(event, bytes) else event.encode() if isinstance(event, str) else encode_event(event) for event in events
    )
    return RawReply(events=encoded, body=body if isinstance(body, bytes) else msgspec.json.encode(body), times=times)


def encode_event(event: Mapping[str, Any]) -> bytes:
    """Encode the event as one SSE frame, named after its `type`."""
    return b"event: %s\ndata: %s\n\n" % (str(event.get("type", "message")).encode(), msgspec.json.encode(event))


def _checked(chunks: int | Sequence[str] | None, *, text: str) -> int | tuple[str, ...] | None:
    if chunks is None or isinstance(chunks, int):
        if chunks is not None and chunks < 1:
            raise ConfigurationError(f"chunks={chunks}: it must be at least 1", option="chunks")
        return chunks
    if "".join(chunks) != text:
        raise ConfigurationError("chunks: the given deltas joined are not the text", option="chunks")
    return tuple(chunks)
