"""A transport in place of another one whose options name the session: what the second process is told, here and at another end."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import pytest

import claude_transport as ct
from claude_transport.transports import Client, options_to_resume

sys.path.insert(0, str(Path(__file__).parents[1]))
from containers import running_daemon

PATIENCE = 30.0
ID = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
SHOW = f"""#!{sys.executable}
import json, sys
named = [argument for argument in sys.argv if {ID!r} in argument]
print(json.dumps({{"type": "argv", "argv": named}}), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    """A claude that says which of its arguments name the session."""
    path = tmp_path / "claude-that-shows"
    path.write_text(SHOW)
    path.chmod(0o700)
    return str(path)


async def told(transport: ct.SubprocessTransport) -> list[str]:
    """The arguments of its process that name the session."""
    with anyio.fail_after(PATIENCE):
        async with transport:
            message = await anext(transport.read_messages())
    argv: list[str] = message["argv"]
    return argv


async def test_here_it_is_the_disk_that_says_whether_there_is_a_session_to_resume(tmp_path: Path, program: str) -> None:
    options = ct.ClaudeOptions(cli_path=program, session_id=ID, cwd=tmp_path, env={"CLAUDE_CONFIG_DIR": str(tmp_path / "config")})

    def make() -> ct.SubprocessTransport:
        return ct.SubprocessTransport(options_to_resume(options))

    assert await told(make()) == [f"--session-id={ID}"]
    assert await told(make()) == [f"--session-id={ID}"]
    name = "".join(c if c.isalnum() else "-" for c in str(tmp_path.resolve()))
    folder = tmp_path / "config" / "projects" / name
    folder.mkdir(parents=True)
    (folder / f"{ID}.jsonl").touch()
    third = make()
    assert await told(third) == [f"--resume={ID}"]
    assert third.attach(Client()).session_id == ID
    (folder / f"{ID}.jsonl").unlink()
    assert await told(make()) == [f"--session-id={ID}"]


async def test_at_another_end_it_is_whether_there_was_a_prompt(tmp_path: Path, program: str) -> None:
    options = ct.ClaudeOptions(cli_path=program, session_id=ID)
    with running_daemon(tmp_path) as clients:
        launcher = ct.Launcher.docker("box", program=str(clients / "docker"))
        for was_prompted, argument in [(False, f"--session-id={ID}"), (True, f"--resume={ID}")]:
            again = options_to_resume(options, is_saved=was_prompted)
            assert await told(ct.SubprocessTransport(again, launcher=launcher)) == [argument]
