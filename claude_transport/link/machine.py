"""One end of a resumable link as a pure state machine: each byte arrives exactly once and in order, over any number of connections.

Both ends use the same class, `LinkEnd`. A connection may be cut at any byte. Each end keeps what the peer has not acknowledged, up to a
bound, and sends it again on the next connection. Duplicates are dropped by their position. An acknowledgement means that the bytes were
*processed*, not only received. So the window also bounds what the receiver must hold, and the receiver can always read on: heartbeats work
even while its consumer waits.

On each connection: do the handshake (`Hello`, `Welcome`), call `resume(…)` with the values from the peer, write `data_to_send()` whenever
`has_output` is True, and pass what arrives to `receive()`. `link.carrier` and `gateway` do this. The protocol is described in
docs/reference/link-protocol.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final, TypeAlias

import msgspec

from claude_transport.errors import (
    AuthenticationError,
    ClaudeTransportError,
    CLIConnectionError,
    ConfigurationError,
    ConnectionLost,
    InputClosed,
    ProtocolError,
    ReplayGap,
)

LINK_VERSION = 1
"""The protocol version of this module. A server answers with the version it uses, at most the one in the hello."""

MAX_CONTROL_FRAME_BYTES = 256 * 2**10
"""Maximum bytes of a frame without data. The largest one is a hello with options. Bounds the JSON that a peer can make us parse."""

MAX_DATA_HEADER_BYTES = 48
"""Maximum bytes of the line before data, without its newline: a letter, two spaces and two numbers."""

_MAX_DIGITS = 18
"""Maximum digits of a position or ping id; such numbers always fit into 64 bits."""


class Hello(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The client's first line on a connection.

    With a `session`, the client resumes it and has received up to position `received`. `replay_from` is the first position that it can send
    again. `window` is the number of unprocessed bytes it accepts. `options` are requested for the process, and `trace` has W3C trace names.
    """

    version: int
    token: str | None = None
    session: str | None = None
    received: int = 0
    replay_from: int = 0
    window: int = 2**20
    options: dict[str, Any] = {}
    trace: dict[str, str] = {}

    def __repr__(self) -> str:
        # the token and the session key must not get into a log
        return f"Hello(version={self.version}, resumes={self.session is not None}, received={self.received})"


class Welcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The server's answer to a hello: the `session` key for resuming, and how many seconds the session survives a cut (`lease`).

    `received`, `replay_from` and `window` are as in `Hello`. `details` has more facts about the server.
    """

    version: int
    session: str
    lease: float
    received: int = 0
    replay_from: int = 0
    window: int = 2**20
    details: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"Welcome(version={self.version}, lease={self.lease:g}, received={self.received})"


class Refusal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The server refuses the connection. `code` is for programs, `text` for people; `retryable` is True when a later attempt may
    succeed.
    """

    code: str
    text: str = ""
    retryable: bool = False

    def to_error(self) -> ClaudeTransportError:
        """Return the typed error for this refusal."""
        text = self.text or f"the server refused the connection: {self.code}"
        match self.code:
            case "auth":
                return AuthenticationError(text, reason=self.text)
            case "options":
                return ConfigurationError(text, option="options", reason=self.text)
            case "replay_gap":
                return ReplayGap(text, reason=self.text)
            case "session":
                return ConnectionLost(text, reason=self.text)
            case _:
                return CLIConnectionError(text, retryable=self.retryable, reason=self.text)


CLOSED_BY_SERVER: Final = "closed_by_server"
"""The `code` of an end that the server caused because it ends itself: the client may go on at another server."""


