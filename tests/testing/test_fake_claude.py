"""A fake claude is driven by hand here, over plain pipes: what it says must have the shape of the recordings."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from claude_transport.errors import ConfigurationError, UsageError
from claude_transport.testing.fake_claude import PLAYER, FakeClaude
from claude_transport.testing.scenario import Answer, Rule, Scenario, ScriptedTurn
from claude_transport.testing.steps import (
    Assistant,
    AwaitInput,
    AwaitSignal,
    BigLine,
    CloseStdout,
    Delay,
    DieBySignal,
    Emit,
    EmitRaw,
    Exit,
    Flood,
    FoldQueued,
    ForkGrandchild,
    Hang,
    IgnoreSignal,
    Init,
    Noise,
    OnSignal,
    Request,
    Result,
    Stderr,
    StderrFlood,
    StopReading,
    Text,
    ToolUse,
    WaitForFile,
    WaitForInput,
    WriteFile,
)

HERE = Path(__file__).parent
RECORDED_KEYS = json.loads(HERE.joinpath("recorded_frame_keys.json").read_text("utf-8"))
LIMIT_SECONDS = 20  # far more than anything here takes; a hang fails instead of hanging the suite
ONE = "11111111-1111-4111-8111-111111111111"
TWO = "22222222-2222-4222-8222-222222222222"
PARTIAL = "--include-partial-messages"
ASKING = ("--permission-prompt-tool", "stdio")
needs_posix = pytest.mark.skipif(os.name == "nt", reason="signals and sessions are POSIX here")

Frame = dict[str, Any]


class Host:
    """The other end of the fake's pipes."""

    def __init__(self, process: anyio.abc.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self.stdin = process.stdin
        self.stderr = process.stderr
        self.stdout = BufferedByteReceiveStream(process.stdout)

    async def send(self, *frames: Mapping[str, Any]) -> None:
        await self.stdin.send(b"".join(json.dumps(frame).encode() + b"\n" for frame in frames))

    async def say(self, text: str, **fields: Any) -> None:
        await self.send(
            {"type": "user", "message": {"role": "user", "content": text}, "parent_tool_use_id": None, "session_id": "", **fields}
        )

    async def ask(self, subtype: str, request_id: str = "host-1", **fields: Any) -> None:
        await self.send({"type": "control_request", "request_id": request_id, "request": {"subtype": subtype, **fields}})

    async def answer(self, request: Frame, **response: Any) -> None:
        body = {"subtype": "success", "request_id": request["request_id"], "response": response}
        await self.send({"type": "control_response", "response": body})

    async def line(self) -> bytes:
        return await self.stdout.receive_until(b"\n", 1 << 24)

    async def frame(self) -> Frame:
        frame = json.loads(await self.line())
        assert isinstance(frame, dict)
        return frame

    async def until(self, kind: str, subtype: str | None = None) -> list[Frame]:
        """Frames up to and with the first of this kind."""
        frames = [await self.frame()]
        while not is_of(frames[-1], kind, subtype):
            frames.append(await self.frame())
        return frames

    async def end(self) -> tuple[list[Frame], bytes, int]:
        """Closes stdin; what is still written, stderr, and the return code."""
        await self.stdin.aclose()
        return await self.rest()

    async def rest(self) -> tuple[list[Frame], bytes, int]:
        out, errors = await self.rest_of_bytes()
        return [json.loads(line) for line in out.splitlines()], errors, await self.process.wait()

    async def rest_of_bytes(self) -> tuple[bytes, bytes]:
        collected = {"out": b"", "err": b""}

        async def collect(name: str, stream: anyio.abc.ByteReceiveStream) -> None:
            async for chunk in stream:
                collected[name] += chunk

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(collect, "err", self.stderr)
            await collect("out", self.stdout)
        return collected["out"], collected["err"]


@asynccontextmanager
async def hosting(fake: FakeClaude, *flags: str, env: Mapping[str, str] | None = None) -> AsyncIterator[Host]:
    """A run of the fake, ended whatever happens, grandchildren included."""
    with anyio.fail_after(LIMIT_SECONDS):
        process = await anyio.open_process([*fake.command, *flags], env=env)
        async with process:
            try:
                yield Host(process)
            finally:
                if process.returncode is None:
                    process.kill()
                for call in fake.calls():
                    for pid in call.grandchildren:
                        end_process(pid)


@asynccontextmanager
async def playing(scenario: Scenario, *flags: str, env: Mapping[str, str] | None = None) -> AsyncIterator[tuple[Host, FakeClaude]]:
    with FakeClaude(scenario) as fake:
        async with hosting(fake, *flags, env=env) as host:
            yield host, fake


def steps(*played: Any, **changes: Any) -> Scenario:
    return Scenario.turns([played], **changes)


def end_process(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGTERM if os.name == "nt" else signal.SIGKILL)
    except ProcessLookupError:
        pass


def is_of(frame: Frame, kind: str, subtype: str | None = None) -> bool:
    return frame.get("type") == kind and subtype in (None, frame.get("subtype"))


def shapes(frames: Sequence[Frame]) -> list[str]:
    """What a conversation looks like: the kinds of its frames in order."""
    return [shape(frame) for frame in frames]


def shape(frame: Frame) -> str:
    detail = frame.get("subtype") or frame.get("event", {}).get("type") or frame.get("state")
    return f"{frame['type']}/{detail}" if detail else str(frame["type"])


def assert_shaped_like_the_recordings(frames: Sequence[Frame]) -> None:
    for frame in frames:
        kind = "/".join(part for part in (frame["type"], frame.get("subtype") or frame.get("event", {}).get("type")) if part)
        recorded = RECORDED_KEYS[kind]
        known = {*recorded["always"], *recorded["sometimes"]}
        assert set(frame) <= known, f"{kind} has keys that no recording has: {set(frame) - known}"
        assert set(recorded["always"]) <= set(frame), f"{kind} lacks {set(recorded['always']) - set(frame)}"


def recording(name: str) -> Path:
    return HERE / "recordings" / f"{name}.ndjson"


def recorded(name: str) -> list[Frame]:
    rows = [json.loads(line) for line in recording(name).read_text("utf-8").splitlines()]
    return [json.loads(row["line"]) for row in rows if row["dir"] == "out" and "trimmed_from_chars" not in row]


# ------------------------------------------------------------------------------------------------------------- a conversation


async def test_it_answers_initialize_with_what_a_real_cli_says_about_itself() -> None:
    async with playing(Scenario.echo()) as (host, fake):
        await host.ask("initialize", "a-1", hooks=None)
        frame = await host.frame()
        assert frame["response"]["subtype"] == "success"
        assert frame["response"]["request_id"] == "a-1"
        facts = frame["response"]["response"]
        assert facts["pid"] == host.process.pid == fake.calls()[0].pid
        assert facts["claude_code_version"] == "2.1.329"
        assert {"commands", "agents", "models", "account", "capabilities", "output_style", "session_state"} <= set(facts)


async def test_a_prompt_is_echoed_in_frames_shaped_like_the_recordings() -> None:
    async with playing(Scenario.echo()) as (host, _):
        await host.say("Hello there")
        frames, errors, code = await host.end()
        assert shapes(frames) == ["system/init", "assistant", "result/success"]
        assert_shaped_like_the_recordings(frames)
        assert frames[1]["message"]["content"] == [{"type": "text", "text": "Hello there"}]
        assert frames[2]["result"] == "Hello there"
        assert (errors, code) == (b"", 0)


async def test_a_message_with_a_uuid_gets_lifecycle_frames_and_echoes_of_the_uuid() -> None:
    async with playing(Scenario.text("hi")) as (host, _):
        await host.say("x", uuid=ONE)
        frames = await host.until("command_lifecycle")
        frames += await host.until("result")
        frames += await host.until("command_lifecycle")
        states = [frame["state"] for frame in frames if is_of(frame, "command_lifecycle")]
        assert states == ["queued", "started", "completed"]
        assert shapes(frames)[-2:] == ["result/success", "command_lifecycle/completed"]
        assert all(frame["user_message_uuids"] == [ONE] for frame in frames if frame["type"] in ("system", "assistant", "result"))
        assert_shaped_like_the_recordings(frames)


async def test_partial_messages_stream_in_the_order_of_the_recording() -> None:
    async with playing(Scenario.text("Hello world", chunks=["Hel", "lo ", "world"]), PARTIAL) as (host, _):
        await host.say("x", uuid=ONE)
        frames, _, _ = await host.end()
        assert_shaped_like_the_recordings(frames)
        delta = "stream_event/content_block_delta"
        assert shapes(frames)[2:] == [
            "system/init",
            "system/status",
            "stream_event/message_start",
            "stream_event/content_block_start",
            *[delta] * 3,
            "assistant",
            "stream_event/content_block_stop",
            "stream_event/message_delta",
            "stream_event/message_stop",
            "result/success",
            "command_lifecycle/completed",
        ]
        real = shapes(recorded("03_partial_messages"))
        after_the_text = real[real.index("assistant", real.index("assistant") + 1) :]
        assert shapes(frames)[9:13] == after_the_text[:4]
        texts = [frame["event"]["delta"]["text"] for frame in frames if shape(frame) == delta]
        assert texts == ["Hel", "lo ", "world"]


async def test_without_the_flag_nothing_is_streamed() -> None:
    async with playing(Scenario.text("Hello world", chunks=["Hello ", "world"])) as (host, _):
        await host.say("x")
        frames, _, _ = await host.end()
        assert "stream_event" not in {frame["type"] for frame in frames}


async def test_turns_are_played_in_order_and_echo_follows_the_last() -> None:
    turns: list[Any] = ["first", [Text("second"), Result()], ScriptedTurn([Result(text="third")], init=False)]
    async with playing(Scenario.turns(turns)) as (host, _):
        answers = []
        for _ in range(4):
            await host.say("again")
            answers.append((await host.until("result"))[-1])
        assert [answer["result"] for answer in answers] == ["first", "second", "third", "again"]
        assert [answer["result_index"] for answer in answers] == [0, 1, 2, 3]
        assert answers[1]["total_cost_usd"] == pytest.approx(2 * 0.000188)


async def test_a_rule_answers_the_prompts_that_contain_its_words() -> None:
    scenario = Scenario(rules=[Rule(contains="weather", turn=ScriptedTurn([Text("sunny"), Result()]))])
    async with playing(scenario) as (host, _):
        await host.say("The WEATHER please")
        assert (await host.until("result"))[-1]["result"] == "sunny"
        await host.say("thanks")
        assert (await host.until("result"))[-1]["result"] == "thanks"


async def test_two_messages_waiting_at_the_end_of_a_turn_become_one_turn() -> None:
    scenario = steps(WaitForFile("go"), Text("first"), Result())
    async with playing(scenario) as (host, fake):
        await host.say("x")
        await host.until("system", "init")
        await host.say("one", uuid=ONE)
        await host.say("two", uuid=TWO)
        await host.until("command_lifecycle")
        await host.until("command_lifecycle")
        fake.open_gate("go")
        await host.until("result")
        frames = await host.until("result")
        assert frames[-1]["result"] == "one\ntwo"
        assert frames[-1]["user_message_uuids"] == [ONE, TWO]
        assert shapes(frames)[:3] == ["command_lifecycle/started", "command_lifecycle/started", "system/init"]


async def test_unmerged_messages_get_a_turn_each() -> None:
    async with playing(Scenario.echo(merge_queued=False)) as (host, _):
        await host.send(*({"type": "user", "message": {"role": "user", "content": text}} for text in ("a", "b", "c")))
        frames, _, _ = await host.end()
        assert [frame["result"] for frame in frames if frame["type"] == "result"] == ["a", "b", "c"]


async def test_a_queued_message_can_be_folded_into_the_running_turn() -> None:
    scenario = steps(WaitForFile("go"), FoldQueued(), Text("saw both"), Result())
    async with playing(scenario) as (host, fake):
        await host.say("one", uuid=ONE)
        await host.until("system", "init")
        await host.say("two", uuid=TWO)
        await host.until("command_lifecycle")
        fake.open_gate("go")
        frames, _, _ = await host.end()
        assert shapes(frames) == [
            "command_lifecycle/started",
            "assistant",
            "command_lifecycle/completed",
            "result/success",
            "command_lifecycle/completed",
        ]
        assert frames[3]["user_message_uuids"] == [ONE, TWO]
        assert [frame["command_uuid"] for frame in frames if is_of(frame, "command_lifecycle")] == [TWO, TWO, ONE]


async def test_a_repeated_uuid_is_dropped_without_a_word() -> None:
    async with playing(Scenario.echo()) as (host, _):
        await host.say("once", uuid=ONE)
        await host.until("result")
        await host.say("twice", uuid=ONE)
        frames, _, _ = await host.end()
        assert shapes(frames) == ["command_lifecycle/completed"]


async def test_the_session_state_is_told_when_the_environment_asks_for_it() -> None:
    async with playing(Scenario.echo(), env={"CLAUDE_CODE_SDK_READS_SESSION_STATE": "1"}) as (host, _):
        await host.say("x")
        frames, _, _ = await host.end()
        states = [(frame["state"], frame["sdk_host_only"]) for frame in frames if is_of(frame, "system", "session_state_changed")]
        assert states == [("running", True), ("idle", True)]


async def test_user_messages_are_replayed_when_the_flag_is_there() -> None:
    async with playing(Scenario.echo(), "--replay-user-messages") as (host, _):
        await host.say("x", uuid=ONE)
        frames, _, _ = await host.end()
        (replayed,) = [frame for frame in frames if frame["type"] == "user"]
        assert (replayed["uuid"], replayed["isReplay"], replayed["message"]["content"]) == (ONE, True, "x")


async def test_ids_are_the_same_in_every_fake_and_different_in_every_run() -> None:
    async def session_of(fake: FakeClaude, *flags: str) -> str:
        async with hosting(fake, *flags) as host:
            await host.say("x")
            return str((await host.frame())["session_id"])

    with FakeClaude(Scenario.echo()) as first, FakeClaude(Scenario.echo()) as second, FakeClaude(Scenario.echo(seed=1)) as other:
        sessions = [await session_of(first), await session_of(first)]
        assert sessions[0] != sessions[1]
        assert sessions == [await session_of(second), await session_of(second)]
        assert await session_of(other) not in sessions
        assert await session_of(first, "--session-id", ONE) == ONE
        assert await session_of(first, f"--resume={TWO}") == TWO
        assert await session_of(first, f"--resume={TWO}", "--fork-session", f"--session-id={ONE}") == ONE
        assert await session_of(first, f"--resume={TWO}", "--fork-session") not in {ONE, TWO, *sessions}


# ------------------------------------------------------------------------------------------------------------- tools and hooks


async def test_an_allowed_tool_runs_as_in_the_recording() -> None:
    scenario = steps(ToolUse("Bash", input={"command": "echo hi"}, output="hi"), Text("done"), Result())
    async with playing(scenario, *ASKING) as (host, _):
        await host.say("x")
        frames = await host.until("control_request")
        assert frames[-1]["request"]["subtype"] == "can_use_tool"
        assert frames[-1]["request"]["input"] == {"command": "echo hi"}
        await host.answer(frames[-1], behavior="allow", updatedInput={"command": "echo hi"})
        rest, _, code = await host.end()
        assert_shaped_like_the_recordings(frames + rest)
        block = rest[0]["message"]["content"][0]
        assert (block["type"], block["content"], block["is_error"]) == ("tool_result", "hi", False)
        assert block["tool_use_id"] == frames[-1]["request"]["tool_use_id"] == frames[1]["message"]["content"][0]["id"]
        asked = shapes([frame for frame in recorded("04a_permission_allow") if frame["type"] != "control_response"])
        # the recording says a text before its tool use, the rest is the same
        assert shapes(frames + rest) == [asked[0], *asked[2:]]
        assert (rest[-1]["permission_denials"], code) == ([], 0)


async def test_a_denied_tool_is_told_so_and_counted() -> None:
    scenario = steps(ToolUse("Bash", input={"command": "rm"}), Text("done"), Result())
    async with playing(scenario, *ASKING) as (host, _):
        await host.say("x")
        request = (await host.until("control_request"))[-1]
        await host.answer(request, behavior="deny", message="not allowed by test")
        frames, _, code = await host.end()
        block = frames[0]["message"]["content"][0]
        assert (block["content"], block["is_error"]) == ("not allowed by test", True)
        assert frames[0]["tool_use_result"] == "Error: not allowed by test"
        assert [denial["tool_name"] for denial in frames[-1]["permission_denials"]] == ["Bash"]
        assert code == 0


async def test_deny_with_interrupt_ends_the_turn() -> None:
    async with playing(steps(ToolUse("Bash"), Text("never"), Result()), *ASKING) as (host, _):
        await host.say("x")
        request = (await host.until("control_request"))[-1]
        await host.answer(request, behavior="deny", message="stop", interrupt=True)
        frames, _, code = await host.end()
        assert shapes(frames) == ["user", "user", "result/error_during_execution"]
        assert frames[1]["message"]["content"][0]["text"] == "[Request interrupted by user for tool use]"
        assert frames[2]["terminal_reason"] == "aborted_tools"
        assert len(frames[2]["permission_denials"]) == 1
        assert_shaped_like_the_recordings(frames)
        assert code == 1


@pytest.mark.parametrize("answer", [{"foo": "bar"}, {"behavior": "deny"}])
async def test_an_answer_that_is_none_fails_the_tool_and_not_the_turn(answer: dict[str, Any]) -> None:
    async with playing(steps(ToolUse("Bash"), Text("done"), Result()), *ASKING) as (host, _):
        await host.say("x")
        await host.answer((await host.until("control_request"))[-1], **answer)
        frames, _, _ = await host.end()
        assert "invalid permission result" in frames[0]["message"]["content"][0]["content"]
        assert frames[-1]["result"] == "done"


async def test_the_end_of_input_fails_a_pending_permission() -> None:
    async with playing(steps(ToolUse("Bash"), Text("done"), Result()), *ASKING) as (host, _):
        await host.say("x")
        await host.until("control_request")
        frames, _, code = await host.end()
        text = "Tool permission request failed: AbortError: Tool permission stream closed before response received"
        assert frames[0]["message"]["content"][0]["content"] == text
        assert (frames[-1]["result"], code) == ("done", 0)


async def test_without_a_prompt_tool_an_unlisted_tool_is_refused_and_a_listed_one_runs() -> None:
    scenario = Scenario.turns([[ToolUse("Bash", output="out"), Text("done"), Result()]])
    async with playing(scenario) as (host, _):
        await host.say("x")
        frames, _, _ = await host.end()
        assert shapes(frames)[1:4] == ["assistant", "system/permission_denied", "user"]
        assert_shaped_like_the_recordings(frames)
    async with playing(scenario, "--allowedTools", "Read,Bash") as (host, _):
        await host.say("x")
        frames, _, _ = await host.end()
        assert shapes(frames)[1:3] == ["assistant", "user"]
        assert frames[2]["message"]["content"][0]["content"] == "out"


async def test_the_answer_to_a_request_chooses_the_branch() -> None:
    asking = Request(
        {"subtype": "elicitation", "message": "well?"},
        on_success=[Text("yes: {{answer.response.word}}"), Result()],
        on_deny=[Text("denied"), Result()],
        on_error=[Text("error: {{answer.error}}"), Result()],
    )
    async with playing(Scenario.turns([[asking], [asking], [asking]])) as (host, _):
        results = []
        for answer in ({"response": {"word": "blue"}}, {"response": {"behavior": "deny"}}, {"error": "broken"}):
            await host.say("x")
            request = (await host.until("control_request"))[-1]
            body = {"subtype": "error" if "error" in answer else "success", "request_id": request["request_id"], **answer}
            await host.send({"type": "control_response", "response": body})
            results.append((await host.until("result"))[-1]["result"])
        assert results == ["yes: blue", "denied", "error: broken"]


async def test_a_request_that_is_not_answered_in_time_is_withdrawn() -> None:
    asking = Request.can_use_tool("Bash", input={}, timeout=0.01, on_error=[Result(text="gave up")])
    async with playing(steps(asking)) as (host, _):
        await host.say("x")
        frames = await host.until("result")
        assert shapes(frames)[1:] == ["control_request", "control_cancel_request", "result/success"]
        assert frames[1]["request_id"] == frames[2]["request_id"]


async def test_a_hook_is_called_by_the_id_its_host_registered_and_not_at_all_without_one() -> None:
    hook = Request.hook_callback("PreToolUse", payload={"tool_name": "Bash"})
    async with playing(Scenario.turns([[hook, Result()]] * 2)) as (host, _):
        await host.say("x")
        assert "control_request" not in shapes(await host.until("result"))
        await host.ask("initialize", hooks={"PreToolUse": [{"matcher": None, "hookCallbackIds": ["cb-7"]}]})
        await host.until("control_response")
        await host.say("x")
        request = (await host.until("control_request"))[-1]
        assert request["request"]["callback_id"] == "cb-7"
        assert request["request"]["input"]["hook_event_name"] == "PreToolUse"
        assert request["request"]["input"]["session_id"]
        await host.answer(request)
        await host.until("result")


async def test_an_mcp_message_can_come_before_the_answer_to_initialize() -> None:
    handshake = Request.mcp_message("calc", message={"id": 0, "method": "initialize", "params": {}}, wait=False)
    async with playing(Scenario.echo(answers={"initialize": Answer(before=[handshake])})) as (host, _):
        await host.ask("initialize", sdkMcpServers=["calc"])
        frames = await host.until("control_response")
        assert frames[0]["request"]["message"] == {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}}
        await host.ask("mcp_status")
        assert [server["name"] for server in (await host.frame())["response"]["response"]["mcpServers"]] == ["calc"]


