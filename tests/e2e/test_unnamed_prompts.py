"""The real CLI, made to look like an older one: it names no prompts any more, and every result still finds its own.

A wrapper takes the names out of what the CLI says and keeps them: they are the truth that the attribution is compared with.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import anyio
import pytest

import claude_transport as ct
from claude_transport.testing import FakeMessagesAPI, replies
from claude_transport.transport import read_lines_of

PATIENCE = 60.0  # seconds for the CLI to say its next word, on a machine with much else to do
NAMES = ("user_message_uuid", "user_message_uuids")


class OldCLI(ct.TransportWrapper):
    """Hands on what an older CLI would say: no lifecycles, no session states, and no names of prompts."""

    def __init__(self, transport: ct.Transport) -> None:
        super().__init__(transport)
        self.truth: list[set[str]] = []

    async def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
        async for batch in read_lines_of(self.transport):
            kept = [line for line in map(self.forgetting, batch) if line]
            if kept:
                yield kept

    def forgetting(self, line: bytes) -> bytes:
        frame = json.loads(line)
        if frame["type"] == "result":
            self.truth.append(set(frame.get("user_message_uuids", ())))
        if frame["type"] == "command_lifecycle" or frame.get("subtype") == "session_state_changed":
            return b""
        return json.dumps({name: value for name, value in frame.items() if name not in NAMES}).encode()


Talk = Callable[..., tuple[ct.Query, OldCLI]]


@pytest.fixture
def talk(claude_cli: str, cli_home: Any, cli_env: Callable[..., dict[str, str]]) -> Talk:
    """`talk(api, **callbacks)`: a Query over a CLI that names no prompts, and that CLI."""

    def build(api: FakeMessagesAPI, **callbacks: Any) -> tuple[ct.Query, OldCLI]:
        env = cli_env(api, CLAUDE_CODE_MAX_RETRIES="0")
        cli = OldCLI(ct.SubprocessTransport(ct.ClaudeOptions(cli_path=claude_cli, cwd=cli_home.project, env=env, env_mode="exact")))
        return ct.Query(cli, **callbacks), cli

    return build


async def results_of(turns: Sequence[ct.Turn]) -> list[ct.ResultMessage]:
    """The result of each, without repetition."""
    found: list[ct.ResultMessage] = []
    with anyio.fail_after(PATIENCE):
        for turn in turns:
            result = await turn.result()
            if not any(result is other for other in found):
                found.append(result)
    return found


def attributed(results: Sequence[ct.ResultMessage]) -> list[set[str]]:
    return [set(result.prompt_uuids or ()) for result in sorted(results, key=lambda result: result.result_index or 0)]


@pytest.mark.needs("user_message_uuids")
async def test_what_waits_in_the_queue_gets_the_results_that_it_has(talk: Talk) -> None:
    async with FakeMessagesAPI([replies.gated("one two")]) as api:
        query, cli = talk(api)
        async with query:
            turns = [await query.send("first")]
            await api.wait_at_gate()
            for text in ("b", "c for later", "/usage", "d", "e", "f for later"):
                turns.append(await query.send(text, priority="later" if "later" in text else None))  # noqa: PERF401 - one after the other
            await query.session_cost()  # answered in order of reading: the CLI has read all of them
            api.open_gate()
            results = await results_of(turns)
    assert attributed(results) == cli.truth
    assert [turn.state for turn in turns] == ["done", "done", "done", "done", "done", "folded", "folded"]


@pytest.mark.needs("user_message_uuids")
async def test_what_is_sent_while_a_tool_runs_is_folded_into_its_turn(talk: Talk) -> None:
    asked, allowed = anyio.Event(), anyio.Event()

    async def allow_later(_name: str, _input: dict[str, Any], _context: ct.client.CallbackContext) -> ct.Allow:
        asked.set()
        await allowed.wait()
        return ct.Allow()

    async with FakeMessagesAPI([replies.tool_use("Bash", {"command": "touch here"}), "Saw both."]) as api:
        query, cli = talk(api, can_use_tool=allow_later)
        async with query:
            turns = [await query.send("first")]
            with anyio.fail_after(PATIENCE):
                await asked.wait()
            turns += [await query.send("meanwhile"), await query.send("for later", priority="later")]
            await query.session_cost()
            allowed.set()
            results = await results_of(turns)
    assert attributed(results) == cli.truth
    assert [turn.state for turn in turns] == ["done", "folded", "done"]


@pytest.mark.needs("user_message_uuids")
@pytest.mark.parametrize("during", ["a text", "a tool"])
async def test_after_an_interrupt_what_waits_has_a_turn_of_its_own(talk: Talk, during: str) -> None:
    asked = anyio.Event()

    async def never_allow(_name: str, _input: dict[str, Any], _context: ct.client.CallbackContext) -> ct.Allow:
        asked.set()
        await anyio.sleep_forever()
        raise AssertionError

    opening = replies.gated("one two") if during == "a text" else replies.tool_use("Bash", {"command": "touch here"})
    async with FakeMessagesAPI([opening]) as api:
        query, cli = talk(api, can_use_tool=never_allow)
        async with query:
            turns = [await query.send("first")]
            with anyio.fail_after(PATIENCE):
                await (api.wait_at_gate() if during == "a text" else asked.wait())
            turns += [await query.send("second"), await query.send("third")]
            assert await query.interrupt() is ct.InterruptOutcome.ACKNOWLEDGED
            results = await results_of(turns)
            messages = [message async for message in turns[1]]
    assert attributed(results) == cli.truth
    assert [turn.state for turn in turns] == ["done", "done", "folded"]
    assert results[0].outcome.code == "result.interrupted"
    assert results[1].outcome.ok
    assert "interrupted" not in str([message.text for message in messages if isinstance(message, ct.UserMessage | ct.AssistantMessage)])
