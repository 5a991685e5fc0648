"""Messages and bytes: how a stream of lines becomes WebSocket messages, and how messages of any peer become a stream of lines.

Pure, and the same whatever carries the messages: frames of our own, or the events of an ASGI server.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator

from claude_transport.errors import ProtocolError

__all__ = ["LARGEST_TEXT_BYTES", "USUAL_MESSAGE_BYTES", "MessageReader", "cut_messages", "is_utf8"]

USUAL_MESSAGE_BYTES = 2**20
"""Bytes of a message made of several lines: many peers refuse a larger one unless they are told otherwise."""

LARGEST_TEXT_BYTES = 16 * 2**20
"""Bytes of a line that is still sent as one message of text; a longer one goes in pieces, as messages of bytes."""


def cut_messages(data: bytes) -> Iterator[tuple[bytes, bool]]:
    """The messages that carry `data`, each with whether it is text. Text holds whole lines; anything else goes as bytes.

    No message is empty, and joined they are `data`.
    """
    if not (data.endswith(b"\n") and is_utf8(data)):
        yield from ((data[at : at + USUAL_MESSAGE_BYTES], False) for at in range(0, len(data), USUAL_MESSAGE_BYTES))
        return
    start = 0
    while len(data) - start > USUAL_MESSAGE_BYTES:
        end = data.rfind(b"\n", start, start + USUAL_MESSAGE_BYTES) + 1 or data.find(b"\n", start) + 1
        if end - start > LARGEST_TEXT_BYTES:
            yield from ((data[at : min(at + USUAL_MESSAGE_BYTES, end)], False) for at in range(start, end, USUAL_MESSAGE_BYTES))
        else:
            yield data[start:end], True
        start = end
    if start < len(data):
        yield (data[start:] if start else data), True


def is_utf8(data: bytes) -> bool:
    """Whether `data` may be sent as text."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


class MessageReader:
    """Turns the messages of a peer, or the frames they come in, into bytes; `ended` is True once the peer has ended its input."""

    def __init__(self) -> None:
        self.ended: bool = False
        self._is_text = False
        self._size = 0  # bytes of the message that is being read
        self._last = b""  # its last byte so far
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._inside_character = False

    def feed(self, data: bytes, *, text: bool | None, final: bool = True) -> bytes:
        """The bytes of the stream that this message holds, or this part of one: `text` is None for a part that continues a message.

        A message of text holds whole lines: the newline that its last one may lack is added. What comes after the end of input is left out.

        Raises:
            ProtocolError: a message of text is not UTF-8.
        """
        if text and final and data and data.isascii():  # the usual message, of which nothing has to be remembered
            whole = data if data.endswith(b"\n") else data + b"\n"
            return b"" if self.ended else whole
        if text is not None:
            self._is_text, self._size, self._last = text, 0, b""
        self._size += len(data)
        self._last = data[-1:] or self._last
        if self._is_text:
            self._check_text(data, final=final)
            if final:
                if not self._size:
                    self.ended = True
                elif self._last != b"\n":
                    data += b"\n"
        return b"" if self.ended else data

    def _check_text(self, data: bytes, *, final: bool) -> None:
        if data.isascii() and not self._inside_character:
            return
        try:
            self._decoder.decode(data, final)
        except UnicodeDecodeError as exc:
            raise ProtocolError(f"a text message of the peer is not UTF-8: {exc.reason}") from exc
        self._inside_character = bool(self._decoder.getstate()[0])
