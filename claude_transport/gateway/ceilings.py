"""`keep_within()`: what a client has chosen, held below what the gateway's own options allow.

An amount over the limit becomes the limit, as it always did: a client that asks for more gets what there is. Everything else that would
allow more is refused, because a client that asked for a mode, a rule or a directory relies on having it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, get_args

from claude_transport.gateway.turned_away import TurnedAway
from claude_transport.launch.options import ClaudeOptions, Effort, default_of, fields_of

__all__ = ["LIMITED", "keep_within", "thinking_ceiling"]

Rule: TypeAlias = Callable[[str, Any, Any], Any]
"""From the option's name, the gateway's value and the client's: the value of the session."""

_EFFORTS: Final = get_args(Effort)
"""From the least to the most."""

_ASKING: Final = frozenset({"default", "manual", "plan", "dontAsk"})
_MODES: Final[Mapping[str, frozenset[str]]] = {
    "dontAsk": frozenset({"dontAsk"}),
    "plan": frozenset({"plan"}),
    "default": _ASKING,
    "manual": _ASKING,
    "acceptEdits": _ASKING | {"acceptEdits"},
    "auto": _ASKING | {"acceptEdits", "auto"},
    "bypassPermissions": _ASKING | {"acceptEdits", "auto", "bypassPermissions"},
}
"""The gateway's permission mode, and the modes that allow no more. A gateway without one has the CLI's, which asks."""


def keep_within(options: ClaudeOptions, chosen: Mapping[str, Any], *, model_is_free: bool) -> dict[str, Any]:
    """Return the changes to the gateway's `options` that `chosen` comes to: each value is valid in itself, and none allows more.

    `model_is_free` says that the client may choose any model; otherwise the fallback models are those of the gateway, too.

    Raises:
        TurnedAway: a value would allow more than the gateway's options, and there is no lesser one that the client could mean.
    """
    changes = {name: LIMITED[name](name, getattr(options, name), value) if name in LIMITED else value for name, value in chosen.items()}
    if "fallback_model" in chosen and not model_is_free:
        changes["fallback_model"] = _fewer_models(options.fallback_model, chosen["fallback_model"])
    if "thinking" in chosen or "max_thinking_tokens" in chosen:
        changes |= _thinking(options, chosen)
    return changes


def thinking_ceiling(options: ClaudeOptions) -> int | None:
    """Return the tokens that may be spent on thinking; None when `options` set no limit."""
    if options.thinking is None:
        return options.max_thinking_tokens
    budget: int | None = {"disabled": 0, "adaptive": None}.get(options.thinking.get("type", ""), options.thinking.get("budget_tokens"))
    return budget


def _at_most(_name: str, ours: Any, value: Any) -> Any:
    if ours is None or value is None:
        return ours if value is None else value
    return min(ours, value)


def _no_more_effort(_name: str, ours: Any, value: Any) -> Any:
    if ours is None or value is None:
        return ours if value is None else value
    return min(ours, value, key=_EFFORTS.index)


def _no_wider_mode(name: str, ours: Any, value: Any) -> Any:
    if value is None:
        return ours
    allowed = _MODES.get(ours or "default", frozenset())
    if value != ours and value not in allowed:
        raise _refused(name, f"may be {', '.join(sorted(allowed))}, not {value}")
    return value


def _fewer(name: str, ours: Any, value: Any) -> Any:
    """A part of the gateway's own list; where the gateway has None, it allows everything."""
    if ours is None or value is None:
        return ours if value is None else value
    if isinstance(ours, Mapping) or isinstance(value, Mapping) or ours == "all" or value == "all":
        if value != ours and not (ours == "all" or isinstance(ours, Mapping)):
            raise _refused(name, "may name what the gateway's own list names")
        return value
    known = {os.fspath(each) for each in ours}
    more = [each for each in map(os.fspath, value) if each not in known and each.partition("(")[0] not in known]
    if more:
        raise _refused(name, f"has no {', '.join(more[:8])} among what the gateway allows")
    return value


def _fewer_models(ours: Any, value: Any) -> Any:
    def names(models: Any) -> list[str]:
        texts = () if models is None else (models,) if isinstance(models, str) else models
        return [each.strip() for text in texts for each in text.split(",")]

    if value is not None and not set(names(value)) <= set(names(ours)):
        raise _refused("fallback_model", "must be among those of the gateway, which does not let clients choose the model")
    return ours if value is None else value


