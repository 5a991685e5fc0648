"""What every group of control requests is made of: one way to ask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from claude_transport.protocol.answers import Answer

__all__ = ["DEFAULT_CONTROL_TIMEOUT", "MODEL_TIMEOUT", "Asking"]

DEFAULT_CONTROL_TIMEOUT = 60.0
"""Seconds for an answer to a control request. Most take 1 to 20 ms (docs/reference/protocol.md#answer-times)."""

MODEL_TIMEOUT = 600.0
"""Seconds for the few requests that ask a model something, with the retries of a bad day."""

A = TypeVar("A", bound=Answer)


class Asking(ABC):
    """Somebody who can ask the CLI. All requests are answered while a turn is running, too, and not in the order they were made [08b, 08c].

    Every method raises `ControlRequestFailed` when the CLI refuses (with `error_code` when it gave one), `ControlTimeout` after `timeout`
    seconds (`math.inf` waits for ever), and the cause (`ConnectionLost`, `ProcessError`, `TransportClosed`) when nobody will answer.
    """

    @abstractmethod
    async def request(self, subtype: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT, **fields: Any) -> dict[str, Any]:
        """Ask the CLI anything: the response fields."""

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """True while there is something an interrupt could stop."""

    @property
    @abstractmethod
    def has_ended(self) -> bool:
        """True once there is nobody to ask."""

    @abstractmethod
    async def _early_prompts_sent(self) -> None:
        """Return when every prompt that waits for the start has been sent, or will not be."""

    async def _ask(self, answer: type[A], subtype: str, *, timeout: float, **fields: Any) -> A:
        """The typed answer; fields that are None are left out."""
        return answer.from_payload(await self.request(subtype, timeout=timeout, **said(fields)))

    async def _tell(self, subtype: str, *, timeout: float, **fields: Any) -> None:
        """Ask for something whose success has nothing to say; fields that are None are left out."""
        await self.request(subtype, timeout=timeout, **said(fields))


def said(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that say something."""
    return {name: value for name, value in fields.items() if value is not None}


MILLISECONDS: Final = 1000
