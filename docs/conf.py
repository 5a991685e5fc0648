"""Sphinx: Markdown pages by myst, the reference by autodoc. Builds without a network, with every warning an error."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).parent
PROJECT = tomllib.loads((HERE.parent / "pyproject.toml").read_text("utf-8"))["project"]

project = PROJECT["name"]
author = PROJECT["authors"][0]["name"]
project_copyright = author
release = version = PROJECT["version"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "changelog.d", "examples"]
html_theme = "furo"
html_title = f"{project} {release}"
html_static_path = ["_static"]
html_css_files = ["tables.css"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": True, "no-value": True}
python_use_unqualified_type_names = True

linkcheck_ignore = [r"https?://(localhost|127\.0\.0\.1|[\w.-]*example\.(org|com|net))([:/].*)?$"]
linkcheck_timeout = 15

# References into this package must resolve. Those to other projects would need their inventories, hence a network.
nitpicky = True
nitpick_ignore_regex = [
    (r"py:.*", r"(?!claude_transport\.).*"),
    # behind public classes, but nobody's to use: they have no pages
    (r"py:.*", r"claude_transport\.(streams\..*|query\.(storage|mailbox|controls|turns\._).*|wrappers\.lines\..*)"),
    (r"py:.*", r"claude_transport\.(.*\.)?_\w+"),
    (r"py:.*", r"claude_transport\.testing\.(incidents\.\w*Step|http_server\..*|conformance\.(bench|medium|report)\..*)"),
]

FENCE = re.compile(r"\s*```(\w*)\s*$")
CODE = re.compile(r"(?<![`:])`([^`\n]+)`(?![`_])")
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
            out.append(CODE.sub(r"``\1``", line))
    return out


def in_list(lines: list[str]) -> bool:
    """Whether the paragraph that `lines` end with began as an item of a list."""
    for line in reversed(lines):
        if not line.strip():
            return False
        if BULLET.match(line):
            return True
    return False


def process_docstring(_app: Sphinx, _what: str, _name: str, _obj: object, _options: object, lines: list[str]) -> None:
    lines[:] = to_rst(lines)


def setup(app: Sphinx) -> None:
    app.connect("autodoc-process-docstring", process_docstring, priority=400)  # before napoleon, which reads reStructuredText
