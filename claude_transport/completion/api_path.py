"""`APIPath`: one attempt at a call through the Messages API. `anthropic` is imported here, and only when an attempt is made."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
import msgspec

from claude_transport.completion.classification import classify_api_exception, classify_api_refusal
from claude_transport.completion.models import cost_of
from claude_transport.completion.readiness import check_billing
from claude_transport.completion.request import CompletionRequest, api_environment, find_credential
from claude_transport.completion.resolution import TransportKind
from claude_transport.errors import APIFailed, ClaudeTransportError, PromptTooLong, ResultError
from claude_transport.launch.credentials import Payer
from claude_transport.protocol.codec import decode_message
from claude_transport.protocol.envelope import Message
from claude_transport.protocol.messages import AssistantMessage, ResultMessage, StreamEvent

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic, Omit


# --- `APIStream`: the bytes of a streamed answer of the Messages API become its events, and the events one message. No I/O.


_TEXTS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature", "input_json_delta": "partial_json"}
"""The text that each kind of delta adds to its block, by the name it has there."""


class APIStream:
    """One answer as it comes in: `feed()` it the bytes. Whatever it does not understand it passes on and leaves out of the message."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._data: list[bytes] = []
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        # the pieces of each growing text: adding a text to itself at every delta would take time with the square of its length (P5)
        self._pieces: dict[tuple[int, str], list[str]] = {}
        self.is_complete: bool = False
        """True once the API has said that the message is whole; a stream that ends before was cut."""

    def feed(self, chunk: bytes) -> list[dict[str, Any]]:
        """The events that are whole with `chunk`, in order, however the bytes were cut."""
        self._rest.append(chunk)
        if b"\n" not in chunk:
            return []  # joined once its line is whole, or a long line would take time with the square of its length
        *lines, rest = b"".join(self._rest).split(b"\n")
        self._rest = [rest]
        events = []
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line[5:].lstrip(b" "))
            elif not line and self._data:
                event = _decoded(b"\n".join(self._data))
                self._data = []
                if event is not None:
                    self._take(event)
                    events.append(event)
        return events

    @property
    def message_id(self) -> str:
        """The id of the message, empty before it has begun."""
        found = self._message.get("id")
        return found if isinstance(found, str) else ""

    @property
    def has_begun(self) -> bool:
        """Whether there is a message at all."""
        return bool(self._message)

    def message(self) -> dict[str, Any]:
        """The message as far as it has come, in wire shape."""
        content = []
        for index in sorted(self._blocks):
            block = dict(self._blocks[index])
            for (of, name), pieces in self._pieces.items():
                if of == index:
                    _add_text(block, name, "".join(pieces))
            content.append(block)
        return {**self._message, "content": content}

    def _take(self, event: dict[str, Any]) -> None:
        match event.get("type"):
            case "message_start":
                self._message = _object(event.get("message"))
            case "content_block_start":
                self._blocks[_index(event)] = _object(event.get("content_block"))
            case "content_block_delta":
                self._take_delta(_index(event), _object(event.get("delta")))
            case "message_delta":
                self._message |= _object(event.get("delta"))
                known = {name: value for name, value in _object(event.get("usage")).items() if value is not None}
                self._message["usage"] = {**_object(self._message.get("usage")), **known}
            case "message_stop":
                self.is_complete = self.has_begun

    def _take_delta(self, index: int, delta: dict[str, Any]) -> None:
        kind = delta.get("type")
        name = _TEXTS.get(kind) if isinstance(kind, str) else None
        if name is not None and isinstance(text := delta.get(name), str):
            self._pieces.setdefault((index, name), []).append(text)
        elif kind == "citations_delta" and index in self._blocks:
            self._blocks[index]["citations"] = [*(self._blocks[index].get("citations") or ()), delta.get("citation")]


def _add_text(block: dict[str, Any], name: str, text: str) -> None:
    """Add what the deltas of one kind gave; the input of a tool call comes as text, and is JSON when it is whole."""
    if name == "partial_json":
        block["input"] = _decoded(text.encode()) or {}
        return
    begun = block.get(name)
    block[name] = (begun if isinstance(begun, str) else "") + text


def _decoded(data: bytes) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None  # an event that is no JSON says nothing; that it was needed shows when the message does not become whole
    return found if isinstance(found, dict) else None


