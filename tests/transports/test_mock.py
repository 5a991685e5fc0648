"""MockTransport, its docstring sentence by sentence: read directly, through Query, and through the official SDK."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel
import claude_agent_sdk
import pytest
from children import read_all, read_one

import claude_transport as ct
from claude_transport.protocol.tape import Tape
from claude_transport.transport import Client


def assistant(text: str) -> dict[str, Any]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "mock", "content": [{"type": "text", "text": text}]}
    return {"type": "assistant", "message": message, "parent_tool_use_id": None, "session_id": "s", "uuid": f"u-{text}"}


def result(text: str) -> dict[str, Any]:
    return {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "result": text,
        "num_turns": 1,
        "duration_ms": 1,
        "duration_api_ms": 1,
        "session_id": "s",
        "uuid": f"r-{text}",
    }


def user(text: str) -> str:
    return json.dumps({"type": "user", "message": {"role": "user", "content": text}})


PERMISSION = {
    "type": "control_request",
    "request_id": "ask-1",
    "request": {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}, "tool_use_id": "t1"},
}
ALLOWED = {"subtype": "success", "request_id": "ask-1", "response": {"behavior": "allow"}}
ANSWER = json.dumps({"type": "control_response", "response": ALLOWED})
INITIALIZE = json.dumps({"type": "control_request", "request_id": "init-1", "request": {"subtype": "initialize"}})
TWO_TURNS = [assistant("one"), result("one"), assistant("two"), result("two")]


# ----------------------------------------------------------------------------------------------------------------- directly


async def test_read_directly_it_plays_its_responses_through_and_ends() -> None:
    async with ct.MockTransport(TWO_TURNS) as mock:
        with anyio.fail_after(30):
            assert await read_all(mock) == TWO_TURNS
            assert await read_all(mock) == []


async def test_read_directly_after_a_prompt_it_plays_them_through_as_well() -> None:
    async with ct.MockTransport(TWO_TURNS) as mock:
        with anyio.fail_after(30):
            await mock.write(user("hello"))
            assert await read_all(mock) == TWO_TURNS
    assert [message["message"]["content"] for message in mock.written] == ["hello"]


async def test_raw_lines_are_played_as_they_are_and_bad_ones_counted() -> None:
    async with ct.MockTransport([b'{"raw": 1}', b"noise\n", b"[]", {"type": "keep_alive"}]) as mock:
        with anyio.fail_after(30):
            assert await read_all(mock) == [{"raw": 1}, {"type": "keep_alive"}]
    assert mock.info.noise_lines == 2


async def test_raw_lines_come_undecoded_from_read_lines() -> None:
    async with ct.MockTransport([b'{"raw": 1}', b"noise\n"]) as mock:
        with anyio.fail_after(30):
            assert [line async for lines in mock.read_lines() for line in lines] == [b'{"raw": 1}', b"noise"]
    assert (mock.info.kind, mock.info.bytes_read, mock.info.bytes_written) == ("MockTransport", len('{"raw": 1}\nnoise\n'), 0)


async def test_responses_come_undecoded_without_their_newlines_and_are_counted_with_them() -> None:
    async with ct.MockTransport([{"type": "system"}, b'{"type":"result"}\n']) as mock:
        lines = [batch async for batch in mock.read_lines()]
        assert lines == [(b'{"type":"system"}',), (b'{"type":"result"}',)]
        assert mock.info.bytes_read == sum(len(line) + 1 for (line,) in lines)


async def test_what_is_written_is_recorded_decoded_and_in_order() -> None:
    async with ct.MockTransport() as mock:
        await mock.write('{"n":1}\n{"n":2}')
        await mock.write(b'{"n":3}\n')
        assert [message["n"] for message in mock.written] == [1, 2, 3]
        assert (mock.info.bytes_written, mock.info.bytes_read) == (24, 0)


@pytest.mark.parametrize("line", ["no JSON", "[]", '{"half":', '{"n":NaN}', '{"n":-Infinity}'])
async def test_a_line_that_would_kill_the_cli_is_refused(line: str) -> None:
    async with ct.MockTransport() as mock:
        with pytest.raises(ct.UsageError):
            await mock.write(line)


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ('{"type":"x","t":"a \\ud83d"}', "a \ud83d"),
        (b'{"type":"x","t":"\xff"}\r\n', "\ufffd"),
        (bytearray(b'{"type":"x","t":"y"}'), "y"),
        (memoryview(b'{"type":"x","t":"y"}\n'), "y"),
    ],
    ids=["half a pair", "no UTF-8", "bytearray", "memoryview"],
)
async def test_what_a_process_would_get_is_taken_and_read_as_the_cli_reads_it(line: Any, read: str) -> None:
    async with ct.MockTransport() as mock:
        await mock.write(line)
        assert [message["t"] for message in mock.written] == [read]


async def test_half_of_a_surrogate_pair_in_a_prompt_is_no_error_as_with_the_real_cli() -> None:
    with anyio.fail_after(30):
        async with ct.Query(ct.MockTransport([result("one")])) as query:
            turn = await query.send("half \ud83d")
            assert (await turn.result()).result == "one"


@pytest.mark.parametrize("data", [7, None, {"a": 1}, "\ud83d"], ids=repr)
@pytest.mark.parametrize(
    "make", [ct.MockTransport, lambda: ct.ReplayTransport(Tape.parse(b'{"t":0,"dir":"out","line":"{}"}'))], ids=["mock", "replay"]
)
async def test_what_is_no_text_is_refused_as_by_a_process(make: Any, data: Any) -> None:
    async with make() as transport:
        with pytest.raises(ct.UsageError, match=r"sent as UTF-8|sends str or bytes"):
            await transport.write(data)
        assert transport.info.bytes_written == 0


async def test_what_was_cancelled_has_not_happened() -> None:
    mock = ct.MockTransport()
    for call in (mock.connect, lambda: mock.write("{}"), mock.end_input):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await call()
        assert scope.cancelled_caught
    assert not mock.is_ready()
    async with mock:
        await mock.write('{"then":1}')
        assert mock.written == [{"then": 1}]


async def test_its_state_is_that_of_any_transport() -> None:
    mock = ct.MockTransport()
    assert mock
    assert not mock.is_ready()
    with pytest.raises(ct.NotConnected):
        await mock.write("{}")
    with pytest.raises(ct.NotConnected):
        mock.read_messages()
    await mock.connect()
    await mock.connect()
    assert mock.is_ready()
    await mock.end_input()
    await mock.end_input()
    with pytest.raises(ct.InputClosed):
        await mock.write("{}")
    await mock.close()
    await mock.close()
    assert not mock.is_ready()
    with pytest.raises(ct.TransportClosed):
        await mock.write("{}")
    with pytest.raises(ct.TransportClosed):
        await mock.connect()


async def test_a_second_reader_is_refused_and_close_wakes_the_first() -> None:
    mock = ct.MockTransport()
    await mock.connect()
    await mock.write(INITIALIZE)
    assert (await read_one(mock))["type"] == "control_response"
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read_all, mock)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(ct.Busy):
                await read_one(mock)
            await mock.close()


async def test_leaving_the_loop_and_cancelling_the_reader_lose_nothing() -> None:
    async with ct.MockTransport([{"n": number} for number in range(50)]) as mock:
        received = []
        with anyio.fail_after(30):
            for rounds in range(20):
                with anyio.CancelScope() as scope:
                    async for message in mock.read_messages():
                        received.append(message["n"])
                        if len(received) % 5 == 0:
                            break
                        if rounds % 3 == 0:
                            scope.cancel()
                            await anyio.lowlevel.checkpoint()
            received += [message["n"] for message in await read_all(mock)]
        assert received == list(range(50))


# ------------------------------------------------------------------------------------------------ under the control protocol


async def test_initialize_and_other_requests_are_answered_and_prompts_release_one_turn_each() -> None:
    async with ct.MockTransport(TWO_TURNS) as mock:
        with anyio.fail_after(30):
            await mock.write(INITIALIZE)
            answer = await read_one(mock)
            assert answer["response"]["request_id"] == "init-1"
            await mock.write(user("first"))
            assert [await read_one(mock) for _ in range(2)] == TWO_TURNS[:2]
            await mock.write(json.dumps({"type": "control_request", "request_id": "m", "request": {"subtype": "set_model"}}))
            assert (await read_one(mock))["response"]["request_id"] == "m"
            await mock.write(user("second"))
            assert [await read_one(mock) for _ in range(2)] == TWO_TURNS[2:]


async def test_raw_results_and_requests_are_played_by_the_same_rules() -> None:
    raw = [json.dumps(message).encode() for message in (PERMISSION, result("one"), assistant("two"), result("two"))]
    async with ct.MockTransport(raw) as mock:
        with anyio.fail_after(30):
            await mock.write(INITIALIZE)
            await read_one(mock)
            await mock.write(user("first"))
            assert await read_one(mock) == PERMISSION
            await mock.write(ANSWER)
            assert await read_one(mock) == result("one")
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(read_one, mock)
                    await anyio.wait_all_tasks_blocked()
                    scope.cancel()  # nothing came: the second turn waits for its prompt
            await mock.write(user("second"))
            assert await read_one(mock) == assistant("two")


async def test_a_request_among_the_responses_holds_back_what_follows_until_it_is_answered() -> None:
    async with ct.MockTransport([PERMISSION, result("done")]) as mock:
        with anyio.fail_after(30):
            await mock.write(INITIALIZE)
            await read_one(mock)
            await mock.write(user("go"))
            assert await read_one(mock) == PERMISSION
            answered = anyio.Event()
            async with anyio.create_task_group() as tasks:

                async def read() -> None:
                    assert await read_one(mock) == result("done")
                    assert answered.is_set()

                tasks.start_soon(read)
                await anyio.wait_all_tasks_blocked()
                answered.set()
                await mock.write(ANSWER)


async def test_the_end_of_input_answers_what_nobody_can_answer_any_more() -> None:
    async with ct.MockTransport([PERMISSION, result("refused")]) as mock:
        with anyio.fail_after(30):
            await mock.write(INITIALIZE)
            await read_one(mock)
            await mock.write(user("go"))
            await mock.end_input()
            assert await read_all(mock) == [PERMISSION, result("refused")]


async def test_when_a_prompt_comes_and_nothing_is_left_the_stream_ends() -> None:
    async with ct.MockTransport([result("only")]) as mock:
        with anyio.fail_after(30):
            await mock.write(INITIALIZE)
            await mock.write(user("one"))
            await mock.write(user("two"))
            messages = await read_all(mock)
    assert [message["type"] for message in messages] == ["control_response", "result"]


async def test_a_query_talks_to_it_turn_by_turn() -> None:
    mock = ct.MockTransport(TWO_TURNS)
    with anyio.fail_after(30):
        async with ct.Query(mock) as query:
            for text in ("one", "two"):
                turn = await query.send(text)
                texts = [message.text async for message in turn if isinstance(message, ct.AssistantMessage)]
                assert texts == [text]
                assert (await turn.result()).result == text
    assert [message["type"] for message in mock.written] == ["control_request", "user", "user"]


async def test_a_query_answers_its_permission_question() -> None:
    asked: list[str] = []

    async def can_use_tool(name: str, tool_input: object, context: object) -> ct.Allow:
        asked.append(name)
        return ct.Allow()

    mock = ct.MockTransport([PERMISSION, result("done")])
    with anyio.fail_after(30):
        async with ct.Query(mock, can_use_tool=can_use_tool) as query:
            assert (await (await query.send("go")).result()).result == "done"
    assert asked == ["Bash"]
    assert mock.client is not None
    assert "can_use_tool" in mock.client.answers


async def test_a_query_with_too_short_a_script_fails_instead_of_hanging() -> None:
    with anyio.fail_after(30):
        async with ct.Query(ct.MockTransport()) as query:
            turn = await query.send("hello")
            with pytest.raises(ct.MissingResult):
                await turn.result()


# --------------------------------------------------------------------------------------------------------- the official SDK


async def sdk_messages(mock: ct.MockTransport, prompt: str | AsyncIterator[dict[str, Any]], **options: Any) -> list[Any]:
    """What the official SDK's query() makes of the mock."""
    asked = claude_agent_sdk.ClaudeAgentOptions(**options)
    with anyio.fail_after(30):
        return [message async for message in claude_agent_sdk.query(prompt=prompt, options=asked, transport=mock)]  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


