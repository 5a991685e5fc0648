"""The public surface: what `claude_transport` and its doors export, what `help()` says of it, and what importing it does not load."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import inspect
import json
import os
import pydoc
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from loading import load_generator

import claude_transport

# Names that users were promised. Names are added here when they are promised, and never taken away silently.
PROMISED = [
    "CLI",
    "Allow",
    "AssistantMessage",
    "AuthFailed",
    "AuthenticationError",
    "BillingPolicy",
    "Busy",
    "CLIConnectionError",
    "CLIJSONDecodeError",
    "CLINotFoundError",
    "ClaudeOptions",
    "ClaudeTransportError",
    "CloseReport",
    "CommandLifecycle",
    "Completion",
    "ConfigurationError",
    "ConnectTimeout",
    "ConnectionLost",
    "ControlError",
    "ControlRequestFailed",
    "ControlTimeout",
    "ConversationReset",
    "DecodeFailure",
    "Deny",
    "FaultyTransport",
    "Gateway",
    "HookMatcher",
    "InputClosed",
    "InterruptOutcome",
    "JSONRPCError",
    "JSONRPCPeer",
    "Launcher",
    "LineTooLong",
    "LoggingTransport",
    "Message",
    "MetricsTransport",
    "MissingResult",
    "MockTransport",
    "NetworkTransport",
    "NotConnected",
    "Outcome",
    "OutcomeUncertain",
    "Overloaded",
    "OversizedMessage",
    "PreflightReport",
    "ProcessError",
    "ProtocolError",
    "Query",
    "RateLimitEvent",
    "RateLimited",
    "RecordingTransport",
    "ReplayGap",
    "ReplayTransport",
    "Resolution",
    "ResultError",
    "ResultMessage",
    "RetryPolicy",
    "RetryingTransport",
    "SessionPool",
    "SpawnError",
    "StatefulTransport",
    "StreamEvent",
    "StreamTransport",
    "StructuredOutputMissing",
    "SubprocessTransport",
    "SystemMessage",
    "TextBlock",
    "ThinkingBlock",
    "ToolProgress",
    "ToolResultBlock",
    "ToolUseBlock",
    "TracingTransport",
    "Transport",
    "TransportClosed",
    "TransportInfo",
    "TransportState",
    "TruncatedStream",
    "Turn",
    "TurnState",
    "UnknownBlock",
    "UnknownMessage",
    "UsageError",
    "UserMessage",
    "build_argv",
    "build_environment",
    "complete",
    "decode_message",
    "describe_environment",
    "encode_message",
    "find_cli",
    "observe",
    "open_transport",
    "preflight",
    "query",
    "resolve_agent",
    "resolve_transport",
    "serve",
    "split_rules",
    "stream",
]

# Loaded where they are used, never by the import itself: `anthropic` and `mcp` alone would make it ten times slower.
NEVER_LOADED = frozenset(
    {
        "aiohttp",
        "anthropic",
        "claude_agent_sdk",
        "click",
        "h11",
        "httpx",
        "httpx2",
        "hypothesis",
        "mcp",
        "opentelemetry",
        "pydantic",
        "pytest",
        "rich",
        "trio",
        "uvloop",
        "websockets",
    }
)


INIT = Path(claude_transport.__file__)
EXPORTED: list[str] = list(claude_transport.__all__)
GENERATOR = load_generator("names")
ERRORS = "claude_transport.errors"
# Every module that lists public names: those that have a table of names, and the modules that define what they list.
DOORS = sorted(
    {GENERATOR.name_of(path) for path in GENERATOR.doors()}
    | {ERRORS, "claude_transport.wrappers.faults", "claude_transport.testing.replies", "claude_transport.testing.steps"}
)


def names_of(door: str) -> list[str]:
    return list(importlib.import_module(door).__all__)


def own_docstring(value: Any) -> str:
    """The docstring that was written for a class or a function, and not inherited."""
    return (vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__) or ""


def spelling(name: str) -> tuple[int, str]:
    """The order of ruff's RUF022: CONSTANTS, then Classes, then functions."""
    return (0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2, name)


def loaded_by(statement: str, folder: Path) -> set[str]:
    """The modules and top-level packages that a fresh interpreter holds after `statement`, run away from this checkout's folder."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted({{*sys.modules, *(name.partition('.')[0] for name in sys.modules)}})))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    return set(json.loads(ran.stdout))


def test_all_is_sorted_and_without_doubles() -> None:
    assert sorted(set(EXPORTED), key=spelling) == EXPORTED


@pytest.mark.parametrize("name", PROMISED)
def test_a_promised_name_is_exported(name: str) -> None:
    assert name in EXPORTED


@pytest.mark.parametrize("door", DOORS)
def test_every_name_of_a_door_exists_and_is_documented(door: str) -> None:
    module = importlib.import_module(door)
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isroutine(value):
            assert own_docstring(value).strip(), f"{door}.{name} has no docstring of its own"
            assert not own_docstring(value).startswith(f"{name}("), f"the docstring of {door}.{name} was generated, not written"


@pytest.mark.parametrize("door", DOORS)
def test_help_on_a_door_shows_every_name_with_what_it_is(door: str) -> None:
    module = importlib.import_module(door)
    page = pydoc.plain(pydoc.render_doc(module))
    for name in module.__all__:
        assert re.search(rf"\b{name}\b", page), f"help({door}) does not name {name}"
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isroutine(value):
            assert inspect.cleandoc(own_docstring(value)).splitlines()[0] in page
        else:  # an alias or a constant has no docstring: the door itself says what it is
            assert f"`{name}`" in (module.__doc__ or ""), f"the docstring of {door} does not explain {name}"


HIDING = """\
import importlib, inspect, sys
homes, doors = eval(sys.argv[1])
for home in homes:
    importlib.import_module(home)
