"""A thread that imports something disturbs no session: a module that is imported only in part is not the event loop that runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

PATIENCE = 120.0  # seconds; a hang fails instead of hanging the suite

HOST = r'''
import gc, importlib, json, logging, os, sys, threading, warnings
import anyio, anyio.from_thread, anyio.to_thread
import claude_transport as ct

backend, imported, package, every = sys.argv[1:]
RESULT = '{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"","session_id":"s"}'
ANSWER = r'{"type":"control_response","response":{"subtype":"success","request_id":"\1","response":{}}}'
CLAUDE = ["sed", "-u", "-n", "-e", rf's/.*"request_id": *"\([^"]*\)".*/{ANSWER}/p', "-e", rf's/.*"type": *"user".*/{RESULT}/p']
failures = []
passed = []
checked = []


class Failures(logging.Handler):
    def emit(self, record):
        failures.append(record.getMessage())


class Boundaries:
    """A finder that calls `at` before and after every module of the package is executed."""

    def __init__(self, at):
        self.at = at

    def find_spec(self, name, path=None, target=None):
        if name != package and not name.startswith(package + "."):
            return None
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)), None)
        if spec is not None and spec.loader is not None and spec.origin not in ("built-in", "frozen"):
            execute = spec.loader.exec_module

            def exec_module(module):
                self.at(f"before {name}")
                execute(module)
                self.at(f"after {name}")

            spec.loader.exec_module = exec_module
        return spec


def has_children():
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


async def main():
    echo = ct.SubprocessTransport(command=["cat"])
    talk = ct.Query(ct.SubprocessTransport(command=CLAUDE))
    forgotten = []

    async def check(where):
        """A session goes on, another begins and ends, and those that are forgotten are ended: two here, one in the importing thread."""
        checked.append(where)
        try:
            with anyio.fail_after(30):
                await echo.write(json.dumps({"where": where}))
                assert await anext(lines) == {"where": where}
                turn = await talk.send("Hello")
                assert (await turn.result()).subtype == "success"
                async with ct.SubprocessTransport(command=["cat"]) as another:
                    await another.write('{"n":1}')
                    assert await anext(another.read_messages()) == {"n": 1}
                left = ct.query("Hello", transport=ct.SubprocessTransport(command=CLAUDE))
                await anext(left)
                del left, turn
                dropped = ct.SubprocessTransport(command=["cat"])
                await dropped.connect()
                forgotten.append(dropped)
                del dropped
                gc.collect()
        except BaseException as exc:
            failures.append(f"{where}: {exc!r}")
            if not isinstance(exc, Exception):
                raise

    def at(where):
        passed.append(where)
        if threading.current_thread() is threading.main_thread() or len(passed) % int(every):
            return
        anyio.from_thread.run(check, where)
        forgotten.clear()
        gc.collect()

    sys.unraisablehook = lambda unraisable: failures.append(repr(unraisable.exc_value))
    logging.getLogger().addHandler(Failures(logging.WARNING))
    async with echo, talk:
        lines = echo.read_messages()
        await check("at first")
        forgotten.clear()
        sys.meta_path.insert(0, Boundaries(at))
        assert package not in sys.modules, "it was imported before"
        await anyio.to_thread.run_sync(importlib.import_module, imported)
    with anyio.move_on_after(30) as scope:
        while has_children():
            await anyio.sleep(0.01)
    if scope.cancelled_caught:
        failures.append("a child is left")


warnings.simplefilter("ignore", ResourceWarning)
anyio.run(main, backend=backend)
print(len(checked), *failures, sep="\n")
'''


@pytest.mark.parametrize(
    ("backend", "imported", "package", "every"),
    [
        ("asyncio", "trio", "trio", 1),
        ("asyncio", "anyio._backends._trio", "anyio._backends._trio", 1),
        ("asyncio", "uvloop", "uvloop", 1),
        ("trio", "asyncio", "asyncio", 1),
        ("trio", "anyio._backends._asyncio", "anyio._backends._asyncio", 1),
        *((backend, "opentelemetry.trace", "opentelemetry", 4) for backend in ("asyncio", "trio")),
        ("trio", "mcp.server", "mcp", 50),
        ("asyncio", "anthropic", "anthropic", 400),
    ],
)
def test_sessions_and_finalisers_work_while_a_thread_imports(backend: str, imported: str, package: str, every: int) -> None:
    """Look at every submodule of an event loop; of packages that have hundreds, and that are no event loop, at some."""
    command = [sys.executable, "-c", HOST, backend, imported, package, str(every)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    checked, *failures = done.stdout.splitlines()
    assert failures == []
    assert int(checked) > 2
