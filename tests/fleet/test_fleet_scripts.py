"""The scripts on a real server: fences, gaps, repeated numbers, leases by the server's clock, and what a lost second leaves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from broker_server import BrokerServer

from claude_transport.fleet.answers import text_of
from claude_transport.fleet.broker import Broker, BrokerAddress
from claude_transport.fleet.messages import Append, Appended, Fenced, Gap, Gone, Renew, Renewed, Side, Sync, Synced, Take, Taken
from claude_transport.fleet.scripts import ATTACH, CLAIM, CREATE, DISCARD, RELEASE

CLIENT, WORKER = Side.CLIENT, Side.WORKER
ENTRY = ("d", b"{}\n")


class Scripts:
    """The scripts of one session, `S`."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.keys = [broker.keys.meta("S"), broker.keys.incoming("S"), broker.keys.outgoing("S")]

    async def run(self, script: str, *args: Any, keys: int = 3) -> list[Any]:
        answer = await self.broker.script(script, self.keys[:keys], args)
        return [each if isinstance(each, list) else text_of(each) for each in answer]

    async def ask(self, call: Any) -> Any:
        return await self.broker.call("S", call)

    async def begin(self, *, lease: int = 60_000) -> None:
        await self.run(CREATE, "1.c", 60_000, 60_000, keys=1)
        assert (await self.run(CLAIM, "w", "node", lease))[0] == "OK"


@asynccontextmanager
async def scripts(server: BrokerServer) -> AsyncIterator[Scripts]:
    broker = Broker(BrokerAddress(server.url))
    await broker.start(timeout=10)
    try:
        yield Scripts(broker)
    finally:
        await broker.aclose()


async def test_an_append_is_refused_by_its_token_and_by_its_number(broker: BrokerServer) -> None:
    async with scripts(broker) as session:
        await session.begin()
        assert await session.ask(Append(WORKER, "1.w", 1, [ENTRY, ENTRY])) == Appended(2, 0, 0)
        assert await session.ask(Append(WORKER, "1.w", 1, [ENTRY, ENTRY, ENTRY])) == Appended(3, 0, 0)
        assert await session.ask(Append(WORKER, "1.w", 5, [ENTRY])) == Gap(3, 0)
        assert await session.ask(Append(WORKER, "0.x", 4, [ENTRY])) == Fenced("1.w")
        assert await session.broker.command("xlen", session.keys[2]) == 3


async def test_each_call_of_a_session_that_is_not_there_is_told_so(broker: BrokerServer) -> None:
    async with scripts(broker) as session:
        for call in (
            Append(WORKER, "1.w", 1, [ENTRY]),
            Take(CLIENT, "1.c", 1),
            Sync(CLIENT, "1.c", 0, ""),
            Renew(WORKER, "1.w", 1),
        ):
            assert await session.ask(call) == Gone()
        for script, args in ((ATTACH, ("n", 1, "", 1)), (CLAIM, ("n", "w", 1)), (RELEASE, ("1.w", "ended", 1)), (DISCARD, ("1.c",))):
            assert await session.run(script, *args) == ["GONE"]


async def test_a_session_has_one_worker_until_its_lease_is_over(broker: BrokerServer) -> None:
    async with scripts(broker) as session:
        await session.begin(lease=300)
        held = await session.run(CLAIM, "v", "other", 60_000)
        assert held[:2] == ["HELD", "node"]
        while (answer := await session.run(CLAIM, "v", "other", 60_000))[0] == "HELD":
            pass  # bounded by the clock of the server
        fields = dict(zip(map(text_of, answer[1][::2]), map(text_of, answer[1][1::2]), strict=True))
        assert (fields["we"], fields["wn"]) == ("2.v", "other")
        assert await session.ask(Append(WORKER, "1.w", 1, [ENTRY])) == Fenced("2.v")
        assert await session.ask(Take(WORKER, "1.w", 1)) == Fenced("2.v")
        assert await session.ask(Renew(WORKER, "1.w", 9)) == Fenced("2.v")
        assert isinstance(await session.ask(Renew(WORKER, "2.v", 9)), Renewed)


async def test_a_claim_that_is_said_twice_is_one_claim(broker: BrokerServer) -> None:
    async with scripts(broker) as session:
        await session.begin()
        again = await session.run(CLAIM, "w", "node", 60_000)
        assert again[0] == "OK"
        assert b"1.w" in again[1]
        first = await session.run(ATTACH, "d", 60_000, "", 1, keys=1)
        assert first == await session.run(ATTACH, "d", 60_000, "", 1, keys=1)
        assert first[1] == "2.d"


