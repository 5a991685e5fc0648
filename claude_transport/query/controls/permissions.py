"""What is allowed, and who is asked."""

from __future__ import annotations

import os

from claude_transport.protocol.answers import HookListing, PermissionRules, SandboxInfo
from claude_transport.query.controls.asking import DEFAULT_CONTROL_TIMEOUT, Asking

__all__ = ["PermissionControls"]


class PermissionControls(Asking):
    """The permission mode, the rules, hooks and sandbox behind it."""

    async def set_permission_mode(self, mode: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> str:
        """Change the permission mode (default, acceptEdits, plan, dontAsk, auto, bypassPermissions): the mode that is now set. [08a]

        Raises `ControlRequestFailed` for an unknown mode (`invalid_mode`), and for `bypassPermissions` in a session that was
        not started with it (`bypass_not_launched`).
        """
        return str((await self.request("set_permission_mode", timeout=timeout, mode=mode)).get("mode", mode))

    async def permission_rules(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> PermissionRules:
        """The permission rules in force, and where each comes from. [08a]"""
        return await self._ask(PermissionRules, "list_permission_rules", timeout=timeout)

    async def register_repo_root(
        self,
        directory: str | os.PathLike[str],
        *,
        reload_claude_md: bool | None = None,
        reload_plugins: bool | None = None,
        reload_skills: bool | None = None,
        timeout: float = DEFAULT_CONTROL_TIMEOUT,
    ) -> str:
        """Let the session work in a directory below its own: the path that was added.

        Raises `ControlRequestFailed` for one that is elsewhere or does not exist. [08a]
        """
        flags = {"reload_claude_md": reload_claude_md, "reload_plugins": reload_plugins, "reload_skills": reload_skills}
        path = os.fspath(directory)
        fields = {name: flag for name, flag in flags.items() if flag is not None}
        return str((await self.request("register_repo_root", timeout=timeout, directory=path, **fields)).get("directory", path))

    async def hooks_listing(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> HookListing:
        """The hooks of the settings files, and the catalogue of all events. Hooks of the host are not listed. [08a]"""
        return await self._ask(HookListing, "get_hooks_listing", timeout=timeout)

    async def sandbox_info(self, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> SandboxInfo:
        """Whether and how commands are sandboxed. [08a]"""
        return await self._ask(SandboxInfo, "get_sandbox_dialog", timeout=timeout)

    async def set_proactivity_level(self, level: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Let the CLI act by itself: ask, default, proactive.

        Raises `ControlRequestFailed` unless the session was initialised with `proactivity: true`; its success has not been seen. [08a]
        """
        await self._tell("set_proactivity_level", timeout=timeout, level=level)
