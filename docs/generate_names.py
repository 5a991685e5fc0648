"""Write the `.pyi` stub beside every module that loads its names late, from the table in that module.

Type checkers read the stub, Python reads the table: so there is one list of names to keep.

    python docs/generate_names.py
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "claude_transport"


def doors() -> Iterator[Path]:
    """Yield the source file of each module that calls `lazy_names`."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if "= lazy_names(" in path.read_text("utf-8"):
            yield path


def name_of(path: Path) -> str:
    """Return the dotted name of the module at `path`."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def read_table(source: str) -> tuple[Mapping[str, str], list[str]]:
    """Return the table of names by module, and the submodules that attribute access loads."""
    (call,) = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "lazy_names")
    modules = [keyword.value for keyword in call.keywords if keyword.arg == "modules"]
    return ast.literal_eval(call.args[1]), list(ast.literal_eval(modules[0])) if modules else []


def render(path: Path) -> str:
    """Return the text of the stub beside `path`."""
    homes, modules = read_table(path.read_text("utf-8"))
    lines = [f"from {name_of(path)} import {module} as {module}" for module in modules]
    lines += [f"from claude_transport.{home} import {name} as {name}" for home in sorted(homes) for name in sorted(homes[home].split())]
    names = sorted((name for names in homes.values() for name in names.split()), key=spelling)
    version = ["", "__version__: str"] if path.parent == PACKAGE and path.stem == "__init__" else []
    head = f"# Written by docs/generate_names.py from the table in {path.name}: do not edit.\n"
    return "\n".join([head, *lines, "", "__all__ = [", *(f'    "{name}",' for name in names), "]", *version, ""])


def spelling(name: str) -> tuple[int, str]:
    """Sort constants first, then classes, then functions, as ruff does."""
    return (0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2, name)


def main() -> None:
    for path in doors():
        path.with_suffix(".pyi").write_text(render(path), "utf-8")


if __name__ == "__main__":
    main()
