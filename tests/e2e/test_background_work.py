"""When input may end, on the real binary: agents that outlive the first result are asked about, endless shells hold nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from live_session import from_subagent

import claude_transport as ct
from claude_transport.testing import FakeMessagesAPI, replies

pytestmark = pytest.mark.both_loops

PATIENCE = 60.0  # seconds for a turn of the CLI, on a machine with much else to do

HELPER = {"helper": {"description": "helps", "prompt": "You help.", "tools": ["Bash"]}}
LAUNCH = replies.tool_use("Agent", {"description": "do it", "prompt": "SUB work", "subagent_type": "helper", "run_in_background": True})
TOUCH = replies.tool_use("Bash", {"command": "touch proof.txt", "description": "t"})

Build = Callable[..., ct.ClaudeOptions]


@pytest.fixture
def options(claude_cli: str, cli_home: Any, cli_env: Callable[..., dict[str, str]]) -> Build:
    def build(api: FakeMessagesAPI, **given: Any) -> ct.ClaudeOptions:
        environment = cli_env(api, CLAUDE_CODE_MAX_RETRIES="0")
        return ct.ClaudeOptions(cli_path=claude_cli, cwd=cli_home.project, env=environment, env_mode="exact", **given)

    return build


async def allow(*_: object) -> ct.Allow:
    return ct.Allow()


@pytest.mark.needs("questions of background agents")
@pytest.mark.parametrize("reports_state", [True, False])
async def test_a_one_shot_answers_for_an_agent_after_the_first_result_and_hears_the_turn_that_it_wakes(
    options: Build, cli_home: Any, reports_state: bool
) -> None:
    order: list[str] = []
    first_result = anyio.Event()

    async def can_use_tool(tool: str, *_: object) -> ct.Allow:
        await first_result.wait()  # the agent may be faster than the main thread: its question is open across the result
        order.append(f"asked for {tool}")
        return ct.Allow()

    async def before_tool(event: Any, *_: object) -> None:
        order.append(f"hook {event['tool_name']}")

    def answer(request: Any) -> Any:
        if from_subagent(request):
            return "Sub done." if request.tool_results else TOUCH
        return LAUNCH if len(api.conversation) == 1 else "Main says."

    async with FakeMessagesAPI(answer) as api:
        with anyio.fail_after(PATIENCE):
            async for message in ct.query(
                "MAIN",
                options=options(api, session_state_events=reports_state),
                agents=HELPER,
                can_use_tool=can_use_tool,
                hooks={"PreToolUse": [ct.HookMatcher("Bash", [before_tool])]},
            ):
                if isinstance(message, ct.ResultMessage):
                    order.append("result")
                    first_result.set()
    assert order == ["hook Bash", "result", "asked for Bash", "result"] or order == ["result", "hook Bash", "asked for Bash", "result"]
    assert (cli_home.project / "proof.txt").exists()


@pytest.mark.needs("questions of background agents")
@pytest.mark.parametrize("reports_state", [True, False])
async def test_the_turn_that_an_agent_wakes_may_use_tools_and_is_asked_about(options: Build, cli_home: Any, reports_state: bool) -> None:
    """The turn begins some 10 ms after the last agent is gone: input must not end in between."""
    asked: list[str] = []

    async def can_use_tool(tool: str, *_: object) -> ct.Allow:
        asked.append(tool)
        return ct.Allow()

    def answer(request: Any) -> Any:
        if from_subagent(request):
            return "Sub done."
        if len(api.conversation) == 1:
            return LAUNCH
        # the second word of the main thread ends its turn; whatever it is woken for after that begins with a tool
        woken = "task-notification" in str(request.body["messages"][-1])
        return TOUCH if woken else "Main says."

    async with FakeMessagesAPI(answer) as api:
        with anyio.fail_after(PATIENCE):
            one_shot = ct.query("MAIN", options=options(api, session_state_events=reports_state), agents=HELPER, can_use_tool=can_use_tool)
            results = [message async for message in one_shot if isinstance(message, ct.ResultMessage)]
    assert (asked, (cli_home.project / "proof.txt").exists()) == (["Bash"], True)
    assert results[-1].is_unsolicited


def processes_in(folder: Path) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cwd").readlink() == folder:
                found.append((entry / "cmdline").read_text().replace("\0", " "))
        except OSError:  # gone while we look
            continue
    return found


@pytest.mark.needs("is_backgrounded")
async def test_a_shell_that_never_ends_holds_nothing_and_is_gone_afterwards(options: Build, cli_home: Any) -> None:
    shell = replies.tool_use("Bash", {"command": "sleep 100000", "description": "t", "run_in_background": True})
    async with FakeMessagesAPI(lambda request: "Started." if request.tool_results else shell) as api:
        with anyio.fail_after(PATIENCE):
            one_shot = ct.query("go", options=options(api), can_use_tool=allow, exit_timeout=0.5)
            messages = [message async for message in one_shot]
    started = [message for message in messages if isinstance(message, ct.messages.TaskStarted)]
    assert [(task.task_type, task.is_backgrounded) for task in started] == [("local_bash", True)]
    assert [message.type for message in messages].count("result") == 1
    assert processes_in(cli_home.project) == []


@pytest.mark.needs("questions of background agents")
async def test_closing_waits_for_an_agent_as_long_as_it_is_told_and_names_what_it_cut(options: Build) -> None:
    def answer(request: Any) -> Any:
        if from_subagent(request):
            return replies.gated("Never said.")
        return LAUNCH if len(api.conversation) == 1 else "Main says."

    async with FakeMessagesAPI(answer) as api:
        query = ct.Query(ct.SubprocessTransport(options(api)), agents=HELPER)
        with anyio.fail_after(PATIENCE):
            await query.start()
            await (await query.send("MAIN")).result()
            await api.wait_at_gate()
            assert list(query.background_tasks.values()) == ["do it"]
            report = await query.aclose(wait_for_background=True, timeout=0.5)
    assert (list(report.dropped_tasks.values()), report.lost_turns, report.ended_by_itself) == (["do it"], (), False)


@pytest.mark.needs("questions of background agents")
async def test_closing_that_waits_hears_the_agent_out(options: Build) -> None:
    def answer(request: Any) -> Any:
        if from_subagent(request):
            return replies.gated("Sub done.")
        return LAUNCH if len(api.conversation) == 1 else "Main says."

    async with FakeMessagesAPI(answer) as api:
        query = ct.Query(ct.SubprocessTransport(options(api)), agents=HELPER)
        reports: list[ct.CloseReport] = []
        with anyio.fail_after(PATIENCE):
            await query.start()
            everything = query.messages()
            await (await query.send("MAIN")).result()
            await api.wait_at_gate()
            async with anyio.create_task_group() as tasks:

                async def close() -> None:
                    reports.append(await query.aclose(wait_for_background=True, timeout=PATIENCE))

                tasks.start_soon(close)
                await anyio.wait_all_tasks_blocked()
                api.open_gate()
            results = [message async for message in everything if isinstance(message, ct.ResultMessage)]
    assert (reports[0].dropped_tasks, reports[0].ended_by_itself) == ({}, True)
    assert [result.is_unsolicited for result in results] == [False, True]


@pytest.mark.needs("questions of background agents")
async def test_one_call_waits_for_a_slow_turn_that_a_background_agent_starts(options: Build) -> None:
    """The tool of that turn takes longer than a CLI gets to say that it is idle after a result."""
    work = {"description": "do it", "prompt": "SUB work", "subagent_type": "general-purpose", "run_in_background": True}
    launch = replies.tool_use("Agent", work)
    wait = replies.tool_use("Bash", {"command": "sleep 3", "description": "waits", "timeout": 60_000})
    said = iter([launch, "I wait.", wait])

    def answer(request: Any) -> Any:
        return "Sub done." if from_subagent(request) else next(said, "It is done.")

    async with FakeMessagesAPI(answer) as api:
        with anyio.fail_after(PATIENCE):
            completion = await ct.complete(
                "MAIN",
                transport="cli",
                options=options(api, tools=("Agent", "Bash"), allowed_tools=("Agent", "Bash")),
            )
    assert (completion.text_blocks, completion.warnings) == (("I wait.", "It is done."), ())
