"""The main job on the real binary: a Query over a SubprocessTransport, with the fake Messages API behind it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from live_session import from_subagent

import claude_transport as ct
from claude_transport import errors
from claude_transport.testing import FakeMessagesAPI, replies

pytestmark = pytest.mark.both_loops

PATIENCE = 60.0  # seconds for the CLI to say its next word, on a machine with much else to do

Options = Callable[..., ct.ClaudeOptions]


@pytest.fixture
def options(claude_cli: str, cli_home: Any, cli_env: Callable[..., dict[str, str]]) -> Options:
    """`options(api, **changes)`: the real binary, in a clean world, talking to `api`."""

    def build(api: FakeMessagesAPI, *, env: dict[str, str] | None = None, **changes: Any) -> ct.ClaudeOptions:
        environment = cli_env(api, CLAUDE_CODE_MAX_RETRIES="0", **(env or {}))
        return ct.ClaudeOptions(cli_path=claude_cli, cwd=cli_home.project, env=environment, env_mode="exact", **changes)

    return build


Talk = Callable[..., ct.Query]


@pytest.fixture
def talk(options: Options) -> Talk:
    """`talk(api, **arguments)`: a Query over the real binary; callbacks go to the query, everything else to the options."""

    def build(api: FakeMessagesAPI, **arguments: Any) -> ct.Query:
        callbacks = {name: arguments.pop(name) for name in ("can_use_tool", "hooks") if name in arguments}
        return ct.Query(ct.SubprocessTransport(options(api, **arguments)), **callbacks)

    return build


def processes_in(folder: Path) -> list[str]:
    """The command lines of every living process that works in `folder`, whoever its parent, group and session are."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cwd").readlink() == folder:
                found.append((entry / "cmdline").read_text().replace("\0", " "))
        except OSError:  # gone while we look, or a zombie, which works nowhere
            continue
    return found


async def result_of(turn: ct.Turn) -> ct.ResultMessage:
    with anyio.fail_after(PATIENCE):
        return await turn.result()


async def messages_of(turn: ct.Turn) -> list[ct.Message]:
    with anyio.fail_after(PATIENCE):
        return [message async for message in turn]


def texts(messages: list[ct.Message]) -> list[str]:
    return [message.text for message in messages if isinstance(message, ct.AssistantMessage) and message.text]


@pytest.mark.needs("user_message_uuids")
async def test_a_text_turn(talk: Talk) -> None:
    async with FakeMessagesAPI(["Hello, world."]) as api, talk(api) as query:
        assert query.info.cli_version is not None
        assert query.initialization.account.api_key_source == "ANTHROPIC_API_KEY"
        turn = await query.send("Hello")
        messages = await messages_of(turn)
        result = (await turn.result()).raise_for_error()
    assert texts(messages) == ["Hello, world."]
    assert (result.result, result.user_message_uuids, turn.state) == ("Hello, world.", (turn.uuid,), ct.TurnState.DONE)
    assert [request.prompt for request in api.conversation] == ["Hello"]


async def test_two_turns_of_one_session(talk: Talk) -> None:
    async with FakeMessagesAPI(["One.", "Two."]) as api, talk(api) as query:
        first = await messages_of(await query.send("First"))
        second = await messages_of(await query.send("Second"))
    assert (texts(first), texts(second)) == (["One."], ["Two."])
    assert len(api.conversation[1].body["messages"]) > len(api.conversation[0].body["messages"])


async def test_partial_messages_come_before_the_whole_one(talk: Talk) -> None:
    reply = replies.text("one two three", chunks=["one ", "two ", "three"])
    async with FakeMessagesAPI([reply]) as api, talk(api, include_partial_messages=True) as query:
        messages = await messages_of(await query.send("Count"))
    kinds = [
        message.type for message in messages if message.type != "stream_event" or (isinstance(message, ct.StreamEvent) and message.text)
    ]
    assert [message.text for message in messages if isinstance(message, ct.StreamEvent) and message.text] == ["one ", "two ", "three"]
    assert kinds.index("stream_event") < kinds.index("assistant")


