"""`ask` by the other path: the Messages API answers, and there is no claude, no tool and no question."""

from __future__ import annotations

import math

import anyio

from claude_transport.app.answer import Remark, Words
from claude_transport.app.failures import EXIT_OK
from claude_transport.app.render import Face
from claude_transport.app.summary import summarize
from claude_transport.app.ticking import while_ticking
from claude_transport.completion.call import CompletionStream, stream
from claude_transport.completion.completion import Completion
from claude_transport.launch.options import ClaudeOptions
from claude_transport.protocol.envelope import encode_message
from claude_transport.protocol.messages import ResultMessage


class APIAnswer:
    """One prompt to the API. Options that only a claude could keep are refused, never left out."""

    def __init__(self, prompt: str, options: ClaudeOptions, *, timeout: float | None, face: Face, raw: bool, summary: bool) -> None:
        seconds = math.inf if timeout is None else timeout
        self._stream: CompletionStream = stream(prompt, transport="api", timeout=seconds, options=options.replace(cli_path=None))
        self._face = face
        self._raw = raw
        self._summary = summary

    async def give_up(self) -> None:
        """End it at once; for interruptions."""
        await self._stream.aclose()

    async def show(self) -> int:
        """Show the answer as it is written: the exit code. Raises what the call fails with."""
        self._face.waiting("asking the API")
        try:
            await while_ticking(self._show_words, self._face.on_tick)
            await self._conclude(self._stream.completion)
        finally:
            with anyio.CancelScope(shield=True):
                await self._stream.aclose()
                with anyio.move_on_after(1):  # a reader that has stopped reading must not keep the program alive
                    await self._face.finish()
        return EXIT_OK

    async def _show_words(self) -> None:
        async for piece in self._stream:
            if not self._raw:
                await self._face.show(Words(piece))

    async def _conclude(self, completion: Completion) -> None:
        if self._raw:
            for message in completion.events:
                await self._face.raw(encode_message(message).rstrip(b"\n"))
            return
        if not completion.text:
            await self._face.show(Remark(text="the answer is empty"))
        for warning in completion.warnings:
            await self._face.show(Remark(text=warning, problem=True))
        result = completion.events[-1] if completion.events else None
        if self._summary and isinstance(result, ResultMessage):
            await self._face.finish()
            line = summarize(result, model=completion.model or "", seconds=completion.duration, look=self._face.look)
            self._face.say(line, style="dim")
