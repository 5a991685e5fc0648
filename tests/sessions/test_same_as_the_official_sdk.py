"""The functions and those of the official SDK, on the same directories: the same ids in the same order, with the same fields."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import claude_agent_sdk
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shelf import CWD, Shelf, answer, assistant, call, entry, line, session, talk, user

from claude_transport import sessions

FUNCTIONS = [
    "delete_session",
    "fork_session",
    "get_session_info",
    "get_session_messages",
    "get_subagent_messages",
    "import_session_to_store",
    "list_sessions",
    "list_subagents",
    "project_key_for_directory",
    "rename_session",
    "tag_session",
]
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{4,6}Z")  # as both SDKs write it; the CLI has three digits


def plain(value: Any) -> Any:
    """What a function returned, without the classes of either side."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value


def both(name: str, *args: Any, **arguments: Any) -> Any:
    """What both functions of this name return, which must be the same."""
    official, ours = (plain(getattr(side, name)(*args, **arguments)) for side in (claude_agent_sdk, sessions))
    assert ours == official
    return ours


@contextmanager
def a_shelf() -> Iterator[Shelf]:
    """A shelf for one example of a property."""
    before = os.environ.get("CLAUDE_CONFIG_DIR")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CLAUDE_CONFIG_DIR"] = folder
        try:
            yield Shelf(Path(folder))
        finally:
            os.environ.pop("CLAUDE_CONFIG_DIR")
            if before is not None:
                os.environ["CLAUDE_CONFIG_DIR"] = before


# ------------------------------------------------------------------------------------------------------------------------ names


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_the_parameters_of_the_official_one(name: str) -> None:
    official, ours = (inspect.signature(getattr(side, name)).parameters.values() for side in (claude_agent_sdk, sessions))
    assert [(one.name, one.kind, one.default) for one in ours] == [(one.name, one.kind, one.default) for one in official]
    assert inspect.iscoroutinefunction(getattr(sessions, name)) == inspect.iscoroutinefunction(getattr(claude_agent_sdk, name))


@pytest.mark.parametrize("name", ["SDKSessionInfo", "SessionMessage", "ForkSessionResult"])
def test_a_result_has_the_fields_of_the_official_one(name: str) -> None:
    official, ours = (dataclasses.fields(getattr(side, name)) for side in (claude_agent_sdk, sessions))
    assert [(one.name, one.default) for one in ours] == [(one.name, one.default) for one in official]


# ------------------------------------------------------------------------------------------------------------------------- lists

