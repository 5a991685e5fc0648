"""macOS has no `/proc`: the tree of a child is found through parents. The functions of the system are played; the processes are real."""

from __future__ import annotations

import os
import select
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from claude_transport.streams.guard import new_mark
from claude_transport.streams.libproc import MOST_DESCENDANTS, Tree, decode_start, functions_of_ps
from claude_transport.streams.sweeping import Sweeper

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="the played functions read /proc, and pidfds tell of an end")

LEADER = "import os, subprocess, sys, time\nchild = subprocess.Popen(['setsid', 'sleep', '600'])\nos.write(1, b'%d\\n' % child.pid)\n"


@pytest.fixture
def family() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A leader of a group, and the id of a child of it that has left the group."""
    leader = subprocess.Popen([sys.executable, "-c", LEADER + "time.sleep(600)"], stdout=subprocess.PIPE, start_new_session=True)
    assert leader.stdout is not None
    child = int(leader.stdout.readline())
    yield leader, child
    for kill, pid in ((os.killpg, leader.pid), (os.kill, child)):
        try:
            kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    leader.wait()
    leader.stdout.close()


def runs(pid: int) -> int | None:
    """Return what tells a running process from others of this test; None for one that has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in b"ZX" else int(fields[19])


def children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()]
    except OSError:
        return []


def test_the_tree_has_what_leads_back_to_the_child_through_living_parents() -> None:
    below = {1: [2, 3], 2: [4], 3: [3, 1], 4: [5], 9: [10]}
    tree = Tree(children=lambda pid: below.get(pid, []), started={2: 20, 3: 30, 4: None, 5: 50, 10: 100}.get)
    assert tree.descendants(1) == {2: 20, 3: 30}


def test_a_fork_bomb_does_not_keep_its_host_from_closing() -> None:
    tree = Tree(children=lambda pid: range(pid * 10, pid * 10 + 10), started=lambda pid: pid)
    assert len(tree.descendants(1)) < MOST_DESCENDANTS + 10


def test_an_id_that_another_process_has_by_now_is_dropped() -> None:
    tree = Tree(children=lambda pid: [7] if pid == 2 else [], started={2: 20, 3: 99, 7: 70}.get)
    assert tree.with_descendants({2: 20, 3: 30, 4: 40}) == {2: 20, 7: 70}


def test_the_start_is_read_from_the_structure_of_the_system() -> None:
    info = struct.pack("=12I16s32s5Ii2Q", 0, 2, *[0] * 10, b"claude", b"claude", *[0] * 5, 0, 1_795_132_800, 250)
    assert decode_start(info) == 1_795_132_800_000_250
    assert decode_start(info[:4] + struct.pack("=I", 5) + info[8:]) is None


def test_a_listing_of_ps_tells_children_and_starts_of_those_that_run() -> None:
    listing = (
        b"    1     0 Ss   Mon Nov 23 04:31:04 2026\n"
        b"   20     1 S+   Mon Nov 23 04:31:05 2026    \n"
        b"   21     1 Z    Mon Nov 23 04:31:05 2026\n"
        b"   22    20 R    Mon Nov  2 04:31:05 2026\n"
        b"no process\n\xff\xfe\n   23\n"
    )
    children, started = functions_of_ps(listing)
    assert list(children(1)) == [20]
    assert (started(21), started(23), started(99)) == (None, None, None)
    tree = Tree(children=children, started=started)
    found = tree.descendants(1)
    assert set(found) == {20, 22}
    assert found[20] != found[22]
    assert tree.with_descendants({20: found[20], 22: found[20]}) == found
    again = functions_of_ps(listing.replace(b"Nov  2", b"Nov 3"))[1]
    assert again(22) != found[22]


@on_linux
def test_where_libproc_cannot_be_loaded_ps_lists_the_tree(family: tuple[subprocess.Popen[bytes], int]) -> None:
    leader, child = family
    found = Tree().descendants(leader.pid)
    assert set(found) == {child}
    assert Tree().with_descendants(found) == found
    sweep = Sweeper(proc="/nowhere", platform="darwin").begin(new_mark(), suspects=found)
    assert sweep.wait(10)
    assert runs(child) is None


@on_linux
def test_a_sweep_without_proc_kills_the_known_descendants(family: tuple[subprocess.Popen[bytes], int]) -> None:
    leader, child = family
    tree = Tree(children=children, started=runs)
    sweeper = Sweeper(proc="/nowhere", platform="darwin", tree=tree)
    sweep = sweeper.begin(new_mark(), suspects=tree.descendants(leader.pid))
    assert sweep.wait(10)
    assert runs(child) is None
    assert leader.poll() is None


HOST = """
import os, sys
from claude_transport.streams.guard import Guard
guard = Guard(proc="/nowhere")
guard.watch(sys.argv[1], int(sys.argv[2]))
os._exit(0 if guard.pid else 1)
"""


@on_linux
def test_a_guard_without_proc_ends_what_has_left_the_group(family: tuple[subprocess.Popen[bytes], int]) -> None:
    leader, child = family
    watched = os.pidfd_open(child)
    try:
        subprocess.run([sys.executable, "-c", HOST, new_mark(), str(leader.pid)], check=True, timeout=60)
        assert leader.wait(30) == -signal.SIGTERM
        poller = select.poll()
        poller.register(watched, select.POLLIN)
        assert poller.poll(30_000)
    finally:
        os.close(watched)
