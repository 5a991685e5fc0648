"""A turn that is stopped in the middle, and its conversation taken up again by another process."""

from __future__ import annotations

import anyio

import claude_transport as ct
from claude_transport.testing import FakeClaude, Scenario, steps


def claude_that_counts() -> FakeClaude:
    """Stands in for the real CLI. Its second answer never comes to its end by itself."""
    return FakeClaude(Scenario.turns(["Here I am.", [steps.Text("One, two, three …", gate="never"), steps.Result()]]))


async def main() -> None:
    with claude_that_counts() as claude:
        options = ct.ClaudeOptions(cli_path=str(claude.path), include_partial_messages=True)
        async with ct.Query(ct.SubprocessTransport(options)) as query:
            print((await (await query.send("Are you there?")).result()).result)
            turn = await query.send("Count to a million.")
            async for message in turn:
                if isinstance(message, ct.StreamEvent):  # it has begun to speak
                    break
            print("interrupt:", (await query.interrupt()).name)
            print("the turn:", (await turn.result()).outcome.code)
            point = query.resume_point

        assert point is not None  # keep these two with your own data: they are all that is needed
        again = ct.ClaudeOptions(cli_path=str(claude.path), resume=point.session_id, resume_session_at=point.last_uuid)
        async with ct.Query(ct.SubprocessTransport(again)) as query:
            result = await (await query.send("Where were we?")).result()
            print("the same session:", result.session_id == point.session_id)


if __name__ == "__main__":
    anyio.run(main)
