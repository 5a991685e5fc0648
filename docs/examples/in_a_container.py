"""A claude in a container, reached by `docker exec`; a stand-in for docker runs here what it is asked to run there."""

from __future__ import annotations

import tempfile
from pathlib import Path

import anyio

import claude_transport as ct
from claude_transport.testing import FakeClaude, Scenario

STAND_IN = """\
#!/bin/sh
# docker exec [--interactive] CONTAINER COMMAND...
shift
[ "$1" = --interactive ] && shift
[ "$1" = agent-box ] || { echo "Error response from daemon: No such container: $1" >&2; exit 1; }
shift
exec "$@"
"""


def stand_in(path: Path) -> Path:
    path.write_text(STAND_IN)
    path.chmod(0o700)
    return path


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder, FakeClaude(Scenario.echo()) as claude:
        docker = stand_in(Path(folder, "docker"))

        options = ct.ClaudeOptions(cli_path=claude.path)  # without cli_path, the claude on the PATH of the container
        launcher = ct.Launcher.docker("agent-box", program=str(docker))
        async with ct.Query(ct.SubprocessTransport(options, launcher=launcher)) as query:
            turn = await query.send("Hello in there")
            print((await turn.result()).result)

        elsewhere = ct.Launcher.docker("agent-box-2", program=str(docker))
        try:
            await ct.SubprocessTransport(options, launcher=elsewhere).connect()
        except ct.CLIConnectionError as error:
            print(type(error).__name__, error.code)
            print(str(error).rpartition("from daemon: ")[2].strip())


if __name__ == "__main__":
    anyio.run(main)
