"""`LinkEnd`: one end of a resumable link, pure: a stream of bytes out and one in, each byte exactly once and in order.

Both ends are the same class. A connection under it may be cut at any byte: what was not acknowledged is kept, within a bound,
and said again on the next connection from where the peer has it, and what comes twice is dropped by its position. An acknowledgement
says that bytes have been *dealt with*, not that they have arrived: so the sender's window is also the bound of what the receiver has
to hold, and the receiver can always go on reading, which is what keeps heartbeats alive while its consumer sleeps.

How a shell uses it, on each connection: the handshake (`Hello`, `Welcome`), `resume(…)` with what the peer said in it, then
write `data_to_send()` whenever `has_output`, and give what arrives to `receive()`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import Enum
from typing import Any, TypeAlias

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

# --- The frames of the resumable link: one line of text each, a letter, a space, and what the letter says. Behind a D come bytes.


LINK_VERSION = 1
"""The version spoken here. A server answers with the version it goes on in, at most the one of the hello."""

MAX_CONTROL_FRAME_BYTES = 256 * 2**10
"""Bytes of a frame that is not data. The largest is a hello with options; a peer cannot make us parse megabytes."""

MAX_DATA_HEADER_BYTES = 48
"""Bytes of the line in front of data, without its newline: a letter, two blanks and two numbers, and some air."""

_MAX_DIGITS = 18
"""Digits of a position or of a ping's id: as many as always fit into 64 bits."""


