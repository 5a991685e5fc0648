"""`FleetWorker`: takes sessions of a fleet from the broker, and runs their processes on this machine.

It claims sessions, and tells the others that it lives. One session is in `hosted.py`.
"""

from __future__ import annotations

import contextlib
import hmac
import itertools
import logging
import os
import random
import secrets
import socket
import ssl
import uuid as uuids
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import metadata
from typing import Any, Final, NoReturn

import anyio
import msgspec

from claude_transport.agents.registry import find_agent
from claude_transport.errors import ClaudeTransportError, ConfigurationError, ProtocolError, SessionInUse, UsageError
from claude_transport.fleet.answers import (
    MALFORMED,
    bytes_of,
    count_of,
    decode_wanted,
    fields_of,
    text_of,
    woken_about,
)
from claude_transport.fleet.broker import Broker, BrokerAddress, BrokerCut
from claude_transport.fleet.carrier import Carrier
from claude_transport.fleet.ends import LEASE_SECONDS, Claimed, WorkerEnd
from claude_transport.fleet.hosted import HostedSession, failed_end, release_session
from claude_transport.fleet.messages import FLEET_VERSIONS, Owner, SessionEnd
from claude_transport.fleet.metrics import FleetMetrics
from claude_transport.fleet.placement import MAX_NODE_BYTES, MOST_ASKED, NODE_SECONDS, Node, Placed, Placing, Wanted, rank_nodes
from claude_transport.fleet.roster import CANDIDATES, ask_table, broker_time, find_nodes, read_home, read_node, wake_node
from claude_transport.fleet.scripts import CLAIM, SharedKeys
from claude_transport.fleet.secrets import with_secrets
from claude_transport.fleet.stream import prove_with
from claude_transport.fleet.tables import Tables
from claude_transport.fleet.takeover import SETUP_REQUESTS, setup_lines, takeover_lines
from claude_transport.launch.options import ClaudeOptions
from claude_transport.loggers import logger_for
from claude_transport.loops.current import Wakeup, is_stopped_here
from claude_transport.redis.client import first_of, leaves_of
from claude_transport.serving.choices import DEFAULT_CHOICES, Choices, check_answers
from claude_transport.serving.door import ANYBODY, Allowance, Door, GatewayLimits, GatewayTokens
from claude_transport.serving.hosted import START_TIMEOUT, chosen_launch, close_quietly, start_process, trace_of
from claude_transport.serving.page_server import PageServer
from claude_transport.serving.pages import Hosts, Pages
from claude_transport.serving.turned_away import TurnedAway
from claude_transport.streams.address import Address, check_text
from claude_transport.transport import Client, SessionTerms, Transport
from claude_transport.transports.subprocess import SubprocessTransport

logger: logging.Logger = logger_for(__name__)

DEFAULT_CAPACITY: Final = 8

DEFAULT_DRAIN_TIMEOUT: Final = 30.0
"""Seconds that running turns get when the worker ends. Then their sessions move all the same."""

_BEAT: Final = NODE_SECONDS / 5
"""Seconds between two heartbeats, and between two looks at the queue."""

_TIDY_BEATS: Final = 100
"""Heartbeats from one removal of what is gone from the tables to the next, five minutes: one worker of all does it then."""

_STORE_PAUSE: Final = 1.0
"""Seconds between two attempts to take a conversation that the store still gives to the worker before."""

_MAX_KEYS: Final = 500
"""Streams that are read in one call."""

_LOOKED_AT: Final = 64
"""Waiting sessions that are looked at in one go, beside those that no worker can take."""

_LOOK_PAUSE: Final = 0.01
"""Seconds between two looks: each client of the broker can wake a worker."""

_CONVERSATION: Final = "conversation"
"""The field of the `setup` of a session with the id of its conversation, which the next worker resumes."""

_NAMESPACE: Final = uuids.UUID("5c0a1f5e-8b8a-4b0e-9a53-0f1c8e5f7d21")
"""The namespace of the ids that conversations of a fleet get."""


