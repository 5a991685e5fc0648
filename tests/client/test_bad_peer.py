"""A peer, or a callback, that talks nonsense: typed, counted, and the session goes on."""

from __future__ import annotations

import contextlib
from typing import Any

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream
from peers import ForeignTransport, Frame, answer_to, in_time, permission, result, said, soon

from claude_transport import Allow, Deny, HookMatcher, Query, StreamTransport
from claude_transport.client.questions import MAX_QUESTION_BYTES, MAX_QUESTIONS
from claude_transport.errors import CLIJSONDecodeError, ControlRequestFailed, ControlTimeout, ProtocolError, UsageError
from claude_transport.exchange.outgoing import MAX_WAITING_BYTES
from claude_transport.protocol.codec import decode_message
from claude_transport.protocol.envelope import encode_line
from claude_transport.streams.memory import MemoryConnectable


def success(request_id: object, **fields: Any) -> Frame:
    return {"type": "control_response", "response": {"subtype": "success", "request_id": request_id, **fields}}


async def still_talks(talk: Query, transport: ForeignTransport) -> None:
    """The session goes on: a request is answered, a turn has its own result."""
    transport.answers = True
    assert await in_time(talk.request("get_session_cost")) == {}
    turn = await talk.send("still there?")
    transport.say(said("yes"), result("yes"))
    assert (await in_time(turn.result())).result == "yes"


# --------------------------------------------------------------------------------------------------- replies that do not fit


@pytest.mark.parametrize(
    "frame",
    [
        success("req_unknown"),
        success(None),
        success(17),
        success({"an": "object"}),
        {"type": "control_response"},
        {"type": "control_response", "response": None},
        {"type": "control_response", "response": ["success"]},
        {"type": "control_response", "response": {"subtype": "error", "request_id": "req_unknown", "error": "no"}},
    ],
    ids=["unknown id", "no id", "a number", "an object", "no response", "null", "a list", "an error for an unknown id"],
)
async def test_a_reply_to_nobody_is_counted_and_disturbs_nobody(frame: Frame) -> None:
    transport = ForeignTransport()
    async with Query(transport) as talk:
        everything = talk.messages()
        transport.say(frame)
        await still_talks(talk, transport)
        # what can be read as a reply is counted as one, and what cannot is surfaced as the message it is
        surfaced = [message for message in iter(everything.take, None) if message.to_dict() == frame]
        assert talk.late_responses + len(surfaced) == 1
        assert talk.pending_requests == {}


@pytest.mark.parametrize("response", [[], "text", 17, True], ids=repr)
async def test_a_payload_of_another_shape_is_no_reason_to_fail(response: object) -> None:
    transport = ForeignTransport(
        on_write=lambda frame: transport.say(success(frame["request_id"], response=response)) if frame.get("request") == PROBE else None
    )
    async with Query(transport) as talk:
        transport.answers = False
        assert await in_time(talk.request("probe")) == {}
        await still_talks(talk, transport)


PROBE = {"subtype": "probe"}


@pytest.mark.parametrize("response", [{"subtype": "of the future"}, {}, {"subtype": "error"}, {"subtype": "error", "error": 17}], ids=repr)
async def test_a_reply_that_is_neither_yes_nor_no_is_a_refusal(response: Frame) -> None:
    def react(frame: Frame) -> None:
        if frame.get("request") == PROBE:
            transport.say({"type": "control_response", "response": {"request_id": frame["request_id"], **response}})

    transport = ForeignTransport(on_write=react)
    async with Query(transport) as talk:
        transport.answers = False
        with pytest.raises(ControlRequestFailed) as caught:
            await in_time(talk.request("probe"))
        assert caught.value.subtype == "probe"
        await still_talks(talk, transport)


async def test_a_reply_that_comes_twice_counts_once_and_the_other_one_is_counted() -> None:
    def react(frame: Frame) -> None:
        if frame.get("request") == PROBE:
            transport.say(success(frame["request_id"], response={"n": 1}), success(frame["request_id"], response={"n": 2}))

    transport = ForeignTransport(on_write=react)
    async with Query(transport) as talk:
        transport.answers = False
        assert await in_time(talk.request("probe")) == {"n": 1}
        await soon(lambda: talk.late_responses)
        assert talk.late_responses == 1
        await still_talks(talk, transport)


