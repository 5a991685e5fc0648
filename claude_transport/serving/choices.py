"""`Choices`: which options a client may choose for its session, and how the gateway's own options bound the values.

`keep_within()` has the rule of each option. `gateway.py` starts the process with the result.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final, TypeAlias, get_args

from claude_transport.agents.claude_fields import thinking_ceiling
from claude_transport.errors import ConfigurationError
from claude_transport.launch.options import ClaudeOptions, Effort, default_of, fields_of
from claude_transport.launch.validation import check_types, validate_options
from claude_transport.serving.turned_away import TurnedAway

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
"""Options that concern the conversation only. None of them runs, reads or writes anything on the gateway's machine."""

_MAX_NESTING: Final = 64
"""Levels of lists and mappings inside a value. The CLI needs a dozen; deeper values exhaust the stack of code that walks them."""

ANSWERS: Final = frozenset({"can_use_tool", "hooks", "mcp"})
"""The kinds of requests that a client can announce to answer."""


class Choices:
    """The names of the options that clients may choose. A client may lower a limit of the gateway, never raise it.

    That holds for every option that limits a session (see `keep_within()`). But `env`, `extra_args`, `settings`, `agents` and `mcp_servers`
    can undo any limit: a client that may choose one of them can do everything.

    Raises:
        ConfigurationError: a name is not an option of `ClaudeOptions`.
    """

    def __init__(self, allowed: Collection[str] = DEFAULT_CHOICES) -> None:
        if isinstance(allowed, str) or not all(isinstance(name, str) for name in allowed):
            raise ConfigurationError("choices is not a collection of option names: give a list such as ['model']", option="choices")
        unknown = sorted(set(allowed).difference(ClaudeOptions.__struct_fields__))
        if unknown:
            raise ConfigurationError(f"choices: ClaudeOptions has no option {', '.join(unknown)}", option="choices")
        self.allowed: frozenset[str] = frozenset(allowed) - {"session_store"}  # an object of this process, which no client can send

    def apply(self, options: ClaudeOptions, chosen: Mapping[str, Any]) -> ClaudeOptions:
        """Return the gateway's `options` with the values that the client has chosen, by option name.

        Raises:
            TurnedAway: the client may not choose an option, a value is not valid, or it allows more than `options`.
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
    """Check the kinds of requests that a client says it will answer. Return those that this gateway knows.

    Raises:
        TurnedAway: `answers` is not a list of strings.
    """
    if not isinstance(answers, list | tuple | frozenset | set) or not all(isinstance(each, str) for each in answers):
        raise TurnedAway("options", "answers is not a list of strings")
    return ANSWERS.intersection(answers)


def _check_nesting(value: object) -> None:
    """Raise `TurnedAway` for a value with too many levels. Looks at one level at a time, without recursion."""
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
    """Return the environment of the options, without values that are not text: `validate_options` reports those."""
    given: object = options.env
    return {str(name): value for name, value in given.items() if isinstance(value, str)} if isinstance(given, Mapping) else {}


Rule: TypeAlias = Callable[[str, Any, Any], Any]
"""From the option's name, the gateway's value and the client's value: the value of the session."""

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
"""The gateway's permission mode, and the modes that allow no more. A gateway without one has the default of the CLI."""


def keep_within(options: ClaudeOptions, chosen: Mapping[str, Any], *, model_is_free: bool) -> dict[str, Any]:
    """Bound the values that a client has chosen by the gateway's `options`. Return the changes to make to `options`.

    Args:
        options: the gateway's options.
        chosen: the client's values by option name, each valid in itself.
        model_is_free: the client may choose any model. Otherwise its fallback models must be among the gateway's, too.

    Raises:
        TurnedAway: a value allows more than the gateway's, and cannot be lowered.
    """
    changes = {name: LIMITED[name](name, getattr(options, name), value) if name in LIMITED else value for name, value in chosen.items()}
    if "fallback_model" in chosen and not model_is_free:
        changes["fallback_model"] = _fewer_models(options.fallback_model, chosen["fallback_model"])
    if "thinking" in chosen or "max_thinking_tokens" in chosen:
        changes |= _thinking(options, chosen)
    return changes


def _lesser(pick: Callable[[Any, Any], Any]) -> Rule:
    """Return the rule that picks from both values, or takes the only one that is set."""

    def rule(_name: str, ours: Any, value: Any) -> Any:
        return (ours if value is None else value) if ours is None or value is None else pick(ours, value)

    return rule


