"""The documentation stays short, and its sentences too: what a reader has to read is counted."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from loading import load_file

ROOT = Path(__file__).parent.parent
MOST_WORDS = 100_000
LONGEST = 35  # words of a sentence
LONG, SHARE = 25, 0.05  # of the sentences at most this share may have more words than this


@pytest.fixture(scope="module")
def counting() -> ModuleType:
    return load_file(ROOT / "benchmarks" / "count_words.py")


def test_people_wrote_at_most_a_hundred_thousand_words_of_documentation(counting: ModuleType) -> None:
    assert 50_000 < sum(counting.words(text) for _, text in counting.documentation(ROOT)) <= MOST_WORDS


@pytest.mark.parametrize("texts", ["documentation", "explained"])
def test_no_sentence_is_too_long_and_few_are_long(counting: ModuleType, texts: str) -> None:
    found = counting.long_sentences(getattr(counting, texts)(ROOT))
    assert len(found) > 4000
    assert [f"{place}: {length} words: {sentence}" for length, place, sentence in found if length > LONGEST] == []
    assert sum(length > LONG for length, *_ in found) / len(found) <= SHARE


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<!-- Written by docs/generate_codes.py: run it. -->\nMany words.", ""),
        ("One.\n<!-- options of ask: written by docs/generate_program.py -->\nTwo.\n<!-- end -->\nThree.", "One. Three."),
        ("One.\n```python\ntwo()\n```\n<!-- Three. -->\nFour.", "One. Four."),
        ("A [word](https://example.org/two) and ``.", "A word and ``."),
    ],
)
def test_only_what_people_wrote_is_counted(counting: ModuleType, page: str, text: str) -> None:
    assert " ".join(counting.prose(page).split()) == text


def test_a_sentence_ends_at_its_point_its_item_or_its_cell(counting: ModuleType) -> None:
    page = "One is here. Two is\nhere (e.g. `a b`)!\n\n* Three has no end but is long enough to count\n* Short\n\n| Four is here. | `x` |\n"
    found = [*counting.sentences(counting.prose(page))]
    assert found[0] == "One is here."
    assert found[2:] == ["Three has no end but is long enough to count", "Four is here."]
    assert counting.words(found[1]) == 5