async def test_the_official_sdk_asks_it_one_question() -> None:
    mock = ct.MockTransport([assistant("hi"), result("hi")])
    answer, end = await sdk_messages(mock, "hello")
    assert isinstance(answer, claude_agent_sdk.AssistantMessage)
    assert isinstance(end, claude_agent_sdk.ResultMessage)
    assert end.result == "hi"
    assert [message["type"] for message in mock.written] == ["control_request", "user"]
    assert not mock.is_ready()


async def test_the_official_sdk_sends_it_several_prompts() -> None:
    async def prompts() -> AsyncIterator[dict[str, Any]]:
        for text in ("one", "two"):
            yield json.loads(user(text))

    mock = ct.MockTransport(TWO_TURNS)
    messages = await sdk_messages(mock, prompts())
    assert [message.result for message in messages if isinstance(message, claude_agent_sdk.ResultMessage)] == ["one", "two"]


async def test_the_official_client_talks_to_it_until_nothing_is_left_to_say() -> None:
    mock = ct.MockTransport(TWO_TURNS)
    results: list[str | None] = []
    with anyio.fail_after(30):
        async with claude_agent_sdk.ClaudeSDKClient(transport=mock) as client:  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
            await client.query("one")
            # to the end, which the third prompt brings: the client leaves generators unfinished otherwise, and trio complains
            async for message in client.receive_messages():
                if isinstance(message, claude_agent_sdk.ResultMessage):
                    results.append(message.result)
                    await client.query("and then?")
    assert results == ["one", "two"]


