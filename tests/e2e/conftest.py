"""What the tests on the real `claude` binary share: where it is, and a clean world to run it in. Nothing leaves the loopback interface."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cli_under_test import binary_under_test, version_under_test
from live_session import Live

from claude_transport.testing import FakeMessagesAPI

HERE = Path(__file__).parent

# The CLI opens TMPDIR/cc-socks/<pid>.sock. A socket path holds 103 bytes on macOS and 107 on Linux; where it does not fit, CLI 2.1.329
# silently uses /tmp/cc-socks-<uid>, which is not ours to fill.
LONGEST_TMPDIR = 103 - len("/cc-socks/4194304.sock")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder is `e2e`."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.e2e)


@dataclass(frozen=True)
class CLIHome:
    """The directories of one CLI: a HOME, a configuration, a project to work in, a place for temporary files."""

    home: Path
    config: Path
    project: Path
    tmp: Path


@pytest.fixture(scope="session")
def claude_cli(request: pytest.FixtureRequest) -> str:
    """The path of the real binary (see `cli_under_test`)."""
    return binary_under_test(request.config)


@pytest.fixture(scope="session")
def cli_version(request: pytest.FixtureRequest) -> str:
    """Its version."""
    return version_under_test(request.config)


@pytest.fixture
def cli_home(tmp_path: Path) -> Iterator[CLIHome]:
    """An empty home for one CLI, and all of it gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="ct-", ignore_cleanup_errors=True) as short:
        tmp = tmp_path / "t"
        if len(os.fsencode(tmp)) > LONGEST_TMPDIR:
            tmp = Path(short) / "t"
        home = CLIHome(home=tmp_path / "home", config=tmp_path / "config", project=tmp_path / "project", tmp=tmp)
        for directory in (home.home, home.config, home.project, home.tmp):
            directory.mkdir()
        yield home


@pytest.fixture
def cli_env(cli_home: CLIHome) -> Callable[..., dict[str, str]]:
    """`cli_env(api, **extra)`: the whole environment of a CLI that talks to `api`; nothing of the tests' own environment is in it."""

    def environment(api: FakeMessagesAPI, **extra: str) -> dict[str, str]:
        clean = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(cli_home.home),
            "CLAUDE_CONFIG_DIR": str(cli_home.config),
            "TMPDIR": str(cli_home.tmp),
            "LANG": "C.UTF-8",
            # The engine's compiler for code that runs for long: no session of a test is long, and this saves a fifth of its processor time.
            "BUN_JSC_useDFGJIT": "0",
        }
        return {**clean, **api.environment(**extra)}

    return environment


@pytest.fixture
def live(claude_cli: str, cli_home: CLIHome, cli_env: Callable[..., dict[str, str]]) -> Live:
    """`async with live(script, **arguments) as session`: the real CLI, in a clean world, with a model that follows the script."""
    return Live(claude_cli, cli_home, cli_env)
