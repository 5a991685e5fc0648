"""Sessions of the real CLI that outlive their machine: mirrored into a store, and resumed from it without a file of the first run."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import claude_agent_sdk
import pytest
from live_session import PATIENCE, from_subagent
from polling import a_moment
from redis_server import redis_server

import claude_transport as ct
from claude_transport import errors, sessions
from claude_transport.testing import FakeMessagesAPI, replies

HELPER = {"helper": {"description": "helps", "prompt": "You help.", "tools": ["Bash"]}}
SID = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"

MakeStore = Callable[[], Any]


KINDS = ("memory", "file", "sqlite", "redis", "official")
IN_TWO = ["memory", "redis", *(pytest.param(each, marks=pytest.mark.nightly) for each in ("file", "sqlite", "official"))]
"""For what the mirror does, and not the store: here and on a server."""


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A store of each kind, empty."""
    if request.param == "redis":
        with redis_server(tmp_path / "redis") as url:
            yield sessions.RedisSessionStore(url)
        return
    made: dict[str, MakeStore] = {
        "memory": sessions.InMemorySessionStore,
        "file": lambda: sessions.FileSessionStore(tmp_path / "store"),
        "sqlite": lambda: sessions.SQLiteSessionStore(tmp_path / "store.db"),
        "official": claude_agent_sdk.InMemorySessionStore,
    }
    yield made[request.param]()


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary directory of this process, for this test only."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def by_speaker(main: list[Any], sub: list[Any]) -> Any:
    """A script with one line of replies for the main conversation and one for the subagent."""
    in_main, in_sub = iter(main), iter(sub)
    return lambda request: next(in_sub if from_subagent(request) else in_main, "More.")


class Machine:
    """A machine of its own: a HOME, a configuration, a working directory, of which the other machines see nothing."""

    def __init__(self, root: Path, cli: str, environment: Callable[..., dict[str, str]]) -> None:
        self.root = root
        self.project = root / "work"
        for name in ("home", "config", "work", "tmp"):
            (root / name).mkdir(parents=True)
        self.cli = cli
        self.environment = environment

    def options(self, api: FakeMessagesAPI, *, extra_env: dict[str, str] | None = None, **more: Any) -> ct.ClaudeOptions:
        """The options of a session here."""
        own = {"HOME": str(self.root / "home"), "CLAUDE_CONFIG_DIR": str(self.root / "config")}
        env = {**self.environment(api, CLAUDE_CODE_MAX_RETRIES="0"), **own, **(extra_env or {})}
        return ct.ClaudeOptions(cli_path=self.cli, cwd=self.project, env=env, env_mode="exact", allowed_tools=["Agent", "Bash"], **more)

    @asynccontextmanager
    async def session(self, api: FakeMessagesAPI, **more: Any) -> AsyncIterator[ct.Query]:
        """A session here."""
        with anyio.fail_after(PATIENCE):
            async with ct.Query(ct.SubprocessTransport(self.options(api, **more)), agents=HELPER) as query:
                yield query

    def vanish(self) -> None:
        """Delete everything."""
        shutil.rmtree(self.root)


@pytest.fixture
def machines(tmp_path: Path, claude_cli: str, cli_env: Callable[..., dict[str, str]]) -> Iterator[Machine]:
    """Machines, one after the other."""
    return (Machine(tmp_path / f"machine-{number}", claude_cli, cli_env) for number in range(9))


async def ask(query: ct.Query, prompt: str) -> Any:
    return await (await query.send(prompt)).result()


def known(api: FakeMessagesAPI) -> str:
    """Everything the model was told by its last request."""
    return str(api.conversation[-1].body["messages"])


AGENT = replies.tool_use(
    "Agent", {"description": "do it", "prompt": "SUB", "subagent_type": "helper", "run_in_background": False}, id="toolu_agent"
)