# --------------------------------------------------------------------------------------------------- what a failed test is told


def hook(callback_id: str, tool: str | None = "Bash") -> dict[str, Any]:
    payload = {"hook_event_name": "PreToolUse"} if tool is None else {"hook_event_name": "PreToolUse", "tool_name": tool}
    body = {"subtype": "hook_callback", "callback_id": callback_id, "input": payload, "tool_use_id": "t1"}
    return {"type": "control_request", "request_id": "hook-1", "request": body}


def registering(*matchers: tuple[str | None, str], event: str = "PreToolUse") -> str:
    hooks = {event: [{"matcher": matcher, "hookCallbackIds": [callback_id]} for matcher, callback_id in matchers]}
    return json.dumps({"type": "control_request", "request_id": "init-1", "request": {"subtype": "initialize", "hooks": hooks}})


async def test_it_says_at_each_moment_where_it_stands_and_what_is_left() -> None:
    mock = ct.MockTransport([assistant("one"), PERMISSION, result("one"), b'{"type":"result","result":"two"}'])

    def standing() -> tuple[str, str, str]:
        left = mock.leftover()
        assert left is None or (left.step, str(left)) == (left.step, f"{left.step}: expected {left.expected}, got {left.actual}")
        return mock.whereabouts, mock.received_last[:25], "" if left is None else f"{left.expected[:53]} | {left.actual}"

    unread = "the host to read this: assistant {'type': 'assistant'"
    assert standing() == ("response 1 of 4: not connected", "", f"{unread} | a mock that was never connected")
    await mock.connect()
    assert standing() == ("response 1 of 4: waiting for a reader", "", f"{unread} | nothing more")
    await mock.write(INITIALIZE)
    last = "control_request initialize"[:25]
    prompt = "one more prompt, which this answers: assistant {'type"
    assert standing() == ("response 1 of 4: waiting for a prompt", last, f"{prompt} | nothing more")
    lines = mock.read_messages()
    assert (await anext(lines))["type"] == "control_response"
    await mock.write(user("1"))
    assert standing() == ("response 1 of 4: waiting for a reader", "user {'type': 'user', 'me", f"{unread} | nothing more")
    assert [(await anext(lines))["type"] for _ in range(2)] == ["assistant", "control_request"]
    assert mock.whereabouts == "response 3 of 4: waiting for the answer to ask-1"
    await mock.write(ANSWER)
    assert (await anext(lines))["result"] == "one"
    left = mock.leftover()
    assert left is not None
    assert left.expected == "one more prompt, which this answers: result 'two'"
    with pytest.raises(ct.testing.ExpectationFailed, match=r"^response 4 of 4: expected one more prompt"):
        mock.assert_exhausted()
    await mock.write(user("2"))
    assert (await anext(lines))["result"] == "two"
    assert standing()[::2] == ("response 4 of 4: everything was played; waiting for the end of the input", "")
    mock.assert_exhausted()
    await mock.end_input()
    assert standing()[::2] == ("response 4 of 4: everything was played", "")
    assert (mock.failure, mock.is_closed) == (None, False)
    await mock.close()
    assert mock.is_closed


