"""What a server says, read in any pieces, and bounded whatever it is; and the connection that carries it."""

from __future__ import annotations

import functools
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from broker_server import BrokerServer
from virtual_time import jumping

from claude_transport.redis.address import RedisAddress
from claude_transport.redis.client import RespConnection, RespCut
from claude_transport.redis.resp import MAX_REPLY_BYTES, RespError, RespParser, RespPush, encode_command
from claude_transport.streams.sockets import dial

SAID: list[tuple[bytes, Any]] = [
    (b"+OK\r\n", b"OK"),
    (b":-7\r\n", -7),
    (b"$-1\r\n", None),
    (b"_\r\n", None),
    (b"#t\r\n", True),
    (b",1.5\r\n", 1.5),
    (b"(12345678901234567890123\r\n", b"12345678901234567890123"),
    (b"$0\r\n\r\n", b""),
    (b"$4\r\na\r\nb\r\n", b"a\r\nb"),
    (b"=7\r\ntxt:abc\r\n", b"abc"),
    (b"*0\r\n", []),
    (b"*-1\r\n", None),
    (b"%2\r\n+a\r\n:1\r\n+b\r\n*2\r\n:1\r\n_\r\n", [b"a", 1, b"b", [1, None]]),
    (b"~1\r\n*1\r\n*1\r\n$1\r\nx\r\n", [[[b"x"]]]),
]


def shown(value: Any) -> Any:
    """A value that can be compared."""
    if isinstance(value, RespError):
        return "error", str(value), value.code
    return ("push", value.items) if isinstance(value, RespPush) else value


@pytest.mark.parametrize("seed", range(20))
def test_answers_are_the_same_in_whatever_pieces_they_come(seed: int) -> None:
    rng = random.Random(seed)
    chosen = [rng.choice(SAID) for _ in range(50)]
    data = b"".join(said for said, _ in chosen) + b"-WRONGTYPE no\r\n!5\r\nERR x\r\n>2\r\n+message\r\n$1\r\nm\r\n"
    parser, found = RespParser(), []
    while data:
        size = rng.randint(1, 12)
        found += parser.feed(data[:size])
        data = data[size:]
    ends = [("error", "WRONGTYPE no", "WRONGTYPE"), ("error", "ERR x", "ERR"), ("push", [b"message", b"m"])]
    assert [*map(shown, found)] == [*(value for _, value in chosen), *ends]


@pytest.mark.parametrize("seed", range(200))
def test_bytes_that_are_no_answer_raise_one_error_only(seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(b"".join(said for said, _ in rng.sample(SAID, len(SAID))))
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(data))
        data[at : at + rng.randint(0, 2)] = rng.choice((b"", b"\xff", b"9", b"-", b"\r\n", b"*", b"$", b"%", b">", rng.randbytes(3)))
    parser = RespParser()
    try:
        while data:
            parser.feed(bytes(data[:7]))
            del data[:7]
    except ValueError:
        pass


@pytest.mark.parametrize(
    "said",
    [b"*" * 100_000, b"*1\r\n" * 17, b"?\r\n", b"$1\r\nabc\r\n", b"*9999999999999999999999\r\n", b"$-2\r\n", b":x\r\n", b"*?\r\n"],
)
def test_what_breaks_the_protocol_is_refused(said: bytes) -> None:
    with pytest.raises(ValueError):
        RespParser().feed(said)


def test_a_string_that_is_too_large_is_an_error_of_its_own_answer_and_is_not_kept() -> None:
    parser = RespParser()
    assert parser.feed(b"*2\r\n$%d\r\n" % (MAX_REPLY_BYTES + 1)) == []
    piece, left = b"x" * 2**20, MAX_REPLY_BYTES + 3
    while left > len(piece):
        assert parser.feed(piece) == []
        left -= len(piece)
    (error, after) = parser.feed(piece[:left] + b"+more\r\n:7\r\n")  # in one piece with what follows
    assert (error.code, after) == ("TOOLARGE", 7)


def test_an_answer_of_too_many_parts_is_an_error_of_its_own() -> None:
    parser, many = RespParser(), 2**20 + 1
    (error, after) = parser.feed(b"*%d\r\n" % many + b"_\r\n" * many + b"*1\r\n+whole\r\n")
    assert (error.code, after) == ("TOOLARGE", [b"whole"])


def test_a_message_that_is_too_large_is_no_answer_to_a_call() -> None:
    parser, many = RespParser(), 2**20 + 1
    (push, after) = parser.feed(b">%d\r\n" % many + b"_\r\n" * many + b":7\r\n")
    assert isinstance(push, RespPush)
    assert (push.items, after) == ([], 7)


def test_a_command_is_written_word_by_word() -> None:
    assert encode_command(["GET", b"\xff\r\n", 7, "ü"]) == b"*4\r\n$3\r\nGET\r\n$3\r\n\xff\r\n\r\n$1\r\n7\r\n$2\r\n\xc3\xbc\r\n"


class Open(Protocol):
    def __call__(self, url: str, *, heard: list[Any] | None = None) -> AbstractAsyncContextManager[RespConnection]: ...


@pytest.fixture(params=[None, dial], ids=["stream", "socket"])
def open_to(request: pytest.FixtureRequest) -> Open:
    """Opens connections that run, over a stream of anyio, as with TLS, or over a bare socket."""
    return functools.partial(running, dial=request.param)


