"""What the settings of a CLI do behind the back of a program: answer in place of `can_use_tool`, or make another account pay.

`ShadowedCallbacks` detects permission settings that would prevent `can_use_tool` from being called. `check_session_billing` compares what
the CLI says about its account and its settings with the billing policy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Final

import msgspec

from claude_transport.errors import ConfigurationError, ControlRequestFailed, warn_caller
from claude_transport.launch.credentials import Payer
from claude_transport.launch.options import BillingPolicy
from claude_transport.protocol.control import AccountInfo, InitializationInfo
from claude_transport.transport import PermissionSetting

NOT_ASKED: Final = "can_use_tool is not asked about everything"
"""How the warning begins, for programs that choose what is not asked."""

_WHOLE_MODES = {
    "bypassPermissions": (
        "lets every tool run without asking",
        'start in another mode, or name in settings={"permissions": {"ask": [...]}} what it is to be asked about',
    ),
    "dontAsk": (
        "denies whatever would have to be asked",
        'start in another mode, or let a PreToolUse hook answer "ask" for what it is to be asked about',
    ),
}
"""Modes in which the callback is never asked: what they do, and the remedy."""

_PARTIAL_MODES = {
    "acceptEdits": "edits and file commands in the working directory are not asked about",
    "auto": "a classifier decides instead",
    "plan": "a classifier decides about commands",
}
_AGENT_MODES = {
    "acceptEdits": "its edits and file commands in the working directory are not asked about",
    "dontAsk": "what it would have to ask is denied",
    "bypassPermissions": "claude 2.1.191 and older run its tools without asking; newer ones ignore the mode",
}


class Shadow(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that answers in place of `can_use_tool`: its option, and why. `whole` is True when the callback would never be asked."""

    option: str
    why: str
    whole: bool = False


def find_shadows(settings: Iterable[PermissionSetting], *, hooks: Collection[str] = ()) -> list[Shadow]:
    """Return the settings that answer in place of `can_use_tool`, when hooks are registered for the events `hooks`."""
    settings = list(settings)
    asked = {setting.value for setting in settings if setting.what == "ask"}
    open_ = [setting for setting in settings if setting.what != "allow" or setting.value not in asked]
    shadows = [_shadow(setting, asks=bool(asked), hooks=hooks) for setting in open_]
    return [shadow for shadow in shadows if shadow is not None]


def _shadow(setting: PermissionSetting, *, asks: bool, hooks: Collection[str]) -> Shadow | None:
    option, value = setting.option, setting.value
    match setting.what:
        case "prompt_tool" if value != "stdio":
            why = f'permission prompts go to {value}: leave it out, or set it to "stdio"'
            return Shadow(option=option, why=why, whole=True)
        case "prompts" if value == "none":
            return Shadow(option=option, why="whatever would prompt is denied: leave it out", whole=True)
        case "mode" if value in _WHOLE_MODES:
            does, remedy = _WHOLE_MODES[value]
            opened = "PreToolUse" in hooks or (asks and value == "bypassPermissions")
            return Shadow(option=option, why=f"the mode {value} {does}" + ("" if opened else f": {remedy}"), whole=not opened)
        case "mode" if value in _PARTIAL_MODES:
            return Shadow(option=option, why=f"in the mode {value} {_PARTIAL_MODES[value]}")
        case "allow":
            return Shadow(option=option, why=f"{value} is allowed without asking")
        case "agent_mode" if value in _AGENT_MODES:
            return Shadow(option=option, why=f"in the mode {value} {_AGENT_MODES[value]}")
        case "sandbox":
            return Shadow(option=option, why="commands in the sandbox are allowed without asking")
    return None


