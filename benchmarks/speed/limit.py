"""The limit: the same work in a loop of nothing but system calls, `bytes.split` and msgspec."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from claude_transport import AssistantMessage, ResultMessage, StreamEvent, UserMessage
from speed.harness import Cost, Meter
from speed.peers import Sink
from speed.workload import Workload

__all__ = ["ask", "forward", "read_dicts", "read_typed", "spawn_and_wait", "write"]

_CHUNK_BYTES = 65536
_decode_dict = msgspec.json.Decoder(dict[str, Any]).decode
_decode_typed = msgspec.json.Decoder(StreamEvent | AssistantMessage | UserMessage | ResultMessage).decode


@contextmanager
def _running(peer: str) -> Iterator[tuple[int, int]]:
    """Start a peer, and give the descriptors of its input and output inside the block."""
    with subprocess.Popen([peer], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        yield child.stdin.fileno(), child.stdout.fileno()


def _read(peer: str, work: Workload, decode: Callable[[bytes], Any]) -> Cost:
    with _running(peer) as (stdin, stdout):
        count, rest = 0, b""
        with Meter() as meter:
            os.write(stdin, b"go\n")
            pieces: list[bytes] = []
            while chunk := os.read(stdout, _CHUNK_BYTES):
                if b"\n" not in chunk:
                    pieces.append(chunk)
                    continue
                *lines, rest = b"".join((*pieces, chunk)).split(b"\n")
                pieces = [rest]
                for line in lines:
                    decode(line)
                    count += 1
    assert count == work.count + 1, (count, work.count)
    return meter.cost(work.count)


def read_dicts(peer: str, work: Workload) -> Cost:
    return _read(peer, work, _decode_dict)


def read_typed(peer: str, work: Workload) -> Cost:
    return _read(peer, work, _decode_typed)


def forward(peer: str, sink: Sink, work: Workload) -> Cost:
    with _running(peer) as (stdin, stdout), _running(sink.command) as (target, _), Meter() as meter:
        os.write(stdin, b"go\n")
        while chunk := os.read(stdout, _CHUNK_BYTES):
            os.write(target, chunk)
    sink.check(work.count + 1)
    return meter.cost(work.size_bytes / 1e6)


def write(sink: Sink, *, line: bytes, count: int) -> Cost:
    with _running(sink.command) as (stdin, _), Meter() as meter:
        for _ in range(count):
            os.write(stdin, line)
    sink.check(count)
    return meter.cost(count)


def ask(peer: str, *, count: int) -> Cost:
    request = {"type": "control_request", "request_id": "1", "request": {"subtype": "set_permission_mode", "mode": "plan"}}
    with _running(peer) as (stdin, stdout):

        def ask_once() -> None:
            os.write(stdin, msgspec.json.encode(request) + b"\n")
            answer = _decode_dict(os.read(stdout, _CHUNK_BYTES))
            assert answer["response"]["request_id"] == "1", answer

        ask_once()  # waits for the start of the peer, an interpreter, which no other figure includes
        with Meter() as meter:
            for _ in range(count):
                ask_once()
    return meter.cost(count)


def spawn_and_wait(peer: str, *, count: int) -> Cost:
    """Start the peer, shake hands, close its input and wait for its end."""
    with Meter() as meter:
        for _ in range(count):
            with _running(peer) as (stdin, stdout):
                os.write(stdin, b'{"request_id":"1"}\n')
                assert os.read(stdout, _CHUNK_BYTES)
    return meter.cost(count)