async def test_raw_lines_that_are_left_are_shown_as_they_are() -> None:
    for raw, shown in ((b"noise", "a line that is not a JSON object: b'noise'"), (b"[]", "a line that is not a JSON object: b'[]'")):
        left = ct.MockTransport([raw]).leftover()
        assert left is not None
        assert left.expected == f"the host to read this: {shown}"
    with pytest.raises(ct.UsageError, match="this mock plays responses, not a script"):
        ct.MockTransport([result("x")]).expect(type="user")


@pytest.mark.parametrize(
    ("subtype", "answer"), [("interrupt", {"still_queued": []}), ("set_model", {}), ("initialize", ("commands", "0.0.0-mock"))]
)
async def test_each_control_request_is_answered_with_the_usual_fields(subtype: str, answer: Any) -> None:
    async with ct.MockTransport() as mock:
        await mock.write(json.dumps({"type": "control_request", "request_id": "r-1", "request": {"subtype": subtype}}))
        response = (await read_one(mock))["response"]
        assert (response["subtype"], response["request_id"]) == ("success", "r-1")
        given = response["response"]
        assert ((next(iter(given)), given["claude_code_version"]) if subtype == "initialize" else given) == answer


async def test_a_strict_mock_fails_writer_and_reader_for_a_prompt_without_responses() -> None:
    async with ct.MockTransport([assistant("one"), result("one"), assistant("two")], strict=True) as mock:
        for text in ("1", "2"):  # what comes after the last result is a turn without an end
            await mock.write(user(text))
        assert mock.failure is None
        with pytest.raises(ct.testing.ExpectationFailed) as caught:
            await mock.write(user("3"))
        found = (caught.value.step, caught.value.expected, caught.value.actual[:20])
        assert found == ("response 1 of 3", "no further prompt: no responses are left for it", "user {'type': 'user'")
        assert str(mock.failure) == str(caught.value)
        assert mock.failure is not caught.value  # raised twice, an error would hold the traceback of the other
        assert "'2'" in mock.received_last
        with pytest.raises(ct.testing.ExpectationFailed) as read:
            await read_one(mock)
        assert str(read.value) == str(caught.value)
        with pytest.raises(ct.testing.ExpectationFailed) as again:
            await mock.write(json.dumps({"type": "control_response", "response": {"subtype": "error", "error": "another"}}))
        assert str(again.value) == str(caught.value)  # the first failure counts


