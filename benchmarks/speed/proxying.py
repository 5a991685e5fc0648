"""Measure the gateway as a proxy, beside a bare relay that only copies bytes: lines a second, and the latency that it adds.

The measuring process is the load. It writes into the named pipes of the children and reads what arrives at the clients' sockets. The
proxies are processes of their own, with all their sessions open, and take turns. Their processor time is read from outside (Linux only).
"""

from __future__ import annotations

import functools
import json
import os
import select
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from claude_transport.link.machine import LINK_VERSION, Data, Hello, LinkEnd, encode_frame
from speed import relay
from speed.bench import Bench, Table, Tables
from speed.harness import Cost, ratio, spread, table
from speed.peers import named_pipe_peer
from speed.sessions import allow_files

__all__ = ["tables"]

SIZES = (1, 100, 400)
_LINES = {1: 200_000, 100: 4000, 400: 1000}
"""Lines for each client in a round, by number of clients: about a hundred megabytes in all."""

_SECONDS = 0.3
"""How long the lines that come alone are sent, in each round."""
_RATES = {1: 200, 100: 2000, 400: 2000}
"""Such lines a second for all clients together: fewer than fill a core, so that the latency is not the length of a queue."""

_LINE_BYTES = 263
_STAMP = b'{"type":"stream_event","at":%020d,"text":"'
_RUNNING = b'{"type":"system","subtype":"session_state_changed","state":"running","text":"'
"""The first line of every turn of a current CLI. A gateway watches for the last one, to know how long to wait before it ends."""
_AT = slice(_STAMP.index(b"%"), _STAMP.index(b"%") + 20)
_FILES_EACH = 16
_PATIENCE = 60.0
"""Seconds for anything to arrive, before the run fails."""

_SUBJECTS = {
    "relay": ("relay", "plain"),
    "relay of callbacks": ("relay of callbacks", "plain"),
    "gateway": ("gateway", "plain"),
    "gateway, link": ("gateway", "link"),
}
"""By name: the program in the middle, and what its clients speak. `no proxy` reads the pipes of the children."""


SMALLEST = 3
"""Clients of a run that only shows that everything runs."""


def tables(bench: Bench) -> Tables:
    """Return the tables by number of clients."""
    sizes = SIZES if bench.scale >= 0.1 else (1, 20) if bench.scale >= 0.01 else (SMALLEST,)
    return {str(size): functools.partial(_measure, bench, size) for size in sizes}


