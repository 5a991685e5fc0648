"""`stream_sync()`: the text of one answer in a program without an event loop, on both event loops."""

# A block that pytest or a cancel scope leaves by an exception has bound what stands before it.
# pyright: reportPossiblyUnboundVariable=false
from __future__ import annotations

import functools
import gc
import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import anyio.to_thread
import pytest

import claude_transport as ct
from claude_transport.completion import SyncCompletionStream, complete_sync, stream_sync
from claude_transport.loops.current import trio_here
from claude_transport.testing import FakeClaude, FakeMessagesAPI, Scenario, ScriptedTurn, replies, result, steps

MakeOptions = Callable[..., ct.ClaudeOptions]
PATIENCE = 30.0


@pytest.fixture(params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> Any:
    return request.param


def endless() -> Scenario:
    return Scenario(replies=[ScriptedTurn([steps.Text("On and on"), steps.Delay(600)])])


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "claude stream_sync()"]


def test_the_pieces_add_up_to_the_answer(cli_options: MakeOptions, backend: Any) -> None:
    loops: set[str] = set()

    def on_event(_event: object) -> None:
        loops.add("asyncio" if trio_here() is None else "trio")

    options = cli_options(Scenario.text("Hello there."))
    with stream_sync("Hi", options=options, backend=backend, timeout=PATIENCE, on_event=on_event) as pieces:
        assert "".join(pieces) == pieces.completion.text == "Hello there."
        assert list(pieces) == []
    assert (threads(), loops) == ([], {backend})


def test_leaving_the_block_ends_the_call(cli_options: MakeOptions, backend: Any) -> None:
    with stream_sync("Hi", options=cli_options(endless()), backend=backend, timeout=PATIENCE) as pieces:
        for piece in pieces:
            assert "On and on".startswith(piece)
            break
    assert (threads(), list(pieces)) == ([], [])
    with pytest.raises(ct.UsageError, match="no whole answer yet"):
        _ = pieces.completion


def test_an_exception_in_the_block_ends_the_call(cli_options: MakeOptions, backend: Any) -> None:
    with pytest.raises(ZeroDivisionError), stream_sync("Hi", options=cli_options(endless()), backend=backend) as pieces:
        next(pieces)
        raise ZeroDivisionError
    assert threads() == []


def test_break_and_the_garbage_collector_end_the_call(cli_options: MakeOptions, backend: Any) -> None:
    for _piece in stream_sync("Hi", options=cli_options(endless()), backend=backend):
        (thread,) = threads()
        break
    gc.collect()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_an_error_of_the_call_is_raised_and_leaves_nothing(cli_options: MakeOptions, backend: Any) -> None:
    options = cli_options(Scenario.turns([[result("API Error: 429", is_error=True, api_error_status=429)]]))
    with pytest.raises(ct.RateLimited):
        list(stream_sync("Hi", options=options, backend=backend, retry=ct.RetryPolicy.none(), timeout=PATIENCE))
    assert threads() == []


def test_closing_before_the_first_piece_starts_nothing(fake_claude: Callable[..., FakeClaude]) -> None:
    fake = fake_claude(Scenario.echo())
    pieces = stream_sync("Hi", options=ct.ClaudeOptions(cli_path=fake.path))
    assert isinstance(pieces, SyncCompletionStream)
    pieces.close()
    assert (list(pieces), threads(), fake.calls()) == ([], [], [])


def test_a_stream_that_another_thread_closes_ends_for_its_reader(fake_messages_api: FakeMessagesAPI, backend: Any) -> None:
    """The reader waits for the first piece then: only its call makes the request, whose answer waits at the gate."""
    fake_messages_api.replace(replies.gated("never", after_chunks=0))
    options = ct.ClaudeOptions(env=fake_messages_api.environment(), env_mode="exact")
    pieces = stream_sync("Hi", transport="api", options=options, backend=backend, timeout=PATIENCE)

    def close() -> None:
        fake_messages_api.call(fake_messages_api.wait_at_gate, timeout=PATIENCE)
        pieces.close()

    stop = threading.Thread(target=close)
    stop.start()
    assert list(pieces) == []
    stop.join(PATIENCE)
    assert threads() == []


PROGRAM = """
import sys, claude_transport as ct
from claude_transport.completion import complete_sync, stream_sync
options = ct.ClaudeOptions(cli_path=sys.argv[2])
if sys.argv[1] == "complete":
    complete_sync("Talk.", transport="cli", options=options, on_event=lambda event: print(event.type, flush=True))
pieces = stream_sync("Talk.", transport="cli", options=options)
print(next(pieces), flush=True)
if sys.argv[1] == "stream":
    for piece in pieces:
        pass
"""


def program(fake: FakeClaude, how: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM, how, fake.path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def is_gone(fake: FakeClaude) -> bool:
    (call,) = fake.calls()
    try:
        os.kill(call.pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("how", ["complete", "stream"])
def test_ctrl_c_in_a_blocking_call_ends_program_and_process(fake_claude: Callable[..., FakeClaude], how: str) -> None:
    fake = fake_claude(endless())
    with program(fake, how) as running:
        assert running.stdout is not None
        running.stdout.readline()
        running.send_signal(signal.SIGINT)
        _out, err = running.communicate(timeout=PATIENCE)
    assert (err.strip().splitlines()[-1], running.returncode, is_gone(fake)) == ("KeyboardInterrupt", -signal.SIGINT, True)


def test_a_program_that_ends_in_the_middle_of_a_stream_leaves_no_process(fake_claude: Callable[..., FakeClaude]) -> None:
    fake = fake_claude(endless())
    with program(fake, "leave") as running:
        _out, err = running.communicate(timeout=PATIENCE)
    assert (running.returncode, err, is_gone(fake)) == (0, "", True)


async def test_inside_an_event_loop_it_is_refused_with_a_remedy(cli_options: MakeOptions) -> None:
    with pytest.raises(ct.UsageError, match=r"async for piece in stream\(") as caught:
        stream_sync("Hi")
    assert caught.value.code == "usage.running_loop"
    begun = await anyio.to_thread.run_sync(functools.partial(stream_sync, "Hi", options=cli_options(Scenario.text("Hello."))))
    with pytest.raises(ct.UsageError, match=r"async for piece in stream\(") as caught:
        next(begun)
    assert caught.value.code == "usage.running_loop"
    assert "".join(await anyio.to_thread.run_sync(list, begun)) == "Hello."  # the refused call did not end it


def test_the_arguments_are_those_of_stream_but_for_its_clock() -> None:
    there, here = inspect.signature(ct.stream).parameters, inspect.signature(stream_sync).parameters
    assert [str(each) for each in there.values() if each.name != "sleep"] == [str(each) for each in here.values() if each.name != "backend"]


@pytest.mark.parametrize(("blocking", "inner"), [(complete_sync, "complete"), (stream_sync, "stream")])
def test_each_argument_reaches_the_call_inside(monkeypatch: pytest.MonkeyPatch, blocking: Callable[..., object], inner: str) -> None:
    """Under its own name, and as it was given."""

    class Called(Exception):
        pass

    def call(prompt: object, **arguments: object) -> object:
        raise Called(prompt, arguments)

    monkeypatch.setattr(f"claude_transport.completion.blocking.{inner}", call)
    names = [name for name in inspect.signature(blocking).parameters if name not in ("prompt", "backend")]
    given = {name: object() for name in names}
    with pytest.raises(Called) as caught:
        blocking("Hi", **given)
    assert caught.value.args == ("Hi", given)
