"""The real Codex behind what carries, records, replays, measures and breaks the lines of a transport."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from relay import Cut, relay_to
from span_recorder import SpanRecorder

from claude_transport import NetworkTransport, ReplayTransport, SubprocessTransport
from claude_transport.codex import CodexOptions, CodexSession
from claude_transport.errors import ClaudeTransportError, ConfigurationError, ConnectionLost
from claude_transport.gateway import Gateway
from claude_transport.inspection import summarize
from claude_transport.protocol.tape import Tape
from claude_transport.testing import FakeResponsesAPI, replies
from claude_transport.wrappers import (
    FaultyTransport,
    MetricsTransport,
    RecordingTransport,
    RetryingTransport,
    StatefulTransport,
    TracingTransport,
)
from claude_transport.wrappers.faults import Cut as CutLines
from claude_transport.wrappers.faults import Duplicate, FailConnect, Split

pytestmark = pytest.mark.e2e

TOKEN = "only-for-the-tests-of-codex"
PATIENCE = 60.0  # seconds; a hang fails instead of hanging the suite


@asynccontextmanager
async def serving(options: CodexOptions, **settings: Any) -> AsyncIterator[Gateway]:
    async with Gateway(options, listen=["tcp://127.0.0.1:0"], tokens={"tester": TOKEN}, **settings) as gateway:
        yield gateway


async def accept(_: object) -> Any:
    return "accept"


def unguarded(options: CodexOptions) -> CodexOptions:
    return options.replace(approval_policy="untrusted", sandbox="danger-full-access")


@pytest.mark.parametrize("mode", ["link", "plain"])
async def test_a_session_over_a_gateway_is_as_over_a_process(
    codex_options: CodexOptions, responses_api: FakeResponsesAPI, codex_home: Any, mode: Any
) -> None:
    responses_api.replace([replies.exec_command("touch made"), replies.text("done")])
    async with serving(unguarded(codex_options)) as gateway:
        with anyio.fail_after(PATIENCE):
            transport = NetworkTransport(gateway.urls[0], token=TOKEN, resume=mode == "link")
            async with CodexSession(transport, on_approval=accept) as session:
                assert [info.busy for info in gateway.sessions] == [False]
                turn = await session.send("Make a file")
                assert [info.busy for info in gateway.sessions] == [True]
                result = await turn.result()
                assert [info.busy for info in gateway.sessions] == [False]
        assert (result.status, result.text) == ("completed", "done")
        assert (codex_home.project / "made").exists()


async def test_a_session_survives_a_connection_that_is_cut_again_and_again(
    codex_options: CodexOptions, responses_api: FakeResponsesAPI, codex_home: Any
) -> None:
    words = " ".join(f"word{number}" for number in range(300))
    responses_api.replace([replies.exec_command("touch made"), replies.text(words, chunks=150)])
    chance = random.Random(18)
    asked: list[object] = []

    async def on_approval(request: object) -> Any:
        asked.append(request)
        return "accept"

    def cut(_: int) -> Cut:
        return Cut(None, chance.randrange(3000, 9000), chance.random() < 0.5)

    async with serving(unguarded(codex_options)) as gateway, relay_to(gateway.urls[0], cut_next=cut) as relay:
        with anyio.fail_after(PATIENCE):
            async with CodexSession(NetworkTransport(relay.url, token=TOKEN), on_approval=on_approval) as session:
                turn = await session.send("Make a file")
                pieces = [piece async for piece in turn.new_text()]
                result = await turn.result()
        assert relay.cuts > 3
    assert "".join(pieces) == result.text == words
    assert len(asked) == 1
    assert (codex_home.project / "made").exists()


async def test_a_drain_waits_for_the_running_turn(codex_options: CodexOptions, responses_api: FakeResponsesAPI) -> None:
    responses_api.replace([replies.gated("all of it", gate="go")])
    async with serving(codex_options) as gateway:
        with anyio.fail_after(PATIENCE):
            async with CodexSession(NetworkTransport(gateway.urls[0], token=TOKEN)) as session, anyio.create_task_group() as tasks:
                turn = await session.send("Say it all")
                tasks.start_soon(gateway.drain)
                await anyio.wait_all_tasks_blocked()
                responses_api.open_gate("go")
                result = await turn.result()
                assert (result.status, result.text) == ("completed", "all of it")
        assert gateway.metrics.ended == {"drained": 1}


async def test_a_gateway_that_is_closed_during_a_turn_lets_the_client_know_that_it_was_interrupted(
    codex_options: CodexOptions, responses_api: FakeResponsesAPI
) -> None:
    responses_api.replace([replies.gated("never said", gate="never")])
    async with serving(codex_options) as gateway:
        with anyio.fail_after(PATIENCE):
            async with CodexSession(NetworkTransport(gateway.urls[0], token=TOKEN)) as session, anyio.create_task_group() as tasks:
                turn = await session.send("Say it")
                tasks.start_soon(gateway.aclose)
                result = await turn.result()
                assert result.status == "interrupted"


async def test_a_client_chooses_no_options_of_codex(codex_options: CodexOptions) -> None:
    async with serving(codex_options) as gateway:
        transport = NetworkTransport(gateway.urls[0], token=TOKEN, options={"model": "another"})
        with pytest.raises(ConfigurationError, match="thread/start"):
            await transport.connect()
        await transport.close()


async def converse(session: CodexSession) -> list[str]:
    said = []
    for prompt in ("Make a file", "And again"):
        result = await (await session.send(prompt)).result()
        said.append(result.text)
    return said


async def test_a_recorded_session_is_replayed_in_order(
    codex_options: CodexOptions, responses_api: FakeResponsesAPI, tmp_path: Path
) -> None:
    responses_api.replace([replies.exec_command("touch made"), replies.text("done"), replies.text("again")])
    recorder = RecordingTransport(SubprocessTransport(unguarded(codex_options)), tmp_path / "tape.ndjson")
    with anyio.fail_after(PATIENCE):
        async with CodexSession(recorder, on_approval=accept) as session:
            thread, first = session.thread_id, await converse(session)
        replay = ReplayTransport(recorder.path)
        async with CodexSession(replay, on_approval=accept) as again:
            assert await converse(again) == first == ["done", "again"]
            assert again.thread_id == thread
    replay.assert_played()
    assert b"sk-lab" not in recorder.path.read_bytes()
    summary = summarize(recorder.path)
    assert [turn.outcome for turn in summary.turns] == ["ok", "ok"]
    assert summary.agent == "codex"
    assert Tape.read(recorder.path).header.scrubbed


async def test_every_wrapper_at_once_changes_nothing(codex_options: CodexOptions, responses_api: FakeResponsesAPI) -> None:
    responses_api.replace([replies.text("Hello, world", chunks=["Hello", ", ", "world"])])
    recorder = SpanRecorder()
    metered = MetricsTransport(FaultyTransport(SubprocessTransport(codex_options), [Split(sizes=(7, 1, 300))]))
    transport = RetryingTransport(StatefulTransport(TracingTransport(metered, tracer_provider=recorder)))
    with anyio.fail_after(PATIENCE):
        async with CodexSession(transport) as session:
            turn = await session.send("Say hello")
            assert [piece async for piece in turn.new_text()] == ["Hello", ", ", "world"]
    snapshot = metered.metrics.snapshot()
    assert (snapshot.results, snapshot.prompts, snapshot.unreadable_lines) == ({"ok": 1}, 1, 0)
    (span,) = (span for span in recorder.spans if span.name == "invoke_agent codex")
    assert (span.ends, span.failed) == (1, False)


async def test_a_connection_that_is_cut_without_a_link_is_a_typed_error(
    codex_options: CodexOptions, responses_api: FakeResponsesAPI
) -> None:
    responses_api.replace([replies.text(" ".join(["word"] * 50), chunks=50)])
    transport = FaultyTransport(SubprocessTransport(codex_options), [CutLines(after_lines=20)])
    with anyio.fail_after(PATIENCE):
        async with CodexSession(transport) as session:
            turn = await session.send("Say it")
            with pytest.raises(ConnectionLost):
                await turn.result()


async def test_lines_that_are_said_twice_cost_no_turn(codex_options: CodexOptions, responses_api: FakeResponsesAPI) -> None:
    responses_api.replace([replies.text("Hello")])
    faults = [Duplicate(rate=0.3)]
    transport = FaultyTransport(SubprocessTransport(codex_options), faults, seed=7)
    with anyio.fail_after(PATIENCE):
        async with CodexSession(transport) as session:
            result = await (await session.send("Say hello")).result()
    assert result.status == "completed"


async def test_connecting_is_tried_again_and_a_prompt_never(codex_options: CodexOptions, responses_api: FakeResponsesAPI) -> None:
    responses_api.replace([replies.text("Hello")])
    attempts: list[Any] = []
    faulty = FaultyTransport(SubprocessTransport(codex_options), [FailConnect(times=2)])
    transport = RetryingTransport(faulty, attempts=3, on_attempt=attempts.append, sleep=lambda _: anyio.lowlevel.checkpoint())
    with anyio.fail_after(PATIENCE):
        async with CodexSession(transport) as session:
            result = await (await session.send("Say hello")).result()
    assert result.text == "Hello"
    assert [attempt.error is None for attempt in attempts] == [False, False, True]
    assert len(responses_api.requests) == 1


async def test_a_codex_that_cannot_be_started_is_named_to_the_client(codex_options: CodexOptions, tmp_path: Path) -> None:
    broken = tmp_path / "codex"
    broken.write_text("#!/bin/sh\nexit 3\n")
    async with serving(codex_options.replace(codex_path=broken)) as gateway:
        transport = NetworkTransport(gateway.urls[0], token=TOKEN)
        with anyio.fail_after(PATIENCE), pytest.raises(ClaudeTransportError, match="codex"):
            await transport.connect()
        await transport.close()
