"""The fake APIs in a program without an event loop: `with FakeMessagesAPI(…)`, and its methods from another thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import anyio.to_thread
import pytest

import claude_transport as ct
from claude_transport.completion import complete_sync, stream_sync
from claude_transport.testing import FakeMessagesAPI, FakeResponsesAPI, replies

PATIENCE = 30.0
KINDS: list[Any] = [FakeMessagesAPI, FakeResponsesAPI]


@pytest.fixture(params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> Any:
    """The event loop of the client; that of the server is its own affair."""
    return request.param


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert [each.name for each in threading.enumerate() if each.name.startswith("claude Fake")] == []


def options(api: FakeMessagesAPI) -> ct.ClaudeOptions:
    return ct.ClaudeOptions(env=api.environment(), env_mode="exact")


def ask(api: FakeMessagesAPI) -> str:
    return complete_sync("Hi", transport="api", options=options(api), retry=ct.RetryPolicy.none(), timeout=PATIENCE).text


def test_a_script_asks_the_fake_and_sees_what_arrived() -> None:
    with FakeMessagesAPI(["first"]) as api:
        assert ask(api) == "first"
        api.replace("second")
        assert ask(api) == "second"
        assert [request.prompt for request in api.conversation] == ["Hi", "Hi"]
        assert api.call(api.wait_for_requests, 2) == api.conversation


def test_a_gate_is_waited_for_and_opened_from_the_script(backend: Any) -> None:
    with FakeMessagesAPI(replies.gated("before after", chunks=["before ", "after"])) as api:
        with stream_sync("Hi", transport="api", options=options(api), timeout=PATIENCE, backend=backend) as pieces:
            assert next(pieces) == "before "
            api.call(api.wait_at_gate, timeout=PATIENCE)
            api.open_gate()
            assert "".join(pieces) == "after"
        assert api.call(api.wait_until, lambda: api.requests[0].outcome == "answered") is None


def test_what_does_not_come_is_told_to_the_script() -> None:
    with FakeMessagesAPI() as api, pytest.raises(TimeoutError, match="1 conversation requests"):
        api.call(api.wait_for_requests, 1, timeout=0)


def test_what_a_scripted_function_raised_is_raised_at_the_end_unless_the_block_failed() -> None:
    def fail(_request: object) -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), FakeMessagesAPI(fail) as api, pytest.raises(ct.errors.APIFailed):
        ask(api)
    with pytest.raises(KeyError), FakeMessagesAPI(fail) as api:
        with pytest.raises(ct.errors.APIFailed):
            ask(api)
        raise KeyError


@pytest.mark.parametrize("kind", KINDS)
def test_an_address_that_is_taken_is_an_error_that_leaves_nothing(kind: Callable[..., Any]) -> None:
    with kind() as api, pytest.raises(ct.ConfigurationError, match="cannot listen"), kind(port=int(api.url.rpartition(":")[2])):
        raise AssertionError("it listens")


@pytest.mark.parametrize("kind", KINDS)
async def test_inside_an_event_loop_it_is_refused_with_a_remedy(kind: Callable[..., Any]) -> None:
    with pytest.raises(ct.UsageError, match=r"use `async with Fake\w+API\(") as caught, kind():
        raise AssertionError("it was started")
    assert caught.value.code == "usage.running_loop"
    async with kind() as api:
        with pytest.raises(ct.UsageError, match="await the method itself"):
            api.call(api.wait_at_gate)


async def test_a_worker_thread_of_an_event_loop_may_use_it() -> None:
    def talk() -> str:
        with FakeMessagesAPI("From the thread.") as api:
            return ask(api)

    assert await anyio.to_thread.run_sync(talk) == "From the thread."


async def test_another_thread_opens_a_gate() -> None:
    async with FakeMessagesAPI(replies.gated("late", after_chunks=0)) as api, anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.to_thread.run_sync, ask, api)
        with anyio.fail_after(PATIENCE):
            await api.wait_at_gate()
            await anyio.to_thread.run_sync(api.open_gate)
