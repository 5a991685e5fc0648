"""`OwnLines`: what a wrapper says by itself, to the reader above it and to the peer below it. `LineWrapper` has its public methods."""

from __future__ import annotations

import logging
import math
import uuid as uuids
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Self

import anyio

from claude_transport.errors import (
    Busy,
    ClaudeTransportError,
    ConnectionLost,
    ControlRequestFailed,
    ControlTimeout,
    NotConnected,
    TransportClosed,
    UsageError,
)
from claude_transport.loggers import logger_for
from claude_transport.loops.background import LoopTask
from claude_transport.protocol.codec import decode_message
from claude_transport.protocol.control import ControlResponse
from claude_transport.protocol.envelope import encode_line

logger: logging.Logger = logger_for(__name__)

MOST_WAITING_BYTES = 16 * 2**20
"""Bytes of lines that may wait for the reader, and as many for the peer."""


class Woken(BaseException):
    """Ends the wait for the next batch of the peer, because a line was injected. No `except Exception` of a `read_batch` catches it."""


class OwnLines:
    """The lines of one wrapper that neither the peer nor the layer above has said.

    Args:
        write: sends one line, without its newline, to the wrapped transport.
    """

    def __init__(self, write: Callable[[bytes], Awaitable[object]]) -> None:
        self._write = write
        self._injected: deque[bytes] = deque()
        self._injected_bytes = 0
        self._wait: anyio.CancelScope | None = None  # of the reader, while it waits for the peer
        self._end: Exception | None = None  # how the stream ended, while injected lines go before it
        self._is_over = False
        self._later: deque[bytes] = deque()
        self._later_bytes = 0
        self._writer: LoopTask | None = None
        self._unwritable: Exception | None = None
        self._prefix = f"{uuids.uuid4().hex}-"
        self._asked: dict[str, _Asked] = {}
        self._count = 0

    # To the reader

    def inject(self, line: bytes | str) -> None:
        """Put `line` before what the peer says next, and wake the reader."""
        line = checked_line(line, of="inject()")
        if self._is_over:
            raise TransportClosed("the reader has got the end of the stream: nothing more can be injected")
        if self._injected_bytes + len(line) > MOST_WAITING_BYTES:
            raise Busy(f"{self._injected_bytes} bytes wait for the reader, and at most {MOST_WAITING_BYTES} may")
        self._injected.append(line)
        self._injected_bytes += len(line)
        if self._wait is not None:
            self._wait.cancel()

    @property
    def has_injected(self) -> bool:
        """True while injected lines wait for the reader."""
        return bool(self._injected)

    def take_injected(self) -> list[bytes]:
        """Return the injected lines, which go to the reader now."""
        lines = list(self._injected)
        self._injected.clear()
        self._injected_bytes = 0
        return lines

    async def next_of(self, source: AsyncIterator[Sequence[bytes]]) -> Sequence[bytes]:
        """Return the next batch of the peer. Raises `Woken` when a line was injected before one came."""
        if not self._injected:
            try:
                with anyio.CancelScope() as self._wait:
                    return await anext(source)
            finally:
                self._wait = None
        raise Woken

    def raise_end(self) -> None:
        """Raise the end of the stream that was kept back for the sake of injected lines."""
        if self._end is not None:
            end, self._end = self._end, None
            self._is_over = True
            raise end

    def keeps_back(self, end: Exception) -> bool:
        """Note how the stream ended. Returns True when injected lines go first; then `raise_end()` raises it."""
        if isinstance(end, UsageError):
            return False  # a mistake of the reader: there may be more to read
        self._settle_all(end)
        if self._injected:
            self._end = end
        self._is_over = not self._injected
        return not self._is_over

    # To the peer

    def send_later(self, line: bytes | str) -> None:
        """Queue `line` for the peer."""
        line = checked_line(line, of="send_later()")
        if self._unwritable is not None:
            raise self._unwritable
        if self._later_bytes + len(line) > MOST_WAITING_BYTES:
            raise Busy(f"{self._later_bytes} bytes wait for the peer, which does not read, and at most {MOST_WAITING_BYTES} may")
        self._later.append(line)
        self._later_bytes += len(line)
        if self._writer is None:
            self._writer = LoopTask.spawn(self._write_later, name="write lines of a wrapper")

    async def _write_later(self) -> None:
        try:
            while self._later:
                await self._write(self._later[0])
                self._later_bytes -= len(self._later.popleft())
        except Exception as error:  # noqa: BLE001 - a transport of the user may raise anything, and nobody waits for this task
            self._fail(error)
        finally:
            self._writer = None

    def _fail(self, error: Exception) -> None:
        lost = len(self._later)
        if not isinstance(error, NotConnected):  # that passes: the transport may be connected later
            self._unwritable = error
        self._later.clear()
        self._later_bytes = 0
        code = error.code if isinstance(error, ClaudeTransportError) else type(error).__name__
        logger.warning("%d lines of a wrapper could not be sent (%s)", lost, code)
        self._settle_all(error)

    async def flush(self) -> None:
        """Wait until the queued lines are sent, or cannot be."""
        while self._writer is not None:
            await self._writer.wait()

    # Requests of its own

    async def request(self, subtype: str, fields: Mapping[str, Any], *, timeout: float) -> dict[str, Any]:
        """Send a control request, and return the content of its answer."""
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or math.isnan(timeout):
            raise UsageError(f"timeout must be a number of seconds (math.inf for no limit), not {timeout!r}")
        self._count += 1
        request_id = f"{self._prefix}{self._count}"
        asked = self._asked[request_id] = _Asked()
        try:
            self.send_later(encode_line({"type": "control_request", "request_id": request_id, "request": {**fields, "subtype": subtype}}))
            with anyio.move_on_after(timeout) as limit:
                await asked.done.wait()
        finally:
            del self._asked[request_id]
        if limit.cancelled_caught:
            raise ControlTimeout(f"no answer to {subtype} within {timeout:g} s", subtype=subtype, request_id=request_id, waited=timeout)
        if asked.error is not None:
            raise ConnectionLost(f"the stream ended before the answer to {subtype}", code="transport.failed") from asked.error
        answer = asked.answer
        if not answer.ok:
            message = f"{subtype} was refused: {answer.error or 'without a reason'}"
            raise ControlRequestFailed(message, subtype=subtype, request_id=request_id, error_code=answer.error_code)
        return answer.payload

    def without_answers(self, batch: Sequence[bytes]) -> Sequence[bytes]:
        """Return the lines without the answers to `request()`, late ones as well."""
        if not self._count:
            return batch
        prefix = self._prefix.encode()
        return [line for line in batch if prefix not in line or not self._is_answer(line)]

    def _is_answer(self, line: bytes) -> bool:
        message = decode_message(line)
        if not isinstance(message, ControlResponse) or not (message.request_id or "").startswith(self._prefix):
            return False
        asked = self._asked.get(message.request_id or "")
        if asked is not None:
            asked.answer = message
            asked.done.set()
        return True

    def _settle_all(self, error: Exception) -> None:
        for asked in self._asked.values():
            if not asked.done.is_set():
                asked.error = error
                asked.done.set()

    async def aclose(self) -> None:
        """End the writing. Called when the wrapped transport is closed."""
        self._is_over = True
        closed = TransportClosed("the transport was closed")
        self._unwritable = self._unwritable or closed
        self._settle_all(closed)
        if self._writer is not None:
            self._writer.cancel()
            await self._writer.join()
        self._write = _write_nothing  # the wrapper, which knows this object, is let go


