"""Starting: it works, or it says in one typed error why not, and leaves nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import anyio
import pytest
from peers import ForeignTransport, Frame, answer_to, in_time, said, soon

from claude_transport import (
    ClaudeOptions,
    CLIConnectionError,
    CLIJSONDecodeError,
    CLINotFoundError,
    ConnectionLost,
    ConnectTimeout,
    MockTransport,
    ProcessError,
    Query,
    ResultError,
    SubprocessTransport,
    TransportClosed,
    TransportLike,
    TransportWrapper,
)
from claude_transport.errors import ClaudeTransportError, ConfigurationError, ControlRequestFailed, NotConnected
from claude_transport.testing import Answer, FakeClaude, Scenario, steps
from claude_transport.transports import Client, SessionTerms

FAILED_START: Frame = {
    "type": "result",
    "subtype": "error_during_execution",
    "is_error": True,
    "num_turns": 0,
    "errors": ["No conversation found with session ID: 12345678-1234-4234-8234-123456789abc"],
}
"""Recording 16g, shortened: the process then exits, but `initialize` would stay unanswered for ever."""


SILENT = {"initialize": Answer(never=True)}


async def started_with(transport: Any, **options: Any) -> ClaudeTransportError:
    """The error of a failing start; afterwards the query is closed, and says so."""
    query = Query(transport, **options)
    with pytest.raises(ClaudeTransportError) as caught:
        await in_time(query.start())
    with pytest.raises(type(caught.value)) as again:
        await query.start()
    assert again.value is not caught.value
    with pytest.raises(ClaudeTransportError):
        await query.send("a")
    assert query.pending_requests == {}
    await in_time(query.aclose())
    return caught.value


async def test_the_answer_to_initialize_is_typed() -> None:
    query = Query(MockTransport(), agents={"helper": {"description": "d", "prompt": "p"}}, initialize={"title": "T"})
    with pytest.raises(NotConnected):
        _ = query.initialization
    async with query:
        await query.start()  # does nothing
        assert query.initialization.claude_code_version == "0.0.0-mock"


async def test_fields_of_initialize_come_from_options_arguments_and_the_caller_who_wins() -> None:
    class WithTerms(MockTransport):
        def attach(self, client: Client) -> SessionTerms:
            return SessionTerms(initialize={"title": "of the options", "agents": {}, "skills": ["x"]}, verbatim_prompts=True)

    transport = WithTerms([{"type": "result", "subtype": "success"}])
    agents = {"helper": {"description": "d", "prompt": "p"}}
    async with Query(transport, agents=agents, initialize={"title": "of the caller"}) as query:
        await query.send("a")
    request: Mapping[str, Any] = transport.written[0]["request"]
    assert request == {"subtype": "initialize", "title": "of the caller", "agents": agents, "skills": ["x"]}
    assert transport.written[1]["client_composed"] is True


async def test_a_transport_that_is_connected_is_not_connected_again() -> None:
    transport = ForeignTransport()
    await transport.connect()
    async with Query(transport):
        pass
    assert transport.calls.count("connect") == 1


async def test_two_starts_at_once_are_one() -> None:
    transport = ForeignTransport()
    query = Query(transport)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(query.start)
        tasks.start_soon(query.start)
    assert len(transport.requests("initialize")) == 1
    await query.aclose()


# ------------------------------------------------------------------------------------------------------------------ failures


async def test_no_program() -> None:
    error = await started_with(SubprocessTransport(command=["/no/such/program"]))
    assert isinstance(error, CLINotFoundError)
    assert error.searched == ("/no/such/program",)


async def test_an_option_that_cannot_be_run(tmp_path: Any) -> None:
    error = await started_with(SubprocessTransport(ClaudeOptions(cli_path=tmp_path / "missing")))
    assert isinstance(error, ConfigurationError)


async def test_a_program_that_fails_says_its_last_words() -> None:
    with FakeClaude(Scenario(startup=[steps.Stderr("it hurts\n"), steps.Exit(3)], answers=SILENT)) as fake:
        error = await started_with(SubprocessTransport(command=fake.command))
    assert isinstance(error, ProcessError)
    assert (error.exit_code, error.stderr_tail) == (3, "it hurts")


async def test_a_program_that_says_nothing_of_sense() -> None:
    with FakeClaude(Scenario(startup=[steps.Noise("hello"), steps.EmitRaw(b"{broken\n"), steps.Exit(0)], answers=SILENT)) as fake:
        error = await started_with(SubprocessTransport(command=fake.command))
    assert isinstance(error, CLIJSONDecodeError)


async def test_a_program_that_ends_well_without_an_answer() -> None:
    with FakeClaude(Scenario(startup=[steps.Exit(0)], answers=SILENT)) as fake:
        error = await started_with(SubprocessTransport(command=fake.command))
    assert type(error) is ConnectionLost


async def test_a_failed_start_is_told_at_once_and_not_after_the_timeout() -> None:
    with FakeClaude(Scenario(startup=[steps.Emit(FAILED_START), steps.Hang()], answers=SILENT)) as fake:
        error = await started_with(SubprocessTransport(command=fake.command, close_timeout=1))
    assert isinstance(error, ResultError)
    assert error.code == "result.startup_failed"
    assert error.result.errors == tuple(FAILED_START["errors"])


async def test_a_failed_start_that_exits_is_no_process_error() -> None:
    with FakeClaude(Scenario(startup=[steps.Emit(FAILED_START), steps.Exit(1)], answers=SILENT)) as fake:
        error = await started_with(SubprocessTransport(command=fake.command))
    assert isinstance(error, ResultError)


async def test_no_answer_in_time() -> None:
    error = await started_with(ForeignTransport(answers=False, ends=False), initialize_timeout=0.01)
    assert isinstance(error, ConnectTimeout)
    assert error.waited == 0.01


async def test_a_refused_initialize_says_why() -> None:
    def refuse(frame: Frame) -> None:
        refusal = {"subtype": "error", "request_id": frame["request_id"], "error": "bad hooks"}
        transport.say({"type": "control_response", "response": refusal})

    transport = ForeignTransport(answers=False, on_write=refuse)
    error = await started_with(transport)
    assert isinstance(error, ControlRequestFailed)
    assert "bad hooks" in str(error)
    assert transport.calls[-1] == "close"


class FailsToConnect(ForeignTransport):
    def __init__(self, cause: Exception | None) -> None:
        super().__init__()
        self.cause = cause

    async def connect(self) -> None:
        await super().connect()
        if self.cause is None:
            await anyio.sleep_forever()
        else:
            raise self.cause


@pytest.mark.parametrize("cause", [ValueError("odd"), OSError("refused"), ExceptionGroup("several", [OSError()])])
async def test_whatever_a_third_party_raises_while_it_connects_is_a_connection_error(cause: Exception) -> None:
    transport = FailsToConnect(cause)
    error = await started_with(transport)
    assert isinstance(error, CLIConnectionError)
    assert error.__cause__ is cause
    assert error.retryable
    assert transport.calls[-1] == "close"


async def test_typed_errors_of_a_transport_are_not_touched() -> None:
    cause = CLINotFoundError("nowhere", searched=["a"])
    error = await started_with(FailsToConnect(cause))
    assert isinstance(error, CLINotFoundError)
    assert error.searched == ("a",)


async def test_a_connect_that_does_not_return_is_bounded() -> None:
    assert isinstance(await started_with(FailsToConnect(None), initialize_timeout=0.01), ConnectTimeout)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_connect_that_ends_in_a_cancellation_of_its_own_is_a_failed_one() -> None:
    error = await started_with(FailsToConnect(asyncio.CancelledError()))  # type: ignore[arg-type]
    assert isinstance(error, CLIConnectionError)


class Odd(ForeignTransport):
    """Breaks where one of its methods is named."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self.method = method

    def _break(self, method: str) -> None:
        if method == self.method:
            raise RuntimeError(f"{method} is broken")

    async def write(self, data: str) -> None:
        self._break("write")
        await super().write(data)

    def read_messages(self) -> Any:
        self._break("read_messages")
        return super().read_messages()

    def is_ready(self) -> bool:
        self._break("is_ready")
        return super().is_ready()


