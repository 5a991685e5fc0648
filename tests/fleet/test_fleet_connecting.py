"""`FleetConnectable`, with a broker that answers as a test says: what a client asks for, whom it wakes, and when it does not come back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
from virtual_time import virtual_time

from claude_transport import errors
from claude_transport.fleet import FleetTransport
from claude_transport.fleet.broker import Broker, BrokerAddress, BrokerCut
from claude_transport.fleet.messages import Append, Appended, Call, Entry, Fenced, Kind, Renew, Renewed, Reply, Synced, Take, Taken
from claude_transport.fleet.placement import Node, Wanted
from claude_transport.fleet.roster import wake_node
from claude_transport.fleet.scripts import ATTACH, CREATE
from claude_transport.fleet.stream import FleetConnectable, FleetStream, SessionRequest

URL = "redis://127.0.0.1:1/0"


class Answering(Broker):
    """Answers from these tables; a worker begins each session at once. Notes what it is asked."""

    def __init__(self, address: BrokerAddress) -> None:
        super().__init__(address)
        self.asked: list[tuple[Any, ...]] = []
        self.nodes: list[Node] = []
        self.rows: dict[str, Any] = {}
        self.failures: dict[str, Exception] = {}
        self.place: list[Any] = [b"2.c", 0, 0, 4, 4, b"1.w", b"live", 0, 0]
        self.attached: Callable[[int], object] = bool  # called with the number of each look at the place of the client before
        self.renewed: Reply = Renewed(60.0)
        self.attaches = self.mends = 0
        self.hangs, self.has_worker = False, True
        self.begun: list[Any] = []  # with what the last session was made

    async def start(self, *, timeout: float) -> None:
        await anyio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await anyio.lowlevel.checkpoint()
        if self.hangs:
            await anyio.sleep(100)

    async def command(self, name: str, *args: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        self.asked.append((name, *args))
        if name in self.failures:
            raise self.failures[name]
        match name:
            case "zrange":
                return [node.id.encode() for node in self.nodes][args[1] : args[2] + 1]
            case "hmget":
                return [msgspec.json.encode(node) for node in self.nodes if node.id.encode() in args[1]]
            case "hget" if args[0] == self.keys.nodes:
                return next((msgspec.json.encode(node) for node in self.nodes if node.id == args[1]), None)
            case "zadd" if self.mends:
                self.mends -= 1
                raise errors.ProtocolError("another type", code="fleet.malformed")
            case "time":
                return [b"0", b"0"]
            case "hget" | "xrange":
                return self.rows.get(name if name == "xrange" else args[-1], [] if name == "xrange" else None)
        return 1

    async def script(self, text: str, keys: Sequence[str], args: Sequence[Any], *, follow: bool = True) -> list[Any]:
        await anyio.lowlevel.checkpoint()
        if text == ATTACH:
            self.attaches += 1
            self.attached(self.attaches)
            return [b"OK", *self.place]
        if text == CREATE:
            self.begun = [*args]
        return [b"OK"]

    async def follow(self, channel: str, heard: Callable[[bytes], object]) -> None:
        await anyio.lowlevel.checkpoint()

    async def read(self, key: str, cursor: int, *, count: int = 64) -> list[Entry]:
        await anyio.lowlevel.checkpoint()
        return [Entry(1, "1.w", Kind.OWNER, b"{}")] if self.has_worker and not cursor else []

    async def call(self, session: str, call: Call) -> Reply:
        await anyio.lowlevel.checkpoint()
        match call:
            case Renew():
                return self.renewed
            case Take():
                return Taken()
            case Append():
                return Appended(call.first + len(call.entries) - 1, 0)
        return Synced("1.w", 0, 0, 0)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Answering:
    """The broker that a client gets."""
    made = Answering(BrokerAddress(URL))
    monkeypatch.setattr(Broker, "shared", lambda _address: made)
    return made


async def connect(**request: Any) -> FleetStream:
    return await FleetConnectable(BrokerAddress(URL), SessionRequest(**request), close_timeout=0.1).connect()


async def leave(**request: Any) -> None:
    """Connect, and leave the session at once."""
    await (await connect(**request)).detach()


def woken(broker: Answering) -> list[str]:
    return [each[1].rpartition(":")[2] for each in broker.asked if each[0] == "publish"]


async def test_the_best_worker_is_woken_about_a_new_session(broker: Answering) -> None:
    broker.nodes = [Node(id="full", load=1), Node(id="one", capacity=9), Node(id="two", capacity=8)]
    stream = await connect()
    await stream.detach()
    assert woken(broker) == ["one"]
    assert [each[2] for each in broker.asked if each[0] == "publish"] == [stream.session]
    assert not any("homes" in str(each) for each in broker.asked)


async def test_the_worker_that_had_the_workspace_is_woken_first(broker: Answering) -> None:
    broker.nodes = [Node(id="one", capacity=9), Node(id="two", capacity=8)]
    for home, wakes in ((b"two", "two"), (b"\xff", "one"), (None, "one")):
        broker.asked.clear()
        broker.rows = {"project": home}
        await leave(wanted=Wanted(workspace="project"))
        assert woken(broker) == [wakes]


async def test_a_client_without_a_worker_wakes_nobody(broker: Answering) -> None:
    await leave()
    assert woken(broker) == []


@pytest.mark.parametrize("failure", [BrokerCut("gone"), errors.ProtocolError("refused", code="fleet.refused")])
async def test_a_worker_that_cannot_be_woken_is_no_error(broker: Answering, failure: Exception, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "claude_transport")
    broker.failures["publish"] = failure
    await wake_node(broker, "one", about=("S",))
    assert caplog.messages == [f"a worker was not woken: {failure}"]


async def test_a_table_that_the_broker_refuses_to_read_is_told(broker: Answering) -> None:
    broker.failures["zrange"] = errors.ProtocolError("refused", code="fleet.refused")
    with pytest.raises(errors.CLIConnectionError) as caught:
        await connect()
    assert (caught.value.code, str(caught.value)) == ("fleet.refused", f"{BrokerAddress(URL)}: refused")


@virtual_time
async def test_a_queue_of_another_type_is_tried_again_twice_a_second(broker: Answering) -> None:
    broker.mends = 5
    began = anyio.current_time()
    await leave()
    assert 2.5 <= anyio.current_time() - began < 3
    assert sum(each[0] == "zadd" for each in broker.asked) == 6


@pytest.mark.parametrize(("versions", "said"), [((), "none"), (tuple(range(90, 130)), "90, 91, 92, 93, 94, 95, 96, 97")])
async def test_the_versions_of_workers_that_do_not_fit_are_told_up_to_eight(
    broker: Answering, versions: tuple[int, ...], said: str
) -> None:
    broker.nodes = [Node(id="one", versions=versions)]
    with pytest.raises(errors.CLIConnectionError) as caught:
        await connect()
    assert (caught.value.code, caught.value.retryable) == ("fleet.version", False)
    assert f"read version {said} of the format of a fleet, and this library knows version 1:" in str(caught.value)


async def test_a_session_begins_with_the_version_that_its_workers_read(broker: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("claude_transport.fleet.placement.FLEET_VERSIONS", (1, 2))
    broker.nodes = [Node(id="one", versions=(2, 7))]
    await leave()
    token, lease, unclaimed, *fields = broker.begun
    named = dict(zip(fields[::2], fields[1::2], strict=True))
    assert (lease, unclaimed, named["v"], msgspec.json.decode(named["q"])["version"]) == (60_000, 86_400_000, 2, 2)
    assert (str(token)[:2], "kp" in named) == ("1.", False)


# Coming back.


@virtual_time
async def test_a_client_whose_place_is_taken_gets_a_moment_to_tell_what_it_has_read(broker: Answering) -> None:
    broker.place = [b"2.c", 0, 0, 2, 4, b"1.w", b"live", 0, 1]

    def attached(number: int) -> None:
        broker.place[3] = 4 if number > 5 else 2

    broker.attached = attached
    began = anyio.current_time()
    stream = await connect(session="S")
    assert (stream.position, broker.attaches) == (4, 7)  # and once more, to end the moment
    assert 0.04 < anyio.current_time() - began < 0.1
    await stream.detach()


@virtual_time
async def test_a_client_that_does_not_tell_what_it_has_read_is_waited_for_no_longer_than_a_moment(broker: Answering) -> None:
    broker.place = [b"2.c", 0, 0, 2, 4, b"1.w", b"live", 0, 1]
    began = anyio.current_time()
    stream = await connect(session="S")
    assert stream.position == 2
    assert 0.3 < anyio.current_time() - began < 0.4
    await stream.detach()


@virtual_time
@pytest.mark.parametrize(
    ("place", "request_"),
    [
        ([b"2.c", 0, 0, 4, 4, b"1.w", b"live", 0, 1], {}),
        ([b"2.c", 0, 0, 2, 4, b"1.w", b"live", 0, 0], {}),
        ([b"2.c", 0, 0, 2, 4, b"1.w", b"live", 0, 1], {"since": 3}),
    ],
    ids=["it has told all", "it is gone", "it is known what was read"],
)
async def test_nobody_is_waited_for_without_need(broker: Answering, place: list[Any], request_: dict[str, Any]) -> None:
    broker.place = place
    began = anyio.current_time()
    await leave(session="S", **request_)
    assert anyio.current_time() - began < 0.01


async def test_an_entry_of_a_worker_that_is_gone_may_have_been_replaced(broker: Answering) -> None:
    """It is not kept, and the worker that has the session now began before it."""
    broker.place = [b"2.c", 0, 0, 4, 4, b"2.v", b"live", 2, 0]
    with pytest.raises(errors.ReplayGap, match="has lost what the session said up to the position 4"):
        await connect(session="S", since=4, said_by="1.w")
    for since, said_by in ((4, "2.v"), (4, "")):
        await leave(session="S", since=since, said_by=said_by)
    broker.place = [b"2.c", 0, 0, 2, 4, b"2.v", b"live", 2, 0]
    await leave(session="S", since=2, said_by="1.w")


@pytest.mark.parametrize("renewed", [Renewed(60.0), Fenced("3.c")], ids=["still there", "replaced"])
async def test_what_another_client_has_read_meanwhile_is_no_gap_for_a_client_that_it_has_replaced(
    broker: Answering, renewed: Reply
) -> None:
    broker.renewed = renewed
    with pytest.raises(errors.ClaudeTransportError) as caught:
        await connect(session="S", since=2)
    gone = type(caught.value) is errors.ReplayGap
    assert (gone, caught.value.code) == ((True, "protocol.replay_gap") if renewed == Renewed(60.0) else (False, "fleet.fenced"))


async def test_a_session_of_another_version_is_refused_on_one_short_line(broker: Answering) -> None:
    broker.rows = {"v": b"\x1b" * 1000}
    with pytest.raises(errors.CLIConnectionError) as caught:
        await connect(session="\x1b" * 1000)
    assert (caught.value.code, caught.value.retryable, broker.attaches) == ("fleet.version", False, 0)
    assert str(caught.value).startswith("the session " + "\\x1b" * 16)
    assert "has version " + "\\x1b" * 4 in str(caught.value)
    assert len(str(caught.value)) < 300


# The transport.


@virtual_time
async def test_a_transport_closes_in_its_time_though_the_process_does_not_end(broker: Answering) -> None:
    transport = FleetTransport(URL, close_timeout=7.0)
    await transport.connect()
    began = anyio.current_time()
    await transport.close()
    assert anyio.current_time() - began == pytest.approx(7, abs=0.3)


@virtual_time
async def test_a_transport_is_closed_by_force_a_second_after_its_time(broker: Answering) -> None:
    broker.hangs = True
    transport = FleetTransport(URL, close_timeout=7.0)
    await transport.connect()
    began = anyio.current_time()
    await transport.close()
    assert anyio.current_time() - began == pytest.approx(8, abs=0.3)


@virtual_time
async def test_a_transport_waits_for_a_worker_as_long_as_it_may(broker: Answering) -> None:
    broker.has_worker = False
    began = anyio.current_time()
    with pytest.raises(errors.ConnectTimeout) as caught:
        await FleetTransport(URL, start_timeout=7.0).connect()
    assert str(caught.value) == f"{BrokerAddress(URL)}: no worker took the session in 7 s"
    assert (caught.value.waited, round(anyio.current_time() - began, 3)) == (7.0, 7.0)


async def test_a_transport_that_has_left_its_session_is_not_ready(broker: Answering) -> None:
    transport = FleetTransport(URL)
    await transport.connect()
    assert transport.is_ready()
    await transport.detach()
    assert not transport.is_ready()
