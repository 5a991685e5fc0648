"""Sphinx: a page for each public class, beside the page of its topic, and an inventory with the names that programs import.

A topic page lists classes with the directive `classes`, which shows them as a table. `write_pages()` writes a page for each of them
before Sphinx looks for sources. These pages are in no table of contents, because every sidebar would hold all of them: each has the
sidebar of its topic. Their files have dotted names, because `Query` and the page `query` would be one file on some systems.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import sys
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment.adapters.toctree import global_toctree_for_doc
from sphinx.util.docutils import SphinxDirective

HERE = Path(__file__).parent
REFERENCE = HERE / "reference"
PACKAGE = "claude_transport"
LIST = re.compile(r"^\.\. classes::\n\n((?:   \S+\n)+)", re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")
SENTENCE = re.compile(r"(.+?[.])(?:\s|$)", re.DOTALL)


def topics() -> dict[str, list[str]]:
    """Return the classes that each page of the reference lists, in order, as the dotted names that programs import."""
    found = {page.stem: LIST.findall(page.read_text("utf-8")) for page in sorted(REFERENCE.glob("*.md"))}
    return {page: [name for block in blocks for name in block.split()] for page, blocks in found.items() if blocks}


def find(name: str) -> Any:
    """Return the object with this dotted name."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def short(name: str) -> str:
    """Return a dotted name without the package."""
    return name.removeprefix(f"{PACKAGE}.")


def write_pages(_app: Sphinx) -> None:
    """Write the page of every class that changed, and remove those of classes that are gone."""
    wanted = {REFERENCE / f"{name}.rst": render(name, topic) for topic, names in topics().items() for name in names}
    for path, text in wanted.items():
        if not path.is_file() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
    for path in set(REFERENCE.glob(f"{PACKAGE}.*.rst")) - set(wanted):
        path.unlink()


def render(name: str, topic: str) -> str:
    """Return the page of a class."""
    module, _, attribute = name.rpartition(".")
    kind = "exception" if issubclass(find(name), BaseException) else "class"
    title = short(name)
    return "\n".join(
        [
            ":orphan:",
            f":topic: {topic}",
            "",
            title,
            "=" * len(title),
            "",
            f"``from {module} import {attribute}`` · belongs to :doc:`{topic}`",
            "",
            f".. auto{kind}:: {name}",
            "",
        ]
    )


@functools.cache
def foreign_bases() -> str:
    """Return the names of the classes of other projects that ours inherit from: their members are documented there."""
    known = [find(name) for names in topics().values() for name in names]
    return ", ".join(sorted({base.__name__ for each in known for base in each.__mro__ if not base.__module__.startswith(PACKAGE)}))


