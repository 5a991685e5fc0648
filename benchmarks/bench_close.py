"""What closing a session costs on a machine with thousands of other processes: beside the official SDK, and beside one listing of `/proc`.

    python benchmarks/bench_close.py                                 a table: 0, 2,000 and 5,000 other processes
    python benchmarks/bench_close.py --backend trio --json close.json
    python benchmarks/bench_close.py --check                         fails when a close costs more than promised
    python benchmarks/bench_close.py --quick                         few closes and few processes

The other processes are forks of one small program. They wait for the end of a pipe, so they end with this benchmark, however it ends.
Sessions are closed one after the other. The processor time is that of the host with all its threads, and of the processes that it collects
meanwhile: the child and the guard. The child is a `cat`, which exits at the end of its input. Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio

OTHERS = (0, 2_000, 5_000)
SUBJECTS = ("ours", "official")
ALLOWED_MS = 3.0
"""Processor time that other processes may cost a close, above one listing of `/proc`."""

CROWD = """
import os, sys
ours, theirs = os.pipe()
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        os.close(theirs)
        os.close(0)
        os.read(ours, 1)
        os._exit(0)
os.write(1, b"up\\n")
os.read(0, 1)
"""


@contextlib.contextmanager
def crowd(count: int) -> Iterator[None]:
    """Run that many more processes inside the block."""
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", CROWD, str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        if parent.stdout.readline() != b"up\n":
            raise SystemExit(f"{count} processes cannot be started here (ulimit -u, kernel.pid_max)")
        time.sleep(1.5)  # the sweep reads younger processes twice
        yield
        parent.communicate()


# In a process of its own.


def processor_seconds() -> float:
    """Return the processor seconds of this process, its threads and its collected children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


async def close_one_by_one(subject: str, peer: str, closes: int) -> list[list[float]]:
    """Return processor time and clock of each close, in milliseconds. The first close is not counted, because it imports modules."""
    taken = []
    for _ in range(closes + 1):
        close = await connect(subject, peer)
        cpu, clock = processor_seconds(), time.perf_counter()
        await close()
        taken.append([(processor_seconds() - cpu) * 1000, (time.perf_counter() - clock) * 1000])
    return taken[1:]


async def connect(subject: str, peer: str) -> Callable[[], Awaitable[object]]:
    """Open a session, and return the function that closes it."""
    if subject == "ours":
        import claude_transport as ct

        ours = ct.SubprocessTransport(command=[peer])
        await ours.connect()
        return ours.close
    from claude_agent_sdk import ClaudeAgentOptions
    from claude_agent_sdk._internal.transport.subprocess_cli import SubprocessCLITransport

    official = SubprocessCLITransport(prompt="", options=ClaudeAgentOptions(cli_path=peer))
    await official.connect()
    return official.close


def listing() -> float:
    """Return the processor time of one listing of `/proc`, in milliseconds: the median of twenty."""
    taken = []
    for _ in range(20):
        began = time.process_time()
        os.listdir("/proc")  # noqa: PTH208 - a Path would cost more than the listing
        taken.append((time.process_time() - began) * 1000)
    return statistics.median(taken)


# The measuring.


def measure(subject: str, *, peer: str, closes: int, backend: str) -> list[list[float]]:
    """Measure all closes of one subject, in a process of its own."""
    command = [sys.executable, __file__, "--subject", subject, "--peer", peer, "--closes", str(closes), "--backend", backend]
    env = {**os.environ, "CLAUDE_AGENT_SDK_SKIP_VERSION_CHECK": "1"}
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600, env=env)
    samples: list[list[float]] = json.loads(ran.stdout)
    return samples


def summarise(samples: list[list[float]]) -> dict[str, float]:
    """Return median and 95th percentile of processor time and clock."""
    summary = {}
    for place, name in enumerate(("cpu", "clock")):
        ranked = sorted(sample[place] for sample in samples)
        summary[name] = statistics.median(ranked)
        summary[f"{name} p95"] = ranked[round(0.95 * (len(ranked) - 1))]
    return summary


def broken_promises(rows: list[dict[str, Any]]) -> list[str]:
    """Return a sentence for each promise that is not kept."""
    ours = [row for row in rows if row["subject"] == "ours"]
    quiet = ours[0]
    said = []
    for row in ours:
        more = row["cpu"] - quiet["cpu"] - row["listing"]
        if more > ALLOWED_MS:
            said.append(f"{row['others']} others: {more:.1f} ms above a quiet close and one listing, more than {ALLOWED_MS:g} ms")
    return said


def print_table(machine: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    print(f"{'ms for one close':<28}{'processor':>11}{'p95':>8}{'clock':>9}{'p95':>8}{'one listing':>13}")
    for row in rows:
        name = f"{row['others']} others, {row['subject']}"
        figures = f"{row['cpu']:>11.2f}{row['cpu p95']:>8.2f}{row['clock']:>9.2f}{row['clock p95']:>8.2f}"
        print(f"{name:<28}{figures}{row['listing']:>13.2f}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--closes", type=int, default=100, help="closes for each row (default %(default)d)")
    parser.add_argument("--others", type=int, nargs="+", default=OTHERS, help="how many other processes (default 0 2000 5000)")
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio")
    parser.add_argument("--quick", action="store_true", help="20 closes, 0 and 300 other processes")
    parser.add_argument("--check", action="store_true", help=f"fail when other processes cost more than {ALLOWED_MS:g} ms and one listing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample there, too")
    parser.add_argument("--subject", choices=SUBJECTS, help=argparse.SUPPRESS)
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.quick:
        given.closes, given.others = 20, (0, 300)
    return given


def main() -> None:
    given = arguments()
    if given.subject:
        print(json.dumps(anyio.run(close_one_by_one, given.subject, given.peer, given.closes, backend=given.backend)))
        return
    if sys.platform != "linux":
        raise SystemExit("this benchmark needs /proc, so Linux")
    rows: list[dict[str, Any]] = []
    samples: dict[str, list[list[float]]] = {}
    with tempfile.TemporaryDirectory(prefix="ct-close-") as place:
        peer = Path(place, "claude")
        peer.write_text("#!/bin/sh\nexec cat\n")
        peer.chmod(0o755)
        for others in given.others:
            with crowd(others):
                for subject in SUBJECTS:
                    taken = measure(subject, peer=str(peer), closes=given.closes, backend=given.backend)
                    samples[f"{others} others, {subject}"] = taken
                    rows.append({"others": others, "subject": subject, **summarise(taken), "listing": listing()})
    machine = {"python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}", "cpus": os.cpu_count()}
    machine |= {"load": round(os.getloadavg()[0], 1), "backend": given.backend, "closes": given.closes}
    if given.json is not None:
        given.json.write_text(json.dumps({"unit": "ms", "machine": machine, "rows": rows, "samples": samples}, indent=1) + "\n", "utf-8")
    print_table(machine, rows)
    if given.check and (said := broken_promises(rows)):
        raise SystemExit("\n".join(said))


if __name__ == "__main__":
    main()
