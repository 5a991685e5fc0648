"""Transports that end their input, or close, in a wrong way."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

import anyio
import anyio.lowlevel
from mutants import LEAKS, Good, breaks

import claude_transport as ct
from claude_transport.loops.background import LoopTask


@breaks("end.half-close")
class EndsEverything(Good):
    async def end_input(self) -> None:
        await super().end_input()
        await self.stream.aclose()


@breaks("end.half-close")
class ForgetsToEnd(Good):
    async def end_input(self) -> None:
        self.state = "ended"


@breaks("end.idempotent")
class EndsOnce(Good):
    async def end_input(self) -> None:
        self.refuse_if("ended")
        await super().end_input()


@breaks("close.idempotent", "close.any-task")
class ClosesOnce(Good):
    async def close(self) -> None:
        self.refuse_if("closed")
        await super().close()


@breaks("close.peer-sees-the-end", "close.wakes-reader", "close.wakes-writer", "close.when-cancelled", "close.bounded")
class ClosesInNameOnly(Good):
    async def close(self) -> None:
        self.state = "closed"


@breaks("close.wakes-reader")
class ReaderIsToldOff(Good):
    async def read_more(self) -> bool:
        more = bool(await super().read_more())
        if self.state == "closed":
            raise ct.ConnectionLost("closed")
        return more


@breaks("close.wakes-writer")
class WriterIsToldRaw(Good):
    async def write(self, data: str | bytes) -> None:
        was = self.state
        try:
            await super().write(data)
        except ct.TransportClosed as exc:
            if was == "open" and self.state == "closed":
                raise anyio.ClosedResourceError from exc
            raise


@breaks("close.when-cancelled")
class GivesInToCancellation(Good):
    async def close(self) -> None:
        await anyio.lowlevel.checkpoint()
        await super().close()


@breaks("close.when-cancelled", asyncio_only=True)  # trio cancels again at the next await
class SwallowsCancellation(Good):
    async def close(self) -> None:
        with contextlib.suppress(BaseException):
            await super().close()


@breaks("close.bounded", "close.wakes-writer")
class WaitsForTheWriter(Good):
    async def close(self) -> None:
        if self.state != "closed" and self.one_writer.locked():
            async with self.one_writer:
                pass
        await super().close()


@breaks("close.bounded")
class ClosesLate(Good):
    """Its timeout is 0.1 seconds."""

    async def close(self) -> None:
        is_blocked = self.state == "open" and self.one_writer.locked()
        await super().close()
        if is_blocked:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(1.2)  # twelve times its timeout


@breaks("close.any-task", "close.when-cancelled", "connect.cancel-is-clean", "connect.closed-meanwhile")
class BelongsToATask(Good):
    async def connect(self) -> None:
        await super().connect()
        self.home = anyio.get_current_task().id

    async def close(self) -> None:
        if self.state == "open" and anyio.get_current_task().id != self.home:
            raise RuntimeError("attempted to exit a cancel scope in another task")
        await super().close()


class Leaks(Good):
    async def close(self) -> None:
        if self.state == "open":
            self.leak()
        await super().close()

    def leak(self) -> None:
        raise NotImplementedError


@breaks("close.leaves-nothing", "connect.cancel-is-clean", "connect.closed-meanwhile")
class LeaksADescriptor(Leaks):
    def leak(self) -> None:
        LEAKS.callback(os.close, os.open(os.devnull, os.O_RDONLY))


@breaks("close.leaves-nothing", "connect.cancel-is-clean", "connect.closed-meanwhile")
class LeaksATask(Leaks):
    def leak(self) -> None:
        LoopTask.spawn(anyio.sleep_forever, name="leaked")


@breaks("close.leaves-nothing")
class LeaksAThread(Leaks):
    def leak(self) -> None:
        go = threading.Event()
        thread = threading.Thread(target=go.wait)
        thread.start()
        LEAKS.callback(thread.join)
        LEAKS.callback(go.set)


@breaks("close.leaves-nothing")
class LeavesAFileToTheCollector(Leaks):
    def leak(self) -> None:
        self.file = Path(os.devnull).open("rb")  # noqa: SIM115 - never closed: that is the point


@breaks("block.connects-and-closes")
class StaysOpenAfterAnError(Good):
    async def __aexit__(self, *exc_info: object) -> None:
        if exc_info[0] is None:
            await self.close()


@breaks("truth.always")
class HasALength(Good):
    def __len__(self) -> int:
        return len(self.lines)


@breaks("truth.always")
class FalseWhenClosed(Good):
    def __bool__(self) -> bool:
        return bool(self.state != "closed")
