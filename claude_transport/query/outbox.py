"""Lines on their way to the transport: in order, several to a write, and none cut in half by somebody's cancellation."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

import anyio

from claude_transport.errors import ClaudeTransportError, InputClosed, ProtocolError, TransportClosed
from claude_transport.query.cancellation import guarded
from claude_transport.query.endings import raised_again, translated
from claude_transport.transport import Transport, TransportLike

__all__ = ["MAX_WAITING_BYTES", "Delivery", "Outbox"]

logger: logging.Logger = logging.getLogger(__name__)

_LAST_WRITE = 1.0

MAX_WAITING_BYTES = 64 * 2**20
"""Bytes of lines that wait for a peer that goes on asking and does not read the answers."""

_LINE_OVERHEAD = 1_000
"""Bytes that a waiting line takes besides its own: a delivery with its event was measured with 700."""

_BATCH_BYTES = 1 << 20
"""Bytes joined into one write at most; many small frames in one write cost a fraction of many writes."""


class Delivery:
    """One line, or with None the end of the input; and what becomes of it. It is settled once."""

    __slots__ = ("begun", "done", "error", "line", "on_error")

    def __init__(self, line: bytes | None, on_error: Callable[[ClaudeTransportError], None] | None = None) -> None:
        self.line: bytes | None = line
        self.on_error: Callable[[ClaudeTransportError], None] | None = on_error
        self.begun: bool = False
        self.done: anyio.Event = anyio.Event()
        self.error: ClaudeTransportError | None = None

    def settle(self, error: ClaudeTransportError | None) -> None:
        """The transport has taken it, or will not."""
        if not self.done.is_set():
            self.error = error
            self.done.set()
            if error is not None and self.on_error is not None:
                self.on_error(error)

    @property
    def may_arrive(self) -> bool:
        """True when the peer may get to see it."""
        return self.begun and self.error is None


class Outbox:
    """The writing side of a conversation. One task, `run()`, does all the writing.

    A transport is poisoned when a write is cancelled in the middle of a line, so nobody but `run()` is ever inside one:
    a cancelled caller of `send()` takes its line back if writing has not begun, and else leaves it to be finished.
    """

    def __init__(self, transport: TransportLike) -> None:
        self._transport = transport
        # a transport written for the official SDK expects text, and one message to a write: it may well frame each of them
        self._is_ours = isinstance(transport, Transport)
        self._queue: deque[Delivery] = deque()
        self._in_flight: list[Delivery] = []
        self._waiting_bytes = 0
        self._arrival = anyio.Event()
        self._input_ended = False
        self._failure: ClaudeTransportError | None = None
        self._over = False

    def post(self, line: bytes, *, on_error: Callable[[ClaudeTransportError], None] | None = None) -> None:
        """Put a line in the queue without waiting for it; `on_error` is told when it cannot be written."""
        self._put(Delivery(line, on_error))

    def check_room(self) -> None:
        """Refuse another question of a peer that does not read the answers.

        Raises:
            ProtocolError: more than `MAX_WAITING_BYTES` wait to be written.
        """
        if self._waiting_bytes > MAX_WAITING_BYTES:
            raise ProtocolError(
                f"the CLI goes on asking and does not read the answers: {self._waiting_bytes} bytes wait for it, and at most "
                f"{MAX_WAITING_BYTES} may"
            )

    async def send(self, delivery: Delivery) -> None:
        """Return when the transport has taken the line; raise what kept it from being taken."""
        await self._wait(self._put(delivery))

    async def end(self) -> None:
        """End the input after everything that is in the queue."""
        await self._wait(self._put(Delivery(None)))

    def post_end(self) -> None:
        """End the input after everything that is in the queue, without waiting for it."""
        self._put(Delivery(None))

    def fail(self, error: ClaudeTransportError) -> None:
        """No line can be written any more: settle all that are in the queue or being written, and all that come.

        The input can still be ended: a peer that does not take a line may yet understand that there will be no more.
        """
        if self._failure is None:
            self._failure = error
        waiting, self._queue = self._queue, deque()
        self._waiting_bytes = 0
        for delivery in (*self._in_flight, *waiting):
            if delivery.line is None and not delivery.begun and not self._over:
                self._queue.append(delivery)  # it was announced to everybody who came after, so nobody would ask for it again
                continue
            # an end that the transport is already at asks for no more than that nobody reads any more, and so it is
            is_ending = delivery.line is None and delivery.begun
            delivery.settle(None if is_ending else self._failure)

    def close(self, error: ClaudeTransportError) -> None:
        """Nothing is written any more, not even the end of the input: settle everything."""
        self._over = True
        self.fail(error)

    async def flush(self) -> None:
        """Return when everything that was put in the queue so far is settled."""
        for delivery in (*self._in_flight, *self._queue):
            await delivery.done.wait()

    async def write_last(self, line: bytes) -> None:
        """Write one more line after everything has been settled, if the transport still takes it, within `_LAST_WRITE` seconds."""
        with anyio.move_on_after(_LAST_WRITE, shield=True):
            try:
                await guarded(self._transport.write(line if self._is_ours else line.decode()))  # type: ignore[arg-type]
            except Exception:
                # the transport is closed next, and there was no promise that it still takes anything
                logger.debug("the last line could not be written", exc_info=True)

    def _put(self, delivery: Delivery) -> Delivery:
        if delivery.line is not None and self._input_ended:
            delivery.settle(InputClosed("end_input() was called: nothing more can be sent"))
        elif delivery.line is None and self._input_ended:
            delivery.settle(None)
        elif self._failure is not None and (delivery.line is not None or self._over):
            delivery.settle(self._failure)
        else:
            self._input_ended = delivery.line is None
            self._queue.append(delivery)
            self._waiting_bytes += _cost_of(delivery)
            self._arrival.set()
        return delivery

    async def _wait(self, delivery: Delivery) -> None:
        try:
            await delivery.done.wait()
        except anyio.get_cancelled_exc_class():
            # the end of the input stays in the queue: it was announced to everybody who came after
            if not delivery.begun and delivery.line is not None and delivery in self._queue:
                self._queue.remove(delivery)
                self._waiting_bytes -= _cost_of(delivery)
            raise
        if delivery.error is not None:
            raise raised_again(delivery.error)

    async def run(self) -> None:
        """Write what is in the queue, for ever. The first line is written without a checkpoint before it."""
        try:
            while True:
                while self._queue:
                    await self._write_next()
                self._arrival = anyio.Event()
                await self._arrival.wait()
        finally:
            self.close(TransportClosed("the conversation is closed"))

    async def _write_next(self) -> None:
        self._in_flight = self._next_deliveries()
        try:
            if self._in_flight[0].line is None:
                await guarded(self._transport.end_input())
            else:
                data = b"".join(delivery.line for delivery in self._in_flight if delivery.line is not None)
                await guarded(self._transport.write(data if self._is_ours else data.decode()))  # type: ignore[arg-type]
        except Exception as exc:  # noqa: BLE001 - somebody else's transport may raise anything; it is translated here
            self.fail(translated(exc, "the transport could not write"))
        else:
            for delivery in self._in_flight:
                delivery.settle(None)
        self._in_flight = []

    def _next_deliveries(self) -> list[Delivery]:
        deliveries: list[Delivery] = []
        size = 0
        while self._queue and size < _BATCH_BYTES and (not deliveries or (self._is_ours and self._queue[0].line is not None)):
            delivery = self._queue.popleft()
            self._waiting_bytes -= _cost_of(delivery)
            delivery.begun = True
            deliveries.append(delivery)
            if delivery.line is None:
                break
            size += len(delivery.line)
        return deliveries


def _cost_of(delivery: Delivery) -> int:
    return 0 if delivery.line is None else len(delivery.line) + _LINE_OVERHEAD