@pytest.mark.parametrize("method", ["write", "read_messages", "is_ready"])
async def test_a_third_party_that_is_broken_fails_the_start(method: str) -> None:
    transport = Odd(method)
    error = await started_with(transport)
    assert isinstance(error, ConnectionLost)
    assert f"{method} is broken" in str(error)
    assert transport.calls[-1] == "close"


class BreaksAtTheEnd(ForeignTransport):
    async def end_input(self) -> None:
        self.calls.append("end_input")
        self.finish()
        raise RuntimeError("broken")

    async def close(self) -> None:
        await super().close()
        raise RuntimeError("broken")


async def test_a_third_party_that_breaks_while_closing_is_closed_all_the_same() -> None:
    transport = BreaksAtTheEnd()
    async with Query(transport) as query:
        pass
    assert transport.calls[-1] == "close"
    assert query.has_ended


# ------------------------------------------------------------------------------------------------------- cancelled and closed


async def test_a_cancelled_start_closes_everything() -> None:
    transport = ForeignTransport(answers=False, ends=False)
    query = Query(transport)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(query.start)
        await soon(lambda: transport.written)
        tasks.cancel_scope.cancel()
    assert transport.calls[-1] == "close"
    with pytest.raises(TransportClosed):
        await query.start()
    await in_time(query.aclose())


