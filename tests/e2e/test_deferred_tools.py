"""Tool calls that a hook defers: the turn ends, and a later process that resumes the session decides and goes on by itself.

Most tests run the functions of the how-to's example. Each of its calls is a process of the CLI of its own.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from live_session import PATIENCE, Live, bash
from loading import load_file
from mcp.server import MCPServer

import claude_transport as ct
from claude_transport.sessions import FileSessionStore, SQLiteSessionStore
from claude_transport.testing import FakeMessagesAPI, replies

EXAMPLE = Path(__file__).parents[2] / "examples" / "approve_later.py"
MADE = {"command": "touch made", "description": "d"}
DEFERS = pytest.mark.needs("a tool call that is deferred twice does not run")


approve_later: Any = load_file(EXAMPLE, "approve_later")


def deciding(decision: ct.hooks.PreToolUseDecision) -> dict[str, list[ct.HookMatcher]]:
    async def decide(*_: object) -> ct.hooks.PreToolUseDecision:
        return decision

    return {"PreToolUse": [ct.HookMatcher("Bash", [decide])]}


async def put_off(live: Live) -> ct.ResultMessage:
    """The result of a turn whose tool was put off, and the process is gone."""
    async with live([bash("touch made"), "never"], hooks=deciding(ct.hooks.PreToolUseDecision.defer()), allowed_tools=["Bash"]) as session:
        result = await session.ask("Make it")
        assert not (session.project / "made").exists()
        assert len(session.api.conversation) == 1
    return result


@DEFERS
async def test_a_tool_that_is_put_off_ends_the_turn_and_is_named_by_its_result(live: Live) -> None:
    result = await put_off(live)
    assert (result.terminal_reason, result.outcome.ok, result.result) == ("tool_deferred", True, "")
    assert result.deferred_tool_use is not None
    assert (result.deferred_tool_use["name"], result.deferred_tool_use["input"]) == ("Bash", MADE)


@DEFERS
@pytest.mark.needs("user_message_uuids")
async def test_a_resumed_session_runs_the_tool_that_was_put_off_before_it_takes_a_prompt(live: Live) -> None:
    waiting = await put_off(live)
    script, hooks = ["It is made.", "Something else."], deciding(ct.hooks.PreToolUseDecision.allow())
    async with live(script, resume=waiting.session_id, hooks=hooks, allowed_tools=["Bash"]) as session:
        everything = session.query.messages()
        turn = await session.query.send("And now?")
        asked = await turn.result()
        own = [message async for message in turn]
        await session.query.end_input()
        results = [message async for message in everything if isinstance(message, ct.ResultMessage)]
        assert (session.project / "made").exists()
    assert (asked.result, asked.user_message_uuids) == ("Something else.", (turn.uuid,))
    assert [result.result for result in results] == ["It is made.", "Something else."]
    assert results[0] not in own
    assert results[0].prompt_uuids == ()
    assert session.told(0) == ["(Bash completed with no output)"]


@DEFERS
async def test_a_tool_that_was_put_off_can_still_be_refused(live: Live) -> None:
    waiting = await put_off(live)
    hooks = deciding(ct.hooks.PreToolUseDecision.deny("Not today."))
    async with live(["A pity.", "Something else."], resume=waiting.session_id, hooks=hooks, allowed_tools=["Bash"]) as session:
        assert (await session.ask("And now?")).result == "Something else."
        assert not (session.project / "made").exists()
    assert "Not today." in session.told(0)[0]


# ------------------------------------------------------------------------------------------ tools of servers in this program


class Probe:
    """A server in this program whose tool notes each call, and the sessions in which a hook decides about that tool."""

    def __init__(self, live: Live) -> None:
        self.live = live
        self.calls = 0

    async def flux(self) -> str:
        """Reads the flux."""
        self.calls += 1
        return "41.7 gauss"

    def session(self, script: list[Any], decision: ct.hooks.PreToolUseDecision | None, **options: Any) -> Any:
        async def decide(*_: object) -> Any:
            return decision

        server = MCPServer("probe")
        server.tool()(self.flux)
        hooks = {"PreToolUse": [ct.HookMatcher("mcp__probe__flux", [decide])]} if decision is not None else None
        return self.live(script, in_process={"probe": server}, hooks=hooks, **{"allowed_tools": ["mcp__probe__flux"], **options})

    async def put_off(self, **options: Any) -> ct.ResultMessage:
        """The result of a turn whose call of the tool was put off, and the process is gone."""
        script = [replies.tool_use("mcp__probe__flux", {}), "never"]
        async with self.session(script, ct.hooks.PreToolUseDecision.defer(), **options) as session:
            waiting = await session.ask("How strong is it?")
        assert (waiting.terminal_reason, self.calls) == ("tool_deferred", 0)
        return waiting

    async def go_on(self, decision: ct.hooks.PreToolUseDecision | None, **options: Any) -> tuple[ct.ResultMessage, list[str]]:
        """The first result of a process that goes on without a prompt, and what its model was told first."""
        async with self.session(["Done."], decision, **options) as session:
            async for message in session.query.messages():
                if isinstance(message, ct.ResultMessage):
                    return message, session.told(0) if session.api.conversation else []
        raise AssertionError("no result came")


@DEFERS
@pytest.mark.both_loops
@pytest.mark.parametrize("how", ["resumed", pytest.param("continued", marks=pytest.mark.nightly), "forked"])
async def test_a_tool_of_a_server_in_this_program_that_was_put_off_runs_in_the_next_process(how: str, live: Live) -> None:
    """The official client fails here: anthropics/claude-agent-sdk-python#1226."""
    probe = Probe(live)
    waiting = await probe.put_off()
    options: dict[str, Any] = {"continue_conversation": True} if how == "continued" else {"resume": waiting.session_id}
    result, told = await probe.go_on(ct.hooks.PreToolUseDecision.allow(), **options, fork_session=how == "forked")
    assert (result.result, result.deferred_tool_use, probe.calls) == ("Done.", None, 1)
    assert told == ['{"result":"41.7 gauss"}']


