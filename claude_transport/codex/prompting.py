"""`ask_each()`: prompts to Codex one after the other in one thread, each message passed on as it comes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from claude_transport.agents.agent import Heard
from claude_transport.codex.conversation import NewText
from claude_transport.codex.messages import CodexNotification, ItemStarted, TurnCompleted
from claude_transport.codex.session import CodexSession
from claude_transport.codex.tool_calls import tool_call_of
from claude_transport.transport import TransportLike


async def ask_each(
    transport: TransportLike, prompts: Sequence[str], hear: Callable[[Heard], Awaitable[object]], *, close_timeout: float | None
) -> None:
    """Ask each prompt in one thread, as `Agent.converse()` says."""
    async with CodexSession(transport, close_timeout=close_timeout) as session:
        results = []
        for prompt in prompts:
            turn, found = await session.send(prompt), NewText()
            async for message in turn:
                await hear(_heard(message, found))
            results.append(await turn.result())
    for result in results:  # the first failure says most
        result.raise_for_error()


def _heard(message: CodexNotification, found: NewText) -> Heard:
    call = tool_call_of(message.item, is_over=False) if isinstance(message, ItemStarted) else None
    heard = Heard(line=message.raw, text=found.of(message), ends_turn=isinstance(message, TurnCompleted))
    if call is None or not isinstance(message, ItemStarted):
        return heard
    return replace(heard, tool=call.name, tool_id=message.item.id, tool_input=call.input)
