"""Count how often the reading task is woken: once for each batch from the pipe, or once for each message."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from typing import Any, Self

import anyio

from claude_transport import Query, ResultMessage, TransportWrapper
from claude_transport.transport import PouredLines
from speed.bench import Bench, Table, Tables
from speed.harness import spread
from speed.official import client_over
from speed.ours import transport_of_session
from speed.peers import handshake_peer
from speed.workload import Workload

__all__ = ["tables"]


def tables(bench: Bench) -> Tables:
    """Return the tables: messages, wake-ups of the consumer, and (ours) the batches that were read."""
    return {"delta, 263 B": functools.partial(_measure, bench)}


def _measure(bench: Bench) -> Table:
    work = Workload.of_shape(bench.folder, "delta, 263 B", scale=bench.scale * 0.25)
    peer = handshake_peer(bench.folder, work.files)
    rows: dict[str, list[dict[str, float]]] = {"ours": [], "official": []}
    for _ in range(max(bench.rounds, 1)):
        rows["ours"].append(anyio.run(_ours, peer, work, backend=bench.backend))
        rows["official"].append(anyio.run(_official, peer, work, backend=bench.backend))
    figures = {name: {key: spread([one[key] for one in taken]) for key in taken[0]} for name, taken in rows.items()}
    batches = [one["batches"] / max(one["wakeups"], 1) for one in rows["ours"]]
    return {"rows": figures, "ratios": {"batches / wake-up, ours": spread(batches)}}


class _Counting(TransportWrapper):
    """Counts the batches that pass."""

    batches = 0

    def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
        return _CountedBatches(self, super().read_lines())


class _CountedBatches(PouredLines):
    """Counts batches that are fetched or, as `Query` does, poured."""

    def __init__(self, counter: _Counting, lines: Any) -> None:
        self._counter, self._lines = counter, lines

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[bytes]:
        lines: Sequence[bytes] = await anext(self._lines)
        self._counter.batches += 1
        return lines

    async def pour(self, hand_on: Callable[[Sequence[bytes]], bool]) -> bool:
        def counting(lines: Sequence[bytes]) -> bool:
            self._counter.batches += 1
            return hand_on(lines)

        poured: bool = await self._lines.pour(counting)
        return poured


class _Counted:
    """An awaitable that counts how often the awaiting task is put to sleep."""

    def __init__(self, awaitable: Awaitable[Any], on_sleep: Callable[[], None]) -> None:
        self._awaitable, self._on_sleep = awaitable, on_sleep

    def __await__(self) -> Generator[Any, Any, Any]:
        inside = self._awaitable.__await__()
        send: Callable[[], Any] = functools.partial(next, inside)
        while True:
            try:
                wanted = send()
            except StopIteration as end:
                return end.value
            self._on_sleep()
            try:
                send = functools.partial(inside.send, (yield wanted))
            except BaseException as exc:  # noqa: BLE001 - a cancellation is for the inner awaitable
                send = functools.partial(inside.throw, exc)


async def _count(messages: AsyncIterator[Any], last: type, work: Workload) -> dict[str, float]:
    count = wakeups = 0

    def slept() -> None:
        nonlocal wakeups
        wakeups += 1

    while True:
        message = await _Counted(messages.__anext__(), slept)
        count += 1
        if isinstance(message, last):
            break
    assert count == work.count + 1, (count, work.count)
    return {"messages": count, "wakeups": wakeups, "messages_a_wakeup": count / max(wakeups, 1)}


async def _ours(peer: str, work: Workload) -> dict[str, float]:
    transport = _Counting(transport_of_session(peer))
    async with Query(transport) as query:
        messages, before = query.messages(), transport.batches
        await query.send("go")
        return {**await _count(messages, ResultMessage, work), "batches": transport.batches - before}


async def _official(peer: str, work: Workload) -> dict[str, float]:
    from claude_agent_sdk import ResultMessage as OfficialResult

    async with client_over(peer) as client:
        await client.query("go")
        return await _count(client.receive_messages(), OfficialResult, work)
