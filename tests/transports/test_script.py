"""Scripted mocks: expectations that are met, and unmet ones that name their step."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from claude_transport.client.query import Query
from claude_transport.client.questions import HookMatcher
from claude_transport.errors import ControlRequestFailed, ProcessError, TransportClosed, UsageError
from claude_transport.protocol.expectation import ExpectationFailed
from claude_transport.transports.mock import MockTransport
from claude_transport.transports.script import MockScript

RESULT = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "done"}
ASSISTANT = {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": "done"}]}}
QUESTION = {"type": "control_request", "request_id": "q1", "request": {"subtype": "elicitation", "message": "Which?"}}


def user(text: str) -> bytes:
    return b'{"type":"user","message":{"role":"user","content":"%s"}}' % text.encode()


def request(subtype: str, request_id: str = "r1") -> bytes:
    return b'{"type":"control_request","request_id":"%s","request":{"subtype":"%s"}}' % (request_id.encode(), subtype.encode())


async def test_a_query_that_does_what_the_script_says_gets_what_it_says() -> None:
    claude = (
        MockTransport.script()
        .expect(type="user", message={"content": "Hello"})
        .reply(ASSISTANT, RESULT)
        .expect_control("set_model", model="haiku")
        .reply({"model": "haiku"})
        .expect_control("rename_session")
        .reply_error("no such session", error_code="gone")
        .expect_control("interrupt")
        .reply()
    )
    with anyio.fail_after(30):
        async with Query(claude) as query:
            turn = await query.send("Hello")
            assert [message.type async for message in turn] == ["assistant", "result"]
            assert await query.request("set_model", model="haiku") == {"model": "haiku"}
            with pytest.raises(ControlRequestFailed, match="no such session") as failed:
                await query.request("rename_session", title="x")
            assert failed.value.error_code == "gone"
            assert await query.request("interrupt") == {}
    claude.assert_exhausted()
    assert [message["type"] for message in claude.written][:2] == ["control_request", "user"]


async def test_a_script_can_be_made_apart_from_the_mock_that_plays_it() -> None:
    script = MockScript().expect(type="user").reply(RESULT)
    with anyio.fail_after(30):
        async with Query(MockTransport(script=script)) as query:
            assert (await (await query.send("Hi")).result()).result == "done"
    script.assert_exhausted()


async def test_a_wrong_prompt_fails_where_it_is_sent_and_names_the_step_and_both_texts() -> None:
    claude = MockTransport.script().emit({"type": "keep_alive"}).expect(type="user", message={"content": "Hello"}).reply(RESULT)
    with anyio.fail_after(30):
        async with Query(claude) as query:
            with pytest.raises(ExpectationFailed) as failed:
                await query.send("Goodbye")
    assert failed.value.step == "step 2 of 2"
    assert "user with message={'content': 'Hello'}" in failed.value.expected
    assert "Goodbye" in failed.value.actual
    assert "message.content is 'Goodbye', not 'Hello'" in str(failed.value)
    with pytest.raises(AssertionError, match="step 2 of 2"):
        claude.assert_exhausted()


async def test_whoever_reads_hears_of_a_failed_expectation_too() -> None:
    async with MockTransport.script().expect(type="user") as claude:
        heard: list[BaseException] = []

        async def read() -> None:
            try:
                async for _ in claude.read_messages():
                    pass
            except ExpectationFailed as failed:
                heard.append(failed)

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read)
                await anyio.wait_all_tasks_blocked()
                with pytest.raises(ExpectationFailed):
                    await claude.write(request("interrupt"))
        (message,) = map(str, heard)
        assert message.startswith("step 1 of 1: expected user, got control_request interrupt {'type': 'control_request', ")
        assert message.endswith("(type is 'control_request', not 'user')")


async def test_what_comes_after_the_last_step_is_unexpected() -> None:
    async with MockTransport.script().expect(type="user") as claude:
        await claude.write(user("1"))
        with pytest.raises(ExpectationFailed, match="step 1 of 1: expected no further message: all steps of the script are done, got user"):
            await claude.write(user("2"))


@pytest.mark.parametrize(
    ("end", "code"), [({"stderr": "slow\n"}, 0), ({"exit_code": 3, "stderr": "boom\n"}, 3), ({"signal": 9, "stderr": "boom\n"}, None)]
)
async def test_the_info_says_how_a_played_script_ended_and_nothing_before(end: dict[str, Any], code: int | None) -> None:
    async with MockTransport.script().expect(type="user").reply(RESULT).end(**end) as claude:
        await claude.write(user("1"))
        assert (claude.info.exit_code, claude.info.signal, claude.info.stderr_tail) == (None, None, "")
        with contextlib.suppress(ProcessError):
            async for _ in claude.read_messages():
                pass
        assert (claude.info.exit_code, claude.info.signal, claude.info.stderr_tail) == (code, end.get("signal"), end["stderr"])


async def test_input_that_ends_before_everything_was_said_names_what_was_not() -> None:
    async with MockTransport.script().expect(type="user").reply(RESULT).expect_control("end_session") as claude:
        await claude.write(user("1"))
        await claude.end_input()
        seen: list[str] = []
        with pytest.raises(ExpectationFailed, match="step 2 of 2: expected control_request end_session, got the end of the input"):
            async for message in claude.read_messages():
                seen.append(message["type"])  # noqa: PERF401 - what came before the error is the point
        assert seen == ["result"]


async def test_a_script_with_steps_left_is_not_exhausted() -> None:
    claude = MockTransport.script().expect(type="user").reply(RESULT)
    with pytest.raises(ExpectationFailed, match="step 1 of 1: expected user, got nothing more"):
        claude.assert_exhausted()


async def test_a_script_with_lines_nobody_read_is_not_exhausted() -> None:
    async with MockTransport.script().expect(type="user").reply(RESULT) as claude:
        await claude.write(user("1"))
        with pytest.raises(ExpectationFailed, match="expected the host to read every line, got 1 unread lines"):
            claude.assert_exhausted()
        assert [message async for message in claude.read_messages() if await end(claude)] == [RESULT]
        claude.assert_exhausted()


async def end(claude: MockTransport) -> bool:
    await claude.end_input()
    return True


async def test_a_question_is_asked_and_its_answer_checked() -> None:
    asked: list[str] = []

    async def answer(subtype: str, fields: dict[str, Any]) -> dict[str, Any]:
        asked.append(f"{subtype} {fields['message']}")
        return {"action": "accept"}

    claude = (
        MockTransport.script()
        .expect(type="user")
        .emit(QUESTION)
        .expect(type="control_response", response={"request_id": "q1", "response": {"action": "accept"}})
        .emit(RESULT)
    )
    with anyio.fail_after(30):
        async with Query(claude, on_request=answer) as query:
            assert (await (await query.send("Hi")).result()).result == "done"
    assert asked == ["elicitation Which?"]
    claude.assert_exhausted()


@pytest.mark.parametrize(
    ("ended", "exit_code", "signal", "last_words"),
    [
        (lambda script: script.end(3, stderr="boom"), 3, None, "boom"),
        (lambda script: script.end(signal=9), None, 9, ""),
    ],
)
async def test_a_scripted_crash_is_a_process_error_after_the_last_message(
    ended: Callable[[MockTransport], MockTransport], exit_code: int | None, signal: int | None, last_words: str
) -> None:
    async with ended(MockTransport.script().emit(ASSISTANT)) as claude:
        messages = claude.read_messages()
        assert await anext(messages) == ASSISTANT
        with pytest.raises(ProcessError) as failed:
            await anext(messages)
        assert (failed.value.exit_code, failed.value.signal, failed.value.stderr_tail) == (exit_code, signal, last_words)


async def test_a_query_with_hooks_that_hears_of_a_scripted_crash_has_done_nothing_wrong() -> None:
    async def nothing(*_: Any) -> None: ...

    claude = MockTransport.script(strict=True).expect(type="user").reply(ASSISTANT).end(3, stderr="oom")
    with anyio.fail_after(30), pytest.raises(ProcessError) as failed:
        async with Query(claude, hooks={"PreToolUse": [HookMatcher("Bash", [nothing])]}) as query:
            await (await query.send("Hi")).result()
    assert (failed.value.exit_code, failed.value.stderr_tail) == (3, "oom")
    assert claude.failure is None
    claude.assert_exhausted()


@pytest.mark.parametrize(("end", "code"), [({}, 0), ({"exit_code": 3, "stderr": "oom"}, 3), ({"signal": 9, "stderr": "oom"}, None)])
async def test_a_write_after_the_scripted_end_was_read_finds_the_peer_gone(end: dict[str, Any], code: int | None) -> None:
    async with MockTransport.script(strict=True).expect(type="user").reply(RESULT).end(**end) as claude:
        await claude.write(user("1"))
        with anyio.fail_after(30), contextlib.suppress(ProcessError):
            async for _ in claude.read_messages():
                assert claude.is_ready()
        with pytest.raises(TransportClosed, match="the peer is gone") as closed:
            await claude.write(user("2"))
        assert (closed.value.exit_code, closed.value.signal, closed.value.stderr_tail) == (code, end.get("signal"), end.get("stderr", ""))
        assert not claude.is_ready()
        assert [message["message"]["content"] for message in claude.written] == ["1"]
        assert claude.failure is None
        claude.assert_exhausted()


async def test_a_good_end_stops_the_reading_and_noise_is_said_as_it_is() -> None:
    async with MockTransport.script().emit(b"[noise]", RESULT).end() as claude:
        lines = [line async for batch in claude.read_lines() for line in batch]
        assert (lines[0], len(lines)) == (b"[noise]", 2)


async def test_an_initialize_that_is_scripted_is_answered_by_the_script() -> None:
    claude = MockTransport.script().expect_control("initialize").reply({"output_style": "scripted"})
    with anyio.fail_after(30):
        async with Query(claude) as query:
            assert query.initialization.output_style == "scripted"
    claude.assert_exhausted()


async def test_what_the_cli_does_not_react_to_is_never_unexpected() -> None:
    async with MockTransport.script().expect(type="user") as claude:
        await claude.write(b'{"type":"keep_alive"}\n{"type":"control_cancel_request","request_id":"x"}')
        await claude.write(user("1"))
        claude.assert_exhausted()


async def test_a_predicate_and_callable_fields_decide_and_are_named_when_they_say_no() -> None:
    def is_short(message: dict[str, Any]) -> bool:
        return len(message["message"]["content"]) < 3

    def long_list(value: object) -> bool:
        return isinstance(value, list) and len(value) > 1

    async with MockTransport.script().expect(is_short, type="user") as claude:
        with pytest.raises(ExpectationFailed, match=r"expected user that satisfies is_short, got user .*is_short returned False"):
            await claude.write(user("too long"))
    async with MockTransport.script().expect(type="user", message={"content": long_list}) as claude:
        with pytest.raises(ExpectationFailed, match=r"message.content is 'x', for which long_list returned False"):
            await claude.write(user("x"))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ([{"type": "text"}, {"type": "image"}], "message.content is .* not a list of 2"),
        ([{"type": "image"}], r"message.content\[0\].type is 'text', not 'image'"),
        ({"a": 1}, r"message.content is \[.*, not an object"),
        ([{"type": "text", "cache": 1}], r"message.content\[0\].cache is missing"),
    ],
)
async def test_the_error_says_what_exactly_does_not_fit(content: object, why: str) -> None:
    async with MockTransport.script().expect(type="user", message={"content": content}) as claude:
        with pytest.raises(ExpectationFailed, match=why):
            await claude.write(b'{"type":"user","message":{"role":"user","content":[{"type":"text","text":"x"}]}}')


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: MockTransport.script().reply(RESULT),
        lambda: MockTransport.script().emit(RESULT).reply(RESULT),
        lambda: MockTransport.script().expect(),
        lambda: MockTransport.script().expect(type="user").reply(),
        lambda: MockTransport.script().expect(type="user").reply_error("no"),
        lambda: MockTransport.script().end().emit(RESULT),
        lambda: MockTransport([RESULT]).expect(type="user"),
    ],
)
def test_a_script_that_makes_no_sense_is_refused_when_it_is_written(wrong: Callable[[], object]) -> None:
    with pytest.raises(UsageError):
        wrong()


def test_a_failed_expectation_survives_copying() -> None:
    failed = copy.copy(ExpectationFailed.at("step 1", expected="a", actual="b"))
    assert (failed.step, failed.expected, failed.actual, failed.code) == ("step 1", "a", "b", "testing.expectation_failed")


async def test_a_reply_to_an_expectation_that_was_met_already_is_refused() -> None:
    transport = MockTransport.script().expect(type="user")
    async with transport:
        await transport.write(user("Hi"))
        with pytest.raises(UsageError, match="comes too late"):
            transport.reply(ASSISTANT)


async def test_a_script_says_at_each_moment_where_it_stands() -> None:
    mock = MockTransport.script().expect(type="user").emit({"type": "result"}).expect(type="user")
    said: list[str] = []
    async with mock:
        lines = mock.read_lines()
        said.append(mock.whereabouts)
        await mock.write(user("1"))
        said.append(mock.whereabouts)
        assert len(await anext(lines)) == 1
        with pytest.raises(ExpectationFailed, match="step 3 of 3"):
            mock.assert_exhausted()
        await mock.write(user("2"))
        mock.assert_exhausted()
        said.append(mock.whereabouts)
        await mock.end_input()
        with pytest.raises(StopAsyncIteration):
            await anext(lines)
        said.append(mock.whereabouts)
    assert [text.partition(": ")[2] for text in said] == [
        "waiting for user",
        "waiting for user",
        "all steps are done; waiting for the end of the input",
        "all steps are done; waiting for the end of the input",
    ]
