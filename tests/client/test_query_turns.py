"""Turns and messages of a Query: every message reaches its reader once, whoever reads, and whenever."""

from __future__ import annotations

import datetime as dt
import gc

import anyio
import anyio.lowlevel
import pytest
from peers import ForeignTransport, Frame, in_time, partial, result, said, soon

from claude_transport import AssistantMessage, MissingResult, MockTransport, ProcessError, Query, ResultMessage, TransportClosed, TurnState
from claude_transport.errors import AuthFailed, ConnectionLost, InputClosed, NotConnected, RateLimited, UsageError
from claude_transport.protocol.envelope import Message


def texts(messages: list[Message]) -> list[str]:
    return [message.text for message in messages if isinstance(message, AssistantMessage)]


async def test_a_turn_gives_its_messages_and_its_result() -> None:
    async with Query(MockTransport([said("one"), said("two"), result("two")])) as query:
        turn = await query.send("Hello")
        messages = [message async for message in turn]
        assert texts(messages) == ["one", "two"]
        assert messages[-1] is await turn.result()
        assert turn.state is TurnState.DONE


async def test_a_handle_that_is_kept_after_its_result_keeps_no_messages() -> None:
    async with Query(MockTransport([said("one"), result()])) as query:
        turn = await query.send("a")
        messages = [message async for message in turn]
        await turn.result()
        assert [found for found in gc.get_referrers(messages[0]) if found is not messages] == []


async def test_turns_that_follow_each_other_keep_their_messages_apart() -> None:
    async with Query(MockTransport([said("one"), result("1"), said("two"), result("2")])) as query:
        first, second = await query.send("a"), await query.send("b")
        assert (await in_time(second.result())).result == "2"
        assert texts([message async for message in second]) == ["two"]
        assert texts([message async for message in first]) == ["one"]


async def test_a_result_can_be_awaited_without_reading_and_by_many() -> None:
    async with Query(MockTransport([said("x")] * 100 + [result("1")])) as query:
        turn = await query.send("a")
        found: list[ResultMessage] = []

        async def wait() -> None:
            found.append(await turn.result())

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(wait)
        assert len(found) == 5
        assert len([message async for message in turn]) == 101


async def test_a_turn_can_be_left_and_taken_up_again() -> None:
    async with Query(MockTransport([said("one"), said("two"), said("three"), result()])) as query:
        turn = await query.send("a")
        async for message in turn:
            assert texts([message]) == ["one"]
            break
        assert texts([message async for message in turn]) == ["two", "three"]
        assert [message async for message in turn] == []


@pytest.mark.parametrize("when", ["before", "during", "after"])
async def test_all_messages_are_there_whenever_they_are_asked_for(when: str) -> None:
    async with Query(MockTransport([said("one"), said("two"), result("1")])) as query:
        everything = query.messages() if when == "before" else None
        turn = await query.send("a")
        read = [await anext(turn)] if when == "during" else []
        await turn.result()
        everything = everything or query.messages()
        while len(read) < 3:
            read.append(await in_time(anext(everything)))
        assert texts(read) == ["one", "two"]
        assert isinstance(read[-1], ResultMessage)


async def test_who_reads_everything_again_gets_nothing_twice() -> None:
    transport = ForeignTransport()
    async with Query(transport) as query:
        turn = await query.send("a")
        transport.say(said("one"), said("two"), said("three"))
        first = query.messages()
        assert texts([await in_time(anext(first)), await in_time(anext(first))]) == ["one", "two"]
        del first
        gc.collect()
        transport.say(result())
        again = query.messages()
        assert texts([await in_time(anext(again)), await in_time(anext(again))]) == ["three"]
        # the reader of the turn has its own copy of all of them
        assert texts([message async for message in turn]) == ["one", "two", "three"]


async def test_messages_of_a_turn_that_nobody_holds_wait_for_the_reader_of_everything() -> None:
    transport = ForeignTransport()
    async with Query(transport) as query:
        await query.send("a")
        gc.collect()
        transport.say(said("one"), result())
        await soon(lambda: not query.open_turns)
        everything = query.messages()
        assert texts([await in_time(anext(everything))]) == ["one"]


