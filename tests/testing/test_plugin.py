"""The pytest plugin, used as its users do: in test files of their own, in all recording modes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from claude_transport import testing
from claude_transport.codex.testing import plugin as codex_plugin
from claude_transport.errors import ConfigurationError, UsageError
from claude_transport.protocol.tape import Tape
from claude_transport.testing import plugin
from claude_transport.testing.tape_shelf import MODES, TapeMissing, TapeShelf
from claude_transport.transports.mock import MockTransport
from claude_transport.transports.replay import ReplayTransport

pytest_plugins = ["pytester"]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "pytest-plugin.md"
RESULT = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "done"}

CONFTEST = """
import pytest

@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param
"""

PRELUDE = """
import anyio, pytest
import claude_transport as ct
from claude_transport.testing import Scenario

pytestmark = pytest.mark.anyio
RESULT = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "done"}

async def ask(transport, *prompts):
    with anyio.fail_after(30):
        async with ct.Query(transport) as query:
            results = [(await (await query.send(prompt)).result()).result for prompt in prompts]
            await query.end_input()
            async for _ in query.messages():
                pass
    return results
"""

TAPED = (
    PRELUDE
    + """
from pathlib import Path

async def test_hello(claude_tape, fake_claude):
    def real():
        with Path("opened").open("a") as opened:
            opened.write("x")
        return ct.SubprocessTransport(command=fake_claude(Scenario.text("Hello")).command)

    assert await ask(claude_tape(real), "Hi") == ["Hello"]
"""
)


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder of somebody else's tests."""
    pytester.makeconftest(CONFTEST)
    return pytester


