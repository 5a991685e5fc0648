"""The commands `worker`, `sessions` and `doctor --broker`, as processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from broker_server import BrokerServer, broker_server
from redis_server import free_port

import claude_transport as ct
from claude_transport.fleet import FleetTransport

PROGRAM = [sys.executable, "-m", "claude_transport"]


def run(*arguments: str, home: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, env={**environment(home), **env}, timeout=60, check=False)


def environment(home: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}


async def test_a_worker_from_the_command_line_serves_lists_and_drains(broker: BrokerServer, tmp_path: Path) -> None:
    arguments = [*PROGRAM, "worker", "--offline", "--label", "small", "--secret-env", "API_KEY"]
    env = {**environment(tmp_path), "CLAUDE_TRANSPORT_BROKER": broker.url, "API_KEY": "hidden"}
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    try:
        assert process.stdout is not None
        name = (await anyio.to_thread.run_sync(process.stdout.readline)).decode().strip()
        with anyio.fail_after(60):
            async with ct.Query(FleetTransport(broker.url, labels=["small"])) as query:
                assert not (await (await query.send("Hello")).result()).is_error
                text = await anyio.to_thread.run_sync(lambda: run("sessions", "--broker", broker.url, home=tmp_path).stdout)
                assert name in text
                assert "running" in text
                listed = await anyio.to_thread.run_sync(lambda: run("sessions", "--json", "--broker", broker.url, home=tmp_path).stdout)
                found: dict[str, Any] = msgspec.json.decode(listed)
                assert (found["waiting"], [each["worker"] for each in found["sessions"]]) == (0, [name])
        process.send_signal(signal.SIGTERM)
        _, said = await anyio.to_thread.run_sync(process.communicate)
        assert (process.returncode, b"hidden" in said) == (0, False)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
async def test_a_worker_that_waits_for_its_broker_obeys_a_signal(signum: signal.Signals, tmp_path: Path) -> None:
    """It would wait for a minute."""
    with socket.create_server(("127.0.0.1", 0)) as mute:  # it takes connections, and never answers
        mute.settimeout(30)
        url = f"redis://127.0.0.1:{mute.getsockname()[1]}/0"
        arguments = [*PROGRAM, "worker", "--broker", url, "--offline"]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(tmp_path)) as process:
            try:
                connection, _ = await anyio.to_thread.run_sync(mute.accept)  # it waits from now on
                with connection:
                    process.send_signal(signum)
                    out, said = await anyio.to_thread.run_sync(lambda: process.communicate(timeout=10))
            finally:
                process.kill()
    assert (process.returncode, out) == (0, b""), said.decode()


async def test_a_worker_from_the_command_line_has_a_name_and_pages(broker: BrokerServer, tmp_path: Path) -> None:
    port = free_port()
    arguments = [*PROGRAM, "worker", "--offline", "--name", "worker-0", "--metrics-port", str(port), "--host-name", "worker-0.example"]
    env = {**environment(tmp_path), "CLAUDE_TRANSPORT_BROKER": broker.url}
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    try:
        assert process.stdout is not None
        assert (await anyio.to_thread.run_sync(process.stdout.readline)).decode().strip() == "worker-0"
        async with await anyio.connect_tcp("127.0.0.1", port) as probe:
            await probe.send(b"GET /healthz HTTP/1.1\r\nHost: worker-0.example\r\n\r\n")
            with anyio.fail_after(30):
                assert (await probe.receive()).startswith(b"HTTP/1.1 200 ")
        process.send_signal(signal.SIGTERM)
        _, said = await anyio.to_thread.run_sync(process.communicate)
        assert process.returncode == 0
        assert f"http://127.0.0.1:{port}/metrics".encode() in said
    finally:
        process.kill()
        process.communicate()


def test_the_place_of_the_session_store_comes_from_the_environment_and_its_password_is_never_shown(
    broker: BrokerServer, tmp_path: Path
) -> None:
    store = "redis://user:pass-of-the-store@127.0.0.1:99999/0"
    done = run("worker", "--broker", broker.url, "--offline", home=tmp_path, CLAUDE_TRANSPORT_SESSION_STORE=store)
    assert (done.returncode, "pass-of-the-store" in done.stdout + done.stderr) == (2, False)


def test_the_wrong_use_of_the_commands_is_told(broker: BrokerServer, tmp_path: Path) -> None:
    cases: list[tuple[list[str], int, str]] = [
        (["sessions"], 2, "CLAUDE_TRANSPORT_BROKER"),
        (["sessions", "--broker", "http://x"], 2, "redis://"),
        (["sessions", "--broker", "redis://127.0.0.1:1/0"], 1, "cannot be reached"),
        (["sessions", "--broker", broker.url, "--stop", "none"], 2, "no session none"),
        (["worker", "--broker", "redis://127.0.0.1:1/0", "--offline"], 1, "cannot be reached"),
        (["worker", "--broker", broker.url, "--secret-env", "MISSING"], 2, "MISSING"),
        (["worker", "--broker", broker.url, "--offline", "--cli-path", "x"], 2, "--offline"),
        (["worker", "--broker", broker.url, "--metrics-port", "70000"], 2, "--metrics-port must be a number from 0 to 65535, not 70000"),
        (["worker", "--broker", broker.url, "--offline", "--metrics-port", str(broker.port)], 2, "already in use"),
    ]
    for arguments, code, words in cases:
        done = run(*arguments, home=tmp_path)
        assert (done.returncode, words in done.stderr) == (code, True), (arguments, done)


@pytest.mark.parametrize(("arguments", "code"), [(["--appendonly", "yes"], 0), (["--appendonly", "no"], 1)])
def test_doctor_says_whether_a_fleet_can_run_on_a_broker(tmp_path: Path, arguments: list[str], code: int) -> None:
    with broker_server(tmp_path / "b", *arguments) as server:
        done = run("doctor", "--broker", server.url, home=tmp_path)
        assert done.returncode == code
        assert ("Fault" in done.stdout) == bool(code)
        assert msgspec.json.decode(run("doctor", "--json", "--broker", server.url, home=tmp_path).stdout)["role"] == "master"