@pytest.mark.needs("--session-mirror")
@pytest.mark.parametrize("store", [pytest.param("memory", marks=pytest.mark.version_sensitive), *KINDS[1:]], indirect=True)
async def test_a_session_goes_on_on_another_machine_with_its_subagents(store: Any, machines: Iterator[Machine], temporary: Path) -> None:
    one, other = next(machines), next(machines)
    async with FakeMessagesAPI(by_speaker([AGENT, "The word is xyzzy.", "It was xyzzy.", "Still."], ["Sub says plugh."])) as api:
        async with one.session(api, session_store=store) as query:
            first = await ask(query, "Tell me a word")
        written: Any = {"directory": one.project}
        said = await sessions.get_session_messages_from_store(store, first.session_id, **written)
        assert "xyzzy" in str(said[-1].message)
        (agent,) = await sessions.list_subagents_from_store(store, first.session_id, **written)
        (listed,) = await sessions.list_sessions_from_store(store, **written)
        assert (listed.session_id, listed.first_prompt) == (first.session_id, "Tell me a word")
        one.vanish()
        if isinstance(store, claude_agent_sdk.InMemorySessionStore):  # it cannot look for a session of another directory
            other = Machine(one.root, other.cli, other.environment)
        async with other.session(api, session_store=store, resume=first.session_id) as query:
            (place,) = temporary.glob("claude-transport-session-*")
            assert place.stat().st_mode & 0o777 == 0o700
            assert list((place / "projects").glob(f"*/{first.session_id}/subagents/agent-{agent}.meta.json"))
            second = await ask(query, "Which one?")
            assert second.session_id == first.session_id
        assert "The word is xyzzy." in known(api)
        assert list(temporary.iterdir()) == []
        (alone,) = await sessions.get_subagent_messages_from_store(store, first.session_id, agent, limit=1, offset=1, **written)
        assert "Sub says plugh." in str(alone.message)
        said = await sessions.get_session_messages_from_store(store, first.session_id, **written)
        assert [message.type for message in said[-2:]] == ["user", "assistant"]
        assert "It was xyzzy." in str(said[-1].message)
        assert "Tell me a word" in str(said[0].message)


async def begun(store: Any, machine: Machine, **more: Any) -> str:
    """A session in which a word was said, and its end."""
    async with FakeMessagesAPI(["The word is xyzzy."]) as api, machine.session(api, session_store=store, **more) as query:
        return (await ask(query, "Tell me a word")).session_id


@pytest.mark.needs("--session-mirror")
@pytest.mark.parametrize(
    "where",
    [
        "settings.json",
        ".claude.json",
        "--settings",
        pytest.param("cowork_settings.json", marks=pytest.mark.nightly),
        pytest.param("a file of --settings", marks=pytest.mark.nightly),
    ],
)
async def test_settings_that_move_the_configuration_do_not_lead_a_session_away_from_its_store(
    where: str, machines: Iterator[Machine], temporary: Path, tmp_path: Path
) -> None:
    store, one, other = sessions.InMemorySessionStore(), next(machines), next(machines)
    known_id = await begun(store, one)
    elsewhere = tmp_path / "elsewhere"
    settings = json.dumps({"env": {"CLAUDE_CONFIG_DIR": str(elsewhere), "SAID": "plugh"}})
    more: dict[str, Any] = {"settings": settings} if where == "--settings" else {}
    if where.endswith("json"):
        (other.root / "config" / where).write_text(settings)
    elif where.startswith("a file"):
        more = {"settings": tmp_path / "own.json"}
        more["settings"].write_text(settings)
    if where == "cowork_settings.json":
        more["extra_env"] = {"CLAUDE_CODE_USE_COWORK_PLUGINS": "1"}
    script = [replies.tool_use("Bash", {"command": 'echo "said $SAID"', "description": "d"}), "It was xyzzy."]
    async with FakeMessagesAPI(script) as api:
        async with other.session(api, session_store=store, resume=known_id, **more) as query:
            await ask(query, "Which one?")
        assert "The word is xyzzy." in known(api)
        assert "said plugh" in known(api)  # the other variables of the settings hold
    said = await sessions.get_session_messages_from_store(store, known_id, directory=one.project)
    assert "It was xyzzy." in str(said[-1].message)
    assert not elsewhere.exists()


@pytest.mark.needs("--session-mirror", "a continued session keeps its id")
@pytest.mark.parametrize("store", IN_TWO, indirect=True)
async def test_continuing_takes_up_the_latest_session_that_the_store_has_of_the_directory(
    store: Any, machines: Iterator[Machine], temporary: Path
) -> None:
    one = next(machines)
    await begun(store, one)
    latest = await begun(store, one)
    one.vanish()
    again = Machine(one.root, one.cli, one.environment)
    async with FakeMessagesAPI(["Continued."]) as api, again.session(api, session_store=store, continue_conversation=True) as query:
        assert (await ask(query, "Go on")).session_id == latest
        assert "The word is xyzzy." in known(api)
    assert len(await sessions.list_sessions_from_store(store, again.project)) == 2


