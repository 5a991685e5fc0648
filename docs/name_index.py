"""Sphinx: an index of the Python names by their last part.

For each reference that is no exact name, Sphinx looks through all names. With thousands of both, that was two fifths of a build.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sphinx.application import Sphinx
from sphinx.domains.python import ObjectEntry, PythonDomain


class IndexedPythonDomain(PythonDomain):
    """Shows Sphinx only the names that it can find: those with the last part that it looks for."""

    _shown: dict[str, ObjectEntry] | None = None
    _index: tuple[int, dict[str, list[str]]] = (0, {})

    @property
    def objects(self) -> dict[str, ObjectEntry]:
        return super().objects if self._shown is None else self._shown

    def find_obj(self, env: Any, modname: str, classname: str, name: str, type: str | None, searchmode: int = 0) -> list[Any]:  # noqa: A002
        if searchmode == 1:
            last = name.removesuffix("()").rpartition(".")[2]
            self._shown = {each: self.objects[each] for each in self._by_last_part().get(last, ())}
        try:
            return super().find_obj(env, modname, classname, name, type, searchmode)
        finally:
            self._shown = None

    def _by_last_part(self) -> dict[str, list[str]]:
        """Return all names, in their order. References are resolved when the pages have been read, so the names do not change then."""
        known = self.objects
        if self._index[0] != len(known):
            by_last_part: dict[str, list[str]] = {}
            for name in known:
                by_last_part.setdefault(name.rpartition(".")[2], []).append(name)
            self._index = len(known), by_last_part
        return self._index[1]


def setup(app: Sphinx) -> Mapping[str, Any]:
    app.add_domain(IndexedPythonDomain, override=True)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