# ------------------------------------------------------------------------------------------------------------------ interrupts


async def test_an_interrupted_text_ends_as_in_the_recording() -> None:
    async with playing(steps(Text("said unsaid", chunks=["said ", "unsaid"], gate="never"), Result()), PARTIAL) as (host, _):
        await host.say("x", uuid=ONE)
        while shape(await host.frame()) != "stream_event/content_block_delta":
            pass
        await host.ask("interrupt", "int-1")
        frames = await host.until("command_lifecycle")
        assert frames[0]["response"] == {"subtype": "success", "request_id": "int-1", "response": {"still_queued": []}}
        assert_shaped_like_the_recordings(frames)
        real = recorded("07a_interrupt_during_stream")
        start = [frame["response"]["request_id"] if is_of(frame, "control_response") else "" for frame in real].index("int-1")
        assert shapes(frames) == shapes(real[start : start + 8])
        assert (frames[1]["aborted"], frames[1]["message"]["content"][0]["text"]) == (True, "said ")
        assert frames[-2]["terminal_reason"] == "aborted_streaming"
        assert frames[-2]["is_error"] is True


async def test_an_interrupt_before_the_first_word_repeats_nothing() -> None:
    async with playing(steps(WaitForFile("never"))) as (host, _):
        await host.say("x")
        await host.until("system", "init")
        await host.ask("interrupt")
        frames, _, code = await host.end()
        assert shapes(frames) == ["control_response", "user", "result/error_during_execution"]
        assert frames[1]["message"]["content"][0]["text"] == "[Request interrupted by user]"
        assert code == 1


