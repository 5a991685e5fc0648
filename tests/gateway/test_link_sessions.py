"""Sessions in link mode: they outlive their connections, lose nothing, and end when they should."""

from __future__ import annotations

import logging
import sys

import anyio
import pytest
from rehearsal import ALICE, Talker, rehearsal
from virtual_time import virtual_time

from claude_transport.gateway.gateway import Gateway
from claude_transport.link.machine import Ack, Bye, Data, End, Hello, Ping, Pong, ProcessEnd, Refusal, Welcome
from claude_transport.serving.door import GatewayLimits
from claude_transport.transports.network import NetworkTransport


async def test_lines_travel_both_ways_as_bytes_with_positions() -> None:
    async with rehearsal() as stage:
        client = await stage.link()
        process = await stage.processes.next()
        welcome = await client.hear_frame(Welcome)
        assert welcome.lease == 60.0
        await client.frame(Data(0, b'{"to":"the process"}\n'))
        assert await process.hear() == b'{"to":"the process"}'
        assert (await client.hear_frame(Ack)).position == 21
        await process.say({"to": "the client"})
        assert await client.hear_frame(Data) == Data(0, b'{"to": "the client"}\n')


async def test_a_client_that_was_cut_off_gets_what_it_missed_and_nothing_twice() -> None:
    async with rehearsal() as stage:
        client = await stage.link()
        process = await stage.processes.next()
        key = (await client.hear_frame(Welcome)).session
        await process.say(b'{"n":1}', b'{"n":2}')
        assert [await client.hear_line() for _ in range(2)] == [b'{"n":1}', b'{"n":2}']
        client.stream.break_connection()
        await process.say(b'{"n":3}')
        again = await stage.link(session=key, received=11)
        assert (await again.hear_frame(Welcome)).session == key
        assert [await again.hear_line() for _ in range(2)] == [b'":2}', b'{"n":3}']  # the bytes behind the eleventh
        assert "claude_transport_gateway_resumed_total 1\n" in stage.gateway.prometheus_text()
        assert len(stage.gateway.sessions) == 1


async def test_a_session_counts_as_taken_up_again_when_its_client_was_welcome() -> None:
    async with rehearsal() as stage:
        client = await stage.link()
        process = await stage.processes.next()
        key = (await client.hear_frame(Welcome)).session
        wrong = await stage.link(session=key, received=99)
        assert (await wrong.hear_frame(Refusal)).code == "malformed"
        assert stage.gateway.metrics.resumed == 0
        again = await stage.link(session=key)
        await again.hear_frame(Welcome)
        await process.say(b'{"n":1}')
        assert await again.hear_line() == b'{"n":1}'
        assert stage.gateway.metrics.resumed == 1


async def test_a_line_that_is_said_again_reaches_the_process_once() -> None:
    async with rehearsal() as stage:
        client = await stage.link()
        process = await stage.processes.next()
        key = (await client.hear_frame(Welcome)).session
        await client.frame(Data(0, b'{"n":1}\n'))
        assert await process.hear() == b'{"n":1}'
        again = await stage.link(session=key)
        assert (await again.hear_frame(Welcome)).received == 8
        await again.frame(Data(0, b'{"n":1}\n'))
        await again.frame(Data(4, b'":1}\n{"n":2}\n'))
        assert await process.hear() == b'{"n":2}'


async def test_a_line_may_come_over_many_connections() -> None:
    line = b'{"text":"%b"}\n' % (b"x" * 50)
    async with rehearsal() as stage:
        client = await stage.link()
        process = await stage.processes.next()
        key = (await client.hear_frame(Welcome)).session
        received = 0
        while received < len(line):
            await client.stream.send(b"D %d %d\n" % (received, len(line) - received) + line[received : received + 7])
            with anyio.fail_after(30):
                while received < len(line) and (await client.hear_frame(Ack)).position <= received:
                    pass
            client.stream.break_connection()
            client = await stage.link(session=key)
            received = (await client.hear_frame(Welcome)).received
        assert await process.hear() == line[:-1]


async def test_a_newer_connection_takes_the_place_of_one_that_only_seems_alive() -> None:
    async with rehearsal() as stage:
        client = await stage.link()
        process = await stage.processes.next()
        key = (await client.hear_frame(Welcome)).session
        again = await stage.link(session=key)
        await again.hear_frame(Welcome)
        assert await client.rest() == b""
        await process.say(b'{"n":1}')
        assert await again.hear_line() == b'{"n":1}'


