"""What an operator reads, with a broker that answers as a test says."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from claude_transport import errors
from claude_transport.fleet import FleetRegistry
from claude_transport.fleet.broker import Broker, BrokerAddress
from claude_transport.fleet.placement import Node
from claude_transport.fleet.registry import FleetNode, FleetSession
from claude_transport.fleet.scripts import FleetKeys

URL = "redis://127.0.0.1:1/0"
KEYS = FleetKeys("claude-fleet")
NOW = 1000.0
GOOD = {"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction"}


class Answering(Broker):
    """Answers from these tables at the second 1000 of its clock, and notes what it is asked."""

    def __init__(self, address: BrokerAddress) -> None:
        super().__init__(address)
        self.asked: list[tuple[Any, ...]] = []
        self.lists: dict[str, list[bytes]] = {}
        self.hashes: dict[str, dict[str, Any]] = {}
        self.server: dict[str, str] = {"redis_version": "7.2.4", "role": "master"}
        self.settings: dict[str, str] = dict(GOOD)
        self.failures: dict[str, Exception] = {}
        self.closes = 0

    async def start(self, *, timeout: float) -> None:
        await anyio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        self.closes += 1
        await anyio.lowlevel.checkpoint()

    async def command(self, name: str, *args: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        self.asked.append((name, *args))
        if name in self.failures:
            raise self.failures[name]
        match name:
            case "time":
                return [b"%d" % NOW, b"0"]
            case "zrange":
                return self.lists.get(args[0], [])
            case "hgetall":
                return self.hashes.get(args[0], {})
            case "hmget":
                return [self.hashes.get(args[0], {}).get(field) for field in args[1]]
        return 1

    async def command_at_each(self, name: str, *args: Any) -> dict[str, Any]:
        await anyio.lowlevel.checkpoint()
        if name in self.failures:
            raise self.failures[name]
        if name == "info":
            return {URL: "".join(f"{name}:{value}\r\n" for name, value in self.server.items()).encode()}
        return {URL: [part for pair in self.settings.items() for part in pair if pair[0] == args[0]]}


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Answering:
    """The broker that a registry gets."""
    made = Answering(BrokerAddress(URL))
    monkeypatch.setattr("claude_transport.fleet.registry.Broker", lambda _address: made)
    return made


def fields(**others: Any) -> dict[str, str]:
    """A session that a worker has."""
    live = {"s": "live", "wn": "one", "we": "3.a", "wu": 1_001_000, "cu": 1_001_000, "wo": 9, "co": 4, "tt": 5, "td": 3, "ts": 2}
    return {name: str(value) for name, value in (live | others).items()}


SESSIONS: dict[str, tuple[dict[str, str], FleetSession]] = {
    "running": (
        fields(),
        FleetSession(id="S", state="running", worker="one", epoch=3, client=True, unread=5, turns=2, stored=2),
    ),
    "stopping": (
        fields(x=1, cu=999_000, co=10, td=7),
        FleetSession(id="S", state="stopping", worker="one", epoch=3, client=False, unread=0, turns=0, stored=2),
    ),
    "without a worker": (
        fields(x=1, wu=999_000),
        FleetSession(id="S", state="waiting", worker="", epoch=3, client=True, unread=5, turns=2, stored=2),
    ),
    "ended": (
        fields(s="ended", wu=0),
        FleetSession(id="S", state="ended", worker="one", epoch=3, client=True, unread=5, turns=2, stored=2),
    ),
    "new": ({"s": "new", "we": "0.", "cu": "0"}, FleetSession(id="S", state="waiting")),
    "malformed": (fields(wo="x"), FleetSession(id="S", state="malformed")),
}


@pytest.mark.parametrize("what", SESSIONS)
async def test_a_session_is_listed_as_it_is(broker: Answering, what: str) -> None:
    said, session = SESSIONS[what]
    broker.lists = {KEYS.sessions: [b"S", b"gone", b"\xff"], KEYS.queue: [b"S"]}
    broker.hashes = {KEYS.meta("S"): said}
    async with FleetRegistry(URL) as registry:
        assert await registry.sessions() == [session]
        assert broker.closes == 0
    assert broker.closes == 1


async def test_a_session_that_may_not_be_read_is_an_error(broker: Answering) -> None:
    broker.lists = {KEYS.sessions: [b"S"]}
    broker.failures["hgetall"] = errors.ProtocolError("it is refused", code="fleet.refused")
    async with FleetRegistry(URL) as registry:
        with pytest.raises(errors.ProtocolError, match="it is refused"):
            await registry.sessions()


async def test_at_most_ten_thousand_sessions_are_listed(broker: Answering) -> None:
    broker.lists = {KEYS.sessions: [b"%d" % number for number in range(10_000)], KEYS.queue: [b"one more"[:3]]}
    broker.hashes = {KEYS.meta(name.decode()): fields() for names in broker.lists.values() for name in names}
    async with FleetRegistry(URL) as registry:
        assert len(await registry.sessions()) == 10_000
    assert [ask[2:] for ask in broker.asked if ask[0] == "zrange"] == [(0, 9_999)] * 2


async def test_the_workers_are_listed_with_the_age_of_their_last_heartbeat(broker: Answering) -> None:
    one = Node(id="one", capacity=9, load=2, labels=("gpu",), seen=NOW - 4, versions=(1, 2), library="0.1")
    two = Node(id="two", seen=NOW - 60, draining=True)
    ahead = Node(id="ahead", seen=NOW + 5)
    broker.hashes = {KEYS.nodes: {node.id: msgspec.json.encode(node) for node in (one, two, ahead)}}
    async with FleetRegistry(URL) as registry:
        assert await registry.nodes() == [
            FleetNode(name="one", capacity=9, load=2, labels=("gpu",), age=4.0, library="0.1", versions=(1, 2)),
            FleetNode(name="two", capacity=1, load=0, age=60.0, draining=True, alive=False, versions=(1,)),
            FleetNode(name="ahead", capacity=1, load=0, age=0.0, versions=(1,)),
        ]


OLD = "the server is older than 6.2: update it"
HIDDEN = "the server does not tell its settings: check appendonly and maxmemory-policy by hand"
CHECKS: dict[str, tuple[dict[str, str], dict[str, str], list[str]]] = {
    "good": ({}, {}, []),
    "good, and a candidate of a release": ({"redis_version": "7.4-rc1"}, {"appendfsync": "always"}, [OLD]),
    "good, with a word behind its version": ({"redis_version": "6.2.0-rc1"}, {}, []),
    "old": ({"redis_version": "6.0.9"}, {}, [OLD]),
    "of a version that is none": ({"redis_version": "x.y"}, {}, [OLD]),
    "a replica": ({"role": "slave"}, {}, ["the server is a replica, which takes no writes: name the primary"]),
    "without a file": (
        {},
        {"appendonly": "no", "appendfsync": "no"},
        ["appendonly is off: a restart of the server loses every session. Set it to yes"],
    ),
    "with a file that is written late": (
        {},
        {"appendfsync": "no"},
        ["appendfsync is no: a power cut may lose more than the two seconds that both ends keep. Set it to everysec or always"],
    ),
    "that forgets": (
        {},
        {"maxmemory-policy": "allkeys-lru"},
        ["maxmemory-policy is allkeys-lru: a full server deletes running sessions. Set it to noeviction"],
    ),
}


@pytest.mark.parametrize("what", CHECKS)
async def test_what_a_fleet_should_not_run_on_is_found(broker: Answering, what: str) -> None:
    server, settings, findings = CHECKS[what]
    broker.server |= server
    broker.settings |= settings
    async with FleetRegistry(URL) as registry:
        check = await registry.check()
    assert list(check.findings) == findings
    assert (check.version, check.role) == (broker.server["redis_version"], broker.server["role"])
    assert check.settings == broker.settings
    assert sum(ask == ("ping",) for ask in broker.asked) == 9


async def test_a_server_that_does_not_tell_its_settings_is_found(broker: Answering) -> None:
    broker.failures["config_get"] = errors.ProtocolError("it is refused", code="fleet.refused")
    async with FleetRegistry(URL) as registry:
        check = await registry.check()
    assert (check.settings, check.findings) == ({}, (HIDDEN,))


async def test_a_session_that_no_worker_has_taken_is_forgotten_when_it_is_stopped(broker: Answering) -> None:
    broker.hashes = {KEYS.meta("S"): {"s": b"new"}}
    async with FleetRegistry(URL) as registry:
        await registry.stop("S")
    assert broker.asked[1:] == [
        ("delete", [KEYS.meta("S"), KEYS.incoming("S"), KEYS.outgoing("S")]),
        ("zrem", KEYS.sessions, "S"),
        ("zrem", KEYS.queue, "S"),
    ]


@pytest.mark.parametrize("worker", [b"one", None])
async def test_the_worker_of_a_session_that_is_stopped_is_told(broker: Answering, worker: bytes | None) -> None:
    broker.hashes = {KEYS.meta("S"): {"s": b"live", "wn": worker}}
    async with FleetRegistry(URL) as registry:
        await registry.stop("S")
    told = [] if worker is None else [("publish", KEYS.wake("one"), "S")]
    assert broker.asked[1:] == [("hset", KEYS.meta("S"), {"x": 1}), *told]
