"""A session that a subscription pays for: what is kept from `claude`, and what is refused. A fake stands in for the real one."""

from __future__ import annotations

import anyio

import claude_transport as ct
from claude_transport.testing import FakeClaude, Scenario

INHERITED = {"PATH": "/usr/bin:/bin", "HOME": "/home/alice", "ANTHROPIC_API_KEY": "sk-ant-of-somebody-else"}  # a program takes os.environ


async def main() -> None:
    options = ct.ClaudeOptions(billing="subscription")
    for name, origin in ct.describe_environment(options, INHERITED).items():
        print(f"{name}: {origin}")

    try:
        ct.build_environment(options.replace(billing="subscription_strict"), INHERITED)
    except ct.ConfigurationError as error:
        print(f"{error.code}: refused, whatever it would have cost")

    with FakeClaude(Scenario.text("On the subscription.")) as claude:
        answer = await ct.complete("Who pays?", transport="cli", options=options.replace(cli_path=claude.path))
    print(answer.text)

    try:
        await ct.complete("Who pays?", transport="api", billing="subscription")
    except ct.ConfigurationError as error:
        print(f"{error.code}: the API knows no subscription")


if __name__ == "__main__":
    anyio.run(main)
