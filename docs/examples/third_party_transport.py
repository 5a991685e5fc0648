"""A transport of your own, with the six methods and nothing else, over any byte stream; and the proof that it keeps the contract."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import ByteStream

import claude_transport as ct
from claude_transport.protocol.framing import LineFramer
from claude_transport.testing.conformance import run_conformance

REFUSALS = {"new": ct.NotConnected, "ended": ct.InputClosed, "broken": ct.TransportClosed, "closed": ct.TransportClosed}
GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError)


class ThirdPartyTransport(ct.Transport):
    """The six methods, over a stream that is open already."""

    max_line_bytes = 65536

    def __init__(self, stream: ByteStream) -> None:
        self.stream, self.framer, self.decoder = stream, LineFramer(max_line_bytes=self.max_line_bytes), ct.messages.LineDecoder()
        self.state, self.lines, self.over, self.one_writer = "new", deque[bytes](), False, anyio.Lock()

    def refuse_if(self, *states: str) -> None:
        if self.state in states:
            raise REFUSALS[self.state](f"the transport is {self.state}")

    def is_ready(self) -> bool:
        return self.state in {"open", "ended"}

    async def connect(self) -> None:
        self.refuse_if("closed")
        self.state = "open" if self.state == "new" else self.state

    async def write(self, data: str | bytes) -> None:
        async with self.one_writer:
            self.refuse_if(*REFUSALS)
            try:
                await self.stream.send((data.encode() if isinstance(data, str) else data).removesuffix(b"\n") + b"\n")
            except BaseException as exc:  # noqa: BLE001 - a cancellation too: half a line may be out, and no other may follow it
                self.state = "closed" if self.state == "closed" else "broken"
                raise (ct.TransportClosed("the peer is gone") if isinstance(exc, GONE) else exc) from exc.__cause__

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        self.refuse_if("new", "closed")
        while self.lines or (not self.over and await self.read_more()):
            message = self.decoder.as_dict(self.lines.popleft()) if self.lines else None
            if isinstance(message, dict):
                yield message
            elif message is not None and self.over:  # what came last, without a newline, is no message: half of one
                raise ct.TruncatedStream("the stream ended inside a line", bytes_tail=message.raw)
            elif message is not None:
                logging.getLogger(__name__).warning("left out a line that holds no message")

    async def read_more(self) -> bool:
        try:
            chunk = await anext(self.stream, b"")
        except anyio.BusyResourceError as exc:
            raise ct.Busy("somebody else is reading") from exc
        except anyio.ClosedResourceError:
            return False  # closed from our side: the iteration just ends
        except anyio.BrokenResourceError as exc:
            self.state = "broken"
            raise ct.ConnectionLost("the peer is gone") from exc
        self.over = not chunk
        self.lines += self.framer.feed(chunk) if chunk else filter(None, [self.framer.finish()])
        return True

    async def end_input(self) -> None:
        async with self.one_writer:
            self.refuse_if("new", "closed")
            self.state = "ended" if self.state == "open" else self.state
            await self.stream.send_eof()

    async def close(self) -> None:
        self.state = "closed"
        await self.stream.aclose()


async def main() -> None:
    report = await anyio.to_thread.run_sync(run_conformance, ThirdPartyTransport)
    print(report)


if __name__ == "__main__":
    anyio.run(main)
