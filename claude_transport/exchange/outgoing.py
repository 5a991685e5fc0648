"""Lines on their way to the transport: `Delivery` is one of them, and `LineWriter` writes them all.

`PassingLines` are control lines that are written beside a prompt for which `write()` waits.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

import anyio
import anyio.lowlevel

from claude_transport.errors import ClaudeTransportError, InputClosed, ProtocolError, TransportClosed
from claude_transport.exchange.failures import ConversationEnd, guarded, refuse_stray, tells_of_the_end, translated
from claude_transport.loggers import logger_for
from claude_transport.loops.current import LightEvent, Wakeup, is_being_cancelled_here
from claude_transport.transport import AtOnce, Transport, TransportLike

logger: logging.Logger = logger_for(__name__)

MAX_WAITING_BYTES = 64 * 2**20
"""Bytes of lines that may wait to be written, when the peer goes on asking and does not read the answers."""

_BATCH_BYTES = 1 << 20
"""Bytes joined into one write at most. Many small lines in one write cost a fraction of many writes."""

_LINE_OVERHEAD = 1_000
"""Bytes that a waiting line takes beside its own. A delivery with its event was measured with 700."""


class Delivery:
    """One line on its way to the transport, or the end of the input when `line` is None. It is settled once.

    `on_error` is called when the line will not be written. With `is_control`, the line may pass a prompt for which `write()` waits.
    """

    __slots__ = ("_on_error", "done", "error", "is_control", "line", "size")

    def __init__(
        self, line: bytes | None, on_error: Callable[[ClaudeTransportError], None] | None = None, *, is_control: bool = False
    ) -> None:
        self.line: bytes | None = line
        self._on_error = on_error
        self.is_control: bool = is_control
        self.size: int = 0 if line is None else len(line) + _LINE_OVERHEAD
        self.done: LightEvent = LightEvent()
        self.error: ClaudeTransportError | None = None

    def call_on_error(self, func: Callable[[ClaudeTransportError], None]) -> None:
        """Have `func` called when the line will not be written."""
        self._on_error = func

    def settle(self, error: ClaudeTransportError | None) -> None:
        """Note that the transport has taken the line, or with `error` that it will not."""
        if not self.done.is_set():
            self.error = error
            self.done.set()
            on_error, self._on_error = self._on_error, None  # it may hold what holds this delivery
            if error is not None and on_error is not None:
                on_error(error)


class PassingLines:
    """Control lines of one conversation, which are written in the order of `put()` while a prompt is being written.

    The contract lets several tasks write at once. A transport that waits for its peer makes both wait. A wrapper that waits for something
    else, as a rate limiter does, holds back the prompt alone.

    Args:
        start: starts the task that writes.
        write: writes one line.
        on_failure: called with what `write` raised, and the line.
        on_rest: called when every line is written or taken.
    """

    __slots__ = ("_arrival", "_is_running", "_lines", "_on_failure", "_on_rest", "_start", "_write", "size")

    def __init__(
        self,
        *,
        start: Callable[..., object],
        write: Callable[[Any], Awaitable[object]],
        on_failure: Callable[[Exception, Delivery], object],
        on_rest: Callable[[], object],
    ) -> None:
        self._start = start
        self._write = write
        self._on_failure = on_failure
        self._on_rest = on_rest
        self._lines: deque[Delivery] | tuple[()] = ()  # made for lines that pass: most of the time there are none
        self.size: int = 0
        """Bytes of the lines that are not written yet, as `Delivery.size` counts them."""
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

    def __bool__(self) -> bool:
        """True while lines are not written yet."""
        return bool(self._lines)

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
        self._on_rest()


class LineWriter:
    """The lines of one conversation on their way to its transport, and the end of its input.

    One task writes. It starts with the first line that cannot be written at once. While it waits with a prompt, a second task writes the
    control lines, where the transport lets several tasks write. A transport is broken for good when a write is cancelled in the middle of
    a line, so a cancelled caller of `send()` takes its line back when writing has not begun. Else the line is written to its end.

    Args:
        transport: lines are written to it. One that was written for the official SDK expects text, and each line in a call of its own.
        end: notes what the transport raises, and makes the error for lines that come too late.
    """

    __slots__ = (
        "_arrival",
        "_at_once",
        "_end",
        "_in_flight",
        "_input_ended",
        "_is_ours",
        "_is_over",
        "_passing",
        "_queue",
        "_queued_controls",
        "_start",
        "_transport",
        "_unwritable",
        "_waiting_bytes",
        "begun",
        "write_now",
    )

    def __init__(self, transport: TransportLike, *, end: ConversationEnd) -> None:
        self._transport = transport
        self._is_ours = isinstance(transport, Transport)
        self._end = end
        self._queue: deque[Delivery] | tuple[()] = ()  # made for lines that wait: most of the time there are none
        self._in_flight: list[Delivery] = []
        self._passing: PassingLines | None = None  # from `begin()` to `stop()`
        self._waiting_bytes = self._queued_controls = 0
        self.begun: LightEvent = LightEvent()
        """Set when the writing task is about to write its first line, with no checkpoint in between."""
        self._start: Callable[..., object] | None = None
        self._arrival = Wakeup()
        self._input_ended = self._is_over = False
        self._unwritable: ClaudeTransportError | str = ""  # why no line can be written any more; a text becomes an error when it is needed
        self._at_once: AtOnce | None = None
        self.write_now: Callable[[bytes], bool] | None = None
        """Writes a line without waiting, or returns False. None while other lines are before it, and when the input has ended."""

    def begin(self, start: Callable[..., object], *, at_once: AtOnce | None) -> None:
        """Write from now on. `start` starts the writing task, with the first line that cannot be written at once."""
        self._start = start
        self._passing = PassingLines(start=start, write=self._transport.write, on_failure=self.note_failure, on_rest=self._allow_write_now)
        self._at_once = at_once
        self.write_now = None if at_once is None else at_once.write

    async def send(self, delivery: Delivery) -> None:
        """Wait until the transport has taken the line. Raises what kept it from being taken."""
        if self.write_now is not None and delivery.line is not None and not is_being_cancelled_here():
            await anyio.lowlevel.checkpoint_if_cancelled()  # the line of a cancelled caller is not written
            # nothing has run since the caller's last step, unless it was cancelled
            try:
                is_written = self.write_now(delivery.line)
            except Exception as exc:  # noqa: BLE001 - it raises what `write()` may raise
                self.note_failure(exc, delivery)
                is_written = False
            if is_written:
                delivery.settle(None)
                await anyio.lowlevel.checkpoint()
                return
        self.put(delivery)
        try:
            await delivery.done.wait()
        except anyio.get_cancelled_exc_class():
            if delivery.line is not None:  # else later senders were already told of it
                self.take_back(delivery)
            raise
        if delivery.error is not None:
            raise self._end.told(delivery.error)

    def put(self, delivery: Delivery) -> None:
        """Add the line to the queue, without waiting until it is written."""
        is_end = delivery.line is None
        if self._input_ended:
            delivery.settle(None if is_end else InputClosed("end_input() was called: nothing more can be sent"))
        elif self._unwritable and (not is_end or self._is_over):
            delivery.settle(self._write_error())
        elif is_end and self.write_now is not None and self._at_once is not None and self._at_once.end_input():
            self._input_ended, self.write_now = True, None
            delivery.settle(None)
        elif delivery.is_control and (self._passing or self._is_prompt_in_flight):  # it overtakes no other control line
            self._let_pass(delivery)
        else:
            self._input_ended = is_end
            self.write_now = None
            self._enqueue(delivery)
            self._waiting_bytes += delivery.size
            self._arrival.fire()
            if self._start is not None:
                start, self._start = self._start, None
                start(self._write_all)

    def take_back(self, delivery: Delivery) -> bool:
        """Remove a line that is not being written yet. Returns False when it is too late."""
        if not self._queue or delivery not in self._queue:
            return False
        self._queue.remove(delivery)
        self._queued_controls -= delivery.is_control
        self._waiting_bytes -= delivery.size
        return True

    def is_void(self, delivery: Delivery) -> bool:
        """Return True when the peer can never get to see the line: it failed, was taken back, or was never sent."""
        if delivery.error is not None:
            return True
        return not (delivery.done.is_set() or delivery in self._unsettled)

    @property
    def has_room(self) -> bool:
        """False when more than `MAX_WAITING_BYTES` wait."""
        return self._all_waiting_bytes <= MAX_WAITING_BYTES

    def check_room(self) -> None:
        """Raise `ProtocolError` when more than `MAX_WAITING_BYTES` wait for a peer that asks and does not read the answers."""
        if not self.has_room:
            waiting = self._all_waiting_bytes
            raise ProtocolError(
                f"the peer goes on asking and does not read the answers: {waiting} bytes wait for it, and at most {MAX_WAITING_BYTES} may"
            )

    @property
    def _all_waiting_bytes(self) -> int:
        return self._waiting_bytes + (0 if self._passing is None else self._passing.size)

    @property
    def is_writing(self) -> bool:
        """True while the transport is being written to."""
        return bool(self._unsettled)

    def fail(self, why: ClaudeTransportError | str) -> None:
        """Settle every line that is in the queue or being written, and every later one, with an error that says `why`. The first counts.

        The input can still be ended: a peer that takes no line may yet understand that there will be no more.
        """
        self.write_now = None
        self._unwritable = self._unwritable or why
        in_flight, waiting = [*self._in_flight, *(() if self._passing is None else self._passing.take_all())], self._queue
        self._queue = ()
        self._waiting_bytes = self._queued_controls = 0
        for delivery in in_flight:
            # an end that the transport is already at has done all it can: nothing more is read
            delivery.settle(None if delivery.line is None else self._write_error())
        for delivery in waiting:
            if delivery.line is None and not self._is_over:
                self._enqueue(delivery)  # later senders were told of it, so it will not be asked for again
            else:
                delivery.settle(self._write_error())

    def stop(self, error: ClaudeTransportError | None = None) -> None:
        """Settle everything, with `error` when nothing has failed before. From now on not even the end of the input is written."""
        self._is_over = True
        self._start = None
        self.fail(error or "the conversation is closed")
        self._passing = None  # it holds methods of this object
        self._arrival.fire()

    async def flush(self) -> None:
        """Wait until everything that is in the queue now is settled."""
        for delivery in self._unsettled:
            await delivery.done.wait()

    async def write_last(self, line: bytes, *, within: float) -> None:
        """Write one more line after everything has been settled, when the transport still takes it within that many seconds."""
        with anyio.move_on_after(within, shield=True):
            try:
                await guarded(self._transport.write(line if self._is_ours else line.decode()))  # type: ignore[arg-type]
            except Exception:
                # the transport is closed next, and nothing promised that it still takes a line
                logger.debug("the last line could not be written", exc_info=True)

    @property
    def _unsettled(self) -> list[Delivery]:
        """The lines that are being written, and those that wait."""
        return [*self._in_flight, *(self._passing or ()), *self._queue]

    def _enqueue(self, delivery: Delivery) -> None:
        if not self._queue:
            self._queue = deque()
        self._queue.append(delivery)
        self._queued_controls += delivery.is_control

    @property
    def _is_prompt_in_flight(self) -> bool:
        """Whether a prompt is being written to a transport that several tasks may write to at once."""
        first = self._in_flight[0] if self._in_flight else None
        return self._is_ours and first is not None and first.line is not None and not first.is_control

    def _let_pass(self, *deliveries: Delivery) -> None:
        """Write control lines beside a prompt that is being written."""
        passing = cast("PassingLines", self._passing)  # which is there while a line is being written
        for delivery in deliveries:
            passing.put(delivery)

    def _let_queued_pass(self) -> None:
        """Write the control lines that wait behind a prompt beside it."""
        controls = [delivery for delivery in self._queue if delivery.is_control]
        self._queue = deque(delivery for delivery in self._queue if not delivery.is_control) or ()
        self._queued_controls = 0
        self._waiting_bytes -= sum(delivery.size for delivery in controls)
        self._let_pass(*controls)

    def _next_line(self) -> Delivery:
        queue = cast("deque[Delivery]", self._queue)
        delivery = queue.popleft()
        self._queued_controls -= delivery.is_control
        if not queue:
            self._queue = ()
        return delivery

    def _allow_write_now(self) -> None:
        """Let the next line be written without waiting, if no other line is before it."""
        is_idle = not (self._queue or self._in_flight or self._passing)
        if is_idle and self._at_once is not None and not (self._input_ended or self._unwritable or self._is_over):
            self.write_now = self._at_once.write

    async def _write_all(self) -> None:
        """Write what is put in the queue, in order, until `stop()`."""
        try:
            self.begun.set()
            while True:
                while not self._queue:
                    if self._is_over:
                        return
                    self._allow_write_now()
                    await self._arrival.wait()
                first = self._next_line()
                self._in_flight = [first]
                self._waiting_bytes -= first.size
                try:
                    try:
                        if first.line is None:
                            if self._passing is not None:
                                await self._passing.wait()
                            await self._transport.end_input()
                        elif self._is_ours:
                            await self._transport.write(self._with_more(first) if self._queue else first.line)  # type: ignore[arg-type]
                        else:
                            # one that was written for the official SDK expects text, and may frame what each call gives it
                            await self._transport.write(first.line.decode())
                    except anyio.get_cancelled_exc_class() as exc:
                        refuse_stray(exc)
                        raise
                except Exception as exc:  # noqa: BLE001 - a transport of another library may raise anything; it is translated here
                    self.note_failure(exc, first)
                else:
                    self._settle_written()
                self._in_flight = []
                del first  # it would be kept until the next line comes
        finally:
            self.stop(TransportClosed("the conversation is closed"))

    def note_failure(self, exc: Exception, first: Delivery) -> None:
        """Note what the transport raised for `first`, a line or the end of the input. The first failure counts, whatever ends next."""
        error = translated(exc, "the transport could not end its input" if first.line is None else "the transport could not write")
        self._end.note(error)
        if first.line is None and not tells_of_the_end(error):
            first.settle(self._end.first_failure)  # else the end has done all it can: the peer is gone
        self.fail(error)

    def _settle_written(self) -> None:
        for delivery in self._in_flight:
            delivery.settle(None)

    def _with_more(self, first: Delivery) -> bytes:
        """Return the line of `first` with the next lines of its kind behind it, up to `_BATCH_BYTES` and to the end of the input.

        Control lines that wait behind a prompt are written beside it.
        """
        if self._queued_controls and self._is_prompt_in_flight:
            self._let_queued_pass()
        line = cast("bytes", first.line)
        lines, size = [line], len(line)
        while self._queue and size < _BATCH_BYTES and (line_behind := self._queue[0].line) is not None:
            if self._queue[0].is_control is not first.is_control:
                break
            delivery = self._next_line()
            self._in_flight.append(delivery)
            self._waiting_bytes -= delivery.size
            lines.append(line_behind)
            size += len(line_behind)
        return b"".join(lines)

    def _write_error(self) -> ClaudeTransportError:
        """Return the error for lines that cannot be written any more."""
        if isinstance(self._unwritable, str):
            self._unwritable = self._end.gone(self._unwritable)
        return self._unwritable
