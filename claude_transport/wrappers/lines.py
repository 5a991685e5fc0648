"""`LineWrapper`: a wrapper that takes part in the reading, line by line, without becoming visible to the reader."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Any, Self

from claude_transport.errors import Busy
from claude_transport.protocol.codec import LineDecoder
from claude_transport.transport import TransportLike, read_lines_of
from claude_transport.wrappers.base import TransportWrapper

__all__ = ["LineWrapper"]


class LineWrapper(TransportWrapper):
    """A `TransportWrapper` whose subclasses override `read_batch` to see or change what is read.

    Both views are made of the lines that it returns. What one view has not handed out yet stays here, for the next view.
    While `is_idle` is true, a new view is that of the transport inside, and costs nothing.
    """

    def __init__(self, transport: TransportLike) -> None:
        super().__init__(transport)
        self._decoder = LineDecoder(strict=self.strict)
        self._pending: deque[bytes] = deque()
        self._reading = False

    @property
    def is_idle(self) -> bool:
        """True while there is nothing to do for what is read: asked once for each iteration, when it begins. By default, never."""
        return False

    def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
        """The lines in batches."""
        source = read_lines_of(self.transport)
        return source if self.is_idle and not self._pending else _Batches(self, source)

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """The messages one by one, as dicts; lines that hold none are left out and counted."""
        if self.is_idle and not self._pending:
            return self.transport.read_messages()
        return _Messages(self, read_lines_of(self.transport))

    async def read_batch(self, source: AsyncIterator[Sequence[bytes]]) -> Sequence[bytes]:
        """At least one line; `source` are the lines of the transport inside. Raises what the stream ended with."""
        return await anext(source)

    async def next_batch(self, source: AsyncIterator[Sequence[bytes]]) -> Sequence[bytes]:
        """What is left of an earlier batch, or the next one (called by the views)."""
        if self._reading:
            raise Busy("somebody else is reading from this transport")
        if self._pending:
            batch = list(self._pending)
            self._pending.clear()
            return batch
        self._reading = True
        try:
            return await self.read_batch(source)
        finally:
            self._reading = False


class _View:
    """An iteration. It holds no state of its own, so leaving it loses nothing."""

    def __init__(self, wrapper: LineWrapper, source: AsyncIterator[Sequence[bytes]]) -> None:
        self._wrapper = wrapper
        self._source = source

    def __aiter__(self) -> Self:
        return self

    async def aclose(self) -> None:
        """Close the iteration of the transport inside, when it is one that can be closed."""
        aclose = getattr(self._source, "aclose", None)
        if aclose is not None:
            await aclose()


class _Batches(_View):
    async def __anext__(self) -> Sequence[bytes]:
        return await self._wrapper.next_batch(self._source)


class _Messages(_View):
    # what is done here is done for each message: one more coroutine on the way costs 6 % of reading small messages
    async def __anext__(self) -> dict[str, Any]:
        wrapper = self._wrapper
        pending = wrapper._pending  # noqa: SLF001 - two halves of one module
        while True:
            if not pending:
                pending.extend(await wrapper.next_batch(self._source))
            message = wrapper._decoder.as_dict(pending.popleft())  # noqa: SLF001
            if isinstance(message, dict):
                return message
            if message is not None:
                wrapper.count_failure(message)