async def test_a_start_cancelled_while_it_connects_closes_everything() -> None:
    transport = FailsToConnect(None)
    query = Query(transport)
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(query.start)
            await soon(lambda: transport.calls)
            scope.cancel()
    assert transport.calls[-1] == "close"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_start_cancelled_by_asyncio_itself_closes_everything() -> None:
    transport = ForeignTransport(answers=False, ends=False)
    query = Query(transport)
    task = asyncio.create_task(query.start())
    await soon(lambda: transport.written)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert transport.calls[-1] == "close"
    await in_time(query.aclose())


async def test_a_start_that_was_done_before_is_not_undone_by_a_cancellation() -> None:
    async with Query(MockTransport()) as query:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await query.start()
        assert await query.request("still_there") == {}


@pytest.mark.parametrize("transport", [FailsToConnect(None), ForeignTransport(answers=False)], ids=["connecting", "initialising"])
async def test_a_close_while_it_starts_ends_the_start(transport: ForeignTransport) -> None:
    transport = type(transport)(None) if isinstance(transport, FailsToConnect) else ForeignTransport(answers=False)
    query = Query(transport)

    async def start() -> None:
        with pytest.raises((TransportClosed, ConnectionLost)):
            await query.start()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(start)
        await soon(lambda: transport.calls)
        await in_time(query.aclose())
    assert transport.calls[-1] == "close"


async def test_what_is_sent_while_it_starts_is_settled_when_the_start_fails() -> None:
    transport = FailsToConnect(None)
    query = Query(transport)

    async def use(what: Any, *args: Any) -> None:
        with pytest.raises(ClaudeTransportError):
            await what(*args)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(use, query.start)
        await soon(lambda: transport.calls)
        tasks.start_soon(use, query.send, "a")
        tasks.start_soon(use, query.request, "mcp_status")
        await soon(lambda: query.pending_requests)
        tasks.start_soon(use, query.end_input)
        await anyio.wait_all_tasks_blocked()
        await in_time(query.aclose())
    assert (query.open_turns, query.pending_requests) == ((), {})


class ConnectsLate(ForeignTransport):
    """Connects when it is let to."""

    def __init__(self) -> None:
        super().__init__(answers=False)
        self.let_go = anyio.Event()

    async def connect(self) -> None:
        await super().connect()
        await self.let_go.wait()


