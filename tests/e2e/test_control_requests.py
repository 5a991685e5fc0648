"""Every control request, asked of the real CLI: before, during and after a turn, and where it changes something, with its effect."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import anyio
import pytest

from claude_transport import Allow, ClaudeOptions, HookMatcher, Query, SubprocessTransport
from claude_transport.client.controls import Controls
from claude_transport.errors import ControlRequestFailed
from claude_transport.exchange.outcomes import InterruptOutcome
from claude_transport.protocol.envelope import Message
from claude_transport.protocol.hooks import HookEvent, PreModelSwitchDecision, encode_hook_output
from claude_transport.testing import FakeMessagesAPI, replies

PATIENCE = 60.0  # seconds for one test, on a machine with much else to do
SERVER = Path(__file__).parent / "sums_server.py"
PROMPT_UUID = "44444444-4444-4444-8444-444444444444"
CHECKPOINTS = {"CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING": "true"}


@dataclass
class Session:
    """A query to the real CLI, the API it talks to, and the directory it works in."""

    query: Query
    api: FakeMessagesAPI
    project: Path

    async def connect_sums(self) -> None:
        servers = {"sums": {"type": "stdio", "command": sys.executable, "args": [str(SERVER)]}}
        change = await self.query.mcp_set_servers(servers)
        assert (change.added, change.removed, change.errors) == (("sums",), (), {})


class Start(Protocol):
    def __call__(
        self, script: Any = None, *, hooks: Mapping[str, Sequence[HookMatcher]] | None = None, checkpoints: bool = False
    ) -> Any: ...


@pytest.fixture
def start(claude_cli: str, cli_home: Any, cli_env: Callable[..., dict[str, str]]) -> Start:
    async def allow(_tool: str, _input: dict[str, Any], _context: Any) -> Allow:
        return Allow()

    @asynccontextmanager
    async def started(
        script: Any = None, *, hooks: Mapping[str, Sequence[HookMatcher]] | None = None, checkpoints: bool = False
    ) -> AsyncIterator[Session]:
        extra = CHECKPOINTS if checkpoints else {}
        async with FakeMessagesAPI(script) as api:
            options = ClaudeOptions(cli_path=claude_cli, cwd=str(cli_home.project), env_mode="exact", env=cli_env(api, **extra))
            with anyio.fail_after(PATIENCE):
                async with Query(SubprocessTransport(options), can_use_tool=allow, hooks=hooks) as query:
                    yield Session(query, api, cli_home.project)

    return started


def git(directory: Path, *arguments: str) -> None:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(directory.parent), "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ("-c", "user.name=t", "-c", "user.email=t@t.invalid")
    subprocess.run(["git", *identity, *arguments], cwd=directory, env=environment, check=True, capture_output=True)


async def refusal(call: Awaitable[Any]) -> ControlRequestFailed:
    with pytest.raises(ControlRequestFailed) as caught:
        await call
    return caught.value


# ----------------------------------------------------------------------------------------- harmless at any time: at all three


async def ask_about_models(session: Session) -> None:
    query = session.query
    models = await query.list_models()
    assert "haiku" in {model.value for model in models}
    assert "haiku" in await query.set_model("haiku")
    assert await query.set_model("no-such-model") == "no-such-model"
    default = await query.set_model()
    assert default == models[0].resolved_model
    await query.set_max_thinking_tokens(2048, display="omitted")
    await query.set_max_thinking_tokens(None)
    usage = await query.context_usage(detail="summary")
    assert usage.misfits == ()
    assert usage.max_tokens > usage.total_tokens > 0
    assert usage.category("free_space") is not None
    assert (await query.context_usage()).max_tokens == usage.max_tokens
    assert "Estimated cost" in await query.session_cost()
    spending = await query.usage()
    assert (spending.misfits, spending.rate_limits_available) == ((), False)
    assert (await query.usage(skip_behaviors=True)).behaviors is None


async def ask_about_permissions(session: Session) -> None:
    query = session.query
    for mode in ("acceptEdits", "plan", "dontAsk", "default"):
        assert await query.set_permission_mode(mode) == mode
    assert (await refusal(query.set_permission_mode("nonsense"))).error_code == "invalid_mode"
    assert (await refusal(query.set_permission_mode("bypassPermissions"))).error_code == "bypass_not_launched"
    assert (await refusal(query.set_proactivity_level("x"))).subtype == "set_proactivity_level"
    await query.apply_flag_settings({"permissions": {"allow": ["Bash(ls)"]}})
    rules = await query.permission_rules()
    assert rules.misfits == ()
    assert ("Bash(ls)", "allow", "flagSettings") in {(rule.rule, rule.behavior, rule.source) for rule in rules.rules}
    assert "invalid" in str(await refusal(query.apply_flag_settings({"permissions": "all"})))
    listing = await query.hooks_listing()
    assert listing.misfits == ()
    assert {event.value for event in HookEvent} <= {event.name for event in listing.event_catalog}  # a newer claude may know more
    sandbox = await query.sandbox_info()
    assert (sandbox.misfits, sandbox.enabled) == ((), False)
    assert "could not be resolved" in str(await refusal(query.register_repo_root("/nonexistent")))


async def ask_about_settings(session: Session) -> None:
    query = session.query
    await query.update_settings("localSettings", {"outputStyle": "default"})
    assert "foo" in str(await refusal(query.update_settings("localSettings", {"foo": "x"})))
    settings = await query.settings()
    assert settings.misfits == ()
    assert settings.applied.model
    assert "localSettings" in {source.source for source in settings.sources}
    reloaded = await query.reload_plugins()
    assert (reloaded.misfits, reloaded.error_count, reloaded.held) == ((), 0, False)
    assert reloaded.commands
    assert await query.reload_skills()
    assert "default" in await query.reload_output_styles()
    assert (await query.skills_info()).misfits == ()
    memory = await query.memory_info()
    assert memory.misfits == ()
    assert "project" in {file.kind for file in memory.files}


async def ask_about_files(session: Session) -> None:
    query = session.query
    (session.project / "r.txt").write_text("hello\n")
    file = await query.read_file("r.txt")
    assert (file.misfits, file.contents, Path(file.abs_path).name) == ((), "hello\n", "r.txt")
    assert (await query.read_file(Path("r.txt"), max_bytes=3)).truncated
    assert (await query.read_file("r.txt", encoding="base64")).data == b"hello\n"
    assert "read denied" in str(await refusal(query.read_file("/etc/hostname")))
    await query.seed_read_state("r.txt", mtime=(session.project / "r.txt").stat().st_mtime)
    assert (await query.file_suggestions("r")).misfits == ()
    assert (await query.workspace_diff()).no_diff_reason == "no-repository"
    assert not (await query.plan()).exists
    planned = await query.rewind_files("99999999-4444-4444-8444-444444444444", dry_run=True)
    assert (planned.misfits, planned.can_rewind, planned.error) == ((), False, "File rewinding is not enabled.")
    assert "not enabled" in str(await refusal(query.rewind_files("99999999-4444-4444-8444-444444444444")))


async def ask_about_mcp(session: Session) -> None:
    query = session.query
    await session.connect_sums()
    (server,) = await query.mcp_status()
    assert (server.name, server.status, server.source) == ("sums", "connected", "dynamic")
    assert [tool.name for tool in server.tools] == ["add"]
    assert (await query.mcp_call("mcp__sums__add", {"a": 1, "b": 2})).text == "3"
    timed = await query.mcp_call("mcp__sums__add", {"a": 1}, call_timeout=20)
    assert (timed.text, timed.is_error) == ("1", False)
    (resource,) = await query.mcp_read_resource("sums", "ui://sum")
    assert resource["text"] == "<p>3</p>"
    assert "ui://" in str(await refusal(query.mcp_read_resource("sums", "file:///etc/hostname")))
    await query.mcp_reconnect("sums")
    await query.mcp_toggle("sums", enabled=False)
    assert [server.status for server in await query.mcp_status()] == ["disabled"]
    await query.mcp_toggle("sums", enabled=True)
    assert [server.status for server in await query.mcp_status()] == ["connected"]
    await query.mcp_message("nope", {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    for call in (
        query.mcp_reconnect("nope"),
        query.mcp_toggle("nope", enabled=True),
        query.mcp_call("mcp__nope__x"),
        query.mcp_read_resource("nope", "ui://x"),
        query.mcp_authenticate("nope"),
        query.mcp_clear_auth("nope"),
        query.channel_enable("nope"),
    ):
        assert "nope" in str(await refusal(call))
    assert "connectors" in str(await refusal(query.reload_connectors()))
    assert (await query.mcp_set_servers({})).removed == ("sums",)
    failed = await query.mcp_set_servers({"gone": {"type": "stdio", "command": "/bin/false", "args": []}})
    assert failed.errors.keys() == {"gone"}
    assert (await query.mcp_set_servers({})).removed == ("gone",)


async def ask_about_tasks(session: Session) -> None:
    query = session.query
    await query.stop_task("nope")
    assert await query.background() is None
    assert await query.background("nope") is False
    assert "nope" not in str(await refusal(query.task_output("nope")))
    assert await query.cancel_message("nope") is False


async def ask_about_the_session(session: Session) -> None:
    query = session.query
    version = await query.binary_version()
    assert (version.misfits, version.version) == ((), query.initialization.claude_code_version)
    await query.rename_session("My title")
    with pytest.raises(ControlRequestFailed, match="set_color"):  # CLI 2.1.330 knows it over Remote Control only
        await query.set_color("red")
    status = await query.status()
    assert (status.misfits, status.value("Session name"), status.value("Version")) == ((), "My title", version.version)
    assert (await query.export_conversation()).default_filename.endswith(".txt")
    fork = await query.fork_conversation()
    assert (fork.forked, fork.reason) == (False, "unsupported")
    assert await query.generate_session_title("we talk about sums") == "Fake session"
    aside = await query.side_question("what?")
    assert (aside.misfits, bool(aside.response), aside.synthetic) == ((), True, False)
    await query.set_has_subscribers(False)
    await query.set_has_subscribers(True)
    await query.set_message_waiting(True)
    await query.set_message_waiting(False)
    await query.set_prompt_suggestions_paused(True)
    await query.prompt_draft_activity()
    await query.rate_message(PROMPT_UUID, sentiment="positive", cleared=True)


ANYTIME = (
    ask_about_models,
    ask_about_permissions,
    ask_about_settings,
    ask_about_files,
    ask_about_mcp,
    ask_about_tasks,
    ask_about_the_session,
)
anytime = pytest.mark.parametrize("ask", ANYTIME, ids=lambda ask: ask.__name__)


@pytest.mark.needs("answers of 2.1.330 to control requests")
@anytime
async def test_before_any_turn(start: Start, ask: Callable[[Session], Awaitable[None]]) -> None:
    async with start() as session:
        await ask(session)
        assert session.query.pending_requests == {}
        assert not session.api.conversation


@pytest.mark.needs("answers of 2.1.330 to control requests")
@anytime
async def test_while_a_turn_is_running(start: Start, ask: Callable[[Session], Awaitable[None]]) -> None:
    async with start([replies.gated("one two")]) as session:
        turn = await session.query.send("Count")
        await session.api.wait_at_gate()
        await ask(session)
        assert session.query.is_running
        session.api.open_gate()
        assert (await turn.result()).result == "one two"
        assert session.query.pending_requests == {}


@pytest.mark.needs("answers of 2.1.330 to control requests")
@anytime
async def test_after_a_turn(start: Start, ask: Callable[[Session], Awaitable[None]]) -> None:
    async with start(["done"]) as session:
        assert (await (await session.query.send("Go")).result()).result == "done"
        await ask(session)
        session.api.replace(["again"])
        assert (await (await session.query.send("Go on")).result()).result == "again"


# ------------------------------------------------------------------------------------------------- with an effect of their own


@pytest.mark.needs("mcp_call")
async def test_a_tool_that_the_host_itself_calls_is_under_no_permission_rule(start: Start) -> None:
    async with start() as session:
        await session.connect_sums()
        await session.query.apply_flag_settings({"permissions": {"deny": ["mcp__sums__add"]}})
        await session.query.set_permission_mode("plan")
        assert (await session.query.mcp_call("mcp__sums__add", {"a": 1})).text == "1"


async def test_files_are_put_back_to_how_they_were(start: Start, cli_home: Any) -> None:
    target = cli_home.project / "w.txt"
    script = [replies.tool_use("Write", {"file_path": str(target), "content": "data\n"}), "done"]
    async with start(script, checkpoints=True) as session:
        await (await session.query.send("WRITE", uuid=PROMPT_UUID)).result()
        assert target.read_text() == "data\n"
        planned = await session.query.rewind_files(PROMPT_UUID, dry_run=True)
        assert (planned.can_rewind, planned.deletions, [Path(path).name for path in planned.files_changed]) == (True, 1, ["w.txt"])
        assert target.exists()
        assert "No file checkpoint" in str(await refusal(session.query.rewind_files("99999999-4444-4444-8444-444444444444")))
        assert (await session.query.rewind_files(PROMPT_UUID)).can_rewind
        assert not target.exists()


@pytest.mark.needs("export_conversation", "rewind_conversation")
async def test_a_conversation_is_cut_back_to_before_a_message(start: Start) -> None:
    async with start(["done"]) as session:
        await (await session.query.send("First words", uuid=PROMPT_UUID)).result()
        assert "First words" in (await session.query.export_conversation()).text
        rewind = await session.query.rewind_conversation(PROMPT_UUID)
        assert (rewind.misfits, rewind.rewound, rewind.prefill_text) == ((), True, "First words")
        assert "First words" not in (await session.query.export_conversation()).text


@pytest.mark.needs("answers of 2.1.330 to control requests")
@pytest.mark.needs("get_workspace_diff")
async def test_a_changed_working_tree_is_shown_as_a_diff(start: Start, cli_home: Any) -> None:
    (cli_home.project / "r.txt").write_text("hello\n")
    git(cli_home.project, "init", "-q")
    git(cli_home.project, "add", ".")
    git(cli_home.project, "commit", "-qm", "x")
    (cli_home.project / "r.txt").write_text("hello\nworld\n")
    async with start() as session:
        answer = await session.query.workspace_diff()
    assert (answer.misfits, answer.no_diff_reason) == ((), None)
    assert answer.diff is not None
    assert [(file.path, file.status, file.added) for file in answer.diff.files] == [("r.txt", "modified", 1)]
    assert answer.diff.hunks[0].hunks[0].lines == (" hello", "+world")


@pytest.mark.needs("hook.DirectoryAdded", "register_repo_root", "get_status", "set_cwd")
async def test_a_directory_below_can_be_added_and_gone_to(start: Start, cli_home: Any) -> None:
    below = cli_home.project / "below"
    below.mkdir()
    added: list[dict[str, Any]] = []
    seen = anyio.Event()

    async def note(data: Any, _tool_use_id: str | None, _context: Any) -> None:
        added.append(dict(data))
        seen.set()

    async with start(hooks={"DirectoryAdded": [HookMatcher(None, [note])]}) as session:
        query = session.query
        assert await query.register_repo_root(below) == str(below)
        await seen.wait()
        assert (added[0]["directory"], added[0]["source"]) == (str(below), "register_repo_root")
        assert "already" in str(await refusal(query.register_repo_root(below)))
        asked = await query.set_cwd(below)
        assert (asked.misfits, asked.status, asked.directory) == ((), "needs_trust", str(below))
        assert (await query.status()).value("cwd") == str(cli_home.project)
        gone = await query.set_cwd(below, trusted_directory=asked.directory)
        assert (gone.misfits, gone.status, gone.cwd, gone.changed) == ((), "ok", str(below), True)
        assert (await query.status()).value("cwd") == str(below)


@pytest.mark.needs("hook.PreModelSwitch")
async def test_a_hook_that_says_no_keeps_the_model(start: Start) -> None:
    async def refuse(_data: Any, _tool_use_id: str | None, _context: Any) -> dict[str, Any]:
        return encode_hook_output("PreModelSwitch", PreModelSwitchDecision.deny("too dear"))

    async with start(hooks={"PreModelSwitch": [HookMatcher(None, [refuse])]}) as session:
        before = (await session.query.settings()).applied.model
        assert "too dear" in str(await refusal(session.query.set_model("haiku")))
        assert (await session.query.settings()).applied.model == before


async def first(messages: AsyncIterable[Message], subtype: str) -> dict[str, Any]:
    """The first system message of this kind."""
    async for message in messages:
        frame = message.to_dict()
        if frame.get("subtype") == subtype:
            return frame
    raise AssertionError(f"no {subtype} came")


@pytest.mark.needs("get_task_output")
async def test_a_background_shell_can_be_read_and_stopped(start: Start) -> None:
    command = {"command": "echo out; tail -f /dev/null", "run_in_background": True, "description": "d"}
    async with start([replies.tool_use("Bash", command), "started", "it was stopped"]) as session:
        query = session.query
        turn = await query.send("Start it")
        task_id = (await first(turn, "task_started"))["task_id"]
        await turn.result()
        output = await query.task_output(task_id)
        assert (output.misfits, output.truncated) == ((), False)
        await query.stop_task(task_id)
        notification = await first(query.messages(), "task_notification")
        assert (notification["task_id"], notification["status"]) == (task_id, "stopped")


@pytest.mark.needs("is_backgrounded")
async def test_a_running_command_can_go_on_in_the_background(start: Start) -> None:
    script = [replies.tool_use("Bash", {"command": "tail -f /dev/null", "description": "d"}), "moved", "it was stopped"]
    async with start(script) as session:
        query = session.query
        turn = await query.send("Run it")
        started = await first(turn, "task_started")  # after about two seconds
        assert started["is_backgrounded"] is False
        assert await query.background(started["tool_use_id"]) is True
        assert (await turn.result()).result == "moved"
        assert await query.background(started["tool_use_id"]) is False
        await query.end_session()


async def test_an_interrupt_stops_the_turn_and_leaves_the_queue_alone(start: Start) -> None:
    async with start([replies.gated("one two"), "second"]) as session:
        assert await session.query.interrupt() is InterruptOutcome.NOT_RUNNING
        counting = await session.query.send("Count")
        await session.api.wait_at_gate()
        second = await session.query.send("Then this", priority="later")
        assert await session.query.interrupt() is InterruptOutcome.ACKNOWLEDGED
        assert (await counting.result()).subtype == "error_during_execution"
        assert (await second.result()).result == "second"


@pytest.mark.needs("interrupt.cancel_queued")
async def test_interrupting_everything_drops_the_queue(start: Start) -> None:
    waiting = "22222222-2222-4222-8222-222222222222"
    async with start([replies.gated("one two"), "never"]) as session:
        counting = await session.query.send("Count")
        await session.api.wait_at_gate()
        await session.query.send("Then this", uuid=waiting, priority="later")
        receipt = await session.query.interrupt_all()
        assert (receipt.misfits, receipt.cancelled, receipt.still_queued) == ((), (waiting,), ())
        assert (await counting.result()).subtype == "error_during_execution"


async def test_a_waiting_message_can_be_cancelled(start: Start) -> None:
    waiting = "22222222-2222-4222-8222-222222222222"
    async with start([replies.gated("one two"), "never"]) as session:
        counting = await session.query.send("Count")
        await session.api.wait_at_gate()
        await session.query.send("Then this", uuid=waiting, priority="later")
        assert await session.query.cancel_message(waiting) is True
        assert await session.query.cancel_message(waiting) is False
        session.api.open_gate()
        assert (await counting.result()).result == "one two"


@pytest.mark.needs("set_cwd")
async def test_going_elsewhere_is_rejected_while_a_turn_is_running(start: Start) -> None:
    async with start([replies.gated("one two")]) as session:
        turn = await session.query.send("Count")
        await session.api.wait_at_gate()
        answer = await session.query.set_cwd(session.project)
        assert (answer.status, answer.reason) == ("rejected", "busy")
        session.api.open_gate()
        await turn.result()


async def test_an_idle_session_ends_by_itself(start: Start) -> None:
    async with start() as session:
        await session.query.end_session(reason="test")
        async for _ in session.query.messages():
            pass
        assert session.query.has_ended
        report = await session.query.aclose()
        assert (report.exit_code, report.killed, report.ended_by_itself) == (0, False, True)
        assert await session.query.interrupt() is InterruptOutcome.DEAD


async def test_a_session_that_ends_aborts_its_turn(start: Start) -> None:
    async with start([replies.gated("one two")]) as session:
        turn = await session.query.send("Count")
        await session.api.wait_at_gate()
        await session.query.end_session()
        assert (await turn.result()).subtype == "error_during_execution"


def test_every_method_is_asked_here() -> None:
    tree = ast.parse(Path(__file__).read_text("utf-8"))
    called = {node.func.attr for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)}
    methods = {name for name, member in inspect.getmembers(Controls, inspect.iscoroutinefunction) if not name.startswith("_")}
    assert methods - {"request"} - called == set()