async def test_a_prompt_that_a_strict_mock_does_not_expect_wakes_a_reader_that_waits() -> None:
    async with ct.MockTransport([PERMISSION, result("one")], strict=True) as mock, anyio.create_task_group() as tasks:
        lines = mock.read_messages()
        await mock.write(INITIALIZE)
        await mock.write(user("1"))
        assert [(await anext(lines))["type"] for _ in range(2)] == ["control_response", "control_request"]
        failed: list[BaseException] = []

        async def read() -> None:
            with pytest.raises(ct.testing.ExpectationFailed) as caught:
                await anext(lines)
            failed.append(caught.value)

        tasks.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(ct.testing.ExpectationFailed):
            await mock.write(user("2"))
        with anyio.fail_after(30):
            await anyio.wait_all_tasks_blocked()
        assert len(failed) == 1


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("subtype", ["set_model", "interrupt", "mcp_set_servers", "get_settings", "get_binary_version"])
async def test_only_a_strict_mock_refuses_a_control_request_that_the_program_decides_on(subtype: str, strict: bool) -> None:
    asked = json.dumps({"type": "control_request", "request_id": "r-1", "request": {"subtype": subtype}})
    async with ct.MockTransport([result("one")], strict=strict) as mock:
        if not strict or subtype != "set_model":
            await mock.write(asked)
            assert (await read_one(mock))["type"] == "control_response"
            return
        with pytest.raises(ct.testing.ExpectationFailed) as caught:
            await mock.write(asked)
        assert (caught.value.step, caught.value.expected) == (
            "response 1 of 1",
            "no control request that the program decides on: a list answers none; a script does, after expect_control()",
        )
        assert caught.value.actual.startswith("control_request set_model {")
        assert mock.received_last == ""


ASKED_BY_NAME = [  # what the layer above says about itself, and whether a strict mock asks it
    (Client(answers=frozenset({"can_use_tool"})), True),
    (Client(answers=frozenset({"hooks"})), False),
    (Client(initializes=False), True),
    (None, True),
]


