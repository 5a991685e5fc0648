"""`FakeAPI`: the life of a fake model API on the loopback interface, whatever it speaks: requests, replies, gates, and the end.

Owns which reply is next, the steps in which a reply is sent, and what a test can see and wait for. `FakeMessagesAPI` and `FakeResponsesAPI`
say what a request was for and how a reply looks. HTTP itself is in `http_server`, which is loaded when a server starts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Self, TypeAlias, TypeVar

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import Listener, SocketAttribute, SocketStream

from claude_transport.errors import ConfigurationError, UsageError
from claude_transport.loops.background import LoopTask
from claude_transport.loops.current import HostLoop
from claude_transport.loops.threads import LoopThread, refuse_in_a_loop
from claude_transport.protocol.expectation import ExpectationFailed
from claude_transport.testing.replies import ErrorReply, MessageReply, RawReply, Reply, encode_event, error, text
from claude_transport.testing.standing import Standing

if TYPE_CHECKING:
    from claude_transport.testing.http_server import HTTPConnection, HTTPRequest

T = TypeVar("T")
P = ParamSpec("P")

RequestKind: TypeAlias = Literal["conversation", "side", "count_tokens", "models", "probe", "other", "malformed"]
Credential: TypeAlias = Literal["none", "x-api-key", "authorization", "both"]
Outcome: TypeAlias = Literal["pending", "answered", "cut", "client_gone", "stopped"]

CHARACTERS_PER_TOKEN = 4  # an estimate, good enough for plausible usage
DELTA_CHARACTERS = 32
_SHOWN_CHARS = 200
MAX_DELTAS = 64
MAX_BODY_BYTES = 32 * 2**20  # where the real Messages API answers 413


class RecordedRequest(msgspec.Struct, kw_only=True):
    """One HTTP request that a fake API received, and how its answer ended.

    `kind` says what the request was for. `conversation` is a model request that `script` answers, `side` one of the CLI's own, with its
    `purpose`, and `malformed` one whose body is not valid. The others are `count_tokens`, `models`, `probe` (is the server there?) and
    `other`. `prompt` is the text of the last user message that has text, `credential` says which header carried a key, and `outcome` how
    the answer ended; `pending` until then.
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
    """The results of tools since the last answer of the model: `tool_result` blocks, or items such as `function_call_output`."""
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


def parse_body(body: bytes) -> tuple[dict[str, Any], bool]:
    """Return the JSON object in the body of a request, and whether the body is malformed. An empty body is an empty object."""
    try:
        return (msgspec.json.decode(body, type=dict[str, Any]) if body else {}), False
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError):
        return {}, True


