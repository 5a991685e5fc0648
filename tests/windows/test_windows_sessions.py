"""Sessions with child processes on Windows: what they say, how they end, and that nothing is left of them."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from windows_processes import Watched, is_wine

from claude_transport import ClaudeOptions, Query, SubprocessTransport
from claude_transport.errors import (
    CLINotFoundError,
    ConfigurationError,
    NotExecutableError,
    ProcessError,
    SpawnError,
    WorkingDirectoryError,
)
from claude_transport.platform.winapi import count_handles
from claude_transport.streams.address import StreamAttribute
from claude_transport.streams.process import ProcessConnectable, ProcessStream
from claude_transport.testing import FakeClaude, Scenario

SLEEPER = "import time; print('up', flush=True); time.sleep(600)"
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
{then}
"""
CTRL_C = "import signal; signal.raise_signal(signal.SIGINT); await anyio.sleep(60)"
HOST = """
import sys, anyio
from claude_transport.streams.process import ProcessConnectable

async def main():
    stream = await ProcessConnectable([sys.executable, "-c", sys.argv[1]]).connect()
    print(stream.extra_attributes[sys.modules["claude_transport.streams.address"].StreamAttribute.pid](), flush=True)
    print((await stream.receive()).decode().strip(), flush=True)
    THEN

anyio.run(main)
"""


async def started(code: str, *arguments: str, **options: object) -> ProcessStream:
    return await ProcessConnectable([sys.executable, "-c", code, *arguments], **options).connect()  # type: ignore[arg-type]


def fact(stream: ProcessStream, attribute: object) -> object:
    return stream.extra_attributes[attribute]()


async def test_a_conversation_with_a_program() -> None:
    with FakeClaude(Scenario()) as fake:
        async with Query(SubprocessTransport(command=fake.command)) as query:
            result = await (await query.send("Grüße, 漢字")).result()
        assert result.result == "Grüße, 漢字"
        (call,) = fake.calls()
        assert call.exit_code == 0


async def test_a_conversation_with_the_batch_file_that_npm_installs() -> None:
    with FakeClaude(Scenario()) as fake:
        assert fake.path.suffix == ".cmd"
        async with Query(SubprocessTransport(ClaudeOptions(cli_path=fake.path))) as query:
            result = await (await query.send("Hello")).result()
        assert result.result == "Hello"


async def test_initialize_is_answered_within_five_seconds() -> None:
    with FakeClaude(Scenario()) as fake:
        with anyio.fail_after(5):
            query = Query(SubprocessTransport(command=fake.command))
            await query.start()
        assert query.initialization is not None
        await query.aclose()


async def test_a_failed_program_is_reported_with_its_exit_code_and_its_last_words() -> None:
    stream = await started("import sys; sys.stderr.write('it broke'); sys.exit(3)")
    with pytest.raises(ProcessError) as caught:
        await stream.receive()
    assert (caught.value.exit_code, caught.value.signal, caught.value.stderr_tail) == (3, None, "it broke")
    await stream.aclose()


async def test_a_program_that_ends_well_ends_the_stream() -> None:
    stream = await started("import sys; sys.stdout.write(sys.stdin.read())")
    await stream.send(b"all of it")
    await stream.send_eof()
    assert await stream.receive() == b"all of it"
    with pytest.raises(anyio.EndOfStream):
        await stream.receive()
    await stream.aclose()
    assert fact(stream, StreamAttribute.exit_code) == 0
    assert fact(stream, StreamAttribute.killed) is False


async def test_a_stubborn_program_and_what_it_started_are_ended_in_time() -> None:
    stream = await started(PARENT.format(then="time.sleep(600)"), close_timeout=0.5)
    child = Watched(int(await stream.receive()))
    with anyio.fail_after(5):
        await stream.aclose()
    assert child.ends_within(5)
    child.close()
    assert fact(stream, StreamAttribute.killed) is True


async def test_what_a_program_leaves_behind_is_ended_with_the_stream() -> None:
    stream = await started(PARENT.format(then=""), close_timeout=2.0)
    child = Watched(int(await stream.receive()))
    assert not child.ends_within(0)
    await stream.aclose()
    assert child.ends_within(5)
    child.close()


@pytest.mark.skipif(is_wine(), reason="GenerateConsoleCtrlEvent of wine 8 refuses a console without a window")
async def test_a_program_that_ends_on_ctrl_break_is_not_killed() -> None:
    code = "import signal, sys, time\nsignal.signal(signal.SIGBREAK, lambda *_: sys.exit(7))\nprint('up', flush=True)\n"
    stream = await started(code + "while True: time.sleep(0.05)", close_timeout=5.0)
    await stream.receive()
    await stream.aclose()
    assert fact(stream, StreamAttribute.exit_code) == 7


