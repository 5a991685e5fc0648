"""The guard: when the host is killed, everything it started is ended. A guard runs only while there are children."""

from __future__ import annotations

import _thread
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from polling import a_moment

from claude_transport.errors import ProcessError
from claude_transport.streams.guard import (
    MARK_VARIABLE,
    SYSTEM_PATH,
    Guard,
    SafePopen,
    descendants,
    find_marked,
    guard,
    guard_shell,
    is_running,
    kill_marked,
    new_mark,
)
from claude_transport.streams.process import ProcessConnectable

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="marks in environments can be read on Linux only")

# A child that ignores SIGTERM, with a grandchild in its group and another in a session of its own, as the CLI's tool shells are.
STUBBORN = 'trap "" TERM; setsid sleep 1000 & sleep 1000 & echo ready; wait'

HOST = """
import os, sys, anyio
from claude_transport.streams import process, reaping
from claude_transport.streams.guard import Guard
async def main():
    child = dict(os.environ)
    if len(sys.argv) > 3:
        os.environ["PATH"] = sys.argv[3]
    if len(sys.argv) > 4:
        process.guard = reaping.guard = Guard(path=sys.argv[4])
    streams = [await process.ProcessConnectable(["/bin/sh", "-c", sys.argv[1]], env=child).connect() for _ in range(2)]
    for stream in streams:
        await stream.send(b"go\\n")
        await stream.receive()
    print("up", flush=True)
    await anyio.sleep_forever()
anyio.run(main, backend=sys.argv[2])
"""


def marks_of(pids: list[int]) -> set[str]:
    entries = [entry for pid in pids for entry in Path(f"/proc/{pid}/environ").read_text().split("\0")]
    return {entry.partition("=")[2] for entry in entries if entry.startswith(f"{MARK_VARIABLE}=")}


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def until_gone(marks: set[str]) -> None:
    with anyio.fail_after(30):
        while any(find_marked(mark) for mark in marks):
            await anyio.wait_all_tasks_blocked()


@pytest.mark.parametrize(
    ("signum", "script"),
    [(signal.SIGKILL, STUBBORN), (signal.SIGTERM, STUBBORN.removeprefix('trap "" TERM; '))],
    ids=["SIGKILL", "SIGTERM"],
)
async def test_nothing_a_killed_host_started_is_alive_afterwards(signum: signal.Signals, script: str, anyio_backend_name: str) -> None:
    await killed_host(signum, script, anyio_backend_name)