def run(project: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    others = [part for name in ("cacheprovider", "hypothesispytest", "xdist") for part in ("-p", f"no:{name}")]  # each costs its import
    return project.runpytest_subprocess(*others, "-q", *arguments)


def opened(project: pytest.Pytester) -> int:
    """How often the real transport was opened."""
    marks = project.path / "opened"
    return len(marks.read_text()) if marks.exists() else 0


def tape(project: pytest.Pytester, name: str = "test_hello") -> Path:
    return project.path / "tapes" / "test_it" / f"{name}.ndjson"


# --------------------------------------------------------------------------------------------------------- mocks and fakes


def test_mocks_and_fakes_are_there_without_an_import(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_it=PRELUDE
        + """
async def test_plain(mock_claude):
    assert await ask(mock_claude([RESULT]), "Hi") == ["done"]
    assert [message["type"] for message in mock_claude.written] == ["control_request", "user"]

async def test_script(mock_claude):
    claude = mock_claude.script().expect(type="user", message={"content": "Hi"}).reply(RESULT)
    assert await ask(claude, "Hi") == ["done"]

async def test_fake(fake_claude):
    fake = fake_claude(Scenario.text("Hello"))
    assert await ask(ct.SubprocessTransport(command=fake.command), "Hi") == ["Hello"]
    (call,) = fake.calls()
    assert call.prompts == ["Hi"]

async def test_echo(fake_claude):
    assert await ask(ct.SubprocessTransport(command=fake_claude().command), "Hi") == ["Hi"]

async def test_api(fake_messages_api):
    assert fake_messages_api.url.startswith("http://127.0.0.1:")

async def test_codex(fake_codex):
    from claude_transport.codex import CodexOptions, CodexSession
    async with CodexSession(ct.SubprocessTransport(CodexOptions(codex_path=fake_codex().path))) as session:
        turn = await session.send("Hi")
        assert (await turn.result()).text == "Hi"

async def test_responses_api(fake_responses_api):
    assert fake_responses_api.url.startswith("http://127.0.0.1:")
"""
    )
    run(project).assert_outcomes(passed=14)


def test_a_plain_test_has_every_fixture_without_an_event_loop(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_it="""
import json, urllib.request
import claude_transport as ct
from claude_transport.client import SyncQuery
from claude_transport.completion import complete_sync
from claude_transport.testing import Scenario

def post(url, **body):
    asked = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(asked, timeout=30) as answer:
        return answer.read().decode()

def test_api(fake_messages_api):
    fake_messages_api.replace("By a plain test.")
    said = post(f"{fake_messages_api.url}/v1/messages", model="m", max_tokens=9, messages=[{"role": "user", "content": "Hi"}])
    assert "By a plain test." in said
    (request,) = fake_messages_api.call(fake_messages_api.wait_for_requests, 1)
    assert request.prompt == "Hi"

def test_responses_api(fake_responses_api):
    fake_responses_api.replace("By a plain test.")
    assert "By a plain test." in post(f"{fake_responses_api.url}/v1/responses", model="m", input="Hi", stream=True)

def test_claude(fake_claude, claude_tape, mock_claude):
    options = ct.ClaudeOptions(cli_path=fake_claude(Scenario.text("Hello")).path)
    assert complete_sync("Hi", options=options, transport="cli", timeout=30).text == "Hello"
    mock = mock_claude([{"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "done"}])
    with SyncQuery(mock) as query:
        assert query.send("Hi").result().result == "done"

def test_codex(fake_codex):
    from claude_transport.codex import SyncCodexSession
    with SyncCodexSession(ct.SubprocessTransport(command=fake_codex().command)) as session:
        assert session.send("Hi").result().text == "Hi"
"""
    )
    run(project).assert_outcomes(passed=4)


def test_a_script_that_was_not_played_to_its_end_fails_a_test_that_passed_and_only_such_a_test(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_it="""
def test_forgot(mock_claude):
    mock_claude.script().expect(type="user")

def test_failed_anyway(mock_claude):
    mock_claude.script().expect(type="user")
    assert False
"""
    )
    result = run(project)
    result.assert_outcomes(passed=1, failed=1, errors=1)
    result.stdout.fnmatch_lines(["failed: step 1 of 1: expected user, got nothing more"])


# ------------------------------------------------------------------------------------------------------------------- tapes


def test_without_a_tape_the_test_fails_with_the_command_that_records_it(project: pytest.Pytester) -> None:
    project.makepyfile(test_it=TAPED)
    result = run(project)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*there is no tape at *test_hello.ndjson; record it with*"])
    result.stdout.fnmatch_lines(["*pytest --claude-record=once 'test_it.py::test_hello*"])
    assert opened(project) == 0


def test_once_records_what_is_missing_and_from_then_on_it_is_replayed(project: pytest.Pytester) -> None:
    project.makepyfile(test_it=TAPED)
    run(project, "--claude-record=once").assert_outcomes(passed=2)
    assert opened(project) == 1, "the second backend replays what the first has recorded"
    assert Tape.read(tape(project)).header.scrubbed
    for mode in ([], ["--claude-record=none"], ["--claude-record=once"], ["--claude-record=new"]):
        run(project, *mode).assert_outcomes(passed=2)
    assert opened(project) == 1
    assert [path.name for path in tape(project).parent.iterdir()] == ["test_hello.ndjson"]


def test_new_records_anew_what_cannot_be_replayed(project: pytest.Pytester) -> None:
    project.makepyfile(test_it=TAPED)
    run(project, "--claude-record=new").assert_outcomes(passed=2)
    whole = tape(project).read_bytes()
    for broken in (whole[: len(whole) // 2], b'{"tape":99}\n', b"no tape\n"):
        tape(project).write_bytes(broken)
        before = opened(project)
        run(project, "--claude-record=new").assert_outcomes(passed=2)
        assert opened(project) == before + 1
        assert not Tape.read(tape(project)).is_torn


@pytest.mark.parametrize("mode", ["all", "rewrite"])
def test_all_and_rewrite_record_every_time(project: pytest.Pytester, mode: str) -> None:
    project.makepyfile(test_it=TAPED)
    for expected in (2, 4):
        run(project, f"--claude-record={mode}").assert_outcomes(passed=2)
        assert opened(project) == expected


@pytest.mark.parametrize(("mode", "left"), [("once", False), ("all", True), ("rewrite", False)])
def test_a_test_that_fails_leaves_no_new_tape_and_only_rewrite_throws_the_old_one_away(
    project: pytest.Pytester, mode: str, left: bool
) -> None:
    project.makepyfile(test_it=TAPED.replace('== ["Hello"]', '== ["Something else"]'))
    old = Tape.parse(b'{"t":0,"dir":"note","line":"old"}\n')
    if mode != "once":
        tape(project).parent.mkdir(parents=True)
        old.write(tape(project))
    run(project, f"--claude-record={mode}", "-k", "asyncio").assert_outcomes(failed=1, deselected=1)
    assert tape(project).exists() == left
    assert [path.name for path in tape(project).parent.iterdir()] == ["test_hello.ndjson"] * left


def test_a_program_that_left_its_tape_fails_naming_the_record(project: pytest.Pytester) -> None:
    project.makepyfile(test_it=TAPED)
    run(project, "--claude-record=once").assert_outcomes(passed=2)
    project.makepyfile(test_it=TAPED.replace('claude_tape(real), "Hi"', 'claude_tape(real), "Hi", "And now?"'))
    result = run(project)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*ExpectationFailed: record * of *: expected *, got user *And now?*"])
    project.makepyfile(test_it=PRELUDE + "async def test_hello(claude_tape):\n    async with claude_tape(None): pass")
    result = run(project)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["failed: record 1 of *: waiting for control_request initialize*played to its end*"])


def test_parameters_and_classes_are_in_the_name_and_further_tapes_have_names_of_their_own(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_it=PRELUDE
        + """
class TestIt:
    @pytest.mark.parametrize("word", ["a/b", "c"])
    @pytest.mark.parametrize("thing", [object()])
    async def test_two(self, claude_tape, mock_claude, word, thing):
        assert await ask(claude_tape(lambda: mock_claude([RESULT])), word) == ["done"]
        assert await ask(claude_tape(lambda: mock_claude([RESULT]), name="second " + word), word) == ["done"]
"""
    )
    run(project, "--claude-record=once").assert_outcomes(passed=4)
    run(project).assert_outcomes(passed=4)
    assert sorted(path.stem for path in tape(project).parent.iterdir()) == [
        "TestIt.test_two.thing0-a-b",
        "TestIt.test_two.thing0-c",
        "second-a-b",
        "second-c",
    ]


def test_a_mode_that_does_not_exist_is_refused_by_pytest(project: pytest.Pytester) -> None:
    result = run(project, "--claude-record=sometimes")
    result.stderr.fnmatch_lines(["*--claude-record: invalid choice: 'sometimes'*"])


def test_the_help_names_every_mode(project: pytest.Pytester) -> None:
    text = " ".join(run(project, "--help").stdout.str().split())
    assert "--claude-record={none,once,new,all,rewrite}" in text
    assert set(MODES) == {"none", "once", "new", "all", "rewrite"}
    assert "--claude-record" in text


# ---------------------------------------------------------------------------------------------------------------- the shelf


async def test_a_recording_that_was_not_closed_is_not_kept(tmp_path: Path) -> None:
    shelf = TapeShelf(tmp_path, name="x", mode="once")
    transport = shelf(MockTransport([RESULT]))
    await transport.connect()
    assert shelf.is_recording
    with pytest.raises(ConfigurationError, match="not complete: the test must close its transport"):
        shelf.finish(passed=True)
    await transport.close()
    assert shelf.finish(passed=True) == [tmp_path / "x.ndjson"]


async def test_a_tape_that_was_taken_but_never_used_is_no_failure(tmp_path: Path) -> None:
    Tape.parse(b'{"t":0,"dir":"out","line":"{}"}\n').write(tmp_path / "x.ndjson")
    shelf = TapeShelf(tmp_path, name="x")
    claude = shelf(MockTransport)
    assert isinstance(claude, ReplayTransport)
    shelf.finish(passed=True)
    await claude.connect()
    with pytest.raises(AssertionError, match="expected to be played to its end"):
        shelf.finish(passed=True)
    shelf.finish(passed=False)


def test_one_name_is_one_tape(tmp_path: Path) -> None:
    for mode in ("once", "none"):
        Tape.parse(b'{"t":0,"dir":"out","line":"{}"}\n').write(tmp_path / "y.ndjson")
        shelf = TapeShelf(tmp_path, name="x" if mode == "once" else "y", mode=mode)
        shelf(MockTransport)
        with pytest.raises(UsageError, match="give each conversation its own name"):
            shelf(MockTransport)


def test_a_missing_tape_and_an_unknown_mode_are_typed(tmp_path: Path) -> None:
    with pytest.raises(TapeMissing) as missing:
        TapeShelf(tmp_path, name="../x y", command="pytest -x")(MockTransport)
    assert (missing.value.path, missing.value.command) == (str(tmp_path / "x-y.ndjson"), "pytest -x")
    with pytest.raises(ConfigurationError, match="is not a recording mode; use one of"):
        TapeShelf(tmp_path, name="x", mode="sometimes")


def test_loading_the_plugin_loads_nothing_but_pytest() -> None:
    code = (
        "import sys, pytest; before = set(sys.modules); import claude_transport.testing.plugin, claude_transport.codex.testing.plugin; "
        "print(sorted(name for name in set(sys.modules) - before if name.partition('.')[0] not in sys.stdlib_module_names))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    testing = ["claude_transport.testing", "claude_transport.testing.judging", "claude_transport.testing.plugin"]
    codex = ["claude_transport.codex", "claude_transport.codex.testing", "claude_transport.codex.testing.plugin"]
    assert ran.stdout.strip() == str(["claude_transport", *codex, "claude_transport.lazy", *testing])


def test_the_page_says_the_type_of_every_fixture() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \| ", PAGE.read_text("utf-8"), re.MULTILINE))
    given = {name: codex_plugin if "codex" in name or "responses" in name else plugin for name in rows}
    assert sorted(rows) == sorted(["mock_claude", "fake_claude", "fake_messages_api", "fake_codex", "fake_responses_api", "claude_tape"])
    for name, kind in rows.items():
        text = Path(given[name].__file__ or "").read_text("utf-8")
        assert re.search(rf"^def {name}\(request: pytest.FixtureRequest\) -> Iterator\[{kind}\]:$", text, re.MULTILINE), name
        assert isinstance(getattr(testing, kind), type)


def test_every_fixture_says_what_it_gives() -> None:
    for name in ("mock_claude", "fake_claude", "fake_messages_api", "claude_tape"):
        assert (getattr(plugin, name).__doc__ or "").strip()
    for name in ("fake_codex", "fake_responses_api"):
        assert (getattr(codex_plugin, name).__doc__ or "").strip()