@pytest.mark.needs("--session-mirror")
@pytest.mark.parametrize("store", IN_TWO, indirect=True)
async def test_continuing_without_a_session_in_the_store_begins_one(store: Any, machines: Iterator[Machine]) -> None:
    one = next(machines)
    async with FakeMessagesAPI(["Hello."]) as api, one.session(api, session_store=store, continue_conversation=True) as query:
        result = await ask(query, "Hello")
    assert [each.session_id for each in await sessions.list_sessions_from_store(store, one.project)] == [result.session_id]


@pytest.mark.needs("--session-mirror")
@pytest.mark.parametrize("store", IN_TWO, indirect=True)
async def test_the_store_has_the_whole_history_of_a_fork(store: Any, machines: Iterator[Machine], temporary: Path) -> None:
    one = next(machines)
    original = await begun(store, one)
    before = await store.load({"project_key": sessions.project_key_for_directory(one.project), "session_id": original})
    async with FakeMessagesAPI(["Forked."]) as api, one.session(api, session_store=store, resume=original, fork_session=True) as query:
        fork = (await ask(query, "A side branch")).session_id
    assert fork != original
    said = await sessions.get_session_messages_from_store(store, fork, one.project)
    assert [message.type for message in said] == ["user", "assistant", "user", "assistant"]
    assert "The word is xyzzy." in str(said[1].message)
    assert await store.load({"project_key": sessions.project_key_for_directory(one.project), "session_id": original}) == before
    one.vanish()
    again = Machine(one.root, one.cli, one.environment)
    async with FakeMessagesAPI(["It was xyzzy."]) as api, again.session(api, session_store=store, resume=fork) as query:
        await ask(query, "Which one?")
        assert "The word is xyzzy." in known(api)
        assert "A side branch" in known(api)


@pytest.mark.needs("--session-mirror")
@pytest.mark.parametrize("store", IN_TWO, indirect=True)
async def test_a_session_that_was_begun_without_a_store_is_stored_whole_once_it_goes_on_with_one(
    store: Any, machines: Iterator[Machine]
) -> None:
    one = next(machines)
    original = await begun(None, one)
    async with FakeMessagesAPI(["It was xyzzy."]) as api, one.session(api, session_store=store, resume=original) as query:
        await ask(query, "Which one?")
    said = await sessions.get_session_messages_from_store(store, original, one.project)
    assert [message.type for message in said] == ["user", "assistant", "user", "assistant"]


@pytest.mark.needs("--session-mirror")
@pytest.mark.parametrize("store", ["memory", "file", "sqlite", "redis"], indirect=True)
async def test_of_two_hosts_that_resume_a_session_the_second_is_refused_or_forks(
    store: Any, machines: Iterator[Machine], temporary: Path
) -> None:
    one, other = next(machines), next(machines)
    original = await begun(store, one)
    async with FakeMessagesAPI(["Resumed.", "Forked."]) as api, one.session(api, session_store=store, resume=original) as query:
        await ask(query, "Back again")
        with pytest.raises(errors.SessionInUse, match="fork_session=True") as caught:
            async with other.session(api, session_store=store, resume=original):
                pass
        assert caught.value.session_id == original
        async with other.session(api, session_store=store, resume=original, fork_session=True) as forked:
            assert (await ask(forked, "A side branch")).session_id != original
            assert "The word is xyzzy." in known(api)
    assert list(temporary.iterdir()) == []
    async with FakeMessagesAPI(["Free."]) as api, other.session(api, session_store=store, resume=original) as query:
        assert (await ask(query, "And now?")).session_id == original
        assert "Back again" in known(api)
        assert "A side branch" not in known(api)


@pytest.mark.needs("--session-mirror")
@pytest.mark.parametrize("store", ["memory", "sqlite"], indirect=True)
async def test_a_running_session_that_was_not_resumed_is_held_by_its_host_too(store: Any, machines: Iterator[Machine]) -> None:
    one, other = next(machines), next(machines)
    async with FakeMessagesAPI(["The word is xyzzy.", "More."]) as api, one.session(api, session_store=store) as query:
        running = (await ask(query, "Tell me a word")).session_id
        await until_stored(store, one, running)
        with pytest.raises(errors.SessionInUse):
            async with other.session(api, session_store=store, resume=running):
                pass