async def test_an_interrupt_during_a_permission_withdraws_it_first() -> None:
    async with playing(steps(ToolUse("Bash"), Result()), *ASKING) as (host, _):
        await host.say("x")
        request = (await host.until("control_request"))[-1]
        await host.ask("interrupt")
        frames = await host.until("result")
        assert shapes(frames) == ["control_cancel_request", "control_response", "user", "user", "result/error_during_execution"]
        assert frames[0]["request_id"] == request["request_id"]
        assert frames[-1]["terminal_reason"] == "aborted_tools"
        assert_shaped_like_the_recordings(frames)
        await host.answer(request, behavior="allow")  # too late, and ignored
        await host.say("next")
        assert (await host.until("result"))[-1]["result"] == "next"


async def test_an_interrupt_of_nothing_succeeds() -> None:
    async with playing(Scenario.echo()) as (host, _):
        await host.ask("interrupt")
        assert (await host.frame())["response"]["response"] == {"still_queued": []}
        await host.say("x")
        assert (await host.until("result"))[-1]["is_error"] is False


async def test_an_interrupt_can_cancel_what_is_queued() -> None:
    async with playing(steps(WaitForFile("never"))) as (host, _):
        await host.say("x", uuid=ONE)
        await host.until("system", "init")
        await host.say("y", uuid=TWO)
        await host.until("command_lifecycle")
        await host.ask("interrupt", cancel_queued=True)
        frames, _, _ = await host.end()
        assert shapes(frames)[:2] == ["command_lifecycle/cancelled", "control_response"]
        assert frames[1]["response"]["response"] == {"still_queued": [], "cancelled": [TWO]}
        assert len([frame for frame in frames if frame["type"] == "result"]) == 1