def _measure(bench: Bench, size: int) -> Table:
    """Return costs of a line in bulk, ratios of them, and for lines that come alone their latencies and costs."""
    allow_files(size * _FILES_EACH + 256)
    # the system counts the time of another process in steps of milliseconds, so a few lines would seem to cost nothing
    lines = bench.amount(_LINES.get(size, 4000), least=8000 if size == SMALLEST else 4)
    bulk = bench.folder / f"bulk-{lines}"
    bulk.write_bytes(b"".join(_line(number) for number in range(1000)) * (lines // 1000 + 1))
    os.truncate(bulk, lines * _LINE_BYTES)
    subjects = [name for name in _SUBJECTS if bench.backend == "asyncio" or name != "relay of callbacks"]
    costs: dict[str, list[Cost]] = {name: [] for name in subjects}
    alone: dict[str, list[dict[str, float]]] = {name: [] for name in ("no proxy", *subjects)}
    with ExitStack() as stack:
        crowds = {name: stack.enter_context(_crowd(bench, name, size)) for name in alone}
        for number in range(bench.rounds + 1):
            names = sorted(crowds, reverse=number % 2 == 0)
            for name in names:
                crowd = crowds[name]
                cost = crowd.carry(bulk, lines) if name in costs else None
                figures = crowd.carry_alone(_RATES.get(size, 200), seconds=max(_SECONDS * min(bench.scale, 1.0), 0.05))
                if number or not bench.rounds:
                    alone[name].append(figures)
                    if cost is not None:
                        costs[name].append(cost)
    pairs = {f"relay / {name}": ("relay", name) for name in subjects if name != "relay"}
    ratios = {name: {**ratio(costs, *pair), "wall": ratio(costs, *pair, clock="wall")} for name, pair in pairs.items()}
    per_line = {name: {key: spread([one[key] for one in taken]) for key in taken[0]} for name, taken in alone.items()}
    return {"unit": "line", "rows": table(costs), "ratios": ratios, "alone": _added(per_line, alone)}


def _added(rows: dict[str, dict[str, Any]], alone: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, Any]]:
    """Add to each row the latency beyond that without a proxy, as the median of the differences in each round."""
    for name, taken in alone.items():
        if name == "no proxy":
            continue
        for key in ("p50_ms", "p99_ms"):
            rows[name][f"added_{key}"] = spread([one[key] - none[key] for one, none in zip(taken, alone["no proxy"], strict=True)])
    return rows


def _line(number: int, at: int = 0) -> bytes:
    """Return a line of always the same length that differs from its neighbours."""
    head = _STAMP % at
    text = f"words {number} of prose, and {number * 7919 % 104729} more; ".encode() * 8
    return head + text[: _LINE_BYTES - len(head) - 3] + b'"}\n'


# The clients of one proxy


@contextmanager
def _crowd(bench: Bench, name: str, size: int) -> Iterator[_Crowd]:
    """Start a proxy and `size` clients of it, each with a child whose output is what this process writes into a named pipe."""
    peer = named_pipe_peer(bench.folder)
    pipes = [bench.folder / f"pipe-{name.replace(' ', '-')}-{number}-{size}" for number in range(size)]
    for pipe in pipes:
        os.mkfifo(pipe)
    with ExitStack() as stack:
        if name in _SUBJECTS:
            subject, mode = _SUBJECTS[name]
            proxy, port = stack.enter_context(_running(subject, bench.backend, peer))
            kinds: dict[str, type[_Client]] = {"plain": _Client, "link": _LinkClient}
            crowd = _Crowd(proxy)
            crowd.join([kinds[mode](pipe, crowd.heard, _dial(port)) for pipe in pipes])
        else:
            crowd = _Crowd(None)
            crowd.join([_Client(pipe, crowd.heard, _spawn(stack, peer)) for pipe in pipes])
        stack.callback(crowd.close)
        yield crowd


@contextmanager
def _running(subject: str, backend: str, peer: str) -> Iterator[tuple[int, int]]:
    """Start a proxy, and give its process id and its port in the block."""
    with subprocess.Popen(relay.command_of(subject, backend=backend, child=peer), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as proxy:
        try:
            assert proxy.stdout is not None
            yield proxy.pid, int(proxy.stdout.readline())
            proxy.communicate(timeout=_PATIENCE)
        except BaseException:
            proxy.kill()
            raise


def _dial(port: int) -> _Ends:
    connected = socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    fd = connected.detach()
    return fd, fd


def _spawn(stack: ExitStack, peer: str) -> _Ends:
    child = subprocess.Popen([peer], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    stack.callback(child.wait, _PATIENCE)
    assert child.stdin is not None
    assert child.stdout is not None
    ends = os.dup(child.stdout.fileno()), os.dup(child.stdin.fileno())
    child.stdin.close()
    child.stdout.close()
    return ends


_Ends = tuple[int, int]
"""The descriptor that a client reads, and the one that it writes."""


class _Client:
    """A client in plain mode. It tells its child which named pipe to copy."""

    def __init__(self, pipe: Path, heard: bytearray, ends: _Ends) -> None:
        self.source, self._target = ends
        self._heard = heard
        self.pipe = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        self.received = 0
        self.written = 0
        self._rest = b""
        self._greet(json.dumps({"type": "user", "pipe": str(pipe)}).encode() + b"\n")
        os.set_blocking(self.source, False)

    def _greet(self, line: bytes) -> None:
        os.write(self._target, line)

    def read(self) -> bytes | memoryview:
        """Return what has arrived for the user, perhaps nothing."""
        try:
            size = os.readv(self.source, [self._heard])
        except BlockingIOError:
            return b""
        if not size:
            raise EOFError("the proxy has closed a connection")
        return memoryview(self._heard)[:size]

    def stamps(self) -> list[int]:
        """Read, and return the times that stand in the lines."""
        data = self._rest + bytes(self.read())
        whole = len(data) // _LINE_BYTES * _LINE_BYTES
        self._rest = data[whole:]
        return [int(stamp) for start in range(0, whole, _LINE_BYTES) if (stamp := data[start:whole][_AT]).isdigit()]

    def close(self) -> None:
        for fd in {self.source, self._target, self.pipe}:
            os.close(fd)


class _LinkClient(_Client):
    """A client in link mode, which acknowledges what it reads."""

    def _greet(self, line: bytes) -> None:
        self._end = LinkEnd()
        self._end.resume(received=0, replay_from=0, window=2**20)
        self._welcomed = False
        self._end.send(line)
        os.write(self._target, encode_frame(Hello(version=LINK_VERSION, window=self._end.window)) + self._end.data_to_send())

    def read(self) -> bytes | memoryview:
        chunk = bytes(super().read())
        if chunk and not self._welcomed:
            assert chunk.startswith(b"W "), chunk
            self._welcomed = True
            chunk = chunk.partition(b"\n")[2]
        parts = [event.data for event in self._end.receive(chunk) if isinstance(event, Data)]
        self._end.consume(self._end.received)
        if self._end.has_output:
            os.write(self._target, self._end.data_to_send())
        return b"".join(parts)


class _Crowd:
    """The clients of one proxy. Every wait for them fails after a minute."""

    def __init__(self, proxy: int | None) -> None:
        self.heard = bytearray(2**18)
        self._cpu_clock = None if proxy is None else (~proxy << 3) | 2  # CPUCLOCK_SCHED of another process, as clock_getcpuclockid() does
        self._epoll = select.epoll()
        self._clients: dict[int, _Client] = {}

    def join(self, clients: Sequence[_Client]) -> None:
        """Take the clients, and wait until a first line has come through each of them."""
        for client in clients:
            self._clients[client.source] = client
            self._epoll.register(client.source, select.EPOLLIN)
            os.write(client.pipe, _RUNNING + b"." * (_LINE_BYTES - len(_RUNNING) - 3) + b'"}\n')
            os.write(client.pipe, _line(0))
        waiting = set(self._clients)
        ends = time.monotonic() + _PATIENCE
        while waiting:
            waiting -= {client.source for client in self._ready(ends) if client.stamps()}

    def carry(self, bulk: Path, lines: int) -> Cost:
        """Send `lines` lines through every child as fast as they go, and return the cost of one of them for the proxy."""
        clients, wanted = list(self._clients.values()), lines * _LINE_BYTES
        with bulk.open("rb") as source:
            cpu, wall = self._cpu(), time.perf_counter()
            for client in clients:
                client.received = client.written = 0
                self._epoll.register(client.pipe, select.EPOLLOUT)
            writers = {client.pipe: client for client in clients}
            left, ends = len(clients), time.monotonic() + _PATIENCE
            while left:
                for fd, _ in self._poll(ends):
                    if (client := writers.get(fd)) is not None:
                        # zero copies here: the pipe gets the pages of the file
                        client.written += os.sendfile(fd, source.fileno(), client.written, min(wanted - client.written, 65536))
                        if client.written == wanted:
                            self._epoll.unregister(fd)
                    else:
                        client = self._clients[fd]
                        client.received += len(client.read())
                        left -= client.received == wanted
            wall, cpu = time.perf_counter() - wall, self._cpu() - cpu
        count = lines * len(clients)
        assert sum(client.received for client in clients) == count * _LINE_BYTES
        return Cost(cpu / count, wall / count)

    def carry_alone(self, rate: int, *, seconds: float) -> dict[str, float]:
        """Send `rate` lines a second, to one client after the other. Return their latencies, and what one costs the proxy."""
        clients, latencies = list(self._clients.values()), []
        count = max(round(rate * seconds), 4)
        cpu, start, written = self._cpu(), time.monotonic(), 0
        ends = start + seconds + _PATIENCE
        while len(latencies) < count:
            while written < count and (now := time.monotonic()) >= start + written / rate:
                os.write(clients[written % len(clients)].pipe, _line(written, time.monotonic_ns()))
                written += 1
            due = start + written / rate if written < count else ends
            for client in self._ready(due, must=written == count):
                latencies.extend(time.monotonic_ns() - stamp for stamp in client.stamps())
        now = self._cpu() - cpu
        latencies.sort()
        return {"cpu_us": now / count * 1e6, "p50_ms": latencies[count // 2] / 1e6, "p99_ms": latencies[count * 99 // 100] / 1e6}

    def _ready(self, ends: float, *, must: bool = True) -> list[_Client]:
        return [self._clients[fd] for fd, _ in self._poll(ends, must=must)]

    def _poll(self, ends: float, *, must: bool = True) -> list[tuple[int, int]]:
        found = self._epoll.poll(max(ends - time.monotonic(), 0.0))
        if must and not found:
            raise TimeoutError("the clients have waited too long")
        return found

    def _cpu(self) -> float:
        return 0.0 if self._cpu_clock is None else time.clock_gettime(self._cpu_clock)

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._epoll.close()
