"""Counts several sessions: one by one, and all of them on one page for Prometheus."""

from __future__ import annotations

import anyio

import claude_transport as ct
from claude_transport.testing import FakeClaude, Scenario


async def main() -> None:
    registry = ct.wrappers.MetricsRegistry()
    with FakeClaude(Scenario.text("Hello!")) as claude:
        for prompts in (["Hi"], ["How are you?", "And now?"]):
            transport = ct.MetricsTransport(ct.SubprocessTransport(command=claude.command), registry=registry)
            async with ct.Query(transport) as query:
                for prompt in prompts:
                    await (await query.send(prompt)).result()

            session = transport.metrics.snapshot()
            assert session.result.mean is not None
            assert session.bytes_read == transport.info.bytes_read
            print(f"{session.prompts} prompts, {session.tokens.output_tokens} tokens, {session.cost_usd:.6f} USD, {session.results}")

    shown = ("claude_transport_sessions_total", "claude_transport_results_total", "claude_transport_tokens_total")
    for line in registry.prometheus_text(labels={"service": "demo"}).splitlines():
        if line.startswith(shown):
            print(line)


if __name__ == "__main__":
    anyio.run(main)
