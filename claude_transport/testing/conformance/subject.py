"""`Subject`: a transport under test that is not connected yet, and the `Peer` at its other end, which the kit controls."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

import anyio
import msgspec

from claude_transport.transport import Transport


class Reason(enum.Enum):
    """Why a clause of the contract is not tested with a medium. The value is the sentence for the report.

    Members are the values of `excludes` of a medium or a factory, and `Row.reason` has one for an excluded clause.
    """

    NO_PEER = "the factory gives no peer: the kit cannot send or receive at the other end"
    NO_REFUSAL = "the kit cannot make its `connect()` fail: the connection is open already, or `refuse` was not given"
    NO_LINE_LIMIT = "it has no limit for the length of a line, or `max_line_bytes` was not given"
    NO_OWN_INFO = "it keeps the default `info`, which counts nothing"
    NO_BYTES = "it carries whole lines only: a line cannot be cut on its way, and cannot lack its newline"
    SCRIPTED = "the output of its peer is fixed before it connects: the peer cannot reply, or send anything later"
    NEVER_WAITS = "it accepts every write at once: no writer ever waits"
    CANNOT_BREAK = "its peer cannot fail"
    CANNOT_FINISH = "its peer cannot end by itself"
    ALWAYS_READS = "its peer cannot stop reading"
    NO_STATUS = "bare lines do not carry the exit status of the process; the link does"
    NO_SSHD = "sshd or ssh is not installed on this machine"
    NO_WRAPPER = "it is not a wrapper: only `media.wrapped()` can test what wrappers promise"
    NEVER_SPEAKS = "it is no `LineWrapper`, or its `speaks` is False: it never says a line by itself"
    ON_PURPOSE = "it does so on purpose"
    WHOLE_LINES = "a buffer on the way accepts each line whole before it passes it on: a single long line does not wait"


class Inexpressible(Exception):
    """Raised by a clause that cannot be tested with this subject. The report then excludes it with `reason`."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class Peer(ABC):
    """The other end of a transport under test. The conformance kit controls it, and bounds all its waits.

    It reads what the transport writes, all the time, unless `stop_reading()` was called. A medium of your own subclasses it: it implements
    `send()`, `finish()`, `fail()`, `stop_reading()` and `resume_reading()`, and calls `take()` and `input_over()` with what arrives.

    Leave out what your medium cannot do, except `send()`. Clauses that need it are then excluded, and the report says why.
    """

    def __init__(self) -> None:
        self._received = bytearray()
        self._read_to = 0  # where the next line of `receive_line` begins
        self._input_over = False
        self._news = anyio.Event()

    @abstractmethod
    async def send(self, data: bytes) -> None:
        """Send `data` to the transport. It may be any bytes, also half a line. Returns when they are on their way."""

    async def finish(self) -> None:
        """End the peer as a program that exits well: bytes sent before still reach the transport, which then reads the end of stream."""
        raise Inexpressible(Reason.CANNOT_FINISH)

    async def fail(self) -> None:
        """End the peer as a program that crashes: bytes sent before still reach the transport, which then reads a failure."""
        raise Inexpressible(Reason.CANNOT_BREAK)

    async def stop_reading(self) -> None:
        """Stop reading what the transport writes, until `resume_reading()`.

        Its writes must then wait, once the buffers on the way are full.
        """
        raise Inexpressible(Reason.ALWAYS_READS)

    async def resume_reading(self) -> None:
        """Read again what the transport writes, after `stop_reading()`."""
        raise Inexpressible(Reason.ALWAYS_READS)

    async def persist(self) -> None:  # noqa: B027 - a peer that never exits by itself has nothing to do
        """Make the peer stay when its input ends or when it is asked to exit: from now on only `finish()`, `fail()` and force end it.

        The kit uses it to test what happens after the end of input, and a `close()` that must use force. By default it does nothing, for
        peers that never exit by themselves.
        """

    @property
    def received(self) -> bytes:
        """All bytes that the transport has sent to this peer so far."""
        return bytes(self._received)

    @property
    def input_ended(self) -> bool:
        """True when the input of this peer has ended: the transport has ended it, or was closed."""
        return self._input_over

    async def receive_line(self) -> bytes:
        """Wait for the next line that the transport sends, and return it without its newline.

        Raises `anyio.EndOfStream` when the input of the peer ends before the line is whole.
        """
        while (end := self._received.find(b"\n", self._read_to)) < 0:
            if self._input_over:
                raise anyio.EndOfStream
            await self._news.wait()
        line = bytes(self._received[self._read_to : end])
        self._read_to = end + 1
        return line

    async def wait_received(self, size: int) -> None:
        """Wait until the peer has received `size` bytes in all. Raises `anyio.EndOfStream` when its input ends before that."""
        while len(self._received) < size:
            if self._input_over:
                raise anyio.EndOfStream
            await self._news.wait()

    async def wait_input_end(self) -> None:
        """Wait until the input of this peer has ended: the transport has ended it, or was closed."""
        while not self._input_over:
            await self._news.wait()

    def take(self, data: bytes) -> None:
        """Tell the peer that these bytes have arrived from the transport. Your subclass or medium calls it."""
        self._received += data
        self._tell()

    def input_over(self) -> None:
        """Tell the peer that its input has ended: the transport sends no more. Your subclass or medium calls it."""
        self._input_over = True
        self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, anyio.Event()
        news.set()


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What a medium gives to the conformance kit for one test: a transport that is not connected yet, its peer, and facts about them.

    Args:
        transport: the transport to test.
        peer: its other end; without one, only some clauses can be tested.
        refuse: `refuse(True)` makes every `connect()` fail until `refuse(False)`; None when that cannot be done.
        max_line_bytes: the line limit of the transport, at most 1 MiB to keep the run short; None when it has no limit.
        close_timeout: the seconds that its `close()` may take.
        absorbs: a number of bytes that all buffers between the two ends cannot hold.
        prime: awaited after `connect()` in clauses with a silent peer, for a transport that would not wait for such a peer.
    """

    transport: Transport
    peer: Peer | None = None
    refuse: Callable[[bool], object] | None = None
    max_line_bytes: int | None = None
    close_timeout: float = 5.0
    absorbs: int = 16 * 2**20
    prime: Callable[[], Awaitable[object]] | None = None


class Play(msgspec.Struct, frozen=True, kw_only=True):
    """What a peer does by itself in one test. It sends the chunks `says` as soon as it can, one after the other.

    `then` says how it ends after that: "finish" (well), "fail" (as in a crash), or None to stay.
    """

    says: tuple[bytes, ...] = ()
    then: str | None = None
