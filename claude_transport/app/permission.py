"""`PermissionAsker`: may Claude use this tool? Asked on the terminal; without one the answer is no, and why."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final, TextIO

import anyio
import msgspec

from claude_transport.app.answer import gist_of
from claude_transport.app.render import Face
from claude_transport.app.terminal import is_terminal, one_line, visible
from claude_transport.client.questions import Allow, CallbackContext, Deny

_TOOL_LINE_PATIENCE: Final = 0.5
"""Seconds to let the line about a tool call be shown before the question about it; with `--json` there is none."""

_MAX_NAME: Final = 80
"""Characters shown of the name of a tool or a field."""

_MAX_LINES: Final = 40
"""Lines shown of one field. A command is always shown whole: nobody should allow what they have not seen."""


class Keyboard:
    """The person at the terminal, if there is one: both ends must be there, stderr to ask on and a keyboard to answer.

    When stdin is a pipe (the prompt came through it), the controlling terminal is asked instead.
    """

    def __init__(self, stdin: TextIO, stderr: TextIO) -> None:
        self._stdin, self._stderr = stdin, stderr

    @property
    def is_there(self) -> bool:
        """Whether a question could be answered."""
        return os.name == "posix" and is_terminal(self._stderr) and (is_terminal(self._stdin) or os.path.exists("/dev/tty"))  # noqa: PTH110

    async def ask(self, show_question: Callable[[], object]) -> str:
        """The line typed after the question was shown, and not before; empty at the end of input. May be cancelled."""
        import termios

        own = not is_terminal(self._stdin)
        descriptor = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY) if own else self._stdin.fileno()
        try:
            termios.tcflush(descriptor, termios.TCIFLUSH)  # what was typed before the question cannot be an answer to it
            show_question()
            await anyio.wait_readable(descriptor)
            return os.read(descriptor, 4096).decode(errors="replace")  # a terminal hands over whole lines
        except OSError:  # the terminal is gone, or not ours to read from (a background job)
            return ""
        finally:
            if own:
                os.close(descriptor)


class PermissionAsker:
    """The `can_use_tool` callback of `ask`. `on_refusal(tool_use_id)` is told of each no, whose line is then already there."""

    def __init__(self, face: Face, keyboard: Keyboard, *, on_refusal: Callable[[str], object]) -> None:
        self._face = face
        self._keyboard = keyboard
        self._on_refusal = on_refusal

    async def can_use_tool(self, tool_name: str, tool_input: dict[str, Any], context: CallbackContext) -> Allow | Deny:
        """Ask; `Deny` with the reason that Claude is told."""
        if context.tool_use_id is not None:
            with anyio.move_on_after(_TOOL_LINE_PATIENCE):
                await self._face.shown(context.tool_use_id).wait()
        async with self._face.lock:
            decision = await self._decide(tool_name, tool_input)
        if isinstance(decision, Deny) and context.tool_use_id is not None:
            self._on_refusal(context.tool_use_id)
        return decision

    async def _decide(self, tool_name: str, tool_input: dict[str, Any]) -> Allow | Deny:
        face = self._face
        bad = face.look.symbol("bad")
        name = one_line(tool_name, width=_MAX_NAME)
        if tool_name == "AskUserQuestion":
            face.say(f"  {bad} Claude wanted to ask something; `ask` takes one prompt and no more", style="yellow")
            return Deny("Nobody can answer questions here. Decide by yourself, and say what you assumed.")
        if not self._keyboard.is_there:
            gist = one_line(gist_of(tool_input), width=60)
            face.say(f"  {bad} denied: {name} ({gist}), because there is no terminal to ask on; see --allowed-tools", style="yellow")
            return Deny("Permission denied: the program runs without a terminal, so nobody could be asked.")
        face.say(f"  Claude wants to use {name}:", style="bold")
        for line in _describe(tool_input):
            face.say(f"    {line}")
        answer = await self._keyboard.ask(lambda: face.say("  Allow it? [y/N] ", style="bold", end=""))
        if not answer.endswith("\n"):
            face.say("")  # end of input was typed: the question still stands on its line
        if answer.strip().lower() in {"y", "yes"}:
            return Allow()
        face.say(f"  {bad} denied", style="yellow")
        return Deny("The user does not allow this.")


def _describe(tool_input: dict[str, Any]) -> list[str]:
    """The input, field by field, made safe to look at."""
    lines: list[str] = []
    for name, value in tool_input.items():
        text = visible(value if isinstance(value, str) else msgspec.json.encode(value).decode())
        first, *rest = text.split("\n")
        kept = rest if name == "command" else rest[:_MAX_LINES]
        lines += [f"{one_line(name, width=_MAX_NAME)}: {first}", *(f"  {line}" for line in kept)]
        if len(kept) < len(rest):
            lines.append(f"  … {len(rest) - len(kept)} more lines")
    return lines
