"""One prompt to Codex, as text while it is written and as data: a fake `codex` stands in for the real one."""

from __future__ import annotations

import anyio

import claude_transport as ct
from claude_transport.codex import CodexOptions
from claude_transport.codex.testing.scenario import CodexRule, Say
from claude_transport.testing import CodexScenario, FakeCodex

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["city", "people"],
    "additionalProperties": False,
}
DATA = (Say('{"city": "Bern", "people": 137000}'),)


async def main() -> None:
    scenario = CodexScenario(rules=[CodexRule(contains="people", steps=DATA)], otherwise=(Say("A layer between."),))
    with FakeCodex(scenario) as fake:
        codex = CodexOptions(codex_path=fake.path, sandbox="read-only", approval_policy="never")

        answer = await ct.complete("What is a transport?", agent="codex", codex=codex)
        print(f"{answer.agent}: {answer.text} ({answer.agent_resolution.reason})")

        as_data = ct.ClaudeOptions(output_format={"type": "json_schema", "schema": CITY})
        answer = await ct.complete("How many people live in Bern?", agent="codex", codex=codex, options=as_data)
        print(answer.structured_output)

        async with ct.stream("What is a transport?", agent="codex", codex=codex) as pieces:
            async for piece in pieces:
                print(piece, end="", flush=True)
        print(f" [{pieces.completion.stop_reason}]")

        try:
            await ct.complete("What is a transport?", agent="codex", codex=codex, model="haiku")
        except ct.ConfigurationError as refused:
            print(refused)


if __name__ == "__main__":
    anyio.run(main)
