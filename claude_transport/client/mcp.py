"""`McpServers`: the MCP servers of a conversation. Most of this is about servers that run in this program.

The CLI sends JSON-RPC inside `mcp_message` requests. Each must be answered by a control response that holds the JSON-RPC answer with the
same id. Without it, the tool call hangs for good, even after the end of input. So every request here is answered
under its own id: by the server's answer, or by a JSON-RPC error when the server fails, has ended, or drops a cancelled call.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import anyio
import anyio.lowlevel

from claude_transport.errors import ConfigurationError, ControlRequestFailed
from claude_transport.exchange.failures import guarded, meant_for_the_program, without_cancellation
from claude_transport.loggers import logger_for
from claude_transport.loops.background import LoopTask
from claude_transport.protocol.answers import McpServersChange
from claude_transport.protocol.redaction import Redactor
from claude_transport.text.printable import printable

if TYPE_CHECKING:
    from mcp.server import Server
    from mcp.shared.message import SessionMessage


logger: logging.Logger = logger_for(__name__)

_URL_KINDS: Final = frozenset({"http", "sse", "ws"})


def whole_configuration(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with the fields that `mcp_set_servers` needs.

    A program without `args` works in `--mcp-config`, but fails here with "Spread syntax requires ...iterable" (CLI 2.1.329, real).
    """
    whole = dict(config)
    if whole.get("type", "stdio") == "stdio" and "command" in whole:
        whole.setdefault("args", [])
    return whole


