"""A real sshd on loopback with its own keys, configuration, home and port, all in a temporary directory."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from claude_transport.errors import ConfigurationError
from claude_transport.launch.launcher import Launcher

_ATTEMPTS: Final = 3
"""Ports to try: another program may take a port before sshd listens on it."""

_PATIENCE: Final = 30.0
"""Seconds until it must listen; on an idle machine it takes 0.02."""

_LOOK_AGAIN: Final = 0.01
"""Seconds between two checks for the file that sshd writes when it listens."""

# Ends sshd at the end of this shell's stdin, which only the host holds open; so also when the host is killed. The process id in $keeper
# cannot be reused, because the shell has not waited for it.
_KEEPER: Final = """
exec 3<&0
"$@" </dev/null 3<&- & server=$!
{ read -r _; kill "$server"; } <&3 & keeper=$!
exec 3<&-
wait "$server"
kill "$keeper"
"""


class Sshd(msgspec.Struct, frozen=True):
    """A running sshd: the directory of its files, and its port on 127.0.0.1."""

    folder: Path
    port: int

    @property
    def config_file(self) -> Path:
        """The configuration file of the client. The server is called `there` in it."""
        return self.folder / "config"

    def launcher(self, **more: Any) -> Launcher:
        """Make a `Launcher.ssh` for this server; `more` are further arguments."""
        return Launcher.ssh("there", config_file=self.config_file, **more)


def missing_for_sshd() -> tuple[str, ...]:
    """Return the names of the missing programs, of `ssh`, `ssh-keygen` and `sshd`."""
    missing = [name for name in ("ssh", "ssh-keygen") if shutil.which(name) is None]
    return (*missing, *(["sshd"] if _program() is None else []))


def _program() -> str | None:
    # sshd must be started by its full path, and is usually not on PATH
    return shutil.which("sshd", path=f"/usr/sbin:/usr/local/sbin:/sbin:{os.environ.get('PATH', '')}")


@functools.cache
def shared_sshd() -> Sshd:
    """Return the sshd of this process. It starts at the first call and ends with the process. Raises as `running_sshd`."""
    until_exit = contextlib.ExitStack()
    atexit.register(until_exit.close)
    return until_exit.enter_context(running_sshd())


@contextlib.contextmanager
def running_sshd(*, login_script: str = "") -> Iterator[Sshd]:
    """Run an sshd until the end of the block. A login runs the shell code `login_script` before its command.

    Raises:
        ConfigurationError: a program is missing, or sshd does not start to listen.
    """
    program, missing = _program(), ", ".join(missing_for_sshd())
    if program is None or missing:
        raise ConfigurationError(f"not installed: {missing} (Debian: openssh-server, openssh-client)", option="factory")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd of root needs it for privilege separation
    with tempfile.TemporaryDirectory(prefix="sshd-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        _make_keys(folder)
        for _ in range(_ATTEMPTS):
            port = _free_port()
            _configure(folder, port=port, login_script=login_script)
            with _started(program, folder) as server:
                if _listens(server, folder):
                    yield Sshd(folder, port)
                    return
        log = (folder / "log").read_text("utf-8", "replace").strip()
        raise ConfigurationError(f"sshd does not listen, after {_ATTEMPTS} attempts: {log}", option="factory")


def _make_keys(folder: Path) -> None:
    for key in ("host_key", "client_key"):
        command = [shutil.which("ssh-keygen") or "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    (folder / "home").mkdir()
    (folder / "authorized_keys").write_text((folder / "client_key.pub").read_text())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextlib.contextmanager
def _started(program: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = ["/bin/sh", "-c", _KEEPER, "sshd-keeper", program, "-D", "-e", "-f", str(folder / "sshd_config")]
    with (folder / "log").open("wb") as log:
        # its own session, so that Ctrl-C in a terminal reaches only the host, which then ends it
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True)
    with server:  # closes its stdin, then waits for it
        yield server


def _listens(server: subprocess.Popen[bytes], folder: Path) -> bool:
    """Wait until sshd has written its process id, which it does when it listens. Returns False when it has ended instead."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end and server.poll() is None:
        with contextlib.suppress(FileNotFoundError):
            if (folder / "pid").read_text().endswith("\n"):
                return True
        time.sleep(_LOOK_AGAIN)
    return False


def _configure(folder: Path, *, port: int, login_script: str) -> None:
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {(folder / 'host_key.pub').read_text()}")
    server = {
        "Port": port,
        "ListenAddress": "127.0.0.1",
        "HostKey": folder / "host_key",
        "AuthorizedKeysFile": folder / "authorized_keys",
        "PidFile": folder / "pid",
        "StrictModes": "no",  # the parent of a temporary directory is writable for all
        "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no",
        "UsePAM": "no",
        "UseDNS": "no",
        "PermitRootLogin": "prohibit-password",
        "PermitUserEnvironment": "no",
        "SetEnv": f"HOME={folder}/home",  # the startup files of the user must not run
        "PrintMotd": "no",
        "MaxStartups": 100,
        "LogLevel": "ERROR",
    }
    if login_script:
        (folder / "login").write_text(login_script)
        # before the command and in the same shell, like the startup files of a login shell
        server["ForceCommand"] = f'. {folder}/login; eval "$SSH_ORIGINAL_COMMAND"'
    client = {
        "HostName": "127.0.0.1",
        "Port": port,
        "IdentityFile": folder / "client_key",
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
        "UserKnownHostsFile": folder / "known_hosts",
        "GlobalKnownHostsFile": "none",
        "StrictHostKeyChecking": "yes",
        "PreferredAuthentications": "publickey",
        # the strongest key exchange takes longer than the rest of a login, and is not needed on loopback
        "KexAlgorithms": "curve25519-sha256",
    }
    (folder / "sshd_config").write_text("".join(f"{name} {value}\n" for name, value in server.items()))
    (folder / "config").write_text("Host there\n" + "".join(f"  {name} {value}\n" for name, value in client.items()))
