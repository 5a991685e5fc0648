"""Sphinx: Markdown pages by myst, the reference by autodoc. Builds without a network, with every warning an error."""

from __future__ import annotations

import contextlib
import functools
import importlib
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import reference_pages  # noqa: E402  # a module beside this one, as are the generators

PROJECT = tomllib.loads((HERE.parent / "pyproject.toml").read_text("utf-8"))["project"]

project = PROJECT["name"]
author = PROJECT["authors"][0]["name"]
project_copyright = author
release = version = PROJECT["version"]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.intersphinx",
    "reference_pages",
    "name_index",
    "finished_site",
]
exclude_patterns = ["_build", "changelog.d", "examples", "inventories"]
html_theme = "furo"
html_title = f"{project} {release}"
html_static_path = ["_static"]
html_css_files = ["tables.css", "code.css"]
html_js_files = ["copy.js"]
html_search_scorer = str(HERE / "search_scorer.js")

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {
    "members": True,
    "undoc-members": True,
    "inherited-members": reference_pages.foreign_bases(),
    "show-inheritance": True,
    "no-value": True,
}
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100

linkcheck_ignore = [r"https?://(localhost|127\.0\.0\.1|[\w.-]*example\.(org|com|net))([:/].*)?$"]
linkcheck_timeout = 15

# The names of Python and anyio that these pages mention, in the text format of inventories: so a build needs no network.
intersphinx_mapping = {
    "python": ("https://docs.python.org/3", "inventories/python.txt"),
    "anyio": ("https://anyio.readthedocs.io/en/stable", "inventories/anyio.txt"),
}
# Every reference must resolve, but for names without a page: type variables, what only type checkers import, other projects.
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"\w+|(?:_?pytest|_ssl|claude_agent_sdk|msgspec)\..*")]

FENCE = re.compile(r"\s*```(\w*)\s*$")
CODE = re.compile(r"(?<![`:])`([^`\n]+)`(?![`_])(\w?)")
PAGE = re.compile(r"docs/([a-z]\S*)/([\w-]+)\.md(#[\w-]+)?")
BULLET = re.compile(r"(\s*)([*-]|\d+\.) ")


def to_rst(lines: list[str]) -> list[str]:
    """A docstring as it is written here (Markdown's code spans, fences and lists) as the reStructuredText that autodoc expects."""
    out: list[str] = []
    fence: str | None = None
    for line in lines:
        if match := FENCE.match(line):
            indent = line[: len(line) - len(line.lstrip())]
            if fence is None:
                fence = indent
                out += ["", f"{indent}.. code-block:: {match[1] or 'text'}", ""]
            else:
                fence = None
                out.append("")
        elif fence is not None:
            out.append(f"   {line}" if line.strip() else "")
        else:
            # reStructuredText sees a list only after an empty line; Markdown and people see it at once
            if BULLET.match(line) and out and out[-1].strip() and not in_list(out):
                out.append("")
            out.append(PAGE.sub(r"`\2\3 <../\1/\2.html\3>`__", CODE.sub(code_span, line)))
    return out


def code_span(found: re.Match[str]) -> str:
    """A piece of code: with a link, when it is a public name. It ends before a space only, so `Tool`s gets one that is not shown."""
    target = reference_pages.target_of(found[1])
    span = f":py:obj:`{found[1]} <{target}>`" if target else f"``{found[1]}``"
    return span + (f"\\ {found[2]}" if found[2] else "")


def in_list(lines: list[str]) -> bool:
    """Whether the paragraph that `lines` end with began as an item of a list."""
    for line in reversed(lines):
        if not line.strip():
            return False
        if BULLET.match(line):
            return True
    return False


def process_docstring(_app: Sphinx, what: str, _name: str, _obj: object, _options: object, lines: list[str]) -> None:
    lines[:] = to_rst(lines)
    if what in {"attribute", "data", "property"}:
        lines[:0] = ["..", ""]  # an empty comment: napoleon takes what stands before a colon in the first line for a type


def process_signature(
    _app: Sphinx, _what: str, _name: str, _obj: object, _options: object, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Write a default that is no literal, such as `<factory>`, as `...`: otherwise Sphinx cannot read the signature."""
    return signature and re.sub(r"<[^<>]+>", "...", signature), returned


def leave_internal(_app: Sphinx, _env: Any, node: Any, contnode: Any) -> Any:
    """Show the name of an internal class without a link: signatures may name one. A public name without a page stays a warning."""
    target = str(node.get("reftarget", ""))
    module, _, name = target.rpartition(".")
    if module.startswith("claude_transport") and target not in public_names():
        with contextlib.suppress(ImportError):
            if hasattr(importlib.import_module(module), name):
                return contnode
    return None


@functools.cache
def public_names() -> frozenset[str]:
    """Return what the tables of names list, each with the module that defines it."""
    generator = importlib.import_module("generate_names")
    tables = (generator.read_table(path.read_text("utf-8"))[0] for path in generator.doors())
    return frozenset(f"claude_transport.{home}.{name}" for table in tables for home, names in table.items() for name in names.split())


def tidy_types(_app: Sphinx, doctree: Any) -> None:
    """Show `type` without a link, because Sphinx would look for it among the fields of that name; leave out "Bases: object"."""
    for node in list(doctree.findall(pending_xref)):
        if node.get("reftarget") == "type":
            node.replace_self(nodes.Text("type"))
        elif node.get("reftarget") == "object" and node.parent.astext() == "Bases: object":
            node.parent.parent.remove(node.parent)


def setup(app: Sphinx) -> None:
    app.connect("doctree-read", tidy_types)
    app.connect("missing-reference", leave_internal)
    app.connect("autodoc-process-signature", process_signature)
    app.connect("autodoc-process-docstring", process_docstring, priority=400)  # before napoleon, which reads reStructuredText
