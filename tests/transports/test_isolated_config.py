"""Sessions with a configuration of their own share no file, however many run at once."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from claude_transport.client.query import Query
from claude_transport.errors import ConfigurationError
from claude_transport.launch.options import ClaudeOptions
from claude_transport.launch.validation import validate_options
from claude_transport.testing.fake_claude import FakeClaude
from claude_transport.testing.scenario import Scenario
from claude_transport.transports.subprocess import SubprocessTransport

SESSIONS = 20
PATIENCE = 120.0  # seconds; only a failure takes that long


async def test_s6_twenty_sessions_at_once_have_twenty_configurations_and_leave_none() -> None:
    with FakeClaude(Scenario.echo(), record_env=("CLAUDE_CONFIG_DIR",)) as fake:
        options = ClaudeOptions(cli_path=str(fake.path), isolated_config=True)
        at_once = anyio.Event()
        started = 0

        async def session() -> None:
            nonlocal started
            async with Query(SubprocessTransport(options)):
                started += 1
                if started == SESSIONS:
                    at_once.set()
                await at_once.wait()

        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                for _ in range(SESSIONS):
                    tasks.start_soon(session)
        folders = {call.env["CLAUDE_CONFIG_DIR"] for call in fake.calls()}
    assert len(folders) == SESSIONS
    assert not any(Path(folder).exists() for folder in folders)


@pytest.mark.parametrize("options", [ClaudeOptions(permission_mode="bypassPermissions"), ClaudeOptions(dangerously_skip_permissions=True)])
def test_s8_root_that_bypasses_permissions_is_refused_before_anything_runs_with_the_remedy(options: ClaudeOptions) -> None:
    with pytest.raises(ConfigurationError, match="as root") as caught:
        validate_options(options, uid=0)
    assert "allowed_tools" in str(caught.value)
    validate_options(options, uid=1000)
