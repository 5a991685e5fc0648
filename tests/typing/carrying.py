"""What type checkers know of transports, wrappers and openers: read by mypy and pyright, run by nobody."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, assert_type

from anyio.abc import ByteStream, ByteStreamConnectable

import claude_transport as ct


class SixMethods:
    """A transport that knows nothing of this package."""

    async def connect(self) -> None: ...
    async def write(self, data: str) -> None: ...
    async def end_input(self) -> None: ...
    async def close(self) -> None: ...

    def is_ready(self) -> bool:
        return False

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        yield {}


class Opener(ByteStreamConnectable):
    async def connect(self) -> ByteStream:
        raise NotImplementedError


class Renamed(ct.TransportWrapper):
    def __init__(self, transport: ct.TransportLike, *, name: str) -> None:
        super().__init__(transport)
        self.name: str = name


async def transports() -> None:
    process = ct.SubprocessTransport(command=["cat"], max_line_bytes=10)
    async with process as same:
        assert_type(same, ct.SubprocessTransport)
    assert_type(process.read_lines(), AsyncIterator[Sequence[bytes]])
    assert_type(process.read_messages(), AsyncIterator[dict[str, Any]])
    ct.SubprocessTransport(max_line_byte=10)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    ct.StreamTransport(Opener(), strict=True)
    ct.StreamTransport("tcp://host")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ct.StreamTransport()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert_type(ct.MockTransport([{"type": "result"}]).written, list[dict[str, Any]])


async def wrappers() -> None:
    theirs = SixMethods()
    ct.Query(theirs)
    ct.LoggingTransport(ct.MetricsTransport(theirs))
    ct.Query(object())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    renamed = Renamed(theirs, name="x")
    retrying = ct.RetryingTransport(renamed, make_transport=lambda: Renamed(theirs, name="x"))
    assert_type(await retrying.reconnect(), ct.RetryingTransport)
    assert_type(renamed.transport, ct.TransportLike)
    Renamed(theirs)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert_type(ct.MetricsTransport(theirs).metrics.snapshot(), ct.wrappers.MetricsSnapshot)
    assert_type(ct.StatefulTransport(theirs).state, ct.TransportState)


def versions() -> None:
    assert_type(ct.__version__, str)