class FleetWorker:
    """Runs sessions of the fleet at `url`, as many as `capacity` at the same time. `await serve()` runs it until it is cancelled.

    Args:
        url: the broker, as for a `FleetTransport`.
        options: how each `claude` is run. With a `session_store`, another worker can go on with a session after this one is gone.
        command: an NDJSON program to run in place of `claude`.
        capacity: the most sessions at the same time.
        labels: what this worker has, such as `gpu`. A session can ask for labels.
        tokens: the tokens of the clients. Without any, each client of the broker may begin sessions.
        choices: names of the options that clients may choose, as for a `Gateway`. The worker's own options bound the values.
        secrets: values that are not in the broker, by name. A session writes `secret:NAME` in its options `env` and `mcp_servers`, where
            clients may choose these.
        limits: the limits of a `Gateway`, as far as they concern sessions and lines.
        name: the name of this worker; by default the host's with a random end.
        lease: seconds after which another worker takes the sessions of this one when it is silent, at least 1. A process that does not
            take its input in that time, while the broker takes no renewal, is ended.
        drain_timeout: seconds that running turns get in `drain()`.
        metrics_port: a port for `/metrics` and `/healthz` over plain HTTP, 0 for any free one; None answers no pages. `/healthz` is 200
            while the worker is connected to the broker and does not drain. The pages hold numbers, and need no token.
        metrics_host: the address of this machine for that port. By default only programs on this machine can connect.
        hosts: more host names for the pages, as for a `Gateway`.
        ssl_context: the client's side of `rediss://`.
        launch: makes the transport of a session from its options, in place of a `SubprocessTransport`.

    Raises:
        ConfigurationError: an argument is not valid.
    """

    def __init__(
        self,
        url: str,
        *,
        options: ClaudeOptions | None = None,
        command: Sequence[str] | None = None,
        capacity: int = DEFAULT_CAPACITY,
        labels: Sequence[str] = (),
        tokens: GatewayTokens | Mapping[str, str] | None = None,
        choices: Collection[str] = DEFAULT_CHOICES,
        secrets: Mapping[str, str] | None = None,
        limits: GatewayLimits | None = None,
        name: str | None = None,
        lease: float = LEASE_SECONDS,
        drain_timeout: float = DEFAULT_DRAIN_TIMEOUT,
        metrics_port: int | None = None,
        metrics_host: str = "127.0.0.1",
        hosts: Collection[str] = (),
        ssl_context: ssl.SSLContext | None = None,
        launch: Callable[[ClaudeOptions], Transport] | None = None,
    ) -> None:
        _check(capacity=capacity, lease=lease, metrics_port=metrics_port)
        _check_texts(labels=labels, name=name, secrets=secrets, command=command, metrics_host=metrics_host)
        self._address = BrokerAddress(url, ssl_context=ssl_context)
        self._options = options or ClaudeOptions()
        self._capacity = capacity
        self._labels = tuple(labels)
        self._tokens = tokens if isinstance(tokens, GatewayTokens) else GatewayTokens(tokens)
        self._choices = Choices(choices)
        self._secrets = dict(secrets or {})
        self._limits = limits or GatewayLimits()
        self._limits.check()
        self._door = Door(tokens=self._tokens, limits=self._limits)
        self.name: str = name or _own_name()
        self._lease = float(lease)
        self._drain_timeout = drain_timeout
        self._launch = chosen_launch(launch, partial(SubprocessTransport, command=command), self._options, command=command)
        self.metrics: FleetMetrics = FleetMetrics()
        self._sessions: dict[str, HostedSession] = {}
        self._claiming: set[str] = set()
        self._starting: dict[str, anyio.CancelScope] = {}
        self._placings: defaultdict[SharedKeys, Placing] = defaultdict(Placing)  # of each part of the queue
        self._told_load = 0
        self._next_look = _NextLook()
        self._strange_versions: set[int] = set()
        self._draining = False
        self._page_server = None if metrics_port is None else self._pages_at(metrics_host, metrics_port, hosts)
        self._broker: Broker | None = None
        self._look, self._fewer = anyio.Event(), Wakeup()
        self.started: anyio.Event = anyio.Event()

    @property
    def sessions(self) -> tuple[str, ...]:
        """The ids of the sessions that this worker runs."""
        return tuple(self._sessions)

    def prometheus_text(self) -> str:
        """Return the counters and gauges of this worker at this moment, in the Prometheus text format."""
        self.metrics.active_sessions, self.metrics.capacity = len(self._sessions), self._capacity
        self.metrics.free_capacity = self._node(0).room
        return self.metrics.prometheus_text()

    @property
    def metrics_url(self) -> str | None:
        """Where `/metrics` and `/healthz` are answered: `http://host:port`, with the real port. None without `metrics_port`."""
        urls = () if self._page_server is None else self._page_server.urls
        return urls[0] if urls else None

    def _pages_at(self, host: str, port: int, names: Collection[str]) -> PageServer:
        pages = Pages(hosts=Hosts(names, bound=[host]), state=self._state, text=self.prometheus_text)
        return PageServer(Address(scheme="http", host=host, port=port), pages=pages, door=self._door, limits=self._limits)

    def _state(self) -> str:
        """Return what `/healthz` says."""
        if self._draining:
            return "draining"
        if not self.started.is_set():
            return "starting"
        assert self._broker is not None  # noqa: S101 - for the type checkers: serve() has set it
        return "ok" if self._broker.is_connected else "broker_lost"

    async def serve(self) -> None:
        """Serve sessions until the call is cancelled. A cancelled worker ends its processes at once, and gives its sessions back.

        Raises:
            CLIConnectionError: the broker cannot be reached at the beginning.
            ConfigurationError: the metrics port is taken.
            ProtocolError: the broker refuses a command (`fleet.refused`).
            UsageError: it serves already, or has served.
        """
        if self._broker is not None:
            raise UsageError("this worker serves already, or has served: make a new one")
        self._broker = broker = Broker(self._address)
        try:
            async with contextlib.nullcontext() if self._page_server is None else self._page_server.serving():
                await broker.start(timeout=START_TIMEOUT)
                await self._serve(broker)
        except BaseExceptionGroup as group:
            _raise_first_of(group)

    async def _serve(self, broker: Broker) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._beat)
                tasks.start_soon(self._take_waiting, tasks)
                tasks.start_soon(broker.listen, broker.keys.wake(self.name), self._woken)
        finally:
            with anyio.CancelScope(shield=True):
                with contextlib.suppress(BrokerCut, ClaudeTransportError):
                    await Tables(broker).say_goodbye(self._node(0))
                await broker.aclose()

    async def drain(self, *, timeout: float | None = None) -> None:
        """Take no more sessions, and give each of this worker to another one at a quiet moment. Returns when none is left.

        A session whose process is being started moves at once. Input that is not taken yet is for the next worker.

        Args:
            timeout: seconds that running turns get; by default the `drain_timeout` of the worker. Then their sessions move all the same.
        """
        self._draining = True
        for scope in self._starting.values():
            scope.cancel()
        with anyio.move_on_after(self._drain_timeout if timeout is None else timeout):
            async with anyio.create_task_group() as tasks:
                for session in list(self._sessions.values()):
                    tasks.start_soon(session.move_away)
        for session in list(self._sessions.values()):
            session.leave()
        while self._sessions or self._claiming:
            await self._fewer.wait()

    # The connection to the broker.

    def _node(self, now: float) -> Node:
        load = len(self._sessions) + len(self._claiming)
        return Node(
            id=self.name,
            capacity=self._capacity,
            load=load,
            labels=self._labels,
            seen=now,
            draining=self._draining,
            versions=FLEET_VERSIONS,
            library=_library_version(),
        )

    async def _beat(self) -> None:
        """Tell the others that this worker lives, and what it runs."""
        assert self._broker is not None  # noqa: S101 - as above
        broker = self._broker
        tidy_at = 0
        self._placings |= {part: Placing() for part in broker.keys.parts}
        for beat in itertools.count():
            try:
                now = await broker_time(broker)
                await self._tell_load(broker, now)
                if beat >= tidy_at:
                    tidy_at = beat + _TIDY_BEATS * max(await Tables(broker).forget_gone(now), 1)
                self.started.set()
            except BrokerCut:
                pass  # the next heartbeat tries again
            self._next_look.holds = True
            self._look_at_all()
            await anyio.sleep(_BEAT * random.uniform(0.9, 1.0))  # noqa: S311 - workers that began together do not call together for ever

    async def _tell_load(self, broker: Broker, now: float) -> None:
        node = self._node(now)
        await Tables(broker).tell(node)
        self._told_load = node.load

    def _woken(self, message: bytes) -> None:
        """Look at the queue. The lease of a session of this worker is renewed at once: it was asked to stop."""
        names = woken_about(message)
        for name in names:
            if name in self._sessions:
                self._sessions[name].renew_soon()
        assert self._broker is not None  # noqa: S101 - as above
        for name in names:
            self._placings[self._broker.keys.part_of(name)].ask(name)
        self._next_look.about.update(names)
        self._look.set()
        if not names or len(self._next_look.about) > MOST_ASKED:
            self._next_look.about.clear()
            self._look_at_all()

    def _look_at_all(self) -> None:
        self._next_look.is_of_all = True
        self._look.set()

    # Taking sessions.

    async def _take_waiting(self, tasks: Any) -> None:
        """Look at the queue whenever there is a reason to, and claim what is for this worker."""
        assert self._broker is not None  # noqa: S101 - as above
        while True:
            await self._look.wait()
            self._look = anyio.Event()
            try:
                await self._look_once(self._broker, tasks)
            except BrokerCut:
                continue
            except ClaudeTransportError as exc:
                logger.warning("the queue cannot be read: %s", exc)
            await anyio.sleep(_LOOK_PAUSE)

    async def _look_once(self, broker: Broker, tasks: Any) -> None:
        """Claim the waiting sessions that are for this worker, and wake the workers that the others are for.

        After a heartbeat also tell that the sessions of this worker do not wait.
        """
        this, self._next_look = self._next_look, _NextLook()
        hold = list(self._sessions) if this.holds else []
        out_of_reach = max((placing.out_of_reach for placing in self._placings.values()), default=0)
        count = 0 if self._draining else _LOOKED_AT + out_of_reach
        looked = await Tables(broker).look(about=this.about, everywhere=this.is_of_all, count=count, hold=hold, seconds=self._lease)
        if this.is_of_all:
            self.metrics.waiting_sessions = looked.waiting
        if self._draining:
            return
        if looked.may_be_more:
            self._look_at_all()
        waiting: dict[SharedKeys, list[str]] = {part: [] for part in looked.parts}
        for name in looked.names:
            waiting[broker.keys.part_of(name)].append(name)
        for part, names in waiting.items():
            if this.is_of_all:
                self._placings[part].ask_about_all()
            await self._place(broker, self._placings[part], names, looked.now, tasks)

    async def _place(self, broker: Broker, placing: Placing, waiting: Sequence[str], now: float, tasks: Any) -> None:
        """Place the sessions that wait in one part of the queue."""
        waiting = [name for name in waiting if name not in self._sessions and name not in self._claiming]
        placed = await self._placed(broker, placing, waiting, now)
        if placed.looks_further:
            self._look_at_all()
        for session, wanted in placed.claims:
            self._claiming.add(session)
            tasks.start_soon(self._serve_one, session, wanted)
        if self._node(now).load != self._told_load:  # what the others see decides which worker they wake
            await self._tell_load(broker, now)
        for node, about in placed.wakes.items():
            await wake_node(broker, node, about=about)

    async def _placed(self, broker: Broker, placing: Placing, waiting: Sequence[str], now: float) -> Placed:
        """Read what the waiting sessions want and what the other workers have. Returns what this worker does about them."""
        for name in placing.unknown(waiting):
            wanted = await self._wanted(broker, name)
            is_known = wanted is not None and wanted.version in FLEET_VERSIONS
            placing.learn(name, wanted if is_known else None)
            if wanted is None:
                await self._forget(broker, name)
            elif not is_known:
                self._leave_alone(name, wanted.version)
        others = await self._others(broker, placing, waiting, now) if waiting else {}
        homes = {}
        for workspace in placing.workspaces():
            home = await read_home(broker, workspace)
            if home is not None:
                homes[workspace] = home
                if home not in others and home != self.name and (node := await read_node(broker, home)) is not None:
                    others[home] = node
        before = placing.out_of_reach
        placing.pass_over([*others.values(), self._node(now)])
        if placing.out_of_reach > before:
            self._look_at_all()  # those behind them, and behind what was forgotten, were not seen
        return placing.place(self._node(now), others.values(), now=now, homes=homes)

    async def _others(self, broker: Broker, placing: Placing, waiting: Sequence[str], now: float) -> dict[str, Node]:
        """Return the best workers for the sessions that wait, without this one, and take those that are gone out of their order."""
        others: dict[str, Node] = {}
        for labels in placing.label_sets(self._labels):
            found = await find_nodes(broker, labels, near=waiting, now=now, count=CANDIDATES + placing.to_place)
            others |= {node.id: node for node in found.nodes if node.id != self.name}
            await Tables(broker).leave_out(found.gone)
        return others

    async def _wanted(self, broker: Broker, session: str) -> Wanted | None:
        """Return what a session wants; None for what no client has written."""
        try:
            data = await broker.command("hget", broker.keys.meta(session), "q")
        except ProtocolError as exc:
            if exc.code != MALFORMED:
                raise
            return None
        return None if data is None else decode_wanted(bytes_of(data))

    def _leave_alone(self, session: str, version: int) -> None:
        """Log a session of another version, once for each version."""
        if version not in self._strange_versions and len(self._strange_versions) < _LOOKED_AT:
            self._strange_versions.add(version)
            known = ", ".join(map(str, FLEET_VERSIONS))
            said = "session %s waits, and has version %d of the format of a fleet; this worker reads version %s, and leaves it to others"
            logger.warning(said, session, version, known)

    async def _serve_one(self, session: str, wanted: Wanted) -> None:
        """Claim a session, run it, and forget it. No error leaves here: it concerns this session only."""
        assert self._broker is not None  # noqa: S101 - as above
        try:
            await self._claim_and_run(self._broker, session, wanted)
        except (BrokerCut, ClaudeTransportError) as exc:
            logger.warning("session %s could not be served: %s", session, exc)
            if getattr(exc, "code", "") == MALFORMED:
                await self._forget(self._broker, session)
        except Exception:  # an unknown fault of one session must not end the others
            logger.exception("serving session %s failed", session)
        finally:
            self._claiming.discard(session)
            self._sessions.pop(session, None)
            self._look_at_all()
            self._fewer.fire()

    async def _forget(self, broker: Broker, session: str) -> None:
        """Remove what the broker has of a session that no worker can run. Its client gets `fleet.gone`."""
        keys = broker.keys
        logger.info("session %s is removed: the broker has lost it, or its keys hold what no end of a fleet has written", session)
        with contextlib.suppress(BrokerCut, ClaudeTransportError):
            await Tables(broker).remove(session)
            await broker.command("unlink", [keys.meta(session), keys.incoming(session), keys.outgoing(session), keys.setup(session)])

    async def _claim_and_run(self, broker: Broker, session: str, wanted: Wanted) -> None:
        keys = broker.keys
        where = [keys.meta(session), keys.incoming(session), keys.outgoing(session)]
        asked_at, nonce = anyio.current_time(), secrets.token_hex(4)
        answer = await broker.script(CLAIM, where, [nonce, self.name, int(self._lease * 1000)])
        word = text_of(answer[0])
        if word == "GONE":
            await self._forget(broker, session)
        if word == "ENDED":
            await Tables(broker).remove(session)
        if word == "HELD":
            await Tables(broker).hold_off(session, now=await broker_time(broker), left=count_of(answer[2]) / 1000)
        if word != "OK":
            return
        fields = fields_of(answer[1])
        claimed = Claimed.from_fields(fields)
        await Tables(broker).hold({session: await broker_time(broker) + self._lease})
        end = WorkerEnd(claimed, asked_at=asked_at, lease=self._lease, max_line_bytes=self._limits.line_bytes)
        carrier = Carrier(broker, session, end, patience=self._lease, on_change=bool)
        self.metrics.claimed["takeover" if claimed.is_takeover else "new"] += 1
        try:
            allowance = self._door.allowance(self._owner_of(session, fields))
            with _counted(allowance):
                started = await self._start(broker, session, end, carrier, wanted, fields)
                if started is not None:
                    await self._host(broker, *started, claimed, wanted)
        except TurnedAway as exc:
            said = SessionEnd(code=exc.reason, error=str(exc), retryable=exc.retryable)
            await self._end_unserved(broker, session, end, carrier, said)
        except (BrokerCut, ClaudeTransportError):
            raise
        except Exception as exc:  # an unknown fault: the next attempt would meet it, too
            logger.exception("serving session %s failed", session)
            await self._end_unserved(broker, session, end, carrier, failed_end(exc, doing="serving the session"))

    async def _end_unserved(self, broker: Broker, session: str, end: WorkerEnd, carrier: Carrier, said: SessionEnd) -> None:
        """Tell the client why its session is not served, and end it."""
        self.metrics.ended[said.code] += 1
        end.say_end(said)
        with anyio.move_on_after(self._lease):
            await carrier.drain()
        await release_session(broker, session, end.token, ended=True)

    async def _start(
        self, broker: Broker, session: str, end: WorkerEnd, carrier: Carrier, wanted: Wanted, fields: Mapping[str, str]
    ) -> tuple[HostedSession, _Conversation] | None:
        """Start the process while the lease is kept. A worker that drains, or is cancelled, gives the session back: then it returns None.

        Raises:
            TurnedAway: this worker does not run the session, or its process cannot be started.
        """
        with anyio.CancelScope() as scope:
            self._starting[session] = scope
            if self._draining:
                scope.cancel()
            try:
                async with _renewed(carrier, end):
                    return await self._start_process(broker, session, end, carrier, wanted, fields)
            except BaseException as exc:
                if not isinstance(exc, Exception):
                    await self._give_back(broker, session, end, wanted)
                raise
            finally:
                del self._starting[session]
        return None

    async def _give_back(self, broker: Broker, session: str, end: WorkerEnd, wanted: Wanted) -> None:
        """Let another worker have a session that has no process yet, also when this call is cancelled."""
        with anyio.CancelScope(shield=True):
            try:
                await release_session(broker, session, end.token, ended=False)
            except (BrokerCut, ClaudeTransportError) as exc:
                logger.warning("session %s could not be given back: its lease ends by itself (%s)", session, exc)
        await self._wake_another(broker, session, wanted)

    async def _wake_another(self, broker: Broker, session: str, wanted: Wanted) -> None:
        """Wake the best worker for a session that was given back: this one ends. Otherwise it is found with a heartbeat, seconds later."""
        self._draining = True
        with anyio.CancelScope(shield=True), contextlib.suppress(BrokerCut, ClaudeTransportError):
            now = await broker_time(broker)
            await self._tell_load(broker, now)  # or others would leave the session to this worker
            found = await find_nodes(broker, wanted.labels, near=[session], now=now)
            ranked = rank_nodes([node for node in found.nodes if node.id != self.name], wanted, now=now, session=session)
            if ranked:
                await wake_node(broker, ranked[0].id, about=(session,))

    async def _host(self, broker: Broker, hosted: HostedSession, conversation: _Conversation, claimed: Claimed, wanted: Wanted) -> None:
        failed: Exception | None = None
        try:
            await self._prepare_and_run(broker, hosted, conversation, claimed, wanted)
        except Exception as exc:
            failed = exc
            raise
        finally:
            await close_quietly(hosted.transport)
            self.metrics.bytes["in"] += hosted.bytes_in
            self.metrics.bytes["out"] += hosted.bytes_out
            if hosted.lost_code is not None:
                self.metrics.lost[hosted.lost_code] += 1
                if hosted.lost_code in (MALFORMED, "fleet.gone"):
                    await self._forget(broker, hosted.id)
            elif isinstance(failed, BrokerCut | ClaudeTransportError):  # before its process ran: the lease ends by itself
                self.metrics.lost[getattr(failed, "code", None) or "fleet.broker_lost"] += 1
            elif failed is None:
                self.metrics.ended[hosted.ended] += 1
                if hosted.ended == "moved":
                    await self._wake_another(broker, hosted.id, wanted)

    async def _prepare_and_run(
        self, broker: Broker, hosted: HostedSession, conversation: _Conversation, claimed: Claimed, wanted: Wanted
    ) -> None:
        keys, session = broker.keys, hosted.id
        if wanted.workspace:
            await Tables(broker).keep_home(wanted.workspace, self.name)
        await broker.command("hset", keys.setup(session), {_CONVERSATION: conversation.id})
        self._sessions[session] = hosted
        self._claiming.discard(session)
        if self._draining:
            hosted.leave()
        info = hosted.transport.info
        owner = Owner(
            node=self.name,
            taken=claimed.in_taken,
            takeover=claimed.is_takeover,
            uncertain=claimed.uncertain,
            unstored=claimed.unstored if self._options.session_store is not None else 0,
            pid=info.pid,
            cli_version=info.cli_version,
            library=_library_version(),
        )
        if not claimed.is_takeover:
            await hosted.run(owner)
            return
        self.metrics.uncertain += claimed.uncertain
        logger.info("session %s is taken over, with %d uncertain turns", session, claimed.uncertain)
        kept = await ask_table(broker, "hmget", keys.setup(session), SETUP_REQUESTS, default=())
        setup = setup_lines({name: bytes_of(line) for name, line in zip(SETUP_REQUESTS, kept, strict=False) if line is not None})
        notice = takeover_lines(owner, resumed=conversation.resumed, conversation=conversation.id)
        await hosted.run(owner, notice=notice, setup=setup)

    async def _start_process(
        self, broker: Broker, session: str, end: WorkerEnd, carrier: Carrier, wanted: Wanted, fields: Mapping[str, str]
    ) -> tuple[HostedSession, _Conversation]:
        """Start the process. Raises `TurnedAway` for a session that this worker does not run, and for whatever keeps it from starting."""
        options = self._chosen(wanted)
        before = await self._conversation_before(broker, session, end)
        client = Client(answers=check_answers(wanted.answers), trace=trace_of(wanted.trace))
        try:
            with anyio.fail_after(START_TIMEOUT):
                conversation = await _conversation_of(options, session, before, token=end.token)
                transport, terms = await self._connected(conversation.options, client)
        except TurnedAway:
            raise
        except Exception as exc:  # whatever the program's own `launch` or session store raises
            logger.warning("the process of session %s could not be started", session, exc_info=exc)
            raise TurnedAway("start", _why_not_started(exc, worker=self.name)) from exc
        hosted = HostedSession(
            broker,
            session,
            end,
            transport,
            carrier=carrier,
            fields=find_agent(self._options).hold(self._options, terms),
            allowance=self._door.allowance(self._owner_of(session, fields)),
            limits=self._limits,
            terms=terms,
        )
        return hosted, conversation

    async def _conversation_before(self, broker: Broker, session: str, end: WorkerEnd) -> str | None:
        """Return the conversation that the worker before had; None when there was none. It is in a key that clients cannot write."""
        if end.token.startswith("1."):
            return None
        found = await broker.command("hget", broker.keys.setup(session), _CONVERSATION)
        return None if found is None else text_of(found)

    def _chosen(self, wanted: Wanted) -> ClaudeOptions:
        try:
            chosen = with_secrets(wanted.options, self._secrets)
        except ConfigurationError as exc:
            raise TurnedAway("options", str(exc)) from exc
        return self._choices.apply(self._options, chosen)

    async def _connected(self, options: ClaudeOptions, client: Client) -> tuple[Transport, SessionTerms]:
        """Start a process. Waits for a store in which the worker before still holds the session; the caller bounds that."""
        while True:
            try:
                return await start_process(self._launch, options, client, of="FleetWorker")
            except SessionInUse:
                await anyio.sleep(_STORE_PAUSE)

    def _owner_of(self, session: str, fields: Mapping[str, str]) -> str:
        """Return the name of the token that began the session. Raises `TurnedAway` when none did."""
        if not self._tokens:
            return ANYBODY
        shown = fields.get("p", "")
        for name, digest in self._tokens.digests.items():
            if hmac.compare_digest(prove_with(digest, f"begin {session} {fields.get('q', '')}").encode(), shown.encode()):
                return name
        raise TurnedAway("auth", "a token is needed, or this one is not accepted")


