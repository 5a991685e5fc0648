"""Plays a tape to the host that has started it as its `claude`, and keeps what it has met for the test that made it.

The arguments are the tape, a folder for its notes, and what must match, then `--` and those of the host. The second start plays the second
tape of `x.ndjson`, `x.2.ndjson`, …
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import msgspec

from claude_transport.errors import ConfigurationError, ProcessError
from claude_transport.protocol.expectation import ExpectationFailed
from claude_transport.protocol.framing import LineFramer
from claude_transport.protocol.redaction import redactor_knowing
from claude_transport.protocol.tape import Playback, Tape, read_version, tape_number
from claude_transport.testing.stand_in.tee import read_into, write_all
from claude_transport.text.printable import printable, printable_lines

_READ_BYTES = 65536
EXIT_USAGE = 2


class Met(msgspec.Struct):
    """What one start of a player has met: the file of notes. `failure` is empty when all was as on the tape."""

    number: int
    tape: str
    whereabouts: str = ""
    is_complete: bool = False
    failure: str = ""
    diff: str = ""
    is_missing: bool = False

    def write(self, folder: Path) -> None:
        """Put the notes into the folder, in one step."""
        beside = folder / f".{self.number}.{os.getpid()}"
        beside.write_bytes(msgspec.json.encode(self))
        beside.replace(folder / f"{self.number}.json")


def read_notes(folder: Path) -> list[Met]:
    """Return what every start has met, the first start first."""
    found = [msgspec.json.decode(path.read_bytes(), type=Met) for path in folder.glob("*.json")]
    return sorted(found, key=lambda met: met.number)


class Player:
    """One start of a claude that speaks as the one on the tape."""

    def __init__(self, tape: Tape, *, match: list[str], argv: list[str]) -> None:
        self._playback = Playback(tape, match=match, redactor=redactor_knowing([os.environ]), folder=str(Path.cwd()))
        self._argv = argv
        self._inbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._framer = LineFramer()

    def play(self) -> int:
        """Play the tape to its end, and return the recorded exit code. Raises `ExpectationFailed`."""
        self._playback.started({"command": ["claude", *self._argv]})
        threading.Thread(target=self._listen, daemon=True).start()
        while True:
            self._speak()
            if self._playback.is_over:
                return self._end()
            self._hear(self._inbox.get())

    def note(self, met: Met) -> None:
        """Write down where the tape stands."""
        met.whereabouts, met.is_complete = self._playback.whereabouts, self._playback.is_complete

    def _listen(self) -> None:
        try:
            room = memoryview(bytearray(_READ_BYTES))
            while size := read_into(0, room):
                self._inbox.put(bytes(room[:size]))
        except OSError:  # the host is gone: its input has ended
            pass
        self._inbox.put(b"")

    def _hear(self, data: bytes) -> None:
        for line in self._framer.feed(data) if data else [self._framer.finish()]:
            self._playback.received(line)
        if not data:
            self._playback.input_ended()

    def _speak(self) -> None:
        said: list[bytes] = []
        while (record := self._playback.next_record()) is not None:
            if record.dir == "out":
                said.append(record.line + b"\n")
            elif record.dir == "err":
                write_all(1, b"".join(said))
                said.clear()
                write_all(2, record.line + b"\n")
        write_all(1, b"".join(said))

    def _end(self) -> int:
        error = self._playback.error
        if isinstance(error, ProcessError):
            return 128 + error.signal if error.signal is not None else error.exit_code or 0
        return 0 if error is None else 1


def _count_start(folder: Path) -> int:
    number = 1
    while True:
        try:
            (folder / f"{number}.start").touch(exist_ok=False)
        except FileExistsError:
            number += 1
        else:
            return number


def play_once(path: Path, argv: list[str]) -> int:
    """Play a tape to the host, and return the exit code. No test waits for notes. Raises as `Player.play()` does."""
    tape = Tape.read(path)
    return tell_version(tape) if asks_version(argv) else Player(tape, match=[], argv=argv).play()


def asks_version(argv: list[str]) -> bool:
    """Return whether the host wants no conversation."""
    return argv[:1] in (["-v"], ["--version"])


def tell_version(tape: Tape) -> int:
    """Print the version of the recorded CLI as it does."""
    write_all(1, f"{read_version(tape) or '0.0.0'} (Claude Code)\n".encode())
    return 0


def main(tape: str, folder: str, match: str, argv: list[str]) -> int:
    """Play, and return the exit code. A deviation from the tape is reported on standard error and in the folder."""
    first = Path(tape)
    if asks_version(argv):
        return tell_version(Tape.read(first))
    met = Met(number=_count_start(Path(folder)), tape=tape)
    path = tape_number(first, met.number)
    met.tape = str(path)
    player: Player | None = None
    try:
        met.is_missing = not path.exists()
        player = Player(Tape.read(path), match=[name for name in match.split(",") if name], argv=argv)
        met.write(Path(folder))  # in case the host kills this process
        code = player.play()
    except (ExpectationFailed, ConfigurationError) as error:
        code, met.failure, met.diff = EXIT_USAGE, str(error), getattr(error, "diff", "")
        said = f"claude-transport: {printable(path.name)}: {error} [{error.code}]\n"
        if met.diff:
            said += f"  - is on the tape, + came from the host\n{printable_lines(met.diff)}\n"
        write_all(2, said.encode())
    except OSError:  # the host reads no more
        code = 141
    if player is not None:
        player.note(met)
    met.write(Path(folder))
    return code


if __name__ == "__main__":
    os._exit(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[5:]))  # a thread may wait for the host for ever