async def _write_nothing(_line: bytes) -> None:
    """Stand in for the wrapped transport after the end, when nothing is written any more."""


class _Asked:
    """One request that waits for its answer."""

    __slots__ = ("answer", "done", "error")

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.answer = ControlResponse()
        self.error: Exception | None = None


class Pump:
    """Reads `source` in a task of its own, one batch ahead, so that a reader that is woken or cancelled does not end `source`.

    Iterators of transports that have only six methods are often generators, which a cancellation ends for good.
    """

    def __init__(self, source: AsyncIterator[Sequence[bytes]]) -> None:
        self._source = source
        self._task: LoopTask | None = None
        self._batch: Sequence[bytes] | None = None
        self._end: Exception | None = None  # set when the task is over
        self._came = self._taken = anyio.Event()

    @property
    def is_over(self) -> bool:
        """True when `source` has ended, and all of it was taken."""
        return self._batch is None and self._end is not None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[bytes]:
        while self._batch is None:
            if self._end is not None:
                raise self._end
            if self._task is None:
                self._task = LoopTask.spawn(self._read, name="read for a wrapper")
            self._came = anyio.Event()
            await self._came.wait()
        batch, self._batch = self._batch, None
        self._taken.set()
        return batch

    async def _read(self) -> None:
        end: Exception = ConnectionLost("reading was ended", code="transport.failed")  # by a cancellation, when nothing else is known
        try:
            async for batch in self._source:
                self._batch, self._taken = batch, anyio.Event()
                self._came.set()
                await self._taken.wait()
            end = StopAsyncIteration()
        except Exception as error:  # noqa: BLE001 - the reader raises it
            end = error
        finally:
            self._end = end
            self._came.set()

    async def aclose(self) -> None:
        """End the reading."""
        if self._task is not None:
            self._task.cancel()
            await self._task.join()


def checked_line(line: bytes | str, *, of: str) -> bytes:
    """Return one line without its newline. Raises `UsageError` for what is no line."""
    if not isinstance(line, bytes | str):
        raise UsageError(f"{of} takes one line, as bytes or text, not {type(line).__name__}")
    try:
        found = (line.encode() if isinstance(line, str) else line).removesuffix(b"\n")
    except UnicodeEncodeError as exc:
        raise UsageError(f"{of} takes text that is Unicode: {exc.reason}") from exc
    if not found or b"\n" in found:
        raise UsageError(f"{of} takes one line, and not {'none' if not found else 'several'}")
    return found
