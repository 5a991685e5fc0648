"""`LinkEnd`: one end of a resumable link, pure: a stream of bytes out and one in, each byte exactly once and in order.

Both ends are the same class. A connection under it may be cut at any byte: what was not acknowledged is kept, within a bound,
and said again on the next connection from where the peer has it, and what comes twice is dropped by its position. An acknowledgement
says that bytes have been *dealt with*, not that they have arrived: so the sender's window is also the bound of what the receiver has
to hold, and the receiver can always go on reading, which is what keeps heartbeats alive while its consumer sleeps.

How a shell uses it, on each connection: the handshake (`Hello`, `Welcome`), `resume(…)` with what the peer said in it, then
write `data_to_send()` whenever `has_output`, and give what arrives to `receive()`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from claude_transport.errors import ConfigurationError, InputClosed, ProtocolError, ReplayGap
from claude_transport.protocol.link_frames import (
    MAX_CONTROL_FRAME_BYTES,
    Ack,
    Bye,
    Data,
    End,
    Frame,
    Hello,
    Ping,
    Pong,
    ProcessEnd,
    Refusal,
    Welcome,
    encode_frame,
)
from claude_transport.protocol.link_reader import FrameReader
from claude_transport.protocol.replay_buffer import ReplayBuffer

__all__ = ["DEFAULT_REPLAY_BYTES", "DEFAULT_WINDOW_BYTES", "LinkEnd", "LinkEvent"]

DEFAULT_REPLAY_BYTES = 8 * 2**20
"""Bytes kept to be said again: what a fast process says in the second or two that a reconnection takes."""

DEFAULT_WINDOW_BYTES = 4 * 2**20
"""Bytes that the peer may send ahead of what was dealt with: 40 MB/s at a round trip of 100 ms."""

_BATCH_BYTES = 64 * 2**10 - 64
"""Bytes of data handed out at once, unless asked otherwise: with the line in front of it, what the peer reads at once."""

_STAGES: dict[type, int] = {End: 1, ProcessEnd: 2}
"""The order of a direction's life: bytes, the end of them, the end of the process. After one of these only a later one may follow."""

LinkEvent: TypeAlias = Data | End | ProcessEnd | Bye | Refusal


