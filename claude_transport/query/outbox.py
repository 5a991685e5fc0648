"""Lines on their way to the transport: in order, several to a write, and none cut in half by somebody's cancellation."""

from __future__ import annotations

import copy
from collections import deque

import anyio

from claude_transport.errors import ClaudeTransportError, ConnectionLost, TransportClosed
from claude_transport.transport import Transport, TransportLike

__all__ = ["Outbox"]

_BATCH_BYTES = 1 << 20
"""Bytes joined into one write at most; many small frames in one write cost a fraction of many writes."""


class _Item:
    """One line, or with None the end of the input; and what became of it."""

    __slots__ = ("begun", "done", "error", "line")

    def __init__(self, line: bytes | None) -> None:
        self.line = line
        self.begun = False
        self.done = anyio.Event()
        self.error: ClaudeTransportError | None = None


class Outbox:
    """The writing side of a conversation. One task, `run()`, does all the writing.

    A transport is poisoned when a write is cancelled in the middle of a line, so nobody but `run()` is ever inside one:
    a cancelled caller of `send()` takes its line back if writing has not begun, and else leaves it to be finished.
    """

    def __init__(self, transport: TransportLike) -> None:
        self._transport = transport
        # a transport written for the official SDK expects text
        self._wants_bytes = isinstance(transport, Transport)
        self._queue: deque[_Item] = deque()
        self._arrival = anyio.Event()
        self._failure: ClaudeTransportError | None = None

    def post(self, line: bytes) -> None:
        """Put a line in the queue without waiting for it; it is dropped if writing has become impossible."""
        self._put(_Item(line))

    async def send(self, line: bytes) -> None:
        """Return when the transport has taken the line; raise what kept it from being taken."""
        await self._wait(self._put(_Item(line)))

    async def end(self) -> None:
        """End the input after everything that is in the queue."""
        await self._wait(self._put(_Item(None)))

    def post_end(self) -> None:
        """End the input after everything that is in the queue, without waiting for it."""
        self._put(_Item(None))

    def _put(self, item: _Item) -> _Item:
        if self._failure is not None:
            item.error = self._failure
            item.done.set()
        else:
            self._queue.append(item)
            self._arrival.set()
        return item

    async def _wait(self, item: _Item) -> None:
        try:
            await item.done.wait()
        except anyio.get_cancelled_exc_class():
            if not item.begun and item in self._queue:
                self._queue.remove(item)
            raise
        if item.error is not None:
            raise copy.copy(item.error) from item.error

    async def run(self) -> None:
        """Write what is in the queue, for ever. The first line is written without a checkpoint before it."""
        try:
            while True:
                while self._queue:
                    await self._write_next()
                self._arrival = anyio.Event()
                await self._arrival.wait()
        finally:
            self._fail(TransportClosed("the conversation is closed"))

    async def _write_next(self) -> None:
        items = self._next_items()
        try:
            if items[0].line is None:
                await self._transport.end_input()
            else:
                data = b"".join(item.line for item in items if item.line is not None)
                await self._transport.write(data if self._wants_bytes else data.decode())  # type: ignore[arg-type]
        except ClaudeTransportError as exc:
            self._finish(items, exc)
            self._fail(exc)
        except Exception as exc:  # noqa: BLE001 - somebody else's transport may raise anything; it is translated here
            lost = ConnectionLost(f"the transport could not write: {exc!r}")
            lost.__cause__ = exc
            self._finish(items, lost)
            self._fail(lost)
        else:
            self._finish(items, None)

    def _next_items(self) -> list[_Item]:
        items: list[_Item] = []
        size = 0
        while self._queue and size < _BATCH_BYTES and (not items or self._queue[0].line is not None):
            item = self._queue.popleft()
            item.begun = True
            items.append(item)
            if item.line is None:
                break
            size += len(item.line)
        return items

    def _finish(self, items: list[_Item], error: ClaudeTransportError | None) -> None:
        for item in items:
            item.error = error
            item.done.set()

    def _fail(self, error: ClaudeTransportError) -> None:
        if self._failure is None:
            self._failure = error
        self._finish(list(self._queue), self._failure)
        self._queue.clear()
