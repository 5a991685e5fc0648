"""`forward`: carries the lines of one transport to another, undecoded, as a relay or a proxy does."""

from __future__ import annotations

from typing import Any, NamedTuple

from claude_transport.errors import LineTooLong
from claude_transport.protocol.framing import LineBlock
from claude_transport.transport import PouredBlocks, Transport, TransportLike, read_lines_of
from claude_transport.transports.stream import StreamTransport


class Forwarded(NamedTuple):
    """What `forward()` has carried: the number of `lines`, and their `size` in bytes with the newlines."""

    lines: int
    size: int


async def forward(source: TransportLike, target: Transport) -> Forwarded:
    """Write every line of `source` to `target`, in order and undecoded, until `source` ends well. Returns what was carried.

    It waits while `source` is silent and while `target` does not read. Both transports stay open: call `target.end_input()` afterwards to
    tell its peer that nothing more comes. For both directions, run it twice in a task group. If it is cancelled while `target` does not
    read, the lines that it had just read from `source` are lost.

    Raises:
        LineTooLong: a line is longer than the `max_line_bytes` of `source`. All lines before it were written.
        NotConnected, InputClosed, Busy: a transport is not ready, or another task reads from `source`.
        TransportClosed, ConnectionLost, ProcessError, TruncatedStream: what reading from `source` or writing to `target` raised.
    """
    carrier = _Carrier(target)
    batches = read_lines_of(source)
    if isinstance(batches, PouredBlocks):
        while await batches.pour_blocks(carrier.take):
            await carrier.write()
    else:
        async for batch in batches:
            carrier.take(LineBlock.of(batch))
            await carrier.write()
    return Forwarded(carrier.lines, carrier.size)


class _Carrier:
    """Writes one block of lines after the other to `target`, and counts `lines` and `size` in bytes."""

    def __init__(self, target: Transport) -> None:
        self._target: Any = target
        self._takes_blocks = isinstance(target, StreamTransport) and target.acts_at_once  # without a copy
        self._block: LineBlock | None = None
        self.lines = 0
        self.size = 0

    def take(self, block: LineBlock) -> bool:
        """Keep a block for `write()`. Returns True: it is written before more is read, so that the source waits for the target."""
        self._block = block
        return True

    async def write(self) -> None:
        """Write the block. Raises `LineTooLong` for a line that is not whole, after the lines before it were written."""
        block, self._block = self._block, None
        if block is None:
            return
        if block.oversized is not None:
            index, line = block.oversized
            if index:
                await self._target.write(b"\n".join(bytes(block).split(b"\n")[:index]))
            text = f"line {self.lines + index + 1} has {line.size} bytes, over the limit of {line.limit}"
            raise LineTooLong(text, size=line.size, limit=line.limit)
        await self._target.write(block if self._takes_blocks else bytes(block))
        self.lines += block.count
        self.size += block.size
