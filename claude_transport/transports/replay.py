"""`ReplayTransport`: plays a tape. It says what the CLI said when the tape was recorded, and expects what the host said.

How a tape is matched is in `protocol/tape.py` (`Playback`). Tapes are recorded by `wrappers/recording.py`.
"""

from __future__ import annotations

import copy
import math
import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import anyio
import anyio.lowlevel

from claude_transport.agents.registry import agent_of
from claude_transport.errors import Busy, ConfigurationError, InputClosed, NotConnected, TransportClosed
from claude_transport.protocol.codec import LineDecoder
from claude_transport.protocol.expectation import ExpectationFailed
from claude_transport.protocol.redaction import redactor_knowing
from claude_transport.protocol.tape import Playback, Tape, TapeRecord
from claude_transport.transport import Client, DecodedLines, SessionTerms, Transport, TransportInfo
from claude_transport.transports.stream import FailureCount, LineBatches, bytes_to_send

_MAX_BATCH = 256
"""Lines handed out at once: as many small messages as one read of a full pipe gives."""


class ReplayTransport(Transport):
    """Plays `tape`, a `Tape` or the path of one, in place of the CLI. Your program must write what the recorded program wrote.

    Args:
        match: what must be the same as on the tape, besides the kinds of the lines. Any of `prompt`, `options` (the `initialize` request),
            `requests` (the fields of other control requests) and `answers` (to permissions, hooks and tools). Ids, folders and secrets may
            differ.
        speed: 0 plays as fast as your program allows, 1 in the recorded time, 2 in half of it.
        sleep: waits the given seconds, when `speed` is not 0.
        strict: your program must register the hooks that the tape calls, and must not answer with an error where the recorded program did
            not. The fixture `claude_tape` sets it.

    The lines of the CLI come in their order. Before it plays on past a recorded line of the program, it waits until your program writes a
    matching line. The type, the subtype of a request, and the question that an answer belongs to must match; the wording need not. Request
    ids and uuids of prompts are those of your program. Control requests may come in another order. A line that is not on the tape raises
    `ExpectationFailed`, in `write()` and in the reader; its `diff` shows the fields that differ. `initialize` is always answered. What the
    CLI ignores is ignored.

    The stream ends as the tape does. A recorded exit ends it, as `ProcessError` when the exit was a failure. When the recorded program
    closed the transport, or the tape just stops, the stream ends when your program ends its input.

    Raises:
        ConfigurationError: `tape` cannot be read, `speed` is not 0 or more, or `match` has an unknown name.
    """

    def __init__(
        self,
        tape: Tape | str | os.PathLike[str],
        *,
        match: Iterable[str] = (),
        speed: float = 0,
        sleep: Callable[[float], Awaitable[object]] = anyio.sleep,
        strict: bool = False,
    ) -> None:
        if not 0 <= speed < math.inf:
            raise ConfigurationError(
                f"speed must be 0 (as fast as possible) or a factor (2 is twice as fast as recorded), not {speed}", option="speed"
            )
        self._tape = tape if isinstance(tape, Tape) else Tape.read(tape)
        self._playback = Playback(
            self._tape,
            lines=agent_of(record.line for record in self._tape if record.dir in ("in", "out")).tape_lines(),
            match=match,
            redactor=redactor_knowing([os.environ]),
            folder=os.getcwd(),  # noqa: PTH109
            strict=strict,
        )
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
        self._failures = FailureCount(type(self).__name__)

    @property
    def tape(self) -> Tape:
        """The `Tape` that is played, with its header and all records."""
        return self._tape

    @property
    def whereabouts(self) -> str:
        """The position on the tape, in words, and what it waits for, if anything: a line of your program, or the end of its input. To debug
        a test that hangs.
        """
        return self._playback.whereabouts

    @property
    def failure(self) -> ExpectationFailed | None:
        """The first deviation of your program from the tape; None so far. It is kept also when it was caught."""
        return self._playback.failure

    @property
    def received_last(self) -> str:
        """The last line of your program that is on the tape, in a few words; empty before there is one."""
        return self._playback.received_last

    @property
    def is_closed(self) -> bool:
        """True after `close()`: nothing more is played."""
        return self._closed

    def assert_same_options(self, options: Mapping[str, Any]) -> None:
        """Raise `ExpectationFailed` when the recorded program had other options, and `match` has `options`.

        `options` are those that differ from the defaults, as `RecordingTransport` notes them.
        """
        self._playback.started({"options": options})

    def assert_played(self) -> None:
        """Raise `ExpectationFailed` unless every record of the tape was played. Call it at the end of a test.

        A line that is not on the tape has raised `ExpectationFailed` before, when it was written.
        """
        if not self._playback.is_complete:
            raise ExpectationFailed.at(self._playback.whereabouts, expected="to be played to its end", actual="a host that left before")

    async def connect(self) -> None:
        """Begin to play the tape; its recorded times count from here. It starts no process. A second call does nothing.

        Raises:
            TransportClosed: `close()` was called.
        """
        if self._closed:
            raise TransportClosed("the transport is closed")
        if not self._connected:
            self._connected = True
            self._last_at = anyio.current_time()
        await anyio.lowlevel.checkpoint()

    def is_ready(self) -> bool:
        """Return True between `connect()` and the end of the tape, or `close()`."""
        return self._connected and not self._closed and not self._ended

    async def write(self, data: str | bytes) -> None:
        """Match each line in `data` with the tape, so that the lines that were recorded after it can be read.

        Raises:
            UsageError: `data` is neither `str` nor bytes, or cannot be encoded as UTF-8.
            ExpectationFailed: the tape has no such line left; the error names the step.
            TransportClosed: the tape is over, or `close()` was called.
            InputClosed, NotConnected: after `end_input()`, before `connect()`.
        """
        await anyio.lowlevel.checkpoint()  # first, so that a cancelled call has done nothing
        self._refuse_unless_open()
        if self._input_ended:
            raise InputClosed("end_input() was called")
        if self._ended or self._playback.is_over:
            exit_code, signal = self._playback.exit_status
            raise TransportClosed("the tape is over", exit_code=exit_code, signal=signal, stderr_tail=self._playback.stderr_tail)
        raw = bytes_to_send(data)
        try:
            for line in raw.split(b"\n"):
                self._playback.received(line)
        finally:
            self._bytes_written += len(raw) + (not raw.endswith(b"\n"))  # with the newline that a real transport adds
            self._change.set()

    def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
        """Return an iterator over the recorded lines of the CLI, in batches, without newlines.

        It ends, or raises an error, as the recorded stream did. It raises `ExpectationFailed` when your program has deviated from the tape.

        Raises:
            NotConnected: `connect()` was not called.
            TransportClosed: `close()` was called.
        """
        self._refuse_unless_open()
        return LineBatches(self.next_batch)

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Return an iterator over the recorded messages of the CLI, as dicts.

        Lines that hold no message are left out; `info` counts them. It ends, or raises an error, as the recorded stream did. It raises
        `ExpectationFailed` when your program has deviated from the tape.

        Raises:
            NotConnected: `connect()` was not called.
            TransportClosed: `close()` was called.
        """
        self._refuse_unless_open()
        return DecodedLines(self.next_batch, pending=self._pending, decoder=self._decoder, on_failure=self._failures)

    async def end_input(self) -> None:
        """End the input. What was recorded after the end of the recorded input can be read now.

        Raises:
            NotConnected: `connect()` was not called.
            TransportClosed: `close()` was called.
        """
        await anyio.lowlevel.checkpoint()  # as in write()
        self._refuse_unless_open()
        self._input_ended = True
        self._playback.input_ended()
        self._change.set()

    async def close(self) -> None:
        """Stop playing: a waiting reader's iteration ends, and later reads and writes raise `TransportClosed`."""
        self._closed = True
        if self._sleeping is not None:
            self._sleeping.cancel()
        self._change.set()
        await anyio.lowlevel.checkpoint()

    @property
    def info(self) -> TransportInfo:
        """What was played so far (bytes, lines, standard error), the recorded version of the CLI and, at the end, its exit."""
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
            **self._failures.counts(),
        )

    def attach(self, client: Client) -> SessionTerms:
        """Return `SessionTerms` that only make the layer above report lines that hold no message, so that `info` counts them.

        `client` is not used.
        """
        return SessionTerms(on_failure=self._failures)

    async def next_batch(self) -> Sequence[bytes]:
        """Return the next recorded lines, at least one. The iterators call it. It raises `StopAsyncIteration` or the recorded error at the
        end.

        Raises:
            Busy: another task is reading.
            ExpectationFailed: your program wrote a line that is not on the tape, or ended its input too early.
        """
        if self._pending:
            batch = list(self._pending)
            self._pending.clear()
            return batch
        if self._reading:
            raise Busy("another task is already reading from this transport")
        self._reading = True
        try:
            return await self._play()
        finally:
            self._reading = False

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
        """Return the lines whose time has come: all of them, or one by one when there is a speed."""
        batch: list[bytes] = []
        while len(batch) < _MAX_BATCH:
            try:
                record = self._held or self._playback.next_record()
            except ExpectationFailed as failed:
                if batch:
                    break  # it is raised again, after these lines
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
        else:  # the live host has done it in its own time
            self._last_at = anyio.current_time()
        self._last_t = record.t

    def _refuse_unless_open(self) -> None:
        if self._closed:
            raise TransportClosed("the transport is closed")
        if not self._connected:
            raise NotConnected("connect() has not been called")
