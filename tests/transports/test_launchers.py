"""`SubprocessTransport(launcher=...)`: a real sshd on loopback, a stand-in for the clients of containers, a real sandbox, prefixes."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from children import STUBBORN, alive, gone, read_all, read_one, shell, until

import claude_transport as ct
from claude_transport.transports import Client

sys.path.insert(0, str(Path(__file__).parents[1]))
from containers import running_daemon
from sshd import Sshd, running_sshd, why_no_sshd

PATIENCE = 60.0
SECRET = "sk-ant-only-on-standard-input"
MESSAGE = {"type": "user", "message": {"role": "user", "content": "hello"}}

Launched = Callable[..., ct.SubprocessTransport]


@pytest.fixture(scope="module")
def sshd() -> Iterator[Sshd]:
    """A real sshd."""
    if (reason := why_no_sshd()) is not None:
        pytest.skip(reason)
    with running_sshd() as server:
        yield server


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with clients of containers; their daemon runs."""
    with running_daemon(tmp_path_factory.mktemp("clients")) as folder:
        yield folder


def launcher_of(request: pytest.FixtureRequest, name: str) -> ct.Launcher:
    if name == "ssh":
        return request.getfixturevalue("sshd").launcher()
    folder = request.getfixturevalue("clients")
    make = {
        "docker": lambda program: ct.Launcher.docker("box", program=program),
        "podman": lambda program: ct.Launcher.podman("box", program=program),
        "kubectl": lambda program: ct.Launcher.kubectl("box", namespace="lab", program=program),
        "srun": lambda program: ct.Launcher.srun(program=program),
    }
    return make[name](str(folder / name))


@pytest.fixture(params=["ssh", "docker", "podman", "kubectl", "srun"])
def launched(request: pytest.FixtureRequest) -> Launched:
    """`launched(command, **options)`: a transport to a command at another end, by each launcher that has one."""
    return _launched(launcher_of(request, request.param))


@pytest.fixture(params=["ssh", "docker"])
def one_of_each_kind(request: pytest.FixtureRequest) -> Launched:
    """The same, by one whose supervisor sees the connection go, and by one that is told with a second command."""
    return _launched(launcher_of(request, request.param))


def _launched(launcher: ct.Launcher) -> Launched:
    def make(command: list[str] | None, *, on_stderr: Any = None, close_timeout: float = 5.0, **options: Any) -> ct.SubprocessTransport:
        options["env"] = {"TEST_SESSION": uuid.uuid4().hex, **options.get("env", {})}
        return ct.SubprocessTransport(
            ct.ClaudeOptions(**options), command=command, launcher=launcher, on_stderr=on_stderr, close_timeout=close_timeout
        )

    return make


def left_by(transport: ct.SubprocessTransport) -> list[int]:
    """Everything alive that this transport's launcher started at the other end."""
    return marked(f"TEST_SESSION={transport.options.env['TEST_SESSION']}".encode())


async def all_gone(found: Callable[[], list[int]]) -> None:
    """Returns when there is nobody left to find; waits for each of them without using the processor that they need to leave."""
    with anyio.fail_after(PATIENCE):
        while pids := found():
            try:
                file = os.pidfd_open(pids[0])
            except ProcessLookupError:
                continue
            try:
                await anyio.wait_readable(file)
            finally:
                os.close(file)


def marked(mark: bytes) -> list[int]:
    """Everything alive whose environment has this in it."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes() and alive(int(folder.name)):
                found.append(int(folder.name))
        except OSError:
            continue  # it ended while we looked
    return found


def command_lines() -> str:
    """The command lines of every process there is, as everybody can read them."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes().decode("utf-8", "replace"))
        except OSError:
            continue
    return "\n".join(lines)


def client_of(transport: ct.SubprocessTransport, name: str) -> int:
    """The process of the client itself, which a keeper may be the parent of."""
    pid = transport.info.pid
    assert pid is not None
    for each in [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]:
        if name in Path(f"/proc/{each}/cmdline").read_text().replace("\0", " ").partition("claude-transport")[0].partition("-c")[0]:
            return each
    return pid


# --------------------------------------------------------------------------------------------------------------- a conversation


