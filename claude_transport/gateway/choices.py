"""`Choices`: which options a client may choose for its session, and what comes of what it chose."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any, Final

from claude_transport.errors import ConfigurationError
from claude_transport.gateway.ceilings import keep_within
from claude_transport.gateway.turned_away import TurnedAway
from claude_transport.launch.options import ClaudeOptions
from claude_transport.launch.validation import check_types, validate_options

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

_MAX_NESTING: Final = 64
"""Levels of lists and mappings inside a value. What the CLI takes has a dozen; deeper ones exhaust the stack of what walks them."""

ANSWERS: Final = frozenset({"can_use_tool", "hooks", "mcp"})


class Choices:
    """An allow-list of option names. A client may lower a limit of the gateway, never raise it, and add to what is disallowed.

    That holds for every option that limits a session, whichever are allowed: see `keep_within()`. But `env`, `extra_args`, `settings`,
    `agents` and `mcp_servers` can undo any limit: a gateway that lets clients choose one of them lets them choose everything.

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
        """The gateway's `options` with what the client has chosen. Each value is valid in itself, and none allows more than `options`.

        Raises:
            TurnedAway: an option is not for the client to choose, or has a value that it cannot have.
        """
        forbidden = sorted(str(name)[:64] for name in chosen if name not in self.allowed)
        if forbidden:
            raise TurnedAway("options", f"not for a client to choose: {', '.join(forbidden[:8])}")
        try:
            _check_nesting(chosen)
            alone = ClaudeOptions(**chosen)
            validate_options(alone, environment={**os.environ, **_env_of(alone)}, check_files=False)
            made = options.replace(**keep_within(options, chosen, model_is_free="model" in self.allowed))
            check_types(made)
        except ConfigurationError as exc:
            raise TurnedAway("options", str(exc)) from exc
        return made


def check_answers(answers: object) -> frozenset[str]:
    """What the client says it will answer; raises `TurnedAway` for what is no such list."""
    if not isinstance(answers, list | tuple | frozenset | set) or not all(isinstance(each, str) for each in answers):
        raise TurnedAway("options", "answers is a list of words")
    return ANSWERS.intersection(answers)  # a newer client may answer what this gateway does not know


def _check_nesting(value: object) -> None:
    """Raise `TurnedAway` for a value with too many levels, without going down into them one by one."""
    level: list[object] = [value]
    for _ in range(_MAX_NESTING):
        inner: list[object] = []
        for each in level:
            if isinstance(each, Mapping):
                inner.extend(each.values())
            elif isinstance(each, list | tuple):
                inner.extend(each)
        if not inner:
            return
        level = inner
    raise TurnedAway("options", f"an option has more than {_MAX_NESTING} levels")


def _env_of(options: ClaudeOptions) -> dict[str, str]:
    """What the options add to the environment, as far as it is one: `validate_options` says what is wrong with the rest."""
    given: object = options.env
    return {str(name): value for name, value in given.items() if isinstance(value, str)} if isinstance(given, Mapping) else {}
