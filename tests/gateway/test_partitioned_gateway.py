"""A network between a gateway and a client goes silent without closing: both ends notice, and nothing is lost.

Once with a relay that stops carrying, on every machine; once with two network namespaces and a cable, where root may make them.
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from network.namespaces import FarHost, what_is_missing
from rehearsal import ALICE, TOKENS
from relay import BOTH_WAYS, Direction, relay_to

import claude_transport as ct

pytestmark = pytest.mark.filterwarnings("ignore:the token for .* is sent unencrypted:UserWarning")  # the cable is the test's own

HEARTBEAT = 0.3  # seconds: silence is noticed after two of them
PATIENCE = 60.0
FAR_GATEWAY = str(Path(__file__).with_name("far_gateway.py"))
SYN_SENT = "02"  # of /proc/net/tcp


class Conversation:
    """Lines sent to an echo, and the lines that came back so far."""

    def __init__(self, transport: ct.NetworkTransport) -> None:
        self.transport = transport
        self.sent: list[bytes] = []
        self.heard: list[bytes] = []
        self._progress = anyio.Event()

    async def read(self) -> None:
        async for batch in self.transport.read_lines():
            self.heard += batch
            self._progress.set()

    async def say(self, lines: int) -> None:
        for _ in range(lines):
            self.sent.append(b'{"n":%d}' % len(self.sent))
            await self.transport.write(self.sent[-1])

    async def everything_is_heard(self) -> None:
        while len(self.heard) < len(self.sent):
            self._progress = anyio.Event()
            await self._progress.wait()


@asynccontextmanager
async def conversation(url: str) -> AsyncIterator[Conversation]:
    """A conversation that runs inside the block, and has ended well behind it."""
    with anyio.fail_after(PATIENCE):
        async with ct.NetworkTransport(url, token=ALICE, heartbeat=HEARTBEAT, connect_timeout=15.0) as transport:
            talk = Conversation(transport)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(talk.read)
                await talk.say(20)
                await talk.everything_is_heard()
                yield talk
                await talk.everything_is_heard()
                await transport.end_input()
        assert transport.info.exit_code == 0


@pytest.mark.parametrize(
    ("directions", "late"),
    [(BOTH_WAYS, False), (BOTH_WAYS, True), (frozenset({"up"}), True), (frozenset({"down"}), True)],
    ids=["both-lost", "both-late", "up-late", "down-late"],
)
async def test_a_silence_is_noticed_and_the_session_goes_on_behind_it(tmp_path: Path, directions: frozenset[Direction], late: bool) -> None:
    heard = tmp_path / "heard"
    limits = ct.gateway.GatewayLimits(heartbeat=HEARTBEAT, lease=PATIENCE)
    async with (
        ct.Gateway(command=["tee", str(heard)], listen=["tcp://127.0.0.1:0"], tokens=TOKENS, limits=limits) as gateway,
        relay_to(gateway.urls[0]) as relay,
    ):
        async with conversation(relay.url) as talk:
            asked = relay.asked
            relay.fall_silent(directions)
            await talk.say(20)
            await relay.until(lambda: relay.asked > asked)  # no end closed anything: the client has noticed by itself
            if directions == BOTH_WAYS:
                while gateway.sessions[0].attached:  # and so does the gateway
                    await anyio.lowlevel.checkpoint()
            await talk.say(20)
            assert len(talk.heard) < len(talk.sent)
            relay.heal(late=late)
        assert talk.heard == talk.sent
        assert gateway.metrics.sessions == {"link": 1}
        assert gateway.metrics.resumed >= 1
    assert heard.read_bytes().splitlines() == talk.sent


@pytest.fixture
def far_host() -> Iterator[FarHost]:
    missing = what_is_missing()
    if missing is not None:
        pytest.skip(missing.value)
    host = FarHost(os.getpid())
    try:
        host.set_up()
        yield host
    finally:
        host.tear_down()


async def test_two_hosts_whose_cable_swallows_everything_for_a_while_miss_nothing(far_host: FarHost, tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    with far_host.running(FAR_GATEWAY, far_host.address, ALICE, str(heard)) as url:
        async with conversation(url) as talk:
            await anyio.to_thread.run_sync(far_host.partition)
            await talk.say(20)
            while not calls_in_vain(far_host.address):  # the client has noticed, and tries to come back
                await anyio.lowlevel.checkpoint()
            await talk.say(20)
            assert len(talk.heard) == 20
            await anyio.to_thread.run_sync(far_host.heal)
    assert talk.heard == talk.sent
    assert heard.read_bytes().splitlines() == talk.sent


def calls_in_vain(host: str) -> bool:
    """Return True while a process on this machine waits for this host to accept a connection."""
    number = socket.inet_aton(host)[::-1].hex().upper()
    rows = (row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return any(row[2].startswith(f"{number}:") and row[3] == SYN_SENT for row in rows)
