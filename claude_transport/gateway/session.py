"""`Session`: a process behind the gateway, and what every client of one may and may not do, in whatever language it speaks."""

from __future__ import annotations

import datetime as dt
import logging
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

import anyio
import msgspec

from claude_transport.errors import ConnectionLost
from claude_transport.gateway.door import Allowance, GatewayLimits
from claude_transport.gateway.health import GatewayMetrics
from claude_transport.gateway.turned_away import TurnedAway
from claude_transport.printable import printable
from claude_transport.protocol.envelope import JSONTextError, encode_line, parse_json
from claude_transport.protocol.framing import LineFramer, OversizedLine
from claude_transport.transport import Transport
from claude_transport.transports.stream import is_torn

# --- `Activity`: whether a session is in the middle of a turn, seen from its bytes.


_PROMPT = re.compile(rb'"type"\s*:\s*"user"')
_RESULT = re.compile(rb'"type"\s*:\s*"result"')
_STATE = b'"session_state_changed"'
_IDLE = re.compile(rb'"state"\s*:\s*"idle"')


class Activity:
    """Busy from a prompt until the CLI says that it is idle, or, when it never speaks of its state, until a result.

    Nothing is decoded: inside a JSON string a quote is escaped, so what these patterns find is no text of anybody. What a nested object
    may make them find costs nothing but a closing that comes sooner or later than it could; the drain is bounded either way.
    """

    def __init__(self) -> None:
        self.busy: bool = False
        self._speaks_of_state = False
        self._idle = anyio.Event()
        self._idle.set()

    def said(self, lines: Sequence[bytes]) -> None:
        """The client has said this."""
        if not self.busy and any(_PROMPT.search(line) for line in lines):
            self.busy = True
            self._idle = anyio.Event()

    def heard(self, lines: Sequence[bytes]) -> None:
        """The process has said this."""
        said = b"\n".join(lines)
        # every line of every session comes by here, hundreds in a batch: one look at all of them costs a third of a look at each
        if _STATE not in said and (self._speaks_of_state or not self.busy or b'"result"' not in said):
            return
        for line in lines:
            if _STATE in line:
                self._speaks_of_state = True
                if _IDLE.search(line):
                    self.rest()
            elif self.busy and not self._speaks_of_state and _RESULT.search(line):
                self.rest()

    def rest(self) -> None:
        """It is over, or will not go on."""
        self.busy = False
        self._idle.set()

    async def idle(self) -> None:
        """Return when no turn runs; bounded by whoever drains."""
        while self.busy:
            await self._idle.wait()


# --- `ServerFields`: what the gateway's options say about requests of the client, put into them as they pass by.


# letters may be written as escapes
_CANDIDATE = re.compile(rb'"subtype"\s*:\s*"(?:initialize|set_max_thinking_tokens)"|\\u00')


