"""Which `claude` the end-to-end tests run, and what becomes of a test that needs more than this one has.

`--claude-binary PATH` names it; without the option it is the one inside the official SDK, which is not imported. A test says what it needs
with `@pytest.mark.needs("--restricted", "get_status")`: names of the table in `claude_transport.launch.features`; `when="text"` limits
that to the parametrised tests with this text in their name. Where the binary lacks
one, the library has to refuse with a `CLIVersionMismatch` that names the feature and the version, and nothing else passes. A behaviour of
the CLI cannot be refused: such a test is skipped, with the reason.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from claude_transport.errors import CLIVersionMismatch
from claude_transport.launch.discovery import ask_cli_version
from claude_transport.launch.features import Feature, find_feature, supports

__all__ = ["binary_under_test", "lacking", "mismatches", "version_under_test"]

BINARY = "claude.exe" if os.name == "nt" else "claude"
HINT = "install the dependency group `test`, pass --claude-binary PATH, or pass -m 'not e2e'"


def binary_under_test(config: pytest.Config) -> str:
    """The path of the binary; the test fails when there is none."""
    given: str | None = config.getoption("--claude-binary")
    if given is not None:
        if not os.access(given, os.X_OK):
            pytest.fail(f"--claude-binary {given} is no executable file")
        return str(Path(given).absolute())
    found = importlib.util.find_spec("claude_agent_sdk")
    if found is None or found.origin is None:
        pytest.fail(f"the e2e tests run the binary inside claude-agent-sdk: {HINT}")
    binary = Path(found.origin).parent / "_bundled" / BINARY
    if not os.access(binary, os.X_OK):
        pytest.fail(f"no executable at {binary}: {HINT}")
    return str(binary)


def version_under_test(config: pytest.Config) -> str:
    """The version of that binary, which is asked for it at most once."""
    version = ask_cli_version(binary_under_test(config))
    if version is None:
        pytest.fail(f"{binary_under_test(config)} does not say its version")
    return version


def lacking(item: pytest.Item) -> list[Feature]:
    """What the test needs, and the binary lacks."""
    names = [name for mark in item.iter_markers("needs") if mark.kwargs.get("when", "") in item.name for name in mark.args]
    features = [find_feature(name) for name in names]
    if None in features:
        pytest.fail(f"needs(...) names what the table of features does not have: {names}", pytrace=False)
    version = version_under_test(item.config) if names else None
    return [feature for feature in features if feature is not None and supports(feature.name, version=version) is False]


def mismatches(error: BaseException) -> Iterator[CLIVersionMismatch]:
    """The mismatches of versions in an error, in a group of errors, and among their causes."""
    if isinstance(error, CLIVersionMismatch):
        yield error
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from mismatches(one)
    if error.__cause__ is not None:
        yield from mismatches(error.__cause__)
