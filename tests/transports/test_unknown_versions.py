"""The version of the CLI that a transport starts: always known where it matters, and never asked for on the way to a connection."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

import claude_transport as ct

PATIENCE = 60.0
Make = Callable[..., Path]

# A claude that answers `initialize` with what `$1` holds and prompts with nothing, and knows no option that is named in UNKNOWN.
SCRIPT = """#!/bin/sh
echo "$@" >> "{folder}/started"
if [ "$1" = --version ]; then echo "{version} (Claude Code)"; exit; fi
for argument in "$@"; do case "$argument" in {unknown}*) echo "error: unknown option '$argument'" >&2; exit 1;; esac; done
while read line; do
  id=$(printf %s "$line" | sed -n 's/.*"request_id":"\\([^"]*\\)".*/\\1/p')
  printf '{{"type":"control_response","response":{{"subtype":"success","request_id":"%s","response":{answer}}}}}\\n' "$id"
done
"""


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Make a `claude` of this version, alone in its folder, so that no file tells the version."""

    def written(version: str, *, unknown: str = "--nothing", answer: str = '{"pid":7}', told: bool = False) -> Path:
        path = tmp_path / "claude"
        path.write_text(SCRIPT.format(folder=tmp_path, version=version, unknown=unknown, answer=answer), "utf-8")
        path.chmod(0o755)
        if told:
            (tmp_path / "claude.version").write_text(version, "utf-8")
        return path

    return written


def started(path: Path) -> list[str]:
    """The first argument of each process so far."""
    log = path.with_name("started")
    return [line.split()[0] for line in log.read_text("utf-8").splitlines()] if log.exists() else []


def options(path: Path, **more: object) -> ct.ClaudeOptions:
    return ct.ClaudeOptions(cli_path=path, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("value", "said"), [(None, "--brand-new"), ("s3cret", "--brand-new=s3cret")])
async def test_an_unknown_option_is_told_with_the_version_that_the_binary_itself_says(make: Make, value: str | None, said: str) -> None:
    path = make("2.1.191", unknown="--brand-new")
    for _ in range(2):
        with anyio.fail_after(PATIENCE):
            async with ct.SubprocessTransport(options(path, extra_args={"brand-new": value})) as transport:
                with pytest.raises(ct.errors.CLIVersionMismatch, match=r"2\.1\.191.*--brand-new") as caught:
                    async for _ in transport.read_lines():
                        pass
        error = caught.value
        record = (error.code, error.flag, error.version, error.exit_code, error.signal, error.stderr_tail)
        assert record == ("exec.cli.version_mismatch", "--brand-new", "2.1.191", 1, None, f"error: unknown option '{said}'")
        assert "s3cret" not in str(error)
    assert started(path).count("--version") == 1


@pytest.mark.parametrize("told", [True, False])
async def test_an_older_cli_than_the_range_is_refused_before_any_prompt(make: Make, told: bool) -> None:
    path = make("2.1.19", told=told)
    with anyio.fail_after(PATIENCE), pytest.raises(ct.errors.CLIVersionMismatch) as caught:
        await ct.Query(ct.SubprocessTransport(options(path))).start()
    assert (caught.value.flag, caught.value.version) == (None, "2.1.19")
    assert started(path) == ([] if told else ["--output-format", "--version"])


async def test_a_newer_cli_than_the_range_runs_with_one_warning(make: Make, caplog: pytest.LogCaptureFixture, anyio_backend: str) -> None:
    version = f"2.1.99{len(anyio_backend)}"  # each version is warned of once in a process
    path = make(version, answer=f'{{"claude_code_version":"{version}"}}')
    with warnings.catch_warnings(record=True) as told, anyio.fail_after(PATIENCE):
        warnings.simplefilter("default")
        for _ in range(2):
            async with ct.Query(ct.SubprocessTransport(options(path))) as query:
                assert query.info.cli_version == version
    (warning,) = told
    assert (warning.category, warning.filename) == (ct.errors.ClaudeTransportWarning, __file__)
    assert version in str(warning.message)
    assert caplog.text == ""
    assert started(path) == ["--output-format"] * 2  # it has said its version


