"""The lock between processes on a file, and what counts as a lock that is taken."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from claude_transport.platform.locks import is_taken, try_lock

HOLDER = """
import os, sys
from claude_transport.platform.locks import try_lock
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
print(try_lock(file), flush=True)
sys.stdin.read()
"""


def test_a_lock_is_taken_until_its_descriptor_is_closed(tmp_path: Path) -> None:
    one, other = (os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert try_lock(one)
    assert not try_lock(other)
    os.close(one)
    assert try_lock(other)
    os.close(other)


def test_a_lock_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", HOLDER, str(tmp_path / "lock")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        file = os.open(tmp_path / "lock", os.O_RDWR)
        assert not try_lock(file)
        process.kill()
    assert try_lock(file)
    os.close(file)


def test_a_locked_file_can_be_read_and_written(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_bytes(b"before")
    file = os.open(path, os.O_RDWR)
    assert try_lock(file)
    path.write_bytes(b"after")
    assert path.read_bytes() == b"after"
    os.close(file)


def test_what_is_no_lock_that_is_taken_is_an_error() -> None:
    with pytest.raises(OSError, match=r".+"):
        try_lock(2**30)


@pytest.mark.parametrize("code", [errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK])
def test_on_posix_the_errno_says_that_a_lock_is_taken(code: int) -> None:
    assert is_taken(code)


@pytest.mark.parametrize(
    ("windows_code", "taken"),
    [(33, True), (997, True), (5, False), (6, False), (32, False), (1, False)],
    ids=["lock violation", "would wait", "no right to write", "no handle", "open elsewhere", "no locks here"],
)
def test_on_windows_the_code_of_the_system_decides_whatever_the_errno(windows_code: int, taken: bool) -> None:
    assert is_taken(errno.EACCES, windows_code) is taken


def test_other_errors_are_no_locks() -> None:
    assert not is_taken(errno.ENOLCK)
    assert not is_taken(None)
