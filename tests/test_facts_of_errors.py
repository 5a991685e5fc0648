"""Each error is made with the facts that its class promises: programs read them, and not the message."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import claude_transport

PACKAGE = Path(claude_transport.__file__).parent

FACTS: dict[str, tuple[str, ...]] = {
    "CLIJSONDecodeError": ("line", "line_number"),
    "CLINotFoundError": ("searched",),
    "CLIVersionMismatch": ("version",),
    "ConfigurationError": ("option",),
    "ConnectTimeout": ("waited",),
    "ControlRequestFailed": ("subtype", "error_code"),
    "ControlTimeout": ("waited", "subtype", "request_id"),
    "JSONRPCError": ("rpc_code",),
    "LineTooLong": ("size", "limit"),
    "NotExecutableError": ("path",),
    "ProcessError": ("exit_code", "signal"),
    "ResultError": ("result",),
    "SessionArgumentError": ("argument",),
    "SessionInUse": ("session_id",),
    "SessionNotFound": ("session_id",),
    "SpawnError": ("path",),
    "WorkingDirectoryError": ("path",),
}

WITHOUT: dict[tuple[str, str, str], str] = {
    ("errors.py", "ConfigurationError", "option"): "a warning that was made an error knows no option",
    ("app/serve.py", "WorkingDirectoryError", "path"): "the folder of the gateway, which its message names",
    ("client/compatibility.py", "CLIVersionMismatch", "version"): "the CLI has not said it",
    ("client/questions.py", "ControlRequestFailed", "subtype"): "for the CLI, which asked",
    ("codex/session.py", "ControlRequestFailed", "error_code"): "Codex has numbers, and not words",
    ("loops/threads.py", "SpawnError", "path"): "a thread has none",
    ("streams/windows.py", "SpawnError", "path"): "the reading end of a pipe has none",
}


def made() -> Iterator[tuple[str, str, set[str | None]]]:
    """Each call of the package that makes an error of the library: the file, the class, and the names of what is given."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.is_relative_to(PACKAGE / "interop"):
            continue  # errors of the official SDK have the same names
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FACTS:
                yield path.relative_to(PACKAGE).as_posix(), node.func.id, {each.arg for each in node.keywords}


def test_each_error_is_made_with_the_facts_of_its_class() -> None:
    """`**facts` may hold them all."""
    calls = [*made()]
    assert {kind for _, kind, _ in calls} == set(FACTS)
    lacking = [(where, kind, fact) for where, kind, given in calls if None not in given for fact in FACTS[kind] if fact not in given]
    assert sorted(lacking) == sorted(WITHOUT)
