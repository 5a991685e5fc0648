"""`Launcher`: how a `claude` is started somewhere else, or inside something, as the command line of a program that this machine has.

Two kinds. `local`, `systemd_run` and `bwrap` put a prefix before the command: it stays a process of this machine, with its files,
environment and process group, and is ended like any other child. `ssh`, `docker`, `podman`, `kubectl` and `srun` run a client whose other
end is another system: there a supervisor starts the CLI, with what the options say and nothing of this machine's, and ends it
(`supervisor`).

`launcher_rules` says what each does, for the reference page. A pseudo-terminal is never asked for: it echoes, turns newlines into
CRLF, and cuts lines at 4096 bytes.
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
)
from claude_transport.launch.payloads import Delivery
from claude_transport.launch.supervisor import bootstrap, end_command, keeper

Quoting: TypeAlias = Literal["shell", "exec"]

DEFAULT_LAUNCH_TIMEOUT: Final = 60.0
"""Seconds until the other end has started the program: a machine behind two jump hosts takes its time, and a node of a cluster more."""

_HOST: Final = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9_:][A-Za-z0-9_.:%-]*")
_CONTAINER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_POD: Final = re.compile(r"([a-z][a-z.]*/)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_OPTION_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_PROPERTY_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")

_SSH_OPTIONS: Final = {
    "BatchMode": "yes",  # a question about a password or a host key would be asked of nobody
    "RemoteCommand": "none",  # of the user's configuration: it cannot be together with a command
    "ControlMaster": "no",  # a master would outlive us, or take others along when it is ended; one that is there is used
    "ServerAliveInterval": "15",
    "ServerAliveCountMax": "3",
}
SRUN_EXPORT: Final = ("HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG")
"""What srun takes along of this machine's environment. By default that is all of it, keys included; with nothing there is no PATH."""


class Launcher(msgspec.Struct, frozen=True, kw_only=True):
    """Where and by what a `claude` is started. Made by the methods named after the program; `SubprocessTransport(launcher=...)` uses it.

    Each of them checks what it is given, before anything is started, and raises `ConfigurationError(option="launcher")` for what could be
    taken for an option of the program, or for more than a name.
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
        """The CLI behind a prefix that ends in running it: `["nice", "-n", "10"]`, `["firejail"]`, `["sudo", "-nu", "agent"]`."""
        if isinstance(prefix, str | bytes) or not prefix:
            _refuse("local() takes a sequence of arguments, with the program first")
        return cls(name="local", client=tuple(_argument("the prefix", os.fspath(each)) for each in prefix))

    @classmethod
    def systemd_run(cls, *, user: bool = True, properties: Mapping[str, str] | None = None, program: str = "systemd-run") -> Launcher:
        """The CLI in a transient scope of systemd, with resource limits as `properties`: `{"MemoryMax": "2G", "CPUQuota": "150%"}`.

        `user` takes the user's own manager instead of the system's, which needs privileges.
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
        """The CLI in a sandbox of bubblewrap that sees this machine's files, and may change only those below `writable`.

        The working directory and the CLI's configuration directory have to be among them. `private` directories are empty inside, and gone
        afterwards; `arguments` are further ones of bwrap, after ours. Needs a kernel that lets users make namespaces.
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
        """The CLI on `host` (a name, an address, or an alias of your ssh configuration; `user@host` works), through the system's `ssh`.

        Whatever `ssh host` does in a terminal it does here, without asking: keys, agents, jump hosts and known hosts are those of the
        configuration. `options` are `-o NAME=VALUE`, and win over ours. The other end needs `/bin/sh`, `grep`, and a CLI that is logged
        in or given a key by the option `env`. `timeout` is for the whole start, in seconds.
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
        """The CLI inside a running container, through `docker exec`. The image needs `/bin/sh` and `grep`."""
        return cls._container("docker", container, user=user, context=context, program=program, timeout=timeout)

    @classmethod
    def podman(
        cls, container: str, *, user: str | None = None, program: str = "podman", timeout: float = DEFAULT_LAUNCH_TIMEOUT
    ) -> Launcher:
        """The CLI inside a running container, through `podman exec`. The image needs `/bin/sh` and `grep`."""
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
        """The CLI inside a running pod (`name`, or `deployment/name`), through `kubectl exec`. The image needs `/bin/sh` and `grep`."""
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
        """The CLI as one task of a Slurm step; `arguments` are those of srun (`["--partition=gpu", "--mem=8G"]`), and win over ours.

        Give a `timeout` that the queue allows for. `--unbuffered` and `--pty` are refused: both make a terminal.
        """
        given = [_argument("an argument", each) for each in arguments]
        if any(each == "-u" or each.startswith(("--unbuf", "--pty")) for each in given):
            _refuse("srun: --unbuffered and --pty make a terminal, which would break the lines")
        client = (_program(program), "--ntasks=1", "--quiet", f"--export={','.join(SRUN_EXPORT)}", *given)
        return cls(name="srun", client=client, address="srun://", supervised=True, delivery="initialize", timeout=_seconds(timeout))

    @property
    def program(self) -> str:
        """The program of this machine that is run."""
        return self.client[0]

    def command(self, argv: Sequence[str], *, mark: str) -> list[str]:
        """The command for this machine. That of a supervised launch does not hold `argv`: it goes with the `instructions`."""
        if not self.supervised:
            return [*self.client, *argv]
        there = bootstrap(mark)
        client = [*self.client, *(["exec " + shlex.join(there)] if self.quoting == "shell" else there)]
        return keeper(client, ender=[*self.ender, *end_command(mark)]) if self.ender else client


