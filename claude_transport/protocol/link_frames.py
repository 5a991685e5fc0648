"""The frames of the resumable link: one line of text each, a letter, a space, and what the letter says.

```text
H {json}     hello: the client's first line on every connection          W {json}   welcome: the server's answer to it
R {json}     refusal: its answer when it does not want to                B {json}   bye: closed for good, do not come back
D <n> <line> data: line number n, as it is                               F <n> <bytes>  a last line without its newline
E <n>        nothing more comes after number n                           X {json}   how the process ended
A <n>        everything up to number n has been dealt with               P <id>  O <id>   ping, and the answer to it
```

D, F, E and X are numbered from 1 in each direction: an end (E, X) names the number `n` before it, and has number `n + 1`
itself. What the numbers are for is decided in `protocol.link`; the page docs/reference/link-protocol.md is for other languages.
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
from claude_transport.protocol.oversized import OversizedLine

__all__ = [
    "LINK_VERSION",
    "MAX_CONTROL_FRAME_BYTES",
    "Ack",
    "Bye",
    "Data",
    "End",
    "Fragment",
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
    "parse_number",
]

LINK_VERSION = 1
"""The version spoken here. A server answers with the version it goes on in, at most the one of the hello."""

MAX_CONTROL_FRAME_BYTES = 256 * 2**10
"""Bytes of a frame that is not data. The largest is a hello with options; a peer cannot make us parse megabytes."""

_MAX_DIGITS = 18
"""Digits of a number or of a ping's id: as many as always fit into 64 bits."""


class Hello(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The client's first line on a connection. With a `session` it comes back to that one, having received up to number `received`.

    `replay_from` is the first number that it can still say again, `window` the bytes it takes in without having dealt with them.
    `options` are what it would like the process to be started with, and `trace` has the W3C names of a trace it is part of.
    """

    version: int
    token: str | None = None
    session: str | None = None
    received: int = 0
    replay_from: int = 1
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
    replay_from: int = 1
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
    """How the process ended. Has number `after + 1`.

    `accepted` is the last number of the client's that reached the process. `error` says what went wrong when neither an exit code
    nor a signal says it.
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


class Data(msgspec.Struct, frozen=True):
    """Line `number`, without its newline."""

    number: int
    line: bytes


class Fragment(msgspec.Struct, frozen=True):
    """The last bytes of a stream that ended inside a line."""

    number: int
    data: bytes


class End(msgspec.Struct, frozen=True):
    """Nothing more comes after number `after`. Has number `after + 1`."""

    after: int


class Ack(msgspec.Struct, frozen=True):
    """Everything up to `number` has been dealt with."""

    number: int


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


Frame: TypeAlias = Hello | Welcome | Refusal | Bye | ProcessEnd | Data | Fragment | End | Ack | Ping | Pong | UnknownFrame

_STRUCTS: dict[bytes, type[Hello | Welcome | Refusal | Bye | ProcessEnd]] = {
    b"H": Hello,
    b"W": Welcome,
    b"R": Refusal,
    b"B": Bye,
    b"X": ProcessEnd,
}
_STRUCT_LETTERS = {struct: letter for letter, struct in _STRUCTS.items()}
_NUMBERED: dict[bytes, type[End | Ack | Ping | Pong]] = {b"E": End, b"A": Ack, b"P": Ping, b"O": Pong}
_LARGE = {b"D", b"F"}

_encoder = msgspec.json.Encoder()
_decoders: dict[bytes, msgspec.json.Decoder[Any]] = {letter: msgspec.json.Decoder(struct) for letter, struct in _STRUCTS.items()}


def encode_frame(frame: Frame) -> bytes:
    """The line for `frame`, with its newline."""
    match frame:
        case Data(number, payload):
            return b"D %d %b\n" % (number, payload)
        case Fragment(number, payload):
            return b"F %d %b\n" % (number, payload)
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
        ProtocolError: it is no frame at all, or a known one that is malformed or too large. The message never shows what it held.
    """
    letter, payload = line[:1], line[2:]
    if not letter.isalpha() or not letter.isupper() or line[1:2] not in {b" ", b""}:
        raise ProtocolError("what came is no frame of the link protocol", code="link.malformed")
    size = line.size if isinstance(line, OversizedLine) else len(line)
    if letter in _LARGE:
        number, separator, data = payload.partition(b" ")
        if not separator:
            raise ProtocolError(f"a {letter.decode()} frame without its data", code="link.malformed")
        if isinstance(line, OversizedLine):
            data = OversizedLine(data, size=line.size - (len(line) - len(data)), limit=line.limit)
        return (Data if letter == b"D" else Fragment)(parse_number(number), data)
    if letter not in _decoders and letter not in _NUMBERED:
        return UnknownFrame(letter.decode(), payload)
    if size > MAX_CONTROL_FRAME_BYTES:
        raise ProtocolError(
            f"a {letter.decode()} frame of {size} bytes, over the limit of {MAX_CONTROL_FRAME_BYTES}", code="link.malformed"
        )
    if letter in _NUMBERED:
        return _NUMBERED[letter](parse_number(payload))
    try:
        frame: Frame = _decoders[letter].decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        # `from None`, and the path only: the payload of a hello holds the token
        what = str(exc) if isinstance(exc, msgspec.ValidationError) else "no JSON"
        raise ProtocolError(f"a malformed {letter.decode()} frame: {what}", code="link.malformed") from None
    _check(frame, letter)
    return frame


def _check(frame: Frame, letter: bytes) -> None:
    counts: tuple[float, ...] = ()
    match frame:
        case Hello() | Welcome():
            counts = (frame.version - 1, frame.received, frame.replay_from - 1, frame.window - 1)
        case ProcessEnd():
            counts = (frame.after, frame.accepted)
        case _:
            pass
    if isinstance(frame, Welcome):
        counts += (frame.lease,)
    if any(count < 0 or count >= 10**_MAX_DIGITS for count in counts):
        raise ProtocolError(f"a {letter.decode()} frame with a number out of range", code="link.malformed")


def parse_number(digits: bytes) -> int:
    """The number that `digits` spell, nothing else around them. Raises `ProtocolError`."""
    if not digits.isdigit() or len(digits) > _MAX_DIGITS:
        raise ProtocolError("a frame whose number is none", code="link.malformed")
    return int(digits)