async def test_lines_go_both_ways_and_the_end_of_input_arrives(launched: Launched) -> None:
    with anyio.fail_after(PATIENCE):
        async with launched(["cat"]) as transport:
            await transport.write('{"one": 1}\n')
            assert await read_one(transport) == {"one": 1}
            await transport.write('{"two": "\u2028"}\n{"three": 3}\n')
            await transport.end_input()
            assert await read_all(transport) == [{"two": "\u2028"}, {"three": 3}]
            assert transport.info.noise_lines == 0
            assert transport.info.exit_code == 0


@pytest.mark.parametrize("code", [3, 255, 1])
async def test_a_failed_exit_is_the_programs_whatever_the_client_says(launched: Launched, code: int) -> None:
    heard: list[str] = []
    with anyio.fail_after(PATIENCE):
        async with launched(shell(f"echo '{{}}'; echo trouble >&2; exit {code}"), on_stderr=heard.append) as transport:
            assert await read_one(transport) == {}
            with pytest.raises(ct.ProcessError) as caught:
                await read_one(transport)
            info = transport.info
    assert (caught.value.exit_code, caught.value.signal, caught.value.stderr_tail) == (code, None, "trouble")
    assert caught.value.reason == "trouble"
    assert (info.exit_code, info.stderr_tail, heard) == (code, "trouble", ["trouble"])


async def test_the_reason_of_a_failed_exit_is_told_without_what_the_options_held_in_confidence(one_of_each_kind: Launched) -> None:
    told = "hunter2-told-in-confidence"
    with anyio.fail_after(PATIENCE):
        async with one_of_each_kind(shell('echo "trouble with $API_TOKEN" >&2; exit 3'), env={"API_TOKEN": told}) as transport:
            with pytest.raises(ct.ProcessError) as caught:
                await read_one(transport)
    assert caught.value.reason is not None
    assert caught.value.reason.startswith("trouble with ")
    assert told not in caught.value.reason


async def test_a_program_killed_at_the_other_end_is_told_as_that(one_of_each_kind: Launched) -> None:
    with anyio.fail_after(PATIENCE):
        async with one_of_each_kind(shell("kill -s KILL $$")) as transport:
            with pytest.raises(ct.ProcessError) as caught:
                await read_one(transport)
    assert (caught.value.exit_code, caught.value.signal) == (None, signal.SIGKILL)


async def test_what_is_written_to_a_program_that_has_ended_there_is_an_error_with_how_it_ended(one_of_each_kind: Launched) -> None:
    with anyio.fail_after(PATIENCE):
        async with one_of_each_kind(shell("echo why >&2; exit 3")) as transport:
            await until(lambda: not transport.is_ready())
            with pytest.raises(ct.TransportClosed) as caught:
                await transport.write("{}")
            assert (caught.value.exit_code, caught.value.signal, caught.value.stderr_tail) == (3, None, "why")
            assert isinstance(caught.value.__cause__, ct.ProcessError)
            assert transport.info.bytes_written == 0


async def test_megabytes_pass_in_both_directions_at_once(one_of_each_kind: Launched) -> None:
    line = '{"x": "' + "y" * 2**20 + '"}'
    with anyio.fail_after(PATIENCE):
        async with one_of_each_kind(["cat"]) as transport, anyio.create_task_group() as tasks:

            async def say() -> None:
                for _ in range(8):
                    await transport.write(line)
                await transport.end_input()

            tasks.start_soon(say)
            assert len(await read_all(transport)) == 8


async def test_no_secret_and_no_argument_is_on_any_command_line_of_either_end(launched: Launched) -> None:
    program = shell(f'echo "{{\\"key\\": \\"$ANTHROPIC_API_KEY\\"}}"; cat # {SECRET}'.replace(SECRET, "an argument"))
    with anyio.fail_after(PATIENCE):
        async with launched(program, env={"ANTHROPIC_API_KEY": SECRET}) as transport:
            assert await read_one(transport) == {"key": SECRET}
            assert SECRET not in command_lines()


