"""Write the blocking twins of `Query`, `CodexSession` and what they return, from the source of these classes.

Each public method and property has a twin with the same signature and docstring. So the blocking side cannot fall behind.

    python docs/generate_blocking.py
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parent.parent / "claude_transport"

TWINS = {"Turn": "SyncTurn", "Query": "SyncQuery", "CodexTurn": "SyncCodexTurn", "CodexThread": "SyncCodexThread"}
TWINS["CodexSession"] = "SyncCodexSession"

LEFT_OUT = {
    "aclose": "its twin is close()",
    "deliver": "for the session, not for programs",
    "settle": "for the conversation, not for programs",
}
"""Public methods without a twin of the same name, and why."""
RETURNS = {
    "AllMessages": "SyncIterator[Message]",
    "AsyncIterator[Message]": "SyncIterator[Message]",
    "AsyncIterator[CodexNotification]": "SyncIterator[CodexNotification]",
    "AsyncIterator[str]": "SyncIterator[str]",
}


class Module(NamedTuple):
    """A module to write: what it is for, the classes (the conversation first), and the modules that define what they use."""

    path: str
    doc: str
    classes: Mapping[str, tuple[str, ...]]
    """The name of each class, and the classes whose methods it has, in this order."""
    sources: tuple[str, ...]


CONTROLS = ("FileControls", "McpControls", "ModelControls", "PermissionControls", "SessionControls", "SettingsControls", "TaskControls")
MODULES = (
    Module(
        "client/blocking.py",
        "`SyncQuery` and `SyncTurn`: a conversation with Claude for programs without an event loop.",
        {"Turn": ("Turn",), "Query": ("Query", *CONTROLS)},
        ("client/query.py", "client/controls.py", "client/storage.py"),
    ),
    Module(
        "codex/blocking.py",
        "`SyncCodexSession`, `SyncCodexThread` and `SyncCodexTurn`: a conversation with Codex for programs without an event loop.",
        {"CodexTurn": ("CodexTurn",), "CodexThread": ("CodexThread",), "CodexSession": ("CodexSession",)},
        ("codex/session.py",),
    ),
)
BASES = {"Turn": "SyncTurnBase", "CodexTurn": "SyncTurnBase", "Query": "SyncConversation", "CodexSession": "SyncConversation"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def methods_of(node: ast.ClassDef) -> Iterator[Function]:
    """Yield the public methods and properties."""
    for each in node.body:
        if isinstance(each, Function) and not each.name.startswith("_"):
            yield each


def dotted(path: str) -> str:
    """Return the dotted name of a module."""
    return "claude_transport." + path.removesuffix(".py").replace("/", ".")


def is_property(node: Function) -> bool:
    """Return True for a property."""
    return any(isinstance(each, ast.Name) and each.id == "property" for each in node.decorator_list)


def render_docstring(node: Function | ast.ClassDef) -> str:
    text = ast.get_docstring(node, clean=True) or ""
    lines = "\n".join(f"        {line}" if line else "" for line in text.splitlines()).strip()
    end = "\n        " if "\n" in lines else ""
    return f'        """{lines}{end}"""'


def call_arguments(arguments: ast.arguments) -> str:
    """Return the arguments with which the twin calls the method."""
    given = [each.arg for each in arguments.args[1:]]
    given += [f"{each.arg}={each.arg}" for each in arguments.kwonlyargs]
    if arguments.kwarg:
        given.append(f"**{arguments.kwarg.arg}")
    return ", ".join(given)


def wrap(value: str, returns: str) -> str:
    """Return the expression for what the twin returns."""
    if returns in RETURNS:
        return f"SyncIterator(self._loop, aiter({value}), owner=self)"
    return f"{TWINS[returns]}(self._loop, {value}, owner=self)" if returns in TWINS else value


LIMIT = """
            TimeoutError: `timeout` seconds have passed. The turn goes on: wait again, or call `interrupt()`.
        """
"""What the docstring of `result()` says besides: a program without an event loop has no `anyio.fail_after()`."""


def render_result(node: Function) -> str:
    """Return the source of the twin of `result()`, with a limit for its wait."""
    returns = ast.unparse(node.returns) if node.returns else "None"
    doc = render_docstring(node).removesuffix('"""').rstrip().replace(" The wait has no limit of its own: use `anyio.fail_after()`.", "")
    return (
        f'    def result(self, *, timeout: float | None = None) -> {returns}:\n{doc}{LIMIT}"""\n'
        "        return self._loop.call(self._inner.result, timeout=timeout)\n"
    )


def render_method(node: Function) -> str:
    """Return the source of the twin of a method or property."""
    if node.name == "result":
        return render_result(node)
    returns = ast.unparse(node.returns) if node.returns else "None"
    twin = RETURNS.get(returns) or TWINS.get(returns, returns)
    if is_property(node):
        head = f"    @property\n    def {node.name}(self) -> {twin}:\n{render_docstring(node)}"
        return f"{head}\n        return {wrap(f'self._inner.{node.name}', returns)}\n"
    call = f"self._inner.{node.name}({call_arguments(node.args)})"
    head = f"    def {node.name}({ast.unparse(node.args)}) -> {twin}:\n{render_docstring(node)}"
    if returns in RETURNS:  # made in the event loop, to which it belongs
        return f"{head}\n        return self._iterate(lambda: aiter({call}))\n"
    if isinstance(node, ast.FunctionDef):
        return f"{head}\n        return {call}\n"
    value = f"self._loop.call({call.removesuffix('()') if call.endswith('()') else 'lambda: ' + call})"
    return f"{head}\n        {'' if twin == 'None' else 'return '}{wrap(value, returns)}\n"


