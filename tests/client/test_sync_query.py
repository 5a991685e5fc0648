"""A conversation without an event loop: `SyncQuery` and its turns, in scripts and threads, on both event loops."""

# A block that pytest or a cancel scope leaves by an exception has bound what stands before it.
# pyright: reportPossiblyUnboundVariable=false
from __future__ import annotations

import contextlib
import contextvars
import gc
import importlib.util
import inspect
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

import claude_transport as ct
from claude_transport.client import SyncQuery, SyncTurn, Turn
from claude_transport.codex import CodexSession, CodexThread, CodexTurn, SyncCodexSession, SyncCodexThread, SyncCodexTurn
from claude_transport.loops.threads import LoopThread
from claude_transport.testing import FakeClaude, FakeCodex, Scenario, ScriptedTurn, steps

PATIENCE = 30.0
MakeFake = Callable[..., FakeClaude]
GENERATOR = Path(__file__).parents[2] / "docs" / "generate_blocking.py"


def generator() -> Any:
    spec = importlib.util.spec_from_file_location("generate_blocking", GENERATOR)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["generate_blocking"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    gc.collect()
    for thread in threading.enumerate():
        if thread.name.startswith("claude "):
            thread.join(PATIENCE)
            assert not thread.is_alive()


def transport_to(fake: FakeClaude) -> ct.SubprocessTransport:
    return ct.SubprocessTransport(command=fake.command)


def endless() -> Scenario:
    return Scenario(replies=[ScriptedTurn([steps.Text("On and on"), steps.Delay(600)])])


def is_gone(pid: int | None) -> bool:
    assert pid is not None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_conversation_is_held_without_an_event_loop(fake_claude: MakeFake, backend: Any) -> None:
    with SyncQuery(transport_to(fake_claude(Scenario.echo())), backend=backend) as query:
        pid = query.info.pid
        turn = query.send("Hello")
        assert isinstance(turn, SyncTurn)
        texts = [message.text for message in turn if isinstance(message, ct.AssistantMessage)]
        assert (texts, turn.result().result, turn.state) == (["Hello"], "Hello", ct.TurnState.DONE)
        assert query.send("Again").result().result == "Again"
        report = query.close()
    assert (report.ended_by_itself, is_gone(pid)) == (True, True)


def test_all_messages_are_read_from_the_conversation(fake_claude: MakeFake, backend: Any) -> None:
    with SyncQuery(transport_to(fake_claude(Scenario.echo())), backend=backend) as query:
        kinds = []
        messages = iter(query)
        query.send("Hello")
        for message in messages:
            kinds.append(message.type)
            if isinstance(message, ct.ResultMessage):
                break
    assert kinds[-1] == "result"


def test_the_error_of_a_start_leaves_no_thread(backend: Any) -> None:
    query = SyncQuery(ct.SubprocessTransport(command=["/nowhere/claude"]), backend=backend)
    with pytest.raises(ct.CLINotFoundError):
        query.start()
    query.close()
    with pytest.raises(ct.TransportClosed, match="this SyncQuery is closed"):
        query.send("Hello")


def test_the_error_of_a_start_by_with_ends_the_thread_also_while_the_conversation_is_kept(backend: Any) -> None:
    query = SyncQuery(ct.SubprocessTransport(command=["no-such-program"]), backend=backend)
    with pytest.raises(ct.CLINotFoundError), query:
        pass
    assert [each.name for each in threading.enumerate() if each.name == "claude SyncQuery"] == []
    with pytest.raises(ct.TransportClosed):
        query.start()


def test_another_thread_interrupts_a_turn_that_is_read(fake_claude: MakeFake, backend: Any) -> None:
    with SyncQuery(transport_to(fake_claude(endless())), backend=backend) as query:
        outcomes = []
        for message in query.send("Talk."):
            if isinstance(message, ct.AssistantMessage):
                stop = threading.Thread(target=lambda: outcomes.append(query.interrupt()))
                stop.start()
            elif isinstance(message, ct.ResultMessage):
                outcomes.append(message.outcome)
        stop.join(PATIENCE)
    assert len(outcomes) == 2


async def test_inside_an_event_loop_it_is_refused_with_a_remedy(fake_claude: MakeFake) -> None:
    fake = fake_claude(Scenario.echo())
    with pytest.raises(ct.UsageError, match="use Query there") as caught:
        SyncQuery(transport_to(fake))
    assert (caught.value.code, fake.calls()) == ("usage.running_loop", [])
    query = await anyio.to_thread.run_sync(lambda: SyncQuery(transport_to(fake)))
    with pytest.raises(ct.UsageError, match="use Query there") as caught:
        query.send("Hello")
    assert (caught.value.code, fake.calls()) == ("usage.running_loop", [])


async def test_a_worker_thread_of_an_event_loop_may_use_it(fake_claude: MakeFake) -> None:
    def talk() -> str | None:
        with SyncQuery(transport_to(fake_claude(Scenario.echo()))) as query:
            return query.send("Hello").result().result

    with anyio.fail_after(PATIENCE):
        assert await anyio.to_thread.run_sync(talk) == "Hello"


def test_a_dropped_conversation_ends_its_process_and_thread(fake_claude: MakeFake, backend: Any) -> None:
    query = SyncQuery(transport_to(fake_claude(endless())), backend=backend)
    query.start()
    pid = query.info.pid
    turn = query.send("Talk.")
    (thread,) = [each for each in threading.enumerate() if each.name == "claude SyncQuery"]
    del query
    gc.collect()
    assert thread.is_alive()  # its turn is still held
    del turn
    gc.collect()
    thread.join(PATIENCE)
    assert (thread.is_alive(), is_gone(pid)) == (False, True)


def test_an_exception_in_the_block_ends_the_process(fake_claude: MakeFake, backend: Any) -> None:
    pids = []
    with pytest.raises(ZeroDivisionError), SyncQuery(transport_to(fake_claude(endless())), backend=backend) as query:
        pids.append(query.info.pid)
        query.send("Talk.")
        raise ZeroDivisionError
    assert is_gone(pids[0])


def test_the_wait_for_a_result_has_a_limit_and_the_turn_goes_on(fake_claude: MakeFake, backend: Any) -> None:
    with SyncQuery(transport_to(fake_claude(endless())), backend=backend) as query:
        turn = query.send("Talk.")
        with pytest.raises(TimeoutError, match=r"the turn goes on: wait again, or call interrupt\(\)"):
            turn.result(timeout=0.01)
        assert turn.is_open()
        assert query.interrupt() == ct.InterruptOutcome.ACKNOWLEDGED
        assert turn.result(timeout=PATIENCE).is_error


PROGRAM = """
import sys, claude_transport as ct
from claude_transport.client import SyncQuery
query = SyncQuery(ct.SubprocessTransport(command=sys.argv[2:]))
query.start()
turn = query.send("Talk.")
print(query.info.pid, flush=True)
if sys.argv[1] == "wait":
    with query:
        turn.result()
"""


def program(fake: FakeClaude, how: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, how, *fake.command]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_ctrl_c_in_a_blocking_wait_ends_program_and_process(fake_claude: MakeFake) -> None:
    with program(fake_claude(endless()), "wait") as running:
        assert running.stdout is not None
        pid = int(running.stdout.readline())
        running.send_signal(signal.SIGINT)
        _out, err = running.communicate(timeout=PATIENCE)
    assert (err.strip().splitlines()[-1], running.returncode, is_gone(pid)) == ("KeyboardInterrupt", -signal.SIGINT, True)


def test_an_event_loop_that_is_not_installed_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trio", None)
    with pytest.raises(ct.ConfigurationError, match=r"needs the package trio: pip install trio") as caught:
        SyncQuery(ct.MockTransport(), backend="trio")
    assert (caught.value.code, caught.value.option) == ("config.missing_extra", "backend")


def test_an_event_loop_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ct.UsageError, match=r"backend='curio' is neither 'asyncio' nor 'trio'"):
        SyncQuery(ct.MockTransport(), backend="curio")  # type: ignore[arg-type]


