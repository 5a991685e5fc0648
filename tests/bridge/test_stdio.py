"""The program of the bridge, as a process: it carries messages, and answers requests itself when the host is gone."""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from bridge_peers import PATIENCE, bridge_process, text_of

import claude_transport as ct
from claude_transport.bridge.configuration import BridgeSettings, read_bridge_settings
from claude_transport.bridge.stdio import StdioBridge
from claude_transport.errors import ClaudeTransportError, ConfigurationError, ConnectTimeout, ProcessError, ProtocolError
from claude_transport.protocol.framing import LineFramer
from claude_transport.streams.address import Address, parse_address

TOKEN = "a-token-that-is-long-enough"
GONE = -32000


class Tools:
    def __init__(self) -> None:
        self.waiting = anyio.Event()
        self.cancelled = anyio.Event()

    async def echo(self, given: dict[str, Any], _context: ct.bridge.ToolContext) -> str:
        return str(given["text"])

    async def wait(self, _given: dict[str, Any], context: ct.bridge.ToolContext) -> str:
        context.report_progress(1)
        self.waiting.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            self.cancelled.set()
            raise
        return "never"

    def host(self, **options: Any) -> ct.bridge.BridgeHost:
        return ct.bridge.BridgeHost(
            {"box": [ct.bridge.HostTool(name="echo", call=self.echo), ct.bridge.HostTool(name="wait", call=self.wait)]}, **options
        )


@pytest.fixture
def tools(anyio_backend: object) -> Tools:
    return Tools()


@pytest.mark.parametrize("listen", [None, "tcp://127.0.0.1:0"], ids=["unix", "tcp"])
async def test_the_cli_calls_a_tool_of_the_host_through_the_bridge(tools: Tools, listen: str | None) -> None:
    text = "ä\u2028" + "x" * 3_000_000
    async with tools.host(listen=listen) as host, bridge_process(host.mcp_servers["box"]) as client:
        assert (await client.shake_hands())["result"]["serverInfo"]["name"] == "box"
        assert text_of(await client.call("echo", text=text)) == text


async def test_a_cancellation_and_progress_go_through(tools: Tools) -> None:
    async with tools.host() as host, bridge_process(host.mcp_servers["box"]) as client:
        await client.shake_hands()
        await client.say("tools/call", id=7, name="wait", arguments={}, _meta={"progressToken": "p"})
        told = await client.next()
        assert (told["method"], told["params"]) == ("notifications/progress", {"progressToken": "p", "progress": 1})
        await client.say("notifications/cancelled", requestId=7)
        with anyio.fail_after(PATIENCE):
            await tools.cancelled.wait()


async def test_when_the_host_goes_open_and_later_calls_are_answered_with_an_error(tools: Tools) -> None:
    host = tools.host()
    await host.start()
    async with bridge_process(host.mcp_servers["box"]) as client:
        await client.shake_hands()
        await client.say("tools/call", id=7, name="wait", arguments={})
        with anyio.fail_after(PATIENCE):
            await tools.waiting.wait()
        await host.aclose()
        open_call, later_call = await client.answer(7), await client.call("echo", id=8, text="x")
        for answer in (open_call, later_call):
            assert (answer["error"]["code"], answer["error"]["data"]["code"]) == (GONE, "bridge.host_gone")
        await client.send(rb'{"jsonrpc":"2.0","id":"\ud800","method":"ping"}')  # half a surrogate pair, which JavaScript writes
        assert (await client.answer("\ud800"))["error"]["code"] == GONE
        await client.stream.send_eof()
        with pytest.raises(ProcessError) as ended:
            await client.next()
    assert ended.value.exit_code == 1
    assert "[bridge.host_gone]" in ended.value.stderr_tail


async def test_a_host_that_was_killed_is_told_of_at_once(anyio_backend: object, tmp_path: Path) -> None:
    """A host in its own process: it answers the greeting and the handshake only, and is killed while a call is open."""
    path = str(tmp_path / "s")
    code = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); print(flush=True); c, _ = s.accept()\n"
        "f = c.makefile('rwb', 0); f.readline(); f.write(b'{\"mcp_bridge\":1}\\n')\n"
        "for line in f: print(flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        async with bridge_process(ct.bridge.bridge_config(f"unix://{path}", token=TOKEN, server="box")) as client:
            await client.say("initialize", id=0)
            await anyio.to_thread.run_sync(process.stdout.readline)
            process.send_signal(signal.SIGKILL)
            assert (await client.answer(0))["error"]["data"]["code"] == "bridge.host_gone"


