"""What one layer needs of another is declared: nobody looks for a method by its name, or compares the methods of classes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import claude_transport

PACKAGE = Path(claude_transport.__file__).parent

CONCRETE = {
    "SubprocessTransport",
    "NetworkTransport",
    "StreamTransport",
    "MockTransport",
    "ReplayTransport",
    "FleetTransport",
    "ProcessStream",
    "PipeStream",
    "LaunchedStream",
}
"""Transports and streams of which nobody outside their own folder may ask whether something is one."""

CAPABILITIES = {
    *("connect_now", "write_now", "end_input_now", "close_now", "open_now", "send_whole_now", "send_eof_now", "begin_close", "hurry"),
    *("pour", "pour_blocks", "snapshot", "attach", "transport", "options", "confidential", "at_once", "storage"),
}
"""Names of what a transport, a wrapper or a stream can do, which `getattr` and `hasattr` must not look for.

`info` and `read_lines()` are not among them: everyone may add them to the six methods, as `info_of()` and `read_lines_of()` say.
"""


def test_nobody_looks_for_a_capability_by_its_name() -> None:
    found = [
        f"{path}:{call.lineno} {call.args[1].value}"
        for path, call in calls_of("getattr", "hasattr")
        if len(call.args) > 1 and isinstance(call.args[1], ast.Constant) and call.args[1].value in CAPABILITIES
    ]
    assert found == []


def test_nobody_compares_the_methods_of_classes() -> None:
    found = [
        f"{path}:{node.lineno}"
        for path, tree in modules()
        if path.parts[:2] != ("testing", "conformance")  # the kit tells from the class of a subject which clauses concern it
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot)
        if any(is_method_of_type(side) for side in (node.left, *node.comparators))
    ]
    assert found == []


def test_nobody_outside_asks_whether_a_transport_is_one_of_ours() -> None:
    found = [
        f"{path}:{call.lineno} {name}"
        for path, call in calls_of("isinstance", "issubclass")
        if path.parts[0] not in {"transports", "streams"}
        for name in sorted(CONCRETE & {node.id for node in ast.walk(call.args[1]) if isinstance(node, ast.Name)})
    ]
    assert found == []


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE), ast.parse(path.read_text("utf-8"))


def calls_of(*names: str) -> Iterator[tuple[Path, ast.Call]]:
    for path, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
                yield path, node


def is_method_of_type(node: ast.expr) -> bool:
    """Return whether `node` is `type(x).name`."""
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
        and node.value.func.id == "type"
    )