def checked_configuration(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of the server `name`, for `mcp_set_servers`. Raises `ConfigurationError` when it cannot work.

    An unknown kind is passed on: a newer CLI may have more of them.
    """
    kind = config.get("type", "stdio")
    if not isinstance(kind, str):
        raise _refused_configuration(name, f"its type is a text such as stdio or http, not {type(kind).__name__}")
    if kind == "sdk":
        raise _refused_configuration(name, "a server of type sdk runs in this program: give the server object itself")
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
    """Raise `ControlRequestFailed` when servers could not be connected, with their names and the reasons that the CLI gave."""
    if change.errors:
        redactor = Redactor()  # a URL may hold a key
        why = "; ".join(f"{name!r}: {redactor.text(str(reason))}" for name, reason in change.errors.items())
        message = f"MCP servers could not be connected: {why}"
        raise ControlRequestFailed(message, subtype="mcp_set_servers", error_code="mcp_server_failed")


def _refused_configuration(name: str, why: str) -> ConfigurationError:
    return ConfigurationError(f"mcp_servers[{name!r}]: {why}", option="mcp_servers")


INTERNAL_ERROR = -32603
_INVALID_REQUEST = -32600
_CANCELLED = -32800
"""JSON-RPC error codes: "internal error", "invalid request", and the one the Language Server Protocol gave to cancelled requests."""

OnFailure = Callable[[str, BaseException], object]
"""Takes the name of what failed, and the error that it raised."""

_LATER_CLIENT = "claude-transport-client-"
"""Begins the ids that a server sees for requests of the CLI's second and later clients."""

_HANG_UP_GRACE = 2.0
_CANCEL_GRACE = 1.0
"""Seconds a server gets to end when its client has hung up, and then when it is cancelled. A server that still runs then is given up."""


class McpSession:
    """A JSON-RPC connection to one server of this program.

    It outlives the handshakes of the CLI. When any server of the conversation is added, switched on or fails to come up, the CLI connects
    to *all* of them again. Its new client counts its requests from 0, and still waits for the answers to the old client's calls (CLI
    2.1.330, real). The server sees none of this: only the first `initialize` reaches it, and later clients get the same answer. Ids and
    progress tokens of later clients are made different from those of earlier ones.

    Args:
        name: the server's name in the conversation.
        server: its lifespan is entered when the session begins and left when it ends.
        tell: called with each message that the server sends by itself.
        on_failure: called when the server fails.
        after: the session that this one replaces. It is ended first, so that the server does not run twice in one conversation.
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
        self._handshake: dict[str, Any] | None = None
        self._introduction: dict[str, Any] | None = None
        self._greeting: set[str | int] = set()  # handshakes that wait for the introduction
        self._initialized = False
        self._client = 0  # counts the handshakes; the first has number 0
        self._waiting: dict[str | int, tuple[str | int, McpCall]] = {}
        self._over = False
        self._is_given_up = False
        # without a bound of its own: the CLI has only so many questions open at once
        self._to_server, self._from_cli = anyio.create_memory_object_stream[Any](math.inf)
        self._task = LoopTask.spawn(self._run, name=f"MCP server {name}", at_end=self._end)

    def welcomes(self, handshake: Mapping[str, Any]) -> bool:
        """Return True when this `initialize` can go into this session: the server lives, and would answer it as it answered the first."""
        if self._over or self._is_given_up or "error" in (self._introduction or {}):
            return False
        asked, first = _parameters(handshake), _parameters(self._handshake or handshake)
        spoken = (self._introduction or {}).get("result", {}).get("protocolVersion")
        versions = (first.get("protocolVersion"), spoken)
        return asked.get("protocolVersion") in versions and asked.get("capabilities") == first.get("capabilities")

    def accept(self, message: dict[str, Any]) -> McpCall:
        """Pass a message of the CLI to the server, without waiting. Returns the call, which gets the answer."""
        request_id = message.get("id")
        if "method" not in message or request_id is None:
            self._accept_notification(message)
            return McpCall({"jsonrpc": "2.0", "result": {}})  # it needs no answer, but the control request around it does
        # the server's own parser takes a request with a strange id for a notification, and would never answer
        if not _is_id(request_id):
            return McpCall.failed(request_id, _INVALID_REQUEST, f"a request id is a string or an integer, not {request_id!r}")
        if message["method"] == "initialize" and self._handshake is not None:
            self._client += 1
        key = self._key(request_id)
        if key in self._waiting:
            return McpCall.failed(request_id, _INVALID_REQUEST, f"the request id {request_id!r} is already in use")
        if self._over:
            return McpCall.failed(request_id, INTERNAL_ERROR, self._gone)
        if message["method"] == "initialize":
            return self._greet(key, message)
        if not self._pass_on(self._as_known_to_server(message)):
            return McpCall.failed(request_id, _INVALID_REQUEST, "this is no JSON-RPC request")
        return self._wait_for(key, request_id)

    def refuse_handshakes(self) -> None:
        """Have the next handshake begin a new session. This one still answers: the CLI may list the tools of a server that it gives up."""
        self._is_given_up = True

    def _greet(self, key: str | int, message: dict[str, Any]) -> McpCall:
        """Pass the first handshake to the server. A later one gets the same answer, at once or together with the first."""
        if self._handshake is None:
            if not self._pass_on(message):
                return McpCall.failed(message["id"], _INVALID_REQUEST, "this is no JSON-RPC request")
            self._handshake = message
        if self._introduction is not None:
            return McpCall(_answer_to(message["id"], self._introduction))
        self._greeting.add(key)
        return self._wait_for(key, message["id"])

    def _wait_for(self, key: str | int, request_id: str | int) -> McpCall:
        call = McpCall(on_withdrawal=partial(self._withdraw, key))
        self._waiting[key] = (request_id, call)
        return call

    def _key(self, value: str | int) -> str | int:
        """Return the id or progress token by which the server knows that of the present client."""
        return value if not self._client else f"{_LATER_CLIENT}{self._client}:{json.dumps(value)}"

    def _as_known_to_server(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the request with the id and the progress token by which the server knows them."""
        if not self._client:
            return message
        renamed = {**message, "id": self._key(message["id"])}
        params = _parameters(message)
        meta = params.get("_meta")
        if isinstance(meta, dict) and _is_id(meta.get("progressToken")):
            renamed["params"] = {**params, "_meta": {**meta, "progressToken": self._key(meta["progressToken"])}}
        return renamed

    def _withdraw(self, key: str | int, call: McpCall) -> None:
        if self._waiting.get(key, (None, None))[1] is call:
            del self._waiting[key]
            self._cancel(key, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {}})

    def _cancel(self, key: str | int, notification: dict[str, Any]) -> None:
        """Tell the server that an answer is not wanted any more. That to a handshake is: the next client gets it."""
        if key not in self._greeting:
            self._pass_on({**notification, "params": {**notification["params"], "requestId": key}})

    async def aclose(self) -> None:
        """Hang up, and wait for the server to end. A server that does not end is cancelled, and then given up."""
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
        to_cli = _ToCli(self._hear)
        try:
            options = self._server.create_initialization_options()
            await guarded(self._server.run(self._from_cli, to_cli, options))
        except BaseException as exc:
            # whatever a server raises is noted, as for every callback, and its calls are answered
            error = without_cancellation(exc)
            if error is None:
                raise
            self._on_failure(f"the MCP server {self._name!r}", error)
            if (exit_of_program := meant_for_the_program(error)) is not None:
                raise exit_of_program from None
        finally:
            to_cli.cut()  # the package `mcp` keeps it in a ring of its own, until the garbage collector runs

    def _end(self) -> None:
        """Answer the calls that wait. Called also when the task was cancelled before its first step."""
        self._over = True
        self._to_server.close()
        self._from_cli.close()
        for key in tuple(self._waiting):
            self._settle(key, _error(INTERNAL_ERROR, self._gone))

    @property
    def _gone(self) -> str:
        return f"the server {self._name!r} has ended"

    def _settle(self, key: str | int, outcome: Mapping[str, Any]) -> bool:
        """Answer a call and forget it. Returns False when there is no such call."""
        request_id, call = self._waiting.pop(key, (None, None))
        if call is None:
            return False
        call.fill(_answer_to(request_id, outcome))
        return True

    def _hear(self, item: SessionMessage) -> None:
        """Take a message of the server: an answer to a call, or a message of its own."""
        message: dict[str, Any] = item.message.model_dump(by_alias=True, mode="json", exclude_none=True)
        if "method" in message:
            self._tell_own(message)
            return
        outcome: dict[str, Any] = {key: message[key] for key in ("result", "error") if key in message}
        if self._introduction is None and self._handshake is not None and message.get("id") == self._handshake["id"]:
            self._introduction = outcome
            for key in self._greeting:
                self._settle(key, outcome)
            self._greeting.clear()
        elif not self._settle(message.get("id", ""), outcome):
            logger.debug("the MCP server %r answered a request that is not pending: %s", self._name, printable(message.get("id")))

    def _tell_own(self, message: dict[str, Any]) -> None:
        """Pass on a message that the server sends by itself. Progress of an earlier client's call is dropped: the present client may have
        given the token to another call.
        """
        params = _parameters(message)
        if self._client and message["method"] == "notifications/progress":
            known = f"{_LATER_CLIENT}{self._client}:"
            token = params.get("progressToken")
            if not isinstance(token, str) or not token.startswith(known):
                return
            message = {**message, "params": {**params, "progressToken": json.loads(token.removeprefix(known))}}
        self._tell(message)

    def _accept_notification(self, message: dict[str, Any]) -> None:
        """Pass on a notification of the CLI, or its answer to a request of the server.

        A call that the CLI cancels is answered here: the server will not, but the control request around it needs an answer.
        """
        method, params = message.get("method"), _parameters(message)
        if method == "notifications/initialized":
            if self._initialized:
                return  # the server has heard it
            self._initialized = True
        if method != "notifications/cancelled" or not _is_id(params.get("requestId")):
            self._pass_on(message)
            return
        # the oldest first: an earlier client's call has waited for longer, so a time-out means that one
        for key, (request_id, _call) in self._waiting.items():
            if request_id == params["requestId"]:
                self._settle(key, _error(_CANCELLED, "cancelled"))
                self._cancel(key, message)
                return

    def _pass_on(self, message: dict[str, Any]) -> bool:
        """Pass a message to the server. Returns False when it is no JSON-RPC message. A server that has ended gets none."""
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


