"""The supported range of Codex: what is refused, what is told once, and what is left out for an older one."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from codex_player import PATIENCE, Codex
from loading import load_generator

from claude_transport import StreamTransport, SubprocessTransport, complete, errors
from claude_transport.codex import CodexOptions, CodexSession
from claude_transport.codex.features import (
    CODEX_FEATURES,
    CODEX_RANGE,
    OBSERVED,
    CodexFeature,
    codex_supports,
    require_method,
    version_of,
)
from claude_transport.streams.memory import MemoryConnectable

METHODS = [feature for feature in CODEX_FEATURES if feature.kind == "method"]
METHOD = METHODS[-1]


def agent(version: str) -> str:
    return f"claude_transport/{version} (Debian 12.0.0; x86_64) dumb (claude_transport; 0.1.0)"


async def started(version: str, part: Callable[[CodexSession, Codex], Awaitable[None]]) -> None:
    """Start a session with a Codex of this version, and play the part with both."""
    connectable = MemoryConnectable(capacity=2**20)
    stage: list[Codex] = []

    async def begin() -> None:
        stage.append(Codex(await connectable.accept()))
        await stage[0].answer({"userAgent": agent(version)}, method="initialize")
        if "older" not in (CODEX_RANGE.note(version) or ""):
            assert await stage[0].hear() == {"method": "initialized"}
            request = await stage[0].hear()
            await stage[0].say({"id": request["id"], "result": {"thread": {"id": "T"}, "model": "gpt-5.5"}})

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(begin)
            session = CodexSession(StreamTransport(connectable))
            await session.start()
            await part(session, stage[0])
            await session.aclose(timeout=0.05)
            tasks.cancel_scope.cancel()


async def nothing(_: CodexSession, __: Codex) -> None:
    return


async def test_a_codex_that_is_too_old_is_refused_before_a_thread_is_opened() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        await started("0.149.1", nothing)
    (error,) = caught.value.exceptions
    assert isinstance(error, errors.CLIVersionMismatch)
    assert (error.code, error.flag, error.version) == ("exec.cli.version_mismatch", None, "0.149.1")
    assert "this codex is 0.149.1, older than 0.150.1, the oldest codex that this library talks to" in str(error)


async def test_a_codex_that_is_too_old_is_refused_before_it_is_started(tmp_path: Path) -> None:
    package = tmp_path / "node_modules" / "@openai" / "codex"
    (package / "bin").mkdir(parents=True)
    (package / "package.json").write_text('{"name": "@openai/codex", "version": "0.120.0"}')
    binary = package / "bin" / "codex"
    binary.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    binary.chmod(0o755)
    with pytest.raises(errors.CLIVersionMismatch, match=r"this codex is 0\.120\.0, older than") as caught:
        await SubprocessTransport(CodexOptions(codex_path=binary)).connect()
    assert (caught.value.code, caught.value.flag, caught.value.version) == ("exec.cli.version_mismatch", None, "0.120.0")
    assert not (tmp_path / "started").exists()


async def test_one_call_to_a_codex_that_is_too_old_says_its_version(tmp_path: Path) -> None:
    package = tmp_path / "node_modules" / "@openai" / "codex"
    (package / "bin").mkdir(parents=True)
    (package / "package.json").write_text('{"name": "@openai/codex", "version": "0.120.0"}')
    binary = package / "bin" / "codex"
    binary.write_text("#!/bin/sh\nexit 3\n")
    binary.chmod(0o755)
    codex = CodexOptions(codex_path=binary, env={"OPENAI_API_KEY": "sk-lab"}, codex_home=tmp_path)
    with pytest.raises(errors.CLIVersionMismatch) as caught:
        await complete("Hi", agent="codex", codex=codex)
    error = caught.value
    assert error.args[0] == "This codex is 0.120.0, which is too old. Update codex. (transport=cli, category=transport)"
    assert error.reason.startswith("this codex is 0.120.0, older than 0.150.1")
    assert (error.code, error.flag, error.version) == ("exec.cli.version_mismatch", None, "0.120.0")
    assert "older than 0.150.1" in str(error.__cause__)


async def test_a_newer_codex_is_used_with_one_warning(anyio_backend_name: str) -> None:
    newer = f"0.{900 + len(anyio_backend_name)}.0"
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        for _ in range(2):
            await started(newer, nothing)
    said = [str(warning.message) for warning in told if warning.category is errors.ClaudeTransportWarning]
    outside = f"this codex is {newer}, newer than 0.171.0, the newest codex that this library was tested with"
    assert said == [f"{outside}; it may say or do things that this library does not know"]


@pytest.mark.parametrize("version", ["0.150.1", "0.169.0"])
async def test_the_whole_history_is_left_out_where_codex_can(version: str) -> None:
    async def part(session: CodexSession, codex: Codex) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.resume_thread, "T")
            request = await codex.answer({"thread": {"id": "T"}}, method="thread/resume")
            tasks.start_soon(session.fork)
            forked = await codex.answer({"thread": {"id": "V"}}, method="thread/fork")
            wanted = {"threadId": "T", "excludeTurns": True} if version == "0.169.0" else {"threadId": "T"}
            assert request["params"] == forked["params"] == wanted

    await started(version, part)


async def test_the_model_of_a_thread_is_known_of_every_version() -> None:
    async def part(session: CodexSession, _: Codex) -> None:
        assert session.thread.data.model == "gpt-5.5"

    await started("0.150.1", part)


async def test_a_method_that_this_codex_lacks_is_refused_by_name() -> None:
    async def part(session: CodexSession, _: Codex) -> None:
        with pytest.raises(errors.CLIVersionMismatch) as caught:
            await session.request(METHOD.name)
        assert (caught.value.code, caught.value.flag, caught.value.version) == ("exec.cli.version_mismatch", METHOD.name, METHOD.lacked_by)
        text = f"this codex ({METHOD.lacked_by}) does not know {METHOD.name}: update codex to {METHOD.since} or newer, or do without"
        assert text in str(caught.value)

    await started(METHOD.lacked_by, part)


@pytest.mark.parametrize("feature", CODEX_FEATURES, ids=lambda feature: feature.name)
def test_each_row_names_examined_versions_in_their_order(feature: CodexFeature) -> None:
    assert OBSERVED.index(feature.since) == OBSERVED.index(feature.lacked_by) + 1
    assert codex_supports(feature.name, version=feature.since) is True
    assert codex_supports(feature.name, version=feature.lacked_by) is False
    assert codex_supports(feature.name, version=None) is None


def test_between_two_examined_versions_a_method_is_tried_and_a_field_is_not() -> None:
    assert codex_supports("modelProvider/list", version="0.168.0") is None
    require_method("modelProvider/list", version="0.168.0")
    assert codex_supports("excludeTurns", version="0.153.0") is False


@pytest.mark.parametrize(
    ("said", "version"),
    [
        (agent("0.169.0"), "0.169.0"),
        ("my/client/0.170.0-alpha.1 (x)", "0.170.0-alpha.1"),
        ("codex/0", None),
        ("", None),
        (7, None),
        (None, None),
    ],
)
def test_the_version_is_read_from_what_codex_says_of_itself(said: object, version: str | None) -> None:
    assert version_of(said) == version


# The page


@pytest.fixture(scope="module")
def generator() -> Any:
    return load_generator("codex_versions")


def test_the_committed_page_is_what_the_table_says(generator: Any) -> None:
    assert generator.PAGE.read_text("utf-8") == generator.render(), "run: python docs/generate_codex_versions.py"


def test_the_page_has_the_range_and_each_feature(generator: Any) -> None:
    page = generator.render()
    assert f"{CODEX_RANGE.oldest} to {CODEX_RANGE.newest}" in page
    assert [feature.name for feature in CODEX_FEATURES if f"| {feature.name} |" not in page and f"| `{feature.name}` |" not in page] == []


def test_main_writes_the_page(generator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "PAGE", tmp_path / "codex-versions.md")
    generator.main()
    assert (tmp_path / "codex-versions.md").read_text("utf-8") == generator.render()


# The real binary


@pytest.mark.e2e
@pytest.mark.codex_versions
async def test_the_codex_under_test_knows_the_methods_that_the_table_says_it_knows(codex_options: CodexOptions) -> None:
    with anyio.fail_after(PATIENCE):
        async with CodexSession(SubprocessTransport(codex_options)) as session:
            version = version_of(session.initialization["userAgent"])
            assert CODEX_RANGE.note(version) is None
            with pytest.raises(errors.JSONRPCError) as caught:
                await session.request("from/the/future")
    wrong = [
        feature.name
        for feature in METHODS
        if codex_supports(feature.name, version=version) not in (None, f"`{feature.name}`" in caught.value.message)
    ]
    assert wrong == []
