"""What a Query, a mock or a subprocess transport is made with is checked when it is made, and named when it is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import claude_transport as ct
from claude_transport.errors import ConfigurationError, UsageError
from claude_transport.transports import session_terms

# what a type checker would refuse, as a program without one would write it
Query: Any = ct.Query
HookMatcher: Any = ct.HookMatcher
MockTransport: Any = ct.MockTransport
SubprocessTransport: Any = ct.SubprocessTransport
SessionPool: Any = ct.SessionPool
one_shot: Any = ct.query


async def hook(*_: object) -> None: ...


def query(**arguments: Any) -> Callable[[], object]:
    return lambda: Query(MockTransport(), **arguments)


WRONG: list[tuple[str, Callable[[], object], str]] = [
    ("transport", lambda: Query(MockTransport), "not the class MockTransport"),
    ("on_callback_error", query(on_callback_error="Deny"), '"deny" or "allow"'),
    ("on_callback_error", query(on_callback_error=None), '"deny" or "allow"'),
    ("hooks", query(hooks={"PreToolUs": [HookMatcher(None, [hook])]}), "did you mean PreToolUse"),
    ("hooks", query(hooks={"Zzz": [HookMatcher(None, [hook])]}), "no hook event 'Zzz'"),
    ("hooks", query(hooks={"PreToolUse": [hook]}), "list of HookMatcher"),
    ("hooks", query(hooks={"PreToolUse": HookMatcher(None, [hook])}), "list of HookMatcher"),
    ("hooks", query(hooks={"PreToolUse": [HookMatcher("Bash", hook)]}), "list of async functions"),
    ("hooks", query(hooks={"PreToolUse": [HookMatcher("Bash", [5])]}), "async function"),
    ("hooks", query(hooks=[HookMatcher(None, [hook])]), "maps events"),
    ("can_use_tool", query(can_use_tool=5), "async function"),
    ("on_request", query(on_request="me"), "async function"),
    ("initialize_timeout", query(initialize_timeout=-1), "above 0"),
    ("initialize_timeout", query(initialize_timeout="5"), "above 0"),
    ("transport_close_timeout", query(transport_close_timeout=-1), "at least 0"),
    ("max_buffered_bytes", query(max_buffered_bytes=0), "above 0"),
    ("transport", lambda: Query("hello"), "must be a Transport, not str"),
    ("transport", lambda: Query(None), "must be a Transport, not None$"),
    ("options", lambda: SubprocessTransport({"model": "x"}), "such as ClaudeOptions, not dict"),
    ("options", lambda: SubprocessTransport({}), "such as ClaudeOptions, not dict"),
    ("options", lambda: one_shot("x", options={"model": "x"}), "such as ClaudeOptions, not dict"),
    ("responses", lambda: MockTransport({"type": "result"}), "not one dict"),
    ("responses", lambda: MockTransport([{"type": "result"}, "text"]), r"responses\[1\] is str"),
    ("make_transport", lambda: SessionPool(make_transport=hook), "returns a transport, not an async one"),
    ("transport", lambda: SessionPool(transport=MockTransport()), "each session has one of its own"),
    ("make_transport", lambda: SessionPool(make_transport=5), "returns a transport, not int"),
]


@pytest.mark.parametrize(("option", "make", "said"), WRONG, ids=[f"{option}-{index}" for index, (option, _, _) in enumerate(WRONG)])
def test_a_wrong_argument_is_refused_by_name_before_anything_runs(option: str, make: Callable[[], object], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        make()
    assert caught.value.option == option


def test_right_arguments_are_taken() -> None:
    Query(MockTransport([b"{}", {"type": "x"}]), hooks={"Stop": (HookMatcher(None, [hook]),)}, on_callback_error="allow")


@pytest.mark.parametrize("timeout", ["5", None, math.nan, True])
async def test_seconds_that_are_none_are_refused_and_the_conversation_goes_on(timeout: Any) -> None:
    async with Query(MockTransport()) as talk:
        for wait in (talk.request("mcp_status", timeout=timeout), talk.interrupt(timeout=timeout), talk.aclose(timeout=timeout)):
            with pytest.raises(UsageError, match="timeout must be a number of seconds"):
                await wait
        with pytest.raises(UsageError, match="timeout must be a number of seconds"):
            talk.abandon(timeout=timeout)
        assert (talk.has_ended, talk.pending_requests) == (False, {})


@pytest.mark.parametrize("argument", ["exit_timeout", "background_timeout"])
def test_a_one_shot_refuses_seconds_that_are_none_before_anything_runs(argument: str) -> None:
    with pytest.raises(UsageError, match=f"{argument} must be a number of seconds"):
        one_shot("x", transport=MockTransport(), **{argument: None})


@pytest.mark.parametrize("delivery", ["files", "initialize"])
@pytest.mark.parametrize(
    "wrong", [{"settings": "{broken"}, {"settings": 5}, {"mcp_servers": 5}, {"extra_args": 5}, {"allowed_tools": 5}], ids=str
)
def test_the_terms_of_options_that_are_not_valid_ask_for_nothing(wrong: dict[str, Any], delivery: Any) -> None:
    """What is wrong with them is told when they are to be run."""
    terms = session_terms(ct.ClaudeOptions(**wrong), delivery=delivery)
    assert (terms.permissions, dict(terms.initialize)) == ((), {})
