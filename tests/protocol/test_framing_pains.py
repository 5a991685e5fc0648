"""What breaks other people's readers, sent by a real child, read in both views, lenient and strict.

Each test is named after its row. What a row promises beyond one stream of bytes (properties, recordings) is proven in `PROVEN_ELSEWHERE`.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

import claude_transport as ct
from claude_transport.protocol.envelope import encode_message
from claude_transport.testing import FakeClaude, Scenario
from claude_transport.testing.scenario import Answer
from claude_transport.testing.steps import BigLine, EmitRaw, Exit, Step

PROVEN_ELSEWHERE = {
    "F1": "tests/protocol/test_codec.py::test_a_mutated_message_is_never_lost_and_never_loses_anything",
    "F2": "tests/protocol/test_codec.py::test_a_received_message_is_written_byte_for_byte",
    "F3": "tests/protocol/test_framing.py::test_any_split_gives_the_same_lines_also_where_lines_are_too_long",
    "F4": "tests/protocol/test_framing.py::test_only_a_newline_ends_a_line",
    "F5": "tests/protocol/test_codec.py::test_what_only_a_lenient_reader_understands_is_delivered_and_flagged",
    "F6": "tests/protocol/test_framing.py::test_any_split_of_the_bytes_gives_the_same_lines",
    "F7": "tests/protocol/test_codec.py::test_noise_before_between_and_glued_in_front_loses_no_message",
    "F8": "tests/transports/test_reading.py::test_read_truncated_tail_is_reported",
    "F9": "tests/protocol/test_codec.py::test_a_byte_that_is_not_utf8_costs_that_character",
    "F10": "tests/protocol/test_codec.py::test_a_line_ends_in_one_newline_and_holds_no_other",
}

PATIENCE = 30.0  # seconds; a hang fails instead of hanging the suite
BEFORE = b'{"type":"stream_event","event":{"type":"ping"}}\n'
AFTER = b'{"type":"conversation_reset","new_conversation_id":"c"}\n'


@dataclass
class Read:
    """What came of a stream: the messages as dicts, the typed ones where there are such, the error at the end, and what was counted."""

    dicts: list[dict[str, Any]]
    messages: list[ct.Message]
    error: ct.ClaudeTransportError | None
    info: ct.TransportInfo


View = Callable[..., Coroutine[Any, Any, Read]]


async def read_dicts(*steps: Step, exit_code: int = 0, **options: Any) -> Read:
    """The view of `read_messages()`."""
    found: list[dict[str, Any]] = []
    error: ct.ClaudeTransportError | None = None
    with anyio.fail_after(PATIENCE), FakeClaude(Scenario(script=(*steps, Exit(exit_code)))) as fake:
        async with ct.SubprocessTransport(command=fake.command, **options) as transport:
            try:
                async for message in transport.read_messages():
                    found.append(message)  # noqa: PERF401 - kept when the iteration fails
            except ct.ClaudeTransportError as exc:
                error = exc
            return Read(found, [], error, transport.info)


async def read_typed(*steps: Step, exit_code: int = 0, **options: Any) -> Read:
    """The view of `Query`, after its `initialize`."""
    found: list[ct.Message] = []
    error: ct.ClaudeTransportError | None = None
    answers = {"initialize": Answer(after=(*steps, Exit(exit_code)))}
    with anyio.fail_after(PATIENCE), FakeClaude(Scenario(answers=answers)) as fake:
        async with ct.Query(ct.SubprocessTransport(command=fake.command, **options)) as query:
            try:
                async for message in query:
                    found.append(message)  # noqa: PERF401 - kept when the iteration fails
            except ct.ClaudeTransportError as exc:
                error = exc
            return Read([message.to_dict() for message in found if not is_failure(message)], found, error, query.info)


def is_failure(message: ct.Message) -> bool:
    return isinstance(message, ct.DecodeFailure | ct.OversizedMessage)


BOTH_VIEWS = pytest.mark.parametrize("view", [read_dicts, read_typed], ids=["dicts", "typed"])
LENIENT_AND_STRICT = pytest.mark.parametrize("strict", [False, True], ids=["lenient", "strict"])
STRICT_VIEWS = pytest.mark.parametrize(
    "view",
    [
        pytest.param(read_dicts, id="dicts"),
        pytest.param(read_typed, id="typed"),
    ],
)


def objects(*lines: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]


def texts(read: Read) -> list[str]:
    return [message["message"]["content"][0]["text"] for message in read.dicts if message["type"] == "assistant"]


def assistant(text: bytes) -> bytes:
    """The line of an assistant message with this text, the bytes as they are."""
    return b'{"type":"assistant","message":{"role":"assistant","content":[{"type":"text","text":"' + text + b'"}]}}\n'


# ---------------------------------------------------------------------------------------------------------- the shape of messages


@BOTH_VIEWS
@LENIENT_AND_STRICT
async def test_f1_unknown_types_and_unexpected_shapes_are_delivered_and_the_stream_goes_on(view: View, strict: bool) -> None:
    odd = [
        b'{"type":"zzz_new","n":1}\n',
        b'{"type":"rate_limit_event","rate_limit_info":"soon"}\n',
        b'{"type":"assistant","message":{"content":"a string"}}\n',
        b'{"type":"user","message":7}\n',
        b'{"type":null}\n',
        b"{}\n",
    ]
    read = await view(EmitRaw(BEFORE + b"".join(odd) + AFTER), strict=strict)
    assert read.error is None
    assert read.dicts == objects(BEFORE, *odd, AFTER)
    if read.messages:
        assert isinstance(read.messages[1], ct.UnknownMessage)
        assert isinstance(read.messages[2], ct.RateLimitEvent)
        assert isinstance(read.messages[3], ct.AssistantMessage)


@BOTH_VIEWS
@LENIENT_AND_STRICT
async def test_f2_fields_nobody_knows_survive_at_every_level_and_in_their_bytes(view: View, strict: bool) -> None:
    line = (
        b'{"type":"assistant","new":1,"message":{"role":"assistant","new":{"deep":[1.50]},"usage":{"input_tokens":1,"new":2},'
        b'"content":[{"type":"text","text":"t","new":3},{"type":"brand_new","x":{"y":4}}]}}\n'
    )
    read = await view(EmitRaw(line), strict=strict)
    assert read.error is None
    assert read.dicts == objects(line)
    for message in read.messages:
        assert message.raw == line.removesuffix(b"\n")
        assert encode_message(message) == line


# --------------------------------------------------------------------------------------------------------------------- long lines


@BOTH_VIEWS
async def test_f3_a_line_of_twenty_megabytes_is_read_by_default(view: View) -> None:
    read = await view(BigLine(20_000_000), EmitRaw(AFTER))
    assert read.error is None
    assert len(texts(read)[0]) > 19_000_000
    assert read.dicts[-1] == json.loads(AFTER)


@BOTH_VIEWS
async def test_f3_a_line_over_the_limit_costs_that_message_and_no_other(view: View) -> None:
    read = await view(EmitRaw(BEFORE), BigLine(50_000), EmitRaw(AFTER), max_line_bytes=10_000)
    assert (read.error, read.dicts) == (None, objects(BEFORE, AFTER))
    assert (read.info.oversized_lines, read.info.noise_lines) == (1, 0)
    assert [(m.size, m.limit) for m in read.messages if isinstance(m, ct.OversizedMessage)] == [(49_999, 10_000)] * bool(read.messages)


@STRICT_VIEWS
async def test_f3_strict_raises_for_a_line_over_the_limit_after_what_came_before(view: View) -> None:
    read = await view(EmitRaw(BEFORE), BigLine(50_000), EmitRaw(AFTER), max_line_bytes=10_000, strict=True)
    assert isinstance(read.error, ct.LineTooLong)
    assert (read.error.size, read.error.limit) == (49_999, 10_000)
    assert read.dicts == objects(BEFORE)


# ------------------------------------------------------------------------------------------------------------ characters and bytes


@BOTH_VIEWS
@LENIENT_AND_STRICT
async def test_f4_only_a_newline_ends_a_line(view: View, strict: bool) -> None:
    text = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg"
    read = await view(EmitRaw(assistant(text.encode()) + AFTER, chunk_size=5), strict=strict)
    assert read.error is None
    assert texts(read) == [text]
    assert read.dicts[1:] == objects(AFTER)


@BOTH_VIEWS
@LENIENT_AND_STRICT
async def test_f5_a_lone_surrogate_is_a_message_and_its_neighbours_are_whole(view: View, strict: bool) -> None:
    read = await view(EmitRaw(assistant("ä😀".encode()) + assistant(rb"\ud83d") + assistant(rb"\ud83d\ude00")), strict=strict)
    assert read.error is None
    assert texts(read) == ["ä😀", "\ud83d", "😀"]
    if read.messages:
        assert [message.lossy for message in read.messages] == [False, True, False]


@BOTH_VIEWS
@pytest.mark.parametrize("size", [1, 7, 64, None])
async def test_f6_any_split_gives_the_same_messages_and_a_corrupt_line_costs_one(view: View, size: int | None) -> None:
    stream = BEFORE + assistant("ä\u2028😀".encode()) + b'{"type":"assistant","mess\n' + b"[1]\n" + BEFORE.strip() + b" \r\n" + AFTER
    read = await view(EmitRaw(stream, chunk_size=size))
    assert read.error is None
    assert read.dicts == [*objects(BEFORE), *read.dicts[1:2], *objects(BEFORE, AFTER)]
    assert texts(read) == ["ä\u2028😀"]
    assert (read.info.malformed_lines, read.info.noise_lines) == (2, 2)
    assert [index for index, message in enumerate(read.messages) if isinstance(message, ct.DecodeFailure)] == [2, 3] * bool(read.messages)


@STRICT_VIEWS
async def test_f6_strict_raises_for_a_corrupt_line_after_what_came_before(view: View) -> None:
    read = await view(EmitRaw(BEFORE + b'{"type":"assistant","mess\n' + AFTER), strict=True)
    assert isinstance(read.error, ct.CLIJSONDecodeError)
    assert read.error.line == b'{"type":"assistant","mess'
    assert read.dicts == objects(BEFORE)


@BOTH_VIEWS
async def test_f7_noise_before_between_and_in_front_is_counted_and_loses_no_message(view: View) -> None:
    read = await view(EmitRaw(b"Welcome!\n" + BEFORE + b"[SandboxDebug] x {y\n\n" + b"[debug] " + AFTER + b"bye"))
    assert (read.error, read.dicts) == (None, objects(BEFORE, AFTER))
    assert read.info.noise_lines >= 3
    assert read.info.malformed_lines == 0


@STRICT_VIEWS
async def test_f7_strict_raises_for_noise(view: View) -> None:
    read = await view(EmitRaw(BEFORE + b"Welcome!\n" + AFTER), strict=True)
    assert isinstance(read.error, ct.CLIJSONDecodeError)
    assert read.error.line == b"Welcome!"
    assert read.dicts == objects(BEFORE)


@BOTH_VIEWS
@LENIENT_AND_STRICT
@pytest.mark.parametrize("exit_code", [0, 3])
async def test_f8_a_truncated_last_line_is_reported_and_never_dropped(view: View, strict: bool, exit_code: int) -> None:
    tail = assistant(b"x" * 70_000)[:65_536]
    read = await view(EmitRaw(BEFORE + tail), exit_code=exit_code, strict=strict)
    assert read.dicts == objects(BEFORE)
    truncated = read.error
    if exit_code:
        assert isinstance(read.error, ct.ProcessError)
        assert read.error.exit_code == exit_code
        truncated = read.error.__cause__  # type: ignore[assignment]
    assert isinstance(truncated, ct.TruncatedStream)
    assert truncated.bytes_tail == tail


@BOTH_VIEWS
@LENIENT_AND_STRICT
async def test_f9_bytes_that_are_no_utf8_cost_their_characters_at_most(view: View, strict: bool) -> None:
    read = await view(EmitRaw(assistant(b"caf\xff!") + assistant("\u4e2d".encode("gbk")) + AFTER), strict=strict)
    assert read.error is None
    assert texts(read)[0] == "caf\ufffd!"
    assert "\ufffd" in texts(read)[1]
    assert read.dicts[2:] == objects(AFTER)
    if read.messages:
        assert [message.lossy for message in read.messages] == [True, True, False]


# ------------------------------------------------------------------------------------------------------------------- the other way


def overheard(path: Path, command: Sequence[str]) -> list[str]:
    """The command, and a copy of every byte of its input."""
    return ["sh", "-c", 'tee "$0" | "$@"', str(path), *command]


async def test_f10_a_transport_writes_one_newline_for_each_message(tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    forms: list[str | bytes] = ['{"n":1}', '{"n":2}\n', b'{"n":3}', b'{"n":4}\r\n', '{"t":"a\\r\\nb\u2028c"}']
    with anyio.fail_after(PATIENCE):
        async with ct.SubprocessTransport(command=overheard(heard, ["cat"])) as transport:
            for form in forms:
                await transport.write(form)
            await transport.end_input()
            assert len([message async for message in transport.read_messages()]) == len(forms)
    assert heard.read_bytes() == '{"n":1}\n{"n":2}\n{"n":3}\n{"n":4}\n{"t":"a\\r\\nb\u2028c"}\n'.encode()


async def test_f10_a_query_writes_one_newline_for_each_message(tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    text = "one\ntwo\r\nthree\u2028four\x85\n\n"
    with anyio.fail_after(PATIENCE), FakeClaude(Scenario.echo()) as fake:
        async with ct.Query(ct.SubprocessTransport(command=overheard(heard, fake.command))) as query:
            assert (await (await query.send(text)).result()).result == text
    written = heard.read_bytes()
    assert written.endswith(b"}\n")
    assert b"\r" not in written
    assert [json.loads(line)["type"] for line in written.removesuffix(b"\n").split(b"\n")] == ["control_request", "user"]


# ----------------------------------------------------------------------------------------------------------------------- the table


@pytest.mark.parametrize("row", [f"F{number}" for number in range(1, 11)])
def test_every_row_has_a_test_here_and_its_proof_elsewhere_exists(row: str) -> None:
    assert any(name.startswith(f"test_{row.lower()}_") for name in globals())
    path, _, name = PROVEN_ELSEWHERE[row].partition("::")
    tree = ast.parse((Path(__file__).parent.parent.parent / path).read_text("utf-8"))
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
