"""Control requests that wait for an answer, and the answers that come, in any order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio

from claude_transport.errors import ClaudeTransportError, ConnectionLost, ControlRequestFailed, ControlTimeout, InputClosed
from claude_transport.protocol.control import ControlResponse, encode_control_request
from claude_transport.protocol.conversation import Conversation
from claude_transport.query.connection import Connection
from claude_transport.query.endings import raised_again
from claude_transport.query.outbox import Outbox

__all__ = ["PendingRequest", "Requests"]

_VERDICT_GRACE = 1.0
"""Seconds that the reader gets to find out why a write failed: how the peer ended is more to the point than a broken pipe."""


class PendingRequest:
    """One request, from before it is written until somebody has its answer or has given up. It is settled once."""

    def __init__(self, request_id: str, subtype: str, line: bytes) -> None:
        self.request_id = request_id
        self.subtype = subtype
        self.line = line
        self.response: ControlResponse | None = None
        self.error: ClaudeTransportError | None = None
        self._unwritten: ClaudeTransportError | None = None
        self._news = anyio.Event()

    def is_open(self) -> bool:
        """True until it has an answer, or will have none."""
        return self.response is None and self.error is None

    def resolve(self, response: ControlResponse) -> None:
        """The peer has answered."""
        if self.is_open():
            self.response = response
            self._news.set()

    def fail(self, error: ClaudeTransportError) -> None:
        """There will be no answer."""
        if self.is_open():
            self.error = error
            self._news.set()

    def doubt(self, error: ClaudeTransportError) -> None:
        """Its line could not be written; why, may yet be found out."""
        self._unwritten = error
        self._news.set()

    async def settled(self) -> None:
        """Return when there is an answer, or will be none."""
        await self._news.wait()
        if self.is_open() and self._unwritten is not None:
            self._news = anyio.Event()
            with anyio.move_on_after(_VERDICT_GRACE):
                await self._news.wait()
            self.fail(self._unwritten)


class Requests:
    """Keeps the requests of one conversation that wait for an answer. Giving up, for whatever reason, leaves no entry behind."""

    def __init__(self, conversation: Conversation, outbox: Outbox, connection: Connection) -> None:
        self._conversation = conversation
        self._outbox = outbox
        self._connection = connection
        self._pending: dict[str, PendingRequest] = {}
        self._over = False

    @property
    def pending(self) -> dict[str, str]:
        """Everything that is remembered of requests without an answer, by the conversation too: id to subtype."""
        return {**self._conversation.pending_requests, **{request.request_id: request.subtype for request in self._pending.values()}}

    def prepare(self, subtype: str, fields: Mapping[str, Any]) -> PendingRequest:
        """Register a request, before its line is written; `UsageError` when the fields are no JSON."""
        request_id, line = self._encoded(subtype, fields)
        request = self._pending[request_id] = PendingRequest(request_id, subtype, line)
        return request

    def post(self, request: PendingRequest) -> None:
        """Write a prepared request. When that fails it will not be answered, for the cause that reading finds, if it finds one."""

        def fail(error: ClaudeTransportError) -> None:
            if isinstance(error, InputClosed) or self._over:
                request.fail(error)
            else:
                request.doubt(error)

        self._outbox.post(request.line, on_error=fail)

    def tell(self, subtype: str, **fields: Any) -> None:
        """Ask for something whose answer is of no interest."""
        self._outbox.post(self.line(subtype, **fields))

    def line(self, subtype: str, **fields: Any) -> bytes:
        """Return the line of a request whose answer is of no interest."""
        return self._encoded(subtype, fields)[1]

    def _encoded(self, subtype: str, fields: Mapping[str, Any]) -> tuple[str, bytes]:
        request_id = self._conversation.request(subtype)
        try:
            return request_id, encode_control_request(request_id, subtype, **fields)
        except BaseException:
            self._conversation.abandoned(request_id)
            raise

    async def answer_to(self, request: PendingRequest, *, timeout: float) -> ControlResponse:
        """The successful answer.

        Raises:
            ControlRequestFailed: the peer refused.
            ControlTimeout: it did not answer in `timeout` seconds.
            ClaudeTransportError: the cause for which it never will.
        """
        try:
            with anyio.move_on_after(timeout):
                await request.settled()
        finally:
            self._pending.pop(request.request_id, None)
            self._conversation.abandoned(request.request_id)
        if request.error is not None:
            raise raised_again(request.error)
        names = {"subtype": request.subtype, "request_id": request.request_id}
        response = request.response
        if response is None:
            tail = self._connection.info.stderr_tail
            raise ControlTimeout(f"no answer to {request.subtype} in {timeout:g} s", waited=timeout, stderr_tail=tail, **names)
        if not response.ok:
            raise ControlRequestFailed(response.error or f"{request.subtype} was refused", error_code=response.error_code, **names)
        return response

    def resolve(self, request_id: str, response: ControlResponse) -> None:
        """Hand an answer to whoever waits for it."""
        request = self._pending.get(request_id)
        if request is not None:
            request.resolve(response)

    def fail(self, request_id: str, error: ClaudeTransportError) -> None:
        """This one will not be answered."""
        request = self._pending.get(request_id)
        if request is not None:
            request.fail(error)

    def fail_all(self, error: ClaudeTransportError | None) -> None:
        """There will be no more answers; None for an end without a failure. What has been answered stays answered."""
        self._over = True
        cause = error or ConnectionLost("the conversation ended before the request was answered")
        for request in self._pending.values():
            request.fail(cause)