def _drop_item(_item: SessionMessage) -> None:
    pass


class _ToCli:
    """The writing side that the package `mcp` gives a server. Each message is taken at once."""

    def __init__(self, hear: Callable[[SessionMessage], None]) -> None:
        self._hear = hear

    async def send(self, item: SessionMessage, /) -> None:
        # a server that reports progress in a tight loop must let others run; the checkpoint comes first, so a cancelled send sends nothing
        await anyio.lowlevel.checkpoint()
        self._hear(item)

    def cut(self) -> None:
        """Drop what is said from now on, and let go of the session."""
        self._hear = _drop_item

    async def aclose(self) -> None:
        """Do nothing: the session ends when the server does."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None) -> None:
        return None


class McpCall:
    """One message of the CLI, from the moment the server got it until it is answered or withdrawn."""

    def __init__(self, answer: dict[str, Any] | None = None, *, on_withdrawal: Callable[[McpCall], None] | None = None) -> None:
        self._answer = answer
        self._answered = anyio.Event()
        self._on_withdrawal = on_withdrawal

    @classmethod
    def failed(cls, request_id: object, code: int, text: str) -> McpCall:
        """Return a call that is answered with a JSON-RPC error."""
        return cls(_answer_to(request_id, _error(code, text)))

    def fill(self, answer: dict[str, Any]) -> None:
        """Set the answer."""
        self._answer = answer
        self._answered.set()

    async def answer(self) -> dict[str, Any]:
        """Wait for the JSON-RPC answer. It is an empty one for a message that needs none."""
        while self._answer is None:
            try:
                await self._answered.wait()
            except anyio.get_cancelled_exc_class():
                self.withdraw()
                raise
        return self._answer

    def withdraw(self) -> None:
        """Withdraw the call: tell the server that the answer is not wanted any more, unless it has come. Does not wait."""
        if self._answer is None and self._on_withdrawal is not None:
            self._on_withdrawal(self)


def _parameters(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `params` of a message, {} when they are no object."""
    params = message.get("params")
    return params if isinstance(params, dict) else {}