async def test_a_newer_cli_is_refused_each_time_where_its_warning_is_an_error(make: Make) -> None:
    path = make("2.1.981", answer='{"claude_code_version":"2.1.981"}')
    for _ in range(2):
        with warnings.catch_warnings(), anyio.fail_after(PATIENCE):
            warnings.simplefilter("error")
            with pytest.raises(ct.ConfigurationError, match=r"2\.1\.981, newer than") as caught:
                await ct.Query(ct.SubprocessTransport(options(path))).start()
        assert isinstance(caught.value.__cause__, ct.errors.ClaudeTransportWarning)


@pytest.mark.parametrize(
    ("chosen", "flag"),
    [
        ({"restricted": True}, "--restricted"),
        ({"append_subagent_system_prompt": "Be brief."}, "--append-subagent-system-prompt-file"),
        ({"plan_mode_instructions": "Think."}, "initialize.planModeInstructions"),
        ({"extra_args": {"safe-mode": None}}, "--safe-mode"),
    ],
)
async def test_an_option_that_the_version_lacks_is_refused_before_anything_is_started(
    make: Make, chosen: dict[str, object], flag: str
) -> None:
    path = make("2.1.92", told=True)
    transport = ct.SubprocessTransport(options(path, **chosen))
    with anyio.fail_after(PATIENCE), pytest.raises(ct.errors.CLIVersionMismatch) as caught:
        await transport.connect()
    assert (caught.value.flag, caught.value.version) == (flag, "2.1.92")
    assert started(path) == []


async def test_a_field_that_a_lone_binary_would_drop_is_refused_before_any_prompt(make: Make) -> None:
    path = make("2.1.92")
    with anyio.fail_after(PATIENCE), pytest.raises(ct.errors.CLIVersionMismatch) as caught:
        await ct.Query(ct.SubprocessTransport(options(path, plan_mode_instructions="Think."))).start()
    assert (caught.value.flag, caught.value.version) == ("initialize.planModeInstructions", "2.1.92")


async def test_a_lone_binary_that_does_not_say_its_version_is_asked_once_for_all_sessions(make: Make) -> None:
    path = make("2.1.191")
    with anyio.fail_after(PATIENCE):
        for _ in range(3):
            async with ct.Query(ct.SubprocessTransport(options(path))) as query:
                assert query.info.cli_version == "2.1.191"
    assert started(path) == ["--output-format", "--version", "--output-format", "--output-format"]


async def test_a_program_that_answers_with_nothing_is_no_claude_and_not_asked_for_its_version(make: Make) -> None:
    path = make("2.1.191", answer="{}")
    with anyio.fail_after(PATIENCE):
        async with ct.Query(ct.SubprocessTransport(options(path))):
            pass
    assert "--version" not in started(path)
    assert len(started(path)) == 1


async def test_a_lone_claude_from_before_process_ids_is_refused_as_too_old(make: Make) -> None:
    path = make("2.1.19", answer='{"models":[{"value":"default"}],"output_style":"default"}')
    with anyio.fail_after(PATIENCE), pytest.raises(ct.errors.CLIVersionMismatch, match="older than") as caught:
        await ct.Query(ct.SubprocessTransport(options(path))).start()
    assert (caught.value.flag, caught.value.version) == (None, "2.1.19")


async def test_options_that_only_a_query_can_deliver_are_told_to_a_program_without_one(make: Make) -> None:
    unheard = {"agents": {"helper": {"description": "helps", "prompt": "Help."}}}
    with anyio.fail_after(PATIENCE), pytest.warns(ct.errors.ClaudeTransportWarning, match="need an initialize request.*: agents$") as told:
        async with ct.SubprocessTransport(options(make("2.1.191"), **unheard)):
            pass
    assert len(told) == 1
    with anyio.fail_after(PATIENCE):
        async with ct.Query(ct.SubprocessTransport(options(make("2.1.191"), **unheard))):
            pass  # warnings are errors


async def test_bare_that_cannot_be_used_is_told_and_not_logged(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    without_key = {"bare": True, "env": {}, "env_mode": "exact"}
    with caplog.at_level("INFO"), anyio.fail_after(PATIENCE), pytest.warns(ct.errors.ClaudeTransportWarning, match="--bare was dropped"):
        async with ct.SubprocessTransport(options(make("2.1.191"), **without_key)):
            pass
    assert "bare" not in caplog.text