def _why_not_started(exc: Exception, *, worker: str) -> str:
    """Return what a client is told. The text of the error stays in the log of the worker: it may hold a secret of that machine."""
    cause = first_of(exc)
    named = f"{type(cause).__name__}, {cause.code}" if isinstance(cause, ClaudeTransportError) else type(cause).__name__
    return f"the process could not be started on the worker {worker} ({named}); its log says more"


def _check(*, capacity: object, lease: object, metrics_port: object) -> None:
    """Raise `ConfigurationError` for a value that cannot be used."""
    if isinstance(capacity, bool) or not isinstance(capacity, int) or not 0 < capacity <= _MAX_KEYS:
        raise ConfigurationError(f"capacity must be a whole number from 1 to {_MAX_KEYS}, not {capacity!r}", option="capacity")
    if not isinstance(lease, int | float) or isinstance(lease, bool) or not lease >= 1:
        raise ConfigurationError(f"lease must be at least 1 second, not {lease!r}", option="lease")
    is_port = isinstance(metrics_port, int) and not isinstance(metrics_port, bool) and 0 <= metrics_port < 2**16
    if metrics_port is not None and not is_port:
        raise ConfigurationError(f"metrics_port must be a number from 0 to 65535, not {metrics_port!r}", option="metrics_port")


