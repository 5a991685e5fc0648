"""The resumable link between two hosts, of which one falls silent, and over a network that loses packets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from anyio.abc import ByteStream, ByteStreamConnectable
from namespaces import FarHost, what_is_missing

from claude_transport.backoff import Backoff
from claude_transport.link.carrier import LinkConnectable
from claude_transport.transports.stream import StreamTransport

MISSING = what_is_missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING and MISSING.value))

SERVER = str(Path(__file__).with_name("echoing_peer.py"))


@pytest.fixture
def far_host() -> Iterator[FarHost]:
    host = FarHost(os.getpid())
    try:
        host.set_up()
        yield host
    finally:
        host.tear_down()


class Dial(ByteStreamConnectable):
    """Opens connections to a far port, and says when it was asked for the third time."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._asked = 0
        self.asked_thrice = anyio.Event()

    async def connect(self) -> ByteStream:
        self._asked += 1
        if self._asked == 3:
            self.asked_thrice.set()
        return await anyio.connect_tcp(self._host, self._port)


def line(number: int, size: int = 0) -> bytes:
    return b'{"n":%d,"pad":"%b"}' % (number, b"x" * size)


async def talk(transport: StreamTransport, first: int, last: int, *, size: int = 0) -> list[bytes]:
    """Say the lines of a range; what came back until the last of them had."""
    heard: list[bytes] = []
    async with anyio.create_task_group() as tasks:

        async def say() -> None:
            for number in range(first, last):
                await transport.write(line(number, size))

        tasks.start_soon(say)
        async for batch in transport.read_lines():
            heard += batch
            if heard[-1] == line(last - 1, size):
                break
    return heard


async def test_a_host_that_falls_silent_is_noticed_and_the_session_goes_on_when_it_is_back(far_host: FarHost) -> None:
    with far_host.running(SERVER, far_host.address) as port, anyio.fail_after(30):
        dial = Dial(far_host.address, int(port))
        link = LinkConnectable(dial, heartbeat=0.3, connect_timeout=0.5, close_timeout=2.0, backoff=Backoff(first=0.1, maximum=0.2))
        async with StreamTransport(link) as transport:
            heard = await talk(transport, 0, 50)
            await anyio.to_thread.run_sync(far_host.partition)
            async with anyio.create_task_group() as tasks:

                async def heal_when_noticed() -> None:
                    await dial.asked_thrice.wait()  # it was noticed, and one attempt was in vain
                    await anyio.to_thread.run_sync(far_host.heal)

                tasks.start_soon(heal_when_noticed)
                heard += await talk(transport, 50, 100)
            await transport.end_input()
            assert [batch async for batch in transport.read_lines()] == []
        assert heard == [line(number) for number in range(100)]
        assert transport.info.exit_code == 0


async def test_a_network_that_loses_packets_loses_no_lines(far_host: FarHost) -> None:
    with far_host.running(SERVER, far_host.address) as port, anyio.fail_after(30):
        dial = Dial(far_host.address, int(port))
        async with StreamTransport(LinkConnectable(dial, heartbeat=2.0)) as transport:
            missing = await anyio.to_thread.run_sync(far_host.lose_packets)
            if missing is not None:
                pytest.skip(missing.value)
            heard = await talk(transport, 0, 200, size=5000)
            assert heard == [line(number, 5000) for number in range(200)]
            assert await anyio.to_thread.run_sync(far_host.lost_packets) > 0
