"""What is said when another worker takes a session: to the client about turns without an outcome, and to the new process to set it up.

A process that is gone cannot answer any more, and what it was asked may have happened. So its turns end with a result that says so, its
requests with an error, and nothing is repeated. Only the requests that set a session up are said again: the new process does not know them.
"""

from __future__ import annotations

import re
import uuid as uuids
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from claude_transport.fleet.messages import Owner
from claude_transport.protocol.envelope import encode_line

UNCERTAIN_SUBTYPE: Final = "outcome_uncertain"
"""The subtype of the result of a turn whose process is gone."""

SETUP_ID: Final = "fleet-setup-"
"""The beginning of the ids of requests that are said again. Their answers are for no client."""

SETUP_REQUESTS: Final = ("initialize", "set_model", "set_permission_mode", "set_max_thinking_tokens", "mcp_set_servers")
"""Requests that set a session up, in the order in which they are said again."""

_MAX_SETUP_BYTES: Final = 2**20
"""The most bytes of a request that is kept. A larger one is not, and the notice of the next worker says so."""

_MOST_OPEN: Final = 1000
"""Requests without an answer that are remembered, the newest."""

_REQUEST: Final = b'"control_request"'
_RESPONSE: Final = b'"control_response"'
_SETUP_ANSWER: Final = re.compile(rb'"request_id"\s*:\s*"' + SETUP_ID.encode())


class _InnerRequest(msgspec.Struct, frozen=True):
    subtype: str = ""


class _TakeoverRequest(msgspec.Struct):
    type: str = ""
    request_id: str = ""
    request: _InnerRequest = _InnerRequest()


class _Answer(msgspec.Struct, frozen=True):
    request_id: str = ""


class _Response(msgspec.Struct):
    type: str = ""
    response: _Answer = _Answer()


def _request_in(line: bytes) -> _TakeoverRequest | None:
    if _REQUEST not in line:
        return None
    try:
        found = msgspec.json.decode(line, type=_TakeoverRequest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if found.type == "control_request" and found.request_id else None


def find_setup(data: bytes) -> dict[str, bytes]:
    """Return the requests in `data` that set a session up, by subtype; of two with one subtype, the last one."""
    if _REQUEST not in data:
        return {}
    requests = ((line, _request_in(line)) for line in data.split(b"\n") if len(line) <= _MAX_SETUP_BYTES)
    return {
        request.request.subtype: line for line, request in requests if request is not None and request.request.subtype in SETUP_REQUESTS
    }


def setup_lines(kept: Mapping[str, bytes]) -> list[bytes]:
    """Return the lines that set the new process up, with ids of their own. What cannot be read is left out."""
    lines = []
    for number, subtype in enumerate(each for each in SETUP_REQUESTS if each in kept):
        if len(kept[subtype]) > _MAX_SETUP_BYTES:
            continue
        try:
            message: dict[str, Any] = msgspec.json.decode(kept[subtype], type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        lines.append(encode_line({**message, "request_id": f"{SETUP_ID}{number}"}))
    return lines


def without_setup_answers(data: bytes) -> bytes:
    """Return lines of a process without its answers to `setup_lines()`."""
    if SETUP_ID.encode() not in data:
        return data
    return b"".join(line for line in data.splitlines(keepends=True) if not (_RESPONSE in line and _SETUP_ANSWER.search(line)))


def takeover_lines(owner: Owner, *, resumed: bool, conversation: str | None) -> list[bytes]:
    """Return the lines that tell a client that another worker has its session.

    A system message comes first: `{"type": "system", "subtype": "fleet_takeover", "uncertain": 1, "resumed": true, …}`. `resumed` is False
    when the new process does not know the conversation. `unstored` counts turns that were over, but may be missing in what it knows. A
    result for each uncertain turn follows.
    """
    notice = {
        "type": "system",
        "subtype": "fleet_takeover",
        "uncertain": owner.uncertain,
        "unstored": owner.unstored,
        "resumed": resumed,
        "worker": owner.node,
        "session_id": conversation or "",
        "uuid": str(uuids.uuid4()),
    }
    why = "the worker of this session is gone, and it is not known what the turn has done"
    results = [
        {
            "type": "result",
            "subtype": UNCERTAIN_SUBTYPE,
            "is_error": True,
            "duration_ms": 0,
            "duration_api_ms": 0,
            "num_turns": 0,
            "errors": [why],
            "session_id": conversation or "",
            "uuid": str(uuids.uuid4()),
        }
        for _ in range(min(owner.uncertain, _MOST_OPEN))
    ]
    return [encode_line(message) for message in (notice, *results)]


class OpenRequests:
    """The control requests of a client that have no answer yet."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}  # number of the entry by id

    def said(self, data: bytes, *, number: int) -> None:
        """Note the requests in `data`, which ends with the entry `number`."""
        if _REQUEST not in data:
            return
        for line in data.split(b"\n"):
            request = _request_in(line)
            if request is not None:
                self._open[request.request_id] = number
        while len(self._open) > _MOST_OPEN:
            del self._open[next(iter(self._open))]

    def heard(self, data: bytes) -> None:
        """Note the answers in `data`."""
        if not self._open:
            return
        if _RESPONSE not in data:
            return
        for line in data.split(b"\n"):
            if _RESPONSE not in line:
                continue
            try:
                answer = msgspec.json.decode(line, type=_Response)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
            self._open.pop(answer.response.request_id, None)

    def answers_after(self, taken: int) -> Iterable[bytes]:
        """Return an error for each open request that a process which is gone was given: those up to the entry `taken`."""
        lost = [request for request, number in self._open.items() if number <= taken]
        for request in lost:
            del self._open[request]
        error = "the worker of this session is gone, and it is not known whether the request was carried out"
        return [
            encode_line({"type": "control_response", "response": {"subtype": "error", "request_id": request, "error": error}})
            for request in lost
        ]
