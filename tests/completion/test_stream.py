"""`stream()`: pieces of text on both paths that add up, an end however it is left, and nothing behind it."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from call_errors import Waits

import claude_transport as ct
from claude_transport.testing import FakeClaude, FakeMessagesAPI, Scenario, replies, steps
from claude_transport.testing.scenario import ScriptedTurn

CHUNKS = ["one ", "two ", "three"]
linux_only = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")


@pytest.fixture(params=["cli", "api"])
def path(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class World:
    """Both paths, each with a script that says the same; and a gate before the last word of an answer that has one."""

    def __init__(self, path: str, api: FakeMessagesAPI, make: Callable[..., FakeClaude]) -> None:
        self.path = path
        self._api = api
        self._make = make
        self._fakes: list[FakeClaude] = []

    def stream(self, *, gated: bool = False, deeds: Any = None, reply: Any = None, **arguments: Any) -> ct.completion.CompletionStream:
        text = "".join(CHUNKS)
        if self.path == "api":
            self._api.replace(
                reply or (replies.gated(text, chunks=CHUNKS, after_chunks=2) if gated else replies.text(text, chunks=CHUNKS, times=None))
            )
            options = ct.ClaudeOptions(env=self._api.environment(), env_mode="exact")
        else:
            said = steps.Text(text, chunks=CHUNKS, gate="never" if gated else None)
            fake = self._make(Scenario(otherwise=ScriptedTurn(deeds or (said, steps.Result()))))
            self._fakes.append(fake)
            options = ct.ClaudeOptions(cli_path=fake.path, env={"PATH": "/usr/bin:/bin"}, env_mode="exact")
        return ct.stream("Hi", transport=self.path, options=options, **arguments)  # type: ignore[arg-type]

    async def is_empty(self) -> bool:
        """Whether nothing is left: no process, no connection; waits for it, as long as the test may take."""
        with anyio.fail_after(30):
            while not self._is_empty():
                await anyio.lowlevel.checkpoint()
        return True

    @property
    def is_untouched(self) -> bool:
        """Whether neither was ever asked."""
        return not self._api.requests and not any(fake.calls() for fake in self._fakes)

    def _is_empty(self) -> bool:
        if any(request.outcome == "pending" for request in self._api.requests):
            return False
        return all(_has_gone(call.pid) for fake in self._fakes for call in fake.calls())


def _has_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.fixture
def world(path: str, fake_messages_api: FakeMessagesAPI, fake_claude: Callable[..., FakeClaude]) -> World:
    return World(path, fake_messages_api, fake_claude)


async def test_the_pieces_come_as_they_are_written_and_add_up(world: World) -> None:
    with anyio.fail_after(30):
        stream = world.stream()
        pieces = [piece async for piece in stream]
    assert pieces == CHUNKS
    completion = stream.completion
    assert completion.text == "one two three"
    assert (completion.transport, completion.attempts, completion.stop_reason) == (world.path, 1, "end_turn")
    assert completion.usage.output_tokens > 0
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_blocks_are_parted_by_a_newline_as_in_the_text(fake_messages_api: FakeMessagesAPI) -> None:
    fake_messages_api.replace([replies.message(replies.text_block("a"), replies.thinking_block("hm"), replies.text_block("b"))])
    options = ct.ClaudeOptions(env=fake_messages_api.environment(), env_mode="exact")
    stream = ct.stream("Hi", transport="api", options=options)
    assert "".join([piece async for piece in stream]) == stream.completion.text == "a\nb"


async def test_a_piece_is_there_before_the_answer_is_whole(world: World) -> None:
    with anyio.fail_after(30):
        async with world.stream(gated=True) as stream:
            assert [await anext(stream), await anext(stream)] == CHUNKS[:2]


@linux_only
async def test_breaking_out_of_the_loop_and_dropping_the_stream_leaves_nothing(world: World) -> None:
    with anyio.fail_after(30):
        async for _piece in world.stream(gated=True):
            break
        gc.collect()
        assert await world.is_empty()


@linux_only
async def test_leaving_the_block_early_ends_it_before_going_on(world: World) -> None:
    with anyio.fail_after(30):
        async with world.stream(gated=True) as stream:
            await anext(stream)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        assert await world.is_empty()


@linux_only
async def test_several_readers_share_the_pieces_and_all_of_them_see_the_end(world: World) -> None:
    stream, heard = world.stream(), []

    async def read() -> None:
        heard.extend([piece async for piece in stream])

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(read)
    assert sorted(heard) == sorted(CHUNKS)
    assert stream.completion.text == "".join(CHUNKS)


async def test_a_cancelled_reader_ends_it(world: World) -> None:
    stream = world.stream(gated=True)
    with anyio.fail_after(30):
        assert [await anext(stream), await anext(stream)] == CHUNKS[:2]
        with anyio.move_on_after(0.2) as scope:
            await anext(stream)
        assert scope.cancelled_caught
        assert await world.is_empty()


@linux_only
async def test_it_is_closed_from_another_task_and_the_reader_is_told_that_it_is_over(world: World) -> None:
    stream, heard = world.stream(gated=True), []
    second = anyio.Event()

    async def read() -> None:
        async for piece in stream:
            heard.append(piece)
            if len(heard) == 2:
                second.set()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await second.wait()
            await stream.aclose()
            await stream.aclose()
    assert heard == CHUNKS[:2]
    assert await world.is_empty()


async def test_a_stream_that_was_closed_before_it_began_never_begins(world: World) -> None:
    stream = world.stream()
    await stream.aclose()
    assert [piece async for piece in stream] == []
    assert world.is_untouched
    with pytest.raises(ct.UsageError):
        _ = stream.completion


async def test_a_failure_before_the_first_piece_is_tried_again(world: World, waits: Waits) -> None:
    failed = steps.Result(is_error=True, terminal_reason="api_error", api_error_status=429, text="429")
    stream = world.stream(deeds=(failed,), reply=replies.error(429), sleep=waits)
    with anyio.fail_after(30), pytest.raises(ct.RateLimited) as caught:
        await anext(stream)
    assert waits.follow([1, 2, 4])
    there = ct.completion.partial_completion(caught.value)
    assert there is not None
    assert there.attempts == 4
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_a_failure_after_the_first_piece_is_final_and_comes_behind_it(world: World, waits: Waits) -> None:
    failed = steps.Result(is_error=True, terminal_reason="api_error", api_error_status=500, text="500")
    broken = (steps.Text("one two", chunks=["one ", "two"]), failed)
    sse = replies.sse_error("api_error", after_events=5, reply=replies.text("one two", chunks=["one ", "two"]))
    stream, pieces = world.stream(deeds=broken, reply=sse, sleep=waits), []
    with anyio.fail_after(30), pytest.raises(ct.errors.APIFailed) as caught:
        async for piece in stream:
            pieces.append(piece)  # noqa: PERF401 - what came before the error counts
    assert pieces == ["one ", "two"]
    assert caught.value.code == "result.server_error"
    assert waits.seconds == []
    with pytest.raises(ct.UsageError):
        _ = stream.completion


async def test_half_of_one_answer_is_not_followed_by_half_of_another(cli_options: Callable[..., ct.ClaudeOptions], waits: Waits) -> None:
    """A CLI that begins again by itself, as 2.1.329 does after a stream that was cut, in the frames it sends then."""

    def event(kind: str, **fields: object) -> steps.Step:
        outer = {"abandoned_blocks": fields.pop("abandoned_blocks")} if "abandoned_blocks" in fields else {}
        return steps.Emit({"type": "stream_event", "event": {"type": kind, **fields}, "parent_tool_use_id": None, **outer})

    deeds = (
        event("message_start", message={"id": "msg_1"}),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": "half"}),
        event("message_stop", abandoned_blocks={"api_message_id": "msg_1", "from_block_index": 0}),
        steps.Assistant([{"type": "text", "text": "whole"}]),
        steps.Result(),
    )
    options = cli_options(Scenario(otherwise=ScriptedTurn(deeds)))
    pieces = []
    with anyio.fail_after(30), pytest.raises(ct.errors.APIFailed) as caught:
        async for piece in ct.stream("Hi", transport="cli", options=options, sleep=waits):
            pieces.append(piece)  # noqa: PERF401 - what came before the error counts
    assert (pieces, caught.value.code, waits.seconds) == (["half"], "result.connection_failed", [])
    assert (await ct.complete("Hi", transport="cli", options=options)).text == "whole"


async def test_a_timeout_comes_behind_what_was_said(world: World) -> None:
    for timeout in (1.0, 4.0, 20.0):  # up to the first that is long enough, on this machine, for what comes before the gate
        pieces = []
        with anyio.fail_after(60), pytest.raises(ct.ClaudeTransportError) as caught:
            async for piece in world.stream(gated=True, timeout=timeout):
                pieces.append(piece)  # noqa: PERF401 - what came before the error counts
        if pieces == CHUNKS[:2]:
            break
    else:
        pytest.fail(f"only {pieces} came")
    assert type(caught.value) is ct.MissingResult
    assert caught.value.code == "exec.cli.timeout"
    there = ct.completion.partial_completion(caught.value)
    assert there is not None
    assert there.text == "one two "


async def test_the_environment_decides_for_a_stream_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_TRANSPORT", "carrier pigeon")
    stream = ct.stream("Hi")
    with pytest.raises(ct.ConfigurationError):
        await anext(stream)


def test_arguments_are_refused_before_anything_is_iterated() -> None:
    with pytest.raises(ct.UsageError):
        ct.stream("")
    with pytest.raises(ct.ConfigurationError):
        ct.stream("Hi", timeout=-1)


def test_nothing_is_left_when_the_loop_ends_under_it(fake_claude: Callable[..., FakeClaude]) -> None:
    fake = fake_claude(Scenario.text("one two", chunks=["one ", "two"]))
    options = ct.ClaudeOptions(cli_path=fake.path, env={"PATH": os.defpath}, env_mode="exact")

    async def main() -> None:
        async for _piece in ct.stream("Hi", transport="cli", options=options):
            return

    for backend in ("asyncio", "trio"):
        anyio.run(main, backend=backend)
    gc.collect()
    assert all(_has_gone(call.pid) for call in fake.calls())


@pytest.mark.parametrize("cancelled", [False, True])
async def test_no_task_of_a_stream_runs_when_its_close_returns_also_when_that_is_cancelled(world: World, *, cancelled: bool) -> None:
    with anyio.fail_after(60):
        stream = world.stream(gated=True)
        assert await anext(stream) == CHUNKS[0]
        assert [task.name for task in anyio.get_running_tasks()].count("claude stream") == 1
        with anyio.CancelScope() as scope:
            if cancelled:
                scope.cancel()
            await stream.aclose()
        assert [task.name for task in anyio.get_running_tasks()].count("claude stream") == 0
