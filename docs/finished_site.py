"""Sphinx: what a finished build gets besides its pages: `llms.txt`, and a note of the sources that it was built from."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

HERE = Path(__file__).parent
NOTE = "built_from.txt"
INTRODUCTION = """\
# claude_transport

> The transport layer between Python programs and the `claude` CLI: it starts one or connects to one, speaks its control protocol, and
> ends every process that it started. It runs on asyncio and trio.

Every page below is the Markdown from which a page of the documentation is made. `ct` means `import claude_transport as ct`. The classes
have a page each, `reference/claude_transport.<name>.html`.
"""


def sources() -> Iterator[Path]:
    """Yield every file that a build reads, but for the pages that it writes itself."""
    for folder, pattern in ((HERE, "**/*"), (HERE.parent / "examples", "**/*"), (HERE.parent / "claude_transport", "**/*.py")):
        for path in sorted(folder.glob(pattern)):
            inside = path.relative_to(folder)
            left_out = {"_build", "changelog.d", "__pycache__"} & set(inside.parts) or inside.match("reference/claude_transport.*.rst")
            if path.is_file() and not left_out:
                yield path
    yield from (HERE.parent / name for name in ("CHANGELOG.md", "README.md", "pyproject.toml"))


def digest() -> str:
    """Return a digest of the sources."""
    found = hashlib.sha256()
    for path in sources():
        found.update(str(path.relative_to(HERE.parent)).encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


def sections(index: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the caption of each table of contents of a page, and what it lists."""
    for options, listed in re.findall(r"```\{toctree\}\n((?::[^\n]*\n)*)\n([^`]*)```", index):
        caption = re.search(r":caption: (.+)", options)
        yield caption[1] if caption else "", listed.split()


def llms(app: Sphinx) -> str:
    """Return the table of contents for programs that read Markdown: each page with its title."""
    lines = [INTRODUCTION]
    for caption, listed in sections((HERE / "index.md").read_text("utf-8")):
        lines.append(f"## {caption}\n")
        pages = [page for name in listed for page in (name, *below(name))]
        lines += [f"- [{app.env.titles[page].astext()}]({address(app, page)})" for page in pages]
        lines.append("")
    return "\n".join(lines)


def below(name: str) -> Iterator[str]:
    """Yield the pages that the table of contents of an index lists."""
    if name.endswith("/index"):
        for _, listed in sections((HERE / f"{name}.md").read_text("utf-8")):
            yield from (f"{name.removesuffix('index')}{page}" for page in listed)


def address(app: Sphinx, page: str) -> str:
    """Return where the Markdown of a page is in the build, from its root or from the address of the documentation."""
    suffix = app.config.html_sourcelink_suffix
    return f"{app.config.html_baseurl}_sources/{page}.md{suffix}"


def finish(app: Sphinx, failed: Exception | None) -> None:
    """Write the two files."""
    if failed is None and app.builder.format == "html":
        (Path(app.outdir) / "llms.txt").write_text(llms(app), "utf-8")
        (Path(app.outdir) / NOTE).write_text(digest(), "utf-8")


def setup(app: Sphinx) -> Mapping[str, Any]:
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
