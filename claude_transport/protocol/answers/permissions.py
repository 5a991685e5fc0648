"""Answers about what is allowed, and about who is asked: permission rules, hooks, the sandbox."""

from __future__ import annotations

from typing import Any

from msgspec import field

from claude_transport.protocol.answers.answer import Answer
from claude_transport.protocol.envelope import Part

__all__ = ["HookListing", "HookListingEvent", "PermissionRuleInfo", "PermissionRuleState", "PermissionRules", "SandboxInfo"]


class PermissionRuleInfo(Part, frozen=True, kw_only=True):
    """One rule, e.g. `Bash(ls)`; `behavior`: allow, deny, ask; `source`: flagSettings, userSettings, session, …"""

    rule: str = ""
    behavior: str = ""
    source: str = ""
    editability: str | None = None
    description: Any = None


class PermissionRuleState(Part, rename="camel", frozen=True, kw_only=True):
    """The rules, and where they apply."""

    rules: tuple[PermissionRuleInfo, ...] = ()
    workspace_directories: tuple[Any, ...] = ()
    original_cwd: str = ""
    managed_only: bool = False


class PermissionRules(Answer, frozen=True, kw_only=True):
    """The permission rules in force. [08a]"""

    state: PermissionRuleState = PermissionRuleState()

    @property
    def rules(self) -> tuple[PermissionRuleInfo, ...]:
        """The rules, of all sources."""
        return self.state.rules

    @property
    def workspace_directories(self) -> tuple[Any, ...]:
        """Directories that may be worked in beside `original_cwd`."""
        return self.state.workspace_directories

    @property
    def original_cwd(self) -> str:
        """Where the session began."""
        return self.state.original_cwd

    @property
    def managed_only(self) -> bool:
        """Whether only the rules of an organisation count."""
        return self.state.managed_only


class HookListingEvent(Part, rename="camel", frozen=True, kw_only=True):
    """A hook event that this CLI knows."""

    name: str = ""
    summary: str = ""
    supports_matcher: bool = False


class HookListing(Answer, rename="camel", frozen=True, kw_only=True):
    """The hooks of the settings files, and every event there could be one for. Hooks of the host are not among them. [08a]"""

    events: tuple[Any, ...] = ()
    hooks: tuple[dict[str, Any], ...] = ()
    event_catalog: tuple[HookListingEvent, ...] = ()
    policy: dict[str, Any] | None = None


class SandboxInfo(Answer, frozen=True, kw_only=True):
    """How commands are sandboxed; `mode`: disabled, … [08a]"""

    supported: bool = False
    enabled: bool = False
    locked: bool = False
    mode: str = ""
    excluded_commands: tuple[str, ...] = ()
    restrictions: dict[str, Any] = field(default_factory=dict)
    dependencies: dict[str, Any] = field(default_factory=dict)
