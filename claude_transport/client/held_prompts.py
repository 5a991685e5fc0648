"""`HeldPrompts`: the prompts that wait for `SessionTerms.before_prompt`, one after another. Everything else passes them."""

from __future__ import annotations

import anyio

from claude_transport.errors import UsageError
from claude_transport.loops.current import Flag
from claude_transport.protocol.codec import REFUSED, decode_dict
from claude_transport.transport import BeforePrompt


class HeldPrompts:
    """The prompts of one conversation that are not sent yet. They wait in the order of `hold()`."""

    __slots__ = ("_order", "_waiting")

    def __init__(self) -> None:
        self._order: anyio.Lock | None = None  # made for the first one: most conversations hold none back
        self._waiting: dict[anyio.CancelScope, Flag] = {}

    async def hold(self, line: bytes, before_prompt: BeforePrompt) -> bytes:
        """Return the line as `before_prompt` wants it; after `give_up()`, the line that was given.

        Raises what `before_prompt` raises, and `UsageError` when it returns no line, or that of another prompt.
        """
        if self._order is None:
            self._order = anyio.Lock(fast_acquire=True)  # a prompt that need not wait is sent in the same step
        over = Flag()
        with anyio.CancelScope() as scope:
            self._waiting[scope] = over
            try:
                async with self._order:
                    return _checked(await before_prompt(line), instead_of=line)
            finally:
                del self._waiting[scope]
                over.set()
        return line

    def give_up(self) -> None:
        """End all waits: nothing can be sent any more."""
        for scope in self._waiting:
            scope.cancel()

    async def wait_for_all(self) -> None:
        """Wait until each prompt that is held back now has been sent, refused or given up."""
        for over in tuple(self._waiting.values()):
            await over.wait()


def _checked(line: object, *, instead_of: bytes) -> bytes:
    if line is instead_of:
        return instead_of
    if not isinstance(line, bytes) or line.find(b"\n") != len(line) - 1:
        raise UsageError("before_prompt must return one line, as bytes with a newline at its end")
    before = decode_dict(instead_of)
    try:
        after = decode_dict(line)
    except REFUSED as exc:
        raise UsageError("before_prompt must return one line that holds a JSON object") from exc
    if (after.get("type"), after.get("uuid")) != (before.get("type"), before.get("uuid")):
        raise UsageError("before_prompt may change the content of a prompt, but neither its type nor its uuid")
    return line
