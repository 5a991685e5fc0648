"""The contract of a transport holds for `SubprocessTransport(CodexOptions(...))`, and for what is around it."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from claude_transport.codex import CodexOptions
from claude_transport.testing import FakeCodex
from claude_transport.testing.conformance import Subject, media, run_conformance
from claude_transport.testing.conformance import relay as relay_program
from claude_transport.testing.conformance.medium import LiveMedium
from claude_transport.transports.subprocess import SubprocessTransport
from claude_transport.wrappers.metrics import MetricsTransport


def test_the_clauses_that_need_no_peer_hold_for_a_fake_codex() -> None:
    with FakeCodex() as fake:
        report = run_conformance(lambda: SubprocessTransport(CodexOptions(codex_path=fake.path)))
    report.raise_for_failures()
    assert len(report.passed) >= 10


class CodexMedium(LiveMedium):
    """A program in the place of `codex` that the kit controls, started as Codex is."""

    name = "codex"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._inside: Any = media.subprocess()
        self._count = 0

    @asynccontextmanager
    async def subject(self) -> AsyncIterator[Subject]:
        async with self._inside.subject() as subject:
            self._count += 1
            program = self._folder / f"codex-{self._count}"

            def refuse(refusing: bool) -> None:
                if refusing:
                    program.unlink()
                    return
                program.write_text(f"#!/bin/sh\nexec {sys.executable} -I -S {relay_program.__file__} 127.0.0.1 {subject.peer.port}\n")
                program.chmod(0o755)

            refuse(False)
            transport = SubprocessTransport(
                CodexOptions(codex_path=program), max_line_bytes=subject.max_line_bytes, close_timeout=subject.close_timeout
            )
            yield Subject(
                transport=transport,
                peer=subject.peer,
                refuse=refuse,
                max_line_bytes=subject.max_line_bytes,
                close_timeout=subject.close_timeout,
                absorbs=subject.absorbs,
            )


@pytest.mark.parametrize("wrap", [None, MetricsTransport])
def test_every_clause_holds_for_a_program_in_the_place_of_codex(tmp_path: Path, wrap: Any) -> None:
    medium = CodexMedium(tmp_path)
    clauses = None if wrap is None else ("read.order", "write.order", "close.leaves-nothing", "read.failure-after-last-message")
    report = run_conformance(medium if wrap is None else media.wrapped(medium, wrap), clauses=clauses)
    report.raise_for_failures()
    assert len(report.passed) >= (60 if wrap is None else 8)