async def test_a_host_that_is_not_there_is_an_error_for_whoever_asks(anyio_backend: object, tmp_path: Path) -> None:
    async with bridge_process(ct.bridge.bridge_config(f"unix://{tmp_path}/none", token=TOKEN, server="box")) as client:
        answer = await client.shake_hands()
        assert (answer["error"]["code"], answer["error"]["data"]["code"]) == (GONE, "bridge.host_unreachable")


@pytest.mark.parametrize(("given", "words"), [({"token": TOKEN}, "token"), ({"server": "attic"}, "server")], ids=["token", "server"])
async def test_a_bridge_that_is_turned_away_says_why(tools: Tools, given: dict[str, str], words: str) -> None:
    async with tools.host() as host:
        config = ct.bridge.bridge_config(host.url, **{"token": host.token, "server": "box", **given})
        async with bridge_process(config) as client:
            error = (await client.shake_hands())["error"]
            assert error["data"]["code"] == "bridge.refused"
            assert words in error["message"]
            assert TOKEN not in error["message"]


async def test_what_answers_and_is_no_host_is_an_error_and_not_a_hang(anyio_backend: object) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connected, _ = listening.accept()
            with connected:
                connected.recv(4096)
                connected.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        answering = threading.Thread(target=answer)
        answering.start()
        config = ct.bridge.bridge_config(f"tcp://127.0.0.1:{listening.getsockname()[1]}", token=TOKEN, server="box")
        async with bridge_process(config) as client:
            assert (await client.shake_hands())["error"]["data"]["code"] == "bridge.protocol"
        await anyio.to_thread.run_sync(answering.join)


async def test_the_bridge_ends_well_when_its_input_does(tools: Tools) -> None:
    async with tools.host() as host, bridge_process(host.mcp_servers["box"]) as client:
        await client.shake_hands()
        await client.stream.send_eof()
        with pytest.raises(anyio.EndOfStream):
            await client.next()


def test_a_bridge_that_has_ended_leaves_no_connection_open(tmp_path: Path) -> None:
    address = parse_address(f"unix://{tmp_path}/s")
    (stdin, input_of_cli), (output_of_bridge, stdout) = os.pipe(), os.pipe()
    os.close(input_of_cli)
    with socket.socket(socket.AF_UNIX) as listening, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ResourceWarning)
        listening.bind(address.path)
        listening.listen()

        def answer() -> None:
            connected, _ = listening.accept()
            with connected, connected.makefile("rwb", 0) as lines:
                lines.readline()
                lines.write(b'{"mcp_bridge":1}\n')
                assert lines.read() == b""

        answering = threading.Thread(target=answer)
        answering.start()
        settings = BridgeSettings(address=address, token=TOKEN, server="box")
        assert StdioBridge(settings, stdin=stdin, stdout=stdout, on_failure=print).run()
        answering.join(PATIENCE)
        gc.collect()
    for descriptor in (stdin, output_of_bridge, stdout):
        os.close(descriptor)
    assert [str(each.message) for each in told] == []


