"""Answers one request to the fake Messages API: plays a reply step by step, or says what the API would say."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import anyio
import msgspec

from claude_transport.testing.api_events import CHARACTERS_PER_TOKEN, Cut, Gate, Pause, Send, Step, encode_message, encode_steps
from claude_transport.testing.api_requests import RecordedRequest
from claude_transport.testing.http_server import HTTPConnection
from claude_transport.testing.replies import ERROR_TYPES, ErrorReply, MessageReply, RawReply, Reply, error

__all__ = ["Responder", "encode_error"]

MODELS = ("claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5")


class Responder:
    """Answers `request` over `connection`; `serial` makes its ids unique, `pass_gate(name)` returns when the gate is open.

    Every method raises `PeerGone` when the client hangs up first.
    """

    def __init__(
        self, connection: HTTPConnection, *, request: RecordedRequest, serial: int, pass_gate: Callable[[str], Awaitable[None]]
    ) -> None:
        self._connection = connection
        self._request = request
        self._serial = serial
        self._pass_gate = pass_gate
        self._tokens = max(1, request.size // CHARACTERS_PER_TOKEN)

    async def answer(self, next_reply: Callable[[], Reply]) -> bool:
        """Answer by the kind of the request; `next_reply` is asked only for a model request. False: the connection is to be dropped."""
        match self._request.kind:
            case "conversation" | "side":
                return await self._play(next_reply())
            case "count_tokens":
                await self._respond({"input_tokens": self._tokens})
            case "models":
                await self._respond_models()
            case "probe":
                await self._respond({})
            case "malformed":
                await self._fail(error(400, message="the body is a JSON object with at least `model` and `messages`"))
            case _:
                await self._fail(error(404, message=f"{self._request.method} {self._request.path} is not served here"))
        return True

    async def _play(self, reply: Reply) -> bool:
        match reply:
            case ErrorReply():
                await self._fail(reply)
                return True
            case RawReply() if not self._request.stream:
                await self._respond(reply.body, headers=reply.headers)
                return True
            case RawReply():
                return await self._stream([Send(event) for event in reply.events], headers=reply.headers)
            case MessageReply():
                steps = encode_steps(reply, model=self._request.model, serial=self._serial, input_tokens=self._tokens)
                if self._request.stream:
                    return await self._stream(steps, headers=reply.headers)
                return await self._whole(reply, steps=steps)

    async def _stream(self, steps: Sequence[Step], *, headers: Mapping[str, str]) -> bool:
        chunked = self._request.http_version != "1.0"
        started = False
        for step in steps:
            match step:
                case Cut():
                    return False
                case Send(data):
                    if not started:
                        started = True
                        sse = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", **headers}
                        await self._connection.start_stream(headers=self._headers(sse), chunked=chunked)
                    await self._connection.send_part(data)
                case _:
                    await self._linger(step)
        await self._connection.end_stream()
        return chunked

    async def _whole(self, reply: MessageReply, *, steps: Sequence[Step]) -> bool:
        for step in steps:
            await self._linger(step)
        if reply.failure is not None:
            kind, said = reply.failure
            status = next((status for status, (known, _) in ERROR_TYPES.items() if known == kind), 500)
            await self._fail(error(status, error_type=kind, message=said))
            return True
        body = encode_message(reply, model=self._request.model, serial=self._serial, input_tokens=self._tokens)
        if reply.cut_after is None:
            await self._respond(body, headers=reply.headers)
        elif reply.cut_after > 0:
            await self._connection.send_fragment(200, headers=self._headers(reply.headers), body=body, sent=len(body) // 2)
        return reply.cut_after is None

    async def _linger(self, step: Step) -> None:
        """Wait if this step is a wait, but no longer than the client stays."""
        match step:
            case Pause(seconds):
                await self._connection.wait(lambda: anyio.sleep(seconds))
            case Gate(name):
                await self._connection.wait(lambda: self._pass_gate(name))

    async def _respond(self, body: Mapping[str, Any] | bytes, *, headers: Mapping[str, str] | None = None, status: int = 200) -> None:
        encoded = body if isinstance(body, bytes) else msgspec.json.encode(body)
        head_only = self._request.method == "HEAD"
        await self._connection.respond(status, headers=self._headers(headers or {}), body=encoded, head_only=head_only)

    async def _respond_models(self) -> None:
        made = [{"type": "model", "id": name, "display_name": name, "created_at": "2026-01-01T00:00:00Z"} for name in MODELS]
        if self._request.path == "/v1/models":
            await self._respond({"data": made, "has_more": False, "first_id": MODELS[0], "last_id": MODELS[-1]})
            return
        wanted = self._request.path.removeprefix("/v1/models/")
        found = next((model for model in made if model["id"] == wanted), None)
        if found is None:
            await self._fail(error(404, message=f"model: {wanted}"))
        else:
            await self._respond(found)

    async def _fail(self, reply: ErrorReply) -> None:
        await self._respond(encode_error(reply), headers=reply.headers, status=reply.status)

    def _headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        return {"content-type": "application/json", "request-id": f"req_fake{self._serial:08d}", **headers}


def encode_error(reply: ErrorReply) -> bytes:
    """The body of an error response, in the shape of the Messages API."""
    return msgspec.json.encode({"type": "error", "error": {"type": reply.error_type, "message": reply.message}})
