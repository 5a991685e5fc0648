"""What a session takes that is not this library: the real `claude`, with one turn behind it, against a loopback API.

`python benchmarks/bench_claude.py [--sessions N] [--claude PATH]` prints memory and processor time of one process, as the system counts
them, beside those of this one. Memory that processes share counts once. Linux only. Without `--claude` it takes the binary of the
official SDK.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import resource
import tempfile
from pathlib import Path

import anyio

from claude_transport import ClaudeOptions, Query, SubprocessTransport
from claude_transport.testing import FakeMessagesAPI


def memory_of(pid: int | str) -> int:
    """Bytes of a process, with its part of what it shares."""
    found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8"), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def processor_seconds(pid: int) -> float:
    """Seconds of processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(claude: str, *, sessions: int, folder: Path) -> dict[str, float]:
    """Open some sessions with one turn each, and look at their processes."""
    before, own_before = memory_of("self"), resource.getrusage(resource.RUSAGE_SELF)
    async with FakeMessagesAPI() as api, anyio.create_task_group() as tasks:
        pids: list[int] = []
        ready, done = anyio.Event(), anyio.Event()

        async def converse(number: int) -> None:
            home = folder / str(number)
            home.mkdir()
            env = {"PATH": "/usr/bin:/bin", "HOME": str(home), "CLAUDE_CONFIG_DIR": str(home), "TMPDIR": str(home), **api.environment()}
            options = ClaudeOptions(cli_path=claude, cwd=home, env=env, env_mode="exact")
            async with Query(SubprocessTransport(options)) as query:
                await (await query.send("Hello")).result()
                assert query.info.pid is not None
                pids.append(query.info.pid)
                if len(pids) == sessions:
                    ready.set()
                await done.wait()

        for number in range(sessions):
            tasks.start_soon(converse, number)
        await ready.wait()
        await anyio.sleep(3)
        used = resource.getrusage(resource.RUSAGE_SELF)
        own = used.ru_utime + used.ru_stime - own_before.ru_utime - own_before.ru_stime
        figures = {
            "claude_mb": sum(map(memory_of, pids)) / sessions / 1e6,
            "claude_processor_s": sum(map(processor_seconds, pids)) / sessions,
            "host_mb_a_session": (memory_of("self") - before) / sessions / 1e6,
            "host_and_api_processor_s": own / sessions,
        }
        done.set()
    return {name: round(value, 3) for name, value in figures.items()}


def main() -> None:
    """Measure, and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=4)
    parser.add_argument("--claude")
    asked = parser.parse_args()
    sdk = importlib.util.find_spec("claude_agent_sdk")
    assert asked.claude or (sdk is not None and sdk.origin is not None), "the official SDK, which carries a binary, is not installed"
    claude = asked.claude or str(Path(str(sdk and sdk.origin)).parent / "_bundled" / "claude")
    with tempfile.TemporaryDirectory(prefix="ct-") as folder:
        print(json.dumps(anyio.run(lambda: measure(claude, sessions=asked.sessions, folder=Path(folder))), indent=2))


if __name__ == "__main__":
    main()