def render_start(name: str, node: ast.ClassDef) -> str:
    """Return the `__init__` of a conversation, with the arguments of its asynchronous twin and `backend`."""
    (start,) = (each for each in node.body if isinstance(each, Function) and each.name == "__init__")
    given = call_arguments(start.args)
    backend = ast.arg("backend", ast.Name("Backend"))
    start.args.kwonlyargs.append(backend)
    start.args.kw_defaults.append(ast.Constant("asyncio"))
    remedy = f"use {name} there"
    return (
        f"    _inner: {name}\n\n    def __init__({ast.unparse(start.args)}) -> None:\n"
        f"        refuse_in_a_loop({TWINS[name]!r}, {remedy!r})\n"
        f"        inner = {name}({given})\n"
        f"        super().__init__(inner, loop_for({TWINS[name]!r}, inner, instead={remedy!r}, backend=backend))\n\n"
    )


def render_class(name: str, parts: list[ast.ClassDef], *, message: str) -> str:
    """Return the source of the twin of a class."""
    base = BASES.get(name, "SyncPart")
    base += f"[{message}]" if base != "SyncPart" else ""
    lines = [f"class {TWINS[name]}({base}):"]
    if base.startswith("SyncConversation"):
        doc = f'''    """Holds a conversation as `{name}` does, for programs without an event loop: every method blocks until it is done.
    Use it as `with {TWINS[name]}(transport) as it`, or call `start()` and `close()`.

    The conversation runs in an event loop of its own, in a thread that ends with it. Callbacks are called in that thread. Every method may
    be called from any thread without a running event loop. A Ctrl-C during a call cancels the call.

    Args:
        backend: `asyncio` or `trio`, on which the conversation runs. The other arguments are those of `{name}`.

    Raises `UsageError` with the code `usage.running_loop` where an event loop runs: use `{name}` there. After `close()`, methods
    raise `TransportClosed`.
    """

'''
        lines += [doc + render_start(name, parts[0])]
    else:
        lines += [f'    """Does what `{name}` does, and blocks until it is done. `{name}` says the rest."""\n', f"    _inner: {name}\n"]
    seen = set(LEFT_OUT)
    for method in (each for part in parts for each in methods_of(part)):
        if method.name not in seen:
            seen.add(method.name)
            lines.append(render_method(method))
    if base.startswith("SyncConversation"):
        (closing,) = (each for each in methods_of(parts[0]) if each.name == "aclose")
        closing.name = "close"
        returns = ast.unparse(closing.returns) if closing.returns else "None"
        call = f"self._inner.aclose({call_arguments(closing.args)})"
        lines.append(f"    def close({ast.unparse(closing.args)}) -> {returns}:\n{render_docstring(closing)}")
        lines.append(f"        return self._close(lambda: {call})\n")
    return "\n".join(lines)


def render_imports(used: set[str], module: Module, trees: Mapping[str, ast.Module]) -> str:
    """Return an import for each name that the sources import or define."""
    homes: dict[str, str] = {}
    for source in reversed(module.sources):
        for node in ast.walk(trees[source]):
            if isinstance(node, ast.ImportFrom) and node.module:
                homes |= {(each.asname or each.name): f"from {node.module} import {each.name}" for each in node.names if not each.asname}
            elif isinstance(node, ast.Import):
                homes |= {(each.asname or each.name): ast.unparse(ast.Import([each])) for each in node.names}
    for source in module.sources:
        for each in trees[source].body:
            names = [each.name] if isinstance(each, ast.ClassDef) else []
            if isinstance(each, ast.Assign | ast.AnnAssign):
                names = [sub.id for sub in ast.walk(each) if isinstance(sub, ast.Name) and isinstance(sub.ctx, ast.Store)]
            homes |= {name: f"from {dotted(source)} import {name}" for name in names}
    mine = ["Backend", "SyncConversation", "SyncIterator", "SyncPart", "SyncTurnBase", "loop_for", "refuse_in_a_loop"]
    homes |= {name: f"from claude_transport.loops.threads import {name}" for name in mine}
    return "\n".join(sorted(homes[name] for name in used if name in homes))


def render(module: Module) -> str:
    """Return the source of a module."""
    trees = {source: ast.parse((PACKAGE / source).read_text("utf-8")) for source in module.sources}
    classes = {node.name: node for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef)}
    message = "Message" if module.path.startswith("client") else "CodexNotification"
    rendered = [render_class(name, [classes[part] for part in parts], message=message) for name, parts in module.classes.items()]
    body = "\n\n".join(rendered)
    used = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
    head = f'"""{module.doc}\n\nWritten by docs/generate_blocking.py from the asynchronous classes: do not edit.\n"""\n\n'
    head += "from __future__ import annotations\n\n"
    return tidy(f"{head}{render_imports(used, module, trees)}\n\n\n{body}\n")


def tidy(source: str) -> str:
    """Sort the imports, and format."""
    for command in (["check", "--fix-only", "--select", "I,UP", "-q"], ["format", "-q"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", "claude_transport/client/blocking.py", "-"]
        source = subprocess.run(ruff, input=source, capture_output=True, text=True, check=True, cwd=PACKAGE.parent).stdout
    return source


def main() -> None:
    for module in MODULES:
        (PACKAGE / module.path).write_text(render(module), "utf-8")


if __name__ == "__main__":
    main()