async def test_what_was_taken_leaves_the_stream_and_its_number_stays(broker: BrokerServer) -> None:
    async with scripts(broker) as session:
        await session.begin()
        await session.ask(Append(CLIENT, "1.c", 1, [ENTRY] * 3))
        assert await session.ask(Take(WORKER, "1.w", 2, 5)) == Taken()
        assert await session.broker.command("xlen", session.keys[1]) == 1
        assert await session.ask(Append(CLIENT, "1.c", 4, [ENTRY])) == Appended(4, 2, 2)
        assert await session.broker.command("hget", session.keys[0], "tt") == b"5"
        assert await session.ask(Take(WORKER, "1.w", 4)) == Taken()
        assert await session.ask(Append(CLIENT, "1.c", 5, [ENTRY])) == Appended(5, 4, 4)


async def test_the_writer_hears_what_the_process_of_this_worker_has_received(broker: BrokerServer) -> None:
    async with scripts(broker) as session:
        await session.run(CREATE, "1.c", 60_000, 60_000, "cw", 100, keys=1)
        assert (await session.run(CLAIM, "w", "node", 60_000))[0] == "OK"
        await session.ask(Append(CLIENT, "1.c", 1, [ENTRY] * 5))
        assert await session.ask(Take(WORKER, "1.w", 2, fed=0)) == Taken(100)
        assert await session.ask(Sync(CLIENT, "1.c", 0, "")) == Synced("1.w", 0, 5, 2, 0)
        await session.ask(Append(WORKER, "1.w", 1, [], fed=2))
        assert await session.ask(Append(CLIENT, "1.c", 6, [ENTRY])) == Appended(6, 2, 2)
        await session.ask(Take(WORKER, "1.w", 4, fed=1))  # said before, cut, and late
        assert await session.ask(Sync(CLIENT, "1.c", 0, "")) == Synced("1.w", 0, 6, 4, 2)
        assert await session.run(RELEASE, "1.w", "live", 60_000) == ["OK"]
        assert (await session.run(CLAIM, "v", "next", 60_000))[0] == "OK"
        # the next worker begins behind what was taken
        assert await session.ask(Sync(CLIENT, "1.c", 0, "")) == Synced("2.v", 0, 6, 4, 4)


async def test_of_a_worker_that_does_not_tell_what_its_process_received_the_takes_count(broker: BrokerServer) -> None:
    async with scripts(broker) as session:
        await session.begin()
        await session.ask(Append(CLIENT, "1.c", 1, [ENTRY] * 3))
        assert await session.ask(Take(WORKER, "1.w", 2)) == Taken()
        assert await session.ask(Append(CLIENT, "1.c", 4, [ENTRY])) == Appended(4, 2, 2)


async def test_nothing_takes_the_number_of_an_entry_that_was_read_and_lost(broker: BrokerServer) -> None:
    async with scripts(broker) as session:
        await session.begin()
        await session.ask(Append(WORKER, "1.w", 1, [ENTRY]))
        # the client has read up to 3, of which the broker has lost 2 and 3
        assert await session.ask(Sync(CLIENT, "1.c", 3, "1.w")) == Synced("1.w", 0, 0, 0, 0)
        assert await session.ask(Append(WORKER, "1.w", 2, [ENTRY, ENTRY, ENTRY])) == Appended(4, 3, 3)
        assert await session.broker.command("xlen", session.keys[2]) == 2  # 1 and 4


async def test_turns_of_which_the_broker_has_lost_the_prompt_count_as_begun(broker: BrokerServer) -> None:
    async with scripts(broker) as session:
        await session.begin()
        # the worker has read a prompt 1, which the broker has lost: the next worker does not find it
        assert await session.ask(Sync(WORKER, "1.w", 1, "1.c", heard=1)) == Synced("1.c", 0, 0, 0, 0)
        assert await session.broker.command("hmget", session.keys[0], ["wi", "tt"]) == [b"1", b"1"]
        assert await session.ask(Sync(WORKER, "1.w", 1, "1.c", heard=5)) == Synced("1.c", 0, 0, 0, 0)
        assert await session.broker.command("hget", session.keys[0], "tt") == b"1"


async def test_a_turn_of_which_the_broker_has_lost_the_result_is_not_over(broker: BrokerServer) -> None:
    async with scripts(broker) as session:
        await session.begin()
        call = Sync(WORKER, "1.w", 0, "", begun=1, over=1, stored=1, said=1)
        assert await session.ask(call) == Synced("1.c", 0, 0, 0, 0)
        assert await session.broker.command("hmget", session.keys[0], ["tt", "td", "ts"]) == [b"1", None, None]
        await session.ask(Append(WORKER, "1.w", 1, [ENTRY]))
        assert await session.ask(call) == Synced("1.c", 0, 1, 0, 0)
        assert await session.broker.command("hmget", session.keys[0], ["tt", "td", "ts"]) == [b"1", b"1", b"1"]


