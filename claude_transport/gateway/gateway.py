"""`Gateway`: serves local `claude` processes to clients elsewhere, over any of five media at once."""

from __future__ import annotations

import hmac
import logging
import ssl
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self

import anyio
from anyio.abc import ByteStream

from claude_transport.background import BackgroundTask
from claude_transport.errors import ClaudeTransportError, ConfigurationError, UsageError
from claude_transport.gateway.arrival import Arrival, Mode
from claude_transport.gateway.choices import DEFAULT_CHOICES, Choices
from claude_transport.gateway.door import Allowance, Door, GatewayLimits, GatewayTokens
from claude_transport.gateway.health import GatewayMetrics, Health, Hosts
from claude_transport.gateway.link_session import LinkSession, digest_of
from claude_transport.gateway.listeners import Listener, check_exposure, open_listeners
from claude_transport.gateway.plain_session import PlainSession, plain_refusal
from claude_transport.gateway.reception import Guest, Reception
from claude_transport.gateway.session import GONE, Session, SessionInfo, Surroundings, close_quietly
from claude_transport.gateway.starting import Launch, Starter
from claude_transport.gateway.turned_away import RefusalLog, TurnedAway
from claude_transport.launch.options import ClaudeOptions
from claude_transport.protocol.link import Hello, Refusal, encode_frame
from claude_transport.streams.address import Address, parse_address
from claude_transport.transport import Transport

# --- `Roster`: every session of a gateway, and who may have another one.


class Roster:
    """Who is there. Nothing here waits."""

    def __init__(self, *, limits: GatewayLimits, metrics: GatewayMetrics) -> None:
        self._limits = limits
        self._metrics = metrics
        self._sessions: dict[str, Session] = {}  # by id
        self._links: dict[bytes, LinkSession] = {}  # by the digest of the key
        self._starting = 0
        self.draining = False

    @property
    def sessions(self) -> tuple[Session, ...]:
        """All of them, the oldest first."""
        return tuple(self._sessions.values())

    @contextmanager
    def place_for_one(self, allowance: Allowance) -> Iterator[None]:
        """A block in which a session is started, and at whose good end it has been added; raises `TurnedAway` when there is no place."""
        self.refuse_if_draining()
        if len(self._sessions) + self._starting >= self._limits.total_sessions:
            raise TurnedAway("limit", "this gateway has as many sessions as it may", retryable=True)
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
            raise TurnedAway("draining", "this gateway takes no new sessions", retryable=True)

    def add(self, session: Session) -> None:
        """It has begun."""
        self._sessions[session.id] = session
        if isinstance(session, LinkSession):
            self._links[digest_of(session.key)] = session
        self._metrics.sessions[session.mode] += 1

    def remove(self, session: Session) -> None:
        """It is over; removing it twice does nothing."""
        if self._sessions.pop(session.id, None) is None:
            return
        if isinstance(session, LinkSession):
            self._links.pop(digest_of(session.key), None)
        session.surroundings.allowance.end_session()
        self._metrics.ended[session.ended or "ended"] += 1

    def find(self, key: str, *, owner: str) -> LinkSession:
        """The session with this key, if it is this owner's; `TurnedAway`, in the same words, if there is none or it is somebody else's."""
        session = self._links.get(digest_of(key))
        if session is None or not hmac.compare_digest(session.owner.encode(), owner.encode()):
            raise TurnedAway("session", "there is no such session (any more)")
        return session

    def count(self) -> None:
        """Bring the gauges up to date."""
        self._metrics.active_sessions = len(self._sessions)
        self._metrics.detached_sessions = sum(not session.attached for session in self._sessions.values())


# --- How a connection ends: the last words to a client that is refused, and the closing, each of them bounded.


_LINGER: Final = 1.0
"""Seconds for a client that is turned away to take the answer; less when others need its place."""

_CLOSING: Final = 2.0
"""Seconds that closing a connection may take before it is dropped."""

MAX_FAREWELL: Final = _LINGER + _CLOSING
"""Seconds of both."""


async def explain(arrival: Arrival, refused: TurnedAway) -> None:
    """Tell the client why, in the language it began with; for a moment, whether or not it listens."""
    if not refused.audible:
        return
    if arrival.speaks_link:
        last_words = encode_frame(Refusal(code=refused.reason, text=str(refused), retryable=refused.retryable))
    else:
        last_words = plain_refusal(refused)
    with anyio.move_on_after(_LINGER):
        try:
            await arrival.stream.send(last_words)
            await arrival.stream.send_eof()
            while True:
                await arrival.stream.receive()
        except (*GONE, ClaudeTransportError):
            return