async def test_the_other_end_inherits_nothing_of_this_process(launched: Launched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    with anyio.fail_after(PATIENCE):
        async with launched(shell("env | grep -c only-on-standard-input | sed 's/.*/{\"found\": &}/'; true"), env={"A": "1"}) as transport:
            found = await read_one(transport)
    # the stand-in's daemon is a child of this process, started before
    assert found == {"found": 0}


async def test_the_program_runs_where_it_was_told_to(one_of_each_kind: Launched, tmp_path: Path) -> None:
    folder = tmp_path / "it's here"
    folder.mkdir()
    with anyio.fail_after(PATIENCE):
        async with one_of_each_kind(shell("""pwd | sed 's/.*/{"at": "&"}/'"""), cwd=folder) as transport:
            assert await read_one(transport) == {"at": str(folder)}
    with pytest.raises(ct.errors.WorkingDirectoryError):
        await one_of_each_kind(["cat"], cwd=tmp_path / "missing").connect()


async def test_a_program_that_is_missing_there_is_said_so_by_connect(launched: Launched) -> None:
    transport = launched(["no-such-program"])
    with pytest.raises(ct.CLINotFoundError) as caught:
        await transport.connect()
    assert "no-such-program" in caught.value.searched[0]
    assert not transport.is_ready()


async def test_another_one_is_made_as_this_one_was(one_of_each_kind: Launched) -> None:
    with anyio.fail_after(PATIENCE):
        retrying = ct.RetryingTransport(one_of_each_kind(["cat"]), make_transport=lambda: one_of_each_kind(["cat"]))
        async with retrying as transport:
            again = await transport.reconnect()
        async with again:
            await again.write("{}")
            assert await read_one(again) == {}


# ------------------------------------------------------------------------------------------------------------------- the end of it


async def test_closing_ends_a_program_that_does_not_want_to_leave(launched: Launched) -> None:
    transport = launched(STUBBORN, close_timeout=2.0)
    with anyio.fail_after(PATIENCE):
        async with transport:
            await read_one(transport)
            assert left_by(transport)
        await all_gone(lambda: left_by(transport))


async def test_what_left_the_programs_session_is_ended_too(one_of_each_kind: Launched) -> None:
    with anyio.fail_after(PATIENCE):
        async with one_of_each_kind(shell("setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo '{}'; cat")) as transport:
            await read_one(transport)
            while len(left_by(transport)) < 2:  # between two programs, a process has no environment to be seen
                await anyio.lowlevel.checkpoint()
        await all_gone(lambda: left_by(transport))


@pytest.mark.parametrize("ended", [False, True], ids=["open input", "ended input"])
async def test_a_killed_client_is_a_lost_connection_and_leaves_nothing_there(
    request: pytest.FixtureRequest, one_of_each_kind: Launched, ended: bool
) -> None:
    name = request.node.callspec.params["one_of_each_kind"]
    with anyio.fail_after(PATIENCE):
        async with one_of_each_kind(STUBBORN) as transport:
            await read_one(transport)
            if ended:
                await transport.end_input()
            os.kill(client_of(transport, name), signal.SIGKILL)
            with pytest.raises(ct.ConnectionLost) as caught:
                await read_one(transport)
            assert not isinstance(caught.value, ct.ProcessError)
            with pytest.raises(ct.InputClosed if ended else ct.TransportClosed):
                await transport.write("{}")
            await all_gone(lambda: left_by(transport))


HOST = """
import os, sys, anyio, claude_transport as ct
async def main():
    options = ct.ClaudeOptions(env={"TEST_SESSION": sys.argv[1]})
    transport = ct.SubprocessTransport(options, command=%r, launcher=%s)
    await transport.connect()
    print(await anext(aiter(transport.read_messages())), flush=True)
    await anyio.sleep_forever()
anyio.run(main)
"""


@pytest.mark.parametrize("name", ["ssh", "docker"])
async def test_a_killed_host_leaves_nothing_at_the_other_end(request: pytest.FixtureRequest, name: str) -> None:
    if name == "ssh":
        made = f"ct.Launcher.ssh('there', config_file={str(request.getfixturevalue('sshd').config_file)!r})"
    else:
        made = f"ct.Launcher.docker('box', program={str(request.getfixturevalue('clients') / name)!r})"
    session = uuid.uuid4().hex
    host = subprocess.Popen([sys.executable, "-c", HOST % (STUBBORN, made), session], stdout=subprocess.PIPE)
    assert host.stdout is not None
    mark = f"TEST_SESSION={session}".encode()
    with anyio.fail_after(PATIENCE), host.stdout:
        assert await anyio.to_thread.run_sync(host.stdout.readline) == b"{}\n"
        assert marked(mark)
        host.kill()
        host.wait()
        await all_gone(lambda: marked(mark))


async def test_cancelling_connect_leaves_nothing(one_of_each_kind: Launched, tmp_path: Path) -> None:
    with anyio.fail_after(PATIENCE):
        transport = one_of_each_kind(["cat"])
        with anyio.CancelScope() as scope:
            scope.cancel()
            await transport.connect()
        assert not transport.is_ready()
        await transport.close()
        await all_gone(lambda: left_by(transport))


# ------------------------------------------------------------------------------------------------------------------------------ ssh


@pytest.fixture
def chatty_sshd() -> Iterator[Sshd]:
    """One whose login has something to say, as startup files do."""
    if (reason := why_no_sshd()) is not None:
        pytest.skip(reason)
    with running_sshd(login_script="echo Welcome; echo '{\"type\": \"result\"}'; echo hm >&2; printf 'prompt> '\n") as server:
        yield server


async def test_what_a_login_says_first_is_left_out_and_counted_even_when_it_looks_like_a_message(chatty_sshd: Sshd) -> None:
    with anyio.fail_after(PATIENCE):
        async with _launched(chatty_sshd.launcher())(["cat"]) as transport:
            assert transport.info.noise_lines == 3
            await transport.write('{"first": true}')
            assert await read_one(transport) == {"first": True}
            assert transport.info.address == "ssh://there"


async def test_a_key_that_is_not_accepted_is_a_matter_of_authentication(sshd: Sshd, tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "other")], check=True)
    (tmp_path / "config").write_text(sshd.config_file.read_text().replace(f"{sshd.folder}/client_key", f"{tmp_path}/other"))
    with pytest.raises(ct.AuthenticationError, match="Permission denied") as caught:
        await ct.SubprocessTransport(command=["cat"], launcher=ct.Launcher.ssh("there", config_file=tmp_path / "config")).connect()
    assert not caught.value.retryable