async def killed_host(signum: signal.Signals, script: str, *arguments: str) -> None:
    """Start a host with two children, kill it, and wait until nothing is left of them."""
    host = subprocess.Popen([sys.executable, "-c", HOST, script, *arguments], stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None
    marks = set()
    try:
        assert host.stdout.readline() == "up\n"
        marks = marks_of(children_of(host.pid))
        assert len(marks) == 2
        assert all(len(find_marked(mark)) >= 3 for mark in marks)
    finally:
        host.send_signal(signum)
        host.wait()
        host.stdout.close()
        try:
            await until_gone(marks)
        finally:
            assert sum(kill_marked(mark) for mark in marks) == 0


@pytest.mark.parametrize("place", ["", "/nonexistent", "folder of an attacker"])
async def test_a_guard_uses_nothing_from_the_path_of_its_host(place: str, tmp_path: Path, anyio_backend_name: str) -> None:
    ran = tmp_path / "ran"
    for name in ("grep", "sleep", "kill", "printf"):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho {name} >> {ran}\nexit 1\n")
        program.chmod(0o755)
    await killed_host(signal.SIGKILL, STUBBORN, anyio_backend_name, str(tmp_path) if place.startswith("folder") else place)
    assert not ran.exists()


@pytest.mark.parametrize("missing", [("grep",), ("sleep",), ("grep", "sleep")], ids=" and ".join)
async def test_a_guard_does_without_the_programs_that_a_system_does_not_have(
    missing: tuple[str, ...], tmp_path: Path, anyio_backend_name: str
) -> None:
    for name in {"grep", "sleep"} - {*missing}:
        (tmp_path / name).symlink_to(shutil.which(name, path=SYSTEM_PATH) or "")
    await killed_host(signal.SIGKILL, STUBBORN, anyio_backend_name, os.environ["PATH"], str(tmp_path))


async def test_a_guard_ends_what_has_cleared_its_environment_and_lost_its_parent(tmp_path: Path, anyio_backend_name: str) -> None:
    note = tmp_path / "pid"
    child = f"env -i setsid sh -c 'echo $$ >> {note}.$0; exec sleep 1000' $$"
    script = f"read line; ({child} &) ; until [ -s {note}.$$ ]; do sleep 0.01; done; sleep 1000 & sleep 1000 & echo ready; wait"
    await killed_host(signal.SIGKILL, script, anyio_backend_name)
    notes = [*tmp_path.iterdir()]
    assert len(notes) == 2
    with anyio.fail_after(30):
        while any(is_running(f"/proc/{each.read_text().strip()}") for each in notes):
            await a_moment()


async def test_what_a_host_started_that_is_itself_a_child_is_gone_when_it_is_killed(anyio_backend_name: str) -> None:
    """The guard of the inner host carries the number of the outer child. It is not killed for it, since it has children to end."""
    command = [sys.executable, "-c", HOST, STUBBORN, anyio_backend_name]
    before = children_of(os.getpid())
    stream = await ProcessConnectable(command, close_timeout=0.1).connect()
    with anyio.fail_after(30):
        assert (await stream.receive()).startswith(b"up")
    (outer,) = (pid for pid in children_of(os.getpid()) if pid not in before and pid != guard.pid)
    marks = marks_of(children_of(outer))
    await stream.aclose()
    await until_gone(marks)


async def test_a_guard_leaves_the_guards_of_inner_hosts_to_their_work(anyio_backend_name: str) -> None:
    """An inner host ends with the outer one, and only its own guard knows what it has started."""
    inner = shlex.join([sys.executable, "-c", HOST, STUBBORN, anyio_backend_name])
    command = [sys.executable, "-c", HOST, inner, anyio_backend_name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        try:
            assert host.stdout.readline() == "up\n"
            marks = marks_of([*descendants(host.pid)])
        finally:
            host.kill()
    assert len(marks) == 6
    try:
        await until_gone(marks)
    finally:
        assert sum(kill_marked(mark) for mark in marks) == 0


def test_a_guard_forgets_a_child_that_is_gone_and_no_other_one() -> None:
    mine, marks = Guard(), [new_mark() for _ in range(4)]
    children = [subprocess.Popen(["sleep", "1000"], env={**os.environ, MARK_VARIABLE: mark}, start_new_session=True) for mark in marks]
    for mark, child in zip(marks, children, strict=True):
        mine.watch(mark, child.pid)
    for gone in (0, 2):
        mine.release(marks[gone])
    pid = mine.pid
    assert pid is not None
    mine.forget()  # the pipe ends, as with the end of a host
    os.waitpid(pid, 0)
    ended = [child.poll() for child in children]
    for child in children:
        child.kill()
        child.wait()
    assert ended == [None, -signal.SIGTERM, None, -signal.SIGTERM]


async def test_a_guard_follows_hundreds_of_children_that_go_in_any_order() -> None:
    mine, marks = Guard(), [new_mark() for _ in range(400)]
    last = subprocess.Popen(["sleep", "1000"], env={**os.environ, MARK_VARIABLE: marks[0]}, start_new_session=True)
    for mark in marks:
        mine.watch(mark, last.pid if mark == marks[0] else 2**22 + 1)  # there is no such group
    for mark in reversed(marks[1:]):
        mine.release(mark)
    pid = mine.pid
    assert pid is not None
    mine.forget()
    with anyio.fail_after(20):  # it takes less than a second; with one long text of all children it took minutes
        await anyio.to_thread.run_sync(os.waitpid, pid, 0, abandon_on_cancel=True)
    ended = last.poll()
    last.kill()
    last.wait()
    assert ended == -signal.SIGTERM


async def test_a_grandchild_in_a_session_of_its_own_is_gone_after_close() -> None:
    stream = await ProcessConnectable(["/bin/sh", "-c", STUBBORN], close_timeout=0.5).connect()
    await stream.receive()
    marks = marks_of(children_of(os.getpid()))
    await stream.aclose()
    assert [find_marked(mark) for mark in marks] == [[] for _ in marks]


async def test_what_a_killed_child_left_behind_is_gone_after_close() -> None:
    stream = await ProcessConnectable(["/bin/sh", "-c", "setsid sleep 1000 & echo ready; read line; kill -KILL $$"]).connect()
    assert await stream.receive() == b"ready\n"
    marks = marks_of(children_of(os.getpid()))
    await stream.send(b"now\n")
    with anyio.fail_after(30), pytest.raises(ProcessError):
        while True:
            await stream.receive()
    await stream.aclose()
    assert [find_marked(mark) for mark in marks] == [[] for _ in marks]


async def without_guard() -> None:
    """Wait until no guard is left of earlier sessions. It stays for a quarter of a second after the last one."""
    with anyio.fail_after(30):
        while guard.pid is not None:
            await anyio.wait_all_tasks_blocked()


async def pid_of_guard() -> int:
    """Wait for the guard. The thread that is just ending an earlier one starts it, so it may come a moment after the child."""
    with anyio.fail_after(30):
        while (pid := guard.pid) is None:
            await anyio.wait_all_tasks_blocked()
    return pid


async def test_the_guard_leaves_with_the_last_child() -> None:
    await without_guard()
    first = await ProcessConnectable(["cat"]).connect()
    pid = await pid_of_guard()
    second = await ProcessConnectable(["cat"]).connect()
    assert guard.pid == pid
    await first.aclose()
    assert guard.pid == pid
    await second.aclose()
    with anyio.fail_after(30):
        while pid in children_of(os.getpid()):
            await anyio.wait_all_tasks_blocked()
    assert guard.pid is None


def test_sessions_that_follow_each_other_share_a_guard() -> None:
    mine, pids = Guard(linger=1000), set()
    for _ in range(3):
        mark = new_mark()
        mine.watch(mark, os.getpid())
        mine.release(mark)
        pids.add(mine.pid)
    assert len(pids) == 1
    assert None not in pids
    mine.forget()  # its input ends, as with the end of the host: without children it goes
    os.waitpid(pids.pop() or 0, 0)


async def test_a_guard_for_which_no_thread_can_wait_leaves_at_once_and_the_next_one_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, mark = Guard(linger=0.1), new_mark()

    def refuse(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(_thread, "start_new_thread", refuse)
        mine.watch(mark, os.getpid())
        assert mine.pid is not None
        mine.release(mark)
        assert mine.pid is None
    mine.watch(mark, os.getpid())
    mine.release(mark)
    assert mine.pid is not None
    with anyio.fail_after(10):
        while mine.pid is not None:
            await anyio.wait_all_tasks_blocked()


TWO_SESSIONS = """
import sys, anyio
from claude_transport.streams.guard import guard
from claude_transport.streams.process import ProcessConnectable
async def main():
    await (await ProcessConnectable(["cat"]).connect()).aclose()
    idle = guard.pid
    stream = await ProcessConnectable(["/bin/sh", "-c", sys.argv[2]]).connect()
    await stream.receive()
    print(idle == guard.pid is not None, flush=True)
    await anyio.sleep_forever()
anyio.run(main, backend=sys.argv[1])
"""


async def test_a_guard_that_has_waited_for_a_child_ends_it_with_its_host(anyio_backend_name: str) -> None:
    command = [sys.executable, "-c", TWO_SESSIONS, anyio_backend_name, STUBBORN]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        try:
            assert host.stdout.readline() == "True\n"
            marks = marks_of(children_of(host.pid))
        finally:
            host.kill()
    assert len(marks) == 1
    try:
        await until_gone(marks)
    finally:
        assert sum(kill_marked(mark) for mark in marks) == 0


def test_a_guard_that_was_killed_is_replaced_and_knows_all_children() -> None:
    mine, mark = Guard(), new_mark()
    child = subprocess.Popen(["sleep", "1000"], env={**os.environ, MARK_VARIABLE: mark}, start_new_session=True)
    mine.watch(mark, child.pid)
    first = mine.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    mine.watch("another", child.pid)
    assert mine.pid not in (None, first)
    mine.release("another")
    child.kill()
    child.wait()
    mine.release(mark)
    assert mine.pid is None


def test_a_fork_of_the_host_does_not_keep_the_guard_from_seeing_its_end() -> None:
    mine = Guard()
    mine.watch(new_mark(), os.getpid())
    mine_in_the_fork = mine.pid
    mine.forget()
    assert mine.pid is None
    assert mine_in_the_fork is not None
    os.kill(mine_in_the_fork, signal.SIGKILL)
    os.waitpid(mine_in_the_fork, 0)


@pytest.mark.parametrize(
    ("platform", "shell", "expected"),
    [("linux", "/bin/sh", "/bin/sh"), ("darwin", "/bin/sh", "/bin/sh"), ("win32", "/bin/sh", None), ("linux", "/nonexistent/sh", None)],
)
def test_there_is_a_guard_wherever_there_is_a_shell(platform: str, shell: str, expected: str | None) -> None:
    assert guard_shell(platform=platform, shell=shell) == expected


def test_marks_are_looked_for_only_where_environments_can_be_read() -> None:
    assert find_marked("anything", platform="darwin") == []
    assert find_marked("anything", proc="/nonexistent") == []
    assert kill_marked(new_mark()) == 0


def in_time(work: Callable[[], object], *, otherwise_kill: int) -> bool:
    """Run `work` in a thread. Return whether it ends within 30 seconds; otherwise a process is killed, which ends it."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(30)
    if not thread.is_alive():
        return True
    os.kill(otherwise_kill, signal.SIGKILL)
    thread.join(30)
    return False


def stopped_guard(mine: Guard, mark: str) -> int:
    """Have a guard watch a child, and stop it: it reads nothing any more. Returns its process id."""
    mine.watch(mark, os.getpid())
    stopped = mine.pid
    assert stopped is not None
    os.kill(stopped, signal.SIGSTOP)
    return stopped


def test_a_guard_that_reads_nothing_is_told_of_thousands_of_children_at_once() -> None:
    mine, kept = Guard(), new_mark()
    stopped = stopped_guard(mine, kept)

    def fill() -> None:
        marks = [new_mark() for _ in range(3_000)]
        for mark in marks:
            mine.watch(mark, os.getpid())
        for mark in marks:
            mine.release(mark)

    assert in_time(fill, otherwise_kill=stopped)
    assert mine.pid == stopped
    mine.release(kept)
    assert mine.pid is None
    with pytest.raises(ProcessLookupError):
        os.kill(stopped, 0)


async def test_rows_of_children_that_are_gone_are_used_again() -> None:
    mine, kept = Guard(), [new_mark() for _ in range(2)]
    for mark in kept:
        mine.watch(mark, os.getpid())
    for _ in range(100):
        mark = new_mark()
        mine.watch(mark, os.getpid())
        mine.release(mark)
    file = Path(f"/proc/{mine.pid}/fd/3")
    with anyio.fail_after(30):
        while not file.exists():  # the guard has just started
            await a_moment()
    told = file.read_text().splitlines()
    assert [line.split()[0] for line in told[:2]] == kept
    assert (len(told), told[2].strip()) == (3, "")
    for mark in kept:
        mine.release(mark)


def test_a_stopped_guard_whose_last_child_goes_is_waited_for_a_moment_and_killed() -> None:
    mine, kept = Guard(), new_mark()
    stopped = stopped_guard(mine, kept)
    assert in_time(lambda: mine.release(kept), otherwise_kill=stopped)
    assert mine.pid is None
    with pytest.raises(ProcessLookupError):
        os.kill(stopped, 0)


NO_ROOM = """
import logging, os, resource, subprocess, sys
from claude_transport.streams.guard import MARK_VARIABLE, Guard, new_mark
logging.basicConfig()
mine, mark = Guard(), new_mark()
child = subprocess.Popen(["sleep", "1000"], env={**os.environ, MARK_VARIABLE: mark}, start_new_session=True)
mine.watch(mark, child.pid)
first = mine.pid
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
mine.watch(new_mark(), 2**22 + 1)  # there is no such group
print(first is not None, mine.pid, child.poll(), flush=True)
child.kill()
"""


@pytest.mark.parametrize("bytes_of_a_file", [0, 80])
def test_a_guard_whose_file_takes_no_more_ends_no_child_and_its_host_is_warned(bytes_of_a_file: int) -> None:
    ran = subprocess.run([sys.executable, "-c", NO_ROOM, str(bytes_of_a_file)], capture_output=True, check=False, timeout=60, text=True)
    assert ran.stdout == "True None None\n", ran.stderr
    assert ran.stderr.count("no guard could be started: children survive when this process is killed: [Errno 27]") == 1


NOT_CLEARED = """
import os, resource, subprocess
from claude_transport.streams.guard import MARK_VARIABLE, Guard, new_mark
mine, mark = Guard(), new_mark()
child = subprocess.Popen(["sleep", "1000"], env={**os.environ, MARK_VARIABLE: mark}, start_new_session=True)
mine.watch(mark, child.pid)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
mine.release(mark)  # waits for the guard to end
print(mine.pid, child.poll(), flush=True)
child.kill()
"""


def test_a_guard_whose_last_row_cannot_be_cleared_ends_nothing() -> None:
    ran = subprocess.run([sys.executable, "-c", NOT_CLEARED], capture_output=True, check=False, timeout=60, text=True)
    assert ran.stdout == "None None\n", ran.stderr


def test_without_files_in_memory_a_guard_reads_one_on_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> int:
        raise PermissionError(1, "a filter of system calls", name)

    monkeypatch.setattr(os, "memfd_create", refuse)
    mine, mark = Guard(), new_mark()
    child = subprocess.Popen(["sleep", "1000"], env={**os.environ, MARK_VARIABLE: mark}, start_new_session=True)
    mine.watch(mark, child.pid)
    pid = mine.pid
    assert pid is not None
    mine.forget()
    os.waitpid(pid, 0)
    assert child.wait() == -signal.SIGTERM


def test_a_finaliser_that_comes_while_the_guard_is_being_told_is_served_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, first, second = Guard(), new_mark(), new_mark()
    mine.watch(first, os.getpid())
    popen: Any = SafePopen

    def start_while_something_is_finalised(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        mine.release(first)  # as a garbage collection at this moment would
        return popen(*args, **kwargs)

    os.kill(mine.pid or 0, signal.SIGKILL)
    os.waitid(os.P_PID, mine.pid or 0, os.WEXITED | os.WNOWAIT)
    monkeypatch.setattr("claude_transport.streams.guard.SafePopen", start_while_something_is_finalised)
    mine.watch(second, os.getpid())
    assert mine.pid is not None
    mine.release(second)
    assert mine.pid is None


WITHOUT_STREAMS = """
import os, sys
from subprocess import PIPE
from claude_transport.streams.guard import SafePopen
report = os.dup(1)
for fd in map(int, sys.argv[1]):
    os.close(fd)
child = SafePopen(["/bin/sh", "-c", "read word; echo out $word; echo err $word >&2"], stdin=PIPE, stdout=PIPE, stderr=PIPE, bufsize=0)
child.stdin.write(b"word\\n")
os.write(report, b"%r %r %r" % (child.stdout.read(), child.stderr.read(), child.wait()))
"""


@pytest.mark.parametrize("closed", ["0", "1", "2", "01", "12", "02", "012"])
def test_a_host_without_standard_streams_can_start_a_child(closed: str) -> None:
    """Its pipes get the numbers 0 to 2, which the child's own streams get, too."""
    ran = subprocess.run([sys.executable, "-c", WITHOUT_STREAMS, closed], capture_output=True, check=False, timeout=60)
    assert ran.stdout == b"b'out word\\n' b'err word\\n' 0", ran.stderr.decode()


FORK = """
import os, sys, anyio
from claude_transport.streams.process import ProcessConnectable
async def main():
    stream = await ProcessConnectable(["/bin/sh", "-c", "echo up; cat"]).connect()
    await stream.receive()
    if os.fork() == 0:
        sys.exit(0)  # everything above is unwound, in the fork too
    os.wait()
    await stream.send(b"still here")
    print((await stream.receive()).decode(), flush=True)
    os._exit(0)  # the fork has taken the event loop apart, whose selector it shares; the guard ends the child
anyio.run(main, backend=sys.argv[1])
"""


async def test_a_fork_that_unwinds_leaves_the_child_to_the_host(anyio_backend_name: str) -> None:
    with anyio.fail_after(30):
        ran = await anyio.run_process([sys.executable, "-W", "ignore", "-c", FORK, anyio_backend_name], check=False)
    assert b"still here" in ran.stdout, ran.stderr.decode()
