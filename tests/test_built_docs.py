"""The documentation as a reader has it: each public name is in its inventory, links lead somewhere, and no code runs out of the window."""

from __future__ import annotations

import html.parser
import importlib
import inspect
import re
import urllib.parse
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from built_docs import DOCS, built_docs
from chromium import Chromium, Page, running_chromium, why_no_chromium
from test_reference_pages import DOCUMENTED, DOORS, NO_ENTRY, what_is

LOADED = "document.readyState === 'complete'"
GUIDES = ("tutorial/", "how-to/")
MEASURED = ["index", "tutorial/first-conversation", "reference/claude_transport.Query", "benchmarks/speed"]


@pytest.fixture(scope="module")
def site() -> Path:
    """The folder of the HTML pages."""
    return built_docs()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    """A browser for all tests of this file."""
    reason = why_no_chromium()
    if reason is not None:
        pytest.skip(reason)
    with running_chromium() as browser:
        yield browser


def inventory(site: Path) -> list[tuple[str, int, str]]:
    """Return the Python names of `objects.inv`: each with its priority, -1 for another spelling of a name, and its address."""
    body = zlib.decompress((site / "objects.inv").read_bytes().split(b"\n", 4)[4]).decode()
    rows = [line.split(" ", 4) for line in body.splitlines()]
    return [(name, int(priority), address.replace("$", name)) for name, kind, priority, address, _shown in rows if kind.startswith("py:")]


def public_names() -> Iterator[tuple[str, str]]:
    """Yield each name of each door, with the one under which it has its entry."""
    entries = {id(what_is(module, name)): f"{module}.{name}" for module, name in DOCUMENTED}
    for door in DOORS:
        for name in sorted(set(importlib.import_module(door).__all__) - NO_ENTRY.get(door, set())):
            yield f"{door}.{name}", entries[id(what_is(door, name))]


def members(cls: type) -> Iterator[str]:
    """Yield the public attributes of a class that this package defines, inherited ones included."""
    for base in cls.__mro__:
        if base.__module__.startswith("claude_transport"):
            yield from (name for name in {*vars(base), *inspect.get_annotations(base)} if not name.startswith("_"))


def test_every_public_name_is_in_the_inventory_once_under_each_path_from_which_it_is_imported(site: Path) -> None:
    found = Counter(name for name, _, _ in inventory(site))
    named = {name for pair in public_names() for name in pair}
    assert {name: found[name] for name in named if found[name] != 1} == {}


def test_a_public_name_leads_to_its_entry_and_all_other_spellings_of_it_do_too(site: Path) -> None:
    entries = {name: (priority, address) for name, priority, address in inventory(site)}
    for name, public in public_names():
        priority, address = entries[name]
        assert (priority, address.partition("#")[2]) == (1 if name == public else -1, public), name
        if isinstance(what_is(*public.rsplit(".", 1)), type):
            assert address.partition("#")[0] == f"reference/{public}.html"


def test_the_inventory_leads_to_nothing_internal(site: Path) -> None:
    public = {public for _, public in public_names()}
    modules = {"claude_transport.codex.testing.scenario", "claude_transport.testing.plugin", "claude_transport.codex.testing.plugin"}
    more = {f"{module}.{name}" for module, name in DOCUMENTED} | set(DOORS) | modules
    for name, priority, _ in inventory(site):
        if priority == 1:
            owner = name.rpartition(".")[0]
            assert {name, owner} & (public | more), name


def test_the_page_of_a_class_has_all_its_public_members_inherited_ones_included(site: Path) -> None:
    known = {name for name, _, _ in inventory(site)}
    missing = {
        f"{module}.{name}.{member}"
        for module, name in DOCUMENTED
        if isinstance(cls := what_is(module, name), type)
        for member in members(cls)
        if f"{module}.{name}.{member}" not in known
    }
    assert sorted(missing) == []


def test_types_of_python_and_anyio_lead_to_their_documentation(site: Path) -> None:
    stream = (site / "reference" / "claude_transport.StreamTransport.html").read_text("utf-8")
    assert "https://anyio.readthedocs.io/en/stable/api.html#anyio.abc.ByteStreamConnectable" in stream
    query = (site / "reference" / "claude_transport.Query.html").read_text("utf-8")
    assert "https://docs.python.org/3/library/collections.abc.html#collections.abc.Mapping" in query