def test_ctrl_c_cancels_the_call_that_waits_and_nothing_else(backend: Any) -> None:
    ended: list[str] = []

    async def hang() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await anyio.sleep_forever()
        finally:
            ended.append("hang")

    async def answer() -> str:
        return "still here"

    loop = LoopThread("SyncQuery", instead="", backend=backend, at_end=answer)
    with pytest.raises(KeyboardInterrupt):
        loop.call(hang)
    assert (ended, loop.call(answer)) == (["hang"], "still here")
    loop.end()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no masks of signals")
def test_ctrl_c_that_another_thread_receives_cancels_the_call_that_waits(backend: Any) -> None:
    async def hang() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        os.kill(os.getpid(), signal.SIGINT)
        await anyio.sleep_forever()

    async def answer() -> str:
        return "still here"

    loop = LoopThread("SyncQuery", instead="", backend=backend, at_end=answer)
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.call(hang)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)
    assert loop.call(answer) == "still here"
    loop.end()


def test_a_call_sees_the_context_variables_of_the_thread_that_waits(backend: Any) -> None:
    whose: contextvars.ContextVar[str] = contextvars.ContextVar("whose", default="nobody's")

    async def look() -> str:
        return whose.get()

    loop = LoopThread("Test", instead="await", backend=backend, at_end=look)
    assert loop.call(look) == "nobody's"
    mine = contextvars.copy_context()
    mine.run(whose.set, "mine")
    assert mine.run(loop.call, look) == "mine"
    assert loop.call(look) == "nobody's"
    loop.end()