PADDING = {"type": "system", "subtype": "x", "content": "pad " * 20_000}  # more than either end of a file that is read
HEADS: dict[str, list[Any] | bytes] = {
    "a short talk": talk(),
    "nothing said": [{"type": "queue-operation", "operation": "dequeue", "timestamp": "2026-11-20T10:00:00.000Z"}],
    "an empty file": b"",
    "blank lines": b"\n\n  \n",
    "garbage": bytes(range(256)) * 400,
    "half a line": line(user(1, "Whole")) + line(user(2, "Half", parent=1))[:60],
    "a line cut in a title": line(user(1)) + b'{"type":"custom-title","customTitle":"Cut',
    "of a subagent": [user(1, isSidechain=True), assistant(2, parent=1)],
    "a title of the user": [*talk(), {"type": "custom-title", "customTitle": "Mine"}],
    "both titles": [{"type": "custom-title", "customTitle": "Mine"}, *talk(), {"type": "ai-title", "aiTitle": "Its"}],
    "titles taken back": [*talk(), {"customTitle": "Mine"}, {"customTitle": ""}, {"aiTitle": "Its"}],
    "two titles, and a long talk between": [{"customTitle": "First"}, *talk(), PADDING, {"customTitle": "Last"}, PADDING],
    "a title that is out of sight": [*talk(), PADDING, {"customTitle": "Unseen"}, PADDING, PADDING],
    "a title at the beginning only": [{"aiTitle": "Early"}, *talk(), PADDING, PADDING],
    "a tag": [*talk(), {"type": "tag", "tag": "green", "sessionId": session(1)}],
    "a tag that was taken away": [*talk(), {"type": "tag", "tag": "green"}, {"type": "tag", "tag": ""}],
    "a tag of a tool": [*talk(), assistant(3, [{"type": "tool_use", "id": "t", "name": "git", "input": {"tag": "v1"}}], parent=2)],
    "the last prompt": [*talk(), {"type": "last-prompt", "lastPrompt": "What else?"}],
    "a summary": [{"type": "summary", "summary": "About something", "leafUuid": entry(1)}],
    "a slash command": [user(1, "<command-name>/clear</command-name>"), user(2, "<command-name>/model</command-name>", parent=1)],
    "a command, then a prompt": [user(1, "<command-name>/clear</command-name>"), user(2, "Then this", parent=1)],
    "generated prompts": [
        user(1, "<local-command-stdout>out</local-command-stdout>"),
        user(2, "[Request interrupted by user for tool use]"),
        user(3, "<ide_opened_file>a\nb</ide_opened_file> "),
        user(4, "<ide_opened_file>a</ide_opened_file> and a question"),
    ],
    "prompts that do not count": [
        user(1, "meta", isMeta=True),
        user(2, "compacted", isCompactSummary=True),
        user(3, [answer("t")]),
        user(4, [{"type": "image"}, {"type": "text", "text": "  \n "}, {"type": "text", "text": "Second\nblock"}]),
    ],
    "a long prompt": [user(1, "word " * 100)],
    "a prompt beyond the head": [PADDING, user(1, "Late")],
    "letters": [user(1, 'Grüße "an" \\ alle \U0001f600'), {"customTitle": 'Zeile\nzwei \u2028 "\\'}],
    "half a letter": line(user(1, "x")) + b'{"customTitle":"\xf0\x9f\x98"}\n',
    "bad escapes": line(user(1, "x")) + b'{"customTitle":"a\\x b","aiTitle":"ok"}\n',
    "a lone surrogate": line(user(1, "x")) + b'{"customTitle":"\\ud800"}\n',
    "spaces behind colons": b"".join(json.dumps(one).encode() + b"\n" for one in [*talk(), {"type": "tag", "tag": "blue"}]),
    "both kinds of colons": line({"customTitle": "tight"}) + json.dumps({"customTitle": "spaced"}).encode() + b"\n" + line(talk()[0]),
    "other kinds of values": [user(1, 7), user(2, None), user(3, {"a": 1}), {"type": "user", "message": []}, [1], 2, user(4, "Here")],
    "no branch, no directory": [{"type": "user", "uuid": entry(1), "message": {"content": "Bare"}}],
    "a bad time": [{**user(1), "timestamp": "yesterday"}],
    "a local time": [{**user(1), "timestamp": "2026-11-20T10:00:00"}],
}


def test_every_kind_of_session_is_listed_alike(shelf: Shelf) -> None:
    for number, entries in enumerate(HEADS.values()):
        shelf.put(number, entries)
    listed = {info["session_id"] for info in both("list_sessions")}
    assert {session(0), session(8)} <= listed
    assert session(1) not in listed
    for cwd in (CWD, "/elsewhere"):
        both("list_sessions", cwd)
    for limit, offset in ((1, 0), (5, 3), (None, 4), (0, 0), (-1, -2), (100, 30), (3, 1000)):
        both("list_sessions", limit=limit, offset=offset)


@pytest.mark.parametrize("kind", HEADS)
def test_one_session_is_described_alike(kind: str, shelf: Shelf) -> None:
    shelf.put(1, HEADS[kind])
    for arguments in ({}, {"directory": CWD}, {"directory": "/elsewhere"}):
        both("get_session_info", session(1), **arguments)
    both("get_session_info", session(2))


