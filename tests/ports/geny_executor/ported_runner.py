"""The process runner of geny-executor over claude_transport: lines in both directions, a time limit, and no process left behind."""

import asyncio
import contextlib
import os
import time

from geny_executor.llm_client import _cli_runtime as theirs

import claude_transport as ct


class CLIProcessRunner(theirs.CLIProcessRunner):
    """Runs one CLI. A process that was started ahead, and a command without lines, still go the old way."""

    async def stream(self, argv, *, stdin_iter=None, prespawned=None):
        """Yield the lines of standard output as they come, with their newlines."""
        if prespawned is not None and prespawned.returncode is None:
            async for line in super().stream(argv, stdin_iter=stdin_iter, prespawned=prespawned):
                yield line
            return
        env = theirs.scrub_env(os.environ, whitelist=self.env_whitelist, extras=self.env_extras)
        options = ct.ClaudeOptions(env=env, env_mode="exact", cwd=self.cwd)
        ends_at = time.monotonic() + self.timeout_s
        try:
            async with ct.SubprocessTransport(options, command=[self.binary, *argv], close_timeout=2 * self.kill_grace_s) as transport:
                feeding = asyncio.create_task(_feed(transport, stdin_iter or theirs.aiter_bytes(None)))
                try:
                    batches = aiter(transport.read_lines())
                    while batch := await asyncio.wait_for(anext(batches, None), ends_at - time.monotonic()):
                        for line in batch:
                            yield line + b"\n"
                finally:
                    feeding.cancel()
        except TimeoutError as exc:
            raise theirs.CLITimeout(f"stream timeout after {self.timeout_s:.1f}s") from exc
        except ct.ProcessError as exc:
            raise theirs.CLIProtocolError(f"CLI {self.binary!r} exited with code {exc.exit_code}: {exc.stderr_tail.strip()[:400]}") from exc


async def _feed(transport, chunks):
    with contextlib.suppress(ct.ClaudeTransportError):  # the reader is told, too
        async for chunk in chunks:
            await transport.write(chunk)
        await transport.end_input()
