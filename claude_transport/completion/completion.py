"""`Completion`: what one call came to, the same on both paths."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from claude_transport.completion.assembly import build_api_message
from claude_transport.completion.resolution import Resolution, TransportKind
from claude_transport.launch.credentials import Payer
from claude_transport.protocol.envelope import Message, Usage

if TYPE_CHECKING:
    from anthropic.types import Message as APIMessage


class Completion(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The answer to one call: what was said, what it took, who was asked, and who pays.

    `text` is the text blocks of the main conversation, joined by newlines. `usage` counts tokens, those of the cache too, on both paths;
    it and `cost_usd` (US dollars at list price) are of the attempt that succeeded. `cost_usd` is None when nobody knows.
    `duration` are the seconds of the whole call, `attempts` how often it was made. `api_key_source` and `billing_source` name the
    credential and who pays for it, never a value. `session_id` (CLI path) is what `ClaudeOptions(resume=…)` takes.

    `exit_code` is the CLI's; -1 when it has none, because it was never started or was ended by a signal or by the timeout, and None on the
    API path.

    `category` and `warnings` say what is odd about an answer that is no failure: `interactive` and `background-task` (S2.7).
    `events` are all messages of the attempt; partial ones only when the options asked for them.
    """

    text: str
    text_blocks: tuple[str, ...] = ()
    usage: Usage = Usage()
    cost_usd: float | None = None
    model: str | None = None
    stop_reason: str | None = None
    transport: TransportKind
    resolution: Resolution
    api_key_source: str | None = None
    billing_source: Payer = "unknown"
    session_id: str | None = None
    exit_code: int | None = None
    duration: float = 0.0
    attempts: int = 1
    warnings: tuple[str, ...] = ()
    category: str | None = None
    events: tuple[Message, ...] = ()

    @cached_property
    def raw_message(self) -> APIMessage:
        """The reply as an `anthropic.types.Message`, on both paths; imports `anthropic` when it is first asked for.

        On the CLI path it is put together from everything the main conversation said, without the tool calls that the CLI has made
        itself (S4.4).
        """
        from anthropic.types import Message as APIMessage

        # `construct`, as the SDK itself does it for what the API sends: a block that it does not know yet is no reason to fail
        return APIMessage.construct(None, **build_api_message(self.events, usage=self.usage))


_ATTRIBUTE = "completion"


def attach_completion(error: BaseException, completion: Completion) -> None:
    """Let `error` remember what there was of the call that it ended."""
    setattr(error, _ATTRIBUTE, completion)


def partial_completion(error: BaseException) -> Completion | None:
    """What there was of the call that `error` ended: the text so far, the events, the attempts; None for an error that is of no call."""
    found = getattr(error, _ATTRIBUTE, None)
    return found if isinstance(found, Completion) else None
