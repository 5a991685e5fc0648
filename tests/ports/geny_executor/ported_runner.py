"""The process runner of geny-executor over claude_transport: lines in both directions, a time limit, and no process left behind."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
from geny_executor.llm_client import _cli_runtime as theirs

import claude_transport as ct


class CLIProcessRunner(theirs.CLIProcessRunner):
    """Runs one CLI. A process that was started ahead, and a command without lines, still go the old way."""

    async def stream(
        self, argv: Sequence[str], *, stdin_iter: AsyncIterator[bytes] | None = None, prespawned: Any = None
    ) -> AsyncGenerator[bytes, None]:
        """Yield the lines of standard output as they come, with their newlines."""
        if prespawned is not None and prespawned.returncode is None:
            async for line in super().stream(argv, stdin_iter=stdin_iter, prespawned=prespawned):
                yield line
            return
        env = theirs.scrub_env(os.environ, whitelist=self.env_whitelist, extras=self.env_extras)
        options = ct.ClaudeOptions(env=env, env_mode="exact", cwd=self.cwd)
        transport = ct.SubprocessTransport(options, command=[self.binary, *argv], close_timeout=2 * self.kill_grace_s)
        ends_at = time.monotonic() + self.timeout_s
        try:
            async with transport, _fed(transport, stdin_iter):
                batches = aiter(transport.read_lines())
                while True:
                    with anyio.fail_after(max(ends_at - time.monotonic(), 0)):
                        batch = await anext(batches, None)
                    if batch is None:
                        return
                    for line in batch:
                        yield line + b"\n"
        except TimeoutError as exc:
            raise theirs.CLITimeout(f"stream timeout after {self.timeout_s:.1f}s") from exc
        except ct.ProcessError as exc:
            tail = "".join(exc.stderr_tail).strip()[:400]
            raise theirs.CLIProtocolError(f"CLI {self.binary!r} exited with code {exc.exit_code}: {tail}") from exc


@asynccontextmanager
async def _fed(transport: ct.Transport, chunks: AsyncIterator[bytes] | None) -> AsyncIterator[None]:
    """Write `chunks` while the block runs, and then end the input."""

    async def feed() -> None:
        if chunks is not None:
            async for chunk in chunks:
                await transport.write(chunk.decode())
        await transport.end_input()

    feeding = asyncio.create_task(feed())
    try:
        yield
    finally:
        feeding.cancel()
        await asyncio.wait([feeding])
