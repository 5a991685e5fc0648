"""What a broker that claims to be a cluster may say: it is bounded, and ends in a typed error."""

from __future__ import annotations

import contextlib
import itertools
import socket
from collections.abc import AsyncIterator

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from virtual_time import jumping

from claude_transport import errors
from claude_transport.fleet.broker import Broker, BrokerAddress, BrokerCut
from claude_transport.redis.slots import slot_of


class FakeNode:
    """A server that answers each command by a word in it, else with OK. `PORT` in an answer is its own port, `COUNT` grows."""

    def __init__(self, *, mode: bytes, replies: dict[bytes, bytes]) -> None:
        self.replies = {b"HELLO": b"%%1\r\n+mode\r\n+%b\r\n" % mode, **replies}
        self.asked: list[bytes] = []
        self._count = itertools.count(2)
        self.port = 0

    @contextlib.asynccontextmanager
    async def serving(self, *, user: str = "") -> AsyncIterator[Broker]:
        """A connection to it, not started."""
        async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
            self.port = listener.extra(SocketAttribute.local_port)
            tasks.start_soon(listener.serve, self._answer)
            connection = Broker(BrokerAddress(f"redis://{user}127.0.0.1:{self.port}/0"))
            try:
                yield connection
            finally:
                await connection.aclose()
                tasks.cancel_scope.cancel()

    async def _answer(self, client: SocketStream) -> None:
        async with client:
            with contextlib.suppress(anyio.BrokenResourceError):  # it may be given up before it has all answers
                await self._talk(client)

    async def _talk(self, client: SocketStream) -> None:
        async for said in client:
            for command in said.split(b"*")[1:]:
                word = next((word for word in self.replies if word in command), b"")
                self.asked.append(word)
                said = self.replies.get(word, b"+OK\r\n").replace(b"PORT", b"%d" % self.port)
                await client.send(said.replace(b"COUNT", b"%d" % next(self._count)) if b"COUNT" in said else said)


def slots(*rows: tuple[int, int, bytes, bytes]) -> bytes:
    """An answer to `CLUSTER SLOTS`: first, last, host, port."""
    said = [b"*3\r\n:%d\r\n:%d\r\n*2\r\n$%d\r\n%b\r\n:%b\r\n" % (first, last, len(host), host, port) for first, last, host, port in rows]
    return b"*%d\r\n" % len(rows) + b"".join(said)


ALL = slots((0, 16383, b"", b"PORT"))


async def test_a_single_server_that_names_another_one_is_not_followed_there() -> None:
    node = FakeNode(mode=b"standalone", replies={b"EVALSHA": b"-MOVED 1 127.0.0.1:1\r\n", b"HGET": b"-ASK 1 127.0.0.1:1\r\n"})
    async with node.serving() as connection:
        await connection.start(timeout=10)
        for call in (connection.command("hget", "key", "x"), connection.script("return {'OK'}", ["key"], [])):
            with pytest.raises(errors.ProtocolError, match=r"127\.0\.0\.1:1") as caught:
                await call
            assert caught.value.code in ("fleet.refused", "fleet.malformed")
        assert connection.is_connected


async def test_servers_that_send_a_call_from_one_to_the_other_without_end_cut_it() -> None:
    node = FakeNode(mode=b"cluster", replies={b"CLUSTER": ALL, b"HGET": b"-MOVED 1 :PORT\r\n", b"HLEN": b"-ASK 1 :PORT\r\n"})
    async with node.serving() as connection:
        await connection.start(timeout=10)
        for name, word in (("hget", b"HGET"), ("hlen", b"HLEN")):
            with pytest.raises(BrokerCut, match="from one to the other"), anyio.fail_after(20):
                await connection.command(name, "key", "x")
            assert node.asked.count(word) == 5
        assert connection.is_connected