def _check_texts(*, labels: object, name: object, secrets: object, command: object, metrics_host: object) -> None:
    """Raise `ConfigurationError` for a text that the broker, the system or a process cannot get."""
    if isinstance(labels, str) or not isinstance(labels, Iterable) or not all(isinstance(label, str) for label in labels):
        raise ConfigurationError("labels is not a list of texts: give a list such as ['gpu']", option="labels")
    check_text(metrics_host, option="metrics_host")
    for option, values in (("labels", labels), ("name", () if name is None else (name,))):
        for value in values:
            check_text(value, option=option)
    if sum(len(str(each).encode()) for each in (name or "", *labels)) > MAX_NODE_BYTES // 8:  # JSON may make six bytes of one
        raise ConfigurationError(f"the labels and the name may have up to {MAX_NODE_BYTES // 8} bytes in all", option="labels")
    for option, texts in (("secrets", _parts_of(secrets)), ("command", command or ())):
        if not isinstance(texts, Iterable) or not all(isinstance(each, str) and _fits_a_process(each) for each in texts):
            raise ConfigurationError(f"{option} holds something that no process can get: give texts without zero bytes", option=option)


def _parts_of(mapping: object) -> list[object]:
    """Return the names and the values of a mapping, or of None."""
    return [each for pair in mapping.items() for each in pair] if isinstance(mapping, Mapping) else [] if mapping is None else [mapping]


