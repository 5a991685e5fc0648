"""A child process whose standard streams are in the hands of whoever listens at the port it is given.

Run by its path, with the standard library only: `python -I -S relay.py HOST PORT`. Both ways it speaks frames: one byte that
says what it is, four bytes of length, and the payload. It is told: `S` write the payload to standard output, `P` stop reading
standard input, `R` read again, `I` stay when the input ends and when SIGTERM comes, `X` exit with this code, `K` die by this
signal; each but the last two is answered by `A` when it is done. It tells: `D` data from standard input, `E` its end, after
which it leaves, unless it was told to stay.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import sys
import threading

HEADER = struct.Struct(">cI")
"""What a frame begins with: its kind, and the size of its payload in bytes."""


class Relay:
    """The two directions: a thread for standard input, the main thread for what it is told."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._telling = threading.Lock()
        self._stays = False
        self._paused = False
        self._noticed = threading.Event()
        self._wake_reader, self._wake = os.pipe()

    def run(self) -> None:
        """Do as told until told to leave, or until nobody is there any more to tell."""
        threading.Thread(target=self._read_input, daemon=True).start()
        with self._link.makefile("rb") as orders:
            while header := orders.read(HEADER.size):
                kind, size = HEADER.unpack(header)
                self._obey(kind, orders.read(size))
                self._tell(b"A")
        os._exit(0)

    def _obey(self, kind: bytes, payload: bytes) -> None:
        if kind == b"S":
            self._write_output(payload)
        elif kind in {b"P", b"R"}:
            self._paused = kind == b"P"
            self._noticed.clear()
            os.write(self._wake, b"!")
            self._noticed.wait()
        elif kind == b"I":
            self._stays = True
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        elif kind == b"X":
            os._exit(int(payload))
        elif kind == b"K":
            os.kill(os.getpid(), int(payload))

    def _write_output(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(1, rest) :]
        except BrokenPipeError:
            pass  # nobody reads any more: there is nothing left to do for this order

    def _read_input(self) -> None:
        poller = select.poll()
        poller.register(0, select.POLLIN)
        poller.register(self._wake_reader, select.POLLIN)
        while True:
            for fd, _ in poller.poll():
                if fd == self._wake_reader:
                    os.read(self._wake_reader, 1)
                    # without POLLIN only the hang-up is reported: a relay that reads nothing still sees that the host is gone
                    poller.modify(0, 0 if self._paused else select.POLLIN)
                    self._noticed.set()
                elif data := b"" if self._paused else os.read(0, 65536):
                    self._tell(b"D", data)
                else:
                    self._tell(b"E")
                    if not self._stays:
                        os._exit(0)
                    poller.unregister(0)

    def _tell(self, kind: bytes, payload: bytes = b"") -> None:
        try:
            with self._telling:
                self._link.sendall(HEADER.pack(kind, len(payload)) + payload)
        except OSError:
            os._exit(0)  # nobody listens any more


def main() -> None:
    """Connect to the listener named on the command line, and obey."""
    link = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    Relay(link).run()


if __name__ == "__main__":
    main()
