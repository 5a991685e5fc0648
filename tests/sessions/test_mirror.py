"""`Mirror`: frames into a store, beside the lines of a conversation; and the private place that a session is resumed from."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hostile_words import HOSTILE, assert_records_are_safe

import claude_transport as ct
from claude_transport import errors, sessions
from claude_transport.backoff import Backoff, RetryPolicy
from claude_transport.launch.options import ClaudeOptions
from claude_transport.protocol.framing import OversizedLine
from claude_transport.serving.choices import Choices
from claude_transport.sessions.materialising import FoundSession, PrivatePlace, configuration_of, find_session, remove_abandoned
from claude_transport.transports.mirroring import Mirror

SID = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
KEY: Any = {"project_key": "-work", "session_id": SID}
PATH = f"/config/projects/-work/{SID}.jsonl"
AT_ONCE = RetryPolicy(connection=2, backoff=Backoff(first=0.0, maximum=0.0))


def frame(*uuids: str, path: str = PATH) -> bytes:
    """A frame of the CLI with one entry for each uuid."""
    entries = [{"type": "user", "uuid": uuid} for uuid in uuids]
    return json.dumps({"type": "transcript_mirror", "filePath": path, "entries": entries}, separators=(",", ":")).encode()


def losses(lines: Any) -> list[str]:
    """What the reports among lines say."""
    decoded = [json.loads(line) for line in lines]
    return [each["error"] for each in decoded if each.get("subtype") == "mirror_error"]


async def uuids(store: Any, key: Any = KEY) -> list[str]:
    """The uuids that a store has."""
    return [entry["uuid"] for entry in await store.load(key) or []]


async def test_frames_go_to_the_store_and_the_other_lines_stay() -> None:
    store, ended = sessions.InMemorySessionStore(), []
    mirror = Mirror(store)
    mirror.start(at_end=lambda: ended.append(1))
    assert mirror.take([b'{"type":"assistant"}', frame("1", "2"), b'{"type":"result"}']) == [b'{"type":"assistant"}', b'{"type":"result"}']
    lines = [b'{"type":"stream_event"}']
    assert mirror.take(lines) is lines
    mirror.take([frame("3"), frame("4", path=f"/config/projects/-work/{SID}/subagents/agent-x.jsonl")])
    assert await mirror.drain() == []
    await mirror.close()
    assert await uuids(store) == ["1", "2", "3"]
    assert await uuids(store, {**KEY, "subpath": "subagents/agent-x"}) == ["4"]
    assert (mirror.lost, ended) == (0, [1])


async def test_a_program_that_asked_for_the_frames_gets_them_too() -> None:
    store = sessions.InMemorySessionStore()
    mirror = Mirror(store, hands_on=True)
    mirror.start()
    assert mirror.take([frame("1")]) == [frame("1")]
    await mirror.close()
    assert await uuids(store) == ["1"]


class Failing(sessions.InMemorySessionStore):
    """A store of which `failures` calls of `append` fail, and which waits for `gate` when there is one."""

    def __init__(self, failures: int = 0, gate: anyio.Event | None = None) -> None:
        super().__init__()
        self.failures = failures
        self.gate = gate
        self.reached = anyio.Event()
        self.sizes: list[int] = []

    async def append(self, key: Any, entries: Any) -> None:
        """Fail, wait or store."""
        self.reached.set()
        self.sizes.append(len(entries))
        if self.gate is not None:
            await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise ConnectionResetError("gone")
        await super().append(key, entries)


async def test_a_failed_call_is_made_again_as_the_policy_says() -> None:
    store = Failing(failures=2)
    mirror = Mirror(store, retry=AT_ONCE)
    mirror.start()
    mirror.take([frame("1")])
    while not await uuids(store):
        await anyio.lowlevel.checkpoint()
    await mirror.close()
    assert (store.sizes, mirror.lost) == ([1, 1, 1], 0)


async def test_what_cannot_be_stored_is_reported_among_the_next_lines_and_counted() -> None:
    store = Failing(failures=3)
    mirror = Mirror(store, retry=AT_ONCE)
    mirror.start()
    mirror.take([frame("1", "2")])
    while not mirror.lost:
        await anyio.lowlevel.checkpoint()
    lines = mirror.take([b'{"type":"result"}'])
    assert lines[0] == b'{"type":"result"}'
    assert losses(lines) == ["the session store failed: ConnectionResetError: gone"]
    assert json.loads(lines[1])["key"] == KEY
    mirror.take([frame("3")])
    assert await mirror.drain() == []
    await mirror.close()
    assert (await uuids(store), mirror.lost) == (["3"], 2)


async def test_what_comes_while_the_store_is_busy_is_stored_together() -> None:
    store = Failing(gate=anyio.Event())
    mirror = Mirror(store)
    mirror.start()
    mirror.take([frame("1")])
    await store.reached.wait()
    for number in range(2, 50):
        mirror.take([frame(str(number))])
    assert store.gate is not None
    store.gate.set()
    await mirror.close()
    assert store.sizes == [1, 48]


async def test_memory_is_bounded_and_what_does_not_fit_is_reported() -> None:
    store = Failing(gate=anyio.Event())
    mirror = Mirror(store, most_waiting_bytes=3 * len(frame("1")))
    mirror.start()
    mirror.take([frame("1")])
    await store.reached.wait()
    reports = [line for number in range(2, 9) for line in mirror.take([frame(str(number))])]
    assert len(losses(reports)) == 1
    assert "too slow" in losses(reports)[0]
    assert store.gate is not None
    store.gate.set()
    await mirror.close()
    assert await uuids(store) == ["1", "2", "3"]
    assert mirror.lost == 5


async def test_a_mirror_that_has_caught_up_has_all_its_room_again_and_tells_the_next_loss() -> None:
    store = Failing()
    mirror = Mirror(store, most_waiting_bytes=3 * len(frame("1")))
    mirror.start()
    for first in (1, 5):
        store.gate, store.reached = anyio.Event(), anyio.Event()
        mirror.take([frame(str(first))])
        with anyio.fail_after(30):
            await store.reached.wait()
        reports = [line for number in range(first + 1, first + 5) for line in mirror.take([frame(str(number % 10))])]
        assert len(losses(reports)) == 1
        store.gate.set()
        while mirror.is_behind:
            await anyio.lowlevel.checkpoint()
    await mirror.close()
    assert (await uuids(store), mirror.lost) == (["1", "2", "3", "5", "6", "7"], 4)


async def test_the_beginning_of_a_transcript_is_sent_once(tmp_path: Path) -> None:
    path = tmp_path / "projects" / "-work" / f"{SID}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps({"type": "user", "uuid": uuid}) + "\n" for uuid in "abcd"))
    store = Failing()
    mirror = Mirror(store)
    mirror.start()
    for uuid in "cd":
        mirror.take([frame(uuid, path=str(path))])
        with anyio.fail_after(30):
            await mirror.catch_up()
    await mirror.close()
    assert (await uuids(store), store.sizes) == (["a", "b", "c", "d"], [2, 1, 1])


@pytest.mark.parametrize("answers", [True, False])
async def test_whoever_waits_for_a_mirror_waits_until_all_is_stored_or_the_end(answers: bool) -> None:
    store = Failing(gate=anyio.Event())
    mirror = Mirror(store, last_calls=0.1)
    mirror.start()
    mirror.take([frame("1")])
    caught_up = anyio.Event()

    async def catch_up() -> None:
        await mirror.catch_up()
        caught_up.set()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            await store.reached.wait()
            tasks.start_soon(catch_up)
            await anyio.wait_all_tasks_blocked()
            assert (mirror.is_behind, caught_up.is_set()) == (True, False)
            assert store.gate is not None
            if answers:
                store.gate.set()
                await caught_up.wait()
            await mirror.close()
    assert (await uuids(store), mirror.lost) == ((["1"], 0) if answers else ([], 1))


async def test_a_store_that_never_answers_does_not_hold_up_the_end() -> None:
    store = Failing(gate=anyio.Event())
    mirror = Mirror(store, last_calls=0.1)
    mirror.start()
    mirror.take([frame("1"), frame("2")])
    await store.reached.wait()
    mirror.take([frame("3")])
    await mirror.close()
    assert mirror.lost == 3
    assert losses(await mirror.drain()) == ["the session was closed before the store had taken everything"]


async def test_a_call_that_takes_too_long_is_not_made_again() -> None:
    store = Failing(gate=anyio.Event())
    mirror = Mirror(store, append_timeout=0.01)
    mirror.start()
    mirror.take([frame("1")])
    while not mirror.lost:
        await anyio.lowlevel.checkpoint()
    await mirror.close()
    assert store.sizes == [1]


async def test_hostile_frames_cost_themselves_only() -> None:
    store = sessions.InMemorySessionStore()
    mirror = Mirror(store)
    mirror.start()
    oversized = OversizedLine(frame("1")[:40], size=10**9, limit=100)
    outside = [frame("x", path=path) for path in ("", "/etc/passwd", "/config/projects/a.jsonl", "relative")]
    bad = [b'{"type":"transcript_mirror","filePath":7}', b'{"type":"transcript_mirror"', oversized]
    reports = mirror.take([*bad, *outside, frame("2")])
    reports = [*reports, *await mirror.drain()]
    await mirror.close()
    assert await uuids(store) == ["2"]
    assert len(losses(reports)) == len(bad) + len(outside)


async def test_a_host_whose_session_was_taken_stores_no_more_of_it() -> None:
    store = sessions.InMemorySessionStore()
    await store.claim(KEY, owner="another", seconds=60)
    mirror = Mirror(store)
    mirror.start()
    with pytest.raises(errors.SessionInUse, match="another"):
        await mirror.claim(KEY)
    mirror.take([frame("1")])
    reports = await mirror.drain()
    await mirror.close()
    assert losses(reports) == ["another host has this session"]
    assert await uuids(store) == []


async def test_a_closed_mirror_gives_its_session_back() -> None:
    store = sessions.InMemorySessionStore()
    one, other = Mirror(store), Mirror(store)
    await one.claim(KEY)
    with pytest.raises(errors.SessionInUse):
        await other.claim(KEY)
    one.start()
    await one.close()
    await other.claim(KEY)
    await other.close()


async def test_a_cancelled_close_ends_the_mirror() -> None:
    store = Failing(gate=anyio.Event())
    mirror, ended = Mirror(store), []
    mirror.start(at_end=lambda: ended.append(1))
    mirror.take([frame("1")])
    await store.reached.wait()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await mirror.close()
    assert (ended, mirror.lost) == ([1], 1)


# ------------------------------------------------------------------------------------------------------------ out of the store


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary directory of this process, for this test only."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


FOUND = FoundSession(SID, "-work", {None: [{"type": "user"}], "subagents/agent-x": [{"type": "user"}, {"type": "agent_metadata"}]})


MOVED = '{"n": 1e999, "env": {"A": "1", "CLAUDE_CONFIG_DIR": "/elsewhere"}, "s": "é"}'


@pytest.mark.parametrize("name", ["settings.json", "cowork_settings.json", ".claude.json"])
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "marked"])
def test_a_file_of_the_user_that_would_lead_the_cli_elsewhere_is_copied_without_that(
    temporary: Path, tmp_path: Path, name: str, mark: str
) -> None:
    user = tmp_path / "user"
    user.mkdir()
    (user / name).write_text(mark + MOVED, encoding="utf-8")
    place = PrivatePlace(cwd=tmp_path, found=FOUND, configuration=configuration_of({"CLAUDE_CONFIG_DIR": str(user)}, is_isolated=False))
    assert (place.path / name).read_text(encoding="utf-8") == '{"n":1e999,"env":{"A":"1"},"s":"é"}'
    assert (place.path / name).stat().st_mode & 0o777 == 0o600
    assert (user / name).read_text(encoding="utf-8") == mark + MOVED
    place.remove()


@pytest.mark.parametrize(
    "text",
    [
        '{"env": {"A": "1"}}',
        '{"env": ["CLAUDE_CONFIG_DIR"]}',
        '{"env": null}',
        "[1]",
        "",
        "\ud800",
        '{"CLAUDE_CONFIG_DIR": "x"}',
        "[" * 9999,
    ],
)
def test_other_files_of_the_user_stay_links(temporary: Path, tmp_path: Path, text: str) -> None:
    user = tmp_path / "user"
    user.mkdir()
    (user / "settings.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    os.mkfifo(user / ".claude.json")  # reading it would wait for ever
    (user / "other.json").write_text(MOVED, encoding="utf-8")
    place = PrivatePlace(cwd=tmp_path, found=FOUND, configuration=configuration_of({"CLAUDE_CONFIG_DIR": str(user)}, is_isolated=False))
    for name in ("settings.json", ".claude.json", "other.json"):
        assert (place.path / name).readlink() == user / name
    place.remove()


@pytest.mark.parametrize("is_there", [False, True])
def test_a_user_whose_folder_cannot_be_read_has_no_configuration(tmp_path: Path, is_there: bool) -> None:
    folder = tmp_path / "user"
    if is_there:
        folder.write_text("no folder")
    assert configuration_of({"CLAUDE_CONFIG_DIR": str(folder)}, is_isolated=False) == {}


def test_where_links_are_not_allowed_files_are_copied_and_nobody_else_can_read_them(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = tmp_path / "user"
    (user / "plugins").mkdir(parents=True)
    (user / ".credentials.json").write_text("{}")
    (user / ".credentials.json").chmod(0o644)

    def refuse(self: Path, target: Path) -> None:
        raise OSError(errno.EPERM, f"no link from {self} to {target}")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    place = PrivatePlace(cwd=tmp_path, found=FOUND, configuration=configuration_of({"CLAUDE_CONFIG_DIR": str(user)}, is_isolated=False))
    copied = place.path / ".credentials.json"
    assert (copied.is_symlink(), copied.read_text(), copied.stat().st_mode & 0o777) == (False, "{}", 0o600)
    assert not (place.path / "plugins").exists()
    place.remove()
    assert (user / ".credentials.json").exists()


def test_a_private_place_has_the_session_and_the_configuration_and_is_gone_when_both_holders_have_let_go(
    temporary: Path, tmp_path: Path
) -> None:
    user = tmp_path / "user"
    (user / "projects" / "secret").mkdir(parents=True)
    (user / "settings.json").write_text("{}")
    place = PrivatePlace(cwd=tmp_path, found=FOUND, configuration=configuration_of({"CLAUDE_CONFIG_DIR": str(user)}, is_isolated=False))
    project = place.path / "projects" / sessions.project_key_for_directory(tmp_path)
    assert place.path.stat().st_mode & 0o777 == 0o700
    assert sorted(path.name for path in place.path.iterdir()) == ["in-use", "projects", "settings.json"]
    assert [path.name for path in (place.path / "projects").iterdir()] == [project.name]
    assert json.loads((project / f"{SID}.jsonl").read_text()) == {"type": "user"}
    assert sorted(path.name for path in (project / SID / "subagents").iterdir()) == ["agent-x.jsonl", "agent-x.meta.json"]
    place.let_go("process")
    assert place.path.exists()
    place.let_go("mirror")
    assert list(temporary.iterdir()) == []
    assert (user / "settings.json").exists()


def test_a_place_that_cannot_be_written_leaves_nothing(temporary: Path, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="File exists"):
        PrivatePlace(cwd=tmp_path, found=FOUND, configuration={"projects": tmp_path})
    assert list(temporary.iterdir()) == []


def test_a_place_that_cannot_be_locked_leaves_nothing(temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> bool:
        raise OSError(errno.ENOLCK, f"no lock on {descriptor}")

    monkeypatch.setattr("claude_transport.sessions.materialising.try_lock", refuse)
    with pytest.raises(OSError, match="no lock on"):
        PrivatePlace(cwd=tmp_path, found=FOUND, configuration={})
    assert list(temporary.iterdir()) == []


def test_a_place_that_goes_while_places_are_looked_for_keeps_no_other_one(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        place = temporary / f"claude-transport-session-{number}"
        place.mkdir()
        (place / "in-use").touch()
    look, gone = Path.stat, []

    def look_too_late(self: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        if self.parent == temporary and follow_symlinks and not gone:
            gone.append(self)
            shutil.rmtree(self)
        return look(self, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(Path, "stat", look_too_late)
    remove_abandoned()
    assert (len(gone), list(temporary.iterdir())) == (1, [])


def test_the_next_start_removes_the_place_of_a_host_that_was_killed_and_no_other(temporary: Path, tmp_path: Path) -> None:
    program = (
        "import sys, tempfile; tempfile.tempdir = sys.argv[1]\n"
        "from claude_transport.sessions.materialising import FoundSession, PrivatePlace\n"
        "place = PrivatePlace(cwd=None, found=FoundSession('x', 'y', {None: []}), configuration={})\n"
        "print(place.path, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(temporary)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as host:
        assert host.stdout is not None
        left = Path(host.stdout.readline().decode().strip())
        place = PrivatePlace(cwd=tmp_path, found=FOUND, configuration={})
        assert left.exists()
        os.kill(host.pid, signal.SIGKILL)
    assert left.exists()
    remove_abandoned()
    assert [path.name for path in temporary.iterdir()] == [place.path.name]
    place.remove()


async def test_names_that_would_leave_the_place_are_left_out() -> None:
    class Hostile(sessions.InMemorySessionStore):
        async def list_subkeys(self, key: Any) -> list[str]:
            """Name a place outside."""
            return ["../../../evil", "/etc/passwd", "a\\b", "", "subagents/agent-x"]

    store = Hostile()
    key: Any = {"project_key": sessions.project_key_for_directory(), "session_id": SID}
    await store.append(key, [{"type": "user"}])
    part: Any = {**key, "subpath": "subagents/agent-x"}
    await store.append(part, [{"type": "user"}])
    found = await find_session(store, resume=SID, cwd=None)
    assert found is not None
    assert sorted(map(str, found.transcripts)) == ["None", "subagents/agent-x"]


@pytest.mark.parametrize("words", HOSTILE.values(), ids=HOSTILE)
async def test_a_name_that_is_left_out_is_logged_on_one_line(words: str, caplog: pytest.LogCaptureFixture) -> None:
    class Hostile(sessions.InMemorySessionStore):
        async def list_subkeys(self, key: Any) -> list[str]:
            """Name a place outside."""
            return [f"../{words}"]

    store = Hostile()
    await store.append({"project_key": sessions.project_key_for_directory(), "session_id": SID}, [{"type": "user"}])
    found = await find_session(store, resume=SID, cwd=None)
    assert found is not None
    assert list(found.transcripts) == [None]
    assert_records_are_safe(caplog.records)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_a_store_that_fails_or_hangs_before_the_start_is_a_typed_error() -> None:
    class Broken(sessions.InMemorySessionStore):
        async def load(self, key: Any) -> Any:
            """Fail for one session, hang for another."""
            if key["session_id"] == SID:
                raise KeyError("gone")
            await anyio.sleep_forever()

    for session, said in ((SID, "KeyError: 'gone'"), (SID.replace("a", "b"), "did not answer in 0.01 s")):
        with pytest.raises(errors.CLIConnectionError, match=said) as caught:
            await find_session(Broken(), resume=session, cwd=None, timeout=0.01)
        assert caught.value.code == "session_store.failed"


class Halting(sessions.InMemorySessionStore):
    """A store that gives so many answers and then no more."""

    left = 100

    async def _answer(self) -> None:
        self.left -= 1
        if self.left < 0:
            await anyio.sleep_forever()

    async def load(self, key: Any) -> Any:
        """Answer, or hang."""
        await self._answer()
        return await super().load(key)

    async def list_sessions(self, project_key: str) -> Any:
        """Answer, or hang."""
        await self._answer()
        return await super().list_sessions(project_key)

    async def list_subkeys(self, key: Any) -> Any:
        """Answer, or hang."""
        await self._answer()
        return await super().list_subkeys(key)

    async def find_project(self, session_id: str) -> Any:
        """Answer, or hang."""
        await self._answer()
        return await super().find_project(session_id)


@pytest.mark.parametrize("resume", [None, SID], ids=["the latest one", "one of another directory"])
async def test_each_answer_that_a_start_waits_for_has_a_bound(resume: str | None) -> None:
    project = sessions.project_key_for_directory("/elsewhere" if resume else None)
    store = Halting()
    await store.append({"project_key": project, "session_id": SID}, [{"type": "user"}])
    await store.append({"project_key": project, "session_id": SID, "subpath": "subagents/agent-x"}, [{"type": "user"}])
    assert await find_session(store, resume=resume, cwd=None) is not None
    answers = 100 - store.left
    assert answers >= 5
    for store.left in range(answers):
        with anyio.fail_after(30), pytest.raises(errors.CLIConnectionError, match=r"did not answer in 0\.01 s"):
            await find_session(store, resume=resume, cwd=None, timeout=0.01)


# ---------------------------------------------------------------------------------------------------------------- the option


class Equal(sessions.InMemorySessionStore):
    """A store that says that it is equal to everything."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def test_options_with_different_stores_are_different() -> None:
    store = Equal()
    assert ClaudeOptions(session_store=store) == ClaudeOptions(session_store=store)
    assert ClaudeOptions(session_store=store) != ClaudeOptions(session_store=Equal())
    assert ClaudeOptions(session_store=store) != ClaudeOptions()
    assert ClaudeOptions(session_store=store, model="a") != ClaudeOptions(session_store=store)
    assert "Equal" not in repr(ClaudeOptions(session_store=store))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"session_store": object()}, "append and load"),
        ({"session_store": sessions.InMemorySessionStore}, "append and load"),
        ({"session_store": sessions.InMemorySessionStore(), "no_session_persistence": True}, "no_session_persistence"),
        ({"session_store": sessions.InMemorySessionStore(), "enable_file_checkpointing": True}, "enable_file_checkpointing"),
        ({"session_store": sessions.InMemorySessionStore(), "user": "nobody"}, "another user"),
    ],
)
async def test_a_store_that_cannot_be_used_is_refused_before_anything_is_started(wrong: Any, said: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=said) as caught:
        await ct.SubprocessTransport(ClaudeOptions(**wrong)).connect()
    assert caught.value.option == "session_store"


@pytest.mark.parametrize(
    "arguments", [{"command": ["cat"]}, {"launcher": ct.Launcher.ssh("host")}, {"launcher": ct.Launcher.docker("box")}]
)
def test_a_transport_that_sees_no_frames_or_no_files_refuses_a_store(arguments: Any) -> None:
    with pytest.raises(errors.ConfigurationError) as caught:
        ct.SubprocessTransport(ClaudeOptions(session_store=sessions.InMemorySessionStore()), **arguments)
    assert caught.value.option == "session_store"


@pytest.mark.parametrize("options", [ClaudeOptions(session_store=Equal()), {"session_store": {"path": "x"}}], ids=["options", "mapping"])
def test_a_store_is_not_sent_to_a_gateway(options: Any) -> None:
    with pytest.raises(errors.ConfigurationError, match="options of the gateway") as caught:
        ct.NetworkTransport("tcp://127.0.0.1:1", options=options)
    assert caught.value.option == "session_store"


def test_a_client_cannot_choose_a_store_even_where_everything_may_be_chosen() -> None:
    assert "session_store" not in Choices(ClaudeOptions.__struct_fields__).allowed
