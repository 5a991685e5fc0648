"""Lines on their way to the transport: `Delivery`, one of them, and `PassingLines`, those that pass a prompt that waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio

from claude_transport.client.reports import refuse_stray
from claude_transport.errors import ClaudeTransportError
from claude_transport.streams.inflow import Flag, Wakeup

_CONTROL = b'{"type":"control_'
"""How the lines of requests and answers begin, which `encode_line` writes."""

_LINE_OVERHEAD = 1_000
"""Bytes that a waiting line takes beside its own. A delivery with its event was measured with 700."""


class Delivery:
    """One line on its way to the transport, or the end of the input when `line` is None. It is settled once.

    `on_error` is called when the line will not be written.
    """

    __slots__ = ("done", "error", "is_control", "line", "on_error", "size")

    def __init__(self, line: bytes | None, on_error: Callable[[ClaudeTransportError], None] | None = None) -> None:
        self.line: bytes | None = line
        self.on_error: Callable[[ClaudeTransportError], None] | None = on_error
        self.is_control: bool = line is not None and line.startswith(_CONTROL)
        """True for a request or an answer, which may pass a prompt."""
        self.size: int = 0 if line is None else len(line) + _LINE_OVERHEAD
        self.done: Flag = Flag()
        self.error: ClaudeTransportError | None = None

    def settle(self, error: ClaudeTransportError | None) -> None:
        """Note that the transport has taken the line, or with `error` that it will not."""
        if not self.done.is_set():
            self.error = error
            self.done.set()
            if error is not None and self.on_error is not None:
                self.on_error(error)


class PassingLines:
    """Control lines of one conversation, which are written in the order of `put()` while a prompt is being written.

    The contract lets several tasks write at once. A transport that waits for its peer makes both wait. A wrapper that waits for something
    else, as a rate limiter does, holds back the prompt alone.

    Args:
        start: starts the task that writes.
        write: writes one line.
        on_failure: called with what `write` raised, and the line.
    """

    __slots__ = ("_arrival", "_is_running", "_lines", "_on_failure", "_start", "_write", "size")

    def __init__(
        self,
        *,
        start: Callable[..., object],
        write: Callable[[Any], Awaitable[object]],
        on_failure: Callable[[Exception, Delivery], object],
    ) -> None:
        self._start = start
        self._write = write
        self._on_failure = on_failure
        self._lines: deque[Delivery] | tuple[()] = ()  # made for lines that pass: most of the time there are none
        self.size: int = 0
        """Of the lines that are not written yet, as `Delivery.size` counts it."""
        self._is_running = False
        self._arrival = Wakeup()

    def put(self, delivery: Delivery) -> None:
        """Write the line, after those that were put before."""
        if not self._lines:
            self._lines = deque()
        self._lines.append(delivery)
        self.size += delivery.size
        if not self._is_running:
            self._is_running = True
            self._start(self._run)

    def __iter__(self) -> Iterator[Delivery]:
        return iter(self._lines)

    def take_all(self) -> list[Delivery]:
        """Return the lines that are not written yet, and write none of them any more."""
        lines = list(self._lines)
        self._lines = ()
        self.size = 0
        self._arrival.fire()
        return lines

    async def wait(self) -> None:
        """Wait until every line is written or taken."""
        while self._lines:
            await self._arrival.wait()

    async def _run(self) -> None:
        try:
            while self._lines:
                delivery = self._lines[0]
                try:
                    try:
                        await self._write(delivery.line)
                    except anyio.get_cancelled_exc_class() as exc:
                        refuse_stray(exc)
                        raise
                except Exception as exc:  # noqa: BLE001 - a transport may raise anything; it is translated
                    self._on_failure(exc, delivery)
                else:
                    delivery.settle(None)
                if self._lines and self._lines[0] is delivery:
                    self._lines.popleft()
                    self.size -= delivery.size
                self._arrival.fire()
        finally:
            self._is_running = False