class LinkEnd:
    """The state of one end, over any number of connections.

    Positions count bytes, and each end as one more. `replay_bytes` bounds what is kept to be said again (one `send` may go over it: look
    at `has_room` before each). `window` is what the peer may send before it is dealt with, in bytes; put it into the hello or the
    welcome. With `may_outrun`, nobody has to look: the oldest bytes are forgotten instead, and a peer that needs them gets a `ReplayGap`.
    """

    def __init__(self, *, replay_bytes: int = DEFAULT_REPLAY_BYTES, window: int = DEFAULT_WINDOW_BYTES, may_outrun: bool = False) -> None:
        if min(replay_bytes, window) < 1:
            raise ConfigurationError("replay_bytes and window are numbers of bytes, 1 or more", option="window")
        self.window = window
        self._outgoing = ReplayBuffer(bound=replay_bytes, may_outrun=may_outrun)
        self._peer_window = 0  # nothing goes out before resume()
        self._stage = 0
        self._reader = FrameReader()
        self._received = 0
        self._consumed = 0
        self._acked = 0  # the last position that this end has acknowledged
        self._peer_stage = 0
        self._peer_size: int | None = None  # how many bytes there are in all, once that is known
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
        """The position behind all that was sent, the ends too, whether or not it has gone out yet."""
        return self._outgoing.last

    @property
    def sent_bytes(self) -> int:
        """Bytes that were sent, without the ends."""
        return self._outgoing.size

    @property
    def acknowledged(self) -> int:
        """The position up to which the peer has dealt with what was sent."""
        return self._outgoing.acknowledged

    @property
    def unsaid(self) -> bool:
        """True while something waits to go out, also for want of a connection or of the peer's window."""
        return self._outgoing.is_waiting

    @property
    def received(self) -> int:
        """The position up to which everything has arrived."""
        return self._received

    @property
    def consumed(self) -> int:
        """The position up to which everything was reported as dealt with."""
        return self._consumed

    @property
    def owes_acknowledgement(self) -> bool:
        """True while something was dealt with and the peer was not told."""
        return self._consumed > self._acked and not self._ack_due

    @property
    def replay_from(self) -> int:
        """The first position that can still be said again."""
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

    def send(self, data: bytes) -> None:
        """Keep `data`, which follows what was sent before. Raises `InputClosed` after the end."""
        if self._stage:
            raise InputClosed("this end of the link has ended: nothing more can be sent")
        self._outgoing.put(data)

    def end_input(self) -> None:
        """Say that nothing more comes; saying it twice does nothing."""
        if self._stage < _STAGES[End]:
            self._outgoing.put_end(encode_frame(End(self.sent)))
            self._stage = _STAGES[End]

    def end_process(
        self,
        *,
        accepted: int | None = None,
        exit_code: int | None = None,
        signal: int | None = None,
        killed: bool = False,
        stderr_tail: str = "",
        error: str | None = None,
    ) -> None:
        """Say how the process ended, after its last byte; the first such report counts.

        `accepted` is the position up to which it was given what was received; by default, all that was dealt with.
        """
        if self._stage < _STAGES[ProcessEnd]:
            end = ProcessEnd(
                after=self.sent,
                accepted=self._consumed if accepted is None else accepted,
                exit_code=exit_code,
                signal=signal,
                killed=killed,
                stderr_tail=stderr_tail,
                error=error,
            )
            self._outgoing.put_end(_fitting(end))
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
        """The next bytes for this connection, b"" when there is nothing. Whole frames, with at most `max_bytes` of data.

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

    def _answers(self) -> list[bytes | memoryview]:
        batch: list[bytes | memoryview] = []
        if self._pong is not None:
            batch.append(encode_frame(Pong(self._pong)))
        if self._ping is not None:
            batch.append(encode_frame(Ping(self._ping)))
        if self._ack_due:
            batch.append(encode_frame(Ack(self._consumed)))
            self._acked = self._consumed
        self._pong = self._ping = None
        self._ack_due = False
        return batch

    # --------------------------------------------------------------------------------------------------------- connections

    def resume(self, *, received: int, replay_from: int, window: int) -> None:
        """Begin a connection, the first one too, with what the peer said in its hello or welcome: from here on there is output.

        Raises:
            ReplayGap: one of the two cannot say again what the other one has missed.
            ProtocolError: the peer claims to have received what was never sent.
        """
        if replay_from > self._received:
            raise ReplayGap(f"the peer can say again only from position {replay_from} on, but only {self._received} were received here")
        self._outgoing.rewind(received=received)
        self._peer_window = window
        self._reader = FrameReader()
        self._ping = self._pong = None
        self._ack_due = self._consumed > 0  # the last one may have been cut off
        self._bye_due = self._bye is not None

    def disconnected(self) -> None:
        """End a connection: there is no output until the next `resume()`."""
        self._peer_window = 0

    # ----------------------------------------------------------------------------------------------------------- listening

    def receive(self, chunk: bytes) -> Iterator[LinkEvent]:
        """What the bytes that came mean, in order; duplicates, acknowledgements and pings are dealt with here. Fetch all of it.

        Raises:
            ProtocolError: the peer broke the protocol: no frame, a gap in the positions, more than the window. What came before that
                was given. This connection is of no use any more; whether another one is worth trying is for the caller to say.
        """
        fresh: list[bytes] = []  # joined, so that a peer who sends byte by byte does not fill the memory with objects
        start = self._received
        try:
            for frame in self._reader.feed(chunk):
                if type(frame) is Data:
                    if data := self._take_data(frame.position, frame.data):
                        fresh.append(data)
                    continue
                event = self._receive(frame)
                if event is not None:
                    if fresh:
                        yield Data(start, b"".join(fresh))
                        fresh.clear()
                    start = self._received
                    yield event
        except ProtocolError:
            if fresh:
                yield Data(start, b"".join(fresh))
            raise
        if fresh:
            yield Data(start, b"".join(fresh))

    def consume(self, position: int) -> None:
        """Report that everything up to `position` has been dealt with; an acknowledgement goes out when enough has gathered."""
        if position > self._consumed:
            self._consumed = min(position, self._received)
            if self._consumed - self._acked >= self.window // 4:
                self._ack_due = True

    def acknowledge(self) -> None:
        """Let an acknowledgement of what was dealt with go out now: for when there is nothing else to do."""
        if self._consumed > self._acked:
            self._ack_due = True

    def _take_data(self, position: int, data: bytes) -> bytes:
        """What of `data` is new."""
        have = self._received if self._peer_size is None else self._peer_size
        end = position + len(data)
        if position > have:
            raise ProtocolError(f"position {position} came after position {have}: something is missing", code="link.numbers")
        if end <= have:
            return b""
        if self._peer_size is not None:
            raise ProtocolError("something came after the end", code="link.numbers")
        if end > self._consumed + self.window:
            raise ProtocolError(f"the peer does not keep to the window of {self.window} bytes", code="link.window")
        self._received = end
        return data[have - position :]

    def _receive(self, frame: Frame) -> LinkEvent | None:
        match frame:
            case Ack(position):
                self._outgoing.acknowledge(position)
            case Ping(number):
                self._pong = number
            case Bye() | Refusal():
                return frame
            case Hello() | Welcome():
                raise ProtocolError("a second hello or welcome on one connection", code="link.malformed")
            case End():
                return frame if self._is_new(frame, frame.after) else None
            case ProcessEnd():
                self._outgoing.acknowledge(frame.accepted)
                return frame if self._is_new(frame, frame.after) else None
            case _:
                pass  # a pong says no more than that something came; newer peers may say what is unknown here
        return None

    def _is_new(self, frame: End | ProcessEnd, after: int) -> bool:
        """Take note of an end; False for one that was said again because our acknowledgement did not get through."""
        if after < self._received:
            return False
        if after > self._received:
            raise ProtocolError(f"an end after position {after} came after position {self._received}", code="link.numbers")
        stage = _STAGES[type(frame)]
        if stage <= self._peer_stage:
            raise ProtocolError("something came after the end", code="link.numbers")
        if self._peer_size is None:
            self._peer_size = after
        self._received += 1
        self._peer_stage = stage
        return True


def _fitting(end: ProcessEnd) -> bytes:
    """The frame of `end`, with as much of the last words as a peer takes: as JSON, a control character has six bytes."""
    frame = encode_frame(end)
    while len(frame) > MAX_CONTROL_FRAME_BYTES and end.stderr_tail:
        end = msgspec.structs.replace(end, stderr_tail=end.stderr_tail[(len(end.stderr_tail) + 1) // 2 :])
        frame = encode_frame(end)
    return frame
