"""What wrappers do at their edges: at an end by an error, at a bound, with a secret at a cut, with what they keep."""

from __future__ import annotations

import gc
import json
import logging
import weakref
from collections import UserList
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from claude_transport.errors import CLIConnectionError, ConnectionLost, TransportClosed
from claude_transport.launch.options import ClaudeOptions
from claude_transport.protocol.framing import OversizedLine
from claude_transport.protocol.tape import OUTPUT_ENDED, Tape
from claude_transport.transport import Transport
from claude_transport.transports.mock import MockTransport
from claude_transport.transports.subprocess import SubprocessTransport
from claude_transport.wrappers import LoggingTransport, recording
from claude_transport.wrappers.base import LineWrapper
from claude_transport.wrappers.metrics import MetricsTransport
from claude_transport.wrappers.own_lines import Pump
from claude_transport.wrappers.prompt_watch import size_of, without_deltas
from claude_transport.wrappers.recording import RecordingTransport, options_of
from claude_transport.wrappers.redactor import redacted_head
from claude_transport.wrappers.retrying import RetryingTransport

PATIENCE = 30.0
FILES = Path("/dev/fd")
SECRET = "hunter2-sentinel-Zx7Qw9"
RESULT = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "done"}


class Generating(Transport):
    """A transport whose lines come from a generator, which notes that it was closed."""

    def __init__(self, *batches: Sequence[bytes], error: Exception | None = None) -> None:
        self._batches = batches
        self._error = error
        self.closed: list[str] = []

    async def connect(self) -> None: ...

    async def write(self, data: str | bytes) -> None: ...

    async def end_input(self) -> None: ...

    async def close(self) -> None:
        self.closed.append("transport")

    def is_ready(self) -> bool:
        return True

    async def _lines(self) -> AsyncIterator[Sequence[bytes]]:
        try:
            for batch in self._batches:
                yield batch
            if self._error is not None:
                raise self._error
        finally:
            self.closed.append("lines")

    def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
        return self._lines()

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        try:
            for batch in self._batches:
                for line in batch:
                    yield json.loads(line)
        finally:
            self.closed.append("messages")


@pytest.mark.parametrize("wrapper", [LoggingTransport, LineWrapper])
@pytest.mark.parametrize("way", ["messages", "lines"])
async def test_an_iteration_that_is_closed_closes_what_it_reads_from(wrapper: Callable[[Transport], Transport], way: str) -> None:
    inner = Generating([b'{"type":"a"}'], [b'{"type":"b"}'])
    async with wrapper(inner) as transport:
        reading: Any = transport.read_messages() if way == "messages" else transport.read_lines()
        assert await anext(reading) == ({"type": "a"} if way == "messages" else [b'{"type":"a"}'])
        assert inner.closed == []
        await reading.aclose()
        assert inner.closed in (["lines"], ["messages"])


async def test_a_source_that_fails_fails_its_reader_behind_its_last_line_and_for_good() -> None:
    lost = ConnectionLost("cut")
    pump = Pump(Generating([b"{}"], error=lost).read_lines())
    with anyio.fail_after(PATIENCE):
        assert await anext(pump) == [b"{}"]
        assert not pump.is_over
        for _ in range(2):
            with pytest.raises(ConnectionLost) as caught:
                await anext(pump)
            assert caught.value is lost
        assert pump.is_over
    ended = Pump(Generating().read_lines())
    with anyio.fail_after(PATIENCE), pytest.raises(StopAsyncIteration):
        await anext(ended)


class NeverClosing(Generating):
    """Raises when it is closed, and says nothing."""

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        await anyio.sleep_forever()
        yield {}

    async def close(self) -> None:
        await anyio.lowlevel.checkpoint()
        raise OSError("cannot be closed")


async def test_a_request_of_a_wrapper_ends_with_its_transport_also_when_that_cannot_be_closed() -> None:
    transport = LineWrapper(NeverClosing())
    await transport.connect()
    failed: list[Exception] = []

    async def ask() -> None:
        with pytest.raises((TransportClosed, ConnectionLost)) as caught:
            await transport.request("interrupt", timeout=3600.0)
        failed.append(caught.value)

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            assert failed == []
            with pytest.raises(OSError, match="cannot be closed"):
                await transport.close()
    assert len(failed) == 1


