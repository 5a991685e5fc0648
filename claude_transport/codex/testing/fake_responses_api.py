"""`FakeResponsesAPI`: a Responses API on the loopback interface. It runs the real `codex` without network, key or cost.

```python
async with FakeResponsesAPI([replies.exec_command("ls"), replies.text("Two files.")]) as api:
    options = CodexOptions(codex_home=empty, config=api.configuration(), env=api.environment())
```

Owns what a request was for, and how a reply looks on the wire. The server's life is in `api_server`, HTTP itself is in `http_server`, the
constructors of replies are in `replies`: they are those of `FakeMessagesAPI`, and some for Codex.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from claude_transport.testing.api_server import (
    CHARACTERS_PER_TOKEN,
    MAX_BODY_BYTES,
    FakeAPI,
    RecordedRequest,
    ReplyLike,
    RequestKind,
    Responder,
    ScriptLike,
    Step,
    credential_in,
    parse_body,
    play_events,
    split_text,
)
from claude_transport.testing.replies import Block, ErrorReply, MessageReply, Reply, error

if TYPE_CHECKING:
    from claude_transport.testing.http_server import HTTPConnection, HTTPRequest

FAKE_KEY: Final = "sk-fake"
KEY_VARIABLE: Final = "FAKE_RESPONSES_KEY"
PROVIDER: Final = "fake"
MODEL: Final = "gpt-5.5"
"""A model that Codex knows: with an unknown name it warns, and offers no `apply_patch`."""

ERRORS: Final[Mapping[int, tuple[str, str | None, str]]] = {
    400: ("invalid_request_error", None, "The request is not valid."),
    401: ("invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    403: ("invalid_request_error", "unsupported_country_region_territory", "This key may not do that."),
    404: ("invalid_request_error", "model_not_found", "Not found."),
    429: ("requests", "rate_limit_exceeded", "Rate limit reached."),
    500: ("server_error", None, "The server had an error while processing your request."),
    503: ("server_error", None, "The server is overloaded."),
}
"""Status → (type, code, a plausible message) of the Responses API."""

_TOOL_TYPES: Final = {"tool_use": "function_call", "custom_tool_use": "custom_tool_call"}


def parse_request(request: HTTPRequest) -> RecordedRequest:
    """Decode the body of `request` and find out its purpose. Never raises, whatever the body holds."""
    path, _, query = request.target.partition("?")
    body, malformed = parse_body(request.body)
    return RecordedRequest(
        method=request.method,
        path=path,
        query=query,
        headers=request.headers,
        body=body,
        http_version=request.version,
        size=len(request.body),
        kind=_classify(request.method, path, body, malformed=malformed),
        purpose="",
        prompt=_prompt(body),
        tool_results=_tool_results(body),
        credential=credential_in(request.headers),
    )


def _classify(method: str, path: str, body: dict[str, Any], *, malformed: bool) -> RequestKind:
    if method in {"GET", "HEAD"} and path == "/":
        return "probe"
    if method == "GET" and (path == "/v1/models" or path.startswith("/v1/models/")):
        return "models"
    if method != "POST" or path != "/v1/responses":
        return "other"
    if malformed or not isinstance(body.get("input"), list | str) or not isinstance(body.get("model"), str):
        return "malformed"
    return "conversation"


def _items(body: dict[str, Any]) -> list[dict[str, Any]]:
    given = body.get("input")
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return [item for item in (given if isinstance(given, list) else []) if isinstance(item, dict)]


def _prompt(body: dict[str, Any]) -> str:
    """Return the text of the last message of the user. Codex puts what it says about the machine before it, in messages of their own."""
    for item in reversed(_items(body)):
        if item.get("role") == "user":
            content = item.get("content")
            if isinstance(content, str):
                return content
            parts = [part.get("text") for part in (content if isinstance(content, list) else []) if isinstance(part, dict)]
            return "\n".join(part for part in parts if isinstance(part, str))
    return ""


def _tool_results(body: dict[str, Any]) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    for item in reversed(_items(body)):
        if not str(item.get("type")).endswith("_output"):
            break
        results.insert(0, item)
    return results


def encode_steps(reply: MessageReply, *, serial: int, input_tokens: int) -> list[Step]:
    """Return the steps that stream `reply` as SSE. `serial` makes the ids of the answer and its items unique."""
    failure = None
    if reply.failure is not None:
        code, said = reply.failure
        failure = {"type": "response.failed", "response": {"id": _id(serial), "error": {"code": code, "message": said}}}
    events = _events(reply, serial=serial, input_tokens=input_tokens)
    return play_events(reply, events, is_delta=lambda event: event["type"].endswith(".delta"), failure=failure)


def encode_message(reply: MessageReply, *, model: str, serial: int, input_tokens: int) -> bytes:
    """Encode the reply as one JSON response, for a request that did not ask for a stream."""
    output = [_item(block, serial=serial, index=index) for index, block in enumerate(reply.blocks)]
    head = {"id": _id(serial), "object": "response", "status": "completed", "model": reply.model or model}
    return msgspec.json.encode({**head, "output": output, "usage": _usage(reply, input_tokens=input_tokens)})


def _events(reply: MessageReply, *, serial: int, input_tokens: int) -> Iterator[dict[str, Any]]:
    yield {"type": "response.created", "response": {"id": _id(serial)}}
    for index, block in enumerate(reply.blocks):
        item = _item(block, serial=serial, index=index)
        here = {"item_id": item["id"], "output_index": index}
        if block["type"] == "text":
            yield {"type": "response.output_item.added", "output_index": index, "item": {**item, "content": []}}
            for piece in split_text(block["text"], chunks=reply.chunks):
                yield {"type": "response.output_text.delta", **here, "content_index": 0, "delta": piece}
        elif block["type"] == "thinking":
            yield {"type": "response.output_item.added", "output_index": index, "item": {**item, "summary": []}}
            yield {"type": "response.reasoning_summary_part.added", **here, "summary_index": 0}
            for piece in split_text(block["thinking"], chunks=None):
                yield {"type": "response.reasoning_summary_text.delta", **here, "summary_index": 0, "delta": piece}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": {"id": _id(serial), "usage": _usage(reply, input_tokens=input_tokens)}}


def _item(block: Block, *, serial: int, index: int) -> dict[str, Any]:
    """Return the output item for a block of `replies`."""
    number = f"fake{serial:06d}{index:02d}"
    match block["type"]:
        case "text":
            content = [{"type": "output_text", "text": block["text"], "annotations": []}]
            return {"type": "message", "role": "assistant", "id": f"msg_{number}", "content": content}
        case "thinking":
            return {"type": "reasoning", "id": f"rs_{number}", "summary": [{"type": "summary_text", "text": block["thinking"]}]}
        case "tool_use" | "custom_tool_use" as kind:
            head = {"type": _TOOL_TYPES[kind], "id": f"fc_{number}", "call_id": block.get("id", f"call_{number}"), "name": block["name"]}
            if kind == "custom_tool_use":
                return {**head, "input": block["input"]}
            return {**head, "arguments": msgspec.json.encode(block["input"]).decode()}
        case _:
            return {"id": f"item_{number}", **block}


def _id(serial: int) -> str:
    return f"resp_fake{serial:08d}"


def _usage(reply: MessageReply, *, input_tokens: int) -> dict[str, Any]:
    written = sum(len(str(block.get("text") or block.get("thinking") or block.get("input") or "")) for block in reply.blocks)
    usage = reply.usage
    asked = input_tokens if usage.input_tokens is None else usage.input_tokens
    answered = max(1, written // CHARACTERS_PER_TOKEN) if usage.output_tokens is None else usage.output_tokens
    return {
        "input_tokens": asked,
        "input_tokens_details": {"cached_tokens": usage.cache_read_input_tokens},
        "output_tokens": answered,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_output_tokens},
        "total_tokens": asked + answered,
    }


def encode_error(reply: ErrorReply) -> bytes:
    """Encode the body of an error response, in the shape of the Responses API."""
    kind, code, said = reply.error_type, None, reply.message
    usual = error(reply.status)  # what `replies` says for a status is in the words of the Messages API
    if kind == usual.error_type:
        kind, code, plausible = ERRORS.get(reply.status, (kind if reply.status < 500 else "server_error", None, said))
        said = plausible if said == usual.message else said
    return msgspec.json.encode({"error": {"message": said, "type": kind, "param": None, "code": code, **reply.details}})


class ResponsesResponder(Responder):
    """Answers a request as the Responses API does."""

    async def answer(self, next_reply: Callable[[], Reply]) -> bool:
        """Send the answer that fits the kind of the request. Returns False when the connection must be dropped."""
        match self._request.kind:
            case "conversation":
                return await self.play(next_reply())
            case "models":
                await self.respond({"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "fake"}]})
            case "probe":
                await self.respond({})
            case "malformed":
                await self.fail(error(400, message="the body must be a JSON object with at least `model` and `input`"))
            case _:
                await self.fail(error(404, message=f"{self._request.method} {self._request.path} is not served here"))
        return True

    def encode_steps(self, reply: MessageReply) -> list[Step]:
        """Return the steps that stream `reply` as SSE."""
        return encode_steps(reply, serial=self._serial, input_tokens=self._tokens)

    def encode_message(self, reply: MessageReply) -> bytes:
        """Encode the reply as one JSON response."""
        return encode_message(reply, model=self._request.model, serial=self._serial, input_tokens=self._tokens)

    def encode_error(self, reply: ErrorReply) -> bytes:
        """Encode the body of an error response."""
        return encode_error(reply)

    def failure_as_error(self, kind: str, said: str) -> ErrorReply:
        """Return the failure as an HTTP error."""
        return error(500, error_type=kind, message=said)


class FakeResponsesAPI(FakeAPI):
    """Serves a fake Responses API on this machine, for tests of the real `codex` without network or key.

    It answers by a script, and records every request in `requests`. Needs `pip install 'claude-transport[testing]'`. Use it with
    `async with`, or with `start()` and `aclose()`, which may be called from any task, on asyncio and on trio. Closing drops unfinished
    replies at once. When a scripted function raised, the client gets status 500, and closing raises that exception again.

    A program without an event loop uses it with `with`. The server then runs in a thread of its own, which also calls scripted functions.
    `call()` runs the methods that wait.

    Args:
        script: answers the conversation: a reply or text for every request, a sequence of them, a mapping from a part of the prompt to
            them, or a function from the `RecordedRequest` to a reply.
        default: answers when `script` is used up.
        host: the address to listen on.
        port: the port to listen on; 0 picks a free one.
        max_body_bytes: a longer request body gets status 413.
        request_timeout: seconds in which a request must arrive completely; a slower one gets status 408.
        strict: `default` answers only where there is no script. A request for which the script has no reply left gets status 500, and
            closing raises `ExpectationFailed`. The fixture sets it.

    Raises:
        ConfigurationError: the script is not valid.
    """

    def __init__(
        self,
        script: ScriptLike = None,
        *,
        default: ReplyLike = "Hello from the fake Responses API.",
        host: str = "127.0.0.1",
        port: int = 0,
        max_body_bytes: int = MAX_BODY_BYTES,
        request_timeout: float = 30.0,
        strict: bool = False,
    ) -> None:
        super().__init__(
            script, default=default, host=host, port=port, max_body_bytes=max_body_bytes, request_timeout=request_timeout, strict=strict
        )

    def configuration(self, **extra: Any) -> dict[str, Any]:
        """Return settings for `CodexOptions(config=…)` that make Codex use this server, and nothing else of the network.

        They name a model that Codex knows, a provider with one retry of requests and streams, and turn updates, plugins, analytics and
        feedback off. `extra` adds settings or overrides these. Raises `UsageError` before the start.
        """
        provider = {
            "name": PROVIDER,
            "base_url": f"{self.url}/v1",
            "wire_api": "responses",
            "env_key": KEY_VARIABLE,
            "request_max_retries": 1,
            "stream_max_retries": 1,
        }
        return {
            "model": MODEL,
            "model_provider": PROVIDER,
            f"model_providers.{PROVIDER}": provider,
            "check_for_update_on_startup": False,
            "features.plugins": False,
            "analytics.enabled": False,
            "feedback.enabled": False,
            **extra,
        }

    def environment(self, **extra: str) -> dict[str, str]:
        """Return environment variables for a process of Codex that uses this server: a fake key, and no proxy for this machine.

        Add them to its environment. `extra` adds variables or overrides these.
        """
        return {KEY_VARIABLE: FAKE_KEY, "NO_PROXY": self._host, "no_proxy": self._host, **extra}

    def _parse(self, request: HTTPRequest) -> RecordedRequest:
        return parse_request(request)

    def _responder(
        self, connection: HTTPConnection, *, request: RecordedRequest, serial: int, pass_gate: Callable[[str], Awaitable[None]]
    ) -> Responder:
        return ResponsesResponder(connection, request=request, serial=serial, pass_gate=pass_gate)

    def _encode_error(self, reply: ErrorReply) -> bytes:
        return encode_error(reply)
