"""A child process as a byte stream: the rules of anyio, and a true report of its end."""

from __future__ import annotations

import asyncio
import gc
import os
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from claude_transport.errors import ProcessError
from claude_transport.streams.address import StreamAttribute
from claude_transport.streams.guard import MARK_VARIABLE, SPARED_VARIABLE
from claude_transport.streams.process import ProcessConnectable, ProcessStream
from claude_transport.streams.schedule import CloseSchedule


async def started(code: str, **options: Any) -> ProcessStream:
    return await ProcessConnectable(["sh", "-c", code], **options).connect()


def drop(held: list[ProcessStream]) -> None:
    """Let go of what a list alone has, and free it."""
    held.clear()
    gc.collect()


async def test_receive_gives_what_there_is_up_to_the_size_asked_for() -> None:
    async with await started("printf 0123456789") as stream:
        with anyio.fail_after(30):
            received = b""
            while len(received) < 10:
                chunk = await stream.receive(4)
                assert 1 <= len(chunk) <= 4
                received += chunk
            assert received == b"0123456789"
            for _ in range(2):
                with pytest.raises(anyio.EndOfStream):
                    await stream.receive()


async def test_what_is_sent_comes_back_and_the_end_of_input_ends_it() -> None:
    async with await started("exec cat") as stream:
        with anyio.fail_after(30):
            await stream.send(b"hello")
            assert await stream.receive() == b"hello"
            await stream.send(b"")
            await stream.send_eof()
            await stream.send_eof()
            with pytest.raises(anyio.EndOfStream):
                await stream.receive()
            with pytest.raises(anyio.ClosedResourceError):
                await stream.send(b"more")


async def test_what_nobody_has_read_is_handed_on_when_it_is_closed() -> None:
    unread: list[bytes] = []
    stream = await started("echo before; cat; echo after", on_unread=unread.append, close_timeout=30.0)
    with anyio.fail_after(60):
        await stream.aclose()
    assert b"".join(unread) == b"before\nafter\n"


@pytest.mark.parametrize("is_read", [False, True])
async def test_what_nobody_has_read_of_a_process_that_has_exited_is_handed_on_as_well(is_read: bool) -> None:
    unread: list[bytes] = []
    stream = await started("echo first; read line; head -c 60000 /dev/zero; echo last", on_unread=unread.append)
    with anyio.fail_after(60):
        read = await stream.receive() if is_read else b""
        await stream.send(b"go on\n")
        await anyio.to_thread.run_sync(os.waitid, os.P_PID, stream.extra(StreamAttribute.pid), os.WEXITED | os.WNOWAIT)
        await stream.aclose()
    assert read + b"".join(unread) == b"first\n" + bytes(60000) + b"last\n"


async def test_a_process_that_resists_is_ended_in_the_close_timeout_when_its_stream_is_dropped() -> None:
    gone = anyio.Event()
    held = [await started("trap '' TERM; echo ready; while :; do sleep 600; done", on_gone=gone.set, close_timeout=0.2)]
    with anyio.fail_after(60):
        assert await held[0].receive() == b"ready\n"
        with pytest.warns(ResourceWarning, match="was never closed"):
            drop(held)
        await gone.wait()


async def test_the_reason_of_an_end_has_no_part_of_a_key_at_which_standard_error_was_cut() -> None:
    """The last 64 KiB begin in the midst of a key, and blank lines bring what is left of it near to the last words."""
    key = "sk-ant-api03-Zm9vYmFyYmF6cXV4"
    blank = 64 * 2**10 - len("tail") - len(key) // 2
    code = f"printf '%s' {key} >&2; head -c {blank} /dev/zero | tr '\\0' '\\n' >&2; printf tail >&2; exit 9"
    async with await started(code) as stream:
        with anyio.fail_after(30):
            with pytest.raises(ProcessError) as caught:
                await stream.receive()
    assert caught.value.stderr_tail.startswith(f"{key[len(key) - len(key) // 2 :]}\n")
    assert caught.value.reason == "tail"


