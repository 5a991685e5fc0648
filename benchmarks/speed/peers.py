"""The peers: programs that write prepared bytes at the speed of C, so that the reader is the bottleneck.

A shell does the handshake of a session and then becomes `cat`, which copies a file that is in the page cache: several gigabytes a second.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

__all__ = ["Sink", "endless_peer", "handshake_peer", "idle_peer", "lent_peer", "line_peer", "named_pipe_peer", "quiet_peer", "responder"]

# The id of the request stands between quotes after its key, with or without a space before it.
_HANDSHAKE = r"""
read -r line
id=${line#*'"request_id"'}
id=${id#*:}
id=${id#*\"}
id=${id%%\"*}
printf '{"type":"control_response","response":{"subtype":"success","request_id":"%s","response":{}}}\n' "$id"
"""

_RESPONDER = r"""
import os, re
ID = re.compile(rb'"request_id" ?: ?"([^"]+)"')
answer = b'{"type":"control_response","response":{"subtype":"success","request_id":"%s","response":{}}}\n'
rest = b""
while data := os.read(0, 65536):
    *lines, rest = (rest + data).split(b"\n")
    for line in lines:
        os.write(1, answer % ID.search(line)[1])
"""


def _script(folder: Path, name: str, text: str) -> str:
    path = folder / name
    if not path.exists():
        path.write_text(f"#!/bin/sh\n{text}", "utf-8")
        path.chmod(0o755)
    return str(path)


def line_peer(folder: Path, files: tuple[Path, ...]) -> str:
    """Return a program that waits for any line, then writes `files` and exits."""
    return _script(folder, f"lines-{files[0].name}-{len(files)}", f"read -r line\nexec cat {_quoted(files)}\n")


def handshake_peer(folder: Path, files: tuple[Path, ...], *, waits: bool = True, piece_bytes: int = 0) -> str:
    """Return a program that answers `initialize`, then writes `files` and exits. If it `waits`, it reads the prompt first.

    With `piece_bytes` it writes that many bytes at a time, and not as many as `cat` does.
    """
    waiting = "read -r line\n" if waits else ""
    writing = f"cat {_quoted(files)} | dd bs={piece_bytes} iflag=fullblock status=none" if piece_bytes else f"exec cat {_quoted(files)}"
    return _script(folder, f"session-{files[0].name}-{len(files)}", f"{_HANDSHAKE}{waiting}{writing}\n")


def endless_peer(folder: Path, file: Path) -> str:
    """Return a program that answers `initialize`, reads a prompt, and writes `file` again and again until it is killed.

    It leaves an empty file `pid-N` in the folder, because it does not end with its input. It runs at the lowest priority: ten of them would
    otherwise take the processor from the reader that is measured.
    """
    named = shlex.quote(str(folder / "pid-"))
    return _script(folder, "endless", f"{_HANDSHAKE}{_YIELDING}: > {named}$$\nread -r line\nwhile cat {_quoted((file,))}; do :; done\n")


# Linux may give each session of processes the same share of the processors; then `nice` counts only inside of one.
_YIELDING = """
renice -n 19 -p $$ > /dev/null
if [ "$(cat /proc/$$/autogroup)" != "$(cat /proc/$PPID/autogroup)" ]; then echo 19 > /proc/$$/autogroup; fi 2> /dev/null
"""


def named_pipe_peer(folder: Path) -> str:
    """Return a program that copies the named pipe that its first line names, `{"pipe": PATH}`, until the pipe ends."""
    return _script(folder, "named", 'read -r line\nline=${line#*\'"pipe": "\'}\nexec cat "${line%%\\"*}"\n')


def quiet_peer(folder: Path) -> str:
    """Return a program that answers `initialize`, and exits at the end of its input."""
    return _script(folder, "quiet", f"{_HANDSHAKE}exec cat > /dev/null\n")


def idle_peer(folder: Path) -> str:
    """Return a program that answers `initialize`, keeps its output open and says nothing more, and exits at the end of its input."""
    return _script(folder, "idle", f"{_HANDSHAKE}while read -r line; do :; done\n")


def lent_peer(output: Path) -> str:
    """Return a program that answers `initialize`, makes `output` a link to its own output, and exits at the end of its input.

    Another process can open the link and write there: its lines reach the reader without a second program to wake up. Needs Linux.
    """
    lending = f"ln -s /proc/$$/fd/1 {shlex.quote(str(output))}\n"
    return _script(output.parent, f"lent-{output.name}", f"{lending}{_HANDSHAKE}while read -r line; do :; done\n")


def responder(folder: Path) -> str:
    """Return a program that answers every control request with success."""
    code = folder / "responder.py"
    code.write_text(_RESPONDER, "utf-8")
    return _script(folder, "responder", f"exec {shlex.quote(sys.executable)} -ISE {shlex.quote(str(code))}\n")


class Sink:
    """A program that reads everything, writes nothing, and leaves the number of lines in a file."""

    def __init__(self, folder: Path) -> None:
        self._counted = folder / "sunk"
        self.command = _script(folder, "sink", f"exec wc -l > {shlex.quote(str(self._counted))}\n")

    def check(self, lines: int) -> None:
        """Check, after the program has exited, that it got that many lines."""
        counted = int(self._counted.read_text("ascii"))
        self._counted.unlink()
        assert counted == lines, (counted, lines)


def _quoted(files: tuple[Path, ...]) -> str:
    return " ".join(shlex.quote(str(path)) for path in files)