# -------------------------------------------------------------------------------------------------------------------- recording


async def test_the_end_of_the_output_is_on_a_tape_once_however_often_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tape.ndjson"
    async with RecordingTransport(MockTransport([RESULT]), path) as transport:
        for expected in ([RESULT], [], []):
            assert [message async for message in transport.read_messages()] == expected
    notes = [record.line for record in Tape.read(path) if record.dir == "note"]
    assert notes.count(OUTPUT_ENDED.encode() if isinstance(OUTPUT_ENDED, str) else OUTPUT_ENDED) == 1


def test_the_options_on_a_tape_have_the_names_alone_of_what_may_be_secret() -> None:
    servers: Any = {
        "one": {"command": "x", "env": {"TOKEN": SECRET}, "args": ["--flag"]},
        "two": {"type": "http", "url": "u", "headers": {"B": SECRET}},
    }
    settings = {"hooks": [{"env": {"DEEP": SECRET}}, [{"headers": {"A": SECRET, "C": SECRET}}]], "env": {"Z": SECRET, "Y": SECRET}}
    transport = SubprocessTransport(ClaudeOptions(mcp_servers=servers, settings=settings, env={"NAME": SECRET}))
    noted = options_of(transport)
    assert SECRET not in str(noted)
    assert noted["env"] == ["NAME"]
    assert noted["settings"] == {"hooks": [{"env": ["DEEP"]}, [{"headers": ["A", "C"]}]], "env": ["Y", "Z"]}
    assert noted["mcp_servers"]["one"] == {"command": "x", "env": ["TOKEN"], "args": ["--flag"]}


def open_files() -> int:
    return len(list(FILES.iterdir()))


async def test_a_tape_that_cannot_be_made_private_leaves_no_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object) -> None:
        raise PermissionError(1, "not yours")

    monkeypatch.setattr(recording, "make_private", refuse)
    before = open_files()
    for _ in range(3):
        transport = RecordingTransport(MockTransport([RESULT]), tmp_path / "tape.ndjson")
        await transport.connect()
        await transport.close()
    assert open_files() == before


# ----------------------------------------------------------------------------------------------------------------------- masks


@pytest.mark.parametrize("length", [50, 2**16, 2**18])
@pytest.mark.parametrize("at", [0, 30, 38, 40, 44])
def test_the_beginning_of_a_redacted_text_holds_no_part_of_a_secret_wherever_it_lies(length: int, at: int) -> None:
    def redact(data: bytes) -> bytes:
        return data.replace(SECRET.encode(), b"[x]")

    data = (b"ab" * length)[:at] + SECRET.encode() + (b"cd" * length)[:length]
    head, is_all = redacted_head(data, redact=redact, at_most=10)
    whole = redact(data).decode()
    assert whole.startswith(head)
    assert is_all == (len(data) <= 40 + 2**16)
    assert len(head) >= (len(whole) if is_all else 10)
    assert not any(SECRET[:size] in head for size in (6, 12, len(SECRET)))


def test_a_part_of_a_text_that_is_not_utf_8_is_shown_escaped() -> None:
    assert redacted_head(b"\xff\xfe", redact=lambda data: data, at_most=1) == ("\\xff\\xfe", True)


# ----------------------------------------------------------------------------------------------------------------------- counts


DELTA = b'{"type":"stream_event","event":{"type":"content_block_delta","index":0}}'


def test_only_lines_that_certainly_are_deltas_are_left_out() -> None:
    others = [
        b'{"type":"stream_event","event":{"type":"content_block_delta"}}',
        b'{"type":"stream_event","event":{"type":"content_block_delta-"}}',
        b'{"type":"stream_event","event":{"type":"content_block_stop"}}',
        b'{"type":"assistant"}',
        b"",
        b"~",
        b"\x00",
    ]
    assert without_deltas([DELTA, *others, DELTA]) == others


def test_the_size_of_lines_counts_newlines_and_what_was_cut() -> None:
    assert size_of([]) == 0
    assert size_of([b"ab", b""]) == 4
    assert size_of([b"ab", OversizedLine(b"abc", size=1000, limit=3)]) == 3 + 1001


