"""Transports cross the fence both ways: ours under the official SDK, and the official SDK's own under our Query, on the real binary."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import claude_agent_sdk as sdk
import pytest
from claude_agent_sdk._internal.transport.subprocess_cli import SubprocessCLITransport

import claude_transport as ct
from claude_transport import errors
from claude_transport.interop.agent_sdk import options_from
from claude_transport.testing import FakeMessagesAPI, replies

# The official client drops its own generators half read, which trio remarks on; that is not ours to judge.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'claude_agent_sdk:ResourceWarning")

PATIENCE = 60.0  # seconds for the CLI to say its next word, on a machine with much else to do


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch, claude_cli: str, cli_home: Any, cli_env: Callable[..., dict[str, str]]) -> Callable[..., Any]:
    """`clean(api)`: (binary, project, environment); and this process's own environment is that one, too, since the SDK inherits it."""

    def prepare(api: FakeMessagesAPI) -> tuple[str, Any, dict[str, str]]:
        environment = cli_env(api, CLAUDE_CODE_MAX_RETRIES="0")
        for name in list(os.environ):
            if not name.startswith(("PYTEST_", "PYTHON")):
                monkeypatch.delenv(name)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return claude_cli, cli_home.project, environment

    return prepare


@pytest.fixture
def ours(clean: Callable[..., Any]) -> Callable[..., ct.SubprocessTransport]:
    """Our transport to the real binary."""

    def build(api: FakeMessagesAPI, **options: Any) -> ct.SubprocessTransport:
        binary, project, environment = clean(api)
        return ct.SubprocessTransport(ct.ClaudeOptions(cli_path=binary, cwd=project, env=environment, env_mode="exact", **options))

    return build


@pytest.fixture
def theirs(clean: Callable[..., Any]) -> Callable[..., SubprocessCLITransport]:
    """The official SDK's transport to the real binary."""

    def build(api: FakeMessagesAPI, **options: Any) -> SubprocessCLITransport:
        binary, project, environment = clean(api)

        async def prompts() -> AsyncIterator[dict[str, Any]]:
            return
            yield {}

        return SubprocessCLITransport(prompts(), sdk.ClaudeAgentOptions(cli_path=binary, cwd=project, env=environment, **options))

    return build


SCRIPT: list[Any] = [
    {
        "type": "assistant",
        "message": {"role": "assistant", "model": "mock", "content": [{"type": "text", "text": "Hello."}]},
        "session_id": "s",
    },
    {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "duration_ms": 1,
        "duration_api_ms": 1,
        "num_turns": 1,
        "session_id": "s",
        "total_cost_usd": 0.0,
        "result": "Hello.",
    },
]


# --------------------------------------------------------------------------------------------- ours under the official SDK


async def one_shot(transport: ct.Transport) -> list[Any]:
    with anyio.fail_after(PATIENCE):
        return [message async for message in sdk.query(prompt="Hi", transport=transport)]  # type: ignore[arg-type]


async def client_turn(transport: ct.Transport, options: sdk.ClaudeAgentOptions | None = None) -> list[Any]:
    with anyio.fail_after(PATIENCE):
        messages: list[Any] = []
        async with sdk.ClaudeSDKClient(options, transport=transport) as client:  # type: ignore[arg-type]
            await client.query("Hi")
            messages += [message async for message in client.receive_response()]
        return messages


@pytest.mark.parametrize("talk", [one_shot, client_turn])
async def test_our_mock_completes_a_turn_of_the_official_sdk(talk: Callable[..., Any]) -> None:
    transport = ct.MockTransport(SCRIPT)
    messages = await talk(transport)
    assert [type(message).__name__ for message in messages] == ["AssistantMessage", "ResultMessage"]
    assert messages[-1].result == "Hello."
    assert [frame["type"] for frame in transport.written] == ["control_request", "user"]
    assert not transport.is_ready()


@pytest.mark.parametrize("talk", [one_shot, client_turn])
async def test_our_subprocess_completes_a_turn_of_the_official_sdk(
    ours: Callable[..., ct.SubprocessTransport], talk: Callable[..., Any]
) -> None:
    async with FakeMessagesAPI(["Hello."]) as api:
        transport = ours(api)
        messages = await talk(transport)
    assert messages[-1].result == "Hello."
    assert transport.info.exit_code == 0
    assert not transport.is_ready()


