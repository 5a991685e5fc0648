"""`TapeLines`: how the lines of a live host are matched with those of a recorded one. `tape.Playback` plays by it.

A live host writes the same requests as the recorded one, in its own words and with its own ids. Which words may differ depends on the
agent: `ClaudeLines` knows it for Claude, and `Agent.tape_lines()` for any.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import deque
from typing import Any, ClassVar, Final

import msgspec

from claude_transport.protocol.envelope import JSONTextError, encode_json, parse_json

Key = tuple[str, str]
"""The kind of a line: its type, and the subtype of a request or the id of the question that it answers."""

MALFORMED: Final[Key] = ("malformed", "")
IGNORED: Final[Key] = ("ignored", "")
"""The kind of a line without effect: it need not be written again."""

_STRING = re.compile(rb'"([^"\\]{1,200})"')
_MIN_NAME: Final = 8
"""Minimum characters of an id that is replaced wherever it stands: a shorter one could be any string of the message."""


class TapeLines(ABC):
    """The matching of one tape. It is fed all recorded lines first, then those of the live host."""

    agent: ClassVar[str]
    """The name of the agent, for messages."""

    def __init__(self) -> None:
        self._names: dict[bytes, bytes] = {}  # recorded -> live

    @abstractmethod
    def read(self, line: bytes) -> tuple[Key, Any]:
        """Return the key and the message of a line of a host; the line itself as text when it has no message."""

    @abstractmethod
    def aspect(self, key: Key, message: Any) -> tuple[str, str, Any]:
        """Return what a line of a host is about (`prompt`, `options`, `requests`, `answers`, or nothing), where that is, and the value."""

    @abstractmethod
    def answered_by(self, step: Any, line: bytes) -> bool:
        """Return whether `line` is the recorded answer to the recorded request `step`, which no other line of a host must precede."""

    @abstractmethod
    def recorded(self, line: bytes) -> None:
        """Note a recorded line of the agent, when it stands before the next line of the host."""

    @abstractmethod
    def is_needed(self, key: Key) -> bool:
        """Return whether the live host must write a line of this kind, which the recorded host wrote at this place of the tape."""

    @abstractmethod
    def learn(self, recorded: Any, live: Any) -> None:
        """Note that the live host has written the message `live` where the recorded one wrote `recorded`."""

    @abstractmethod
    def relive(self, line: bytes) -> bytes:
        """Return a recorded line of the agent with the ids of the live host."""

    @abstractmethod
    def answer(self, key: Key, message: Any) -> bytes | None:
        """Return the answer to a line that is not on the tape and is answered all the same; None for every other line."""

    def rename(self, recorded: Any, live: Any) -> None:
        """Replace the id `recorded` by `live` in later lines."""
        if isinstance(recorded, str) and isinstance(live, str) and recorded != live and len(recorded) >= _MIN_NAME:
            self._names[recorded.encode()] = live.encode()

    def renamed(self, line: bytes) -> bytes:
        if not any(old in line for old in self._names):
            return line
        return _STRING.sub(lambda match: b'"%s"' % self._names.get(match[1], match[1]), line)


class ClaudeLines(TapeLines):
    """Lines of `claude`: the type, the subtype of a request, and the question that an answer belongs to must match."""

    agent = "claude"
    _HEEDED: Final = frozenset({"user", "control_request", "control_response"})
    # Types of lines to which the CLI reacts. Lines of other types need not be sent again (recordings 18d to 18z).

    def __init__(self) -> None:
        super().__init__()
        self._questions: set[str] = set()
        self._request_ids: dict[object, deque[str | None]] = {}  # recorded id -> live ids; a request may have no id [18l]

    def read(self, line: bytes) -> tuple[Key, Any]:
        """Return the key and the message of a line of a host."""
        if not line.strip():
            return IGNORED, line
        try:
            message, _ = parse_json(line)
        except JSONTextError:
            return MALFORMED, line.decode("utf-8", "replace")
        if not isinstance(message, dict) or message.get("type") not in self._HEEDED:
            return IGNORED, message
        kind = str(message["type"])
        name, field = {"control_request": ("request", "subtype"), "control_response": ("response", "request_id")}.get(kind, ("", ""))
        body = message.get(name)
        return (kind, str(body.get(field)) if isinstance(body, dict) else ""), message

    def aspect(self, key: Key, message: Any) -> tuple[str, str, Any]:
        """Return what a line of a host is about, where that stands, and the value."""
        if key[0] == "user":
            body = message.get("message")
            return "prompt", "message.content", words_of(body.get("content") if isinstance(body, dict) else body)
        if key[0] == "control_request":
            return "options" if key[1] == "initialize" else "requests", "request", message.get("request")
        if key[0] == "control_response":
            body = message.get("response")
            said = {name: value for name, value in body.items() if name != "request_id"} if isinstance(body, dict) else body
            return "answers", "response", said
        return "", "", None

    def answered_by(self, step: Any, line: bytes) -> bool:
        """Return whether `line` is the recorded answer to a recorded control request."""
        if b'"control_response"' not in line:
            return False
        try:
            message = msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return False
        body = message.get("response")
        return message.get("type") == "control_response" and isinstance(body, dict) and body.get("request_id") == step.get("request_id")

    def recorded(self, line: bytes) -> None:
        """Note a question of the CLI."""
        if b'"control_request"' in line:
            _, message = self.read(line)
            if isinstance(message, dict) and message.get("type") == "control_request":
                self._questions.add(str(message.get("request_id")))

    def is_needed(self, key: Key) -> bool:
        """Return whether the CLI reacts to a line of this kind."""
        # the CLI ignores an answer to a question that it did not ask [18o]
        return key != IGNORED and (key[0] != "control_response" or key[1] in self._questions)

    def learn(self, recorded: Any, live: Any) -> None:
        """Note the live id of a request, or the live uuid of a prompt."""
        if not isinstance(recorded, dict) or not isinstance(live, dict):
            return
        if recorded.get("type") == "control_request":
            identity = live.get("request_id")
            self._request_ids.setdefault(recorded.get("request_id"), deque()).append(identity)
        elif recorded.get("type") == "user":
            self.rename(recorded.get("uuid"), live.get("uuid"))

    def answer(self, key: Key, message: Any) -> bytes | None:
        """Answer `initialize`: a host may send it to a tape whose host did not."""
        if key != ("control_request", "initialize"):
            return None
        reply = {"subtype": "success", "request_id": message.get("request_id"), "response": {}}
        return encode_json({"type": "control_response", "response": reply})

    def relive(self, line: bytes) -> bytes:
        """Return a recorded line of the CLI with the live ids of requests and uuids of prompts."""
        if b"request_id" in line or None in self._request_ids:
            line = self._with_live_request_id(line)
        return self.renamed(line)

    def _with_live_request_id(self, line: bytes) -> bytes:
        """Replace the recorded request id in the answer to a request of the host by the live one."""
        try:
            message = msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return line
        kind = message.get("type")
        holder = message.get("response") if kind == "control_response" else message
        if kind not in ("control_response", "system") or not isinstance(holder, dict):
            return line
        old = holder.get("request_id")
        waiting = self._request_ids.get(old) if isinstance(old, str | None) else None
        if not waiting or (old is None and kind != "control_response"):
            return line
        # an id that was used twice is answered twice [08e]
        new = waiting.popleft() if kind == "control_response" and len(waiting) > 1 else waiting[0]
        if new == old:
            return line
        if not isinstance(old, str) or new is None:
            holder.pop("request_id", None)
            if new is not None:
                holder["request_id"] = new
            return encode_json(message)
        quoted = msgspec.json.encode(new)
        pattern = rb'("request_id"\s*:\s*)"%s"' % re.escape(msgspec.json.encode(old)[1:-1])
        return re.sub(pattern, lambda match: match[1] + quoted, line, count=1)


def words_of(content: Any) -> Any:
    """Return the text of a content that is a single text, however it is written."""
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict) and content[0].get("type") == "text":
        return content[0].get("text")
    return content