class TooMuchToCopy(UserList[bytes]):
    """Lines for whose copy there is no memory."""

    def __init__(self, lines: list[bytes]) -> None:
        super().__init__(lines)
        self.looks = 0

    def __iter__(self) -> Iterator[bytes]:
        self.looks += 1
        if self.looks == 1:
            raise MemoryError
        return iter(self.data)


def test_lines_that_are_too_large_to_copy_are_counted_all_the_same() -> None:
    assert size_of(TooMuchToCopy([b"ab", b"", OversizedLine(b"abc", size=1000, limit=3)])) == 3 + 1 + 1001


async def test_costs_that_are_no_sum_of_money_count_for_nothing() -> None:
    costs = ["0.25", "-1", "NaN", "1e999", "1" + "0" * 400, "0.5"]
    lines = [b'{"type":"result","subtype":"success","is_error":false,"result":"x","total_cost_usd":%s}' % each.encode() for each in costs]
    async with MetricsTransport(MockTransport(lines)) as transport:
        assert len([line async for batch in transport.read_lines() for line in batch]) == len(costs)
        cost = transport.metrics.snapshot().cost_usd
    assert cost == 0.75


# ------------------------------------------------------------------------------------------------------------------------ memory


class Failing(MockTransport):
    """Does not connect before the second attempt. `first` is the error of the first one."""

    first: weakref.ref[Exception] | None = None

    async def connect(self) -> None:
        if self.first is None:
            error = CLIConnectionError("not yet", retryable=True)
            self.first = weakref.ref(error)
            try:
                raise error
            finally:
                del error  # it holds this frame
        await super().connect()


async def test_an_attempt_that_failed_is_forgotten_when_the_next_one_has_succeeded() -> None:
    async def at_once(_seconds: float) -> None:
        await anyio.lowlevel.checkpoint()

    inner = Failing([RESULT])
    gc.collect()
    gc.disable()
    try:
        async with RetryingTransport(inner, attempts=2, sleep=at_once):
            assert inner.first is not None
            assert inner.first() is None
    finally:
        gc.enable()


# ---------------------------------------------------------------------------------------------------------------- what is logged


async def test_a_tape_that_cannot_be_written_is_logged_without_what_a_terminal_would_obey(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object) -> None:
        raise PermissionError("no\x1b[31m\nsecond line")

    monkeypatch.setattr(recording, "make_private", refuse)
    async with RecordingTransport(MockTransport([RESULT]), tmp_path / "a\x1b[2Jb\nc"):
        pass
    (said,) = [record.getMessage() for record in caplog.records if "has stopped" in record.getMessage()]
    assert said.startswith("recording to ")
    assert "second line" in said
    assert all(character.isprintable() for character in said)


@pytest.mark.parametrize("settings", [{"bodies": False}, {"bodies": True, "max_body_chars": 50}, {"bodies": True, "max_body_chars": 10**6}])
@pytest.mark.parametrize("secret", ["", "sk-ant-api03-" + "Ab1-" * 12])
async def test_the_names_that_a_peer_chooses_are_short_in_the_log(
    settings: dict[str, Any], secret: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    names = {"type": secret + "t" * 5000, "subtype": "s" * 5000, "uuid": "u" * 5000, "session_id": "i" * 5000}
    async with LoggingTransport(MockTransport([names]), logger=logging.getLogger("named"), **settings) as transport:
        assert len([line async for line in transport.read_lines()]) == 1
    (record,) = [record for record in caplog.records if record.name == "named" and "sss" in record.getMessage()]
    names = {name: value for name, value in vars(record).items() if name.startswith("claude_") and value and name != "claude_body"}
    assert max(len(str(value)) for value in names.values()) < 150  # 100 characters, and how many there were
    assert "Ab1-Ab1-" not in str(vars(record))


async def test_a_peer_that_reports_impossible_tokens_counts_what_an_exporter_can_hold() -> None:
    usage = {"input_tokens": 10**18, "output_tokens": -5, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 0}
    result = {**RESULT, "usage": usage, "uuid": "u-1", "session_id": "s"}
    async with MetricsTransport(MockTransport([result])) as transport:
        assert len([line async for line in transport.read_lines()]) == 1
        tokens = transport.metrics.snapshot().tokens
    assert (tokens.input_tokens, tokens.output_tokens, tokens.cache_read_input_tokens) == (10**15, 0, 7)
