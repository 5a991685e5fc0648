"""`CodexTurns`: follows the turns of `codex app-server` from the bytes of its lines, and knows how to end them before the input ends.

The end of the input drops a running turn of Codex, without a word. So a session of Codex is ended in this order: interrupt, wait until the
turn is completed, end the input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from claude_transport.codex.turn_table import TurnTable
from claude_transport.protocol.framing import LineBlock
from claude_transport.protocol.turn_tracker import TurnTracker

_BEGINNINGS: Final = (b'"turn/start"', b'"review/start"')
"""Requests of the client whose answer names a turn."""

_STARTED: Final = b'"turn/started"'
_COMPLETED: Final = b'"turn/completed"'
_STATUS: Final = b'"thread/status/changed"'
_CLOSED: Final = b'"thread/closed"'


_REMEMBERED: Final = 64
"""Turns that are over and remembered. Their ids may be long, and a gateway has many sessions."""


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


class _Running(msgspec.Struct, gc=False):
    """A turn that runs. Codex refuses to interrupt it before it has said `turn/started`."""

    thread_id: str
    is_started: bool = False
    is_interrupted: bool = False


class CodexTurns(TurnTracker):
    """Follows the turns of `codex app-server`, of all threads: from a `turn/start` until the `turn/completed` of its turn.

    A prompt that is refused begins no turn, and a prompt that joins the running turn begins no second one. A client that does not want to
    be told about `turn/completed` is followed by the status of its threads; one that wants neither counts as idle.

    Only lines that name a turn's beginning or end are decoded, and answers while a prompt has none.
    """

    def __init__(self) -> None:
        self._turns: TurnTable[bytes, str, _Running] = TurnTable(remembered=_REMEMBERED)  # the requests by their id, with their threads
        self._interrupts = 0
        self._unwanted: frozenset[str] = frozenset()  # the notifications that the client does not want
        self._greeted = False

    @property
    def busy(self) -> bool:
        """True while a turn runs in any thread, or a prompt has no answer yet."""
        return bool(self._turns.running or self._turns.asked)

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
        if not self._turns.asked and not any(map(block.has, marks)):
            return
        for line in bytes(block).split(b"\n"):
            if any(mark in line for mark in marks):
                self._read_notification(line)
            elif self._turns.asked and b'"id"' in line:
                self._read_answer(line)

    def rest(self) -> None:
        """Forget the prompts and turns."""
        self._turns.forget()

    def interrupts(self) -> list[bytes]:
        """Return a `turn/interrupt` for each running turn that has none yet, and that Codex would not refuse to interrupt."""
        lines = []
        for turn_id, turn in self._turns.running.items():
            if not turn.is_interrupted and (turn.is_started or "turn/started" in self._unwanted):
                turn.is_interrupted = True
                self._interrupts += 1
                request = {
                    "id": f"claude-transport-end-{self._interrupts}",  # a text: the ids of other clients are numbers
                    "method": "turn/interrupt",
                    "params": {"threadId": turn.thread_id, "turnId": turn_id},
                }
                lines.append(msgspec.json.encode(request) + b"\n")
        return lines

    def _read_prompt(self, line: bytes) -> None:
        try:
            request = _decode_line(line)
            params = _decode_params(request.params)
        except _REFUSED:
            return  # Codex answers nothing to it, or an error
        if isinstance(request.id, msgspec.Raw) and f'"{request.method}"'.encode() in _BEGINNINGS:
            self._turns.ask(bytes(request.id), params.thread_id)

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
                    turn_id = _decode_named(params.turn).id
                    self._began(turn_id, params.thread_id)
                    if turn_id in self._turns.running:
                        self._turns.running[turn_id].is_started = True
                case "turn/completed":
                    self._turns.end(_decode_named(params.turn).id)
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
            thread = self._turns.asked.pop(bytes(answer.id), None)
            if thread is not None and isinstance(answer.result, msgspec.Raw):
                turn = _decode_answer(answer.result).turn
                self._began(turn.id if turn is not None else "", thread)
        except _REFUSED:
            return

    def _began(self, turn_id: str, thread: str) -> None:
        if not {"turn/completed", "thread/status/changed"} <= self._unwanted:  # else its end would not be told
            self._turns.begin(turn_id, lambda: _Running(thread))

    def _ended_all(self, thread: str) -> None:
        for turn_id in self._turns.of_thread(thread):
            self._turns.end(turn_id)
