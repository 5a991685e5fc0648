"""A ready session that goes to another directory or model: what moves with it, what would stay, and nothing of the last user."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from live_session import PATIENCE, bash, of_type

import claude_transport as ct
from claude_transport.launch.features import supports
from claude_transport.testing import FakeMessagesAPI, replies

Environment = Callable[..., dict[str, str]]


def furnish(directory: Path, name: str, *, settings: bool = True) -> Path:
    """Give a directory everything that a project has, each marked with `name`."""
    (directory / ".claude" / "commands").mkdir(parents=True)
    (directory / ".claude" / "commands" / f"{name}-command.md").write_text("Do it.")
    (directory / "CLAUDE.md").write_text(f"{name}-memory")
    (directory / ".mcp.json").write_text(json.dumps({"mcpServers": {f"{name}-server": {"command": "false", "args": []}}}))
    if settings:
        hooks = {"SessionStart": [{"hooks": [{"type": "command", "command": f"echo {name}-start"}]}]}
        rules = {"allow": [f"Bash({name}:*)"]}
        (directory / ".claude" / "settings.json").write_text(
            json.dumps({"env": {f"{name}_env": "1"}, "permissions": rules, "hooks": hooks})
        )
    return directory


def trust(home: Any, *directories: Path) -> None:
    """Have the CLI trust these directories and all below."""
    trusted = {str(directory): {"hasTrustDialogAccepted": True} for directory in directories}
    (home.config / ".claude.json").write_text(json.dumps({"projects": trusted}))


@asynccontextmanager
async def pool_in(home: Any, cli: str, env: dict[str, str], **arguments: Any) -> AsyncIterator[ct.SessionPool]:
    """A pool with one ready session, in the project of `home`."""
    options = ct.ClaudeOptions(cli_path=cli, cwd=home.project, env=env, env_mode="exact")
    with anyio.fail_after(PATIENCE):
        async with ct.SessionPool(options, warm=1, cap=1, **arguments) as pool:
            await pool.warm_up()
            yield pool


async def rules_of(query: ct.Query) -> str:
    return str(await query.permission_rules())


@pytest.mark.needs("set_cwd changes the memory")
async def test_a_ready_session_goes_to_another_directory_and_model_with_everything_that_belongs_to_them(
    claude_cli: str, cli_home: Any, cli_env: Environment
) -> None:
    furnish(cli_home.project, "old", settings=False)
    there = furnish(cli_home.home / "trees" / "new", "new")
    trust(cli_home, cli_home.project, there.parent)
    async with (
        FakeMessagesAPI([bash("env; pwd"), "Done."]) as api,
        pool_in(cli_home, claude_cli, cli_env(api), can_use_tool=allow) as pool,
    ):
        async with pool.acquire(timeout=0, cwd=there, model="opus") as query:
            messages = [message async for message in await query.send("Hello")]
            rules = await rules_of(query)
        assert (pool.snapshot().aimed, pool.snapshot().restarted) == (1, 0)
    async with FakeMessagesAPI() as other:
        options = ct.ClaudeOptions(cli_path=claude_cli, cwd=there, env=cli_env(other), env_mode="exact")
        async with ct.Query(ct.SubprocessTransport(options)) as query:
            assert rules == await rules_of(query)  # what a new process there would have
    (init,) = of_type(messages, ct.messages.InitMessage)
    assert (init.cwd, "opus" in (init.model or "")) == (str(there), True)
    assert "new-command" in init.slash_commands
    assert [server.name for server in init.mcp_servers] == ["new-server"]
    first, second = api.conversation
    assert "opus" in first.body["model"]
    asked, told = json.dumps(first.body), str(second.tool_results)
    assert "new-memory" in asked
    assert ("new_env=1" in told, str(there) in told) == (True, True)
    for trace in ("old-memory", "old-command", "old-server", str(cli_home.project), "local-command-stdout"):
        assert trace not in asked + told + str(init.to_dict())
    written = list(cli_home.config.glob("projects/*/*.jsonl"))
    assert [path.parent.name.endswith("trees-new") for path in written] == [True]


async def allow(_tool: str, _given: dict[str, Any], _context: ct.client.CallbackContext) -> ct.Allow:
    return ct.Allow()


@pytest.mark.needs("set_cwd changes the memory")
async def test_what_would_stay_of_the_first_directory_is_its_variables_and_what_its_hooks_said(
    claude_cli: str, cli_home: Any, cli_env: Environment
) -> None:
    furnish(cli_home.project, "old")
    there = furnish(cli_home.home / "new", "new")
    trust(cli_home, cli_home.project, there)

    async def talk(query: ct.Query) -> tuple[str, str]:
        await (await query.send("Hello")).result()
        first, second = api.conversation[-2:]
        return json.dumps(first.body), str(second.tool_results)

    options = ct.ClaudeOptions(cli_path=claude_cli, cwd=cli_home.project, env_mode="exact")
    async with FakeMessagesAPI([bash("env"), "Done."] * 2) as api:
        env = cli_env(api)
        with anyio.fail_after(PATIENCE):
            async with ct.Query(ct.SubprocessTransport(options.replace(env=env)), can_use_tool=allow) as query:
                assert (await query.set_cwd(there)).status == "ok"
                asked, told = await talk(query)
                rules = await rules_of(query)
        assert ("old-start" in asked, "old_env=1" in told) == (True, True)
        assert [trace for trace in ("old-memory", "Bash(old:*)") if trace in asked + told + rules] == []

        async with pool_in(cli_home, claude_cli, env, can_use_tool=allow) as pool:  # so such a session does not go there
            async with pool.acquire(timeout=0, cwd=there) as query:
                asked, told = await talk(query)
                rules = await rules_of(query)
            assert (pool.snapshot().aimed, pool.snapshot().restarted) == (0, 1)
        assert ("new-start" in asked, "new_env=1" in told) == (True, True)
        assert [trace for trace in ("old-", "old_env", "Bash(old:*)") if trace in asked + told + rules] == []


@pytest.mark.needs("rules of an untrusted project are ignored")
async def test_a_directory_that_is_not_trusted_gets_a_process_of_its_own_and_no_trust(
    claude_cli: str, cli_home: Any, cli_env: Environment
) -> None:
    there = furnish(cli_home.home / "new", "new")
    async with FakeMessagesAPI(["Hello."]) as api, pool_in(cli_home, claude_cli, cli_env(api)) as pool:
        async with pool.acquire(timeout=0, cwd=there) as query:
            messages = [message async for message in await query.send("Hello")]
        assert pool.snapshot().restarted == 1
    (init,) = of_type(messages, ct.messages.InitMessage)
    assert init.cwd == str(there)
    known = json.loads((cli_home.config / ".claude.json").read_text())
    assert not known.get("projects", {}).get(str(there), {}).get("hasTrustDialogAccepted")


async def test_a_claude_that_would_keep_the_memory_of_the_first_directory_gets_a_process_of_its_own(
    claude_cli: str, cli_home: Any, cli_env: Environment, cli_version: str
) -> None:
    furnish(cli_home.project, "old", settings=False)
    there = furnish(cli_home.home / "new", "new")
    trust(cli_home, cli_home.project, there)
    async with FakeMessagesAPI(["Hello."]) as api, pool_in(cli_home, claude_cli, cli_env(api)) as pool:
        async with pool.acquire(timeout=0, cwd=there) as query:
            await (await query.send("Hello")).result()
        moves = supports("set_cwd changes the memory", version=cli_version)
        assert (pool.snapshot().aimed, pool.snapshot().restarted) == ((1, 0) if moves else (0, 1))
        asked = json.dumps(api.conversation[0].body)
        assert ("new-memory" in asked, "old-memory" in asked) == (True, False)


async def test_a_directory_that_is_not_there_is_an_error_that_names_it(claude_cli: str, cli_home: Any, cli_env: Environment) -> None:
    async with FakeMessagesAPI() as api, pool_in(cli_home, claude_cli, cli_env(api)) as pool:
        with pytest.raises(ct.errors.WorkingDirectoryError, match="nowhere"):
            async with pool.acquire(cwd=cli_home.home / "nowhere"):
                pass


@pytest.mark.needs("set_cwd changes the memory")
async def test_the_next_user_finds_nothing_of_the_last_one_in_the_same_directory(
    claude_cli: str, cli_home: Any, cli_env: Environment
) -> None:
    """History, rules for the session, variables, files that were read, todos, mode and model."""
    there = cli_home.home / "there"
    there.mkdir()
    (there / "notes.txt").write_text("the-notes")
    trust(cli_home, cli_home.project, there)
    rule = ct.control.PermissionRule(tool_name="Bash", rule_content="touch:*")
    update = ct.control.PermissionUpdate(type="addRules", rules=(rule,), behavior="allow", destination="session")
    asked: list[str] = []

    async def guard(_tool: str, given: dict[str, Any], _context: ct.client.CallbackContext) -> ct.Allow | ct.Deny:
        asked.append(str(given.get("command") or given.get("file_path")))
        return ct.Allow(updated_permissions=[update] if "touch" in asked[-1] else [])

    notes = str(there / "notes.txt")
    work = [
        replies.tool_use("Read", {"file_path": notes}),
        replies.tool_use("TaskCreate", {"subject": "first-todo", "description": "first-todo"}),
        bash("touch one"),
        bash("touch two"),
        "Done.",
    ]
    look = [
        bash("env"),
        bash("touch three"),
        replies.tool_use("TaskList", {}),
        "Done.",
    ]
    async with (
        FakeMessagesAPI([*work, *look]) as api,
        pool_in(cli_home, claude_cli, cli_env(api, CLAUDE_CODE_ENABLE_TODO_TOOLS="1"), can_use_tool=guard) as pool,
    ):
        async with pool.acquire(cwd=there, model="haiku") as query:
            await query.apply_flag_settings({"env": {"first_env": "1"}})
            first = await (await query.send("first-prompt")).result()
            assert "touch:*" in await rules_of(query)
            await query.set_permission_mode("acceptEdits")
        assert asked == ["touch one"]
        asked.clear()
        (there / "notes.txt").write_text("changed-notes")  # the CLI tells a session that has read a file when it changed
        await pool.warm_up()
        async with pool.acquire(cwd=there) as query:
            assert "touch:*" not in await rules_of(query)
            messages = [message async for message in await query.send("Hello")]
            exported = str(await query.export_conversation())
        assert pool.snapshot().aimed == 2
    (init,) = of_type(messages, ct.messages.InitMessage)
    (result,) = of_type(messages, ct.ResultMessage)
    assert (init.permission_mode, "haiku" in (init.model or "")) == ("default", False)
    assert init.session_id != first.session_id
    assert "touch three" in asked  # the rule that was allowed for the first session is gone
    bodies = json.dumps([request.body["messages"] for request in api.conversation[len(work) :]])
    told = [str(block.get("content")) for block in api.conversation[-1].tool_results]
    assert told == ["No tasks found"]
    before = json.dumps([request.body["messages"] for request in api.conversation[: len(work)]])
    assert all(trace in before for trace in ("first-prompt", "first-todo", "notes"))
    for trace in ("first-prompt", "first-todo", "first_env", "notes"):
        assert trace not in bodies + exported
    assert result.num_turns == len(look)