class Hello(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The client's first line on a connection. With a `session` it comes back to that one, having received up to position `received`.

    `replay_from` is the first position that it can still say again, `window` the bytes it takes in without having dealt with them.
    `options` are what it would like the process to be started with, and `trace` has the W3C names of a trace it is part of.
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
        # neither the token nor the key of the session may get into a log
        return f"Hello(version={self.version}, resumes={self.session is not None}, received={self.received})"


class Welcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The server's answer: the `session` key to come back with, and for how many seconds after a cut (`lease`).

    `received`, `replay_from` and `window` are as in `Hello`; `details` is what else the server tells about itself.
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
    """Why there will be no connection. `code` is for programs, `text` for people; `retryable` says that a later attempt may do."""

    code: str
    text: str = ""
    retryable: bool = False

    def to_error(self) -> ClaudeTransportError:
        """The typed error for whoever was refused."""
        text = self.text or f"the other side refused: {self.code}"
        match self.code:
            case "auth":
                return AuthenticationError(text)
            case "options":
                return ConfigurationError(text)
            case "replay_gap":
                return ReplayGap(text)
            case "session":
                return ConnectionLost(text)
            case _:
                return CLIConnectionError(text, retryable=self.retryable)


class Bye(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Closed for good. From a client: end the process; from a server: the session is over, and `reason` says why."""

    code: str = ""
    reason: str = ""


class ProcessEnd(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the process ended, behind position `after`; it is one position itself.

    `accepted` is the position up to which the process was given what the client sent. `error` says what went wrong when neither an
    exit code nor a signal says it.
    """

    after: int
    accepted: int = 0
    exit_code: int | None = None
    signal: int | None = None
    killed: bool = False
    stderr_tail: str = ""
    error: str | None = None

    @property
    def failed(self) -> bool:
        """True for a non-zero exit code, a death by signal, and any other failure."""
        return bool(self.exit_code) or self.signal is not None or self.error is not None

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Return each field as `rich` shows it; of `stderr_tail` only the length, because it may hold secrets."""
        shown = {name: getattr(self, name) for name in self.__struct_fields__}
        return [*(shown | {"stderr_tail": f"<{len(self.stderr_tail)} characters>" if self.stderr_tail else ""}).items()]

    def __repr__(self) -> str:
        """Return every field; of `stderr_tail` only the length, because it may hold secrets."""
        return f"ProcessEnd({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"


class Data(msgspec.Struct, frozen=True):
    """Bytes of the stream, the first of which follows position `position`."""

    position: int
    data: bytes


class End(msgspec.Struct, frozen=True):
    """Nothing more comes after position `after`. It is one position itself."""

    after: int


class Ack(msgspec.Struct, frozen=True):
    """Everything up to `position` has been dealt with."""

    position: int


class Ping(msgspec.Struct, frozen=True):
    """Are you there? The answer is the `Pong` with the same `id`."""

    id: int


class Pong(msgspec.Struct, frozen=True):
    """The answer to the `Ping` with this `id`."""

    id: int


class UnknownFrame(msgspec.Struct, frozen=True):
    """A frame with a letter that this version does not know. It is ignored."""

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
    """The bytes of `frame`: a line, and behind that of a `Data` its bytes."""
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
    """The frame in `line`, which has no newline. An unknown letter is no error (`UnknownFrame`): newer peers may say more.

    Raises:
        ProtocolError: it is no frame at all, or a known one that is malformed or too large, or data (see `parse_data_header`).
            The message never shows what it held.
    """
    letter, payload = line[:1], line[2:]
    if not letter.isalpha() or not letter.isupper() or line[1:2] not in {b" ", b""}:
        raise ProtocolError("what came is no frame of the link protocol", code="link.malformed")
    if letter == b"D":
        raise ProtocolError("data came where none may be", code="link.malformed")
    if len(line) > MAX_CONTROL_FRAME_BYTES:
        raise ProtocolError(f"a {letter.decode()} frame over the limit of {MAX_CONTROL_FRAME_BYTES} bytes", code="link.malformed")
    if letter not in _decoders and letter not in _NUMBERED:
        return UnknownFrame(letter.decode(), payload)
    if letter in _NUMBERED:
        return _NUMBERED[letter](_number(payload))
    try:
        frame: Frame = _decoders[letter].decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:  # the last for brackets within brackets within …
        # `from None`, and the path only: the payload of a hello holds the token
        what = str(exc) if isinstance(exc, msgspec.ValidationError) else "no JSON"
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
    """The position and the number of bytes in the line that stands in front of data. Raises `ProtocolError`."""
    pieces = line.split(b" ")
    if len(pieces) != 3 or pieces[0] != b"D":
        raise ProtocolError("a D frame without its position and size", code="link.malformed")
    size = _number(pieces[2])
    if not size:
        raise ProtocolError("a D frame of no bytes", code="link.malformed")
    return _number(pieces[1]), size


def _number(digits: bytes) -> int:
    if not digits.isdigit() or len(digits) > _MAX_DIGITS:
        raise ProtocolError("a frame whose number is none", code="link.malformed")
    return int(digits)


# --- `FrameReader`: cuts the bytes of one connection of a link into frames, and gives of data what has come, at once.


class FrameReader:
    """Frames out of chunks that may end anywhere. Nothing of data is held: what has come of it is a `Data` of its own.

    Of an unfinished line no more is held than a line may have. The work is linear in the bytes fed.
    """

    __slots__ = ("_left", "_line", "_position")

    def __init__(self) -> None:
        self._line = bytearray()  # an unfinished line
        self._position = 0  # of the next byte of data …
        self._left = 0  # … of which so many are still to come

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """The frames in `chunk`, in order; what it holds is only taken note of as they are fetched.

        Raises:
            ProtocolError: what comes next is no frame. What came before it was given.
        """
        start, size = 0, len(chunk)
        while start < size:
            if self._left:
                data = chunk[start : start + self._left]  # a chunk without a header in it is not copied
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
        """Keep the beginning of a line; raises `ProtocolError` as soon as it is clear that it becomes no frame."""
        self._line += piece
        letter = self._line[0]
        if not 65 <= letter <= 90:  # a capital one
            raise ProtocolError("what came is no frame of the link protocol", code="link.malformed")
        limit = MAX_DATA_HEADER_BYTES if letter == 68 else MAX_CONTROL_FRAME_BYTES  # a D
        if len(self._line) > limit:
            raise ProtocolError(f"a {chr(letter)} frame whose line is over the limit of {limit} bytes", code="link.malformed")


# --- `ReplayBuffer`: a stream of bytes on its way out, kept until the peer has dealt with it, with the ends behind the last byte.


_CRUMB_BYTES = 1024
"""A piece smaller than this is copied together with others that wait: as an object of its own it could cost many times its size."""

_GATHERED_BYTES = 64 * 2**10
"""Crumbs gathered into one piece: a buffer that grows for ever is moved for ever."""


class ReplayBuffer:
    """Bytes at the positions 0, 1, 2, … and behind them the ends, one position each: what was said on this connection, and what waits.

    `bound` is in bytes. With `may_outrun` the oldest are forgotten when it is exceeded; without, it is for the sender to look at.
    """

    def __init__(self, *, bound: int, may_outrun: bool) -> None:
        self._bound = bound
        self._may_outrun = may_outrun
        self._flown: deque[bytes | memoryview] = deque()  # from `_first` on
        self._waiting: deque[bytes | memoryview] = deque()
        self._crumbs = bytearray()  # the end of what waits, never all of it
        self._ends: list[bytes] = []  # the frames behind the last byte
        self._first = 0  # the first byte that is kept
        self._said = 0  # the position up to which this connection has it
        self._reached = 0  # the highest position that any connection had
        self._size = 0  # bytes put in, in all
        self._acknowledged = 0

    @property
    def size(self) -> int:
        """Bytes that were put in, in all."""
        return self._size

    @property
    def last(self) -> int:
        """The position behind everything, the ends too."""
        return self._size + len(self._ends)

    @property
    def acknowledged(self) -> int:
        """The position up to which the peer has dealt with it."""
        return self._acknowledged

    @property
    def first(self) -> int:
        """The first position that can still be said."""
        return max(self._acknowledged, self._first)

    @property
    def kept_bytes(self) -> int:
        """Bytes kept."""
        return self._size - self._first

    @property
    def has_room(self) -> bool:
        """True while less is kept than the bound."""
        return self._size - self._first < self._bound

    @property
    def is_waiting(self) -> bool:
        """True while there is something that was not said on this connection."""
        return self._said < self.last

    def put(self, data: bytes) -> None:
        """Keep `data` as the next bytes of the stream."""
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
        """Keep the `frame` of an end, as the next position. No bytes may follow."""
        self._ends.append(frame)

    def may_fly(self, window: int) -> bool:
        """Whether the peer's window, in bytes, lets something out; the ends need no room in it."""
        if self._said < self._size:
            return self._said < self._acknowledged + window
        return self._said < self.last

    def take(self, max_bytes: int, *, window: int) -> list[bytes | memoryview]:
        """The next pieces to say, of a frame of at most `max_bytes` of data and of the ends. `ReplayGap` when what is next was outrun."""
        if self._said < self._first:
            raise ReplayGap(f"what follows position {self._said} was forgotten before it could be said")
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
        """Forget everything up to `position`. Raises `ProtocolError` for what the peer cannot have seen."""
        if position > self._said:
            raise ProtocolError(f"the peer acknowledges position {position}, which it was not told", code="link.numbers")
        if position > self._acknowledged:
            self._acknowledged = position
            self._trim(min(position, self._size))

    def rewind(self, *, received: int) -> None:
        """Make ready to say again everything after position `received`, on a new connection.

        Raises:
            ReplayGap: some of that is not kept any more.
            ProtocolError: so much was never said.
        """
        if received > self._reached:
            raise ProtocolError(f"the peer has received up to position {received}, but only {self._reached} was said", code="link.numbers")
        if received < self.first:
            raise ReplayGap(f"the peer has received up to position {received}, but can be told again only from {self.first} on")
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
        """Move the next `size` bytes over to what was said; they are added to `pieces`, too."""
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
        """Keep nothing in front of position `first`."""
        size = first - self._first
        self._first = max(first, self._first)
        while size > 0:
            pieces = self._flown or self._waiting
            piece = pieces.popleft()
            if len(piece) > size:
                pieces.appendleft(memoryview(piece)[size:])
            size -= len(piece)


# --- When to ask a silent peer whether it is still there, and when to give it up: decided from times that are passed in.


DEFAULT_HEARTBEAT = 15.0
"""Seconds of silence before a ping: a quarter of the minute after which common proxies and load balancers drop an idle connection."""

_PATIENCE = 2.0
"""A peer is given up after so many intervals of silence: its answer has a whole interval to arrive."""


class Pulse(Enum):
    """What is to be done about a peer."""

    FINE = "fine"
    PING = "ping"
    LOST = "lost"


class Heartbeat:
    """The judgement of one connection, `interval` seconds of silence at a time. Any byte that arrives is a sign of life.

    Times are seconds on any clock that does not go back. Raises `ConfigurationError` for an interval that is not positive.
    """

    __slots__ = ("_asked", "_heard", "interval")

    def __init__(self, *, interval: float = DEFAULT_HEARTBEAT, now: float) -> None:
        if not interval > 0:
            raise ConfigurationError(f"heartbeat is a number of seconds over 0, not {interval!r}", option="heartbeat")
        self.interval: float = interval
        self._heard = now
        self._asked = False

    def heard(self, now: float) -> None:
        """Bytes have arrived."""
        self._heard = now
        self._asked = False

    @property
    def next_check(self) -> float:
        """The time at which `check()` will have something to say, unless something is heard before."""
        return self._heard + self.interval * (_PATIENCE if self._asked else 1.0)

    def check(self, now: float) -> Pulse:
        """What is to be done now; a ping is asked for once in each silence."""
        silence = now - self._heard
        if silence >= self.interval * _PATIENCE and self._asked:
            return Pulse.LOST
        if silence >= self.interval and not self._asked:
            self._asked = True
            # however late this check is, the peer gets a whole interval to answer in
            self._heard = max(self._heard, now - self.interval)
            return Pulse.PING
        return Pulse.FINE


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
