"""`Choices`: which options a client may choose for its session, and what comes of what it chose."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from claude_transport.errors import ConfigurationError
from claude_transport.gateway.turned_away import TurnedAway
from claude_transport.launch.options import ClaudeOptions
from claude_transport.launch.validation import check_types

__all__ = ["ANSWERS", "DEFAULT_CHOICES", "Choices", "check_answers"]

DEFAULT_CHOICES: Final = frozenset(
    {
        "append_system_prompt",
        "disallowed_tools",
        "effort",
        "fallback_model",
        "forward_subagent_text",
        "include_hook_events",
        "include_partial_messages",
        "max_budget_usd",
        "max_output_tokens",
        "max_thinking_tokens",
        "max_turns",
        "model",
        "output_format",
        "prompt_suggestions",
        "replay_user_messages",
        "system_prompt",
        "thinking",
        "title",
    }
)
"""What concerns the conversation alone: nothing that runs, reads or writes anything on the gateway's machine."""

_LIMITS: Final = ("max_budget_usd", "max_output_tokens", "max_thinking_tokens", "max_turns")
_RESTRICTIONS: Final = ("disallowed_tools",)
_TEXT_ONLY: Final = ("system_prompt",)  # as a mapping it may name a file of the gateway's machine
ANSWERS: Final = frozenset({"can_use_tool", "hooks", "mcp"})


class Choices:
    """An allow-list of option names. A client may lower a limit of the gateway, never raise it, and add to what is disallowed.

    Raises:
        ConfigurationError: a name is no option of `ClaudeOptions`.
    """

    def __init__(self, allowed: Collection[str] = DEFAULT_CHOICES) -> None:
        if isinstance(allowed, str) or not all(isinstance(name, str) for name in allowed):
            raise ConfigurationError("choices is a collection of option names", option="choices")
        unknown = sorted(set(allowed).difference(ClaudeOptions.__struct_fields__))
        if unknown:
            raise ConfigurationError(f"there is no option {', '.join(unknown)} that a client could choose", option="choices")
        self.allowed: frozenset[str] = frozenset(allowed)

    def apply(self, options: ClaudeOptions, chosen: Mapping[str, Any]) -> ClaudeOptions:
        """The gateway's `options` with what the client has chosen, checked for its types; the launch checks the rest.

        Raises:
            TurnedAway: an option is not for the client to choose, or has a value that it cannot have.
        """
        forbidden = sorted(str(name)[:64] for name in chosen if name not in self.allowed)
        if forbidden:
            raise TurnedAway("options", f"not for a client to choose: {', '.join(forbidden[:8])}")
        changes = {name: _settled(options, name, value) for name, value in chosen.items()}
        try:
            made = options.replace(**changes)
            check_types(made)
        except ConfigurationError as exc:
            raise TurnedAway("options", str(exc)) from exc
        return made


def check_answers(answers: object) -> frozenset[str]:
    """What the client says it will answer; raises `TurnedAway` for what is no such list."""
    if not isinstance(answers, list | tuple | frozenset | set) or not all(isinstance(each, str) for each in answers):
        raise TurnedAway("options", "answers is a list of words")
    return ANSWERS.intersection(answers)  # a newer client may answer what this gateway does not know


def _settled(options: ClaudeOptions, name: str, value: Any) -> Any:
    ours = getattr(options, name)
    if name in _LIMITS and value is not None and isinstance(value, int | float) and ours is not None:
        return min(ours, value)
    if name in _LIMITS and value is None:
        return ours
    if name in _RESTRICTIONS and isinstance(value, list | tuple):
        return (*(ours or ()), *value)
    if name in _TEXT_ONLY and not isinstance(value, str | None):
        raise TurnedAway("options", f"{name} is text")
    return value
