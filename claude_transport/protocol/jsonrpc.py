"""`JSONRPC`: the state machine of JSON-RPC 2.0 over lines, for either end. It has no task, no clock and no I/O.

Both ends ask, and each numbers its own requests: the same id may be open in both directions at once. A message with a `method` is a
request or a notification of the peer; any other one is an answer to this end. What does not fit is counted, and costs that line only.
The shell around it is `claude_transport.jsonrpc`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeGuard

import msgspec

from claude_transport.errors import ClaudeTransportError, JSONRPCError, ProtocolError, UsageError
from claude_transport.protocol.codec import LineDecoder
from claude_transport.protocol.envelope import DecodeFailure, OversizedMessage, encode_json

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
"""Codes of JSON-RPC 2.0, section 5.1."""

BUSY: Final = -32001
"""The code, from the range that is left to applications, for a request over the number that this end works on."""

CANCELLED: Final = -32800
"""The code for a cancelled request, in the Language Server Protocol and in ACP."""

RequestId: TypeAlias = str | int
"""The id of a request of the peer, as the peer wrote it."""

Params: TypeAlias = Mapping[str, Any] | Sequence[Any]


class CancelNotification(msgspec.Struct, frozen=True):
    """How a dialect withdraws a request: the `method` of the notification, and the `field` of its params that holds the id.

    `answer` is the code of the error with which a withdrawn request is answered, None when it gets no answer.
    """

    method: str
    field: str = "requestId"
    answer: int | None = None


MCP_CANCEL: Final = CancelNotification("notifications/cancelled")
"""The notification of the Model Context Protocol. A request that it withdraws gets no answer."""

ACP_CANCEL: Final = CancelNotification("$/cancel_request", answer=CANCELLED)
"""The notification of the Agent Client Protocol."""


class Request(msgspec.Struct, frozen=True):
    """A request of the peer. `params` is a dict, a list or None; `raw` is its line. It is answered under its `id`."""

    id: RequestId
    method: str
    params: Any = None
    raw: bytes = b""


class Notification(msgspec.Struct, frozen=True):
    """A notification of the peer. `params` is a dict, a list or None; `raw` is its line, with members beside `params`."""

    method: str
    params: Any = None
    raw: bytes = b""


class RpcAnswer(msgspec.Struct, frozen=True):
    """The one outcome of the request `id` of this end: `result`, or `error` when there is one."""

    id: int
    result: Any = None
    error: ClaudeTransportError | None = None


class Withdrawal(msgspec.Struct, frozen=True):
    """The peer has withdrawn its request `id`, which is still being worked on."""

    id: RequestId


class RpcRefusal(msgspec.Struct, frozen=True):
    """The line `reply` has to be written: it refuses a request of the peer that cannot be taken."""

    reply: bytes


class NoMessage(msgspec.Struct, frozen=True):
    """The line held no JSON object, for the reason in `failure`."""

    failure: DecodeFailure | OversizedMessage


Event: TypeAlias = Request | Notification | RpcAnswer | Withdrawal | RpcRefusal | NoMessage


class JSONRPCCounters(msgspec.Struct, kw_only=True):
    """What came from the peer and was not a message that this end could use. Each line counts once."""

    malformed: int = 0
    """Lines that were no JSON-RPC message: noise, arrays (batches), ids that are no text and no whole number, answers with both a result
    and an error or with neither."""
    unasked: int = 0
    """Answers to requests that this end never made, and errors without an id."""
    late: int = 0
    """Answers to requests that were over: given up, or answered before."""


class JSONRPC:
    """One end of a JSON-RPC conversation.

    Args:
        with_version: write the member `jsonrpc`. It is never required of the peer.
        cancel: how requests are withdrawn in this dialect; None when they cannot be.
        strict: raise `CLIJSONDecodeError` or `LineTooLong` for a line without a JSON object.
    """

    def __init__(self, *, with_version: bool = True, cancel: CancelNotification | None = None, strict: bool = False) -> None:
        self._head: dict[str, Any] = {"jsonrpc": "2.0"} if with_version else {}
        self._cancel = cancel
        self._decoder = LineDecoder(strict=strict)
        self._last_id = 0
        self._pending: dict[int, str] = {}
        self._open: dict[RequestId, bool] = {}  # True once the peer has withdrawn it
        self.counters: JSONRPCCounters = JSONRPCCounters()
        """What was left out, by reason."""

    @property
    def pending(self) -> Mapping[int, str]:
        """The requests of this end that have no outcome yet: id to method."""
        return self._pending

    @property
    def open(self) -> Iterable[RequestId]:
        """The ids of the requests of the peer that are not answered yet."""
        return self._open.keys()

    # What this end says

    def request(self, method: str, params: Params | None = None) -> tuple[int, bytes]:
        """Make a request. Returns its id and its line. Raises `UsageError` when the params cannot be written as JSON."""
        request_id = self._last_id + 1
        line = self._line({"id": request_id, **_call(method, params)})
        self._last_id = request_id
        self._pending[request_id] = method
        return request_id, line

    def notification(self, method: str, params: Params | None = None) -> bytes:
        """Return the line of a notification. Raises `UsageError` when the params cannot be written as JSON."""
        return self._line(_call(method, params))

    def give_up(self, request_id: int) -> bytes | None:
        """Forget a request of this end. Returns the line that tells the peer, if the dialect has one; None when it has its outcome."""
        if self._pending.pop(request_id, None) is None or self._cancel is None:
            return None
        return self.notification(self._cancel.method, {self._cancel.field: request_id})

    def result(self, request_id: RequestId, result: Any) -> bytes | None:
        """Answer a request of the peer. Returns the line. None when it is not open, or when it was withdrawn and gets no answer.

        Raises:
            UsageError: the result cannot be written as JSON. The request stays open.
        """
        line = self._line({"id": request_id, "result": result})
        return line if self._close(request_id) else None

    def error(self, request_id: RequestId, error: JSONRPCError) -> bytes | None:
        """Answer a request of the peer with an error. Returns and raises as `result()` does."""
        line = self._error_line(request_id, error.rpc_code, error.message, error.data)
        return line if self._close(request_id) else None

    def withdrawn(self, request_id: RequestId) -> bytes | None:
        """Answer a request that the peer has withdrawn, when nothing else was answered. Returns the line, or None as `result()` does."""
        code = CANCELLED if self._cancel is None or self._cancel.answer is None else self._cancel.answer
        return self.error(request_id, JSONRPCError("the request was cancelled", rpc_code=code))

    def _close(self, request_id: RequestId) -> bool:
        """Forget a request of the peer. Returns True when it is to be answered."""
        is_withdrawn = self._open.pop(request_id, None)
        if is_withdrawn is None:
            return False
        return not is_withdrawn or self._cancel is None or self._cancel.answer is not None

    def _line(self, message: dict[str, Any]) -> bytes:
        return encode_json(self._head | message) + b"\n"

    def _error_line(self, request_id: RequestId | None, code: int, message: str, data: Any = None) -> bytes:
        error = {"code": code, "message": message} | ({} if data is None else {"data": data})
        return self._line({"id": request_id, "error": error})

    # What the peer says

    def receive(self, line: bytes) -> Event | None:
        """Take one line of the peer. Returns the event for this end, or None for a line without a meaning, which is counted.

        Raises:
            CLIJSONDecodeError, LineTooLong: only when `strict`: the line holds no JSON object.
        """
        message = self._decoder.as_dict(line)
        if message is None:
            return None  # a blank line
        if not isinstance(message, dict):
            self.counters.malformed += 1
            return NoMessage(message)
        return self._called(message, line) if "method" in message else self._answered(message)

    def _called(self, message: dict[str, Any], line: bytes) -> Event | None:
        method, params = message["method"], message.get("params")
        if "id" in message:
            request_id = message["id"]
            if not _is_id(request_id):
                return self._refusal(None, "the id of a request is a text or a whole number")
            if request_id in self._open:
                # without an id: under this one, it would be taken for the answer to the first request
                return self._refusal(None, "the id of this request is already in use")
            if not isinstance(method, str) or not isinstance(params, dict | list | None):
                return self._refusal(request_id, "a method is a text, and params are an object or an array")
            self._open[request_id] = False
            return Request(request_id, method, params, line)
        if not isinstance(method, str) or not isinstance(params, dict | list | None):
            self.counters.malformed += 1
            return None
        if self._cancel is not None and method == self._cancel.method:
            return self._withdraw(params, field=self._cancel.field)
        return Notification(method, params, line)

    def _refusal(self, request_id: RequestId | None, text: str) -> RpcRefusal:
        self.counters.malformed += 1
        return RpcRefusal(self._error_line(request_id, INVALID_REQUEST, text))

    def _withdraw(self, params: Any, *, field: str) -> Withdrawal | None:
        request_id = params.get(field) if isinstance(params, dict) else None
        if not _is_id(request_id):
            self.counters.malformed += 1
            return None
        if self._open.get(request_id) is not False:
            return None  # it was answered meanwhile, or withdrawn before
        self._open[request_id] = True
        return Withdrawal(request_id)

    def _answered(self, message: dict[str, Any]) -> RpcAnswer | None:
        request_id, error = message.get("id"), message.get("error")
        if request_id is None and isinstance(error, dict):
            self.counters.unasked += 1  # the peer could not read something, and does not say what
            return None
        if not _is_id(request_id):
            self.counters.malformed += 1
            return None
        method = self._pending.pop(request_id, None) if isinstance(request_id, int) else None
        if method is None or not isinstance(request_id, int):
            self._count_unexpected(request_id)
            return None
        return self._outcome(request_id, method, message)

    def _count_unexpected(self, request_id: RequestId) -> None:
        if isinstance(request_id, int) and 0 < request_id <= self._last_id:
            self.counters.late += 1
        else:
            self.counters.unasked += 1

    def _outcome(self, request_id: int, method: str, message: dict[str, Any]) -> RpcAnswer:
        """Return the answer to a pending request. One that cannot be read is an outcome too: a second one is not to be expected."""
        error = message.get("error")
        about = {"subtype": method, "request_id": str(request_id)}
        if error is None and "result" in message:
            return RpcAnswer(request_id, message["result"])
        if isinstance(error, dict) and message.get("result") is None:
            code, text = error.get("code"), error.get("message")
            if _is_id(code) and isinstance(code, int) and isinstance(text, str):
                return RpcAnswer(request_id, error=JSONRPCError(text, rpc_code=code, data=error.get("data"), reason=text, **about))
        self.counters.malformed += 1
        return RpcAnswer(request_id, error=ProtocolError(f"the answer to {method} holds neither a result nor an error that can be read"))


def _is_id(value: object) -> TypeGuard[RequestId]:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _call(method: str, params: Params | None) -> dict[str, Any]:
    if not isinstance(method, str) or not method:
        raise UsageError(f"a method is a text that is not empty, not {method!r}")
    if params is None:
        return {"method": method}
    if isinstance(params, str | bytes | bytearray) or not isinstance(params, Mapping | Sequence):
        raise UsageError(f"params are a mapping or a list, not {type(params).__name__}")
    return {"method": method, "params": dict(params) if isinstance(params, Mapping) else list(params)}