async def close_politely(arrival: Arrival) -> None:
    """Close the connection, or leave it to the caller after a moment."""
    with anyio.move_on_after(_CLOSING):
        try:
            await arrival.stream.aclose()
        except (*GONE, ClaudeTransportError):
            pass  # it is over; that is all that was wanted


async def drop(arrival: Arrival | None) -> None:
    """Close the connection at once, without waiting for the client: a stranger could wait for that and keep its place."""
    if arrival is not None:
        with anyio.CancelScope(shield=True):
            await anyio.aclose_forcefully(arrival.stream)


logger: logging.Logger = logging.getLogger(__name__)

DEFAULT_DRAIN_TIMEOUT: Final = 30.0
"""Seconds that running turns get when the gateway is to end; service managers wait 90 before they use force."""


class Gateway:
    """Owns processes, and carries their lines to clients: in plain mode one for each connection, in link mode one that outlives it.

    Args:
        options: how each `claude` is run.
        listen: URLs to listen at: `tcp://host:port`, `tls://`, `unix:///path`, `ws://host:port/path`, `wss://`; port 0 is any free one.
            None is needed behind a `GatewayApplication`.
        command: an NDJSON program to run in place of `claude`.
        tokens: who may come in. Without them only this machine may, or who has a client certificate that `ssl_context` asks for.
        ssl_context: the certificate for `tls://` and `wss://`; `verify_mode = CERT_REQUIRED` makes TLS mutual.
        origins: of web pages that may connect; none may otherwise.
        hosts: names under which `/healthz` and `/metrics` may be asked for, besides those of loopback and of `listen`, and the address that
            a request was sent to. Behind a `GatewayApplication`, and where a load balancer or Prometheus uses a DNS name, name it here.
        choices: names of the options that clients in link mode (and with an `authenticate` line) may choose.
        limits: how much of everything.
        modes: the languages spoken: `"link"`, `"plain"` or both.
        compression: agree to zstd (tcp, tls, unix) and permessage-deflate (ws, wss) when a client wants it.
        allow_plaintext: other machines may connect without TLS: a proxy in front encrypts.
        drain_timeout: seconds that running turns get in `drain()`.
        launch: makes the transport of a session from its options, in place of a `SubprocessTransport`.

    Raises:
        ConfigurationError: any of these makes no sense, or would open this machine to others; said before anything is opened.
    """

    def __init__(
        self,
        options: ClaudeOptions | None = None,
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
        self._starter = Starter(
            options or ClaudeOptions(), command=command, launch=launch, choices=Choices(choices), limits=self._limits, metrics=self.metrics
        )
        self._refusals = RefusalLog(logger)
        self.health: Health = Health(
            draining=lambda: self._roster.draining,
            metrics=self.prometheus_text,
            admits=self._admits,
            hosts=Hosts(hosts, bound=[address.host for address in self._addresses]),
            on_refusal=self._count_refusal,
        )
        self._reception = Reception(
            self._door,
            limits=self._limits,
            health=self.health,
            modes=_known_modes(modes),
            ssl_context=ssl_context,
            compression=compression,
            on_refusal=self._count_refusal,
        )
        self._listeners: list[Listener] = []
        self._server: BackgroundTask | None = None
        self._stopped = anyio.Event()
        self._closed = False

    # -------------------------------------------------------------------------------------------------------- opening, closing

    async def start(self) -> None:
        """Listen at every address; returns when clients can connect.

        Raises:
            ConfigurationError: an address is taken or not allowed; nothing stays open.
            UsageError: it was started or closed before.
        """
        if self._server is not None or self._closed:
            raise UsageError("a gateway is started once")
        try:
            for address in self._addresses:
                self._listeners += await open_listeners(address)
        except BaseException:
            self._close_listeners()
            raise
        self._server = BackgroundTask.spawn(self._serve, name="gateway")
        for listener in self._listeners:
            logger.info("listening at %s", listener.address, extra={"gateway_event": "listening", "gateway_url": str(listener.address)})

    @property
    def urls(self) -> tuple[str, ...]:
        """Where it listens, with the ports that it got."""
        return tuple(str(listener.address) for listener in self._listeners)

    @property
    def sessions(self) -> tuple[SessionInfo, ...]:
        """What is known of every session."""
        return tuple(session.info for session in self._roster.sessions)

    @property
    def draining(self) -> bool:
        """Whether new sessions are refused."""
        return self._roster.draining

    def prometheus_text(self) -> str:
        """Its numbers in Prometheus' text format."""
        self._roster.count()
        self.metrics.half_open = self._door.half_open
        return self.metrics.prometheus_text()

    async def drain(self, *, timeout: float | None = None) -> None:
        """Take no new sessions, let running turns finish for at most `timeout` seconds (default: `drain_timeout`), close all sessions.

        Clients that were cut off may still come back to a session whose turn runs.
        """
        self._roster.draining = True
        running = sum(session.activity.busy for session in self._roster.sessions)
        logger.info("draining: %d turns are running", running, extra={"gateway_event": "draining", "gateway_running": running})
        with anyio.move_on_after(self._drain_timeout if timeout is None else timeout):
            async with anyio.create_task_group() as tasks:
                for session in self._roster.sessions:
                    tasks.start_soon(session.drain)
        async with anyio.create_task_group() as tasks:
            for session in self._roster.sessions:
                tasks.start_soon(session.close, "drained")

    async def aclose(self) -> None:
        """Stop listening, end every session, and return when all of it is gone; bounded by the transports' close."""
        self._closed = self._roster.draining = True
        self._close_listeners()
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as tasks:
                for session in self._roster.sessions:
                    tasks.start_soon(session.close, "closed")
            if self._server is not None:
                self._server.cancel()
                await self._server.wait()
        self._stopped.set()

    async def wait_closed(self) -> None:
        """Return when it is closed; ended by whoever closes it."""
        await self._stopped.wait()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        await self.aclose()

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            listener.close()

    # ------------------------------------------------------------------------------------------------------------- connections

    async def _serve(self) -> None:
        async with anyio.create_task_group() as tasks:
            for listener in self._listeners:
                tasks.start_soon(self._accept, listener, tasks.start_soon)
            await anyio.sleep_forever()  # until it is closed

    async def _accept(self, listener: Listener, start_soon: Callable[..., object]) -> None:
        while True:
            try:
                stream, peer = await listener.accept()
            except anyio.ClosedResourceError:
                return
            start_soon(self._attend_socket, stream, listener.address, peer)

    async def _attend_socket(self, stream: ByteStream, address: Address, peer: str) -> None:
        async def arrive() -> Arrival | None:
            return await self._reception.shake_hands(stream, address=address, peer=peer)

        try:
            await self._attend(arrive, medium=address.scheme, peer=peer)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.aclose_forcefully(stream)

    async def attend(self, arrival: Arrival) -> None:
        """Serve a connection that another server has accepted, until it is over; the stream is closed then.

        For adapters such as `GatewayApplication`. The adapter has looked at origin and token (`check_upgrade`) and at `health`;
        the token in `arrival` is looked at here.
        """

        async def arrive() -> Arrival | None:
            return arrival

        try:
            await self._attend(arrive, medium=arrival.medium, peer=arrival.peer)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.aclose_forcefully(arrival.stream)

    def check_upgrade(self, *, origin: str | None, token: str | None) -> None:
        """Raise `TurnedAway` for a web page that may not connect, and for a token that is nobody's; it is counted."""
        try:
            self._door.check_origin(origin)
            if token is not None:  # one in a hello may still come
                self._door.admit(token)
        except TurnedAway as exc:
            self._count_refusal(exc)
            raise

    async def _attend(self, arrive: Callable[[], Awaitable[Arrival | None]], *, medium: str, peer: str) -> None:
        """One connection, whole. Whatever it does is its own affair: no error of it leaves here."""
        self.metrics.connections[medium] += 1
        arrival: Arrival | None = None
        try:
            guest: Guest | None = None
            with self._door.knock(peer) as knocking:
                arrival = await arrive()
                if arrival is None:
                    return
                guest = await self._reception.identify(arrival)
            if knocking.cancelled_caught:
                self._count_refusal(TurnedAway("handshake", "the handshake took too long, or too many others stood at the door"), peer=peer)
                await drop(arrival)
                return
            assert arrival is not None  # noqa: S101 - for the type checkers: without a cancellation there is one
            await self._receive(arrival, guest)
        except TurnedAway as exc:
            self._count_refusal(exc, peer=peer)
            if arrival is not None:
                with self._door.linger(peer, seconds=MAX_FAREWELL):
                    await explain(arrival, exc)
                    await close_politely(arrival)
                await drop(arrival)
            return
        except ssl.SSLError as exc:
            self._handshake_failed(exc, peer)
        except GONE as exc:
            logger.debug("a connection from %s is over (%s)", peer, type(exc).__name__)
        except ClaudeTransportError as exc:
            self._handshake_failed(exc, peer)
        except Exception:  # the other connections must not pay for what is wrong with this one
            self.metrics.refused["internal"] += 1
            extra = {"gateway_event": "connection_failed", "gateway_peer": peer}
            logger.exception("serving a connection from %s failed", peer, extra=extra)
        if arrival is not None:
            await close_politely(arrival)

    async def _receive(self, arrival: Arrival, guest: Guest | None) -> None:
        """Whom the door has admitted, with its first words or before them."""
        owner = guest.owner if guest is not None else self._door.admit(arrival.token, certified=arrival.certified)
        with self._door.allowance(owner).connection():
            if guest is None:
                guest = await self._reception.hear(arrival)  # as long as the client likes: it has been admitted, and is counted
            if guest.hello is not None:
                await self._serve_link(arrival, guest, guest.hello)
            else:
                await self._serve_plain(arrival, guest)

    async def _start(self, guest: Guest) -> tuple[Transport, Surroundings]:
        """A process for a new session; none that drain() or aclose(), having come meanwhile, would not see."""
        transport, surroundings = await self._starter.start(guest, allowance=self._door.allowance(guest.owner))
        try:
            self._roster.refuse_if_draining()
        except TurnedAway:
            await close_quietly(transport)
            raise
        return transport, surroundings

    async def _serve_plain(self, arrival: Arrival, guest: Guest) -> None:
        with self._roster.place_for_one(self._door.allowance(guest.owner)):
            transport, surroundings = await self._start(guest)
            session = PlainSession(transport, surroundings=surroundings, on_end=self._session_over)
            self._roster.add(session)
        session.log(logging.INFO, "session_begun", f"begun over {arrival.medium}", peer=arrival.peer)
        await session.attend(arrival.stream, guest.unread)

    async def _serve_link(self, arrival: Arrival, guest: Guest, hello: Hello) -> None:
        if hello.session is not None:
            session = self._roster.find(hello.session, owner=guest.owner)
        else:
            with self._roster.place_for_one(self._door.allowance(guest.owner)):
                transport, surroundings = await self._start(guest)
                session = LinkSession(transport, surroundings=surroundings, on_end=self._session_over)
                self._roster.add(session)
            try:
                session.begin()
            except RuntimeError:  # the event loop is ending
                await close_quietly(transport)
                self._session_over(session)
                raise
            session.log(logging.INFO, "session_begun", f"begun over {arrival.medium}", peer=arrival.peer)
        await session.attend(arrival.stream, hello, guest.unread, medium=arrival.medium, peer=arrival.peer)

    def _session_over(self, session: Session) -> None:
        self._roster.remove(session)
        reason = session.ended or "ended"
        session.log(
            logging.INFO, "session_ended", f"over ({reason})", reason=reason, bytes_in=session.bytes_in, bytes_out=session.bytes_out
        )

    # ---------------------------------------------------------------------------------------------------------------- refusals

    def _admits(self, token: str | None) -> bool:
        try:
            self._door.admit(token)
        except TurnedAway:
            return False
        return True

    def _count_refusal(self, refused: TurnedAway, *, peer: str = "") -> None:
        self.metrics.refused[refused.reason] += 1
        self._refusals.turned_away(refused, peer=peer)

    def _handshake_failed(self, exc: Exception, peer: str) -> None:
        """TLS or WebSocket could not be agreed on; what the peer sent is not repeated."""
        self.metrics.refused["handshake"] += 1
        message = "a connection from %s did not get through the handshake (%s)"
        self._refusals.note(logging.INFO, "handshake_failed", message, peer, type(exc).__name__, peer=peer)


def _safe_addresses(listen: Sequence[str], *, has_tokens: bool, ssl_context: ssl.SSLContext | None, allow_plaintext: bool) -> list[Address]:
    """The addresses in these URLs; raises `ConfigurationError` for one that would be open to others."""
    if isinstance(listen, str):
        raise ConfigurationError("listen is a sequence of URLs", option="listen")
    addresses = [parse_address(url) for url in listen]
    certifies = ssl_context is not None and ssl_context.verify_mode is ssl.CERT_REQUIRED
    for address in addresses:
        authenticates = has_tokens or (certifies and address.is_encrypted)
        check_exposure(address, authenticates=authenticates, ssl_context=ssl_context, allow_plaintext=allow_plaintext)
    return addresses


def _known_modes(modes: Collection[Mode]) -> frozenset[Mode]:
    if not modes or not set(modes) <= {"link", "plain"}:
        raise ConfigurationError("modes are 'link', 'plain' or both", option="modes")
    return frozenset(modes)
