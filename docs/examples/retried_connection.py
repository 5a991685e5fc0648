"""Connects in several attempts, and reports a write that may have arrived."""

from __future__ import annotations

import random

import anyio

import claude_transport as ct
from claude_transport import testing
from claude_transport.testing import faults


async def no_time(_seconds: float) -> None:
    """Waits without time passing; leave `sleep=` out, and time passes."""


def tell(attempt: ct.wrappers.RetryAttempt) -> None:
    went = "went well" if attempt.error is None else f"failed: {attempt.error}"
    again = "" if attempt.delay is None else f"; again in {attempt.delay:.1f} s"
    print(f"{attempt.action} {attempt.number} of {attempt.attempts} {went}{again}")


async def main() -> None:
    flaky = ct.FaultyTransport(ct.MockTransport([testing.result("Done.")]), [faults.FailConnect(times=2)])
    backoff = ct.backoff.Backoff(first=0.5, random=random.Random(7))
    patient = ct.RetryingTransport(flaky, attempts=4, backoff=backoff, on_attempt=tell, sleep=no_time)
    async with ct.Query(patient) as query:
        result = await (await query.send("Do it")).result()
        print(result.result)

    broken = ct.FaultyTransport(ct.MockTransport(), [faults.FailWrite(write=2)])
    async with ct.RetryingTransport(broken) as transport:
        await transport.write('{"type":"user","message":{"role":"user","content":"One"}}')
        try:
            await transport.write('{"type":"user","message":{"role":"user","content":"Two"}}')
        except ct.OutcomeUncertain as error:
            print(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    anyio.run(main)
