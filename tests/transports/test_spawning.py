"""What can go wrong when a child is started, and in its first moments: each has its own error, and leaves nothing running."""

from __future__ import annotations

import errno
import gc
import os
import re
import stat
import warnings
import weakref
from pathlib import Path

import anyio
import pytest
from children import alive, command_line_of, gone, open_files, pid_of, python, read_all, shell

import claude_transport as ct
from claude_transport.codex import CodexOptions
from claude_transport.testing import FakeClaude, FakeCodex, Scenario
from claude_transport.testing.steps import EmitRaw, Exit, Stderr

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")


def executable(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    path.chmod(0o755)
    return path


SOON = 1.0
"""Seconds in which a start that cannot work must have failed. Measured: 0.002 to 0.015, on two busy cores up to 0.1."""


async def failure_of(transport: ct.SubprocessTransport) -> ct.ClaudeTransportError:
    """The error of connect(), which comes within `SOON` and leaves no file descriptor open."""
    before = open_files()
    with anyio.fail_after(SOON), pytest.raises(ct.ClaudeTransportError) as caught:
        await transport.connect()
    assert not transport.is_ready()
    assert open_files() <= before
    assert caught.value.code == type(caught.value).code
    return caught.value


async def test_a_missing_binary_is_named(tmp_path: Path) -> None:
    error = await failure_of(ct.SubprocessTransport(command=[tmp_path / "missing"]))
    assert isinstance(error, ct.CLINotFoundError)
    assert error.searched == (str(tmp_path / "missing"),)


async def test_a_missing_program_without_a_directory_is_not_confused_with_a_folder_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no-such-claude").mkdir()
    monkeypatch.chdir(tmp_path)
    assert isinstance(await failure_of(ct.SubprocessTransport(command=["no-such-claude"])), ct.CLINotFoundError)


async def test_a_missing_cli_path_is_named(tmp_path: Path) -> None:
    error = await failure_of(ct.SubprocessTransport(ct.ClaudeOptions(cli_path=tmp_path / "missing")))
    assert isinstance(error, ct.CLINotFoundError)
    assert error.searched


@pytest.mark.parametrize("kind", ["missing", "file"])
async def test_a_working_directory_that_is_none_is_told_from_a_missing_binary(kind: str, tmp_path: Path) -> None:
    directory = tmp_path / "there"
    if kind == "file":
        directory.touch()
    error = await failure_of(ct.SubprocessTransport(ct.ClaudeOptions(cwd=directory), command=["cat"]))
    assert isinstance(error, ct.errors.WorkingDirectoryError)
    assert not error.retryable


async def test_a_file_that_may_not_be_executed_is_named(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_text("no program")
    error = await failure_of(ct.SubprocessTransport(command=[path]))
    assert isinstance(error, ct.errors.NotExecutableError)
    assert error.path == str(path)


async def test_a_directory_is_no_program(tmp_path: Path) -> None:
    assert isinstance(await failure_of(ct.SubprocessTransport(command=[tmp_path])), ct.errors.NotExecutableError)


async def test_an_interpreter_that_is_missing_is_told_from_a_missing_binary(tmp_path: Path) -> None:
    path = executable(tmp_path / "script", b"#!/no/such/interpreter\n")
    error = await failure_of(ct.SubprocessTransport(command=[path]))
    assert isinstance(error, ct.errors.WrongLibcError)
    assert str(path) in str(error)


async def test_a_relative_program_is_looked_for_where_the_child_would_look(tmp_path: Path) -> None:
    executable(tmp_path / "script", b"#!/no/such/interpreter\n")
    error = await failure_of(ct.SubprocessTransport(ct.ClaudeOptions(cwd=tmp_path), command=["./script"]))
    assert isinstance(error, ct.errors.WrongLibcError)


@pytest.mark.parametrize("content", [b"\x7fELF" + b"\x00" * 60, b"\x00\x01\x02"], ids=["bad ELF", "garbage"])
async def test_a_file_the_system_cannot_run_is_not_executable(content: bytes, tmp_path: Path) -> None:
    path = executable(tmp_path / "broken", content)
    assert isinstance(await failure_of(ct.SubprocessTransport(command=[path])), ct.errors.NotExecutableError)


async def test_a_command_line_that_is_too_long_is_not_worth_another_try() -> None:
    error = await failure_of(ct.SubprocessTransport(command=["cat", "x" * 200_000]))
    assert type(error) is ct.SpawnError
    assert not error.retryable


async def test_an_argument_with_a_null_byte_is_refused() -> None:
    error = await failure_of(ct.SubprocessTransport(command=["cat", "a\0b"]))
    assert type(error) is ct.SpawnError
    assert not error.retryable


@AS_ROOT
async def test_a_user_that_does_not_exist_is_a_wrong_option() -> None:
    error = await failure_of(ct.SubprocessTransport(ct.ClaudeOptions(user="nobody-of-this-name"), command=["cat"]))
    assert isinstance(error, ct.ConfigurationError)
    assert error.option == "user"


@pytest.mark.parametrize("command", ["cat", b"cat", []])
def test_a_command_that_is_no_list_is_refused(command: object) -> None:
    with pytest.raises(ct.ConfigurationError) as caught:
        ct.SubprocessTransport(command=command)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    assert caught.value.option == "command"


async def test_connect_failure_is_clean_and_may_be_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "late"
    transport = ct.SubprocessTransport(command=[path])
    await failure_of(transport)
    executable(path, b'#!/bin/sh\necho "{\\"second\\": true}"\n')
    with anyio.fail_after(30):
        async with transport:
            assert await read_all(transport) == [{"second": True}]


# ------------------------------------------------------------------------------------------------------- the first moments


async def ending_of(transport: ct.SubprocessTransport) -> ct.ClaudeTransportError:
    """The error that reading ends with; nothing runs afterwards."""
    with anyio.fail_after(30):
        async with transport:
            pid = pid_of(transport)
            with pytest.raises(ct.ClaudeTransportError) as caught:
                await read_all(transport)
    assert not transport.is_ready()
    assert not alive(pid)
    return caught.value


async def test_an_unknown_option_is_named_with_its_version_mismatch() -> None:
    scenario = Scenario(startup=(Stderr("error: unknown option '--brand-new'\n"), Exit(1)))
    with FakeClaude(scenario) as fake:
        error = await ending_of(ct.SubprocessTransport(command=fake.command))
    assert isinstance(error, ct.errors.CLIVersionMismatch)
    assert error.flag == "--brand-new"
    assert error.exit_code == 1


async def test_a_child_that_dies_at_once_leaves_its_last_words_and_its_exit_code() -> None:
    error = await ending_of(ct.SubprocessTransport(command=shell("echo boom >&2; exit 3")))
    assert isinstance(error, ct.ProcessError)
    assert (error.exit_code, error.signal) == (3, None)
    assert error.stderr_tail == "boom"
    assert error.reason == "boom"
    assert str(error).endswith("ended with exit code 3: boom")


async def test_a_child_that_dies_of_a_signal_says_which() -> None:
    error = await ending_of(ct.SubprocessTransport(command=shell("echo ouch >&2; kill -USR1 $$")))
    assert isinstance(error, ct.ProcessError)
    assert (error.exit_code, error.signal) == (None, 10)
    assert error.stderr_tail == "ouch"


async def test_a_malformed_first_line_is_left_out_and_counted() -> None:
    scenario = Scenario(script=(EmitRaw(b'{"broken\nnoise\n[]\n{"good":1}\n'), Exit(0)))
    with FakeClaude(scenario) as fake, anyio.fail_after(30):
        async with ct.SubprocessTransport(command=fake.command) as transport:
            assert await read_all(transport) == [{"good": 1}]
            assert transport.info.noise_lines == 3
            assert transport.info.malformed_lines == 2
            assert transport.info.lines_read == 4


async def test_a_malformed_first_line_raises_when_strict() -> None:
    transport = ct.SubprocessTransport(command=shell("""echo '{"broken'; exec cat"""), strict=True)
    error = await ending_of(transport)
    assert isinstance(error, ct.CLIJSONDecodeError)
    assert error.line == b'{"broken'
    assert error.line_number == 1


async def test_a_line_over_the_limit_raises_when_strict() -> None:
    transport = ct.SubprocessTransport(command=shell("""echo '{"a":"0123456789"}'; exec cat"""), strict=True, max_line_bytes=10)
    error = await ending_of(transport)
    assert isinstance(error, ct.LineTooLong)
    assert (error.size, error.limit) == (18, 10)


async def test_a_cancelled_connect_leaves_nothing() -> None:
    before = open_files()
    transport = ct.SubprocessTransport(command=["cat"])
    with anyio.CancelScope() as scope:
        scope.cancel()
        await transport.connect()
    assert not transport.is_ready()
    assert open_files() <= before
    with anyio.fail_after(30):
        async with transport:
            assert transport.is_ready()


# ------------------------------------------------------------------------------------------------------------ payload files

SECRET = "sk-sentinel-5e1f"
SHOW = 'for argument; do printf \'{"argument": "%s"}\\n\' "$argument"; done; while read -r line; do :; done'


def options_with_secrets(cli: Path, **more: object) -> ct.ClaudeOptions:
    return ct.ClaudeOptions(
        cli_path=cli,
        system_prompt=f"the prompt {SECRET}",
        settings={"env": {"TOKEN": SECRET}},
        mcp_servers={"server": {"command": "true", "env": {"KEY": SECRET}}},
        **more,  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    )


async def payload_files(transport: ct.SubprocessTransport) -> list[Path]:
    """The files that the child sees in its arguments, once it shows them all."""
    paths: list[Path] = []
    with anyio.fail_after(30):
        async for message in transport.read_messages():
            flag, _equals, value = message["argument"].partition("=")
            if re.fullmatch("--(system-prompt-file|settings|mcp-config)", flag):
                paths.append(Path(value))
            if len(paths) == 3:
                break
    return paths


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_payloads_are_private_files_that_are_gone_after_close(tmp_path: Path) -> None:
    cli = executable(tmp_path / "claude", f"#!/bin/sh\n{SHOW}\n".encode())
    transport = ct.SubprocessTransport(options_with_secrets(cli))
    async with transport:
        paths = await payload_files(transport)
        assert [mode(path) for path in paths] == [0o600] * 3
        assert {mode(path.parent) for path in paths} == {0o700}
        assert all(SECRET in path.read_text() for path in paths)
        assert str(paths[0]).encode() in command_line_of(transport)
        assert SECRET.encode() not in command_line_of(transport)
    assert not any(path.parent.exists() for path in paths)


async def test_payloads_are_gone_when_connecting_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    cli = executable(tmp_path / "claude", b"#!/no/such/interpreter\n")
    transport = ct.SubprocessTransport(options_with_secrets(cli))
    await failure_of(transport)
    assert list(folder.iterdir()) == []
    executable(cli, f"#!/bin/sh\n{SHOW}\n".encode())
    async with transport:
        assert len(await payload_files(transport)) == 3
    assert list(folder.iterdir()) == []


async def test_secrets_go_first_so_they_go_also_where_their_folder_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deleting a tree needs two free file descriptors, and deleting a file none. The folder goes with the interpreter at the latest."""
    in_the_way: list[Path] = []

    def refuse(folder: object, **_options: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files", str(folder))

    monkeypatch.setattr("shutil.rmtree", refuse)
    cli = executable(tmp_path / "claude", f"#!/bin/sh\n{SHOW}\n".encode())
    transport = ct.SubprocessTransport(options_with_secrets(cli))
    async with transport:
        paths = await payload_files(transport)
        in_the_way.append(paths[0].parent / "a file of another program")
        in_the_way[0].touch()
    assert list(paths[0].parent.iterdir()) == in_the_way
    in_the_way[0].unlink()
    monkeypatch.undo()
    del transport
    gc.collect()
    assert not paths[0].parent.exists()


@AS_ROOT
async def test_payloads_can_be_read_by_the_user_the_child_runs_as(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    cli = executable(tmp_path / "claude", f"#!/bin/sh\nid -un >&2\n{SHOW}\n".encode())
    transport = ct.SubprocessTransport(options_with_secrets(cli, user="nobody"))
    async with transport:
        paths = await payload_files(transport)
        assert {path.owner() for path in paths} == {"nobody"}
        assert {path.parent.owner() for path in paths} == {"nobody"}
    assert not any(path.exists() for path in paths)


def forget_in_a_fork(keep: list[ct.SubprocessTransport]) -> None:
    """A fork of this process drops the transport and runs its finalisers, as a worker of a forking server does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12: forking beside threads is unwise, which is the point
        fork = os.fork()
    if fork == 0:
        try:
            vars(keep.pop()).clear()
            gc.collect()
            weakref.finalize._exitfunc()  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue]
        finally:
            os._exit(0)
    os.waitpid(fork, 0)


async def test_a_fork_of_the_host_that_ends_takes_neither_child_nor_payloads_along(tmp_path: Path) -> None:
    cli = executable(tmp_path / "claude", f"#!/bin/sh\n{SHOW}\n".encode())
    transport = ct.SubprocessTransport(options_with_secrets(cli))
    async with transport:
        paths = await payload_files(transport)
        pid = pid_of(transport)
        forget_in_a_fork([transport])
        assert alive(pid)
        assert all(path.exists() for path in paths)
        assert transport.is_ready()
    await gone(pid)


async def test_the_environment_of_the_host_is_not_touched() -> None:
    before = dict(os.environ)
    async with ct.SubprocessTransport(ct.ClaudeOptions(env={"ONLY_HERE": "1"}), command=python("import os; print(dict(os.environ))")):
        assert dict(os.environ) == before


async def test_a_note_about_a_launch_is_logged_without_what_a_terminal_would_obey(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = {"model_provider": "lab", "model_providers.lab": {"env_key": "LAB\x1b[2J\nKEY"}}
    with FakeCodex() as codex, caplog.at_level("INFO", logger="claude_transport"), anyio.fail_after(30):
        options = CodexOptions(codex_path=codex.path, config=config, billing="subscription", env={"CODEX_HOME": str(tmp_path)})
        async with ct.SubprocessTransport(options):
            pass
    (note,) = (message for message in caplog.messages if "which the model provider names" in message)
    assert note == r"LAB\x1b[2J\nKEY, which the model provider names, is not set"
