"""Every recorded conversation, held again through a `Query`, ends as its notes say: exit, outcomes, whose result is whose.

What is expected is read from the raw recording (the exit note, which result names which prompt, which result failed), and from
recorded_ends.toml, written by hand, where that does not say it all. Nothing of the library under test takes part in expecting.
"""

from __future__ import annotations

import json
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import anyio
import pytest
from recorded_host import RecordedHost, is_prompt

from claude_transport import ClaudeTransportError, MissingResult, ProcessError, Turn, TurnState
from claude_transport.protocol.tape import Tape

HERE = Path(__file__).parent
PATHS = sorted((HERE.parent / "recordings").glob("*.ndjson"))
GROUPS = sorted({path.stem[:2] for path in PATHS})
SPECIAL: dict[str, dict[str, Any]] = tomllib.loads((HERE / "recorded_ends.toml").read_text("utf-8"))
PATIENCE = 30.0  # seconds for one group; it takes a fraction of one


@cache
def frames_of(path: Path) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Direction and frame of each line of a recording; what is no object, or was cut while recording, as its type alone."""
    frames = []
    for text in path.read_text("utf-8").splitlines():
        entry = json.loads(text)
        try:
            frame = json.loads(entry["line"])
        except ValueError:
            # the type of a result comes last, and was cut off with the text of 2 MB [14]
            is_result = entry["dir"] == "out" and '"duration_api_ms"' in entry["line"]
            frame = {"type": "result", "is_error": False} if is_result else {"note": entry["line"]}
        frames.append((entry["dir"], frame if isinstance(frame, dict) else {}))
    return tuple(frames)


def prompts_of(path: Path) -> list[dict[str, Any]]:
    """The prompts that are sent with a handle: all, or where some have a uuid those; none that came before `initialize`."""
    sent: list[dict[str, Any]] = []
    introduced = not any(frame.get("request", {}).get("subtype") == "initialize" for way, frame in frames_of(path) if way == "in")
    for way, frame in frames_of(path):
        if way == "in" and is_prompt(frame) and introduced:
            sent.append(frame)
        introduced = introduced or (way == "in" and frame.get("request", {}).get("subtype") == "initialize")
    return [frame for frame in sent if "uuid" in frame] or sent


def results_of(path: Path) -> list[dict[str, Any]]:
    return [frame for way, frame in frames_of(path) if way == "out" and frame.get("type") == "result"]


def exit_code_of(path: Path) -> int | None:
    codes = [re.fullmatch(r"exit code (-?\d+)", str(frame.get("note"))) for way, frame in frames_of(path) if way == "note"]
    return next((int(match[1]) for match in codes if match), None)


def expected_turns(path: Path) -> list[list[Any]]:
    special = SPECIAL.get(path.stem, {})
    if special.get("start"):
        return []
    plain = [["done", number] for number in range(len(prompts_of(path)))]
    return [[*turn, None][:2] for turn in special.get("turns", plain)]


def expected_failure(path: Path) -> tuple[str, int | None, int | None]:
    """Class, exit code and signal of the error that ends `messages()`."""
    code, results = exit_code_of(path), results_of(path)
    if SPECIAL.get(path.stem, {}).get("error") == "none" or code in (0, None):
        return "none", None, None
    if code == 1 and results and results[-1]["is_error"]:
        return "none", None, None  # that is how the CLI exits after a failed result: no crash (e)
    assert code is not None
    return ("ProcessError", None, -code) if code < 0 else ("ProcessError", code, None)


async def ends_of(turn: Turn) -> tuple[list[Any], ClaudeTransportError | None]:
    """Its state, which result it has, and the error that `result()` raises instead."""
    try:
        result = await turn.result()
    except ClaudeTransportError as error:
        return [turn.state.value, None], error
    return [turn.state.value, result], None


@pytest.mark.parametrize("group", GROUPS)
async def test_recorded_conversations_end_as_their_notes_say(group: str) -> None:
    with anyio.fail_after(PATIENCE):
        for path in PATHS:
            if path.stem.startswith(group):
                host = RecordedHost(Tape.read(path))
                await host.run()
                await check_end(host, path)


async def check_end(host: RecordedHost, path: Path) -> None:
    name, special = path.stem, SPECIAL.get(path.stem, {})
    # how it started, and how it ended
    assert (type(host.start_error).__name__ if host.start_error else None) == special.get("start"), name
    kind, code, signal = expected_failure(path)
    assert (type(host.error).__name__ if host.error else "none") == kind, name
    if isinstance(host.error, ProcessError):
        assert (host.error.exit_code, host.error.signal) == (code, signal), name
    # nothing is left waiting
    assert (host.query.pending_requests, host.query.open_turns, host.query.pending_questions, host.unanswered) == ({}, (), (), []), name
    # what each result means
    plain = ["ok"] * len(results_of(path))
    if not special.get("start") or "codes" in special:
        assert [result.outcome.code for result in host.results] == special.get("codes", plain), name
        assert [result.outcome.ok for result in host.results] == [not result.get("is_error") for result in results_of(path)], name
    # whose each result is
    ends = [await ends_of(turn) for turn in host.turns]
    states = [[state, None if result is None else [id(one) for one in host.results].index(id(result))] for (state, result), _ in ends]
    assert states == expected_turns(path), name
    claimed = {uuid: id(result) for result in host.results for uuid in result.prompt_uuids or ()}
    assert claimed == {turn.uuid: id(result) for turn, ((_, result), _) in zip(host.turns, ends, strict=True) if result is not None}, name
    for turn, ((_, result), error) in zip(host.turns, ends, strict=True):
        assert (error is None) == (result is not None), name
        if turn.state is TurnState.LOST:
            assert type(error) is (MissingResult if host.error is None else type(host.error)), name
        elif turn.state is TurnState.DROPPED:
            assert isinstance(error, MissingResult), name
    await check_messages_of_turns(host, name)


async def check_messages_of_turns(host: RecordedHost, name: str) -> None:
    """Between them, turns share nothing but the messages of a turn that they have in common; each ends with its result."""
    owner: dict[int, int] = {}
    for turn in host.turns:
        messages = []
        try:
            async for message in turn:
                messages.append(message)  # noqa: PERF401 - a lost turn raises after its last message
        except ClaudeTransportError:
            assert turn.state is TurnState.LOST, name
        results = [message for message in messages if message.type == "result"]
        if turn.state in (TurnState.DONE, TurnState.FOLDED):
            assert results == messages[-1:] == [await turn.result()], name
        else:
            assert results == [], name
        for message in messages:
            shared = id(results[0]) if results else id(turn)
            assert owner.setdefault(id(message), shared) == shared, name


def test_the_names_that_results_give_agree_with_the_table() -> None:
    compared = 0
    for path in PATHS:
        sent = [frame.get("uuid") for frame in prompts_of(path)]
        if None in sent or not expected_turns(path):
            continue
        named = {uuid: number for number, result in enumerate(results_of(path)) for uuid in result.get("user_message_uuids") or ()}
        dropped = {frame["command_uuid"] for _, frame in frames_of(path) if frame.get("state") == "cancelled" and "command_uuid" in frame}
        for uuid, (state, number) in zip(sent, expected_turns(path), strict=True):
            # one that is interrupted while it runs is cancelled, too, but after its result [07a]
            assert (named.get(uuid), uuid in dropped - {*named}) == (number, state == "dropped"), path.stem
            compared += 1
    assert compared > 15  # that the comparison took place


def test_every_recorded_failure_has_a_code_in_the_table_and_no_entry_is_without_a_recording() -> None:
    assert set(SPECIAL) <= {path.stem for path in PATHS}
    failed = {path.stem for path in PATHS if any(result.get("is_error") for result in results_of(path))}
    assert failed == {name for name, entry in SPECIAL.items() if "codes" in entry}


def test_all_recordings_are_in_some_group() -> None:
    assert len(PATHS) > 190
    assert sum(path.stem.startswith(group) for group in GROUPS for path in PATHS) == len(PATHS)