def test_a_connection_to_the_host_that_breaks_is_told_of_with_the_reason(tmp_path: Path) -> None:
    address = parse_address(f"unix://{tmp_path}/s")
    (stdin, input_of_cli), (output_of_bridge, stdout) = os.pipe(), os.pipe()
    failures: list[ClaudeTransportError] = []

    def fail(failure: ClaudeTransportError) -> None:
        failures.append(failure)
        os.close(input_of_cli)

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address.path)
        listening.listen()

        def break_off() -> None:
            connected, _ = listening.accept()
            with connected, connected.makefile("rwb", 0) as lines:
                lines.readline()
                lines.write(b'{"mcp_bridge":1}\n')
                select.select([connected], [], [], PATIENCE)  # what is closed with input that nobody has read is reset

        breaking = threading.Thread(target=break_off)
        breaking.start()
        os.write(input_of_cli, b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        settings = BridgeSettings(address=address, token=TOKEN, server="box")
        assert not StdioBridge(settings, stdin=stdin, stdout=stdout, on_failure=fail).run()
        breaking.join(PATIENCE)
    for descriptor in (stdin, output_of_bridge, stdout):
        os.close(descriptor)
    (failure,) = failures
    assert failure.code == "bridge.host_gone"
    assert isinstance(failure.__cause__, ConnectionResetError)
    assert "reset" in str(failure)


async def test_several_bridges_at_once_do_not_disturb_each_other(tools: Tools) -> None:
    async with tools.host() as host, anyio.create_task_group() as tasks:

        async def talk(number: int) -> None:
            async with bridge_process(host.mcp_servers["box"]) as client:
                await client.shake_hands()
                for each in range(10):
                    assert text_of(await client.call("echo", id=each, text=f"{number}/{each}")) == f"{number}/{each}"

        for number in range(3):
            tasks.start_soon(talk, number)


async def test_a_project_with_modules_of_known_names_does_not_get_into_the_bridge(tools: Tools, tmp_path: Path) -> None:
    """The CLI starts its servers in the project, where a `socket.py` would be imported in place of Python's."""
    (tmp_path / "socket.py").write_text("raise SystemExit('hijacked')")
    async with tools.host() as host:
        config = host.mcp_servers["box"]
        ran = await anyio.to_thread.run_sync(
            lambda: subprocess.run(
                [config["command"], *config["args"]],
                input=b'{"jsonrpc":"2.0","id":0,"method":"ping"}\n',
                capture_output=True,
                env={"PATH": os.defpath, **config["env"]},
                cwd=tmp_path,
                timeout=PATIENCE,
                check=False,
            )
        )
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_the_token_is_in_the_environment_and_not_in_the_arguments() -> None:
    config = ct.bridge.bridge_config("unix:///run/host.sock", token=TOKEN, server="box")
    assert TOKEN not in str([config["command"], *config["args"]])
    assert TOKEN in config["env"].values()


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "tcp://example.org:1"},
        {"url": "wss://127.0.0.1:1/"},
        {"url": "nonsense"},
        {"token": "short"},
        {"token": "with a blank in the middle"},
        {"server": ""},
        {"command": "python"},
    ],
)
def test_a_configuration_that_could_not_work_is_refused(wrong: dict[str, Any]) -> None:
    given: dict[str, Any] = {"url": "unix:///run/host.sock", "token": TOKEN, "server": "box", **wrong}
    with pytest.raises(ConfigurationError) as refused:
        ct.bridge.bridge_config(given.pop("url"), **given)
    assert "blank in the middle" not in str(refused.value)


def test_without_its_environment_the_program_is_exit_code_2_and_names_what_is_missing() -> None:
    command = [sys.executable, "-m", "claude_transport", "mcp-bridge", "--server", "box"]
    ran = subprocess.run(command, input=b"", capture_output=True, env={"PATH": os.defpath}, timeout=PATIENCE, check=False)
    assert ran.returncode == 2
    assert b"CLAUDE_TRANSPORT_BRIDGE_URL" in ran.stderr
    assert ran.stdout == b""


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"x" * 100_000], ids=["http", "no line"])
def test_a_bridge_knows_what_is_no_host_by_what_it_says(said: bytes, tmp_path: Path) -> None:
    failure = failure_at(tmp_path, said)
    assert type(failure) is ProtocolError
    assert (str(failure), failure.code) == ("the program at this address is not the host of a bridge", "bridge.protocol")


def test_a_message_of_the_host_that_is_larger_than_any_line_ends_the_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("claude_transport.bridge.stdio.LineFramer", partial(LineFramer, max_line_bytes=1000))
    failure = failure_at(tmp_path, b'{"mcp_bridge":1}\n' + b"x" * 1001 + b"\n")
    assert type(failure) is ProtocolError
    assert (str(failure), failure.code) == ("the host sent a message of 1001 bytes", "bridge.too_large")