async def test_an_urgent_message_aborts_the_turn_without_failing_it() -> None:
    async with playing(steps(WaitForFile("never"))) as (host, _):
        await host.say("x", uuid=ONE)
        await host.until("system", "init")
        await host.say("urgent", uuid=TWO, priority="now")
        frames, _, code = await host.end()
        results = [frame for frame in frames if frame["type"] == "result"]
        assert [(frame["is_error"], frame["terminal_reason"]) for frame in results] == [(False, "aborted_streaming"), (False, "completed")]
        assert code == 0


# ------------------------------------------------------------------------------------------------------------ control requests


@pytest.mark.parametrize(
    ("subtype", "fields", "expected"),
    [
        ("mcp_status", {}, {"mcpServers": []}),
        ("set_max_thinking_tokens", {"max_thinking_tokens": 5}, None),
        ("mcp_set_servers", {"servers": {}}, {"added": [], "removed": [], "errors": {}}),
        ("cancel_async_message", {"message_uuid": "x"}, {"cancelled": False}),
        ("stop_task", {"task_id": "x"}, {}),
    ],
)
async def test_small_requests_get_their_recorded_answer(subtype: str, fields: dict[str, Any], expected: dict[str, Any] | None) -> None:
    async with playing(Scenario.echo()) as (host, _):
        await host.ask(subtype, **fields)
        response = (await host.frame())["response"]
        assert response["subtype"] == "success"
        assert response.get("response") == expected


async def test_set_model_shows_a_replayed_message_before_its_answer() -> None:
    async with playing(Scenario.echo()) as (host, _):
        await host.ask("set_model", model="no-such-model")
        frames = [await host.frame(), await host.frame()]
        assert shapes(frames) == ["user", "control_response"]
        assert frames[0]["isReplay"] is True
        assert frames[1]["response"]["response"] == {"model": "no-such-model"}
        await host.ask("set_model", model=None)
        assert (await host.until("control_response"))[-1]["response"]["response"] == {"model": "claude-opus-5-5"}


async def test_set_permission_mode_is_followed_by_a_status_frame() -> None:
    async with playing(Scenario.echo()) as (host, _):
        await host.ask("set_permission_mode", mode="plan")
        frames = [await host.frame(), await host.frame()]
        assert frames[0]["response"]["response"] == {"mode": "plan"}
        assert (frames[1]["status"], frames[1]["permissionMode"]) == (None, "plan")
        assert_shaped_like_the_recordings(frames)


@pytest.mark.parametrize(
    ("mode", "code"),
    [("nonsense", "invalid_mode"), ("bypassPermissions", "bypass_not_launched")],
)
async def test_a_mode_that_cannot_be_set_is_refused_with_its_code(mode: str, code: str) -> None:
    async with playing(Scenario.echo()) as (host, _):
        await host.ask("set_permission_mode", mode=mode)
        response = (await host.frame())["response"]
        assert (response["subtype"], response["error_code"]) == ("error", code)


async def test_an_unknown_request_is_refused_in_the_words_of_the_cli() -> None:
    async with playing(Scenario.echo()) as (host, _):
        await host.ask("ping", "q")
        assert (await host.frame())["response"] == {
            "subtype": "error",
            "request_id": "q",
            "error": "Unsupported control request subtype: ping",
            "error_code": "unsupported_request",
        }