class Classes(SphinxDirective):
    """Show classes as a table: the name, which leads to the page of the class, and the first sentence about it."""

    has_content = True
    option_spec: ClassVar[Mapping[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        group = nodes.tgroup("", nodes.colspec(colwidth=30), nodes.colspec(colwidth=70), cols=2)
        body = nodes.tbody()
        for name in self.content:
            body += nodes.row("", self._cell(self._link(name)), self._cell(*summary(find(name))))
        group += body
        return [nodes.table("", group, classes=["classes"])]

    def _cell(self, *content: nodes.Node) -> nodes.entry:
        return nodes.entry("", nodes.paragraph("", "", *content))

    def _link(self, name: str) -> nodes.Node:
        shown = nodes.literal(name, short(name), classes=["xref", "py", "py-class"])
        link = pending_xref(name, shown, refdomain="py", reftype="obj", reftarget=name, refexplicit=True, refdoc=self.env.docname)
        link.source, link.line = self.get_source_info()
        return link


def summary(thing: Any) -> Iterator[nodes.Node]:
    """Yield the first sentence of a docstring, with its code as literals."""
    paragraph = (inspect.getdoc(thing) or "").partition("\n\n")[0].replace("\n", " ")
    first = SENTENCE.match(paragraph)
    for at, part in enumerate(CODE.split(first[1] if first else paragraph)):
        yield nodes.literal(part, part) if at % 2 else nodes.Text(part)


def public_bases(_app: Sphinx, _name: str, thing: Any, _options: Any, bases: list[Any]) -> None:
    """Show the public base of an internal base: a program cannot import the internal one."""
    public = {find(name) for names in topics().values() for name in names}

    def shown(base: Any) -> Iterator[Any]:
        base = typing.get_origin(base) or base  # `Base[Message]` has no bases of its own
        if base in public:
            yield base
        else:
            yield from (found for further in base.__bases__ if further.__module__.startswith(PACKAGE) for found in shown(further))

    internal = {base for base in bases if getattr(base, "__module__", "").startswith(PACKAGE)} - public
    bases[:] = dict.fromkeys(found for base in bases for found in (shown(base) if base in internal else [base])) or [object]


NAMED = re.compile(r"([A-Z]\w+)((?:\.\w+)?)(?:\(\))?|([a-z]\w+)\(\)")


@functools.cache
def target_of(code: str) -> str | None:
    """Return the dotted name that code in a docstring means: `Query`, `Query.send()`, `complete()`. None where it is not clear."""
    named = NAMED.fullmatch(code)
    meant = entries().get(named[1] or named[3], []) if named else []
    if named is None or len(meant) != 1 or (named[2] and not hasattr(find(meant[0]), named[2][1:])):
        return None
    return meant[0] + (named[2] or "")


@functools.cache
def entries() -> dict[str, list[str]]:
    """Return the dotted names of the entries that have each last name."""
    found: dict[str, list[str]] = {}
    for name in documented():
        found.setdefault(name.rpartition(".")[2], []).append(name)
    return found


@functools.cache
def doors() -> dict[str, dict[str, str]]:
    """Return the names of each door: what a program imports from it, each with the dotted name under which the reference has it."""
    sys.path.insert(0, str(HERE))
    generator = importlib.import_module("generate_names")
    shown = {id(find(name)): name for name in documented()}
    found: dict[str, dict[str, str]] = {}
    for door in map(generator.name_of, generator.doors()):
        names = importlib.import_module(door).__all__
        found[door] = {f"{door}.{name}": public for name in names if (public := shown.get(id(find(f"{door}.{name}"))))}
    return found


def documented() -> Iterator[str]:
    """Yield the dotted name of everything that a page of the reference has an entry for."""
    for page in sorted(REFERENCE.glob("*.md")):
        yield from re.findall(rf"^(?:\.\. auto(?:function|data):: |   )({PACKAGE}\.[\w.]+)$", page.read_text("utf-8"), re.MULTILINE)


def note_doors(_app: Sphinx, env: Any) -> None:
    """Let every name of every door lead to its entry: `claude_transport.messages.TextBlock` to that of `claude_transport.TextBlock`."""
    python = env.get_domain("py")
    for names in doors().values():
        for name, public in names.items():
            entry = python.objects.get(public)
            if name != public and entry is not None and name not in python.objects:
                python.objects[name] = entry._replace(aliased=True)


def share_sidebar(app: Sphinx, page: str, _template: str, context: dict[str, Any], _doctree: Any) -> None:
    """Give the page of a class the sidebar of its topic, which is in the same folder, so that the links are the same."""
    topic = app.env.metadata[page].get("topic") if page in app.env.metadata else None
    if topic is not None:
        toctree = functools.partial(sidebar, app, f"reference/{topic}")
        context["toctree"] = lambda **options: toctree(tuple(sorted(options.items())))
        context["parents"] = [{"link": f"{topic}.html", "title": app.env.titles[f"reference/{topic}"].astext()}]


_SIDEBARS: dict[Any, str] = {}


def sidebar(app: Sphinx, page: str, options: tuple[tuple[str, Any], ...]) -> str:
    """Return the table of contents around a page as HTML; made once for all classes of the page."""
    key = (id(app), page, options)
    if key not in _SIDEBARS:
        tree = global_toctree_for_doc(app.env, page, app.builder, **dict(options))
        _SIDEBARS[key] = app.builder.render_partial(tree)["fragment"]  # type: ignore[attr-defined]
    return _SIDEBARS[key]


def setup(app: Sphinx) -> Mapping[str, Any]:
    app.add_directive("classes", Classes)
    app.connect("builder-inited", write_pages)
    app.connect("autodoc-process-bases", public_bases)
    app.connect("env-updated", note_doors)
    app.connect("html-page-context", share_sidebar, priority=400)  # before the theme, which asks for the table of contents
    return {"parallel_read_safe": True, "parallel_write_safe": True}
