"""The peer of a `MockTransport`: what it says was decided beforehand, what it got is in `written`."""

from __future__ import annotations

from claude_transport.protocol.envelope import encode_line
from claude_transport.testing.conformance.bench import wire
from claude_transport.testing.conformance.subject import Inexpressible, Peer, Reason
from claude_transport.transports.mock import MockTransport

_QUESTION = {"type": "control_request", "request_id": "conformance", "request": {"subtype": "conformance"}}


class MockPeer(Peer):
    """Sees what was written, and that the transport is closed. It can say nothing: clauses that need that are inexpressible."""

    def __init__(self, transport: MockTransport) -> None:
        super().__init__()
        self._transport = transport
        self._seen = 0

    async def prime(self) -> None:
        """Make the mock wait instead of ending: it does so once it has been asked something, as under the control protocol."""
        await self._transport.write(wire(_QUESTION))
        await anext(aiter(self._transport.read_messages()))
        self._seen = len(self._transport.written)

    def _look(self) -> None:
        new = self._transport.written[self._seen :]
        self._seen += len(new)
        if new:
            self.take(b"".join(encode_line(each) for each in new))
        if not self._transport.is_ready():
            self.input_over()

    @property
    def received(self) -> bytes:
        """What was written, encoded anew."""
        self._look()
        return super().received

    @property
    def input_ended(self) -> bool:
        """True once the transport is closed."""
        self._look()
        return super().input_ended

    async def receive_line(self) -> bytes:
        """The next message that was written."""
        self._look()
        return await super().receive_line()

    async def wait_input_end(self) -> None:
        """Return when the transport is closed."""
        self._look()
        await super().wait_input_end()

    async def send(self, data: bytes) -> None:
        """Not to be had."""
        raise Inexpressible(Reason.SCRIPTED)

    async def finish(self) -> None:
        """Not to be had."""
        raise Inexpressible(Reason.SCRIPTED)

    async def fail(self) -> None:
        """Not to be had."""
        raise Inexpressible(Reason.CANNOT_BREAK)

    async def stop_reading(self) -> None:
        """Nothing: the mock takes every write at once."""

    async def resume_reading(self) -> None:
        """Nothing."""
