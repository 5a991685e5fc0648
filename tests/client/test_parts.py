"""How the client is put together: parts get what they need in their constructors, and one prompt or message passes few of them."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

import claude_transport as ct
from claude_transport.loops.alarm import Alarm

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "claude_transport" / "client"
TREES = {path.stem: ast.parse(path.read_text("utf-8")) for path in sorted(CLIENT.glob("*.py"))}

MOST_COLLABORATORS = 4


def classes_of(trees: Mapping[str, ast.Module]) -> dict[str, ast.ClassDef]:
    return {node.name: node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def functions_of(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def assigned(target: ast.expr) -> Iterator[ast.Attribute]:
    """Every attribute that an assignment to `target` sets."""
    if isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from assigned(element)
    elif isinstance(target, ast.Starred):
        yield from assigned(target.value)
    elif isinstance(target, ast.Attribute):
        yield target


def targets_of(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            return targets
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target) | ast.For(target=target) | ast.AsyncFor(target=target):
            return [target]
        case ast.With(items=items) | ast.AsyncWith(items=items):
            return [item.optional_vars for item in items if item.optional_vars is not None]
    return []


def made_here(function: ast.AST) -> set[str]:
    """Names that only ever stand for an object that this function has just made: each assignment calls a class or a maker of errors."""
    fresh: dict[str, bool] = {}
    for node in ast.walk(function):
        for target in targets_of(node):
            if isinstance(target, ast.Name) and (value := getattr(node, "value", None)) is not None:
                name = value.func.id if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) else ""
                fresh[target.id] = fresh.get(target.id, True) and name[:1].isupper()
            if isinstance(target, ast.Name) and isinstance(node, ast.With):  # `with anyio.move_on_after(…) as limit`
                fresh[target.id] = True
    return {name for name, is_fresh in fresh.items() if is_fresh}


def faults_of_assignment(trees: Mapping[str, ast.Module]) -> Iterator[str]:
    """One sentence for each assignment to an attribute of another object, but of `self`, `cls`, and what the function has just made."""
    for module, tree in trees.items():
        for function in functions_of(tree):
            fresh = made_here(function) | {"self", "cls"} | EXCEPTIONS.get(f"{module}.{function.name}", set())
            for node in ast.walk(function):
                for attribute in (attribute for target in targets_of(node) for attribute in assigned(target)):
                    owner = attribute.value
                    if not (isinstance(owner, ast.Call) or (isinstance(owner, ast.Name) and owner.id in fresh)):
                        yield f"{module}.{function.name} assigns to {ast.unparse(attribute)}"


EXCEPTIONS: Mapping[str, set[str]] = {
    "reports.raised_again": {"again"},  # a copy that was made for this
    "connection.gone": {"gone"},
    "ending.shorten": {"limit"},  # the caller's scope, which it hands over for this
}


def faults_of_collaborators(trees: Mapping[str, ast.Module]) -> Iterator[str]:
    """One sentence for each constructor with too many parameters that are annotated with a class of the client which does work.

    Structs are values, and errors are none of it: what counts is a class with a constructor of its own.
    """
    classes = {
        name
        for name, cls in classes_of(trees).items()
        if any(function.name == "__init__" for function in cls.body if isinstance(function, ast.FunctionDef))
    }
    for name, cls in classes_of(trees).items():
        for function in cls.body:
            if isinstance(function, ast.FunctionDef) and function.name == "__init__":
                parameters = [*function.args.args, *function.args.kwonlyargs]
                taken = [p.arg for p in parameters if p.annotation is not None and classes & names_in(p.annotation)]
                if len(taken) > MOST_COLLABORATORS:
                    yield f"{name} takes {len(taken)} collaborators: {', '.join(taken)}"


def names_in(annotation: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}


def assigned_above(cls: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> set[str]:
    """The attributes that the base classes of `cls` give a value. A class may say more exactly what they are."""
    names = {node.id for base in cls.bases for node in ast.walk(base) if isinstance(node, ast.Name)}
    above = [classes[name] for name in names if name in classes]
    own = {node.attr for each in above for node in ast.walk(each) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    return own.union(*(assigned_above(each, classes) for each in above))


def faults_of_mixins(trees: Mapping[str, ast.Module]) -> Iterator[str]:
    """One sentence for each class that declares a private attribute without giving it a value: one that its subclass is to fill in."""
    classes = classes_of(trees)
    for name, cls in classes.items():
        for node in cls.body:
            if (
                isinstance(node, ast.AnnAssign)
                and node.value is None
                and isinstance(node.target, ast.Name)
                and node.target.id.startswith("_")
                and node.target.id not in assigned_above(cls, classes)
            ):
                yield f"{name} declares {node.target.id} for a subclass"


def test_no_part_of_the_client_assigns_to_the_attributes_of_another() -> None:
    assert [*faults_of_assignment(TREES)] == []


def test_no_constructor_of_the_client_takes_more_than_four_collaborators() -> None:
    assert [*faults_of_collaborators(TREES)] == []


def test_no_class_of_the_client_declares_what_its_subclass_is_to_have() -> None:
    of_threads = ast.parse((CLIENT.parent / "loops" / "threads.py").read_text("utf-8"))  # the base of what blocks
    assert [*faults_of_mixins({**TREES, "threads": of_threads})] == []


@pytest.mark.parametrize(
    "line",
    ["other.name = 1", "self.part.name = 1", "a, other.name = 1, 2", "other.count += 1", "for other.name in (): pass", "del other.name"],
)
def test_an_assignment_to_another_object_is_found_however_it_is_written(line: str) -> None:
    assert len([*faults_of_assignment({"m": ast.parse(f"def f(self, other):\n    {line}")})]) == 1


def test_an_object_that_was_just_made_may_be_filled_in() -> None:
    assert [*faults_of_assignment({"m": ast.parse("def f(self):\n    e = Error()\n    e.cause = 1\n    self.x = 2")})] == []


def test_too_many_collaborators_and_declared_attributes_are_found() -> None:
    parts = "\n".join(f"class Part{n}:\n    def __init__(self): ..." for n in range(5))
    source = f"{parts}\nclass C:\n    _life: Part0\n    def __init__(self, a: Part0, b: Part1, c: Part2 | None, d: Part3, *, e: Part4): ..."
    trees = {"m": ast.parse(source)}
    assert [*faults_of_collaborators(trees)] == ["C takes 5 collaborators: a, b, c, d, e"]
    assert [*faults_of_mixins(trees)] == ["C declares _life for a subclass"]


# ------------------------------------------------------------------------------------------------- what one prompt, one message passes


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("count_path")


async def test_opening_a_query_passes_at_most_24_files_and_165_functions(counter: Any) -> None:
    opening = await counter.count_opening()
    assert len(opening.files) <= 24, opening.files
    assert len(opening.calls) <= 165, [*opening.calls]
    assert opening.calls.total() >= 100  # it is counted at all


async def test_one_prompt_passes_at_most_12_files_and_28_functions(counter: Any) -> None:
    sending = (await counter.count_paths())["send()"]
    assert len(sending.files) <= 12, sending.files
    assert len(sending.calls) <= 28, [*sending.calls]
    assert sending.calls.total() >= 10  # it is counted at all


IDLE_WRAPPERS: dict[str, Any] = {
    "faulty": lambda transport: ct.FaultyTransport(transport, ()),
    "logging": ct.LoggingTransport,
    "stateful": ct.StatefulTransport,
}


@pytest.mark.parametrize("wrap", IDLE_WRAPPERS.values(), ids=IDLE_WRAPPERS)
async def test_an_idle_wrapper_adds_two_functions_to_a_prompt_and_no_coroutine(counter: Any, wrap: Any) -> None:
    bare, one, two = [(await counter.count_paths(around))["send()"] for around in (None, wrap, lambda transport: wrap(wrap(transport)))]
    assert one.coroutines == two.coroutines == bare.coroutines
    assert one.calls.total() - bare.calls.total() <= 2, [*(one.calls - bare.calls)]
    assert two.calls.total() - one.calls.total() <= 2, [*(two.calls - one.calls)]


async def test_tracing_without_an_sdk_adds_two_functions_and_no_coroutine(counter: Any) -> None:
    bare, traced = [(await counter.count_paths(around))["send()"] for around in (None, ct.TracingTransport)]
    assert traced.coroutines == bare.coroutines
    assert traced.calls.total() - bare.calls.total() <= 2, [*(traced.calls - bare.calls)]


async def test_what_an_alarm_does_when_its_time_has_come_is_not_counted(counter: Any) -> None:
    rung = anyio.Event()
    alarm = Alarm(lambda: (Alarm(rung.set).cancel(), rung.set()))  # a call of the package
    alarm.set(anyio.current_time())
    with counter.counting() as path:
        await rung.wait()
    assert [*path.calls] == []


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_process_that_never_ran_trio_before_passes_no_more(backend: str) -> None:
    script = [sys.executable, str(ROOT / "benchmarks" / "count_path.py"), "--backend", backend]
    table = subprocess.run(script, capture_output=True, text=True, check=True, timeout=60).stdout
    files, functions = next(line.split()[1:3] for line in table.splitlines() if line.startswith("send()"))
    assert int(files) <= 12, table
    assert int(functions) <= 28, table


async def test_one_message_passes_at_most_10_files_and_25_functions(counter: Any) -> None:
    hearing = (await counter.count_paths())["one message"]
    assert len(hearing.files) <= 10, hearing.files
    assert len(hearing.calls) <= 25, [*hearing.calls]
    assert hearing.calls.total() >= 10


async def test_one_request_and_its_answer_pass_at_most_10_coroutines_and_60_functions(counter: Any) -> None:
    asking = (await counter.count_paths())["one request"]
    assert asking.coroutines <= 10, [*asking.calls]
    assert len(asking.calls) <= 60, [*asking.calls]
    assert asking.calls.total() >= 10
