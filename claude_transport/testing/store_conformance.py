"""`run_store_conformance`: what a `SessionStore` must do, as a test: one clause after the other, each with a new store."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import anyio
import anyio.lowlevel
import msgspec

from claude_transport.errors import ConfigurationError
from claude_transport.launch.session_store import OptionalMethod, has_method
from claude_transport.sessions.summaries import fold_session_summary
from claude_transport.testing.conformance.bench import Violation
from claude_transport.testing.conformance.run import Report, Row

MakeStore = Callable[[], Any]
"""A function that returns an empty store, or a coroutine of one."""

_MAIN: Final = {"project_key": "project", "session_id": "session"}
_PART: Final = {**_MAIN, "subpath": "subagents/agent-1"}
_HOSTILE: Final = ("../..", "a/b", "a\\b", ".hidden", "ümläut", "%2F", "{x}:*", "CON", "nul.b", "ends.")
_ALIKE: Final = ("a", "A", "a.jsonl", "a.json", "a.lock", "a.summary", "a.claim", "a.new", "a.db", "a:b", "a ", "a%20")
"""Ids that a store may take for names of its own, or for one another."""

_MILLISECONDS: Final = 1e12  # a time in seconds is far below


class StoreClause(msgspec.Struct, frozen=True):
    """One promise of a store: its `id` in reports, the promise as a `sentence`, the optional methods that it `needs`, and the function
    that tests it on an empty store.
    """

    id: str
    sentence: str
    check: Callable[[Any], Awaitable[None]]
    needs: tuple[OptionalMethod, ...] = ()


_clauses: list[StoreClause] = []


def _clause(id: str, sentence: str, *needs: OptionalMethod) -> Callable[[Callable[[Any], Awaitable[None]]], None]:  # noqa: A002 - it is one
    return lambda check: _clauses.append(StoreClause(id, sentence, check, needs))


def run_store_conformance(
    make_store: MakeStore, *, backends: Iterable[str] = ("asyncio", "trio"), clauses: Iterable[str] | None = None, timeout: float = 30.0
) -> Report:
    """Test the stores that `make_store` makes against every clause, on every backend. Returns a report, also of failures.

    Clauses about methods that the store leaves out are excluded. Do not call it inside an event loop, which it would block.

    Args:
        make_store: returns an empty store, or a coroutine of one. It is called once for each clause and backend, inside the event loop.
        backends: the event loops: `asyncio`, `trio`.
        clauses: the ids of the clauses to test; by default all of `STORE_CLAUSES`.
        timeout: seconds for one clause.

    Raises:
        ConfigurationError: there is no clause with that id.
    """
    known = {clause.id: clause for clause in STORE_CLAUSES}
    chosen = list(known) if clauses is None else list(clauses)
    if unknown := [each for each in chosen if each not in known]:
        raise ConfigurationError(f"there is no clause {', '.join(unknown)}; STORE_CLAUSES has them all", option="clauses")
    rows = [anyio.run(_row, known[each], make_store, backend, timeout, backend=backend) for backend in backends for each in chosen]
    return Report(rows, name="session store")


async def _row(clause: StoreClause, make_store: MakeStore, backend: str, timeout: float) -> Row:
    try:
        with anyio.fail_after(timeout):
            store = make_store()
            if inspect.isawaitable(store):
                store = await store
            if missing := [method for method in clause.needs if not has_method(store, method)]:
                return Row(clause=clause.id, backend=backend, verdict="excluded", detail=f"the store leaves out {', '.join(missing)}")
            await clause.check(store)
    except Exception as exc:  # noqa: BLE001 - whatever a store raises is a failure of its clause
        detail = str(exc) if isinstance(exc, Violation) else f"{type(exc).__name__}: {exc}"
        return Row(clause=clause.id, backend=backend, verdict="failed", detail=detail)
    return Row(clause=clause.id, backend=backend, verdict="passed")


def _entry(**fields: Any) -> dict[str, Any]:
    return {"type": "user", **fields}


def _expect(found: object, wanted: object, what: str) -> None:
    if found != wanted:
        raise Violation(f"{what}: {wanted!r} was expected, and {found!r} came")


@_clause("store.order", "Entries come back as they were appended, in the order of the calls.")
async def _order(store: Any) -> None:
    first, second, third = _entry(uuid="z", n=1), _entry(uuid="a", n=2), _entry(uuid="m", n=3)
    await store.append(_MAIN, [first])
    await store.append(_MAIN, [second, third])
    _expect(await store.load(_MAIN), [first, second, third], "load")


@_clause("store.values", "An entry keeps all its fields and values: nested, empty, large, and of any language.")
async def _values(store: Any) -> None:
    entry = _entry(
        uuid="v", deep={"list": [1, 2.5, None, True, {"x": []}]}, text='ü\u2028\n\t"\\ 漢字 🎉', large="x" * 300_000, number=2**53
    )
    await store.append(_MAIN, [entry])
    _expect(await store.load(_MAIN), [entry], "load")


@_clause("store.unknown", "A transcript that was never written is None.")
async def _unknown(store: Any) -> None:
    _expect(await store.load(_MAIN), None, "load of an empty store")
    await store.append(_MAIN, [_entry(n=1)])
    _expect(await store.load(_PART), None, "load of another subpath")
    _expect(await store.load({**_MAIN, "session_id": "other"}), None, "load of another session")


@_clause("store.nothing", "Appending no entries changes nothing.")
async def _nothing(store: Any) -> None:
    await store.append(_MAIN, [])
    await store.append(_MAIN, [_entry(n=1)])
    await store.append(_MAIN, [])
    _expect(await store.load(_MAIN), [_entry(n=1)], "load")


@_clause("store.again", "An entry whose uuid the transcript has already is left out; entries without a uuid are kept each time.")
async def _again(store: Any) -> None:
    batch = [_entry(uuid="a", n=1), _entry(n=2), _entry(uuid="b", n=3)]
    await store.append(_MAIN, batch[:1])
    await store.append(_MAIN, batch)
    await store.append(_MAIN, batch[1:2])
    _expect(await store.load(_MAIN), [*batch, batch[1]], "load")
    await store.append(_PART, batch[:1])
    _expect(await store.load(_PART), batch[:1], "load of a subpath, which has uuids of its own")


@_clause("store.apart", "Subpaths, sessions and projects do not mix.")
async def _apart(store: Any) -> None:
    keys = [_MAIN, _PART, {**_MAIN, "session_id": "other"}, {**_MAIN, "project_key": "other"}]
    for number, key in enumerate(keys):
        await store.append(key, [_entry(n=number)])
    for number, key in enumerate(keys):
        _expect(await store.load(key), [_entry(n=number)], f"load of {key}")


@_clause("store.names", "Any text can be a part of a key, and none reaches outside of its place.")
async def _names(store: Any) -> None:
    keys = [{"project_key": name, "session_id": name, "subpath": name} for name in _HOSTILE]
    for number, key in enumerate(keys):
        await store.append(key, [_entry(n=number)])
    for number, key in enumerate(keys):
        _expect(await store.load(key), [_entry(n=number)], f"load of {key}")


@_clause("store.alike", "Sessions whose ids look alike, or like names of the store's own, are sessions of their own.")
async def _alike(store: Any) -> None:
    keys = [{**_MAIN, "session_id": name} for name in _ALIKE]
    for key in keys:
        for part in (key, {**key, "subpath": "subagents/agent-1"}):
            await store.append(part, [_entry(uuid="1", of=key["session_id"])])
        if has_method(store, "claim"):
            _expect(await store.claim(key, owner=key["session_id"], seconds=60), key["session_id"], f"the claim of {key}")
    for key in keys:
        for part in (key, {**key, "subpath": "subagents/agent-1"}):
            _expect(await store.load(part), [_entry(uuid="1", of=key["session_id"])], f"load of {part}")
    if has_method(store, "list_sessions"):
        _expect(sorted(each["session_id"] for each in await store.list_sessions("project")), sorted(_ALIKE), "the list")
    if has_method(store, "delete"):
        await store.delete(keys[0])
        _expect([await store.load(key) is None for key in keys], [True] + [False] * (len(keys) - 1), "what is gone after a deletion")


@_clause("store.long", "A part of a key of any length is stored, or refused with an error; the other sessions stay.")
async def _long(store: Any) -> None:
    await store.append(_MAIN, [_entry(n=1)])
    for part in ("project_key", "session_id", "subpath"):
        key = {**_MAIN, part: "x" * 5000}
        try:
            await store.append(key, [_entry(n=2)])
        except Exception:  # noqa: BLE001, S112 - a store may raise any
            continue
        _expect(await store.load(key), [_entry(n=2)], f"load of a {part} with 5000 letters")
    _expect(await store.load(_MAIN), [_entry(n=1)], "load of another session")


@_clause("store.own", "What a caller does to its entries, or to loaded ones, does not change the store.")
async def _own(store: Any) -> None:
    entry = _entry(uuid="a", message={"content": "said"})
    await store.append(_MAIN, [entry])
    entry["message"]["content"] = "changed"
    loaded = await store.load(_MAIN)
    _expect(loaded, [_entry(uuid="a", message={"content": "said"})], "load after the caller changed its entry")
    loaded[0]["message"]["content"] = "changed"
    _expect(await store.load(_MAIN), [_entry(uuid="a", message={"content": "said"})], "load after the caller changed a loaded entry")


@_clause("store.together", "Appends at the same time lose nothing, and each keeps its order.")
async def _together(store: Any) -> None:
    async def append(writer: str) -> None:
        for number in range(5):
            await store.append(_MAIN, [_entry(uuid=f"{writer}-{number}", writer=writer, n=number)])

    async with anyio.create_task_group() as tasks:
        for writer in ("a", "b", "c"):
            tasks.start_soon(append, writer)
    loaded = await store.load(_MAIN)
    for writer in ("a", "b", "c"):
        _expect([entry["n"] for entry in loaded if entry["writer"] == writer], [0, 1, 2, 3, 4], f"the entries of {writer}")


@_clause("store.list", "The sessions of a project are listed, without subpaths, with times in milliseconds.", "list_sessions")
async def _list(store: Any) -> None:
    _expect(await store.list_sessions("project"), [], "the list of an empty store")
    for key in (_MAIN, _PART, {**_MAIN, "session_id": "second"}, {**_MAIN, "project_key": "other"}):
        await store.append(key, [_entry(n=1)])
    listed = await store.list_sessions("project")
    _expect(sorted(each["session_id"] for each in listed), ["second", "session"], "the list")
    if not all(_MILLISECONDS < each["mtime"] < float("inf") for each in listed):
        raise Violation(f"mtime must be milliseconds since 1970: {listed}")


@_clause(
    "store.summaries",
    "Summaries are those of all main entries, and no older than the list says.",
    "list_sessions",
    "list_session_summaries",
)
async def _summaries(store: Any) -> None:
    batches = [
        [_entry(uuid="1", timestamp="2024-01-01T00:00:00.000Z", message={"content": "Hello"}), _entry(customTitle="first")],
        [_entry(uuid="1", message={"content": "again"}), _entry(customTitle="second"), {"type": "tag", "tag": "red"}],
    ]
    for batch in batches:
        await store.append(_MAIN, batch)
    await store.append(_PART, [_entry(customTitle="of a subagent")])
    (kept,) = await store.list_session_summaries("project")
    entries: Any = [*batches[0], *batches[1][1:]]
    wanted = fold_session_summary(None, {"project_key": "project", "session_id": "session"}, entries)["data"]
    _expect((kept["session_id"], kept["data"]), ("session", wanted), "the summary")
    (listed,) = await store.list_sessions("project")
    if kept["mtime"] < listed["mtime"]:
        raise Violation(f"the summary is older than its session: {kept['mtime']} and {listed['mtime']}")
    _expect(await store.list_session_summaries("other"), [], "the summaries of another project")


@_clause("store.subkeys", "The subpaths of a session are listed, without those of others.", "list_subkeys")
async def _subkeys(store: Any) -> None:
    _expect(await store.list_subkeys(_MAIN), [], "the subkeys of an empty store")
    for key in (_MAIN, _PART, {**_MAIN, "subpath": "subagents/workflows/w/agent-2"}, {**_PART, "session_id": "other"}):
        await store.append(key, [_entry(n=1)])
    _expect(sorted(await store.list_subkeys(_MAIN)), ["subagents/agent-1", "subagents/workflows/w/agent-2"], "the subkeys")


@_clause("store.delete", "Deleting a session deletes its subpaths, its uuids and nothing else.", "delete")
async def _delete(store: Any) -> None:
    await store.delete(_MAIN)
    others = ({**_MAIN, "session_id": "session2"}, {**_MAIN, "project_key": "other"})
    for key in (_MAIN, _PART, *others):
        await store.append(key, [_entry(uuid="a")])
    await store.delete(_MAIN)
    _expect([await store.load(key) for key in (_MAIN, _PART)], [None, None], "load of what was deleted")
    _expect([await store.load(key) for key in others], [[_entry(uuid="a")]] * 2, "load of the others")
    for method in ("list_sessions", "list_session_summaries"):
        if has_method(store, method):
            _expect([each["session_id"] for each in await getattr(store, method)("project")], ["session2"], method)
    await store.append(_MAIN, [_entry(uuid="a")])
    _expect(await store.load(_MAIN), [_entry(uuid="a")], "load of what was written again")


@_clause("store.begun", "A session that was deleted begins anew, whatever it had: its entries, its summary and its subpaths.", "delete")
async def _begun(store: Any) -> None:
    for turn in range(3):
        for key in (_MAIN, _PART):
            await store.append(key, [_entry(uuid="a"), _entry(uuid=f"{turn}", customTitle=f"{turn}", text="x" * 1000 * turn)])
            await store.append(key, [_entry(uuid="b")])
            found = [entry["uuid"] for entry in await store.load(key)]
            _expect(found, ["a", f"{turn}", "b"], f"load in round {turn}")
        if has_method(store, "list_session_summaries"):
            (kept,) = await store.list_session_summaries("project")
            _expect(kept["data"]["custom_title"], f"{turn}", "the title in the summary")
        await store.delete(_MAIN)


@_clause("store.delete_part", "Deleting a subpath deletes nothing else.", "delete")
async def _delete_part(store: Any) -> None:
    other = {**_MAIN, "subpath": "subagents/agent-2"}
    for key in (_MAIN, _PART, other):
        await store.append(key, [_entry(n=1)])
    await store.delete(_PART)
    _expect([await store.load(key) for key in (_MAIN, _PART, other)], [[_entry(n=1)], None, [_entry(n=1)]], "load")
    if has_method(store, "list_subkeys"):
        _expect(await store.list_subkeys(_MAIN), ["subagents/agent-2"], "the subkeys")


@_clause("store.claim", "A session has one owner, until it is given back or the time is over.", "claim", "release")
async def _claim(store: Any) -> None:
    _expect(await store.claim(_MAIN, owner="one", seconds=60), "one", "the first claim")
    _expect(await store.claim(_MAIN, owner="one", seconds=60), "one", "the claim of its owner again")
    _expect(await store.claim(_MAIN, owner="two", seconds=60), "one", "the claim of another owner")
    _expect(await store.claim({**_MAIN, "session_id": "other"}, owner="two", seconds=60), "two", "the claim of another session")
    await store.release(_MAIN, owner="two")
    _expect(await store.claim(_MAIN, owner="two", seconds=60), "one", "the claim after another owner gave back what it did not have")
    await store.release(_MAIN, owner="one")
    _expect(await store.claim(_MAIN, owner="two", seconds=0), "two", "the claim after its release")
    with anyio.fail_after(10):
        while await store.claim(_MAIN, owner="three", seconds=60) != "three":  # the time of the other one is over, or is just ending
            await anyio.lowlevel.checkpoint()


@_clause("store.find", "A session is found by its id alone, in the project that was written last.", "find_project")
async def _find(store: Any) -> None:
    _expect(await store.find_project("session"), None, "the project of an unknown session")
    await store.append(_PART, [_entry(n=1)])
    _expect(await store.find_project("session"), None, "the project of a session without a main transcript")
    await store.append(_MAIN, [_entry(n=1)])
    _expect(await store.find_project("session"), "project", "the project")


STORE_CLAUSES: Final = tuple(_clauses)
"""The clauses in their order: each promise of a store once."""