@pytest.mark.parametrize(("client", "asks"), ASKED_BY_NAME)
@pytest.mark.parametrize("strict", [True, False])
async def test_only_a_strict_mock_refuses_to_ask_a_program_without_a_callback(client: Client | None, asks: bool, strict: bool) -> None:
    mock = ct.MockTransport([PERMISSION, result("one")], strict=strict)
    if client is not None:
        mock.attach(client)
    async with mock:
        await mock.write(INITIALIZE)
        await mock.write(user("1"))
        lines = mock.read_messages()
        await anext(lines)
        if asks or not strict:
            assert await anext(lines) == PERMISSION
            return
        with pytest.raises(ct.testing.ExpectationFailed) as caught:
            await anext(lines)
        assert str(caught.value) == "response 2 of 2: expected a program with a callback can_use_tool, which is asked next, got none"


FAILED_TOOL = {"content": [{"type": "text", "text": "no gold"}], "isError": True}


@pytest.mark.parametrize(
    ("wanted", "judges"),
    [
        ({"request_id": "ask-1"}, False),
        ({"response": {"mcp_response": {"id": 7}}}, False),
        ({"response": {"mcp_response": {"result": {"content": [{"text": "no gold"}]}}}}, False),
        ({"response": {"mcp_response": {"result": {"isError": True}}}}, True),
        ({"response": {"mcp_response": {"error": {"code": 1}}}}, True),
        ({"subtype": "success"}, True),
        (lambda response: "mcp_response" in response["response"], True),
    ],
)
async def test_a_strict_script_refuses_a_tool_that_failed_unless_it_says_whether_it_may(wanted: Any, judges: bool) -> None:
    mock = ct.MockTransport.script(strict=True).expect(type="user").reply(MCP_CALL).expect(type="control_response", response=wanted)
    outcome: dict[str, Any] = {"error": {"code": 1}} if "'error'" in str(wanted) else {"result": FAILED_TOOL}
    answer = {"subtype": "success", "request_id": "ask-1", "response": {"mcp_response": {"id": 7, **outcome}}}
    line = json.dumps({"type": "control_response", "response": answer})
    async with mock:
        await mock.write(user("1"))
        await read_one(mock)
        if judges:
            await mock.write(line)
            assert mock.failure is None
            return
        with pytest.raises(ct.testing.ExpectationFailed) as caught:
            await mock.write(line)
        assert caught.value.actual.startswith("the error 'no gold' in control_response {")


MCP_CALL = {"type": "control_request", "request_id": "ask-1", "request": {"subtype": "mcp_message", "server_name": "shop", "message": {}}}
REGISTERED = [
    ({"subtype": "initialize", "sdkMcpServers": ["shop"]}, True),
    ({"subtype": "initialize", "sdkMcpServers": ["bank"]}, False),
    ({"subtype": "initialize", "sdkMcpServers": None, "servers": ["shop"]}, False),
    ({"subtype": "mcp_set_servers", "servers": {"shop": {"type": "sdk", "name": "shop"}}}, True),
    ({"subtype": "get_settings", "servers": ["shop"]}, False),
]


@pytest.mark.parametrize(("request_of_host", "registered"), REGISTERED)
@pytest.mark.parametrize("question", [MCP_CALL, PERMISSION])
async def test_a_refused_call_of_a_server_that_was_not_registered_says_so(
    request_of_host: dict[str, Any], registered: bool, question: dict[str, Any]
) -> None:
    async with ct.MockTransport([question, result("one")], strict=True) as mock:
        await mock.write(json.dumps({"type": "control_request", "request_id": "r-1", "request": request_of_host}))
        await mock.write(user("1"))
        lines = mock.read_messages()
        assert [(await anext(lines))["type"] for _ in range(2)] == ["control_response", "control_request"]
        with pytest.raises(ct.testing.ExpectationFailed) as caught:
            await mock.write(
                json.dumps({"type": "control_response", "response": {"subtype": "error", "request_id": "ask-1", "error": "no"}})
            )
        says_so = str(caught.value).endswith("(the program has registered no MCP server 'shop')")
        assert says_so == (question is MCP_CALL and not registered)


@pytest.mark.parametrize("strict", [True, False])
async def test_only_a_strict_mock_refuses_an_error_as_an_answer(strict: bool) -> None:
    refused = json.dumps({"type": "control_response", "response": {"subtype": "error", "request_id": "ask-1", "error": "no way"}})
    async with ct.MockTransport([PERMISSION, result("one")], strict=strict) as mock:
        if not strict:
            await mock.write(refused)
            assert mock.failure is None
            return
        with pytest.raises(ct.testing.ExpectationFailed) as caught:
            await mock.write(refused)
        assert caught.value.expected == "an answer that is no error"
        assert caught.value.actual.startswith("the error 'no way' in control_response {")
        await mock.close()


