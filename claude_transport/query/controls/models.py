"""Models: which one, how it thinks, what it has cost, what it has in mind."""

from __future__ import annotations

from typing import Any, Literal

from claude_transport.protocol.answers import ContextUsage, ModelListing, UsageInfo
from claude_transport.protocol.initialization import ModelInfo
from claude_transport.query.controls.asking import DEFAULT_CONTROL_TIMEOUT, Asking

__all__ = ["ModelControls"]


class ModelControls(Asking):
    """The model, its cost and its context window."""

    async def set_model(self, model: str | None = None, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> str:
        """Use another model from the next request on, or with None the default again: the name that is now set. [08a]

        The CLI accepts any string, also one that names no model; a wrong one shows as a failed turn
        (docs/reference/protocol.md#requests-that-accept-anything). A PreModelSwitch hook that says no makes it raise
        `ControlRequestFailed`.
        """
        return str((await self.request("set_model", timeout=timeout, model=model)).get("model", model))

    async def set_max_thinking_tokens(
        self,
        tokens: int | None,
        *,
        display: Literal["summarized", "omitted", "highlights"] | None = None,
        timeout: float = DEFAULT_CONTROL_TIMEOUT,
    ) -> None:
        """Limit how many tokens the model may think, or with None not; `display` says how its thinking is shown. [08a]

        0 switches thinking off. Models that decide by themselves how much to think (`claude-opus-5-5`) heed no limit: the CLI accepts it,
        and asks the API for adaptive thinking as before.
        """
        fields: dict[str, Any] = {} if display is None else {"thinking_display": display}
        await self.request("set_max_thinking_tokens", timeout=timeout, max_thinking_tokens=tokens, **fields)

    async def list_models(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> tuple[ModelInfo, ...]:
        """The models that can be chosen; `ModelInfo.value` is what `set_model` takes. [08a]"""
        return (await self._ask(ModelListing, "list_models", timeout=timeout)).models

    async def context_usage(
        self, *, detail: Literal["summary", "full"] | None = None, timeout: float = DEFAULT_CONTROL_TIMEOUT
    ) -> ContextUsage:
        """What fills the context window: estimated with "summary" (8 ms), counted by the API otherwise (1.1 s). [08a, 08b]"""
        return await self._ask(ContextUsage, "get_context_usage", timeout=timeout, detail=detail)

    async def session_cost(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> str:
        """What the session has cost, as text for people; `usage` has the numbers. [08a]"""
        return str((await self.request("get_session_cost", timeout=timeout)).get("text", ""))

    async def usage(self, *, skip_behaviors: bool = False, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> UsageInfo:
        """What the session has used, in dollars, tokens and time, and what is left of a subscription's limits. [08a]

        `skip_behaviors` leaves out the look at earlier sessions.
        """
        return await self._ask(UsageInfo, "get_usage", timeout=timeout, skip_behaviors=skip_behaviors or None)
