"""Performance in counts: spawns, file descriptors, bytes touched. (The pool is in `test_pool`.)"""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

import claude_transport as ct
from claude_transport.completion.api_path import APIStream
from claude_transport.launch.discovery import read_cli_version
from claude_transport.testing import FakeClaude, Scenario

PATIENCE = 100.0  # seconds; a hang fails instead of hanging the suite


def open_files() -> int:
    """How many file descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


# ---------------------------------------------------------------------------------------------------------- spawning


async def test_connecting_starts_the_cli_once_and_asks_for_no_version() -> None:
    with FakeClaude(Scenario.echo()) as claude, anyio.fail_after(PATIENCE):
        for spawned in (1, 2, 3):
            async with ct.Query(ct.SubprocessTransport(ct.ClaudeOptions(cli_path=str(claude.path)))) as query:
                assert (await (await query.send("Hello")).result()).result == "Hello"
            calls = claude.calls()
            assert len(calls) == spawned
            assert not {"-v", "--version"} & set(calls[-1].argv)


def test_the_version_is_read_once_for_each_state_of_the_binary(tmp_path: Path) -> None:
    binary, version = tmp_path / "claude", tmp_path / "claude.version"
    binary.write_text("#!/bin/sh\n")
    version.write_text("1.2.3")
    assert read_cli_version(binary) == "1.2.3"
    version.unlink()  # from here on, only what is remembered can say it
    assert read_cli_version(binary) == "1.2.3"
    os.utime(binary, (0, 0))
    assert read_cli_version(binary) is None


async def test_five_hundred_connections_leave_no_file_open() -> None:
    async def cycle() -> None:
        transport = ct.SubprocessTransport(command=["cat"])
        await transport.connect()
        await transport.write('{"type":"keep_alive"}\n')
        await transport.close()

    with anyio.fail_after(PATIENCE):
        await cycle()  # what is opened once and kept, is open now
        before = open_files()
        for _ in range(500):
            await cycle()
        assert open_files() <= before


# ------------------------------------------------------------------------------------------------- growing by many deltas

PIECE = "x" * 1000


def delta_event() -> dict[str, Any]:
    """One more piece of a tool's input."""
    return {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": PIECE}}


def api_stream() -> tuple[Callable[[bytes], object], bytes]:
    """The API path: what takes the bytes, and the bytes of one delta."""
    stream = APIStream()
    start = {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "t", "name": "n", "input": {}}}
    stream.feed(b"data: " + json.dumps(start).encode() + b"\n\n")
    return stream.feed, b"data: " + json.dumps(delta_event()).encode() + b"\n\n"


def line_decoder() -> tuple[Callable[[bytes], object], bytes]:
    """The CLI path: the same with partial messages."""
    decoder = ct.messages.LineDecoder()
    line = json.dumps({"type": "stream_event", "event": delta_event(), "session_id": "s", "uuid": "u"}).encode()
    return lambda data: decoder.messages([data]), line


def bytes_touched(take: Callable[[bytes], object], data: bytes) -> int:
    """How much memory was needed at once, beyond what was there, to take one delta: a text that is copied as a whole shows in it."""
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    take(data)
    return tracemalloc.get_traced_memory()[1] - before


@pytest.mark.parametrize("path", [api_stream, line_decoder])
def test_a_delta_costs_the_same_at_the_end_of_a_megabyte_as_at_its_beginning(
    path: Callable[[], tuple[Callable[[bytes], object], bytes]],
) -> None:
    take, data = path()
    take(data)
    tracemalloc.start()
    try:
        costs = [bytes_touched(take, data) for _ in range(2000)]
    finally:
        tracemalloc.stop()
    # two megabytes in all: the second costs what the first did, and no delta ever needs a copy of what came before
    assert sum(costs[1000:]) < 1.25 * sum(costs[:1000])
    assert max(costs) < 64 * len(PIECE)


def test_a_megabyte_of_deltas_is_one_input_in_the_end() -> None:
    stream = APIStream()
    start = {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "t", "name": "n", "input": {}}}
    text = json.dumps({"text": "y" * 2**20})
    pieces = [text[at : at + 100] for at in range(0, len(text), 100)]
    events = [start, *({**delta_event(), "delta": {"type": "input_json_delta", "partial_json": piece}} for piece in pieces)]
    for event in events:
        stream.feed(b"data: " + json.dumps(event).encode() + b"\n\n")
    (block,) = stream.message()["content"]
    assert block["input"] == {"text": "y" * 2**20}