class ServerFields:
    """Lays `fields` over the `initialize` request that passes by, and lowers later wishes to `max_thinking_tokens`.

    The gateway's option wins over the client's field of the same name. Every other line stays the bytes it was; without fields and without
    a limit nothing is looked at.
    """

    def __init__(self, fields: Mapping[str, Any], *, max_thinking_tokens: int | None = None) -> None:
        self._fields = dict(fields)
        self._max_thinking_tokens = max_thinking_tokens

    def merged(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        """The lines, with what the gateway's options say in the requests among them that it concerns."""
        if not self._fields and self._max_thinking_tokens is None:
            return lines
        return [self._merged(line) if _CANDIDATE.search(line) else line for line in lines]

    def _merged(self, line: bytes) -> bytes:
        try:
            message, _ = parse_json(line)
        except JSONTextError:
            return line  # the CLI will say what it thinks of it
        request = message.get("request") if isinstance(message, dict) and message.get("type") == "control_request" else None
        if not isinstance(request, dict):
            return line
        changes = self._changes(request)
        if not changes:
            return line
        request.update(changes)
        return encode_line(message)[:-1]

    def _changes(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        if request.get("subtype") == "initialize":
            return self._fields
        limit = self._max_thinking_tokens
        if request.get("subtype") != "set_max_thinking_tokens" or limit is None:
            return {}
        wanted = request.get("max_thinking_tokens")  # null: as many as the model likes
        allowed = isinstance(wanted, int) and not isinstance(wanted, bool) and wanted <= limit
        return {} if allowed else {"max_thinking_tokens": limit}


logger: logging.Logger = logging.getLogger(__name__)

_ID_BYTES: Final = 4

GONE: Final = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError, ConnectionLost)
"""What a connection to a client raises when it is over, however that came about."""


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What may be shown of a session. `id` is for logs alone: nobody can resume a session by it."""

    id: str
    owner: str
    mode: str
    started_at: dt.datetime
    pid: int | None
    attached: bool
    busy: bool
    bytes_in: int
    bytes_out: int


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What a session is given by the gateway: whose it is, within which limits, and where its numbers go."""

    owner: str
    limits: GatewayLimits
    allowance: Allowance
    metrics: GatewayMetrics
    fields: ServerFields


class Session(ABC):
    """A connected `transport` to a process, with the limits between it and its client.

    `on_end` is called once, when it is over; `ended` is the reason then.
    """

    mode: ClassVar[str]

    def __init__(self, transport: Transport, *, surroundings: Surroundings, on_end: Callable[[Session], object]) -> None:
        self.transport = transport
        self._on_end = on_end
        self.surroundings = surroundings
        self.id: str = secrets.token_hex(_ID_BYTES)
        self.started_at: dt.datetime = dt.datetime.now(dt.UTC)
        self.activity: Activity = Activity()
        self.ended: str | None = None
        self.bytes_in: int = 0
        self.bytes_out: int = 0
        self._input = LineFramer(max_line_bytes=surroundings.limits.line_bytes)

    @property
    def owner(self) -> str:
        """The name of whose token began it."""
        return self.surroundings.owner

    @property
    @abstractmethod
    def attached(self) -> bool:
        """Whether a client is there."""

    @abstractmethod
    async def close(self, reason: str) -> None:
        """End the process, tell the client, and return when both are done; bounded by the transport's close."""

    @property
    def info(self) -> SessionInfo:
        """What it is at this moment."""
        return SessionInfo(
            id=self.id,
            owner=self.owner,
            mode=self.mode,
            started_at=self.started_at,
            pid=self.transport.info.pid,
            attached=self.attached,
            busy=self.activity.busy,
            bytes_in=self.bytes_in,
            bytes_out=self.bytes_out,
        )

    async def drain(self) -> None:
        """Let the running turn finish, and then close; bounded by the caller, who closes what is left."""
        await self.activity.idle()
        await self.close("drained")

    async def take_input(self, chunk: bytes) -> None:
        """Hand the lines that bytes from the client complete to the process; waits while it does not read, and while the client is over
        its rate. What is left of a line is held, up to its limit.

        Raises:
            TurnedAway: a line is too long, or the session has carried too much: it has to end.
            TransportClosed: the process is gone.
        """
        if lines := self._input.feed(chunk):
            await self._to_process(lines)

    async def end_input(self) -> bool:
        """The client says nothing more, and its process is told; raises what `take_input` does. Returns whether it got everything."""
        tail = self._input.finish()
        # an unfinished object is what a connection that broke leaves: the CLI would exit over it
        is_whole = not tail or isinstance(tail, OversizedLine) or not is_torn(tail)
        if tail and is_whole:
            await self._to_process([tail])
        await self.transport.end_input()
        return is_whole

    async def _to_process(self, lines: Sequence[bytes]) -> None:
        limits = self.surroundings.limits
        size = sum(map(len, lines)) + len(lines)
        for line in lines:
            if isinstance(line, OversizedLine) or len(line) > limits.line_bytes:
                raise TurnedAway("line_too_long", f"a line of more than {limits.line_bytes} bytes")
        self.bytes_in += size
        self._check_size()
        self.surroundings.metrics.carried("in", lines=len(lines), size=size)
        await self.surroundings.allowance.spend(size)
        self.activity.said(lines)
        await self.transport.write(b"\n".join(self.surroundings.fields.merged(lines)) + b"\n")

    def count_output(self, batch: Sequence[bytes]) -> None:
        """Take note of a batch that the process said, after it was handed on; raises `TurnedAway` when that was too much."""
        size = sum(map(len, batch)) + len(batch)
        self.bytes_out += size
        self.surroundings.metrics.carried("out", lines=len(batch), size=size)
        self.activity.heard(batch)
        self._check_size()

    def _check_size(self) -> None:
        limit = self.surroundings.limits.session_bytes
        if limit is not None and self.bytes_in + self.bytes_out > limit:
            raise TurnedAway("session_bytes", f"a session may carry {limit} bytes")

    def log(self, level: int, event: str, text: str, **details: object) -> None:
        """Write to the log what has happened to it, in words and as fields. Each may quote the client: they are made `printable()`."""
        fields: dict[str, object] = {"event": event, "session": self.id, "owner": self.owner, "mode": self.mode, **details}
        extra = {f"gateway_{name}": printable(value) if isinstance(value, str) else value for name, value in fields.items()}
        logger.log(level, "session %s of %s: %s", self.id, printable(self.owner), printable(text), extra=extra)

    def _note_end(self, reason: str) -> None:
        """The first reason counts."""
        if self.ended is None:
            self.ended = reason
            self.activity.rest()


async def close_quietly(transport: Transport) -> None:
    """Close, whatever the caller's cancellation; the transport bounds it."""
    with anyio.CancelScope(shield=True):
        await transport.close()
