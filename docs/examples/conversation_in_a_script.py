"""A script holds a conversation without an event loop."""

from __future__ import annotations

import claude_transport as ct
from claude_transport.client import SyncQuery
from claude_transport.testing import FakeClaude, Scenario


def main() -> None:
    with FakeClaude(Scenario.echo()) as claude, SyncQuery(ct.SubprocessTransport(command=claude.command)) as query:
        print(query.send("Hello").result().result)
        for message in query.send("Again"):
            if isinstance(message, ct.AssistantMessage):
                print(message.text)


if __name__ == "__main__":
    main()