class Bye(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The link is closed for good. A client asks for the end of the process; a server ends the session and gives the `reason`."""

    code: str = ""
    reason: str = ""


class ProcessEnd(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the process ended. It comes after position `after` and counts as one position.

    `accepted` is the position up to which the process got the client's data. `error` is set when neither exit code nor signal says what
    went wrong. `code` is set when the server has ended the process, and says why: `CLOSED_BY_SERVER`.
    """

    after: int
    accepted: int = 0
    exit_code: int | None = None
    signal: int | None = None
    killed: bool = False
    stderr_tail: str = ""
    error: str | None = None
    code: str = ""

    @property
    def failed(self) -> bool:
        """True for a non-zero exit code, a death by signal, or another failure."""
        return bool(self.exit_code) or self.signal is not None or self.error is not None

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Return each field for `rich`; of `stderr_tail` only the length, because it may contain secrets."""
        shown = {name: getattr(self, name) for name in self.__struct_fields__}
        return [*(shown | {"stderr_tail": f"<{len(self.stderr_tail)} characters>" if self.stderr_tail else ""}).items()]

    def __repr__(self) -> str:
        """Show each field; of `stderr_tail` only the length, because it may contain secrets."""
        return f"ProcessEnd({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"


class Data(msgspec.Struct, frozen=True):
    """Bytes of the stream that follow position `position`."""

    position: int
    data: bytes


class End(msgspec.Struct, frozen=True):
    """No more bytes follow position `after`. The end counts as one position."""

    after: int


class Ack(msgspec.Struct, frozen=True):
    """Everything up to `position` was processed."""

    position: int


class Ping(msgspec.Struct, frozen=True):
    """Asks the peer for a `Pong` with the same `id`."""

    id: int


class Pong(msgspec.Struct, frozen=True):
    """The answer to the `Ping` with this `id`."""

    id: int


class UnknownFrame(msgspec.Struct, frozen=True):
    """A frame with a letter that this version does not know; it is ignored."""

    letter: str
    payload: bytes


Frame: TypeAlias = Hello | Welcome | Refusal | Bye | ProcessEnd | Data | End | Ack | Ping | Pong | UnknownFrame

_STRUCTS: dict[bytes, type[Hello | Welcome | Refusal | Bye | ProcessEnd]] = {
    b"H": Hello,
    b"W": Welcome,
    b"R": Refusal,
    b"B": Bye,
    b"X": ProcessEnd,
}
_STRUCT_LETTERS = {struct: letter for letter, struct in _STRUCTS.items()}
_NUMBERED: dict[bytes, type[End | Ack | Ping | Pong]] = {b"E": End, b"A": Ack, b"P": Ping, b"O": Pong}

_encoder = msgspec.json.Encoder()
_decoders: dict[bytes, msgspec.json.Decoder[Any]] = {letter: msgspec.json.Decoder(struct) for letter, struct in _STRUCTS.items()}


def encode_frame(frame: Frame) -> bytes:
    """Encode a frame as one line; the bytes of a `Data` follow its line."""
    match frame:
        case Data(position, data):
            return b"D %d %d\n%b" % (position, len(data), data)
        case End(number):
            return b"E %d\n" % number
        case Ack(number):
            return b"A %d\n" % number
        case Ping(number):
            return b"P %d\n" % number
        case Pong(number):
            return b"O %d\n" % number
        case UnknownFrame(letter, payload):
            return b"%b %b\n" % (letter.encode(), payload)
        case _:
            return b"%b %b\n" % (_STRUCT_LETTERS[type(frame)], _encoder.encode(frame))


def decode_frame(line: bytes) -> Frame:
    """Decode a line without its newline. An unknown letter gives an `UnknownFrame`, because newer peers may send more.

    Raises:
        ProtocolError: `line` is not a frame, is malformed or too large, or is a data header (see `parse_data_header`). The message never
            contains the payload.
    """
    letter, payload = line[:1], line[2:]
    if not letter.isalpha() or not letter.isupper() or line[1:2] not in {b" ", b""}:
        raise ProtocolError("the peer sent something that is not a frame of the link protocol", code="link.malformed")
    if letter == b"D":
        raise ProtocolError("a data frame is not allowed here", code="link.malformed")
    if len(line) > MAX_CONTROL_FRAME_BYTES:
        raise ProtocolError(f"a {letter.decode()} frame over the limit of {MAX_CONTROL_FRAME_BYTES} bytes", code="link.malformed")
    if letter not in _decoders and letter not in _NUMBERED:
        return UnknownFrame(letter.decode(), payload)
    if letter in _NUMBERED:
        return _NUMBERED[letter](_number(payload))
    try:
        frame: Frame = _decoders[letter].decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:  # RecursionError for deeply nested brackets
        # the payload is not shown, because a hello contains the token
        what = str(exc) if isinstance(exc, msgspec.ValidationError) else "not valid JSON"
        raise ProtocolError(f"a malformed {letter.decode()} frame: {what}", code="link.malformed") from None
    _check(frame, letter)
    return frame


def _check(frame: Frame, letter: bytes) -> None:
    counts: tuple[float, ...] = ()
    match frame:
        case Hello() | Welcome():
            counts = (frame.version - 1, frame.received, frame.replay_from, frame.window - 1)
        case ProcessEnd():
            counts = (frame.after, frame.accepted)
        case _:
            pass
    if isinstance(frame, Welcome):
        counts += (frame.lease,)
    if any(count < 0 or count >= 10**_MAX_DIGITS for count in counts):
        raise ProtocolError(f"a {letter.decode()} frame with a number out of range", code="link.malformed")


def parse_data_header(line: bytes) -> tuple[int, int]:
    """Return the position and the number of bytes in the line before data. Raises `ProtocolError`."""
    pieces = line.split(b" ")
    if len(pieces) != 3 or pieces[0] != b"D":
        raise ProtocolError("a D frame without its position and size", code="link.malformed")
    size = _number(pieces[2])
    if not size:
        raise ProtocolError("a D frame of no bytes", code="link.malformed")
    return _number(pieces[1]), size


def _number(digits: bytes) -> int:
    if not digits.isdigit() or len(digits) > _MAX_DIGITS:
        raise ProtocolError("a frame with an invalid number", code="link.malformed")
    return int(digits)


DEFAULT_REPLAY_BYTES = 8 * 2**20
"""Bytes that are kept to be sent again: what a fast process writes in the one or two seconds that a reconnection takes."""

DEFAULT_WINDOW_BYTES = 4 * 2**20
"""Bytes that the peer may send before they are processed: 40 MB/s at a round trip of 100 ms."""

_BATCH_BYTES = 64 * 2**10 - 64
"""Default maximum of data per batch: with its header, this is what the peer reads at once."""

_STAGES: dict[type, int] = {End: 1, ProcessEnd: 2}
"""The order of a direction: bytes, their end, the end of the process. After one of these only a later one may follow."""

LinkEvent: TypeAlias = Data | End | ProcessEnd | Bye | Refusal


class LinkEnd:
    """The state of one end of a link, over any number of connections.

    Positions count bytes, and each end as one more.

    Args:
        replay_bytes: bound for the bytes kept for repetition. One `send` may exceed it, so check `has_room` before each.
        window: bytes that the peer may send before they are processed; put it into the hello or the welcome.
        may_outrun: True drops the oldest bytes at the bound instead, without a check. A peer that needs them gets a `ReplayGap`.
    """

    def __init__(self, *, replay_bytes: int = DEFAULT_REPLAY_BYTES, window: int = DEFAULT_WINDOW_BYTES, may_outrun: bool = False) -> None:
        if min(replay_bytes, window) < 1:
            raise ConfigurationError(f"replay_bytes and window must be at least 1 byte, not {replay_bytes} and {window}", option="window")
        self.window = window
        self._outgoing = ReplayBuffer(bound=replay_bytes, may_outrun=may_outrun)
        self._peer_window = 0  # nothing goes out before resume()
        self._stage = 0
        self._reader = FrameReader()
        self._received = 0
        self._consumed = 0
        self._acked = 0  # the last position that this end has acknowledged
        self._peer_stage = 0
        self._peer_size: int | None = None  # total bytes of the peer, once it has sent its end
        # sent before everything else, at most one of each: a peer that pings faster than it reads gets only the last answer
        self._ack_due = False
        self._ping: int | None = None
        self._pings = 0
        self._pong: int | None = None
        self._bye: Bye | None = None
        self._bye_due = False

    @property
    def sent(self) -> int:
        """The position after everything that was sent, ends included, whether or not it is on a connection yet."""
        return self._outgoing.last

    @property
    def sent_bytes(self) -> int:
        """Number of bytes that were sent, without the ends."""
        return self._outgoing.size

    @property
    def acknowledged(self) -> int:
        """The position up to which the peer has processed the data."""
        return self._outgoing.acknowledged

    @property
    def unsaid(self) -> bool:
        """True while data waits to go out, even when there is no connection or the peer's window is full."""
        return self._outgoing.is_waiting

    @property
    def received(self) -> int:
        """The position up to which everything was received."""
        return self._received

    @property
    def consumed(self) -> int:
        """The position up to which everything was reported as processed."""
        return self._consumed

    @property
    def owes_acknowledgement(self) -> bool:
        """True while processed data was not acknowledged to the peer."""
        return self._consumed > self._acked and not self._ack_due

    @property
    def replay_from(self) -> int:
        """The first position that can still be sent again."""
        return self._outgoing.first

    @property
    def kept_bytes(self) -> int:
        """Number of bytes that are kept because the peer has not acknowledged them."""
        return self._outgoing.kept_bytes

    @property
    def has_room(self) -> bool:
        """True while fewer bytes are kept than the bound."""
        return self._outgoing.has_room

    @property
    def has_output(self) -> bool:
        """True when `data_to_send()` would return something."""
        if not self._peer_window:
            return False
        said = self._ack_due or self._bye_due or self._ping is not None or self._pong is not None
        return said or self._outgoing.may_fly(self._peer_window)

    def send(self, data: bytes) -> None:
        """Append `data` to the stream. Raises `InputClosed` after the end."""
        if self._stage:
            raise InputClosed("nothing can be sent after the end of the input")
        self._outgoing.put(data)

    def end_input(self) -> None:
        """Append the end of the stream. A second call does nothing."""
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
        code: str = "",
    ) -> None:
        """Append the end of the process, after its last byte. Only the first call counts.

        `accepted` is the position up to which the process got the received data; None means all that was processed.
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
                code=code,
            )
            self._outgoing.put_end(_fitting(end))
            self._stage = _STAGES[ProcessEnd]

    def bye(self, *, reason: str = "", code: str = "") -> None:
        """Close the link for good, after the data that the window lets out now. The bye is repeated on every new connection."""
        self._bye = Bye(reason=reason, code=code)
        self._bye_due = True

    def ping(self) -> None:
        """Ask the peer for a sign of life."""
        self._pings += 1
        self._ping = self._pings

    def data_to_send(self, max_bytes: int = _BATCH_BYTES) -> bytes:
        """Return the next bytes to write to this connection, as whole frames with at most `max_bytes` of data; b"" when there are none.

        Raises:
            ReplayGap: the data that the peer needs was dropped (`may_outrun`).
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

    def resume(self, *, received: int, replay_from: int, window: int) -> None:
        """Begin a connection with the values from the peer's hello or welcome, also for the first one. Output is possible from then on.

        Raises:
            ReplayGap: one end can no longer repeat what the other has missed.
            ProtocolError: the peer claims to have received what was never sent.
        """
        if replay_from > self._received:
            raise ReplayGap(
                f"the peer can repeat its data only from position {replay_from} on, but {self._received} is the last one received"
            )
        self._outgoing.rewind(received=received)
        self._peer_window = window
        self._reader = FrameReader()
        self._ping = self._pong = None
        self._ack_due = self._consumed > 0  # the last acknowledgement may have been lost
        self._bye_due = self._bye is not None

    def disconnected(self) -> None:
        """End a connection: there is no output until the next `resume()`."""
        self._peer_window = 0

    def receive(self, chunk: bytes) -> Iterator[LinkEvent]:
        """Yield the events in the received bytes, in order. Duplicates, acknowledgements and pings are handled here. Iterate to the end.

        Raises:
            ProtocolError: the peer sent something that is not a frame, left a gap in the positions, or exceeded the window. Earlier events
                were yielded. This connection cannot be used any more; the caller decides whether to try another.
        """
        fresh: list[bytes] = []  # joined: a peer that sends single bytes must not fill the memory with objects
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
        """Report that everything up to `position` was processed. After a quarter of the window, an acknowledgement is sent."""
        if position > self._consumed:
            self._consumed = min(position, self._received)
            if self._consumed - self._acked >= self.window // 4:
                self._ack_due = True

    def acknowledge(self) -> None:
        """Send an acknowledgement now; call it when there is nothing else to do."""
        if self._consumed > self._acked:
            self._ack_due = True

    def _take_data(self, position: int, data: bytes) -> bytes:
        """Return the part of `data` that is new."""
        have = self._received if self._peer_size is None else self._peer_size
        end = position + len(data)
        if position > have:
            raise ProtocolError(f"position {position} came after position {have}: something is missing", code="link.numbers")
        if end <= have:
            return b""
        if self._peer_size is not None:
            raise ProtocolError("the peer sent data after the end of its stream", code="link.numbers")
        if end > self._consumed + self.window:
            raise ProtocolError(f"the peer sent more than the window of {self.window} bytes", code="link.window")
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
                pass  # a pong only shows that the peer lives; unknown frames of newer peers are ignored
        return None

    def _is_new(self, frame: End | ProcessEnd, after: int) -> bool:
        """Record an end. False for one that the peer repeats, because it missed the acknowledgement."""
        if after < self._received:
            return False
        if after > self._received:
            raise ProtocolError(f"an end after position {after} came after position {self._received}", code="link.numbers")
        stage = _STAGES[type(frame)]
        if stage <= self._peer_stage:
            raise ProtocolError("the peer sent data after the end of its stream", code="link.numbers")
        if self._peer_size is None:
            self._peer_size = after
        self._received += 1
        self._peer_stage = stage
        return True


