"""A program in a pod, and its claude in the container beside it, reached by `kubectl exec`; a stand-in for kubectl runs it here."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import anyio

import claude_transport as ct
from claude_transport.testing import FakeClaude, Scenario

STAND_IN = """\
#!/bin/sh
# kubectl exec [OPTIONS] POD -- COMMAND...
[ "$4" = --container=claude ] || { echo "error: container not found" >&2; exit 1; }
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""


def beside_us(environ: Mapping[str, str] = os.environ, *, program: str = "kubectl") -> ct.Launcher:
    """The container `claude` of this pod, which is named by the downward API (see agent.yaml)."""
    return ct.Launcher.kubectl(environ["POD_NAME"], namespace=environ["POD_NAMESPACE"], container="claude", program=program)


def stand_in(path: Path) -> Path:
    path.write_text(STAND_IN)
    path.chmod(0o700)
    return path


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder, FakeClaude(Scenario.echo()) as claude:
        kubectl = stand_in(Path(folder, "kubectl"))

        launcher = beside_us({"POD_NAME": "agent-x7k2p", "POD_NAMESPACE": "lab"}, program=str(kubectl))
        print(launcher.address)
        options = ct.ClaudeOptions(cli_path=claude.path)  # without cli_path, the claude on the PATH of the image
        async with ct.Query(ct.SubprocessTransport(options, launcher=launcher)) as query:
            turn = await query.send("Hello next door")
            print((await turn.result()).result)


if __name__ == "__main__":
    anyio.run(main)
