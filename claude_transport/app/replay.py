"""`claude-transport replay`: plays a tape on stdin and stdout, as the claude on it spoke."""

from __future__ import annotations

import os
import stat
import sys
from functools import partial
from types import SimpleNamespace

import anyio
import anyio.to_thread

from claude_transport.app.event_loop import run_interruptibly, run_on
from claude_transport.app.failures import EXIT_OK, PROGRAM
from claude_transport.app.standard_streams import write_remark
from claude_transport.app.terminal import TerminalOutput, is_terminal, visible
from claude_transport.errors import ProcessError, TransportClosed
from claude_transport.transports.replay import ReplayTransport

_READ_BYTES = 65536


def run(args: SimpleNamespace) -> int:
    """Play the tape to the host on stdin and stdout, and return the recorded exit code.

    Raises `ExpectationFailed` if the host does not say what the tape has next.
    """
    transport = ReplayTransport(args.tape, speed=args.speed, match=args.match)
    if is_terminal(sys.stdin):
        write_remark(f"{PROGRAM}: replay waits for the lines of a host program on stdin, as JSON; Ctrl-D ends them")
    return run_on(args.backend, partial(_play, transport))


async def _play(transport: ReplayTransport) -> int:
    return await run_interruptibly(partial(_converse, transport), give_up=transport.close)


async def _converse(transport: ReplayTransport) -> int:
    failures: list[Exception] = []
    await transport.connect()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_listen, transport, sys.stdin.fileno(), failures)
        try:
            await _speak(transport, TerminalOutput(sys.stdout))
        except Exception as error:  # noqa: BLE001 - raised again below, outside the task group, which would wrap it
            failures.append(error)
        tasks.cancel_scope.cancel()
    failure = next(iter(failures), None)
    if isinstance(failure, ProcessError):  # the claude on the tape died: end in the same way, with its last words
        if failure.stderr_tail:
            said = failure.stderr_tail.removesuffix("\n")
            write_remark(visible(said) if is_terminal(sys.stderr) else said)
        return 128 + failure.signal if failure.signal is not None else failure.exit_code or EXIT_OK
    if failure is not None:
        raise failure
    return EXIT_OK


async def _speak(transport: ReplayTransport, output: TerminalOutput) -> None:
    async for batch in transport.read_lines():
        await output.write_bytes(b"".join(line + b"\n" for line in batch))


async def _listen(transport: ReplayTransport, descriptor: int, failures: list[Exception]) -> None:
    """Pass each line of stdin to the tape. A line that the tape refuses ends the reading from it, too. A tape at its end needs no more."""
    rest = b""
    try:
        while chunk := await _read(descriptor):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                await transport.write(line + b"\n")
        if rest:
            await transport.write(rest + b"\n")
        await transport.end_input()
    except TransportClosed:
        pass
    except Exception as error:  # noqa: BLE001 - raised by `_converse()`
        failures.append(error)
        await transport.close()


async def _read(descriptor: int) -> bytes:
    """Return the next bytes, none at the end. Where the event loop cannot wait for a descriptor, a thread reads."""
    mode = os.fstat(descriptor).st_mode
    if os.name != "posix":
        return await anyio.to_thread.run_sync(os.read, descriptor, _READ_BYTES, abandon_on_cancel=True)
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor):
        await anyio.wait_readable(descriptor)
    return os.read(descriptor, _READ_BYTES)