def _more(_name: str, ours: Any, value: Any) -> Any:
    """What is forbidden already, and what the client forbids."""
    return (*(ours or ()), *value)


def _only_on(name: str, ours: Any, value: Any) -> Any:
    if ours and not value:
        raise _refused(name, "is on for every client, and cannot be switched off")
    return value


def _only_off(name: str, ours: Any, value: Any) -> Any:
    if value and not ours:
        raise _refused(name, "is off for every client, and cannot be switched on")
    return value


def _total(_name: str, ours: Any, value: Any) -> Any:
    if ours is None or value is None:
        return ours if value is None else value
    return {**value, "total": min(ours.get("total", value["total"]), value["total"])}


def _unless_set(name: str, ours: Any, value: Any) -> Any:
    """The client's, where the gateway has none of its own."""
    if ours != _DEFAULTS[name] and value != ours:
        raise _refused(name, "is set by the gateway, and cannot be replaced")
    return value


def _text(name: str, _ours: Any, value: Any) -> Any:
    if value is not None and not isinstance(value, str):
        raise _refused(name, "is text")  # as a mapping it may name a file of the gateway's machine
    return value


def _thinking(options: ClaudeOptions, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """`thinking` and `max_thinking_tokens` are two ways to say the same: one budget, which is the smaller of both sides."""
    ceiling = thinking_ceiling(options)
    wanted = chosen.get("thinking")
    if wanted is None:
        tokens = chosen.get("max_thinking_tokens")
        if tokens is None:  # the client takes its wish back, and what is left is the gateway's
            return {"thinking": options.thinking, "max_thinking_tokens": options.max_thinking_tokens}
        return {"thinking": None, "max_thinking_tokens": tokens if ceiling is None else min(ceiling, tokens)}
    if ceiling == 0:
        return {"thinking": {"type": "disabled"}, "max_thinking_tokens": None}
    if ceiling is not None and wanted["type"] != "disabled":
        budget = min(ceiling, wanted.get("budget_tokens", ceiling)) if wanted["type"] == "enabled" else ceiling
        wanted = {**wanted, "type": "enabled", "budget_tokens": budget}
    return {"thinking": wanted, "max_thinking_tokens": None}


def _refused(name: str, why: str) -> TurnedAway:
    return TurnedAway("options", f"{name}: {why}")


_DEFAULTS: Final = {field.name: default_of(field) for field in fields_of(ClaudeOptions)}

_RULES: Final[tuple[tuple[Rule, tuple[str, ...]], ...]] = (
    (
        _at_most,
        (
            *("background_wait_ceiling", "max_budget_usd", "max_output_tokens", "max_retries", "max_turns"),
            *("mcp_timeout", "mcp_tool_timeout", "mcp_tool_idle_timeout"),
        ),
    ),
    (_no_more_effort, ("effort",)),
    (_no_wider_mode, ("permission_mode",)),
    (_fewer, ("add_dirs", "allowed_tools", "env_allow", "files", "plugin_urls", "setting_sources", "skills", "tools")),
    (_more, ("disallowed_tools",)),
    (
        _only_on,
        (
            *("bare", "disable_background_tasks", "disable_slash_commands", "isolated_config", "no_session_persistence", "pin_cli"),
            *("restricted", "safe_mode", "strict_mcp_config", "verbatim_prompts"),
        ),
    ),
    (_only_off, ("allow_dangerously_skip_permissions", "chrome", "dangerously_skip_permissions")),
    (_total, ("task_budget",)),
    (_text, ("system_prompt",)),
    (
        _unless_set,
        (
            *("advisor", "agent", "agents", "billing", "cli_path", "config_dir", "cwd", "debug_file", "env", "env_mode", "extra_args"),
            *(
                "managed_settings",
                "mcp_servers",
                "permission_prompt_tool_name",
                "permission_prompts",
                "plugins",
                "project_config_root",
                "sandbox",
                "settings",
            ),
            *("sdk_mcp_server_configs", "tool_aliases", "user"),
        ),
    ),
)
LIMITED: Final[Mapping[str, Rule]] = {name: rule for rule, names in _RULES for name in names}
"""The rule of each option that limits a session. `thinking`, `max_thinking_tokens` and `fallback_model` have rules of their own."""
