"""A program without a free file descriptor: it does what a host does, and says how each step went. Run by `test_no_descriptors.py`.

Each scenario runs in a fork of its own, so that every import which was not made before happens without a descriptor.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import resource
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

import claude_transport as ct

CAT = ["cat"]
ANSWER = r'{"type":"control_response","response":{"subtype":"success","request_id":"\1","response":{}}}'
RESULT = '{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"","session_id":"s"}'
ANSWERING = [r"/mcp_reconnect/d", rf's/.*"request_id": *"\([^"]*\)".*/{ANSWER}/p', rf's/.*"type": *"user".*/{RESULT}/p']
CLAUDE = ["sed", "-u", "-n", *(part for command in ANSWERING for part in ("-e", command))]
DYING = ["sh", "-c", "read -r line; echo 'token: sk-ant-api03-abcdefgh' >&2; exit 3"]

Scenario = Callable[[], Awaitable[None]]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


@contextlib.contextmanager
def starved(free: int = 0) -> Iterator[None]:
    """Take every file descriptor but `free`."""
    taken: list[int] = []
    try:
        while True:
            taken.append(os.dup(0))
    except OSError:
        pass
    for fd in taken[len(taken) - free :]:
        os.close(fd)
    try:
        yield
    finally:
        for fd in taken[: len(taken) - free]:
            os.close(fd)


async def attempt(name: str, what: Callable[[], Awaitable[Any]]) -> Any:
    """Do it, and say how it went: `ok`, the code of a typed error with the reason of the system, or what was not typed."""
    outcome = "ok"
    value = None
    try:
        with anyio.fail_after(30):
            value = await what()
    except ct.ClaudeTransportError as exc:
        cause = exc.__cause__
        outcome = f"{type(exc).__name__} {exc.code}" + (f" <- {type(cause).__name__} {cause.errno}" if isinstance(cause, OSError) else "")
    except BaseException as exc:  # noqa: BLE001 - that is what is looked for
        traceback.print_exc(file=sys.stderr)
        outcome = f"UNTYPED {exc!r}"
    print(json.dumps([name, outcome]), flush=True)
    return value


class Said(logging.Handler):
    """Print what is logged as an error."""

    def emit(self, record: logging.LogRecord) -> None:
        print(json.dumps(["logged", record.getMessage()]), flush=True)


def has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


@scenario
async def a_session_that_is_connected() -> None:
    transport = ct.SubprocessTransport(command=CAT)
    await transport.connect()
    with starved():
        await attempt("write", lambda: transport.write('{"n":1}\nnoise\n{"n":2}'))
        messages = transport.read_messages()
        await attempt("read", lambda: anext(messages))
        await attempt("read past noise", lambda: anext(messages))
        await attempt("close", transport.close)


@scenario
async def a_child_that_dies() -> None:
    transport = ct.SubprocessTransport(command=DYING)
    await transport.connect()
    with starved():
        await attempt("write", lambda: transport.write('{"n":1}'))
        await attempt("read", lambda: anext(transport.read_messages()))
        await attempt("write again", lambda: transport.write('{"n":1}'))
        await attempt("close", transport.close)


@scenario
async def a_child_that_has_to_be_killed() -> None:
    transport = ct.SubprocessTransport(command=["sh", "-c", "trap '' TERM HUP; while :; do sleep 1; done"], close_timeout=0.5)
    await transport.connect()
    with starved():
        await attempt("close", transport.close)


def connects(command: list[str] | None = None, **options: Any) -> Scenario:
    """Connect with every number of free descriptors, until it works as with many."""

    async def connect() -> None:
        for free in range(16):
            arguments: dict[str, Any] = {"command": command} if command else {"options": ct.ClaudeOptions(**options)}
            transport = ct.SubprocessTransport(**arguments)
            with starved(free):
                await attempt(f"connect with {free}", transport.connect)
            await attempt(f"close after {free}", transport.close)

    return connect


SCENARIOS["a_connection"] = connects(CAT)
SCENARIOS["a_connection_to_nothing"] = connects(["no-such-program"])
SCENARIOS["a_connection_to_a_missing_path"] = connects(["/no/such/program"])
SCENARIOS["a_connection_with_files"] = connects(cli_path="/bin/cat", system_prompt="x" * 300_000, mcp_servers={"a": {"command": "b"}})


@scenario
async def a_conversation() -> None:
    async def deny(*_: object) -> ct.Allow:
        raise ValueError("on purpose")

    query = ct.Query(ct.SubprocessTransport(command=CLAUDE), can_use_tool=deny)
    await query.start()
    with starved():
        turn = await attempt("send", lambda: query.send("Hello"))
        await attempt("result", turn.result)
        await attempt("request", lambda: query.request("mcp_status"))
        await attempt("a request that is not answered", lambda: query.request("mcp_reconnect", serverName="a", timeout=0))
        await attempt("interrupt", query.interrupt)
        await attempt("close", query.aclose)


@scenario
async def a_conversation_that_is_begun() -> None:
    query = ct.Query(ct.SubprocessTransport(command=CLAUDE))
    with starved():
        await attempt("start", query.start)
        await attempt("close", query.aclose)


@scenario
async def a_conversation_on_a_mock() -> None:
    query = ct.Query(ct.MockTransport([json.loads(RESULT)]))
    with starved():
        await attempt("start", query.start)
        await attempt("close", query.aclose)


@scenario
async def a_one_shot() -> None:
    async def run() -> None:
        async for _ in ct.query("Hello", transport=ct.SubprocessTransport(command=CLAUDE)):
            pass

    with starved():
        await attempt("query", run)


@scenario
async def a_completion() -> None:
    env = {"ANTHROPIC_API_KEY": "sk-ant-api03-none", "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
    os.environ |= env
    with starved():
        await attempt("by the CLI", lambda: ct.complete("Hello", transport="cli", options=ct.ClaudeOptions(cli_path="/bin/cat")))
        await attempt("by the API", lambda: ct.complete("Hello", transport="api", retry=ct.RetryPolicy.none()))


@scenario
async def a_pool() -> None:
    with starved():
        async with ct.SessionPool(make_transport=lambda _options: ct.SubprocessTransport(command=CLAUDE), warm=0) as pool:

            async def acquire() -> None:
                async with pool.acquire():
                    pass

            await attempt("acquire", acquire)


@scenario
async def a_tape_that_is_begun() -> None:
    with tempfile.TemporaryDirectory() as folder:
        tape = Path(folder, "tape")
        transport = ct.RecordingTransport(ct.SubprocessTransport(command=CAT), tape)
        await transport.connect()
        with anyio.fail_after(30):
            while not tape.exists():
                await anyio.sleep(0.001)
        with starved():
            await attempt("write", lambda: transport.write('{"token":"sk-ant-api03-abcdefgh"}'))
            await attempt("read", lambda: anext(transport.read_messages()))
            await attempt("close", transport.close)
        print(json.dumps(["secrets that are redacted in the tape", tape.read_text().count("[secret]")]))


@scenario
async def a_tape_that_cannot_be_made() -> None:
    with tempfile.TemporaryDirectory() as folder:
        transport = ct.RecordingTransport(ct.MockTransport([{"n": 1}]), Path(folder, "tape"))
        with starved():
            await attempt("connect", transport.connect)
            await attempt("write", lambda: transport.write('{"n":1}'))
            await attempt("close", transport.close)
        print(json.dumps(["failure", type(transport.failure).__name__]))


def dials(url: str) -> Scenario:
    async def dial() -> None:
        transport = ct.NetworkTransport(url)
        with starved():
            await attempt("connect", transport.connect)
            await attempt("close", transport.close)

    return dial


for _scheme in ("tcp://127.0.0.1:9", "tcp://localhost:9", "tls://localhost:9", "ws://127.0.0.1:9", "wss://localhost:9", "unix:///no/such"):
    SCENARIOS[f"a_dial_to_{_scheme.replace(':', '').replace('/', '_')}"] = dials(_scheme)


@scenario
async def a_gateway() -> None:
    """Clients come while this many descriptors are free. Who gets no answer in half a second gets it when all are free again."""

    def receive(client: socket.socket, timeout: float) -> str | None:
        client.settimeout(timeout)
        with contextlib.suppress(TimeoutError):
            return client.recv(4096).decode()
        return None

    async with ct.Gateway(command=CAT, listen=["tcp://127.0.0.1:0"], modes=["plain"]) as gateway:
        for free in (0, 1, 2, 5, 8, 9, 12, 20):
            with socket.socket() as client:
                with starved(free):
                    client.connect(("127.0.0.1", int(gateway.urls[0].rpartition(":")[2])))
                    client.sendall(b'{"n":1}\n')
                    answer = await anyio.to_thread.run_sync(receive, client, 0.5)
                if answer is None:
                    answer = await anyio.to_thread.run_sync(receive, client, 30)
            print(json.dumps([f"client with {free}", "ok" if answer == '{"n":1}\n' else answer]), flush=True)


@scenario
async def a_question_of_an_mcp_server() -> None:
    from mcp.server import Server

    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    asked = {"type": "control_request", "request_id": "q", "request": {"subtype": "mcp_message", "server_name": "s", "message": message}}
    peer = [*CLAUDE[:-1], rf's/.*"type": *"user".*/{json.dumps(asked)}/p', "-e", f's/.*"request_id": *"q".*/{RESULT}/p']
    query = ct.Query(ct.SubprocessTransport(command=peer), mcp_servers={"s": Server("s")})
    await query.start()
    with starved():
        turn = await attempt("send", lambda: query.send("Hello"))
        await attempt("result, which comes after the answer", turn.result)
        await attempt("close", query.aclose)


def run(function: Scenario, backend: str) -> None:
    """Run one scenario, and say what it left."""
    files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    anyio.run(function, backend=backend)
    gc.collect()
    ends = time.monotonic() + 5  # the guard may stay that long after the last child
    while has_children() and time.monotonic() < ends:
        os.sched_yield()
    temporary = sorted(path.name for path in Path(tempfile.gettempdir()).glob("claude-transport-*"))
    print(json.dumps(["left", [len(os.listdir("/proc/self/fd")) - files, has_children(), temporary]]), flush=True)  # noqa: PTH208


def main() -> None:
    backend, *names = sys.argv[1:]
    # a host uses a name before it runs short: what happens inside of the names is looked at here
    assert all((ct.query, ct.complete, ct.SessionPool, ct.Query, ct.MockTransport, ct.RecordingTransport, ct.NetworkTransport, ct.Gateway))
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    logging.getLogger().addHandler(Said(logging.ERROR))
    socket.setdefaulttimeout(30)
    for name in names or SCENARIOS:
        print(json.dumps(["scenario", name]), flush=True)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                run(SCENARIOS[name], backend)
                status = 0
            except BaseException:  # noqa: BLE001 - the fork must not go on as its parent
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(status)
        _, status = os.waitpid(pid, 0)
        if status:
            print(json.dumps(["UNTYPED end", status]), flush=True)


if __name__ == "__main__":
    main()