async def test_a_prompt_that_is_sent_while_it_starts_goes_out_when_it_has() -> None:
    transport = ConnectsLate()
    query = Query(transport)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(query.start)
        await soon(lambda: transport.calls)
        tasks.start_soon(query.send, "early")
        await anyio.wait_all_tasks_blocked()
        transport.let_go.set()
        await soon(lambda: transport.written)
        await anyio.wait_all_tasks_blocked()
        # written before it, it would make this `initialize` a repeated one, too late for the hooks that it names [02c]
        assert [frame["type"] for frame in transport.written] == ["control_request"]
        transport.say(answer_to(transport.written[0]))
    assert [frame["type"] for frame in transport.written] == ["control_request", "user"]
    await query.aclose()


async def test_messages_that_come_before_the_answer_are_kept() -> None:
    def answer(frame: Frame) -> None:
        transport.say(said("early"), answer_to(frame))

    transport = ForeignTransport(answers=False, on_write=lambda frame: answer(frame) if frame["type"] == "control_request" else None)
    async with Query(transport) as query:
        assert (await in_time(anext(query.messages()))).type == "assistant"


async def test_messages_that_come_before_the_answer_do_not_stop_it_however_small_the_buffer() -> None:
    def answer(frame: Frame) -> None:
        if frame["type"] == "control_request":
            transport.say(*[said("early")] * 20, answer_to(frame))

    transport = ForeignTransport(answers=False, on_write=answer)
    async with Query(transport, max_buffered_bytes=1) as query:
        assert query.dropped_messages > 0


class Confirms(ForeignTransport):
    """A CLI that answers `initialize` with these fields."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(answers=False, on_write=self.initialize)
        self.fields = fields

    def initialize(self, frame: dict[str, Any]) -> None:
        if frame["type"] == "control_request":
            self.say(answer_to(frame, **self.fields))


class Sends(TransportWrapper):
    """A transport whose options send these fields by `initialize`."""

    def __init__(self, transport: TransportLike, **fields: Any) -> None:
        super().__init__(transport)
        self.fields = fields

    def attach(self, client: Client) -> SessionTerms:
        return SessionTerms(initialize=self.fields)


SENT = [
    ("managedSettings", {"env": {}}, "managed_settings_applied", "managed_settings"),
    ("mcpServers", {"a": {}}, "mcp_servers_applied", "mcp_servers"),
    ("plugins", [{}], "plugins_applied", "plugins"),
    ("settings", {"env": {}}, "settings_applied", "settings"),
]


@pytest.mark.parametrize(("field", "value", "confirmation", "option"), SENT)
async def test_what_the_cli_does_not_confirm_fails_the_start(field: str, value: Any, confirmation: str, option: str) -> None:
    version = {"claude_code_version": "2.1.330"}
    unconfirmed: list[dict[str, Any]] = [{"pid": 5, **version}, {"pid": 5, confirmation: False, **version}]
    for answered in unconfirmed:
        transport = Confirms(**answered)
        with pytest.raises(ConfigurationError, match=f"does not apply {field} of initialize") as caught:
            await Query(Sends(transport, **{field: value})).start()
        assert (caught.value.option, caught.value.code, caught.value.retryable) == (option, "config.invalid", False)
        assert "2.1.330" in str(caught.value)
        assert (transport.prompts(), transport.calls[-1]) == ([], "close")
    for answered in ({"pid": 5, confirmation: True, **version}, {}):
        async with Query(Sends(Confirms(**answered), **{field: value})):
            pass


async def test_a_transport_of_another_agent_is_refused_with_the_class_for_it() -> None:
    class Speaks(TransportWrapper):
        def attach(self, client: Client) -> SessionTerms:
            return SessionTerms(agent="codex", session_class="CodexSession")

    transport = ForeignTransport()
    with pytest.raises(ConfigurationError, match="this transport starts codex: use CodexSession") as caught:
        await Query(Speaks(transport)).start()
    assert (caught.value.option, caught.value.code) == ("transport", "config.invalid")
    assert "connect" not in transport.calls
