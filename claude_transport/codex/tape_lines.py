"""`CodexLines`: how the lines of a live host are matched with those of a recorded one, for Codex."""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from claude_transport.protocol.envelope import JSONTextError, encode_json, parse_json
from claude_transport.protocol.tape_lines import IGNORED, Key, TapeLines, words_of


class CodexLines(TapeLines):
    """Lines of `codex app-server`: the method of a request, and the question that an answer belongs to must match."""

    agent = "codex"

    def __init__(self) -> None:
        super().__init__()
        self._questions: set[str] = set()  # asked on the tape and not resolved yet
        self._request_ids: dict[str, deque[Any]] = {}  # recorded id, as JSON -> live ids

    def read(self, line: bytes) -> tuple[Key, Any]:
        """Return the key and the message of a line of a host. Codex answers nothing to a line that is no object: it is ignored."""
        try:
            message, _ = parse_json(line)
        except JSONTextError:
            return IGNORED, line.decode("utf-8", "replace")
        if not isinstance(message, dict):
            return IGNORED, message
        method = message.get("method")
        if isinstance(method, str):
            # a notification of the host changes nothing that comes back
            return (("request", method) if "id" in message else IGNORED), message
        if "id" in message and ("result" in message or "error" in message):
            return ("answer", _as_json(message["id"])), message
        return IGNORED, message

    def aspect(self, key: Key, message: Any) -> tuple[str, str, Any]:
        """Return what a line of a host is about, where that stands, and the value."""
        if key[0] == "answer":
            return "answers", "result", message.get("result", message.get("error"))
        if key[0] != "request":
            return "", "", None
        params = message.get("params")
        if key[1] == "turn/start" and isinstance(params, dict):
            return "prompt", "params.input", words_of(params.get("input"))
        return "options" if key[1] in ("initialize", "thread/start", "thread/resume") else "requests", "params", params

    def answered_by(self, step: Any, line: bytes) -> bool:
        """Return False: requests of Codex change the thread, and stay in their order."""
        return False

    def recorded(self, line: bytes) -> None:
        """Note a question of Codex, and that one needs no answer any more."""
        if b'"serverRequest/resolved"' not in line and not (b'"id"' in line and b'"method"' in line):
            return
        _, message = self.read(line)
        if not isinstance(message, dict):
            return
        params = message.get("params")
        if message.get("method") == "serverRequest/resolved" and isinstance(params, dict):
            self._questions.discard(_as_json(params.get("requestId")))
        elif isinstance(message.get("method"), str) and "id" in message:
            self._questions.add(_as_json(message["id"]))

    def is_needed(self, key: Key) -> bool:
        """Return whether Codex reacts to a line of this kind: it ignores an answer that nothing waits for."""
        return key != IGNORED and (key[0] != "answer" or key[1] in self._questions)

    def learn(self, recorded: Any, live: Any) -> None:
        """Note the live id of a request, and of a thread that is resumed."""
        if not isinstance(recorded, dict) or not isinstance(live, dict) or "method" not in recorded:
            return
        self._request_ids.setdefault(_as_json(recorded.get("id")), deque()).append(live.get("id"))
        if recorded["method"] == "thread/resume":
            self.rename(_thread_in(recorded), _thread_in(live))

    def answer(self, key: Key, message: Any) -> bytes | None:
        """Answer `initialize`: a host may send it to a tape whose host did not."""
        if key != ("request", "initialize"):
            return None
        return encode_json(
            {"id": message.get("id"), "result": {"userAgent": "tape", "codexHome": "", "platformFamily": "", "platformOs": ""}}
        )

    def relive(self, line: bytes) -> bytes:
        """Return a recorded line of Codex with the live ids of requests and of a resumed thread."""
        if b'"id"' in line and (b'"result"' in line or b'"error"' in line):
            line = self._with_live_request_id(line)
        return self.renamed(line)

    def _with_live_request_id(self, line: bytes) -> bytes:
        """Replace the recorded id in the answer to a request of the host by the live one."""
        try:
            message = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return line
        if "method" in message or "id" not in message:
            return line
        old = bytes(message["id"]).decode()
        waiting = self._request_ids.get(old)
        if not waiting:
            return line
        new = waiting.popleft() if len(waiting) > 1 else waiting[0]
        if _as_json(new) == old:
            return line
        return msgspec.json.encode({**message, "id": new})


def _thread_in(message: dict[str, Any]) -> Any:
    params = message.get("params")
    return params.get("threadId") if isinstance(params, dict) else None


def _as_json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        return ""