async def test_a_reply_after_the_request_was_given_up_is_counted() -> None:
    transport = ForeignTransport()
    async with Query(transport) as talk:
        transport.answers = False
        with pytest.raises(ControlTimeout):
            await talk.request("slow", timeout=0)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await talk.request("cancelled")
        assert talk.pending_requests == {}
        asked = [*transport.requests("slow"), *transport.requests("cancelled")]
        for request in asked:
            transport.say(answer_to(request))
        await soon(lambda: talk.late_responses == len(asked))
        assert asked
        await still_talks(talk, transport)


# ------------------------------------------------------------------------------------------------------------- uuids said twice


async def test_a_prompt_with_a_uuid_that_was_used_is_refused_and_the_first_one_keeps_its_turn() -> None:
    transport = ForeignTransport()
    async with Query(transport) as talk:
        turn = await talk.send("one", uuid="u1")
        with pytest.raises(UsageError, match="u1"):
            await talk.send("two", uuid="u1")
        transport.say(result("for one"))
        assert (await in_time(turn.result())).result == "for one"
        with pytest.raises(UsageError):
            await talk.send("three", uuid="u1")
        assert [frame["message"]["content"] for frame in transport.prompts()] == ["one"]
        await still_talks(talk, transport)


async def test_a_result_that_is_said_twice_does_not_answer_the_next_prompt() -> None:
    transport = ForeignTransport()
    async with Query(transport) as talk:
        first = await talk.send("one")
        second = await talk.send("two")
        transport.say(result("first", uuid="r1"), result("first", uuid="r1"))
        assert (await in_time(first.result())).result == "first"
        assert second.is_open()
        transport.say(result("second", uuid="r2"))
        assert (await in_time(second.result())).result == "second"
        await still_talks(talk, transport)


async def test_a_message_that_is_said_twice_is_surfaced_twice() -> None:
    transport = ForeignTransport()
    async with Query(transport) as talk:
        turn = await talk.send("one")
        transport.say(said("again", uuid="m1"), said("again", uuid="m1"), result())
        assert [message.type async for message in turn] == ["assistant", "assistant", "result"]
        await still_talks(talk, transport)


# ------------------------------------------------------------------------------------------- questions withdrawn, asked twice, odd


async def test_an_answer_after_the_question_was_withdrawn_is_not_written() -> None:
    asked, let_go, answered = anyio.Event(), anyio.Event(), anyio.Event()

    async def stubborn(*_: object) -> Allow:
        asked.set()
        with anyio.CancelScope(shield=True):
            await let_go.wait()
        answered.set()
        return Allow()

    transport = ForeignTransport()
    async with Query(transport, can_use_tool=stubborn) as talk:
        transport.say(permission("q1"))
        await in_time(asked.wait())
        transport.say({"type": "control_cancel_request", "request_id": "q1"})
        await talk.request("get_session_cost")
        let_go.set()
        await in_time(answered.wait())
        await still_talks(talk, transport)
        assert transport.responses() == {}
        assert talk.pending_questions == ()
        assert talk.is_quiet


async def test_a_withdrawal_of_what_was_never_asked_is_nothing() -> None:
    transport = ForeignTransport()
    async with Query(transport) as talk:
        transport.say({"type": "control_cancel_request", "request_id": "never"}, {"type": "control_cancel_request"})
        await still_talks(talk, transport)
        assert transport.responses() == {}


async def test_a_question_that_is_asked_twice_at_once_is_put_once_and_answered_once() -> None:
    asked: list[str] = []
    let_go = anyio.Event()

    async def decide(tool: str, *_: object) -> Deny:
        asked.append(tool)
        await let_go.wait()
        return Deny()

    transport = ForeignTransport()
    async with Query(transport, can_use_tool=decide) as talk:
        transport.say(permission("q1"), permission("q1"))
        await soon(lambda: asked)
        let_go.set()
        await soon(transport.responses)
        await still_talks(talk, transport)
        assert (asked, len([frame for frame in transport.written if frame["type"] == "control_response"])) == (["Bash"], 1)


