"""Deliberately broken transports, each with the clauses that it breaks: what the kit must find, and must not find.

Most are the example of the documentation with one thing done wrong; a few need what only `StreamTransport` has.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import ByteStream, ByteStreamConnectable
from loading import load_file

import claude_transport as ct
from claude_transport.testing.conformance import ByteStreamMedium, Medium, Subject, media
from claude_transport.testing.conformance.medium import FactoryMedium
from claude_transport.testing.conformance.memory_peer import MemoryPeer

_EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "third_party_transport.py"


def _load_example() -> Any:
    return load_file(_EXAMPLE, "third_party_transport")


EXAMPLE = _load_example()
Good: Any = EXAMPLE.ThirdPartyTransport
LIMIT: int = Good.max_line_bytes


class Mutant(msgspec.Struct, frozen=True):
    """How to make one, the clauses it breaks, and those of them that only asyncio's rules make it break.

    `says` are words of what the kit says of the first clause: they lead to the fix.
    """

    make: Callable[[], Medium]
    broken: frozenset[str]
    asyncio_only: frozenset[str] = frozenset()
    first: str = ""
    says: str = ""


MUTANTS: dict[str, Mutant] = {}


def breaks(*clauses: str, asyncio_only: bool = False) -> Callable[[Any], Any]:
    """Register a transport over a byte stream that breaks exactly these clauses."""

    def register(cls: Any) -> Any:
        make = partial(ByteStreamMedium, cls, name=cls.__name__, max_line_bytes=LIMIT, close_timeout=0.1)
        broken = frozenset(clauses)
        MUTANTS[cls.__name__] = Mutant(make, broken, broken if asyncio_only else frozenset())
        return cls

    return register


def breaks_streaming(*clauses: str) -> Callable[[type[ct.StreamTransport]], type[ct.StreamTransport]]:
    """The same for a `StreamTransport`, whose opener may refuse."""

    def register(cls: type[ct.StreamTransport]) -> type[ct.StreamTransport]:
        MUTANTS[cls.__name__] = Mutant(partial(FactoryMedium, partial(_streaming, cls), name=cls.__name__), frozenset(clauses))
        return cls

    return register


def breaks_wrapping(*clauses: str, says: str) -> Callable[[Any], Any]:
    """The same for a wrapper around memory. What the kit says of the first clause holds the words `says`."""

    def register(cls: Any) -> Any:
        make = partial(media.wrapped, media.memory(), cls)
        MUTANTS[cls.__name__] = Mutant(make, frozenset(clauses), first=clauses[0], says=says)
        return cls

    return register


class Opener(ByteStreamConnectable):
    """Gives its one stream, or refuses."""

    def __init__(self, stream: ByteStream) -> None:
        self.stream = stream
        self.refusing = False

    def refuse(self, refusing: bool) -> None:
        self.refusing = refusing

    async def connect(self) -> ByteStream:
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        if self.refusing:
            raise ConnectionRefusedError
        return self.stream


@asynccontextmanager
async def _streaming(cls: type[ct.StreamTransport]) -> AsyncIterator[Subject]:
    async with MemoryPeer.pair(capacity=65536) as (stream, peer):
        opener = Opener(stream)
        transport = cls(opener, max_line_bytes=LIMIT)
        yield Subject(transport=transport, peer=peer, refuse=opener.refuse, max_line_bytes=LIMIT, absorbs=2**20)


LEAKS = contextlib.ExitStack()
"""What the mutants below leave behind, for the test to take away."""


def all_broken() -> Iterator[str]:
    """Every clause that some mutant breaks."""
    for mutant in MUTANTS.values():
        yield from mutant.broken