async def test_a_session_is_not_called_on_another_server_before_both_streams_were_compared() -> None:
    """What is read and appended there may have been lost: only the caller can tell."""
    node = FakeNode(mode=b"cluster", replies={b"CLUSTER": ALL, b"XREAD": b"-MOVED 1 :PORT\r\n"})
    async with node.serving() as connection:
        await connection.start(timeout=10)
        with pytest.raises(BrokerCut, match="another server of the broker has the key now"):
            await connection.read("stream", 0)
        assert node.asked.count(b"XREAD") == 1


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        (b"*1\r\n*2\r\n:0\r\n:1\r\n", "fleet.broker_unreachable", "slots that cannot be read"),
        (slots((0, 16383, b"ho\nst", b"1")), "fleet.broker_unreachable", "name of a node that cannot be one"),
        (b"+OK\r\n", "fleet.broker_unreachable", "no list of slots"),
        (slots(*((n, n, b"10.0.0.1", b"%d" % (n + 1)) for n in range(1001))), "fleet.broker_unreachable", "1001 servers"),
        (b"-ERR unknown\r\n", "fleet.broker_unreachable", "unknown"),
        (b"-NOPERM User alice has no permissions to run the 'cluster|slots' command\r\n", "fleet.refused", "+cluster|slots"),
    ],
)
async def test_a_cluster_that_says_nothing_of_use_about_its_slots_is_an_error_at_once(said: bytes, code: str, words: str) -> None:
    node = FakeNode(mode=b"cluster", replies={b"CLUSTER": said})
    async with node.serving() as connection:
        with pytest.raises(errors.CLIConnectionError) as caught, anyio.fail_after(20):
            await connection.start(timeout=3600)
    assert (caught.value.code, words in str(caught.value)) == (code, True), caught.value


async def test_a_cluster_without_slots_is_waited_for() -> None:
    """As one that is being set up."""
    node = FakeNode(mode=b"cluster", replies={b"CLUSTER": b"*0\r\n"})
    async with node.serving() as connection:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: connection.start(timeout=3600))
            with anyio.fail_after(20):
                while node.asked.count(b"CLUSTER") < 3:
                    await anyio.lowlevel.checkpoint()
            assert not connection.is_connected
            node.replies[b"CLUSTER"] = ALL
        assert connection.is_connected


@pytest.mark.parametrize("word", [b"ASK", b"MOVED"])
async def test_redirections_name_no_more_servers_than_a_cluster_has(word: bytes) -> None:
    node = FakeNode(mode=b"cluster", replies={b"CLUSTER": ALL, b"HGET": b"-%b 1 127.0.0.1:COUNT\r\n" % word})
    refused: list[str] = []

    async def call() -> None:
        with contextlib.suppress(BrokerCut):  # nothing listens on these ports
            try:
                await connection.command("hget", "key", "x")
            except errors.ProtocolError as exc:
                refused.append(str(exc))

    async with node.serving() as connection:
        await connection.start(timeout=10)
        async with anyio.create_task_group() as tasks:
            for _ in range(100):
                tasks.start_soon(call)
            with anyio.fail_after(60):
                while not refused:
                    await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        assert set(refused) == {f"{connection.address} names more servers than a cluster has"}
        assert node.asked.count(b"HGET") >= 64


async def test_a_broker_that_changes_its_mode_is_not_used() -> None:
    node = FakeNode(mode=b"cluster", replies={b"CLUSTER": ALL})
    async with node.serving() as connection:
        await connection.start(timeout=10)
        node.replies[b"HELLO"] = b"%1\r\n+mode\r\n+standalone\r\n"
        node.replies[b"ECHO"] = b"?\r\n"  # no answer of a server: the connection is given up
        with pytest.raises(BrokerCut):
            await connection.command("echo", "x")
        with pytest.raises(errors.ConnectionLost) as caught:
            await connection.reached("S", patience=0.3)
        assert caught.value.code == "fleet.broker_lost"


async def test_a_server_of_a_cluster_that_does_not_know_sharded_channels_refuses_to_be_followed() -> None:
    """Redis 6. `doctor` names the version."""
    node = FakeNode(mode=b"cluster", replies={b"CLUSTER": ALL, b"SSUBSCRIBE": b"-ERR unknown command 'SSUBSCRIBE'\r\n"})
    async with node.serving() as connection:
        await connection.start(timeout=10)
        with pytest.raises(errors.ProtocolError, match="SSUBSCRIBE") as caught:
            await connection.follow("news", bool)
        assert caught.value.code == "fleet.refused"


