"""Every name, argument and attribute that a page of the documentation writes as code is one that the library has."""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import importlib.util
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import claude_transport as ct
from claude_transport.testing import FakeClaude, FakeMessagesAPI, FakeResponsesAPI, Report, Tape
from claude_transport.testing.mock_claude import MockClaude

PROJECT = Path(__file__).parent.parent
DOCS = PROJECT / "docs"
PAGES = [
    DOCS.parent / "CHANGELOG.md",
    *sorted(page for kind in ("tutorial", "how-to", "explanation", "reference") for page in (DOCS / kind).glob("*.md")),
]

# How the pages call an object, and what it is. An attribute that is one of several classes' is looked for in all of them.
OBJECTS: dict[str, tuple[Any, ...]] = {
    "ct": (ct,),
    "query": (ct.Query,),
    "turn": (ct.Turn, ct.codex.CodexTurn),
    "result": (ct.ResultMessage, ct.codex.CodexTurnResult),
    "session": (ct.codex.CodexSession,),
    "transport": (
        ct.SubprocessTransport,
        ct.NetworkTransport,
        ct.StatefulTransport,
        ct.MetricsTransport,
        ct.RecordingTransport,
        ct.FaultyTransport,
    ),
    "info": (ct.TransportInfo,),
    "pool": (ct.SessionPool,),
    "gateway": (ct.Gateway,),
    "registry": (ct.wrappers.MetricsRegistry,),
    "launcher": (ct.Launcher,),
    "completion": (ct.Completion,),
    "host": (ct.bridge.BridgeHost,),
    "tape": (Tape,),
    "fake": (FakeClaude,),
    "api": (FakeMessagesAPI, FakeResponsesAPI),
    "fake_messages_api": (FakeMessagesAPI,),
    "mock_claude": (MockClaude,),
    "options": (ct.ClaudeOptions,),
    "policy": (ct.RetryPolicy,),
    "report": (Report,),
}
# Modules whose names are written without them, as after an import.
MODULES = (
    "claude_transport",
    *(f"claude_transport.{door}" for door in ("bridge", "client", "completion", "control", "errors", "gateway", "hooks", "launch")),
    *(f"claude_transport.{door}" for door in ("messages", "pool", "testing", "transports", "wrappers")),
    "claude_transport.wrappers.faults",
    "claude_transport.testing.scenario",
    "claude_transport.testing.steps",
    "claude_transport.testing.conformance",
    "claude_transport.testing.conformance.media",
    "claude_transport.streams.sockets",
    "claude_transport.streams.tls",
    "claude_transport.streams.websocket",
)
# `result.billing` is the code of an error, `query.py` a file: neither is an attribute.
CODES = {code for module in (PROJECT / "claude_transport").rglob("*.py") for code in re.findall(r'"(\w+\.\w+)"', module.read_text("utf-8"))}


def snippets(page: Path) -> Iterator[ast.AST]:
    """Every code span and every Python block of a page that is Python, as syntax trees."""
    text = page.read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    spans = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE))
    for code in blocks + [span for span in spans if span not in CODES and not span.endswith(".py")]:
        whole = re.sub(r",\s*…(?=[\])}])", "", code).replace("…", "...")
        try:
            yield ast.parse(f"async def page():\n{textwrap.indent(whole, '    ')}")
        except SyntaxError:
            continue  # a command, a piece of JSON, a name with a hole in it


@functools.cache
def named(name: str) -> tuple[Any, ...]:
    """What the library has under a bare name: nothing, one thing, or several (`Delay` is a fault and a step)."""
    modules = [importlib.import_module(module) for module in MODULES]
    return tuple({id(found): found for module in modules if (found := getattr(module, name, None)) is not None}.values())


def has(owner: Any, name: str) -> bool:
    """Whether objects of this class, or this module, have the attribute, one that their `__init__` sets included."""
    if hasattr(owner, name) or name in getattr(owner, "__annotations__", {}):
        return True
    if isinstance(owner, ModuleType) and hasattr(owner, "__path__"):  # a module of it, which may not have been imported yet
        return importlib.util.find_spec(f"{owner.__name__}.{name}") is not None
    return isinstance(owner, type) and any(
        f"self.{name}" in inspect.getsource(base) for base in owner.__mro__ if base.__module__.startswith("claude_")
    )


def owners(name: str) -> tuple[Any, ...]:
    """What a name before a dot can stand for."""
    return OBJECTS.get(name) or tuple(found for found in named(name) if isinstance(found, type))


def callees(node: ast.expr) -> list[Callable[..., Any]]:
    """What of ours a call can mean."""
    match node:
        case ast.Name(id=name) if not hasattr(builtins, name):
            return [found for found in named(name) if callable(found)]
        case ast.Attribute(value=ast.Name(id=name), attr=attribute):
            return [found for owner in owners(name) if callable(found := getattr(owner, attribute, None))]
        case ast.Attribute(value=ast.Attribute(value=ast.Name(id="ct" | "claude_transport"), attr=door), attr=attribute):
            return [found for owner in (getattr(ct, door, None),) if callable(found := getattr(owner, attribute, None))]
        case _:
            return []


def takes(function: Callable[..., Any], keyword: str) -> bool:
    """Whether a call may have this keyword argument."""
    parameters = dict(inspect.signature(function).parameters)
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):  # all of ours hand on what Query or Gateway takes
        parameters |= {**inspect.signature(ct.Query).parameters, **inspect.signature(ct.Gateway).parameters}
    return keyword in parameters


def mistakes(tree: ast.AST) -> Iterator[str]:
    """What this piece of code names that is not there."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute):
                known = owners(name)
                if known and not any(has(owner, attribute) for owner in known):
                    yield f"{name}.{attribute}"
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id="ct" | "claude_transport"), attr=door), attr=attribute):
                if hasattr(ct, door) and not has(getattr(ct, door), attribute):
                    yield f"ct.{door}.{attribute}"
            case ast.Call(func=func, keywords=keywords) if functions := callees(func):
                given = [keyword.arg for keyword in keywords if keyword.arg]
                yield from (f"{ast.unparse(func)}({name}=)" for name in given if not any(takes(f, name) for f in functions))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_a_page_names_only_what_is_there(page: Path) -> None:
    assert sorted({mistake for tree in snippets(page) for mistake in mistakes(tree)}) == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("query.send_all()", ["query.send_all"]),
        ("ct.client.Watchdog(no_bites=3)", ["ct.client.Watchdog(no_bites=)"]),
        ("ct.messages.Nothing", ["ct.messages.Nothing"]),
        ("Watchdog(no_bytes=3)", []),
        ("Launcher.telnet('x')", ["Launcher.telnet"]),
        ("pool.acquire(timeout=3, patience=4)", ["pool.acquire(patience=)"]),
    ],
)
def test_what_is_not_there_is_found(code: str, found: list[str]) -> None:
    assert list(mistakes(ast.parse(code))) == found
