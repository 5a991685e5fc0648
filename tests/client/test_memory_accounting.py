"""`max_buffered_bytes` bounds memory: what messages are said to take is measured against what they do take, for every kind of line."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from heavy_lines import EVERYDAY, HOSTILE, TINY, text
from hypothesis import given, settings
from hypothesis import strategies as st
from peers import soon

from claude_transport import Query, ResultMessage, Transport
from claude_transport.client.storage import ClaudeMailbox, RecentMessages, cost_at_most, cost_of
from claude_transport.protocol.codec import LineDecoder, decode_message
from claude_transport.protocol.envelope import Message, encode_line
from claude_transport.protocol.tape import Tape

MB = 2**20
FACTOR = 2  # by which memory may be more than what is counted, as docs/explanation/buffering.md says
RECORDINGS = sorted((Path(__file__).parent.parent / "recordings").glob("*.ndjson"))
RECORDED = {  # the last line of each class
    f"recorded {type(decode_message(line)).__name__}": line
    for path in RECORDINGS
    for record in Tape.read(path)
    if record.dir == "out" and record.trimmed_from_chars is None and (line := record.line).startswith(b"{")
}
ALL = {**TINY, **EVERYDAY, **HOSTILE, **RECORDED}


def memory_of(make: Callable[[], object]) -> int:
    """Bytes that what `make` returns keeps alive."""
    make()  # what is made once and kept is not counted
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        made = make()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    del made
    return after - before


def read(line: bytes, *, count: int) -> list[Message]:
    """That many messages of this line, each of bytes of its own."""
    decoder = LineDecoder()
    return [message for _ in range(count) for message in decoder.messages([bytes(bytearray(line))])]


@pytest.mark.one_loop
@pytest.mark.parametrize("line", ALL.values(), ids=ALL)
def test_a_message_takes_at_most_twice_the_memory_it_is_counted_with(line: bytes) -> None:
    count = max(2, min(200, 50_000 // len(line)))
    cost = sum(map(cost_of, read(line, count=count)))
    assert memory_of(lambda: read(line, count=count)) <= FACTOR * cost


@pytest.mark.one_loop
@pytest.mark.parametrize("line", [*EVERYDAY.values(), *RECORDED.values()], ids=[*EVERYDAY, *RECORDED])
def test_an_everyday_message_is_counted_with_no_more_than_three_times_its_memory(line: bytes) -> None:
    count = max(2, min(200, 50_000 // len(line)))
    cost = sum(map(cost_of, read(line, count=count)))
    assert cost <= 3 * memory_of(lambda: read(line, count=count))


@pytest.mark.parametrize("line", ALL.values(), ids=ALL)
def test_no_message_costs_more_than_the_quick_look_says(line: bytes) -> None:
    messages = read(line, count=3)
    assert sum(map(cost_of, messages)) <= cost_at_most(messages)


TEXT = st.text(st.characters(exclude_characters="{[,:"), max_size=5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=40,
)


@settings(deadline=None)
@given(
    JSON, st.sampled_from(["stream_event", "assistant", "result", "user", "zzz"]), st.sampled_from(["event", "message", "modelUsage", "a"])
)
def test_no_object_costs_more_than_the_quick_look_says(value: Any, kind: str, name: str) -> None:
    message = decode_message(encode_line({"type": kind, name: value})[:-1])
    assert len(message.raw) < cost_of(message) <= cost_at_most([message])


# ----------------------------------------------------------------------------------------------------- a whole conversation


class Hose(Transport):
    """Says one line over and over, in batches as a pipe would give them, for as long as it is read."""

    def __init__(self, line: bytes) -> None:
        self.line = line
        self.batch = min(max(2**16 // (len(line) + 1), 1), 2000)
        self.said = 0
        self.control: list[bytes] = []
        self.flowing = False
        self.ended = False
        self.news = anyio.Event()

    async def connect(self) -> None:
        pass

    async def write(self, data: str | bytes) -> None:
        for line in (data.encode() if isinstance(data, str) else data).splitlines():
            frame = decode_message(line).to_dict()
            if frame["type"] == "control_request":
                answer = {"subtype": "success", "request_id": frame["request_id"], "response": {}}
                self.control.append(encode_line({"type": "control_response", "response": answer})[:-1])
            self.flowing = self.flowing or frame["type"] == "user"
        self.news.set()

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        raise NotImplementedError

    async def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
        while not self.ended:
            if self.control:
                yield [self.control.pop(0)]
            elif self.flowing:
                self.said += self.batch
                yield [bytes(bytearray(self.line)) for _ in range(self.batch)]
                await anyio.lowlevel.checkpoint()
            else:
                self.news = anyio.Event()
                await self.news.wait()

    async def end_input(self) -> None:
        self.ended = True
        self.news.set()

    async def close(self) -> None:
        await self.end_input()

    def is_ready(self) -> bool:
        return False


WIDE = ("one emoji in a long text", "empty objects", "many short stacks of lists", "many keys", "as many misfits as are saved")
HOSES = {**TINY, **EVERYDAY, **{name: HOSTILE[name] for name in WIDE}}


NOT_STORED = (b"control", b'"result"', b'"keep_alive"')  # what the conversation takes for itself, or what ends the turn


@pytest.mark.one_loop
@pytest.mark.parametrize("name", [name for name, line in HOSES.items() if not any(word in line[:30] for word in NOT_STORED)])
async def test_what_is_not_read_takes_no_more_memory_than_the_documented_factor(name: str) -> None:
    transport = Hose(HOSES[name])
    async with Query(transport, max_buffered_bytes=MB) as query:
        gc.collect()
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            turn = await query.send("go")
            await soon(lambda: query.buffered_bytes > MB)
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            gc.collect()
            held = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        one_batch = transport.batch * cost_of(decode_message(transport.line))
        assert query.buffered_bytes <= MB + one_batch
        # beside them, `MissingResult` may ask for the last MB of lines, and the last batch is still in the reader's hands
        assert held <= FACTOR * (MB + 2 * one_batch) + MB
        assert turn.is_open()


@pytest.mark.parametrize("reads", [True, False], ids=["read", "not read"])
async def test_messages_are_priced_once_and_only_when_they_are_not_read(reads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    priced = 0

    def counting(message: Message) -> int:
        nonlocal priced
        priced += 1
        return cost_of(message)

    monkeypatch.setattr(ClaudeMailbox, "cost_of", staticmethod(counting))
    transport = Hose(EVERYDAY["a piece of text"])
    async with Query(transport, max_buffered_bytes=8 * MB) as query:
        turn = await query.send("go")
        if reads:
            for _ in range(50_000):
                await anext(turn)
            assert priced == 0
        else:
            said = -1
            while transport.said > said:
                said = transport.said
                for _ in range(20):
                    await anyio.lowlevel.checkpoint()
            assert 4000 < priced <= said
            assert query.buffered_bytes > 8 * MB
            assert turn.is_open()


def large(said: str) -> bytes:
    """A line that repeats the result of a tool, as a CLI does."""
    block = {"type": "tool_result", "tool_use_id": "toolu_1", "content": said}
    line = {"type": "user", "message": {"role": "user", "content": [block]}, "tool_use_result": {"stdout": said, "stderr": ""}}
    return encode_line(line)[:-1]


def spoken(said: str) -> bytes:
    """A line with two texts of the model."""
    blocks = [{"type": "text", "text": said}, {"type": "text", "text": said[:1000]}]
    return encode_line({"type": "assistant", "message": {"role": "assistant", "content": blocks}})[:-1]


LARGE = {"prose": "so it goes on, and on: [{ " * 4000, "quotes": '"yes", he said\n' * 6000, "other letters": "\u00fc\U0001f600" * 20_000}


@pytest.mark.parametrize("said", LARGE.values(), ids=LARGE)
@pytest.mark.parametrize("how", [large, spoken])
def test_no_large_text_costs_more_than_the_quick_look_says(said: str, how: Callable[[str], bytes]) -> None:
    line = how(said)
    for each in (line, line.replace(b",", b" ,  "), json.dumps(json.loads(line)).encode()):
        message = decode_message(each)
        assert len(each) < cost_of(message) <= cost_at_most([message])


@pytest.mark.parametrize("said", LARGE.values(), ids=LARGE)
def test_a_large_text_is_known_to_be_no_structure(said: str) -> None:
    message = decode_message(large(said))
    assert cost_at_most([message]) < 40 * len(message.raw)  # and not 48


# ----------------------------------------------------------------------------------------------------- the mailbox, the last messages


def test_what_was_counted_is_not_counted_again_and_what_was_taken_no_more() -> None:
    box = ClaudeMailbox()
    messages = [decode_message(text("x" * number)) for number in range(2000)]
    for first in range(0, 2000, 100):
        box.put(first, messages[first : first + 100])
        left = messages[first // 10 : first + 100]
        assert box.cost == box.count() == box.cost == sum(map(cost_of, left)) <= box.cost_at_most
        for expected in left[:10]:
            assert box.take() is expected
    while box.take() is not None:
        pass
    assert box.cost == 0


KEPT = ["an empty object", "a bare user message", "a bare result", "an answer of 2.3 KB", "an answer of 1 MB", "many keys", "empty denials"]


@pytest.mark.one_loop
@pytest.mark.parametrize("name", KEPT)
def test_the_last_messages_take_a_bounded_memory(name: str) -> None:
    line = ALL[name]
    cost = cost_of(decode_message(line)) if b'"result"' in line[:20] else len(line) + 32

    def remember() -> RecentMessages:
        recent = RecentMessages()
        for _ in range(2 * MB // cost + 2):
            own = bytes(bytearray(line))
            recent.add([decode_message(own) if b'"result"' in line[:20] else Line(raw=own)])
        return recent

    assert memory_of(remember) < FACTOR * MB + 2**16


class Line(Message, frozen=True):
    """A message that is nothing but its line, which is all that is kept of it."""


def test_the_last_messages_are_those_that_came_last() -> None:
    recent = RecentMessages(at_most=3)
    result = ResultMessage(result="done", assistant_error="overloaded")
    messages = [decode_message(text(str(number))) for number in range(5)]
    recent.add(messages)
    recent.add([result])
    assert recent.messages() == (*messages[3:], result)
    assert recent.messages()[2] is result  # with what its line does not say
    recent.clear()
    assert recent.messages() == ()
