"""The public names with their signatures, as `tests/release/public_api.txt` has them: `python tests/release/public_api.py` compares.

A change of a public name is a change of that file: `--write` acknowledges it. Names come from each module that lists them, and griffe reads
the source; nothing is imported.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe

ROOT = Path(__file__).parents[2]
SNAPSHOT = Path(__file__).with_suffix(".txt")
MORE_DOORS = ("errors", "testing.replies", "testing.steps", "wrappers.faults")
"""Public modules that define their names themselves."""


def doors(package: Any) -> Iterator[griffe.Module]:
    """Yield the modules from which a program may import."""
    for path in sorted(ROOT.glob("claude_transport/**/*.pyi")):
        parts = path.relative_to(ROOT / "claude_transport").with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        yield package[name] if name else package
    for name in MORE_DOORS:
        yield package[name]


class API:
    """The lines of all public names. A class has its members where its name is shortest, and those of a public base have theirs there."""

    def __init__(self, package: Any) -> None:
        names = [f"{door.path}.{name}" for door in doors(package) for name in door.exports or ()]
        self._found = {name: final(package[name.partition(".")[2]]) for name in sorted(names, key=lambda name: (name.count("."), name))}
        self._homes = {found.path: name for name, found in reversed(self._found.items())}

    def lines(self) -> list[str]:
        """Return the lines, sorted."""
        return sorted(line for name, found in self._found.items() for line in self._told(name, found))

    def _told(self, name: str, found: griffe.Object) -> Iterator[str]:
        if self._homes.get(found.path, name) != name:
            yield f"{name} is {self._homes[found.path]}"
        elif isinstance(found, griffe.Function):
            kind = "async " if "async" in found.labels else ""
            yield f"{kind}{name}{found.signature().removeprefix(found.name)}"
        elif isinstance(found, griffe.Attribute):
            yield f"{name}: {found.annotation or ''}"
        elif not isinstance(found, griffe.Class):
            yield f"module {name}"
        else:
            yield f"class {name}({', '.join(map(str, found.bases))})"
            for member, each in found.all_members.items():
                inner = final(each)
                owner = inner.parent.path if inner.parent is not None else ""
                is_shown_there = owner != found.path and owner in self._homes
                if (not member.startswith("_") or member == "__init__") and owner.startswith("claude_transport") and not is_shown_there:
                    yield from self._told(f"{name}.{member}", inner)


def final(found: griffe.Object | griffe.Alias) -> griffe.Object:
    """Return what a name stands for."""
    return found.final_target if isinstance(found, griffe.Alias) else found


def read_api() -> list[str]:
    """Return the lines of this checkout."""
    return API(griffe.load("claude_transport", search_paths=[ROOT], allow_inspection=False)).lines()


def differences(now: list[str]) -> list[str]:
    """Return what differs from the snapshot, as a diff that says what to do; nothing when it is up to date."""
    found = list(difflib.unified_diff(SNAPSHOT.read_text("utf-8").splitlines(), now, "public_api.txt", "now", lineterm="", n=0))
    return [*found, "If that is meant: python tests/release/public_api.py --write, and say it in the changelog."] if found else []


def main(*, write: bool) -> int:
    """Compare, print what differs, and return 1 then; with `write`, write the snapshot."""
    now = read_api()
    if write:
        SNAPSHOT.write_text("\n".join(now) + "\n", "utf-8")
    found = differences(now)
    print(*found, sep="\n", end="\n" if found else "")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(write="--write" in sys.argv[1:]))
