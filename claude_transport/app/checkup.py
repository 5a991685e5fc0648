"""`check_run`: one session of the real CLI from spawn to close, against a Messages API on this machine, timed step by step.

The CLI gets a home, a configuration and a project of its own, which are thrown away, a made-up key, and nothing of the
environment but what any program needs: no credential of the user can be used, and nothing leaves the machine.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio

from claude_transport.app.offline import simulated_claude
from claude_transport.app.report import Failure, Step, TestRun
from claude_transport.client.query import Query
from claude_transport.errors import ConnectTimeout, MissingResult, ProtocolError
from claude_transport.launch.options import ClaudeOptions
from claude_transport.protocol.diagnosis import error_for
from claude_transport.testing import FakeMessagesAPI, replies
from claude_transport.transports.subprocess import SubprocessTransport

ANSWER: Final = "The checkup has been answered."

HARMLESS: Final = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT")
"""The inherited variables that a program needs to run, and that hold no secret."""


class Checkup:
    """A test run of `cli_path`, or of the simulated Claude when that is None. `on_step` is told of each step when it is done."""

    def __init__(self, cli_path: str | None, *, timeout: float, on_step: Callable[[Step], Awaitable[object]]) -> None:
        self._cli_path = cli_path
        self._timeout = timeout
        self._on_step = on_step
        self._steps: list[Step] = []
        self._version: str | None = None
        self._transport: SubprocessTransport | None = None

    async def run(self) -> TestRun:
        """Spawn, initialise, ask, close: what came of it. Raises only what `on_step` meets when nobody reads its output."""
        error: Exception | None = None
        try:
            with anyio.fail_after(self._timeout):
                await self._run()
        except TimeoutError:
            error = ConnectTimeout(f"the test run did not end in {self._timeout:g} s", waited=self._timeout, code="exec.cli.timeout")
        except BrokenPipeError:
            raise  # of our own output: that of the child would be a typed error
        except Exception as caught:  # noqa: BLE001 - whatever goes wrong is what the doctor is asked to report
            error = caught
        return TestRun(
            ok=error is None,
            against="simulated" if self._cli_path is None else "claude",
            steps=tuple(self._steps),
            version=self._version,
            error=None if error is None else Failure.of(error),
        )

    async def give_up(self) -> None:
        """End the child at once; for interruptions."""
        if self._transport is not None:
            await self._transport.close()

    async def _run(self) -> None:
        async with self._options() as (options, came_to_us):
            self._transport = transport = SubprocessTransport(options)
            clock = _Clock()
            try:
                await transport.connect()
                await self._done("spawn", clock)
                await self._converse(transport, clock, came_to_us)
            finally:
                await transport.close()
            await self._done("close", clock)

    async def _converse(self, transport: SubprocessTransport, clock: _Clock, came_to_us: Callable[[], bool]) -> None:
        async with Query(transport, initialize_timeout=self._timeout) as query:
            self._version = query.initialization.claude_code_version
            await self._done("initialize", clock)
            turn = await query.send("This is a checkup.")
            async for _ in turn:
                if self._steps[-1].name == "initialize":
                    await self._done("first message", clock)
            result = await turn.result()
            await self._done("result", clock)
        failure = error_for(result)
        if failure is not None:
            raise failure
        if not came_to_us():
            raise ProtocolError(
                "claude answered, but did not ask the API of this checkup: managed settings of this machine send it elsewhere",
                category="configuration",
                code="doctor.other_api",
            )
        if not result.result:
            raise MissingResult("claude answered with nothing")

    async def _done(self, name: str, clock: _Clock) -> None:
        step = Step(name=name, ms=clock.lap())
        self._steps.append(step)
        await self._on_step(step)
        clock.lap()  # showing it is no part of the next step

    @asynccontextmanager
    async def _options(self) -> AsyncIterator[tuple[ClaudeOptions, Callable[[], bool]]]:
        """What to run, in a world of its own; and whether the answer came from there."""
        if self._cli_path is None:
            with simulated_claude(pace=0.0) as fake:
                yield ClaudeOptions(cli_path=fake.path, include_partial_messages=True), lambda: True
            return
        # a short name: the CLI puts a socket under TMPDIR, and a socket's path holds about a hundred bytes
        with tempfile.TemporaryDirectory(prefix="ct-", ignore_cleanup_errors=True) as folder:
            async with FakeMessagesAPI(replies.text(ANSWER, times=None)) as api:
                yield self._isolated(Path(folder), api), lambda: bool(api.conversation)

    def _isolated(self, folder: Path, api: FakeMessagesAPI) -> ClaudeOptions:
        places = {name: folder / name for name in ("home", "config", "project", "t")}
        for place in places.values():
            place.mkdir()
        home, temporary = str(places["home"]), str(places["t"])
        inherited = {name: os.environ[name] for name in HARMLESS if os.environ.get(name)}
        homes = {"HOME": home, "USERPROFILE": home, "APPDATA": home, "LOCALAPPDATA": home}
        temporaries = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), temporary)
        return ClaudeOptions(
            cli_path=self._cli_path,
            cwd=places["project"],
            config_dir=places["config"],
            env_mode="exact",
            env={**inherited, **(homes if sys.platform == "win32" else {"HOME": home}), **temporaries, **api.environment()},
            setting_sources=(),
            max_retries=0,
            include_partial_messages=True,
            no_session_persistence=True,
        )


class _Clock:
    """Laps, in milliseconds."""

    def __init__(self) -> None:
        self._last = time.perf_counter()

    def lap(self) -> float:
        now = time.perf_counter()
        elapsed, self._last = now - self._last, now
        return round(elapsed * 1000, 1)
