"""Connections to a Redis or Valkey server: over coredis for session stores, and `RespConnection` for fleets.

No other module imports coredis, and this one inside its functions only.

Session stores use coredis, and make errors of this library of what goes wrong there: `first_of()` finds what it was.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import os
import socket
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final, Self

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from claude_transport.errors import ConfigurationError
from claude_transport.loops.current import Wakeup, clock_here
from claude_transport.loops.descriptors import FileWatch
from claude_transport.redis.address import RedisAddress
from claude_transport.redis.resp import RespError, RespParser, RespPush, encode_command

COMMAND_TIMEOUT: Final = 5.0
"""Seconds for one command of a fleet. Each is small, and a lease ends if a worker waits long for a server that is gone."""

STORE_TIMEOUT: Final = 30.0
"""Seconds for one call of a session store, connecting included. It is many commands, and they may carry many megabytes."""


_CHUNK: Final = 2**18
"""The most bytes that a connection reads at once."""

_FIRST_CHUNK: Final = 2**14
"""Bytes that a socket is asked for while the server does not say more at once: memory for `_CHUNK` costs more than a small answer."""

_ANSWERED_BY_PUSH: Final = frozenset({b"subscribe", b"unsubscribe", b"ssubscribe", b"sunsubscribe"})
"""Calls that the server answers as if it had not been asked."""


def require_coredis(user: str) -> None:
    """Raise `ConfigurationError` when coredis is not installed, which `user` needs."""
    if importlib.util.find_spec("coredis") is None:
        raise ConfigurationError(f"{user} needs the extra redis: pip install 'claude-transport[redis]'", option="url")


def make_client(address: RedisAddress, *, connect_timeout: float | None = None, max_connections: int | None = None) -> Any:
    """Return a client of coredis. `async with` it connects. It repeats no call: the server may have carried it out.

    `connect_timeout` are the seconds for each connection, from its first packet to the answer to the greeting. None has no limit.
    """
    from coredis import Redis
    from coredis.connection import TCPLocation
    from coredis.pool import ConnectionPool
    from coredis.retry import NoRetryPolicy

    pool: Any = ConnectionPool(
        connection_class=_tidy_connection(),
        location=TCPLocation(address.host, address.port),
        max_connections=max_connections,
        db=address.database,
        username=address.username,
        password=address.password,
        ssl_context=address.tls,
        timeout=connect_timeout,
    )
    return Redis(connection_pool=pool, retry_policy=NoRetryPolicy())


@functools.cache
def _tidy_connection() -> Any:
    """Return a class of connections whose buffers are closed, also when they never got to a server, or their pool ended meanwhile."""
    from coredis.connection import TCPConnection

    class TidyConnection(TCPConnection):
        async def _connect(self) -> ByteStream:
            try:
                return await super()._connect()
            except BaseException:
                self._close_buffers()
                raise

        def __del__(self) -> None:
            self._close_buffers()

        def _close_buffers(self) -> None:
            for each in vars(self).values():
                if isinstance(each, MemoryObjectReceiveStream | MemoryObjectSendStream):
                    each.close()

    return TidyConnection


async def run_script(client: Any, text: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
    """Run a script, and return its answer. The text is sent only to a server that does not have it yet."""
    try:
        return await client.evalsha(digest_of(text), keys=keys, args=args)
    except Exception as exc:
        if type(first_of(exc)).__name__ != "NoScriptError":
            raise
    return await client.eval(text, keys=keys, args=args)


@functools.cache
def digest_of(text: str) -> str:
    """Return the name under which a server knows a script."""
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def first_of(exc: BaseException) -> Exception:
    """Return the first plain error of nested groups: task groups inside coredis wrap each error in one.

    Of a connection that could not be made, it is what the system or TLS has said, which coredis puts behind an error of its own.
    """
    leaves = [*leaves_of(exc)]
    exc = next((each for each in leaves if isinstance(each, Exception)), leaves[0])
    if type(exc).__name__ == "ConnectionError" and isinstance(exc.__cause__, OSError):
        exc = exc.__cause__
    return exc if isinstance(exc, Exception) else RuntimeError(type(exc).__name__)


def leaves_of(exc: BaseException) -> Iterator[BaseException]:
    """Yield the errors in nested groups; an error that is no group is the only one."""
    if isinstance(exc, BaseExceptionGroup):
        for each in exc.exceptions:
            yield from leaves_of(each)
    else:
        yield exc


class RespCut(Exception):
    """The connection was lost. A call without an answer may or may not have been carried out."""


class PostedCall:
    """A call that waits for its answer. `topic` is the verb and the channel of one that a push answers. `then` is called at its end."""

    __slots__ = ("answer", "asked_at", "is_done", "then", "topic", "woken")

    def __init__(
        self,
        asked_at: float,
        topic: tuple[bytes, bytes] | None,
        then: Callable[[PostedCall], object] | None = None,
        *,
        beside: Wakeup | None = None,
    ) -> None:
        self.answer: Any = None
        self.asked_at: float = asked_at
        self.is_done: bool = False
        self.then: Callable[[PostedCall], object] | None = then
        self.topic: tuple[bytes, bytes] | None = topic
        self.woken: Wakeup = Wakeup(beside=beside)

    def end(self, answer: Any) -> None:
        self.answer, self.is_done = answer, True
        self.woken.fire()
        if self.then is not None:
            self.then(self)


class _Wire(ABC):
    """The bytes of a connection."""

    @abstractmethod
    async def send(self, data: bytes) -> None:
        """Send all of `data`."""

    @abstractmethod
    async def read(self, hand_on: Callable[[bytes], object]) -> None:
        """Call `hand_on` with what arrives, until the server ends the connection or `hand_on` raises. Raises why it ended."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close the connection at once."""


