"""What the pages about upgrading and leaving say is true: every file, key and variable of this library is on them."""

from __future__ import annotations

import ast
import json
import re
import tempfile
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from redis_server import redis_server

import claude_transport as ct
from claude_transport.fleet.broker import DEFAULT_PREFIX
from claude_transport.fleet.scripts import FleetKeys
from claude_transport.sessions import InMemorySessionStore, RedisSessionStore, get_session_messages, import_session_to_store
from claude_transport.testing import FakeClaude, Scenario

PROJECT = Path(__file__).parent.parent
PACKAGE = PROJECT / "claude_transport"
LEAVE = (PROJECT / "docs/how-to/leave.md").read_text("utf-8")
SOURCE = "".join(path.read_text("utf-8") for path in PACKAGE.rglob("*.py"))
UPGRADE = (PROJECT / "docs/how-to/upgrade.md").read_text("utf-8")

WRITERS = {
    "app/clean_world.py": "`ct-*`",
    "app/doctor.py": "`ct-*`",
    "app/inspect_tape.py": "`claude-transport inspect --html`",
    "app/wire_conversation.py": "`ct-*`",
    "bridge/host.py": "`ct-bridge-*`",
    "protocol/tape.py": "`Tape.write()`",
    "sessions/changing.py": "`fork_session()`",
    "sessions/file_store.py": "`FileSessionStore(path)`",
    "sessions/materialising.py": "`claude-transport-session-*`",
    "sessions/sqlite_store.py": "`SQLiteSessionStore(path)`",
    "testing/conformance/media.py": "`conformance-*`",
    "testing/conformance/sshd.py": "`sshd-*`",
    "testing/fake_claude_process/play.py": "`fake-claude-*`",
    "codex/testing/fake_codex_process/server.py": "`fake-codex-*`",
    "testing/fake_claude_process/stdio.py": "`fake-claude-*`",
    "testing/fake_program.py": "`fake-claude-*`",
    "testing/stand_in/player.py": "`claude-tape-*`",
    "testing/stand_in/tee.py": "`claude-transport record --as-claude`",
    "testing/tape_shelf.py": "`tapes/`",
    "transports/start_gate.py": "`StartGate(path)`",
    "transports/subprocess.py": "`claude-transport-*`",
    "wrappers/recording.py": "`RecordingTransport`",
}
"""The modules that write files that have a name, and the words of the page about each."""

MAKERS = {"mkdtemp", "mkstemp", "NamedTemporaryFile", "TemporaryDirectory", "mkdir", "makedirs", "symlink_to", "touch", "write_text"}


