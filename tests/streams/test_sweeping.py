"""The sweep after a child: what it finds, what it never reads, and that no process can stop it."""

from __future__ import annotations

import _thread
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from claude_transport.streams.guard import (
    MARK_VARIABLE,
    SPARED_VARIABLE,
    carried_limit,
    descendants,
    find_marked,
    is_running,
    kill_marked,
    limit_of,
    mark_limits,
    new_mark,
    read_file,
)
from claude_transport.streams.sweeping import Sweeper

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other processes can be read on Linux only")

PATIENCE = 30.0
UNUSED = 5_000_000
"""A process id above the largest of Linux, so that killing a made-up process does no harm."""


class Machine:
    """A made-up `/proc`. Its processes started with the machine unless told otherwise; reads are recorded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reads: list[str] = []
        self.hanging: set[str] = set()
        self.released = threading.Event()
        folder.joinpath("self").mkdir(parents=True)

    def start(self, pid: int, environ: bytes = b"A=1\0", *, cmdline: bytes = b"sleep\0", state: str = "S", age: float = 1e9) -> None:
        """Add a process `pid`, of `age` seconds when that is given."""
        began = 0 if age >= 1e9 else int((time.clock_gettime(time.CLOCK_BOOTTIME) - age) * os.sysconf("SC_CLK_TCK"))
        fresh = self.folder / f"fresh-{len(self.reads)}-{pid}"
        fresh.mkdir()
        (fresh / "environ").write_bytes(environ)
        (fresh / "cmdline").write_bytes(cmdline)
        (fresh / "stat").write_text(f"{pid} (a ) name) {state} 1 {'0 ' * 17}{began} 0")
        if (self.folder / str(pid)).exists():
            (self.folder / str(pid)).rename(self.folder / f"gone-{len(self.reads)}-{pid}")
        fresh.rename(self.folder / str(pid))

    def read(self, path: str) -> bytes:
        """Read a file, for the `Sweeper`."""
        self.reads.append(path)
        if Path(path).parent.name in self.hanging:
            self.released.wait(PATIENCE)
        return read_file(path)

    def environs(self) -> list[int]:
        """Return the processes whose environments were read since the last call."""
        read = [int(Path(path).parent.name) for path in self.reads if path.endswith("/environ")]
        self.reads.clear()
        return sorted(read)

    def sweeper(self, *, patience: float = 0.0) -> Sweeper:
        return Sweeper(proc=str(self.folder), platform="linux", read=self.read, patience=patience)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path / "proc")
    yield machine
    machine.released.set()


def sweep(sweeper: Sweeper, mark: str | None = None) -> None:
    """Sweep once, and wait for the end."""
    assert sweeper.begin(mark or new_mark()).wait(PATIENCE)


# How little is read.


@pytest.mark.parametrize("others", [10, 300])
def test_what_ran_before_the_first_child_is_never_read(others: int, machine: Machine) -> None:
    sweeper = machine.sweeper()
    for n in range(others):
        machine.start(UNUSED + n)
    sweeper.learn()
    for _ in range(3):
        sweep(sweeper)
    assert machine.reads == []


@pytest.mark.parametrize("others", [10, 300])
def test_what_was_read_once_is_not_read_again_however_many_there_are(others: int, machine: Machine) -> None:
    sweeper = machine.sweeper()
    sweeper.learn()
    for n in range(others):
        machine.start(UNUSED + n)
    sweep(sweeper)
    assert machine.environs() == list(range(UNUSED, UNUSED + others))
    for _ in range(3):
        sweep(sweeper)
    assert machine.environs() == []
    machine.start(UNUSED + others)
    sweep(sweeper)
    assert machine.environs() == [UNUSED + others]


def test_processes_of_other_living_children_are_read_once(machine: Machine) -> None:
    sweeper = machine.sweeper()
    sweeper.learn()
    for n in range(50):
        machine.start(UNUSED + n, f"{MARK_VARIABLE}={new_mark()}\0".encode(), age=0)
    sweep(sweeper)
    assert len(machine.environs()) == 50
    sweep(sweeper)
    assert machine.environs() == []


def test_a_process_with_the_id_of_one_that_ended_is_read(machine: Machine) -> None:
    sweeper = machine.sweeper()
    machine.start(UNUSED)
    sweeper.learn()
    machine.start(UNUSED)
    sweep(sweeper)
    assert machine.environs() == [UNUSED]


def test_what_is_new_is_read_again_because_it_may_execute_another_program(machine: Machine) -> None:
    sweeper = machine.sweeper()
    sweeper.learn()
    machine.start(UNUSED, age=0)
    machine.start(UNUSED + 1, b"", cmdline=b"")  # in the middle of executing one, at whatever age
    for _ in range(2):
        sweep(sweeper)
        assert machine.environs() == [UNUSED, UNUSED + 1]


def test_what_will_never_have_an_environment_is_read_once(machine: Machine) -> None:
    sweeper = machine.sweeper()
    sweeper.learn()
    machine.start(UNUSED, b"", cmdline=b"", state="Z", age=0)
    machine.start(UNUSED + 1, b"")  # `env -i`
    sweep(sweeper)
    assert machine.environs() == [UNUSED, UNUSED + 1]
    sweep(sweeper)
    assert machine.environs() == []


def test_a_process_that_is_just_being_started_is_waited_for(machine: Machine) -> None:
    sweeper, mark = machine.sweeper(patience=PATIENCE), new_mark()
    sweeper.learn()
    machine.start(UNUSED, b"", cmdline=b"", age=0)
    begun = sweeper.begin(mark)
    while len(machine.reads) < 10:
        assert not begun.wait(0.01)
    machine.start(UNUSED, b"A=1\0")
    assert begun.wait(PATIENCE)


def test_children_that_are_closed_at_once_share_a_look(machine: Machine) -> None:
    sweeper = machine.sweeper()
    machine.start(UNUSED, age=0)  # read in each round
    machine.hanging.add(str(UNUSED))
    first = sweeper.begin(new_mark())
    while not machine.reads:
        assert not first.wait(0.01)
    others = [sweeper.begin(new_mark()) for _ in range(100)]
    machine.hanging.clear()
    machine.released.set()
    assert all(each.wait(PATIENCE) for each in [first, *others])
    assert len(machine.environs()) == 2


# One look on the event loop, which needs no thread.


def test_one_listing_says_that_nothing_is_left_and_reads_nothing(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    sweeper, threads = machine.sweeper(), []
    monkeypatch.setattr(_thread, "start_new_thread", lambda *begun: threads.append(begun))
    machine.start(UNUSED)
    sweeper.learn()
    assert sweeper.is_clean(new_mark())
    assert machine.reads == threads == []


def test_a_request_that_comes_during_the_look_is_not_forgotten(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finaliser may make it, at any point."""
    sweeper, begun, scandir = machine.sweeper(), [], os.scandir
    sweeper.learn()

    def finalise(path: str) -> Any:
        if not begun:
            begun.append(sweeper.begin(new_mark()))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", finalise)
    assert sweeper.is_clean(new_mark())
    assert begun[0].wait(PATIENCE)
    sweep(sweeper)