def subscribed(name: bytes) -> bytes:
    """The answer to `SSUBSCRIBE`."""
    return b">3\r\n$10\r\nssubscribe\r\n$%d\r\n%b\r\n:1\r\n" % (len(name), name)


async def test_a_slot_that_has_moved_is_called_and_heard_where_it_is_before_the_map_is_known() -> None:
    heard: list[bytes] = []
    source = FakeNode(mode=b"cluster", replies={b"CLUSTER": ALL, b"SSUBSCRIBE": subscribed(b"news"), b"SUNSUBSCRIBE": b""})
    target = FakeNode(mode=b"cluster", replies={b"SSUBSCRIBE": subscribed(b"news"), b"HGET": b"$1\r\nx\r\n"})
    async with source.serving() as connection, target.serving():
        await connection.start(timeout=10)
        await connection.follow("news", heard.append)
        source.replies[b"CLUSTER"] = b""  # it does not answer this any more
        source.replies[b"HGET"] = b"-MOVED %d 127.0.0.1:%d\r\n" % (slot_of("news"), target.port)
        heard.clear()
        for _ in range(3):
            assert await connection.command("hget", "news", "field") == b"x"
        assert (source.asked.count(b"HGET"), target.asked.count(b"HGET")) == (1, 3)
        assert connection.generation_of("S") != (None, -1)
        with anyio.fail_after(20):
            while target.asked.count(b"SSUBSCRIBE") < 1 or len(heard) < 2:
                await anyio.lowlevel.checkpoint()
        assert set(heard) == {b""}  # what was told meanwhile was missed
        source.replies[b"SSUBSCRIBE"] = subscribed(b"weather")
        await connection.follow("weather", bool)  # it takes what it is told in order
        assert source.asked.count(b"SUNSUBSCRIBE") == 0  # it tells nobody any more by itself


async def test_a_channel_whose_slot_has_moved_to_a_server_that_is_known_is_heard_there_at_once() -> None:
    heard: list[bytes] = []
    slot = slot_of("news")
    target = FakeNode(mode=b"cluster", replies={b"SSUBSCRIBE": subscribed(b"news"), b"HGET": b"$1\r\nx\r\n"})
    source = FakeNode(mode=b"cluster", replies={b"SSUBSCRIBE": subscribed(b"news")})
    async with target.serving(), source.serving() as connection:
        source.replies[b"CLUSTER"] = slots((0, slot, b"", b"PORT"), (slot + 1, 16383, b"127.0.0.1", b"%d" % target.port))
        await connection.start(timeout=10)
        assert connection.is_connected
        await connection.follow("news", heard.append)
        assert heard == [b""]
        source.replies[b"CLUSTER"] = b""  # it does not answer this any more
        source.replies[b"HGET"] = b"-MOVED %d 127.0.0.1:%d\r\n" % (slot, target.port)
        assert await connection.command("hget", "news", "field") == b"x"
        with anyio.fail_after(20):
            while target.asked.count(b"SSUBSCRIBE") < 1 or len(heard) < 3:
                await anyio.lowlevel.checkpoint()
        assert heard == [b""] * 3  # it has moved, and is heard again: what was told before each of them was missed


async def test_a_channel_that_its_server_sends_elsewhere_is_followed_again_there_when_it_is_back() -> None:
    heard: list[bytes] = []
    moved = b"-MOVED %d :PORT\r\n" % slot_of("news")
    node = FakeNode(mode=b"cluster", replies={b"CLUSTER": ALL, b"SSUBSCRIBE": moved})
    async with node.serving() as connection:
        await connection.start(timeout=10)
        with pytest.raises(BrokerCut, match="another server of the broker has the channel now"):
            await connection.follow("news", heard.append)
        with anyio.fail_after(20):
            while node.asked.count(b"SSUBSCRIBE") < 4:
                await anyio.lowlevel.checkpoint()
            node.replies[b"SSUBSCRIBE"] = subscribed(b"news")
            while not heard:
                await anyio.lowlevel.checkpoint()
        assert set(heard) == {b""}


