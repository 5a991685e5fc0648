"""What is left of the bare loop when each message is kept with its line and handed over by one step of `async for`.

    python benchmarks/bench_step.py

The bare loop splits chunks of 64 KiB and decodes each line, as `speed.limit` does. Each row below it adds one thing that a reader of typed
messages needs. Nothing else is done: no turns, no bounds, no process, no event loop. So no `Query` can be nearer to the bare loop than the
last rows. All rows take turns in one process; a figure is the median of the rounds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from statistics import median
from typing import Any

import msgspec
from msgspec.structs import force_setattr
from speed.workload import SHAPES, lines_like

from claude_transport import AssistantMessage, ResultMessage, StreamEvent, UserMessage

_SHAPE = "delta, 263 B"
_CHUNK_BYTES = 65536
_COUNT = 30_000
_decode = msgspec.json.Decoder(StreamEvent | AssistantMessage | UserMessage | ResultMessage).decode


def lines_in(chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield the lines of each chunk."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield lines


def with_lines(chunks: Iterable[bytes]) -> Iterator[list[Any]]:
    """Yield the messages of each chunk, each with its line in `raw`."""
    for lines in lines_in(chunks):
        messages = [_decode(line) for line in lines]
        for message, line in zip(messages, lines, strict=True):
            force_setattr(message, "raw", line)
        yield messages


def bare(chunks: list[bytes]) -> int:
    count = 0
    for lines in lines_in(chunks):
        for line in lines:
            _decode(line)
            count += 1
    return count


def in_lists(chunks: list[bytes]) -> int:
    return sum(len([_decode(line) for line in lines]) for lines in lines_in(chunks))


def in_lists_with_lines(chunks: list[bytes]) -> int:
    return sum(map(len, with_lines(chunks)))


def by_a_generator(chunks: list[bytes]) -> int:
    async def generate() -> AsyncIterator[Any]:
        for messages in with_lines(chunks):
            for message in messages:
                yield message

    return _driven(_count(generate()))


class Stepped:
    """Hands messages over as `Query` does: by `__anext__()`, which takes them out of a list."""

    def __init__(self, chunks: list[bytes]) -> None:
        self._batches = with_lines(chunks)
        self._ready: list[Any] = []

    def __aiter__(self) -> Stepped:
        return self

    async def __anext__(self) -> Any:
        if self._ready:
            return self._ready.pop()
        for messages in self._batches:
            messages.reverse()
            self._ready = messages
            return messages.pop()
        raise StopAsyncIteration


def by_a_coroutine_for_each(chunks: list[bytes]) -> int:
    return _driven(_count(Stepped(chunks)))


async def _count(messages: AsyncIterator[Any]) -> int:
    count = 0
    async for message in messages:
        count += 1
        if isinstance(message, ResultMessage):
            break
    return count


def _driven(work: Coroutine[Any, Any, int]) -> int:
    """Run what never waits, without an event loop."""
    try:
        work.send(None)
    except StopIteration as exc:
        return int(exc.value)
    raise AssertionError("it has waited")


ROWS: dict[str, Callable[[list[bytes]], int]] = {
    "the bare loop": bare,
    "messages in lists": in_lists,
    "… with their lines": in_lists_with_lines,
    "… by `async for` over a generator": by_a_generator,
    "… by `async for` over an object": by_a_coroutine_for_each,
}


def main() -> None:
    """Measure, and print a row for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--count", type=int, default=_COUNT, help="messages in a round")
    asked = parser.parse_args()
    lines = lines_like(_SHAPE, asked.count)
    data = b"".join(lines[number % len(lines)] for number in range(asked.count))
    chunks = [data[at : at + _CHUNK_BYTES] for at in range(0, len(data), _CHUNK_BYTES)]
    found: dict[str, list[float]] = {name: [] for name in ROWS}
    for _ in range(asked.rounds):
        for name, work in ROWS.items():
            began = time.process_time()
            count = work(chunks)
            found[name].append((time.process_time() - began) / count * 1e6)
            assert count == asked.count, (name, count)
    limit = median(found["the bare loop"])
    print(f"{_SHAPE} ({len(SHAPES[_SHAPE][1])} bytes), {asked.rounds} rounds of {asked.count:,} messages")
    for name, times in found.items():
        print(f"{median(times):7.3f} us  {limit / median(times):5.2f} of the bare loop  {name}")


if __name__ == "__main__":
    main()