def _refuse(message: str) -> NoReturn:
    raise ConfigurationError(f"launcher: {message}", option="launcher")


def _check_name(what: str, value: str, pattern: re.Pattern[str]) -> None:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        _refuse(f"{value!r} is no name of a {what}")


def _argument(what: str, value: str) -> str:
    if not isinstance(value, str) or not value or any(ord(character) < 32 for character in value):
        _refuse(f"{what} is {value!r}: an argument is text without control characters")
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
        _refuse(f"bwrap: {text!r} is no absolute path")
    return text


def _port(port: int) -> int:
    if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 65536:
        _refuse(f"{port!r} is no port")
    return port


def _seconds(timeout: float) -> float:
    if not isinstance(timeout, int | float) or isinstance(timeout, bool) or not timeout > 0:
        _refuse(f"timeout is {timeout!r}: seconds, more than none")
    return float(timeout)


def _pairs(what: str, given: Mapping[str, str] | None, names: re.Pattern[str]) -> list[tuple[str, str]]:
    pairs = list((given or {}).items())
    for name, value in pairs:
        _check_name(f"name in {what}", name, names)
        _argument(f"{what}[{name!r}]", value)
    return pairs


_FATAL_SIGNALS: Final = frozenset({4, 6, 7, 8, 9, 11})
"""ILL, ABRT, BUS, FPE, KILL, SEGV. A shell says 128 + signal, and so does a program that catches SIGTERM; of these, none does."""

_LAST_WORDS: Final = 300
"""Characters of standard error that a message repeats."""

_REFUSED_FOR_GOOD: Final[Mapping[str, re.Pattern[str]]] = {
    "docker": re.compile(r"No such container|is not running|executable file not found|permission denied", re.IGNORECASE),
    "podman": re.compile(r"no such container|container state improper|executable file .* not found|permission denied", re.IGNORECASE),
    "kubectl": re.compile(r"\(NotFound\)|\(Forbidden\)|not found in pod|executable file not found|completed pod", re.IGNORECASE),
    "srun": re.compile(r"Invalid (account|partition|job id)|Requested node configuration is not available", re.IGNORECASE),
}
"""What the same command will say again."""

_NOT_LET_IN: Final[Mapping[str, re.Pattern[str]]] = {
    "ssh": re.compile(
        r"Permission denied \(|Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED|Too many authentication failures"
    ),
    "kubectl": re.compile(r"Unauthorized|must be logged in to the server"),
}
"""What they say to somebody they do not know, or do not let in."""


def why_not_started(launcher: Launcher, *, exit_code: int | None, signal: int | None, stderr: str) -> ClaudeTransportError:
    """The error for a client that ended before the program was started: nothing was said to it, so trying again is safe."""
    how = _exit_words(exit_code, signal)
    message = f"{_place(launcher)}: {launcher.program} ended with {how} before the program was started there{_last_words(stderr)}"
    if (known := _NOT_LET_IN.get(launcher.name)) is not None and known.search(stderr):
        return AuthenticationError(message)
    permanent = _REFUSED_FOR_GOOD.get(launcher.name)
    hopeless = exit_code in {126, 127} or (permanent is not None and permanent.search(stderr) is not None)
    return CLIConnectionError(message, retryable=not hopeless)


