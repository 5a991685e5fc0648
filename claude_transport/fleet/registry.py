"""`FleetRegistry`: what the broker knows of the sessions and the workers of a fleet."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

import anyio
import msgspec

from claude_transport.errors import CLIConnectionError, ProtocolError, UsageError
from claude_transport.fleet.answers import MALFORMED, count_of, fields_of, session_name, text_of
from claude_transport.fleet.broker import Broker, BrokerAddress, BrokerCut
from claude_transport.fleet.messages import epoch_of
from claude_transport.fleet.roster import ask_table, broker_time, read_nodes, wake_node
from claude_transport.fleet.tables import count_waiting
from claude_transport.loggers import logger_for
from claude_transport.streams.address import check_text
from claude_transport.text.printable import printable

logger: logging.Logger = logger_for(__name__)

_OLDEST: Final = (6, 2)
_OLDEST_OF_CLUSTER: Final = (7, 0)  # the first one with channels that belong to a slot
_PINGS: Final = 9
_SETTINGS: Final = ("appendonly", "appendfsync", "maxmemory", "maxmemory-policy", "min-replicas-to-write")
_TIMEOUT: Final = 10.0
_MOST: Final = 10_000
"""The most sessions that are listed."""


class FleetSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session of a fleet: its id, its state, and the worker that has it.

    `state` is `waiting` (no worker has it), `running`, `stopping`, `ended`, or `malformed` when the broker holds something else under its
    name than this library writes. `epoch` counts its workers. `client` is False when no client
    has been there within its lease. `unread` counts entries of the output that the client has not taken, `turns` the turns that run, and
    `stored` those that are over and whose transcript is in the session store.
    """

    id: str
    state: str
    worker: str = ""
    epoch: int = 0
    client: bool = False
    unread: int = 0
    turns: int = 0
    stored: int = 0


class FleetNode(msgspec.Struct, frozen=True, kw_only=True):
    """A worker of a fleet: its name, how many sessions it may and does have, its labels, and the seconds since its last heartbeat.

    `library` is its version of this library, and `versions` are those of the fleet's format that it reads.
    """

    name: str
    capacity: int
    load: int
    labels: tuple[str, ...] = ()
    age: float = 0.0
    draining: bool = False
    alive: bool = True
    library: str = ""
    versions: tuple[int, ...] = ()


class BrokerCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What `FleetRegistry.check()` has found: the server, the median of its round trips, its settings, and what is wrong with them.

    `mode` is `standalone` or `cluster`, and `servers` are the addresses of the primaries.
    """

    address: str
    mode: str = ""
    servers: tuple[str, ...] = ()
    version: str = ""
    role: str = ""
    round_trip_ms: float = 0.0
    settings: Mapping[str, str] = {}
    findings: tuple[str, ...] = ()


class FleetRegistry:
    """Reads the registry of the fleet at `url`. Use it with `async with`.

    Raises:
        ConfigurationError: the URL is not valid.
    """

    def __init__(self, url: str, *, ssl_context: ssl.SSLContext | None = None) -> None:
        self._broker = Broker(BrokerAddress(url, ssl_context=ssl_context))

    async def __aenter__(self) -> Self:
        """Connect. Raises `CLIConnectionError` when the broker cannot be reached."""
        await self._broker.start(timeout=_TIMEOUT)
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        await self._broker.aclose()

    async def sessions(self) -> list[FleetSession]:
        """Return every session that has not ended, at most 10,000. Names in the queue that are those of no session are left out."""
        keys, now = self._broker.keys, await self._time()
        rows: list[Any] = []
        for part in keys.parts:
            queued = await self._read("zrange", part.queue, 0, _MOST - 1)  # first: a worker moves names from there to the sessions
            rows += [*await self._read("zrange", part.sessions, 0, _MOST - 1), *queued]
        found = []
        for name in dict.fromkeys(filter(None, map(session_name, rows))):
            try:
                fields = fields_of(await self._ask("hgetall", keys.meta(name)))
                if fields:
                    found.append(_session(name, fields, now=now))
            except ProtocolError as exc:
                if exc.code != MALFORMED:
                    raise
                found.append(FleetSession(id=name, state="malformed"))
        return found[:_MOST]

    async def queue_length(self) -> int:
        """Return how many sessions wait for a worker."""
        return await count_waiting(partial(self._read, default=0), self._broker.keys, await self._time())

    async def nodes(self) -> list[FleetNode]:
        """Return every worker that has not said goodbye."""
        now = await self._time()
        with self._loss_told():
            nodes = await read_nodes(self._broker)
        return [
            FleetNode(
                name=node.id,
                capacity=node.capacity,
                load=node.load,
                labels=tuple(node.labels),
                age=max(now - node.seen, 0),
                draining=node.draining,
                alive=node.lives(now),
                library=node.library,
                versions=tuple(node.versions),
            )
            for node in nodes
        ]

    async def check(self) -> BrokerCheck:
        """Look at the broker: what it is, how fast it answers, and what a fleet needs and it does not have. Of a cluster, at each primary.

        The version and the settings are those of the first primary. A finding of one primary names it.
        """
        told = {place: _fields_of_info(answer) for place, answer in (await self._ask_each("info")).items()}
        settings: dict[str, dict[str, str]] = {place: {} for place in told}
        try:
            for pattern in _SETTINGS:
                for place, found in (await self._ask_each("config_get", pattern)).items():
                    settings[place] |= fields_of(found)
        except ProtocolError:
            logger.info("the broker does not tell its settings")
        times = []
        for _ in range(_PINGS):
            began = anyio.current_time()
            await self._ask("ping")
            times.append(anyio.current_time() - began)
        is_cluster = self._broker.mode == "cluster"
        findings = [
            f"{place}: {finding}" if is_cluster else finding
            for place, info in told.items()
            for finding in _findings(info, settings[place], is_cluster=is_cluster)
        ]
        first = next(iter(told))
        return BrokerCheck(
            address=str(self._broker.address),
            mode=self._broker.mode,
            servers=tuple(told),
            version=told[first].get("redis_version", ""),
            role=told[first].get("role", ""),
            round_trip_ms=round(sorted(times)[_PINGS // 2] * 1000, 2),
            settings=settings[first],
            findings=tuple(findings),
        )

    async def stop(self, session: str) -> None:
        """Ask the worker of a session to end it. It does so when it renews its lease.

        Raises:
            ConfigurationError: `session` is no text, or one that cannot be sent.
            UsageError: there is no such session.
        """
        check_text(session, option="session")
        meta = self._broker.keys.meta(session)
        fields = await self._ask("hmget", meta, ["s", "wn"])
        if fields[0] is None:
            raise UsageError(f"the fleet has no session {printable(session, at_most=64)}", code="fleet.no_session")
        if text_of(fields[0]) == "new":
            await self._ask("delete", [meta, self._broker.keys.incoming(session), self._broker.keys.outgoing(session)])
            part = self._broker.keys.part_of(session)
            await self._ask("zrem", part.sessions, session)
            await self._ask("zrem", part.queue, session)
            return
        await self._ask("hset", meta, {"x": 1})
        if fields[1] is not None:
            await wake_node(self._broker, text_of(fields[1]), about=(session,))

    async def _time(self) -> float:
        with self._loss_told():
            return await broker_time(self._broker)

    async def _read(self, name: str, key: str, *args: Any, default: Any = ()) -> Any:
        with self._loss_told():
            return await ask_table(self._broker, name, key, *args, default=default)

    async def _ask(self, name: str, *args: Any) -> Any:
        with self._loss_told():
            return await self._broker.command(name, *args)

    async def _ask_each(self, name: str, *args: Any) -> dict[str, Any]:
        with self._loss_told():
            return await self._broker.command_at_each(name, *args)

    @contextmanager
    def _loss_told(self) -> Iterator[None]:
        try:
            yield
        except BrokerCut as exc:
            raise CLIConnectionError(f"{self._broker.address}: {exc}", code="fleet.broker_lost") from exc


def _fields_of_info(answer: Any) -> dict[str, str]:
    return dict(line.split(":", 1) for line in text_of(answer).splitlines() if ":" in line)


def _findings(info: Mapping[str, str], settings: Mapping[str, str], *, is_cluster: bool) -> Iterator[str]:
    """Return a sentence for each thing that a fleet should not run on."""
    oldest = _OLDEST_OF_CLUSTER if is_cluster else _OLDEST
    try:
        version = tuple(int(part) for part in info.get("redis_version", "").split(".")[:2])
    except ValueError:
        version = ()
    if version < oldest:
        yield f"the server is older than {oldest[0]}.{oldest[1]}: update it"
    if info.get("role", "master") != "master":
        yield "the server is a replica, which takes no writes: name the primary"
    if not settings:
        yield "the server does not tell its settings: check appendonly and maxmemory-policy by hand"
        return
    if settings.get("appendonly") != "yes":
        yield "appendonly is off: a restart of the server loses every session. Set it to yes"
    elif settings.get("appendfsync") == "no":
        yield "appendfsync is no: a power cut may lose more than the two seconds that both ends keep. Set it to everysec or always"
    if settings.get("maxmemory-policy", "noeviction") != "noeviction":
        yield f"maxmemory-policy is {settings['maxmemory-policy']}: a full server deletes running sessions. Set it to noeviction"


def _session(name: str, fields: dict[str, str], *, now: float) -> FleetSession:
    """Return what the fields of a session say. Raises `ProtocolError` for fields that no script writes."""
    lease, client = count_of(fields.get("wu", 0)) / 1000, count_of(fields.get("cu", 0)) / 1000
    state = fields.get("s", "")
    shown = "ended" if state == "ended" else "waiting" if lease < now else "stopping" if fields.get("x") == "1" else "running"
    return FleetSession(
        id=name,
        state=shown,
        worker=fields.get("wn", "") if shown != "waiting" else "",
        epoch=epoch_of(fields.get("we", "")),
        client=client > now,
        unread=max(count_of(fields.get("wo", 0)) - count_of(fields.get("co", 0)), 0),
        turns=max(count_of(fields.get("tt", 0)) - count_of(fields.get("td", 0)), 0),
        stored=count_of(fields.get("ts", 0)),
    )
