"""The reference page of environment variables is what the tables say, and no variable of our own is missing from it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from loading import load_generator

PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def generator() -> Any:
    return load_generator("environment")


def test_the_committed_page_is_what_the_tables_of_variables_say(generator: Any) -> None:
    assert generator.PAGE.read_text("utf-8") == generator.render(), "run: python docs/generate_environment.py"


def test_main_writes_the_page_of_variables(generator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "PAGE", tmp_path / "page.md")
    generator.main()
    assert (tmp_path / "page.md").read_text("utf-8") == generator.render()


def test_every_variable_of_our_own_that_the_code_names_is_on_the_page(generator: Any) -> None:
    sources = "".join(path.read_text("utf-8") for path in (PROJECT / "claude_transport").rglob("*.py"))
    named = set(re.findall(r"[\"'`](CLAUDE_TRANSPORT(?:_[A-Z_]+)?)[\"'`=]", sources))
    assert {"CLAUDE_TRANSPORT", "CLAUDE_TRANSPORT_CHILD"} <= named
    assert sorted(name for name in named if f"`{name}`" not in generator.render()) == []


def test_every_variable_that_the_code_reads_by_name_is_among_those_that_are_read(generator: Any) -> None:
    package = PROJECT / "claude_transport"
    sources = "".join(path.read_text("utf-8") for path in package.rglob("*.py") if "testing" not in path.relative_to(package).parts)
    read = set(re.findall(r"(?:env|environ|environment|inherited|merged)(?:\.get\(|\[)\"([A-Za-z_]+)\"", sources))
    assert {"PATH", "HOME", "NO_COLOR", "ANTHROPIC_API_KEY", "IS_SANDBOX"} <= read
    told = generator.render().partition("## What a child gets")[0]
    assert sorted(name for name in read if f"`{name}`" not in told) == []


def test_the_page_names_every_policy_and_what_it_does_with_what_is_inherited(generator: Any) -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| [^|]*ANTHROPIC_AUTH_TOKEN[^|]*\| ([^|]+) \|$", generator.render(), re.MULTILINE))
    assert rows == {"subscription": "it is removed", "subscription_strict": "the session is refused", "api_key": "it is removed"}
