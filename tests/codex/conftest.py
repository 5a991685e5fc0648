"""What the tests on the real `codex` binary share: where it is, and a clean world to run it in. Nothing leaves the loopback interface."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from codex_world import CodexHome

from claude_transport.codex import CodexOptions
from claude_transport.codex.features import codex_supports, find_feature
from claude_transport.launch.discovery import ask_cli_version
from claude_transport.testing import FakeResponsesAPI

NOX_CACHE = Path(__file__).parents[2] / ".nox" / ".cache" / "codex"
HINT = "run `nox -s e2e`, which fetches it from npm, or pass --codex-binary PATH"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that needs a behaviour which this Codex does not have: it says so with `@pytest.mark.codex_needs(name)`."""
    names = [name for mark in item.iter_markers("codex_needs") if mark.kwargs.get("when", "") in item.name for name in mark.args]
    if not names:
        return
    if unknown := [name for name in names if find_feature(name) is None]:
        pytest.fail(f"codex_needs(...) names what the table of features does not have: {unknown}", pytrace=False)
    version = ask_cli_version(binary_under_test(item.config))
    if missing := [name for name in names if codex_supports(name, version=version) is False]:
        pytest.skip(f"codex {version} has not: {', '.join(missing)}")


@pytest.fixture(scope="session")
def codex_binary(request: pytest.FixtureRequest) -> str:
    """The path of the real binary. Where there is none, the test is skipped, and fails where CI is set."""
    return binary_under_test(request.config)


def binary_under_test(config: pytest.Config) -> str:
    given = config.getoption("--codex-binary") or os.environ.get("CODEX_BINARY")
    cached = sorted(NOX_CACHE.glob("*/vendor/*/bin/codex"))
    binary = Path(given) if given else cached[-1] if cached else None
    if binary is not None and os.access(binary, os.X_OK):
        return str(binary.absolute())
    what = f"no codex at {binary}: {HINT}" if binary else f"no codex binary: {HINT}"
    if given or os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


@pytest.fixture
def codex_home(tmp_path: Path) -> CodexHome:
    """Empty directories for one Codex. It never sees those of the user."""
    made = CodexHome(home=tmp_path / "home", codex=tmp_path / "home" / ".codex", project=tmp_path / "project")
    made.codex.mkdir(parents=True)
    made.project.mkdir()
    return made


@pytest.fixture
async def responses_api(anyio_backend: str) -> AsyncIterator[FakeResponsesAPI]:
    """A Responses API on loopback; `responses_api.replace(script)` sets its script."""
    async with FakeResponsesAPI() as api:
        yield api


@pytest.fixture
async def codex_options(codex_binary: str, codex_home: CodexHome, responses_api: FakeResponsesAPI) -> CodexOptions:
    """Options for the real Codex in empty homes, with a model that `responses_api` plays, and nothing of the tests' own environment."""
    (codex_home.codex / "config.toml").write_text(
        f"""
model = "gpt-5.5"
model_provider = "lab"
check_for_update_on_startup = false
[features]
plugins = false
[analytics]
enabled = false
[feedback]
enabled = false
[model_providers.lab]
name = "lab"
base_url = "{responses_api.url}/v1"
wire_api = "responses"
env_key = "LAB_KEY"
request_max_retries = 1
stream_max_retries = 1
""",
        "utf-8",
    )
    world = {"HOME": str(codex_home.home), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "TERM": "dumb", "LAB_KEY": "sk-lab"}
    # Below its folder for temporary files codex writes a warning to standard error at each start, whatever folder pytest uses.
    world["TMPDIR"] = str(codex_home.home.parent)
    return CodexOptions(codex_path=codex_binary, codex_home=codex_home.codex, cwd=codex_home.project, env=world, env_mode="exact")