async def test_a_channel_that_a_server_ends_by_itself_is_followed_again_when_the_map_is_known() -> None:
    """As it does when the slot of the channel is given away."""
    heard: list[bytes] = []
    node = FakeNode(mode=b"cluster", replies={b"CLUSTER": ALL, b"SSUBSCRIBE": subscribed(b"news")})
    async with node.serving() as connection:
        await connection.start(timeout=10)
        await connection.follow("news", heard.append)
        ended = b">3\r\n$12\r\nsunsubscribe\r\n$4\r\nnews\r\n:0\r\n"
        node.replies[b"SSUBSCRIBE"] = subscribed(b"weather") + ended
        await connection.follow("weather", bool)
        node.replies[b"SSUBSCRIBE"] = subscribed(b"news")
        with anyio.fail_after(20):
            while len(heard) < 2:
                await anyio.lowlevel.checkpoint()
        assert (node.asked.count(b"SSUBSCRIBE"), heard) == (3, [b"", b""])


@jumping(idle=0.05)
async def test_a_call_that_is_sent_to_a_server_that_says_nothing_is_cut_in_its_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        node = FakeNode(mode=b"cluster", replies={b"CLUSTER": ALL, b"HGET": b"-ASK 1 127.0.0.1:%d\r\n" % mute.getsockname()[1]})
        async with node.serving() as connection:
            await connection.start(timeout=10)
            began = anyio.current_time()
            with anyio.fail_after(3600), pytest.raises(BrokerCut, match="is not connected"):
                await connection.command("hget", "key", "field")
            assert anyio.current_time() - began == pytest.approx(5.0, abs=1.0)


async def test_a_server_that_gets_its_first_slots_keeps_its_connection_while_the_map_is_learnt() -> None:
    source = FakeNode(mode=b"cluster", replies={b"CLUSTER": ALL, b"HLEN": b"-MOVED 1 :PORT\r\n"})
    target = FakeNode(mode=b"cluster", replies={b"HGET": b"$1\r\nx\r\n", b"ASKING": b"+OK\r\n"})
    async with source.serving() as connection, target.serving():
        await connection.start(timeout=10)
        source.replies[b"HGET"] = b"-ASK 1 127.0.0.1:%d\r\n" % target.port
        assert await connection.command("hget", "key", "field") == b"x"
        for known in range(2, 5):
            with pytest.raises(BrokerCut):
                await connection.command("hlen", "key")  # the map may be old
            with anyio.fail_after(20):
                while source.asked.count(b"CLUSTER") < known:
                    await anyio.lowlevel.checkpoint()
            assert await connection.command("hget", "key", "field") == b"x"
        assert (target.asked.count(b"ASKING"), target.asked.count(b"HGET"), target.asked.count(b"HELLO")) == (4, 4, 2)


async def test_a_cluster_that_repeats_the_password_does_not_get_it_into_an_error_or_the_log_of_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", logger="claude_transport")
    node = FakeNode(mode=b"cluster", replies={b"CLUSTER": ALL, b"XREAD": b"-MOVED 1 hunter-two:1\r\n"})
    async with node.serving(user="me:hunter-two@") as connection:
        await connection.start(timeout=10)
        node.replies[b"CLUSTER"] = b"-ERR hunter-two\r\n"
        with pytest.raises(BrokerCut, match=r"has the key now: MOVED 1 \*\*\*:1") as caught:
            await connection.read("stream", 0)
        with anyio.fail_after(20):
            while "does not say where the slots of the cluster are" not in caplog.text:
                await anyio.lowlevel.checkpoint()
    assert "are: ERR ***" in caplog.text
    assert "hunter" not in f"{caught.value!r} {caught.value.__cause__!r}"
