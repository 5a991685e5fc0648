"""`Batches`: the lines of a peer, read in batches until it ends."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self

import anyio
import anyio.lowlevel

from claude_transport.exchange.failures import refuse_stray
from claude_transport.loggers import logger_for
from claude_transport.transport import PouredLines

logger: logging.Logger = logger_for(__name__)

_FAIRNESS = 128
"""Messages read in a row before other tasks run. The first of these tasks is the reader of the messages, while they are in the cache."""

_BATCH_IS_WORTH = 8
"""Messages that a batch counts for, however small it is: a transport that never waits may give one at a time."""

_READER_CLOSE_TIMEOUT = 1.0
"""Seconds for closing the reading side of a transport."""


class Batches:
    """Batches of lines, read inside `async with`: its end closes the iterator of the transport, when that can be closed.

    A generator that is only dropped is closed by the garbage collector, at a time and in a thread that cannot be foreseen.
    """

    def __init__(self, lines: AsyncIterator[Sequence[bytes]]) -> None:
        self._lines = lines
        self._next: Callable[[], Awaitable[Sequence[bytes]]] = lines.__anext__
        self._read_in_a_row = 0

    async def pour(self, hand_on: Callable[[Sequence[bytes]], bool]) -> bool:
        """Call `hand_on` with each batch until it returns True. Return False when the transport has ended well.

        Where the transport can do it, `hand_on` is called where the bytes are noticed, and not in the caller's task.
        """
        try:
            if isinstance(self._lines, PouredLines):
                return await self._lines.pour(hand_on)
            while True:
                if self._read_in_a_row >= _FAIRNESS:
                    self._read_in_a_row = 0
                    await anyio.lowlevel.checkpoint()
                lines = await self._next()
                self._read_in_a_row += _BATCH_IS_WORTH + len(lines)
                if hand_on(lines):
                    return True
        except StopAsyncIteration:
            return False
        except anyio.get_cancelled_exc_class() as exc:
            refuse_stray(exc)
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        aclose = getattr(self._lines, "aclose", None)
        if aclose is not None:
            try:
                with anyio.move_on_after(_READER_CLOSE_TIMEOUT, shield=True):
                    await aclose()
            except Exception:
                # nothing is read from it any more, so its bad end changes nothing
                logger.debug("closing the reading side of the transport failed", exc_info=True)