def _fits_a_process(text: str) -> bool:
    """Return whether a process can get `text` as an argument or in its environment. Bytes that are no UTF-8 are half surrogates, too."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


class _NextLook:
    """What a worker's next look at the queue is about."""

    def __init__(self) -> None:
        self.about: set[str] = set()
        """The sessions that the worker was woken about."""
        self.is_of_all: bool = False
        """Whether it is of every part of the queue, not only of those with these sessions."""
        self.holds: bool = False
        """Whether it tells that the sessions of the worker do not wait."""


class _Conversation(msgspec.Struct, frozen=True):
    """The conversation of a session: its id, the options with which its process starts, and whether it goes on with an earlier one."""

    id: str
    options: ClaudeOptions
    resumed: bool = False


async def _conversation_of(options: ClaudeOptions, session: str, before: str | None, *, token: str) -> _Conversation:
    """Return which conversation the process has: a new one with an id that the next worker knows, or that of the worker before."""
    named = options.session_id or (options.resume if not options.fork_session else None)
    if before is None:
        if named is not None or options.continue_conversation or options.resume is not None:
            return _Conversation(named or "", options)
        new = str(uuids.uuid5(_NAMESPACE, session))
        return _Conversation(new, options.replace(session_id=new))
    fresh = options.replace(session_id=None, resume=None, fork_session=False, continue_conversation=False)
    if before and options.session_store is not None:
        from claude_transport.transports.mirroring import is_stored  # most fleets have no store

        if await is_stored(resumed := fresh.replace(resume=before)):
            return _Conversation(before, resumed, resumed=True)
    new = str(uuids.uuid5(_NAMESPACE, f"{session} {token}"))
    return _Conversation(new, fresh.replace(session_id=new))