def test_sessions_of_one_id_in_two_projects_are_listed_once_and_the_later_one_counts(shelf: Shelf) -> None:
    shelf.put(1, [user(1, "Earlier")], cwd="/one", changed=1000.0)
    shelf.put(1, [user(1, "Later")], cwd="/other", changed=2000.0)
    shelf.put(1, b"", cwd="/empty", changed=3000.0)
    shelf.put(2, [user(1, "Another")], cwd="/one", changed=1500.0)
    assert [info["summary"] for info in both("list_sessions")] == ["Later", "Another"]


def test_names_that_are_no_sessions_are_not_listed(shelf: Shelf) -> None:
    path = shelf.put(1)
    for name in ("notes.jsonl", f"{session(2)}.json", f".{session(3)}.jsonl", f"agent-{session(4)}.jsonl"):
        shutil.copy(path, path.with_name(name))
    shutil.copy(path, path.with_name(f"{session(0xABCDEF).upper()}.jsonl"))
    assert len(both("list_sessions")) == 2


def test_there_is_nothing_where_the_cli_never_ran(shelf: Shelf) -> None:
    assert both("list_sessions") == both("list_sessions", CWD) == both("get_session_messages", session(1)) == []
    assert both("list_subagents", session(1)) == both("get_subagent_messages", session(1), "a") == []
    assert both("get_session_info", session(1)) is both("get_session_info", session(1), CWD) is None


@pytest.mark.parametrize("place", ["one", "other", "one/below", "linked", "elsewhere"])
def test_worktrees_of_a_repository_count_alike(place: str, shelf: Shelf, tmp_path: Path) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path / "one")]
    (tmp_path / "one" / "below").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"], ["worktree", "add", "-q", "../other"]):
        subprocess.run([*git, *command], check=True, capture_output=True)
    (tmp_path / "linked").symlink_to(tmp_path / "other")
    for number, name in enumerate(("one", "other", "one/below", "elsewhere", "one-more")):
        shelf.put(number, cwd=tmp_path / name)
    shelf.put(1, [user(1, "In the main tree, too")], cwd=tmp_path / "one")
    directory = str(tmp_path / place)
    both("list_sessions", directory)
    both("list_sessions", directory, include_worktrees=False)
    for number in range(5):
        both("get_session_info", session(number), directory)
        both("get_session_messages", session(number), directory)
    subprocess.run([*git, "worktree", "remove", "../other"], check=True)
    both("list_sessions", directory)
    both("get_session_info", session(2), directory)


KEYS = ["customTitle", "aiTitle", "lastPrompt", "summary", "gitBranch", "cwd", "timestamp", "tag", "isSidechain", "x"]
VALUES = st.sampled_from(["", "a", "2026-11-20T10:00:00Z", "2026-11-20T10:00:00.123+02:00", True, None, 3]) | st.text(max_size=12)
LINES = st.one_of(
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4).map(line),
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=2).map(lambda one: json.dumps(one).encode() + b"\n"),
    st.sampled_from(["green", "", "\u00fc"]).map(lambda tag: line({"type": "tag", "tag": tag})),
    st.sampled_from(["Hello", "", " ", "<tick>", "<command-name>/x</command-name>"]).map(lambda text: line(user(1, text))),
    st.binary(max_size=10).map(lambda noise: noise.replace(b'"', b"") + b"\n"),
)


@given(st.lists(LINES, max_size=12).map(b"".join), st.integers(0, 30))
def test_whatever_a_file_holds_is_described_alike(text: bytes, cut: int) -> None:
    with a_shelf() as shelf:
        shelf.put(1, text[: len(text) - cut])
        both("get_session_info", session(1))
        both("list_sessions", CWD)


@given(st.text(max_size=300) | st.text("/ab.é-", min_size=150, max_size=400))
def test_the_project_of_a_directory_has_the_same_name(directory: str) -> None:
    if "\0" not in directory and not any("\ud800" <= letter <= "\udfff" for letter in directory):
        both("project_key_for_directory", directory)