def test_a_loop_that_was_ended_is_not_kept_until_the_program_ends(backend: Any) -> None:
    async def nothing() -> None:
        pass

    loop = LoopThread("Test", instead="await", backend=backend, at_end=nothing)
    loop.call(nothing)
    loop.end()
    known = weakref.ref(loop)
    del loop
    gc.collect()
    assert known() is None


def test_a_close_by_a_callback_of_the_conversation_is_refused_and_ends_it(fake_claude: MakeFake, backend: Any) -> None:
    refused: list[type[BaseException]] = []

    def close(_line: str) -> None:
        try:
            query.close()
        except Exception as exc:  # noqa: BLE001 - what comes is looked at below
            refused.append(type(exc))

    fake = fake_claude(Scenario(replies=[ScriptedTurn([steps.Stderr("a word\n"), steps.Text("Hello")])]))
    query = SyncQuery(ct.SubprocessTransport(command=fake.command, on_stderr=close), backend=backend)
    with contextlib.suppress(ct.TransportClosed), query:
        query.send("Talk.").result(timeout=PATIENCE)
    assert refused == [ct.UsageError]


def test_an_event_loop_that_cannot_start_tells_why_and_not_that_it_was_closed(tmp_path: Path) -> None:
    (tmp_path / "trio").mkdir()
    (tmp_path / "trio" / "__init__.py").write_text("raise ImportError('this trio is broken')", "utf-8")
    script = (
        "import claude_transport as ct\nfrom claude_transport.client import SyncQuery\n"
        "try: SyncQuery(ct.MockTransport([]), backend='trio').__enter__()\n"
        "except ct.ConfigurationError as error: print(error.option, error.code, error)"
    )
    argv = [sys.executable, "-c", script]
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    ran = subprocess.run(argv, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, timeout=PATIENCE, check=False)
    assert ran.stdout.startswith("backend config.invalid backend='trio' cannot be used: "), ran.stderr
    assert "trio" in ran.stdout.partition(": ")[2]