def credential_in(headers: Mapping[str, str]) -> Credential:
    """Return which headers of a request carry a key."""
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

    With `strict`, `default` answers only where there is no script: a request for which a script has no reply left raises
    `ExpectationFailed`.

    Raises `ConfigurationError` for anything else, and when replies follow one with `times=None`, because they would never be used.
    """

    def __init__(self, script: ScriptLike = None, *, default: ReplyLike = "Hello from the fake API.", strict: bool = False) -> None:
        self._default = _reply(default)
        self._strict = strict and script is not None
        self._served = 0
        self._function: Callable[[RecordedRequest], ReplyLike] | None = None
        self._routes: dict[str, _ReplySequence] = {}
        if isinstance(script, Mapping):
            self._routes = {str(key): _ReplySequence(value) for key, value in script.items()}
        elif callable(script):
            self._function = script
        elif script is not None:
            self._routes = {"": _ReplySequence(script)}

    def reply_to(self, request: RecordedRequest) -> Reply:
        """Return the next reply for this request. Exceptions of a scripted function are raised unchanged."""
        self._served += 1
        if self._function is not None:
            return _reply(self._function(request))
        line = next((line for key, line in self._routes.items() if key in request.prompt), None)
        reply = None if line is None else line.pop()
        if reply is None and self._strict:
            known = (
                "no reply is left for it"
                if line is not None
                else f"no reply is for such a prompt, only for {', '.join(map(repr, self._routes))}"
            )
            raise ExpectationFailed.at(
                f"request {self._served}", expected=f"no further request: {known}", actual=f"the prompt {request.prompt[:_SHOWN_CHARS]!r}"
            )
        return reply or self._default

    def leftover(self) -> ExpectationFailed | None:
        """Return the error of a script with replies that no request has asked for; None when there are none."""
        for key, line in self._routes.items():
            if line.unused:
                where = f" with {key!r} in its prompt" if key else ""
                expected = f"one more request{where}, which it answers"
                return ExpectationFailed.at(f"reply {line.position} of {line.total}", expected=expected, actual="nothing more")
        return None

    @property
    def whereabouts(self) -> str:
        """How many requests were answered, and which reply is next."""
        after = [f"reply {line.position} of {line.total} is next" for line in self._routes.values() if line.unused]
        return f"{self._served} model requests" + "".join(f", {each}" for each in after)


class _ReplySequence:
    """A sequence of replies, each used as often as its `times` says."""

    def __init__(self, replies: ReplyLike | Sequence[ReplyLike]) -> None:
        if isinstance(replies, str | MessageReply | ErrorReply | RawReply):
            self._left: list[tuple[Reply, int | None]] = [(_reply(replies), None)]
            self.total: int = 1
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
        self.total = len(made)

    @property
    def unused(self) -> bool:
        """True when a reply is left that a request must still ask for."""
        return any(times is not None for _, times in self._left)

    @property
    def position(self) -> int:
        """The number of the next reply, counted from 1."""
        return self.total - len(self._left) + 1

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


def split_text(text: str, *, chunks: int | tuple[str, ...] | None) -> list[str]:
    """Return the deltas in which `text` is streamed: `chunks` of them, or `chunks` itself, or pieces of 32 characters, but at most 64."""
    if isinstance(chunks, tuple):
        return list(chunks)
    if chunks is None:
        chunks = min(MAX_DELTAS, -(-len(text) // DELTA_CHARACTERS))
    size = max(1, -(-len(text) // max(1, chunks)))
    return [text[start : start + size] for start in range(0, len(text), size)]


class Send(msgspec.Struct, frozen=True):
    """Send these bytes: one SSE event."""

    data: bytes


class Pause(msgspec.Struct, frozen=True):
    """Wait for `seconds`."""

    seconds: float


class Gate(msgspec.Struct, frozen=True):
    """Wait until the gate called `name` is open."""

    name: str


class DropConnection(msgspec.Struct, frozen=True):
    """Drop the connection."""


Step: TypeAlias = Send | Pause | Gate | DropConnection


def play_events(
    reply: MessageReply,
    events: Iterable[Mapping[str, Any]],
    *,
    is_delta: Callable[[Mapping[str, Any]], bool],
    failure: Mapping[str, Any] | None,
) -> list[Step]:
    """Return the steps that send `events`, with the pauses, the gate, the cut and the `failure` event that `reply` asks for."""
    steps: list[Step] = []
    deltas = 0
    if reply.gate is not None and reply.gate_after <= 0:
        steps.append(Gate(reply.gate))
    for sent, event in enumerate(events):
        if reply.cut_after is not None and sent >= reply.cut_after:
            break
        if failure is not None and sent >= reply.failure_after:
            break
        delta = is_delta(event)
        if delta and deltas and reply.delay:
            steps.append(Pause(reply.delay))
        steps.append(Send(encode_event(event)))
        deltas += delta
        if delta and reply.gate is not None and deltas == reply.gate_after:
            steps.append(Gate(reply.gate))
    if failure is not None:
        steps.append(Send(encode_event(failure)))
    if reply.cut_after is not None:
        steps.append(DropConnection())
    return steps


class Responder(ABC):
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

    @abstractmethod
    async def answer(self, next_reply: Callable[[], Reply]) -> bool:
        """Send the answer that fits the kind of the request. Returns False when the connection must be dropped.

        `next_reply` is called for model requests only.
        """

    @abstractmethod
    def encode_steps(self, reply: MessageReply) -> list[Step]:
        """Return the steps that stream `reply`."""

    @abstractmethod
    def encode_message(self, reply: MessageReply) -> bytes:
        """Encode `reply` for a request that did not ask for a stream."""

    @abstractmethod
    def encode_error(self, reply: ErrorReply) -> bytes:
        """Encode the body of an error response."""

    @abstractmethod
    def failure_as_error(self, kind: str, said: str) -> ErrorReply:
        """Return the HTTP error for a failure in the middle of an answer, when the request did not ask for a stream."""

    async def play(self, reply: Reply) -> bool:
        """Send a scripted reply. Returns False when the connection must be dropped."""
        match reply:
            case ErrorReply():
                await self.fail(reply)
                return True
            case RawReply() if not self._request.stream:
                await self.respond(reply.body, headers=reply.headers)
                return True
            case RawReply():
                return await self._stream([Send(event) for event in reply.events], headers=reply.headers)
            case MessageReply():
                steps = self.encode_steps(reply)
                if self._request.stream:
                    return await self._stream(steps, headers=reply.headers)
                return await self._whole(reply, steps=steps)

    async def _stream(self, steps: Sequence[Step], *, headers: Mapping[str, str]) -> bool:
        started = False
        for step in steps:
            match step:
                case DropConnection():
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
            await self.fail(self.failure_as_error(*reply.failure))
            return True
        body = self.encode_message(reply)
        if reply.cut_after is None:
            await self.respond(body, headers=reply.headers)
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

    async def respond(self, body: Mapping[str, Any] | bytes, *, headers: Mapping[str, str] | None = None, status: int = 200) -> None:
        """Send a whole answer of JSON."""
        encoded = body if isinstance(body, bytes) else msgspec.json.encode(body)
        head_only = self._request.method == "HEAD"
        await self._connection.respond(status, headers=self._headers(headers or {}), body=encoded, head_only=head_only)

    async def fail(self, reply: ErrorReply) -> None:
        """Send an HTTP error."""
        await self.respond(self.encode_error(reply), headers=reply.headers, status=reply.status)

    def _headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        return {"content-type": "application/json", "request-id": f"req_fake{self._serial:08d}", **headers}


class _Bell:
    """Wakes tasks that wait for the next change, each in its own event loop: a test may run in another loop than the server."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[HostLoop, anyio.Event]] = deque()

    def next_ring(self) -> anyio.Event:
        """Return an event of the caller's loop that is set by the next `ring()`. Ask for it before looking, so that no change is missed."""
        event = anyio.Event()
        self._waiting.append((HostLoop(), event))
        return event

    def ring(self) -> None:
        """Wake all that wait, from any thread."""
        for _ in range(len(self._waiting)):
            try:
                loop, event = self._waiting.popleft()
            except IndexError:  # another thread rings, too
                return
            if loop.is_current:
                event.set()
            else:
                loop.call_soon(event.set)


