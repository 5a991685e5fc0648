"""A function that ran `claude -p`, with its flags, after it has moved. A fake stands in for the CLI."""

from __future__ import annotations

import claude_transport as ct
from claude_transport.completion import complete_sync
from claude_transport.testing import FakeClaude, Scenario


def ask(prompt: str, *, cli_path: str, folder: str = ".") -> str:
    options = ct.ClaudeOptions(
        allowed_tools=ct.split_rules("Read, Bash(git log:*)"),
        max_turns=3,
        cwd=folder,
        env={"LANG": "C"},
        cli_path=cli_path,  # only for the fake: without it, the `claude` of this machine is found
    )
    return complete_sync(prompt, transport="cli", model="opus", options=options, timeout=60).text


def main() -> None:
    with FakeClaude(Scenario.text("Three commits."), record_env=["LANG"]) as fake:
        print(ask("What is new?", cli_path=str(fake.path)))
        (call,) = fake.calls()
        print(*(word for word in call.argv if word.startswith(("--allowed", "--model", "--max-turns"))), call.env)
    try:
        ask("What is new?", cli_path="/nowhere/claude")
    except ct.CLINotFoundError as error:
        print(type(error).__name__, error.code)


if __name__ == "__main__":
    main()