class _StreamWire(_Wire):
    """A stream of anyio: TLS, and systems where no socket can be watched."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream

    async def send(self, data: bytes) -> None:
        await self._stream.send(data)

    async def read(self, hand_on: Callable[[bytes], object]) -> None:
        while True:
            hand_on(await self._stream.receive(_CHUNK))

    async def aclose(self) -> None:
        await anyio.aclose_forcefully(self._stream)


class _SocketWire(_Wire):
    """A socket. The event loop calls `hand_on` itself: to resume a task for each answer, and to register the socket for it, costs more."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._size = _FIRST_CHUNK
        self._failure: BaseException | None = None
        self._failed = Wakeup()

    async def send(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._socket)

    async def read(self, hand_on: Callable[[bytes], object]) -> None:
        watch = FileWatch(self._socket.fileno(), functools.partial(self._on_readable, hand_on), name="answers of a server")
        try:
            watch.begin()
            while self._failure is None:
                await self._failed.wait()
        finally:
            watch.end()
        raise self._failure

    def _on_readable(self, hand_on: Callable[[bytes], object]) -> None:
        if self._failure is not None:
            return
        try:
            data = self._socket.recv(self._size)
            if data:
                self._size = _CHUNK if len(data) == self._size else _FIRST_CHUNK
                hand_on(data)
                return
            self._failure = anyio.EndOfStream()
        except BlockingIOError:
            return
        except BaseException as exc:  # noqa: BLE001 - `read()` raises it
            self._failure = exc
        self._failed.fire()

    async def aclose(self) -> None:
        anyio.notify_closing(self._socket)
        self._socket.close()
        await anyio.lowlevel.checkpoint()


