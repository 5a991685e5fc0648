"""`claude-transport record --agent codex`: prompts to Codex in one thread, the answers as they are written, and a tape of it all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import anyio

from claude_transport.app.event_loop import while_ticking
from claude_transport.app.failures import EXIT_OK, NO_ANSWER
from claude_transport.app.render import Face, ShownToolCall, Words
from claude_transport.codex.asking import PLAIN_CODEX
from claude_transport.codex.conversation import NewText
from claude_transport.codex.messages import CodexNotification, ItemStarted
from claude_transport.codex.session import CodexSession
from claude_transport.codex.tool_calls import tool_call_of
from claude_transport.errors import ConfigurationError, MissingResult
from claude_transport.inspection.scene import gist_of_input
from claude_transport.transport import Transport
from claude_transport.transports.subprocess import SubprocessTransport

_OF_CLAUDE = {
    "system_prompt": "--system-prompt",
    "permission_mode": "--permission-mode",
    "allowed_tools": "--allowed-tools",
    "max_turns": "--max-turns",
    "cli_path": "--cli-path",
    "offline": "--offline",
}
"""Options that only a claude can fulfil. They are refused, not ignored."""


def check_arguments(args: SimpleNamespace) -> None:
    """Raise `ConfigurationError` for an option that only a claude can fulfil."""
    for name, option in _OF_CLAUDE.items():
        if getattr(args, name, None):
            raise ConfigurationError(f"{option} is for claude; leave it out with --agent codex", option=name)


class CodexRecording:
    """One conversation with Codex, over the transport that `around` makes of its process."""

    def __init__(self, args: SimpleNamespace, prompts: Sequence[str], face: Face, *, around: Callable[[Transport], Transport]) -> None:
        self._args = args
        self._prompts = prompts
        self._face = face
        options = PLAIN_CODEX.replace(model=args.model, cwd=args.cwd, codex_path=args.codex_path)
        self._transport = around(SubprocessTransport(options))

    async def give_up(self) -> None:
        """End the process at once."""
        await self._transport.close()

    async def show(self) -> int:
        """Show the answers while they are written, and return the exit code. Raises what the conversation raises."""
        self._face.waiting("starting codex")
        try:
            with anyio.move_on_after(self._args.timeout) as scope:
                await while_ticking(self._converse, self._face.on_tick)
        finally:
            with (
                anyio.CancelScope(shield=True),
                anyio.move_on_after(1),
            ):  # a reader that has stopped reading must not keep the program alive
                await self._face.finish()
        if scope.cancelled_caught:
            raise MissingResult(f"no answer in {self._args.timeout:g} s. {NO_ANSWER}", code="exec.cli.timeout", category="timeout")
        return EXIT_OK

    async def _converse(self) -> None:
        async with CodexSession(self._transport, close_timeout=self._args.close_timeout) as session:
            results = []
            for prompt in self._prompts:
                turn, found = await session.send(prompt), NewText()
                async for message in turn:
                    await self._show_message(message, found)
                results.append(await turn.result())
                await self._face.finish()
        for result in results:  # the first failure says most
            result.raise_for_error()

    async def _show_message(self, message: CodexNotification, found: NewText) -> None:
        if self._args.json:
            await self._face.raw(message.raw)
            return
        if piece := found.of(message):
            await self._face.show(Words(piece))
        call = tool_call_of(message.item, is_over=False) if isinstance(message, ItemStarted) else None
        if call is not None and isinstance(message, ItemStarted):
            await self._face.show(ShownToolCall(tool_use_id=message.item.id, name=call.name, gist=gist_of_input(call.input)))
