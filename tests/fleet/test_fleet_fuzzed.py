"""A seeded client writes junk into every key that it can name: its own session ends with a typed error or goes on, and the others go on."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from broker_server import BrokerServer
from programs import ECHO, numbered, read, serving

from claude_transport import errors
from claude_transport.fleet import FleetRegistry, FleetTransport, FleetWorker
from claude_transport.fleet.broker import Broker, BrokerAddress
from claude_transport.fleet.scripts import FleetKeys
from claude_transport.observing import observe

KEYS = FleetKeys("claude-fleet")
VICTIMS = 10
"""Sessions of the hostile client in one round."""

FIELDS = [*"vsxqkp", "we", "wb", "wo", "wi", "wn", "wu", "ce", "cb", "ci", "co", "cu", "tt", "td", "ts", "wf", "cw", "kp", "sid"]
STRANGE = [b"", b"\xff\xfe", b"-1", b"0", b"1", b"nan", b"inf", b"-inf", b"1e308", b"9" * 15, b"9" * 40, b"0x10", b" 7 ", b"7.5", b"\n"]
RECORDS = [b"{", b"[]", b'{"version":1,"labels":7}', b'{"capacity":0,"id":"w"}', b'"\\ud800"', b"[" * 5000, b"x" * 300_000, b"2.a", b"%s"]
VALUES = STRANGE + RECORDS
NUMBERS = ("*", "1-0", "1-1", "7-0", "999999999999999-0", "999999999999999999-0", "18446744073709551615-18446744073709551615")

Command = tuple[Any, ...]


class Hostile:
    """Makes the commands of one hostile client."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def value(self) -> bytes:
        return self.rng.choice(VALUES)

    def of_a_session(self, session: str) -> list[Command]:
        """Spoil one of its keys."""
        rng = self.rng
        meta, incoming, outgoing = KEYS.meta(session), KEYS.incoming(session), KEYS.outgoing(session)
        key = rng.choice((meta, meta, incoming, incoming, outgoing, KEYS.setup(session)))
        return rng.choice((self.retyped, self.retyped, self.filled if key != meta else self.changed, self.gone))(key)

    def of_all(self) -> list[Command]:
        """Spoil a key that all share."""
        rng = self.rng
        names = [self.value() for _ in range(3)]
        return rng.choice(
            (
                [("zadd", KEYS.queue, {name: rng.choice((0.0, -1.0, 1e308, float("-inf"))) for name in names})],
                [("zadd", KEYS.sessions, {name: rng.choice((0.0, -1.0, float("-inf"))) for name in names})],
                [("hset", KEYS.nodes, {name: self.value() for name in names})],
                [("hset", KEYS.homes, {name: self.value() for name in names})],
                [("publish", KEYS.wake("w"), self.value()) for _ in range(20)],
                self.retyped(rng.choice((KEYS.queue, KEYS.homes))),
            )
        )

    def gone(self, key: str) -> list[Command]:
        return [("delete", [key])]

    def changed(self, key: str) -> list[Command]:
        return [("hset", key, {self.rng.choice(FIELDS): self.value() for _ in range(self.rng.randint(1, 3))})]

    def filled(self, key: str) -> list[Command]:
        fields = {self.rng.choice((b"e", b"k", b"d", b"w", b"\xff")): self.value() for _ in range(self.rng.randint(1, 4))}
        added: list[Command] = [("xadd", key, self.rng.choice(NUMBERS), fields) for _ in range(self.rng.randint(1, 3))]
        return [*added, ("publish", key, self.rng.choice((b"", self.value(), self.message())))]

    def message(self) -> bytes:
        """What tells of entries, or nearly."""
        size = self.rng.choice((0, 7, 7, 7, 999_999))
        number, token = self.rng.choice((0, 1, 2, 3, 10**15 - 1)), self.rng.choice(("1.a", "0.", "9.b", "x"))
        return b"%d %b %b:%d\n" % (number, token.encode(), self.rng.choice((b"d", b"p", b"o", b"e", b"Z")), size) + b'{"n":0}'

    def retyped(self, key: str) -> list[Command]:
        made: list[Command] = [
            ("set", key, self.value()),
            ("hset", key, {self.value(): self.value()}),
            ("zadd", key, {self.value(): 0.0}),
            ("rpush", key, [self.value()]),
            ("xadd", key, "*", {b"e": self.value()}),
        ]
        return [("delete", [key]), self.rng.choice(made)]


async def carry_out(connection: Broker, commands: list[Command]) -> None:
    """Call each of them; the server may refuse it."""
    for name, *arguments in commands:
        try:
            await connection.command(name, *arguments)
        except errors.ProtocolError:
            pass


async def converse(transport: FleetTransport, number: int) -> None:
    await transport.write(b'{"n":%d}' % number)
    assert await read(transport.read_messages(), 1) == numbered([number])


async def typed_or_well(work: Callable[[], Any]) -> None:
    """Do something with a spoilt session: it works, is not done in time, or raises an error of this library."""
    with anyio.move_on_after(1.0):
        try:
            await work()
        except (errors.ClaudeTransportError, StopAsyncIteration):
            pass


async def suffer(url: str, connection: Broker, hostile: Hostile) -> None:
    """Begin a session, spoil it, and use it."""
    transport = FleetTransport(url, close_timeout=0.5, start_timeout=20)
    await transport.connect()
    session = str(transport.session)
    messages = transport.read_messages()
    for _ in range(hostile.rng.randint(1, 3)):
        await carry_out(connection, hostile.of_a_session(session))
    await typed_or_well(lambda: transport.write('{"n":0}'))
    await typed_or_well(lambda: anext(messages))
    await typed_or_well(lambda: anext(observe(url, session=session, since=None)))
    await typed_or_well(FleetTransport(url, session=session, since=0, close_timeout=0.1).connect)
    await typed_or_well(transport.close)


async def play(broker: BrokerServer, seed: int) -> None:
    """One round: hostile sessions beside one that goes on, on one worker."""
    connection, hostile = Broker(BrokerAddress(broker.url)), Hostile(seed)
    await connection.start(timeout=10)
    worker = FleetWorker(broker.url, command=ECHO, name="w", capacity=100)
    async with serving(worker), FleetTransport(broker.url) as good, FleetRegistry(broker.url) as registry:
        await converse(good, 0)
        async with anyio.create_task_group() as tasks:
            for _ in range(VICTIMS):
                tasks.start_soon(suffer, broker.url, connection, Hostile(hostile.rng.getrandbits(32)))
        for number in range(1, 4):
            await carry_out(connection, hostile.of_all())
            await converse(good, number)
            await typed_or_well(registry.sessions)
            await typed_or_well(registry.nodes)
            await typed_or_well(registry.queue_length)
        async with FleetTransport(broker.url, start_timeout=30) as after:
            await converse(after, 9)
            await converse(good, 10)
        assert good.session in [each.id for each in await registry.sessions()]
    await connection.aclose()


@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(3, 40))])
async def test_junk_in_any_key_ends_no_other_session_and_no_worker(
    broker: BrokerServer, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    caplog.set_level(logging.INFO)
    with anyio.fail_after(90):
        await play(broker, seed)
    assert [each.getMessage() for each in caplog.records if each.exc_info] == []  # an unknown fault is logged with its trace
