"""What the tests of calls share: options that reach a fake API or a fake claude, and nothing of this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from call_errors import Waits

from claude_transport.launch.options import ClaudeOptions
from claude_transport.testing import FakeClaude, FakeMessagesAPI, Scenario

CREDENTIALS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_CUSTOM_HEADERS", "ANTHROPIC_MODEL")


@pytest.fixture(autouse=True)
def no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a choice nor a credential of whoever runs the tests."""
    for name in ("CLAUDE_TRANSPORT", "CLAUDE_CLI_PATH", *CREDENTIALS):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def api_options(fake_messages_api: FakeMessagesAPI) -> ClaudeOptions:
    """Options with which the API path reaches the fake API."""
    return ClaudeOptions(env=fake_messages_api.environment(), env_mode="exact")


@pytest.fixture
def cli_options(fake_claude: Callable[..., FakeClaude]) -> Callable[..., ClaudeOptions]:
    """`cli_options(scenario, **options)`: options with which the CLI path runs a fake claude."""

    def make(scenario: Scenario | None = None, **options: Any) -> ClaudeOptions:
        fake = fake_claude(scenario) if scenario is not None else fake_claude()
        return ClaudeOptions(**{"cli_path": fake.path, "env": {"PATH": "/usr/bin:/bin"}, "env_mode": "exact", **options})

    return make


@pytest.fixture
def waits() -> Waits:
    return Waits()
