"""`FrameReader`: cuts the bytes of one connection of a link into frames, and gives of data what has come, at once."""

from __future__ import annotations

from collections.abc import Iterator

from claude_transport.errors import ProtocolError
from claude_transport.protocol.link_frames import (
    MAX_CONTROL_FRAME_BYTES,
    MAX_DATA_HEADER_BYTES,
    Data,
    Frame,
    decode_frame,
    parse_data_header,
)

__all__ = ["FrameReader"]


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