async def test_what_was_taken_before_a_newer_writer_came_is_written_down_again(broker: BrokerServer) -> None:
    async with scripts(broker) as session:
        await session.begin()
        await session.ask(Append(CLIENT, "1.c", 1, [ENTRY] * 2))
        assert (await session.run(ATTACH, "d", 60_000, "", 1, keys=1))[1] == "2.d"
        await session.ask(Append(CLIENT, "2.d", 3, [ENTRY]))
        # the worker has read and taken 1 to 3 of the older client, of which the broker has lost 3, and that 1 and 2 were taken
        assert await session.ask(Sync(WORKER, "1.w", 3, "1.c", taken=3)) == Synced("2.d", 2, 0, 0, 0)
        assert await session.broker.command("hmget", session.keys[0], ["wi", "ci"]) == [b"2", b"3"]


async def test_what_a_client_has_taken_before_it_read_anything_is_written_down_again(broker: BrokerServer) -> None:
    async with scripts(broker) as session:
        await session.begin()
        await session.ask(Append(WORKER, "1.w", 1, [ENTRY] * 2))
        # a client that has come back behind 2 has told so, and the broker has lost it
        assert await session.ask(Sync(CLIENT, "1.c", 2, "", taken=2)) == Synced("1.w", 0, 0, 0, 0)
        assert await session.ask(Append(WORKER, "1.w", 3, [ENTRY])) == Appended(3, 2, 2)


async def test_a_worker_whose_claim_the_broker_has_lost_is_fenced_with_its_elder(broker: BrokerServer) -> None:
    async with scripts(broker) as session:
        await session.begin()
        # the client has seen entries of a claim `2.v` that is lost
        assert await session.ask(Sync(CLIENT, "1.c", 5, "2.v")) == Synced("2.lost-w", 5, 0, 0, 0)
        assert await session.ask(Append(WORKER, "1.w", 1, [ENTRY])) == Fenced("2.lost-w")
        assert await session.ask(Append(WORKER, "2.v", 6, [ENTRY])) == Fenced("2.lost-w")
        assert (await session.run(CLAIM, "u", "third", 60_000))[0] == "OK"
        assert await session.ask(Append(WORKER, "3.u", 6, [ENTRY])) == Appended(6, 5, 5)


async def test_an_end_that_has_read_what_a_replaced_writer_has_said_goes_on_behind_it(broker: BrokerServer) -> None:
    async with scripts(broker) as session:
        await session.begin()
        await session.ask(Append(WORKER, "1.w", 1, [ENTRY] * 3))
        # the client has seen an entry of a claim `1.v` that is lost, and goes back to where `1.w` began
        assert await session.ask(Sync(CLIENT, "1.c", 1, "1.v", taken=1)) == Synced("1.lost-w", 0, 0, 0, 0)
        assert await session.ask(Sync(CLIENT, "1.c", 1, "1.v", taken=1)) == Synced("1.lost-w", 0, 0, 0, 0)
        assert await session.broker.command("hget", session.keys[0], "co") == b"0"
        assert await session.ask(Sync(CLIENT, "1.c", 3, "1.w", taken=2)) == Synced("1.lost-w", 3, 0, 0, 0)
        assert await session.broker.command("hget", session.keys[0], "co") == b"2"


async def test_only_one_with_the_right_secret_takes_the_place_of_a_client(broker: BrokerServer) -> None:
    import hashlib

    async with scripts(broker) as session:
        await session.run(CREATE, "1.c", 60_000, 60_000, "k", hashlib.sha1(b"shown").hexdigest(), keys=1)
        assert await session.run(ATTACH, "d", 60_000, "other", 1, keys=1) == ["DENIED"]
        assert await session.run(ATTACH, "d", 60_000, "", 1, keys=1) == ["DENIED"]
        assert (await session.run(ATTACH, "d", 60_000, "shown", 1, keys=1))[0] == "OK"


async def test_a_session_that_a_worker_has_cannot_be_discarded(broker: BrokerServer) -> None:
    async with scripts(broker) as session:
        await session.begin()
        assert await session.run(DISCARD, "1.c") == ["LIVE"]
        assert await session.run(RELEASE, "1.w", "ended", 60_000) == ["OK"]
        assert await session.run(CLAIM, "v", "other", 60_000) == ["ENDED"]
        assert await session.broker.command("pttl", session.keys[0]) > 0


@pytest.mark.parametrize("session", ["abc", "0f0f"])
async def test_the_keys_of_a_session_are_on_one_node_of_a_cluster(broker: BrokerServer, session: str) -> None:
    async with scripts(broker) as all_of:
        keys = all_of.broker.keys
        names = (keys.meta(session), keys.incoming(session), keys.outgoing(session))
        assert {name[name.index("{") : name.index("}") + 1] for name in names} == {f"{{claude-fleet:{session}}}"}