@pytest.mark.needs("messages after the result")
async def test_messages_of_a_turn_and_all_messages_agree(talk: Talk) -> None:
    async with FakeMessagesAPI(["Hello."]) as api:
        seen: list[ct.Message] = []
        query = talk(api)
        async with query:
            everything = query.messages()
            turn = await query.send("Hello")
            own = await messages_of(turn)
            await query.end_input()
            with anyio.fail_after(PATIENCE):
                seen = [message async for message in everything]
    assert [message for message in seen if message in own] == own
    assert isinstance(seen[-1], ct.CommandLifecycle | ct.SystemMessage)  # frames follow the result


# ------------------------------------------------------------------------------------------------------- permissions, hooks


@pytest.mark.parametrize("allowed", [True, False], ids=["allowed", "denied"])
async def test_a_tool_runs_when_the_callback_allows_it_and_only_then(talk: Talk, cli_home: Any, allowed: bool) -> None:
    asked: list[tuple[str, dict[str, Any], str | None]] = []

    async def decide(tool: str, given: dict[str, Any], context: ct.client.CallbackContext) -> ct.Allow | ct.Deny:
        asked.append((tool, given, context.tool_use_id))
        return ct.Allow() if allowed else ct.Deny("Not here.")

    tool = replies.tool_use("Bash", {"command": "echo made > made", "description": "make it"}, id="toolu_1")
    async with FakeMessagesAPI([tool, "Done."]) as api, talk(api, can_use_tool=decide) as query:
        result = await result_of(await query.send("Make it"))
    assert [(name, given["command"], tool_use_id) for name, given, tool_use_id in asked] == [("Bash", "echo made > made", "toolu_1")]
    assert (cli_home.project / "made").exists() is allowed
    assert result.result == "Done."
    (told,) = api.conversation[1].tool_results
    assert bool(told.get("is_error")) is not allowed
    assert allowed or "Not here." in str(told["content"])


async def test_the_callback_may_change_what_the_tool_is_given(talk: Talk, cli_home: Any) -> None:
    async def decide(_tool: str, given: dict[str, Any], _context: ct.client.CallbackContext) -> ct.Allow:
        return ct.Allow(updated_input={**given, "command": "echo changed > changed"})

    tool = replies.tool_use("Bash", {"command": "echo made > made"})
    async with FakeMessagesAPI([tool, "Done."]) as api, talk(api, can_use_tool=decide) as query:
        await result_of(await query.send("Make it"))
    assert [(cli_home.project / name).exists() for name in ("made", "changed")] == [False, True]


async def test_hooks_are_called_in_their_order(talk: Talk) -> None:
    called: list[str] = []

    async def note(given: dict[str, Any], tool_use_id: str | None, _context: ct.client.CallbackContext) -> dict[str, Any]:
        called.append(given["hook_event_name"])
        assert tool_use_id is not None
        return {}

    hooks = {
        "PreToolUse": [ct.HookMatcher("Bash", [note])],
        "PostToolUse": [ct.HookMatcher("Bash", [note])],
        "Stop": [ct.HookMatcher(hooks=[note])],
    }
    async with (
        FakeMessagesAPI([replies.tool_use("Bash", {"command": "echo hi"}), "Done."]) as api,
        talk(api, allowed_tools=["Bash"], hooks=hooks) as query,
    ):
        (await result_of(await query.send("Say hi"))).raise_for_error()
    assert called == ["PreToolUse", "PostToolUse", "Stop"]


async def test_a_hook_that_fails_does_not_open_the_gate(talk: Talk, cli_home: Any) -> None:
    async def fail(*_: object) -> None:
        raise ValueError("broken")

    async with (
        FakeMessagesAPI([replies.tool_use("Bash", {"command": "echo made > made"}), "Done."]) as api,
        talk(api, allowed_tools=["Bash"], hooks={"PreToolUse": [ct.HookMatcher("Bash", [fail])]}) as query,
    ):
        await result_of(await query.send("Make it"))
    assert not (cli_home.project / "made").exists()


