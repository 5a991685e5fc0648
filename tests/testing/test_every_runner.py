"""The fixtures under every test runner, in runs of pytest and unittest of their own. What the page shows is run as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PAGE = Path(__file__).parent.parent.parent / "docs" / "how-to" / "test-runners.md"
PATIENCE = 60

SYSTEMS = ["asyncio", "trio", "anyio", "xdist"]
LOOP_SCOPE = "asyncio_default_fixture_loop_scope=function"

RUNNERS: dict[str, tuple[str, list[str]]] = {
    "anyio's plugin": ("@pytest.mark.anyio", ["anyio"]),
    "anyio's plugin, auto": ("", ["anyio", "-o", "anyio_mode=auto"]),
    "pytest-asyncio, strict": ("@pytest.mark.asyncio", ["anyio", "asyncio", "-o", LOOP_SCOPE]),
    "pytest-asyncio, auto": ("", ["anyio", "asyncio", "-o", LOOP_SCOPE, "-o", "asyncio_mode=auto"]),
    "pytest-asyncio, auto by option": ("", ["anyio", "asyncio", "-o", LOOP_SCOPE, "--asyncio-mode=auto"]),
    "both claim the test": ("@pytest.mark.anyio", ["anyio", "asyncio", "-o", LOOP_SCOPE, "-o", "asyncio_mode=auto"]),
    "pytest-trio": ("@pytest.mark.trio", ["anyio", "trio"]),
    "pytest-trio, auto": ("", ["anyio", "trio", "-o", "trio_mode=true"]),
    "xdist": ("@pytest.mark.anyio", ["anyio", "xdist", "-n", "2"]),
}
"""The marker of an async test, and the plugins and options of the run."""

USES = """
import socket, threading
import anyio, anyio.to_thread, pytest
import claude_transport as ct
from claude_transport.testing import Scenario, result, replies

async def greet(transport):
    with anyio.fail_after(20):
        async with ct.Query(transport) as query:
            text = (await (await query.send("Hello")).result()).result
            await query.end_input()
            async for _ in query.messages():
                pass
            return text

def ask(api, got):
    with socket.create_connection(("127.0.0.1", int(api.url.rpartition(":")[2])), timeout=20) as client:
        body = b'{"model":"m","input":"Hi","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"Hi"}]}'
        path = b"responses" if "Responses" in type(api).__name__ else b"messages"
        head = b"POST /v1/%s HTTP/1.1\\r\\nhost: x\\r\\nconnection: close\\r\\ncontent-length: %d\\r\\n\\r\\n"
        client.sendall(head % (path, len(body)) + body)
        while part := client.recv(65536):
            got.append(part)

async def converse(api):
    # Another thread asks when this task waits already, so that only the server can wake it.
    got = []
    client = threading.Timer(0.05, ask, (api, got))
    api.replace(replies.gated("Answer", chunks=1, after_chunks=0))
    client.start()
    with anyio.fail_after(20):
        (request,) = await api.wait_for_requests(1, timeout=10)
        await api.wait_at_gate(timeout=10)
        assert request.outcome == "pending"
        api.open_gate()
        await api.wait_until(lambda: request.outcome == "answered", timeout=10)
        await anyio.to_thread.run_sync(client.join)
    assert b"Answer" in b"".join(got)
"""

ASYNC_TESTS = (
    USES
    + """
MARK
async def test_apis(fake_messages_api, fake_responses_api):
    await converse(fake_messages_api)
    await converse(fake_responses_api)

MARK
async def test_mocks(mock_claude, fake_claude):
    assert await greet(mock_claude.script().expect(type="user").reply(result("Hi!"))) == "Hi!"
    assert await greet(ct.SubprocessTransport(command=fake_claude(Scenario.text("Hey!")).command)) == "Hey!"

MARK
async def test_tapes(claude_tape, mock_claude):
    assert await greet(claude_tape(lambda: mock_claude([result("Taped!")]))) == "Taped!"
"""
)


def run(pytester: pytest.Pytester, plugins: list[str]) -> pytest.RunResult:
    """Run the tests with these plugins only. The rest of `plugins` are options."""
    others = [name for name in (*SYSTEMS, "cacheprovider", "hypothesispytest") if name not in plugins]  # each costs its import
    off = [part for name in others for part in ("-p", f"no:{name}")]
    options = [part for part in plugins if part not in SYSTEMS]
    return pytester.runpytest_subprocess(*off, "-q", "--claude-record=once", *options, timeout=PATIENCE)


def passed(ran: pytest.RunResult) -> int:
    """Return how many tests passed; no other test was run, and nothing was warned of."""
    outcomes = ran.parseoutcomes()
    outcomes.pop("deselected", None)
    assert set(outcomes) == {"passed"}, outcomes
    return outcomes["passed"]


@pytest.mark.parametrize("runner", RUNNERS)
def test_every_fixture_works_under_this_runner(pytester: pytest.Pytester, runner: str) -> None:
    mark, plugins = RUNNERS[runner]
    pytester.makepyfile(test_it=ASYNC_TESTS.replace("MARK", mark))
    assert passed(run(pytester, plugins)) in {3, 6}  # twice where anyio's plugin has two event loops
    assert len(list((pytester.path / "tapes" / "test_it").iterdir())) == 1
    assert passed(run(pytester, [*plugins, "-k", "tapes"])) in {1, 2}  # from the tape


def test_every_fixture_works_in_a_class_of_unittest(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it=USES
        + """
