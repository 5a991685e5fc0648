"""The tables of names on the page about moving: every name of the official SDK that a program is written with, and where it went."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import claude_agent_sdk as sdk
import pytest

import claude_transport as ct

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "move-from-the-agent-sdk.md").read_text("utf-8")
NAMES, ERRORS = PAGE.partition("## Name by name")[2].split("## Errors")
LEFT, RIGHT = (
    {word for row in (NAMES + ERRORS).splitlines() if row.startswith("| ") for word in re.findall(r"\w+", row.split(" | ")[side])}
    for side in (0, 1)
)
NO_NAME_OF_A_PROGRAM = {"CanUseToolShadowedWarning", "MessageDisplayHookSpecificOutput", "SessionMessage"}
"""A warning, the shape of a hook's answer, and what the functions about files of sessions give."""


def public(kind: str) -> list[str]:
    """The messages and blocks, the errors, or the functions of the official SDK."""
    wanted: Any = {
        "messages": lambda name, what: inspect.isclass(what) and re.search("(Message|Block|Event)$", name),
        "errors": lambda _name, what: inspect.isclass(what) and issubclass(what, Exception),
        "functions": lambda _name, what: inspect.isfunction(what),
    }[kind]
    return [name for name in sdk.__all__ if name not in NO_NAME_OF_A_PROGRAM and wanted(name, getattr(sdk, name))]


def test_every_method_of_the_official_client_is_on_the_page() -> None:
    methods = [name for name, _ in inspect.getmembers(sdk.ClaudeSDKClient, inspect.isfunction) if not name.startswith("_")]
    assert {"query", "interrupt"} <= set(methods)
    assert [name for name in methods if name not in LEFT] == []


@pytest.mark.parametrize("kind", ["messages", "errors"])
def test_every_message_and_every_error_of_the_official_sdk_is_on_the_page(kind: str) -> None:
    assert public(kind)
    assert [name for name in public(kind) if name not in LEFT] == []


def test_every_function_is_on_the_page_but_those_that_read_files_of_sessions_like_the_ones_that_are() -> None:
    about_files = re.compile("session|subagent|directory")
    assert [name for name in public("functions") if name not in LEFT and not about_files.search(name)] == []


def test_what_a_row_names_here_is_there() -> None:
    methods = re.findall(r"`(?:await )?query\.(\w+)", NAMES)
    assert methods
    assert [name for name in methods if not hasattr(ct.Query, name)] == []
    classes = {word for word in RIGHT if re.fullmatch(r"(?:[A-Z][a-z]+){2,}|CLI\w+", word)}
    assert {"ConversationReset", "HookStarted"} <= classes
    places = (ct, ct.messages, ct.hooks, ct.control, ct.client, sdk)
    assert sorted(name for name in classes if not any(hasattr(place, name) for place in places)) == []