def test_a_thread_that_cannot_be_started_is_a_typed_error_and_a_later_call_tries_again(
    fake_claude: MakeFake, backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_thread = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("claude "):
            raise RuntimeError("can't start new thread")
        start_thread(thread)

    def leave_a_block() -> None:
        with SyncQuery(ct.MockTransport(), backend=backend):
            pass

    query = SyncQuery(transport_to(fake_claude(Scenario.echo())), backend=backend)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        for call in (leave_a_block, query.start):
            with pytest.raises(ct.SpawnError, match="SyncQuery needs a thread, and none can be started: can't start new thread"):
                call()
    outcomes: list[str | None] = []

    def talk() -> None:
        query.start()
        outcomes.append(query.send("Hello").result().result)
        query.close()

    later = threading.Thread(target=talk, daemon=True)
    later.start()
    later.join(PATIENCE)
    assert outcomes == ["Hello"]


FORK = """
import os, sys, claude_transport as ct
from claude_transport.client import SyncQuery
with SyncQuery(ct.SubprocessTransport(command=sys.argv[2:]), backend=sys.argv[1]) as query:
    child = os.fork()
    if child == 0:
        for call in (lambda: query.send("Hello"), query.close):
            try:
                call()
            except ct.TransportClosed as error:
                print(error, flush=True)
        sys.exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), query.send("Hello").result().result)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
def test_a_fork_is_told_that_the_conversation_is_not_its_own_and_leaves_it_alone(fake_claude: MakeFake, backend: Any) -> None:
    argv = [sys.executable, "-W", "ignore", "-c", FORK, backend, *fake_claude(Scenario.echo()).command]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) as program:
        try:
            out, err = program.communicate(timeout=PATIENCE)
        finally:
            if program.poll() is None:  # the fork hangs, and holds the pipes
                os.killpg(program.pid, signal.SIGKILL)
    refusal = "this SyncQuery belongs to the process that started it, and this is a fork of it: make one here"
    assert out.splitlines() == [refusal, refusal, "7 Hello"], err


def test_a_program_that_ends_without_closing_leaves_no_process(fake_claude: MakeFake) -> None:
    with program(fake_claude(endless()), "leave") as running:
        out, err = running.communicate(timeout=PATIENCE)
    assert (running.returncode, err, is_gone(int(out))) == (0, "", True)


def test_a_codex_session_is_held_without_an_event_loop(fake_codex: Callable[..., FakeCodex], backend: Any) -> None:
    with SyncCodexSession(ct.SubprocessTransport(command=fake_codex().command), backend=backend) as session:
        turn = session.send("Hello")
        assert isinstance(turn, SyncCodexTurn)
        assert "".join(turn.new_text()) == turn.result().text
        assert isinstance(session.thread, SyncCodexThread)
        assert session.thread.thread_id == session.thread_id


@pytest.mark.parametrize("number", [0, 1])
def test_the_blocking_side_is_written_from_the_asynchronous_one(number: int) -> None:
    generate = generator()
    module = generate.MODULES[number]
    assert (generate.PACKAGE / module.path).read_text("utf-8") == generate.render(module)


TWINS = [
    (ct.Query, SyncQuery),
    (Turn, SyncTurn),
    (CodexSession, SyncCodexSession),
    (CodexThread, SyncCodexThread),
    (CodexTurn, SyncCodexTurn),
]


@pytest.mark.parametrize(("there", "here"), TWINS)
def test_every_public_method_has_a_twin_or_a_reason(there: type, here: type) -> None:
    left_out = generator().LEFT_OUT
    for name in (name for name in dir(there) if not name.startswith("_")):
        if name in left_out:
            assert not hasattr(here, name)
            continue
        twin, own = getattr(here, name), getattr(there, name)
        if name == "result":  # its twin has a time limit besides, because there is no cancel scope
            assert [*inspect.signature(twin).parameters] == [*inspect.signature(own).parameters, "timeout"]
            continue
        assert inspect.getdoc(twin) == inspect.getdoc(own)
        if callable(own):
            parameters = [list(inspect.signature(each).parameters.values()) for each in (own, twin)]
            assert [str(each) for each in parameters[0]] == [str(each) for each in parameters[1]]