async def until_stored(store: Any, machine: Machine, session: str) -> None:
    """Return when the store has something of a session."""
    with anyio.fail_after(PATIENCE):
        while not await store.load({"project_key": sessions.project_key_for_directory(machine.project), "session_id": session}):
            await a_moment()


class BadStore(sessions.InMemorySessionStore):
    """A store whose `append` fails for the first `failures` calls, or waits until `open` is set."""

    def __init__(self, *, failures: int = 0, opened: bool = True, cuts: bool = False) -> None:
        super().__init__()
        self.failures = failures
        self.cuts = cuts
        self.calls = 0
        self.open = anyio.Event()
        if opened:
            self.open.set()

    async def append(self, key: Any, entries: Any) -> None:
        """Fail, wait, or store a part before failing."""
        self.calls += 1
        await self.open.wait()
        if self.calls <= self.failures:
            if self.cuts:
                await super().append(key, entries[: len(entries) // 2])
            raise ConnectionResetError("the store died")
        await super().append(key, entries)


@pytest.mark.needs("--session-mirror")
@pytest.mark.parametrize("cuts", [False, True], ids=["before an append", "in the middle of an append"])
async def test_a_store_that_fails_for_a_moment_has_everything_once_in_the_end(cuts: bool, machines: Iterator[Machine]) -> None:
    one, failing = next(machines), BadStore(failures=1, cuts=cuts)
    script = ["The word is xyzzy."]
    async with FakeMessagesAPI(script) as api, one.session(api, session_store=failing, session_id=SID) as query:
        await ask(query, "Tell me a word")
        report = await query.aclose()
    assert report.unstored_entries == 0
    said = await sessions.get_session_messages_from_store(failing, SID, one.project)
    assert [message.type for message in said] == ["user", "assistant"]
    stored = await failing.load({"project_key": sessions.project_key_for_directory(one.project), "session_id": SID})
    uuids = [entry["uuid"] for entry in stored or [] if "uuid" in entry]
    assert len(uuids) == len(set(uuids)) > 2


@pytest.mark.needs("--session-mirror")
async def test_a_store_that_is_away_loses_no_message_and_the_loss_is_reported(machines: Iterator[Machine]) -> None:
    one, failing = next(machines), BadStore(failures=10**9)
    heard: list[ct.Message] = []
    async with FakeMessagesAPI(["The word is xyzzy."]) as api, one.session(api, session_store=failing) as query:
        messages = query.messages()
        assert (await ask(query, "Tell me a word")).result == "The word is xyzzy."
        report = await query.aclose()
        heard = [message async for message in messages]
    lost = [message for message in heard if isinstance(message, ct.messages.MirrorError)]
    assert lost
    assert "ConnectionResetError: the store died" in lost[0].error
    assert report.unstored_entries > 2


@pytest.mark.needs("--session-mirror")
async def test_a_slow_store_does_not_hold_up_the_conversation(machines: Iterator[Machine]) -> None:
    one, slow = next(machines), BadStore(opened=False)
    async with FakeMessagesAPI(["One.", "Two.", "Three."]) as api, one.session(api, session_store=slow) as query:
        for word in ("One.", "Two.", "Three."):
            result = await ask(query, "Say it")
            assert result.result == word
        slow.open.set()
        report = await query.aclose()
    assert report.unstored_entries == 0
    assert len(await sessions.get_session_messages_from_store(slow, result.session_id, one.project)) == 6


@pytest.mark.needs("--session-mirror")
async def test_what_is_said_while_a_transport_closes_is_stored_although_it_is_not_read(machines: Iterator[Machine]) -> None:
    one, store = next(machines), sessions.InMemorySessionStore()
    async with FakeMessagesAPI(["The word is xyzzy."]) as api:
        transport = ct.SubprocessTransport(one.options(api, session_store=store, session_id=SID))
        with anyio.fail_after(PATIENCE):
            await transport.connect()
            await transport.write(json.dumps({"type": "user", "message": {"role": "user", "content": "Tell me a word"}}) + "\n")
            async for _ in transport.read_messages():
                break
            await transport.close()
    (path,) = (one.root / "config").glob(f"projects/*/{SID}.jsonl")
    written = [entry["uuid"] for entry in map(json.loads, path.read_text().splitlines()) if "uuid" in entry]
    stored = await store.load({"project_key": path.parent.name, "session_id": SID}) or []
    assert [entry["uuid"] for entry in stored if "uuid" in entry] == written
    assert "xyzzy" in str(stored)
    assert transport.info.unstored_entries == 0


@pytest.mark.needs("--session-mirror")
async def test_a_start_that_fails_leaves_no_files_and_holds_no_session(
    machines: Iterator[Machine], temporary: Path, tmp_path: Path
) -> None:
    one, store = next(machines), sessions.SQLiteSessionStore(tmp_path / "store.db")
    original = await begun(store, one)
    async with FakeMessagesAPI(["Back."]) as api:
        with pytest.raises(errors.WorkingDirectoryError):
            await ct.SubprocessTransport(one.options(api, session_store=store, resume=original).replace(cwd=tmp_path / "missing")).connect()
        assert list(temporary.iterdir()) == []
        async with one.session(api, session_store=store, resume=original) as query:
            assert (await ask(query, "Back?")).session_id == original


@pytest.mark.needs("--session-mirror")
async def test_a_gateway_with_a_store_mirrors_and_resumes_for_its_clients(
    machines: Iterator[Machine], temporary: Path, tmp_path: Path
) -> None:
    one, store = next(machines), sessions.SQLiteSessionStore(tmp_path / "store.db")
    async with FakeMessagesAPI(["The word is xyzzy.", "It was xyzzy."]) as api:
        gateways = []
        for machine in (one, next(machines)):
            options = machine.options(api, session_store=store)
            gateways.append(ct.Gateway(options, listen=["tcp://127.0.0.1:0"], tokens={"a": "a-token-for-the-store"}, choices=["resume"]))
        heard = []
        resumed: str | None = None
        for gateway in gateways:
            with anyio.fail_after(PATIENCE):
                async with gateway:
                    chosen = {} if resumed is None else {"resume": resumed}
                    async with ct.Query(ct.NetworkTransport(gateway.urls[0], token="a-token-for-the-store", options=chosen)) as query:
                        heard.append(await ask(query, "Tell me a word"))
                    resumed = heard[0].session_id
            if one.root.exists():
                one.vanish()
        assert heard[0].session_id == heard[1].session_id
        assert "The word is xyzzy." in known(api)
    assert list(temporary.glob("claude-transport-session-*")) == []


TOKEN = "a-token-for-the-store"


def gateway_on(machine: Machine, api: FakeMessagesAPI, store: Any) -> ct.Gateway:
    """A gateway on a machine, whose clients may say which session they go on with."""
    choices = ["resume", "continue_conversation", "fork_session"]
    return ct.Gateway(machine.options(api, session_store=store), listen=["tcp://127.0.0.1:0"], tokens={"a": TOKEN}, choices=choices)


def client_of(gateway: ct.Gateway, **chosen: Any) -> ct.Query:
    """A session of a gateway."""
    return ct.Query(ct.NetworkTransport(gateway.urls[0], token=TOKEN, options=chosen))


@pytest.mark.needs("--session-mirror", "a continued session keeps its id")
@pytest.mark.parametrize(
    "store", ["sqlite", *(pytest.param(each, marks=pytest.mark.nightly) for each in ("memory", "file", "redis"))], indirect=True
)
async def test_of_two_gateways_the_second_is_refused_or_forks_and_goes_on_when_the_first_has_ended(
    store: Any, machines: Iterator[Machine], temporary: Path
) -> None:
    one = next(machines)
    async with FakeMessagesAPI(lambda _: "The word is xyzzy.") as api:
        with anyio.fail_after(2 * PATIENCE):
            async with gateway_on(one, api, store) as first:
                async with client_of(first) as query:
                    session = (await ask(query, "Tell me a word")).session_id
                async with client_of(first, continue_conversation=True) as query:
                    assert (await ask(query, "Continued")).session_id == session
                    async with gateway_on(next(machines), api, store) as second:
                        with pytest.raises(errors.ClaudeTransportError, match=r"session\.in_use.*fork_session=True"):
                            async with client_of(second, resume=session):
                                pass
                        async with client_of(second, resume=session, fork_session=True) as forked:
                            assert (await ask(forked, "A side branch")).session_id != session
            one.vanish()
            async with gateway_on(next(machines), api, store) as third, client_of(third, resume=session) as query:
                assert (await ask(query, "And now?")).session_id == session
        assert "Tell me a word" in known(api)
        assert "Continued" in known(api)
        assert "A side branch" not in known(api)
    assert list(temporary.glob("claude-transport-session-*")) == []


HOST = """
import json, sys
from pathlib import Path

import anyio
import claude_transport as ct
from claude_transport import sessions
from claude_transport.transports import mirroring

mirroring.CLAIM_SECONDS = 1.0  # the test would wait for the end of the hold

class Stuck(sessions.FileSessionStore):
    calls = 0

    async def append(self, key, entries):
        "Store the first batch, and a part of what comes then, as a host that dies in the middle of a write."
        Stuck.calls += 1
        if Stuck.calls > 1 and any("xyzzy" in json.dumps(entry) for entry in entries):
            await super().append(key, entries[:-1])
            (path,) = Path(given["store"]).rglob("*.jsonl")
            with path.open("ab") as file:
                file.write(b'{"type":"assis')
            print("in the middle", flush=True)
            await anyio.sleep_forever()
        await super().append(key, entries)

async def main():
    options = ct.ClaudeOptions(**given["options"], session_store=Stuck(given["store"]))
    async with ct.Query(ct.SubprocessTransport(options)) as query:
        async for message in await query.send("Tell me a word"):
            pass
        await anyio.sleep_forever()

given = json.loads(sys.argv[1])
anyio.run(main, backend=given["backend"])
"""


@pytest.mark.needs("--session-mirror")
async def test_a_host_that_is_killed_in_the_middle_of_a_write_loses_that_write_only(
    machines: Iterator[Machine], tmp_path: Path, anyio_backend_name: str
) -> None:
    one, other, store = next(machines), next(machines), sessions.FileSessionStore(tmp_path / "store")
    async with FakeMessagesAPI(["The word is xyzzy.", "Here again."]) as api:
        options = one.options(api, session_id=SID)
        given = {"cli_path": str(options.cli_path), "cwd": str(options.cwd), "env": options.env, "env_mode": "exact", "session_id": SID}
        argument = json.dumps({"options": given, "store": str(tmp_path / "store"), "backend": anyio_backend_name})
        async with await anyio.open_process([sys.executable, "-c", HOST, argument], stdin=subprocess.DEVNULL, stderr=None) as host:
            assert host.stdout is not None
            with anyio.fail_after(PATIENCE):
                assert b"in the middle" in await host.stdout.receive()
            host.send_signal(signal.SIGKILL)
            await host.wait()
        with anyio.fail_after(PATIENCE):
            while one.root.exists():  # its CLI, which is just being ended, may still write
                shutil.rmtree(one.root, ignore_errors=True)
                await anyio.lowlevel.checkpoint()
        said = await sessions.get_session_messages_from_store(store, SID, one.project)
        assert said[0].message["content"] == "Tell me a word"
        async with resumed_when_free(other, api, store) as query:
            assert (await ask(query, "Are you there?")).session_id == SID
        assert "Tell me a word" in known(api)
    said = await sessions.get_session_messages_from_store(store, SID, one.project)
    assert "Here again." in str(said[-1].message)


@asynccontextmanager
async def resumed_when_free(machine: Machine, api: FakeMessagesAPI, store: Any) -> AsyncIterator[ct.Query]:
    """The session on this machine, once the hold of the killed host has ended."""
    with anyio.fail_after(PATIENCE):
        while True:
            query = ct.Query(ct.SubprocessTransport(machine.options(api, session_store=store, resume=SID)), agents=HELPER)
            try:
                await query.__aenter__()
                break
            except errors.SessionInUse:
                continue
        try:
            yield query
        finally:
            await query.aclose()


@pytest.mark.needs("--session-mirror")
async def test_a_host_that_is_killed_leaves_a_session_that_can_be_resumed_elsewhere(
    machines: Iterator[Machine], temporary: Path, tmp_path: Path
) -> None:
    """What was stored before the kill is there, and the place in which the session ran is removed by the next start."""
    one, other, path = next(machines), next(machines), tmp_path / "store.db"
    store = sessions.SQLiteSessionStore(path)
    original = await begun(store, one)
    left = temporary / "claude-transport-session-left"
    left.mkdir()
    (left / "in-use").touch()  # as a killed host leaves it: no process has the lock
    key: Any = {"project_key": sessions.project_key_for_directory(one.project), "session_id": original}
    await store.append(key, [{"type": "user"}])
    await store.claim(key, owner="a killed host", seconds=0.0)
    async with FakeMessagesAPI(["It was xyzzy."]) as api, other.session(api, session_store=store, resume=original) as query:
        assert not left.exists()
        assert (await ask(query, "Which one?")).session_id == original
        assert "The word is xyzzy." in known(api)
