"""What a `Conversation` asks of whoever performs it: frozen, and nothing but data."""

from __future__ import annotations

import msgspec

from claude_transport.protocol.control import ControlRequest, ControlResponse
from claude_transport.protocol.messages import Message, ResultMessage
from claude_transport.protocol.turn_states import TurnState

__all__ = ["Action", "Cancel", "Deliver", "Reject", "Resolve", "Settle", "Start"]


class Deliver(msgspec.Struct, frozen=True):
    """Hand on `messages`, in order; they belong to the turns of the prompts `turns` (none: to no turn)."""

    messages: list[Message]
    turns: tuple[str, ...]


class Settle(msgspec.Struct, frozen=True):
    """The prompt `uuid` is now in `state`; `result` comes with `done` and `folded`."""

    uuid: str
    state: TurnState
    result: ResultMessage | None = None


class Resolve(msgspec.Struct, frozen=True):
    """The request `request_id` has this answer."""

    request_id: str
    response: ControlResponse


class Reject(msgspec.Struct, frozen=True):
    """The request `request_id` will never be answered: the run failed before it began, as `result` says (recording 16g)."""

    request_id: str
    result: ResultMessage


class Start(msgspec.Struct, frozen=True):
    """The CLI asks: find an answer to `request` while reading goes on."""

    request: ControlRequest


class Cancel(msgspec.Struct, frozen=True):
    """The CLI no longer wants an answer to its request `request_id`; stop working on it and send none."""

    request_id: str


Action = Deliver | Settle | Resolve | Reject | Start | Cancel
