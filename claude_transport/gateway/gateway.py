"""`Gateway`: runs `claude`, or another agent, on this machine for clients on other machines or in other programs, over five media at once.

This module has the gateway's life, the start of its processes, and its sessions (`Roster`). Look next at `arrival.py` for a
connection before admission, at `session.py` and `link_session.py` for one after it, at `door.py` for tokens and limits, and at `choices.py`
for what clients may choose. `serving.py` runs a gateway until a signal.
"""

from __future__ import annotations

import hmac
import logging
import ssl
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, TypeVar

import anyio
from anyio.abc import ByteStream

from claude_transport.agents.registry import find_agent
from claude_transport.errors import ClaudeTransportError, ConfigurationError, SessionInUse, UsageError
from claude_transport.gateway.arrival import MAX_FAREWELL, AdmittedClient, Arrival, Mode, Reception
from claude_transport.gateway.link_session import LinkSession, digest_of
from claude_transport.gateway.metrics import GatewayMetrics
from claude_transport.gateway.observatory import Observatory, ObserverGrant, Send, Viewing, route_of
from claude_transport.gateway.session import (
    GONE,
    PlainSession,
    Session,
    SessionInfo,
    Surroundings,
)
from claude_transport.launch.options import AgentOptions, ClaudeOptions
from claude_transport.link.machine import Hello
from claude_transport.loggers import logger_for
from claude_transport.loops.background import LoopTask
from claude_transport.serving.choices import DEFAULT_CHOICES, Choices, check_answers
from claude_transport.serving.door import ANYBODY, Allowance, Door, GatewayLimits, GatewayTokens
from claude_transport.serving.hosted import START_TIMEOUT, chosen_launch, close_quietly, start_process, trace_of
from claude_transport.serving.listeners import Listener, accept_all, check_exposure, open_listeners
from claude_transport.serving.pages import Hosts, Page, Pages, answer_to_options
from claude_transport.serving.turned_away import RefusalLog, TurnedAway
from claude_transport.streams.address import Address, parse_address
from claude_transport.streams.process import DEFAULT_CLOSE_TIMEOUT
from claude_transport.streams.websocket import HandshakeRequest
from claude_transport.text.printable import printable
from claude_transport.transport import Client, Transport
from claude_transport.transports.subprocess import SubprocessTransport

logger: logging.Logger = logger_for(__name__)

_Kind = TypeVar("_Kind", PlainSession, LinkSession)

Launch: TypeAlias = Callable[[Any], Transport]
"""Makes the transport of a session, not connected yet, from its options."""

DEFAULT_DRAIN_TIMEOUT: Final = 30.0
"""Seconds that running turns get to finish when the gateway ends. Service managers wait 90 before they kill it."""

_ANSWERS: Final = "answers"
"""Reserved key in the options of a hello; not a CLI option. Lists what the client will answer, as `Client.answers` does."""


