"""What the CLI of a conversation cannot do is refused, with the name of the feature and the version, before it is asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest
from peers import ForeignTransport, answer_to

from claude_transport import ClaudeOptions, ControlRequestFailed, HookMatcher, MockTransport, Query, SubprocessTransport, TransportWrapper
from claude_transport.errors import CLIVersionMismatch
from claude_transport.hooks import HookEvent
from claude_transport.testing import Answer, FakeClaude, Scenario
from claude_transport.testing.fake_claude import FakeClaudeCall
from claude_transport.transport import Client, SessionTerms, TransportInfo

PATIENCE = 60.0
UNSUPPORTED = "Unsupported control request subtype: get_status"


@asynccontextmanager
async def talk(
    version: str | None, *, answers: Mapping[str, Answer] | None = None, **arguments: Any
) -> AsyncIterator[tuple[Query, list[FakeClaudeCall]]]:
    """A query to a claude whose answer to `initialize` alone tells this version; and what it got, once the query is closed."""
    told = {"initialize": Answer(response={"claude_code_version": version, "capabilities": []})}
    with FakeClaude(Scenario.echo(version=version or "", answers={**told, **(answers or {})})) as fake, anyio.fail_after(PATIENCE):
        got: list[FakeClaudeCall] = []
        async with Query(TransportWrapper(SubprocessTransport(command=fake.command)), **arguments) as query:
            yield query, got
        got += fake.calls()


async def ignore(_given: Any, _tool_use_id: Any, _context: Any) -> None:
    """A hook that has nothing to say."""


def record(error: CLIVersionMismatch) -> tuple[Any, ...]:
    return (error.code, error.flag, error.version, error.exit_code, error.stderr_tail)


def mismatch(flag: str | None, version: str | None) -> tuple[Any, ...]:
    return ("exec.cli.version_mismatch", flag, version, None, "")


# ---------------------------------------------------------------------------------------------------------- control requests


async def test_a_request_that_the_version_lacks_is_refused_and_not_sent() -> None:
    async with talk("2.1.191") as (query, got):
        with pytest.raises(CLIVersionMismatch, match="status\\(\\)") as caught:
            await query.status()
        await query.session_cost()
    assert record(caught.value) == mismatch("get_status", "2.1.191")
    (call,) = got
    assert call.requests("get_status") == []
    assert len(call.requests("get_session_cost")) == 1


async def test_a_field_that_the_version_would_ignore_is_refused() -> None:
    async with talk("2.1.191") as (query, got):
        with pytest.raises(CLIVersionMismatch) as caught:
            await query.interrupt_all()
        await query.interrupt()
    assert record(caught.value) == mismatch("interrupt.cancel_queued", "2.1.191")
    assert [request.get("cancel_queued") for request in got[0].requests("interrupt")] == [None]


@pytest.mark.parametrize("error_code", [None, "unsupported_request"])
async def test_a_claude_of_unknown_version_is_asked_and_its_refusal_is_a_mismatch(error_code: str | None) -> None:
    async with talk(None, answers={"get_status": Answer(error=UNSUPPORTED, error_code=error_code)}) as (query, _):
        with pytest.raises(CLIVersionMismatch, match="of unknown version") as caught:
            await query.status()
    assert record(caught.value) == mismatch("get_status", None)
    assert isinstance(caught.value.__cause__, ControlRequestFailed)


async def test_a_request_that_the_table_does_not_know_is_refused_by_the_claude_itself() -> None:
    async with talk("2.1.92", answers={"tap_dance": Answer(error="Unsupported control request subtype: tap_dance")}) as (query, _):
        with pytest.raises(ControlRequestFailed, match="tap_dance"):
            await query.request("tap_dance")


async def test_another_refusal_of_a_request_stays_what_it_is() -> None:
    async with talk("2.1.330", answers={"get_status": Answer(error="not today")}) as (query, _):
        with pytest.raises(ControlRequestFailed, match="not today"):
            await query.status()


# ------------------------------------------------------------------------------------------------------------- capabilities


async def test_a_capability_of_the_answer_to_initialize_outweighs_the_version() -> None:
    said = {"claude_code_version": "2.1.92", "capabilities": ["interrupt_cancel_queued_v1"]}
    async with talk("2.1.92", answers={"initialize": Answer(response=said)}) as (query, got):
        await query.interrupt_all()
    assert [request.get("cancel_queued") for request in got[0].requests("interrupt")] == [True]


async def test_a_capability_of_the_first_turn_outweighs_the_version() -> None:
    async with talk("2.1.92") as (query, got):
        with pytest.raises(CLIVersionMismatch):
            await query.interrupt_all()
        await (await query.send("Hello")).result()  # its init names the capability
        await query.interrupt_all()
    assert [request.get("cancel_queued") for request in got[0].requests("interrupt")] == [True]


# ------------------------------------------------------------------------------------------------------------------ starting


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [
        ({"initialize": {"planModeInstructions": "Think."}}, "initialize.planModeInstructions"),
        ({"hooks": {HookEvent.POST_TOOL_BATCH: [HookMatcher(hooks=[ignore])]}}, "hook.PostToolBatch"),
    ],
)
async def test_what_the_version_would_drop_of_initialize_fails_the_start(arguments: Mapping[str, Any], flag: str) -> None:
    with pytest.raises(CLIVersionMismatch) as caught:
        async with talk("2.1.92", **arguments):
            pytest.fail("it started")
    assert record(caught.value) == mismatch(flag, "2.1.92")


class Remote(ForeignTransport):
    """A CLI on another machine that does not say its version. It answers `initialize` with `fields`."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(answers=False)
        self.on_write = lambda frame: self.say(answer_to(frame, **fields)) if frame["type"] == "control_request" else None


