"""`ClaudeTurns`: follows the turns of `claude` from the bytes of its lines. `UnreadPrompts`: the prompts that `idle` does not speak of.

In JSON the quotes inside a string are escaped, so the patterns here never match the text of a user.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from claude_transport.protocol.dialect import TurnTracker
from claude_transport.protocol.framing import LineBlock

STATE: Final = b'"session_state_changed"'
"""Stands in each line that reports the state of the session."""

LIFE: Final = b'"command_lifecycle"'
"""Stands in each line that reports what became of a prompt with a `uuid`."""

_PROMPT: Final = re.compile(rb'"type"\s*:\s*"user"')
_RESULT: Final = re.compile(rb'"type"\s*:\s*"result"')
_IDLE: Final = re.compile(rb'"state"\s*:\s*"idle"')
_LIFE_OF: Final = re.compile(rb'"command_uuid"\s*:\s*"([^"\\]{1,64})"')
_TAIL_BYTES: Final = 16 * 2**10

_MOST_UNREAD: Final = 10_000
"""Prompts that are remembered as not read. More of them count as read: the process is not idle for a long time then."""


class _Line(msgspec.Struct):
    type: str = ""
    uuid: str = ""


def _read(line: bytes) -> _Line:
    """Return what is needed of a line; nothing of one that cannot be read."""
    try:
        return msgspec.json.decode(line, type=_Line)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _Line()


def is_prompt(line: bytes) -> bool:
    """Return True when a line from the client begins a turn."""
    return _PROMPT.search(line) is not None


def is_result(line: bytes) -> bool:
    """Return True when a line from the process is a result."""
    return _RESULT.search(line) is not None and _read(line).type == "result"


def is_idle(line: bytes) -> bool:
    """Return True when a line that holds `STATE` reports `idle`."""
    return _IDLE.search(line) is not None


class UnreadPrompts:
    """The prompts that the process may not have read when it reports `idle`. That report does not end their turns.

    A process that names prompts by their `uuid` says so when it has read one. Any other prompt counts as read with the next result: a
    client often sends the next prompt with a result, and `idle` follows some milliseconds later.
    Source: docs/reference/protocol.md#the-order-of-a-turn
    """

    def __init__(self) -> None:
        self._keys: dict[bytes, None] = {}
        self._count = 0
        self._names_prompts = False

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, line: bytes, *, first: bool = False) -> None:
        """Note a prompt for the process. With `first`, the process is idle and has said so: it reports that state for no earlier prompt.

        Then a prompt without a `uuid` counts as read.
        """
        uuid = _read(line).uuid.encode("utf-8", "replace")
        if first and not uuid:
            return
        self._count += 1
        if len(self._keys) < _MOST_UNREAD:
            self._keys[uuid or b"#%d" % self._count] = None

    def named(self, line: bytes) -> None:
        """Note a line of the process that holds `LIFE`. Prompts are read in order, so the earlier ones were read or dropped."""
        if found := _LIFE_OF.search(line):
            self._names_prompts = True
            if found[1] in self._keys:
                named = [*self._keys].index(found[1]) + 1
                self._keys = dict.fromkeys([*self._keys][named:])

    def result(self) -> None:
        """Note a result."""
        self._keys = {key: None for key in self._keys if self._names_prompts and not key.startswith(b"#")}

    def clear(self) -> None:
        """Forget all prompts."""
        self._keys = {}


class ClaudeTurns(TurnTracker):
    """Follows the turns of `claude`: from a prompt until the CLI reports `idle`, or until a result where it reports no states.

    A prompt that the CLI has not read when it reports the end keeps the session busy: its turn is still to come.

    Where the CLI reports its state and has read every prompt, only the last 16 KiB of each block are searched, unless `exactly` is asked
    for. Only prompts and results are decoded.
    """

    def __init__(self) -> None:
        self._busy = False
        self._reports_states = False
        self._unread = UnreadPrompts()

    @property
    def busy(self) -> bool:
        """True from a prompt until the end of its turn."""
        return self._busy

    def said(self, lines: Sequence[bytes]) -> None:
        """Look for prompts in lines from the client."""
        for line in lines:
            if is_prompt(line):
                self._unread.add(line, first=not self._busy)
                self._busy = True

    def heard(self, block: LineBlock, *, exactly: bool = False) -> None:
        """Look for a result, for the state `idle` and for prompts that were read, in lines from the CLI."""
        if self._may_tell(block, exactly=exactly):
            for line in bytes(block).split(b"\n"):
                self._note(line)

    def _may_tell(self, block: LineBlock, *, exactly: bool) -> bool:
        """Return True when a line of `block` may change something. A search over hundreds of lines takes a third of one for each."""
        if not self._busy:
            return not self._reports_states and block.has(STATE)
        if self._reports_states and not self._unread:
            # Searching all of a burst would cost it a quarter of its speed, and a process is silent after the end of a turn.
            return block.has(STATE, tail=block.size if exactly else _TAIL_BYTES)
        return block.has(STATE) or block.has(LIFE) or block.has(b'"result"')

    def _note(self, line: bytes) -> None:
        if STATE in line:
            self._reports_states = True
            if is_idle(line) and not self._unread:
                self._busy = False
        elif not self._busy:
            return
        elif LIFE in line:
            self._unread.named(line)
        elif is_result(line):
            self._unread.result()
            if not self._reports_states and not self._unread:
                self._busy = False

    def rest(self) -> None:
        """Forget the running turns."""
        self._busy = False
        self._unread.clear()