async def test_requests_are_answered_while_a_turn_runs() -> None:
    async with playing(steps(WaitForFile("go"), Result(text="over"))) as (host, fake):
        await host.say("x")
        await host.until("system", "init")
        await host.ask("get_context_usage", detail="summary")
        assert (await host.frame())["response"]["response"]["maxTokens"] == 1_000_000
        await host.ask("get_settings")
        answer = (await host.frame())["response"]["response"]
        assert (answer["effective"], answer["sources"], answer["applied"]["effort"]) == ({}, [], "medium")
        fake.open_gate("go")
        assert (await host.frame())["result"] == "over"


async def test_a_queued_message_can_be_cancelled() -> None:
    async with playing(steps(WaitForFile("go"), Result(text="over"))) as (host, fake):
        await host.say("x")
        await host.until("system", "init")
        await host.say("y", uuid=ONE)
        await host.until("command_lifecycle")
        await host.ask("cancel_async_message", message_uuid=ONE)
        frames = await host.until("control_response")
        assert shapes(frames) == ["command_lifecycle/cancelled", "control_response"]
        assert frames[1]["response"]["response"] == {"cancelled": True, "message_uuid": ONE}
        fake.open_gate("go")
        frames, _, _ = await host.end()
        assert [frame["result"] for frame in frames] == ["over"]


async def test_end_session_ends_the_process_while_stdin_is_open() -> None:
    async with playing(steps(WaitForFile("never"))) as (host, _):
        await host.say("x")
        await host.until("system", "init")
        await host.ask("end_session")
        frames, _, code = await host.rest()
        assert shapes(frames) == ["control_response", "user", "result/error_during_execution"]
        assert code == 1


async def test_initialize_can_be_refused_delayed_or_left_unanswered() -> None:
    async with playing(Scenario.echo(answers={"initialize": Answer(error="no", error_code="nope")})) as (host, _):
        await host.ask("initialize")
        response = (await host.frame())["response"]
        assert (response["error"], response["error_code"]) == ("no", "nope")
    async with playing(Scenario.echo(answers={"initialize": Answer(delay=0.01, response={"claude_code_version": "9.9.9"})})) as (host, _):
        await host.ask("initialize")
        facts = (await host.frame())["response"]["response"]
        assert facts["claude_code_version"] == "9.9.9"
        assert facts["models"]
    async with playing(Scenario.echo(answers={"initialize": Answer(never=True)})) as (host, _):
        await host.ask("initialize")
        await host.ask("mcp_status", "after")
        assert (await host.frame())["response"]["request_id"] == "after"


async def test_a_scenario_can_answer_a_request_that_the_fake_does_not_know() -> None:
    async with playing(Scenario.echo(answers={"get_plan": Answer(response={"exists": True})})) as (host, _):
        await host.ask("get_plan")
        assert (await host.frame())["response"]["response"] == {"exists": True}


# ------------------------------------------------------------------------------------------------------------ input it refuses


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"type":"user", broken\n', b"Error parsing streaming input line (type=user, 22 chars): SyntaxError\n"),
        (b"hello there\n", b"Error parsing streaming input line (type=unknown, 11 chars): SyntaxError\n"),
        (b'{"type":"user"}\n', b"Error: Expected message role 'user', got 'undefined'\n"),
        (b'{"type":"user","message":{"role":"assistant","content":"x"}}\n', b"Error: Expected message role 'user', got 'assistant'\n"),
        (b'{"type":"control_request","request_id":"a"}\n', b"Error: Missing request on control_request\n"),
    ],
)
async def test_input_that_the_cli_cannot_take_ends_it_with_a_line_on_stderr(line: bytes, message: bytes) -> None:
    async with playing(Scenario.echo()) as (host, _):
        await host.stdin.send(line)
        assert await host.rest() == ([], message, 1)


async def test_json_that_says_nothing_is_ignored_and_a_last_line_without_newline_is_taken() -> None:
    async with playing(Scenario.echo()) as (host, _):
        await host.stdin.send(b'[1]\n7\n\n  \r\n{"no":"type"}\n{"type":"keep_alive"}\n{"type":"system"}\n')
        await host.stdin.send(b'{"type":"user","message":{"role":"user","content":[{"type":"text","text":"last"}]}}')
        frames, errors, code = await host.end()
        assert (frames[-1]["result"], errors, code) == ("last", b"", 0)


async def test_no_input_means_no_output() -> None:
    async with playing(Scenario.echo()) as (host, _):
        assert await host.end() == ([], b"", 0)


# -------------------------------------------------------------------------------------------------------- what else can be said


async def test_emitted_frames_get_their_placeholders_and_ids() -> None:
    message = {
        "type": "system",
        "subtype": "x",
        "n": "{{result_index}}",
        "who": "<{{user_uuid}}>",
        "said": "{{prompt}}",
        "odd": "{{ nothing }} {{open}}nothing}}",
    }
    bare = Emit({"type": "keep_alive"})
    exact = Emit({"type": "system"}, complete=False)
    async with playing(steps(Emit(message), bare, exact)) as (host, _):
        await host.say("hello", uuid=ONE)
        frames, _, _ = await host.end()
        first, second, third = frames[3:6]
        assert (first["n"], first["who"], first["said"], first["odd"]) == (0, f"<{ONE}>", "hello", "{{ nothing }} {{nothing}}")
        assert first["session_id"] == frames[2]["session_id"]
        assert first["uuid"]
        assert (second, third) == ({"type": "keep_alive"}, {"type": "system"})


async def test_raw_bytes_noise_and_big_lines_arrive_as_they_are() -> None:
    raw = EmitRaw(b'\xff\xfe{"half', chunk_size=1)
    async with playing(Scenario(startup=[Noise(), raw, Noise(""), BigLine(70_000), EmitRaw(b"tail"), Exit(3)])) as (host, _):
        out, errors = await host.rest_of_bytes()
        noise, half, big, tail = out.split(b"\n")
        assert noise == b"[SandboxDebug] not a frame"
        assert half == b'\xff\xfe{"half'
        assert len(big) + 1 == 70_000
        assert json.loads(big)["type"] == "assistant"
        assert tail == b"tail"
        assert errors == b""
        assert await host.process.wait() == 3


async def test_everything_can_be_cut_into_small_writes() -> None:
    async with playing(Scenario.text("é😀\u2028", chunk_size=3)) as (host, _):
        await host.say("x")
        await host.stdin.aclose()
        out, _ = await host.rest_of_bytes()
        assert json.loads(out.splitlines()[-1])["result"] == "é😀\u2028"
        assert "é😀\\u2028".encode() in out  # as the CLI spells it


async def test_a_flood_is_many_valid_frames_before_any_input_is_read() -> None:
    async with playing(Scenario.echo(startup=[Flood(1 << 20)])) as (host, _):
        frames, _, _ = await host.end()
        assert sum(len(json.dumps(frame, separators=(",", ":"))) + 1 for frame in frames) >= 1 << 20
        assert set(shapes(frames)) == {"stream_event/content_block_delta"}
        assert_shaped_like_the_recordings(frames[:1])


