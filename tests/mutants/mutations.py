"""Mutations of Python source: each is one small mistake that a test should notice."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HUGE = "10**9"
_BOUND = re.compile(r"(?i)timeout|limit|max|most|seconds|bytes|patience|grace|size|length|depth|pending|capacity")
_MASK = re.compile(r"(?i)redact|mask|scrub|printable|conceal|outline|without_values|origin_of")
_LOG = re.compile(r"\b(logger|warnings)\b")

Change = tuple[ast.stmt | ast.expr, ast.stmt | ast.expr, str, str]
"""The first and the last node of what is replaced, the kind, and the text in its place, where `{}` stands for the text before."""


@dataclass(frozen=True)
class Mutant:
    """One change of one file: the bytes from `start` to `end` become `after`."""

    path: str
    line: int
    kind: str
    start: int
    end: int
    before: str
    after: str

    @property
    def key(self) -> str:
        """What stays the same when lines above it change."""
        return f"{self.path} | {self.kind} | {self.before.strip().splitlines()[0]} -> {self.after.strip().splitlines()[0]}"

    def applied(self, source: bytes) -> bytes:
        """Return the mutated source."""
        return source[: self.start] + self.after.encode() + source[self.end :]


def mutants_of(root: Path, path: str) -> list[Mutant]:
    """Return every mutant of one file that is still valid Python."""
    source = (root / path).read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found: dict[tuple[int, int, str], Mutant] = {}
    for first, last, kind, after in _changes(ast.parse(source)):
        start, end = starts[first.lineno - 1] + first.col_offset, starts[(last.end_lineno or 0) - 1] + (last.end_col_offset or 0)
        before = source[start:end].decode()
        mutant = Mutant(path, first.lineno, kind, start, end, before, after.replace("{}", before))
        try:
            compile(mutant.applied(source), "mutant", "exec")
        except (SyntaxError, ValueError):
            continue
        found.setdefault((start, end, mutant.after), mutant)
    return list(found.values())


def _changes(tree: ast.AST) -> Iterator[Change]:
    for node in ast.walk(tree):
        _empty_last_handlers(node)
        yield from _changes_of_statement(node)
        yield from _changes_of_expression(node)


def _empty_last_handlers(node: ast.AST) -> None:
    """Leave handlers out that do what the end of their function does in any case: return None."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and isinstance(last := node.body[-1], ast.Try):
        for handler in last.handlers:
            if [ast.unparse(each) for each in handler.body] in (["return"], ["return None"]):
                handler.body = [ast.Pass()]


def _changes_of_statement(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            node.body = []
        case ast.If() | ast.While():
            yield node.test, node.test, "condition", "(not ({}))"
        case ast.ExceptHandler(body=[ast.Return(value=ast.Constant(value=False)) as only]):
            yield only, only, "except", "return True"  # without it None would be returned, which is as false
        case ast.ExceptHandler(body=body) if not _is_silent(body):
            yield body[0], body[-1], "except", "pass"
        case ast.Try(finalbody=[first, *_] as body) if not _is_silent(body):
            yield first, body[-1], "finally", "pass"
        case ast.Raise(exc=ast.Call(func=func)):
            yield node, node, "statement", "pass"
            yield func, func, "error", "(lambda *a, **k: Exception(*a))"
        case ast.Expr(value=ast.Constant() | ast.Yield() | ast.YieldFrom()):
            pass  # a docstring, or what makes a function a generator
        case ast.Expr() | ast.Delete() | ast.AugAssign() | ast.Raise() if not _is_silent([node]):
            yield node, node, "statement", "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]):
            yield node, node, "statement", "pass"
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if name.isupper() and _BOUND.search(name) and _is_number(value):
            yield value, value, "bound", HUGE


def _changes_of_expression(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.IfExp():
            yield node.test, node.test, "condition", "(not ({}))"
        case ast.BoolOp(op=op, values=values):
            yield from ((each, each, "condition", "True" if isinstance(op, ast.And) else "False") for each in values)
        case ast.Subscript(slice=ast.Slice(lower=None, upper=ast.expr() as upper)):
            yield upper, upper, "bound", HUGE
        case ast.Subscript(slice=ast.Slice(lower=ast.UnaryOp() as lower, upper=None)):
            yield lower, lower, "bound", f"-{HUGE}"
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=arguments, keywords=keywords):
            if _MASK.search(name) and arguments:
                yield node, node, "mask", f"({ast.unparse(arguments[0])})"
            if name == "min" and len(arguments) == 2:
                yield from ((node, node, "bound", f"({ast.unparse(each)})") for each in arguments)
            bounds = [each.value for each in keywords if each.arg and _BOUND.search(each.arg)]
            yield from ((each, each, "bound", HUGE) for each in bounds if ast.unparse(each) != "None")


def _is_silent(body: list[ast.stmt]) -> bool:
    return all(isinstance(each, ast.Pass | ast.Continue) or _LOG.search(ast.unparse(each)) for each in body)


def _is_number(value: ast.expr) -> bool:
    return isinstance(value, ast.BinOp) or (isinstance(value, ast.Constant) and type(value.value) in (int, float))