class FakeAPI(ABC):
    """The server of a fake API: `FakeMessagesAPI` and `FakeResponsesAPI` say what it speaks."""

    def __init__(
        self,
        script: ScriptLike,
        *,
        default: ReplyLike,
        host: str = "127.0.0.1",
        port: int = 0,
        max_body_bytes: int = MAX_BODY_BYTES,
        request_timeout: float = 30.0,
        strict: bool = False,
    ) -> None:
        self.requests: list[RecordedRequest] = []
        """Every valid HTTP request, in the order of arrival."""
        self.rejected: list[str] = []
        """Why requests were refused: one message for each that was not valid HTTP, too large or too slow."""
        self._strict = strict
        self._script = Script(script, default=default, strict=strict)
        self._default = default
        self._host, self._asked_port = host, port
        self._max_body_bytes, self._request_timeout = max_body_bytes, request_timeout
        self._port: int | None = None
        self._task: LoopTask | None = None
        self._open_gates: set[str] = set()
        self._at_gate: dict[str, int] = {}
        self._failures: list[Exception] = []
        self._first_failure: Exception | None = None
        self._bell = _Bell()
        self._loop: HostLoop | None = None
        self._thread: LoopThread | None = None

    async def start(self) -> None:
        """Listen, and serve in the background. Requests are answered when this returns.

        Raises:
            ConfigurationError: the address cannot be used, or h11 is not installed.
            UsageError: this server was started before.
        """
        if self._task is not None:
            raise UsageError(f"this {type(self).__name__} was started before; make a new one")
        try:
            import claude_transport.testing.http_server  # noqa: F401 - says so here when h11 is missing, instead of in a request
        except ImportError as cause:
            message = f"{type(self).__name__} needs the package `h11`: pip install 'claude-transport[testing]'"
            raise ConfigurationError(message, option="testing") from cause
        try:
            listener = await anyio.create_tcp_listener(local_host=self._host, local_port=self._asked_port)
        except OSError as cause:
            raise ConfigurationError(f"cannot listen on {self._host}:{self._asked_port}: {cause.strerror}", option="port") from cause
        self._port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - anyio's, not Django's
        self._loop = HostLoop()
        self._task = LoopTask.spawn(lambda: self._serve(listener), name=f"{type(self).__name__} {self.url}")

    async def aclose(self) -> None:
        """Stop listening and drop every connection, with any unfinished reply. A second call does nothing.

        When all is closed, it raises the first exception that a scripted function raised, if there is one. Raises `UsageError` in another
        event loop than that of `start()`.
        """
        if self._task is not None:
            if self._is_elsewhere and not self._task.finished:
                raise UsageError(f"this {type(self).__name__} runs in another event loop: close it there")
            self._task.cancel()
            await self._task.join()
            self._bell.ring()
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

    def __enter__(self) -> Self:
        name = type(self).__name__
        thread = LoopThread(name, instead=f"use `async with {name}(...)` there", at_end=self.aclose)
        try:
            thread.call(self.start)
        except BaseException:
            thread.end()
            raise
        self._thread = thread
        return self

    def __exit__(self, kind: type[BaseException] | None, raised: BaseException | None, where: TracebackType | None) -> None:
        if self._thread is None:
            return
        try:
            self._thread.call(lambda: self.__aexit__(kind, raised, where))
        finally:
            self._thread.end()

    def call(self, func: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a method of this server that waits, inside `with`: `api.call(api.wait_for_requests, 2)`. Returns and raises what it does.

        Raises `UsageError` outside of `with`, and code `usage.running_loop` where an event loop runs.
        """
        if self._thread is None:
            raise UsageError(f"call() needs `with {type(self).__name__}(...)`: in an async program, await the method itself")
        refuse_in_a_loop("call()", "await the method itself")
        return self._thread.call(lambda: func(*args, **kwargs))

    @property
    def _is_elsewhere(self) -> bool:
        """True when the caller runs in an event loop, and the server in another one."""
        try:
            HostLoop()
        except RuntimeError:
            return False
        return self._loop is not None and not self._loop.is_current

    @property
    def url(self) -> str:
        """The base URL of the API, for example `http://127.0.0.1:40123`.

        Raises `UsageError` before the start, and when the event loop of the server stands still because another one runs in its place.
        """
        if self._port is None:
            raise UsageError(f"the {type(self).__name__} has no address yet; start it first")
        if self._is_elsewhere and self._loop is not None and self._loop.is_paused:
            name = type(self).__name__
            message = f"the {name} would never answer: its event loop stands still while that of the caller runs"
            raise UsageError(f"{message}. Start it with `with {name}(...)`, in a fixture without `async`, or in the same loop")
        return f"http://[{self._host}]:{self._port}" if ":" in self._host else f"http://{self._host}:{self._port}"

    @property
    def conversation(self) -> list[RecordedRequest]:
        """The recorded model requests of the conversation, in the order of arrival: those that `script` or `default` answers.

        A request is here from its arrival on, answered or not (see `outcome`). Side requests of the CLI and all other requests are left
        out; `requests` has them.
        """
        return [request for request in self.requests if request.kind == "conversation"]

    def leftover(self) -> ExpectationFailed | None:
        """Return the error of a script with replies that no request has asked for; None when there are none."""
        return self._script.leftover()

    def standings(self) -> list[Standing]:
        """Return where this server stands, for the report of a test."""
        gates = [name for name, count in self._at_gate.items() if count and name not in self._open_gates]
        waits = f": waiting at the gate {', '.join(map(repr, gates))}" if gates else ""
        return [
            Standing(
                name=type(self).__name__,
                whereabouts=self._script.whereabouts + waits,
                received_last=repr(self.requests[-1]) if self.requests else "",
                failure=self._first_failure,
                leftover=self.leftover(),
                is_over=True,  # no request is made after the end of a test function
            )
        ]

    def replace(self, script: ScriptLike) -> None:
        """Answer the conversation by this `script` from the next request on. Replies that have begun are finished as before.

        Raises `ConfigurationError` when the script is not valid.
        """
        self._script = Script(script, default=self._default, strict=self._strict)

    def open_gate(self, name: str = "main") -> None:
        """Open the gate with this name: replies made with `gated()` that wait at it, or reach it later, continue.

        Every gate is closed at first.
        """
        self._open_gates.add(name)
        self._bell.ring()

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
            while True:
                change = self._bell.next_ring()
                if condition():
                    return
                if self._task is None or self._task.finished:
                    raise UsageError(f"the {type(self).__name__} is not running, and {what} did not come; it received {self.requests}")
                await change.wait()
        raise TimeoutError(f"{what} did not come within {timeout} s; the {type(self).__name__} received {self.requests}")

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
            self._bell.ring()
            rejection = error(problem.status, message=str(problem))
            headers = {"content-type": "application/json", "connection": "close"}
            await connection.respond(problem.status, headers=headers, body=self._encode_error(rejection))
            return False
        if request is None:
            return False
        recorded = self._parse(request)
        self.requests.append(recorded)
        self._bell.ring()
        responder = self._responder(connection, request=recorded, serial=len(self.requests), pass_gate=self._pass_gate)
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
            self._bell.ring()

    def _reply_to(self, recorded: RecordedRequest) -> Reply:
        try:
            return self._scripted(recorded)
        except Exception as failure:  # noqa: BLE001 - a test's own function failed: the test gets it from aclose(), the client a 500
            self._failures.append(failure)
            self._first_failure = self._first_failure or failure
            said = str(failure) if isinstance(failure, ExpectationFailed) else "the scripted function failed"
            return error(500, message=said, headers={"x-should-retry": "false"})

    def _scripted(self, recorded: RecordedRequest) -> Reply:
        """Return the reply for a model request. What a scripted function raises goes through."""
        return self._script.reply_to(recorded)

    @abstractmethod
    def _parse(self, request: HTTPRequest) -> RecordedRequest: ...

    @abstractmethod
    def _responder(
        self, connection: HTTPConnection, *, request: RecordedRequest, serial: int, pass_gate: Callable[[str], Awaitable[None]]
    ) -> Responder: ...

    @abstractmethod
    def _encode_error(self, reply: ErrorReply) -> bytes: ...

    async def _pass_gate(self, name: str) -> None:
        self._at_gate[name] = self._at_gate.get(name, 0) + 1
        self._bell.ring()
        try:
            while True:
                change = self._bell.next_ring()
                if name in self._open_gates:
                    return
                await change.wait()
        finally:
            self._at_gate[name] -= 1
