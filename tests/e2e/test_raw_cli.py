"""The fake Messages API drives the real CLI: spoken to by hand, so that nothing else of this package takes part.

The numbers of requests are those of CLI 2.1.329; when a newer CLI fails here, correct
docs/reference/protocol.md#api-failures, and not only the number.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

import anyio
import msgspec
import pytest
from anyio.abc import Process

from claude_transport.testing import FakeMessagesAPI, replies

PATIENCE = 60.0  # seconds for the CLI to say its next word, on a machine with much else to do
ARGV = ("--output-format", "stream-json", "--input-format", "stream-json", "--verbose")
NO_RETRIES = {"CLAUDE_CODE_MAX_RETRIES": "0"}

Frame = dict[str, Any]


class RawCLI:
    """The real CLI with NDJSON by hand."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.frames = self._read()

    async def say(self, **frame: Any) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.send(msgspec.json.encode(frame) + b"\n")

    async def prompt(self, text: str) -> None:
        await self.say(type="user", message={"role": "user", "content": text})

    async def until(self, wanted: Callable[[Frame], bool]) -> list[Frame]:
        """All frames up to the wanted one."""
        seen: list[Frame] = []
        with anyio.fail_after(PATIENCE):
            while not seen or not wanted(seen[-1]):
                seen.append(await anext(self.frames))
        return seen

    async def result(self) -> tuple[Frame, list[Frame]]:
        """The next result, and what came before it."""
        *before, result = await self.until(lambda frame: frame["type"] == "result")
        return result, before

    async def request(self, subtype: str, **fields: Any) -> Frame:
        """The answer to a control request."""
        await self.say(type="control_request", request_id=subtype, request={"subtype": subtype, **fields})
        answers = await self.until(lambda frame: frame["type"] == "control_response" and frame["response"]["request_id"] == subtype)
        response: Frame = answers[-1]["response"]
        return response

    async def finish(self) -> int:
        """Say no more, read to the end, and return the exit code."""
        assert self.process.stdin is not None
        with anyio.fail_after(PATIENCE):
            await self.process.stdin.aclose()
            async for _ in self.frames:
                pass
            return await self.process.wait()

    async def _read(self) -> AsyncIterator[Frame]:
        assert self.process.stdout is not None
        rest = bytearray()
        async for chunk in self.process.stdout:
            rest += chunk
            if b"\n" in chunk:
                *lines, tail = bytes(rest).split(b"\n")
                rest = bytearray(tail)
                for line in lines:
                    yield msgspec.json.decode(line)


class Start(Protocol):
    def __call__(self, api: FakeMessagesAPI, *arguments: str, **environment: str) -> Any: ...


@pytest.fixture
def start(claude_cli: str, cli_home: Any, cli_env: Callable[..., dict[str, str]]) -> Start:
    @asynccontextmanager
    async def started(api: FakeMessagesAPI, *arguments: str, **environment: str) -> AsyncIterator[RawCLI]:
        with (cli_home.home / "stderr").open("wb") as stderr:
            process = await anyio.open_process(
                [claude_cli, *ARGV, *arguments], env=cli_env(api, **environment), cwd=cli_home.project, stderr=stderr
            )
            async with process:
                cli = RawCLI(process)
                try:
                    yield cli
                finally:
                    if process.returncode is None:
                        process.kill()
                    with anyio.CancelScope(shield=True):
                        await cli.frames.aclose()  # type: ignore[attr-defined]

    return started


def texts(frames: list[Frame]) -> list[str]:
    """The texts of the assistant frames."""
    blocks = [block for frame in frames if frame["type"] == "assistant" for block in frame["message"]["content"]]
    return [block["text"] for block in blocks if block["type"] == "text"]


def deltas(frames: list[Frame], kind: str) -> list[str]:
    """The deltas of this kind in the partial messages."""
    events = [frame["event"] for frame in frames if frame["type"] == "stream_event"]
    found = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    return [delta[kind.removesuffix("_delta")] for delta in found if delta["type"] == kind]