@DEFERS
async def test_a_tool_of_a_server_in_this_program_that_was_put_off_can_still_be_refused(live: Live) -> None:
    probe = Probe(live)
    waiting = await probe.put_off()
    result, told = await probe.go_on(ct.hooks.PreToolUseDecision.deny("Not today."), resume=waiting.session_id)
    assert (result.result, probe.calls) == ("Done.", 0)
    assert "Not today." in told[0]


@DEFERS
@pytest.mark.needs("--session-mirror")
async def test_a_tool_of_a_server_in_this_program_that_was_put_off_runs_on_another_machine(live: Live, tmp_path: Path) -> None:
    probe, store = Probe(live), FileSessionStore(tmp_path / "store")
    waiting = await probe.put_off(session_store=store)
    shutil.rmtree(live.home.config / "projects")
    result, _ = await probe.go_on(ct.hooks.PreToolUseDecision.allow(), resume=waiting.session_id, session_store=store)
    assert (result.result, probe.calls) == ("Done.", 1)


@DEFERS
async def test_a_call_whose_tool_the_cli_does_not_know_in_time_goes_on_waiting(live: Live) -> None:
    probe, allow = Probe(live), ct.hooks.PreToolUseDecision.allow()
    waiting = await probe.put_off()
    late, _ = await probe.go_on(allow, resume=waiting.session_id, mcp_servers_delivery="initialize")  # as for a CLI on another machine
    assert (late.stop_reason, late.deferred_tool_use, probe.calls) == ("tool_deferred_unavailable", waiting.deferred_tool_use, 0)
    result, _ = await probe.go_on(allow, resume=waiting.session_id)
    assert (result.result, probe.calls) == ("Done.", 1)


@DEFERS
@pytest.mark.needs("initialize.sdkMcpServerConfigs")
async def test_the_policy_of_a_server_in_this_program_holds_in_a_session_that_is_resumed(live: Live) -> None:
    probe, asked = Probe(live), []

    async def can_use_tool(tool: str, *_: object) -> ct.Allow:
        asked.append(tool)
        return ct.Allow()

    waiting = await probe.put_off()
    policy = {"probe": {"tools": [{"name": "flux", "permission_policy": "always_ask"}]}}
    options: dict[str, Any] = {"sdk_mcp_server_configs": policy, "can_use_tool": can_use_tool}
    with pytest.warns(ct.errors.ClaudeTransportWarning, match="is allowed without asking"):
        await probe.go_on(None, resume=waiting.session_id, **options)
    assert (asked, probe.calls) == (["mcp__probe__flux"], 1)


# -------------------------------------------------------------------------------------- the functions of the how-to's example