async def test_everything_ends_with_the_conversation() -> None:
    transport = ForeignTransport()
    async with Query(transport) as query:
        transport.say({"type": "system", "subtype": "status", "status": None})
        await query.end_input()
        assert [message.type async for message in query] == ["system"]
        assert query.has_ended


async def test_a_cancelled_reader_loses_nothing() -> None:
    transport = ForeignTransport()
    async with Query(transport) as query:
        turn = await query.send("a")
        with anyio.CancelScope() as scope:
            scope.cancel()
            await anext(turn)
        transport.say(said("one"), result())
        assert texts([message async for message in turn]) == ["one"]


async def test_many_readers_of_one_turn_share_its_messages() -> None:
    transport = ForeignTransport()
    got: list[str] = []
    async with Query(transport) as query:
        turn = await query.send("a")

        async def read() -> None:
            async for message in turn:
                got.extend(texts([message]))
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            for number in range(20):
                transport.say(said(str(number)))
                await anyio.lowlevel.checkpoint()
            transport.say(result())
    assert sorted(got, key=int) == [str(number) for number in range(20)]


async def test_partial_messages_come_in_their_place() -> None:
    async with Query(MockTransport([partial("a"), partial("b"), said("ab"), result("ab")])) as query:
        turn = await query.send("a")
        assert [message.type async for message in turn] == ["stream_event", "stream_event", "assistant", "result"]


async def test_a_bad_line_costs_that_line() -> None:
    transport = MockTransport([b"[noise]", said("one"), b'{"type":', result()])
    async with Query(transport) as query:
        turn = await query.send("a")
        assert [message.type async for message in turn] == ["decode_failure", "assistant", "decode_failure", "result"]
        assert transport.info.noise_lines == 2


# ------------------------------------------------------------------------------------------------------------------- sending


async def test_what_is_sent_has_the_uuid_of_its_turn() -> None:
    transport = MockTransport([result(), result()])
    async with Query(transport) as query:
        first = await query.send("a", priority="later")
        second = await query.send([{"type": "text", "text": "b"}], uuid="33333333-3333-4333-8333-333333333333")
        await second.result()
    sent = [message for message in transport.written if message["type"] == "user"]
    assert [message["uuid"] for message in sent] == [first.uuid, "33333333-3333-4333-8333-333333333333"]
    assert sent[0]["priority"] == "later"
    assert sent[1]["message"]["content"] == [{"type": "text", "text": "b"}]


async def test_a_third_party_gets_one_line_of_text_per_write() -> None:
    transport = ForeignTransport()
    async with Query(transport) as query, anyio.create_task_group() as tasks:
        for number in range(10):
            tasks.start_soon(query.send, str(number))
    assert len(transport.prompts()) == 10
    assert all(line.count("\n") == 1 and line.endswith("\n") for line in transport.writes)


async def test_bad_content_and_repeated_uuids_are_refused_and_leave_no_turn_behind() -> None:
    async with Query(MockTransport([result()])) as query:
        with pytest.raises(UsageError):
            await query.send(7)  # type: ignore[arg-type]
        turn = await query.send("a")
        with pytest.raises(UsageError, match=turn.uuid):
            await query.send("b", uuid=turn.uuid)
        await turn.result()
        assert query.open_turns == ()


async def test_nothing_can_be_sent_before_the_start_after_the_end_of_input_or_after_the_close() -> None:
    query = Query(MockTransport())
    with pytest.raises(NotConnected):
        await query.send("a")
    await query.start()
    transport = ForeignTransport(ends=False)
    async with Query(transport) as other:
        await other.end_input()
        await other.end_input()
        with pytest.raises(InputClosed):
            await other.send("a")
        with pytest.raises(InputClosed):
            await in_time(other.request("mcp_status"))
        assert (other.open_turns, other.pending_requests) == ((), {})
        assert transport.calls.count("end_input") == 1
        transport.finish()
    await query.aclose()
    with pytest.raises(TransportClosed):
        await query.send("a")