async def test_a_text_turn_arrives_in_the_scripted_deltas(start: Start) -> None:
    reply = replies.text("one two three", chunks=["one ", "two ", "three"], usage=replies.Usage(input_tokens=1234, output_tokens=56))
    async with FakeMessagesAPI([reply]) as api, start(api, "--include-partial-messages") as cli:
        await cli.prompt("Count, please")
        result, frames = await cli.result()
        assert await cli.finish() == 0
    assert deltas(frames, "text_delta") == ["one ", "two ", "three"]
    assert texts(frames) == ["one two three"]
    assert (result["result"], result["is_error"], result["stop_reason"]) == ("one two three", False, "end_turn")
    assert (result["usage"]["input_tokens"], result["usage"]["output_tokens"]) == (1234, 56)
    (request,) = api.conversation
    assert (request.kind, request.prompt, request.credential, request.outcome) == ("conversation", "Count, please", "x-api-key", "answered")
    assert request.stream


async def test_a_tool_call_is_run_and_its_result_sent_back(start: Start, cli_home: Any) -> None:
    tool = replies.tool_use("Bash", {"command": "echo $((6 * 7)) | tee made"}, text_before="I compute.")
    async with FakeMessagesAPI([tool, "It is 42."]) as api, start(api, "--allowedTools", "Bash") as cli:
        await cli.prompt("Six times seven?")
        result, frames = await cli.result()
        assert await cli.finish() == 0
    assert (cli_home.project / "made").read_text() == "42\n"
    assert texts(frames) == ["I compute.", "It is 42."]
    assert result["num_turns"] == 2
    first, second = api.conversation
    assert first.tool_results == []
    assert [block["content"] for block in second.tool_results] == ["42"]
    assert second.prompt == "Six times seven?"


async def test_thinking_arrives_as_thinking(start: Start) -> None:
    async with FakeMessagesAPI([replies.thinking("Let me see.", text="I see.")]) as api, start(api, "--include-partial-messages") as cli:
        await cli.prompt("Look")
        result, frames = await cli.result()
    assert deltas(frames, "thinking_delta") == ["Let me see."]
    blocks = [block["type"] for frame in frames if frame["type"] == "assistant" for block in frame["message"]["content"]]
    assert blocks == ["thinking", "text"]
    assert result["result"] == "I see."


@pytest.mark.needs("retries of an answer that broke off", when="400-unknown")
@pytest.mark.needs("api_error_status")
@pytest.mark.parametrize(
    ("status", "assistant_error", "requests"),
    [
        (400, "unknown", 6),
        (401, "authentication_failed", 1),
        (402, "billing_error", 1),
        (403, "authentication_failed", 1),
        (404, "model_not_found", 2),
        (413, "invalid_request", 1),
        (429, "rate_limit", 1),
        (500, "server_error", 1),
        (529, "server_error", 1),
    ],
)
async def test_an_api_error_is_a_success_that_is_an_error(start: Start, status: int, assistant_error: str, requests: int) -> None:
    async with FakeMessagesAPI(replies.error(status)) as api, start(api, **NO_RETRIES) as cli:
        await cli.prompt("Hi")
        result, frames = await cli.result()
        assert await cli.finish() == 1
    assert (result["subtype"], result["is_error"], result["api_error_status"]) == ("success", True, status)
    assert [frame["error"] for frame in frames if frame["type"] == "assistant"] == [assistant_error]
    assert len(api.conversation) == requests


async def test_a_refused_request_is_asked_again_when_retries_are_allowed(start: Start) -> None:
    refused = replies.error(429, headers={"retry-after": "1"}, times=1)
    async with FakeMessagesAPI([refused, "Better now."]) as api, start(api, CLAUDE_CODE_MAX_RETRIES="1") as cli:
        await cli.prompt("Hi")
        result, frames = await cli.result()
        assert await cli.finish() == 0
    (retry,) = [frame for frame in frames if frame.get("subtype") == "api_retry"]
    assert (retry["attempt"], retry["max_retries"], retry["error_status"], retry["error"]) == (1, 1, 429, "rate_limit")
    assert result["result"] == "Better now."
    assert len(api.conversation) == 2


