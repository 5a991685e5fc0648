"""`ClaudeTurns`: follows the turns of `claude` from the bytes of its lines.

In JSON the quotes inside a string are escaped, so the patterns here never match the text of a user.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import msgspec

from claude_transport.protocol.framing import LineBlock
from claude_transport.protocol.turn_tracker import TurnTracker

_STATE: Final = b'"session_state_changed"'
_LIFE: Final = b'"command_lifecycle"'
_INIT: Final = b'"init"'
_PROMPT: Final = re.compile(rb'"type"\s*:\s*"user"')
_RESULT: Final = re.compile(rb'"type"\s*:\s*"result"')
_IDLE: Final = re.compile(rb'"state"\s*:\s*"idle"')
_RUNNING: Final = re.compile(rb'"state"\s*:\s*"running"')
_BEGINNING: Final = re.compile(rb'"subtype"\s*:\s*"init"')
_LIFE_OF: Final = re.compile(rb'"command_uuid"\s*:\s*"([^"\\]{1,64})"')
_LIFE_OVER: Final = re.compile(rb'"state"\s*:\s*"(?:completed|cancelled)"')
_NAMES: Final = re.compile(rb'"user_message_uuids?"\s*:\s*(?:\[\s*)?"')
_TAIL_BYTES: Final = 16 * 2**10

_MOST_UNREAD: Final = 10_000
"""Prompts that are remembered as not read. More of them count as read: the process is not idle for a long time then."""


class _ClaudeLine(msgspec.Struct):
    type: str = ""
    uuid: str = ""


def _read(line: bytes) -> _ClaudeLine:
    """Return what is needed of a line; nothing of one that cannot be read."""
    try:
        return msgspec.json.decode(line, type=_ClaudeLine)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _ClaudeLine()


def is_prompt(line: bytes) -> bool:
    """Return True when a line from the client begins a turn."""
    return _PROMPT.search(line) is not None


class _Prompts:
    """The prompts that the process may not have read yet, and those that it has read and not finished.

    A process that names prompts by their `uuid` says so when it has read one. Any other prompt counts as read with the next result: a
    client often sends the next prompt with a result, and `idle` follows some milliseconds later. Of two such prompts and one result, the
    second one may have joined the turn of the first, or its own turn is still to come.
    Source: docs/reference/protocol.md#the-order-of-a-turn
    """

    def __init__(self) -> None:
        self.unread: OrderedDict[bytes, None] = OrderedDict()
        self.read: dict[bytes, None] = {}
        """Those that the process has named, and not called completed or cancelled."""
        self.unanswered: int = 0
        """How many count as read and have no result of their own."""
        self._first_waits = False  # for its result
        self._count = 0
        self._are_named = False

    def add(self, line: bytes, *, first: bool) -> None:
        """Note a prompt for the process. With `first`, the process is idle and has said so: it reports that state for no earlier prompt.

        Then a prompt without a `uuid` counts as read.
        """
        uuid = _read(line).uuid.encode("utf-8", "replace")
        if first and not uuid:
            self._first_waits = True
            return
        self._count += 1
        if len(self.unread) < _MOST_UNREAD:
            self.unread[uuid or b"#%d" % self._count] = None

    def named(self, line: bytes) -> None:
        """Note a line with `_LIFE`. Prompts are read in order, so the earlier ones were read or dropped."""
        if found := _LIFE_OF.search(line):
            uuid, self._are_named = found[1], True
            if uuid in self.unread:
                while self.unread.popitem(last=False)[0] != uuid:
                    pass
            if _LIFE_OVER.search(line):
                self.read.pop(uuid, None)
            elif len(self.read) < _MOST_UNREAD:
                self.read[uuid] = None

    def result(self, line: bytes) -> None:
        """Note a result."""
        unread = OrderedDict((key, None) for key in self.unread if self._are_named and not key.startswith(b"#"))
        self.unanswered += len(self.unread) - len(unread)
        self.unread = unread
        if _NAMES.search(line):
            return
        if not self._first_waits and self.unanswered:
            self.unanswered -= 1
        self._first_waits = False

    def idle(self) -> None:
        """Note that the process reports `idle`: the first prompt has its result, which may not have been looked at."""
        self._first_waits = False

    def clear(self) -> None:
        """Forget all prompts."""
        self.unread, self.read, self.unanswered = OrderedDict(), {}, 0
        self._first_waits = False


class ClaudeTurns(TurnTracker):
    """Follows the turns of `claude`: from a prompt until the CLI reports `idle`, or until a result where it reports no states.

    A prompt that the CLI has not read when it reports the end keeps the session busy: its turn is still to come. A turn without a prompt,
    such as one after a task in the background, makes the session busy where the CLI reports its state.

    Where the CLI reports its state and has read every prompt, only the last 16 KiB of each block are searched, unless `exactly` is asked
    for. Only prompts and results are decoded.

    Args:
        begun: prompts that another process has got before this one.
        over: how many of them are over.
    """

    def __init__(self, *, begun: int = 0, over: int = 0) -> None:
        self.begun: int = begun
        """How many prompts the process was given."""
        self.over: int = over
        """How many of them are over for certain. Where the CLI reports no states, each result counts for one."""
        self._busy = begun > over
        self._reports_states = False
        self._prompts = _Prompts()

    @property
    def busy(self) -> bool:
        """True from a prompt until the end of its turn."""
        return self._busy

    @property
    def turn_may_follow(self) -> bool:
        """True when there were fewer results than prompts without a `uuid`, or when the CLI has not said that a prompt is completed."""
        return not self._busy and (self._prompts.unanswered > 0 or (not self._reports_states and bool(self._prompts.read)))

    def said(self, lines: Sequence[bytes]) -> None:
        """Look for prompts in lines from the client."""
        for line in lines:
            if is_prompt(line):
                self._prompts.add(line, first=not self._busy)
                self.begun += 1
                self._busy = True

    def heard(self, block: LineBlock, *, exactly: bool = False) -> None:
        """Look for turns that begin or end, and for prompts that were read, in lines from the CLI."""
        if self._may_tell(block, exactly=exactly):
            for line in bytes(block).split(b"\n"):
                self._note(line)

    def _may_tell(self, block: LineBlock, *, exactly: bool) -> bool:
        """Return True when a line of `block` may change something. A search over hundreds of lines takes a third of one for each."""
        if self._busy and self._reports_states and not self._prompts.unread and not self._prompts.unanswered:
            # Searching all of a burst would cost it a quarter of its speed, and a process is silent after the end of a turn.
            return block.has(_STATE, tail=block.size if exactly else _TAIL_BYTES)
        if block.has(_STATE):
            return True
        if self._busy:
            return block.has(_LIFE) or block.has(b'"result"')
        return (self.over < self.begun or self.turn_may_follow) and any(map(block.has, (_INIT, _LIFE, b'"result"')))

    def _note(self, line: bytes) -> None:
        if _STATE in line:
            self._reports_states = True
            if _RUNNING.search(line):
                self._busy = True
            elif _IDLE.search(line):
                self._prompts.idle()
                self._busy = bool(self._prompts.unread)
                self.over = max(self.over, self.begun - len(self._prompts.unread))
        elif _LIFE in line:
            self._prompts.named(line)
        elif (self._busy or self.over < self.begun) and _RESULT.search(line) and _read(line).type == "result":
            self._result(line)
        elif _INIT in line and not self._reports_states:
            self._busy = self._busy or _BEGINNING.search(line) is not None

    def _result(self, line: bytes) -> None:
        self._prompts.result(line)
        if not self._reports_states:
            self.over = min(self.over + 1, self.begun)
            self._busy = bool(self._prompts.unread)

    def rest(self) -> None:
        """Forget the running turns."""
        self._busy = False
        self.over = self.begun
        self._prompts.clear()
