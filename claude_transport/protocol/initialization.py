"""The answer to `initialize`: what this CLI is, who pays, and what it can do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import field

from claude_transport.protocol.envelope import HIDDEN, Part
from claude_transport.protocol.salvage import salvage

__all__ = ["AccountInfo", "AgentInfo", "CommandInfo", "InitializationInfo", "ModelInfo"]


class CommandInfo(Part, frozen=True, kw_only=True):
    """A slash command."""

    name: str = ""
    description: str = ""
    argument_hint: str = field(name="argumentHint", default="")
    aliases: tuple[str, ...] = ()
    builtin: bool | None = None


class AgentInfo(Part, frozen=True, kw_only=True):
    """A subagent that can be launched."""

    name: str = ""
    description: str = ""
    model: str | None = None


class ModelInfo(Part, rename="camel", frozen=True, kw_only=True):
    """A model that can be chosen: `value` is what `set_model` takes, `resolved_model` what it stands for."""

    value: str = ""
    resolved_model: str | None = None
    display_name: str = ""
    description: str = ""
    supports_effort: bool | None = None
    supported_effort_levels: tuple[str, ...] = ()
    supports_adaptive_thinking: bool | None = None
    supports_auto_mode: bool | None = None
    supports_fast_mode: bool | None = None
    supports_thinking_off: bool | None = None


class AccountInfo(Part, rename="camel", frozen=True, kw_only=True):
    """Who pays, as far as the CLI says it; with no credential at all `token_source` is `none`. [25f]"""

    email: str | None = None
    organization: str | None = None
    subscription_type: str | None = None
    token_source: str | None = None
    api_key_source: str | None = None
    api_provider: str | None = None


class InitializationInfo(Part, frozen=True, kw_only=True):
    """The payload of the answer to `initialize` [02]; `raw` is all of it. Feature-test on `capabilities`, not on the version."""

    commands: tuple[CommandInfo, ...] = ()
    agents: tuple[AgentInfo, ...] = ()
    models: tuple[ModelInfo, ...] = ()
    account: AccountInfo = AccountInfo()
    output_style: str = ""
    available_output_styles: tuple[str, ...] = ()
    pid: int | None = None
    claude_code_version: str | None = None
    current_permission_mode: str | None = None
    session_state: str | None = None
    capabilities: tuple[str, ...] = ()
    hook_on_failure_supported: bool | None = None
    hooks_applied: Any = None
    fast_mode_state: str | None = None
    fast_mode_disabled_reason: str | None = None
    plugins_applied: bool | None = None
    managed_settings_applied: bool | None = None
    settings_applied: bool | None = None
    disallowed_tools_applied: bool | None = None
    mcp_servers_applied: bool | None = None
    sdk_mcp_manifests_parked: dict[str, Any] | None = None
    """What became of each `sdk_mcp_server_manifests`: `parked` when it counts; or already_connected, malformed, not_honoured, …"""
    analytics_disabled: bool | None = None
    misfits: tuple[str, ...] = field(name=HIDDEN + "misfits", default=())
    """Wire paths of what did not fit and holds its default instead."""
    raw: dict[str, Any] = field(name=HIDDEN + "raw", default_factory=dict)

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> InitializationInfo:
        """The typed view of `ControlResponse.payload`; whatever does not fit is left at its default. Never raises."""
        misfits: list[str] = []
        data = dict(payload)
        info = salvage(cls, data, misfits=misfits)
        if info is None:  # more misfits than can be looked through
            info, misfits = cls(), [name for name in cls.__struct_encode_fields__ if name in data]
        known = {name: getattr(info, name) for name in cls.__struct_fields__ if name not in {"raw", "misfits"}}
        return cls(**known, misfits=tuple(misfits), raw=data)

    def to_dict(self) -> dict[str, Any]:
        """The whole payload."""
        return dict(self.raw) if self.raw else super().to_dict()
