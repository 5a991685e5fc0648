"""`CodexTurns`: follows the turns of `codex app-server` from the bytes of its lines, and knows how to end them before the input ends.

The end of the input drops a running turn of Codex, without a word. So a session of Codex is ended in this order: interrupt, wait until the
turn is completed, end the input.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from claude_transport.protocol.framing import LineBlock
from claude_transport.protocol.turn_tracker import TurnTracker

_BEGINNINGS: Final = (b'"turn/start"', b'"review/start"')
"""Requests of the client whose answer names a turn."""

_STARTED: Final = b'"turn/started"'
_COMPLETED: Final = b'"turn/completed"'
_STATUS: Final = b'"thread/status/changed"'
_CLOSED: Final = b'"thread/closed"'

_MOST: Final = 1000
"""Requests without an answer, and running turns, that are remembered. A client that asks for more gets no exact `busy`."""

_REMEMBERED: Final = 64
"""Turns that are over and remembered: the answer that names a turn could come after its end."""


class _TurnParams(msgspec.Struct, rename="camel", gc=False):
    thread_id: str = ""
    turn: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")
    capabilities: msgspec.Raw = msgspec.Raw(b"{}")


class _CodexLine(msgspec.Struct, gc=False):
    """The fields of a line that may begin or end a turn. The decoder skips the rest."""

    id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    method: str = ""
    params: msgspec.Raw = msgspec.Raw(b"{}")
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Named(msgspec.Struct, gc=False):
    id: str = ""
    type: str = ""


class _TurnAnswer(msgspec.Struct, gc=False):
    turn: _Named | None = None


class _Capabilities(msgspec.Struct, rename="camel", gc=False):
    opt_out_notification_methods: list[Any] = []


_decode_line: Final = msgspec.json.Decoder(_CodexLine).decode
_decode_params: Final = msgspec.json.Decoder(_TurnParams).decode
_decode_named: Final = msgspec.json.Decoder(_Named).decode
_decode_answer: Final = msgspec.json.Decoder(_TurnAnswer).decode
_decode_capabilities: Final = msgspec.json.Decoder(_Capabilities | None).decode
_REFUSED: Final = (msgspec.MsgspecError, ValueError, RecursionError)


class CodexTurns(TurnTracker):
    """Follows the turns of `codex app-server`, of all threads: from a `turn/start` until the `turn/completed` of its turn.

    A prompt that is refused begins no turn, and a prompt that joins the running turn begins no second one. A client that does not want to
    be told about `turn/completed` is followed by the status of its threads; one that wants neither counts as idle.

    Only lines that name a turn's beginning or end are decoded, and answers while a prompt has none.
    """

    def __init__(self) -> None:
        self._asked: dict[bytes, str] = {}  # prompts without an answer: the id of the request, and its thread
        self._running: dict[str, str] = {}  # turns, and their threads
        self._over: deque[str] = deque(maxlen=_REMEMBERED)
        self._started: set[str] = set()  # those that can be interrupted
        self._interrupted: set[str] = set()
        self._interrupts = 0
        self._unwanted: frozenset[str] = frozenset()  # the notifications that the client does not want
        self._greeted = False

    @property
    def busy(self) -> bool:
        """True while a turn runs in any thread, or a prompt has no answer yet."""
        return bool(self._running or self._asked)

    @property
    def drops_turns(self) -> bool:
        """True while a turn runs: the end of the input would drop it."""
        return self.busy

    def said(self, lines: Sequence[bytes]) -> None:
        """Look for prompts in lines from the client."""
        for line in lines:
            if any(word in line for word in _BEGINNINGS):
                self._read_prompt(line)
            elif not self._greeted and b'"initialize"' in line:
                self._read_greeting(line)

    def heard(self, block: LineBlock, *, exactly: bool = False) -> None:
        """Look for turns that begin or end in lines from Codex. It always looks at all of them."""
        by_status = "turn/completed" in self._unwanted
        marks = [_STARTED, _COMPLETED, _CLOSED, *([_STATUS] if by_status else [])]
        if not self._asked and not any(map(block.has, marks)):
            return
        for line in bytes(block).split(b"\n"):
            if any(mark in line for mark in marks):
                self._read_notification(line)
            elif self._asked and b'"id"' in line:
                self._read_answer(line)

    def rest(self) -> None:
        """Forget the prompts and turns."""
        self._asked.clear()
        self._running.clear()
        self._started.clear()
        self._interrupted.clear()

    def interrupts(self) -> list[bytes]:
        """Return a `turn/interrupt` for each running turn that has none yet. Codex refuses it before it has said `turn/started`."""
        lines = []
        for turn, thread in self._running.items():
            can_be = turn in self._started or "turn/started" in self._unwanted
            if can_be and turn not in self._interrupted:
                self._interrupted.add(turn)
                self._interrupts += 1
                request = {
                    "id": f"claude-transport-end-{self._interrupts}",  # a text: the ids of other clients are numbers
                    "method": "turn/interrupt",
                    "params": {"threadId": thread, "turnId": turn},
                }
                lines.append(msgspec.json.encode(request) + b"\n")
        return lines

    def _read_prompt(self, line: bytes) -> None:
        try:
            request = _decode_line(line)
            params = _decode_params(request.params)
        except _REFUSED:
            return  # Codex answers nothing to it, or an error
        if isinstance(request.id, msgspec.Raw) and f'"{request.method}"'.encode() in _BEGINNINGS and len(self._asked) < _MOST:
            self._asked[bytes(request.id)] = params.thread_id

    def _read_greeting(self, line: bytes) -> None:
        try:
            request = _decode_line(line)
            if request.method != "initialize":
                return
            self._greeted = True
            capabilities = _decode_capabilities(_decode_params(request.params).capabilities)
        except _REFUSED:
            return
        if capabilities is not None:
            self._unwanted = frozenset(name for name in capabilities.opt_out_notification_methods if isinstance(name, str))

    def _read_notification(self, line: bytes) -> None:
        try:
            message = _decode_line(line)
            params = _decode_params(message.params)
            match message.method:
                case "turn/started":
                    turn = _decode_named(params.turn).id
                    self._began(turn, params.thread_id)
                    if turn in self._running:
                        self._started.add(turn)
                case "turn/completed":
                    self._ended(_decode_named(params.turn).id)
                case "thread/closed":
                    self._ended_all(params.thread_id)
                case "thread/status/changed":
                    if _decode_named(params.status).type != "active":
                        self._ended_all(params.thread_id)
        except _REFUSED:
            return  # a line that names no turn says nothing about one

    def _read_answer(self, line: bytes) -> None:
        try:
            answer = _decode_line(line)
            if answer.method or not isinstance(answer.id, msgspec.Raw):
                return
            thread = self._asked.pop(bytes(answer.id), None)
            if thread is not None and isinstance(answer.result, msgspec.Raw):
                turn = _decode_answer(answer.result).turn
                self._began(turn.id if turn is not None else "", thread)
        except _REFUSED:
            return

    def _began(self, turn: str, thread: str) -> None:
        ends_untold = {"turn/completed", "thread/status/changed"} <= self._unwanted
        if turn and turn not in self._over and len(self._running) < _MOST and not ends_untold:
            self._running[turn] = thread

    def _ended(self, turn: str) -> None:
        self._running.pop(turn, None)
        self._started.discard(turn)
        self._interrupted.discard(turn)
        if turn:
            self._over.append(turn)

    def _ended_all(self, thread: str) -> None:
        for turn in [turn for turn, its_thread in self._running.items() if its_thread == thread]:
            self._ended(turn)
