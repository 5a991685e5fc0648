"""`Launcher`: the exact command lines, what is refused before anything is started, and what the other end is told."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from loading import load_generator

import claude_transport as ct
from claude_transport.errors import ConfigurationError
from claude_transport.launch.launch import plan_launch
from claude_transport.launch.launcher import RULES, exit_status, why_ended, why_not_started, why_refused
from claude_transport.launch.supervisor import REMOTE_MARK, RemoteEnvironment, bootstrap, find_word, instructions, without_words
from claude_transport.streams.guard import MARK_VARIABLE

MARK = "0123abcd"
BOOT = f'echo claude-transport {MARK} ready; IFS= read -r l && eval "$l"'
THERE = ["/bin/sh", "-c", BOOT, "claude-transport"]
SSH_DEFAULTS = ["BatchMode=yes", "RemoteCommand=none", "ControlMaster=no", "ServerAliveInterval=15", "ServerAliveCountMax=3"]


def ssh_options(*given: str) -> list[str]:
    return [word for option in (*given, *SSH_DEFAULTS) for word in ("-o", option)]


def command(launcher: ct.Launcher) -> list[str]:
    return launcher.command(["claude", "--flag=a b"], mark=MARK)


# ---------------------------------------------------------------------------------------------------------------- command lines


def test_a_local_prefix_stands_before_the_command_as_it_is() -> None:
    assert command(ct.Launcher.local(["nice", "-n", "10"])) == ["nice", "-n", "10", "claude", "--flag=a b"]


def test_a_scope_of_systemd_has_its_properties() -> None:
    launcher = ct.Launcher.systemd_run(properties={"MemoryMax": "2G"})
    assert command(launcher) == [
        *["systemd-run", "--user", "--scope", "--quiet", "--collect", "--property=MemoryMax=2G"],
        *["--", "claude", "--flag=a b"],
    ]
    assert "--user" not in command(ct.Launcher.systemd_run(user=False))


def test_a_sandbox_may_write_only_what_was_named() -> None:
    launcher = ct.Launcher.bwrap(writable=["/srv/project"], private=["/tmp", "/home"], network=False, arguments=["--unshare-uts"])
    assert command(launcher) == [
        *["bwrap", "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-net"],
        *["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", "/home"],
        *["--bind", "/srv/project", "/srv/project", "--unshare-uts", "--", "claude", "--flag=a b"],
    ]


def test_ssh_gets_one_quoted_command_and_never_a_terminal() -> None:
    assert command(ct.Launcher.ssh("build")) == ["ssh", "-T", *ssh_options(), "--", "build", f"exec /bin/sh -c '{BOOT}' claude-transport"]


def test_everything_that_ssh_may_be_given() -> None:
    launcher = ct.Launcher.ssh(
        "10.0.0.7", user="agent", port=2222, identity_file="/k", config_file="/c", options={"ProxyJump": "gate", "ServerAliveInterval": "5"}
    )
    client = ["ssh", "-T", "-F", "/c", "-i", "/k", "-p", "2222", "-l", "agent", "-o", "ProxyJump=gate", "-o", "ServerAliveInterval=5"]
    rest = [word for option in SSH_DEFAULTS if "Interval" not in option for word in ("-o", option)]
    assert command(launcher)[:-1] == [*client, *rest, "--", "10.0.0.7"]
    assert launcher.address == "ssh://agent@10.0.0.7:2222"


def test_the_command_for_ssh_holds_nothing_that_a_login_shell_could_read_otherwise() -> None:
    line = command(ct.Launcher.ssh("build"))[-1]
    assert not set(line) & set("!\\\n`#~{}*?")  # csh and fish read these in single quotes too, or not as sh does
    assert shlex.split(line) == ["exec", *THERE]
    assert line.count("'") == 2


def kept(client: list[str]) -> tuple[list[str], list[str]]:
    """The command that ends, and the client, of a command line with a keeper."""
    assert client[:2] == ["/bin/sh", "-c"]
    assert client[3] == "claude-transport"
    return shlex.split(client[4].partition("\n")[2].partition(" &\ntries")[0]), client[5:]


@pytest.mark.parametrize("name", ["docker", "podman"])
def test_containers_get_the_arguments_as_they_are_and_a_second_command_to_end_it(name: str) -> None:
    ender, client = kept(command(getattr(ct.Launcher, name)("box", user="agent")))
    assert client == [name, "exec", "--interactive", "--user=agent", "box", *THERE]
    assert ender[:6] == [name, "exec", "--user=agent", "box", "/bin/sh", "-c"]
    assert f"mark={MARK}\n" in ender[6]


def test_docker_takes_a_context() -> None:
    _, client = kept(command(ct.Launcher.docker("box", context="far")))
    assert client[:4] == ["docker", "--context=far", "exec", "--interactive"]


def test_a_pod_is_named_with_its_namespace_and_container() -> None:
    ender, client = kept(command(ct.Launcher.kubectl("deployment/agent", namespace="lab", container="main", context="eu")))
    base = ["kubectl", "exec", "--quiet", "--context=eu", "--namespace=lab", "--container=main"]
    assert client == [*base, "--stdin", "deployment/agent", "--", *THERE]
    assert ender[:-1] == [*base, "deployment/agent", "--", "/bin/sh", "-c"]


def test_a_step_of_slurm_takes_little_of_this_machines_environment_along() -> None:
    assert command(ct.Launcher.srun(arguments=["--partition=gpu"])) == [
        *["srun", "--ntasks=1", "--quiet", "--export=HOME,USER,LOGNAME,SHELL,PATH,LANG", "--partition=gpu"],
        *THERE,
    ]


def test_no_command_line_of_a_supervised_launch_holds_an_argument_or_a_value(tmp_path: Path) -> None:
    options = ct.ClaudeOptions(env={"ANTHROPIC_API_KEY": "sk-secret"}, model="opus", append_system_prompt="hidden", cwd="/srv/there")
    launchers = [ct.Launcher.ssh("h"), ct.Launcher.docker("c"), ct.Launcher.podman("c"), ct.Launcher.kubectl("p"), ct.Launcher.srun()]
    for launcher in launchers:
        (tmp_path / launcher.program).touch(mode=0o755)
        planned = plan_launch(options, inherited={"PATH": str(tmp_path), "ALSO": "mine"}, launcher=launcher)
        local = planned.for_this_machine(planned.launch, mark=MARK)
        assert not [word for word in local.argv if "sk-secret" in word or "opus" in word or "hidden" in word]
        assert (local.cwd, local.env) == (None, dict(os.environ))
        told = planned.instructions(mark=MARK)
        assert b"cd -- /srv/there" in told
        assert b"ANTHROPIC_API_KEY=sk-secret" in told
        assert b"--model=opus" in told
        assert b"mine" not in told
        assert planned.launch.files == ()
        assert planned.launch.initialize["appendSystemPrompt"] == "hidden"


def test_the_command_that_ends_is_no_child_that_closing_would_kill() -> None:
    assert f"unset {MARK_VARIABLE}\n" in command(ct.Launcher.docker("box"))[2]


# ------------------------------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    "make",
    [
        lambda: ct.Launcher.ssh("-oProxyCommand=evil"),
        lambda: ct.Launcher.ssh("host\nname"),
        lambda: ct.Launcher.ssh("host name"),
        lambda: ct.Launcher.ssh(""),
        lambda: ct.Launcher.ssh("$(reboot)"),
        lambda: ct.Launcher.ssh("host", user="-x"),
        lambda: ct.Launcher.ssh("host", port=0),
        lambda: ct.Launcher.ssh("host", port=True),
        lambda: ct.Launcher.ssh("host", options={"Proxy Command": "x"}),
        lambda: ct.Launcher.ssh("host", options={"ProxyCommand": "a\nb"}),
        lambda: ct.Launcher.ssh("host", timeout=0),
        lambda: ct.Launcher.ssh("host", timeout=float("nan")),
        lambda: ct.Launcher.ssh(7),  # type: ignore[arg-type]
        lambda: ct.Launcher.docker("--privileged"),
        lambda: ct.Launcher.docker("a/b"),
        lambda: ct.Launcher.docker("box", user="\n"),
        lambda: ct.Launcher.podman("box", program="-x"),
        lambda: ct.Launcher.kubectl("Pod"),
        lambda: ct.Launcher.kubectl("pod", namespace=""),
        lambda: ct.Launcher.srun(arguments=["--pty"]),
        lambda: ct.Launcher.srun(arguments=["-u"]),
        lambda: ct.Launcher.srun(arguments=["a\0b"]),
        lambda: ct.Launcher.systemd_run(properties={"Memory Max": "1"}),
        lambda: ct.Launcher.bwrap(writable=["relative"]),
        lambda: ct.Launcher.local([]),
        lambda: ct.Launcher.local("nice"),
    ],
)
def test_nonsense_is_refused_when_it_is_said(make: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make()
    assert caught.value.option == "launcher"


def test_the_time_for_the_start_is_the_one_that_was_given() -> None:
    made = [
        ct.Launcher.ssh("a", timeout=7),
        *(make("a", timeout=7) for make in (ct.Launcher.docker, ct.Launcher.podman, ct.Launcher.kubectl)),
    ]
    assert [each.timeout for each in (*made, ct.Launcher.srun(timeout=7))] == [7.0] * 5


@pytest.mark.parametrize("host", ["build", "agent@build.example.org", "10.0.0.7", "fe80::1%eth0", "::1", "_alias"])
def test_names_of_hosts_are_taken(host: str) -> None:
    assert ct.Launcher.ssh(host).client[-1] == host


def test_a_program_that_this_machine_lacks_is_a_matter_of_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no program 'ssh' on this machine") as caught:
        plan_launch(ct.ClaudeOptions(), inherited={"PATH": str(tmp_path)}, launcher=ct.Launcher.ssh("h"))
    assert caught.value.option == "launcher"


def test_options_of_this_machine_have_no_meaning_at_the_other_end() -> None:
    inherited = {"PATH": os.environ["PATH"]}
    here = plan_launch(ct.ClaudeOptions(user="agent"), inherited=inherited, launcher=ct.Launcher.local(["env"]), command=["true"])
    assert here.launch.user == "agent"
    with pytest.raises(ConfigurationError) as caught:
        plan_launch(ct.ClaudeOptions(user="agent"), inherited=inherited, launcher=ct.Launcher.ssh("h", program="env"))
    assert caught.value.option == "user"
    with pytest.raises(ConfigurationError) as caught:
        plan_launch(ct.ClaudeOptions(isolated_config=True), inherited=inherited, launcher=ct.Launcher.bwrap(program="env"))
    assert caught.value.option == "isolated_config"
    with pytest.raises(ConfigurationError) as caught:
        RemoteEnvironment.of(ct.ClaudeOptions(env={"a.b": "1"}), trace={})
    assert caught.value.option == "env"
    with pytest.raises(ConfigurationError, match="NUL"):
        instructions(["x\0"], mark=MARK, environment=RemoteEnvironment(assign={}))


def test_what_a_remote_environment_holds_is_never_shown() -> None:
    remote = RemoteEnvironment.of(ct.ClaudeOptions(env={"TOKEN": "sk-secret"}), trace={"TRACEPARENT": "00-1"})
    assert "sk-secret" not in repr(remote)
    assert "TOKEN" in repr(remote)


# ------------------------------------------------------------------------------------------------------- the program at the other end


SHELLS = [shell for shell in ("/bin/dash", "/bin/bash", "/bin/busybox") if Path(shell).exists()]


@pytest.fixture(params=SHELLS, ids=lambda shell: Path(shell).name)
def shell(request: pytest.FixtureRequest) -> list[str]:
    """A shell that may be `/bin/sh` somewhere."""
    return [request.param, "sh"] if request.param.endswith("busybox") else [request.param]


def run(shell: list[str], told: bytes, *, given: bytes = b"", env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    environment = {"PATH": "/usr/bin:/bin", **(env or {})}
    return subprocess.run(
        [*shell, "-c", BOOT, "claude-transport"], input=told + given, capture_output=True, env=environment, timeout=60, check=False
    )


def start(argv: list[str], **options: Any) -> bytes:
    cwd = options.pop("cwd", None)
    private = options.pop("private", ())
    remote = RemoteEnvironment.of(ct.ClaudeOptions(**options), trace={})
    return instructions(argv, mark=MARK, environment=remote, cwd=cwd, private=private)


def said(output: bytes) -> list[str]:
    return [line.partition(f"{MARK} ")[2] for line in output.decode().splitlines() if MARK in line]


def variables(done: subprocess.CompletedProcess[bytes]) -> dict[bytes, bytes]:
    """What `env -0` said after the handshake."""
    listed = done.stdout.split(b"\n", 2)[2]
    return dict(entry.split(b"=", 1) for entry in listed.split(b"\0") if b"=" in entry)


def test_input_output_and_exit_code_are_those_of_the_program(shell: list[str]) -> None:
    done = run(shell, start(["sh", "-c", "cat; echo err >&2; exit 7"]), given=b"+all of it\n.\nhere")
    assert done.stdout.splitlines()[2:] == [b"+all of it", b".", b"here"]
    assert said(done.stdout)[0] == "ready"
    assert said(done.stdout)[1].startswith("started /")
    assert done.stderr.splitlines()[0] == b"err"
    assert said(done.stderr) == ["ended 7"]
    assert done.returncode == 7


def test_arguments_arrive_as_they_were_given(shell: list[str]) -> None:
    strange = ["", " ", "a'b", '"$HOME"', "$(echo no)", "`x`", "line\nbreak", "\\n", "*", "-n", "\udcff\udc81", "é\u2028", "#", "+", "."]
    done = run(shell, start(["printf", "[%s]", *strange]))
    assert done.stdout.split(b"\n", 2)[2] == "".join(f"[{each}]" for each in strange).encode("utf-8", "surrogateescape")


def test_every_byte_that_a_variable_may_hold_arrives(shell: list[str]) -> None:
    value = os.fsdecode(bytes(range(1, 256)))
    done = run(shell, start(["env", "-0"], env={"STRANGE": value, "PLAIN": "1"}))
    assert variables(done)[b"STRANGE"] == bytes(range(1, 256))
    assert variables(done)[REMOTE_MARK.encode()] == MARK.encode()


def test_the_other_ends_environment_is_inherited_without_the_marks_of_a_session(shell: list[str]) -> None:
    done = run(shell, start(["env", "-0"], env={"MORE": "x"}), env={"OWN": "o", "CLAUDECODE": "1", "MORE": "less"})
    found = variables(done)
    assert (found[b"OWN"], found[b"MORE"]) == (b"o", b"x")
    assert b"CLAUDECODE" not in found


@pytest.mark.parametrize("mode", ["inherit", "exact"])
def test_a_variable_may_have_a_name_that_the_supervisor_uses_itself(shell: list[str], mode: str) -> None:
    names = ["found", "private", "mark", "variable", "program", "code", "name", "IFS", "PATH"]
    env = dict.fromkeys(names, "theirs")
    told = start(["/usr/bin/env", "-0"], env_mode=mode, env=env, private=["CLAUDE_CONFIG_DIR"])
    done = run(shell, told, env={"found": "/bin/false", "words": "x"})
    assert (done.returncode, said(done.stderr)) == (0, ["ended 0"])
    found = variables(done)
    assert {name: found[name.encode()] for name in names} == dict.fromkeys(names, b"theirs")
    assert Path(os.fsdecode(found[b"CLAUDE_CONFIG_DIR"])).is_absolute()


def test_an_exact_environment_has_nothing_of_the_other_end(shell: list[str]) -> None:
    done = run(shell, start(["env", "-0"], env_mode="exact", env={"MORE": "x"}), env={"OWN": "o\nCLAUDE=1", "HOME": "/h"})
    left = set(variables(done)) - {b"PWD", b"SHLVL", b"_", b"OLDPWD"}  # the shells' own
    assert left == {b"MORE", REMOTE_MARK.encode(), b"CLAUDE_CODE_SDK_READS_SESSION_STATE"}


def test_an_allowlist_is_kept_at_the_other_end(shell: list[str]) -> None:
    options = {"env_mode": "allowlist", "env_allow": ["MY_*"]}
    found = variables(run(shell, start(["env", "-0"], **options), env={"OWN": "o", "MY_X": "1", "LC_ALL": "C", "HOME": "/h"}))
    assert (found[b"MY_X"], found[b"LC_ALL"], found[b"HOME"]) == (b"1", b"C", b"/h")
    assert b"OWN" not in found


def test_nobody_else_pays_at_the_other_end(shell: list[str]) -> None:
    there = {"ANTHROPIC_API_KEY": "theirs"}
    assert b"ANTHROPIC_API_KEY" not in variables(run(shell, start(["env", "-0"], billing="subscription"), env=there))
    done = run(shell, start(["env", "-0"], billing="subscription_strict"), env=there)
    assert said(done.stdout) == ["ready", "refused environment ANTHROPIC_API_KEY"]


@pytest.mark.parametrize("name", ["X-Api-Key", "authorization", "Proxy-Authorization"])
def test_no_credential_among_custom_headers_pays_at_the_other_end(shell: list[str], name: str) -> None:
    there = {"ANTHROPIC_CUSTOM_HEADERS": f"x-team: 'blue'\n{name}: theirs"}
    assert b"ANTHROPIC_CUSTOM_HEADERS" in variables(run(shell, start(["env", "-0"]), env=there))
    assert b"ANTHROPIC_CUSTOM_HEADERS" not in variables(run(shell, start(["env", "-0"], billing="subscription"), env=there))
    done = run(shell, start(["env", "-0"], billing="subscription_strict"), env=there)
    assert said(done.stdout) == ["ready", "refused environment ANTHROPIC_CUSTOM_HEADERS"]


@pytest.mark.parametrize("policy", ["subscription", "subscription_strict"])
def test_custom_headers_that_pay_nothing_are_kept_at_the_other_end(shell: list[str], policy: str) -> None:
    found = variables(run(shell, start(["env", "-0"], billing=policy), env={"ANTHROPIC_CUSTOM_HEADERS": "x-team: 'blue'\nx-b: 2"}))
    assert found[b"ANTHROPIC_CUSTOM_HEADERS"] == b"x-team: 'blue'\nx-b: 2"


def test_the_working_directory_is_the_other_ends(shell: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "it's here"
    folder.mkdir()
    assert run(shell, start(["pwd"], cwd=str(folder))).stdout.splitlines()[2].decode() == str(folder)
    assert run(shell, start(["env", "-0"], cwd=str(folder))).stdout.count(b"PWD=" + str(folder).encode()) == 1
    done = run(shell, start(["pwd"], cwd=str(tmp_path / "missing")))
    assert (said(done.stdout), done.stderr) == (["ready", "refused cwd"], b"")


def test_a_program_that_is_not_there_is_said_to_be_missing(shell: list[str], tmp_path: Path) -> None:
    (tmp_path / "notes").touch(mode=0o600)
    for program in ("no-such-program", str(tmp_path / "notes"), str(tmp_path)):
        assert said(run(shell, start([program])).stdout) == ["ready", "refused not-found"]


def test_a_bare_name_is_found_where_clis_are_installed(shell: list[str], tmp_path: Path) -> None:
    place = tmp_path / ".local" / "bin"
    place.mkdir(parents=True)
    (place / "claude").write_text("#!/bin/sh\necho here\n")
    (place / "claude").chmod(0o755)
    done = run(shell, start(["claude"]), env={"HOME": str(tmp_path)})
    assert said(done.stdout)[1] == f"started {place}/claude"
    assert done.stdout.splitlines()[2] == b"here"


def test_a_private_directory_is_there_for_the_program_and_gone_afterwards(shell: list[str], tmp_path: Path) -> None:
    told = start(["sh", "-c", 'echo "$CLAUDE_CONFIG_DIR"; stat -c %a "$CLAUDE_CONFIG_DIR"'], private=["CLAUDE_CONFIG_DIR"])
    _, _, folder, mode = run(shell, told, env={"TMPDIR": str(tmp_path)}).stdout.decode().splitlines()
    assert Path(folder).is_relative_to(tmp_path)
    assert mode == "700"
    assert list(tmp_path.iterdir()) == []


def test_what_the_program_leaves_running_is_ended_with_it(shell: list[str]) -> None:
    done = run(shell, start(["sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo $!"]))
    left = int(done.stdout.splitlines()[2])
    assert not Path(f"/proc/{left}/cmdline").exists() or b"sleep" not in Path(f"/proc/{left}/cmdline").read_bytes()
    assert done.returncode == 0


def test_nothing_is_started_when_the_instructions_do_not_come(shell: list[str]) -> None:
    done = run(shell, b"")
    assert said(done.stdout) == ["ready"]
    told = start(["touch", "made"])
    assert said(run(shell, told.split(b"+program")[0]).stdout) == ["ready"]


def test_interrupts_are_not_ignored_by_the_program(shell: list[str]) -> None:
    done = run(shell, start(["grep", "SigIgn", "/proc/self/status"]))
    assert int(done.stdout.splitlines()[2].split()[1], 16) & 0b110 == 0


# ------------------------------------------------------------------------------------------------------------------- words and ends


def test_words_are_found_wherever_they_stand_on_a_line_and_only_when_they_are_whole() -> None:
    text = f"banner\nprompt> claude-transport {MARK} ready\nmore"
    word = find_word(text, mark=MARK, names=["ready"])
    assert word is not None
    assert (text[: word.start], text[word.end :]) == ("banner\nprompt> ", "more")
    assert find_word(text[:-5], mark=MARK, names=["ready"]) is None
    assert find_word(text, mark="other", names=["ready"]) is None
    assert find_word(text, mark=MARK, names=["ended"]) is None
    assert find_word(" ".join(bootstrap(MARK)) + "\n", mark=MARK, names=["ready"]) is None  # a shell that echoes its command


def test_the_supervisors_lines_are_not_shown_to_anybody() -> None:
    assert without_words(f"one\nclaude-transport {MARK} ended 3\ntwo", mark=MARK) == "one\ntwo"


SSH = ct.Launcher.ssh("build")


@pytest.mark.parametrize(
    ("launcher", "code", "stderr", "kind", "retryable"),
    [
        (SSH, 255, "agent@build: Permission denied (publickey).", ct.AuthenticationError, False),
        (SSH, 255, "Host key verification failed.", ct.AuthenticationError, False),
        (SSH, 255, "ssh: connect to host build port 22: Connection refused", ct.CLIConnectionError, True),
        (SSH, 127, "sh: /bin/sh: not found", ct.CLIConnectionError, False),
        (ct.Launcher.docker("box"), 1, "Error response from daemon: No such container: box", ct.CLIConnectionError, False),
        (ct.Launcher.docker("box"), 1, "Cannot connect to the Docker daemon", ct.CLIConnectionError, True),
        (ct.Launcher.docker("box"), 126, "OCI runtime exec failed", ct.CLIConnectionError, False),
        (
            ct.Launcher.podman("box"),
            125,
            'Error: no container with name or ID "box" found: no such container',
            ct.CLIConnectionError,
            False,
        ),
        (ct.Launcher.kubectl("pod"), 1, 'Error from server (NotFound): pods "pod" not found', ct.CLIConnectionError, False),
        (ct.Launcher.kubectl("pod"), 1, "error: You must be logged in to the server (Unauthorized)", ct.AuthenticationError, False),
        (ct.Launcher.kubectl("pod"), 1, "error: unable to upgrade connection: timeout", ct.CLIConnectionError, True),
        (
            ct.Launcher.srun(),
            1,
            "srun: error: Unable to allocate resources: Invalid partition name specified",
            ct.CLIConnectionError,
            False,
        ),
    ],
)
def test_a_client_that_gets_nowhere_has_said_why(
    launcher: ct.Launcher, code: int, stderr: str, kind: type[ct.CLIConnectionError], retryable: bool
) -> None:
    error = why_not_started(launcher, exit_code=code, signal=None, stderr=stderr)
    assert (type(error), error.retryable) == (kind, retryable)
    assert stderr in str(error)


@pytest.mark.parametrize("after", [0, 480, 486, 492, 499])  # the last 500 characters are shown
def test_what_a_client_says_last_shows_no_part_of_a_key(after: int) -> None:
    key = "sk-ant-api03-Zm9vYmFyYmF6cXV4"
    stderr = f"The key {key} {'.' * after}"
    started = why_not_started(SSH, exit_code=255, signal=None, stderr=stderr)
    lost = why_ended(SSH, code=None, exit_code=255, signal=None, stderr=stderr)
    assert lost is not None
    for error in (started, lost):
        assert [part for part in (key[:8], key[9:14], key[-5:]) if part in error.reason] == []
        assert error.reason.endswith("." * after)


def test_the_same_exit_code_of_ssh_is_the_programs_or_the_connections() -> None:
    own = why_ended(SSH, code=255, exit_code=255, signal=None, stderr="")
    assert isinstance(own, ct.ProcessError)
    assert own.exit_code == 255
    lost = why_ended(SSH, code=None, exit_code=255, signal=None, stderr="Connection reset")
    assert isinstance(lost, ct.ConnectionLost)
    assert not isinstance(lost, ct.ProcessError)
    assert "Connection reset" in str(lost)


def test_a_good_end_counts_only_when_the_supervisor_says_so() -> None:
    assert why_ended(SSH, code=0, exit_code=0, signal=None, stderr="") is None
    assert isinstance(why_ended(SSH, code=None, exit_code=0, signal=None, stderr=""), ct.ConnectionLost)
    assert isinstance(why_ended(SSH, code=None, exit_code=None, signal=9, stderr=""), ct.ConnectionLost)


def test_an_exit_code_is_a_signal_when_no_program_says_it_of_itself() -> None:
    assert exit_status(137) == (None, 9)
    assert exit_status(143) == (143, None)  # the CLI itself says 143 after SIGTERM
    assert exit_status(3) == (3, None)


def test_refusals_have_their_own_errors() -> None:
    missing = why_refused(SSH, "not-found", program="claude", cwd=None)
    assert isinstance(missing, ct.CLINotFoundError)
    assert missing.searched == ("ssh://build: claude",)
    assert isinstance(why_refused(SSH, "cwd", program="claude", cwd="/x"), ct.errors.WorkingDirectoryError)
    strict = why_refused(SSH, "environment ANTHROPIC_API_KEY", program="claude", cwd=None)
    assert isinstance(strict, ConfigurationError)
    assert strict.option == "billing"
    assert type(why_refused(SSH, "directory", program="claude", cwd=None)) is ct.CLIConnectionError
    tools = why_refused(SSH, "tools", program="claude", cwd=None)
    assert isinstance(tools, ct.ConfigurationError)
    assert tools.option == "env_mode"


def test_every_launcher_there_is_has_its_rules() -> None:
    made = [
        *(ct.Launcher.local(["x"]), ct.Launcher.systemd_run(), ct.Launcher.bwrap(), ct.Launcher.ssh("x"), ct.Launcher.docker("x")),
        *(ct.Launcher.podman("x"), ct.Launcher.kubectl("x"), ct.Launcher.srun()),
    ]
    assert [launcher.name for launcher in made] == list(RULES)
    constructors = {name for name, value in vars(ct.Launcher).items() if isinstance(value, classmethod) and not name.startswith("_")}
    assert constructors == set(RULES)
    for launcher in made:
        rule = RULES[launcher.name]
        assert ("initialize" in rule.payloads) is (launcher.delivery == "initialize")
        assert ("sent on standard input" in rule.environment) is launcher.supervised
        assert ("quoted" in rule.quoting) is (launcher.quoting == "shell")
        assert ("second command" in rule.end) is bool(launcher.ender)


def test_the_reference_page_is_what_the_table_says() -> None:
    generator = load_generator("launchers")
    assert generator.PAGE.read_text("utf-8") == generator.render()