async def test_a_claude_that_does_not_say_its_version_is_refused_what_needs_one_that_does() -> None:
    policies = {"sdkMcpServerConfigs": {"sums": {"tools": []}}}
    with pytest.raises(CLIVersionMismatch, match=r"older than 2\.1\.308") as caught:
        async with Query(Remote(pid=7), initialize=policies):
            pytest.fail("it started")
    assert record(caught.value) == mismatch("initialize.sdkMcpServerConfigs", None)
    async with Query(Remote(pid=7, claude_code_version="2.1.330"), initialize=policies):
        pass
    async with Query(Remote(), initialize=policies):  # no CLI reports no process id
        pass
    async with Query(Remote(pid=7), initialize={"planModeInstructions": "Think."}):
        pass


async def test_a_claude_older_than_the_range_fails_the_start() -> None:
    with pytest.raises(CLIVersionMismatch, match="older than") as caught:
        async with talk("2.1.91"):
            pytest.fail("it started")
    assert record(caught.value) == mismatch(None, "2.1.91")


class ToldElsewhere(TransportWrapper):
    """Its `info` tells a version, and its terms a newer one, which only a CLI is asked for."""

    def __init__(self, **answer: Any) -> None:
        self.peer = ForeignTransport(answers=False, on_write=self.reply)
        super().__init__(self.peer)
        self.answer = answer
        self.asked: list[str | None] = []

    def reply(self, frame: dict[str, Any]) -> None:
        self.peer.say(answer_to(frame, **self.answer))

    def attach(self, client: Client) -> SessionTerms:
        async def find(*, said: str | None) -> str | None:
            self.asked.append(said)
            return "2.1.280"

        return SessionTerms(find_cli_version=find)

    @property
    def info(self) -> TransportInfo:
        return msgspec.structs.replace(super().info, cli_version="2.1.191")


@pytest.mark.parametrize("answer", [{"commands": [{"name": "x", "description": "y"}]}, {"pid": 7}], ids=["commands", "pid"])
async def test_a_cli_is_asked_for_the_version_that_it_does_not_say(answer: dict[str, Any]) -> None:
    transport = ToldElsewhere(**answer)
    async with Query(transport) as query:
        await query.session_cost()
    assert transport.asked == [None]


async def test_another_program_is_not_asked_for_a_version_and_has_that_of_the_transport() -> None:
    transport = ToldElsewhere()
    async with Query(transport) as query:
        with pytest.raises(CLIVersionMismatch) as caught:
            await query.status()
    assert record(caught.value) == mismatch("get_status", "2.1.191")
    assert transport.asked == []


async def test_agents_of_the_options_and_of_the_query_are_both_there_and_those_of_the_query_win() -> None:
    class WithAgents(MockTransport):
        def attach(self, client: Client) -> SessionTerms:
            return SessionTerms(initialize={"agents": {"a": {"prompt": "of the options"}, "b": {"prompt": "of the options"}}})

    transport = WithAgents()
    async with Query(transport, agents={"b": {"prompt": "of the query"}, "c": {"prompt": "of the query"}}):
        pass
    agents = transport.written[0]["request"]["agents"]
    assert {name: agent["prompt"] for name, agent in agents.items()} == {"a": "of the options", "b": "of the query", "c": "of the query"}


# ------------------------------------------------------------------------------------------------------------------- prompts


def verbatim(fake: FakeClaude) -> SubprocessTransport:
    return SubprocessTransport(ClaudeOptions(cli_path=fake.path, verbatim_prompts=True))


@pytest.mark.parametrize(
    "prompt", ["/usage", "  /usage", "Look at @secrets.txt", [{"type": "text", "text": "Hi"}, {"type": "text", "text": "/clear"}]]
)
async def test_a_prompt_that_an_old_claude_would_not_take_as_text_is_refused_and_not_sent(prompt: Any) -> None:
    with FakeClaude(Scenario.echo(version="2.1.247")) as fake, anyio.fail_after(PATIENCE):
        async with Query(verbatim(fake)) as query:
            with pytest.raises(CLIVersionMismatch) as caught:
                await query.send(prompt)
            assert query.open_turns == ()
            assert (await (await query.send("Hello, 3/4 of you")).result()).result == "Hello, 3/4 of you"
        assert fake.calls()[0].prompts == ["Hello, 3/4 of you"]
    assert record(caught.value) == mismatch("prompt.client_composed", "2.1.247")


async def test_a_claude_that_takes_prompts_as_text_gets_them_all() -> None:
    with FakeClaude(Scenario.echo(version="2.1.248")) as fake, anyio.fail_after(PATIENCE):
        async with Query(verbatim(fake)) as query:
            assert (await (await query.send("/usage of @all")).result()).result == "/usage of @all"


async def test_without_verbatim_prompts_a_command_is_a_command() -> None:
    async with talk("2.1.92") as (query, _):
        assert (await (await query.send("/usage")).result()).result == "/usage"