@pytest.mark.needs("retries of an answer that broke off")
@pytest.mark.parametrize(
    ("after_events", "retries", "streams"),
    [
        pytest.param(4, "1", [True, True], id="a retry streams again"),
        pytest.param(4, "0", [True, False], id="the last resort is not to stream"),
        pytest.param(0, "1", [True, True], id="nothing had come yet"),
    ],
)
async def test_a_cut_stream_is_asked_for_again(start: Start, retries: str, streams: list[bool], after_events: int) -> None:
    async with (
        FakeMessagesAPI([replies.cut(after_events=after_events), "Recovered."]) as api,
        start(api, CLAUDE_CODE_MAX_RETRIES=retries) as cli,
    ):
        await cli.prompt("Hi")
        result, _ = await cli.result()
        assert await cli.finish() == 0
    assert result["result"] == "Recovered."
    assert [(request.stream, request.outcome) for request in api.conversation] == list(zip(streams, ["cut", "answered"], strict=True))


@pytest.mark.needs("retries of an answer that broke off")
@pytest.mark.parametrize(
    ("reply", "is_error", "text", "requests"),
    [
        pytest.param(replies.sse_error(), True, "529 Overloaded", 2, id="an error event before any block is whole"),
        pytest.param(
            replies.sse_error(reply=replies.message(replies.text_block("a"), replies.text_block("b")), after_events=5),
            True,
            "Server error mid-response",
            4,
            id="an error event after a block",
        ),
        pytest.param(replies.empty(), False, "", 2, id="nothing"),
        pytest.param(replies.refusal("No."), True, "safeguards flagged this message", 2, id="a refusal"),
        pytest.param(replies.max_tokens(), True, "output token maximum", 4, id="too many tokens"),
    ],
)
async def test_a_message_that_ends_badly_is_asked_for_again(
    start: Start, reply: replies.Reply, is_error: bool, text: str, requests: int
) -> None:
    async with FakeMessagesAPI(reply) as api, start(api, **NO_RETRIES) as cli:
        await cli.prompt("Hi")
        result, _ = await cli.result()
        assert await cli.finish() == int(is_error)
    assert result["is_error"] is is_error
    assert text in result["result"]
    assert len(api.conversation) == requests


async def test_two_megabytes_of_text_come_through_whole(start: Start) -> None:
    async with FakeMessagesAPI([replies.huge(2_000_000)]) as api, start(api) as cli:
        await cli.prompt("At length, please")
        result, frames = await cli.result()
        assert await cli.finish() == 0
    assert result["result"] == "x" * 2_000_000
    assert texts(frames) == ["x" * 2_000_000]


@pytest.mark.needs("user_message_uuids")
async def test_a_prompt_with_a_repeated_uuid_is_dropped(start: Start) -> None:
    """The second of three prompts has the uuid of the first: two turns, two results, and the API hears of two prompts."""
    first, other = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
    async with FakeMessagesAPI(["one", "two"]) as api, start(api) as cli:
        results = []
        for uuid, text in ((first, "a"), (first, "b"), (other, "c")):
            await cli.say(type="user", message={"role": "user", "content": text}, uuid=uuid)
            if text != "b":
                results.append((await cli.result())[0])
        assert await cli.finish() == 0
    assert [(result["result_index"], result["user_message_uuids"]) for result in results] == [(0, [first]), (1, [other])]
    assert [request.prompt for request in api.requests if request.kind == "conversation"] == ["a", "c"]


