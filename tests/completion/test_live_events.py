"""`on_event`: what one call does, a tool that the CLI runs above all, is told while it happens."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import anyio
import pytest

import claude_transport as ct
from claude_transport.testing import FakeMessagesAPI, Scenario, steps
from claude_transport.testing.scenario import ScriptedTurn

Options = Callable[..., ct.ClaudeOptions]


def turn(*deeds: Any) -> Scenario:
    """Every prompt is answered by these steps."""
    return Scenario(otherwise=ScriptedTurn(deeds))


LOOKS = steps.ToolUse("Bash", input={"command": "ls"}, output="a.txt", ask=False)


def tools_in(events: list[ct.Message]) -> list[str]:
    """What the events tell of tools: the name of each that is called, and what each has said."""
    found: list[str] = []
    for event in events:
        if isinstance(event, ct.AssistantMessage | ct.UserMessage):
            for block in event.content:
                if isinstance(block, ct.ToolUseBlock):
                    found.append(f"calls {block.name}")
                elif isinstance(block, ct.ToolResultBlock):
                    found.append(f"hears {block.content}")
    return found


@pytest.mark.parametrize("way", ["complete", "stream"])
async def test_a_tool_is_told_of_while_the_call_still_runs(cli_options: Options, way: str) -> None:
    seen: list[ct.Message] = []
    heard = anyio.Event()

    def tell(event: ct.Message) -> None:
        seen.append(event)
        if len(tools_in(seen)) == 2:
            heard.set()

    async def call() -> None:
        arguments: Any = {"transport": "cli", "options": cli_options(turn(LOOKS, steps.Hang()), allowed_tools=["Bash"])}
        if way == "complete":
            await ct.complete("Look", on_event=tell, **arguments)
        else:
            async with ct.stream("Look", on_event=tell, **arguments) as pieces:
                assert [piece async for piece in pieces] == []
        pytest.fail("the call is over, and its CLI hangs")

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await heard.wait()
            assert tools_in(seen) == ["calls Bash", "hears a.txt"]
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize("partial", [False, True])
async def test_what_is_told_is_what_the_completion_holds_in_its_order(cli_options: Options, partial: bool) -> None:
    seen: list[ct.Message] = []
    options = cli_options(turn(LOOKS, steps.Text("One file."), steps.Result()), allowed_tools=["Bash"], include_partial_messages=partial)
    completion = await ct.complete("Look", transport="cli", options=options, on_event=seen.append)
    assert tuple(seen) == completion.events
    assert tools_in(seen) == ["calls Bash", "hears a.txt"]
    assert ("stream_event" in {event.type for event in seen}) is partial


async def test_the_api_path_tells_too(fake_messages_api: FakeMessagesAPI, api_options: ct.ClaudeOptions) -> None:
    seen: list[ct.Message] = []
    completion = await ct.complete("Hi", transport="api", options=api_options, on_event=seen.append)
    assert tuple(seen) == completion.events
    assert [event.type for event in seen] == ["assistant", "result"]


async def test_an_observer_that_fails_is_logged_once_and_changes_nothing(cli_options: Options, caplog: pytest.LogCaptureFixture) -> None:
    """Once, since it may be told of thousands of events."""
    told: list[ct.Message] = []

    def fail(event: ct.Message) -> None:
        told.append(event)
        raise ValueError("no screen")

    options = cli_options(turn(steps.Text("Hello."), steps.Result()))
    with caplog.at_level(logging.ERROR, logger="claude_transport"):
        completion = await ct.complete("Hi", transport="cli", options=options, on_event=fail)
    assert completion.text == "Hello."
    assert tuple(told) == completion.events[:1]
    assert [record.getMessage() for record in caplog.records] == ["on_event failed; it is not called again in this call"]


async def tells_later(_event: ct.Message) -> None:
    """A coroutine function, which would never run."""


@pytest.mark.parametrize("observer", [tells_later, "print", 5])
@pytest.mark.parametrize("way", ["complete", "stream"])
async def test_what_cannot_be_called_is_refused(observer: Any, way: str) -> None:
    with pytest.raises(ct.ConfigurationError, match="on_event") as caught:
        if way == "complete":
            await ct.complete("Hi", transport="cli", on_event=observer)
        else:
            ct.stream("Hi", transport="cli", on_event=observer)
    assert caught.value.option == "on_event"