def test_a_long_path_is_found_by_its_beginning_alike(shelf: Shelf) -> None:
    long = "/" + "long/" * 60
    other_hash = f"{shelf.project(long).name[:201]}zzz"
    path = shelf.put(1, cwd=long)
    path.parent.rename(path.parent.with_name(other_hash))
    assert len(both("list_sessions", long)) == 1
    assert both("get_session_messages", session(1), long)


# ---------------------------------------------------------------------------------------------------------------------- messages


def transcripts() -> dict[str, list[Any]]:
    """Trees of every shape, by what is special about them."""
    parallel = [
        user(1),
        assistant(2, [call("a")], parent=1, response="r"),
        assistant(3, [call("b")], parent=2, response="r"),
        assistant(4, [call("c")], parent=3, response="r"),
        user(5, [answer("a")], parent=2),
        user(6, [answer("b")], parent=3),
        user(7, [answer("c")], parent=4),
    ]
    return {
        **{kind: entries for kind, entries in HEADS.items() if isinstance(entries, list)},
        "an edited prompt": [user(1), assistant(2, parent=1), user(3, "Old", parent=2), user(4, "New", parent=2), assistant(5, parent=4)],
        "a compaction": [
            *talk(),
            {"type": "system", "subtype": "compact_boundary", "uuid": entry(3), "parentUuid": None, "logicalParentUuid": entry(2)},
            user(4, "Summary", parent=3, isCompactSummary=True),
            assistant(5, parent=4),
        ],
        "a sidechain in the file": [user(1), assistant(2, parent=1), user(3, parent=2, isSidechain=True), assistant(4, parent=3)],
        "a sidechain alone": [user(3, isSidechain=True), assistant(4, parent=3, isSidechain=True)],
        "a team": [user(1), assistant(2, parent=1), user(3, "From a mate", parent=2, teamName="t")],
        "meta at the end": [*talk(), user(3, "Hook", parent=2, isMeta=True)],
        "progress and attachments between": [
            user(1),
            {"type": "progress", "uuid": entry(2), "parentUuid": entry(1)},
            {"type": "attachment", "uuid": entry(3), "parentUuid": entry(2)},
            assistant(4, parent=3),
            {"type": "progress", "uuid": entry(5), "parentUuid": entry(4)},
        ],
        "a circle": [user(1, parent=2), assistant(2, parent=1)],
        "a circle beside a talk": [user(1, parent=2), assistant(2, parent=1), user(3), assistant(4, parent=3)],
        "a parent of its own": [user(1, parent=1)],
        "a parent that is missing": [assistant(2, parent=1), user(3, parent=2)],
        "an id twice": [*talk(), user(1, "Again", parent=2), assistant(4, parent=1)],
        "a parallel turn": [*parallel, assistant(8, parent=7)],
        "a parallel turn that went on from the first": [*parallel, assistant(8, parent=5)],
        "a parallel turn with a result elsewhere": [*parallel[:-1], user(7, [answer("c")], parent=1), assistant(8, parent=5)],
        "a result that names its source": [
            *parallel[:-1],
            user(7, [answer("z")], parent=1, sourceToolAssistantUUID=entry(4)),
            assistant(8, parent=5),
        ],
        "a parallel turn with a result of another agent elsewhere": [
            *parallel[:-1],
            user(7, [answer("c")], parent=1, agentId="x"),
            assistant(8, parent=5),
        ],
        "a call that two responses claim": [
            *parallel,
            assistant(8, [call("c")], parent=5, response="s"),
            user(9, [answer("c")], parent=8),
        ],
        "no entries": [],
        "odd ids": [{**user(1), "uuid": 7}, {**user(2), "parentUuid": 7}, {"type": "user", "uuid": ""}],
    }