def test_a_process_that_is_not_known_needs_a_sweep(machine: Machine) -> None:
    sweeper = machine.sweeper()
    machine.start(UNUSED)
    sweeper.learn()
    machine.start(UNUSED)  # another one, under the same id
    assert not sweeper.is_clean(new_mark())
    sweep(sweeper)
    assert sweeper.is_clean(new_mark())


def test_a_process_that_is_known_to_carry_the_mark_needs_a_sweep(machine: Machine) -> None:
    sweeper, mark = machine.sweeper(), new_mark()
    sweeper.learn()
    machine.start(UNUSED, f"{MARK_VARIABLE}={mark}\0".encode(), age=0)
    sweep(sweeper)
    assert sweeper.is_clean(new_mark())
    assert not sweeper.is_clean(mark)


def test_a_process_of_the_library_is_overlooked(machine: Machine) -> None:
    sweeper = machine.sweeper()
    sweeper.learn()
    machine.start(UNUSED)
    sweeper.overlook(UNUSED)
    sweeper.overlook(None)
    assert sweeper.is_clean(new_mark())


@contextmanager
def numbered(sweeper: Sweeper, mark: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that carries the number of a mark, and nothing else."""
    process = sleeper()
    sweeper.watch(mark, process.pid)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("needs_sweep", [False, True])
def test_the_number_of_a_child_of_which_nothing_is_left_counts_no_more(needs_sweep: bool, machine: Machine) -> None:
    """Another mark may have the same number."""
    sweeper, mark = machine.sweeper(), new_mark()
    sweeper.learn()
    with numbered(sweeper, mark) as process:
        if needs_sweep:
            machine.start(UNUSED)
            sweep(sweeper, mark)
        else:
            assert sweeper.is_clean(mark)
        machine.start(process.pid)
        sweep(sweeper)
        assert sweeper.is_clean(mark)


def test_the_number_of_a_child_counts_while_something_may_be_left(machine: Machine) -> None:
    sweeper, mark = machine.sweeper(), new_mark()
    sweeper.learn()
    with numbered(sweeper, mark) as process:
        machine.start(process.pid)
        assert not sweeper.is_clean(mark)
        sweep(sweeper, mark)
        assert process.wait(PATIENCE) == -signal.SIGKILL


def test_many_processes_are_left_to_the_thread(machine: Machine) -> None:
    sweeper = machine.sweeper()
    for n in range(400):
        machine.start(UNUSED + n)
    sweeper.learn()
    assert not sweeper.is_clean(new_mark())


def test_while_a_sweep_is_at_work_the_look_waits_for_nothing(machine: Machine) -> None:
    sweeper = machine.sweeper()
    sweeper.learn()
    machine.start(UNUSED)
    machine.hanging.add(str(UNUSED))
    begun = sweeper.begin(new_mark())
    while not machine.reads:
        assert not begun.wait(0.01)
    assert not sweeper.is_clean(new_mark())
    machine.released.set()
    assert begun.wait(PATIENCE)


def test_on_other_systems_one_look_is_enough(machine: Machine) -> None:
    machine.start(UNUSED)
    assert Sweeper(proc=str(machine.folder), platform="darwin").is_clean(new_mark())


# What is found.


def sleeper(code: str = "", **env: str) -> subprocess.Popen[bytes]:
    """Start a process that reports its start, and then waits."""
    program = f"import os, sys, time; {code or 'pass'}; os.write(1, b'up'); time.sleep(1000)"
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", program], stdout=subprocess.PIPE, env=env)
    assert process.stdout is not None
    assert process.stdout.read(2) == b"up"
    process.stdout.close()
    return process


def ended(process: subprocess.Popen[bytes]) -> bool:
    """Return True when the process was killed already. It is killed in any case."""
    was_killed = not is_running(f"/proc/{process.pid}")
    process.kill()
    process.wait()
    return was_killed


def test_what_carries_either_mark_is_killed_and_nothing_else() -> None:
    sweeper, mark, other = Sweeper(), new_mark(), new_mark()
    sweeper.learn()
    by_environment = sleeper(**{MARK_VARIABLE: mark})
    by_limit, of_another, stranger = sleeper(), sleeper(**{MARK_VARIABLE: other}), sleeper()
    spared, by_both = sleeper(**{SPARED_VARIABLE: "yes"}), sleeper(**{SPARED_VARIABLE: "yes", MARK_VARIABLE: mark})
    for process in (by_limit, spared, by_both):
        sweeper.watch(mark, process.pid)
    assert sorted(find_marked(mark)) == sorted([by_environment.pid, by_limit.pid, by_both.pid])
    sweep(sweeper, mark)
    killed = [by_environment, by_limit, by_both, of_another, stranger, spared]
    assert [ended(process) for process in killed] == [True, True, True, False, False, False]


def test_what_was_seen_while_another_child_was_closed_is_found_when_its_own_is() -> None:
    sweeper, mark = Sweeper(), new_mark()
    sweeper.learn()
    process = sleeper(**{MARK_VARIABLE: mark})
    sweep(sweeper)
    assert is_running(f"/proc/{process.pid}")
    sweep(sweeper, mark)
    assert ended(process)


def test_a_known_descendant_is_killed_without_any_mark() -> None:
    sweeper, mark = Sweeper(), new_mark()
    process = sleeper()
    sweeper.learn()
    assert process.pid in descendants(os.getpid())
    assert sweeper.begin(mark, suspects={process.pid: Path(f"/proc/{process.pid}").stat().st_ino}).wait(PATIENCE)
    assert ended(process)


def test_a_suspect_whose_id_belongs_to_another_process_by_now_is_left_alone() -> None:
    sweeper = Sweeper()
    process = sleeper()
    assert sweeper.begin(new_mark(), suspects={process.pid: Path("/proc/self").stat().st_ino + 1}).wait(PATIENCE)
    assert not ended(process)


def test_the_number_is_on_the_process_and_on_what_it_had_started_and_stays_there() -> None:
    mark = new_mark()
    process = sleeper("os.fork() or (os.setsid(), time.sleep(1000))")
    children = [*descendants(process.pid)]
    assert len(children) == 1
    assert mark_limits(process.pid, mark)
    assert [carried_limit(pid) for pid in (process.pid, *children, os.getpid())] == [limit_of(mark)] * 2 + [None]
    assert mark_limits(process.pid, another := new_mark()), "a child inside of a child has the mark of the inner one"
    assert carried_limit(process.pid) == limit_of(another) != limit_of(mark)
    assert kill_marked(another) == 2
    assert process.wait(PATIENCE) == -signal.SIGKILL


def test_a_limit_that_was_set_on_purpose_is_left_alone() -> None:
    import resource

    process = sleeper("import resource; resource.setrlimit(resource.RLIMIT_RTTIME, (200_000, 300_000))")
    assert not mark_limits(process.pid, new_mark())
    assert resource.prlimit(process.pid, resource.RLIMIT_RTTIME) == (200_000, 300_000)
    assert carried_limit(process.pid) is None
    assert not ended(process)


def test_on_other_systems_nothing_is_read(machine: Machine) -> None:
    machine.start(UNUSED)
    sweeper = Sweeper(proc=str(machine.folder), platform="darwin", read=machine.read)
    sweeper.learn()
    sweeper.watch(new_mark(), os.getpid())
    sweep(sweeper)
    assert machine.reads == []
    assert carried_limit(os.getpid()) is None


def test_a_machine_without_proc_has_nothing_to_find(tmp_path: Path) -> None:
    sweeper = Sweeper(proc=str(tmp_path / "nothing"), platform="linux")
    sweeper.learn()
    assert not sweeper.is_clean(new_mark())
    sweep(sweeper)


# What cannot stop it.


def give_up(sweeper: Sweeper, begun: object, *, until: Callable[[], bool]) -> None:
    """Wait for a sweep again and again, as closing does, until the condition is true."""
    deadline = time.monotonic() + PATIENCE
    while not until():
        assert time.monotonic() < deadline
        sweeper.wait(begun, 0.05)  # type: ignore[arg-type]


def test_a_process_that_cannot_be_read_hides_no_other_one_and_is_not_tried_again(machine: Machine) -> None:
    sweeper = machine.sweeper(patience=0.1)
    sweeper.learn()
    for n in range(3):
        machine.start(UNUSED + n)
    machine.hanging.add(str(UNUSED + 1))
    begun = sweeper.begin(new_mark())
    give_up(sweeper, begun, until=lambda: begun.is_over)
    assert machine.environs().count(UNUSED + 1) == 1
    machine.start(UNUSED + 3)
    sweep(sweeper)
    assert machine.environs() == [UNUSED + 3]


def test_many_processes_that_cannot_be_read_end_the_sweep(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    sweeper = machine.sweeper(patience=0.1)
    sweeper.learn()
    for n in range(10):
        machine.start(UNUSED + n)
        machine.hanging.add(str(UNUSED + n))
    followed: list[int] = []
    begun = sweeper.begin(new_mark(), then=lambda: followed.append(1))
    give_up(sweeper, begun, until=lambda: begun.is_over)
    assert followed == [1]
    assert len(machine.environs()) == 3
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_listing_that_never_ends_is_not_waited_for(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    sweeper = machine.sweeper(patience=0.1)
    scandir = os.scandir

    def hang(path: str) -> object:
        if path == str(machine.folder):
            machine.released.wait(PATIENCE)
        return scandir(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", hang)
        begun = sweeper.begin(new_mark())
        give_up(sweeper, begun, until=lambda: begun.is_over)
    machine.start(UNUSED)
    sweep(sweeper)
    assert machine.environs() == [UNUSED], "the next child is looked for as ever"


def test_a_file_that_never_ends_is_read_for_a_while(machine: Machine) -> None:
    sweeper = machine.sweeper()
    sweeper.learn()
    machine.start(UNUSED)
    (machine.folder / str(UNUSED) / "environ").unlink()
    (machine.folder / str(UNUSED) / "environ").symlink_to("/dev/zero")
    sweep(sweeper)
    assert machine.environs() == [UNUSED]


def test_a_finaliser_in_the_thread_of_the_sweep_does_not_wait_for_itself(machine: Machine) -> None:
    sweeper = machine.sweeper()
    inner: list[bool] = []

    def finalise() -> None:
        begun = sweeper.begin(new_mark())
        sweeper.wait(begun, PATIENCE)
        inner.append(begun.is_over)

    assert sweeper.begin(new_mark(), then=finalise).wait(PATIENCE)
    assert inner == [False]
    sweep(sweeper)


def test_what_fails_after_a_sweep_is_logged_and_stops_no_other(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ValueError("on purpose")

    sweeper = machine.sweeper()
    assert sweeper.begin(new_mark(), then=fail).wait(PATIENCE)
    sweep(sweeper)
    assert "on purpose" in caplog.text


def test_a_system_without_a_free_thread_has_the_caller_do_the_work(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    machine.start(UNUSED)
    begun = machine.sweeper().begin(new_mark())
    assert begun.is_over
    assert machine.environs() == [UNUSED]


def test_a_fork_of_the_host_begins_anew(machine: Machine) -> None:
    sweeper = machine.sweeper(patience=PATIENCE)
    machine.start(UNUSED)
    machine.hanging.add(str(UNUSED))
    begun = sweeper.begin(new_mark())
    while not machine.reads:
        assert not begun.wait(0.01)
    sweeper.forget()
    machine.hanging.clear()
    sweep(sweeper)
    machine.released.set()


def test_what_is_remembered_of_ended_processes_is_forgotten(machine: Machine) -> None:
    sweeper = machine.sweeper()
    sweeper.learn()
    sweep(sweeper)
    for n in range(1_200):
        machine.start(UNUSED + n)
    sweep(sweeper)
    assert len(machine.environs()) == 1_200
    for path in [*machine.folder.iterdir()][:-2]:
        path.rename(machine.folder.parent / path.name)
    sweep(sweeper)
    for path in machine.folder.parent.iterdir():
        if path.name.isdigit():
            path.rename(machine.folder / path.name)
    sweep(sweeper)
    assert len(machine.environs()) >= 1_190, "forgotten, so read again"
