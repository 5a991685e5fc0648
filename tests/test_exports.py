"""The public face: what `claude_transport` exports, and what importing it does not load."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

import claude_transport
from claude_transport import errors

# Names that users were promised. Names are added here when they are promised, and never taken away silently.
PROMISED = [
    "CLI",
    "Allow",
    "AssistantMessage",
    "Backoff",
    "BillingPolicy",
    "BridgeHost",
    "CallbackContext",
    "ClaudeOptions",
    "CloseReport",
    "CommandLifecycle",
    "Completion",
    "ConversationReset",
    "DecodeFailure",
    "Deny",
    "FaultyTransport",
    "Gateway",
    "GatewayApplication",
    "GatewayLimits",
    "GatewaySettings",
    "GatewayTokens",
    "HookEvent",
    "HookMatcher",
    "HostTool",
    "InitializationInfo",
    "InterruptOutcome",
    "LoggingTransport",
    "MetricsRegistry",
    "MetricsSnapshot",
    "MetricsTransport",
    "MockTransport",
    "NetworkTransport",
    "Outcome",
    "OversizedMessage",
    "PermissionUpdate",
    "PreflightReport",
    "Query",
    "QueryOptions",
    "RateLimitEvent",
    "RecordingTransport",
    "ReplayTransport",
    "Resolution",
    "ResultMessage",
    "ResumePoint",
    "RetryAttempt",
    "RetryPolicy",
    "RetryingTransport",
    "StallEvent",
    "StartGate",
    "StatefulTransport",
    "SessionForked",
    "SessionPool",
    "StreamEvent",
    "StreamTransport",
    "Launcher",
    "SubprocessTransport",
    "SystemMessage",
    "TextBlock",
    "ThinkingBlock",
    "ToolProgress",
    "ToolResultBlock",
    "ToolUseBlock",
    "TracingTransport",
    "Transport",
    "TransportInfo",
    "TransportLike",
    "TransportState",
    "TransportWrapper",
    "Turn",
    "TurnState",
    "UnknownBlock",
    "UnknownMessage",
    "UserMessage",
    "Watchdog",
    "bridge_config",
    "build_argv",
    "build_environment",
    "build_launch",
    "complete",
    "decode_message",
    "describe_credentials",
    "describe_environment",
    "encode_message",
    "find_cli",
    "open_transport",
    "preflight",
    "query",
    "serve",
    "resolve_transport",
    "stream",
    *errors.__all__,
]

# Loaded where they are used, never by the import itself: `anthropic` and `mcp` alone would make it ten times slower.
NEVER_LOADED = frozenset(
    {
        "aiohttp",
        "anthropic",
        "claude_agent_sdk",
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
EXPORTED: list[str] = list(getattr(claude_transport, "__all__", ()))


def spelling(name: str) -> tuple[int, str]:
    """The order of ruff's RUF022: CONSTANTS, then Classes, then functions."""
    return (0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2, name)


def names_imported_by(source: str) -> set[str]:
    """Every public name that the import statements of `source` bring in, also those made for type checkers."""
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom) and node.module != "__future__"]
    return {
        name
        for node in imports
        for alias in node.names
        if (node.level or (node.module or "").split(".")[0] == "claude_transport")
        if not (name := alias.asname or alias.name).startswith("_")
    }


def loaded_by(statement: str, folder: Path) -> set[str]:
    """The top-level modules that a fresh interpreter holds after `statement`, run away from this checkout's folder."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    return set(json.loads(ran.stdout))


def test_all_is_sorted_and_without_doubles() -> None:
    assert sorted(set(EXPORTED), key=spelling) == EXPORTED


@pytest.mark.parametrize("name", PROMISED)
def test_a_promised_name_is_exported(name: str) -> None:
    assert name in EXPORTED


@pytest.mark.parametrize("name", EXPORTED)
def test_an_exported_name_exists_and_is_documented(name: str) -> None:
    exported = getattr(claude_transport, name)
    if inspect.isclass(exported) or inspect.isfunction(exported):
        written = vars(exported).get("__doc__") if inspect.isclass(exported) else exported.__doc__
        assert (written or "").strip(), f"{name} has no docstring of its own"
        assert not (written or "").startswith(f"{name}("), f"the docstring of {name} was generated, not written"


def test_everything_the_package_imports_for_the_public_is_exported() -> None:
    assert names_imported_by(INIT.read_text("utf-8")) - set(EXPORTED) == set()


def test_what_is_loaded_on_first_use_is_what_type_checkers_see() -> None:
    tree = ast.parse(INIT.read_text("utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("claude_transport.")]
    seen = {alias.name: getattr(importlib.import_module(node.module or ""), alias.name) for node in imports for alias in node.names}
    assert {name: getattr(claude_transport, name) for name in EXPORTED} == seen


def test_query_is_the_function_also_when_the_subpackage_of_that_name_is_imported(tmp_path: Path) -> None:
    code = (
        "import claude_transport.query.mailbox; from claude_transport import query; assert query.__module__ == 'claude_transport.one_shot'"
    )
    assert "claude_transport" in loaded_by(code, tmp_path)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = claude_transport.Nothing  # type: ignore[attr-defined]


def test_the_version_is_that_of_the_installed_distribution() -> None:
    assert claude_transport.__version__ == importlib.metadata.version("claude-transport")
    assert "__version__" in dir(claude_transport)


def test_everything_exported_is_listed_by_dir() -> None:
    assert set(EXPORTED) <= set(dir(claude_transport))


def test_star_import_gives_exactly_what_is_exported() -> None:
    namespace: dict[str, object] = {}
    exec("from claude_transport import *", namespace)
    assert set(namespace) - {"__builtins__"} == set(EXPORTED)


@pytest.mark.parametrize("statement", ["import claude_transport", "import claude_transport.testing"])
def test_importing_loads_nothing_optional(statement: str, tmp_path: Path) -> None:
    assert loaded_by(statement, tmp_path) & NEVER_LOADED == set()


def test_the_program_starts_without_loading_anything_optional(tmp_path: Path) -> None:
    assert loaded_by("import claude_transport.app.main", tmp_path) & NEVER_LOADED == set()


def test_the_check_of_loaded_modules_sees_what_is_loaded(tmp_path: Path) -> None:
    assert {"json", "anyio"} <= loaded_by("import anyio.abc", tmp_path)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("from claude_transport.errors import Busy as Busy, _private", {"Busy"}),
        ("from .query import Query\nfrom . import errors", {"Query", "errors"}),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .pool import SessionPool", {"SessionPool"}),
        ("from __future__ import annotations\nfrom typing import Any\nimport sys", set[str]()),
    ],
)
def test_the_reader_of_imports_sees_public_names_only(source: str, names: set[str]) -> None:
    assert names_imported_by(source) == names
