"""`adapt()`: the official client sees a transport of its own kind, with its own errors."""

from __future__ import annotations

from typing import Any

import claude_agent_sdk as sdk
import pytest

import claude_transport as ct
from claude_transport import errors
from claude_transport.interop.agent_sdk import adapt, official_error, transport_from
from claude_transport.testing import ExpectationFailed, FakeClaude, Scenario, ScriptedTurn, steps
from claude_transport.transport import Client, SessionTerms

RESULT: dict[str, Any] = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "duration_ms": 1,
    "duration_api_ms": 1,
    "num_turns": 1,
    "session_id": "s",
    "result": "Hello.",
}


class Broken(ct.TransportWrapper):
    """Everything it is asked for fails with `error`."""

    def __init__(self, error: ct.ClaudeTransportError) -> None:
        super().__init__(ct.MockTransport())
        self._error = error

    async def connect(self) -> None:
        raise self._error

    async def write(self, data: str | bytes) -> None:
        raise self._error

    async def end_input(self) -> None:
        raise self._error

    async def close(self) -> None:
        raise self._error

    def read_messages(self) -> Any:
        raise self._error


async def test_an_adapted_transport_is_one_of_the_official_sdk_and_completes_its_turns() -> None:
    mock = ct.MockTransport([RESULT])
    transport = adapt(mock)
    assert isinstance(transport, sdk.Transport)
    assert transport
    assert transport.transport is mock
    messages = [message async for message in sdk.query(prompt="Hi", transport=transport)]
    assert [type(message) for message in messages] == [sdk.ResultMessage]
    assert [frame["type"] for frame in mock.written] == ["control_request", "user"]
    assert not transport.is_ready()


@pytest.mark.parametrize(
    ("error", "official"),
    [
        (errors.ProcessError("gone", exit_code=3, stderr_tail="why"), sdk.ProcessError),
        (errors.CLINotFoundError("no claude"), sdk.CLINotFoundError),
        (errors.CLIJSONDecodeError("bad", line=b'{"a\xff'), sdk.CLIJSONDecodeError),
        (errors.ConfigurationError("bad option"), sdk.CLIConnectionError),
        (errors.WorkingDirectoryError("no folder"), sdk.CLIConnectionError),
        (errors.ConnectionLost("cut"), sdk.CLIConnectionError),
        (errors.TransportClosed("closed"), sdk.CLIConnectionError),
        (errors.OutcomeUncertain("who knows"), sdk.CLIConnectionError),
        (errors.LineTooLong("long"), sdk.ClaudeSDKError),
        (errors.TruncatedStream("cut off"), sdk.ClaudeSDKError),
    ],
)
async def test_whatever_a_transport_raises_comes_as_the_official_error_with_ours_as_its_cause(
    error: ct.ClaudeTransportError, official: type[Exception]
) -> None:
    transport = adapt(Broken(error))
    for call in (transport.connect, lambda: transport.write("{}"), transport.end_input, transport.close):
        with pytest.raises(sdk.ClaudeSDKError) as caught:
            await call()
        assert type(caught.value) is official
        assert caught.value.__cause__ is error
    with pytest.raises(sdk.ClaudeSDKError):
        transport.read_messages()


async def test_a_failed_expectation_of_a_test_stays_what_it_is() -> None:
    failed = ExpectationFailed("step 1 of 1: expected user, got nothing more")
    transport = adapt(Broken(failed))
    for call in (transport.connect, lambda: transport.write("{}"), transport.end_input, transport.close):
        with pytest.raises(ExpectationFailed):
            await call()
    claude = ct.MockTransport.script().expect(type="user").reply(RESULT)
    reader = adapt(claude)
    await reader.connect()
    messages = reader.read_messages()
    with pytest.raises(ExpectationFailed):
        await reader.write('{"type":"control_request","request_id":"r","request":{"subtype":"interrupt"}}\n')
    with pytest.raises(ExpectationFailed):
        await anext(messages)
    await reader.close()


def test_a_process_error_keeps_its_exit_code_and_last_words_and_a_signal_is_a_negative_code() -> None:
    exited = official_error(errors.ProcessError("gone", exit_code=3, stderr_tail="why"))
    killed = official_error(errors.ProcessError("gone", signal=9))
    assert isinstance(exited, sdk.ProcessError)
    assert isinstance(killed, sdk.ProcessError)
    assert (exited.exit_code, exited.stderr, killed.exit_code, killed.stderr) == (3, "why", -9, None)


async def test_a_failed_run_is_an_official_result_error() -> None:
    failed = steps.Result(subtype="error_during_execution", is_error=True, errors=["it broke"])
    with FakeClaude(Scenario(replies=[ScriptedTurn((steps.Text("Well."), failed))])) as fake:
        transport = adapt(ct.SubprocessTransport(command=[fake.path]))
        with pytest.raises(sdk.ResultError, match="it broke") as caught:
            async for _message in sdk.query(prompt="Hi", transport=transport):
                pass
    assert isinstance(caught.value.__cause__, sdk.ProcessError)
    assert isinstance(caught.value.__cause__.__cause__, errors.ProcessError)


async def test_reading_on_after_a_failure_says_it_again() -> None:
    transport = adapt(ct.SubprocessTransport(command=["/bin/sh", "-c", "exit 4"]))
    await transport.connect()
    for _attempt in range(2):
        with pytest.raises(sdk.ProcessError) as caught:
            await anext(transport.read_messages())
        assert caught.value.exit_code == 4
    assert transport.info.exit_code == 4
    await transport.close()


def test_what_is_no_transport_is_refused() -> None:
    with pytest.raises(errors.ConfigurationError, match="must be a Transport"):
        adapt(object())  # type: ignore[arg-type]


async def test_options_that_come_too_late_for_a_connected_cli_are_refused() -> None:
    async def decide(_tool: str, _input: dict[str, Any], _context: Any) -> Any:
        return sdk.PermissionResultAllow()

    with FakeClaude(Scenario()) as fake:
        async with ct.SubprocessTransport(ct.ClaudeOptions(cli_path=fake.path)) as transport:
            with pytest.raises(errors.ConfigurationError, match="can_use_tool"):
                adapt(transport, options=sdk.ClaudeAgentOptions(can_use_tool=decide))


class Holding(ct.TransportWrapper):
    """Holds prompts back, which the official client does not know of."""

    def attach(self, client: Client) -> SessionTerms:
        async def before_prompt(line: bytes) -> bytes:
            return line

        return super().attach(client).with_before_prompt(before_prompt)


def test_a_transport_that_holds_prompts_back_is_refused() -> None:
    with pytest.raises(errors.ConfigurationError, match="adapt hands lines on as they come") as caught:
        adapt(Holding(ct.MockTransport()), options=sdk.ClaudeAgentOptions())
    assert caught.value.option == "before_prompt"


async def test_the_official_client_finds_no_cli_with_its_own_error() -> None:
    transport = transport_from(sdk.ClaudeAgentOptions(cli_path="/nowhere/claude"))
    with pytest.raises(sdk.CLINotFoundError):
        await transport.connect()