def _smaller_total(ours: Any, value: Any) -> Any:
    return {**value, "total": min(ours.get("total", value["total"]), value["total"])}


def _no_wider_mode(name: str, ours: Any, value: Any) -> Any:
    if value is None:
        return ours
    allowed = _MODES.get(ours or "default", frozenset())
    if value not in allowed:
        raise _refused(name, f"may be {', '.join(sorted(allowed))}, not {value}")
    return value


def _fewer(name: str, ours: Any, value: Any) -> Any:
    """Allow a part of the gateway's list, or everything where the gateway has None."""
    if ours is None or value is None:
        return ours if value is None else value
    if isinstance(ours, Mapping) or isinstance(value, Mapping) or ours == "all" or value == "all":
        if not (ours == "all" or isinstance(ours, Mapping)):
            raise _refused(name, "may name only what the gateway's own list names")
        return value
    known = {os.fspath(each) for each in ours}
    more = [each for each in map(os.fspath, value) if each not in known and each.partition("(")[0] not in known]
    if more:
        raise _refused(name, f"{', '.join(more[:8])} is not among what the gateway allows")
    return value


def _fewer_models(ours: Any, value: Any) -> Any:
    def names(models: Any) -> list[str]:
        texts = () if models is None else (models,) if isinstance(models, str) else models
        return [each.strip() for text in texts for each in text.split(",")]

    if value is not None and not set(names(value)) <= set(names(ours)):
        raise _refused("fallback_model", "must be among those of the gateway, which does not let clients choose the model")
    return ours if value is None else value


def _more(_name: str, ours: Any, value: Any) -> Any:
    """Add the client's list to the gateway's."""
    return (*(ours or ()), *value)


def _only_on(name: str, ours: Any, value: Any) -> Any:
    if ours and not value:
        raise _refused(name, "is on for every client, and cannot be switched off")
    return value


def _only_off(name: str, ours: Any, value: Any) -> Any:
    if value and not ours:
        raise _refused(name, "is off for every client, and cannot be switched on")
    return value


def _unless_set(name: str, ours: Any, value: Any) -> Any:
    """Take the client's value where the gateway has the default."""
    if ours != _DEFAULTS[name] and value != ours:
        raise _refused(name, "is set by the gateway, and cannot be replaced")
    return value


def _text(name: str, _ours: Any, value: Any) -> Any:
    if value is not None and not isinstance(value, str):
        raise _refused(name, "must be text")  # a mapping may name a file on the gateway's machine
    return value


def _thinking(options: ClaudeOptions, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return `thinking` and `max_thinking_tokens`, which both set one budget: the smaller one of gateway and client."""
    ceiling = thinking_ceiling(options)
    wanted = chosen.get("thinking")
    if wanted is None:
        tokens = chosen.get("max_thinking_tokens")
        if tokens is None:  # the client chooses nothing: the gateway's options hold
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

_RULES: Final[tuple[tuple[Rule, str], ...]] = (
    (_lesser(min), "background_wait_ceiling max_budget_usd max_output_tokens max_retries max_turns"),
    (_lesser(min), "mcp_timeout mcp_tool_timeout mcp_tool_idle_timeout"),
    (_lesser(partial(min, key=_EFFORTS.index)), "effort"),
    (_lesser(_smaller_total), "task_budget"),
    (_no_wider_mode, "permission_mode"),
    (_fewer, "add_dirs allowed_tools env_allow files plugin_urls setting_sources skills tools"),
    (_more, "disallowed_tools"),
    (_only_on, "bare disable_background_tasks disable_slash_commands isolated_config no_session_persistence pin_cli"),
    (_only_on, "restricted safe_mode strict_mcp_config verbatim_prompts"),
    (_only_off, "allow_dangerously_skip_permissions chrome dangerously_skip_permissions"),
    (_text, "system_prompt"),
    (_unless_set, "advisor agent agents billing cli_path config_dir cwd debug_file env env_mode extra_args managed_settings mcp_servers"),
    (_unless_set, "permission_prompt_tool_name permission_prompts plugins project_config_root sandbox settings"),
    (_unless_set, "sdk_mcp_server_configs session_store tool_aliases user"),
)
LIMITED: Final[Mapping[str, Rule]] = {name: rule for rule, names in _RULES for name in names.split()}
"""The rule of each option that limits a session. `thinking`, `max_thinking_tokens` and `fallback_model` have rules of their own."""
