"""The two views of a transport's lines: undecoded in batches, and as dicts one by one. They hold no state of their own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, Self, runtime_checkable

from claude_transport.protocol.codec import LineDecoder
from claude_transport.protocol.messages import DecodeFailure, OversizedMessage
from claude_transport.transport import PouredLines

__all__ = ["DictView", "LineView", "Pourable", "PouredLineView"]

NextBatch = Callable[[], Coroutine[Any, Any, Sequence[bytes]]]
HandOn = Callable[[Sequence[bytes]], bool]


@runtime_checkable
class Pourable(Protocol):
    """A stream that can hand on what comes where it is noticed, without waking who waits for it."""

    async def pour(self, hand_on: Callable[[bytes], bool]) -> bool:
        """Hand each chunk to `hand_on` until that returns True: True then, False when `receive()` has something to say."""
        ...


class LineView:
    """The batches that `next_batch` gives. Leaving it loses nothing."""

    def __init__(self, next_batch: NextBatch) -> None:
        self._next_batch = next_batch

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Coroutine[Any, Any, Sequence[bytes]]:
        return self._next_batch()  # not awaited here: that would cost a frame


class PouredLineView(LineView, PouredLines):
    """The same, and `pour` hands them on."""

    def __init__(self, next_batch: NextBatch, pour: Callable[[HandOn], Coroutine[Any, Any, bool]]) -> None:
        super().__init__(next_batch)
        self._pour = pour

    async def pour(self, hand_on: HandOn) -> bool:
        """See `PouredLines`."""
        return await self._pour(hand_on)


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
