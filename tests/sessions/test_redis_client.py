"""How a Redis server is reached: what a URL may say, what an error may say, and what is left open."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import anyio
import pytest
import trustme
from anyio.abc import SocketStream
from redis_server import RedisServer
from virtual_time import jumping

from claude_transport import errors, sessions
from claude_transport.redis.address import RedisAddress
from claude_transport.sessions.store_entries import decode_summary, encode_entry, encode_summary

KEY: Any = {"project_key": "project", "session_id": "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"}
ENTRIES: Any = [{"type": "user", "uuid": "1"}]
PASSWORD = "p@ss/w:rd#1"
QUOTED = "p%40ss%2Fw%3Ard%231"


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., RedisServer]]:
    """Starts servers with these settings."""
    with ExitStack() as stack:

        def start(*settings: str, tls: bool = False) -> RedisServer:
            server = RedisServer(tmp_path / "redis", settings=settings, tls=tls)
            stack.callback(server.kill)
            server.start()
            return server

        yield start


async def test_a_password_may_have_any_character_and_a_database_has_a_number(serve: Callable[..., RedisServer]) -> None:
    server = serve("--requirepass", PASSWORD)
    store = sessions.RedisSessionStore(f"redis://:{QUOTED}@127.0.0.1:{server.port}/3")
    await store.append(KEY, ENTRIES)
    assert await store.load(KEY) == ENTRIES
    assert await sessions.RedisSessionStore(f"redis://default:{QUOTED}@127.0.0.1:{server.port}/4").load(KEY) is None


@pytest.mark.parametrize("secret", ["wrong-hunter2", ""])
async def test_a_refused_login_is_a_typed_error_that_says_no_password(
    secret: str, serve: Callable[..., RedisServer], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server = serve("--requirepass", PASSWORD)
    store = sessions.RedisSessionStore(f"redis://:{secret}@127.0.0.1:{server.port}/0")
    with pytest.raises(errors.CLIConnectionError) as caught:
        await store.append(KEY, ENTRIES)
    assert caught.value.code == "session_store.failed"
    assert f"127.0.0.1:{server.port}" in str(caught.value)
    for text in (str(caught.value), repr(caught.value), repr(store), caplog.text):
        assert "hunter2" not in text
        assert PASSWORD not in text


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:hunter2",  # the password stands where a port would
        "redis://user:hunter2@host:hunter2/0",
        "redis://user:hunter2@host:99999/0",
        "redis://[::1:hunter2",
        "redis://user:hunter2@host/hunter2",
        "redis://user:hunter2@host/-1",
        "redis://user:hunter2@host/0?db=hunter2",
        "redis://host/0?hunter2",
        "redis://user:hunter2@host/0?ssl_ca_certs=x",
        "rediss://user:hunter2@host/0?stream_timeout=1",
        "rediss://user:hunter2@host/0?ssl_ca_certs=/nowhere/ca.pem",
        b"redis://user:hunter2@host/0",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_its_password(url: Any) -> None:
    with pytest.raises(errors.ConfigurationError) as caught:
        sessions.RedisSessionStore(url)
    assert caught.value.option == "url"
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in str(caught.value.__cause__)


def certificates(folder: Path, *names: str) -> tuple[str, list[str]]:
    """The file of an authority, and the settings of a server that it vouches for under these names."""
    authority = trustme.CA()
    made = authority.issue_cert(*names)
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    made.private_key_pem.write_to_path(str(folder / "key.pem"))
    made.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    settings = ["--tls-cert-file", str(folder / "cert.pem"), "--tls-key-file", str(folder / "key.pem"), "--tls-auth-clients", "no"]
    return str(folder / "ca.pem"), settings


async def test_tls_checks_the_certificate_and_the_name_in_it(serve: Callable[..., RedisServer], tmp_path: Path) -> None:
    authority, settings = certificates(tmp_path, "redis.example.com")
    server = serve(*settings, tls=True)
    for url in (server.url, f"{server.url}?ssl_ca_certs={authority}"):  # an unknown authority, and another name
        with pytest.raises(errors.CLIConnectionError, match=r"(?i)certificate"):
            await sessions.RedisSessionStore(url).append(KEY, ENTRIES)
    for more in ("ssl_check_hostname=false", "ssl_cert_reqs=none"):
        store = sessions.RedisSessionStore(f"{server.url}?ssl_ca_certs={authority}&{more}")
        await store.append(KEY, ENTRIES)
        assert await store.load(KEY) == ENTRIES


async def test_tls_is_used_with_a_server_that_proves_its_name(serve: Callable[..., RedisServer], tmp_path: Path) -> None:
    authority, settings = certificates(tmp_path, "127.0.0.1")
    store = sessions.RedisSessionStore(f"{serve(*settings, tls=True).url}?ssl_ca_certs={authority}")
    await store.append(KEY, ENTRIES)
    assert await store.load(KEY) == ENTRIES


async def test_the_certificate_that_the_url_names_is_shown_to_a_server_that_asks_for_one(
    serve: Callable[..., RedisServer], tmp_path: Path
) -> None:
    authority, settings = certificates(tmp_path, "127.0.0.1")
    server = serve(*settings[:-2], "--tls-auth-clients", "yes", "--tls-ca-cert-file", authority, tls=True)
    url = f"{server.url}?ssl_ca_certs={authority}"
    with pytest.raises(errors.CLIConnectionError) as caught:
        await sessions.RedisSessionStore(url).append(KEY, ENTRIES)
    assert caught.value.code == "session_store.failed"
    store = sessions.RedisSessionStore(f"{url}&ssl_certfile={tmp_path / 'cert.pem'}&ssl_keyfile={tmp_path / 'key.pem'}")
    await store.append(KEY, ENTRIES)
    assert await store.load(KEY) == ENTRIES


HUNG_UP: dict[str, Callable[[bytes], bytes]] = {
    "at once": lambda _: b"",
    "with an error": lambda _: b"-ERR max number of clients reached\r\n",
    "with the password": lambda _: b"-ERR hunter2 is not the password\r\n",
    "with nonsense": lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "with half an answer": lambda _: b"$100\r\nhalf",
}


@pytest.mark.parametrize("kind", HUNG_UP)
async def test_a_server_that_hangs_up_is_a_typed_error_and_leaves_nothing_open(kind: str) -> None:
    """Pytest reports each stream that is left open as an error."""

    async def answer(stream: SocketStream) -> None:
        async with stream:
            await stream.send(HUNG_UP[kind](await stream.receive()))

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, answer)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        store = sessions.RedisSessionStore(f"redis://:hunter2@127.0.0.1:{port}/0")
        with pytest.raises(errors.CLIConnectionError) as caught:
            await store.append(KEY, ENTRIES)
        assert caught.value.code == "session_store.failed"
        assert f"redis://127.0.0.1:{port}/0: session {KEY['session_id']} of project project: " in str(caught.value)
        assert "hunter2" not in str(caught.value)
        tasks.cancel_scope.cancel()


@jumping(idle=0.05)
async def test_a_server_that_says_nothing_is_given_up_after_half_a_minute() -> None:
    async def listen(stream: SocketStream) -> None:
        async with stream:
            await anyio.sleep_forever()

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, listen)
        store = sessions.RedisSessionStore(f"redis://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}/0")
        with anyio.fail_after(3600), pytest.raises(errors.CLIConnectionError, match="did not answer in 30 s") as caught:
            await store.load(KEY)
        assert caught.value.code == "session_store.failed"
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("said", "checks"), [("true", True), ("1", True), ("false", False), ("FALSE", False), ("0", False), ("Off", False)]
)
def test_the_name_in_a_certificate_is_checked_unless_the_url_says_otherwise(said: str, checks: bool) -> None:
    context = RedisAddress.of(f"rediss://host/0?ssl_check_hostname={said}").tls
    assert context is not None
    assert (context.check_hostname, context.verify_mode) == (checks, ssl.CERT_REQUIRED)


async def test_a_call_that_is_cancelled_leaves_nothing_open() -> None:
    asked = anyio.Event()

    async def listen(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            asked.set()
            await anyio.sleep_forever()

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, listen)
        store = sessions.RedisSessionStore(f"redis://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}/0")
        tasks.start_soon(store.append, KEY, ENTRIES)
        await asked.wait()
        tasks.cancel_scope.cancel()


async def test_a_call_is_made_once_however_often_the_server_hangs_up() -> None:
    """What the server may have done is not asked for again: an entry without a uuid would be there twice."""
    calls: list[bytes] = []

    async def answer(stream: SocketStream) -> None:
        async with stream:
            calls.append(await stream.receive())

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, answer)
        store = sessions.RedisSessionStore(f"redis://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}/0")
        with pytest.raises(errors.CLIConnectionError):
            await store.append(KEY, ENTRIES)
        tasks.cancel_scope.cancel()
    assert len(calls) == 1


class Overtaken:
    """A client whose server has another subagent each time that a call looks."""

    def __init__(self) -> None:
        self.times = 0

    async def smembers(self, _name: str) -> set[bytes]:
        return set()

    async def evalsha(self, *_script: str, **_given: Any) -> int:
        self.times += 1
        return 0


async def test_a_delete_that_is_always_overtaken_gives_up_with_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Overtaken()

    monkeypatch.setattr("claude_transport.sessions.redis_store.make_client", lambda *_, **__: nullcontext(client))
    with pytest.raises(errors.CLIConnectionError, match="other hosts begin subagents of it while it is deleted") as caught:
        await sessions.RedisSessionStore("redis://127.0.0.1:1/0").delete(KEY)
    assert (caught.value.code, client.times) == ("session_store.failed", 10)


class Contended:
    """A client whose server gives these answers to the summaries that a call writes. Another host adds an entry before each answer."""

    def __init__(self, *answers: int, begun: bytes | None = b"1.1", kept: bytes | None = None) -> None:
        self.answers = list(answers)
        self.begun, self.kept = begun, kept
        self.read_from: list[int] = []
        self.lines = [encode_entry(ENTRIES[0])]
        self.counts: list[int] = []

    async def evalsha(self, _digest: str, *, keys: Any, args: Any) -> int:
        if len(keys) > 2:
            return 1000  # the entries are stored
        summary = decode_summary(args[1])
        assert summary is not None
        self.counts.append(summary["count"])
        self.lines.append(encode_entry({"type": "user"}))
        return self.answers.pop(0)

    async def hget(self, name: str, _session: str) -> bytes | None:
        return self.begun if name.endswith(":begun") else self.kept

    async def lrange(self, _name: str, first: int, last: int) -> list[bytes]:
        self.read_from.append(first)
        return self.lines[first : last + 1]


@pytest.mark.parametrize(("answers", "counts"), [((1,), [1]), ((0, 0, 1), [1, 2, 3]), ((0,) * 11, list(range(1, 11)))])
async def test_a_summary_is_written_anew_while_other_hosts_are_faster_ten_times_at_most(
    answers: tuple[int, ...], counts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Contended(*answers)
    monkeypatch.setattr("claude_transport.sessions.redis_store.make_client", lambda *_, **__: nullcontext(client))
    await sessions.RedisSessionStore("redis://127.0.0.1:1/0").append(KEY, ENTRIES)
    assert client.counts == counts


async def test_no_summary_is_written_of_a_session_that_was_deleted_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Contended(1, begun=None)
    monkeypatch.setattr("claude_transport.sessions.redis_store.make_client", lambda *_, **__: nullcontext(client))
    await sessions.RedisSessionStore("redis://127.0.0.1:1/0").append(KEY, ENTRIES)
    assert client.counts == []


async def test_a_summary_goes_on_where_the_one_before_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Contended(1, kept=encode_summary({"count": 3, "mtime": 1, "begun": "1.1", "data": {}}))
    client.lines *= 5
    monkeypatch.setattr("claude_transport.sessions.redis_store.make_client", lambda *_, **__: nullcontext(client))
    await sessions.RedisSessionStore("redis://127.0.0.1:1/0").append(KEY, ENTRIES)
    assert (client.counts, client.read_from) == ([5], [3, 5])
