"""Runs a real sshd on loopback for tests. Its keys, configuration and home directory are in a temporary directory."""

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
"""How many ports are tried. Another program may take a port between the choice and the start of sshd."""

_START_TIMEOUT: Final = 30.0
"""Seconds for sshd to start listening. It takes 0.02 on an idle machine."""

_POLL_INTERVAL: Final = 0.01
"""Seconds between two checks for the file that sshd writes when it listens."""

# A shell script that runs sshd and ends it when the stdin of the script ends. Only this process holds the other end open, so sshd also ends
# when this process is killed. The `keeper` waits for the end of stdin; it is killed when sshd ends first.
_KEEPER: Final = """
exec 3<&0
"$@" </dev/null 3<&- & server=$!
{ read -r _; kill "$server"; } <&3 & keeper=$!
exec 3<&-
wait "$server"
kill "$keeper"
"""


class Sshd(msgspec.Struct, frozen=True):
    """A running sshd: the directory with its files, and its port on 127.0.0.1."""

    folder: Path
    port: int

    @property
    def config_file(self) -> Path:
        """The configuration file for `ssh`. It names this server `there`."""
        return self.folder / "config"

    def launcher(self, **more: Any) -> Launcher:
        """Make a launcher that runs programs on this server. `more` are further arguments of `Launcher.ssh`."""
        return Launcher.ssh("there", config_file=self.config_file, **more)


def missing_for_sshd() -> tuple[str, ...]:
    """Return which of the programs `ssh`, `ssh-keygen` and `sshd` are not installed."""
    missing = [name for name in ("ssh", "ssh-keygen") if shutil.which(name) is None]
    return (*missing, *(["sshd"] if _program() is None else []))


def _program() -> str | None:
    """Return the full path of sshd, which sshd needs in order to restart itself; None when it is not installed. It is rarely on PATH."""
    return shutil.which("sshd", path=f"/usr/sbin:/usr/local/sbin:/sbin:{os.environ.get('PATH', '')}")


@functools.cache
def shared_sshd() -> Sshd:
    """Return an sshd that all tests of this process share. It starts at the first call, and ends with the process.

    Raises the same errors as `running_sshd`.
    """
    until_exit = contextlib.ExitStack()
    atexit.register(until_exit.close)
    return until_exit.enter_context(running_sshd())


@contextlib.contextmanager
def running_sshd(*, login_script: str = "") -> Iterator[Sshd]:
    """Run an sshd until the end of the block. Each login runs the shell code `login_script` before its command.

    Raises:
        ConfigurationError: a program is not installed, or sshd does not start.
    """
    program, missing = _program(), ", ".join(missing_for_sshd())
    if program is None or missing:
        raise ConfigurationError(f"not installed: {missing} (Debian: openssh-server, openssh-client)", option="factory")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # an sshd that runs as root needs this directory for privilege separation
    with tempfile.TemporaryDirectory(prefix="sshd-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        _make_keys(folder)
        for _ in range(_ATTEMPTS):
            port = _free_port()
            _configure(folder, port=port, login_script=login_script)
            with _started(program, folder) as server:
                if _wait_until_listening(server, folder):
                    yield Sshd(folder, port)
                    return
        log = (folder / "log").read_text("utf-8", "replace").strip()
        raise ConfigurationError(f"sshd does not listen after {_ATTEMPTS} attempts; its log: {log}", option="factory")


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
        # in a session of its own, Ctrl-C in the terminal does not reach it; this process ends it
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True)
    with server:  # at the end closes stdin, which ends sshd, and waits
        yield server


def _wait_until_listening(server: subprocess.Popen[bytes], folder: Path) -> bool:
    """Wait for the file that sshd writes when it listens. Returns False when sshd has ended instead, and after 30 seconds."""
    end = time.monotonic() + _START_TIMEOUT
    while time.monotonic() < end and server.poll() is None:
        with contextlib.suppress(FileNotFoundError):
            if (folder / "pid").read_text().endswith("\n"):
                return True
        time.sleep(_POLL_INTERVAL)
    return False


def _configure(folder: Path, *, port: int, login_script: str) -> None:
    """Write the configuration files of sshd and of `ssh`."""
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {(folder / 'host_key.pub').read_text()}")
    server = {
        "Port": port,
        "ListenAddress": "127.0.0.1",
        "HostKey": folder / "host_key",
        "AuthorizedKeysFile": folder / "authorized_keys",
        "PidFile": folder / "pid",
        "StrictModes": "no",  # sshd would refuse the keys, because every user may write to the parent directory
        "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no",
        "UsePAM": "no",
        "UseDNS": "no",
        "PermitRootLogin": "prohibit-password",
        "PermitUserEnvironment": "no",
        "SetEnv": f"HOME={folder}/home",  # the startup files in the real home directory must not run
        "PrintMotd": "no",
        "MaxStartups": 100,
        "LogLevel": "ERROR",
    }
    if login_script:
        (folder / "login").write_text(login_script)
        # in the same shell as the command, like the startup files of a login shell
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
        # fast: the default key exchange takes longer than the rest of a login, and loopback does not need its strength
        "KexAlgorithms": "curve25519-sha256",
    }
    (folder / "sshd_config").write_text("".join(f"{name} {value}\n" for name, value in server.items()))
    (folder / "config").write_text("Host there\n" + "".join(f"  {name} {value}\n" for name, value in client.items()))