def _is_id(value: object) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool)


def _error(code: int, text: str) -> dict[str, Any]:
    """Return the part of a JSON-RPC answer that reports an error."""
    return {"error": {"code": code, "message": text}}


def _answer_to(request_id: Any, outcome: Mapping[str, Any]) -> dict[str, Any]:
    """Return a whole JSON-RPC answer, with the id of its request."""
    return {"jsonrpc": "2.0", "id": request_id, **outcome}


_HANDSHAKE = "claude-transport-handshake"
"""Id of the `initialize` request that this module sends in place of the CLI. Its answer is dropped."""

Tell = Callable[[str, dict[str, Any]], None]
"""Sends a JSON-RPC message of a server to the CLI: `tell(server_name, message)`."""


class McpServers:
    """The servers of one conversation, by name. One server object may serve any number of conversations at once.

    Args:
        servers: `mcp.server.Server` or `mcp.server.MCPServer` objects, or configurations of servers that the CLI runs or reaches itself.
        on_failure: called with a server that failed, and its error.
        tell: sends the servers' own messages (progress, `list_changed`, requests) to the CLI.

    Raises `ConfigurationError` for other values, and when the package `mcp` is missing or too old.
    """

    def __init__(self, servers: Mapping[str, Any] | None, *, on_failure: OnFailure, tell: Tell) -> None:
        if servers is not None and not isinstance(servers, Mapping):
            raise _refused(f"mcp_servers maps names to servers, and is no {type(servers).__name__}")
        given = {_checked_name(name): _instance_of(server) for name, server in (servers or {}).items()}
        _refuse_same_tool_names(given)
        configured = {name: server for name, server in given.items() if isinstance(server, Mapping)}
        self._configured = {name: checked_configuration(name, config) for name, config in configured.items()}
        self._servers = {name: _low_level(name, server) for name, server in given.items() if name not in configured}
        self._tell = tell
        self._parked: tuple[str, ...] = ()
        self._on_failure = on_failure
        self._sessions: dict[str, McpSession] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The servers of this program, for `initialize.sdkMcpServers`."""
        return tuple(self._servers)

    @property
    def dynamic(self) -> dict[str, dict[str, Any]]:
        """The servers for `mcp_set_servers`, which is sent after the answer to `initialize`. Empty when there are no configurations.

        It also names the servers of this program: the CLI removes every server that the request does not name (CLI 2.1.329, real).
        """
        if not self._configured:
            return {}
        return {**self._configured, **{name: {"type": "sdk", "name": name} for name in self._servers}}

    def __contains__(self, name: str) -> bool:
        return name in self._servers

    def park(self, manifests: Mapping[str, str]) -> None:
        """Note what became of the option `sdk_mcp_server_manifests`: the CLI calls the tools of a "parked" server without a handshake."""
        self._parked = tuple([name for name, state in manifests.items() if state == "parked"])

    def accept(self, name: str, message: dict[str, Any]) -> McpCall:
        """Pass a message of the CLI to the server `name`, without waiting, so that the server gets messages in order."""
        try:
            living = self._sessions.get(name)
            if message.get("method") == "initialize" and (living is None or not living.welcomes(message)):
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

    def follow(self, subtype: str, fields: Mapping[str, Any]) -> None:
        """Note a control request that the CLI has carried out: the next handshake with a server that it switched off, removed or replaced
        begins a new session.
        """
        servers = fields.get("servers")
        gone: list[str] = []
        if subtype == "mcp_toggle" and fields.get("enabled") is False:
            gone = [name for name in self._sessions if name == fields.get("serverName")]
        elif subtype == "mcp_set_servers" and isinstance(servers, Mapping):
            gone = [name for name in self._sessions if not _runs_here(servers.get(name))]
        for name in gone:
            self._sessions[name].refuse_handshakes()

    def _begin(self, name: str) -> McpSession:
        """Begin a new session with the server, in place of the one it has."""
        session = self._sessions[name] = McpSession(
            name,
            self._servers[name],
            tell=lambda said: self._tell(name, said),
            on_failure=self._on_failure,
            after=self._sessions.get(name),
        )
        return session

    def _shake_hands(self, name: str) -> None:
        """Begin a session with the server, with a handshake in place of the CLI's."""
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
        """End all sessions at the same time."""
        sessions, self._sessions = self._sessions, {}
        async with anyio.create_task_group() as closing:
            for session in sessions.values():
                closing.start_soon(session.aclose)


def _runs_here(config: object) -> bool:
    return isinstance(config, Mapping) and config.get("type") == "sdk"


def _refused(message: str) -> ConfigurationError:
    return ConfigurationError(message, option="mcp_servers")


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise _refused(f"an MCP server is named by a string that is not empty, not by {name!r}")
    return name


def _refuse_same_tool_names(names: Iterable[str]) -> None:
    """Raise for two names that the CLI writes alike: one would hide the other's tools from the model, silently (CLI 2.1.329)."""
    seen: dict[str, str] = {}
    for name in names:
        written = re.sub(r"[^a-zA-Z0-9_-]", "_", name)
        if written in seen:
            raise _refused(f"the MCP servers {seen[written]!r} and {name!r} are both mcp__{written}__… to the model: rename one of them")
        seen[written] = name


def _instance_of(server: Any) -> Any:
    """Return the server object in a configuration of the official SDK; for other values, the value itself."""
    return server["instance"] if isinstance(server, Mapping) and server.get("instance") is not None else server


def _low_level(name: str, server: Any) -> Server[Any]:
    """Return the `mcp.server.Server` behind the object that was given."""
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
