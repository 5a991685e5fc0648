"""`complete_sync()`: one call from a program without an event loop, and a clear error inside one."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from typing import Any

import anyio
import anyio.to_thread
import pytest

import claude_transport as ct
from claude_transport.completion import complete_sync
from claude_transport.testing import FakeClaude, Scenario, result

MakeOptions = Callable[..., ct.ClaudeOptions]
PATIENCE = 30.0


def in_a_thread(call: Callable[[], Any]) -> Any:
    """What `call` returns in a new thread, which has a copy of the context of this one."""
    returned: list[Any] = []
    thread = threading.Thread(target=copy_context().run, args=(lambda: returned.append(call()),), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return returned[0]


def test_a_script_gets_the_answer(cli_options: MakeOptions) -> None:
    completion = complete_sync("Hi", options=cli_options(Scenario.text("Hello there.")), timeout=PATIENCE)
    assert (completion.text, completion.transport, completion.attempts) == ("Hello there.", "cli", 1)


def test_a_script_may_ask_again_and_again(cli_options: MakeOptions) -> None:
    options = cli_options(Scenario.echo())
    assert [complete_sync(prompt, options=options, timeout=PATIENCE).text for prompt in ("One", "Two")] == ["One", "Two"]


def test_the_errors_are_those_of_complete(cli_options: MakeOptions) -> None:
    scenario = Scenario.turns([[result("API Error: 429", is_error=True, api_error_status=429)]])
    with pytest.raises(ct.RateLimited) as caught:
        complete_sync("Hi", options=cli_options(scenario), retry=ct.RetryPolicy.none(), timeout=PATIENCE)
    assert ct.completion.partial_completion(caught.value) is not None
    with pytest.raises(ct.ConfigurationError):
        complete_sync("Hi", transport="carrier pigeon")  # type: ignore[arg-type]


def test_the_arguments_are_those_of_complete_but_for_its_clock() -> None:
    there, here = inspect.signature(ct.complete).parameters, inspect.signature(complete_sync).parameters
    assert [str(each) for each in there.values() if each.name != "sleep"] == [str(each) for each in here.values()]


def test_each_event_is_told_in_the_thread_and_the_context_of_the_caller(cli_options: MakeOptions) -> None:
    name: ContextVar[str] = ContextVar("name", default="nobody")
    name.set("the caller")
    heard: list[tuple[str, int, str]] = []

    def hear(event: ct.Message) -> None:
        heard.append((event.type, threading.get_ident(), name.get()))

    complete_sync("Hi", options=cli_options(Scenario.text("Hello.")), on_event=hear, timeout=PATIENCE)
    assert {kind for kind, _thread, _name in heard} >= {"assistant", "result"}
    assert {(thread, who) for _kind, thread, who in heard} == {(threading.get_ident(), "the caller")}


async def test_inside_an_event_loop_it_is_refused_before_anything_is_started(fake_claude: Callable[..., FakeClaude]) -> None:
    fake = fake_claude(Scenario.echo())
    with pytest.raises(ct.UsageError, match=r"await complete\(") as caught:
        complete_sync("Hi", options=ct.ClaudeOptions(cli_path=fake.path))
    assert caught.value.code == "usage.running_loop"
    assert fake.calls() == []


async def test_a_thread_beside_an_event_loop_may_wait_for_an_answer(cli_options: MakeOptions) -> None:
    options = cli_options(Scenario.text("Hello there."))

    def ask() -> str:
        return complete_sync("Hi", options=options, timeout=PATIENCE).text

    with anyio.fail_after(2 * PATIENCE):
        assert await anyio.to_thread.run_sync(ask) == "Hello there."
        assert await anyio.to_thread.run_sync(in_a_thread, ask) == "Hello there."
    assert in_a_thread(ask) == "Hello there."