class Machine:
    """A machine with a HOME, a configuration and a working directory of its own, where every shell command may run without a question."""

    def __init__(self, root: Path, live: Live, api: FakeMessagesAPI) -> None:
        self.root = root
        self.project = root / "work"
        for name in ("home", "config", "work"):
            (root / name).mkdir(parents=True)
        own = {"HOME": str(root / "home"), "CLAUDE_CONFIG_DIR": str(root / "config")}
        self.env = {**live.environment(api, CLAUDE_CODE_MAX_RETRIES="0"), **own}
        self.options = ct.ClaudeOptions(cli_path=live.cli, cwd=self.project, env=self.env, env_mode="exact", allowed_tools=["Bash"])

    async def begin(self, **options: Any) -> ct.ResultMessage:
        """The result of the first process, whose model calls a tool."""
        with anyio.fail_after(PATIENCE):
            result: ct.ResultMessage = await approve_later.begin(ct.SubprocessTransport(self.options.replace(**options)), "Make it")
        assert result.deferred_tool_use is not None
        return result

    async def go_on(self, waiting: ct.ResultMessage, decisions: Mapping[str, bool], **options: Any) -> ct.ResultMessage:
        """The result of the next process, which knows the session and the decisions."""
        transport = ct.SubprocessTransport(self.options.replace(resume=waiting.session_id, **options))
        result: ct.ResultMessage = await approve_later.go_on(transport, decisions, timeout=PATIENCE)
        return result

    @property
    def files(self) -> list[str]:
        """What is in the working directory."""
        return sorted(path.name for path in self.project.iterdir())


def call_of(result: ct.ResultMessage) -> str:
    """The id of the call that a result names."""
    assert result.deferred_tool_use is not None
    return str(result.deferred_tool_use["id"])


def told(api: FakeMessagesAPI) -> str:
    """What the tools said to the model, by its last request."""
    return str([block.get("content") for block in api.conversation[-1].tool_results])


@DEFERS
@pytest.mark.parametrize(("decision", "files", "heard"), [(True, ["made"], "no output"), (False, [], "The owner has refused this.")])
async def test_the_next_process_goes_on_by_the_decision_without_a_prompt(
    decision: bool, files: list[str], heard: str, live: Live, tmp_path: Path
) -> None:
    async with FakeMessagesAPI([bash("touch made"), "Done."]) as api:
        machine = Machine(tmp_path / "machine", live, api)
        waiting = await machine.begin()
        assert (waiting.terminal_reason, machine.files, len(api.conversation)) == ("tool_deferred", [], 1)
        result = await machine.go_on(waiting, {call_of(waiting): decision})
        assert (result.result, result.deferred_tool_use, machine.files) == ("Done.", None, files)
        assert heard in told(api)
        assert len(api.conversation) == 2


PROCESS = """
import json, sys, anyio
import claude_transport as ct
sys.path.insert(0, sys.argv[1])
import approve_later
given = json.loads(sys.argv[2])
async def main():
    transport = ct.SubprocessTransport(ct.ClaudeOptions(**given["options"]))
    if "decisions" in given:
        result = await approve_later.go_on(transport, given["decisions"], timeout=60)
    else:
        result = await approve_later.begin(transport, "Make it")
    print(json.dumps({"resume": result.session_id, "call": result.deferred_tool_use, "said": result.result}))
anyio.run(main, backend=sys.argv[3])
"""


@DEFERS
async def test_two_programs_that_share_nothing_but_a_row_in_a_database_run_the_call_once(
    live: Live, tmp_path: Path, anyio_backend_name: str
) -> None:
    async def program(**given: Any) -> Any:
        arguments = [sys.executable, "-c", PROCESS, str(EXAMPLE.parent), json.dumps(given), anyio_backend_name]
        with anyio.fail_after(PATIENCE):
            return json.loads((await anyio.run_process(arguments)).stdout)

    async with FakeMessagesAPI([bash("echo once >> made"), "Done."]) as api:
        machine = Machine(tmp_path / "machine", live, api)
        plain = {"cli_path": live.cli, "cwd": str(machine.project), "env": machine.env, "env_mode": "exact"}
        row = await program(options=plain)
        assert (row["call"]["input"]["command"], machine.files) == ("echo once >> made", [])
        row |= await program(options={**plain, "resume": row["resume"]}, decisions={row["call"]["id"]: True})
    assert (row["call"], row["said"]) == (None, "Done.")
    assert (machine.project / "made").read_text() == "once\n"


