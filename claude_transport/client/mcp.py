"""The MCP servers of a conversation, above all those that live in this program: the CLI's model calls their tools also from far away.

The CLI speaks JSON-RPC inside `mcp_message` requests, and each of them has to be answered by a control response that holds the
JSON-RPC answer with the same id: one without it, or with another id, hangs the tool call for good, beyond the end of input
(recordings 06q, 06r). So every request here is answered under its own id, whatever the server does: by the server's answer,
or by a JSON-RPC error when the server fails, is gone, or drops a cancelled call.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import anyio
import anyio.lowlevel

from claude_transport.background import BackgroundTask
from claude_transport.client.reports import guarded, meant_for_the_program, without_cancellation
from claude_transport.errors import ConfigurationError, ControlRequestFailed
from claude_transport.printable import printable
from claude_transport.protocol.answers import McpServersChange
from claude_transport.protocol.redaction import Redactor

if TYPE_CHECKING:
    from mcp.server import Server
    from mcp.shared.message import SessionMessage


# --- MCP servers that the CLI is to run or reach by itself, given to a conversation instead of its options.


_URL_KINDS: Final = frozenset({"http", "sse", "ws"})


def whole_configuration(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with what `mcp_set_servers` needs of it.

    A program without `args` is fine in `--mcp-config`, and fails here with "Spread syntax requires ...iterable" (CLI 2.1.329, real).
    """
    whole = dict(config)
    if whole.get("type", "stdio") == "stdio" and "command" in whole:
        whole.setdefault("args", [])
    return whole


