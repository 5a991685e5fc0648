"""A real sshd for tests, on loopback: its own host key, client key, configuration and port, all in a temporary directory."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from claude_transport.launch.launcher import Launcher

ATTEMPTS = 100  # a tenth of a second each, until it listens


def sshd_program() -> str | None:
    """Where sshd is; it insists on being called by its full path."""
    return shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin:" + os.environ.get("PATH", ""))


def why_no_sshd() -> str | None:
    """Why there cannot be one, or None. Where CI is set that is an error and not a reason: `.ci/run` installs it."""
    missing = [name for name in ("ssh", "ssh-keygen") if shutil.which(name) is None]
    if sshd_program() is None:
        missing.append("sshd")
    if not missing:
        return None
    if os.environ.get("CI"):
        raise AssertionError(f"{', '.join(missing)} must be there where CI is set: install openssh-server and openssh-client")
    return f"no {', '.join(missing)} on this machine (Debian: openssh-server, openssh-client)"


@dataclass(frozen=True)
class Sshd:
    """A running sshd: where its files are, its port, and its process id."""

    folder: Path
    port: int
    pid: int

    @property
    def config_file(self) -> Path:
        """The client's configuration, in which the server's name is `there`."""
        return self.folder / "config"

    def launcher(self, **more: object) -> Launcher:
        """The launcher for it."""
        return Launcher.ssh("there", config_file=self.config_file, **more)  # type: ignore[arg-type]


@contextlib.contextmanager
def running_sshd(*, login_script: str = "") -> Iterator[Sshd]:
    """An sshd until the end of the block. `login_script` is what a login says before the command is run, in shell code."""
    program = sshd_program()
    assert program is not None
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where root's sshd separates privileges
    with tempfile.TemporaryDirectory(prefix="sshd-") as name, socket.socket() as probe:
        folder = Path(name)
        for key in ("host_key", "client_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True)
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        _configure(folder, port, login_script)
        probe.close()
        # its own process group: what it starts for a connection is a child of it, and none of ours
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(
                [program, "-D", "-e", "-f", str(folder / "sshd_config")],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        try:
            _wait_until_it_listens(port, server, folder)
            yield Sshd(folder, port, server.pid)
        finally:
            server.terminate()
            server.wait()


def _configure(folder: Path, port: int, login_script: str) -> None:
    me = pwd.getpwuid(os.geteuid()).pw_name
    public = (folder / "host_key.pub").read_text()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {public}")
    (folder / "home").mkdir()
    (folder / "authorized_keys").write_text((folder / "client_key.pub").read_text())
    lines = [
        f"Port {port}",
        "ListenAddress 127.0.0.1",
        f"HostKey {folder}/host_key",
        f"AuthorizedKeysFile {folder}/authorized_keys",
        f"PidFile {folder}/pid",
        "StrictModes no",  # the temporary directory of a test is below one that everybody may write to
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "UsePAM no",
        "UseDNS no",
        "PermitRootLogin prohibit-password",
        "PermitUserEnvironment no",
        f"SetEnv HOME={folder}/home",  # the startup files of whoever runs the tests are not for us
        "PrintMotd no",
        "MaxStartups 100",
        "LogLevel ERROR",
    ]
    if login_script:
        (folder / "login").write_text(login_script)
        # as a login shell's own startup files would: before the command, in the same shell
        lines.append(f'ForceCommand . {folder}/login; eval "$SSH_ORIGINAL_COMMAND"')
    (folder / "sshd_config").write_text("\n".join(lines) + "\n")
    client = [
        "Host there",
        "  HostName 127.0.0.1",
        f"  Port {port}",
        f"  User {me}",
        f"  IdentityFile {folder}/client_key",
        "  IdentitiesOnly yes",
        "  IdentityAgent none",
        f"  UserKnownHostsFile {folder}/known_hosts",
        "  GlobalKnownHostsFile none",
        "  StrictHostKeyChecking yes",
        "  PreferredAuthentications publickey",
    ]
    (folder / "config").write_text("\n".join(client) + "\n")


def _wait_until_it_listens(port: int, server: subprocess.Popen[bytes], folder: Path) -> None:
    for _ in range(ATTEMPTS):
        with socket.socket() as attempt:
            attempt.settimeout(5)
            if attempt.connect_ex(("127.0.0.1", port)) == 0 and attempt.recv(4) == b"SSH-":
                return
        try:
            server.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
        break
    raise AssertionError(f"sshd does not listen: {(folder / 'log').read_text()}")
