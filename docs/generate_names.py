"""Write the `__init__.pyi` of every package that loads its names late, from the table in its `__init__.py`.

Type checkers read the stub, Python reads the table: so there is one list of names to keep.

    python docs/generate_names.py
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "claude_transport"
HEAD = "# Written by docs/generate_names.py from the table in __init__.py: do not edit.\n"


def packages() -> Iterator[Path]:
    """Yield the `__init__.py` of each package that calls `lazy_names`."""
    for path in sorted(PACKAGE.rglob("__init__.py")):
        if "lazy_names(" in path.read_text("utf-8"):
            yield path


def read_table(source: str) -> tuple[Mapping[str, str], list[str]]:
    """Return the table of names by module, and the submodules that are loaded late."""
    tree = ast.parse(source)
    (call,) = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "lazy_names")
    doors = [node.value for node in tree.body if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "_DOORS"]
    return ast.literal_eval(call.args[1]), list(ast.literal_eval(doors[0])) if doors else []


def render(path: Path) -> str:
    """Return the text of the stub beside `path`."""
    homes, doors = read_table(path.read_text("utf-8"))
    package = ".".join(path.parent.relative_to(PACKAGE.parent).parts)
    lines = [f"from {package} import {door} as {door}" for door in doors]
    lines += [f"from claude_transport.{home} import {name} as {name}" for home in sorted(homes) for name in sorted(homes[home].split())]
    names = sorted((name for names in homes.values() for name in names.split()), key=spelling)
    version = ["", "__version__: str"] if doors else []
    return "\n".join([HEAD, *lines, "", "__all__ = [", *(f'    "{name}",' for name in names), "]", *version, ""])


def spelling(name: str) -> tuple[int, str]:
    """Sort constants first, then classes, then functions, as ruff does."""
    return (0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2, name)


def main() -> None:
    for path in packages():
        path.with_suffix(".pyi").write_text(render(path), "utf-8")


if __name__ == "__main__":
    main()
