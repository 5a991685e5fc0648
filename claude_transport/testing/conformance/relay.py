"""A child process whose standard streams a `RelayPeer` controls over a socket.

Run by path, with the standard library only: `python -I -S relay.py HOST PORT`. Frames in both directions are one byte for the kind, four
bytes for the length, and the payload. Orders: `S` write the payload to stdout, `P` stop reading stdin, `R` read again, `I` stay when the
input ends and on SIGTERM, `X` exit with this code, `K` die by this signal. The relay answers each order but the last two with `A` when it
is done. It reports `D`, data from stdin, and `E`, the end of stdin, after which it exits unless it was told to stay.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import sys
import threading
import time

HEADER = struct.Struct(">cI")
"""The start of a frame: its kind, and the size of its payload in bytes."""

LOOK_AGAIN = 0.005
"""Seconds between two looks at stdin on Windows."""


class Relay:
    """Both directions: a thread reads stdin, the main thread obeys the orders."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._telling = threading.Lock()
        self._stays = False
        self._paused = False
        self._noticed = threading.Event()
        self._wake_reader, self._wake = os.pipe()

    def run(self) -> None:
        """Obey orders until one ends the process, or the socket closes."""
        read = self._read_input_on_windows if os.name == "nt" else self._read_input
        threading.Thread(target=read, daemon=True).start()
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
            signal.signal(getattr(signal, "SIGBREAK", signal.SIGTERM), signal.SIG_IGN)
        elif kind == b"X":
            os._exit(int(payload))
        elif kind == b"K":
            os.kill(os.getpid(), int(payload))

    def _write_output(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(1, rest) :]
        except OSError:
            pass  # stdout has no reader any more, so the order is done

    def _read_input(self) -> None:
        poller = select.poll()
        poller.register(0, select.POLLIN)
        poller.register(self._wake_reader, select.POLLIN)
        while True:
            for fd, _ in poller.poll():
                if fd == self._wake_reader:
                    os.read(self._wake_reader, 1)
                    # without POLLIN, poll still reports a hang-up, so a paused relay notices that the host is gone
                    poller.modify(0, 0 if self._paused else select.POLLIN)
                    self._noticed.set()
                elif data := b"" if self._paused else os.read(0, 65536):
                    self._tell(b"D", data)
                else:
                    self._end_input()
                    poller.unregister(0)

    def _read_input_on_windows(self) -> None:
        # no call waits for a pipe and for an order at once, so this looks at both
        import _winapi
        import msvcrt

        pipe = msvcrt.get_osfhandle(0)  # type: ignore[attr-defined,unused-ignore]
        while True:
            self._noticed.set()
            try:
                waiting, _ = _winapi.PeekNamedPipe(pipe, 0)  # type: ignore[attr-defined,unused-ignore]
            except OSError:
                break
            if waiting and not self._paused:
                self._tell(b"D", os.read(0, 65536))
            else:
                time.sleep(LOOK_AGAIN)
        self._end_input()
        while True:
            self._noticed.set()
            time.sleep(LOOK_AGAIN)

    def _end_input(self) -> None:
        self._tell(b"E")
        if not self._stays:
            os._exit(0)

    def _tell(self, kind: bytes, payload: bytes = b"") -> None:
        try:
            with self._telling:
                self._link.sendall(HEADER.pack(kind, len(payload)) + payload)
        except OSError:
            os._exit(0)  # the socket is closed


def main() -> None:
    """Connect to the listener on the command line, and obey its orders."""
    link = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    Relay(link).run()


if __name__ == "__main__":
    main()