@pytest.mark.parametrize(
    ("registered", "actual"),
    [(registering(("Bash", "h-1")), None), (registering((None, "h-3"), ("Bash", "h-2")), "hooks h-2, h-3"), (INITIALIZE, "no hooks")],
)
@pytest.mark.parametrize("strict", [True, False])
async def test_only_a_strict_mock_refuses_to_call_a_hook_that_was_not_registered(registered: str, actual: str | None, strict: bool) -> None:
    async with ct.MockTransport([hook("h-1"), result("one")], strict=strict) as mock:
        await mock.write(registered)
        await mock.write(user("1"))
        lines = mock.read_messages()
        assert (await anext(lines))["type"] == "control_response"
        if actual is None or not strict:
            assert (await anext(lines)) == hook("h-1")
            return
        with pytest.raises(ct.testing.ExpectationFailed) as caught:
            await anext(lines)
        assert caught.value.expected == "`initialize` to register the hook 'h-1', which is called next"
        assert caught.value.actual == actual


@pytest.mark.parametrize(
    ("responses", "said"),
    [
        ({"type": "result"}, "responses is a list of messages, not one dict"),
        ("text", "responses is a list of messages, not one str"),
        (b"{}", "responses is a list of messages, not one bytes"),
        (
            [{}, "text"],
            "responses[1] is str, neither a dict nor bytes; `assistant(…)` and `result(…)` of claude_transport.testing make them",
        ),
    ],
)
def test_responses_that_are_no_list_of_messages_are_refused(responses: Any, said: str) -> None:
    with pytest.raises(ct.ConfigurationError) as caught:
        ct.MockTransport(responses)
    assert (str(caught.value), caught.value.option) == (said, "responses")


NAMED = [  # the matchers that are registered, the tool, and which of them is called
    ([(None, "all")], "Bash", "all"),
    ([("", "all")], "Bash", "all"),
    ([("*", "all")], "Bash", "all"),
    ([("Bash", "one")], "Bash", "one"),
    ([("Bas", "part"), ("Bash", "one")], "Bash", "one"),
    ([("Edit|Bash", "two")], "Bash", "two"),
    ([("Edit, Bash", "two")], "Bash", "two"),
    ([("Task", "agents")], "Agent", "agents"),
    ([("Agent", "agents")], "Task", None),
    ([("Task", "agents")], "Bash", None),
    ([("mcp__.*", "pattern")], "mcp__a__b", "pattern"),
    ([("B.*", "pattern")], "Edit", None),
    ([("(", "broken"), ("Edit", "one")], "Edit", "one"),
    ([("(", "broken")], "Edit", None),
    ([("Edit", "one")], None, "one"),
]


@pytest.mark.parametrize(("matchers", "tool", "called"), NAMED)
async def test_a_hook_that_is_called_by_its_event_is_the_first_one_whose_matcher_fits(
    matchers: list[tuple[str | None, str]], tool: str | None, called: str | None
) -> None:
    async with ct.MockTransport([hook("{{hook.PreToolUse}}", tool)]) as mock:
        await mock.write(registering(*matchers))
        await mock.write(user("1"))
        lines = mock.read_messages()
        await anext(lines)
        if called is not None:
            assert (await anext(lines)) == hook(called, tool)
            return
        with pytest.raises(ct.testing.ExpectationFailed) as caught:
            await anext(lines)
        names = ", ".join(f"PreToolUse with the matcher {matcher!r}" for matcher, _ in matchers)
        expected = f"`initialize` to register a hook for PreToolUse of {tool}, which is called next"
        assert (caught.value.step, caught.value.expected, caught.value.actual) == ("hook call", expected, names)


@pytest.mark.parametrize(("registered", "actual"), [(registering((None, "h"), event="Stop"), "Stop"), (INITIALIZE, "no hooks")])
async def test_the_error_of_a_hook_that_nobody_registered_names_those_that_are(registered: str, actual: str) -> None:
    async with ct.MockTransport([hook("{{hook.PreToolUse}}", None)]) as mock:
        await mock.write(registered)
        await mock.write(user("1"))
        lines = mock.read_messages()
        await anext(lines)
        with pytest.raises(ct.testing.ExpectationFailed) as caught:
            await anext(lines)
        found = (caught.value.expected, caught.value.actual)
        assert found == ("`initialize` to register a hook for PreToolUse, which is called next", actual)