@asynccontextmanager
async def running(
    url: str, *, heard: list[Any] | None = None, dial: Callable[[str, int], Awaitable[socket.socket]] | None
) -> AsyncIterator[RespConnection]:
    """A connection that runs."""
    address, hear = RedisAddress.of(url), (heard if heard is not None else []).append
    connection = await RespConnection.open(address, heard=hear, timeout=5.0, dial=dial)

    async def run() -> None:
        with pytest.raises(RespCut):
            await connection.run()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        try:
            yield connection
        finally:
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def saying(said: bytes) -> AsyncIterator[str]:
    """The URL of a server that says this once it is spoken to, and nothing else."""

    async def answer(client: SocketStream) -> None:
        async with client:
            await client.receive()
            await client.send(said)
            await anyio.sleep_forever()

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, answer)
        yield f"redis://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/0"
        tasks.cancel_scope.cancel()


async def test_many_calls_at_once_get_their_own_answers_and_a_cancelled_one_shifts_none(broker: BrokerServer, open_to: Open) -> None:
    async with open_to(broker.url) as connection:
        await connection.greet(RedisAddress.of(broker.url))
        found: dict[int, Any] = {}

        async def echo(number: int) -> None:
            with anyio.CancelScope() as scope:
                if number % 3 == 0:
                    scope.cancel()
                found[number] = await connection.call(["ECHO", number])

        async with anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(echo, number)
        assert found == {number: str(number).encode() for number in range(100) if number % 3}
        with pytest.raises(RespError) as caught:
            await connection.call(["NONE"])
        assert caught.value.code == "ERR"


async def test_a_connection_uses_the_database_of_its_url(broker: BrokerServer, open_to: Open) -> None:
    address = RedisAddress.of(broker.url.removesuffix("/0") + "/3")
    async with open_to(broker.url) as connection:
        await connection.greet(address)
        assert b" db=3 " in await connection.call(["CLIENT", "INFO"])


async def test_a_message_is_heard_between_answers_and_a_refused_channel_is_an_error(broker: BrokerServer, open_to: Open) -> None:
    heard: list[Any] = []
    async with open_to(broker.url, heard=heard) as connection:
        await connection.greet(RedisAddress.of(broker.url))
        assert await connection.call(["SUBSCRIBE", "news"], topic=(b"subscribe", b"news")) == [b"subscribe", b"news", 1]
        assert await connection.call(["PUBLISH", "news", "one"]) == 1
        assert await connection.call(["ECHO", "two"]) == b"two"
        assert heard == [[b"message", b"news", b"one"]]
        with pytest.raises(RespError):
            await connection.call(["SUBSCRIBE"], topic=(b"subscribe", b""))
        assert await connection.call(["ECHO", "three"]) == b"three"


async def test_what_a_server_says_of_another_channel_does_not_answer_a_call(open_to: Open) -> None:
    heard: list[Any] = []
    said = b">3\r\n+subscribe\r\n+old\r\n:1\r\n>3\r\n+unsubscribe\r\n+news\r\n:0\r\n>3\r\n+subscribe\r\n+news\r\n:1\r\n"
    async with saying(said) as url, open_to(url, heard=heard) as connection:
        assert await connection.call(["SUBSCRIBE", "news"], topic=(b"subscribe", b"news")) == [b"subscribe", b"news", 1]
    assert heard == [[b"subscribe", b"old", 1], [b"unsubscribe", b"news", 0]]


@pytest.mark.parametrize("said", [b"+OK\r\n+OK\r\n", b"?\r\n", b"$5\r\nabcdefgh", b""], ids=["unasked", "no sign", "no end", "nothing"])
@jumping(idle=0.05)
async def test_a_server_that_says_what_no_server_says_or_nothing_is_given_up(said: bytes, open_to: Open) -> None:
    async with saying(said) as url, open_to(url) as connection:
        begun = anyio.current_time()
        with pytest.raises(RespCut):
            await connection.call(["PING"])
            await connection.call(["PING"])
        assert anyio.current_time() - begun < 11
        with pytest.raises(RespCut):
            await connection.call(["PING"])


async def test_calls_and_answers_that_fill_all_buffers_pass_in_their_order(broker: BrokerServer, open_to: Open) -> None:
    texts = [bytes([number]) * 5_000_000 for number in range(4)]
    async with open_to(broker.url) as connection:
        found: dict[int, Any] = {}

        async def echo(number: int) -> None:
            found[number] = await connection.call(["ECHO", texts[number]])

        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(echo, number)
    assert [found[number] == text for number, text in enumerate(texts)] == [True] * 4


async def test_a_server_that_leaves_ends_each_call_that_has_no_answer(broker: BrokerServer, open_to: Open) -> None:
    """It has read the call when it leaves: the end of a connection with unread data would be a reset."""
    async with open_to(broker.url) as connection, open_to(broker.url) as other, anyio.create_task_group() as tasks:

        async def end_the_one_that_waits() -> None:
            while b"cmd=blpop" not in (await other.call(["CLIENT", "LIST"])).lower():
                pass
            await other.call(["CLIENT", "KILL", "TYPE", "normal"])  # all but the caller's own

        tasks.start_soon(end_the_one_that_waits)
        with anyio.fail_after(30), pytest.raises(RespCut) as caught:
            await connection.call(["BLPOP", "none", 0])
        assert str(caught.value) == "EndOfStream: "
        with pytest.raises(RespCut, match="EndOfStream: "):
            await connection.call(["PING"])


async def test_what_hears_the_messages_can_end_the_connection(broker: BrokerServer, open_to: Open) -> None:
    class Deaf(list[Any]):
        def append(self, said: Any) -> None:
            raise ValueError(f"heard {said[-1]!r}")

    async with open_to(broker.url, heard=Deaf()) as connection:
        await connection.greet(RedisAddress.of(broker.url))
        await connection.call(["SUBSCRIBE", "news"], topic=(b"subscribe", b"news"))
        with pytest.raises(RespCut, match="ValueError: heard b'one'"):
            await connection.call(["PUBLISH", "news", "one"])
            await connection.call(["BLPOP", "none", 0])