@pytest.mark.parametrize("kind", transcripts())
def test_messages_are_the_same(kind: str, shelf: Shelf) -> None:
    shelf.put(1, transcripts()[kind])
    shelf.put_subagent(1, "one", transcripts()[kind], noted={"toolUseId": "toolu_1", "parentAgentId": "a9"})
    for limit, offset in ((None, 0), (2, 0), (2, 1), (0, 1), (None, 1), (-1, -1), (1, 99)):
        both("get_session_messages", session(1), limit=limit, offset=offset)
        both("get_session_messages", session(1), CWD, limit, offset)
        both("get_subagent_messages", session(1), "one", limit=limit, offset=offset)


NUMBERS = st.integers(0, 9)
NAMES = st.sampled_from(["a", "b", "c"])


@st.composite
def entries(draw: st.DrawFn) -> dict[str, Any]:
    """Any entry: its parent may be anything, also itself or an entry that comes later."""
    number, parent = draw(NUMBERS), draw(st.none() | NUMBERS)
    flags = dict.fromkeys(draw(st.sets(st.sampled_from(["isSidechain", "isMeta", "teamName"]), max_size=1)), True)
    flags |= {"timestamp": f"2026-11-20T10:00:0{draw(NUMBERS)}Z", "agentId": draw(st.sampled_from([None, None, "x"]))}
    kind = draw(st.sampled_from(["user", "result", "assistant", "assistant", "progress"]))
    if kind == "result":
        source = {"sourceToolAssistantUUID": entry(draw(NUMBERS))} if draw(st.booleans()) else {}
        return user(number, [answer(name) for name in draw(st.lists(NAMES, max_size=2))], parent=parent, **source, **flags)
    if kind == "assistant":
        called = draw(st.lists(NAMES, max_size=2))
        return assistant(number, [call(name) for name in called], parent=parent, response=draw(st.sampled_from("rst")), **flags)
    return {**user(number, parent=parent, **flags), "type": kind}


@given(st.lists(entries(), max_size=12))
def test_messages_of_any_tree_are_the_same(tree: list[dict[str, Any]]) -> None:
    with a_shelf() as shelf:
        shelf.put(1, tree)
        shelf.put_subagent(1, "one", tree)
        both("get_session_messages", session(1))
        both("get_subagent_messages", session(1), "one")


# --------------------------------------------------------------------------------------------------------------------- subagents


def test_subagents_are_found_alike_also_below_other_directories(shelf: Shelf) -> None:
    shelf.put(1)
    shelf.put_subagent(1, "b", talk(), noted={"toolUseId": "toolu_1"})
    shelf.put_subagent(1, "a", [user(1, isSidechain=True), assistant(2, parent=1, isSidechain=True)], noted=["no object"])
    shelf.put_subagent(1, "c", talk(), below="workflows/run-1", noted={"toolUseId": 1, "parentAgentId": "b"})
    shelf.put_subagent(1, "b", talk(7), below="workflows/run-2")
    folder = shelf.project() / session(1) / "subagents"
    (folder / "notes.jsonl").write_text("{}")
    (folder / "agent-x.txt").write_text("{}")
    (folder / "agent-dir.jsonl").mkdir()
    shelf.put_subagent(2, "orphan", talk())
    assert both("list_subagents", session(1)) == ["a", "b", "c", "b"]
    assert both("list_subagents", session(1), CWD) == both("list_subagents", session(1))
    assert both("list_subagents", session(2)) == both("list_subagents", session(1), "/elsewhere") == []
    assert [message["parent_tool_use_id"] for message in both("get_subagent_messages", session(1), "b")] == ["toolu_1"] * 2
    for agent in ("a", "c", "", "none", "../../x", "b.meta"):
        both("get_subagent_messages", session(1), agent)


# ----------------------------------------------------------------------------------------------------------------------- changes