class ShadowedCallbacks:
    """Detects settings that would prevent `can_use_tool` from being called, as early as each is known.

    Args:
        guarded: True when there is such a callback; else nothing is checked.
        hooks: events that hooks are registered for.
        agents: subagents that the `initialize` request defines.
    """

    def __init__(self, *, guarded: bool, hooks: Collection[str] = (), agents: object = None) -> None:
        self._guarded = guarded
        self._hooks = tuple(hooks)
        self._agents = _agent_settings(agents)
        self._settings: tuple[PermissionSetting, ...] = ()

    def check_settings(self, settings: Iterable[PermissionSetting]) -> None:
        """Check the settings of the transport, before it is connected. One `ClaudeTransportWarning` tells what the callback is not asked.

        Raises:
            ConfigurationError: the callback would never be called; `option` names the setting.
        """
        self._settings = (*settings, *self._agents)
        self._reveal(self._settings)

    @property
    def mode_is_open(self) -> bool:
        """True when there is a callback, and settings that the CLI finds itself may choose the permission mode."""
        return self._guarded and not any(setting.what == "mode" and setting.option != "settings" for setting in self._settings)

    def check_mode(self, mode: str | None) -> None:
        """Check the permission mode that the CLI reports, in the same way: the user's own settings may have chosen it."""
        known = {setting.value for setting in self._settings if setting.what == "mode"}
        if mode is None or mode in known:
            return
        asks = [setting for setting in self._settings if setting.what == "ask"]
        self._reveal([PermissionSetting("mode", mode, "permission_mode"), *asks], source="settings that the CLI found itself say so; ")

    def mode_of_settings(self, answer: Mapping[str, Any]) -> str | None:
        """Return the permission mode in the CLI's answer to `get_settings`; None when no settings choose one.

        Raises:
            ConfigurationError: the answer does not tell, so that `can_use_tool` might never be called.
        """
        effective = answer.get("effective")
        if not isinstance(effective, Mapping):
            raise self.unknown_mode("its settings have no effective values")
        permissions = effective.get("permissions")
        mode = permissions.get("defaultMode") if isinstance(permissions, Mapping) else None
        return mode if isinstance(mode, str) else None

    @staticmethod
    def unknown_mode(why: str) -> ConfigurationError:
        """Return the error for a CLI that does not tell its permission mode."""
        message = (
            f"can_use_tool might never be called: the CLI does not tell which permission mode its settings chose ({why}); "
            "set permission_mode"
        )
        return ConfigurationError(message, option="permission_mode")

    def _reveal(self, settings: Iterable[PermissionSetting], *, source: str = "") -> None:
        if not self._guarded:
            return
        shadows = find_shadows(settings, hooks=self._hooks)
        for shadow in shadows:
            if shadow.whole:
                message = f"can_use_tool would never be called, because of {shadow.option}: {source}{shadow.why}"
                raise ConfigurationError(message, option=shadow.option)
        if shadows:
            reasons = "; ".join(f"{shadow.option}: {shadow.why}" for shadow in shadows)
            warn_caller(f"{NOT_ASKED}: {source}{reasons}")


def _agent_settings(agents: object) -> tuple[PermissionSetting, ...]:
    given = agents if isinstance(agents, Mapping) else {}
    modes = {name: agent.get("permissionMode") for name, agent in given.items() if isinstance(agent, Mapping)}
    return tuple(PermissionSetting("agent_mode", mode, f"agents[{name!r}]") for name, mode in modes.items() if isinstance(mode, str))


_MAY_PAY: Final[Mapping[BillingPolicy, tuple[Payer, ...]]] = {
    "subscription": ("subscription", "nobody", "unknown"),
    "subscription_strict": ("subscription", "nobody", "unknown"),
    "api_key": ("api account", "nobody", "unknown"),
}
"""The payers that each policy allows. `inherit` allows all."""


def check_account(billing: BillingPolicy, account: AccountInfo) -> None:
    """Raise `ConfigurationError` when the account that the CLI would use breaks the billing policy.

    The environment cannot ensure the policy: settings of the user, the project or the organisation win over it, and a login may be one
    that pays by the token. The CLI has read them all, and reports its account in the answer to `initialize`, before the first prompt.
    """
    if account.api_provider not in {None, "", "firstParty"}:
        check_payer(billing, "cloud account", account.api_provider)
    if account.token_source == "ANTHROPIC_AUTH_TOKEN":  # noqa: S105 - a name
        check_payer(billing, "token owner", account.token_source)
    if account.api_key_source not in {None, "", "none"}:
        check_payer(billing, "api account", account.api_key_source)


async def check_session_billing(
    billing: BillingPolicy, initialization: InitializationInfo, *, ask_settings: Callable[[], Awaitable[Mapping[str, Any]]]
) -> None:
    """Raise `ConfigurationError` when what the CLI has said of its account and of its settings breaks the billing policy.

    A CLI runs an `apiKeyHelper` beside its start, and names no key while that has not ended (2.1.191 and 2.1.329, real). So under a policy
    of a subscription its settings are asked for one, too. A CLI that does not tell them is refused. A peer without a `pid` is no CLI, and
    has no settings.
    """
    check_account(billing, initialization.account)
    if initialization.pid is None or not billing.startswith("subscription"):
        return
    try:
        settings = (await ask_settings()).get("effective")
    except ControlRequestFailed as exc:
        raise _untold_settings(billing) from exc
    if not isinstance(settings, Mapping):
        raise _untold_settings(billing)
    if settings.get("apiKeyHelper"):
        check_payer(billing, "api account", "apiKeyHelper")


def _untold_settings(billing: BillingPolicy) -> ConfigurationError:
    message = f'billing="{billing}" cannot be kept: this CLI does not say whether an apiKeyHelper is in its settings. Update the CLI'
    return ConfigurationError(message, option="billing")


def check_payer(billing: BillingPolicy, payer: Payer, name: str | None) -> None:
    """Raise `ConfigurationError` when the policy does not allow `payer`, who owns the credential `name`."""
    if payer not in _MAY_PAY.get(billing, (payer,)):
        raise ConfigurationError(
            f'billing="{billing}" cannot be kept: claude would use {name}, and that is paid by the {payer}. Settings of the user, the '
            "project or the organisation win over the environment: take it out of them, or leave them out with setting_sources",
            option="billing",
        )