async def test_of_connections_that_come_at_once_one_has_the_place_and_no_other_waits_for_it() -> None:
    async with rehearsal() as stage:
        client = await stage.link()
        process = await stage.processes.next()
        key = (await client.hear_frame(Welcome)).session
        rivals = [stage.connect(), stage.connect()]
        async with anyio.create_task_group() as tasks:
            for rival in rivals:
                tasks.start_soon(rival.frame, Hello(version=1, token=ALICE, session=key))
        shown_out: list[Talker] = []
        async with anyio.create_task_group() as tasks:

            async def rest(rival: Talker) -> None:
                await rival.rest()
                shown_out.append(rival)
                tasks.cancel_scope.cancel()

            for rival in rivals:
                tasks.start_soon(rest, rival)
        await client.rest()
        await process.say(b'{"n":1}')
        (winner,) = [rival for rival in rivals if rival not in shown_out]
        assert await winner.hear_line() == b'{"n":1}'


async def test_the_end_of_the_process_reaches_the_client_after_its_last_line() -> None:
    async with rehearsal() as stage:
        client = await stage.link()
        process = await stage.processes.next()
        await process.say(b'{"last":"line"}')
        await process.stream.aclose()
        assert await client.hear_line() == b'{"last":"line"}'
        end = await client.hear_frame(ProcessEnd)
        assert (end.after, end.failed) == (16, False)
        await client.frame(Ack(17))
        assert isinstance(await client.hear_frame(Bye), Bye)
        await stage.until(sessions=0)


@pytest.mark.parametrize("ending", ["aclose", "drain"])
async def test_a_client_learns_that_the_gateway_ended_its_session(ending: str) -> None:
    async with rehearsal() as stage:
        client = await stage.link()
        process = await stage.processes.next()
        await process.say(b'{"n":1}')
        assert await client.hear_line() == b'{"n":1}'
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(getattr(stage.gateway, ending))
            end = await client.hear_frame(ProcessEnd)
            await client.frame(Ack(end.after + 1))
            bye = await client.hear_frame(Bye)
            await client.stream.aclose()
            assert end == ProcessEnd(after=8, code="closed_by_server", error="the gateway has closed the session, because it ends")
            assert bye == Bye(code="closed_by_server", reason="the gateway has closed the session, because it ends")


async def test_a_process_that_broke_off_is_told_from_one_that_ended() -> None:
    async with rehearsal() as stage:
        client = await stage.link()
        process = await stage.processes.next()
        process.stream.break_connection()
        assert (await client.hear_frame(ProcessEnd)).error == "reading from the process failed on the gateway (ConnectionLost)"


async def test_a_torn_last_line_of_the_process_stays_torn() -> None:
    async with rehearsal() as stage:
        client = await stage.link()
        process = await stage.processes.next()
        await process.stream.send(b'{"n":1}\n{"n":')
        await process.stream.aclose()
        assert await client.hear_line() == b'{"n":1}'
        assert await client.hear_data(5) == b'{"n":'
        assert (await client.hear_frame(ProcessEnd)).after == 13


async def test_the_end_of_the_process_says_which_lines_it_was_given_and_not_what_was_held_of_one() -> None:
    async with rehearsal() as stage:
        client = await stage.link()
        process = await stage.processes.next()
        await client.frame(Data(0, b'{"n":1}\n{"n":'))
        assert (await client.hear_frame(Ack)).position == 13
        assert await process.hear() == b'{"n":1}'
        await process.stream.aclose()
        assert (await client.hear_frame(ProcessEnd)).accepted == 8


async def test_the_end_of_input_is_a_frame_and_the_output_goes_on() -> None:
    async with rehearsal() as stage:
        client = await stage.link()
        process = await stage.processes.next()
        await client.frame(End(0))
        assert await process.rest() == b""
        await process.say(b'{"still":"there"}')
        assert await client.hear_line() == b'{"still":"there"}'


async def test_a_last_line_without_its_newline_reaches_the_process_if_it_is_whole_and_counts_as_accepted_only_then() -> None:
    whole, torn = b'{"n":1}\n{"n":2}', b'{"n":1}\n{"n":'
    for said, reaches, accepted in ((whole, whole + b"\n", len(whole) + 1), (torn, b'{"n":1}\n', 8)):
        async with rehearsal() as stage:
            client = await stage.link()
            process = await stage.processes.next()
            await client.frame(Data(0, said))
            await client.frame(End(len(said)))
            assert await process.rest() == reaches
            await process.stream.aclose()
            assert (await client.hear_frame(ProcessEnd)).accepted == accepted