class Stuck(ForeignTransport):
    """Writes the first user message for ever, until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.writing = anyio.Event()
        self.let_go = anyio.Event()

    async def write(self, data: str) -> None:
        if '"user"' in data:
            self.writing.set()
            await self.let_go.wait()
        await super().write(data)


async def test_a_cancelled_send_takes_its_prompt_back_unless_it_is_being_written() -> None:
    transport = Stuck()
    async with Query(transport) as query:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(query.send, "being written")
            await transport.writing.wait()
            tasks.start_soon(query.send, "still waiting")
            await soon(lambda: len(query.open_turns) == 2)
            tasks.cancel_scope.cancel()
        assert len(query.open_turns) == 1
        transport.let_go.set()
        await soon(transport.prompts)
        turn = await query.send("next")
        assert [frame["message"]["content"] for frame in transport.prompts()] == ["being written", "next"]
        transport.say(result("1"), result("2"))
        assert (await in_time(turn.result())).result == "2"


async def test_a_send_that_waits_when_the_peer_dies_is_told_so() -> None:
    transport = Stuck()
    async with Query(transport) as query, anyio.create_task_group() as tasks:

        async def send() -> None:
            with pytest.raises(TransportClosed):
                await query.send("never taken")

        tasks.start_soon(send)
        tasks.start_soon(send)
        await transport.writing.wait()
        transport.finish()


# ----------------------------------------------------------------------------------------------------------------- bad ends


class SDKProcessError(Exception):
    """Shaped like the official SDK's."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"failed with {exit_code}")
        self.exit_code = exit_code
        self.stderr = "last words"


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (ProcessError("claude ended with exit code 3", exit_code=3), ProcessError),
        (SDKProcessError(3), ProcessError),
        (ValueError("odd"), ConnectionLost),
        (ConnectionResetError("gone"), ConnectionLost),
    ],
)
async def test_a_death_in_the_middle_of_a_turn_is_told_to_everybody(cause: Exception, expected: type[Exception]) -> None:
    transport = ForeignTransport()
    transport.answers = True
    async with Query(transport) as query:
        turn = await query.send("a")
        everything = query.messages()
        transport.answers = False
        failures: list[BaseException] = []

        async def ask() -> None:
            with pytest.raises(expected) as caught:
                await query.request("mcp_status")
            failures.append(caught.value)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await soon(lambda: transport.requests("mcp_status"))
            transport.say(said("one"))
            transport.finish(cause)
        read = [await anext(turn)]
        with pytest.raises(expected) as caught:
            await anext(turn)
        failures.append(caught.value)
        with pytest.raises(expected) as caught:
            await turn.result()
        failures.append(caught.value)
        read.append(await anext(everything))
        with pytest.raises(expected) as caught:
            await anext(everything)
        failures.append(caught.value)
        assert texts(read) == ["one", "one"]
        assert len({id(failure) for failure in failures}) == 4  # each has a traceback of its own
        assert (turn.state, query.open_turns, query.pending_requests) == (TurnState.LOST, (), {})
        with pytest.raises(TransportClosed) as closed:
            await query.send("later")
        assert isinstance(closed.value.__cause__, expected)
        if expected is ProcessError:
            assert closed.value.exit_code == 3


async def test_an_exit_that_repeats_a_failed_result_is_no_crash() -> None:
    transport = ForeignTransport()
    async with Query(transport) as query:
        turn = await query.send("a")
        transport.say(result("no", is_error=True, api_error_status=429))
        transport.finish(SDKProcessError(1))
        assert [message.type async for message in query.messages()] == ["result"]
        assert (await turn.result()).outcome.code == "result.rate_limited"


async def test_a_good_end_without_a_result_is_a_missing_result_with_what_came() -> None:
    transport = ForeignTransport()
    async with Query(transport) as query:
        turn = await query.send("a")
        transport.say(said("one"), partial("x"))
        transport.finish()
        with pytest.raises(MissingResult) as caught:
            await in_time(turn.result())
        assert texts(list(caught.value.messages)) == ["one"]
        with pytest.raises(MissingResult):
            async for _ in turn:
                pass


async def test_a_cancelled_prompt_ends_without_a_result() -> None:
    transport = ForeignTransport()
    async with Query(transport) as query:
        turn = await query.send("a")
        transport.say({"type": "command_lifecycle", "command_uuid": turn.uuid, "state": "cancelled"})
        assert [message.type async for message in turn] == ["command_lifecycle"]
        with pytest.raises(MissingResult) as caught:
            await turn.result()
        assert (turn.state, caught.value.code) == (TurnState.DROPPED, "result.cancelled")