@contextlib.contextmanager
def _counted(allowance: Allowance) -> Iterator[None]:
    """Count a session of its owner while the block runs. Raises `TurnedAway` for one too many."""
    allowance.begin_session()
    try:
        yield
    finally:
        allowance.end_session()


def _raise_first_of(group: BaseExceptionGroup[BaseException]) -> NoReturn:
    """Raise the first plain error of a group. While the caller is being cancelled, raise the cancellation that is in the group.

    A cancellation closes connections, and cleaning up on them may fail. Such an error says nothing.
    """
    if is_stopped_here():
        for each in leaves_of(group):
            if isinstance(each, anyio.get_cancelled_exc_class()):
                raise each
    raise first_of(group) from group


@contextlib.asynccontextmanager
async def _renewed(carrier: Carrier, end: WorkerEnd) -> AsyncIterator[None]:
    """Keep the lease while the block runs. A lease that is lost cancels the block, and raises."""
    lost: list[ClaudeTransportError] = []

    async def renew() -> None:
        try:
            while True:
                await anyio.sleep_until(end.lease.renew_at)
                await carrier.carry_out(end.renew_call(end.lease.seconds))
        except ClaudeTransportError as exc:
            lost.append(exc)
            tasks.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(renew)
            yield
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        _raise_first_of(group)
    if lost:
        raise lost[0]


def _own_name() -> str:
    host = "".join(each for each in socket.gethostname() if each.isascii() and (each.isalnum() or each in "-."))[:40]
    return f"{host or 'worker'}-{secrets.token_hex(4)}"


def _library_version() -> str:
    try:
        return metadata.version("claude-transport")
    except metadata.PackageNotFoundError:
        return ""
