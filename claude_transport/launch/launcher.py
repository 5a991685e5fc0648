"""`Launcher`: starts a `claude` somewhere else, or inside something, through a program of this machine.

There are two kinds. `local`, `systemd_run` and `bwrap` put a prefix before the command. The CLI stays a process of this machine, with its
files, environment and process group, and is ended like any other child. `ssh`, `docker`, `podman`, `kubectl` and `srun` run a client whose
other end is another system. There a supervisor starts the CLI, with what the options say and nothing of this machine's environment, and
ends it (see `supervisor`).

`why_not_started`, `why_refused` and `why_ended` say what the end of a client means. `RULES` is the table of the reference page. A launcher
never asks for a pseudo-terminal: it echoes, turns newlines into CRLF, and cuts lines at 4096 bytes.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Final, Literal, NoReturn, TypeAlias

import msgspec

from claude_transport.errors import (
    AuthenticationError,
    ClaudeTransportError,
    CLIConnectionError,
    CLINotFoundError,
    ConfigurationError,
    ConnectionLost,
    ProcessError,
    WorkingDirectoryError,
    without_secrets,
)
from claude_transport.launch.payloads import Delivery
from claude_transport.launch.supervisor import bootstrap, end_command, keeper
from claude_transport.text.printable import last_lines, redacted_tail

Quoting: TypeAlias = Literal["shell", "exec"]

DEFAULT_LAUNCH_TIMEOUT: Final = 60.0
"""Seconds until the other end has started the program. Jump hosts take seconds, and a cluster may take longer."""

_HOST: Final = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9_:][A-Za-z0-9_.:%-]*")
_CONTAINER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_POD: Final = re.compile(r"([a-z][a-z.]*/)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_OPTION_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_PROPERTY_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")

_SSH_OPTIONS: Final = {
    "BatchMode": "yes",  # a question about a password or a host key could not be answered
    "RemoteCommand": "none",  # one in the user's configuration cannot be combined with a command
    "ControlMaster": "no",  # a new master would outlive this process, or end other connections with it; an existing one is used
    "ServerAliveInterval": "15",
    "ServerAliveCountMax": "3",
}
SRUN_EXPORT: Final = ("HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG")
"""Variables of this machine that srun passes on. By default it passes all of them, keys included; with none there is no PATH."""


class Launcher(msgspec.Struct, frozen=True, kw_only=True):
    """Says through which program a `claude` is started: a prefix, a sandbox, ssh, a container client, or a cluster client.

    Make one with a class method (`local`, `ssh`, `docker`, …), which starts nothing, and pass it to `SubprocessTransport(launcher=…)`. The
    method sets all fields: `client` is the command that the transport runs, `address` names the other end in messages, and `timeout` bounds
    the start of the CLI there, in seconds. `supervised` is True when the CLI runs on another system.

    Each method checks its arguments. It raises `ConfigurationError(option="launcher")` for a value that could be taken for an option of the
    program, or for more than a name. A program that is not installed is reported by the transport's `connect()`.
    """

    name: str
    client: tuple[str, ...]
    address: str | None = None
    quoting: Quoting = "exec"
    supervised: bool = False
    delivery: Delivery = "files"
    ender: tuple[str, ...] = ()
    timeout: float = DEFAULT_LAUNCH_TIMEOUT

    @classmethod
    def local(cls, prefix: Sequence[str | PathLike[str]]) -> Launcher:
        """Return a launcher that starts the CLI behind a prefix on this machine, for another priority, sandbox or user.

        `prefix` is the command in front of the CLI: `["nice", "-n", "10"]`, `["firejail"]`, `["sudo", "-nu", "agent"]`. It must start the
        command that follows it. Raises `ConfigurationError` for an empty prefix or a single text.
        """
        if isinstance(prefix, str | bytes) or not prefix:
            _refuse("local() needs a non-empty sequence of arguments, with the program first")
        return cls(name="local", client=tuple(_argument("the prefix", os.fspath(each)) for each in prefix))

    @classmethod
    def systemd_run(cls, *, user: bool = True, properties: Mapping[str, str] | None = None, program: str = "systemd-run") -> Launcher:
        """Return a launcher that starts the CLI on this machine in a transient scope of systemd, which can limit its resources.

        Args:
            user: True for the user's own service manager; that of the system needs privileges.
            properties: properties of the scope: `{"MemoryMax": "2G", "CPUQuota": "150%"}`.
            program: the name or path of `systemd-run`.

        Raises:
            ConfigurationError: the name of a property is not valid, or a value is not text.
        """
        given = _pairs("properties", properties, _PROPERTY_NAME)
        client = [_program(program), *(["--user"] if user else []), "--scope", "--quiet", "--collect"]
        client += [f"--property={name}={value}" for name, value in given]
        return cls(name="systemd_run", client=(*client, "--"))

    @classmethod
    def bwrap(
        cls,
        *,
        writable: Sequence[str | PathLike[str]] = (),
        private: Sequence[str | PathLike[str]] = ("/tmp",),  # noqa: S108 - a place to cover, not to write to
        network: bool = True,
        arguments: Sequence[str] = (),
        program: str = "bwrap",
    ) -> Launcher:
        """Return a launcher that starts the CLI in a sandbox of bubblewrap. The CLI sees the files of this machine, but may change few.

        The kernel must let users make namespaces.

        Args:
            writable: directories that the CLI may change. They must include its working directory and its configuration directory.
            private: directories that are empty inside the sandbox; what the CLI writes there is deleted at the end.
            network: False for a sandbox without network.
            arguments: more arguments for bwrap, after those made here.
            program: the name or path of `bwrap`.

        Raises:
            ConfigurationError: a path is not absolute, or an argument is not text.
        """
        client = [_program(program), "--die-with-parent", "--unshare-pid", "--unshare-ipc", *([] if network else ["--unshare-net"])]
        client += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
        for path in private:
            client += ["--tmpfs", _absolute(path)]
        for path in writable:
            client += ["--bind", _absolute(path), _absolute(path)]
        client += [_argument("an argument", each) for each in arguments]
        return cls(name="bwrap", client=(*client, "--"), delivery="initialize")

    @classmethod
    def ssh(
        cls,
        host: str,
        *,
        user: str | None = None,
        port: int | None = None,
        identity_file: str | PathLike[str] | None = None,
        config_file: str | PathLike[str] | None = None,
        options: Mapping[str, str] | None = None,
        program: str = "ssh",
        timeout: float = DEFAULT_LAUNCH_TIMEOUT,
    ) -> Launcher:
        """Return a launcher that starts the CLI on another machine, through the system's `ssh` program.

        It works like `ssh host` in a terminal, without questions: keys, agents, jump hosts and known hosts are those of your configuration.
        The other machine needs `/bin/sh`, `grep` and `sleep`, and a CLI that is logged in or gets a key from the option `env`. For an
        `env_mode` other than `inherit` it also needs `env` and `sed`.

        Args:
            host: a name, an address, `user@host`, or an alias of your ssh configuration.
            user: the user there.
            port: the port of the ssh server.
            identity_file: the private key.
            config_file: an ssh configuration to use in place of yours.
            options: options of ssh, passed as `-o NAME=VALUE`; they win over the ones set here.
            program: the name or path of `ssh`.
            timeout: seconds for the whole start.

        Raises:
            ConfigurationError: an argument is not valid.
        """
        _check_name("host", host, _HOST)
        given = dict(_pairs("options", options, _OPTION_NAME))
        ours = [(name, value) for name, value in _SSH_OPTIONS.items() if name.lower() not in {each.lower() for each in given}]
        client = [_program(program), "-T"]
        client += ["-F", _argument("config_file", os.fspath(config_file))] if config_file is not None else []
        client += ["-i", _argument("identity_file", os.fspath(identity_file))] if identity_file is not None else []
        client += ["-p", str(_port(port))] if port is not None else []
        client += ["-l", _plain("user", user)] if user is not None else []
        for name, value in (*given.items(), *ours):
            client += ["-o", f"{name}={value}"]
        name = f"{user}@{host}" if user is not None else host
        address = f"ssh://{name}" if port is None else f"ssh://{name}:{port}"
        return cls(
            name="ssh",
            client=(*client, "--", host),
            address=address,
            quoting="shell",
            supervised=True,
            delivery="initialize",
            timeout=_seconds(timeout),
        )

    @classmethod
    def docker(
        cls,
        container: str,
        *,
        user: str | None = None,
        context: str | None = None,
        program: str = "docker",
        timeout: float = DEFAULT_LAUNCH_TIMEOUT,
    ) -> Launcher:
        """Return a launcher that starts the CLI inside a running container, through `docker exec`. The image needs `/bin/sh`,
        `grep` and `sleep`; also `env` and `sed` for an `env_mode` other than `inherit`.

        Args:
            container: the name or id of the container.
            user: the user inside the container.
            context: the docker context.
            program: the name or path of `docker`.
            timeout: seconds for the whole start.

        Raises:
            ConfigurationError: an argument is not valid.
        """
        return cls._container("docker", container, user=user, context=context, program=program, timeout=timeout)

    @classmethod
    def podman(
        cls, container: str, *, user: str | None = None, program: str = "podman", timeout: float = DEFAULT_LAUNCH_TIMEOUT
    ) -> Launcher:
        """Return a launcher that starts the CLI inside a running container, through `podman exec`. The image needs `/bin/sh`,
        `grep` and `sleep`; also `env` and `sed` for an `env_mode` other than `inherit`.

        Args:
            container: the name or id of the container.
            user: the user inside the container.
            program: the name or path of `podman`.
            timeout: seconds for the whole start.

        Raises:
            ConfigurationError: an argument is not valid.
        """
        return cls._container("podman", container, user=user, context=None, program=program, timeout=timeout)

    @classmethod
    def _container(cls, name: str, container: str, *, user: str | None, context: str | None, program: str, timeout: float) -> Launcher:
        _check_name("container", container, _CONTAINER)
        base = [_program(program), *([f"--context={_argument('context', context)}"] if context is not None else []), "exec"]
        who = [f"--user={_plain('user', user)}"] if user is not None else []
        return cls(
            name=name,
            client=(*base, "--interactive", *who, container),
            address=f"{name}://{container}",
            supervised=True,
            delivery="initialize",
            ender=(*base, *who, container),
            timeout=_seconds(timeout),
        )

    @classmethod
    def kubectl(
        cls,
        pod: str,
        *,
        namespace: str | None = None,
        container: str | None = None,
        context: str | None = None,
        program: str = "kubectl",
        timeout: float = DEFAULT_LAUNCH_TIMEOUT,
    ) -> Launcher:
        """Return a launcher that starts the CLI inside a running pod, through `kubectl exec`. The image needs `/bin/sh`,
        `grep` and `sleep`; also `env` and `sed` for an `env_mode` other than `inherit`.

        Args:
            pod: the name of the pod, or `deployment/name`.
            namespace: the namespace of the pod.
            container: the container of the pod.
            context: the context of kubectl's configuration. What is not given is left to kubectl.
            program: the name or path of `kubectl`.
            timeout: seconds for the whole start.

        Raises:
            ConfigurationError: an argument is not valid.
        """
        _check_name("pod", pod, _POD)
        options = {"context": context, "namespace": namespace, "container": container}
        where = [f"--{name}={_argument(name, value)}" for name, value in options.items() if value is not None]
        base = (_program(program), "exec", "--quiet", *where)
        return cls(
            name="kubectl",
            client=(*base, "--stdin", pod, "--"),
            address=f"kubectl://{namespace or ''}/{pod}",
            supervised=True,
            delivery="initialize",
            ender=(*base, pod, "--"),
            timeout=_seconds(timeout),
        )

    @classmethod
    def srun(cls, *, arguments: Sequence[str] = (), program: str = "srun", timeout: float = DEFAULT_LAUNCH_TIMEOUT) -> Launcher:
        """Return a launcher that starts the CLI on a node of a Slurm cluster, as the only process of a job step.

        Args:
            arguments: arguments of srun (`["--partition=gpu", "--mem=8G"]`); they win over the ones set here. `--unbuffered` and `--pty`
                are refused, because both make a terminal.
            program: the name or path of `srun`.
            timeout: seconds for the whole start; allow for the queue.

        Raises:
            ConfigurationError: an argument is refused or not valid.
        """
        given = [_argument("an argument", each) for each in arguments]
        if any(each == "-u" or each.startswith(("--unbuf", "--pty")) for each in given):
            _refuse("srun: --unbuffered and --pty make a terminal, which would break the lines")
        client = (_program(program), "--ntasks=1", "--quiet", f"--export={','.join(SRUN_EXPORT)}", *given)
        return cls(name="srun", client=client, address="srun://", supervised=True, delivery="initialize", timeout=_seconds(timeout))

    @property
    def program(self) -> str:
        """The program that is started on this machine, such as `ssh`: the first word of `client`."""
        return self.client[0]

    def command(self, argv: Sequence[str], *, mark: str) -> list[str]:
        """Return the command to run on this machine. The transport calls it at each start.

        Without a supervisor it is `client` followed by `argv`, the command line of the CLI. For another system (`supervised`) it starts a
        supervisor there; `argv` is then sent to the supervisor on its standard input. `mark` is the unique text of this start, by which
        processes that it leaves behind are found.
        """
        if not self.supervised:
            return [*self.client, *argv]
        there = bootstrap(mark)
        client = [*self.client, *(["exec " + shlex.join(there)] if self.quoting == "shell" else there)]
        return keeper(client, ender=[*self.ender, *end_command(mark)]) if self.ender else client


def _refuse(message: str) -> NoReturn:
    raise ConfigurationError(f"launcher: {message}", option="launcher")


def _check_name(what: str, value: str, pattern: re.Pattern[str]) -> None:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        _refuse(f"{value!r} is not a valid {what}")


def _argument(what: str, value: str) -> str:
    if not isinstance(value, str) or not value or any(ord(character) < 32 for character in value):
        _refuse(f"{what} is {value!r}: it must be text without control characters")
    return value


def _plain(what: str, value: str) -> str:
    if _argument(what, value).startswith("-"):
        _refuse(f"{what} is {value!r}, which would be taken for an option")
    return value


def _program(program: str | PathLike[str]) -> str:
    return _plain("program", os.fspath(program))


def _absolute(path: str | PathLike[str]) -> str:
    text = _argument("a path", os.fspath(path))
    if not text.startswith("/"):
        _refuse(f"bwrap: {text!r} must be an absolute path")
    return text


def _port(port: int) -> int:
    if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 65536:
        _refuse(f"port must be a number from 1 to 65535, not {port!r}")
    return port


def _seconds(timeout: float) -> float:
    if not isinstance(timeout, int | float) or isinstance(timeout, bool) or not timeout > 0:
        _refuse(f"timeout must be a number of seconds above 0, not {timeout!r}")
    return float(timeout)


def _pairs(what: str, given: Mapping[str, str] | None, names: re.Pattern[str]) -> list[tuple[str, str]]:
    pairs = list((given or {}).items())
    for name, value in pairs:
        _check_name(f"name in {what}", name, names)
        _argument(f"{what}[{name!r}]", value)
    return pairs


_FATAL_SIGNALS: Final = frozenset({4, 6, 7, 8, 9, 11})
"""ILL, ABRT, BUS, FPE, KILL, SEGV. A shell reports 128 + signal. A program that catches SIGTERM does so, too, but not for these."""

_REFUSED_FOR_GOOD: Final[Mapping[str, re.Pattern[str]]] = {
    "docker": re.compile(r"No such container|is not running|executable file not found|permission denied", re.IGNORECASE),
    "podman": re.compile(r"no such container|container state improper|executable file .* not found|permission denied", re.IGNORECASE),
    "kubectl": re.compile(r"\(NotFound\)|\(Forbidden\)|not found in pod|executable file not found|completed pod", re.IGNORECASE),
    "srun": re.compile(r"Invalid (account|partition|job id)|Requested node configuration is not available", re.IGNORECASE),
}
"""Launcher → words that mean that the same command will fail again."""

_READ_CHARS: Final = 2**14
"""Characters of the end of standard error from which the last lines are taken."""

_NOT_LET_IN: Final[Mapping[str, re.Pattern[str]]] = {
    "ssh": re.compile(
        r"Permission denied \(|Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED|Too many authentication failures"
    ),
    "kubectl": re.compile(r"Unauthorized|must be logged in to the server"),
}
"""Launcher → words that mean that the client was not authenticated."""


def _said(stderr: str) -> str:
    # redacted before it is cut: half a key does not look like one
    return last_lines(redacted_tail(stderr, without_secrets, at_most=_READ_CHARS))


def why_not_started(launcher: Launcher, *, exit_code: int | None, signal: int | None, stderr: str) -> ClaudeTransportError:
    """Make the error for a client that ended before the program was started. Nothing was sent to the program, so a retry is safe."""
    how = _exit_words(exit_code, signal)
    message = f"{_place(launcher)}: {launcher.program} ended with {how} before the program was started there"
    said = _said(stderr)
    if (known := _NOT_LET_IN.get(launcher.name)) is not None and known.search(stderr):
        return AuthenticationError(message, reason=said)
    permanent = _REFUSED_FOR_GOOD.get(launcher.name)
    hopeless = exit_code in {126, 127} or (permanent is not None and permanent.search(stderr) is not None)
    return CLIConnectionError(message, retryable=not hopeless, reason=said)


def why_refused(launcher: Launcher, why: str, *, program: str, cwd: str | None, option: str = "cli_path") -> ClaudeTransportError:
    """Make the error for a launch that the supervisor refused. `option` is the one that names the program."""
    place = _place(launcher)
    kind, _, detail = why.partition(" ")
    if kind == "not-found":
        advice = f"Install it there, or give its path there as {option}."
        return CLINotFoundError(f"{place}: there is no program {program!r}. {advice}", searched=[f"{place}: {program}"], advice=advice)
    if kind == "cwd":
        return WorkingDirectoryError(f"{place}: the working directory {cwd!r} does not exist or cannot be entered", path=program)
    if kind == "environment":
        return ConfigurationError(f'{place}: billing="subscription_strict" refuses to start while {detail} is set there', option="billing")
    if kind == "tools":
        advice = "Install them there, or use env_mode='inherit'."
        return ConfigurationError(f"{place}: env_mode needs the programs env and sed, which are not there. {advice}", option="env_mode")
    return CLIConnectionError(f"{place}: the launch was refused: {why}", reason=why)


def why_ended(
    launcher: Launcher, *, code: int | None, exit_code: int | None, signal: int | None, stderr: str
) -> ClaudeTransportError | None:
    """Make the error for the end of the program; None when it ended well. `code` is from the supervisor, `exit_code` and `signal` from
    the client.
    """
    if code == 0:
        return None
    if code is None:
        how = f"{launcher.program} ended with {_exit_words(exit_code, signal)}, without the exit code of the program"
        return ConnectionLost(f"{_place(launcher)}: the connection was lost: {how}", reason=_said(stderr))
    exit_code, signal = exit_status(code)
    how = _exit_words(exit_code, signal)
    return ProcessError(f"{_place(launcher)}: the program ended with {how}", exit_code=exit_code, signal=signal, stderr_tail=stderr)


def exit_status(code: int) -> tuple[int | None, int | None]:
    """Split what a shell reports about a program into (exit code, signal); one of the two is None."""
    return (None, code - 128) if code - 128 in _FATAL_SIGNALS else (code, None)


def _place(launcher: Launcher) -> str:
    return launcher.address or launcher.name


def _exit_words(exit_code: int | None, signal: int | None) -> str:
    if signal is not None:
        return f"signal {signal}"
    return "an unknown exit" if exit_code is None else f"exit code {exit_code}"


# The table that the reference page shows.


class LauncherRule(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the reference: what a launcher does about quoting, environment, payloads, the end, and the exit code."""

    quoting: str
    environment: str
    payloads: str
    end: str
    exit_code: str


