"""Print the numbers of a checkout that say how easy its package is to carry on: sizes, importers, names, and what one message passes.

    python benchmarks/measure_house.py             this checkout
    python benchmarks/measure_house.py ../other    another one, also an older one

The imports are read by `tests/test_floors.py`, and the paths of a message are counted by `benchmarks/count_path.py`: both of this checkout,
also when another one is measured.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from count_words import documentation, explained, long_sentences, shares, words

HERE = Path(__file__).resolve().parent.parent
RIDDLES = re.compile(r"\b(nobody|somebody|whoever|anybody)\b", re.IGNORECASE)
PATHS = {"opening": "opening a Query", "send()": "one send()", "one message": "one message"}


def load_floors() -> Any:
    """Load `tests/test_floors.py`, which reads imports and functions."""
    spec = importlib.util.spec_from_file_location("test_floors", HERE / "tests" / "test_floors.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def run_on(checkout: Path, *arguments: str) -> str:
    """Run Python with the package of `checkout`, and return what it prints; an empty text when it fails."""
    ran = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(checkout)},
        cwd=checkout,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return ran.stdout.strip() if ran.returncode == 0 else ""


def docstring_lines(tree: ast.Module) -> set[int]:
    """Return the numbers of the lines of all docstrings, those below attributes included."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)]
    texts = [child for node in nodes for child in node.body if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)]
    return {line for text in texts for line in range(text.lineno, (text.end_lineno or text.lineno) + 1)}


def is_code(line: str) -> bool:
    """Return whether the line is neither empty nor a comment."""
    return bool(line.strip()) and not line.strip().startswith("#")


def measure_sources(checkout: Path) -> Iterator[tuple[str, str]]:
    """Yield what the source files alone say."""
    floors = load_floors()
    package = checkout / "claude_transport"
    house = floors.read_house(package)
    lengths = [module.lines for module in house.values()]
    modules, few = floors.find_few_importers(house)
    functions = {
        name: floors.body_lines(node) for module in house.values() for name, node in floors.read_functions(module.tree, module.name)
    }
    longest = max(functions, key=lambda name: functions[name])
    sources = [path.read_text("utf-8") for path in package.rglob("*.py")]
    yield "files", str(len(house))
    yield "lines", f"{sum(lengths):,}"
    texts = {path: docstring_lines(ast.parse(path.read_text("utf-8"))) for path in package.rglob("*.py")}
    code = [
        n
        for path, text in texts.items()
        for n, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if is_code(line) and n not in text
    ]
    docstrings = sum(map(len, texts.values()))
    yield "lines of code, without docstrings, comments and empty lines", f"{len(code):,}"
    yield "lines of docstrings", f"{docstrings:,}"
    yield "median / largest module", f"{statistics.median_high(lengths)} / {max(lengths)} lines"
    yield (
        "modules with at most one importer, without a visible reason",
        f"{len(few)} of {len(modules)} ({100 * len(few) / len(modules):.0f} %)",
    )
    yield "longest function, without its docstring", f"{functions[longest]} lines ({longest.partition('.')[2]})"
    yield "`noqa: SLF001` (reads of another object's `_x`)", str(sum(source.count("noqa: SLF001") for source in sources))
    yield '"nobody", "somebody", "whoever", "anybody"', str(sum(len(RIDDLES.findall(source)) for source in sources))


def measure_words(checkout: Path) -> Iterator[tuple[str, str]]:
    """Yield what `count_words.py` finds: words of people only, without generated pages and blocks, blocks of code and comments."""
    pages = [*documentation(checkout)]
    yield "words of the documentation that people wrote", f"{sum(words(text) for _, text in pages):,}"
    yield "sentences of the documentation", shares(long_sentences(iter(pages)))
    yield "sentences of public docstrings", shares(long_sentences(explained(checkout)))


def measure_running(checkout: Path) -> Iterator[tuple[str, str]]:
    """Yield what the running package says."""
    yield "names in `__all__`", run_on(checkout, "-c", "import claude_transport; print(len(claude_transport.__all__))") or "-"
    rows = run_on(checkout, str(HERE / "benchmarks" / "count_path.py")).splitlines()
    for start, name in PATHS.items():
        counts = next((row.removeprefix(start).split() for row in rows if row.startswith(start)), [])
        for kind, count in zip(("files", "functions", "calls", "coroutines", "objects"), counts, strict=False):
            yield f"{kind} that {name} passes", count


def main() -> None:
    """Print one row for each number."""
    parser = argparse.ArgumentParser(description="Print the numbers that say how easy a checkout is to carry on.")
    parser.add_argument("checkout", nargs="?", type=Path, default=HERE)
    checkout = parser.parse_args().checkout.resolve()
    for name, value in (*measure_sources(checkout), *measure_words(checkout), *measure_running(checkout)):
        print(f"| {name} | {value} |")


if __name__ == "__main__":
    main()
