"""`claude-transport record --agent NAME` for another agent than Claude Code: prompts in one session, and a tape of it all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import anyio

from claude_transport.agents.agent import Heard
from claude_transport.agents.registry import find_agent
from claude_transport.agents.scene import gist_of_input
from claude_transport.app.agent_options import options_for
from claude_transport.app.event_loop import while_ticking
from claude_transport.app.failures import EXIT_OK, NO_ANSWER
from claude_transport.app.render import Face, ShownToolCall, Words
from claude_transport.errors import MissingResult
from claude_transport.transport import Transport
from claude_transport.transports.subprocess import SubprocessTransport


class OtherRecording:
    """One session with an agent, over the transport that `around` makes of its process."""

    def __init__(self, args: SimpleNamespace, prompts: Sequence[str], face: Face, *, around: Callable[[Transport], Transport]) -> None:
        self._args = args
        self._prompts = prompts
        self._face = face
        self._agent = find_agent(args.agent)
        options = options_for(args, self._agent, base=self._agent.plain_options())
        self._transport = around(SubprocessTransport(options))

    async def give_up(self) -> None:
        """End the process at once."""
        await self._transport.close()

    async def show(self) -> int:
        """Show the answers while they are written, and return the exit code. Raises what the session raises."""
        self._face.waiting(f"starting {self._agent.program}")
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
        await self._agent.converse(self._transport, self._prompts, self._show, close_timeout=self._args.close_timeout)

    async def _show(self, heard: Heard) -> None:
        if self._args.json:
            await self._face.raw(heard.line)
            return
        if heard.text:
            await self._face.show(Words(heard.text))
        if heard.tool:
            await self._face.show(ShownToolCall(tool_use_id=heard.tool_id, name=heard.tool, gist=gist_of_input(heard.tool_input)))
        if heard.ends_turn:
            await self._face.finish()
