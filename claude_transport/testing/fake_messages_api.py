"""`FakeMessagesAPI`: a Messages API on the loopback interface. It runs the real CLI or the anthropic SDK without network, key or cost.

```python
async with FakeMessagesAPI([replies.tool_use("Bash", {"command": "ls"}), replies.text("Two files.")]) as api:
    process = await anyio.open_process([claude, ...], env={**clean, **api.environment()})
```

Owns what a request was for, and how a reply looks on the wire. The server's life is in `api_server`, HTTP itself is in `http_server`, the
constructors of replies are in `replies`. Importing this module loads neither pytest nor anthropic nor h11: the `doctor` of the program
uses it too, and `h11` (extra `testing`) is needed only once a server starts.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from claude_transport.testing.api_server import (
    CHARACTERS_PER_TOKEN,
    MAX_BODY_BYTES,
    FakeAPI,
    RecordedRequest,
    ReplyLike,
    RequestKind,
    Responder,
    Script,
    ScriptLike,
    Step,
    credential_in,
    parse_body,
    play_events,
    split_text,
)
from claude_transport.testing.replies import ERROR_TYPES, Block, ErrorReply, MessageReply, Reply, error, text

if TYPE_CHECKING:
    from claude_transport.testing.http_server import HTTPConnection, HTTPRequest

REMINDER = re.compile(r"\s*<system-reminder>.*?</system-reminder>", re.DOTALL)


def parse_request(request: HTTPRequest) -> RecordedRequest:
    """Decode the body of `request` and find out its purpose. Never raises, whatever the body holds."""
    path, _, query = request.target.partition("?")
    body, malformed = parse_body(request.body)
    kind, purpose = _classify(request.method, path, request.headers, body, malformed=malformed)
    return RecordedRequest(
        method=request.method,
        path=path,
        query=query,
        headers=request.headers,
        body=body,
        http_version=request.version,
        size=len(request.body),
        kind=kind,
        purpose=purpose,
        prompt=_prompt(body),
        tool_results=_tool_results(body),
        credential=credential_in(request.headers),
    )


def _classify(method: str, path: str, headers: Mapping[str, str], body: dict[str, Any], *, malformed: bool) -> tuple[RequestKind, str]:
    if method in {"GET", "HEAD"} and path in {"/", "/api/hello"}:
        return "probe", ""
    if method == "GET" and (path == "/v1/models" or path.startswith("/v1/models/")):
        return "models", ""
    if method != "POST" or path not in {"/v1/messages", "/v1/messages/count_tokens"}:
        return "other", ""
    if malformed or not isinstance(body.get("messages"), list) or not isinstance(body.get("model"), str):
        return "malformed", ""
    if path == "/v1/messages/count_tokens":
        return "count_tokens", ""
    purpose = _side_purpose(body) if headers.get("user-agent", "").startswith("claude-cli/") else ""
    return ("side", purpose) if purpose else ("conversation", "")


def _side_purpose(body: dict[str, Any]) -> str:
    output = body.get("output_config")
    if not body.get("tools") and "context_management" not in body and isinstance(output, dict) and "format" in output:
        return "title"
    if body.get("max_tokens") == 1:
        return "quota"
    last = next(_user_contents(body), None)
    opening = next(_texts(last), "").lstrip()
    if opening.startswith("<system-reminder>This is a side question"):
        return "side_question"
    if opening.startswith("CRITICAL: Respond with TEXT ONLY"):
        return "compaction"
    return ""


def _user_contents(body: dict[str, Any]) -> Iterator[object]:
    """Yield the contents of the user messages, the last one first (the CLI puts `system` messages after them)."""
    messages = body.get("messages")
    for message in reversed(messages if isinstance(messages, list) else []):
        if isinstance(message, dict) and message.get("role") == "user":
            yield message.get("content")


def _texts(content: object) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    for block in content if isinstance(content, list) else []:
        if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str):
            yield block["text"]


def _prompt(body: dict[str, Any]) -> str:
    for content in _user_contents(body):
        own = [text for text in (REMINDER.sub("", text).strip() for text in _texts(content)) if text]
        if own:
            return "\n".join(own)
    return ""


def _tool_results(body: dict[str, Any]) -> list[dict[str, Any]]:
    last = next(_user_contents(body), None)
    return [block for block in (last if isinstance(last, list) else []) if isinstance(block, dict) and block.get("type") == "tool_result"]


def encode_steps(reply: MessageReply, *, model: str, serial: int, input_tokens: int) -> list[Step]:
    """Return the steps that stream `reply` as SSE. `serial` makes the ids of the message and its tool calls unique."""
    failure = None
    if reply.failure is not None:
        failure = {"type": "error", "error": {"type": reply.failure[0], "message": reply.failure[1]}}
    events = _events(reply, model=model, serial=serial, input_tokens=input_tokens)
    return play_events(reply, events, is_delta=lambda event: event["type"] == "content_block_delta", failure=failure)


def encode_message(reply: MessageReply, *, model: str, serial: int, input_tokens: int) -> bytes:
    """Encode the reply as one JSON message, for a request that did not ask for a stream."""
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
    """Return the block as `content_block_start` shows it, and the deltas that fill it."""
    match block["type"]:
        case "text":
            pieces = split_text(block["text"], chunks=reply.chunks)
            return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces]
        case "thinking":
            thoughts = [{"type": "thinking_delta", "thinking": piece} for piece in split_text(block["thinking"], chunks=None)]
            return {**block, "thinking": "", "signature": ""}, [*thoughts, {"type": "signature_delta", "signature": block["signature"]}]
        case "tool_use":
            pieces = split_text(msgspec.json.encode(block["input"]).decode(), chunks=None)
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces)]
        case _:
            return block, []  # for example redacted_thinking, which has no deltas


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


MODELS = ("claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5")


class MessagesResponder(Responder):
    """Answers a request as the Messages API does."""

    async def answer(self, next_reply: Callable[[], Reply]) -> bool:
        """Send the answer that fits the kind of the request. Returns False when the connection must be dropped."""
        match self._request.kind:
            case "conversation" | "side":
                return await self.play(next_reply())
            case "count_tokens":
                await self.respond({"input_tokens": self._tokens})
            case "models":
                await self._respond_models()
            case "probe":
                await self.respond({})
            case "malformed":
                await self.fail(error(400, message="the body must be a JSON object with at least `model` and `messages`"))
            case _:
                await self.fail(error(404, message=f"{self._request.method} {self._request.path} is not served here"))
        return True

    def encode_steps(self, reply: MessageReply) -> list[Step]:
        """Return the steps that stream `reply` as SSE."""
        return encode_steps(reply, model=self._request.model, serial=self._serial, input_tokens=self._tokens)

    def encode_message(self, reply: MessageReply) -> bytes:
        """Encode the reply as one JSON message."""
        return encode_message(reply, model=self._request.model, serial=self._serial, input_tokens=self._tokens)

    def encode_error(self, reply: ErrorReply) -> bytes:
        """Encode the body of an error response."""
        return encode_error(reply)

    def failure_as_error(self, kind: str, said: str) -> ErrorReply:
        """Return the HTTP error that has this type in the Messages API."""
        status = next((status for status, (known, _) in ERROR_TYPES.items() if known == kind), 500)
        return error(status, error_type=kind, message=said)

    async def _respond_models(self) -> None:
        made = [{"type": "model", "id": name, "display_name": name, "created_at": "2026-01-01T00:00:00Z"} for name in MODELS]
        if self._request.path == "/v1/models":
            await self.respond({"data": made, "has_more": False, "first_id": MODELS[0], "last_id": MODELS[-1]})
            return
        wanted = self._request.path.removeprefix("/v1/models/")
        found = next((model for model in made if model["id"] == wanted), None)
        if found is None:
            await self.fail(error(404, message=f"model: {wanted}"))
        else:
            await self.respond(found)


def encode_error(reply: ErrorReply) -> bytes:
    """Encode the body of an error response, in the shape of the Messages API."""
    return msgspec.json.encode({"type": "error", "error": {"type": reply.error_type, "message": reply.message}})


FAKE_KEY = "sk-ant-fake"
QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_TELEMETRY": "1",
}
SIDE_REPLIES = {
    "title": '{"title": "Fake session"}',
    "compaction": "<analysis>Nothing to analyse.</analysis>\n<summary>The user talked to a fake Messages API.</summary>",
}
"""The texts that answer side requests, by purpose, without a `side` script. Any other purpose gets a short text."""


class FakeMessagesAPI(FakeAPI):
    """Serves a fake Messages API on this machine, for tests of the CLI or the anthropic SDK without network or key.

    It answers by a script, and records every request in `requests`. Needs `pip install 'claude-transport[testing]'`. Use it with
    `async with`, or with `start()` and `aclose()`, which may be called from any task, on asyncio and on trio. Closing drops unfinished
    replies at once. When a scripted function raised, the client gets status 500, and closing raises that exception again.

    A program without an event loop uses it with `with`. The server then runs in a thread of its own, which also calls scripted functions.
    `call()` runs the methods that wait.

    Args:
        script: answers the conversation: a reply or text for every request, a sequence of them, a mapping from a part of the prompt to
            them, or a function from the `RecordedRequest` to a reply.
        side: answers side requests of the CLI (titles, compaction, side questions), which never use up `script`. Without it they get a
            plausible text.
        default: answers when `script` is used up.
        host: the address to listen on.
        port: the port to listen on; 0 picks a free one.
        max_body_bytes: a longer request body gets status 413.
        request_timeout: seconds in which a request must arrive completely; a slower one gets status 408.
        strict: `default` answers only where there is no script. A request for which the script has no reply left gets status 500, and
            closing raises `ExpectationFailed`. The fixture sets it.

    Raises:
        ConfigurationError: a script is not valid.
    """

    def __init__(
        self,
        script: ScriptLike = None,
        *,
        side: ScriptLike = None,
        default: ReplyLike = "Hello from the fake Messages API.",
        host: str = "127.0.0.1",
        port: int = 0,
        max_body_bytes: int = MAX_BODY_BYTES,
        request_timeout: float = 30.0,
        strict: bool = False,
    ) -> None:
        super().__init__(
            script, default=default, host=host, port=port, max_body_bytes=max_body_bytes, request_timeout=request_timeout, strict=strict
        )
        self._side = None if side is None else Script(side)

    def environment(self, **extra: str) -> dict[str, str]:
        """Return environment variables for a CLI process that make it use this server, with a fake key and without telemetry.

        Add them to its environment. `extra` adds variables or overrides these. Raises `UsageError` before the start.
        """
        here = {"ANTHROPIC_API_KEY": FAKE_KEY, "ANTHROPIC_BASE_URL": self.url, "NO_PROXY": self._host, "no_proxy": self._host}
        return {**here, **QUIET, **extra}

    def _scripted(self, recorded: RecordedRequest) -> Reply:
        if recorded.kind == "side" and self._side is None:
            return text(SIDE_REPLIES.get(recorded.purpose, "A side answer."))
        return (self._script if recorded.kind == "conversation" or self._side is None else self._side).reply_to(recorded)

    def _parse(self, request: HTTPRequest) -> RecordedRequest:
        return parse_request(request)

    def _responder(
        self, connection: HTTPConnection, *, request: RecordedRequest, serial: int, pass_gate: Callable[[str], Awaitable[None]]
    ) -> Responder:
        return MessagesResponder(connection, request=request, serial=serial, pass_gate=pass_gate)

    def _encode_error(self, reply: ErrorReply) -> bytes:
        return encode_error(reply)
