"""The real binary, killed with SIGKILL at twenty points of a conversation: what it said is delivered, how it ended is said, nothing stays.

The conversation is a tool call and then an answer in many partial messages that stops at a gate which nobody opens: wherever the reader
is, the turn is not over, and the CLI is alive until it is killed.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from shares import share

import claude_transport as ct
from claude_transport.testing import FakeMessagesAPI, replies

PATIENCE = 60.0  # seconds for the CLI to say its next word, on a machine with much else to do
POINTS = range(1, 21)
WORDS = tuple(f"word{number} " for number in range(40))
SAID = len(WORDS) - 1  # the last one stays behind the gate
PROMPT = {"type": "user", "message": {"role": "user", "content": "Go"}}

Options = Callable[[FakeMessagesAPI], ct.ClaudeOptions]


@pytest.fixture
def options(claude_cli: str, cli_home: Any, cli_env: Callable[..., dict[str, str]]) -> Options:
    """`options(api)`: the real binary, in a clean world, with partial messages and a tool that it may use."""

    def build(api: FakeMessagesAPI) -> ct.ClaudeOptions:
        return ct.ClaudeOptions(
            cli_path=claude_cli,
            cwd=cli_home.project,
            env=cli_env(api, CLAUDE_CODE_MAX_RETRIES="0"),
            env_mode="exact",
            include_partial_messages=True,
            allowed_tools=["Bash"],
        )

    return build


@asynccontextmanager
async def conversation() -> AsyncIterator[FakeMessagesAPI]:
    """The API's side of it."""
    tool = replies.tool_use("Bash", {"command": "echo hi", "description": "say hi"}, text_before="I use a tool.")
    answer = replies.gated("".join(WORDS), chunks=WORDS, after_chunks=SAID)
    async with FakeMessagesAPI([tool, answer]) as api:
        yield api


def kill(pid: int | None) -> None:
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


def processes_of(home: Path) -> list[int]:
    """Everything alive that was started with this HOME: the CLI, its tools, and theirs, whatever group they are in."""
    mark = f"HOME={home}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue  # it ended while we looked, or belongs to somebody else
    return found


def words(events: list[dict[str, Any]]) -> list[str]:
    """The partial texts of the answer."""
    deltas = [event["delta"]["text"] for event in events if event.get("delta", {}).get("type") == "text_delta"]
    return [text for text in deltas if text.startswith("word")]


async def outcome_of_query(query: ct.Query, *, killed_after: int) -> tuple[list[ct.Message], ct.ClaudeTransportError | None]:
    """Every message, and the error at the end; the CLI is killed when this many have been read."""
    seen: list[ct.Message] = []
    everything = query.messages()
    turn = await query.send("Go")
    try:
        async for message in everything:
            seen.append(message)
            if len(seen) == killed_after:
                kill(query.info.pid)
    except ct.ClaudeTransportError as error:
        with pytest.raises(ct.ProcessError):
            await turn.result()
        assert turn.state is ct.TurnState.LOST
        return seen, error
    return seen, None


def died_of_the_kill(error: BaseException | None) -> bool:
    return isinstance(error, ct.ProcessError) and (error.signal, error.exit_code) == (signal.SIGKILL, None)


@pytest.mark.parametrize("point", share(POINTS, ci=POINTS[::2]))
async def test_a_query_delivers_everything_and_then_says_that_the_cli_was_killed(options: Options, cli_home: Any, point: int) -> None:
    with anyio.fail_after(PATIENCE):
        async with conversation() as api, ct.Query(ct.SubprocessTransport(options(api))) as query:
            seen, error = await outcome_of_query(query, killed_after=point)
            info = query.info
    assert died_of_the_kill(error)
    assert len(seen) >= point
    assert info.lines_read == len(seen) + 1, "one line is the answer to initialize; every other one is a message"
    said = words([message.event for message in seen if isinstance(message, ct.StreamEvent)])
    assert said == list(WORDS[: len(said)])
    assert processes_of(cli_home.home) == []


@pytest.mark.both_loops
@pytest.mark.parametrize("heard", [1, SAID])
async def test_a_transport_delivers_every_word_and_then_says_that_the_cli_was_killed(options: Options, cli_home: Any, heard: int) -> None:
    seen: list[dict[str, Any]] = []
    with anyio.fail_after(PATIENCE):
        async with conversation() as api, ct.SubprocessTransport(options(api)) as transport:
            await transport.write(msgspec.json.encode(PROMPT))
            with pytest.raises(ct.ProcessError) as caught:
                async for message in transport.read_messages():
                    seen.append(message)
                    if message["type"] == "stream_event" and words([message["event"]]) == [WORDS[heard - 1]]:
                        kill(transport.info.pid)
    assert died_of_the_kill(caught.value)
    assert transport.info.lines_read == len(seen)
    said = words([message["event"] for message in seen if message["type"] == "stream_event"])
    assert len(said) >= heard
    assert said == list(WORDS[: len(said)])
    assert processes_of(cli_home.home) == []