CHANGES: dict[str, Callable[[Any], Any]] = {
    "a title": lambda side: side.rename_session(session(1), '  Grün und "gut" \n'),
    "a title in a directory": lambda side: side.rename_session(session(1), "Titel", CWD),
    "a tag": lambda side: side.tag_session(session(1), " ta\u200bg\ufb01 \ue000"),
    "no tag": lambda side: side.tag_session(session(1), None),
    "deletion": lambda side: side.delete_session(session(1)),
    "deletion in a directory": lambda side: side.delete_session(session(1), CWD),
}


def files(shelf: Shelf) -> dict[str, str]:
    """All files, by their path."""
    return {str(path.relative_to(shelf.configuration)): path.read_text() for path in shelf.configuration.rglob("*") if path.is_file()}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_leaves_the_same_files(change: str, shelf: Shelf) -> None:
    left = []
    for side in (claude_agent_sdk, sessions):
        shutil.rmtree(shelf.configuration, ignore_errors=True)
        shelf.put(1, [*talk(), {"type": "tag", "tag": "old"}])
        shelf.put(1, b"", cwd="/also")
        shelf.put(2)
        shelf.put_subagent(1, "a", talk())
        CHANGES[change](side)
        left.append((files(shelf), [plain(info)["session_id"] for info in side.list_sessions()]))
    assert left[0] == left[1]


def anonymous(text: str, known: set[str]) -> list[Any]:
    """The entries of a fork, with a number for each id that was made for it, and without the time."""
    new: dict[str, str] = {}

    def rename(found: re.Match[str]) -> str:
        return found[0] if found[0] in known else new.setdefault(found[0], f"new {len(new)}")

    return [json.loads(TIME.sub("now", UUID.sub(rename, one))) for one in text.splitlines()]


@pytest.mark.parametrize("kind", transcripts())
@pytest.mark.parametrize("arguments", [{}, {"title": " Mine "}, {"title": "  "}, {"up_to_message_id": entry(2)}, {"directory": CWD}])
def test_a_fork_has_the_same_entries(kind: str, arguments: dict[str, Any], shelf: Shelf) -> None:
    more = [{"type": "content-replacement", "sessionId": session(n), "replacements": [{"n": n}]} for n in (1, 2)]
    original = shelf.put(1, [*transcripts()[kind], *more])
    known = set(UUID.findall(original.read_text()))
    made: list[Any] = []
    for side in (claude_agent_sdk, sessions):
        try:
            path = original.with_name(f"{side.fork_session(session(1), **arguments).session_id}.jsonl")
        except ValueError as error:
            made.append("not found" if "2222" in str(error) or "bbbb" in str(error) else "no messages")
        else:
            made.append(anonymous(path.read_text(), known))
    assert made[1] == made[0]


class Noting:
    """A store that notes what it is given."""

    def __init__(self) -> None:
        self.given: list[Any] = []

    async def append(self, key: Any, entries: Any) -> None:
        self.given.append((dict(key), list(entries)))


@pytest.mark.parametrize("arguments", [{}, {"batch_size": 1}, {"batch_size": 0}, {"include_subagents": False}, {"directory": CWD}])
async def test_a_store_is_given_the_same_batches(arguments: dict[str, Any], shelf: Shelf) -> None:
    shelf.put(1, [*talk(), *(user(n, "x" * 3000, parent=n - 1) for n in range(3, 1200))])
    shelf.put_subagent(1, "a", talk(), noted={"toolUseId": "t", "type": "x"})
    shelf.put_subagent(1, "b", talk(7), below="workflows/run-1")
    (shelf.project() / session(1) / "subagents" / "journal.jsonl").write_bytes(line({"type": "note"}) + b"\n")
    official, ours = Noting(), Noting()
    await claude_agent_sdk.import_session_to_store(session(1), official, **arguments)  # type: ignore[arg-type]
    await sessions.import_session_to_store(session(1), ours, **arguments)
    assert ours.given == official.given
    assert len(ours.given) > (0 if arguments else 3)
