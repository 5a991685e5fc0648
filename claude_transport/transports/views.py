"""The two views of a transport's lines: undecoded in batches, and as dicts one by one. They hold no state of their own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Self

from claude_transport.protocol.codec import LineDecoder
from claude_transport.protocol.messages import DecodeFailure, OversizedMessage

__all__ = ["DictView", "LineView"]

NextBatch = Callable[[], Coroutine[Any, Any, Sequence[bytes]]]
HandOn = Callable[[Sequence[bytes]], bool]


class LineView:
    """The batches that `next_batch` gives. Leaving it loses nothing.

    `pour` is for who wants to be called rather than woken: see `Batches` of `Query`.
    """

    def __init__(self, next_batch: NextBatch, pour: Callable[[HandOn], Coroutine[Any, Any, bool]]) -> None:
        self._next_batch = next_batch
        self.pour: Callable[[HandOn], Coroutine[Any, Any, bool]] = pour

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Coroutine[Any, Any, Sequence[bytes]]:
        return self._next_batch()  # not awaited here: that would cost a frame


class DictView:
    """The objects on the lines that `next_batch` gives. What was read and not yet handed out stays in `pending`, the transport's."""

    def __init__(
        self,
        next_batch: NextBatch,
        *,
        pending: deque[bytes],
        decoder: LineDecoder,
        count_failure: Callable[[DecodeFailure | OversizedMessage], object],
    ) -> None:
        self._next_batch = next_batch
        self._pending = pending
        self._as_dict = decoder.as_dict
        self._count_failure = count_failure

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> dict[str, Any]:
        pending = self._pending
        while True:
            if not pending:
                pending.extend(await self._next_batch())
            message = self._as_dict(pending.popleft())
            if isinstance(message, dict):
                return message
            if message is not None:
                self._count_failure(message)
