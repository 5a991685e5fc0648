"""A transport or wrapper of the user that raises: what it raised is told to the caller, with its type, whatever it is around."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
from peers import ForeignTransport, answer_to, in_time, permission, result

from claude_transport import (
    Allow,
    ClaudeOptions,
    JSONRPCPeer,
    MockTransport,
    NetworkTransport,
    Query,
    SubprocessTransport,
    TransportWrapper,
    query,
)
from claude_transport.client.controls import InterruptOutcome
from claude_transport.codex import CodexSession
from claude_transport.errors import ClaudeTransportError, CLIConnectionError, ConnectionLost, ConnectTimeout, ProcessError, TransportClosed
from claude_transport.gateway.gateway import Gateway
from claude_transport.testing import FakeClaude, FakeCodex, Scenario
from claude_transport.transport import Client, SessionTerms


class Defect(Exception):
    """What a wrapper with a defect raises."""


class Faulty(TransportWrapper):
    """Raises at the `nth` call of one method, after as many steps of the event loop as `steps` says, and at each later one."""

    def __init__(self, transport: Any, where: str, *, nth: int = 1, steps: int = 0, error: Exception | None = None) -> None:
        super().__init__(transport)
        self.where, self.nth, self.steps = where, nth, steps
        self.error = error or Defect(f"a defect in {where}")

    def step(self, where: str) -> None:
        if where == self.where:
            self.nth -= 1
            if self.nth <= 0:
                raise self.error

    async def steps_of(self, where: str) -> None:
        if where == self.where:
            for _ in range(self.steps):
                await anyio.lowlevel.checkpoint()
        self.step(where)

    async def connect(self) -> None:
        await self.steps_of("connect")
        await super().connect()

    async def write(self, data: str | bytes) -> None:
        await self.steps_of("write")
        await super().write(data)
        self.step("after write")

    async def end_input(self) -> None:
        await self.steps_of("end_input")
        await super().end_input()

    async def close(self) -> None:
        await super().close()
        self.step("close")

    def is_ready(self) -> bool:
        self.step("is_ready")
        return super().is_ready()

    def attach(self, client: Client) -> SessionTerms:
        self.step("attach")
        terms = super().attach(client)
        if self.where == "on_prompt":
            terms = msgspec.structs.replace(terms, on_prompt=lambda _uuid: self.step("on_prompt"))
        return terms

    def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
        self.step("read_lines")
        return self.lines(super().read_lines()) if self.where == "read" else super().read_lines()

    async def lines(self, source: AsyncIterator[Sequence[bytes]]) -> AsyncIterator[Sequence[bytes]]:
        async for batch in source:
            self.step("read")
            yield batch


@asynccontextmanager
async def in_memory() -> AsyncIterator[Any]:
    yield MockTransport([result("one"), result("two")])


@asynccontextmanager
async def of_a_process() -> AsyncIterator[Any]:
    with FakeClaude(Scenario.echo()) as fake:
        yield SubprocessTransport(ClaudeOptions(cli_path=fake.path))


@asynccontextmanager
async def of_a_link() -> AsyncIterator[Any]:
    with FakeClaude(Scenario.echo()) as fake:
        async with Gateway(ClaudeOptions(cli_path=fake.path), listen=["tcp://127.0.0.1:0"], tokens={"alice": "t" * 32}) as gateway:
            yield NetworkTransport(gateway.urls[0], token="t" * 32)


@asynccontextmanager
async def of_another_library() -> AsyncIterator[Any]:
    def react(frame: dict[str, Any]) -> None:
        if frame["type"] == "user":
            transport.say(result("one"))

    transport = ForeignTransport(on_write=react)
    yield transport


MEDIA = [in_memory, of_a_process, of_a_link, of_another_library]
over_each_medium = pytest.mark.parametrize("medium", MEDIA, ids=lambda medium: str(medium.__name__))


async def error_of(call: Any) -> ClaudeTransportError:
    with pytest.raises(ClaudeTransportError) as caught:
        await in_time(call)
    return caught.value


def assert_is_failure(error: BaseException | None, wrapper: Faulty, doing: str, *, kind: type[Exception] = ConnectionLost) -> None:
    """Everything that a user sees of it."""
    assert error is not None
    assert type(error) is kind
    assert (getattr(error, "code", None), error.__cause__) == ("transport.failed", wrapper.error)
    assert str(error) == f"the transport could not {doing}: {wrapper.error!r}"


def logged(caplog: pytest.LogCaptureFixture) -> list[BaseException | None]:
    """The exceptions of the records that a user would see."""
    return [record.exc_info[1] for record in caplog.records if record.levelno >= logging.WARNING and record.exc_info]


@over_each_medium
@pytest.mark.parametrize("steps", [0, 1], ids=["at once", "after a step"])
async def test_a_first_write_that_raises_is_what_the_start_raises(medium: Any, steps: int, caplog: pytest.LogCaptureFixture) -> None:
    async with medium() as inside:
        wrapper = Faulty(inside, "write", steps=steps)
        assert_is_failure(await error_of(Query(wrapper).start()), wrapper, "write")
    assert logged(caplog) == []


@over_each_medium
async def test_a_prompt_that_cannot_be_written_fails_everything_that_is_written_later(
    medium: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with medium() as inside:
        wrapper = Faulty(inside, "write", nth=2)
        async with Query(wrapper) as talk:
            for call in (talk.send("a"), talk.request("mcp_status"), talk.send("b")):
                assert_is_failure(await error_of(call), wrapper, "write")
            await in_time(talk.end_input())  # a peer that takes no line may understand the end
            messages = talk.messages()
            assert_is_failure(await error_of(anext(messages)), wrapper, "write")
    assert logged(caplog) == []


@over_each_medium
async def test_reading_that_raises_is_what_the_turn_the_request_and_the_messages_raise(
    medium: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with medium() as inside:
        wrapper = Faulty(inside, "read", nth=2)
        async with Query(wrapper) as talk:
            messages = talk.messages()
            turn = await talk.send("a")
            assert_is_failure(await error_of(turn.result()), wrapper, "read")
            for call in (anext(turn), anext(messages)):
                assert_is_failure(await error_of(call), wrapper, "read")
            for late in (talk.send("b"), talk.request("mcp_status"), talk.end_input()):
                error = await error_of(late)
                assert type(error) is TransportClosed
                assert_is_failure(error.__cause__, wrapper, "read")
    assert logged(caplog) == []


@over_each_medium
@pytest.mark.parametrize(
    ("where", "doing", "kind"),
    [("connect", "connect", CLIConnectionError), ("read_lines", "read", ConnectionLost)],
    ids=["connect", "read_lines"],
)
async def test_what_raises_before_anything_is_said_is_what_the_start_raises(medium: Any, where: str, doing: str, kind: Any) -> None:
    async with medium() as inside:
        wrapper = Faulty(inside, where)
        assert_is_failure(await error_of(Query(wrapper).start()), wrapper, doing, kind=kind)


@pytest.mark.parametrize("where", ["is_ready", "attach"])
async def test_what_raises_before_connecting_is_what_the_start_raises(where: str) -> None:
    wrapper = Faulty(MockTransport(), where)
    error = await error_of(Query(wrapper).start())
    assert (type(error), error.code, error.__cause__) == (ConnectionLost, "transport.failed", wrapper.error)


@over_each_medium
async def test_an_end_of_the_input_that_raises_is_told_to_the_caller(medium: Any, caplog: pytest.LogCaptureFixture) -> None:
    async with medium() as inside:
        wrapper = Faulty(inside, "end_input")
        talk = Query(wrapper)
        await talk.start()
        assert_is_failure(await error_of(talk.end_input()), wrapper, "end its input")
        await in_time(talk.aclose(timeout=0))
    assert logged(caplog) == []


async def test_an_end_of_the_input_that_raises_while_the_query_closes_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    wrapper = Faulty(MockTransport(), "end_input")
    talk = Query(wrapper)
    await talk.start()
    await in_time(talk.aclose(timeout=0.01))
    (error,) = logged(caplog)
    assert_is_failure(error, wrapper, "end its input")


@over_each_medium
async def test_a_close_that_raises_is_logged_once(medium: Any, caplog: pytest.LogCaptureFixture) -> None:
    async with medium() as inside:
        wrapper = Faulty(inside, "close")
        async with Query(wrapper):
            pass
    assert logged(caplog) == [wrapper.error]


async def test_an_answer_that_cannot_be_written_ends_the_turn_that_waits_for_it(caplog: pytest.LogCaptureFixture) -> None:
    async def allow(*_: object) -> Allow:
        return Allow()

    inside = ForeignTransport(on_write=lambda frame: inside.say(permission()) if frame["type"] == "user" else None)
    wrapper = Faulty(inside, "write", nth=3)
    async with Query(wrapper, can_use_tool=allow) as talk:
        turn = await talk.send("a")
        for call in (anext(turn), turn.result(), anext(talk.messages())):
            assert_is_failure(await error_of(call), wrapper, "write")
    assert logged(caplog) == []


async def test_a_write_that_raises_after_its_line_has_left_is_logged_when_nothing_else_tells(caplog: pytest.LogCaptureFixture) -> None:
    wrapper = Faulty(ForeignTransport(), "after write")
    talk = Query(wrapper)
    start = talk.start()
    try:
        await in_time(start)
    except ConnectionLost as error:
        assert_is_failure(error, wrapper, "write")
        expected = 0
    else:
        expected = 1
    await in_time(talk.aclose(timeout=0.01))
    assert len(logged(caplog)) == expected


async def test_an_interrupt_that_cannot_be_written_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    wrapper = Faulty(ForeignTransport(), "write", nth=2)
    async with Query(wrapper) as talk:
        assert await in_time(talk.interrupt()) is InterruptOutcome.DEAD
    (error,) = logged(caplog)
    assert_is_failure(error, wrapper, "write")


async def test_a_callback_of_the_terms_that_raises_is_an_error_of_the_transport() -> None:
    wrapper = Faulty(MockTransport([result()]), "on_prompt")
    async with Query(wrapper) as talk:
        error = await error_of(talk.send("a"))
    assert_is_failure(error, wrapper, "take the prompt")


async def test_the_first_error_counts_and_the_end_of_the_peer_is_a_note_of_it() -> None:
    inside = ForeignTransport()
    wrapper = Faulty(inside, "write", nth=2)
    async with Query(wrapper) as talk:
        assert_is_failure(await error_of(talk.send("a")), wrapper, "write")
        inside.finish(ProcessError("it ended with exit code 3", exit_code=3))
        error = await error_of(anext(talk.messages()))
        assert_is_failure(error, wrapper, "write")
        assert error.__notes__ == ["after that, reading ended with ProcessError: it ended with exit code 3"]


async def test_a_write_that_the_system_refused_is_the_cause_of_the_end_of_the_peer() -> None:
    inside = ForeignTransport()
    wrapper = Faulty(inside, "write", nth=2, error=OSError("no room"))
    async with Query(wrapper) as talk:
        assert_is_failure(await error_of(talk.send("a")), wrapper, "write")
        inside.finish(ProcessError("it ended with exit code 3", exit_code=3))
        error = await error_of(anext(talk.messages()))
        assert (type(error), error.code) == (ProcessError, "exec.cli.exited")
        assert_is_failure(error.__cause__, wrapper, "write")


@over_each_medium
@pytest.mark.parametrize(("where", "nth", "doing"), [("write", 1, "write"), ("write", 2, "write"), ("read", 2, "read")])
async def test_one_conversation_raises_it(medium: Any, where: str, nth: int, doing: str) -> None:
    async def talk() -> None:
        async for _ in query("Hello", transport=wrapper):
            pass

    async with medium() as inside:
        wrapper = Faulty(inside, where, nth=nth)
        assert_is_failure(await error_of(talk()), wrapper, doing)


# The same for JSON-RPC and Codex


@asynccontextmanager
async def codex(where: str, nth: int) -> AsyncIterator[Faulty]:
    with FakeCodex() as fake:
        yield Faulty(SubprocessTransport(command=fake.command), where, nth=nth)


Ask = Callable[[Any], Any]


@pytest.mark.parametrize(("where", "nth", "doing"), [("write", 1, "write"), ("read", 1, "read"), ("connect", 1, "connect")])
async def test_a_codex_session_raises_it(where: str, nth: int, doing: str, caplog: pytest.LogCaptureFixture) -> None:
    async with codex(where, nth) as wrapper:
        kind = CLIConnectionError if where == "connect" else ConnectionLost
        assert_is_failure(await error_of(CodexSession(wrapper).__aenter__()), wrapper, doing, kind=kind)
    assert logged(caplog) == []


async def test_a_codex_turn_raises_it() -> None:
    async with codex("write", 4) as wrapper, CodexSession(wrapper) as session:
        assert_is_failure(await error_of(session.send("Hello")), wrapper, "write")


async def test_a_peer_raises_it_for_requests_and_notifications(caplog: pytest.LogCaptureFixture) -> None:
    wrapper = Faulty(ForeignTransport(answers=False), "write")
    async with JSONRPCPeer(wrapper, with_version=True) as peer:
        for call in (peer.request("a"), peer.request("b"), peer.notify("c")):
            assert_is_failure(await error_of(call), wrapper, "write")
    assert logged(caplog) == []


async def test_a_peer_whose_question_cannot_be_answered_ends_with_it(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(_request: object) -> dict[str, Any]:
        return {}

    inside = ForeignTransport(answers=False)
    wrapper = Faulty(inside, "write")
    async with JSONRPCPeer(wrapper, on_request=answer) as peer:
        inside.say({"jsonrpc": "2.0", "id": 1, "method": "may I?"})
        assert_is_failure(await in_time(peer.ended()), wrapper, "write")
        assert_is_failure(await error_of(anext(peer.notifications())), wrapper, "write")
    assert logged(caplog) == []


async def test_a_peer_whose_transport_raises_in_close_logs_it_once(caplog: pytest.LogCaptureFixture) -> None:
    wrapper = Faulty(ForeignTransport(answers=False), "close")
    async with JSONRPCPeer(wrapper):
        pass
    assert logged(caplog) == [wrapper.error]


@pytest.mark.parametrize("error", [Defect("a defect in find_cli_version"), CLIConnectionError("it has gone")])
async def test_a_transport_that_cannot_find_the_version_fails_the_start_with_the_cause(error: Exception) -> None:
    async def fails(*, said: str | None) -> str | None:
        raise error

    class Unversioned(TransportWrapper):
        def attach(self, client: Client) -> SessionTerms:
            return msgspec.structs.replace(super().attach(client), find_cli_version=fails)

    def answer(frame: dict[str, Any]) -> None:
        transport.say(answer_to(frame, claude_code_version="2.1.330"))

    transport = ForeignTransport(answers=False, on_write=answer)
    with pytest.raises((ConnectionLost, CLIConnectionError)) as caught:
        await in_time(Query(Unversioned(transport)).start())
    assert transport.calls[-1] == "close"
    if isinstance(error, Defect):
        assert (type(caught.value), caught.value.code, caught.value.__cause__) == (ConnectionLost, "transport.failed", error)
        assert str(caught.value).startswith("the find_cli_version of the transport failed: Defect('a defect in find_cli_version')")
    else:
        assert (type(caught.value), str(caught.value)) == (CLIConnectionError, str(error))


class Foreign(Exception):
    """How another library says that a process has ended."""

    def __init__(self, exit_code: int, stderr: str | None) -> None:
        super().__init__("it has ended")
        self.exit_code = exit_code
        self.stderr = stderr


@pytest.mark.parametrize("words", ["the last words", None])
async def test_how_a_process_of_another_library_ended_is_told_with_its_last_words(words: str | None) -> None:
    transport = ForeignTransport()
    async with Query(transport) as query_:
        turn = await query_.send("Hi")
        transport.finish(Foreign(-9, words))
        with pytest.raises(ProcessError) as caught:
            await in_time(turn.result())
        with pytest.raises(TransportClosed) as later:
            await query_.send("again")
    for error in (caught.value, later.value):
        assert (error.exit_code, error.signal, error.stderr_tail) == (None, 9, words or "")


async def test_a_process_that_does_not_answer_in_time_is_told_with_its_last_words() -> None:
    silent = "import sys; sys.stderr.write('no licence'); sys.stderr.flush(); sys.stdin.read()"
    transport = SubprocessTransport(command=[sys.executable, "-I", "-S", "-c", silent])
    with pytest.raises(ConnectTimeout) as caught:
        await in_time(Query(transport, initialize_timeout=1.0).start())
    assert (caught.value.waited, caught.value.stderr_tail) == (1.0, "no licence")