def checked_configuration(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of the server `name`, for `mcp_set_servers`; `ConfigurationError` for one that the CLI could only fail with.

    A kind that is not known here is passed on: a newer CLI may have more of them.
    """
    kind = config.get("type", "stdio")
    if not isinstance(kind, str):
        raise _refused_configuration(name, f"its type is a text such as stdio or http, not {type(kind).__name__}")
    if kind == "sdk":
        raise _refused_configuration(name, "a server of type sdk lives in this program: give the server object itself")
    if kind == "stdio":
        args = config.get("args", ())
        if not isinstance(config.get("command"), str) or not config["command"]:
            raise _refused_configuration(name, "a server of type stdio needs a command, as text")
        if isinstance(args, str) or not isinstance(args, Sequence) or not all(isinstance(each, str) for each in args):
            raise _refused_configuration(name, "its args are a list of texts")
    if kind in _URL_KINDS and (not isinstance(config.get("url"), str) or not config["url"]):
        raise _refused_configuration(name, f"a server of type {kind} needs a url, as text")
    for option in ("env", "headers"):
        given = config.get(option, {})
        if not isinstance(given, Mapping) or not all(isinstance(text, str) for pair in given.items() for text in pair):
            raise _refused_configuration(name, f"its {option} are texts by name")
    return whole_configuration(config)


def check_change(change: McpServersChange) -> None:
    """Raise `ControlRequestFailed` with the names of the servers that could not be connected, and why, as far as the CLI says."""
    if change.errors:
        redactor = Redactor()  # a URL may hold a key
        why = "; ".join(f"{name!r}: {redactor.text(str(reason))}" for name, reason in change.errors.items())
        message = f"MCP servers could not be connected: {why}"
        raise ControlRequestFailed(message, subtype="mcp_set_servers", error_code="mcp_server_failed")


def _refused_configuration(name: str, why: str) -> ConfigurationError:
    return ConfigurationError(f"mcp_servers[{name!r}]: {why}", option="mcp_servers")


# --- `McpSession`: one life of one in-process MCP server, from a handshake to the next, with the CLI at the other end.


logger: logging.Logger = logging.getLogger(__name__)

INTERNAL_ERROR = -32603
_INVALID_REQUEST = -32600
_CANCELLED = -32800
"""JSON-RPC error codes: "internal error", "invalid request", and the one the Language Server Protocol gave to cancelled requests."""

OnFailure = Callable[[str, BaseException], object]
"""Told what failed, and what it raised."""

_HANG_UP_GRACE = 2.0
_CANCEL_GRACE = 1.0
"""Seconds a server gets to end when its client has hung up, and then when it is cancelled: one that blocks in a thread or resists
its cancellation is not worth hanging for."""


class McpSession:
    """A JSON-RPC connection to `server`, whose own messages go to `tell(message)`.

    The server's lifespan is entered when the session begins and left when it ends: once for every handshake, that is at least
    once for every conversation. `after` is the session that this one replaces: it is ended first, so that two lives of a server
    within one conversation never overlap.
    """

    def __init__(
        self,
        name: str,
        server: Server[Any],
        *,
        tell: Callable[[dict[str, Any]], None],
        on_failure: OnFailure,
        after: McpSession | None = None,
    ) -> None:
        self._name = name
        self._server = server
        self._tell = tell
        self._on_failure = on_failure
        self._after = after
        self._waiting: dict[str | int, McpCall] = {}
        self._over = False
        # without a bound of its own: the CLI has only so many questions open at once
        self._to_server, self._from_cli = anyio.create_memory_object_stream[Any](math.inf)
        self._task = BackgroundTask.spawn(self._run, name=f"MCP server {name}", at_end=self._end)

    def accept(self, message: dict[str, Any]) -> McpCall:
        """Hand a message of the CLI to the server, at once; what comes of it is the call's to say."""
        request_id = message.get("id")
        if "method" not in message or request_id is None:
            self._note_cancellation(message)
            self._pass_on(message)
            return McpCall({"jsonrpc": "2.0", "result": {}})  # it needs no answer, but the control request around it does
        # the server's own parser takes a request with a strange id for a notification, and would never answer
        if not _is_id(request_id):
            return McpCall.failed(request_id, _INVALID_REQUEST, f"a request id is a string or an integer, not {request_id!r}")
        if request_id in self._waiting:
            return McpCall.failed(request_id, _INVALID_REQUEST, f"the request id {request_id!r} is already in use")
        if self._over:
            return McpCall.failed(request_id, INTERNAL_ERROR, self._gone)
        if not self._pass_on(message):
            return McpCall.failed(request_id, _INVALID_REQUEST, "this is no JSON-RPC request")
        call = self._waiting[request_id] = McpCall(on_withdrawal=lambda: self._withdraw(request_id, call))
        return call

    def _withdraw(self, request_id: str | int, call: McpCall) -> None:
        if self._waiting.get(request_id) is call:
            del self._waiting[request_id]
            self._pass_on({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}})

    async def aclose(self) -> None:
        """Hang up, and wait for the server to end; one that does not is cancelled, and given up in the end."""
        # hanging up first: a server that is cancelled could not await anything while it leaves its lifespan
        self._to_server.close()
        try:
            with anyio.move_on_after(_HANG_UP_GRACE, shield=True):
                await self._task.wait()
        finally:
            self._task.cancel()
        with anyio.move_on_after(_CANCEL_GRACE, shield=True):
            await self._task.wait()
        if not self._task.finished:
            logger.warning("the MCP server %r did not end in %g s and was given up", self._name, _HANG_UP_GRACE + _CANCEL_GRACE)

    async def _run(self) -> None:
        if self._after is not None:
            predecessor, self._after = self._after, None
            await predecessor.aclose()
        try:
            options = self._server.create_initialization_options()
            await guarded(self._server.run(self._from_cli, _ToCli(self._hear), options))
        except BaseException as exc:
            # a server is a callback, too: whatever it raises is noted, and calls are answered
            error = without_cancellation(exc)
            if error is None:
                raise
            self._on_failure(f"the MCP server {self._name!r}", error)
            if (exit_of_program := meant_for_the_program(error)) is not None:
                raise exit_of_program from None

    def _end(self) -> None:
        """Also when the task was cancelled before its first step."""
        self._over = True
        self._to_server.close()
        self._from_cli.close()
        for request_id in tuple(self._waiting):
            self._settle(request_id, _error(INTERNAL_ERROR, self._gone))

    @property
    def _gone(self) -> str:
        return f"the server {self._name!r} has ended"

    def _settle(self, request_id: str | int, outcome: Mapping[str, Any]) -> bool:
        """Give a call its answer, and with it the id free; False when nobody waits for it."""
        call = self._waiting.pop(request_id, None)
        if call is None:
            return False
        call.fill(_answer_to(request_id, outcome))
        return True

    def _hear(self, item: SessionMessage) -> None:
        """A message of the server: the answer somebody waits for, or something of its own."""
        message: dict[str, Any] = item.message.model_dump(by_alias=True, mode="json", exclude_none=True)
        if "method" in message:
            self._tell(message)
            return
        outcome: dict[str, Any] = {key: message[key] for key in ("result", "error") if key in message}
        if not self._settle(message.get("id", ""), outcome):
            logger.debug("the MCP server %r answered a request that nobody waits for: %s", self._name, printable(message.get("id")))

    def _note_cancellation(self, message: Mapping[str, Any]) -> None:
        """A cancelled request gets no answer from the server, but the control request around it still needs one."""
        params = message.get("params")
        if message.get("method") == "notifications/cancelled" and isinstance(params, dict) and _is_id(params.get("requestId")):
            self._settle(params["requestId"], _error(_CANCELLED, "cancelled"))

    def _pass_on(self, message: dict[str, Any]) -> bool:
        """Hand a message to the server; False when it is none. To a server that has ended it is of no interest."""
        from mcp.shared.message import SessionMessage
        from mcp.types import jsonrpc_message_adapter

        try:
            parsed = jsonrpc_message_adapter.validate_python(message)
        except ValueError:
            logger.warning("the CLI sent the MCP server %r something that is no JSON-RPC message", self._name)
            return False
        try:
            self._to_server.send_nowait(SessionMessage(parsed))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            logger.debug("the MCP server %r does not listen any more", self._name)
        return True


