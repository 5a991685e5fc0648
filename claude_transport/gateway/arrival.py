"""`Arrival`: a client in front of the door, and what its first line says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

import anyio
import msgspec
from anyio.abc import ByteStream

from claude_transport.gateway.choices import check_answers
from claude_transport.gateway.turned_away import TurnedAway
from claude_transport.printable import printable
from claude_transport.transports.stream import is_torn

_CHUNK_BYTES: Final = 4096
"""Bytes read at a time before anybody is admitted: a connection that is not admitted costs no more."""

_MAX_PEER_CHARS: Final = 200
"""Characters of a peer's address: behind a proxy it is what a header says."""

Mode = Literal["link", "plain"]
_HELLO: Final = b"H "


class Authentication(msgspec.Struct, frozen=True, kw_only=True):
    """What a client in plain mode says of itself before anything else."""

    token: str | None = None
    options: Mapping[str, Any] = {}
    answers: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        """Without the token."""
        return f"Authentication(options={sorted(self.options)}, answers={sorted(self.answers)})"


class _Line(msgspec.Struct, frozen=True):
    type: str = ""
    token: str | None = None
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    answers: list[str] = msgspec.field(default_factory=list)


class Arrival:
    """A connection: its `stream`, the `medium` it came by, the `peer` it came from, and what its handshake has shown.

    `speaks_link` becomes true with the first letters of a hello. `token` is that of an HTTP header, `certified` the name in a client
    certificate. What was read beyond the first line is kept for `take_unread()`.
    """

    def __init__(self, stream: ByteStream, *, medium: str, peer: str = "", token: str | None = None, certified: str | None = None) -> None:
        self.stream = stream
        self.medium = medium
        self.peer: str = printable(peer, at_most=_MAX_PEER_CHARS)
        self.token = token
        self.certified = certified
        self.speaks_link: bool = False
        self._unread = bytearray()

    async def first_line(self, *, max_bytes: int, whole: bool = True) -> bytes:
        """The first line that is not blank, without its end; it stays unread until `take_line()`.

        With `whole=False` a message for the process may be longer than `max_bytes`; its beginning is given.

        Raises:
            TurnedAway: it is longer than `max_bytes`, or speaks neither of the two languages.
            anyio.EndOfStream: the client has left without a whole line.
        """
        unread = self._unread
        searched = 0  # every byte is looked at once, however small the pieces are in which they come
        while True:
            while unread.startswith((b"\r", b"\n")):
                del unread[0]
            if unread:
                _check_language(unread)
                self.speaks_link = mode_of(unread) == "link"
            end = unread.find(b"\n", searched)
            if 0 <= end <= max_bytes:
                return bytes(unread[:end]).removesuffix(b"\r")
            if len(unread) > max_bytes:
                if whole or mode_of(unread) == "link":
                    raise TurnedAway("malformed", f"the first line is longer than {max_bytes} bytes")
                return bytes(unread[:max_bytes])
            searched = len(unread)
            try:
                unread += await self.stream.receive(_CHUNK_BYTES)
            except anyio.EndOfStream:
                if not unread or unread.startswith(_HELLO[:1]) or is_torn(bytes(unread)):
                    raise  # a hello or an object without its end was cut off, by a network: nobody meant anything by it
                unread += b"\n"  # a client that says one line and ends its input may leave out the last byte

    def take_line(self) -> None:
        """The first line is read: what follows is next."""
        del self._unread[: self._unread.index(b"\n") + 1]

    def take_unread(self) -> bytes:
        """What was read and nobody has taken yet, taken."""
        unread = bytes(self._unread)
        self._unread.clear()
        return unread


def mode_of(line: bytes | bytearray) -> Mode:
    """Which of the two languages a first line is in."""
    return "link" if line.startswith(_HELLO) else "plain"


def read_authentication(line: bytes) -> Authentication | None:
    """What a first line in plain mode says about its sender; None when it is a message for the process.

    Raises:
        TurnedAway: it means to say who it is, and says it in the wrong way.
    """
    if not re.search(rb'"authenticate"', line):
        return None
    try:
        said = msgspec.json.decode(line, type=_Line)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as exc:
        raise TurnedAway("malformed", "the first line is no authentication") from exc
    if said.type != "authenticate":
        return None
    return Authentication(token=said.token, options=said.options, answers=check_answers(said.answers))


def _check_language(beginning: bytes | bytearray) -> None:
    """Raise `TurnedAway` as soon as it is clear that this is neither JSON nor a hello: an HTTP request, which any page can send."""
    if not beginning.startswith((b"{", _HELLO[: len(beginning)])):
        raise TurnedAway("malformed", "the first line is neither a JSON object nor a hello")
