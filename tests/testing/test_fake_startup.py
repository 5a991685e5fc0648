"""The steps of a start are played before a fake reads its standard input, so it answers nothing before them."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from polling import a_moment

import claude_transport as ct
from claude_transport.codex import CodexOptions, CodexSession
from claude_transport.testing import CodexScenario, FakeClaude, FakeCodex, Scenario, steps

PATIENCE = 30.0


async def start(fake: Any) -> BaseException | None:
    """Start a session with the fake, and return why it failed."""
    try:
        with anyio.fail_after(PATIENCE):
            if isinstance(fake, FakeClaude):
                await ct.Query(ct.SubprocessTransport(ct.ClaudeOptions(cli_path=fake.path))).start()
            else:
                async with CodexSession(ct.SubprocessTransport(CodexOptions(codex_path=fake.path))):
                    pass
    except ct.ClaudeTransportError as error:
        return error
    return None


def claude(*startup: steps.Step) -> FakeClaude:
    return FakeClaude(Scenario(startup=startup))


def codex(*startup: Any) -> FakeCodex:
    return FakeCodex(CodexScenario(startup=startup))


both = pytest.mark.parametrize("make", [claude, codex])
ENDS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((steps.Exit(1),), {"exit_code": 1, "signal": None, "stderr_tail": ""}),
    ((steps.Stderr("it hurts\n"), steps.Exit(3)), {"exit_code": 3, "signal": None, "stderr_tail": "it hurts"}),
    ((steps.Delay(0.01), steps.Exit(4)), {"exit_code": 4, "signal": None, "stderr_tail": ""}),
    ((steps.DieBySignal("SIGKILL"),), {"exit_code": None, "signal": 9, "stderr_tail": ""}),
]


@both
@pytest.mark.parametrize(("startup", "facts"), ENDS, ids=["exit", "stderr and exit", "delay and exit", "signal"])
async def test_a_fake_that_ends_in_its_start_answers_nothing(make: Any, startup: tuple[Any, ...], facts: dict[str, Any]) -> None:
    with make(*startup) as fake:
        error = await start(fake)
        assert isinstance(error, ct.ProcessError)
        assert error.code == "exec.cli.exited"
        assert {name: getattr(error, name) for name in facts} == facts
        assert fake.calls()[0].messages == []


async def test_a_fake_that_hangs_in_its_start_answers_nothing() -> None:
    with claude(steps.Stderr("stuck\n"), steps.Hang()) as fake:
        transport = ct.SubprocessTransport(ct.ClaudeOptions(cli_path=fake.path), close_timeout=0.1)
        with pytest.raises(ct.ConnectTimeout) as caught:
            await ct.Query(transport, initialize_timeout=1.0).start()
        assert (caught.value.code, caught.value.waited) == ("connect.timeout", 1.0)
        assert fake.calls()[0].messages == []


@both
async def test_a_fake_that_waits_in_its_start_answers_after_that(make: Any) -> None:
    with make(steps.WaitForFile("go")) as fake, anyio.fail_after(PATIENCE):
        outcome: list[object] = []
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                outcome.append(await start(fake))

            tasks.start_soon(run)
            while not fake.calls():
                await a_moment()
            assert fake.calls()[0].messages == []
            fake.open_gate("go")
        assert outcome == [None]