import unittest

class TestIt(unittest.IsolatedAsyncioTestCase):
    @pytest.fixture(autouse=True)
    def _fixtures(self, fake_messages_api, fake_responses_api, mock_claude, fake_claude, claude_tape):
        self.apis, self.mock, self.fake, self.tape = (fake_messages_api, fake_responses_api), mock_claude, fake_claude, claude_tape

    async def test_apis(self):
        for api in self.apis:
            await converse(api)

    async def test_mocks(self):
        assert await greet(self.mock.script().expect(type="user").reply(result("Hi!"))) == "Hi!"
        assert await greet(ct.SubprocessTransport(command=self.fake(Scenario.text("Hey!")).command)) == "Hey!"

    async def test_tapes(self):
        assert await greet(self.tape(lambda: self.mock([result("Taped!")]))) == "Taped!"
"""
    )
    assert passed(run(pytester, ["anyio", "asyncio", "-o", LOOP_SCOPE, "-o", "asyncio_mode=auto"])) == 3


# -------------------------------------------------------------------------------------------------------------------- misuse


def test_a_server_whose_loop_stands_still_during_the_test_names_the_remedy(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it="""
import pytest, pytest_asyncio
from claude_transport.testing import FakeMessagesAPI

@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def api():
    async with FakeMessagesAPI() as api:
        yield api

@pytest.fixture
def port(api):
    return api.url  # no loop runs here: it may be that of the test

@pytest.mark.asyncio(loop_scope="session")
async def test_same_loop(api, port):
    assert api.url == port

@pytest.mark.asyncio
async def test_another_loop(api):
    api.url

@pytest.mark.asyncio
async def test_its_end_in_another_loop(api):
    await api.aclose()
"""
    )
    ran = run(pytester, ["asyncio", "-o", LOOP_SCOPE])
    ran.assert_outcomes(passed=1, failed=2)
    ran.stdout.fnmatch_lines(["*UsageError: *loop stands still*Start it with `with FakeMessagesAPI(...)`, in a fixture without `async`*"])
    ran.stdout.fnmatch_lines(["*UsageError: this FakeMessagesAPI runs in another event loop: close it there*"])


def test_call_in_an_async_test_says_to_await_the_method(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it="""
import pytest

@pytest.mark.asyncio
async def test_it(fake_messages_api):
    fake_messages_api.call(fake_messages_api.wait_for_requests, 0)
"""
    )
    ran = run(pytester, ["asyncio", "-o", LOOP_SCOPE])
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines(["*UsageError: call() would block the event loop*: await the method itself"])


# ------------------------------------------------------------------------------------------------------------------ the page

PROGRAM, ANYIO, ASYNCIO, SHARED, TRIO, UNITTEST, ALONE_UNITTEST, PLAIN = re.findall(
    r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE
)


@pytest.mark.parametrize(
    ("block", "plugins"),
    [
        pytest.param(ANYIO, ["anyio"], id="anyio"),
        pytest.param(ASYNCIO, ["asyncio", "-o", LOOP_SCOPE], id="pytest-asyncio"),
        pytest.param(TRIO, ["trio"], id="pytest-trio"),
        pytest.param(UNITTEST, [], id="unittest"),
        pytest.param(ALONE_UNITTEST, [], id="unittest alone, under pytest"),
        pytest.param(PLAIN, [], id="plain"),
        pytest.param(SHARED + "\ndef test_it(shared_api):\n    assert shared_api.url\n", [], id="shared"),
    ],
)
def test_what_the_page_shows_of_a_runner_passes_under_it(pytester: pytest.Pytester, block: str, plugins: list[str]) -> None:
    pytester.makepyfile(test_it=f"{PROGRAM}\n\n{block}")
    assert passed(run(pytester, plugins)) in {1, 2}


def test_what_the_page_shows_for_unittest_alone_passes_without_pytest(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(f"{PROGRAM}\n\n{ALONE_UNITTEST}", "utf-8")
    command = [sys.executable, "-W", "error", "-m", "unittest", "test_it"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (ran.returncode, "Ran 1 test" in ran.stderr) == (0, True), ran.stderr