@DEFERS
@pytest.mark.needs("--session-mirror")
@pytest.mark.parametrize(
    ("kind", "decision"),
    [
        ("file", True),
        ("sqlite", False),
        pytest.param("file", False, marks=pytest.mark.nightly),
        pytest.param("sqlite", True, marks=pytest.mark.nightly),
    ],
)
async def test_another_machine_decides_about_a_call_that_a_session_store_has(kind: str, decision: bool, live: Live, tmp_path: Path) -> None:
    store = FileSessionStore(tmp_path / "store") if kind == "file" else SQLiteSessionStore(tmp_path / "store.db")
    async with FakeMessagesAPI([bash("touch made"), "Done."]) as api:
        one, other = (Machine(tmp_path / name, live, api) for name in ("one", "other"))
        waiting = await one.begin(session_store=store)
        shutil.rmtree(one.root)
        result = await other.go_on(waiting, {call_of(waiting): decision}, session_store=store)
        assert (result.result, other.files) == ("Done.", ["made"] if decision else [])
        assert result.session_id == waiting.session_id


@DEFERS
async def test_each_call_of_a_session_can_wait_for_its_own_decision(live: Live, tmp_path: Path) -> None:
    async with FakeMessagesAPI([bash("touch one"), bash("touch two"), "Done."]) as api:
        machine = Machine(tmp_path / "machine", live, api)
        waiting = await machine.begin()
        decisions = {call_of(waiting): True}
        waiting = await machine.go_on(waiting, decisions)
        assert (waiting.terminal_reason, machine.files, len(api.conversation)) == ("tool_deferred", ["one"], 2)
        decisions[call_of(waiting)] = True
        assert (await machine.go_on(waiting, decisions)).result == "Done."
        assert machine.files == ["one", "two"]


async def test_a_call_that_is_deferred_again_does_not_run_although_a_rule_allows_it(live: Live, tmp_path: Path) -> None:
    """A CLI that would run it gets a denial from `Query` in place of the first `defer`."""
    async with FakeMessagesAPI([bash("touch made"), "Not done."]) as api:
        machine = Machine(tmp_path / "machine", live, api)
        with anyio.fail_after(PATIENCE):
            first = await approve_later.begin(ct.SubprocessTransport(machine.options), "Make it")
        if first.deferred_tool_use is None:
            assert "the call is denied, not deferred" in told(api)
        else:
            again = await machine.go_on(first, {})
            assert (call_of(again), again.terminal_reason) == (call_of(first), None)
        assert machine.files == []
        assert len(api.conversation) == (2 if first.deferred_tool_use is None else 1)


@DEFERS
async def test_a_call_that_was_deferred_twice_still_waits_for_its_decision(live: Live, tmp_path: Path) -> None:
    async with FakeMessagesAPI([bash("touch made"), "Done."]) as api:
        machine = Machine(tmp_path / "machine", live, api)
        waiting = await machine.go_on(await machine.begin(), {})
        assert (await machine.go_on(waiting, {call_of(waiting): True})).result == "Done."
        assert machine.files == ["made"]


@DEFERS
async def test_of_several_calls_in_one_message_only_the_last_is_kept_and_none_runs(live: Live, tmp_path: Path) -> None:
    blocks = [replies.tool_use_block("Bash", input={"command": f"touch {name}"}, id=f"toolu_{name}") for name in ("one", "two")]
    async with FakeMessagesAPI([replies.message(*blocks), "Done."]) as api:
        machine = Machine(tmp_path / "machine", live, api)
        waiting = await machine.begin()
        assert (call_of(waiting), machine.files) == ("toolu_two", [])
        await machine.go_on(waiting, {"toolu_one": True, "toolu_two": True})
        assert machine.files == ["two"]


@DEFERS
async def test_a_resumed_session_without_the_hook_decides_by_its_rules(live: Live, tmp_path: Path) -> None:
    async with FakeMessagesAPI([bash("touch made"), "Done."]) as api:
        machine = Machine(tmp_path / "machine", live, api)
        waiting = await machine.begin()
        with anyio.fail_after(PATIENCE):
            async with ct.Query(ct.SubprocessTransport(machine.options.replace(resume=waiting.session_id))) as query:
                async for message in query.messages():
                    if isinstance(message, ct.ResultMessage):
                        break
        assert machine.files == ["made"]


@DEFERS
async def test_a_prompt_in_the_same_process_goes_on_without_the_call(live: Live) -> None:
    hooks = deciding(ct.hooks.PreToolUseDecision.defer())
    async with live([bash("touch made"), "I go on."], hooks=hooks, allowed_tools=["Bash"]) as session:
        await session.ask("Make it")
        assert (await session.ask("And?")).result == "I go on."
        assert not (session.project / "made").exists()
        assert "Tool result missing" in session.told()[0]
