"""One launch reads each settings file once, whatever looks at it: the check, the permissions, the merge, the payer, the redactor."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from claude_transport import ClaudeOptions, Deny, Query, RetryPolicy, SubprocessTransport, complete
from claude_transport.client import CallbackContext
from claude_transport.errors import ConfigurationError
from claude_transport.testing import FakeClaude, Scenario, steps
from claude_transport.testing.scenario import ScriptedTurn

pytestmark = pytest.mark.filterwarnings("ignore:can_use_tool is not asked:UserWarning")

_opened: list[str] | None = None


def _listen(event: str, arguments: tuple[Any, ...]) -> None:
    if _opened is not None and event == "open" and str(arguments[0]).endswith(("settings.json", "settings.local.json")):
        _opened.append(Path(str(arguments[0])).name if "mine" in str(arguments[0]) else str(arguments[0]))


sys.addaudithook(_listen)  # it cannot be taken away again, but it listens only inside of the fixture


@pytest.fixture
def opened() -> Iterator[list[str]]:
    """The settings files that were opened in this process, in order."""
    global _opened
    _opened = []
    yield _opened
    _opened = None


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory with settings of the user, of the project, and `mine-settings.json`."""
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text('{"env": {"THEIRS": "2"}}')
    (tmp_path / "mine-settings.json").write_text(json.dumps({"permissions": {"allow": ["Read"]}, "env": {"MY_API_KEY": "k-very-secret"}}))
    return tmp_path


def options_of(project: Path, fake: FakeClaude, **more: Any) -> ClaudeOptions:
    env = {"HOME": str(project / "home"), "ANTHROPIC_API_KEY": "sk-ant-api03-nothing"}
    return ClaudeOptions(settings=project / "mine-settings.json", cwd=project, env=env, cli_path=fake.path, **more)


async def deny(*_: Any) -> Deny:
    return Deny()


async def fails(_tool: str, _input: dict[str, Any], _context: CallbackContext) -> Deny:
    raise ValueError("the key is k-very-secret")


VARIANTS: dict[str, dict[str, Any]] = {
    "a path": {},
    "a sandbox to merge": {"sandbox": {"enabled": True}},
    "bare": {"bare": True},
    "rules": {"allowed_tools": ["Edit"], "permission_mode": "acceptEdits"},
    "all": {"sandbox": {"enabled": True}, "bare": True, "allowed_tools": ["Edit"]},
}


@pytest.mark.parametrize("more", VARIANTS.values(), ids=VARIANTS)
async def test_one_start_reads_the_settings_file_once(project: Path, opened: list[str], more: dict[str, Any]) -> None:
    with FakeClaude(Scenario()) as fake:
        async with Query(SubprocessTransport(options_of(project, fake, **more)), can_use_tool=deny):
            pass
    assert opened == ["mine-settings.json"]


async def test_a_transport_alone_reads_it_once_too(project: Path, opened: list[str]) -> None:
    with FakeClaude(Scenario()) as fake:
        async with SubprocessTransport(options_of(project, fake, sandbox={"enabled": True}, bare=True)):
            pass
    assert opened == ["mine-settings.json"]


async def test_a_failing_callback_reads_no_settings_file_twice(project: Path, opened: list[str], caplog: pytest.LogCaptureFixture) -> None:
    ask = steps.Request.can_use_tool("Bash", input={"command": "ls"})
    scenario = Scenario(otherwise=ScriptedTurn(steps=[ask, steps.Result(text="fine")]))
    with FakeClaude(scenario) as fake:
        async with Query(SubprocessTransport(options_of(project, fake)), can_use_tool=fails) as query:
            await (await query.send("one")).result()
            await (await query.send("two")).result()
            assert query.failed_callbacks == 2
    assert sorted(opened) == sorted(set(opened))
    assert "k-very-secret" not in caplog.text
    assert "ValueError" in caplog.text


async def test_one_completion_reads_it_once_although_it_also_asks_who_pays(project: Path, opened: list[str]) -> None:
    with FakeClaude(Scenario()) as fake:
        completion = await complete("hello", options=options_of(project, fake), transport="cli", retry=RetryPolicy.none())
    assert completion.text
    assert opened.count("mine-settings.json") == 1


async def test_what_was_read_is_what_is_told_even_when_the_file_changes_meanwhile(project: Path) -> None:
    transport_options: dict[str, Any] = {"sandbox": {"enabled": True}}
    with FakeClaude(Scenario()) as fake:
        transport = SubprocessTransport(options_of(project, fake, **transport_options))
        (project / "mine-settings.json").write_text("no JSON")
        with pytest.raises(ConfigurationError, match="settings"):
            await transport.connect()
        (project / "mine-settings.json").write_text("{}")
        async with transport:  # a file that could not be read is read again
            pass
