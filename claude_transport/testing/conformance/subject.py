"""What is under test: a transport that is not connected yet, and the peer at its other end."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

import anyio
import msgspec

from claude_transport.transport import Transport

# --- Why a clause is not asked of a medium: one sentence each, so that nothing is left out silently.


class Reason(enum.Enum):
    """Why a clause is excluded; the value is the sentence for the report."""

    NO_PEER = "the factory gives no peer: nothing can be said or seen at the other end"
    NO_REFUSAL = "its `connect()` cannot be made to fail: what it connects to is open already, or nobody told the kit how"
    NO_LINE_LIMIT = "it has no limit for the length of a line, or the kit was not told which"
    NO_OWN_INFO = "it keeps the default `info`, which counts nothing"
    NO_BYTES = "it carries whole lines only: they can neither be cut on their way nor lack their newline"
    SCRIPTED = "what its peer says is fixed before it is connected: nothing can be said in reply, or later"
    NEVER_WAITS = "its writes are taken at once: no writer ever waits"
    CANNOT_BREAK = "its peer cannot go away badly"
    NO_STATUS = "bare lines have no word for how the process ended; the link has"
    NO_SSHD = "there is no sshd on this machine, or no ssh to reach it with"
    WHOLE_LINES = "something on the way takes each line whole before it hands it on: a single line, however long, does not wait"


class Inexpressible(Exception):
    """Raised inside a clause that turns out not to be expressible with the subject at hand: it is excluded for `reason`."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class Peer(ABC):
    """The other end of a transport, in the hands of the kit.

    It takes in what the transport writes, all the time, unless it was told to stop: `take()` and `input_over()` are for
    whoever feeds it, in the peer of your own medium. All waits are bounded by the kit.
    """

    def __init__(self) -> None:
        self._received = bytearray()
        self._read_to = 0  # where the next line of `receive_line` begins
        self._input_over = False
        self._news = anyio.Event()

    @abstractmethod
    async def send(self, data: bytes) -> None:
        """Say `data`, which may be any bytes; returns when they are on their way."""

    @abstractmethod
    async def finish(self) -> None:
        """End well: what was said still arrives, and then the end."""

    @abstractmethod
    async def fail(self) -> None:
        """End badly, as a crash would: what was said still arrives, and then the failure."""

    @abstractmethod
    async def stop_reading(self) -> None:
        """Take in nothing more (but for what a buffer or two may hold), until `resume_reading()`."""

    @abstractmethod
    async def resume_reading(self) -> None:
        """Take in everything again."""

    async def persist(self) -> None:  # noqa: B027 - a peer that never leaves by itself has nothing to do
        """From now on, do not leave because the input ended, nor when asked to: only `finish()`, `fail()` and force end it."""

    @property
    def received(self) -> bytes:
        """All bytes that have arrived so far."""
        return bytes(self._received)

    @property
    def input_ended(self) -> bool:
        """True when the transport has ended its input or closed."""
        return self._input_over

    async def receive_line(self) -> bytes:
        """The next line that arrives, without its newline. Raises `anyio.EndOfStream` when there will be none."""
        while (end := self._received.find(b"\n", self._read_to)) < 0:
            if self._input_over:
                raise anyio.EndOfStream
            await self._news.wait()
        line = bytes(self._received[self._read_to : end])
        self._read_to = end + 1
        return line

    async def wait_received(self, size: int) -> None:
        """Return when at least `size` bytes have arrived in all. Raises `anyio.EndOfStream` when there will not be so many."""
        while len(self._received) < size:
            if self._input_over:
                raise anyio.EndOfStream
            await self._news.wait()

    async def wait_input_end(self) -> None:
        """Return when `input_ended` is True."""
        while not self._input_over:
            await self._news.wait()

    def take(self, data: bytes) -> None:
        """For the medium: these bytes have arrived."""
        self._received += data
        self._tell()

    def input_over(self) -> None:
        """For the medium: nothing more will arrive."""
        self._input_over = True
        self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, anyio.Event()
        news.set()


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """A transport that has not been connected, its peer, and what the kit has to know of them.

    `refuse(True)` makes every `connect()` fail until `refuse(False)`. `max_line_bytes` is the transport's limit, at most 1 MiB
    for the sake of the run; `close_timeout` the seconds its `close()` may take. `absorbs` is a number of bytes that is certainly
    more than all buffers between the two ends hold. `prime` is awaited once after each `connect()` that opens a clause whose
    peer stays silent: for a transport that would otherwise not wait for it.
    """

    transport: Transport
    peer: Peer | None = None
    refuse: Callable[[bool], object] | None = None
    max_line_bytes: int | None = None
    close_timeout: float = 5.0
    absorbs: int = 16 * 2**20
    prime: Callable[[], Awaitable[object]] | None = None


class Play(msgspec.Struct, frozen=True, kw_only=True):
    """What the peer will say as soon as it can (chunks, sent one by one), and whether it ends after that: "finish", "fail" or not."""

    says: tuple[bytes, ...] = ()
    then: str | None = None