async def test_stderr_can_speak_and_flood() -> None:
    async with playing(Scenario(startup=[Stderr("one\n"), StderrFlood(300_000), StderrFlood(9, line_size=None)])) as (host, _):
        frames, errors, code = await host.end()
        assert (frames, code) == ([], 0)
        assert errors.startswith(b"one\n" + b"e" * 79 + b"\n")
        assert len(errors) == 4 + 300_000 + 9


async def test_assistant_frames_can_carry_several_blocks_and_an_error() -> None:
    blocks = [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "API Error: 529"}]
    failed = Result(is_error=True, terminal_reason="api_error", api_error_status=529)
    async with playing(steps(Assistant(blocks, model="<synthetic>", extra={"error": "server_error"}), failed)) as (host, _):
        await host.say("x", uuid=ONE)
        frames, _, code = await host.end()
        frames = [frame for frame in frames if frame["type"] != "command_lifecycle"]
        assert [frame["message"]["content"][0]["type"] for frame in frames[1:3]] == ["thinking", "text"]
        assert frames[1]["message"]["id"] == frames[2]["message"]["id"]
        assert frames[2]["error"] == "server_error"
        # the first frame of its kind names the message it answers, the next ones do not (recording 10f)
        assert [frame.get("user_message_uuids") for frame in frames[1:3]] == [[ONE], None]
        assert (frames[3]["subtype"], frames[3]["is_error"], frames[3]["result"]) == ("success", True, "API Error: 529")
        assert_shaped_like_the_recordings(frames)
        assert code == 1


async def test_a_good_result_after_a_bad_one_exits_with_0() -> None:
    bad = Result(subtype="error_max_turns", is_error=True, errors=["Reached maximum number of turns (2)"])
    async with playing(Scenario.turns([[bad], "good"])) as (host, _):
        await host.say("x")
        frames = await host.until("result")
        assert frames[-1]["errors"] == ["Reached maximum number of turns (2)"]
        assert "result" not in frames[-1]
        assert_shaped_like_the_recordings(frames)
        await host.say("x")
        assert (await host.end())[2] == 0


async def test_a_turn_may_end_without_a_result_and_the_process_with_any_code() -> None:
    turn = ScriptedTurn([Init(), Text("and then")], init=False, result=False)
    async with playing(Scenario.turns([turn], exit_code=9)) as (host, _):
        await host.say("x")
        frames, _, code = await host.end()
        assert shapes(frames) == ["system/init", "assistant"]
        assert code == 9


# -------------------------------------------------------------------------------------------------------- waiting and the end


async def test_a_step_can_wait_for_an_input() -> None:
    async with playing(steps(WaitForInput("control_request", subtype="mcp_status"), Result(text="seen"))) as (host, _):
        await host.say("x")
        await host.until("system", "init")
        await host.ask("get_binary_version")
        assert shape(await host.frame()) == "control_response"
        await host.ask("mcp_status")
        assert shapes([await host.frame(), await host.frame()]) == ["control_response", "result/success"]


async def test_a_transcript_can_be_flushed_after_the_end_of_input() -> None:
    scenario = Scenario.echo(at_eof=[WaitForFile("go"), Delay(0.01), WriteFile("transcript.jsonl", text="said {{text}}\n")])
    async with playing(scenario) as (host, fake):
        await host.stdin.aclose()
        transcript = fake.directory / "transcript.jsonl"
        assert not transcript.exists()
        fake.open_gate("go")
        await host.rest()
        assert transcript.read_text() == "said \n"


@needs_posix
async def test_it_can_refuse_to_exit_after_the_end_of_input() -> None:
    async with playing(Scenario.echo(at_eof=[Noise("input is over"), Hang()])) as (host, fake):
        await host.stdin.aclose()
        assert await host.line() == b"input is over"
        host.process.terminate()
        assert await host.process.wait() == 143
        assert (fake.calls()[0].signals, fake.calls()[0].exit_code) == ([signal.SIGTERM], 143)


@needs_posix
async def test_sigterm_ends_it_at_once_even_in_a_write_that_nobody_reads() -> None:
    async with playing(Scenario(startup=[Noise("up"), Flood(1 << 22)])) as (host, _):
        assert await host.line() == b"up"
        host.process.terminate()
        assert await host.process.wait() == 143


@needs_posix
async def test_ignored_signals_are_only_noted() -> None:
    async with playing(Scenario.echo(startup=[IgnoreSignal("SIGTERM"), IgnoreSignal("SIGINT"), Noise("up")])) as (host, fake):
        assert await host.line() == b"up"
        host.process.terminate()
        host.process.send_signal(signal.SIGINT)
        await host.say("still there?")
        frames, _, code = await host.end()
        assert (frames[-1]["result"], code) == ("still there?", 0)
        assert sorted(fake.calls()[0].signals) == sorted([signal.SIGTERM, signal.SIGINT])


@needs_posix
async def test_last_words_can_be_said_on_sigterm() -> None:
    last_words = OnSignal("SIGTERM", steps=[Noise("goodbye"), Exit(7)])
    async with playing(Scenario.echo(startup=[last_words, Noise("up")])) as (host, _):
        assert await host.line() == b"up"
        host.process.terminate()
        assert await host.line() == b"goodbye"
        assert await host.process.wait() == 7


@needs_posix
async def test_a_step_can_wait_for_a_signal() -> None:
    async with playing(Scenario(script=[Noise("up"), AwaitSignal("SIGHUP"), Noise("came"), Exit(0)])) as (host, _):
        assert await host.line() == b"up"
        host.process.send_signal(signal.SIGHUP)
        assert await host.line() == b"came"
        assert await host.process.wait() == 0


@needs_posix
async def test_sigint_aborts_the_turn_with_a_result_and_exits_with_0() -> None:
    async with playing(steps(WaitForFile("never"))) as (host, _):
        await host.say("x")
        await host.until("system", "init")
        host.process.send_signal(signal.SIGINT)
        frames, _, code = await host.rest()
        assert shapes(frames) == ["user", "result/error_during_execution"]
        assert code == 0


@needs_posix
async def test_it_can_die_by_a_signal() -> None:
    async with playing(steps(DieBySignal("SIGKILL"))) as (host, fake):
        await host.say("x")
        _, _, code = await host.end()
        assert code == -signal.SIGKILL
        assert (fake.calls()[0].exit_code, fake.calls()[0].killed_by) == (None, signal.SIGKILL)


@needs_posix
@pytest.mark.parametrize("own_session", [True, False])
async def test_a_grandchild_outlives_it_and_is_in_the_journal(own_session: bool) -> None:
    async with playing(Scenario(startup=[ForkGrandchild(600, own_session=own_session)])) as (host, fake):
        _, _, code = await host.end()
        (pid,) = fake.calls()[0].grandchildren
        assert code == 0
        assert (os.getsid(pid) == pid) is own_session
        assert os.getpgid(pid) == (pid if own_session else os.getpgid(0))


@needs_posix
async def test_a_grandchild_can_keep_stdout_open() -> None:
    async with playing(Scenario(startup=[ForkGrandchild(600, holds_stdout=True), Exit(0)])) as (host, fake):
        assert await host.process.wait() == 0
        with anyio.move_on_after(0.05) as waiting:
            await host.rest_of_bytes()
        assert waiting.cancelled_caught, "stdout ended although the grandchild holds it"
        (pid,) = fake.calls()[0].grandchildren
        end_process(pid)
        await host.rest_of_bytes()


