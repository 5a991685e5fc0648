"""`ReplayTransport`: a Claude that says what it said when the tape was recorded, and expects what it was told then."""

from __future__ import annotations

import copy
import logging
import math
import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Self

import anyio
import anyio.lowlevel

from claude_transport.errors import Busy, ConfigurationError, InputClosed, NotConnected, TransportClosed
from claude_transport.protocol.codec import LineDecoder
from claude_transport.protocol.envelope import DecodeFailure, OversizedMessage
from claude_transport.protocol.expectation import ExpectationFailed
from claude_transport.protocol.tape import Playback, Tape, TapeRecord
from claude_transport.transport import Client, SessionTerms, Transport, TransportInfo
from claude_transport.transports.stream import log_failure

logger: logging.Logger = logging.getLogger(__name__)

_MAX_BATCH = 256
"""Lines handed out at once: as many small messages as one read of a full pipe gives."""


class ReplayTransport(Transport):
    """Plays `tape`, a `Tape` or the path of one, to whoever does what its host did.

    Args:
        speed: 0 plays as fast as the host allows, 1 in the recorded time, 2 in half of it.
        sleep: does the waiting, in seconds, when `speed` is not 0.

    The CLI's lines come in their order. Before each recorded line of the host it waits for the live host to say the same: what counts
    is the type, the subtype of a request, and which question an answer is for; not the wording. Request ids and the uuids of prompts
    are those of the live host. A line that the tape does not have raises `ExpectationFailed` where it is written, and where the stream
    is read. `initialize` is always answered; what the CLI ignores is ignored.

    The stream ends as the tape does: with the recorded exit, as `ProcessError` when it was a failure; when the tape's host closed it,
    or the tape just stops, with the live host's input.

    Raises:
        ConfigurationError: `tape` cannot be read, or `speed` is no speed.
    """

    def __init__(
        self, tape: Tape | str | os.PathLike[str], *, speed: float = 0, sleep: Callable[[float], Awaitable[object]] = anyio.sleep
    ) -> None:
        if not 0 <= speed < math.inf:
            raise ConfigurationError(
                f"speed is 0 (as fast as possible) or how many times faster than recorded, not {speed}", option="speed"
            )
        self._tape = tape if isinstance(tape, Tape) else Tape.read(tape)
        self._playback = Playback(self._tape)
        self._speed = speed
        self._sleep = sleep
        self._decoder = LineDecoder()
        self._pending: deque[bytes] = deque()
        self._held: TapeRecord | None = None  # taken from the playback, but its time has not come
        self._last_t = 0.0
        self._last_at = 0.0
        self._sleeping: anyio.CancelScope | None = None
        self._change = anyio.Event()
        self._reading = False
        self._connected = False
        self._closed = False
        self._input_ended = False
        self._ended = False
        self._bytes_read = 0
        self._bytes_written = 0
        self._lines_read = 0
        self._noise_lines = 0
        self._oversized_lines = 0

    @property
    def tape(self) -> Tape:
        """The tape."""
        return self._tape

    @property
    def whereabouts(self) -> str:
        """Where the tape stands and what it waits for, in words: for people whose test hangs."""
        return self._playback.whereabouts

    def assert_played(self) -> None:
        """Raise `ExpectationFailed` unless the tape has been played to its end, and nothing else was said."""
        if not self._playback.is_complete:
            raise ExpectationFailed.at(self._playback.whereabouts, expected="to be played to its end", actual="a host that left before")

    # ---------------------------------------------------------------------------------------------------------- the contract

    async def connect(self) -> None:
        """Be ready to play."""
        if self._closed:
            raise TransportClosed("the transport is closed")
        if not self._connected:
            self._connected = True
            self._last_at = anyio.current_time()
        await anyio.lowlevel.checkpoint()

    def is_ready(self) -> bool:
        """True between `connect()` and the end of the tape, or `close()`."""
        return self._connected and not self._closed and not self._ended

    async def write(self, data: str | bytes) -> None:
        """Find each line on the tape. Raises `ExpectationFailed`, naming the step, for one that is not there."""
        await anyio.lowlevel.checkpoint()  # before anything is done: a call that is cancelled has done nothing
        self._refuse_unless_open()
        if self._input_ended:
            raise InputClosed("end_input() was called")
        if self._ended or self._playback.is_over:
            exit_code, signal = self._playback.exit_status
            raise TransportClosed("the tape is over", exit_code=exit_code, signal=signal, stderr_tail=self._playback.stderr_tail)
        raw = data.encode() if isinstance(data, str) else data
        try:
            for line in raw.split(b"\n"):
                self._playback.received(line)
        finally:
            self._bytes_written += len(raw)
            self._change.set()

    def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
        """The recorded lines, in batches."""
        self._refuse_unless_open()
        return _Lines(self)

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """The recorded messages as dicts; lines that hold none are left out and counted."""
        self._refuse_unless_open()
        return _Dicts(self)

    async def end_input(self) -> None:
        """No more input: what came after that on the tape comes now."""
        await anyio.lowlevel.checkpoint()  # as in write()
        self._refuse_unless_open()
        self._input_ended = True
        self._playback.input_ended()
        self._change.set()

    async def close(self) -> None:
        """Stop playing."""
        self._closed = True
        if self._sleeping is not None:
            self._sleeping.cancel()
        self._change.set()
        await anyio.lowlevel.checkpoint()

    @property
    def info(self) -> TransportInfo:
        """Sizes and counts of the playing, and what the tape says of its process."""
        exit_code, signal = self._playback.exit_status
        return TransportInfo(
            kind=type(self).__name__,
            cli_version=self._tape.header.cli_version,
            exit_code=exit_code,
            signal=signal,
            stderr_tail=self._playback.stderr_tail,
            bytes_read=self._bytes_read,
            bytes_written=self._bytes_written,
            lines_read=self._lines_read,
            noise_lines=self._noise_lines,
            oversized_lines=self._oversized_lines,
        )

    def attach(self, client: Client) -> SessionTerms:
        """Return terms that count bad lines for `info`."""
        return SessionTerms(on_failure=self._count_failure)

    def _count_failure(self, failure: DecodeFailure | OversizedMessage) -> None:
        """Count and log a line that held no message."""
        if isinstance(failure, OversizedMessage):
            self._oversized_lines += 1
        else:
            self._noise_lines += 1
        log_failure(logger, failure, transport=type(self).__name__, count=self._oversized_lines + self._noise_lines)

    # --------------------------------------------------------------------------------------------------------------- playing

    async def next_batch(self) -> Sequence[bytes]:
        """At least one line (called by the views)."""
        if self._pending:
            batch = list(self._pending)
            self._pending.clear()
            return batch
        if self._reading:
            raise Busy("somebody else is reading from this transport")
        self._reading = True
        try:
            return await self._play()
        finally:
            self._reading = False

    async def next_message(self) -> dict[str, Any]:
        """The next line that holds a message (called by the views)."""
        while True:
            if not self._pending:
                self._pending.extend(await self.next_batch())
            message = self._decoder.as_dict(self._pending.popleft())
            if isinstance(message, dict):
                return message
            if message is not None:
                self._count_failure(message)

    async def _play(self) -> Sequence[bytes]:
        await anyio.lowlevel.checkpoint()  # a reader of a long tape lets others run
        while not self._closed:
            self._change = anyio.Event()  # before looking: what happens meanwhile is not missed
            if batch := await self._due():
                self._lines_read += len(batch)
                self._bytes_read += sum(len(line) + 1 for line in batch)
                return batch
            if self._playback.is_over:
                self._ended = True
                if self._playback.error is not None:
                    raise self._playback.error
                break
            await self._change.wait()
        raise StopAsyncIteration

    async def _due(self) -> list[bytes]:
        """The lines whose time has come: all there are, or with a speed one after the other."""
        batch: list[bytes] = []
        while len(batch) < _MAX_BATCH:
            try:
                record = self._held or self._playback.next_record()
            except ExpectationFailed as failed:
                if batch:
                    break  # it comes again, after what was said before
                self._ended = True
                raise copy.copy(failed) from None
            if record is None:
                break
            if self._speed:
                self._held = record
                await self._wait_for(record)
                if self._closed:
                    return []
                self._held = None
            if record.dir == "out":
                batch.append(record.line)
                if self._speed:
                    break
        return batch

    async def _wait_for(self, record: TapeRecord) -> None:
        if record.t < 0:  # not on the tape
            return
        if record.dir in ("out", "err"):
            due = self._last_at + (record.t - self._last_t) / self._speed
            with anyio.CancelScope() as self._sleeping:  # close() ends the sleep, too
                await self._sleep(max(due - anyio.current_time(), 0))
            self._last_at = due
        else:  # the host has done what was waited for, at a time of its own
            self._last_at = anyio.current_time()
        self._last_t = record.t

    def _refuse_unless_open(self) -> None:
        if self._closed:
            raise TransportClosed("the transport is closed")
        if not self._connected:
            raise NotConnected("connect() has not been called")


class _View:
    def __init__(self, transport: ReplayTransport) -> None:
        self._transport = transport

    def __aiter__(self) -> Self:
        return self


class _Lines(_View):
    async def __anext__(self) -> Sequence[bytes]:
        return await self._transport.next_batch()


class _Dicts(_View):
    async def __anext__(self) -> dict[str, Any]:
        return await self._transport.next_message()
