"""What a start from official options hands on to the CLI and what it refuses, beside the official client: span, version, files, ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import claude_agent_sdk as sdk
import pytest
from opentelemetry import context, propagate, trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState

import claude_transport as ct
from claude_transport.interop.agent_sdk import options_from, transport_from

STALE = {"TRACEPARENT": "00-" + "a" * 32 + "-" + "b" * 16 + "-01", "TRACESTATE": "stale=1"}
CURRENT = f"00-{0xC0FFEE:032x}-{0xBEEF:016x}-01"
CLI = """\
#!/bin/sh
case "$1" in -v) exit 0 ;; esac
env | grep -E '^(TRACE|BAGGAGE|CLAUDE_AGENT_SDK_VERSION)' | sort > "$NOTES"
read -r initialize
exit 3
"""


@contextmanager
def current_span(**state: str) -> Iterator[None]:
    """A span that is current; no OpenTelemetry SDK is needed."""
    span = SpanContext(0xC0FFEE, 0xBEEF, is_remote=False, trace_flags=TraceFlags(1), trace_state=TraceState(list(state.items())))
    token = context.attach(trace.set_span_in_context(NonRecordingSpan(span)))
    try:
        yield
    finally:
        context.detach(token)


async def by_the_official_client(options: sdk.ClaudeAgentOptions) -> None:
    with pytest.raises(sdk.ClaudeSDKError):
        await sdk.ClaudeSDKClient(options).connect()


async def by_transport_from(options: sdk.ClaudeAgentOptions) -> None:
    transport = transport_from(options)
    with pytest.raises(sdk.ClaudeSDKError):
        await sdk.ClaudeSDKClient(options, transport=transport).connect()
    await transport.close()


async def by_open_query(options: sdk.ClaudeAgentOptions) -> None:
    with pytest.raises(ct.errors.ClaudeTransportError):
        async with options_from(options).open_query():
            pass


class World:
    """A CLI that notes the variables of the trace, and what it has noted."""

    def __init__(self, folder: Path) -> None:
        self.notes = folder / "notes"
        self.cli = folder / "claude"
        self.cli.write_text(CLI, "utf-8")
        self.cli.chmod(0o755)

    async def noted(self, start: Callable[..., Any], **env: str) -> dict[str, str]:
        await start(sdk.ClaudeAgentOptions(cli_path=self.cli, env={"NOTES": str(self.notes), **env}))
        return dict(line.split("=", 1) for line in self.notes.read_text("utf-8").splitlines())


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("CLAUDE_AGENT_SDK_SKIP_VERSION_CHECK", "1")
    for name, value in STALE.items():
        monkeypatch.setenv(name, value)
    return World(tmp_path)


STARTS = [by_the_official_client, by_transport_from, by_open_query]
VERSION = "CLAUDE_AGENT_SDK_VERSION"


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize(
    ("state", "env", "expected"),
    [
        pytest.param({}, {}, {"TRACEPARENT": CURRENT}, id="a stale state goes"),
        pytest.param({"a": "1"}, {}, {"TRACEPARENT": CURRENT, "TRACESTATE": "a=1"}, id="with a state"),
        pytest.param({}, {"TRACEPARENT": "own"}, {"TRACEPARENT": "own"}, id="the option env wins"),
        pytest.param(None, {}, STALE, id="no span: the inherited one stays"),
    ],
)
@pytest.mark.filterwarnings("ignore:Async generator 'claude_agent_sdk:ResourceWarning")
async def test_the_span_that_is_current_at_the_start_reaches_the_cli(
    world: World, start: Any, state: dict[str, str] | None, env: dict[str, str], expected: dict[str, str]
) -> None:
    if state is None:
        noted = await world.noted(start, **env)
    else:
        with current_span(**state):
            noted = await world.noted(start, **env)
    noted.pop(VERSION, None)
    assert noted == expected


async def test_the_span_counts_that_is_current_when_the_transport_connects_not_when_it_was_made(world: World) -> None:
    transport = transport_from(sdk.ClaudeAgentOptions(cli_path=world.cli, env={"NOTES": str(world.notes)}))
    with current_span():
        await transport.connect()
    await transport.close()
    assert f"TRACEPARENT={CURRENT}\n" in world.notes.read_text("utf-8")


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.filterwarnings("ignore:Async generator 'claude_agent_sdk:ResourceWarning")
async def test_a_propagator_that_fails_does_not_fail_the_start(world: World, start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(carrier: object) -> None:
        raise RuntimeError("no propagator")

    monkeypatch.setattr(propagate, "inject", fail)
    noted = await world.noted(start)
    noted.pop(VERSION, None)
    assert noted == STALE


@pytest.mark.filterwarnings("ignore:Async generator 'claude_agent_sdk:ResourceWarning")
async def test_the_version_of_the_sdk_is_told_while_its_client_speaks(world: World) -> None:
    for start in (by_the_official_client, by_transport_from):
        assert (await world.noted(start, **{VERSION: "0"}))[VERSION] == sdk.__version__
    assert VERSION not in await world.noted(by_open_query)


async def test_a_transport_of_ones_own_hands_no_span_on_unless_it_is_wrapped(world: World) -> None:
    options = options_from(sdk.ClaudeAgentOptions(cli_path=world.cli, env={"NOTES": str(world.notes)})).options

    async def noted(transport: ct.TransportLike) -> str:
        with current_span(), pytest.raises(ct.errors.ClaudeTransportError):
            async with ct.Query(transport):
                pass
        return world.notes.read_text("utf-8")

    assert STALE["TRACEPARENT"] in await noted(ct.SubprocessTransport(options))
    assert CURRENT in await noted(ct.TracingTransport(ct.SubprocessTransport(options)))


REFUSED: dict[str, Callable[[Path], dict[str, Any]]] = {
    "settings that are not there, to be merged": lambda folder: {"settings": str(folder / "none.json"), "sandbox": {"enabled": True}},
    "settings that are no JSON, to be merged": lambda _folder: {"settings": "{no}", "sandbox": {"enabled": True}},
    "a skill that can never match": lambda _folder: {"skills": ["/name"]},
    "a skill that is no text": lambda _folder: {"skills": [1]},
    "skills that are no list": lambda _folder: {"skills": "name"},
    "a plugin of an unknown kind": lambda folder: {"plugins": [{"type": "remote", "path": str(folder)}]},
    "a store and checkpoints": lambda _folder: {"session_store": sdk.InMemorySessionStore(), "enable_file_checkpointing": True},
    "a store that cannot list": lambda _folder: {"session_store": Plain(), "continue_conversation": True},
}
"""What the official client refuses before it starts the CLI."""

REFUSED_HERE: dict[str, Callable[[Path], dict[str, Any]]] = {
    "a session that is named, and the latest": lambda _folder: {"resume": "other", "continue_conversation": True},
    "settings that are not there": lambda folder: {"settings": str(folder / "none.json")},
    "an id that is no UUID": lambda _folder: {"session_id": "mine"},
    "an id beside a resumed session": lambda _folder: {"session_id": "12345678-1234-4234-8234-123456789abc", "resume": "other"},
}
"""What only this library refuses before."""


class Plain:
    """A store with the two methods that every store has."""

    async def append(self, _key: object, _entries: object) -> None: ...

    async def load(self, _key: object) -> None: ...


async def started(world: World, start: Callable[..., Any], **options: Any) -> Exception | None:
    """The error of a start, and None when it came to a process."""
    try:
        await start(sdk.ClaudeAgentOptions(cli_path=world.cli, env={"NOTES": str(world.notes)}, **options))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is compared
        assert not world.notes.exists()
        return error
    finally:
        world.notes.unlink(missing_ok=True)
    return None


async def connecting(options: sdk.ClaudeAgentOptions) -> None:
    client = sdk.ClaudeSDKClient(options)
    try:
        await client.connect()
    except (sdk.ClaudeSDKError, ValueError, TypeError):
        if not Path(options.env["NOTES"]).exists():
            raise


async def opening(options: sdk.ClaudeAgentOptions) -> None:
    try:
        async with options_from(options).open_query():
            pass
    except ct.errors.ClaudeTransportError:
        if not Path(options.env["NOTES"]).exists():
            raise


@pytest.mark.parametrize("case", [*REFUSED, *REFUSED_HERE])
@pytest.mark.filterwarnings("ignore:Async generator 'claude_agent_sdk:ResourceWarning")
async def test_what_the_official_client_refuses_before_the_start_is_refused_before_the_start_here(world: World, case: str) -> None:
    options = {**REFUSED, **REFUSED_HERE}[case](world.cli.parent)
    theirs = await started(world, connecting, **options)
    assert (theirs is not None) == (case in REFUSED)
    ours = await started(world, opening, **options)
    assert isinstance(ours, ct.errors.ConfigurationError)
    assert ours.option in options
    assert str(ours).startswith(str(ours.option))