async def test_a_goodbye_ends_the_process_at_once() -> None:
    async with rehearsal() as stage:
        client = await stage.link()
        process = await stage.processes.next()
        await client.hear_frame(Welcome)
        await client.send_line(b'{"last":"words"}')
        await client.frame(Bye(reason="closed"))
        assert await process.hear() == b'{"last":"words"}'
        assert await process.rest() == b""
        assert isinstance(await client.hear_frame(ProcessEnd), ProcessEnd)
        client.stream.break_connection()
        await stage.until(sessions=0)
        assert stage.gateway.metrics.ended == {"client": 1}


@virtual_time
async def test_a_session_whose_client_does_not_come_back_ends_with_its_lease(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "claude_transport")
    async with rehearsal(limits=GatewayLimits(lease=300.0)) as stage:
        client = await stage.link()
        process = await stage.processes.next()
        await client.hear_frame(Welcome)
        began = anyio.current_time()
        client.stream.break_connection()
        assert await process.rest(patience=1000) == b""
        await stage.until(sessions=0)
        assert anyio.current_time() - began == pytest.approx(300.0, abs=1.0)
        assert stage.gateway.metrics.ended == {"lease": 1}
    ended = [vars(record) for record in caplog.records if getattr(record, "gateway_event", "") == "session_ended"]
    assert [(each["gateway_reason"], each["message"].partition(": ")[2]) for each in ended] == [("lease", "over (lease)")]


async def test_a_connection_that_its_client_closed_is_told_from_one_that_broke(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "claude_transport")
    async with rehearsal() as stage:
        client = await stage.link()
        process = await stage.processes.next()
        key = (await client.hear_frame(Welcome)).session
        await client.stream.aclose()
        again = await stage.link(session=key)
        await again.hear_frame(Welcome)
        again.stream.break_connection()
        await process.say(b'{"n":1}')
        await (await stage.link(session=key)).hear_line()
    over = [record.getMessage().partition("has ended ")[2] for record in caplog.records if "connection has ended" in record.getMessage()]
    assert over[0] == "(closed by the client)"
    assert "closed by the client" not in over[1]


@virtual_time
async def test_a_client_that_comes_back_in_time_has_a_whole_lease_again() -> None:
    async with rehearsal(limits=GatewayLimits(lease=300.0)) as stage:
        client = await stage.link()
        process = await stage.processes.next()
        key = (await client.hear_frame(Welcome)).session
        client.stream.break_connection()
        await anyio.sleep(299)
        again = await stage.link(session=key)
        await again.hear_frame(Welcome)
        again.stream.break_connection()
        await anyio.sleep(299)
        assert len(stage.gateway.sessions) == 1
        await process.say(b'{"n":1}')
        assert await process.rest(patience=1000) == b""
        await stage.until(sessions=0)


@virtual_time
async def test_a_client_that_reads_on_later_than_the_lease_gets_all_that_an_ended_process_said() -> None:
    async with rehearsal(limits=GatewayLimits(lease=10.0, heartbeat=15.0)) as stage:
        client = await stage.link(window=1000)
        process = await stage.processes.next()
        await process.say(b"x" * 5000)
        await process.stream.aclose()
        said = await client.hear_data(1000)
        for number in range(10):  # nothing is read, and the connection stays intact
            await anyio.sleep(10)
            await client.frame(Ping(number))
        for position in range(1000, 6000, 1000):
            await client.frame(Ack(position))
            said += await client.hear_data(min(1000, 5001 - position))
        assert said == b"x" * 5000 + b"\n"
        await client.frame(Ack((await client.hear_frame(ProcessEnd)).after + 1))
        await stage.until(sessions=0)


@virtual_time
async def test_a_client_that_fell_silent_is_asked_and_then_given_up() -> None:
    async with rehearsal(limits=GatewayLimits(heartbeat=20.0)) as stage:
        client = await stage.link()
        await stage.processes.next()
        await client.hear_frame(Welcome)
        began = anyio.current_time()
        said = await client.rest()
        assert said.startswith(b"P 1\n")
        assert anyio.current_time() - began <= 60.0
        assert [session.attached for session in stage.gateway.sessions] == [False]