def _fitting(end: ProcessEnd) -> bytes:
    """Encode `end` with as much of `stderr_tail` as a frame may hold. (A control character takes six bytes in JSON.)"""
    frame = encode_frame(end)
    while len(frame) > MAX_CONTROL_FRAME_BYTES and end.stderr_tail:
        end = msgspec.structs.replace(end, stderr_tail=end.stderr_tail[(len(end.stderr_tail) + 1) // 2 :])
        frame = encode_frame(end)
    return frame


_CRUMB_BYTES = 1024
"""A smaller piece is copied together with its neighbours: as an object of its own it could use many times its size."""

_GATHERED_BYTES = 64 * 2**10
"""Size at which collected crumbs become a piece. A buffer that grows without end is moved again and again."""


class ReplayBuffer:
    """Outgoing bytes at the positions 0, 1, 2, …, followed by the ends with one position each. Keeps them until the peer acknowledges.

    `bound` is in bytes. With `may_outrun` the oldest bytes are dropped at the bound; otherwise the sender checks `has_room`.
    """

    def __init__(self, *, bound: int, may_outrun: bool) -> None:
        self._bound = bound
        self._may_outrun = may_outrun
        self._flown: deque[bytes | memoryview] = deque()  # from `_first` on
        self._waiting: deque[bytes | memoryview] = deque()
        self._crumbs = bytearray()  # the end of the waiting data, never all of it
        self._ends: list[bytes] = []  # the end frames after the last byte
        self._first = 0  # the first byte that is kept
        self._said = 0  # the position up to which this connection has sent
        self._reached = 0  # the highest position that any connection has sent
        self._size = 0  # total bytes put in
        self._acknowledged = 0

    @property
    def size(self) -> int:
        """Total number of bytes that were put in."""
        return self._size

    @property
    def last(self) -> int:
        """The position after everything, ends included."""
        return self._size + len(self._ends)

    @property
    def acknowledged(self) -> int:
        """The position up to which the peer has processed the data."""
        return self._acknowledged

    @property
    def first(self) -> int:
        """The first position that can still be sent."""
        return max(self._acknowledged, self._first)

    @property
    def kept_bytes(self) -> int:
        """Number of bytes that are kept."""
        return self._size - self._first

    @property
    def has_room(self) -> bool:
        """True while fewer bytes are kept than the bound."""
        return self._size - self._first < self._bound

    @property
    def is_waiting(self) -> bool:
        """True while something was not sent on this connection."""
        return self._said < self.last

    def put(self, data: bytes) -> None:
        """Append `data` to the stream."""
        if len(data) < _CRUMB_BYTES and self._waiting:
            self._crumbs += data
            if len(self._crumbs) >= _GATHERED_BYTES:
                self._gather()
        elif data:
            self._gather()
            self._waiting.append(data)
        self._size += len(data)
        if self._may_outrun and self.kept_bytes > self._bound:
            self._gather()
            self._trim(self._size - self._bound)

    def put_end(self, frame: bytes) -> None:
        """Append the `frame` of an end as the next position. No bytes may follow."""
        self._ends.append(frame)

    def may_fly(self, window: int) -> bool:
        """True when the peer's window, in bytes, lets something out. Ends need no room in the window."""
        if self._said < self._size:
            return self._said < self._acknowledged + window
        return self._said < self.last

    def take(self, max_bytes: int, *, window: int) -> list[bytes | memoryview]:
        """Return the next pieces to send: one data frame with at most `max_bytes`, and the ends.

        Raises:
            ReplayGap: the next bytes were dropped.
        """
        if self._said < self._first:
            raise ReplayGap(f"the data after position {self._said} was dropped before it could be sent")
        pieces: list[bytes | memoryview] = []
        size = min(max_bytes, self._size - self._said, self._acknowledged + window - self._said)
        if size > 0:
            pieces.append(b"D %d %d\n" % (self._said, size))
            self._fly(size, pieces)
        if self._size <= self._said < self.last:
            pieces += self._ends[self._said - self._size :]
            self._said = self.last
        self._reached = max(self._reached, self._said)
        return pieces

    def acknowledge(self, position: int) -> None:
        """Forget everything up to `position`. Raises `ProtocolError` for a position that was not sent."""
        if position > self._said:
            raise ProtocolError(f"the peer acknowledges position {position}, which was not sent", code="link.numbers")
        if position > self._acknowledged:
            self._acknowledged = position
            self._trim(min(position, self._size))

    def rewind(self, *, received: int) -> None:
        """Prepare to send everything after position `received` again, on a new connection.

        Raises:
            ReplayGap: a part of it is not kept any more.
            ProtocolError: `received` is beyond what was sent.
        """
        if received > self._reached:
            raise ProtocolError(f"the peer claims position {received}, but only {self._reached} was sent", code="link.numbers")
        if received < self.first:
            raise ReplayGap(f"the peer needs the data after position {received}, but it is kept only from {self.first} on")
        self._gather()
        self._waiting = self._flown + self._waiting
        self._flown = deque()
        self._said = self._first
        self._fly(min(received, self._size) - self._first, [])
        self._said = received

    def _gather(self) -> None:
        if self._crumbs:
            self._waiting.append(bytes(self._crumbs))
            self._crumbs = bytearray()

    def _fly(self, size: int, pieces: list[bytes | memoryview]) -> None:
        """Move the next `size` bytes to those that were sent, and add them to `pieces`."""
        self._said += size
        waiting, flown = self._waiting, self._flown
        while size > 0:
            piece = waiting.popleft()
            if len(piece) > size:
                whole = memoryview(piece)
                piece = whole[:size]
                waiting.appendleft(whole[size:])
            pieces.append(piece)
            size -= len(piece)
            if len(piece) < _CRUMB_BYTES and flown and len(flown[-1]) < _CRUMB_BYTES:
                flown[-1] = b"".join((flown[-1], piece))
            else:
                flown.append(piece)
            if not waiting:
                self._gather()

    def _trim(self, first: int) -> None:
        """Forget the bytes before position `first`."""
        size = first - self._first
        self._first = max(first, self._first)
        while size > 0:
            pieces = self._flown or self._waiting
            piece = pieces.popleft()
            if len(piece) > size:
                pieces.appendleft(memoryview(piece)[size:])
            size -= len(piece)


class FrameReader:
    """Cuts the bytes of one connection into frames; chunks may end anywhere. Data is not held: each part that arrives is a `Data` of its
    own.

    An unfinished line is held up to the maximum of its kind. The work is linear in the bytes fed.
    """

    __slots__ = ("_left", "_line", "_position")

    def __init__(self) -> None:
        self._line = bytearray()  # an unfinished line
        self._position = 0  # of the next byte of data …
        self._left = 0  # … of which so many are still to come

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """Yield the frames in `chunk`, in order. The state advances while you iterate.

        Raises:
            ProtocolError: the next bytes are not a frame. The frames before were yielded.
        """
        start, size = 0, len(chunk)
        while start < size:
            if self._left:
                data = chunk[start : start + self._left]  # does not copy a chunk that is only data
                position = self._position
                self._position += len(data)
                self._left -= len(data)
                start += len(data)
                yield Data(position, data)
                continue
            end = chunk.find(b"\n", start)
            if end < 0:
                self._hold(chunk[start:])
                return
            line = chunk[start:end]
            if self._line:
                line = bytes(self._line) + line
                self._line.clear()
            start = end + 1
            if line[:2] == b"D ":
                self._position, self._left = parse_data_header(line)
            else:
                yield decode_frame(line)

    def _hold(self, piece: bytes) -> None:
        """Keep the beginning of a line. Raises `ProtocolError` as soon as it cannot become a frame."""
        self._line += piece
        letter = self._line[0]
        if not 65 <= letter <= 90:  # a capital one
            raise ProtocolError("the peer sent something that is not a frame of the link protocol", code="link.malformed")
        limit = MAX_DATA_HEADER_BYTES if letter == 68 else MAX_CONTROL_FRAME_BYTES  # a D
        if len(self._line) > limit:
            raise ProtocolError(f"a {chr(letter)} frame whose line is over the limit of {limit} bytes", code="link.malformed")


DEFAULT_HEARTBEAT = 15.0
"""Seconds of silence before a ping: a quarter of the minute after which common proxies and load balancers drop an idle connection."""

_PATIENCE = 2.0
"""Intervals of silence after which a peer is given up: it has one whole interval to answer the ping."""


class Pulse(Enum):
    """What to do about a peer: nothing, send a ping, or give the connection up."""

    FINE = "fine"
    PING = "ping"
    LOST = "lost"


class Heartbeat:
    """Decides when to ping a silent peer and when to give it up. Any received byte is a sign of life.

    `interval` is in seconds. Times are seconds on a clock that never goes back. Raises `ConfigurationError` for an interval that is not
    positive.
    """

    __slots__ = ("_asked", "_heard", "interval")

    def __init__(self, *, interval: float = DEFAULT_HEARTBEAT, now: float) -> None:
        if not interval > 0:
            raise ConfigurationError(f"heartbeat must be a number of seconds over 0, not {interval!r}", option="heartbeat")
        self.interval: float = interval
        self._heard = now
        self._asked = False

    def heard(self, now: float) -> None:
        """Record that bytes arrived."""
        self._heard = now
        self._asked = False

    @property
    def next_check(self) -> float:
        """The time at which to call `check()` next, unless bytes arrive before."""
        return self._heard + self.interval * (_PATIENCE if self._asked else 1.0)

    def check(self, now: float) -> Pulse:
        """Return what to do now. It asks for one ping in each silence."""
        if now < self.next_check:
            return Pulse.FINE
        if self._asked:
            return Pulse.LOST
        self._asked = True
        # even when this check is late, the peer gets a whole interval to answer
        self._heard = max(self._heard, now - self.interval)
        return Pulse.PING