found = {name: getattr(importlib.import_module(door), name) for door, names in doors.items() for name in names}
sys.exit(str(hidden) if (hidden := [name for name, value in found.items() if inspect.ismodule(value)]) else 0)
"""


def test_no_name_of_a_door_is_hidden_by_a_module_of_the_same_name(tmp_path: Path) -> None:
    # importing the module `completion.stream` would put it in the place of the function `completion.stream`
    homes = sorted({f"claude_transport.{home}" for path in GENERATOR.doors() for home in GENERATOR.read_table(path.read_text("utf-8"))[0]})
    doors = {door: [name for name in names_of(door) if name != "faults"] for door in DOORS}
    ran = subprocess.run(
        [sys.executable, "-c", HIDING, repr((homes, doors))], capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_about_a_hundred_names_are_at_the_top() -> None:
    assert len(EXPORTED) <= 105


def test_every_door_is_an_attribute_of_the_package() -> None:
    doors = [door for door in DOORS if door.count(".") == 1]
    assert {"claude_transport.control", ERRORS, "claude_transport.hooks", "claude_transport.messages", "claude_transport.testing"} <= {
        *doors
    }
    assert [door for door in doors if getattr(claude_transport, door.partition(".")[2]) is not importlib.import_module(door)] == []


@pytest.mark.parametrize("path", [*GENERATOR.doors()], ids=GENERATOR.name_of)
def test_type_checkers_see_what_is_loaded_on_first_use(path: Path) -> None:
    assert GENERATOR.render(path) == path.with_suffix(".pyi").read_text("utf-8")


def test_every_stub_belongs_to_a_table_of_names() -> None:
    assert sorted(INIT.parent.rglob("*.pyi")) == [path.with_suffix(".pyi") for path in GENERATOR.doors()]


def test_query_is_the_function_also_when_the_subpackage_of_that_name_is_imported(tmp_path: Path) -> None:
    code = (
        "import claude_transport.client.storage; from claude_transport import query; "
        "assert query.__module__ == 'claude_transport.completion.one_shot'"
    )
    assert "claude_transport" in loaded_by(code, tmp_path)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = claude_transport.Nothing  # type: ignore[attr-defined]


def test_the_version_is_that_of_the_installed_distribution() -> None:
    assert claude_transport.__version__ == importlib.metadata.version("claude-transport")


def test_everything_exported_is_listed_by_dir() -> None:
    assert set(EXPORTED) <= set(dir(claude_transport))


def test_star_import_gives_exactly_what_is_exported() -> None:
    namespace: dict[str, object] = {}
    exec("from claude_transport import *", namespace)
    assert set(namespace) - {"__builtins__"} == set(EXPORTED)


@pytest.mark.parametrize("statement", ["import claude_transport", "import claude_transport.testing"])
def test_importing_loads_nothing_optional(statement: str, tmp_path: Path) -> None:
    assert loaded_by(statement, tmp_path) & NEVER_LOADED == set()


def test_what_a_conversation_needs_is_all_that_it_loads(tmp_path: Path) -> None:
    """Each module takes one or more milliseconds of the start of a program."""
    loaded = loaded_by("from claude_transport import ClaudeOptions, Query, ResultMessage, SubprocessTransport", tmp_path)
    assert "claude_transport.client.query" in loaded
    unneeded = {"claude_transport.protocol.claude_turns", "claude_transport.protocol.hooks", "shutil", "tempfile", "httpx", "ssl"}
    assert loaded & unneeded == set()


def test_the_program_starts_without_loading_anything_optional(tmp_path: Path) -> None:
    assert loaded_by("import claude_transport.app.main", tmp_path) & NEVER_LOADED == set()


def test_the_check_of_loaded_modules_sees_what_is_loaded(tmp_path: Path) -> None:
    assert {"json", "anyio"} <= loaded_by("import anyio.abc", tmp_path)


def documented_modules() -> list[str]:
    """The modules of the package that a page of the documentation names."""
    root = INIT.parent.parent
    pages = [root / "README.md", *(page for page in (root / "docs").rglob("*.md") if "_build" not in page.parts)]
    named = {name for page in pages for name in re.findall(r"claude_transport(?:\.[a-z_]+)*", page.read_text("utf-8"))}
    prefixes = {tuple(name.split(".")[:length]) for name in named for length in range(1, name.count(".") + 2)}
    paths = {".".join(parts): root.joinpath(*parts) for parts in prefixes}
    return sorted(name for name, path in paths.items() if path.with_suffix(".py").exists() or (path / "__init__.py").exists())


IMPORTS_EACH = """
import importlib, json, os, sys, traceback
import anyio, msgspec  # so that each process has only our own modules left to import
for name in json.load(sys.stdin):
    child = os.fork()
    if child == 0:
        try:
            importlib.import_module(name)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print(name)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a process for each module takes too long without fork")
def test_every_module_that_the_documentation_names_can_be_imported_first(tmp_path: Path) -> None:
    names = documented_modules()
    assert {"claude_transport.serving.choices", "claude_transport.streams.websocket"} < set(names)
    given = json.dumps(names)
    ran = subprocess.run([sys.executable, "-c", IMPORTS_EACH], input=given, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert ran.stdout == "", ran.stderr
