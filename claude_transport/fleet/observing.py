"""Watching a session of a fleet: a cursor of its own in the output, which the broker keeps. It writes nothing there."""

from __future__ import annotations

import os
import ssl
from collections import deque
from typing import Final

import anyio

from claude_transport.errors import CLIConnectionError, ConnectionLost, ReplayGap
from claude_transport.fleet.answers import count_of, entry_of
from claude_transport.fleet.broker import Broker, BrokerAddress, BrokerCut
from claude_transport.fleet.ends import decode_struct
from claude_transport.fleet.messages import MAX_HELD_BYTES, Entry, FleetReader, Kind, SessionEnd, StreamArrival
from claude_transport.fleet.stream import check_version
from claude_transport.loops.current import Wakeup
from claude_transport.protocol.fragments import FragmentRedactor
from claude_transport.protocol.observation import ObservedLine, note_of_skip
from claude_transport.protocol.redaction import redactor_knowing
from claude_transport.protocol.tape import CLOSED, OUTPUT_ENDED, Direction, note_of_exit
from claude_transport.serving.following import Observation
from claude_transport.text.printable import printable

_PATIENCE: Final = 30.0
"""Seconds for which a lost broker is waited for."""

_LOOK_AGAIN: Final = 5.0
"""Seconds after which the stream is read although nothing was told."""

_LINES: Final = 2**16
"""Positions of one entry: it has fewer lines."""


