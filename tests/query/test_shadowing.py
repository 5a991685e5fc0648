"""A permission callback that could never be called is refused before anything is started; what is kept from it in part is told."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from peers import ForeignTransport, answer_to

from claude_transport import (
    Allow,
    ClaudeOptions,
    CLINotFoundError,
    ConfigurationError,
    HookMatcher,
    PermissionSetting,
    Query,
    SessionTerms,
    SubprocessTransport,
    TransportWrapper,
)
from claude_transport.launch.permissions import permission_settings
from claude_transport.query.shadowing import find_shadows

NOWHERE = "/nonexistent/claude"  # whatever is refused before the spawn never gets to look for it


async def allow(*_: object) -> Allow:
    return Allow()


async def hook(*_: object) -> None:
    return None


PRE_TOOL_USE = {"PreToolUse": [HookMatcher(None, [hook])]}


async def refused(query: Query) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        await query.start()
    assert not isinstance(caught.value, CLINotFoundError)
    assert "can_use_tool" in str(caught.value)
    return caught.value


async def passes(query: Query) -> None:
    with pytest.raises(CLINotFoundError):
        await query.start()


def over(options: dict[str, Any], **arguments: Any) -> Query:
    return Query(SubprocessTransport(ClaudeOptions(cli_path=NOWHERE, **options)), can_use_tool=allow, **arguments)


ASK_ANYTHING = {"permissions": {"ask": ["Bash(git push *)"]}}
# what is said → which option is named in the refusal
WHOLE: list[tuple[dict[str, Any], str]] = [
    ({"permission_mode": "bypassPermissions"}, "permission_mode"),
    ({"permission_mode": "dontAsk"}, "permission_mode"),
    ({"permission_mode": "dontAsk", "settings": ASK_ANYTHING}, "permission_mode"),
    ({"dangerously_skip_permissions": True}, "dangerously_skip_permissions"),
    ({"dangerously_skip_permissions": True, "permission_mode": "default"}, "dangerously_skip_permissions"),
    ({"permission_prompt_tool_name": "mcp__guard__ask"}, "permission_prompt_tool_name"),
    ({"permission_prompts": "none"}, "permission_prompts"),
    ({"settings": {"permissions": {"defaultMode": "dontAsk"}}}, "settings"),
    ({"settings": '{"permissions": {"defaultMode": "bypassPermissions"}}'}, "settings"),
    ({"extra_args": {"permission-mode": "bypassPermissions"}}, "extra_args"),
    ({"extra_args": {"dangerously-skip-permissions": None}}, "extra_args"),
    ({"extra_args": {"permission-prompt-tool": "mcp__guard__ask"}}, "extra_args"),
    ({"extra_args": {"permission-prompts": "none"}}, "extra_args"),
]


@pytest.mark.parametrize(("options", "named"), WHOLE, ids=str)
async def test_what_leaves_nothing_to_ask_is_refused_by_name_before_anything_is_started(options: dict[str, Any], named: str) -> None:
    assert (await refused(over(options))).option == named
    await passes(Query(SubprocessTransport(ClaudeOptions(cli_path=NOWHERE, **options))))  # without a callback nothing is shadowed


PARTIAL: list[tuple[dict[str, Any], str]] = [
    ({"allowed_tools": ["Bash(git *)"]}, "allowed_tools: Bash(git *)"),
    ({"settings": {"permissions": {"allow": ["WebFetch"]}}}, "settings: WebFetch"),
    ({"extra_args": {"allowedTools": "Edit"}}, "extra_args: Edit"),
    ({"permission_mode": "acceptEdits"}, "acceptEdits"),
    ({"permission_mode": "auto"}, "a classifier"),
    ({"permission_mode": "plan"}, "a classifier"),
    ({"permission_mode": "bypassPermissions", "settings": ASK_ANYTHING}, "bypassPermissions"),
    ({"agents": {"quiet": {"description": "d", "prompt": "p", "permissionMode": "dontAsk"}}}, "agents['quiet']"),
    ({"agents": {"free": {"description": "d", "prompt": "p", "permissionMode": "bypassPermissions"}}}, "agents['free']"),
    ({"sandbox": {"enabled": True, "autoAllowBashIfSandboxed": True}}, "sandbox"),
    ({"settings": {"sandbox": {"enabled": True, "autoAllowBashIfSandboxed": True}}}, "settings: commands in the sandbox"),
]


@pytest.mark.parametrize(("options", "told"), PARTIAL, ids=str)
async def test_what_is_kept_from_it_in_part_is_one_warning(options: dict[str, Any], told: str, caplog: pytest.LogCaptureFixture) -> None:
    await passes(over(options))
    (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert told in record.getMessage()


@pytest.mark.parametrize("mode", ["dontAsk", "bypassPermissions"])
async def test_a_hook_before_each_tool_may_still_ask_so_that_nothing_is_refused(mode: Any, caplog: pytest.LogCaptureFixture) -> None:
    await passes(over({"permission_mode": mode}, hooks=PRE_TOOL_USE))
    assert mode in caplog.text
    assert (await refused(over({"permission_prompts": "none"}, hooks=PRE_TOOL_USE))).option == "permission_prompts"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"permission_mode": "default"},
        {"permission_mode": "manual", "settings": {"permissions": {"defaultMode": "bypassPermissions"}}},
        {"permission_prompt_tool_name": "stdio"},
        {"permission_prompts": "host"},
        {"allow_dangerously_skip_permissions": True},
        {"disallowed_tools": ["Bash"], "settings": {"permissions": {"deny": ["Read"]}}},
        {"allowed_tools": ["Bash"], "settings": {"permissions": {"ask": ["Bash"]}}},
        {"sandbox": {"enabled": True}},
        {"settings": {"permissions": "nonsense"}},
        {"settings": {"permissions": {"allow": "nonsense", "defaultMode": 3}}},
    ],
    ids=str,
)
async def test_what_shadows_nothing_passes_without_a_word(options: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    await passes(over(options))
    assert caplog.text == ""


async def test_subagents_of_the_query_count_like_those_of_the_options(caplog: pytest.LogCaptureFixture) -> None:
    agents = {"eager": {"description": "d", "prompt": "p", "permissionMode": "acceptEdits"}, "plain": {"description": "d", "prompt": "p"}}
    await passes(over({}, agents=agents))
    assert "agents['eager']" in caplog.text
    assert "plain" not in caplog.text


async def test_a_settings_file_is_looked_into(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text('{"permissions": {"defaultMode": "dontAsk"}}', "utf-8")
    assert (await refused(over({"settings": file}))).option == "settings"
    file.write_text("not JSON", "utf-8")
    with pytest.raises(ConfigurationError, match="not JSON"):
        await Query(SubprocessTransport(ClaudeOptions(cli_path=sys.executable, settings=file)), can_use_tool=allow).start()


async def test_the_options_of_another_program_mean_nothing_to_it() -> None:
    transport = SubprocessTransport(ClaudeOptions(permission_mode="dontAsk"), command=["claude"])
    assert transport.announce(answers=frozenset({"can_use_tool"})) == SessionTerms()


async def test_it_is_seen_through_wrappers() -> None:
    inner = SubprocessTransport(ClaudeOptions(cli_path=NOWHERE, permission_mode="dontAsk"))
    assert (await refused(Query(TransportWrapper(TransportWrapper(inner)), can_use_tool=allow))).option == "permission_mode"


# ------------------------------------------------------------------------------------------------- what the CLI itself says of it


class Starts(ForeignTransport):
    """Answers `initialize` with this permission mode."""

    def __init__(self, mode: str | None) -> None:
        super().__init__(answers=False, on_write=self.initialize)
        self.mode = mode

    def initialize(self, frame: dict[str, Any]) -> None:
        if frame["type"] == "control_request":
            self.say(answer_to(frame, **({} if self.mode is None else {"current_permission_mode": self.mode})))


@pytest.mark.parametrize("mode", ["dontAsk", "bypassPermissions"])
async def test_a_mode_that_the_users_own_settings_chose_fails_the_start_and_closes(mode: str) -> None:
    transport = Starts(mode)
    query = Query(transport, can_use_tool=allow)
    error = await refused(query)
    assert error.option == "permission_mode"
    assert "settings that the CLI found itself" in str(error)
    assert transport.prompts() == []
    assert "close" in transport.calls
    async with Query(Starts(mode)):
        pass
    async with Query(Starts(mode), can_use_tool=allow, hooks=PRE_TOOL_USE):
        pass


@pytest.mark.parametrize("mode", [None, "default", "manual", "a mode of the future"])
async def test_any_other_mode_is_fine(mode: str | None, caplog: pytest.LogCaptureFixture) -> None:
    async with Query(Starts(mode), can_use_tool=allow):
        pass
    assert caplog.text == ""


async def test_a_mode_that_leaves_something_to_ask_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async with Query(Starts("acceptEdits"), can_use_tool=allow):
        pass
    assert "acceptEdits" in caplog.text


class Announces(TransportWrapper):
    """A transport whose options say `acceptEdits`."""

    def announce(self, *, answers: frozenset[str]) -> SessionTerms:
        return SessionTerms(permissions=[PermissionSetting("mode", "acceptEdits", "permission_mode")])


async def test_what_was_told_before_the_start_is_not_told_again(caplog: pytest.LogCaptureFixture) -> None:
    async with Query(Announces(Starts("acceptEdits")), can_use_tool=allow):
        pass
    assert len(caplog.records) == 1


# --------------------------------------------------------------------------------------------------------------- the pure parts


def test_who_starts_the_session_in_a_mode_is_one_row() -> None:
    options = ClaudeOptions(
        permission_mode="plan", dangerously_skip_permissions=True, settings={"permissions": {"defaultMode": "acceptEdits"}}
    )
    assert [row for row in permission_settings(options) if row[0] == "mode"] == [
        ("mode", "bypassPermissions", "dangerously_skip_permissions")
    ]
    settings_only = ClaudeOptions(settings={"permissions": {"defaultMode": "acceptEdits"}})
    assert permission_settings(settings_only) == [("mode", "acceptEdits", "settings")]


def test_a_kind_of_setting_that_is_not_known_shadows_nothing() -> None:
    assert find_shadows([PermissionSetting("of the future", "x", "some_option")]) == []
