"""A distribution adds an agent, a URL scheme and a session store: they work without a change here, and only when they are asked for."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import anyio
import anyio.to_thread
import pytest

import claude_transport as ct
from claude_transport.agents import agent_names, find_agent
from claude_transport.codex import CodexOptions
from claude_transport.errors import ConfigurationError
from claude_transport.inspection import read_timeline
from claude_transport.launch.plugins import PluginGroup
from claude_transport.protocol.tape import TapeRecord
from claude_transport.sessions import open_session_store
from claude_transport.testing import FakeClaude, Scenario, ScriptedTurn, Tape, steps
from claude_transport.wrappers import Metrics, MetricsTransport
from tests.fleet.broker_server import broker_server

SOURCE = Path(__file__).parent / "acme"
TOKEN = "a-token-for-those-who-know-acme"
PATIENCE = 60
SESSION = "5b6a7c88-0000-4000-8000-000000000001"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The distribution, built."""
    folder = tmp_path_factory.mktemp("acme")
    shutil.copytree(SOURCE, folder / "source")
    build = f"from hatchling.build import build_wheel; build_wheel({str(folder)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=folder / "source", check=True, capture_output=True, timeout=PATIENCE)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where it is installed, as `pip install --target` would."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The distribution can be imported in this process, and is forgotten after the test."""
    monkeypatch.syspath_prepend(site)
    yield site
    for name in [name for name in sys.modules if name.partition(".")[0] == "acme_plugin"]:
        del sys.modules[name]


def run(site: Path, *arguments: str, home: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, env=world(site, home, **env), timeout=PATIENCE, check=False)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "claude_transport", *arguments]


def world(site: Path, home: Path, **env: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "PYTHONPATH": str(site), **env}


# ------------------------------------------------------------------------------------------------------------------- an agent


async def test_an_agent_answers_one_call(installed: Path) -> None:
    completion = await ct.complete("Hello", agent="acme")
    assert (completion.text, completion.agent, completion.transport, completion.exit_code) == ("heard Hello", "acme", "cli", 0)
    assert completion.agent_resolution.reason == "the call says acme"
    pieces = [piece async for piece in ct.stream("Hello", agent="acme", model="big")]
    assert "".join(pieces) == "big heard Hello"


async def test_options_of_an_agent_say_who_answers(installed: Path) -> None:
    options = find_agent("acme").options_type(model="tiny")  # type: ignore[call-arg]
    assert (await ct.complete("Hello", options=options)).text == "tiny heard Hello"
    with pytest.raises(ConfigurationError, match="these are for acme, but the call says codex"):
        await ct.complete("Hello", options=options, agent="codex")
    with pytest.raises(ConfigurationError, match="options of this call are for another agent"):
        await ct.complete("Hello", options=options, codex=CodexOptions())


async def test_what_an_agent_does_not_honour_is_refused(installed: Path) -> None:
    with pytest.raises(ConfigurationError, match=r'system: Acme cannot do this\. Remove it, or use agent="claude-code"') as caught:
        await ct.complete("Hello", agent="acme", system="Be brief.")
    assert caught.value.option == "system"
    with pytest.raises(ConfigurationError, match="Acme has no API path"):
        await ct.complete("Hello", agent="acme", transport="api")
    with pytest.raises(ConfigurationError, match="a call to Acme cannot fall back"):
        await ct.complete("Hello", agent="acme", fallback=True)


async def test_an_agent_that_ends_too_early_is_a_typed_error(installed: Path) -> None:
    with pytest.raises(ct.ProcessError) as caught:
        await ct.complete("crash", agent="acme", retry=ct.RetryPolicy(attempts=1))
    assert (caught.value.exit_code, caught.value.stderr_tail.strip()) == (3, "the model is on fire")


async def test_its_options_start_a_process_of_it(installed: Path) -> None:
    kind: Any = find_agent("acme").options_type
    async with ct.SubprocessTransport(kind()) as transport:
        await transport.write(b'{"acme": "ask", "text": "you"}\n')
        heard = []
        async for message in transport.read_lines():
            heard += [json.loads(line) for line in message]
            if heard[-1]["acme"] == "done":
                break
    assert heard == [{"acme": "begun"}, {"acme": "said", "text": "heard you"}, {"acme": "done"}]
    with pytest.raises(ConfigurationError, match="model is empty"):
        ct.SubprocessTransport(kind(model=""))
    behind = ct.SubprocessTransport(kind(), launcher=ct.Launcher.local(["/usr/bin/env"]))
    with pytest.raises(ConfigurationError, match="Acme cannot be started behind") as refused:
        await behind.connect()
    assert refused.value.option == "launcher"
    query = ct.Query(ct.SubprocessTransport(kind()))
    with pytest.raises(ConfigurationError, match="talks to Claude"):
        await query.start()


async def test_its_prompts_and_results_are_counted(installed: Path) -> None:
    kind: Any = find_agent("acme").options_type
    counted = MetricsTransport(ct.SubprocessTransport(kind()))
    lost: list[tuple[str, str]] = []
    counted.metrics.on_lost(lambda seconds, code, agent: lost.append((code, agent)))
    async with counted:
        await counted.write(b'{"acme": "ask", "text": "you"}\n')
        async for lines in counted.read_lines():
            if b'{"acme": "done"}' in lines:
                break
        await counted.write(b'{"acme": "ask", "text": "crash"}\n')
        with pytest.raises(ct.ProcessError):
            async for _ in counted.read_lines():
                pass
    counts = counted.metrics.snapshot()
    assert (counts.prompts, counts.results, counts.lost_prompts) == (2, {"ok": 1}, {ct.ProcessError.code: 1})
    assert (counts.messages_written, counts.messages_read) == ({"ask": 2}, {"begun": 2, "said": 1, "done": 1})
    assert (counts.first_message.count, counts.result.count) == (1, 1)
    assert lost == [(ct.ProcessError.code, "acme")]


def test_a_new_connection_has_a_reader_that_knows_nothing_of_the_one_before(installed: Path) -> None:
    find_agent("acme")
    metrics, results = Metrics(clock=lambda: 1.0), list[str | None]()
    metrics.on_result(lambda _, result: results.append(result.result))
    ask = b'{"acme": "ask", "text": "you"}\n'
    for heard in ([b'{"acme": "said", "text": "half of"}'], [b'{"acme": "done"}']):
        metrics.begin_connection(is_connected=True)
        metrics.writing(ask)
        metrics.written(ask)
        metrics.read(heard)
    counts = metrics.snapshot()
    assert (counts.prompts, counts.results, counts.lost_prompts) == (2, {"ok": 1}, {"session_ended": 1})
    assert results == [""]


def test_the_inspector_shows_its_prompts_and_answers(installed: Path) -> None:
    find_agent("acme")
    asked, again = (TapeRecord(t, "in", json.dumps({"acme": "ask", "text": text}).encode()) for t, text in ((0.0, "you"), (3.0, "again")))
    answer = [TapeRecord(1.0, "out", line) for line in (b'{"acme": "said", "text": "heard you"}', b'{"acme": "done"}')]
    timeline = read_timeline(Tape([asked, *answer, again, TapeRecord(4.0, "out", b"{")]))
    told = [(event.lane, event.title, event.gist, event.status) for event in timeline.events]
    assert told[:3] == [
        ("user", "Prompt", "you", "done"),
        ("assistant", "Text", "heard you", ""),
        ("user", "Prompt", "again", "lost"),
    ]
    summary = timeline.summary
    assert [problem.text for problem in summary.problems][-1] == "a prompt has no answer"
    assert (summary.agent, summary.unreadable_lines, summary.turns) == ("acme", 1, ())
    assert [(stats.name, stats.calls, stats.open, stats.seconds) for stats in summary.requests] == [("ask", 2, 1, 1.0)]


def test_the_program_asks_an_agent(site: Path, tmp_path: Path) -> None:
    ran = run(site, "ask", "--agent", "acme", "Hello", home=tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "heard Hello\n"), ran.stderr
    by_variable = run(site, "ask", "Hello", home=tmp_path, CLAUDE_TRANSPORT_AGENT="acme")
    assert (by_variable.returncode, by_variable.stdout) == (0, "heard Hello\n"), by_variable.stderr
    unknown = run(site, "ask", "--agent", "acne", "Hello", home=tmp_path)
    assert unknown.returncode == 2
    assert "acne" in unknown.stderr


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_program_records_a_conversation_with_an_agent(site: Path, tmp_path: Path, backend: str) -> None:
    tape = tmp_path / "tape.ndjson"
    asked = ("--agent", "acme", "--backend", backend, "-o", str(tape), "--model", "mine")
    ran = run(site, "record", *asked, "Hello", "again", home=tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "mine heard Hello\nmine heard again\n"), ran.stderr
    said = [json.loads(line) for line in Tape.read(tape).lines("in")]
    assert said == [{"acme": "ask", "text": "Hello"}, {"acme": "ask", "text": "again"}]


@pytest.mark.parametrize(
    ("arguments", "option"),
    [(("--max-turns", "2"), "--max-turns"), (("--permission-mode", "plan"), "--permission-mode"), (("--codex-path", "/x"), "--codex-path")],
)
def test_what_an_agent_has_no_option_for_is_refused(site: Path, tmp_path: Path, arguments: tuple[str, ...], option: str) -> None:
    ran = run(site, "record", "--agent", "acme", "-o", str(tmp_path / "tape"), *arguments, "Hello", home=tmp_path)
    assert ran.returncode == 2
    assert f"{option} is for " in ran.stderr


def test_an_agent_that_has_no_conversations_says_so(site: Path, tmp_path: Path) -> None:
    ran = run(site, "record", "--agent", "mute", "-o", str(tmp_path / "tape"), "Hello", home=tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "Mute cannot be talked to by this program" in ran.stderr


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
async def test_a_gateway_serves_an_agent_and_finishes_its_turn(site: Path, tmp_path: Path, backend: str) -> None:
    tokens = tmp_path / "tokens"
    tokens.touch(mode=0o600)
    tokens.write_text(f"alice {TOKEN}\n")
    arguments = ("--listen", "tcp://127.0.0.1:0", "--token-file", str(tokens), "--json", "--backend", backend, "--model", "served")
    started = command("serve", "--agent", "acme", *arguments)
    with subprocess.Popen(started, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=world(site, tmp_path)) as process:
        try:
            assert process.stdout is not None
            url = (await anyio.to_thread.run_sync(process.stdout.readline)).decode().strip()
            with anyio.fail_after(PATIENCE):
                async with ct.NetworkTransport(url, token=TOKEN) as transport:
                    await transport.write(b'{"acme": "ask", "text": "you"}\n')
                    heard = [line async for lines in first_turn(transport) for line in lines]
            process.send_signal(signal.SIGTERM)
            _, log = await anyio.to_thread.run_sync(lambda: process.communicate(timeout=PATIENCE))
        finally:
            process.kill()
    assert [json.loads(line)["acme"] for line in heard] == ["begun", "said", "done"]
    assert json.loads(heard[1])["text"] == "served heard you"
    assert process.returncode == 0, log.decode()


async def first_turn(transport: ct.Transport) -> AsyncIterator[Sequence[bytes]]:
    async for lines in transport.read_lines():
        yield lines
        if any(b'"done"' in line for line in lines):
            return


# ------------------------------------------------------------------------------------------------------------ a scheme, a store


async def test_a_scheme_opens_a_transport(installed: Path) -> None:
    with FakeClaude(Scenario.echo()) as fake:
        gateway = ct.Gateway(ct.ClaudeOptions(cli_path=fake.path), listen=["tcp://127.0.0.1:0"], tokens={"alice": TOKEN})
        async with gateway:
            url = gateway.urls[0].replace("tcp://", "acme://")
            with anyio.fail_after(PATIENCE):
                async with ct.Query(ct.open_transport(url, token=TOKEN, resume=False)) as query:
                    assert (await (await query.send("Hello")).result()).outcome.ok


async def test_a_store_keeps_transcripts(installed: Path, tmp_path: Path) -> None:
    store = open_session_store(f"acme://{tmp_path / 'kept'}")
    key: Any = {"project_key": "p", "session_id": "s"}
    await store.append(key, [{"type": "user", "uuid": "u-1", "timestamp": "2026-11-28T12:00:00Z"}])
    assert [entry.get("uuid") for entry in await store.load(key) or []] == ["u-1"]


async def test_a_worker_puts_transcripts_into_such_a_store(site: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    entries = [{"type": "user", "uuid": "u-1", "message": {"role": "user", "content": "Hello"}}]
    mirrored = {"type": "transcript_mirror", "filePath": f"/config/projects/-work/{SESSION}.jsonl", "entries": entries}
    said = ScriptedTurn([steps.EmitRaw(json.dumps(mirrored, separators=(",", ":")) + "\n"), steps.Text("Hi."), steps.Result()])
    with broker_server(tmp_path) as broker, FakeClaude(Scenario(replies=[said])) as fake:
        started = command("worker", "--cli-path", str(fake.path), "--session-store", f"acme://{kept}", "--broker", broker.url)
        with subprocess.Popen(started, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=world(site, tmp_path)) as process:
            try:
                assert process.stdout is not None
                await anyio.to_thread.run_sync(process.stdout.readline)
                with anyio.fail_after(PATIENCE):
                    async with ct.Query(ct.open_transport(broker.url)) as query:
                        assert (await (await query.send("Hello")).result()).outcome.ok
                process.send_signal(signal.SIGTERM)
                _, log = await anyio.to_thread.run_sync(lambda: process.communicate(timeout=PATIENCE))
            finally:
                process.kill()
    assert process.returncode == 0, log.decode()
    (transcript,) = kept.rglob("*.jsonl")
    assert b"Hello" in transcript.read_bytes()


def test_the_page_names_the_groups_that_there_are() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "agents.md").read_text("utf-8")
    assert set(re.findall(r"^\| `(claude_transport\.\w+)` \|", page, re.MULTILINE)) == {
        f"claude_transport.{group}" for group in get_args(PluginGroup)
    }


# -------------------------------------------------------------------------------------------------------- what cannot be used


def test_names_are_listed_and_nothing_is_imported(installed: Path) -> None:
    assert agent_names() == ("claude-code", "codex", "acme", "bare", "broken", "misnamed", "mute", "nothing")
    assert "acme_plugin" not in sys.modules


@pytest.mark.parametrize(
    ("ask", "option", "said"),
    [
        (lambda: find_agent("broken"), "agent", "RuntimeError: acme_plugin.broken was imported"),
        (lambda: find_agent("misnamed"), "agent", "calls itself 'acme'"),
        (lambda: find_agent("nothing"), "agent", "is int and not an Agent"),
        (lambda: find_agent("bare"), "agent", "has no options_type with cwd and env"),
        (lambda: ct.open_transport("broken://somewhere"), "target", "RuntimeError: acme_plugin.broken was imported"),
        (lambda: ct.open_transport("nothing://somewhere"), "target", "makes a int and no Transport"),
        (lambda: ct.open_transport("failing://somewhere"), "target", "LookupError: there is no such place"),
        (lambda: open_session_store("broken://somewhere"), "session_store", "RuntimeError: acme_plugin.broken was imported"),
        (lambda: open_session_store("nothing://somewhere"), "session_store", "is a int and no SessionStore"),
        (lambda: open_session_store("failing://somewhere"), "session_store", "LookupError: there is no such place"),
    ],
)
def test_a_broken_plug_in_is_an_error_that_names_the_distribution(installed: Path, ask: Any, option: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        ask()
    assert (caught.value.code, caught.value.option) == ("config.plugin_failed", option)
    assert "acme-plugin 1.2" in str(caught.value)
    assert said in str(caught.value)


async def test_a_broken_plug_in_fails_the_call_that_asks_for_it_and_no_other(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=r"acme-plugin 1\.2"):
        await ct.complete("Hello", agent="broken")
    with FakeClaude(Scenario.echo()) as fake:
        assert (await ct.complete("Hello", transport="cli", options=ct.ClaudeOptions(cli_path=fake.path))).text


def test_an_error_of_a_plug_in_tells_no_password(installed: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        ct.open_transport("failing://alice:hunter2-yarrow@somewhere")
    assert "there is no such place as failing://" in str(caught.value)
    assert "hunter2-yarrow" not in str(caught.value)


def test_a_line_that_tells_nothing_loads_no_agent() -> None:
    script = (
        "import sys\nfrom claude_transport.agents.registry import AgentFinder\nfinder = AgentFinder()\n"
        "print(finder.look([b'npm warn: old']).name, 'claude_transport.codex.agent' in sys.modules)\n"
        'print(finder.look([b\'{"method":"turn/started"}\']).name)'
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert ran.stdout == "claude-code False\ncodex\n"


def test_a_plug_in_replaces_nothing_of_this_library(installed: Path) -> None:
    assert find_agent("codex").options_type is CodexOptions
    assert isinstance(ct.open_transport("tcp://127.0.0.1:9"), ct.NetworkTransport)


def test_two_distributions_with_one_name_are_an_error(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other_acme-3.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other-acme\nVersion: 3.0\n")
    (other / "entry_points.txt").write_text("[claude_transport.schemes]\nacme = json:loads\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    with pytest.raises(ConfigurationError, match=r"acme-plugin 1\.2 and other-acme 3\.0 both have a plug-in 'acme'") as caught:
        ct.open_transport("acme://somewhere")
    assert caught.value.code == "config.plugin_failed"


async def test_no_line_of_a_peer_loads_a_plug_in(installed: Path) -> None:
    """A client of a gateway for Claude speaks like Acme, and nobody asks for Acme."""
    with FakeClaude(Scenario.echo()) as fake:
        gateway = ct.Gateway(ct.ClaudeOptions(cli_path=fake.path), listen=["tcp://127.0.0.1:0"], tokens={"alice": TOKEN})
        async with gateway:
            with anyio.fail_after(PATIENCE):
                async with ct.NetworkTransport(gateway.urls[0], token=TOKEN) as transport:
                    await transport.write(b'{"acme": "ask", "text": "you"}\n')
                    await transport.end_input()
                    async for _ in transport.read_lines():
                        pass
    assert "acme_plugin" not in sys.modules


def test_an_unknown_agent_is_refused_with_the_names_there_are(installed: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no agent 'acne'; there are claude-code, codex, acme, bare, broken"):
        find_agent("acne")
    with pytest.raises(ConfigurationError, match="not one of claude-code, codex, auto, acme, bare, broken"):
        ct.resolve_agent("acne")
    with pytest.raises(ConfigurationError, match="an agent is a name or options, not int"):
        find_agent(7)  # type: ignore[arg-type]