# ------------------------------------------------------------------------------------------------------- interrupts, prompts


async def test_an_interrupt_ends_the_turn_and_the_next_one_is_good(talk: Talk) -> None:
    async with FakeMessagesAPI([replies.gated("never finished", chunks=2), "Fine."]) as api, talk(api) as query:
        turn = await query.send("Go on for ever")
        await api.wait_at_gate(timeout=PATIENCE)
        assert await query.interrupt() is ct.InterruptOutcome.ACKNOWLEDGED
        with pytest.raises(errors.RunInterrupted):
            (await result_of(turn)).raise_for_error()
        assert await query.interrupt() is ct.InterruptOutcome.NOT_RUNNING
        assert (await result_of(await query.send("And now?"))).result == "Fine."


@pytest.mark.needs("user_message_uuids")
async def test_prompts_that_wait_are_merged_into_one_turn_and_share_its_result(talk: Talk) -> None:
    async with FakeMessagesAPI([replies.gated("first answer", chunks=2), "Both."]) as api, talk(api) as query:
        first = await query.send("one")
        await api.wait_at_gate(timeout=PATIENCE)
        second, third = await query.send("two"), await query.send("three")
        await query.request("get_session_cost")  # answered after the CLI has read both prompts
        api.open_gate()
        results = [await result_of(turn) for turn in (first, second, third)]
    assert [turn.state for turn in (first, second, third)] == [ct.TurnState.DONE, ct.TurnState.DONE, ct.TurnState.FOLDED]
    assert results[1] is results[2]
    assert [result.result for result in results[:2]] == ["first answer", "Both."]


@pytest.mark.needs("conversation_reset")
async def test_a_slash_command_is_a_turn(talk: Talk) -> None:
    async with FakeMessagesAPI(["One."]) as api, talk(api) as query:
        await result_of(await query.send("Hello"))
        before = query.resume_point
        assert (await result_of(await query.send("/clear"))).num_turns == 0
        after = query.resume_point
        assert before is not None
        assert after is not None
        assert before.session_id != after.session_id
        assert after.last_uuid is None


async def test_two_megabytes_of_answer_arrive_whole(talk: Talk) -> None:
    size = 2 * 2**20
    async with FakeMessagesAPI([replies.huge(size)]) as api, talk(api) as query:
        turn = await query.send("Much, please")
        messages = await messages_of(turn)
        assert [len(text) for text in texts(messages)] == [size]
        assert len((await turn.result()).result or "") == size


# ----------------------------------------------------------------------------------------------------------------- bad things


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        (401, errors.AuthFailed, "exec.cli.auth_failed"),
        (429, errors.RateLimited, "result.rate_limited"),
        (500, errors.APIFailed, "result.server_error"),
        (529, errors.Overloaded, "result.overloaded"),
    ],
)
async def test_an_api_error_is_a_typed_outcome(talk: Talk, status: int, error: type[errors.ResultError], code: str) -> None:
    async with FakeMessagesAPI(replies.error(status)) as api, talk(api) as query:
        turn = await query.send("Hi")
        result = await result_of(turn)
        with pytest.raises(error) as caught:
            result.raise_for_error()
        report = await query.aclose()
    assert (result.outcome.code, caught.value.code, result.outcome.ok) == (code, code, False)
    assert result.assistant_error is not None
    assert (report.ended_by_itself, report.exit_code) == (True, 1)  # the exit code repeats the result; it is no crash


async def test_an_option_that_this_cli_does_not_know_is_named(talk: Talk) -> None:
    async with FakeMessagesAPI() as api:
        query = talk(api, extra_args={"from-the-future": None})
        with pytest.raises(errors.CLIVersionMismatch) as caught:
            await query.start()
    assert caught.value.flag == "--from-the-future"
    assert caught.value.exit_code == 1


