"""A fake codex asks for approval, and the program under test decides."""

from __future__ import annotations

import anyio

from claude_transport import SubprocessTransport
from claude_transport.codex import ApprovalDecision, ApprovalRequest, CodexOptions, CodexSession, CommandApproval
from claude_transport.codex.testing.scenario import RunCommand, Say
from claude_transport.testing import CodexScenario, FakeCodex


async def decide(request: ApprovalRequest) -> ApprovalDecision:
    return "decline" if isinstance(request, CommandApproval) and "rm" in (request.command or "") else "accept"


async def main() -> None:
    scenario = CodexScenario(otherwise=(RunCommand("rm -rf build", ask=True), Say("I was not allowed to.")))
    with FakeCodex(scenario) as fake:
        options = CodexOptions(codex_path=fake.path)
        async with CodexSession(SubprocessTransport(options), on_approval=decide) as session:
            turn = await session.send("Clean up")
            result = await turn.result()
        (call,) = fake.calls()
    print(result.status, "-", result.text)
    print(call.prompts, call.answers[0]["result"], call.exit_code)


if __name__ == "__main__":
    anyio.run(main)
