"""A recorded session of Codex plays in order for a live host with its own ids."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from codex_recordings import object_on
from codex_tapes import CONVERSATIONS, tape_of, with_own_id

from claude_transport import ReplayTransport
from claude_transport.codex.tape_lines import CodexLines
from claude_transport.errors import ProcessError
from claude_transport.protocol.expectation import ExpectationFailed
from claude_transport.protocol.redaction import Redactor
from claude_transport.protocol.tape import INPUT_ENDED, Tape, TapeRecord, restore_trimmed

PLAYED = tuple(name for name in CONVERSATIONS if name != "app_killed_while_a_command_runs")


def expected(line: bytes, live: dict[Any, Any]) -> Any:
    """What a recorded line of Codex becomes for a host whose ids are `live`."""
    message = object_on(line)
    if message is not None and "method" not in message and message.get("id") in live:
        return {**message, "id": live[message["id"]]}
    return message if message is not None else line


@pytest.mark.parametrize("name", PLAYED)
async def test_a_recording_plays_in_order_for_a_host_with_ids_of_its_own(name: str) -> None:
    replay, live = ReplayTransport(tape_of(name)), dict[Any, Any]()
    await replay.connect()
    lines = (line async for batch in replay.read_lines() for line in batch)
    with anyio.fail_after(30):
        for record in tape_of(name):
            if record.dir == "in":
                message = object_on(record.line)
                if message is not None and "method" in message and "id" in message:
                    live[message["id"]] = f"live-{message['id']}"
                await replay.write(with_own_id(record.line) + b"\n")
            elif record.dir == "out":
                assert (object_on(heard := await anext(lines)) or heard) == expected(record.line, live)
            elif record.line == INPUT_ENDED:
                await replay.end_input()
        await replay.end_input()
        assert [line async for line in lines] == []
    replay.assert_played()
    await replay.close()


async def test_a_tape_waits_for_the_answer_to_each_question_of_codex() -> None:
    replay = ReplayTransport(tape_of("app_command_accept"))
    await replay.connect()
    heard: list[dict[str, Any]] = []

    async def read() -> None:
        async for message in replay.read_messages():
            heard.append(message)  # noqa: PERF401 - each as it comes

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        for line in tape_of("app_command_accept").lines("in"):
            if "method" in json.loads(line):
                await replay.write(line + b"\n")
        await anyio.wait_all_tasks_blocked()
        assert heard[-1]["method"] == "item/commandExecution/requestApproval"
        assert "answer" in replay.whereabouts or "waiting" in replay.whereabouts
        await replay.write(json.dumps({"id": heard[-1]["id"], "result": {"decision": "decline"}}) + "\n")
        await anyio.wait_all_tasks_blocked()
        assert heard[-1]["method"] == "turn/completed"
        await replay.end_input()


async def test_a_request_that_is_not_on_the_tape_is_named() -> None:
    replay = ReplayTransport(tape_of("app_text"))
    await replay.connect()
    with pytest.raises(ExpectationFailed, match="turn/steer") as caught:
        await replay.write('{"id":9,"method":"turn/steer","params":{}}\n')
    assert "initialize" in caught.value.expected


async def test_what_codex_ignores_is_ignored() -> None:
    replay = ReplayTransport(tape_of("app_text"))
    await replay.connect()
    for line in ("not JSON", "[]", "7", '{"method":"initialized"}', '{"method":"some/notification"}', '{"id":1}'):
        await replay.write(line + "\n")
    await replay.close()


async def test_initialize_is_answered_on_a_tape_without_it() -> None:
    whole = tape_of("app_text")
    replay = ReplayTransport(Tape([record for record in whole if record.dir == "out" and b'"method"' in record.line]))
    await replay.connect()
    await replay.write('{"id":"mine","method":"initialize","params":{}}\n')
    heard = await anext(aiter(replay.read_messages()))
    assert (heard["id"], heard["result"]["userAgent"]) == ("mine", "tape")
    await replay.close()


async def test_a_resumed_thread_has_the_name_by_which_the_live_host_asks_for_it() -> None:
    name = json.loads(next(line for line in tape_of("app_resume_2").lines("in") if b"thread/resume" in line))["params"]["threadId"]
    records = [
        TapeRecord(0, "in", b'{"id":1,"method":"thread/resume","params":{"threadId":"%s"}}' % name.encode()),
        TapeRecord(0, "out", b'{"id":1,"result":{"thread":{"id":"%s"}}}' % name.encode()),
        TapeRecord(0, "out", b'{"method":"turn/started","params":{"threadId":"%s","turn":{"id":"one"}}}' % name.encode()),
    ]
    replay = ReplayTransport(Tape(records))
    await replay.connect()
    await replay.write('{"id":5,"method":"thread/resume","params":{"threadId":"another-thread-of-the-test"}}\n')
    messages = aiter(replay.read_messages())
    assert await anext(messages) == {"id": 5, "result": {"thread": {"id": "another-thread-of-the-test"}}}
    assert (await anext(messages))["params"]["threadId"] == "another-thread-of-the-test"
    await replay.close()


async def test_a_recorded_death_of_codex_is_raised_with_its_name() -> None:
    replay = ReplayTransport(tape_of("app_killed_while_a_command_runs"))
    await replay.connect()
    for line in tape_of("app_killed_while_a_command_runs").lines("in"):
        await replay.write(line + b"\n")
    with pytest.raises(ProcessError, match="codex"):
        async for _ in replay.read_lines():
            pass
    await replay.close()


def test_keys_are_taken_out_of_a_tape_of_codex() -> None:
    key = "sk-proj-" + "a1B2" * 10
    said = json.dumps({"id": 1, "method": "account/login/start", "params": {"type": "apiKey", "apiKey": key}}).encode()
    heard = json.dumps({"method": "item/completed", "params": {"item": {"type": "agentMessage", "text": f"the key is {key}"}}}).encode()
    redacted = Tape([TapeRecord(0, "in", said), TapeRecord(0, "out", heard)]).redact(Redactor())
    assert key.encode() not in redacted.encode()
    assert [json.loads(record.line).get("method") for record in redacted] == ["account/login/start", "item/completed"]


@pytest.mark.parametrize(
    ("cut", "restored"),
    [
        (b'{"method":"turn/completed","params":{"thr', {"method": "turn/completed", "params": {}}),
        (b'{"method":"item/tool/call","id":0,"params":{"thr', {"method": "item/tool/call", "id": 0, "params": {}}),
        (b'{"id": "a", "method": "turn/start", "par', {"method": "turn/start", "id": "a", "params": {}}),
        (b'{"id":7,"result":{"thread":{"id', {"id": 7, "result": {}}),
        (b'{"type":"assistant","message":{"id"', None),
    ],
)
def test_a_line_that_was_cut_while_recording_is_replaced_by_a_small_one_of_its_kind(cut: bytes, restored: dict[str, Any] | None) -> None:
    made = json.loads(restore_trimmed(cut))
    assert made == restored if restored is not None else made["type"] == "assistant"


@pytest.mark.parametrize(
    "line", [b'{"id":1,"result":', b'{"id":1,"result":\xff}', b'[{"id":1,"result":{}}]', b'{"result":{"id":1}}', b'{"id":2,"result":{}}']
)
async def test_what_is_no_answer_to_the_host_is_played_as_it_was_recorded(line: bytes) -> None:
    asked = b'{"id":1,"method":"model/list","params":{}}'
    replay = ReplayTransport(Tape([TapeRecord(0, "in", asked), TapeRecord(1, "out", line)]))
    await replay.connect()
    await replay.write(asked.replace(b"1", b'"live"') + b"\n")
    await replay.end_input()
    with anyio.fail_after(30):
        assert [each async for batch in replay.read_lines() for each in batch] == [line]
    await replay.close()


def test_requests_of_one_recorded_id_are_answered_in_their_order_and_the_last_for_what_is_left() -> None:
    lines = CodexLines()
    for live in ("first", "second", 3):
        lines.learn({"id": 1, "method": "thread/start"}, {"id": live, "method": "thread/start"})
    relived = [json.loads(lines.relive(b'{"id":1,"result":{}}'))["id"] for _ in range(4)]
    assert relived == ["first", "second", 3, 3]
    assert json.loads(lines.relive(b'{"id":2,"result":{}}'))["id"] == 2
