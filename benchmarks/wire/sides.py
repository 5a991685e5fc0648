"""`Sides`: the two sending processes, started once for all measurements, and their URLs."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread

from wire.fast_side import fast_side
from wire.flow import Flow
from wire.gateway_side import gateway_side

__all__ = ["Sides", "serve", "serving"]

_SCRIPT = Path(__file__).parent.parent / "bench_network.py"


@dataclass(frozen=True)
class Sides:
    """The `urls` by name, the lines that are sent, and the client's TLS settings."""

    urls: dict[str, str]
    flow: Flow
    tls: ssl.SSLContext


@contextmanager
def serving(folder: Path, *, count: int) -> Iterator[Sides]:
    """Run both processes inside the block. They serve `count` lines to each reader."""
    import trustme

    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
    flow = Flow.write(folder, count=count)
    running, urls = [], {}
    try:
        for kind in ("fast", "gateway"):
            command = [sys.executable, str(_SCRIPT), "--serve", kind, str(folder), str(flow.times), str(flow.count)]
            running.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        for process in running:
            assert process.stdout is not None
            urls |= json.loads(process.stdout.readline())
        yield Sides(urls, flow, ssl.create_default_context(cafile=folder / "authority.pem"))
    finally:
        for process in running:
            process.communicate(timeout=30)  # they exit at the end of their input


def serve(kind: str, folder: str, times: str, count: str) -> None:
    """Run one of the processes until standard input ends."""
    path = Path(folder)
    flow = Flow(path / "flow.ndjson", int(times), int(count))
    if kind == "fast":
        print(json.dumps(fast_side(path, flow)), flush=True)
        sys.stdin.read()
    else:
        anyio.run(_serve_gateways, path, flow)


async def _serve_gateways(folder: Path, flow: Flow) -> None:
    async with gateway_side(folder, flow) as urls:
        print(json.dumps(urls), flush=True)
        await anyio.to_thread.run_sync(sys.stdin.read)
