"""`FakeMessagesAPI`: a Messages API on the loopback interface. It runs the real CLI or the anthropic SDK without network, key or cost.

```python
async with FakeMessagesAPI([replies.tool_use("Bash", {"command": "ls"}), replies.text("Two files.")]) as api:
    process = await anyio.open_process([claude, ...], env={**clean, **api.environment()})
```

Owns what a request was for, which reply is next, how a reply looks on the wire, and the server's life. HTTP itself is in `http_server`,
the constructors of replies are in `replies`. Importing this module loads neither pytest nor anthropic nor h11: the `doctor` of the program
uses it too, and `h11` (extra `testing`) is needed only once a server starts.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import Listener, SocketAttribute, SocketStream

from claude_transport.background import BackgroundTask
from claude_transport.errors import ConfigurationError, UsageError
from claude_transport.testing.replies import ERROR_TYPES, Block, ErrorReply, MessageReply, RawReply, Reply, encode_event, error, text

if TYPE_CHECKING:
    from claude_transport.testing.http_server import HTTPConnection, HTTPRequest

RequestKind: TypeAlias = Literal["conversation", "side", "count_tokens", "models", "probe", "other", "malformed"]
Credential: TypeAlias = Literal["none", "x-api-key", "authorization", "both"]
Outcome: TypeAlias = Literal["pending", "answered", "cut", "client_gone", "stopped"]

REMINDER = re.compile(r"\s*<system-reminder>.*?</system-reminder>", re.DOTALL)


class RecordedRequest(msgspec.Struct, kw_only=True):
    """One HTTP request that a `FakeMessagesAPI` received, and how its answer ended.

    `kind` says what the request was for: `conversation` (a model request that `script` answers), `side` (one of the CLI's own, with its
    `purpose`), `count_tokens`, `models`, `probe` (is the server there?), `malformed` (a model request whose body is not valid), or `other`.
    `prompt` is the text of the last user message that has text, `credential` says which header carried a key, and `outcome` how the answer
    ended; `pending` until then.
    """

    method: str
    path: str
    """Without the query."""
    query: str
    headers: dict[str, str]
    """Names in lower case; repeated headers are joined with a comma. They hold the credential, so `repr` leaves them out."""
    body: dict[str, Any]
    """The JSON object that was sent; empty when the body was missing or was not a JSON object."""
    http_version: str
    size: int
    """Bytes of the body."""
    kind: RequestKind
    purpose: str
    """For a side request: `title`, `side_question`, `compaction` or `quota`. Else empty."""
    prompt: str
    """The text of the last user message that has text, without the CLI's reminders. In a tool loop this is still the user's prompt."""
    tool_results: list[dict[str, Any]]
    """The `tool_result` blocks of the last user message."""
    credential: Credential
    outcome: Outcome = "pending"
    """`client_gone`: the client hung up before the answer was complete. `stopped`: the server was closed first. `cut`: as scripted."""

    @property
    def stream(self) -> bool:
        """True when the client asked for a streamed answer: `stream` is true in the body of the request."""
        return self.body.get("stream") is True

    @property
    def model(self) -> str:
        """The model that the client asked for, or an empty string when the body names none."""
        return str(self.body.get("model", ""))

    @property
    def agent_id(self) -> str:
        """The id of the subagent of the CLI that sent the request; an empty string for the main conversation.

        It comes from the header `x-claude-code-agent-id`.
        """
        return self.headers.get("x-claude-code-agent-id", "")

    def __repr__(self) -> str:
        return f"RecordedRequest({self.method} {self.path} {self.kind} {self.prompt[:60]!r} {self.outcome})"


def parse_request(request: HTTPRequest) -> RecordedRequest:
    """Decode the body of `request` and find out its purpose. Never raises, whatever the body holds."""
    path, _, query = request.target.partition("?")
    try:
        body = msgspec.json.decode(request.body, type=dict[str, Any]) if request.body else {}
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError):
        body, malformed = {}, True
    else:
        malformed = False
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
        credential=_credential(request.headers),
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


def _credential(headers: Mapping[str, str]) -> Credential:
    match "x-api-key" in headers, "authorization" in headers:
        case True, True:
            return "both"
        case True, False:
            return "x-api-key"
        case False, True:
            return "authorization"
        case _:
            return "none"


ReplyLike: TypeAlias = Reply | str
ScriptLike: TypeAlias = (
    ReplyLike | Sequence[ReplyLike] | Mapping[str, ReplyLike | Sequence[ReplyLike]] | Callable[[RecordedRequest], ReplyLike] | None
)


class Script:
    """Choose the reply for each model request. `script` is one of:

    * a reply, or a string for a text reply: used for every request;
    * a sequence of replies: each answers as many requests as its `times` says; after the last one, `default` answers;
    * a mapping from a part of the prompt to a reply or a sequence: the first key found in the prompt wins (an empty key is always found);
    * a function from the request to a reply, called once per request (`times` of its reply is ignored);
    * None: `default` answers every request.

    Raises `ConfigurationError` for anything else, and when replies follow one with `times=None`, because they would never be used.
    """

    def __init__(self, script: ScriptLike = None, *, default: ReplyLike = "Hello from the fake Messages API.") -> None:
        self._default = _reply(default)
        self._function: Callable[[RecordedRequest], ReplyLike] | None = None
        self._routes: dict[str, _Line] = {}
        if isinstance(script, Mapping):
            self._routes = {str(key): _Line(value) for key, value in script.items()}
        elif callable(script):
            self._function = script
        elif script is not None:
            self._routes = {"": _Line(script)}

    def reply_to(self, request: RecordedRequest) -> Reply:
        """Return the next reply for this request. Exceptions of a scripted function are raised unchanged."""
        if self._function is not None:
            return _reply(self._function(request))
        for key, line in self._routes.items():
            if key in request.prompt:
                return line.pop() or self._default
        return self._default


class _Line:
    """A sequence of replies, each used as often as its `times` says."""

    def __init__(self, replies: ReplyLike | Sequence[ReplyLike]) -> None:
        if isinstance(replies, str | MessageReply | ErrorReply | RawReply):
            self._left: list[tuple[Reply, int | None]] = [(_reply(replies), None)]
            return
        if not isinstance(replies, Sequence):
            raise ConfigurationError(f"script: {type(replies).__name__} is not a reply; pass a reply, a string or a list", option="script")
        made = [_reply(reply) for reply in replies]
        if any(reply.times is None for reply in made[:-1]):
            raise ConfigurationError(
                "a reply with times=None hides those behind it: give it a number",
                option="script",
            )
        self._left = [(reply, reply.times) for reply in made]

    def pop(self) -> Reply | None:
        if not self._left:
            return None
        reply, times = self._left[0]
        if times is not None:
            self._left[:1] = [(reply, times - 1)] if times > 1 else []
        return reply


def _reply(value: ReplyLike) -> Reply:
    if isinstance(value, str):
        return text(value)
    if not isinstance(value, MessageReply | ErrorReply | RawReply):
        raise ConfigurationError(f"script: {type(value).__name__} is not a reply; pass a reply or a string", option="script")
    if value.times is not None and value.times < 1:
        raise ConfigurationError(f"times={value.times}: it must be at least 1", option="times")
    return value


CHARACTERS_PER_TOKEN = 4  # an estimate, good enough for plausible usage
DELTA_CHARACTERS = 32
MAX_DELTAS = 64


class Send(msgspec.Struct, frozen=True):
    """Send these bytes: one SSE event."""

    data: bytes


class Pause(msgspec.Struct, frozen=True):
    """Wait for `seconds`."""

    seconds: float


class Gate(msgspec.Struct, frozen=True):
    """Wait until the gate called `name` is open."""

    name: str


class Cut(msgspec.Struct, frozen=True):
    """Drop the connection."""


Step: TypeAlias = Send | Pause | Gate | Cut


def encode_steps(reply: MessageReply, *, model: str, serial: int, input_tokens: int) -> list[Step]:
    """Return the steps that stream `reply` as SSE. `serial` makes the ids of the message and its tool calls unique."""
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
            pieces = _split(block["text"], chunks=reply.chunks)
            return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces]
        case "thinking":
            thoughts = [{"type": "thinking_delta", "thinking": piece} for piece in _split(block["thinking"], chunks=None)]
            return {**block, "thinking": "", "signature": ""}, [*thoughts, {"type": "signature_delta", "signature": block["signature"]}]
        case "tool_use":
            pieces = _split(msgspec.json.encode(block["input"]).decode(), chunks=None)
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces)]
        case _:
            return block, []  # for example redacted_thinking, which has no deltas


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


MODELS = ("claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5")


class Responder:
    """Answer one `request` over `connection`: play a scripted reply step by step, or answer as the API would.

    `serial` makes the ids of the answer unique. `pass_gate(name)` returns when that gate is open. Every method raises `PeerGone` when
    the client hangs up first.
    """

    def __init__(
        self, connection: HTTPConnection, *, request: RecordedRequest, serial: int, pass_gate: Callable[[str], Awaitable[None]]
    ) -> None:
        self._connection = connection
        self._request = request
        self._serial = serial
        self._pass_gate = pass_gate
        self._tokens = max(1, request.size // CHARACTERS_PER_TOKEN)

    async def answer(self, next_reply: Callable[[], Reply]) -> bool:
        """Send the answer that fits the kind of the request. Returns False when the connection must be dropped.

        `next_reply` is called for model requests only.
        """
        match self._request.kind:
            case "conversation" | "side":
                return await self._play(next_reply())
            case "count_tokens":
                await self._respond({"input_tokens": self._tokens})
            case "models":
                await self._respond_models()
            case "probe":
                await self._respond({})
            case "malformed":
                await self._fail(error(400, message="the body must be a JSON object with at least `model` and `messages`"))
            case _:
                await self._fail(error(404, message=f"{self._request.method} {self._request.path} is not served here"))
        return True

    async def _play(self, reply: Reply) -> bool:
        match reply:
            case ErrorReply():
                await self._fail(reply)
                return True
            case RawReply() if not self._request.stream:
                await self._respond(reply.body, headers=reply.headers)
                return True
            case RawReply():
                return await self._stream([Send(event) for event in reply.events], headers=reply.headers)
            case MessageReply():
                steps = encode_steps(reply, model=self._request.model, serial=self._serial, input_tokens=self._tokens)
                if self._request.stream:
                    return await self._stream(steps, headers=reply.headers)
                return await self._whole(reply, steps=steps)

    async def _stream(self, steps: Sequence[Step], *, headers: Mapping[str, str]) -> bool:
        started = False
        for step in steps:
            match step:
                case Cut():
                    return False
                case Send(data):
                    if not started:
                        started = True
                        sse = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", **headers}
                        await self._connection.start_stream(headers=self._headers(sse))
                    await self._connection.send_part(data)
                case _:
                    await self._linger(step)
        await self._connection.end_stream()
        return self._request.http_version != "1.0"

    async def _whole(self, reply: MessageReply, *, steps: Sequence[Step]) -> bool:
        for step in steps:
            await self._linger(step)
        if reply.failure is not None:
            kind, said = reply.failure
            status = next((status for status, (known, _) in ERROR_TYPES.items() if known == kind), 500)
            await self._fail(error(status, error_type=kind, message=said))
            return True
        body = encode_message(reply, model=self._request.model, serial=self._serial, input_tokens=self._tokens)
        if reply.cut_after is None:
            await self._respond(body, headers=reply.headers)
        elif reply.cut_after > 0:
            await self._connection.send_fragment(200, headers=self._headers(reply.headers), body=body, sent=len(body) // 2)
        return reply.cut_after is None

    async def _linger(self, step: Step) -> None:
        """Wait as this step says, until the client hangs up."""
        match step:
            case Pause(seconds):
                await self._connection.wait(lambda: anyio.sleep(seconds))
            case Gate(name):
                await self._connection.wait(lambda: self._pass_gate(name))

    async def _respond(self, body: Mapping[str, Any] | bytes, *, headers: Mapping[str, str] | None = None, status: int = 200) -> None:
        encoded = body if isinstance(body, bytes) else msgspec.json.encode(body)
        head_only = self._request.method == "HEAD"
        await self._connection.respond(status, headers=self._headers(headers or {}), body=encoded, head_only=head_only)

    async def _respond_models(self) -> None:
        made = [{"type": "model", "id": name, "display_name": name, "created_at": "2026-01-01T00:00:00Z"} for name in MODELS]
        if self._request.path == "/v1/models":
            await self._respond({"data": made, "has_more": False, "first_id": MODELS[0], "last_id": MODELS[-1]})
            return
        wanted = self._request.path.removeprefix("/v1/models/")
        found = next((model for model in made if model["id"] == wanted), None)
        if found is None:
            await self._fail(error(404, message=f"model: {wanted}"))
        else:
            await self._respond(found)

    async def _fail(self, reply: ErrorReply) -> None:
        await self._respond(encode_error(reply), headers=reply.headers, status=reply.status)

    def _headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        return {"content-type": "application/json", "request-id": f"req_fake{self._serial:08d}", **headers}


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
MAX_BODY_BYTES = 32 * 2**20  # where the real API answers 413
SIDE_REPLIES = {
    "title": '{"title": "Fake session"}',
    "compaction": "<analysis>Nothing to analyse.</analysis>\n<summary>The user talked to a fake Messages API.</summary>",
}
"""The texts that answer side requests, by purpose, without a `side` script. Any other purpose gets a short text."""


class FakeMessagesAPI:
    """Serves a fake Messages API on this machine, for tests of the CLI or the anthropic SDK without network or key.

    It answers by a script, and records every request in `requests`. Needs `pip install 'claude-transport[testing]'`. Use it with
    `async with`, or with `start()` and `aclose()`, which may be called from any task, on asyncio and on trio. Closing drops unfinished
    replies at once. When a scripted function raised, the client gets status 500, and closing raises that exception again.

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
    ) -> None:
        self.requests: list[RecordedRequest] = []
        """Every valid HTTP request, in the order of arrival."""
        self.rejected: list[str] = []
        """Why requests were refused: one message for each that was not valid HTTP, too large or too slow."""
        self._script = Script(script, default=default)
        self._default = default
        self._side = None if side is None else Script(side)
        self._host, self._asked_port = host, port
        self._max_body_bytes, self._request_timeout = max_body_bytes, request_timeout
        self._port: int | None = None
        self._task: BackgroundTask | None = None
        self._open_gates: set[str] = set()
        self._at_gate: dict[str, int] = {}
        self._failures: list[Exception] = []
        self._changed = anyio.Event()

    async def start(self) -> None:
        """Listen, and serve in the background. Requests are answered when this returns.

        Raises:
            ConfigurationError: the address cannot be used, or h11 is not installed.
            UsageError: this server was started before.
        """
        if self._task is not None:
            raise UsageError("this FakeMessagesAPI was started before; make a new one")
        try:
            import claude_transport.testing.http_server  # noqa: F401 - says so here when h11 is missing, instead of in a request
        except ImportError as cause:
            message = "FakeMessagesAPI needs the package `h11`: pip install 'claude-transport[testing]'"
            raise ConfigurationError(message, option="testing") from cause
        try:
            listener = await anyio.create_tcp_listener(local_host=self._host, local_port=self._asked_port)
        except OSError as cause:
            raise ConfigurationError(f"cannot listen on {self._host}:{self._asked_port}: {cause.strerror}", option="port") from cause
        self._port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - anyio's, not Django's
        self._task = BackgroundTask.spawn(lambda: self._serve(listener), name=f"FakeMessagesAPI {self.url}")

    async def aclose(self) -> None:
        """Stop listening and drop every connection, with any unfinished reply. A second call does nothing.

        When all is closed, it raises the first exception that a scripted function raised, if there is one.
        """
        if self._task is not None:
            self._task.cancel()
            await self._task.join()
            self._notify()
        failures, self._failures = self._failures, []
        if failures:
            raise failures[0]

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, raised: BaseException | None, where: TracebackType | None) -> None:
        if raised is not None:
            self._failures.clear()  # the block has failed already, most likely because of them
        await self.aclose()

    @property
    def url(self) -> str:
        """The base URL of the API, for example `http://127.0.0.1:40123`. Raises `UsageError` before the start."""
        if self._port is None:
            raise UsageError("the FakeMessagesAPI has no address yet; start it first")
        return f"http://[{self._host}]:{self._port}" if ":" in self._host else f"http://{self._host}:{self._port}"

    def environment(self, **extra: str) -> dict[str, str]:
        """Return environment variables for a CLI process that make it use this server, with a fake key and without telemetry.

        Add them to its environment. `extra` adds variables or overrides these. Raises `UsageError` before the start.
        """
        here = {"ANTHROPIC_API_KEY": FAKE_KEY, "ANTHROPIC_BASE_URL": self.url, "NO_PROXY": self._host, "no_proxy": self._host}
        return {**here, **QUIET, **extra}

    @property
    def conversation(self) -> list[RecordedRequest]:
        """The recorded model requests of the conversation, in the order of arrival: those that `script` or `default` answers.

        A request is here from its arrival on, answered or not (see `outcome`). Side requests of the CLI and all other requests are left
        out; `requests` has them.
        """
        return [request for request in self.requests if request.kind == "conversation"]

    def replace(self, script: ScriptLike) -> None:
        """Answer the conversation by this `script` from the next request on. Replies that have begun are finished as before.

        Raises `ConfigurationError` when the script is not valid.
        """
        self._script = Script(script, default=self._default)

    def open_gate(self, name: str = "main") -> None:
        """Open the gate with this name: replies made with `gated()` that wait at it, or reach it later, continue.

        Every gate is closed at first.
        """
        self._open_gates.add(name)
        self._notify()

    def close_gate(self, name: str = "main") -> None:
        """Close the gate with this name: replies made with `gated()` that reach it from now on wait until `open_gate()`."""
        self._open_gates.discard(name)

    async def wait_for_requests(
        self, count: int, *, kind: RequestKind | None = "conversation", timeout: float = 30.0
    ) -> list[RecordedRequest]:
        """Wait until `count` requests of this `kind` have been received (None: of any kind), and return the first `count` of them.

        Requests that came before the call count, too. Raises `TimeoutError` after `timeout` seconds, and `UsageError` when the server is
        not running or is closed first.
        """

        def matching() -> list[RecordedRequest]:
            return [request for request in self.requests if kind is None or request.kind == kind]

        await self.wait_until(lambda: len(matching()) >= count, timeout=timeout, what=f"{count} {kind or 'API'} requests")
        return matching()[:count]

    async def wait_at_gate(self, name: str = "main", *, timeout: float = 30.0) -> None:
        """Wait until a reply made with `gated()` waits at the closed gate with this name. Everything before the gate has then been sent.

        Raises `TimeoutError` after `timeout` seconds, and `UsageError` when the server is not running or is closed first.
        """
        await self.wait_until(lambda: self._at_gate.get(name, 0) > 0, timeout=timeout, what=f"a reply at the gate {name!r}")

    async def wait_until(self, condition: Callable[[], bool], *, timeout: float = 30.0, what: str = "the condition") -> None:
        """Wait until `condition()` is true. It is called at once, and after each change of the recorded requests and their outcomes.

        Raises `TimeoutError` after `timeout` seconds, and `UsageError` when the server is not running or is closed first; both messages
        contain `what`, a name for the condition.
        """
        with anyio.move_on_after(timeout):
            while not condition():
                if self._task is None or self._task.finished:
                    raise UsageError(f"the FakeMessagesAPI is not running, and {what} did not come; it received {self.requests}")
                await self._changed.wait()
            return
        raise TimeoutError(f"{what} did not come within {timeout} s; the FakeMessagesAPI received {self.requests}")

    def _notify(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def _serve(self, listener: Listener[SocketStream]) -> None:
        try:
            await listener.serve(self._handle)
        finally:
            with anyio.CancelScope(shield=True):
                await listener.aclose()
                for _ in range(3):  # asyncio closes a socket two turns after its transport was aborted
                    await anyio.lowlevel.checkpoint()

    async def _handle(self, stream: SocketStream) -> None:
        from claude_transport.testing.http_server import HTTPConnection, PeerGone

        connection = HTTPConnection(stream, max_body_bytes=self._max_body_bytes, request_timeout=self._request_timeout)
        try:
            while await self._exchange(connection):
                pass
            await connection.hang_up()
        except PeerGone:
            pass  # the request says so in `outcome`
        finally:
            with anyio.CancelScope(shield=True):  # older anyio gives up the socket only after a checkpoint
                await stream.aclose()

    async def _exchange(self, connection: HTTPConnection) -> bool:
        """Serve one request. Returns True when the connection may carry another one."""
        from claude_transport.testing.http_server import BadRequest, PeerGone

        try:
            request = await connection.read_request()
        except BadRequest as problem:
            self.rejected.append(str(problem))
            self._notify()
            rejection = error(problem.status, message=str(problem))
            headers = {"content-type": "application/json", "connection": "close"}
            await connection.respond(problem.status, headers=headers, body=encode_error(rejection))
            return False
        if request is None:
            return False
        recorded = parse_request(request)
        self.requests.append(recorded)
        self._notify()
        responder = Responder(connection, request=recorded, serial=len(self.requests), pass_gate=self._pass_gate)
        try:
            whole = await responder.answer(lambda: self._reply_to(recorded))
            recorded.outcome = "answered" if whole else "cut"
            return whole and request.keep_alive
        except PeerGone:
            recorded.outcome = "client_gone"
            raise
        finally:
            if recorded.outcome == "pending":
                recorded.outcome = "stopped"
            self._notify()

    def _reply_to(self, recorded: RecordedRequest) -> Reply:
        if recorded.kind == "side" and self._side is None:
            return text(SIDE_REPLIES.get(recorded.purpose, "A side answer."))
        script = self._script if recorded.kind == "conversation" or self._side is None else self._side
        try:
            return script.reply_to(recorded)
        except Exception as failure:  # noqa: BLE001 - a test's own function failed: the test gets it from aclose(), the client a 500
            self._failures.append(failure)
            return error(500, message="the scripted function failed", headers={"x-should-retry": "false"})

    async def _pass_gate(self, name: str) -> None:
        self._at_gate[name] = self._at_gate.get(name, 0) + 1
        self._notify()
        try:
            while name not in self._open_gates:
                await self._changed.wait()
        finally:
            self._at_gate[name] -= 1
