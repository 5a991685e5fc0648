"""Answers about settings, and about what is loaded by them: plugins, skills, memory."""

from __future__ import annotations

from typing import Any

from msgspec import field

from claude_transport.protocol.answers.answer import Answer
from claude_transport.protocol.answers.mcp import McpServerStatus
from claude_transport.protocol.envelope import Part
from claude_transport.protocol.initialization import AgentInfo, CommandInfo

__all__ = [
    "AppliedSettings",
    "CacheImpact",
    "MemoryFile",
    "MemoryFolder",
    "MemoryInfo",
    "OutputStyles",
    "PluginInfo",
    "ReloadedPlugins",
    "SettingsInfo",
    "SettingsSource",
    "SkillListing",
    "SkillsInfo",
]


class SettingsSource(Part, frozen=True, kw_only=True):
    """What one place contributes: userSettings, projectSettings, localSettings, flagSettings, policySettings."""

    source: str = ""
    settings: dict[str, Any] = field(default_factory=dict)


class AppliedSettings(Part, frozen=True, kw_only=True):
    """What the session runs with now, after everything has had its say."""

    model: str | None = None
    effort: str | None = None
    advisor: Any = None


class SettingsInfo(Answer, frozen=True, kw_only=True):
    """The settings: merged (`effective`), by place (`sources`, weakest first), and what is in use. [08a, 08c]"""

    effective: dict[str, Any] = field(default_factory=dict)
    sources: tuple[SettingsSource, ...] = ()
    applied: AppliedSettings = AppliedSettings()
    served_settings_state: str | None = None


class PluginInfo(Part, frozen=True, kw_only=True):
    """A plugin that is loaded."""

    name: str = ""
    path: str = ""
    source: str | None = None
    version: str | None = None


class CacheImpact(Part, frozen=True, kw_only=True):
    """What a reload that was held back would change. *Declared.*"""

    mcp_servers_added: tuple[str, ...] = ()
    mcp_servers_removed: tuple[str, ...] = ()
    lsp_tool_change: str | None = None


class ReloadedPlugins(Answer, frozen=True, kw_only=True):
    """What there is after the plugins were read again. With `held` nothing was changed yet. [08a]"""

    commands: tuple[CommandInfo, ...] = ()
    agents: tuple[AgentInfo, ...] = ()
    plugins: tuple[PluginInfo, ...] = ()
    mcp_servers: tuple[McpServerStatus, ...] = field(name="mcpServers", default=())
    error_count: int = 0
    held: bool = False
    cache_impact: CacheImpact | None = None


class SkillListing(Answer, frozen=True, kw_only=True):
    """The skills, after they were read again. [08a]"""

    skills: tuple[CommandInfo, ...] = ()


class OutputStyles(Answer, frozen=True, kw_only=True):
    """The output styles, after they were read again. [08a]"""

    available_output_styles: tuple[str, ...] = ()


class SkillsInfo(Answer, frozen=True, kw_only=True):
    """The skills that the user can manage; none of the built-in ones. [08a]"""

    skills: tuple[dict[str, Any], ...] = ()


class MemoryFile(Part, frozen=True, kw_only=True):
    """A file that is read at the start, or would be; `kind`: user, project, …"""

    kind: str = ""
    path: str = ""
    label: str = ""
    description: str = ""
    exists: bool = False


class MemoryFolder(Part, frozen=True, kw_only=True):
    """A folder of memories."""

    kind: str = ""
    path: str = ""
    label: str = ""
    description: str = ""


class MemoryInfo(Answer, frozen=True, kw_only=True):
    """What is remembered between sessions, and where. [08a]"""

    files: tuple[MemoryFile, ...] = ()
    folders: tuple[MemoryFolder, ...] = ()
    memories: tuple[Any, ...] = ()
    auto_memory: dict[str, Any] = field(default_factory=dict)
