"""A Messages API on the loopback interface, to run the real CLI or the anthropic SDK without a network, a key or a cent.

```python
async with FakeMessagesAPI([replies.tool_use("Bash", {"command": "ls"}), replies.text("Two files.")]) as api:
    process = await anyio.open_process([claude, ...], env={**clean, **api.environment()})
```

Importing this module loads neither pytest nor anthropic: the program's `doctor` and `--offline` use it too.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

import anyio
import anyio.lowlevel
from anyio.abc import Listener, SocketAttribute, SocketStream

from claude_transport.background import BackgroundTask
from claude_transport.errors import ConfigurationError, UsageError
from claude_transport.testing.api_requests import RecordedRequest, RequestKind, parse_request
from claude_transport.testing.api_responder import Responder, encode_error
from claude_transport.testing.api_script import ReplyLike, Script, ScriptLike
from claude_transport.testing.http_server import BadRequest, HTTPConnection, PeerGone
from claude_transport.testing.replies import Reply, error, text

__all__ = ["FakeMessagesAPI"]

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
"""What side requests get, by purpose, when no `side` script is given; any other purpose gets a short text."""


class FakeMessagesAPI:
    """A server that plays the Messages API to one script, and records every request in `requests`.

    `script` answers the conversation (what it may be: `Script`); `default` when it is used up. The CLI's side requests (titles,
    compaction, side questions: `api_requests` says how they are told) never consume it: they get `side`, or something plausible.
    `port=0` picks a free one. A request body over `max_body_bytes` gets 413, a request that takes longer than `request_timeout`
    seconds to arrive 408, malformed HTTP 400: each in the API's error shape, and the server lives on.

    Use it with `async with`, or with `start()` and `aclose()`, which may be called from any task, on asyncio and on trio. Leaving
    drops replies in flight at once. What a scripted function raised is raised again by leaving (the client got a 500).
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
        """Every request that was understood as HTTP, in the order of arrival."""
        self.rejected: list[str] = []
        """Why connections were turned away that did not speak HTTP, or too much of it."""
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

    # ---------------------------------------------------------------------------------------------- opening and closing

    async def start(self) -> None:
        """Listen and serve in the background. Raises `ConfigurationError` when the address cannot be used, `UsageError` if started."""
        if self._task is not None:
            raise UsageError("this FakeMessagesAPI has been started before: make a new one")
        try:
            listener = await anyio.create_tcp_listener(local_host=self._host, local_port=self._asked_port)
        except OSError as cause:
            raise ConfigurationError(f"cannot listen on {self._host}:{self._asked_port}: {cause.strerror}", option="port") from cause
        self._port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - anyio's, not Django's
        self._task = BackgroundTask.spawn(lambda: self._serve(listener), name=f"FakeMessagesAPI {self.url}")

    async def aclose(self) -> None:
        """Stop listening and drop every connection, whatever is in flight; idempotent. Raises what a scripted function raised."""
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
            self._failures.clear()  # the body has failed already, most likely because of them
        await self.aclose()

    # --------------------------------------------------------------------------------------------------- for the script

    @property
    def url(self) -> str:
        """What to use as base URL, e.g. `http://127.0.0.1:40123`. Raises `UsageError` before the start."""
        if self._port is None:
            raise UsageError("the FakeMessagesAPI has no address before it is started")
        return f"http://[{self._host}]:{self._port}" if ":" in self._host else f"http://{self._host}:{self._port}"

    def environment(self, **extra: str) -> dict[str, str]:
        """The variables that point the CLI at this server, with a fake key, and keep it quiet; `extra` is added and wins."""
        here = {"ANTHROPIC_API_KEY": FAKE_KEY, "ANTHROPIC_BASE_URL": self.url, "NO_PROXY": self._host, "no_proxy": self._host}
        return {**here, **QUIET, **extra}

    @property
    def conversation(self) -> list[RecordedRequest]:
        """The requests that consumed the script."""
        return [request for request in self.requests if request.kind == "conversation"]

    def replace(self, script: ScriptLike) -> None:
        """Answer by this script from the next request on; requests in flight keep their replies."""
        self._script = Script(script, default=self._default)

    def open_gate(self, name: str = "main") -> None:
        """Let every `gated` reply pass that stands, or will come to stand, at this gate."""
        self._open_gates.add(name)
        self._notify()

    def close_gate(self, name: str = "main") -> None:
        """Hold the `gated` replies that reach this gate from now on."""
        self._open_gates.discard(name)

    # -------------------------------------------------------------------------------------------------------- for waits

    async def wait_for_requests(
        self, count: int, *, kind: RequestKind | None = "conversation", timeout: float = 30.0
    ) -> list[RecordedRequest]:
        """The first `count` requests of this kind (None: of any), as soon as there are so many. Raises `TimeoutError`."""

        def matching() -> list[RecordedRequest]:
            return [request for request in self.requests if kind is None or request.kind == kind]

        await self.wait_until(lambda: len(matching()) >= count, timeout=timeout, what=f"{count} {kind or 'API'} requests")
        return matching()[:count]

    async def wait_at_gate(self, name: str = "main", *, timeout: float = 30.0) -> None:
        """Return when a reply stands at this closed gate, everything before it sent. Raises `TimeoutError`."""
        await self.wait_until(lambda: self._at_gate.get(name, 0) > 0, timeout=timeout, what=f"a reply at the gate {name!r}")

    async def wait_until(self, condition: Callable[[], bool], *, timeout: float = 30.0, what: str = "the condition") -> None:
        """Return when `condition()` is true; it is looked at after each change of the recorded requests and their outcomes.

        Raises `TimeoutError` after `timeout` seconds, and `UsageError` when the server is closed first; both say what was missing.
        """
        with anyio.move_on_after(timeout):
            while not condition():
                if self._task is None or self._task.finished:
                    raise UsageError(f"the FakeMessagesAPI is not running, and {what} did not come; it saw {self.requests}")
                await self._changed.wait()
            return
        raise TimeoutError(f"{what} did not come within {timeout} s; the FakeMessagesAPI saw {self.requests}")

    def _notify(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    # ---------------------------------------------------------------------------------------------------------- serving

    async def _serve(self, listener: Listener[SocketStream]) -> None:
        try:
            await listener.serve(self._handle)
        finally:
            with anyio.CancelScope(shield=True):
                await listener.aclose()
                for _ in range(3):  # asyncio closes a socket two turns after its transport was aborted
                    await anyio.lowlevel.checkpoint()

    async def _handle(self, stream: SocketStream) -> None:
        connection = HTTPConnection(stream, max_body_bytes=self._max_body_bytes, request_timeout=self._request_timeout)
        try:
            while await self._exchange(connection):
                pass
            await connection.hang_up()
        except PeerGone:
            pass  # its request says so in `outcome`
        finally:
            with anyio.CancelScope(shield=True):  # older anyio gives up the socket only after a checkpoint
                await stream.aclose()

    async def _exchange(self, connection: HTTPConnection) -> bool:
        """Serve one request; whether the connection may carry another one."""
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
