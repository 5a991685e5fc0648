"""A claude at the other end of ssh, whose questions are answered here. The other machine is this one: an sshd of its own, on loopback."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio

import claude_transport as ct
from claude_transport.testing import FakeClaude, Scenario, ScriptedTurn, steps
from claude_transport.testing.conformance.sshd import missing_for_sshd, running_sshd

LOGIN = "echo Welcome to this machine.\n"
STAND_IN = f'#!/bin/sh\n# what ssh does with its last argument, done here\n{LOGIN}for command; do :; done\nexec sh -c "$command"\n'


@contextmanager
def other_machine() -> Iterator[ct.Launcher]:
    """What `ct.Launcher.ssh("build")` is to you; where no sshd is installed, with a stand-in for ssh."""
    if not missing_for_sshd():
        with running_sshd(login_script=LOGIN) as server:
            yield server.launcher()
        return
    with tempfile.TemporaryDirectory() as folder:
        stand_in = Path(folder, "ssh")
        stand_in.write_text(STAND_IN)
        stand_in.chmod(0o700)
        yield ct.Launcher.ssh("build", program=str(stand_in))


async def ask(tool: str, tool_input: dict[str, Any], _context: ct.client.CallbackContext) -> ct.Allow | ct.Deny:
    print(f"asked here: {tool} {tool_input['command']!r}")
    return ct.Allow()


def far_claude() -> FakeClaude:
    """Stands in for the claude there: it wants to run one command."""
    question = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "make"}, "tool_use_id": "toolu_1"}
    return FakeClaude(Scenario(replies=[ScriptedTurn([steps.Request(question), steps.Text("It is built."), steps.Result()])]))


async def main() -> None:
    with other_machine() as launcher, far_claude() as claude:
        options = ct.ClaudeOptions(cli_path=claude.path, env={"ANTHROPIC_API_KEY": "sk-ant-never-on-a-command-line"})
        transport = ct.SubprocessTransport(options, launcher=launcher)
        async with ct.Query(transport, can_use_tool=ask) as query:
            turn = await query.send("Build it.")
            async for message in turn:
                if isinstance(message, ct.AssistantMessage):
                    print(message.text)
        print(f"{transport.info.kind}, exit code {transport.info.exit_code}")
        print("what the login said, left out:", transport.info.noise_lines)

        try:
            await ct.SubprocessTransport(options.replace(cli_path="/opt/no-claude-here"), launcher=launcher).connect()
        except ct.CLINotFoundError as error:
            print(error.code)


if __name__ == "__main__":
    anyio.run(main)