class RespConnection:
    """A connection that `open()` has made. `run()` carries it, until it is lost or cancelled.

    Args:
        wire: the bytes, from before the first word.
        heard: called with each push that is no answer: a message of a channel, or its end. It must not wait or raise.
        timeout: seconds for an answer. A server that takes longer is given up.
    """

    def __init__(self, wire: _Wire, *, heard: Callable[[list[Any]], object], timeout: float) -> None:
        self._wire = wire
        self._heard = heard
        self._timeout = timeout
        self._parser = RespParser()
        self._pending: deque[PostedCall] = deque()
        self._out: list[bytes] = []
        self._has_output, self._has_calls = Wakeup(), Wakeup()
        self._clock = clock_here()
        self._lost: Exception | None = None

    @classmethod
    async def open(
        cls,
        address: RedisAddress,
        *,
        heard: Callable[[list[Any]], object],
        timeout: float,
        dial: Callable[[str, int], Awaitable[socket.socket]] | None = None,
    ) -> Self:
        """Connect, with TLS when the address says so. The caller bounds it, and calls `run()` and `greet()`.

        Args:
            address: the server.
            heard: see `RespConnection`.
            timeout: see `RespConnection`.
            dial: returns a connected socket that does not block. It is used for connections without TLS, but not on Windows: what arrives
                there is then read without a task.

        Raises:
            OSError: the server cannot be reached, or its certificate is not accepted.
        """
        if dial is not None and address.tls is None and os.name != "nt":
            raw = await dial(address.host, address.port)
            wire: _Wire = _SocketWire(raw)
        else:
            options: dict[str, Any] = {} if address.tls is None else {"ssl_context": address.tls, "tls_standard_compatible": False}
            stream: ByteStream = await anyio.connect_tcp(address.host, address.port, **options)
            raw = stream.extra(SocketAttribute.raw_socket)  # noqa: S610 - anyio's method, not Django's
            wire = _StreamWire(stream)
        with contextlib.suppress(OSError):  # the server has gone already: reading finds out
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(wire, heard=heard, timeout=timeout)

    async def greet(self, address: RedisAddress) -> dict[bytes, Any]:
        """Log in, and choose the database. Returns what the server says of itself. Raises as `call()` does."""
        who = ["AUTH", address.username or "default", address.password] if address.password is not None else []
        said = await self.call(["HELLO", 3, *who])
        if address.database:
            await self.call(["SELECT", address.database])
        return dict(zip(said[::2], said[1::2], strict=False)) if isinstance(said, list) else {}

    async def run(self) -> None:
        """Carry calls and answers until the connection is lost. Each call without an answer ends with `RespCut` then.

        Raises:
            RespCut: why it was lost.
        """
        try:
            async with anyio.create_task_group() as tasks:
                for work in (self._write, self._read, self._watch):
                    tasks.start_soon(self._part, work, tasks.cancel_scope)
        finally:
            self._lost = self._lost or RespCut("the connection was closed")
            for pending in self._pending:
                pending.end(self._lost)
            self._pending.clear()
            await self.aclose()
        raise self._lost

    async def _part(self, work: Callable[[], Any], scope: anyio.CancelScope) -> None:
        try:
            await work()
        except (OSError, anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, ValueError, RespCut) as exc:
            self._lost = self._lost or RespCut(f"{type(exc).__name__}: {exc}")
            scope.cancel()

    async def call(self, words: Sequence[Any], *, topic: tuple[bytes, bytes] | None = None) -> Any:
        """Make a call, and return its answer. A cancelled call may be carried out all the same.

        Raises:
            RespError: the server has said so.
            RespCut: the connection was lost.
        """
        pending = self.post(words, topic=topic)
        while not pending.is_done:
            await pending.woken.wait()
        answer = pending.answer
        if isinstance(answer, RespError):
            raise answer
        if isinstance(answer, RespCut):
            raise RespCut(str(answer))
        return answer

    def post(
        self, words: Sequence[Any], *, topic: tuple[bytes, bytes] | None = None, then: Callable[[PostedCall], object] | None = None
    ) -> PostedCall:
        """Make a call without waiting for its answer. On a lost connection it has `RespCut` for an answer.

        `then` is called with this call when the answer has come, or the connection was lost. It must not wait or raise.
        """
        pending = PostedCall(self._clock(), topic, then, beside=self._has_output)
        if self._lost is not None:
            pending.end(self._lost)
            return pending
        self._out.append(encode_command(words))
        self._pending.append(pending)
        self._has_output.fire()
        self._has_calls.fire()
        return pending

    async def aclose(self) -> None:
        """Close the connection, also when it was never run."""
        with anyio.CancelScope(shield=True):
            await self._wire.aclose()

    async def _write(self) -> None:
        while True:
            while not self._out:
                await self._has_output.wait()
            data = b"".join(self._out) if len(self._out) > 1 else self._out[0]
            self._out.clear()
            await self._wire.send(data)

    async def _read(self) -> None:
        await self._wire.read(self._arrived)

    def _arrived(self, data: bytes) -> None:
        for said in self._parser.feed(data):
            if isinstance(said, RespPush):
                self._pushed(said.items)
            elif self._pending:
                self._pending.popleft().end(said)
            else:
                raise RespCut("the server has answered a call that was not made")

    def _pushed(self, items: list[Any]) -> None:
        if len(items) > 1 and items[0] in _ANSWERED_BY_PUSH and self._pending and self._pending[0].topic == (items[0], items[1]):
            self._pending.popleft().end(items)
        else:
            self._heard(items)

    async def _watch(self) -> None:
        """Give up a server that does not answer in time."""
        while True:
            while not self._pending:
                await self._has_calls.wait()
            until = self._pending[0].asked_at + self._timeout
            if self._clock() >= until:
                raise TimeoutError(f"no answer in {self._timeout:g} s")
            await anyio.sleep_until(until)
