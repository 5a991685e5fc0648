"""A real gateway, behind a network that cuts every connection after a few bytes: each line arrives once, in order, in both directions."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest
from rehearsal import ALICE, BOB, TOKENS, rehearsal
from relay import Cut, Relay, relay_to

import claude_transport as ct
from claude_transport.protocol.envelope import encode_line

SESSIONS = 10  # at once, each with its own seed
CUTS = 18  # of each session; with three ways to cut and two event loops that is 1080 in all
AHEAD = 40  # lines sent before their echoes are back
PADS = (0, 20, 100, 300, 8000)  # bytes; the last one is longer than a connection carries in one direction


class Storm:
    """Yields after how many bytes each connection of a session is cut, by its seed, until there were enough cuts."""

    def __init__(self, seed: int, *, where: str) -> None:
        self._random = random.Random(seed)
        self._where = where
        self._first = True

    def __call__(self, cuts: int) -> Cut | None:
        if cuts >= CUTS:
            return None
        # the first one must reach the welcome: a client cannot come back to a session that it does not know
        least = 1500 if self._first else 1
        self._first = False
        up, down = (self._random.randrange(least, least + 3000) for _ in range(2))
        hard = self._random.random() < 0.5
        return Cut(up if self._where != "down" else None, down if self._where != "up" else None, hard)


class Session:
    """A client that talks to an echo until its connection was cut often enough."""

    def __init__(self, name: int, *, token: str) -> None:
        self.token = token
        self.sent: list[bytes] = []
        self.heard: list[bytes] = []
        self._random = random.Random(name)
        self._name = name
        self._progress = anyio.Event()

    async def live(self, relay: Relay) -> None:
        transport = ct.NetworkTransport(relay.url, token=self.token)
        async with transport, anyio.create_task_group() as tasks:
            tasks.start_soon(self._talk, transport, relay)
            async for batch in transport.read_lines():
                self.heard += batch
                self._progress.set()
        assert transport.info.exit_code == 0

    async def _talk(self, transport: ct.NetworkTransport, relay: Relay) -> None:
        while relay.cuts < CUTS:
            pad = "x" * self._random.choice(PADS)
            self.sent.append(b'{"session":%d,"n":%d,"pad":"%b"}' % (self._name, len(self.sent), pad.encode()))
            await transport.write(self.sent[-1])
            while len(self.sent) - len(self.heard) >= AHEAD:
                self._progress = anyio.Event()
                await self._progress.wait()
        await transport.end_input()


def echoes(folder: Path) -> Callable[[ct.ClaudeOptions], ct.Transport]:
    """Return a launch of echo processes, which also write their input to files in this folder."""
    numbers: Iterator[int] = itertools.count()
    return lambda options: ct.SubprocessTransport(options, command=["tee", str(folder / f"heard-{next(numbers)}")])


@pytest.mark.parametrize("where", ["up", "down", "anywhere"])
async def test_a_thousand_cuts_lose_nothing_and_double_nothing_in_either_direction(tmp_path: Path, where: str) -> None:
    sessions = [Session(seed, token=(ALICE, BOB)[seed % 2]) for seed in range(SESSIONS)]
    async with ct.Gateway(listen=["tcp://127.0.0.1:0"], tokens=TOKENS, launch=echoes(tmp_path)) as gateway:

        async def live(seed: int, session: Session) -> None:
            async with relay_to(gateway.urls[0], cut_next=Storm(seed, where=where)) as relay:
                await session.live(relay)
                assert relay.cuts >= CUTS

        with anyio.fail_after(120):
            async with anyio.create_task_group() as tasks:
                for seed, session in enumerate(sessions):
                    tasks.start_soon(live, seed, session)
        assert gateway.metrics.sessions == {"link": SESSIONS}
        assert not gateway.metrics.refused
    by_first_line = {bytes(lines[0]): lines for lines in (path.read_bytes().splitlines() for path in tmp_path.glob("heard-*"))}
    for session in sessions:
        assert session.heard == session.sent
        assert by_first_line[session.sent[0]] == session.sent
    assert len(by_first_line) == SESSIONS


async def test_a_hello_that_is_cut_off_starts_nothing_and_is_nobodys_mistake() -> None:
    async with rehearsal() as stage:
        whole = b"H " + encode_line({"version": 1, "token": ALICE})[:-1]
        for length in (1, 2, 3, 10, len(whole)):
            client = stage.connect()
            await client.stream.send(whole[:length])
            await client.stream.send_eof()
            assert await client.rest() == b""
        assert stage.processes.options == []
        assert not stage.gateway.metrics.refused
