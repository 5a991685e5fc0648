"""The ladder for whole calls: it waits for nothing itself, it only says how long."""

from __future__ import annotations

import anyio

import claude_transport as ct
from claude_transport.backoff import parse_retry_after


async def main() -> None:
    policy = ct.RetryPolicy(rate_limit=2, backoff=ct.backoff.Backoff(jitter=0))
    limited, lost = ct.RateLimited(), ct.ProcessError(exit_code=1)
    print("limited for the first time:", policy.next_delay(limited))
    print("and once more:", policy.next_delay(limited, earlier=[limited]))
    print("and once too often:", policy.next_delay(limited, earlier=[limited, limited]))
    print("the header says 20:", policy.next_delay(limited, retry_after=parse_retry_after("20")))
    print("the header says tomorrow:", policy.next_delay(limited, retry_after=parse_retry_after("86400")))
    print("a crash, of a call with tools:", policy.next_delay(lost))
    print("a crash, of a call without any:", policy.next_delay(lost, side_effects=False))


if __name__ == "__main__":
    anyio.run(main)
