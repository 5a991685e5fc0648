"""What stands on a transport, on Windows: gateway, network, pool, wrappers, tapes; and files that only their owner may use."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from claude_transport import (
    ClaudeOptions,
    Gateway,
    NetworkTransport,
    Query,
    RecordingTransport,
    ReplayTransport,
    SessionPool,
    SubprocessTransport,
)
from claude_transport.agents.warm_pool import read_rss_bytes
from claude_transport.errors import ConfigurationError, ConnectTimeout
from claude_transport.platform.winapi import is_running, make_private
from claude_transport.streams.process import ProcessConnectable
from claude_transport.testing import FakeClaude, Scenario
from claude_transport.testing.conformance.census import LASTING, Census
from claude_transport.transports.start_gate import StartGate

TOKEN = "a-token-that-is-long-enough"


async def answer(query: Query, prompt: str) -> str | None:
    return (await (await query.send(prompt)).result()).result


@pytest.mark.parametrize("scheme", ["tcp", "ws"])
@pytest.mark.parametrize("resume", [True, False], ids=["link", "plain"])
async def test_a_conversation_through_a_gateway(scheme: str, resume: bool) -> None:
    with FakeClaude(Scenario()) as fake:
        options = ClaudeOptions(cli_path=fake.path)
        async with Gateway(options, listen=[f"{scheme}://127.0.0.1:0"], tokens={"alice": TOKEN}) as gateway:
            (address,) = gateway.urls
            async with Query(NetworkTransport(address, token=TOKEN, resume=resume)) as query:
                assert await answer(query, "through") == "through"


async def test_sessions_of_a_pool() -> None:
    with FakeClaude(Scenario()) as fake:
        async with SessionPool(ClaudeOptions(cli_path=fake.path), warm=1, cap=2) as pool:
            for prompt in ("one", "two"):
                async with pool.acquire(timeout=30) as session:
                    assert await answer(session, prompt) == prompt


async def test_a_conversation_is_recorded_and_replayed(tmp_path: Path) -> None:
    tape = tmp_path / "tape.ndjson"
    with FakeClaude(Scenario()) as fake:
        async with Query(RecordingTransport(SubprocessTransport(command=fake.command), tape)) as query:
            assert await answer(query, "é") == "é"
    assert b"\r" not in tape.read_bytes()
    async with Query(ReplayTransport(tape)) as query:
        assert await answer(query, "é") == "é"


def test_unix_sockets_are_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="Unix sockets"):
        NetworkTransport("unix:///C:/door")


async def test_one_cli_starts_at_a_time(tmp_path: Path) -> None:
    gate = StartGate(tmp_path / "gate", timeout=0.1)
    async with gate.turn():
        with pytest.raises(ConnectTimeout):
            async with StartGate(tmp_path / "gate", timeout=0.1).turn():
                pass
    async with gate.turn():
        pass


async def test_paths_may_be_longer_than_260_characters(tmp_path: Path) -> None:
    folder = Path("\\\\?\\" + str(tmp_path), *["d" * 60] * 5)
    folder.mkdir(parents=True)
    assert len(str(folder)) > 300
    with FakeClaude(Scenario()) as fake:
        tape = folder / "tape.ndjson"
        async with Query(RecordingTransport(SubprocessTransport(command=fake.command), tape)) as query:
            assert await answer(query, "far down") == "far down"
    script = folder / "script.py"
    script.write_text("print('from far down')")
    stream = await ProcessConnectable([sys.executable, str(script)]).connect()
    assert (await stream.receive()).startswith(b"from far down")
    await stream.aclose()


def access_list(path: Path) -> str:
    """Return who may do what with a file, in the words of Windows (SDDL)."""
    load: Any = getattr(ctypes, "WinDLL")  # noqa: B009 - type checkers know it on Windows only
    security = load("advapi32", use_last_error=True)
    size, kind, text = ctypes.c_uint32(), 4, ctypes.c_wchar_p()
    security.GetFileSecurityW(str(path), kind, None, 0, ctypes.byref(size))
    descriptor = ctypes.create_string_buffer(size.value)
    assert security.GetFileSecurityW(str(path), kind, descriptor, size, ctypes.byref(size))
    assert security.ConvertSecurityDescriptorToStringSecurityDescriptorW(descriptor, 1, kind, ctypes.byref(text), None)
    return str(text.value)


EVERYONE, USERS, AUTHENTICATED = ";;;WD)", ";;;BU)", ";;;AU)"


def test_a_private_folder_and_what_is_made_in_it_are_for_their_owner_alone(tmp_path: Path) -> None:
    make_private(tmp_path)
    inside = tmp_path / "secret"
    inside.write_text("secret")
    make_private(inside)
    for path in (tmp_path, inside):
        found = access_list(path)
        assert not any(other in found for other in (EVERYONE, USERS, AUTHENTICATED))
    assert inside.read_text() == "secret"
    with pytest.raises(OSError, match=r".+"):
        make_private(tmp_path / "missing")


async def test_the_private_files_of_a_session_are_removed_at_its_end() -> None:
    with FakeClaude(Scenario()) as fake:
        options = ClaudeOptions(
            cli_path=fake.path, settings={"env": {"A": "x" * 20}}, agents={"a": {"description": "d" * 9000, "prompt": "p"}}
        )
        transport = SubprocessTransport(options)
        async with Query(transport) as query:
            await answer(query, "Hello")
        (call,) = fake.calls()
        paths = [Path(argument.partition("=")[2]) for argument in call.argv if "payload-" in argument]
    assert paths
    assert not any(path.exists() for path in paths)


def test_a_process_is_known_to_run_without_being_sent_ctrl_c() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    assert is_running(child.pid) is True
    assert (read_rss_bytes(child.pid) or 0) > 2**20
    child.kill()
    child.wait()
    assert is_running(child.pid) is not True or child.pid == os.getpid()


async def test_the_kit_sees_a_file_that_is_left_open(tmp_path: Path) -> None:
    before = await Census.rested()
    with (tmp_path / "left").open("wb"):
        assert await before.growth(patience=0.0, of=LASTING) == {"file descriptors": 1}
    assert await before.growth(patience=5.0, of=LASTING) == {}


def run_program(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "claude_transport", *arguments]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", timeout=60, check=False)


async def test_the_program_asks_and_inspects(tmp_path: Path) -> None:
    tape, page = tmp_path / "tape.ndjson", tmp_path / "page.html"
    with FakeClaude(Scenario()) as fake:
        assert run_program("ask", "--cli-path", str(fake.path), "Grüße").stdout == "Grüße\n"
        async with Query(RecordingTransport(SubprocessTransport(command=fake.command), tape)) as query:
            await answer(query, "Hello")
    shown = run_program("inspect", str(tape), "--html", str(page))
    assert shown.returncode == 0, shown.stderr
    assert "initialize" in shown.stdout
    assert page.read_text("utf-8").startswith("<!")