async def test_what_a_third_party_yields_besides_dicts_is_refused_by_name() -> None:
    transport = ForeignTransport()
    async with Query(transport) as query:
        turn = await query.send("a")
        frames: list[Frame] = ["text"]  # type: ignore[list-item]
        transport.say(*frames)
        with pytest.raises(UsageError, match="str"):
            await in_time(turn.result())


async def test_the_reader_of_a_third_party_is_closed_and_not_just_dropped() -> None:
    transport = ForeignTransport()
    async with Query(transport, max_buffered_bytes=1) as query:
        transport.say(said("fills the buffer"), said("never read"))
        await soon(lambda: query.buffered_bytes)
        await query.aclose(timeout=0)
    assert "reader closed" in transport.calls


# -------------------------------------------------------------------------------------------------------- what results mean

LIMIT = {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": 1_800_000_000, "rateLimitType": "five_hour"}}


@pytest.mark.parametrize("told", [True, False])
async def test_a_rate_limit_says_when_it_lifts_if_the_wire_said_so(told: bool) -> None:
    failed = result("no", is_error=True, api_error_status=429, terminal_reason="api_error")
    async with Query(MockTransport([*([LIMIT] if told else []), said("no", error="rate_limit"), failed])) as query:
        found = await (await query.send("a")).result()
    with pytest.raises(RateLimited) as caught:
        found.raise_for_error()
    assert caught.value.resets_at == (dt.datetime(2027, 1, 15, 8, 0, tzinfo=dt.UTC) if told else None)


async def test_a_login_that_is_missing_is_a_failure_although_it_looks_like_an_answer() -> None:
    text = "Not logged in · Please run /login"
    answer = said(text, error="authentication_failed", is_api_error_message=True)
    async with Query(MockTransport([answer, result(text, is_error=True, terminal_reason="api_error")])) as query:
        found = await (await query.send("a")).result()
    with pytest.raises(AuthFailed) as caught:
        found.raise_for_error()
    assert (caught.value.code, caught.value.retryable) == ("exec.cli.auth_failed", False)
    assert (caught.value.reason, str(caught.value.__cause__)) == (text, text)
    assert str(caught.value) == (
        f"The credential is missing or was refused. Log in again, or check the key. Reason: {text} (transport=cli, category=auth)"
    )


# ----------------------------------------------------------------------------------------------------- prompts without names


async def test_every_turn_of_an_old_cli_ends_by_its_result_or_with_the_stream() -> None:
    """No lifecycles, no uuids, no session states; one queue, whose rest is merged into the next turn."""
    begins = {"type": "system", "subtype": "init", "session_id": "s1", "claude_code_version": "1.0.50"}
    transport = ForeignTransport()
    async with Query(transport) as query:
        turns = [await query.send("first")]
        transport.say(begins, said("one"))
        await in_time(anext(turns[0]))
        turns += [await query.send("second"), await query.send("third")]
        transport.say(result("1"), begins, said("two"), result("2"))
        assert [(await in_time(turn.result())).result for turn in turns] == ["1", "2", "2"]
        assert [turn.state for turn in turns] == [TurnState.DONE, TurnState.DONE, TurnState.FOLDED]
        assert (await turns[2].result()).prompt_uuids == (turns[1].uuid, turns[2].uuid)
        last = await query.send("fourth")
        transport.say(begins)
        transport.finish()
        with pytest.raises(MissingResult):
            await in_time(last.result())
        assert last.state is TurnState.LOST


async def test_an_old_clis_slash_commands_and_later_prompts_have_turns_of_their_own() -> None:
    begins = {"type": "system", "subtype": "init", "session_id": "s1", "claude_code_version": "1.0.50"}
    transport = ForeignTransport()
    async with Query(transport) as query:
        turns = [await query.send("first")]
        transport.say(begins, said("one"))
        await in_time(anext(turns[0]))
        turns += [await query.send("later", priority="later"), await query.send("second"), await query.send("/usage")]
        transport.say(result("first"), begins, result("second"), begins, result("/usage"), begins, result("later"))
        assert [(await in_time(turn.result())).result for turn in turns] == ["first", "later", "second", "/usage"]
