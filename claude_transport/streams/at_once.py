"""Abilities of byte streams and openers beyond anyio's interface. A stream declares one by inheriting from its class.

`StreamTransport` asks for these classes. A stream of somebody else that has a method of the same name is not asked.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from anyio.abc import ByteStream, ByteStreamConnectable

from claude_transport.loops.background import LoopTask


class OpensAtOnce(ByteStreamConnectable):
    """An opener that can often open its stream without waiting."""

    @abstractmethod
    def connect_now(self) -> ByteStream | None:
        """Do what `connect()` does, and return None when something has to be waited for. Then nothing was done."""


class SendsAtOnce(ByteStream):
    """A stream that can often send without waiting."""

    @abstractmethod
    def send_whole_now(self, item: bytes) -> bool:
        """Send all of `item` if that needs no waiting. Returns False when nothing was sent."""

    @abstractmethod
    def send_eof_now(self) -> None:
        """Do what `send_eof()` does, without waiting."""


class Pourable(ABC):
    """A byte stream that can hand chunks to a function without resuming the task that waits for them."""

    @abstractmethod
    async def pour(self, hand_on: Callable[[bytes], bool]) -> bool:
        """Wait, and call `hand_on` with each chunk that arrives, until it returns True.

        Returns True when `hand_on` returned True. Returns False when the caller has to call `receive()`, which has data or an error.
        """


class ClosesInATask(ByteStream):
    """A stream that closes in a task of its own, or at once, and can be told to hurry."""

    @abstractmethod
    def begin_close(self) -> LoopTask | None:
        """Begin what `aclose()` does, and return the task that does it. Returns None when it is done already."""

    @abstractmethod
    def hurry(self, seconds: float) -> None:
        """Have `aclose()` take `seconds` from now at most, also when it is under way."""


class FactsAtOnce(Mapping[Any, Callable[[], Any]], ABC):
    """The typed attributes of a stream that can tell all facts about a process together, which costs less than one after the other."""

    __slots__ = ()

    @abstractmethod
    def snapshot(self) -> dict[str, Any]:
        """Return the values that `TransportInfo` has, by its names."""
