"""A transport of the operator that raises an error of its own, in the middle of a session: it costs its session, and the client is told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import anyio
import pytest
from hostile_words import SHORTER, assert_lines_are_safe
from rehearsal import Talker, rehearsal

from claude_transport.errors import ConfigurationError, ConnectionLost
from claude_transport.gateway.arrival import Arrival
from claude_transport.gateway.gateway import Gateway
from claude_transport.link.machine import Ack, End, ProcessEnd
from claude_transport.streams.memory import memory_stream_pair
from claude_transport.transport import Client, SessionTerms
from claude_transport.transports.mock import MockTransport
from claude_transport.wrappers import TransportWrapper


class Breaking(MockTransport):
    """Raises an error of its own in one of its methods."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self._place = place

    async def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
        if self._place == "read":
            raise LookupError("the operator's own code")
        async for batch in super().read_lines():
            yield batch

    async def write(self, data: str | bytes) -> None:
        if self._place == "write":
            raise LookupError("the operator's own code")
        await super().write(data)

    async def end_input(self) -> None:
        if self._place == "end":
            raise LookupError("the operator's own code")
        await super().end_input()

    async def close(self) -> None:
        await super().close()
        if self._place == "close":
            raise LookupError("the operator's own code")


class Holding(TransportWrapper):
    """Holds prompts back, which a gateway cannot do."""

    def attach(self, client: Client) -> SessionTerms:
        async def before_prompt(line: bytes) -> bytes:
            return line

        return super().attach(client).with_before_prompt(before_prompt)


async def test_a_transport_that_holds_prompts_back_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    inside = MockTransport()
    async with rehearsal(launch=lambda _options: Holding(inside)) as stage:
        client = await stage.plain()
        assert b"config.invalid" in await client.rest()
        await stage.until(sessions=0)
    assert not inside.is_ready()
    assert "Gateway hands lines on as they come" in caplog.text


PLACES = ("read", "write", "end")


@pytest.mark.parametrize("place", PLACES)
async def test_a_client_of_a_link_is_told_that_its_process_failed(place: str, caplog: pytest.LogCaptureFixture) -> None:
    async with rehearsal(launch=lambda _options: Breaking(place)) as stage:
        client = await stage.link()
        if place == "write":
            await client.send_line(b"{}")
        elif place == "end":
            await client.frame(End(0))
        end = await client.hear_frame(ProcessEnd)
        assert "failed on the gateway" in (end.error or "")
        assert "operator" not in str(end.error)
        await client.frame(Ack(end.after + 1))
        await stage.until(sessions=0)
    assert "LookupError" in caplog.text


@pytest.mark.parametrize("place", PLACES)
async def test_the_connection_of_a_plain_session_ends(place: str, caplog: pytest.LogCaptureFixture) -> None:
    async with rehearsal(launch=lambda _options: Breaking(place)) as stage:
        client = await stage.plain()
        if place == "write":
            await client.say(b"{}")
        elif place == "end":
            await client.stream.send_eof()
        assert await client.rest() == b""
        await stage.until(sessions=0)
        assert stage.gateway.metrics.ended == {"failed": 1}
    assert "LookupError" in caplog.text


@pytest.mark.parametrize("mode", ["plain", "link"])
@pytest.mark.parametrize("drains", [True, False])
async def test_a_transport_that_fails_at_its_close_keeps_no_gateway_from_closing(mode: str, drains: bool) -> None:
    async with rehearsal(launch=lambda _options: Breaking("close")) as stage:
        for _ in range(2):
            await (stage.plain() if mode == "plain" else stage.link())
        await stage.until(sessions=2)
        with anyio.fail_after(30):
            if drains:
                await stage.gateway.drain()
                assert stage.gateway.sessions == ()
            await stage.gateway.aclose()
            await stage.gateway.wait_closed()


async def test_a_plain_session_whose_process_was_lost_has_failed_and_its_client_has_not_left(caplog: pytest.LogCaptureFixture) -> None:
    class Far(MockTransport):
        async def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
            raise ConnectionLost("the other machine is gone")
            yield ()

    async with rehearsal(launch=lambda _options: Far()) as stage:
        client = await stage.plain()
        assert await client.rest() == b""
        await stage.until(sessions=0)
        assert stage.gateway.metrics.ended == {"failed": 1}
    assert "reading from its process failed (ConnectionLost)" in caplog.text


@pytest.mark.parametrize("words", SHORTER.values(), ids=SHORTER)
async def test_the_failure_is_logged_in_one_line_whatever_the_client_is_called(words: str, caplog: pytest.LogCaptureFixture) -> None:
    async with rehearsal(tokens={}, launch=lambda _options: Breaking("read")) as stage, anyio.create_task_group() as tasks:
        ours, theirs = memory_stream_pair()
        tasks.start_soon(stage.gateway.attend, Arrival(ours, medium="memory", certified=words))
        await Talker(theirs).say(b"{}")
        assert await Talker(theirs).rest() == b""
    told = [record.getMessage() for record in caplog.records if record.exc_info]
    assert len(told) == 1
    assert_lines_are_safe(told)


@pytest.mark.parametrize("mode", ["plain", "link"])
async def test_a_process_that_cannot_be_closed_in_good_order_ends_its_session_all_the_same(mode: str) -> None:
    async with rehearsal(launch=lambda _options: Breaking("close")) as stage:
        client = await (stage.plain() if mode == "plain" else stage.link())
        await stage.until(sessions=1)
        if mode == "plain":
            await client.stream.send_eof()
            assert await client.rest() == b""
        else:
            await client.frame(End(0))
            await client.frame(Ack((await client.hear_frame(ProcessEnd)).after + 1))
        await client.stream.aclose()
        await stage.until(sessions=0)
        assert stage.gateway.metrics.ended == {"ended": 1}
        assert stage.gateway.metrics.refused == {}


def test_a_gateway_is_told_once_what_to_run_and_at_once_when_it_cannot_be_run() -> None:
    with pytest.raises(ConfigurationError, match="give one of them") as caught:
        Gateway(command=["true"], launch=lambda _options: MockTransport())
    assert (caught.value.code, caught.value.option) == ("config.invalid", "launch")
    with pytest.raises(ConfigurationError) as caught:
        Gateway(command=[])
    assert caught.value.option == "command"