def _object(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _index(event: Mapping[str, Any]) -> int:
    index = event.get("index")
    return index if isinstance(index, int) else 0


_HOME: Final = "https://api.anthropic.com"

_CREDENTIAL_HEADERS: Final = frozenset({"authorization", "x-api-key"})

_TOO_LONG: Final = {
    "max_tokens": (APIFailed, "result.max_output_tokens", "The answer exceeded the maximum number of output tokens."),
    "model_context_window_exceeded": (PromptTooLong, PromptTooLong.code, "The request is too large for the model."),
}
"""Answers that are not whole. The CLI reports them as failures (`max_tokens`, after three tries to go on), and so does this path."""


class CredentialsError(Exception):
    """There is nothing to authenticate with, so nobody was asked."""


class APIPath:
    """One attempt: `run()` it once. Nothing that it does has side effects, so a failed one may be followed by another."""

    kind: TransportKind = "api"

    def __init__(self, request: CompletionRequest) -> None:
        self._request = request
        self.dispatched: bool = False
        """Whether the prompt may have reached a model."""
        self.payer: Payer = "unknown"
        self.api_key_source: str | None = None
        self.exit_code: int | None = None

    async def run(self, hear: Callable[[Message], object]) -> None:
        """Ask, and tell `hear` what comes: each event of the stream, then the whole message and a result, as the CLI would say them.

        Raises `ClaudeTransportError`: whatever the SDK raises is told as one of this family (see `classification`).
        """
        body = self._request.api_body()
        credential = self._credential()
        try:
            async with self._client(**credential) as client:
                self.dispatched = True
                streaming = client.messages.with_streaming_response
                headers = {**self._headers(client), **body.pop("extra_headers", {})}
                async with streaming.create(**body, stream=True, extra_headers=headers) as response:
                    stream = await _read(response.http_response, hear)
        except ClaudeTransportError:
            raise
        except Exception as exc:  # the SDK, and its HTTP client below it, raise anything; it is translated here
            raise classify_api_exception(exc) from exc
        self._conclude(stream.message(), hear)

    def _credential(self) -> dict[str, str]:
        """The argument that the SDK takes its credential in. It looks for none itself: what pays is decided here, and said."""
        options = self._request.options
        check_billing("api", options.billing)
        found = find_credential(options)
        if found is None:
            cause = CredentialsError("neither ANTHROPIC_API_KEY nor ANTHROPIC_AUTH_TOKEN is set")
            raise classify_api_exception(cause) from cause
        self.api_key_source = found.name
        is_key = found.name == "ANTHROPIC_API_KEY"
        self.payer = "api account" if is_key else "token owner"
        return {"api_key" if is_key else "auth_token": found.value}

    def _client(self, **credential: Any) -> AsyncAnthropic:
        from anthropic import AsyncAnthropic

        base_url = api_environment(self._request.options).get("ANTHROPIC_BASE_URL") or _HOME
        # its own retries would multiply with ours, and tell nobody
        return AsyncAnthropic(**credential, base_url=base_url, max_retries=0)

    def _headers(self, client: AsyncAnthropic) -> dict[str, str | Omit]:
        """The headers that ANTHROPIC_CUSTOM_HEADERS adds in the environment the options make, and none that this process's own would.

        The SDK reads it from the process whatever it is told, so those are taken away here. A credential is never among them.
        """
        from anthropic import Omit

        outer, inner = (_custom_headers(env) for env in (os.environ, api_environment(self._request.options)))
        kept = {name: value for name, value in inner.items() if name not in _CREDENTIAL_HEADERS}
        ours = {name.lower(): value for name, value in client.auth_headers.items()}
        return {**dict.fromkeys(outer, Omit()), **kept, **ours}

    def _conclude(self, message: dict[str, Any], hear: Callable[[Message], object]) -> None:
        """Say the whole message and its result; raises the error of an answer that is none."""
        # through the decoder, which forgives what the API may say one day and this version does not know
        said = cast("AssistantMessage", decode_message(msgspec.json.encode({"type": "assistant", "message": message})))
        hear(said)
        result = cast("ResultMessage", decode_message(msgspec.json.encode(_result_of(message))))
        stop_reason = said.message.stop_reason
        cost = cost_of(said.message.model, usage=result.usage)
        result = msgspec.structs.replace(result, total_cost_usd=cost or 0, raw=b"")
        hear(result)
        if stop_reason == "refusal":
            raise classify_api_refusal(result)
        if stop_reason in _TOO_LONG:
            raise _cut_short(stop_reason, result)


def _custom_headers(env: Mapping[str, str]) -> dict[str, str]:
    """The headers in ANTHROPIC_CUSTOM_HEADERS, one on a line, by lower-case names; what is none is passed over, as by the SDK."""
    lines = (line.partition(":") for line in env.get("ANTHROPIC_CUSTOM_HEADERS", "").split("\n"))
    return {name.strip().lower(): value.strip() for name, colon, value in lines if colon}


async def _read(response: Any, hear: Callable[[Message], object]) -> APIStream:
    """The whole stream of `response`, each event told to `hear`; raises what the SDK would raise.

    `response` is of the SDK's HTTP client, which is httpx or its successor, by the version of the SDK.
    """
    from anthropic import APIConnectionError, APIStatusError

    stream = APIStream()
    chunks = response.aiter_bytes()
    try:
        async for chunk in chunks:
            for event in stream.feed(chunk):
                if event.get("type") == "error":
                    raise APIStatusError("the stream reported an error", response=response, body=event)
                if event.get("type") != "ping":
                    hear(StreamEvent(event=event, api_message_id=stream.message_id or None))
            if stream.is_complete:
                return stream
    finally:
        await _exhaust(chunks)
    raise APIConnectionError(message="the stream ended before the message was whole", request=response.request)


async def _exhaust(chunks: AsyncIterator[bytes]) -> None:
    """Let every generator under `chunks` come to its end from the inside.

    A generator left half read is closed by the event loop when it likes; trio warns of each, and those of the HTTP client can be reached
    in no other way. So the reading goes on until its next wait, which is cancelled.
    """
    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            async for _ in chunks:
                pass
        except Exception:  # noqa: BLE001, S110 - a connection that breaks while it is given up has done what was wanted
            pass


def _result_of(message: dict[str, Any]) -> dict[str, Any]:
    """What the CLI would say of this answer, in the fields that mean the same here."""
    texts = [block.get("text") for block in message["content"] if block.get("type") == "text"]
    return {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "num_turns": 1,
        "result": "\n".join(text for text in texts if isinstance(text, str)),
        "stop_reason": message.get("stop_reason"),
        "usage": message.get("usage"),
    }


def _cut_short(stop_reason: str, result: ResultMessage) -> ResultError:
    kind, code, text = _TOO_LONG[stop_reason]
    return kind(f"{text} (transport=api, category={kind.category})", result=result, code=code)
