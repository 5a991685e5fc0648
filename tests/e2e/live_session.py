"""A conversation with the real CLI, as the tests of the single areas start it: one per test, and nothing is shared between two."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import anyio

import claude_transport as ct
from claude_transport.testing import FakeMessagesAPI, replies
from claude_transport.testing.fake_messages_api import RecordedRequest

PATIENCE = 60.0  # seconds for one session, on a machine with much else to do

M = TypeVar("M", bound=ct.Message)

QUERY_ARGUMENTS = frozenset({"can_use_tool", "hooks", "agents", "initialize", "on_request", "on_callback_error"})
TRANSPORT_ARGUMENTS = frozenset({"close_timeout", "max_line_bytes", "on_stderr", "strict"})


@dataclass
class LiveSession:
    """A query to the real CLI, the API it talks to, and the directory it works in."""

    query: ct.Query
    api: FakeMessagesAPI
    project: Path

    async def ask(self, content: Any, **arguments: Any) -> ct.ResultMessage:
        """The result of one prompt."""
        return await (await self.query.send(content, **arguments)).result()

    async def hear(self, content: Any, **arguments: Any) -> list[ct.Message]:
        """All messages of one prompt's turn."""
        return [message async for message in await self.query.send(content, **arguments)]

    def told(self, request: int = -1) -> list[str]:
        """What the tools of the last step said to the model, by one of its requests."""
        return [str(block.get("content")) for block in self.api.conversation[request].tool_results]

    @property
    def report_for_work(self) -> str:
        """A shell command by which a tool says that it runs, on a line this test is listening to anyway."""
        return f"""'{sys.executable}' -c 'import urllib.request as r; r.urlopen("{self.api.url}/api/hello").read()'"""

    async def at_work(self) -> None:
        """Return when a tool has reported for work."""
        await self.api.wait_for_requests(1, kind="probe", timeout=PATIENCE)


@dataclass(frozen=True)
class Live:
    """Starts sessions in the one clean world that the test has."""

    cli: str
    home: Any
    environment: Any

    @asynccontextmanager
    async def __call__(
        self,
        script: Any = None,
        *,
        api: FakeMessagesAPI | None = None,
        env: Mapping[str, str] | None = None,
        in_process: Mapping[str, Any] | None = None,
        chosen: Mapping[str, Any] | None = None,
        wrap: Callable[[ct.Transport], ct.Transport] | None = None,
        **arguments: Any,
    ) -> AsyncIterator[LiveSession]:
        """A session whose model answers by `script`, or whose model is `api`; `arguments` are those of Query, transport and options.

        `in_process` are the Query's own MCP servers; `mcp_servers` are those of the options. `chosen` are options with the names of
        arguments of Query. `wrap` puts wrappers around the transport.
        """
        if api is None:
            more = {"env": env, "in_process": in_process, "chosen": chosen, "wrap": wrap, **arguments}
            async with FakeMessagesAPI(script) as own, self(api=own, **more) as session:
                yield session
            return
        asked = {name: arguments.pop(name) for name in QUERY_ARGUMENTS & arguments.keys()}
        carried = {name: arguments.pop(name) for name in TRANSPORT_ARGUMENTS & arguments.keys()}
        environment = self.environment(api, CLAUDE_CODE_MAX_RETRIES="0", **(env or {}))
        arguments |= chosen or {}
        options = ct.ClaudeOptions(cli_path=self.cli, cwd=self.home.project, env=environment, env_mode="exact", **arguments)
        with anyio.fail_after(PATIENCE):
            transport: ct.Transport = ct.SubprocessTransport(options, **carried)
            async with ct.Query(wrap(transport) if wrap else transport, mcp_servers=in_process, **asked) as query:
                yield LiveSession(query, api, self.home.project)


@dataclass
class Doorkeeper:
    """A `can_use_tool` that remembers what it was asked and gives its answers in turn, the last one from then on."""

    answers: list[ct.Allow | ct.Deny] = field(default_factory=lambda: [ct.Allow()])
    asked: list[tuple[str, dict[str, Any], ct.client.CallbackContext]] = field(default_factory=list)

    async def __call__(self, tool: str, given: dict[str, Any], context: ct.client.CallbackContext) -> ct.Allow | ct.Deny:
        self.asked.append((tool, given, context))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    @property
    def commands(self) -> list[str]:
        """The shell commands it was asked about."""
        return [given.get("command", "") for _tool, given, _context in self.asked]


def beyond_probes(api: FakeMessagesAPI) -> list[RecordedRequest]:
    """What was asked of the API: older versions also look, without a credential, whether its address is there."""
    return [request for request in api.requests if request.kind != "probe"]


def from_subagent(request: RecordedRequest) -> bool:
    """Tell whether a subagent asks, whose prompt begins with SUB: older versions name it in no header."""
    opening = str(request.body["messages"][0]["content"])
    return bool(request.agent_id) or opening.startswith("SUB") or "'SUB" in opening


def of_type(messages: list[ct.Message], kind: type[M]) -> list[M]:
    """Those of one type."""
    return [message for message in messages if isinstance(message, kind)]


async def next_of(messages: Any, kind: type[M]) -> M:
    """The next message of this type, from an iteration over messages."""
    async for message in messages:
        if isinstance(message, kind):
            return message
    raise AssertionError(f"no {kind.__name__} came")


def bash(command: str, **more: Any) -> replies.MessageReply:
    """The model wants to run a shell command."""
    return replies.tool_use("Bash", {"command": command, "description": "d", **more})
