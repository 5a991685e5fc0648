"""`LinkEnd`: one end of a resumable link, pure: numbered lines out, numbered lines in, each exactly once and in order.

Both ends are the same class. A connection under it may be cut at any byte: what was not acknowledged is kept, within a bound,
and said again on the next connection, and what comes twice is dropped by its number. An acknowledgement says that a line has been
*dealt with*, not that it has arrived: so the sender's window is also the bound of what the receiver has to hold, and the
receiver can always go on reading, which is what keeps heartbeats alive while its consumer sleeps.

How a shell uses it, on each connection: the handshake (`Hello`, `Welcome`), `resume(…)` with what the peer said in it, then
write `data_to_send()` whenever `has_output`, and give what arrives, cut into lines, to `receive_lines()`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from claude_transport.errors import ConfigurationError, InputClosed, ProtocolError, ReplayGap
from claude_transport.protocol.link_frames import (
    Ack,
    Bye,
    Data,
    End,
    Fragment,
    Frame,
    Hello,
    Ping,
    Pong,
    ProcessEnd,
    Refusal,
    Welcome,
    decode_frame,
    encode_frame,
    parse_number,
)
from claude_transport.protocol.oversized import OversizedLine
from claude_transport.protocol.replay_buffer import ReplayBuffer

__all__ = ["DEFAULT_REPLAY_BYTES", "DEFAULT_WINDOW_BYTES", "Lines", "LinkEnd", "LinkEvent"]

DEFAULT_REPLAY_BYTES = 8 * 2**20
"""Bytes kept to be said again: what a fast process says in the second or two that a reconnection takes."""

DEFAULT_WINDOW_BYTES = 4 * 2**20
"""Bytes that the peer may send ahead of what was dealt with: 40 MB/s at a round trip of 100 ms."""

_ACK_LINES = 256
"""Lines dealt with before an acknowledgement goes out although nobody is idle: its cost is then lost among theirs."""

_BATCH_BYTES = 64 * 2**10
"""Bytes handed out at once, unless asked otherwise: joining small frames is what makes them fast, a larger batch gains nothing more."""

_STAGES: dict[type, int] = {Data: 0, Fragment: 1, End: 2, ProcessEnd: 3}
"""The order of a direction's life: after a frame of one stage only later ones may follow, except that line follows line."""


class Lines(msgspec.Struct, frozen=True):
    """Lines that came now and were not there before, without newlines; the last of them has number `last`."""

    lines: list[bytes]
    last: int


LinkEvent: TypeAlias = Lines | Fragment | End | ProcessEnd | Bye | Refusal