class Links(html.parser.HTMLParser):
    """What a page links to, and the anchors that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors |= {value for value in (given.get("id"), given.get("name") if tag == "a" else None) if value}
        target = given.get("href") if tag in {"a", "link"} else given.get("src")
        if target:
            self.links.add(target)


def test_every_link_and_anchor_inside_the_documentation_leads_somewhere(site: Path) -> None:
    names = re.findall(
        r"^std:doc|(\S+) std:doc ", zlib.decompress((site / "objects.inv").read_bytes().split(b"\n", 4)[4]).decode(), re.MULTILINE
    )
    pages = {path: Links(path.read_text("utf-8")) for name in names if (path := site / f"{name}.html").is_file()}
    assert len(pages) > len(DOCUMENTED) / 2
    dead = set()
    for path, page in pages.items():
        for link in page.links:
            target = urllib.parse.urlsplit(link)
            if target.scheme or target.netloc:
                continue
            file = (path.parent / urllib.parse.unquote(target.path)).resolve() if target.path else path
            anchor = urllib.parse.unquote(target.fragment)
            if not file.exists() or (anchor and file in pages and anchor not in pages[file].anchors):
                dead.add(f"{path.relative_to(site)}: {link}")
    assert sorted(dead) == []


def test_the_table_of_contents_for_language_models_has_every_page_and_only_pages_that_are_there(site: Path) -> None:
    text = (site / "llms.txt").read_text("utf-8")
    listed = re.findall(r"\((_sources/(\S+)\.md\.txt)\)", text)
    assert all((site / path).is_file() for path, _ in listed)
    written = {
        str(page.relative_to(DOCS).with_suffix("")) for page in DOCS.rglob("*.md") if not {"_build", "changelog.d"} & set(page.parts)
    }
    assert sorted(page for _, page in listed) == sorted(written - {"index"})


def results(chromium: Chromium, site: Path, words: str) -> list[str]:
    """Return the pages that a search finds, in order."""
    with chromium.open(site / "search.html", fragment=f"?q={urllib.parse.quote(words)}", ready=LOADED) as page:
        page.until("document.querySelector('#search-results p.search-summary')?.textContent.includes('found')")
        return list(page.run("[...document.querySelectorAll('#search-results ul.search > li > a')].map(a => a.getAttribute('href'))"))


@pytest.mark.parametrize(
    ("words", "best"),
    [
        ("hooks", "hooks"),
        ("interrupt", "interrupt-and-resume"),
        ("retry", "retry"),
        ("permission", "permissions"),
        ("tape", "inspect-a-tape"),
    ],
)
def test_a_search_shows_the_guide_about_it_first_and_guides_before_the_reference(
    chromium: Chromium, site: Path, words: str, best: str
) -> None:
    found = results(chromium, site, words)
    assert found[0].split("#")[0] == f"how-to/{best}.html"
    guides = [at for at, page in enumerate(found) if page.startswith(GUIDES)]
    reference = [at for at, page in enumerate(found) if page.startswith("reference/")]
    assert guides
    assert reference
    assert max(guides) < min(reference)


@pytest.mark.parametrize("name", ["Query", "RetryingTransport", "claude_transport.Query.send", "set_model"])
def test_a_search_for_a_name_as_it_is_spelled_shows_its_entry_first(chromium: Chromium, site: Path, name: str) -> None:
    first = results(chromium, site, name)[0]
    assert first.startswith("reference/claude_transport.")
    assert name.rpartition(".")[2] in first


def overflowing(page: Page, more: str) -> list[str]:
    """Return what of the page is wider than its place: the page itself, and what a reader would have to scroll: code, and `more`."""
    return list(
        page.run(
            f"[document.documentElement, ...document.querySelectorAll('article pre, article dt.sig, {more}')]"
            ".filter(each => each.scrollWidth > each.clientWidth + 1 && each.clientWidth)"
            ".map(each => `${each.tagName} ${each.scrollWidth} > ${each.clientWidth}: ${each.textContent.slice(0, 80)}`)"
        )
    )


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", MEASURED)
def test_neither_a_page_nor_its_code_is_wider_than_the_window(chromium: Chromium, site: Path, name: str, width: int) -> None:
    with chromium.open(site / f"{name}.html", width=width, ready=LOADED) as page:
        assert overflowing(page, ".table-wrapper" if name == "index" else "pre") == []
        assert page.run("document.documentElement.clientWidth") == width


def test_a_button_copies_the_code_without_its_prompt(chromium: Chromium, site: Path) -> None:
    with chromium.open(site / "index.html", ready=LOADED) as page:
        page.run("Object.defineProperty(navigator, 'clipboard', {value: {writeText: async text => { window.copied = text; }}})")
        page.run("document.querySelector('.highlight-python button.copy').click()")
        page.until("window.copied")
        assert page.run("window.copied").startswith("import anyio\nimport claude_transport as ct\n")
        page.until("document.querySelector('.highlight-python button.copy').textContent === 'Copied'")