def calls_of(path: Path) -> Iterator[tuple[str, ast.Call]]:
    """Yield every call in a file, with the last part of its name."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call):
            yield (node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")), node


def makes_a_file(name: str, call: ast.Call) -> bool:
    texts = {node.value for node in call.args if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    writes = any(re.fullmatch("[wxa]b?", text) for text in texts)
    return name in MAKERS or (name == "open" and (writes or "O_CREAT" in ast.unparse(call)))


def patterns(text: str) -> list[str]:
    """The patterns of names that the first columns of the tables of a text have."""
    return re.findall(r"^\| `([^`]*\*)`", text, re.MULTILINE)


TEMPORARY = {found for row in re.findall(r"^\| `.*-\*` ", LEAVE, re.MULTILINE) for found in re.findall(r"`([^`]*-\*)`", row)}


def test_every_module_that_writes_a_file_is_on_the_page() -> None:
    writing = {
        path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") for name, call in calls_of(path) if makes_a_file(name, call)
    } - {"app/arguments.py", "app/terminal.py"}  # these write to the terminal
    flags = {"testing/fake_claude_process/stdio.py"}  # the flags of its open() are in a variable
    assert writing | flags == WRITERS.keys()
    assert [words for words in WRITERS.values() if words not in LEAVE] == []


def test_every_temporary_name_is_on_the_page_and_in_its_command() -> None:
    command = re.findall(r"-name '([^']*)'", LEAVE)
    found = re.findall(r"\b(?:mkdtemp|mkstemp|NamedTemporaryFile|TemporaryDirectory)\(([^)]*)\)", SOURCE)
    assert [arguments for arguments in found if "prefix=" not in arguments] == []
    prefixes = {arguments.partition("prefix=")[2].partition(",")[0] for arguments in found if "dir=folder" not in arguments}
    names = {literal.strip('"') for literal in prefixes if literal.startswith('"')}
    assert prefixes - {f'"{name}"' for name in names} == {"_PREFIX", 'f"fake-{name}-"'}
    names |= {"claude-transport-session-", "fake-claude-", "fake-codex-"}
    assert {f"{name}*" for name in names} == TEMPORARY
    assert [name for name in names if not any(fnmatchcase(f"{name}abc", each) for each in command)] == []


async def test_a_session_leaves_nothing_and_a_killed_one_only_what_the_page_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with FakeClaude(Scenario.echo()) as fake:
        options = ct.ClaudeOptions(cli_path=fake, isolated_config=True)
        async with ct.Query(ct.SubprocessTransport(options)) as query:
            await (await query.send("Hello")).result()
            there = [path.name for path in tmp_path.iterdir()]
            assert len(there) == 2
            assert [name for name in there if not any(fnmatchcase(name, each) for each in TEMPORARY)] == []
        assert list(tmp_path.iterdir()) == [fake.directory]
    assert list(tmp_path.iterdir()) == []


def test_every_variable_of_this_library_is_on_the_page() -> None:
    names = set(re.findall(r"\b_?(?:CLAUDE_TRANSPORT(?:_[A-Z]+)*|CLAUDE_CLI_PATH|CODEX_CLI_PATH)\b", SOURCE))
    assert len(names) > 10
    assert [name for name in sorted(names) if f"`{name}`" not in LEAVE] == []


def matches(key: str) -> bool:
    """Whether a pattern of the page, as Redis reads it, has this key. A brace has no meaning there."""
    return any(fnmatchcase(key, pattern) for pattern in patterns(LEAVE) if pattern.startswith("{"))


def test_every_key_of_a_fleet_has_a_pattern_on_the_page() -> None:
    keys = FleetKeys(DEFAULT_PREFIX)
    keys.divide(16)
    fixed = [key for part in (FleetKeys(DEFAULT_PREFIX), *keys.parts) for key in (part.queue, part.sessions, part.nodes, part.homes)]
    of_one = [keys.meta("s"), keys.incoming("s"), keys.outgoing("s"), keys.setup("s")]
    assert [key for key in (*fixed, *of_one) if not matches(key)] == []
    assert not matches("{claude-other}:meta")


async def test_the_pattern_of_a_store_has_every_key_that_the_store_writes(tmp_path: Path) -> None:
    import coredis

    key: Any = {"project_key": "-home-me", "session_id": "11111111-1111-4111-8111-111111111111"}
    with redis_server(tmp_path / "redis") as url:
        store: Any = RedisSessionStore(url)
        await store.append(key, [{"type": "user", "uuid": "a", "message": {"role": "user", "content": "Hi"}}])
        await store.append({**key, "subpath": "subagents/agent-1"}, [{"type": "user", "uuid": "b"}])
        async with coredis.Redis.from_url(url, decode_responses=True) as client:
            keys = [str(name) async for name in client.scan_iter()]
            assert len(keys) > 4
            assert [name for name in keys if not matches(name)] == []
            (pattern,) = [each for each in patterns(LEAVE) if each.startswith("{claude-sessions")]
            assert sorted([str(name) async for name in client.scan_iter(match=pattern)]) == sorted(keys)


async def test_entries_of_a_store_written_line_by_line_are_a_session_of_claude(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    session = "11111111-1111-4111-8111-111111111111"
    entry = {
        "type": "user",
        "uuid": "22222222-2222-4222-8222-222222222222",
        "parentUuid": None,
        "sessionId": session,
        "cwd": "/home/me",
        "timestamp": "2026-01-02T03:04:05.000Z",
        "message": {"role": "user", "content": "Hello"},
    }
    file = tmp_path / "projects" / "-home-me" / f"{session}.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(entry) + "\n")
    store = InMemorySessionStore()
    await import_session_to_store(session, store)
    file.unlink()
    entries = await store.load({"project_key": "-home-me", "session_id": session})
    assert entries is not None
    file.write_text("".join(json.dumps(each) + "\n" for each in entries))
    (message,) = get_session_messages(session)
    assert message.message["content"] == "Hello"


def test_the_upgrade_guide_is_about_the_version_that_there_is() -> None:
    version = ct.__version__
    minor = ".".join(version.split(".")[:2])
    assert f"From nothing to {version}" in UPGRADE
    assert f"`claude-transport>={minor},<0.{int(minor.partition('.')[2]) + 1}`" in UPGRADE


def test_nothing_is_deprecated_as_the_pages_say() -> None:
    assert "DeprecationWarning" not in SOURCE
    compatibility = (PROJECT / "docs/reference/compatibility.md").read_text("utf-8")
    assert all("Nothing is deprecated now." in page for page in (UPGRADE, compatibility))