@pytest.mark.needs("interrupted messages are marked")
async def test_an_interrupted_stream_ends_the_turn_and_hangs_up_on_the_api(start: Start) -> None:
    gated = replies.gated("This much and never more", chunks=["This much", " and never more"])
    async with FakeMessagesAPI([gated, "Go on."]) as api, start(api, "--include-partial-messages") as cli:
        await cli.prompt("Begin")
        await cli.until(lambda frame: deltas([frame], "text_delta") == ["This much"])
        await api.wait_at_gate()
        assert (await cli.request("interrupt"))["subtype"] == "success"
        result, frames = await cli.result()
        assert (result["subtype"], result["terminal_reason"]) == ("error_during_execution", "aborted_streaming")
        assert texts(frames)[:1] == ["This much"]
        await api.wait_until(lambda: api.conversation[0].outcome == "client_gone")
        await cli.prompt("And now?")
        result, _ = await cli.result()
        assert result["result"] == "Go on."
        assert await cli.finish() == 0


@pytest.mark.needs("compaction by the command /compact")
async def test_side_requests_of_the_cli_do_not_consume_the_script(start: Start) -> None:
    async with FakeMessagesAPI(["The first.", "The second."]) as api, start(api) as cli:
        await cli.request("initialize")
        titled = await cli.request("generate_session_title", description="Find out how to tell them apart")
        assert titled["response"]["title"] == "Fake session"
        await cli.prompt("One")
        result, _ = await cli.result()
        assert result["result"] == "The first."
        asked = await cli.request("side_question", question="By the way?")
        assert asked["response"]["response"] == "A side answer."
        await cli.request("get_context_usage")
        await cli.prompt("/compact")
        await cli.result()
        await cli.prompt("Two")
        result, _ = await cli.result()
        assert result["result"] == "The second."
        assert await cli.finish() == 0
    assert [request.purpose for request in api.requests if request.kind == "side"] == ["title", "side_question", "compaction"]
    assert any(request.kind == "count_tokens" for request in api.requests)
    assert len(api.conversation) == 2
    assert api.rejected == []
    assert {request.kind for request in api.requests} - {"probe"} == {"conversation", "side", "count_tokens"}


@pytest.mark.needs("messaging_socket_path")
async def test_the_environment_keeps_every_file_and_socket_in_its_home(start: Start, cli_home: Any) -> None:
    async with FakeMessagesAPI() as api, start(api) as cli:
        await cli.prompt("Where are you?")
        frames = await cli.until(lambda frame: frame.get("subtype") == "init")
        assert frames[-1]["messaging_socket_path"].startswith(str(cli_home.tmp))
        assert frames[-1]["cwd"] == str(cli_home.project.resolve())
        assert frames[-1]["apiKeySource"] == "ANTHROPIC_API_KEY"
        await cli.result()
        assert await cli.finish() == 0


@pytest.mark.needs("retries of an answer that broke off")
async def test_a_connection_that_drops_before_its_answer_is_fatal_without_retries(start: Start) -> None:
    async with FakeMessagesAPI([replies.cut(after_events=0), "Never asked."]) as api, start(api, **NO_RETRIES) as cli:
        await cli.prompt("Hi")
        result, frames = await cli.result()
        assert await cli.finish() == 1
    assert (result["is_error"], result["api_error_status"]) == (True, None)
    assert [frame["error"] for frame in frames if frame["type"] == "assistant"] == ["server_error"]
    assert [request.outcome for request in api.conversation] == ["cut"]


@pytest.mark.needs("retries of an answer that broke off")
async def test_closing_the_api_in_the_middle_of_a_stream_is_a_lost_connection_to_the_cli(start: Start) -> None:
    api = FakeMessagesAPI(replies.gated("Half a sentence"))
    await api.start()
    async with start(api, **NO_RETRIES) as cli:
        await cli.prompt("Hi")
        await api.wait_at_gate()
        await api.aclose()
        result, _ = await cli.result()
        assert (result["is_error"], result["api_error_status"]) == (True, None)
        assert await cli.finish() == 1
    assert api.conversation[0].outcome == "stopped"