@pytest.mark.parametrize(
    "body",
    [
        {"subtype": "can_use_tool"},
        {"subtype": "can_use_tool", "tool_name": 17, "input": "text"},
        {"subtype": "hook_callback", "callback_id": "nobody's"},
        {"subtype": "hook_callback"},
        {"subtype": "mcp_message", "server_name": "nobody's", "message": {}},
        {"subtype": "of the future"},
        {},
    ],
    ids=repr,
)
async def test_an_odd_question_is_answered_with_an_error_or_a_no(body: Frame) -> None:
    async def never(*_: object) -> Deny:
        return Deny("no")

    transport = ForeignTransport()
    async with Query(transport, can_use_tool=never) as talk:
        transport.say({"type": "control_request", "request_id": "q1", "request": body})
        await soon(lambda: "q1" in transport.responses())
        reply = transport.responses()["q1"]
        assert reply["subtype"] == "error" or reply["response"]["behavior"] == "deny"
        await still_talks(talk, transport)


# -------------------------------------------------------------------------------------------------- callbacks that return nonsense


NONSENSE: list[object] = [None, "yes", True, {"behavior": "allow"}, Allow, Allow(updated_input="text"), object()]  # type: ignore[arg-type]


@pytest.mark.parametrize("answer", NONSENSE, ids=lambda answer: type(answer).__name__)
async def test_a_permission_that_is_nonsense_is_a_no_and_is_logged(answer: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def decide(*_: object) -> Any:
        return answer

    transport = ForeignTransport()
    async with Query(transport, can_use_tool=decide) as talk:
        transport.say(permission("q1"))
        await soon(lambda: "q1" in transport.responses())
        assert transport.responses()["q1"]["response"]["behavior"] == "deny"
        await still_talks(talk, transport)
    assert "can_use_tool" in caplog.text


@pytest.mark.parametrize("answer", ["yes", True, 17, object(), {"decision": object()}], ids=lambda answer: type(answer).__name__)
async def test_a_hook_output_that_is_nonsense_denies_and_is_logged(answer: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def hook(*_: object) -> Any:
        return answer

    body = {"subtype": "hook_callback", "callback_id": "hook_0", "input": {"hook_event_name": "PreToolUse"}, "tool_use_id": "t1"}
    transport = ForeignTransport()
    async with Query(transport, hooks={"PreToolUse": [HookMatcher(None, [hook])]}) as talk:
        transport.say({"type": "control_request", "request_id": "q1", "request": body})
        await soon(lambda: "q1" in transport.responses())
        assert transport.responses()["q1"]["response"]["hookSpecificOutput"]["permissionDecision"] == "deny"
        await still_talks(talk, transport)
    assert caplog.text


@pytest.mark.parametrize("answer", ["yes", 17, object(), {"x": object()}], ids=lambda answer: type(answer).__name__)
async def test_a_claim_that_is_nonsense_is_an_error_and_is_logged(answer: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def claim(*_: object) -> Any:
        return answer

    transport = ForeignTransport()
    async with Query(transport, on_request=claim) as talk:
        transport.say({"type": "control_request", "request_id": "q1", "request": {"subtype": "of the future"}})
        await soon(lambda: "q1" in transport.responses())
        assert transport.responses()["q1"]["subtype"] == "error"
        await still_talks(talk, transport)
    assert caplog.text


# --------------------------------------------------------------------------------------------------- brackets within brackets

RESULT_LINE = encode_line(result("still here"))


def nested(opening: bytes, closing: bytes, levels: int) -> list[bytes]:
    """A value of so many levels in each place where a line keeps one, or where the host is asked about one."""
    value = opening * levels + b"1" + closing * levels
    return [
        b'{"type":"stream_event","event":{"type":"content_block_delta","delta":%b}}' % value,
        b'{"type":"of the future","a":%b,"parent_tool_use_id":"t"}' % value,
        b'{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t","name":"Bash","input":{"a":%b}}]}}' % value,
        b'{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"of the future","a":%b}]}]}}'
        % value,
        b'{"type":"assistant","message":{"content":%b}}' % (b'[{"type":"tool_result","content":' * levels + b"7" + b"}]" * levels),
        b'{"type":"system","subtype":"init","plugins":[{"a":%b}]}' % value,
        b'{"type":"control_response","response":{"subtype":"success","request_id":"of nobody","response":{"a":%b}}}' % value,
        b'{"type":"control_request","request_id":"q","request":{"subtype":"can_use_tool","tool_name":"B","input":{"a":%b}}}' % value,
        b'{"type":"control_request","request_id":"z","request":{"subtype":"of the future","a":%b}}' % value,
    ]


@pytest.mark.parametrize("levels", [150, 300, 600, *range(900, 1000, 20), 100_000])
@pytest.mark.parametrize("brackets", [b"[]", b"{}"], ids=["lists", "objects"])
async def test_no_nesting_ends_a_session(brackets: bytes, levels: int) -> None:
    opening, closing = (b"[", b"]") if brackets == b"[]" else (b'{"a":', b"}")
    connectable = MemoryConnectable(capacity=2**24)

    async def claude() -> None:
        stream = BufferedByteReceiveStream(peer := await connectable.accept())
        for line in (b"initialize", b"prompt"):
            said = decode_message(await stream.receive_until(b"\n", 2**20)).to_dict()
            if line == b"initialize":
                await peer.send(encode_line(answer_to(said)))
        for line in nested(opening, closing, levels):
            await peer.send(line + b"\n")
        await peer.send(RESULT_LINE)
        with contextlib.suppress(anyio.EndOfStream):
            while True:
                await stream.receive()  # the answers to the questions, if they could be read
        await peer.send_eof()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(claude)
        async with Query(StreamTransport(connectable), can_use_tool=allow_anything) as talk:
            turn = await talk.send("go")
            heard = [message async for message in turn]
            assert heard[-1].to_dict()["result"] == "still here"
            assert (await in_time(turn.result())).result == "still here"


async def test_the_first_line_that_is_no_message_ends_a_strict_conversation_after_what_came_before_it() -> None:
    connectable = MemoryConnectable()

    async def claude() -> None:
        stream = BufferedByteReceiveStream(peer := await connectable.accept())
        await peer.send(encode_line(answer_to(decode_message(await stream.receive_until(b"\n", 2**20)).to_dict())))
        await stream.receive_until(b"\n", 2**20)
        await peer.send(encode_line(said("before it")) + b"no message\n" + encode_line(result("behind it")))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(claude)
        async with Query(StreamTransport(connectable, strict=True)) as talk:
            everything = talk.messages()
            await talk.send("go")
            heard = []
            with pytest.raises(CLIJSONDecodeError) as caught:
                while True:
                    heard.append(await in_time(anext(everything)))
            assert (caught.value.line, [message.to_dict() for message in heard]) == (b"no message", [said("before it")])


async def allow_anything(*_: Any) -> Allow:
    return Allow()


# ------------------------------------------------------------------------------------------------------- more than can be held


async def wait_forever(_tool: str, _input: Any, _context: Any) -> Allow:
    await anyio.sleep_forever()
    raise AssertionError("nothing wakes it")


def long_question(size: int, request_id: str) -> Frame:
    return permission(request_id=request_id, input={"text": "x" * size})


def replies_of(transport: ForeignTransport) -> list[Frame]:
    return [frame for frame in transport.written if frame["type"] == "control_response"]


async def test_a_peer_that_asks_without_end_and_waits_for_no_answer_ends_the_conversation_typed() -> None:
    transport = ForeignTransport()
    async with Query(transport, can_use_tool=wait_forever) as talk:
        turn = await talk.send("work")
        transport.say(*(permission(request_id=f"q{number}") for number in range(MAX_QUESTIONS + 1)))
        with pytest.raises(ProtocolError, match="without waiting for an answer") as caught:
            await in_time(turn.result())
        assert caught.value.code == "exec.cli.protocol_error"


async def test_a_peer_that_asks_much_and_waits_for_no_answer_ends_the_conversation_typed() -> None:
    transport = ForeignTransport()
    async with Query(transport, can_use_tool=wait_forever) as talk:
        turn = await talk.send("work")
        transport.say(*(long_question(MAX_QUESTION_BYTES // 3, f"q{number}") for number in range(4)))
        with pytest.raises(ProtocolError, match="without waiting for an answer"):
            await in_time(turn.result())


async def test_one_question_may_be_longer_than_all_together_and_room_is_given_back() -> None:
    async def decide(_tool: str, _input: Any, _context: Any) -> Deny:
        return Deny("too long")

    transport = ForeignTransport()
    async with Query(transport, can_use_tool=decide) as talk:
        for number in range(2):
            transport.say(long_question(MAX_QUESTION_BYTES + 1, f"q{number}"))
            await soon(lambda count=number + 1: len(replies_of(transport)) == count)
        assert talk.pending_questions == ()


@pytest.mark.parametrize(("size", "at_once"), [(1, 6), (4000, 2)], ids=["many", "long"])
async def test_questions_that_were_answered_take_no_room_from_later_ones(size: int, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("claude_transport.client.questions.MAX_QUESTIONS", 10)
    monkeypatch.setattr("claude_transport.client.questions.MAX_QUESTION_BYTES", 10_000)

    async def decide(_tool: str, _input: Any, _context: Any) -> Deny:
        return Deny("no")

    transport = ForeignTransport()
    async with Query(transport, can_use_tool=decide) as talk:
        for number in range(3):
            transport.say(*(long_question(size, f"q{number} {each}") for each in range(at_once)))
            await soon(lambda count=(number + 1) * at_once: len(replies_of(transport)) == count)
        assert talk.pending_questions == ()


class NeverTaking(ForeignTransport):
    """Take what the host says of its own accord, and no answer."""

    async def write(self, data: Any) -> None:
        if "control_response" in str(data):
            await anyio.sleep_forever()
        await super().write(data)


class Slow(ForeignTransport):
    """Takes a prompt when it is let to."""

    def __init__(self) -> None:
        super().__init__()
        self.takes_prompts = anyio.Event()

    async def write(self, data: Any) -> None:
        if '"user"' in str(data):
            await self.takes_prompts.wait()
        await super().write(data)


async def test_lines_that_were_taken_back_leave_their_room_to_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("claude_transport.exchange.outgoing.MAX_WAITING_BYTES", 10_000)
    transport = Slow()
    async with Query(transport, can_use_tool=allow_anything) as talk, anyio.create_task_group() as tasks:
        tasks.start_soon(talk.send, "first")
        await anyio.wait_all_tasks_blocked()
        for _ in range(20):
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as sending:
                    sending.start_soon(talk.send, "x" * 1000)
                    await anyio.wait_all_tasks_blocked()
                    scope.cancel()
        transport.say(permission(request_id="q1"))
        await anyio.wait_all_tasks_blocked()
        transport.takes_prompts.set()
        await soon(lambda: replies_of(transport))
        assert await in_time(talk.request("probe")) == {}


async def test_a_peer_that_asks_and_reads_no_answer_ends_the_conversation_typed() -> None:
    decided = 0

    async def decide(_tool: str, _input: Any, _context: Any) -> Deny:
        nonlocal decided
        decided += 1
        return Deny("x" * 2**20)

    transport = NeverTaking()
    async with Query(transport, can_use_tool=decide) as talk:
        turn = await talk.send("work")
        enough = MAX_WAITING_BYTES // 2**20 + 1  # one more is being written
        for number in range(enough):
            transport.say(permission(request_id=f"q{number}"))
            await soon(lambda asked=number + 1: decided == asked and talk.pending_questions == ())
        transport.say(permission(request_id="once more"))
        with pytest.raises(ProtocolError, match="does not read the answers"):
            await in_time(turn.result())
        assert decided == enough