class Gateway:
    """Runs `claude`, or another agent, on this machine for clients on other machines or in other programs, and carries the lines between.

    Use it with `async with`, or with `start()` and `aclose()`. In plain mode, a process ends when the connection of its client ends. In
    link mode, the process outlives a lost connection, and the client can come back to it.

    Args:
        options: how each `claude` is run, or each process of another agent, by its options.
        listen: URLs to listen at: `tcp://host:port`, `tls://`, `unix:///path`, `ws://host:port/path`, `wss://`. Port 0 is any free port. A
            gateway behind a `GatewayApplication` needs none.
        command: an NDJSON program to run in place of `claude`.
        tokens: the tokens of the clients. Without tokens the gateway listens on this machine only, or asks for client certificates.
        ssl_context: the certificate for `tls://` and `wss://`. With `verify_mode = CERT_REQUIRED` clients need a certificate, too.
        origins: the origins of web pages that may connect; none by default.
        hosts: more host names for `/healthz` and `/metrics`. Loopback names, the hosts of `listen` and the local address of a request are
            always allowed. Name the DNS name that a load balancer or Prometheus uses.
        choices: names of the options that clients may choose, in link mode or with an `authenticate` line. With another agent, clients
            choose none; they set up their threads in the conversation.
        limits: numbers, sizes and times.
        modes: the modes that the gateway speaks: `"link"`, `"plain"` or both.
        compression: agree to zstd (tcp, tls, unix) and permessage-deflate (ws, wss) when a client asks for it.
        allow_plaintext: let other machines connect without TLS. For a gateway behind a proxy that encrypts.
        drain_timeout: seconds that running turns get in `drain()`.
        close_timeout: seconds for ending a process in all: end of input, signal, kill. A `launch` sets its own.
        observable: keep the lines of every session for observers, and let clients watch their own sessions with their tokens. Without it,
            a session can be watched from `grant_observer()` on.
        launch: makes the transport of a session from its options, in place of a `SubprocessTransport`.

    Raises:
        ConfigurationError: an argument is not valid, or would open this machine to others. Nothing has been opened.
    """

    def __init__(
        self,
        options: AgentOptions | None = None,
        *,
        listen: Sequence[str] = (),
        command: Sequence[str] | None = None,
        tokens: GatewayTokens | Mapping[str, str] | None = None,
        ssl_context: ssl.SSLContext | None = None,
        origins: Collection[str] = (),
        hosts: Collection[str] = (),
        choices: Collection[str] = DEFAULT_CHOICES,
        limits: GatewayLimits | None = None,
        modes: Collection[Mode] = ("link", "plain"),
        compression: bool = False,
        allow_plaintext: bool = False,
        drain_timeout: float = DEFAULT_DRAIN_TIMEOUT,
        close_timeout: float = DEFAULT_CLOSE_TIMEOUT,
        observable: bool = False,
        launch: Launch | None = None,
    ) -> None:
        self._limits = limits or GatewayLimits()
        self._limits.check()
        tokens = tokens if isinstance(tokens, GatewayTokens) else GatewayTokens(tokens)
        self._addresses = _safe_addresses(listen, has_tokens=bool(tokens), ssl_context=ssl_context, allow_plaintext=allow_plaintext)
        self.metrics: GatewayMetrics = GatewayMetrics()
        self._drain_timeout = drain_timeout
        self._roster = Roster(limits=self._limits, metrics=self.metrics)
        self._door = Door(tokens=tokens, origins=origins, limits=self._limits)
        self._observatory = Observatory(self._door, limits=self._limits, observable=observable)
        self._options = options or ClaudeOptions()
        self._agent = find_agent(self._options)
        self._choices = Choices(choices)
        process = partial(SubprocessTransport, command=command, close_timeout=close_timeout)
        self._launch: Launch = chosen_launch(launch, process, self._options, command=command)
        self._refusals = RefusalLog(logger)
        self._hosts = Hosts(hosts, bound=[address.host for address in self._addresses])
        self._reception = Reception(
            self._door,
            limits=self._limits,
            page=self.page,
            observe=self.observe,
            check_upgrade=self.check_upgrade,
            modes=_known_modes(modes),
            ssl_context=ssl_context,
            compression=compression,
        )
        self._listeners: list[Listener] = []
        self._server: LoopTask | None = None
        self._stopped = anyio.Event()
        self._closed = False

    async def start(self) -> None:
        """Listen at every address of `listen`. Clients can connect when this returns.

        Raises:
            ConfigurationError: an address is taken or not allowed. Nothing stays open.
            UsageError: the gateway was started or closed before; make a new one.
        """
        if self._server is not None or self._closed:
            raise UsageError("this gateway was started or closed before: make a new one")
        try:
            for address in self._addresses:
                self._listeners += await open_listeners(address)
        except BaseException:
            self._close_listeners()
            self._listeners.clear()
            raise
        self._server = LoopTask.spawn(partial(accept_all, self._listeners, self._attend_socket), name="gateway")
        for listener in self._listeners:
            logger.info("listening at %s", listener.address, extra={"gateway_event": "listening", "gateway_url": str(listener.address)})

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs at which the gateway listens, with the real port in place of port 0. Empty before `start()`."""
        return tuple(str(listener.address) for listener in self._listeners)

    @property
    def sessions(self) -> tuple[SessionInfo, ...]:
        """One `SessionInfo` for each running session, the oldest first: its owner, mode, process id, and whether a turn runs."""
        return tuple(session.info for session in self._roster.sessions)

    @property
    def needs_token(self) -> bool:
        """True when the gateway has tokens, so that a client without one is refused."""
        return self._door.needs_token

    @property
    def draining(self) -> bool:
        """True once `drain()` or `aclose()` was called: the gateway refuses new sessions."""
        return self._roster.draining

    def prometheus_text(self) -> str:
        """Return the counters and gauges of the gateway at this moment, in the Prometheus text format. `/metrics` serves the same text."""
        self._roster.count()
        self.metrics.half_open = self._door.half_open
        return self.metrics.prometheus_text()

    async def drain(self, *, timeout: float | None = None) -> None:
        """Refuse new sessions, wait for running turns to finish, then close all sessions. Returns when they are closed.

        A session without a running turn is closed at once, or after two seconds where the process may still have a prompt to read. In link
        mode, a client that lost its connection may still come back to a session whose turn runs. The gateway goes on listening: call
        `aclose()` afterwards.

        Args:
            timeout: seconds that running turns get; by default the `drain_timeout` of the gateway. Then their sessions are closed, too.
        """
        self._roster.draining = True
        running = sum(session.activity.busy for session in self._roster.sessions)
        logger.info("draining: %d turns are running", running, extra={"gateway_event": "draining", "gateway_running": running})
        with anyio.move_on_after(self._drain_timeout if timeout is None else timeout):
            async with anyio.create_task_group() as tasks:
                for session in self._roster.sessions:
                    tasks.start_soon(session.drain)
        await self._close_sessions("drained")

    async def aclose(self) -> None:
        """Stop listening, end every session at once, and return when all is closed. Call `drain()` before it to let running turns finish.

        It takes as long as the transports of the sessions need to close, which each of them bounds. A cancellation of the caller does not
        stop it.
        """
        self._closed = self._roster.draining = True
        self._close_listeners()
        with anyio.CancelScope(shield=True):
            try:
                await self._close_sessions("closed")
            finally:
                self._observatory.close()
                if self._server is not None:
                    self._server.cancel()
                    await self._server.wait()
                self._stopped.set()

    async def wait_closed(self) -> None:
        """Wait until another task has called `aclose()` and it has finished. Closes nothing itself, and has no time limit."""
        await self._stopped.wait()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        await self.aclose()

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            listener.close()

    async def _close_sessions(self, reason: str) -> None:
        async with anyio.create_task_group() as tasks:
            for session in self._roster.sessions:
                tasks.start_soon(session.close, reason)

    # Connections

    async def _attend_socket(self, stream: ByteStream, address: Address, peer: str) -> None:
        async def arrive() -> Arrival | None:
            return await self._reception.shake_hands(stream, address=address, peer=peer)

        try:
            await self._attend(arrive, medium=address.scheme, peer=peer)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.aclose_forcefully(stream)

    async def attend(self, arrival: Arrival) -> None:
        """Serve a connection that another server has accepted, until it ends; then close its stream, also after a cancellation.

        For adapters such as `GatewayApplication`; `start()` is not needed. The adapter answers plain HTTP with `page()`. It must call
        `check_upgrade()` before it accepts a WebSocket: the `Origin` header is not checked here. An error of the connection is logged, not
        raised.

        Args:
            arrival: the connection: its stream, the address of the client, and the token of its request.
        """

        async def arrive() -> Arrival | None:
            return arrival

        try:
            await self._attend(arrive, medium=arrival.medium, peer=arrival.peer)
        finally:
            await arrival.drop()

    def page(self, target: str, *, token: str | None, host: str | None = None, here: str | None = None, method: str = "GET") -> Page | None:
        """Return the answer to a plain HTTP request for `/healthz` or `/metrics`, as a `Page`: status, text and headers.

        Returns None for any other path: the caller then answers 404, or opens a WebSocket. `/healthz` needs no token: 200, or 503 while the
        gateway drains. `/metrics` needs a token when the gateway has tokens (else 401). Both need a host name of the gateway in the request
        (else 421), and one of the methods `GET`, `HEAD` and `OPTIONS` (else 405). The caller leaves out the text for `HEAD`.

        Args:
            target: the path of the request; a query is ignored.
            token: the bearer token of the request.
            host: the `Host` header of the request.
            here: the local address that received the request.
            method: the method of the request.
        """
        pages = Pages(
            hosts=self._hosts,
            state=lambda: "draining" if self.draining else "ok",
            text=self.prometheus_text,
            admit=self._door.admit,
            on_refused=self._count_refusal,
        )
        return pages.answer(target, token=token, host=host, here=here, method=method)

    def grant_observer(self, session: str, *, scrub: bool = True) -> ObserverGrant:
        """Make a token with which one running session can be watched, and nothing else. Returns the `ObserverGrant` with the `token`.

        The lines of the session are kept from the first grant on, in `observed_bytes` of memory. Observers get them from a `ws://` or
        `wss://` address of the gateway: `observe()`, `claude-transport watch`, or a browser at `http(s)://…/observe/ID#TOKEN`.

        Args:
            session: the `id` of a session (`sessions`, and the log).
            scrub: redact what the observer sees, as a tape is. False shows every line as it is: prompts, permissions, secrets.

        Raises:
            UsageError: there is no such session.
        """
        running = next((each for each in self._roster.sessions if each.id == session), None)
        if running is None:
            raise UsageError(f"the gateway has no session {printable(session, at_most=64)}: `sessions` lists those that run")
        grant = self._observatory.grant(running, scrub=scrub)
        running.log(logging.INFO, "observer_granted", "may be observed with a new token", scrub=scrub)
        return grant

    def observe(
        self, request: HandshakeRequest, *, below: str = "", certified: str | None = None, here: str | None = None
    ) -> Page | Viewing | None:
        """Return the answer to the HTTP request of an observer: a `Page`, or a `Viewing` for `show()`. None for other paths.

        For adapters such as `GatewayApplication`. Methods are treated as by `page()`: do not `show()` a `Viewing` that answers `HEAD`.

        Args:
            request: its method, its path, `Host`, `Origin`, `Authorization` and `Last-Event-ID` are used.
            below: the path of the gateway, in front of `/observe`.
            certified: the name in the client's certificate.
            here: the local address that received the request.
        """
        route = route_of(request.path, below=below)
        if route is None:
            return None
        try:
            self._hosts.check(request.headers.get("host"), here=here)
            options = answer_to_options(request.method)
            return self._observatory.answer(request, route=route, certified=certified) if options is None else options
        except TurnedAway as exc:
            self._count_refusal(exc)
            return Page(status=exc.status, text=f"{exc}\n", headers={"cache-control": "no-store", **exc.headers})

    async def show(self, viewing: Viewing, send: Send, gone: Callable[[], Awaitable[object]]) -> bool:
        """Send the events of `viewing` until the session has ended, the observer is gone or stuck, or its token is revoked.

        For adapters such as `GatewayApplication`. `send` sends a part of the body, and `gone` returns when the observer has left. Returns
        True when the observer has got everything up to the end of the session.
        """
        return await self._observatory.show(viewing, send, gone)

    def check_upgrade(self, *, origin: str | None, token: str | None, certified: str | None = None) -> None:
        """Check a WebSocket request before it is accepted. For adapters such as `GatewayApplication`. Returns when the request may go on.

        Args:
            origin: the `Origin` header. None passes, because programs send none.
            token: the bearer token. None passes, because the client can still send its token in its first line.
            certified: the name in the client's certificate.

        Raises:
            TurnedAway: the origin or the token is refused. The refusal is in the gateway's metrics.
        """
        try:
            self._door.check_origin(origin)
            if token is not None:
                self._door.admit(token, certified=certified)
        except TurnedAway as exc:
            self._count_refusal(exc)
            raise

    async def _attend(self, arrive: Callable[[], Awaitable[Arrival | None]], *, medium: str, peer: str) -> None:
        """Serve one connection from its handshake to its end. No error leaves here: it concerns this connection only."""
        self.metrics.connections[medium] += 1
        arrival: Arrival | None = None
        try:
            guest: AdmittedClient | None = None
            with self._door.knock(peer) as knocking:
                arrival = await arrive()
                if arrival is None:
                    return
                guest = None if arrival.viewing is not None else await self._reception.identify(arrival)
                await self._door.take_turn(peer, owner=self._owner_of(arrival, guest))
            if knocking.cancelled_caught:
                refused = TurnedAway("handshake", "the handshake took too long, or too many other connections were waiting")
                self._count_refusal(refused, peer=peer)
                if arrival is not None:
                    await arrival.drop()
                return
            assert arrival is not None  # noqa: S101 - for the type checkers: without a cancellation there is one
            arrival.admitted()
            await self._receive(arrival, guest)
        except TurnedAway as exc:
            self._count_refusal(exc, peer=peer)
            if arrival is not None:
                with self._door.linger(peer, seconds=MAX_FAREWELL):
                    await self._door.take_turn(peer, owner=None)
                    await arrival.explain(exc)
                    await arrival.close()
                await arrival.drop()
            return
        except ssl.SSLError as exc:
            self._handshake_failed(exc, peer)
        except GONE as exc:
            logger.debug("the connection from %s has ended (%s)", peer, type(exc).__name__)
        except ClaudeTransportError as exc:
            self._handshake_failed(exc, peer)
        except Exception:  # an unknown fault of one connection must not end the others
            self.metrics.refused["internal"] += 1
            extra = {"gateway_event": "connection_failed", "gateway_peer": peer}
            logger.exception("serving the connection from %s failed", peer, extra=extra)
        if arrival is not None:
            await arrival.close()

    async def _receive(self, arrival: Arrival, guest: AdmittedClient | None) -> None:
        """Serve a client that the door has admitted; `guest` is None when its first line has not been read."""
        if arrival.viewing is not None:
            if await self.show(arrival.viewing, arrival.stream.send, partial(_end_of, arrival.stream)):
                await arrival.bid_farewell()
            await arrival.drop()
            return
        owner = self._owner_of(arrival, guest)
        with self._door.allowance(owner).connection():
            if guest is None:
                guest = await self._reception.hear(arrival)  # not bounded: the client is admitted, and its connection counts
            if guest.hello is not None:
                await self._serve_link(arrival, guest, guest.hello)
            else:
                session = await self._begin(arrival, guest, PlainSession)
                await session.attend(arrival.stream, guest.unread)

    def _owner_of(self, arrival: Arrival, guest: AdmittedClient | None) -> str:
        """Return the owner of an admitted connection; that of an observer, who may have a token of its own, is `ANYBODY`."""
        if guest is not None:
            return guest.owner
        return ANYBODY if arrival.viewing is not None else self._door.admit(arrival.token, certified=arrival.certified)

    async def _start(self, guest: AdmittedClient) -> tuple[Transport, Surroundings]:
        """Start the process of a new session. Return its connected transport, and what the session is given.

        Raises:
            TurnedAway: the client chose an option that it may not choose, the process did not start, or the gateway drains meanwhile. The
                details are in the log only.
        """
        chosen = dict(guest.chosen)
        answers = check_answers(chosen.pop(_ANSWERS, ()))
        if guest.authentication is not None:
            answers |= guest.authentication.answers
        own = self._options
        options = self._choices.apply(own, chosen) if isinstance(own, ClaudeOptions) else self._without_choices(chosen)
        try:
            client = Client(answers=answers, trace=trace_of(guest.hello.trace) if guest.hello is not None else {})
            with anyio.fail_after(START_TIMEOUT):
                transport, terms = await start_process(self._launch, options, client, of="Gateway")
            if self._roster.draining:  # drain() or aclose() came meanwhile, and would not see this session
                await close_quietly(transport)
                self._roster.refuse_if_draining()
        except TurnedAway:
            raise
        except ConfigurationError as exc:
            if exc.option in chosen:
                raise TurnedAway("options", str(exc)) from exc
            raise _failed_start(exc, guest.owner, agent=self._agent.program) from exc
        except Exception as exc:  # a transport of the operator may raise anything
            raise _failed_start(exc, guest.owner, agent=self._agent.program) from exc
        fields = self._agent.hold(own, terms)
        allowance = self._door.allowance(guest.owner)
        return transport, Surroundings(owner=guest.owner, limits=self._limits, allowance=allowance, metrics=self.metrics, fields=fields)

    def _without_choices(self, chosen: Mapping[str, Any]) -> AgentOptions:
        """Return the options as they are. Raise `TurnedAway` for a client that has chosen options of another agent than Claude."""
        if chosen:
            names = ", ".join(sorted(str(name)[:64] for name in chosen)[:8])
            raise TurnedAway(
                "options", f"not for a client to choose: {names}. This gateway runs {self._agent.program}{self._agent.chooses_in}"
            )
        return self._options

    async def _begin(self, arrival: Arrival, guest: AdmittedClient, kind: type[_Kind]) -> _Kind:
        """Start a session of this kind for the client."""
        with self._roster.place_for_one(self._door.allowance(guest.owner)):
            transport, surroundings = await self._start(guest)
            session = kind(transport, surroundings=surroundings, on_end=self._session_over)
            self._roster.add(session)
            self._observatory.session_begun(session)
        session.log(logging.INFO, "session_begun", f"begun over {arrival.medium}", peer=arrival.peer)
        return session

    async def _serve_link(self, arrival: Arrival, guest: AdmittedClient, hello: Hello) -> None:
        if hello.session is not None:
            session = self._roster.find(hello.session, owner=guest.owner)
        else:
            session = await self._begin(arrival, guest, LinkSession)
            try:
                session.begin()
            except RuntimeError:  # the event loop is ending
                await close_quietly(session.transport)
                self._session_over(session)
                raise
        await session.attend(arrival.stream, hello, guest.unread, medium=arrival.medium, peer=arrival.peer)

    def _session_over(self, session: Session) -> None:
        self._roster.remove(session)
        self._observatory.session_over(session)
        reason = session.ended or "ended"
        session.log(
            logging.INFO, "session_ended", f"over ({reason})", reason=reason, bytes_in=session.bytes_in, bytes_out=session.bytes_out
        )

    # Refusals

    def _count_refusal(self, refused: TurnedAway, *, peer: str = "") -> None:
        self.metrics.refused[refused.reason] += 1
        self._refusals.turned_away(refused, peer=peer)

    def _handshake_failed(self, exc: Exception, peer: str) -> None:
        """Count and log a failed handshake of TLS or WebSocket, without the bytes of the peer."""
        self.metrics.refused["handshake"] += 1
        message = "the handshake with %s failed (%s)"
        self._refusals.note(logging.INFO, "handshake_failed", message, peer, type(exc).__name__, peer=peer)


async def _end_of(stream: ByteStream) -> None:
    """Wait until an observer has left. It says nothing after its request, so bytes are an end, too."""
    try:
        await stream.receive(1)
    except (*GONE, ClaudeTransportError):
        return


def _safe_addresses(listen: Sequence[str], *, has_tokens: bool, ssl_context: ssl.SSLContext | None, allow_plaintext: bool) -> list[Address]:
    """Parse the URLs. Raise `ConfigurationError` for an address that would be open to others."""
    if isinstance(listen, str):
        raise ConfigurationError("listen is one text: give a list of URLs", option="listen")
    addresses = [parse_address(url) for url in listen]
    certifies = ssl_context is not None and ssl_context.verify_mode is ssl.CERT_REQUIRED
    for address in addresses:
        authenticates = has_tokens or (certifies and address.is_encrypted)
        check_exposure(address, authenticates=authenticates, ssl_context=ssl_context, allow_plaintext=allow_plaintext)
    return addresses


def _known_modes(modes: Collection[Mode]) -> frozenset[Mode]:
    if not modes or not set(modes) <= {"link", "plain"}:
        raise ConfigurationError(f"modes is {modes!r}: give 'link', 'plain' or both", option="modes")
    return frozenset(modes)


def _failed_start(exc: Exception, owner: str, *, agent: str) -> TurnedAway:
    """Log the failure with its details, and return what the client is told: no paths or names of this machine."""
    extra = {"gateway_event": "start_failed", "gateway_owner": printable(owner)}
    logger.error("%s could not be started for %s: %s", agent, printable(owner), printable(exc), extra=extra)
    code = exc.code if isinstance(exc, ClaudeTransportError) else "timeout" if isinstance(exc, TimeoutError) else "transport.failed"
    what = f"{agent} could not be started ({code})"
    if isinstance(exc, SessionInUse):
        what += ": another host has the session; wait for its end, or set fork_session=True for a copy"
    return TurnedAway("start", what, retryable=bool(getattr(exc, "retryable", True)))


class Roster:
    """The sessions of a gateway, and the limit of their number. It never waits."""

    def __init__(self, *, limits: GatewayLimits, metrics: GatewayMetrics) -> None:
        self._limits = limits
        self._metrics = metrics
        self._sessions: dict[str, Session] = {}  # by id
        self._links: dict[bytes, LinkSession] = {}  # by the digest of the key
        self._starting = 0
        self.draining = False

    @property
    def sessions(self) -> tuple[Session, ...]:
        """All sessions, the oldest first."""
        return tuple(self._sessions.values())

    @contextmanager
    def place_for_one(self, allowance: Allowance) -> Iterator[None]:
        """Reserve a place while the block starts a session and adds it. Raises `TurnedAway` at the limit of sessions."""
        self.refuse_if_draining()
        if len(self._sessions) + self._starting >= self._limits.total_sessions:
            raise TurnedAway("limit", "this gateway has as many sessions as it may have: try again later", retryable=True)
        allowance.begin_session()
        self._starting += 1
        try:
            yield
        except BaseException:
            allowance.end_session()
            raise
        finally:
            self._starting -= 1

    def refuse_if_draining(self) -> None:
        """Raise `TurnedAway` when the gateway is about to end."""
        if self.draining:
            raise TurnedAway("draining", "this gateway is about to end and takes no new sessions", retryable=True)

    def add(self, session: Session) -> None:
        """Add a session that has begun."""
        self._sessions[session.id] = session
        if isinstance(session, LinkSession):
            self._links[digest_of(session.key)] = session
        self._metrics.sessions[session.mode] += 1

    def remove(self, session: Session) -> None:
        """Remove a session that is over. Does nothing the second time."""
        if self._sessions.pop(session.id, None) is None:
            return
        if isinstance(session, LinkSession):
            self._links.pop(digest_of(session.key), None)
        session.surroundings.allowance.end_session()
        self._metrics.ended[session.ended or "ended"] += 1

    def find(self, key: str, *, owner: str) -> LinkSession:
        """Return the session that `owner` may resume with `key`.

        Raises:
            TurnedAway: there is none. The message is the same when the session belongs to another owner.
        """
        session = self._links.get(digest_of(key))
        if session is None or not hmac.compare_digest(session.owner.encode(), owner.encode()):
            raise TurnedAway("session", "there is no such session, or it has ended")
        return session

    def count(self) -> None:
        """Write the current numbers of sessions into the gauges of the metrics."""
        self._metrics.active_sessions = len(self._sessions)
        self._metrics.detached_sessions = sum(not session.attached for session in self._sessions.values())