async def test_a_session_that_cannot_be_resumed_fails_the_start_at_once(talk: Talk) -> None:
    async with FakeMessagesAPI() as api:
        query = talk(api, resume="12345678-1234-4234-8234-123456789abc")
        with pytest.raises(errors.ResultError) as caught:
            await query.start()
    assert caught.value.code == "result.startup_failed"
    assert "12345678-1234-4234-8234-123456789abc" in caught.value.result.errors[0]


async def test_a_killed_process_is_told_to_everybody(talk: Talk) -> None:
    async with FakeMessagesAPI([replies.gated("never finished", chunks=2)]) as api, talk(api) as query:
        turn = await query.send("Hi")
        await api.wait_at_gate(timeout=PATIENCE)
        assert query.info.pid is not None
        os.kill(query.info.pid, 9)
        with pytest.raises(errors.ProcessError) as caught:
            await result_of(turn)
        assert caught.value.signal == 9
        with pytest.raises(errors.TransportClosed) as closed:
            await query.send("Still there?")
        assert closed.value.signal == 9


@pytest.mark.parametrize("doing", ["idle", "streaming", "running a tool"])
async def test_closing_leaves_no_process(talk: Talk, cli_home: Any, doing: str) -> None:
    script = {
        "idle": ["Fine."],
        "streaming": [replies.gated("never finished", chunks=2)],
        "running a tool": [replies.tool_use("Bash", {"command": "touch running; sleep 300"})],
    }[doing]
    async with FakeMessagesAPI(script) as api:
        query = talk(api, allowed_tools=["Bash"])
        await query.start()
        turn = await query.send("Go")
        if doing == "idle":
            await result_of(turn)
        elif doing == "streaming":
            await api.wait_at_gate(timeout=PATIENCE)
        else:
            with anyio.fail_after(PATIENCE):
                while not (cli_home.project / "running").exists():
                    await anyio.sleep(0.01)
        before = processes_in(cli_home.project)
        assert any("claude" in command for command in before)
        # the CLI gives each of its tool shells a session of its own: the group would not show them
        assert any("sleep 300" in command for command in before) == (doing == "running a tool")
        await query.aclose()
        assert processes_in(cli_home.project) == []


async def test_a_second_process_takes_the_conversation_up(talk: Talk) -> None:
    async with FakeMessagesAPI(["The word is: xyzzy.", "You asked for a word."]) as api:
        async with talk(api) as query:
            await result_of(await query.send("Tell me a word"))
            point = query.resume_point
        assert point is not None
        assert point.last_uuid is not None
        async with talk(api, resume=point.session_id, resume_session_at=point.last_uuid) as query:
            result = (await result_of(await query.send("What did I ask?"))).raise_for_error()
            assert query.resume_point is not None
            assert query.resume_point.session_id == point.session_id
    assert result.result == "You asked for a word."
    assert "xyzzy" in str(api.conversation[1].body["messages"])


async def test_one_shot_ends_by_itself(options: Options) -> None:
    async with FakeMessagesAPI(["Hello."]) as api:
        with anyio.fail_after(PATIENCE):
            messages = [message async for message in ct.query("Hello", options=options(api))]
    assert texts(messages) == ["Hello."]
    assert [message.type for message in messages].count("result") == 1


@pytest.mark.needs("questions of background agents")
async def test_one_shot_waits_for_a_background_agent(options: Options) -> None:
    """A subagent outlives the first result, and wakes the session, which may need its hooks then. [15a]"""
    agent = {"helper": {"description": "helps", "prompt": "You help.", "tools": ["Bash"]}}
    start = replies.tool_use("Agent", {"description": "do it", "prompt": "SUB work", "subagent_type": "helper", "run_in_background": True})

    def answer(request: Any) -> Any:
        if from_subagent(request):
            return "Sub done."
        return start if not request.tool_results and "MAIN" in request.prompt and len(api.conversation) == 1 else "Main says."

    async with FakeMessagesAPI(answer) as api:
        with anyio.fail_after(PATIENCE):
            messages = [message async for message in ct.query("MAIN", options=options(api), agents=agent)]
    results = [message for message in messages if isinstance(message, ct.ResultMessage)]
    assert [result.is_unsolicited for result in results] == [False, True]
