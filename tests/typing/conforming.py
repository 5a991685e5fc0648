"""What type checkers know of the conformance kit: read by mypy and pyright, run by nobody."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio.abc import ByteStream

import claude_transport as ct
from claude_transport.testing import Report, run_conformance
from claude_transport.testing.conformance import ByteStreamMedium, Peer, Reason, Subject
from claude_transport.testing.conformance.pytest_adapter import Case, parametrize


class Mine(ct.MockTransport):
    def __init__(self, stream: ByteStream) -> None:
        super().__init__()


class MyPeer(Peer):
    async def send(self, data: bytes) -> None:
        self.take(data)


@asynccontextmanager
async def subjects() -> AsyncIterator[Subject]:
    yield Subject(transport=ct.MockTransport(), peer=MyPeer())


EXCLUDES = {"write.backpressure": Reason.NEVER_WAITS}


def check() -> Report:
    run_conformance(subjects, excludes=EXCLUDES)
    run_conformance(ByteStreamMedium(Mine, excludes=EXCLUDES))
    return run_conformance(Mine, excludes=EXCLUDES, backends=["trio"])


@parametrize(Mine, subjects, excludes=EXCLUDES)
def test_the_contract(case: Case) -> None:
    case.check()