async def test_the_official_client_asks_for_permission_through_our_transport(
    ours: Callable[..., ct.SubprocessTransport], cli_home: Any
) -> None:
    asked: list[str] = []

    async def decide(tool: str, _input: dict[str, Any], _context: Any) -> Any:
        asked.append(tool)
        return sdk.PermissionResultAllow()

    async with FakeMessagesAPI([replies.tool_use("Bash", {"command": "echo made > made"}), "Done."]) as api:
        transport = ours(api, permission_prompt_tool_name="stdio")
        messages = await client_turn(transport, sdk.ClaudeAgentOptions(can_use_tool=decide))
    assert (asked, messages[-1].result) == (["Bash"], "Done.")
    assert (cli_home.project / "made").exists()


# ------------------------------------------------------------------------------------------------- theirs under our Query


async def test_their_subprocess_completes_turns_of_our_query(theirs: Callable[..., SubprocessCLITransport]) -> None:
    async with FakeMessagesAPI(["One.", "Two."]) as api, ct.Query(theirs(api)) as query:
        with anyio.fail_after(PATIENCE):
            first = await query.send("1")
            texts = [message.text async for message in first if isinstance(message, ct.AssistantMessage)]
            second = await (await query.send("2")).result()
        assert (texts, second.result) == (["One."], "Two.")
        assert first.state is ct.TurnState.DONE
        assert query.info.kind == "SubprocessCLITransport"
        report = await query.aclose()
    assert report.ended_by_itself


async def test_callbacks_work_through_their_subprocess(theirs: Callable[..., SubprocessCLITransport], cli_home: Any) -> None:
    called: list[str] = []

    async def decide(tool: str, _input: dict[str, Any], _context: ct.client.CallbackContext) -> ct.Allow:
        called.append(tool)
        return ct.Allow()

    async def note(given: dict[str, Any], _tool_use_id: str | None, _context: ct.client.CallbackContext) -> dict[str, Any]:
        called.append(given["hook_event_name"])
        return {}

    hooks = {"PreToolUse": [ct.HookMatcher("Bash", [note])], "Stop": [ct.HookMatcher(hooks=[note])]}
    async with FakeMessagesAPI([replies.tool_use("Bash", {"command": "echo made > made"}), "Done."]) as api:
        transport = theirs(api, permission_prompt_tool_name="stdio")
        async with ct.Query(transport, can_use_tool=decide, hooks=hooks) as query:
            with anyio.fail_after(PATIENCE):
                result = await (await query.send("Make it")).result()
    assert (called, result.result) == (["PreToolUse", "Bash", "Stop"], "Done.")
    assert (cli_home.project / "made").exists()


async def test_an_exit_code_that_repeats_a_failed_result_is_no_crash_over_their_subprocess(theirs: Callable[..., Any]) -> None:
    async with FakeMessagesAPI(replies.error(401)) as api, ct.Query(theirs(api)) as query:
        with anyio.fail_after(PATIENCE):
            turn = await query.send("Hi")
            with pytest.raises(errors.AuthFailed):
                (await turn.result()).raise_for_error()
            everything = query.messages()
            await query.end_input()
            assert [message async for message in everything]


async def test_a_program_that_their_subprocess_cannot_keep_alive_is_a_process_error(theirs: Callable[..., Any]) -> None:
    async with FakeMessagesAPI() as api:
        query = ct.Query(theirs(api, extra_args={"from-the-future": None}))
        with pytest.raises(errors.ProcessError) as caught:
            await query.start()
    assert caught.value.exit_code == 1


async def test_one_shot_over_their_subprocess_ends_by_itself(theirs: Callable[..., Any]) -> None:
    async with FakeMessagesAPI(["Hello."]) as api:
        with anyio.fail_after(PATIENCE):
            messages = [message async for message in ct.query("Hi", transport=theirs(api))]
    assert [message.result for message in messages if isinstance(message, ct.ResultMessage)] == ["Hello."]


async def test_the_official_client_continues_the_latest_session_although_one_is_named_and_that_is_refused_here(
    clean: Callable[..., Any],
) -> None:
    async with FakeMessagesAPI(["One.", "Two.", "Three."]) as api:
        binary, project, _environment = clean(api)

        def official(**more: Any) -> sdk.ClaudeAgentOptions:
            return sdk.ClaudeAgentOptions(cli_path=binary, cwd=project, **more)

        async def by_them(**more: Any) -> str:
            with anyio.fail_after(PATIENCE):
                said = [message async for message in sdk.query(prompt="Hello", options=official(**more))]
            (result,) = [message for message in said if isinstance(message, sdk.ResultMessage)]
            return result.session_id

        named, latest = await by_them(), await by_them()
        both: dict[str, Any] = {"resume": named, "continue_conversation": True}
        assert await by_them(**both) == latest
        with pytest.raises(errors.ConfigurationError, match="name two different conversations; give only one") as refused:
            async with options_from(official(**both)).open_query():
                pass
        assert refused.value.option == "continue_conversation"