def why_refused(launcher: Launcher, why: str, *, program: str, cwd: str | None) -> ClaudeTransportError:
    """The error for what the supervisor did not want to start."""
    place = _place(launcher)
    kind, _, detail = why.partition(" ")
    if kind == "not-found":
        advice = "Install it there, or give its path there as cli_path."
        return CLINotFoundError(f"{place}: there is no program {program!r}. {advice}", searched=[f"{place}: {program}"], advice=advice)
    if kind == "cwd":
        return WorkingDirectoryError(f"{place}: the working directory {cwd!r} does not exist or cannot be entered", path=program)
    if kind == "environment":
        return ConfigurationError(f'{place}: billing="subscription_strict" refuses to start while {detail} is set there', option="billing")
    return CLIConnectionError(f"{place}: the launch was refused: {why}")


def why_ended(
    launcher: Launcher, *, code: int | None, exit_code: int | None, signal: int | None, stderr: str
) -> ClaudeTransportError | None:
    """The error for how it ended, None when it ended well. `code` is what the supervisor said; `exit_code` and `signal` the client's."""
    if code == 0:
        return None
    if code is None:
        how = f"{launcher.program} ended with {_exit_words(exit_code, signal)}, and nobody said how the program did"
        return ConnectionLost(f"{_place(launcher)}: the connection was lost: {how}{_last_words(stderr)}")
    exit_code, signal = exit_status(code)
    how = _exit_words(exit_code, signal)
    return ProcessError(f"{_place(launcher)}: the program ended with {how}", exit_code=exit_code, signal=signal, stderr_tail=stderr)


def exit_status(code: int) -> tuple[int | None, int | None]:
    """Exit code and signal behind what a shell says of a program; one of the two is None."""
    return (None, code - 128) if code - 128 in _FATAL_SIGNALS else (code, None)


def _place(launcher: Launcher) -> str:
    return launcher.address or launcher.name


def _exit_words(exit_code: int | None, signal: int | None) -> str:
    if signal is not None:
        return f"signal {signal}"
    return "an unknown exit" if exit_code is None else f"exit code {exit_code}"


def _last_words(stderr: str) -> str:
    words = stderr.strip()[-_LAST_WORDS:]
    return f": {words}" if words else ""


# --- What each launcher does about quoting, environment, payloads, the end and the exit code: the table that the reference page shows.


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the reference: what a launcher does about quoting, environment, payloads, the end, and the client's exit code."""

    quoting: str
    environment: str
    payloads: str
    end: str
    exit_code: str


_INHERITED: Final = "as without a launcher"
_SENT: Final = "that of the other end; what the options say is sent on standard input"
_INITIALIZE: Final = "in the `initialize` request"
_TOLD: Final = "supervisor; a second command ends everything with its mark whenever the client ends other than well"
_WORD: Final = "the supervisor says the program's own; without its word the connection was lost"

RULES: Final[Mapping[str, Rule]] = {
    "local": Rule(
        quoting="none (exec)",
        environment=_INHERITED,
        payloads="in private files",
        end="process group, then the mark in the environment",
        exit_code="the prefix's, which hands on the program's",
    ),
    "systemd_run": Rule(
        quoting="none (exec)",
        environment=_INHERITED,
        payloads="in private files",
        end="a scope: still our process group, then the mark in the environment",
        exit_code="the program's",
    ),
    "bwrap": Rule(
        quoting="none (exec)",
        environment=_INHERITED,
        payloads=_INITIALIZE,
        end="`--die-with-parent` and a process namespace that ends as a whole",
        exit_code="the program's; 1 with `bwrap:` on standard error when there is no sandbox",
    ),
    "ssh": Rule(
        quoting="one argument, quoted for the login shell",
        environment=_SENT,
        payloads=_INITIALIZE,
        end="supervisor, which sees within a second that sshd is gone",
        exit_code=f"255 is anything: {_WORD}",
    ),
    "docker": Rule(quoting="none (exec)", environment=_SENT, payloads=_INITIALIZE, end=_TOLD, exit_code=_WORD),
    "podman": Rule(quoting="none (exec)", environment=_SENT, payloads=_INITIALIZE, end=_TOLD, exit_code=_WORD),
    "kubectl": Rule(quoting="none (exec)", environment=_SENT, payloads=_INITIALIZE, end=_TOLD, exit_code=f"1 is anything: {_WORD}"),
    "srun": Rule(
        quoting="none (exec)",
        environment=f"of this machine only `{','.join(SRUN_EXPORT)}`; what the options say is sent on standard input",
        payloads=_INITIALIZE,
        end="srun hands SIGTERM on to the step; a supervisor ends what is left",
        exit_code=_WORD,
    ),
}
"""By the name of the launcher."""
