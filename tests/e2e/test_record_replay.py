"""A conversation with the real CLI is recorded and replayed: without a CLI, an API or a key, and every message is the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

from claude_transport.client.query import Query
from claude_transport.client.questions import Allow, Deny
from claude_transport.launch.options import ClaudeOptions
from claude_transport.protocol.messages import AssistantMessage
from claude_transport.protocol.redaction import Redactor
from claude_transport.protocol.tape import Tape
from claude_transport.testing import FakeMessagesAPI, Scenario, replies
from claude_transport.transport import Transport
from claude_transport.transports.replay import ReplayTransport
from claude_transport.transports.subprocess import SubprocessTransport
from claude_transport.wrappers.recording import RecordingTransport

PATIENCE = 90.0
SECRET = "sk-ant-api03-SENTINEL"


class Conversation:
    """The program under test: prompts, a permission, an interrupt, requests. It keeps every message as it was on the wire."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers: list[dict[str, Any]] = []
        self.heard: list[bytes] = []
        self.texts: list[str] = []

    async def allow(self, tool_name: str, tool_input: dict[str, Any], _context: object) -> Allow | Deny:
        self.asked.append(f"{tool_name} {tool_input.get('command')}")
        return Allow() if len(self.asked) == 1 else Deny("not twice")

    async def run(self, transport: Transport) -> None:
        with anyio.fail_after(PATIENCE):
            async with Query(transport, can_use_tool=self.allow) as query, anyio.create_task_group() as tasks:
                messages = query.messages()

                async def listen() -> None:
                    async for message in messages:
                        self.heard.append(message.raw)
                        if isinstance(message, AssistantMessage):
                            self.texts.append(message.text)

                tasks.start_soon(listen)
                for number, prompt in enumerate(["Run it", f"Again, with {SECRET}", "Thanks"]):
                    turn = await query.send(prompt, uuid=f"00000000-0000-4000-8000-{number:012d}")
                    await turn.result()
                self.answers.append(await query.request("set_model", model="claude-haiku-4-5"))
                self.answers.append(await query.request("interrupt"))
                await query.end_input()


async def test_a_recorded_conversation_with_the_real_cli_is_replayed_message_for_message(
    claude_cli: str, cli_home: Any, cli_env: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    script = [
        replies.tool_use("Bash", {"command": "touch first.txt && echo é"}),
        replies.text("The first one is done."),
        replies.tool_use("Bash", {"command": "touch second.txt"}),
        replies.text("The second one was refused."),
        replies.text("You are welcome."),
    ]
    plain, scrubbed = tmp_path / "plain.ndjson", tmp_path / "scrubbed.ndjson"
    first = Conversation()
    async with FakeMessagesAPI(script) as api:
        options = ClaudeOptions(
            cli_path=claude_cli, cwd=str(cli_home.project), env=cli_env(api), env_mode="exact", include_partial_messages=True
        )
        inside = RecordingTransport(SubprocessTransport(options), plain, scrub=False)
        await first.run(RecordingTransport(inside, scrubbed))
    assert first.asked == ["Bash touch first.txt && echo é", "Bash touch second.txt"]
    assert [text for text in first.texts if text] == ["The first one is done.", "The second one was refused.", "You are welcome."]

    again = Conversation()
    claude = ReplayTransport(plain)
    await again.run(claude)
    claude.assert_played()
    assert again.heard == first.heard
    assert (again.asked, again.answers, again.texts) == (first.asked, first.answers, first.texts)

    clean = Conversation()
    await clean.run(ReplayTransport(scrubbed))
    assert SECRET.encode() not in scrubbed.read_bytes()
    assert Tape.read(scrubbed).header.cli_version is not None
    assert [Redactor().line(line) for line in first.heard] == [Redactor().line(line) for line in clean.heard]
    assert clean.texts == first.texts
    assert Scenario.from_recording(scrubbed).script, "a fake claude can play it, too"


async def test_the_headers_that_the_real_cli_reads_in_its_variable_are_the_ones_that_are_kept_secret(
    claude_cli: str, cli_home: Any, cli_env: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    headers = "x-route: Bramble-Curlew-1137\r\nno header\n\n x-proxy :Basic Hyssop-Dunlin-2248 \nx-words: Clover Siskin:3359"
    values = {"x-route": "Bramble-Curlew-1137", "x-proxy": "Basic Hyssop-Dunlin-2248", "x-words": "Clover Siskin:3359"}
    script = [replies.tool_use("Bash", {"command": 'printf "%s" "$ANTHROPIC_CUSTOM_HEADERS"'}), replies.text("Seen.")]
    tape = tmp_path / "tape.ndjson"
    async with FakeMessagesAPI(script) as api:
        env = cli_env(api, ANTHROPIC_CUSTOM_HEADERS=headers)
        options = ClaudeOptions(cli_path=claude_cli, cwd=str(cli_home.project), env=env, env_mode="exact", allowed_tools=("Bash",))
        with anyio.fail_after(PATIENCE):
            async with Query(RecordingTransport(SubprocessTransport(options), tape)) as query:
                await (await query.send("Show them")).result()
        sent = api.conversation[-1].headers
    assert {name: sent[name] for name in values} == values
    said = tape.read_text("utf-8")
    assert "x-route" in said  # the tool showed all of them
    for secret in ("Bramble-Curlew-1137", "Hyssop-Dunlin-2248", "Clover Siskin:3359"):
        assert secret not in said