class LinkEnd:
    """The state of one end, over any number of connections.

    `replay_bytes` bounds what is kept to be said again (one batch may go over it: look at `has_room` before each). `window` is what the
    peer may send before it is dealt with, in bytes; put it into the hello or the welcome. With `may_outrun`, nobody has to look:
    the oldest lines are forgotten instead, and a peer that needs them gets a `ReplayGap`.
    """

    def __init__(self, *, replay_bytes: int = DEFAULT_REPLAY_BYTES, window: int = DEFAULT_WINDOW_BYTES, may_outrun: bool = False) -> None:
        if min(replay_bytes, window) < 1:
            raise ConfigurationError("replay_bytes and window are numbers of bytes, 1 or more", option="window")
        self.window = window
        self._outgoing = ReplayBuffer(bound=replay_bytes, may_outrun=may_outrun)
        self._peer_window = 0  # nothing goes out before resume()
        self._last_line = 0  # the number of the last line or fragment sent
        self._stage = 0
        self._received = 0
        self._consumed = 0
        self._acked = 0  # the last number that this end has acknowledged
        self._unconsumed: deque[tuple[int, int]] = deque()  # last number and bytes of what came at once
        self._unconsumed_bytes = 0
        self._ack_bytes = 0  # dealt with since the last acknowledgement
        self._peer_stage = 0
        # what goes out before everything else, at most one of each: a peer that asks faster than it reads gets the last answer
        self._ack_due = False
        self._ping: int | None = None
        self._pings = 0
        self._pong: int | None = None
        self._bye: Bye | None = None
        self._bye_due = False

    # --------------------------------------------------------------------------------------------------------------- facts

    @property
    def sent(self) -> int:
        """The number of the last numbered frame, whether or not it has gone out yet."""
        return self._outgoing.last

    @property
    def acknowledged(self) -> int:
        """The last number that the peer has dealt with."""
        return self._outgoing.acknowledged

    @property
    def unacknowledged_lines(self) -> int:
        """Lines (and fragments) that the peer is not known to have dealt with."""
        return max(0, self._last_line - self._outgoing.acknowledged)

    @property
    def unsaid(self) -> bool:
        """True while something numbered waits to go out, also for want of a connection or of the peer's window."""
        return self._outgoing.is_waiting

    @property
    def received(self) -> int:
        """The last number that has arrived."""
        return self._received

    @property
    def consumed(self) -> int:
        """The last number that was reported as dealt with."""
        return self._consumed

    @property
    def replay_from(self) -> int:
        """The first number that can still be said again."""
        return self._outgoing.first

    @property
    def kept_bytes(self) -> int:
        """Bytes kept because the peer has not acknowledged them."""
        return self._outgoing.kept_bytes

    @property
    def has_room(self) -> bool:
        """True while less is kept than the bound."""
        return self._outgoing.has_room

    @property
    def has_output(self) -> bool:
        """True when `data_to_send()` has something."""
        if not self._peer_window:
            return False
        said = self._ack_due or self._bye_due or self._ping is not None or self._pong is not None
        return said or self._outgoing.may_fly(self._peer_window)

    # ------------------------------------------------------------------------------------------------------------ speaking

    def send_lines(self, lines: Iterable[bytes]) -> None:
        """Number and keep `lines`, which have no newlines. Raises `InputClosed` after the end."""
        self._refuse_if_ended()
        self._outgoing.put_lines(lines)
        self._last_line = self._outgoing.last

    def send_fragment(self, data: bytes) -> None:
        """Number and keep what a stream that was torn inside a line ended with. Only an end can follow (`InputClosed`)."""
        self._refuse_if_ended()
        self._outgoing.put(encode_frame(Fragment(self.sent + 1, data)))
        self._last_line = self._outgoing.last
        self._stage = _STAGES[Fragment]

    def end_input(self) -> None:
        """Say that nothing more comes; saying it twice does nothing."""
        if self._stage < _STAGES[End]:
            self._outgoing.put(encode_frame(End(self.sent)))
            self._stage = _STAGES[End]

    def end_process(
        self,
        *,
        exit_code: int | None = None,
        signal: int | None = None,
        killed: bool = False,
        stderr_tail: str = "",
        error: str | None = None,
    ) -> None:
        """Say how the process ended, after its last line; the first such report counts."""
        if self._stage < _STAGES[ProcessEnd]:
            end = ProcessEnd(
                after=self.sent,
                accepted=self._consumed,
                exit_code=exit_code,
                signal=signal,
                killed=killed,
                stderr_tail=stderr_tail,
                error=error,
            )
            self._outgoing.put(encode_frame(end))
            self._stage = _STAGES[ProcessEnd]

    def bye(self, *, reason: str = "", code: str = "") -> None:
        """Say that this is closed for good, after what the window lets out now; said again on every new connection."""
        self._bye = Bye(reason=reason, code=code)
        self._bye_due = True

    def ping(self) -> None:
        """Ask whether the peer is there."""
        self._pings += 1
        self._ping = self._pings

    def data_to_send(self, max_bytes: int = _BATCH_BYTES) -> bytes:
        """The next bytes for this connection, b"" when there is nothing. Whole frames: about `max_bytes`, or one that is larger.

        Raises:
            ReplayGap: what the peer is waiting for was outrun (`may_outrun`).
        """
        if not self._peer_window:
            return b""
        batch = self._answers()
        batch += self._outgoing.take(max_bytes, window=self._peer_window)
        if self._bye is not None and self._bye_due and not self._outgoing.may_fly(self._peer_window):
            batch.append(encode_frame(self._bye))
            self._bye_due = False
        return b"".join(batch)

    def _answers(self) -> list[bytes]:
        batch = []
        if self._pong is not None:
            batch.append(encode_frame(Pong(self._pong)))
        if self._ping is not None:
            batch.append(encode_frame(Ping(self._ping)))
        if self._ack_due:
            batch.append(encode_frame(Ack(self._consumed)))
            self._acked = self._consumed
            self._ack_bytes = 0
        self._pong = self._ping = None
        self._ack_due = False
        return batch

    def _refuse_if_ended(self) -> None:
        if self._stage:
            raise InputClosed("this end of the link has ended: nothing more can be sent")

    # --------------------------------------------------------------------------------------------------------- connections

    def resume(self, *, received: int, replay_from: int, window: int) -> None:
        """Begin a connection, the first one too, with what the peer said in its hello or welcome: from here on there is output.

        Raises:
            ReplayGap: one of the two cannot say again what the other one has missed.
            ProtocolError: the peer claims to have received what was never sent.
        """
        if replay_from > self._received + 1:
            raise ReplayGap(f"the peer can say again only from number {replay_from} on, but {self._received} was the last one here")
        self._outgoing.rewind(received=received)
        self._peer_window = window
        self._ping = self._pong = None
        self._ack_due = self._consumed > 0  # the last one may have been cut off
        self._bye_due = self._bye is not None

    def disconnected(self) -> None:
        """End a connection: there is no output until the next `resume()`."""
        self._peer_window = 0

    # ----------------------------------------------------------------------------------------------------------- listening

    def receive_lines(self, frames: Iterable[bytes]) -> list[LinkEvent]:
        """What the lines that came mean, in order; duplicates, acknowledgements and pings are dealt with here.

        Raises:
            ProtocolError: the peer broke the protocol: no frame, a gap in the numbers, more than the window. This connection is of
                no use any more; whether another one is worth trying is for the caller to say.
        """
        events: list[LinkEvent] = []
        run: list[bytes] = []
        size = 0
        expected = self._received + 1
        for frame in frames:
            if frame[:2] == b"D " and type(frame) is bytes:
                pieces = frame.split(b" ", 2)
                if len(pieces) == 3 and parse_number(pieces[1]) == expected and not self._peer_stage:
                    run.append(pieces[2])
                    size += len(frame) + 1
                    expected += 1
                    continue
            # everything that is not the next line takes the long way
            if run:
                self._arrived(expected - 1, size)
                events.append(Lines(run, expected - 1))
                run, size = [], 0
            event = self._receive(decode_frame(frame))
            if event is not None:
                events.append(event)
            expected = self._received + 1
        if run:
            self._arrived(expected - 1, size)
            events.append(Lines(run, expected - 1))
        return events

    def consume(self, number: int) -> None:
        """Report that everything up to `number` has been dealt with; an acknowledgement goes out when enough has gathered."""
        if number <= self._consumed:
            return
        self._consumed = min(number, self._received)
        while self._unconsumed and self._unconsumed[0][0] <= number:
            size = self._unconsumed.popleft()[1]
            self._unconsumed_bytes -= size
            self._ack_bytes += size
        if self._consumed - self._acked >= _ACK_LINES or self._ack_bytes >= self.window // 4:
            self._ack_due = True

    def acknowledge(self) -> None:
        """Let an acknowledgement of what was dealt with go out now: for when there is nothing else to do."""
        if self._consumed > self._acked:
            self._ack_due = True

    def _arrived(self, last: int, size: int) -> None:
        # The peer may send one line that is larger than the window, and what came at once is struck off only as a whole.
        if self._unconsumed_bytes > 2 * self.window:
            raise ProtocolError(f"the peer does not keep to the window of {self.window} bytes", code="link.window")
        self._received = last
        self._unconsumed.append((last, size))
        self._unconsumed_bytes += size

    def _receive(self, frame: Frame) -> LinkEvent | None:
        match frame:
            case Ack(number):
                self._outgoing.acknowledge(number)
            case Ping(number):
                self._pong = number
            case Bye() | Refusal():
                return frame
            case Hello() | Welcome():
                raise ProtocolError("a second hello or welcome on one connection", code="link.malformed")
            case Data(number, line):
                size = line.size if isinstance(line, OversizedLine) else len(line)
                return Lines([line], number) if self._is_new(frame, number, size) else None
            case Fragment(number, data):
                return frame if self._is_new(frame, number, len(data)) else None
            case End(after):
                return frame if self._is_new(frame, after + 1, 1) else None
            case ProcessEnd():
                if self._is_new(frame, frame.after + 1, 1):
                    self._outgoing.acknowledge(frame.accepted)
                    return frame
            case _:
                pass  # a pong says no more than that something came; newer peers may say what is unknown here
        return None

    def _is_new(self, frame: Frame, number: int, size: int) -> bool:
        """Take note of a numbered frame; False for one that was said again because our acknowledgement did not get through."""
        if number <= self._received:
            return False
        if number > self._received + 1:
            raise ProtocolError(f"number {number} came after number {self._received}: something is missing", code="link.numbers")
        stage = _STAGES[type(frame)]
        if stage < self._peer_stage or stage == self._peer_stage > 0:
            raise ProtocolError("something came after the end", code="link.numbers")
        self._arrived(number, size)
        self._peer_stage = stage
        return True