async def test_a_server_that_is_not_who_it_was_is_not_talked_to(sshd: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(f"[127.0.0.1]:{sshd.port} {(sshd.folder / 'client_key.pub').read_text()}")
    launcher = sshd.launcher(options={"UserKnownHostsFile": str(known)})
    with pytest.raises(ct.AuthenticationError, match="Host key verification failed"):
        await ct.SubprocessTransport(command=["cat"], launcher=launcher).connect()


async def test_a_server_that_is_not_there_may_be_tried_again(sshd: Sshd) -> None:
    transport = ct.SubprocessTransport(command=["cat"], launcher=sshd.launcher(options={"ProxyCommand": "false"}))
    with pytest.raises(ct.CLIConnectionError, match="exit code 255") as caught:
        await transport.connect()
    assert caught.value.retryable
    assert type(caught.value) is ct.CLIConnectionError


async def test_a_server_that_says_nothing_is_waited_for_as_long_as_was_said(sshd: Sshd) -> None:
    launcher = sshd.launcher(options={"ProxyCommand": "sleep 1000"}, timeout=0.2)
    with anyio.fail_after(PATIENCE), pytest.raises(ct.ConnectTimeout) as caught:
        await ct.SubprocessTransport(command=["cat"], launcher=launcher, close_timeout=0.5).connect()
    assert caught.value.waited == 0.2


async def test_something_else_that_talks_for_ever_is_not_listened_to_for_ever(tmp_path: Path) -> None:
    program = tmp_path / "ssh"
    program.write_text("#!/bin/sh\nexec yes\n")
    program.chmod(0o755)
    launcher = ct.Launcher.ssh("there", program=str(program))
    with anyio.fail_after(PATIENCE), pytest.raises(ct.CLIConnectionError, match="not one of them from our supervisor") as caught:
        await ct.SubprocessTransport(command=["cat"], launcher=launcher, close_timeout=0.5).connect()
    assert not caught.value.retryable


async def test_a_container_that_is_missing_need_not_be_tried_again(clients: Path) -> None:
    launcher = ct.Launcher.docker("missing", program=str(clients / "docker"))
    with pytest.raises(ct.CLIConnectionError, match="No such container") as caught:
        await ct.SubprocessTransport(command=["cat"], launcher=launcher).connect()
    assert not caught.value.retryable


# ---------------------------------------------------------------------------------------------------------- on this machine, and a CLI


async def test_a_prefix_keeps_the_environment_the_files_and_the_process_group(tmp_path: Path) -> None:
    fake = tmp_path / "claude"
    fake.write_text(f"#!/bin/sh\nexec {sys.executable} -I -S -c '{SHOW}' \"$@\"\n")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    options = ct.ClaudeOptions(cli_path=fake, append_system_prompt="from a file", env={"MINE": "1"}, cwd=tmp_path)
    with anyio.fail_after(PATIENCE):
        async with ct.SubprocessTransport(options, launcher=ct.Launcher.local(["nice", "-n", "5"])) as transport:
            shown = await read_one(transport)
            assert (shown["nice"], shown["mine"], shown["prompt"]) == (min(os.nice(0) + 5, 19), "1", "from a file")
            assert shown["group"] == transport.info.pid


SHOW = """
import json, os, sys
path = [a.split("=", 1)[1] for a in sys.argv if a.startswith("--append-system-prompt-file=")]
print(json.dumps({"nice": os.nice(0), "mine": os.environ["MINE"], "prompt": open(path[0]).read() if path else None,
    "group": os.getpgrp(), "argv": sys.argv[1:]}), flush=True)
sys.stdin.read()
"""


async def test_a_scope_runs_what_is_behind_the_dashes(tmp_path: Path) -> None:
    stand_in = tmp_path / "systemd-run"
    stand_in.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n')
    stand_in.chmod(0o755)
    launcher = ct.Launcher.systemd_run(properties={"MemoryMax": "1G"}, program=str(stand_in))
    with anyio.fail_after(PATIENCE):
        async with ct.SubprocessTransport(command=["cat"], launcher=launcher) as transport:
            await transport.write("{}")
            assert await read_one(transport) == {}


def why_no_sandbox() -> str | None:
    """Why there is no bubblewrap to try, or None."""
    if shutil.which("bwrap") is None:
        return "no bwrap on this machine (Debian: bubblewrap)"
    command = ["bwrap", "--ro-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "true"]
    tried = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    return None if tried.returncode == 0 else f"this kernel lets nobody make a sandbox here: {tried.stderr.strip()}"


async def test_a_sandbox_writes_where_it_may_and_ends_with_all_that_is_in_it(tmp_path: Path) -> None:
    if (reason := why_no_sandbox()) is not None:
        pytest.skip(reason)
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "beside").mkdir()
    program = shell(f"""touch {project}/made; touch {tmp_path}/beside/made 2>/dev/null; setsid sleep 1000 & echo '{{}}'; cat""")
    launcher = ct.Launcher.bwrap(writable=[project], private=[])
    with anyio.fail_after(PATIENCE):
        async with ct.SubprocessTransport(ct.ClaudeOptions(cwd=project), command=program, launcher=launcher) as transport:
            await read_one(transport)
            inside = [pid for pid in working_in(project) if pid != transport.info.pid]
            assert inside
        for pid in inside:
            await gone(pid)
    assert (project / "made").exists()
    assert not (tmp_path / "beside" / "made").exists()


def working_in(folder: Path) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cwd").readlink() == folder:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


async def test_a_cli_at_the_other_end_is_told_with_initialize_what_would_be_in_files(one_of_each_kind: Launched, tmp_path: Path) -> None:
    fake = tmp_path / "claude"
    fake.write_text(f"#!/bin/sh\nMINE=1 exec {sys.executable} -I -S -c '{SHOW}' \"$@\"\n")
    fake.chmod(0o755)
    transport = one_of_each_kind(None, cli_path=fake, settings={"a": 1}, append_system_prompt="hidden", model="opus")
    terms = transport.attach(Client(answers=frozenset({"can_use_tool"})))
    assert terms.initialize == {"settings": {"a": 1}, "appendSystemPrompt": "hidden"}
    with anyio.fail_after(PATIENCE):
        async with transport:
            shown = await read_one(transport)
            assert transport.info.cli_path == str(fake)
    assert {"--model=opus", "--await-initialize", "--initialize-fields=settings", "--permission-prompt-tool=stdio"} <= set(shown["argv"])
    assert "hidden" not in str(shown["argv"])


async def test_a_version_that_does_not_know_an_option_is_told_as_that_from_afar(one_of_each_kind: Launched) -> None:
    with anyio.fail_after(PATIENCE):
        async with one_of_each_kind(shell("echo \"error: unknown option '--new'\" >&2; exit 1")) as transport:
            with pytest.raises(ct.errors.CLIVersionMismatch) as caught:
                await read_one(transport)
    assert caught.value.flag == "--new"


def test_what_is_no_launcher_is_refused() -> None:
    with pytest.raises(ct.ConfigurationError) as caught:
        ct.SubprocessTransport(launcher="ssh host")  # type: ignore[arg-type]
    assert caught.value.option == "launcher"