def run_host(then: str, code: str) -> tuple[subprocess.Popen[str], list[Watched]]:
    """Start a program that starts `code`, which starts a child. Return the host, and the two processes that it must not leave behind."""
    host = subprocess.Popen([sys.executable, "-c", HOST.replace("THEN", then), code], stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None
    return host, [Watched(int(host.stdout.readline())) for _ in range(2)]


@pytest.mark.parametrize(
    "then",
    [
        "await anyio.sleep_forever()",
        "return",
        "import os; os._exit(1)",
        CTRL_C,
    ],
    ids=["killed", "never closed", "exits at once", "ctrl-c"],
)
def test_nothing_is_left_of_a_host(then: str) -> None:
    host, left = run_host(then, PARENT.format(then="time.sleep(600)"))
    if "forever" in then:
        assert not any(each.ends_within(0) for each in left)
        host.kill()
    host.wait(30)
    assert all(each.ends_within(10) for each in left)
    for each in left:
        each.close()
    if host.stdout is not None:
        host.stdout.close()


async def test_two_hundred_sessions_leak_no_handle() -> None:
    async def session() -> None:
        stream = await started("import sys; sys.stdout.write(sys.stdin.read())")
        await stream.send(b"hello\n")
        await stream.send_eof()
        assert await stream.receive() == b"hello\r\n"
        await stream.aclose()

    for _ in range(5):
        await session()
    gc.collect()
    before = count_handles()
    assert before
    for _ in range(20):
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(session)
    gc.collect()
    assert (count_handles() or 0) <= before + 10


async def test_the_environment_has_each_name_once_whatever_its_case() -> None:
    env = {**os.environ, "Claude_Answer": "first", "CLAUDE_ANSWER": "last"}
    code = "import os; os.write(1, (os.environ['claude_answer'] + os.environ['SYSTEMROOT'][:2]).encode())"
    stream = await started(code, env=env)
    assert (await stream.receive()).lower() == b"lastc:"
    await stream.aclose()


async def test_a_program_that_cannot_be_started_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(CLINotFoundError):
        await ProcessConnectable(["no-such-program"]).connect()
    with pytest.raises(WorkingDirectoryError):
        await ProcessConnectable([sys.executable], cwd=tmp_path / "missing").connect()
    (tmp_path / "text.exe").write_text("no program")
    with pytest.raises(NotExecutableError):
        await ProcessConnectable([str(tmp_path / "text.exe")]).connect()
    with pytest.raises(SpawnError, match="40"):
        await ProcessConnectable([sys.executable, "x" * 40_000]).connect()
    with pytest.raises(ConfigurationError):
        await ProcessConnectable([sys.executable], user="guest").connect()


@pytest.mark.parametrize("name", ["claude.cmd", "claude.cmd.", "claude.CMD ", "claude.cmd:stream", "claude.cmd\\x\\.."])
async def test_a_batch_file_never_gets_an_argument_that_its_shell_could_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "claude.cmd").write_text("@echo %*\r\n")
    with pytest.raises((ConfigurationError, CLINotFoundError)) as caught:
        await ProcessConnectable([f"{tmp_path}\\{name}", '"&calc.exe']).connect()
    if isinstance(caught.value, CLINotFoundError):
        assert not Path(f"{tmp_path}\\{name}").is_file()


async def test_a_bare_name_is_looked_for_on_the_path_of_the_child_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "planted.cmd").write_text("@echo planted\r\n")
    with pytest.raises(CLINotFoundError):
        await ProcessConnectable(["planted"]).connect()
    stream = await ProcessConnectable(["planted"], env={**os.environ, "PATH": str(tmp_path)}).connect()
    assert (await stream.receive()).startswith(b"planted")
    await stream.aclose()


def test_the_selector_loop_of_asyncio_is_refused_with_the_remedy() -> None:
    async def start() -> None:
        await started(SLEEPER)

    with (
        asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner,
        pytest.raises(ConfigurationError, match="ProactorEventLoop") as caught,
    ):
        runner.run(start())
    assert caught.value.code == "config.unsupported_event_loop"


def test_ctrl_c_in_the_host_reaches_the_host_alone() -> None:
    async def main() -> ProcessStream:
        stream = await started(SLEEPER)
        await stream.receive()
        signal.raise_signal(signal.SIGINT)
        await anyio.sleep(60)
        return stream

    with pytest.raises(KeyboardInterrupt):
        anyio.run(main)
    gc.collect()