class _ToCli:
    """The server's writing side, as far as `mcp` uses it: what is sent is heard at once."""

    def __init__(self, hear: Callable[[SessionMessage], None]) -> None:
        self._hear = hear

    async def send(self, item: SessionMessage, /) -> None:
        # a server that reports progress in a tight loop must let others run; before, so that a cancelled send has sent nothing
        await anyio.lowlevel.checkpoint()
        self._hear(item)

    async def aclose(self) -> None:
        """There is nothing to close: the session ends when the server does."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None) -> None:
        return None


class McpCall:
    """One message of the CLI, from the moment it was handed to the server until it has its answer or is withdrawn."""

    def __init__(self, answer: dict[str, Any] | None = None, *, on_withdrawal: Callable[[], None] | None = None) -> None:
        self._answer = answer
        self._answered = anyio.Event()
        self._on_withdrawal = on_withdrawal

    @classmethod
    def failed(cls, request_id: object, code: int, text: str) -> McpCall:
        """A call that was over before it began."""
        return cls(_answer_to(request_id, _error(code, text)))

    def fill(self, answer: dict[str, Any]) -> None:
        """Here is the answer."""
        self._answer = answer
        self._answered.set()

    async def answer(self) -> dict[str, Any]:
        """The JSON-RPC answer to a request; an empty one for everything that needs none."""
        while self._answer is None:
            try:
                await self._answered.wait()
            except anyio.get_cancelled_exc_class():
                self.withdraw()
                raise
        return self._answer

    def withdraw(self) -> None:
        """Nobody waits for the answer any more; the server is told so, unless it has given it. Does not wait."""
        if self._answer is None and self._on_withdrawal is not None:
            self._on_withdrawal()


def _is_id(value: object) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool)


def _error(code: int, text: str) -> dict[str, Any]:
    """The part of a JSON-RPC answer that says what went wrong."""
    return {"error": {"code": code, "message": text}}


def _answer_to(request_id: Any, outcome: Mapping[str, Any]) -> dict[str, Any]:
    """A whole JSON-RPC answer, under the id of its request."""
    return {"jsonrpc": "2.0", "id": request_id, **outcome}


_HANDSHAKE = "claude-transport-handshake"
"""Id of the `initialize` request that is made in place of the CLI; its answer is dropped."""

Tell = Callable[[str, dict[str, Any]], None]
"""Sends a JSON-RPC message of a server to the CLI: `tell(server_name, message)`."""


class McpServers:
    """The servers of one conversation, by name. One server object may serve any number of conversations at once.

    `servers` are `mcp.server.Server` or `mcp.server.MCPServer` objects by name, or configurations of what the CLI runs or reaches
    itself. `on_failure` is told of a server that failed, and of why. `tell` is how the objects' own messages (progress, `list_changed`,
    requests) reach the CLI; whoever speaks to it sets it.
    Raises `ConfigurationError` for anything else, and when the package `mcp` is missing or too old.
    """

    def __init__(self, servers: Mapping[str, Any] | None, *, on_failure: OnFailure, tell: Tell | None = None) -> None:
        if servers is not None and not isinstance(servers, Mapping):
            raise _refused(f"mcp_servers maps names to servers, and is no {type(servers).__name__}")
        given = {_checked_name(name): _instance_of(server) for name, server in (servers or {}).items()}
        _refuse_same_tool_names(given)
        configured = {name: server for name, server in given.items() if isinstance(server, Mapping)}
        self._configured = {name: checked_configuration(name, config) for name, config in configured.items()}
        self._servers = {name: _low_level(name, server) for name, server in given.items() if name not in configured}
        self._tell = tell or _tell_nobody
        self._parked: frozenset[str] = frozenset()
        self._on_failure = on_failure
        self._sessions: dict[str, McpSession] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Those that live here: what `initialize.sdkMcpServers` says."""
        return tuple(self._servers)

    @property
    def dynamic(self) -> dict[str, dict[str, Any]]:
        """What `mcp_set_servers` is to be told once `initialize` is answered: nothing, unless there are configurations.

        It names those that live here too: what a set does not name is gone after it, whoever declared it (CLI 2.1.329, real).
        """
        if not self._configured:
            return {}
        return {**self._configured, **{name: {"type": "sdk", "name": name} for name in self._servers}}

    def __contains__(self, name: str) -> bool:
        return name in self._servers

    def park(self, manifests: Mapping[str, str]) -> None:
        """Note what became of the option `sdk_mcp_server_manifests`: the CLI calls the tools of a "parked" server without a handshake."""
        self._parked = frozenset(name for name, state in manifests.items() if state == "parked")

    def accept(self, name: str, message: dict[str, Any]) -> McpCall:
        """Hand a message of the CLI to the server `name`. Without waiting, so that the server gets them in the order they came."""
        try:
            if message.get("method") == "initialize":
                # every handshake is a new life of the server (the CLI shakes hands again after a toggle or a failure, 06l)
                self._begin(name)
            elif name not in self._sessions and name in self._parked:
                self._shake_hands(name)
            session = self._sessions.get(name)
            if session is None:
                return McpCall.failed(message.get("id"), INTERNAL_ERROR, f"the server {name!r} has not been initialised")
            return session.accept(message)
        except Exception as exc:  # noqa: BLE001 - it is noted, and the call answered
            self._on_failure(f"handing a message to the MCP server {name!r}", exc)
            return McpCall.failed(message.get("id"), INTERNAL_ERROR, f"the host failed ({type(exc).__name__})")

    def _begin(self, name: str) -> McpSession:
        """Begin a new life of the server, in place of the one it has."""
        session = self._sessions[name] = McpSession(
            name,
            self._servers[name],
            tell=lambda said: self._tell(name, said),
            on_failure=self._on_failure,
            after=self._sessions.get(name),
        )
        return session

    def _shake_hands(self, name: str) -> None:
        """Begin a life of the server with a handshake of our own, in place of the CLI."""
        from mcp.types import LATEST_PROTOCOL_VERSION

        params = {
            "protocolVersion": LATEST_PROTOCOL_VERSION,
            "capabilities": {},
            "clientInfo": {"name": "claude-transport", "version": "1"},
        }
        session = self._begin(name)
        session.accept({"jsonrpc": "2.0", "id": _HANDSHAKE, "method": "initialize", "params": params})
        session.accept({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def aclose(self) -> None:
        """End all sessions, side by side: each of them may take its time to end."""
        sessions, self._sessions = self._sessions, {}
        async with anyio.create_task_group() as closing:
            for session in sessions.values():
                closing.start_soon(session.aclose)


def _tell_nobody(name: str, message: dict[str, Any]) -> None:
    logger.debug("the MCP server %r said something before there was anybody to hear it: %s", name, printable(message.get("method")))


def _refused(message: str) -> ConfigurationError:
    return ConfigurationError(message, option="mcp_servers")


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise _refused(f"an MCP server is named by a string that is not empty, not by {name!r}")
    return name


def _refuse_same_tool_names(names: Iterable[str]) -> None:
    """Two names that the CLI writes alike would hide each other's tools from the model; seen on CLI 2.1.329, which says nothing."""
    seen: dict[str, str] = {}
    for name in names:
        written = re.sub(r"[^a-zA-Z0-9_-]", "_", name)
        if written in seen:
            raise _refused(f"the MCP servers {seen[written]!r} and {name!r} are both mcp__{written}__… to the model: rename one of them")
        seen[written] = name


def _instance_of(server: Any) -> Any:
    """The server object inside of a configuration that holds one, as the official SDK makes them; else what was given."""
    return server["instance"] if isinstance(server, Mapping) and server.get("instance") is not None else server


def _low_level(name: str, server: Any) -> Server[Any]:
    """The `mcp.server.Server` behind what the user gave."""
    low_level: Any = getattr(server, "_lowlevel_server", server)  # MCPServer has no public way to serve two streams
    if not hasattr(low_level, "run") or not hasattr(low_level, "create_initialization_options"):
        raise _refused(
            f"mcp_servers[{name!r}] is neither an mcp.server.Server nor an MCPServer (mcp 2 or newer), nor a configuration, but "
            f"{type(server).__name__}"
        )
    try:
        from mcp.types import jsonrpc_message_adapter  # noqa: F401 - what is needed of it, and was not in version 1
    except ImportError as exc:
        raise _refused("in-process MCP servers need the package mcp, 2 or newer: pip install 'claude-transport[mcp]'") from exc
    return low_level  # type: ignore[no-any-return]
