"""The frames of the resumable link: one line of text each, a letter, a space, and what the letter says. Behind a D come bytes.

```text
H {json}     hello: the client's first line on every connection          W {json}   welcome: the server's answer to it
R {json}     refusal: its answer when it does not want to                B {json}   bye: closed for good, do not come back
D <n> <size> data: the next <size> bytes are those of the stream from position n on
E <n>        nothing more comes after position n                         X {json}   how the process ended
A <n>        everything up to position n has been dealt with             P <id>  O <id>   ping, and the answer to it
```

Positions count what a direction has carried over all connections of a session: each byte is one, and so is each end (E, X), which
names the position before it. What they are for is decided in `protocol.link`; the page docs/reference/link-protocol.md is for
other languages. Frames are cut out of bytes by `protocol.link_reader`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from claude_transport.errors import (
    AuthenticationError,
    ClaudeTransportError,
    CLIConnectionError,
    ConfigurationError,
    ConnectionLost,
    ProtocolError,
    ReplayGap,
)

__all__ = [
    "LINK_VERSION",
    "MAX_CONTROL_FRAME_BYTES",
    "MAX_DATA_HEADER_BYTES",
    "Ack",
    "Bye",
    "Data",
    "End",
    "Frame",
    "Hello",
    "Ping",
    "Pong",
    "ProcessEnd",
    "Refusal",
    "UnknownFrame",
    "Welcome",
    "decode_frame",
    "encode_frame",
    "parse_data_header",
]

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
