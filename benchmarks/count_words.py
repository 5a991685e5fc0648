"""Count the words that people wrote for readers of the documentation, and find their long sentences:

    python benchmarks/count_words.py              words of each page, and the share of long sentences
    python benchmarks/count_words.py --long 35    every sentence of more than 35 words, with its place
    python benchmarks/count_words.py --long 35 --docstrings

Counted are README.md, CONTRIBUTING.md, SECURITY.md, AGENTS.md and the pages in docs. A page or a block that a script writes is not, nor are
blocks of code, comments, directives and the fragments of the changelog. The words of a link count, its target does not; cells of tables
count as words, and each cell is text of its own. A sentence ends at `.`, `!` or `?` before what is no small letter, or with its
paragraph, item or cell. Code in backticks is one word.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
TOP = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "AGENTS.md")
WHOLE = re.compile(r"<!-- (?:Written|Generated) by docs/generate_(?!refusals)[^>]*?-->")
BLOCK = re.compile(r"<!-- [^>]*?[Ww]ritten by docs/generate_(?:refusals|program)[^>]*?-->.*?<!-- end -->", re.DOTALL)
TABLE = re.compile(r"<!-- The table is written by [^>]*?-->\n+(?:\|[^\n]*\n)+")
FENCE = re.compile(r"^( *)(`{3,}|:{3,}).*?^\1\2 *$", re.DOTALL | re.MULTILINE)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
LINK = re.compile(r"!?\[((?:[^\]\[]|\[[^\]]*\])*)\](?:\([^)]*\)|\[[^\]]*\])")
ITEM = re.compile(r"\s*(?:[*+-]|\d+\.) +")
ANCHOR = re.compile(r"^\([\w-]+\)=\s*$|^\[[^\]]+\]: .*$", re.MULTILINE)
END = re.compile(r"(?<=[.!?])[)\"”*_]*\s+(?=[^a-z\s])|(?<=[.!?]\*\*)\s+")
SHORT = re.compile(r"\b(?:e\.g|i\.e|vs|etc|cf|approx|no)\.$")


def pages(checkout: Path) -> Iterator[Path]:
    """Yield the pages that people write, the changelog not included."""
    yield from (checkout / name for name in TOP if (checkout / name).exists())
    found = sorted((checkout / "docs").rglob("*.md"))
    yield from (path for path in found if not {"_build", "changelog.d"} & set(path.parts) and path.name != "changelog.md")


def prose(page: str) -> str:
    """Return the text of a page that a person wrote, without code, comments, directives and targets of links."""
    if WHOLE.search(page):
        return ""
    for pattern in (BLOCK, TABLE, FENCE, COMMENT, ANCHOR):
        page = pattern.sub("", page)
    return re.sub(r"`[^`\n]+`", lambda code: code[0].replace(" ", "\u00a0"), LINK.sub(r"\1", page))


def pieces(text: str) -> Iterator[str]:
    """Yield the paragraphs, items, headings and cells of prose, each on one line."""
    gathered: list[str] = []
    for line in [*text.splitlines(), ""]:
        row = line.lstrip().startswith("|")
        if not line.strip() or row or line.startswith("#") or ITEM.match(line):
            if gathered:
                yield " ".join(gathered)
            gathered = []
        if row:
            yield from (cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")) if re.search(r"\w", cell))
        elif line.strip():
            gathered.append(ITEM.sub("", line, count=1).strip() if ITEM.match(line) else line.lstrip("# ").strip())


def words(text: str) -> int:
    """Return the number of words of a text: what stands between spaces and has a letter or a digit."""
    return sum(bool(re.search(r"\w", word)) for word in re.split(r"[ \t\n]+", text))


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of prose; short pieces without an end, such as headings and names in cells, are none."""
    for piece in pieces(text):
        begun = ""
        for part in END.split(piece):
            begun = f"{begun} {part}".strip()
            if not SHORT.search(begun):
                yield from [begun] if is_sentence(begun) else ()
                begun = ""
        yield from [begun] if is_sentence(begun) else ()


def is_sentence(text: str) -> bool:
    """Return True for what has an end or the length of a sentence."""
    return words(text) >= 8 or (words(text) > 1 and text.rstrip(')*_`"').endswith((".", "!", "?", ":")))


def docstrings(checkout: Path) -> Iterator[tuple[str, str]]:
    """Yield the docstrings of public modules, classes, functions and attributes, with their places."""
    for path in sorted((checkout / "claude_transport").rglob("*.py")):
        for line, text in docstrings_of(ast.parse(path.read_text("utf-8")).body, whole=True):
            yield f"{path.relative_to(checkout)}:{line}", text


def docstrings_of(body: list[ast.stmt], *, whole: bool) -> Iterator[tuple[int, str]]:
    """Yield the lines and texts of the docstrings in a body. That of a function has no attributes."""
    for number, node in enumerate(body):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from [(node.lineno, inspect.cleandoc(node.value.value))] if whole or not number else ()
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield from docstrings_of(node.body, whole=isinstance(node, ast.ClassDef))


def plain(text: str) -> str:
    """Return a docstring without its examples and the headings of its sections."""
    text = re.sub(r"^(?:Args|Raises|Returns|Yields|Attributes|Example|Usage):$", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"^( +\w+): ", r"\n* \1: ", FENCE.sub("", text), flags=re.MULTILINE)
    return prose(text)


def long_sentences(texts: Iterator[tuple[str, str]]) -> list[tuple[int, str, str]]:
    """Return the length, the place and the text of each sentence."""
    return [(words(sentence), place, sentence) for place, text in texts for sentence in sentences(text)]


def documentation(checkout: Path) -> Iterator[tuple[str, str]]:
    """Yield the names of the pages that people write, and their prose."""
    yield from ((path.relative_to(checkout).as_posix(), prose(path.read_text("utf-8"))) for path in pages(checkout))


def explained(checkout: Path) -> Iterator[tuple[str, str]]:
    """Yield the places of the public docstrings, and their prose."""
    yield from ((place, plain(text)) for place, text in docstrings(checkout))


def shares(found: list[tuple[int, str, str]]) -> str:
    """Return how many sentences there are, and how many are long."""
    over = [sum(length > bound for length, *_ in found) for bound in (25, 35)]
    return f"{len(found):,} sentences, {100 * over[0] / len(found):.1f} % over 25 words, {over[1]} over 35"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", nargs="?", type=Path, default=HERE)
    parser.add_argument("--long", type=int)
    parser.add_argument("--docstrings", action="store_true")
    chosen = parser.parse_args()
    texts = [*(explained if chosen.docstrings else documentation)(chosen.checkout.resolve())]
    found = long_sentences(iter(texts))
    if chosen.long is not None:
        for length, place, sentence in sorted(found, key=lambda one: (one[1], -one[0])):
            if length > chosen.long:
                print(f"{place}: {length}: {sentence}")
    elif not chosen.docstrings:
        for name, text in texts:
            print(f"{words(text):6} {name}")
    print(f"{sum(words(text) for _, text in texts):6,} words in all; {shares(found)}")


if __name__ == "__main__":
    main()