_INHERITED: Final = "as without a launcher"
_SENT: Final = "of the other end; variables from the options are sent on standard input"
_INITIALIZE: Final = "in the `initialize` request"
_TOLD: Final = "supervisor; when the client does not end well, a second command ends everything with its mark"
_WORD: Final = "the program's, from the supervisor; without its last line the connection was lost"

RULES: Final[Mapping[str, LauncherRule]] = {
    "local": LauncherRule(
        quoting="none (exec)",
        environment=_INHERITED,
        payloads="in private files",
        end="process group, then the mark in the environment",
        exit_code="the prefix's, which passes on the program's",
    ),
    "systemd_run": LauncherRule(
        quoting="none (exec)",
        environment=_INHERITED,
        payloads="in private files",
        end="process group (a scope does not change it), then the mark in the environment",
        exit_code="the program's",
    ),
    "bwrap": LauncherRule(
        quoting="none (exec)",
        environment=_INHERITED,
        payloads=_INITIALIZE,
        end="`--die-with-parent` and a process namespace that ends as a whole",
        exit_code="the program's; 1 with `bwrap:` on standard error when there is no sandbox",
    ),
    "ssh": LauncherRule(
        quoting="one argument, quoted for the login shell",
        environment=_SENT,
        payloads=_INITIALIZE,
        end="supervisor, which notices within a second that sshd is gone",
        exit_code=f"255 is anything: {_WORD}",
    ),
    "docker": LauncherRule(quoting="none (exec)", environment=_SENT, payloads=_INITIALIZE, end=_TOLD, exit_code=_WORD),
    "podman": LauncherRule(quoting="none (exec)", environment=_SENT, payloads=_INITIALIZE, end=_TOLD, exit_code=_WORD),
    "kubectl": LauncherRule(quoting="none (exec)", environment=_SENT, payloads=_INITIALIZE, end=_TOLD, exit_code=f"1 is anything: {_WORD}"),
    "srun": LauncherRule(
        quoting="none (exec)",
        environment=f"of this machine only `{','.join(SRUN_EXPORT)}`; variables from the options are sent on standard input",
        payloads=_INITIALIZE,
        end="srun passes SIGTERM to the step; a supervisor ends the rest",
        exit_code=_WORD,
    ),
}
"""Rules by the name of the launcher."""
