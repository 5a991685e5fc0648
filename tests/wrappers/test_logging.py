"""Wire logging: every line and event is a record with fields, nothing secret is in it, and it can break nothing."""

from __future__ import annotations

import cProfile
import itertools
import json
import logging
import random
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from span_recorder import SpanRecorder

from claude_transport.client.query import Query
from claude_transport.errors import ConfigurationError, ConnectTimeout, ProcessError, TransportClosed
from claude_transport.launch.options import ClaudeOptions
from claude_transport.protocol.framing import OversizedLine
from claude_transport.protocol.redaction import Redactor
from claude_transport.protocol.tape import Tape
from claude_transport.testing import FakeClaude, Scenario, steps
from claude_transport.transports.mock import MockTransport
from claude_transport.transports.subprocess import SubprocessTransport
from claude_transport.wrappers.logging import LoggingTransport
from claude_transport.wrappers.metrics import MetricsRegistry, MetricsTransport
from claude_transport.wrappers.recording import RecordingTransport
from claude_transport.wrappers.stateful import StatefulTransport
from claude_transport.wrappers.tracing import TracingTransport

RESULT = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "done", "uuid": "u-1"}
PATIENCE = 30.0
"""Seconds; only a failure takes that long."""


class Kept(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.times: list[float] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self.times.append(time.time())

    def fields(self) -> list[dict[str, Any]]:
        """The fields of each record, without the prefix."""
        return [
            {name.removeprefix("claude_"): value for name, value in vars(record).items() if name.startswith("claude_")}
            for record in self.records
        ]

    def messages(self) -> list[str]:
        return [record.getMessage() for record in self.records]


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """The default logger, on, and silent upwards."""
    logger = logging.getLogger("claude_transport.wire")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    yield logger
    logger.setLevel(logging.NOTSET)
    logger.propagate = True


@pytest.fixture
def kept(logger: logging.Logger) -> Iterator[Kept]:
    handler = Kept()
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


class Lines(MockTransport):
    """These lines as they are, in one batch; and a failure at the end, if there is one."""

    def __init__(self, *lines: bytes, error: Exception | None = None) -> None:
        super().__init__()
        self.batches = [lines]
        self.error = error

    def read_lines(self) -> Any:
        return self

    def __aiter__(self) -> Lines:
        return self

    async def __anext__(self) -> tuple[bytes, ...]:
        if self.batches:
            return self.batches.pop()
        raise self.error or StopAsyncIteration


async def heard(kept: Kept, *lines: bytes, **options: Any) -> list[dict[str, Any]]:
    """The fields of the records of these lines, when they are read."""
    async with LoggingTransport(Lines(*lines), **options) as transport:
        assert [line for batch in [batch async for batch in transport.read_lines()] for line in batch] == [*lines]
    return [fields for fields in kept.fields() if fields["event"] == "line"]


# ------------------------------------------------------------------------------------------------------------- what is logged


async def test_a_session_is_logged_from_its_beginning_to_its_end(kept: Kept) -> None:
    claude = MockTransport.script().expect(type="user").reply(RESULT).end()
    async with LoggingTransport(claude) as transport:
        await transport.write(b'{"type":"user","uuid":"p-1","message":{"content":"private"}}\n')
        assert [message["type"] async for message in transport.read_messages()] == ["result"]
        await transport.end_input()
    size = len(json.dumps(RESULT, separators=(",", ":")))
    assert kept.fields() == [
        {"event": "connecting"},
        {"event": "connected"},
        {"event": "line", "direction": "sent", "size": 60, "type": "user", "uuid": "p-1"},
        {"event": "line", "direction": "received", "size": size, "type": "result", "subtype": "success", "uuid": "u-1"},
        {"event": "output_ended", "exit_code": 0},
        {"event": "input_ended"},
        {"event": "closing"},
        {"event": "closed"},
    ]
    assert kept.messages() == [
        "connecting",
        "connected",
        "sent user p-1 (60 bytes)",
        f"received result success u-1 ({size} bytes)",
        "the output has ended",
        "the input has ended",
        "closing",
        "closed",
    ]
    assert {record.levelno for record in kept.records} == {logging.DEBUG}
    assert {record.name for record in kept.records} == {"claude_transport.wire"}


@pytest.mark.parametrize(
    ("line", "names"),
    [
        (
            b'{"type":"control_request","request_id":"r-1","request":{"subtype":"initialize","hooks":{"x":[1]}}}',
            {"type": "control_request", "subtype": "initialize", "request_id": "r-1"},
        ),
        (
            b'{"type":"control_response","response":{"subtype":"success","request_id":"r-2","response":{"subtype":"other"}}}',
            {"type": "control_response", "subtype": "success", "request_id": "r-2"},
        ),
        (b'{"type":"control_request","request":null}', {"type": "control_request"}),
        (b'{"type":"control_request","request":[1]}', {}),
        (b'{"type":"system","subtype":"init","uuid":"u","session_id":"s"}', {"type": "system", "subtype": "init", "uuid": "u"}),
        (b'{"type":7,"subtype":{"a":1},"uuid":null}', {}),
        (b'{"type":"bad\\ud800"}', {}),
        (b"[1]", {}),
        (b"[debug] noise", {}),
        (b"\xff", {}),
        (b'{"type":"user"', {}),
        (b"[" * 100_000, {}),
    ],
)
async def test_a_line_is_known_by_its_envelope_and_by_its_size_without_one(kept: Kept, line: bytes, names: dict[str, str]) -> None:
    assert await heard(kept, line) == [{"event": "line", "direction": "received", "size": len(line), **names}]
    assert kept.messages()[2].startswith("received " + (" ".join(names.values()) or "a line that is no message"))


async def test_every_line_of_one_write_and_of_one_batch_is_a_record(kept: Kept) -> None:
    assert len(await heard(kept, b'{"type":"a"}', b'{"type":"b"}')) == 2
    kept.records.clear()
    async with LoggingTransport(MockTransport()) as transport:
        await transport.write('{"type":"é"}\n\n{"type":"b"}\n')
    lines = [fields for fields in kept.fields() if fields["event"] == "line"]
    assert [(fields["type"], fields["size"], fields["direction"]) for fields in lines] == [("é", 13, "sent"), ("b", 12, "sent")]


async def test_records_of_one_batch_have_their_place_their_process_and_times_of_their_own(kept: Kept) -> None:
    await heard(kept, b'{"type":"a"}', b'{"type":"b"}', b'{"type":"c"}')
    place = (kept.records[0].pathname, kept.records[0].lineno)
    alone = logging.LogRecord("claude_transport.wire", logging.DEBUG, *place, "", (), None, "_record")
    lines = [record for record in kept.records if vars(record)["claude_event"] == "line"]
    assert kept.times[1] <= lines[0].created <= kept.times[2] <= lines[1].created <= kept.times[3] <= lines[2].created <= kept.times[4]
    own = {"msg", "args", "created", "msecs", "relativeCreated", "message"}
    for record in lines:
        assert {name: value for name, value in vars(record).items() if name not in own and not name.startswith("claude_")} == {
            name: value for name, value in vars(alone).items() if name not in own
        }
        assert record.msecs == int(record.created % 1 * 1000)
        assert record.relativeCreated - lines[0].relativeCreated == pytest.approx((record.created - lines[0].created) * 1000)


@pytest.mark.parametrize("who", ["factory", "logger"])
async def test_a_program_that_makes_its_records_itself_makes_each(kept: Kept, who: str) -> None:
    class Numbered(logging.Logger):
        def makeRecord(self, *args: Any, **how: Any) -> logging.LogRecord:  # noqa: N802 - the name in `logging`
            record = super().makeRecord(*args, **how)
            record.number = next(numbers)  # type: ignore[attr-defined]
            return record

    def factory(*args: Any, **how: Any) -> logging.LogRecord:
        record = logging.LogRecord(*args, **how)
        record.number = next(numbers)  # type: ignore[attr-defined]
        return record

    numbers = itertools.count()
    logger: logging.Logger = logging.Logger("own", logging.DEBUG)  # noqa: LOG001 - a logger without a parent
    if who == "logger":
        logger = Numbered("own", logging.DEBUG)
    else:
        logging.setLogRecordFactory(factory)
    logger.addHandler(kept)
    try:
        await heard(kept, b'{"type":"a"}', b'{"type":"b"}', b'{"type":"c"}', logger=logger)
    finally:
        logging.setLogRecordFactory(logging.LogRecord)
    assert [vars(record)["number"] for record in kept.records] == [*range(len(kept.records))]


async def test_the_size_of_an_oversized_line_is_its_own_not_that_of_the_head_that_was_kept(kept: Kept) -> None:
    (fields,) = await heard(kept, OversizedLine(b'{"type":"user","x":"', size=10**9, limit=20), bodies=True)
    assert (fields["size"], fields["body"]) == (10**9, '{"type":"user","x":"')


async def test_failures_are_logged_with_their_class_and_code_and_are_the_same_outside(kept: Kept) -> None:
    class Failing(Lines):
        attempts = 0

        async def connect(self) -> None:
            self.attempts += 1
            if self.attempts == 1:
                raise ConnectTimeout("no answer from https://me:pass-word@host\nsecond line", waited=1.0)
            await super().connect()

        async def write(self, data: str | bytes) -> None:
            raise TransportClosed("gone", exit_code=7)

    transport = LoggingTransport(Failing(error=ProcessError("it ended with exit code 7", exit_code=7)))
    with pytest.raises(ConnectTimeout):
        await transport.connect()
    async with transport:
        with pytest.raises(TransportClosed):
            await transport.write("{}")
        await anext(lines := transport.read_lines())
        with pytest.raises(ProcessError):
            await anext(lines)
    failures = [fields for fields in kept.fields() if "error" in fields]
    assert failures == [
        {
            "event": "connect_failed",
            "error": "ConnectTimeout",
            "code": "connect.timeout",
            "reason": "no answer from https://[secret]@host\\nsecond line",
        },
        {"event": "write_failed", "error": "TransportClosed", "code": "usage.closed", "reason": "gone"},
        {
            "event": "output_ended",
            "error": "ProcessError",
            "code": "exec.cli.exited",
            "reason": "it ended with exit code 7",
            "exit_code": 7,
        },
    ]
    assert "the output has ended: ProcessError: it ended with exit code 7" in kept.messages()


async def test_a_close_that_fails_is_logged_with_its_reason(kept: Kept) -> None:
    class Stuck(MockTransport):
        async def close(self) -> None:
            await super().close()
            raise TransportClosed("it is stuck")

    transport = LoggingTransport(Stuck())
    await transport.connect()
    with pytest.raises(TransportClosed):
        await transport.close()
    assert kept.fields()[-1] == {"event": "closed", "error": "TransportClosed", "code": "usage.closed", "reason": "it is stuck"}
    assert kept.messages()[-1].endswith("closed: TransportClosed: it is stuck")


async def test_a_cancelled_call_is_logged_as_one(kept: Kept) -> None:
    class Hanging(MockTransport):
        async def connect(self) -> None:
            await anyio.sleep_forever()

    with anyio.CancelScope() as scope:
        scope.cancel()
        await LoggingTransport(Hanging()).connect()
    assert [fields["event"] for fields in kept.fields()] == ["connecting", "connect_failed"]
    assert "Cancelled" in kept.fields()[1]["error"]


async def test_a_process_is_known_by_its_number_and_its_end(kept: Kept) -> None:
    with FakeClaude(Scenario.text("Hello")) as fake, anyio.fail_after(PATIENCE):
        transport = SubprocessTransport(command=fake.command)
        async with Query(LoggingTransport(transport)) as query:
            await (await query.send("Hi")).result()
            await query.end_input()
            async for _ in query.messages():
                pass
        info = transport.info
    by_event = {fields["event"]: fields for fields in kept.fields()}
    assert by_event["connected"]["pid"] == info.pid
    assert by_event["output_ended"] == {"event": "output_ended", "exit_code": 0}


# ------------------------------------------------------------------------------------------------------------- bodies


async def test_what_was_said_is_not_logged_unless_asked_for(kept: Kept) -> None:
    line = b'{"type":"user","message":{"role":"user","content":"private matters"}}'
    (fields,) = await heard(kept, line)
    assert "body" not in fields
    assert "private" not in "".join(kept.messages())
    kept.records.clear()
    (fields,) = await heard(kept, line, bodies=True)
    assert fields["body"] == line.decode()
    assert kept.messages()[2] == f"received user ({len(line)} bytes): {line.decode()}"


async def test_a_body_is_shortened_after_it_was_redacted_so_that_no_half_of_a_secret_is_left(kept: Kept) -> None:
    line = b'{"type":"user","text":"' + b"x" * 20 + b' sk-ant-api03-abcdefghijklmnop tail"}'
    for at_most in range(40, len(Redactor().line(line))):
        kept.records.clear()
        (fields,) = await heard(kept, line, bodies=True, max_body_chars=at_most)
        assert "sk-a" not in fields["body"]
        head, _, rest = fields["body"].partition("… (")
        assert len(head) == at_most
        assert int(rest.partition(" ")[0]) == len(Redactor().line(line)) - at_most


class Counting(Redactor):
    """A redactor that counts the bytes it is given."""

    seen = 0

    def line(self, line: bytes, **how: Any) -> bytes:
        self.seen += len(line)
        return super().line(line, **how)


FRAGMENTS = ("text", "thinking", "partial_json", "signature")


@pytest.mark.parametrize("field", [*FRAGMENTS, "delta"])
async def test_a_secret_in_several_fragments_of_a_text_is_not_in_the_log(kept: Kept, field: str) -> None:
    secret = "sk-ant-api03-" + "0123456789abcdef" * 4
    messages: list[dict[str, Any]] = []
    for part in [secret[at : at + 5] for at in range(0, len(secret), 5)]:
        if field == "delta":
            messages.append({"method": "item/agentMessage/delta", "params": {"itemId": "i", "delta": part}})
        else:
            delta = {"type": "some_delta", field: part}
            event = {"type": "content_block_delta", "index": 0, "delta": delta}
            messages.append({"type": "stream_event", "uuid": "u", "session_id": "s", "event": event})
    async with LoggingTransport(MockTransport([*messages, RESULT]), bodies=True) as transport:
        received = [message async for message in transport.read_messages()]
    assert received == [*messages, RESULT]
    bodies = [fields["body"] for fields in kept.fields() if fields.get("direction") == "received"]
    assert len(bodies) == len(messages) + 1
    assert all(f'"{field}":"[5 characters]"' in body for body in bodies[:14])
    assert not any(part in body for body in bodies for part in ("ant-a", "cdef0", "01234"))
    assert '"result":"done"' in bodies[-1]


@pytest.mark.parametrize(
    ("fragment", "shown"),
    [
        (rb'"text":"hunter"', '"text":"[6 characters]"'),
        (rb'"text" : "hunter"', '"text" : "[6 characters]"'),
        (rb'"te\u0078t":"hunter"', '"te\\u0078t":"[6 characters]"'),
        (rb'"text":["hun","ter"]', '"text":["[3 characters]","[3 characters]"]'),
        (rb'"text":"hun\"ter\n\u00e9"', '"text":"[9 characters]"'),
        ('"text":"é€"'.encode(), '"text":"[2 characters]"'),
        (b'"text":"hunter', '"text":"[6 characters]'),
        (b'"text":"hunter\\', '"text":"[7 characters]'),
        (b'"text":"hun\xff"', '"text":"[4 characters]"'),
        (rb'"text":""', '"text":"[0 characters]"'),
        (rb'"note":"\"text\":\"kept\""', '"note":"\\"text\\":\\"kept\\""'),
        (rb'"note":"text","text":"hunter"', '"note":"text","text":"[6 characters]"'),
        (rb'"text":7', '"text":7'),
    ],
)
async def test_of_a_fragment_the_length_is_shown_however_it_is_written(kept: Kept, fragment: bytes, shown: str) -> None:
    (fields,) = await heard(kept, b'{"event":{"type":"content_block_delta","delta":{' + fragment, bodies=True)
    assert fields["body"] == f'{{"event":{{"type":"content_block_delta","delta":{{{shown}'


IDS = ("7f9c2b1e-5a4d-4c3b-8e2f-1a0b9c8d7e6f", "0b0fcf5a-3f5e-4d7b-9d3b-8a5d3c1f8a11", "00000000-0000-4000-8000-000000c0ffee", "u-1", "")
TEXTS = ("a ", "word", "", r"it is \"said\"", r"x\n", "é", "hunter22", "sk-ant-api03-0123456789", "content_block_delta", "[14 characters]")
LINES = (
    '{"type":"stream_event","event":{"type":"content_block_delta","delta":{"text":"%s"}},"session_id":"s","uuid":"%s"}',
    '{"type":"stream_event","event":{"type":"content_block_delta","delta":{"text":"%s"}},"uuid":"%s","note":"hunter22"}',
    '{"type":"stream_event","event":{"type":"content_block_delta","delta":{"text":"%s","text":"[15 characters]"}},"uuid":"%s"}',
    '{"type":"stream_event","event":{"type":"content_block_delta","delta":{"text":"%s"}},"was":{"uuid":"u"},"uuid":"%s"}',
    '{"type":"stream_event","event":{"type":"content_block_delta","delta":{"text":"%s"}},"event":{"uuid":"%s"}}',
    f'{{"uuid":"{IDS[0]}","type":"stream_event","event":{{"type":"content_block_delta","text":"%s"}},"was":{{"uuid":"%s"}}}}',
    '{"type":"stream_event","subtype":"x","event":{"type":"content_block_delta","delta":{"thinking":"%s"}},"uuid":"%s"}',
    '{"type":"assistant","message":{"text":"%s"},"uuid":"%s"}',
    '{"text":"%s","type":"content_block_delta","uuid":"%s"}',
    '{"type":"content_block_delta","text":"%s","uuid":"%s"',
)


@pytest.mark.parametrize("line", LINES)
def test_lines_that_repeat_another_are_logged_as_if_each_were_the_first(line: str) -> None:
    logger = logging.Logger("repeated", logging.DEBUG)  # noqa: LOG001 - a logger without a parent
    logger.addHandler(kept := Kept())
    redactor = Redactor(secrets=["hunter22", "c0ffee"])
    filled = [*itertools.product(TEXTS, IDS)]
    for seed in range(10):
        random.Random(seed).shuffle(filled)
        batch = [(line % filling).encode() for filling in filled]
        kept.records.clear()
        for lines in (batch, *([line] for line in batch)):
            LoggingTransport(MockTransport(), logger=logger, bodies=True, redactor=redactor).on_lines(lines)
        together, alone = kept.fields()[: len(batch)], kept.fields()[len(batch) :]
        assert together == alone
        assert kept.messages()[: len(batch)] == kept.messages()[len(batch) :]
        assert not any("c0ffee" in str(fields["body"]) for fields in together)


async def test_lines_that_repeat_another_are_not_redacted_again_unless_the_redactor_is_of_a_class_of_its_own(kept: Kept) -> None:
    lines = [(LINES[0] % ("a ", own_id)).encode() for own_id in (*IDS[:3], *IDS[:3])]
    redactor = Counting()
    assert len(await heard(kept, *lines, bodies=True, redactor=redactor)) == 6
    assert redactor.seen > sum(map(len, lines))
    kept.records.clear()
    calls = calls_of(lambda: LoggingTransport(MockTransport(), bodies=True, redactor=Redactor()).on_lines(lines))
    assert calls["line"] == 1


async def test_a_line_that_repeats_another_is_cut_where_its_own_text_ends(kept: Kept) -> None:
    short, long = ((LINES[0] % (text, IDS[0])).encode() for text in ("a ", "a few words more"))
    limit = len(short.replace(b'"a "', b'"[2 characters]"'))
    fields = await heard(kept, short, long, bodies=True, redactor=Redactor(), max_body_chars=limit)
    assert [len(each["body"].partition("…")[0]) for each in fields] == [limit, limit]
    assert [each["body"].partition("…")[2] for each in fields] == ["", " (1 more characters)"]


async def test_of_repeated_lines_a_bounded_number_is_remembered(kept: Kept) -> None:
    transport = LoggingTransport(MockTransport(), bodies=True, redactor=Redactor())
    first = [(LINES[0] % ("a ", own_id)).encode() for own_id in IDS[:2]]
    transport.on_lines(first[:1])
    transport.on_lines([first[0].replace(b'"s"', b'"s%d"' % number) for number in range(64)])
    assert calls_of(lambda: transport.on_lines(first[1:]))["line"] == 1
    large = [(LINES[0] % ("a ", own_id)).encode().replace(b'"s"', b'"%s"' % (b"s" * 1000)) for own_id in IDS[:2]]
    transport.on_lines(large[:1])
    assert calls_of(lambda: transport.on_lines(large[1:]))["line"] == 1


def calls_of(run: Callable[[], object]) -> Counter[str]:
    """How often each function was called while `run` ran, by its name."""
    profile = cProfile.Profile()
    profile.runcall(run)
    return Counter({entry.code.co_name: entry.callcount for entry in profile.getstats() if not isinstance(entry.code, str)})


async def test_of_a_long_line_no_more_is_redacted_than_is_needed_to_show_its_beginning(kept: Kept) -> None:
    line = b'{"type":"user","text":"' + b"token " * 10**6 + b'"}'
    redactor = Counting()
    (fields,) = await heard(kept, line, bodies=True, max_body_chars=100, redactor=redactor)
    assert redactor.seen < 200_000
    assert fields["body"] == f"{line[:100].decode()}… ({len(line)} bytes in all)"


LONG_SECRET = "é€ Yarrow €" * 50


@pytest.mark.one_loop
@pytest.mark.parametrize(
    "secret",
    [
        *("sk-ant-api03-Yarrow-Falcon-9926", "Yarrow Kestrel Falcon", "perpetua-yarrow@secret-company.io", "https://me:Yarrow-Falcon@host"),
        *("password=Yarrow-Falcon-9926", LONG_SECRET, "-----BEGIN PRIVATE KEY-----\n" + "Yarrow\n" * 9000),
    ],
)
async def test_of_a_long_line_too_no_half_of_a_secret_is_shown(kept: Kept, secret: str) -> None:
    """Wherever the secret lies, seen from where the line is cut."""
    redactor = Redactor(secrets=["Yarrow Kestrel Falcon", LONG_SECRET])
    for before in [10, *range(50, 80), 200]:
        kept.records.clear()
        # first something that becomes much shorter, so that the end of what is redacted comes near
        start = "password=" + "Z9" * before
        text = json.dumps({"x": f"{start} {secret} tail " + "y" * 200_000}, ensure_ascii=before % 2 == 0)
        (fields,) = await heard(kept, text.encode(), bodies=True, max_body_chars=40, redactor=redactor)
        shown, cut, _ = fields["body"].partition("… (")
        assert cut
        assert len(shown) <= 40
        assert not any(part in shown for part in ("Yarr", "sk-a", "perp", "Falc"))


async def test_nothing_that_is_logged_breaks_the_line_or_the_terminal(kept: Kept) -> None:
    lines = [b"noise \x1b[2J\r\x00\x9b\xff", b'{"type":"a\\n\\u001b[31mb","uuid":"\\u2028"}', '{"type":"x","t":"\u2028\u0085"}'.encode()]
    await heard(kept, *lines, bodies=True)
    for fields, message in zip(kept.fields(), kept.messages(), strict=True):
        assert message.isprintable(), message
        assert all(value.isprintable() for value in fields.values() if isinstance(value, str))


async def test_a_type_or_an_id_as_long_as_a_book_is_shortened(kept: Kept) -> None:
    (fields,) = await heard(kept, b'{"type":"' + b"x" * 5000 + b'"}')
    assert fields["type"].startswith("x" * 100 + "… (4900 more")


async def test_of_a_body_2000_characters_are_shown_and_of_a_failure_500(kept: Kept) -> None:
    (fields,) = await heard(kept, b"y" * 5000, bodies=True)
    assert fields["body"] == f"{'y' * 2000}… (3000 more characters)"
    with pytest.raises(ValueError, match="xxx"):
        async with LoggingTransport(Lines(error=ValueError("x" * 5000))) as transport:
            assert [batch async for batch in transport.read_lines()] == [()]
    (reason,) = [fields["reason"] for fields in kept.fields() if fields["event"] == "output_ended" and "reason" in fields]
    assert reason == f"{'x' * 500}… (4500 more characters)"


# ------------------------------------------------------------------------------------------------------------- on and off


async def test_a_level_that_is_not_enabled_costs_nothing_and_can_be_switched_on(logger: logging.Logger, kept: Kept) -> None:
    inside = MockTransport([{"n": 1}, {"n": 2}, {"n": 3}])
    transport = LoggingTransport(inside, level="info")
    logger.setLevel(logging.WARNING)
    assert transport.is_idle
    async with transport:
        assert type(transport.read_lines()) is type(inside.read_lines())
        assert await anext(transport.read_messages()) == {"n": 1}
        await transport.write("{}")
        assert kept.records == []
        logger.setLevel(logging.INFO)
        assert not transport.is_idle
        assert await anext(transport.read_messages()) == {"n": 2}
        messages = transport.read_messages()
        logger.setLevel(logging.WARNING)
        assert await anext(messages) == {"n": 3}
        logger.setLevel(logging.INFO)
    assert [(fields["event"], fields.get("size")) for fields in kept.fields()] == [("line", 7), ("closing", None), ("closed", None)]
    assert {record.levelno for record in kept.records} == {logging.INFO}


async def test_a_handler_that_raises_breaks_nothing(logger: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError(f"cannot log: {record.getMessage()}")

    logger.addHandler(handler := Broken())
    try:
        async with LoggingTransport(MockTransport([{"n": 1, "token": "sk-ant-a"}, {"n": 2}]), bodies=True) as transport:
            await transport.write("{}")
            assert [message["n"] async for message in transport.read_messages()] == [1, 2]
    finally:
        logger.removeHandler(handler)
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [message.partition(",")[0] for message in said] == [f"LoggingTransport: RuntimeError raised in {__file__}"]


async def test_a_handler_that_fails_on_one_line_of_a_batch_still_gets_the_others(logger: logging.Logger) -> None:
    class Picky(Kept):
        def emit(self, record: logging.LogRecord) -> None:
            if getattr(record, "claude_type", "") == "b":
                raise RuntimeError("not this one")
            super().emit(record)

    logger.addHandler(handler := Picky())
    try:
        await heard(handler, b'{"type":"a"}', b'{"type":"b"}', b'{"type":"c"}')
    finally:
        logger.removeHandler(handler)
    assert [fields["type"] for fields in handler.fields() if fields["event"] == "line"] == ["a", "c"]


async def test_any_logger_at_any_level_will_do(kept: Kept) -> None:
    logger = logging.getLogger("my.own")
    logger.setLevel(5)
    own = Kept()
    logger.addHandler(own)
    try:
        for given in (logger, "my.own"):
            async with LoggingTransport(MockTransport(), logger=given, level=5):
                pass
    finally:
        logger.removeHandler(own)
        logger.setLevel(logging.NOTSET)
    assert [record.levelno for record in own.records] == [5] * 8
    assert kept.records == []


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"logger": 7}, "logger"),
        ({"level": "LOUD"}, "level"),
        ({"level": None}, "level"),
        ({"level": True}, "level"),
        ({"max_body_chars": 0}, "max_body_chars"),
        ({"max_body_chars": "9"}, "max_body_chars"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(options: dict[str, Any], option: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        LoggingTransport(MockTransport(), **options)
    assert refused.value.option == option


# -------------------------------------------------------------------------------------------------------------- the sentinels

# Each is of its own kind, and looks like a word: what finds it is where it stands, or that it is known.
SENTINELS = {
    "a variable of this process": "Walnut-Kestrel-4471",
    "a variable of the options": "Juniper-Osprey-5582",
    "a header of an MCP server": "Mallow-Heron-6693",
    "the environment of an MCP server": "Tansy-Plover-7704",
    "a setting": "Sorrel-Merlin-8815",
    "a custom header of this process": "Bramble Curlew 1137",
    "a custom header of the options": "Hyssop-Dunlin-2248",
    "a custom header of the settings": "Clover-Siskin-3359",
    "a custom header of the project's settings file": "Burdock-Wren-4460",
    "a key by its shape": "sk-ant-api03-Yarrow-Falcon-9926",
    "an e-mail address": "perpetua@secret-company.io",
    "a user and a home": "perpetua",
}


def custom_headers(kind: str, *, scheme: str = "") -> dict[str, str]:
    return {"ANTHROPIC_CUSTOM_HEADERS": f"x-team: blue\nx-route: {scheme}{SENTINELS[kind]}"}


def options_with_secrets(project: Path) -> ClaudeOptions:
    (project / ".claude").mkdir()
    in_a_file = {"env": custom_headers("a custom header of the project's settings file")}
    (project / ".claude" / "settings.json").write_text(json.dumps(in_a_file), "utf-8")
    return ClaudeOptions(
        cwd=project,
        env={
            "MY_API_KEY": SENTINELS["a variable of the options"],
            "HOME": "/home/perpetua",
            "USER": "perpetua",
            **custom_headers("a custom header of the options", scheme="Basic "),
        },
        mcp_servers={
            "far": {
                "type": "http",
                "url": "http://127.0.0.1:1",
                "headers": {"Authorization": f"Bearer {SENTINELS['a header of an MCP server']}"},
            },
            "near": {"type": "stdio", "command": "true", "env": {"DB_PASSWORD": SENTINELS["the environment of an MCP server"]}},
        },
        settings=json.dumps({"env": {"SERVICE_TOKEN": SENTINELS["a setting"], **custom_headers("a custom header of the settings")}}),
        permission_mode="default",
    )


def indiscreet() -> Scenario:
    """A claude that says everything it knows, everywhere it can, and dies."""
    everything = " and ".join(SENTINELS.values()) + " in /home/perpetua/project"
    return Scenario.turns(
        [
            [
                steps.Stderr(f"warning: {everything}\n"),
                steps.Noise(f"debug: {everything}"),
                steps.EmitRaw(b"\xff\xfe " + everything.encode() + b"\n"),
                steps.EmitRaw(b'{"type":"' + everything.encode() + b'","uuid":"' + everything.encode() + b'"}\n'),
                steps.Text(everything),
                steps.ToolUse("Bash", input={"command": everything}, output=everything, ask=True),
                steps.Exit(3),
            ]
        ]
    )


def everything_in(record: logging.LogRecord) -> str:
    """All that a formatter could show of a record."""
    shown = {name: value for name, value in vars(record).items() if name not in ("pathname", "filename")}
    return f"{record.getMessage()} {shown!r} {logging.Formatter().format(record)}"


async def test_no_sentinel_of_the_environment_the_options_the_messages_or_the_errors_is_in_anything_that_leaves(
    kept: Kept, caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("DEPLOY_TOKEN", SENTINELS["a variable of this process"])
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", custom_headers("a custom header of this process")["ANTHROPIC_CUSTOM_HEADERS"])
    tape = tmp_path / "tape.ndjson"
    spans, registry = SpanRecorder(), MetricsRegistry()
    failures: list[BaseException] = []

    async def quote(_tool: str, given: dict[str, Any], _context: object) -> Any:
        raise ValueError(f"not allowed: {given}")

    with FakeClaude(indiscreet()) as fake:
        inside = SubprocessTransport(options_with_secrets(tmp_path), command=fake.command)
        watched = TracingTransport(MetricsTransport(inside, registry=registry), tracer_provider=spans, content=True)
        transport = LoggingTransport(StatefulTransport(RecordingTransport(watched, tape)), bodies=True, max_body_chars=10**6)
        query = Query(transport, can_use_tool=quote)
        with anyio.fail_after(PATIENCE):
            try:
                async with query:
                    await (await query.send(" ".join(SENTINELS.values()))).result()
            except ProcessError as error:
                failures.append(error)
    (failure,) = failures
    assert isinstance(failure, ProcessError)
    assert query.failed_callbacks == 1
    assert SENTINELS["a setting"] in failure.stderr_tail, "the last words are data, for the program; the text is what is shown"
    shown = {
        "the wire's log": "\n".join(map(everything_in, kept.records)),
        "the library's own log": "\n".join(map(everything_in, caplog.records)),
        "the tape": tape.read_text("utf-8", "replace") + "".join(repr(record.line) for record in Tape.read(tape)),
        "the error's text": f"{failure} {failure!r}",
        "what is known of the transport": f"{transport.info} {transport.info!r}",
        "the traceback": "".join(traceback.format_exception(failure)),
        "the spans": spans.text,
        "the metrics": registry.prometheus_text() + repr(watched.transport),
    }
    for place, text in shown.items():
        assert text
        for kind, sentinel in SENTINELS.items():
            assert sentinel.lower() not in text.lower(), f"{kind} is in {place}"
    for place in ("the wire's log", "the library's own log", "the tape", "the traceback", "the spans"):
        assert "[secret]" in shown[place], place
    assert failure.reason in shown["the traceback"]
    assert "/home/user/project" in shown["the wire's log"]


async def test_an_error_of_the_peer_is_logged_without_its_secrets(kept: Kept) -> None:
    error = ProcessError("it said: Authorization: Bearer Yarrow-Falcon-9926", exit_code=1, stderr_tail="password=Yarrow-Falcon-9926")
    transport = LoggingTransport(Lines(error=error))
    async with transport:
        await anext(lines := transport.read_lines())
        with pytest.raises(ProcessError) as raised:
            await anext(lines)
    assert raised.value is error
    assert "Yarrow" not in "\n".join(map(everything_in, kept.records))
    assert "Bearer [secret]" in "".join(kept.messages())


async def test_a_redactor_of_ones_own_does_the_redacting(kept: Kept) -> None:
    (fields,) = await heard(kept, b'{"type":"a","text":"opensesame"}', bodies=True, redactor=Redactor(secrets=["opensesame"]))
    assert fields["body"] == '{"type":"a","text":"[secret]"}'