@pytest.mark.parametrize("held_by", ["the child", "the host", "an option"])
async def test_the_reason_of_an_end_has_no_secret_that_this_host_knows(held_by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a secret looks like any other word; the host may have read it to find or start the program."""
    secret, env = "correcthorsebattery", {"PATH": os.defpath}
    if held_by == "the child":
        env["DB_PASSWORD"] = secret
    elif held_by == "the host":
        monkeypatch.setenv("DB_PASSWORD", secret)
    given = {"password": secret} if held_by == "an option" else None
    async with await started(f"echo wrong word {secret} >&2; exit 9", env=env, confidential=given) as stream:
        with anyio.fail_after(30), pytest.raises(ProcessError) as caught:
            await stream.receive()
    assert caught.value.reason == "wrong word [secret]"


async def test_of_what_does_not_fit_at_once_nothing_is_sent() -> None:
    async with await started("wc -c") as stream:
        assert not stream.send_whole_now(b"x" * 2**20), "half a line could not be taken back"
        with anyio.fail_after(30):
            await stream.send_eof()
            assert (await stream.receive()).strip() == b"0"


async def test_nothing_is_sent_at_once_to_what_an_ended_child_has_left() -> None:
    async with await started("exec 3<&0; sleep 1000 <&3 >/dev/null 2>&1 & exit 0") as stream:
        with anyio.fail_after(30), pytest.raises(anyio.EndOfStream):
            await stream.receive()
        assert not stream.send_whole_now(b"{}\n")


async def test_a_failed_end_comes_after_the_last_byte_and_can_be_diagnosed() -> None:
    async def diagnose(error: ProcessError) -> ProcessError:
        return ProcessError("diagnosed", exit_code=error.exit_code, stderr_tail=error.stderr_tail)

    async with await started("printf last; echo why >&2; exit 9", diagnose=diagnose) as stream:
        with anyio.fail_after(30):
            assert await stream.receive() == b"last"
            with pytest.raises(ProcessError, match="diagnosed") as caught:
                await stream.receive()
    assert (caught.value.exit_code, caught.value.stderr_tail) == (9, "why")


async def test_a_closed_stream_says_so_in_both_directions() -> None:
    stream = await started("exec cat")
    await stream.aclose()
    await stream.aclose()
    with pytest.raises(anyio.ClosedResourceError):
        await stream.receive()
    with pytest.raises(anyio.ClosedResourceError):
        await stream.send(b"x")
    await stream.send_eof()


async def test_the_facts_are_typed_attributes() -> None:
    gone: list[str] = []
    async with await started("exec cat", on_gone=lambda: gone.append("gone")) as stream:
        assert stream.extra(StreamAttribute.pid) > 0
        assert stream.extra(StreamAttribute.exit_code) is None
        assert not stream.extra(StreamAttribute.ended)
        assert gone == []
    assert gone == ["gone"]
    assert stream.extra(StreamAttribute.exit_code) == 0
    assert stream.extra(StreamAttribute.signal) is None
    assert not stream.extra(StreamAttribute.killed)
    assert stream.extra(StreamAttribute.ended)


async def test_the_child_of_a_host_that_is_spared_is_not_spared_itself() -> None:
    """What the child starts is found by its mark, and must be killed with it."""
    code = f'printf "%s %s" "${{{MARK_VARIABLE}:+marked}}" "${{{SPARED_VARIABLE}:-not spared}}"'
    async with await started(code, env={"PATH": os.defpath, SPARED_VARIABLE: "keeper"}) as stream:
        with anyio.fail_after(30):
            assert await stream.receive() == b"marked not spared"


async def test_the_child_leads_a_session_of_its_own() -> None:
    async with await started("exec cat") as stream:
        pid = stream.extra(StreamAttribute.pid)
        assert os.getpgid(pid) == os.getsid(pid) == pid


async def test_a_cancelled_close_returns_when_the_child_has_ended() -> None:
    stream = await started("trap '' TERM; echo up; while :; do sleep 0.01; done", close_timeout=0.1)
    pid = stream.extra(StreamAttribute.pid)
    with anyio.fail_after(30):
        assert await stream.receive() == b"up\n"
        with anyio.CancelScope() as scope:
            scope.cancel()
            await stream.aclose()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert stream.extra(StreamAttribute.killed)


async def test_a_cancelled_receive_takes_nothing_along() -> None:
    async with await started("exec cat") as stream:
        for rounds in range(6):
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(stream.receive)
                    for _ in range(rounds):
                        await anyio.lowlevel.checkpoint()
                    scope.cancel()
            with anyio.fail_after(30):
                await stream.send(b"%d" % rounds)
                assert await stream.receive() == b"%d" % rounds


def test_a_child_that_somebody_else_collected_can_still_be_closed() -> None:
    # a host that calls waitpid(-1), as some daemons do
    async def main() -> None:
        stream = await started("exit 3")
        pid = stream.extra(StreamAttribute.pid)
        os.waitpid(pid, 0)  # noqa: ASYNC222 - what the test is about
        with anyio.fail_after(30):
            with pytest.raises(anyio.EndOfStream):
                await stream.receive()
            await stream.aclose()
        assert stream.extra(StreamAttribute.signal) is None

    for backend in ("asyncio", "trio"):
        anyio.run(main, backend=backend)


def test_a_stream_lives_and_ends_under_an_eager_task_factory() -> None:
    factory = getattr(asyncio, "eager_task_factory", None)
    if factory is None:
        pytest.skip("there are eager tasks from Python 3.12 on")

    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(factory)
        stream = await started("exec cat")
        await stream.send(b"x")
        assert await stream.receive() == b"x"
        closing = asyncio.create_task(stream.aclose())
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert stream.extra(StreamAttribute.exit_code) == 0

    asyncio.run(main())


@pytest.mark.parametrize("total", [0.0, 0.1, 5.0, 60.0])
def test_the_rungs_of_the_ladder_add_up_to_the_whole_time(total: float) -> None:
    schedule = CloseSchedule.within(total)
    assert schedule.total == pytest.approx(total)
    assert schedule.grace >= schedule.terminate >= schedule.kill >= 0


def test_a_negative_time_is_none() -> None:
    assert CloseSchedule.within(-1).total == 0