async def test_stdout_can_be_closed_while_it_lives() -> None:
    async with playing(Scenario.echo(startup=[Noise("bye"), CloseStdout()])) as (host, fake):
        assert await host.line() == b"bye"
        with pytest.raises(anyio.IncompleteRead):
            await host.line()
        assert host.process.returncode is None
        await host.say("nobody hears this")
        await host.stdin.aclose()
        assert await host.process.wait() == 0
        assert fake.calls()[0].prompts == ["nobody hears this"]


async def test_a_host_that_closes_stdout_does_not_end_it() -> None:
    async with playing(Scenario.echo()) as (host, _):
        await host.ask("mcp_status")
        await host.frame()
        await host.stdout.aclose()
        await host.say("x")
        await host.stdin.aclose()
        assert await host.process.wait() == 0


async def test_a_writer_meets_a_full_pipe_when_it_stops_reading() -> None:
    async with playing(Scenario(startup=[StopReading(), Noise("deaf")])) as (host, _):
        assert await host.line() == b"deaf"
        sent = 0
        with anyio.move_on_after(0.5):
            while sent < 1 << 24:
                await host.stdin.send(b"x" * (1 << 16))
                sent += 1 << 16
        assert sent < 1 << 24


# -------------------------------------------------------------------------------------------------------- the simulated Claude


async def test_the_simulated_claude_is_labelled_quotes_the_prompt_and_costs_nothing() -> None:
    async with playing(Scenario.simulated(pace=0.0), PARTIAL) as (host, _):
        await host.say("What is 2 + 2?")
        frames, _, code = await host.end()
        result = frames[-1]
        assert result["result"].startswith("[simulated] ")
        assert "“What is 2 + 2?”" in result["result"]
        assert (result["total_cost_usd"], result["usage"]["input_tokens"], result["usage"]["output_tokens"]) == (0, 0, 0)
        deltas = [frame["event"]["delta"]["text"] for frame in frames if shape(frame) == "stream_event/content_block_delta"]
        assert "".join(deltas) == result["result"]
        assert all(" " not in delta[:-1] for delta in deltas)
        assert_shaped_like_the_recordings(frames)
        assert code == 0


def test_the_simulated_claude_never_plans_to_take_longer_than_a_second_and_a_half() -> None:
    scenario = Scenario.simulated()
    for turn in (scenario.otherwise, *(rule.turn for rule in scenario.rules)):
        assert isinstance(turn, ScriptedTurn)
        assert sum(step.at_most or 0.0 for step in turn.steps if isinstance(step, Text)) < 1.5


@pytest.mark.parametrize(("answer", "content"), [({"behavior": "allow"}, "hello"), ({"behavior": "deny", "message": "no"}, "no")])
async def test_the_simulated_claude_asks_before_it_uses_a_tool(answer: dict[str, Any], content: str) -> None:
    async with playing(Scenario.simulated(pace=0.0), *ASKING) as (host, _):
        await host.say("Please use a tool for me")
        request = (await host.until("control_request"))[-1]
        assert (request["request"]["tool_name"], request["request"]["input"]["command"]) == ("Bash", "echo hello")
        await host.answer(request, **answer)
        frames, _, _ = await host.end()
        assert frames[0]["message"]["content"][0]["content"] == content
        assert frames[-1]["is_error"] is False


async def test_the_simulated_claude_can_show_an_error() -> None:
    async with playing(Scenario.simulated(pace=0.0)) as (host, _):
        await host.say("simulate an error")
        frames, _, code = await host.end()
        assert (frames[-2]["error"], frames[-1]["api_error_status"], code) == ("rate_limit", 429, 1)
        assert_shaped_like_the_recordings(frames)


# ------------------------------------------------------------------------------------------------------------------ recordings


async def test_a_recording_is_replayed_line_by_line_with_the_ids_of_this_host() -> None:
    async with playing(Scenario.from_recording(recording("04a_permission_allow"))) as (host, _):
        await host.ask("initialize", "mine-1")
        first = await host.frame()
        assert (first["response"]["request_id"], first["response"]["response"]["pid"]) == ("mine-1", host.process.pid)
        await host.say("BASH")
        frames = await host.until("control_request")
        await host.answer(frames[-1], behavior="allow")
        rest, _, code = await host.end()
        assert frames + rest == recorded("04a_permission_allow")
        assert code == 0


async def test_a_replayed_interrupt_waits_for_an_interrupt() -> None:
    async with playing(Scenario.from_recording(recording("07a_interrupt_during_stream"))) as (host, _):
        await host.ask("initialize", "i")
        await host.say("go", uuid=ONE)
        await host.until("stream_event")
        await host.ask("interrupt", "other-id")
        frames = await host.until("result")
        (answer,) = [frame["response"] for frame in frames if is_of(frame, "control_response") and frame["response"]["request_id"] != "i"]
        assert answer == {"subtype": "success", "request_id": "other-id", "response": {"still_queued": []}}
        assert frames[-1]["terminal_reason"] == "aborted_streaming"
        await host.say("after interrupt")
        rest, _, code = await host.end()
        assert (shape(rest[-1]), code) == ("result/success", 0)


async def test_a_request_that_the_recording_lacks_gets_the_usual_answer() -> None:
    async with playing(Scenario.from_recording(recording("04a_permission_allow"))) as (host, _):
        await host.ask("mcp_status", "extra")
        assert (await host.frame())["response"]["request_id"] == "extra"
        frames, _, code = await host.end()
        assert (frames, code) == ([], 0)


async def test_a_replayed_failure_has_its_stderr_and_exit_code() -> None:
    async with playing(Scenario.from_recording(recording("18a_malformed_json"))) as (host, _):
        await host.ask("initialize")
        await host.frame()
        await host.stdin.send(b"{broken\n")
        frames, errors, code = await host.rest()
        assert (frames, code) == ([], 1)
        assert errors == b"Error parsing streaming input line (type=user, 22 chars): SyntaxError\n"


@needs_posix
async def test_a_replayed_death_waits_for_the_signal_that_caused_it() -> None:
    async with playing(Scenario.from_recording(recording("20a_sigterm_mid_stream"))) as (host, _):
        await host.ask("initialize")
        await host.say("SLOWSTREAM")
        await host.until("system", "init")
        host.process.terminate()
        assert (await host.rest())[2] == 143


@pytest.mark.parametrize("content", ["", "not json\n", '{"dir": "out"}\n', "[]\n"])
def test_what_is_no_recording_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "broken.ndjson"
    path.write_text(content)
    with pytest.raises(ConfigurationError, match=r"broken\.ndjson"):
        Scenario.from_recording(path)


def test_a_recording_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="not a readable recording"):
        Scenario.from_recording(tmp_path / "nothing.ndjson")


def test_input_that_the_cli_ignored_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "ignored.ndjson"
    path.write_text("".join(json.dumps({"t": 0, "dir": "in", "line": line}) + "\n" for line in ("[1]", "7", "  ", '{"type":"user"}')))
    assert Scenario.from_recording(path).script == (AwaitInput(type="user"),)


