"""A stand-in for docker, podman, kubectl and srun: clients that talk to a daemon, whose processes are not theirs and outlive them.

The daemon does what the real ones do: it starts the command away from the client, in a session of its own, with nobody to watch for a
parent; when a client is gone it closes the standard input, goes on reading the output, and ends nothing. Only `srun` hands SIGTERM on.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

HEADER = struct.Struct("!cI")
VALUED = {"--user", "--context", "--namespace", "--container"}


@contextlib.contextmanager
def running_daemon(folder: Path) -> Iterator[Path]:
    """The folder with the clients `docker`, `podman`, `kubectl` and `srun`, while their daemon runs."""
    address = folder / "daemon.sock"
    for name in ("docker", "podman", "kubectl", "srun"):
        client = folder / name
        client.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {__file__} client {address} {name} "$@"\n')
        client.chmod(client.stat().st_mode | stat.S_IXUSR)
    command = [sys.executable, "-I", "-S", __file__, "daemon", str(address)]
    daemon = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    assert daemon.stdout is not None
    try:
        assert daemon.stdout.read(1) == b"."
        yield folder
    finally:
        daemon.kill()
        daemon.wait()
        daemon.stdout.close()


def command_in(name: str, arguments: list[str]) -> tuple[str, list[str]]:
    """The container, and the command for it, as the client of that name understands its arguments."""
    if name != "srun":
        rest = [each for each in arguments if each.partition("=")[0] not in VALUED]
        assert rest.pop(0) == "exec"
    else:
        rest = ["step", *arguments]
        while rest[1].startswith("-"):
            del rest[1]
    while rest[0].startswith("-"):
        assert rest.pop(0) in {"--interactive", "--stdin", "--quiet"}
    container = rest.pop(0)
    if name == "kubectl":
        assert rest.pop(0) == "--"
    return container, rest


def client(address: str, name: str, arguments: list[str]) -> None:
    """What `docker exec` does."""
    container, command = command_in(name, arguments)
    if container == "missing":
        sys.stderr.write("Error response from daemon: No such container: missing\n")
        raise SystemExit(1)
    link = socket.socket(socket.AF_UNIX)
    link.connect(address)
    interactive = name == "srun" or "--interactive" in arguments or "--stdin" in arguments
    send(link, b"C", json.dumps(command).encode())
    if name == "srun":
        signal.signal(signal.SIGTERM, lambda *_: send(link, b"T"))
    threading.Thread(target=feed, args=(link, interactive), daemon=True).start()
    while True:
        kind, payload = receive(link)
        if kind == b"X":
            os._exit(int(payload))
        write_all(2 if kind == b"R" else 1, payload)


def feed(link: socket.socket, interactive: bool) -> None:
    while interactive and (data := os.read(0, 65536)):
        send(link, b"I", data)
    send(link, b"E")


def daemon(address: str) -> None:
    """What dockerd does."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(50)
    sys.stdout.write(".")
    sys.stdout.close()
    while True:
        link, _ = listener.accept()
        threading.Thread(target=serve, args=(link,), daemon=True).start()


def serve(link: socket.socket) -> None:
    _, command = receive(link)
    process = subprocess.Popen(
        json.loads(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, start_new_session=True
    )
    readers = [threading.Thread(target=relay, args=(link, kind, file)) for kind, file in ((b"O", process.stdout), (b"R", process.stderr))]
    for reader in readers:
        reader.start()
    threading.Thread(target=pour, args=(link, process), daemon=True).start()
    for reader in readers:
        reader.join()
    with contextlib.suppress(OSError):
        code = process.wait()
        send(link, b"X", b"%d" % (code if code >= 0 else 128 - code))


def relay(link: socket.socket, kind: bytes, file: object) -> None:
    while data := file.read(65536):  # type: ignore[attr-defined]
        with contextlib.suppress(OSError):  # nobody listens any more: read on
            send(link, kind, data)


def pour(link: socket.socket, process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(OSError, EOFError):
        while True:
            kind, payload = receive(link)
            if kind == b"T":
                os.killpg(process.pid, signal.SIGTERM)
            elif kind == b"I":
                write_all(process.stdin.fileno(), payload)
            else:
                process.stdin.close()
    with contextlib.suppress(OSError):
        process.stdin.close()


LOCK = threading.RLock()  # a signal may come while something is being sent


def send(link: socket.socket, kind: bytes, payload: bytes = b"") -> None:
    with LOCK:
        link.sendall(HEADER.pack(kind, len(payload)) + payload)


def receive(link: socket.socket) -> tuple[bytes, bytes]:
    kind, size = HEADER.unpack(exactly(link, HEADER.size))
    return kind, exactly(link, size)


def exactly(link: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = link.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


if __name__ == "__main__":
    if sys.argv[1] == "daemon":
        daemon(sys.argv[2])
    else:
        client(sys.argv[2], sys.argv[3], sys.argv[4:])
