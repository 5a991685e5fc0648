"""The arguments of a call: each one gets to the request, through every function, and a wrong one is refused by its name."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest

import claude_transport as ct
from claude_transport.codex import CodexOptions
from claude_transport.completion import complete_sync, stream_sync

CALL = "claude_transport.completion.call"


class Built(Exception):
    """Ends a call when its request is built."""


def ask_and_wait(*arguments: Any, **named: Any) -> None:
    asyncio.run(ct.complete(*arguments, **named))


@pytest.mark.parametrize("ask", [ask_and_wait, ct.stream, complete_sync, lambda *each, **named: next(iter(stream_sync(*each, **named)))])
def test_every_argument_gets_to_the_request(ask: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[dict[str, Any]] = []

    def build(prompt: Any, **named: Any) -> None:
        built.append({"prompt": prompt, **named})
        raise Built

    monkeypatch.setattr(f"{CALL}.build_request", build)
    names = inspect.signature(complete_sync).parameters.keys() - {"prompt", "on_event"}
    given = {name: f"the {name}" for name in names}
    with pytest.raises(Built):
        ask("Hi", **given)
    others = {"codex": given.pop("codex")}
    assert built == [{"prompt": "Hi", **given, "others": others}]


async def heard(_: object) -> None:
    """An async function, where a plain one is called."""


@pytest.mark.parametrize(
    ("option", "wrong"),
    [
        *(("max_tokens", value) for value in (0, True, 1.5, "7")),
        *((name, value) for name in ("model", "system", "subject") for value in (7, b"text", "\ud800")),
        *((name, value) for name in ("timeout", "attempt_timeout") for value in (0, -1, True, math.nan, "7")),
        *((name, value) for name in ("heuristics", "fallback") for value in (1, None, "yes")),
        *((name, value) for name in ("on_stderr", "on_event") for value in (7, heard)),
        *(("transport", value) for value in ("fax", 7, ct.MockTransport, ct.MockTransport())),
        *(("close_timeout", value) for value in (-1, True, math.nan)),
        ("options", {}),
        ("retry", 3),
        ("make_transport", 7),
        ("codex", {}),
        ("billing", "mine"),
    ],
)
async def test_a_wrong_argument_is_refused_by_its_name_before_anything_runs(option: str, wrong: Any) -> None:
    made: list[object] = []

    def make(options: object) -> ct.MockTransport:
        made.append(options)
        return ct.MockTransport()

    with pytest.raises(ct.ConfigurationError) as caught:
        await ct.complete("Hi", **{"make_transport": make, option: wrong})
    assert (caught.value.option, made) == (option, [])


@pytest.mark.parametrize(
    ("option", "arguments"),
    [
        ("on_stderr", {"on_stderr": print, "make_transport": lambda _options: ct.MockTransport()}),
        ("billing", {"fallback": True, "billing": "subscription_strict"}),
        ("codex", {"options": CodexOptions(), "codex": CodexOptions()}),
        ("options", {"options": CodexOptions(), "agent": "claude"}),
    ],
)
async def test_arguments_that_contradict_each_other_are_refused(option: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(ct.ConfigurationError) as caught:
        await ct.complete("Hi", **arguments)
    assert caught.value.option == option


@pytest.mark.parametrize(
    "prompt", ["", " \n", [], {}, 7, b"Hi", [{}], [{"type": 7}], ["text"], "\ud800", [{"type": "text", "text": "\ud800"}]]
)
async def test_a_prompt_that_cannot_be_sent_is_refused(prompt: Any) -> None:
    with pytest.raises(ct.UsageError):
        await ct.complete(prompt, make_transport=lambda _options: ct.MockTransport())


@pytest.mark.parametrize("billing", ["subscription", "subscription_strict"])
async def test_a_key_that_the_policy_forbids_opens_no_path(billing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CLI_PATH", "/nowhere/claude")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-SENTINEL")
    with pytest.raises(ct.ConfigurationError) as caught:
        await ct.complete("Hi", transport="auto", billing=billing)
    assert caught.value.code == "config.no_auth_path"