async def test_who_has_missed_more_than_can_be_said_again_is_told_of_the_gap() -> None:
    async with rehearsal() as stage:
        client = await stage.link()
        process = await stage.processes.next()
        key = (await client.hear_frame(Welcome)).session
        await process.say(b'{"n":1}')
        await client.hear_line()
        await client.frame(Ack(8))
        await process.say(b'{"n":2}')
        await client.hear_line()
        again = await stage.link(session=key, received=0)
        assert (await again.hear_frame(Refusal)).code == "replay_gap"


async def test_a_process_that_says_more_than_is_kept_waits_for_its_client() -> None:
    async with rehearsal(limits=GatewayLimits(replay_bytes=1000)) as stage:
        client = await stage.link()
        process = await stage.processes.next()
        key = (await client.hear_frame(Welcome)).session
        client.stream.break_connection()
        said = 0
        line = b'{"text":"%s"}' % (b"x" * 50_000)
        with anyio.move_on_after(0.2):
            while True:
                await process.say(line)
                said += 1
        assert said < 10
        assert len(stage.gateway.sessions) == 1
        again = await stage.link(session=key, window=2**20)
        for number in range(1, said + 1):
            assert await again.hear_line() == line
            await again.frame(Ack(number * (len(line) + 1)))


async def test_a_line_that_is_larger_than_what_is_kept_follows_piece_by_piece() -> None:
    line = b'{"text":"%s"}' % b"".join(b"%06d" % number for number in range(50_000))
    async with rehearsal(limits=GatewayLimits(replay_bytes=1000)) as stage, anyio.create_task_group() as tasks:
        client = await stage.link(window=2**20)
        process = await stage.processes.next()
        await client.hear_frame(Welcome)
        tasks.start_soon(process.say, line)
        received = b""
        while len(received) <= len(line):
            received += (await client.hear_frame(Data)).data
            await client.frame(Ack(len(received)))
        assert received == line + b"\n"
        await anyio.wait_all_tasks_blocked()
        assert stage.gateway.metrics.lines["out"] == 1


async def test_no_more_of_a_line_is_kept_than_one_piece_before_the_client_acknowledges() -> None:
    async with rehearsal(limits=GatewayLimits(replay_bytes=1000)) as stage, anyio.create_task_group() as tasks:
        client = await stage.link(window=2**20)
        process = await stage.processes.next()
        await client.hear_frame(Welcome)
        tasks.start_soon(process.say, b'{"text":"%s"}' % (b"x" * 300_000))
        received: list[int] = []

        async def hear() -> None:
            while True:
                received.append(len((await client.hear_frame(Data)).data))

        tasks.start_soon(hear)
        await anyio.wait_all_tasks_blocked()
        assert 1000 <= sum(received) <= 64 * 2**10
        await client.frame(Ack(sum(received)))
        before = sum(received)
        await anyio.wait_all_tasks_blocked()
        assert before < sum(received) <= before + 64 * 2**10
        tasks.cancel_scope.cancel()


async def test_the_token_of_somebody_else_opens_no_session_of_mine() -> None:
    async with rehearsal() as stage:
        client = await stage.link()
        process = await stage.processes.next()
        key = (await client.hear_frame(Welcome)).session
        thief = await stage.link(token="bob-has-another-one-987654321", session=key)
        refusal = await thief.hear_frame(Refusal)
        guess = await stage.link(session="no such key")
        assert refusal == await guess.hear_frame(Refusal)  # the same words: they must not show whether the session exists
        assert (refusal.code, ALICE in refusal.text) == ("session", False)
        await process.say(b'{"n":1}')
        assert await client.hear_line() == b'{"n":1}'


async def test_lines_in_any_script_get_through_a_websocket_wherever_they_are_cut() -> None:
    # longer than a frame, so that frames end inside characters
    lines = [b'{"text":"%b"}' % (text * 30_000).encode() for text in ("é", "€", "\U0001f600", "\u2028x")]
    async with Gateway(listen=["ws://127.0.0.1:0"], command=["cat"]) as gateway, NetworkTransport(gateway.urls[0]) as transport:
        heard: list[bytes] = []
        with anyio.fail_after(60):
            for line in lines:
                await transport.write(line)
            await transport.end_input()
            async for batch in transport.read_lines():
                heard += batch
    assert heard == lines


