"""Public names of a package or a module that are imported at first use.

A module lists its public names once, in the table that it passes to `lazy_names`. Type checkers read the stub (`.pyi`) next to it, which
`docs/generate_names.py` writes from the same table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any

_ROOT = __name__.partition(".")[0]


def lazy_names(
    package: str, homes: Mapping[str, str], *, modules: Collection[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Make the `__getattr__`, the `__dir__` and the `__all__` of a package or a module.

    Args:
        package: the `__name__` of the package or module.
        homes: modules, relative to `claude_transport`, and the names that each defines, separated by spaces.
        modules: submodules of the package that can be used as attributes, too; they are not in `__all__`.
    """
    home_of = {name: home for home, names in homes.items() for name in names.split()}
    exported = sorted(home_of, key=_spelling)

    def load(name: str) -> Any:
        home = home_of.get(name)
        if home is not None:
            value = getattr(_import(f"{_ROOT}.{home}"), name)
        elif name in modules:
            value = _import(f"{package}.{name}")
        else:
            msg = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(msg)
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *exported, *modules})

    return load, list_names, exported


def _spelling(name: str) -> tuple[int, str]:
    """Sort constants first, then classes, then functions."""
    return (0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2, name)


def _import(module: str) -> Any:
    try:
        return import_module(module)
    except OSError as exc:
        from claude_transport.errors import CLIConnectionError

        what = f"cannot import {module}: {exc.strerror or exc}; import it earlier, while file descriptors are free"
        raise CLIConnectionError(what) from exc