class FleetObservation(Observation):
    """Follows the output of one session. A position is the number of an entry and of a line in it, as one number.

    Lines to the process are not among them. A change of the worker is a note.
    """

    def __init__(self, url: str, *, session: str, since: int | None, ssl_context: ssl.SSLContext | None = None, scrub: bool = True) -> None:
        self._broker = Broker(BrokerAddress(url, ssl_context=ssl_context))
        self._session = session
        self._since = since
        self._fragments: FragmentRedactor[int] | None = FragmentRedactor(redactor_knowing([os.environ])) if scrub else None
        self._reader: FleetReader | None = None
        self._lines: deque[ObservedLine] = deque()
        self._start: float = 0.0
        self._ended = self._closed = False
        self._generation: tuple[object, int] = (None, 0)
        self._has_more, self._told = True, Wakeup()
        self._first: list[Entry] = []  # of the first read: they may be forgotten before another one
        self.position: int = 0

    async def __anext__(self) -> ObservedLine:
        """Wait for the next line. The session bounds the wait; cancel it to give up, which loses nothing.

        Raises:
            ReplayGap: the lines behind `since` are not kept.
            CLIConnectionError: there is no such session, it has a version of the format that this library does not know, or the broker
                cannot be reached.
            ConnectionLost: the broker was lost meanwhile, or the session was deleted (`fleet.gone`).
        """
        reader = self._reader or await self._begin()
        while not self._closed:
            if self._lines:
                line = self._lines.popleft()
                self.position = line.position
                return line
            if self._ended:
                break
            await self._read_more(reader)
        await self.aclose()
        raise StopAsyncIteration

    async def _begin(self) -> FleetReader:
        await self._broker.start(timeout=_PATIENCE)
        try:
            await self._broker.follow(self._broker.keys.outgoing(self._session), self._hear_of_more)
            reader = await self._find_start()
            while await self._has_missed(reader):
                reader = await self._find_start()
        except BaseException as exc:
            await self.aclose()
            if isinstance(exc, BrokerCut):
                raise CLIConnectionError(f"{self._broker.address}: {exc}", code="fleet.broker_lost") from exc
            raise
        self._start, self._generation = anyio.current_time(), self._broker.generation_of(self._session)
        self._reader = reader
        if self._fragments is not None and reader.cursor:
            self._fragments.miss()
        return reader

    def _hear_of_more(self, _: bytes) -> None:
        self._has_more = True
        self._told.fire()

    async def _find_start(self) -> FleetReader:
        """Return a reader behind `since`, or at the oldest entry."""
        keys = self._broker.keys
        await check_version(self._broker, self._session)
        last = await self._broker.command("hget", keys.meta(self._session), "wo")
        if last is None:
            raise CLIConnectionError(
                f"the fleet has no session {printable(self._session, at_most=64)}", code="fleet.no_session", retryable=False
            )
        found = await self._broker.command("xrange", keys.outgoing(self._session), "-", "+", "COUNT", 1)
        said = count_of(last)
        first = entry_of(found[0][0], found[0][1]).number if found else said + 1
        if self._since is None:
            return self._reader_behind(first - 1)
        wanted = max(self._since // _LINES, 1)
        if self._since // _LINES > said:
            raise ReplayGap(f"the session has not said {self._since} yet")
        if wanted < first and not (wanted == first - 1 and self._since % _LINES == _LINES - 1):
            raise ReplayGap(f"the lines behind {self._since} are not kept any more; since=None begins with the oldest one")
        return self._reader_behind(wanted - 1)

    async def _has_missed(self, reader: FleetReader) -> bool:
        """Read for the first time. Returns whether what was there a moment ago is there no more: it was taken meanwhile."""
        self._has_more = False
        try:
            entries = await self._broker.read(self._broker.keys.outgoing(self._session), reader.cursor)
        except BrokerCut:
            self._has_more = True
            return False
        if entries:
            self._has_more, self._first = True, entries
            return False
        last = await self._broker.command("hget", self._broker.keys.meta(self._session), "wo")
        return last is None or count_of(last) > reader.cursor

    def _reader_behind(self, cursor: int) -> FleetReader:
        return FleetReader(cursor=cursor, max_held_bytes=MAX_HELD_BYTES, passes_on=True)

    async def _read_more(self, reader: FleetReader) -> None:
        was_told = self._has_more
        if not was_told:
            with anyio.move_on_after(_LOOK_AGAIN):
                await self._told.wait()
                was_told = True
        self._has_more = False
        entries, self._first = self._first, []
        try:
            entries = entries or await self._broker.read(self._broker.keys.outgoing(self._session), reader.cursor)
            if self._generation != self._broker.generation_of(self._session):
                await self._check_after_loss(reader)
            if not (was_told or entries or reader.cursor):  # a session that has said nothing may be in the queue
                await self._check_there()
        except BrokerCut:
            await self._broker.reached(self._session, patience=_PATIENCE)
            self._has_more = True
            return
        self._has_more = self._has_more or bool(entries)
        if entries and entries[0].number > reader.cursor + 1:
            self._skip(reader, entries)
        for arrival in reader.take(entries):
            self._take(arrival)

    async def _check_there(self) -> None:
        """Raise `ConnectionLost` when the session was deleted, which nothing tells of: an operator has stopped it in the queue."""
        if await self._broker.command("hget", self._broker.keys.meta(self._session), "wo") is None:
            raise ConnectionLost("the session was deleted before it has ended", code="fleet.gone")

    async def _check_after_loss(self, reader: FleetReader) -> None:
        self._generation = self._broker.generation_of(self._session)
        last = await self._broker.command("hget", self._broker.keys.meta(self._session), "wo")
        if last is None or count_of(last) < reader.cursor:
            raise ReplayGap("the broker has lost a part of the session that was watched")

    def _skip(self, reader: FleetReader, entries: list[Entry]) -> None:
        """Note that entries were trimmed before they were read: at least as many lines are missing."""
        self._hear_rest()
        if self._fragments is not None:
            self._fragments.miss()
        count = entries[0].number - reader.cursor - 1
        self._add(note_of_skip(count), (reader.cursor + 1) * _LINES, "note")
        reader.cursor = entries[0].number - 1

    def _take(self, arrival: StreamArrival) -> None:
        base = arrival.number * _LINES
        match arrival.kind:
            case Kind.DATA:
                for place, line in enumerate(arrival.data.removesuffix(b"\n").split(b"\n"), 1):
                    self._hear(line, base + place)
            case Kind.OWNER:
                self._hear_rest()
                self._add(b"a worker has taken the session", base + 1, "note")
            case Kind.END:
                self._hear_rest()
                end = decode_struct(arrival.data, SessionEnd)
                notes = [OUTPUT_ENDED, CLOSED]
                if end.exit_code is not None or end.signal is not None:
                    notes.insert(1, note_of_exit(exit_code=end.exit_code, signal=end.signal))
                for place, note in enumerate(notes, 1):
                    self._add(note, base + place, "note")
                self._ended = True

    def _hear(self, line: bytes, position: int) -> None:
        """Add a line of the process. One that ends in the middle of a streamed word waits for the end of that word."""
        if self._fragments is None:
            self._add(line, position, "out")
            return
        for at, shown in self._fragments.feed(position, line):
            self._add(shown, at, "out")

    def _hear_rest(self) -> None:
        """Add the lines that wait for the end of a word: it does not come."""
        for at, shown in self._fragments.rest() if self._fragments is not None else ():
            self._add(shown, at, "out")

    def _add(self, line: bytes, position: int, direction: Direction) -> None:
        if self._since is None or position > self._since:
            self._lines.append(ObservedLine(line, position=position, t=anyio.current_time() - self._start, direction=direction))

    async def aclose(self) -> None:
        """End the observation. A later step of the iteration ends it, too."""
        self._closed = True
        await self._broker.aclose()
