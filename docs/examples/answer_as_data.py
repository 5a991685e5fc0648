"""An answer as data: once as the schema says, and once from a model that did not keep to it."""

from __future__ import annotations

from typing import Any

import anyio

import claude_transport as ct
from claude_transport.testing import FakeClaude, Scenario, steps

INVOICE = {
    "type": "object",
    "properties": {"customer": {"type": "string"}, "cents": {"type": "integer"}},
    "required": ["customer", "cents"],
}


async def read_invoice(query: ct.Query, text: str) -> dict[str, Any] | None:
    """What is on an invoice; None when the model did not give it as it was asked to."""
    result = await (await query.send(f"Read this invoice: {text}")).result()
    try:
        result.raise_for_error()
    except ct.StructuredOutputMissing as missing:
        print("asked for data, got:", result.result, f"[{missing.code}]")
        return None
    invoice: dict[str, Any] = result.structured_output
    return invoice


def claude_that_reads() -> FakeClaude:
    """Stands in for the real CLI."""
    read = steps.Result(text="Done.", extra={"structured_output": {"customer": "Ada", "cents": 1250}})
    return FakeClaude(Scenario.turns([[read], "I see no invoice."]))


async def main() -> None:
    with claude_that_reads() as claude:
        options = ct.ClaudeOptions(cli_path=str(claude.path), output_format={"type": "json_schema", "schema": INVOICE})
        async with ct.Query(ct.SubprocessTransport(options)) as query:
            print(await read_invoice(query, "Ada, 12.50"))
            print(await read_invoice(query, "(a photo of a cat)"))


if __name__ == "__main__":
    anyio.run(main)
