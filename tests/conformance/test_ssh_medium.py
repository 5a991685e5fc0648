"""Every clause over a real ssh, on every event loop; and the sshd that it takes: there when asked for, and gone in any case."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from claude_transport.errors import ConfigurationError
from claude_transport.testing.conformance import CLAUSES, Medium, Play, Reason, Subject, media, run_conformance
from claude_transport.testing.conformance.pytest_adapter import Case, parametrize
from claude_transport.testing.conformance.sshd import missing_for_sshd, running_sshd, shared_sshd
from claude_transport.wrappers.base import TransportWrapper

sys.path.insert(0, str(Path(__file__).parents[1]))
from sshd import why_no_sshd

PATIENCE = 60  # seconds


def _needs_sshd() -> None:
    if (reason := why_no_sshd()) is not None:
        pytest.skip(reason)


# not on uvloop too: what the loop sees is a child like any other, and test_media.py has one of those there
@pytest.mark.one_loop
@parametrize(media.ssh(), backends=["asyncio", "trio"], timeout=30.0)
def test_a_transport_over_ssh_keeps_the_clause(case: Case) -> None:
    _needs_sshd()
    assert case.check().verdict == "passed"


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str | None], None]:
    """`found(name, path)`: on this machine, that program is there, or, with None, nowhere."""
    which = shutil.which

    def let_it_be(name: str, path: str | None) -> None:
        monkeypatch.setattr(shutil, "which", lambda program, **more: path if program == name else which(program, **more))

    return let_it_be


@pytest.mark.parametrize("name", ["ssh", "ssh-keygen", "sshd"])
def test_without_one_of_its_programs_every_clause_is_excluded_and_says_why(found: Callable[[str, str | None], None], name: str) -> None:
    found(name, None)
    assert name in missing_for_sshd()
    report = run_conformance(media.wrapped(media.ssh(), TransportWrapper), backends=["asyncio"])
    without_sshd = [row.clause for row in report.excluded if row.reason is Reason.NO_SSHD]
    assert without_sshd == [clause.id for clause in CLAUSES]
    assert {row.reason for row in report.excluded} == {Reason.NO_SSHD, Reason.NEVER_SPEAKS}  # what wrappers promise needs no medium
    with pytest.raises(ConfigurationError, match=name) as caught, running_sshd():
        pass
    assert caught.value.option == "factory"


def test_an_sshd_that_does_not_begin_to_listen_is_told_with_its_own_words(found: Callable[[str, str | None], None], tmp_path: Path) -> None:
    _needs_sshd()
    broken = tmp_path / "sshd"
    broken.write_text("#!/bin/sh\necho 'no hostkeys available' >&2\nexit 1\n")
    broken.chmod(0o755)
    found("sshd", str(broken))
    with pytest.raises(ConfigurationError, match=r"does not listen.*no hostkeys available"), running_sshd():
        pass


def test_what_a_medium_shares_is_there_before_any_clause_is_asked_also_when_it_is_wrapped() -> None:
    class Shared(Medium):
        def prepare(self) -> None:
            raise ConfigurationError("there is none today", option="factory")

        def open(self, play: Play) -> AbstractAsyncContextManager[Subject]:
            raise NotImplementedError

    for medium in (Shared(), media.wrapped(Shared(), TransportWrapper), media.recorded(Shared())):
        with pytest.raises(ConfigurationError, match="none today"):
            run_conformance(medium)


def test_one_process_has_one_sshd() -> None:
    _needs_sshd()
    assert shared_sshd() is shared_sshd()


@pytest.mark.parametrize("end", ["by itself", "by SIGKILL"])
def test_the_sshd_of_a_process_ends_with_it(end: str) -> None:
    _needs_sshd()
    code = (
        "import sys; from claude_transport.testing.conformance.sshd import shared_sshd;"
        "print(int((shared_sshd().folder / 'pid').read_text()), flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdin is not None
        assert host.stdout is not None
        server = os.pidfd_open(int(host.stdout.readline()))
        try:
            if end == "by itself":
                host.stdin.close()
            else:
                host.send_signal(signal.SIGKILL)
            host.wait(PATIENCE)
            assert _ended(server)
        finally:
            os.close(server)


def _ended(process: int) -> bool:
    """True when the process behind a descriptor ends in bounded time."""
    poller = select.poll()
    poller.register(process, select.POLLIN)
    return bool(poller.poll(PATIENCE * 1000))