async def test_a_client_gets_no_more_last_words_than_32768_characters() -> None:
    die = "import sys; sys.exit('first' + 40_000 * 'x' + 'last')"
    async with rehearsal(launch=None, command=[sys.executable, "-c", die]) as stage:
        client = await stage.link()
        end = await client.hear_frame(ProcessEnd)
        await client.frame(Ack(end.after + 1))
        await stage.until(sessions=0)
    assert end.stderr_tail.rstrip().endswith("xlast")
    assert 30_000 < len(end.stderr_tail) <= 2**15


async def test_last_words_leave_the_gateway_without_its_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "x-route: Bearer Bramble-Curlew-1137\nx-team: Hyssop Dunlin 2248")
    die = "import os, sys; sys.exit('out of coffee: ' + os.environ['ANTHROPIC_CUSTOM_HEADERS'] + ' Bramble-Curlew-1137')"
    async with rehearsal(launch=None, command=[sys.executable, "-c", die]) as stage:
        client = await stage.link()
        end = await client.hear_frame(ProcessEnd)
        await client.frame(Ack(end.after + 1))
        await stage.until(sessions=0)
    assert end.exit_code == 1
    assert end.stderr_tail.startswith("out of coffee")
    assert "Curlew" not in end.stderr_tail
    assert "Dunlin" not in end.stderr_tail


@virtual_time
async def test_ten_idle_minutes_leave_no_minute_without_a_byte_from_the_gateway() -> None:
    async with rehearsal(limits=GatewayLimits(heartbeat=20.0)) as stage:
        client = await stage.link()
        process = await stage.processes.next()
        await client.hear_frame(Welcome)
        began = anyio.current_time()
        while anyio.current_time() < began + 600.0:
            asked = anyio.current_time()
            ping = await client.hear_frame(Ping)
            assert 15.0 <= anyio.current_time() - asked <= 30.0
            await client.frame(Pong(ping.id))
        await process.say(b'{"n":1}')
        assert await client.hear_line() == b'{"n":1}'


async def test_the_last_input_of_a_client_that_says_goodbye_and_disconnects_reaches_the_process() -> None:
    async with rehearsal() as stage:
        client = await stage.link()
        process = await stage.processes.next()
        await client.hear_frame(Welcome)
        line = b'{"last":"' + b"w" * 60_000 + b'"}'
        for _ in range(8):
            await client.send_line(line)
        await client.frame(Bye(reason="closed"))
        await client.stream.aclose()
        assert await process.rest() == (line + b"\n") * 8
        await stage.until(sessions=0)
        assert stage.gateway.metrics.ended == {"client": 1}


async def test_a_client_is_told_when_its_process_has_said_more_than_it_may() -> None:
    async with rehearsal(limits=GatewayLimits(session_bytes=1000)) as stage:
        client = await stage.link()
        process = await stage.processes.next()
        await process.say({"text": "x" * 1000})
        bye = await client.hear_frame(Bye)
        assert (bye.code, stage.gateway.metrics.refused) == ("session_bytes", {"session_bytes": 1})
        end = await client.hear_frame(ProcessEnd)
        assert end.error is not None
        assert "bytes" in end.error
        await client.frame(Ack(end.after + 1))
        await stage.until(sessions=0)
        assert stage.gateway.metrics.ended == {"session_bytes": 1}


async def test_a_limit_that_both_directions_pass_is_told_and_counted_once(caplog: pytest.LogCaptureFixture) -> None:
    async with rehearsal(limits=GatewayLimits(session_bytes=1000)) as stage:
        client = await stage.link()
        process = await stage.processes.next()
        await process.say({"text": "x" * 900})
        await client.send_line(b'{"text":"' + b"x" * 900 + b'"}')
        await process.say({"text": "x" * 900})
        assert (await client.hear_frame(Bye)).code == "session_bytes"
        end = await client.hear_frame(ProcessEnd)
        await client.frame(Ack(end.after + 1))
        await stage.until(sessions=0)
        assert stage.gateway.metrics.refused == {"session_bytes": 1}
    assert caplog.text.count("has carried more than") == 1


async def test_a_client_of_an_older_protocol_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("claude_transport.gateway.arrival.LINK_VERSION", 2)
    async with rehearsal() as stage:
        client = stage.connect()
        await client.frame(Hello(version=1, token=ALICE))
        refusal = await client.hear_frame(Refusal)
        assert (refusal.code, refusal.text, refusal.retryable) == (
            "malformed",
            "the client speaks an older link protocol than version 2 of this gateway",
            False,
        )
        assert stage.gateway.metrics.refused == {"malformed": 1}
