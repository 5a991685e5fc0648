"""Settings, and what is loaded by them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from claude_transport.protocol.answers import MemoryInfo, OutputStyles, ReloadedPlugins, SettingsInfo, SkillListing, SkillsInfo
from claude_transport.protocol.initialization import CommandInfo
from claude_transport.query.controls.asking import DEFAULT_CONTROL_TIMEOUT, Asking

__all__ = ["SettingsControls"]


class SettingsControls(Asking):
    """Settings, plugins, skills, output styles, memory."""

    async def settings(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> SettingsInfo:
        """The settings: merged, by place, and what is in use. [08a]"""
        return await self._ask(SettingsInfo, "get_settings", timeout=timeout)

    async def apply_flag_settings(self, settings: Mapping[str, Any], *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Set settings for this session, as `--settings` does. Invalid ones raise `ControlRequestFailed`, nothing applied. [08a]"""
        await self._tell("apply_flag_settings", timeout=timeout, settings=dict(settings))

    async def update_settings(
        self,
        source: Literal["userSettings", "localSettings"],
        settings: Mapping[str, Any],
        *,
        timeout: float = DEFAULT_CONTROL_TIMEOUT,
    ) -> None:
        """Write settings to a file; only `outputStyle` of localSettings and `effortLevel` of userSettings may be.

        Anything else raises `ControlRequestFailed`. [08a]
        """
        await self._tell("update_settings", timeout=timeout, source=source, settings=dict(settings))

    async def reload_plugins(
        self, *, hold_on_cache_impact: bool = False, refuse_if_busy: bool = False, timeout: float = DEFAULT_CONTROL_TIMEOUT
    ) -> ReloadedPlugins:
        """Read the plugins again: all commands, agents, plugins and MCP servers there are now; `commands_changed` is sent as well. [08a]

        *Declared*: with `hold_on_cache_impact` nothing is changed that would cost the prompt cache, and `held` says so; with
        `refuse_if_busy` it fails while a turn is running.
        """
        return await self._ask(
            ReloadedPlugins,
            "reload_plugins",
            timeout=timeout,
            hold_on_cache_impact=hold_on_cache_impact or None,
            refuse_if_busy=refuse_if_busy or None,
        )

    async def reload_skills(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> tuple[CommandInfo, ...]:
        """Read the skills again: all there are now. [08a]"""
        return (await self._ask(SkillListing, "reload_skills", timeout=timeout)).skills

    async def reload_output_styles(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> tuple[str, ...]:
        """Read the output styles again: the names of all there are now. [08a]"""
        return (await self._ask(OutputStyles, "reload_output_styles", timeout=timeout)).available_output_styles

    async def skills_info(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> SkillsInfo:
        """The skills that the user can manage. [08a]"""
        return await self._ask(SkillsInfo, "get_skills_dialog", timeout=timeout)

    async def memory_info(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> MemoryInfo:
        """What is remembered between sessions: the files, and whether there are any. [08a]"""
        return await self._ask(MemoryInfo, "get_memory_dialog", timeout=timeout)