def failure_at(folder: Path, said: bytes) -> ClaudeTransportError:
    """Return the failure of a bridge whose host says this. Its input is open until then."""
    address = parse_address(f"unix://{folder}/s")
    (stdin, input_of_cli), (output_of_bridge, stdout) = os.pipe(), os.pipe()
    failures: list[ClaudeTransportError] = []

    def fail(failure: ClaudeTransportError) -> None:
        failures.append(failure)
        os.close(input_of_cli)

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address.path)
        listening.listen()

        def answer() -> None:
            connected, _ = listening.accept()
            with connected, connected.makefile("rwb", 0) as lines:
                lines.readline()
                with contextlib.suppress(OSError):  # a bridge that has read enough hangs up
                    connected.sendall(said)
                    lines.read()

        answering = threading.Thread(target=answer)
        answering.start()
        settings = BridgeSettings(address=address, token=TOKEN, server="box")
        assert not StdioBridge(settings, stdin=stdin, stdout=stdout, on_failure=fail).run()
        answering.join(PATIENCE)
    for descriptor in (stdin, output_of_bridge, stdout):
        os.close(descriptor)
    (failure,) = failures
    return failure


class Waits:
    """The timeouts that sockets get. Those in seconds are over at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[float | None] = []
        set_timeout = socket.socket.settimeout

        def hurry(connection: socket.socket, seconds: float | None) -> None:
            self.asked.append(seconds)
            set_timeout(connection, None if seconds is None else seconds / 500)

        monkeypatch.setattr(socket.socket, "settimeout", hurry)


@pytest.fixture(params=["unix", "tcp"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, Address]]:
    """A listening socket and its address."""
    if request.param == "unix":
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(tmp_path / "s"))
            listening.listen()
            yield listening, parse_address(f"unix://{tmp_path}/s")
    else:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            yield listening, parse_address(f"tcp://127.0.0.1:{listening.getsockname()[1]}")


def test_a_host_that_takes_a_connection_and_says_nothing_is_given_up(
    host: tuple[socket.socket, Address], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, address = host
    waits = Waits(monkeypatch)
    (stdin, input_of_cli), (output_of_bridge, stdout) = os.pipe(), os.pipe()
    failures: list[ClaudeTransportError] = []
    os.close(input_of_cli)
    assert not StdioBridge(
        BridgeSettings(address=address, token=TOKEN, server="box"), stdin=stdin, stdout=stdout, on_failure=failures.append
    ).run()
    for descriptor in (stdin, output_of_bridge, stdout):
        os.close(descriptor)
    (failure,) = failures
    assert isinstance(failure, ConnectTimeout)
    assert (failure.args[0], failure.code, failure.waited) == (
        f"the host at {address} did not answer within 10 s",
        "bridge.host_unreachable",
        10.0,
    )
    assert waits.asked == [10.0]


def test_an_admitted_bridge_waits_for_its_host_without_a_limit_and_sends_without_delay(
    host: tuple[socket.socket, Address], monkeypatch: pytest.MonkeyPatch
) -> None:
    listening, address = host
    waits = Waits(monkeypatch)
    made: list[socket.socket] = []
    without_delay: list[bool] = []
    connect = socket.create_connection

    def keep(*given: Any, **more: Any) -> socket.socket:
        made.append(connect(*given, **more))
        return made[-1]

    monkeypatch.setattr(socket, "create_connection", keep)
    (stdin, input_of_cli), (output_of_bridge, stdout) = os.pipe(), os.pipe()
    os.close(input_of_cli)

    def answer() -> None:
        connected, _ = listening.accept()
        with connected, connected.makefile("rwb", 0) as lines:
            lines.readline()
            without_delay.extend(each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0 for each in made)
            lines.write(b'{"mcp_bridge":1}\n')
            lines.read()

    answering = threading.Thread(target=answer)
    answering.start()
    settings = BridgeSettings(address=address, token=TOKEN, server="box")
    assert StdioBridge(settings, stdin=stdin, stdout=stdout, on_failure=print).run()
    answering.join(PATIENCE)
    for descriptor in (stdin, output_of_bridge, stdout):
        os.close(descriptor)
    assert waits.asked == [10.0, None]
    assert without_delay == [True] * len(made)


def test_settings_that_are_missing_are_named() -> None:
    with pytest.raises(ConfigurationError, match=r"a bridge needs CLAUDE_TRANSPORT_BRIDGE_URL and .* in its environment: bridge_config"):
        read_bridge_settings({})