def test_trimmed_lines_are_replaced_by_small_frames_of_their_type(tmp_path: Path) -> None:
    path = tmp_path / "trimmed.ndjson"
    lines = [
        '{"type":"assistant","message":{"id"',
        '{"duration_api_ms":1,"stop_reason"',
        '{"type":"transcript_mirror","filePath":"/h',
        '{"type":"system","subtype":"commands_changed","commands":[',
        '{"type":"control_response","response":{"subtype":"success","request_id":"q","response":{"x',
    ]
    path.write_text("".join(json.dumps({"t": 0, "dir": "out", "line": line, "trimmed_from_chars": 9999}) + "\n" for line in lines))
    script = Scenario.from_recording(path).script
    assert script is not None
    frames = [json.loads(step.line) for step in script]  # type: ignore[union-attr] # pyright: ignore[reportAttributeAccessIssue]
    assert shapes(frames) == ["assistant", "result/success", "transcript_mirror", "system/commands_changed", "control_response"]


# ------------------------------------------------------------------------------------------------- the executable, the journal


def run(command: Sequence[str | Path], given: bytes = b"", **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, input=given, capture_output=True, timeout=LIMIT_SECONDS, check=False, **options)


USER_LINE = b'{"type":"user","message":{"role":"user","content":"hi"}}\n'


def test_its_path_is_a_private_executable_that_goes_away() -> None:
    with FakeClaude(Scenario.echo()) as fake:
        path, directory = fake.path, fake.directory
        if os.name != "nt":
            assert stat.S_IMODE(path.stat().st_mode) == 0o700
            assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        done = run([path, "--output-format", "stream-json", "--verbose"], USER_LINE)
        assert (json.loads(done.stdout.splitlines()[-1])["result"], done.stderr, done.returncode) == ("hi", b"", 0)
    assert not directory.exists()


def test_a_closed_fake_says_so_and_can_be_closed_again() -> None:
    fake = FakeClaude(Scenario.echo())
    command = fake.command
    fake.close()
    fake.close()
    with pytest.raises(UsageError, match="closed"):
        _ = fake.command
    done = run(command)
    assert done.returncode == 70
    assert b"keep the FakeClaude open" in done.stderr


def test_its_command_outlives_the_object_it_was_taken_from() -> None:
    command = FakeClaude(Scenario.text("still here")).command
    assert b"still here" in run(command, USER_LINE).stdout


def test_the_journal_tells_every_run_apart() -> None:
    with FakeClaude(Scenario.echo(), record_env=["COLOUR", "ABSENT"]) as fake:
        assert fake.calls() == []
        run([*fake.command, "--model", "haiku"], USER_LINE, env={"COLOUR": "blue", "SECRET": "s3cr3t"})
        run([*fake.command], b"\xff\n")
        first, second = fake.calls()
        assert first.argv == ["--model", "haiku"]
        assert first.env == {"COLOUR": "blue"}
        assert {"COLOUR", "SECRET"} <= set(first.env_names)
        assert "s3cr3t" not in "".join(path.read_text() for path in fake.directory.rglob("*.ndjson"))
        assert (first.prompts, first.exit_code) == (["hi"], 0)
        assert (second.argv, second.stdin, second.messages, second.exit_code) == ([], ["\\xff"], [], 1)
        assert first.pid != second.pid
        assert first.cwd == str(Path.cwd())


def test_the_journal_finds_requests_by_their_subtype() -> None:
    with FakeClaude(Scenario.echo()) as fake:
        run(fake.command, b'{"type":"control_request","request_id":"1","request":{"subtype":"initialize","title":"t"}}\n')
        (call,) = fake.calls()
        assert call.requests("initialize") == [{"subtype": "initialize", "title": "t"}]
        assert call.requests("interrupt") == []


def test_it_knows_its_version() -> None:
    with FakeClaude(Scenario.echo()) as fake:
        assert run([fake.path, "--version"]).stdout == b"2.1.329 (Claude Code)\n"
        assert [(call.argv, call.exit_code) for call in fake.calls()] == [(["--version"], 0)]


def test_only_a_scenario_can_be_played() -> None:
    with pytest.raises(ConfigurationError, match="dict is not a Scenario"):
        FakeClaude({})  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def test_the_process_imports_nothing_that_is_slow() -> None:
    with FakeClaude(Scenario.echo()) as fake:
        command = fake.command
        done = run([command[0], "-X", "importtime", *command[1:]], USER_LINE)
        imported = {line.rsplit(b"|", 1)[-1].strip().decode() for line in done.stderr.splitlines() if line.startswith(b"import time:")}
        assert "fake_claude_process.session" in imported
        slow = {
            "anyio",
            "asyncio",
            "claude_transport",
            "dataclasses",
            "inspect",
            "msgspec",
            "pathlib",
            "site",
            "subprocess",
            "threading",
            "typing",
            "uuid",
        }
        assert not imported & slow


def test_the_player_lies_beside_its_maker() -> None:
    assert PLAYER.is_file()


# ------------------------------------------------------------------------------------------------------------ scenario as data


def test_a_scenario_survives_its_json() -> None:
    scenario = Scenario(
        replies=[ScriptedTurn([Request({"subtype": "elicitation"}, on_success=[EmitRaw(b"\xff")], on_deny=[Delay(1.0)])])],
        rules=[Rule(contains="x", turn=ScriptedTurn([OnSignal("SIGTERM", steps=[Exit(1)])]))],
        answers={"initialize": Answer(never=True)},
    )
    text = scenario.to_json()
    assert Scenario.from_json(text).to_json() == text
    assert b'"step": "request"' in text


@pytest.mark.parametrize("text", ["[]", "{", '{"replies": [{"steps": [{"step": "dance"}]}]}', '{"unknown": 1}'])
def test_json_that_is_no_scenario_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="not a scenario"):
        Scenario.from_json(text)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Delay(-1.0),
        lambda: Flood(-1),
        lambda: BigLine(3),
        lambda: EmitRaw(b"", chunk_size=0),
        lambda: IgnoreSignal("SIGNONSENSE"),
        lambda: Request({}),
        lambda: Text("ab", chunks=["a"]),
        lambda: Scenario(chunk_size=0),
    ],
)
def test_a_step_that_makes_no_sense_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ConfigurationError):
        make()


def test_waiting_for_a_pipe_works_without_select() -> None:
    # the way of systems whose select() takes sockets only, tried here on whatever system this is
    code = (
        "import os, sys; sys.path.append(sys.argv[1])\n"
        "from fake_claude_process.stdio import ThreadedPipe\n"
        "reading, writing = os.pipe(); pipe = ThreadedPipe(reading)\n"
        "assert pipe.read(0.01) is None\n"
        "os.write(writing, b'one'); assert pipe.read(10) == b'one'\n"
        "os.write(writing, b'two'); os.close(writing); assert pipe.read(None) == b'two'; assert pipe.read(10) == b''\n"
        "print('all there')"
    )
    done = run([sys.executable, "-I", "-S", "-c", code, str(PLAYER.parent.parent)])
    assert (done.stdout.strip(), done.stderr) == (b"all there", b"")
