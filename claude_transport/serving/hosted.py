"""`HostedProcess`: a process on this machine whose client is elsewhere, and the limits between them. Also how one starts and ends.

Sessions of a gateway and of a fleet's worker are made of it. They know how the lines come and go.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

import anyio

from claude_transport.agents.agent import HeldOptions
from claude_transport.errors import ConfigurationError, ProcessError, TruncatedStream
from claude_transport.loggers import logger_for
from claude_transport.protocol.framing import LineBlock, OversizedLine
from claude_transport.serving.door import Allowance, GatewayLimits
from claude_transport.serving.turned_away import TurnedAway
from claude_transport.text.printable import printable
from claude_transport.transport import Client, PouredBlocks, SessionTerms, Transport, attach_to, check_transport

logger: logging.Logger = logger_for(__name__)

START_TIMEOUT: Final = 60.0
"""Seconds for a process to start. It takes milliseconds; a file system that does not answer must not keep a place for ever."""

_NEXT_TURN: Final = 2.0
"""Seconds in which an agent that has read a prompt begins its turn. Claude needs 0.03."""

_TRACE_FIELDS: Final = ("traceparent", "tracestate")
_TRACE_VALUE: Final = re.compile(r"[\x20-\x7e]{1,512}")
"""The values that W3C Trace Context allows, up to the length that every participant has to hand on."""

_Options = TypeVar("_Options")


class HostedProcess:
    """A process, and the limits between it and its client.

    Args:
        transport: connected to the process.
        limits: the limits of the program that serves it.
        allowance: what the owner of the session has used of them.
        fields: changes the client's requests so that the options of the program hold.
    """

    def __init__(self, transport: Transport, *, limits: GatewayLimits, allowance: Allowance, fields: HeldOptions) -> None:
        self.transport: Transport = transport
        self.limits: GatewayLimits = limits
        self.allowance: Allowance = allowance
        self.fields: HeldOptions = fields
        self.bytes_in: int = 0
        """Bytes of the client so far."""
        self.bytes_out: int = 0
        """Bytes of the process so far."""

    async def admit_lines(self, lines: Sequence[bytes], *, size: int) -> None:
        """Count lines of the client, of `size` bytes in all. Waits while its owner is over the rate.

        Raises:
            TurnedAway: a line is too long, or the session has carried too many bytes. The session has to end.
        """
        if any(isinstance(line, OversizedLine) or len(line) > self.limits.line_bytes for line in lines):
            raise TurnedAway("line_too_long", f"a line has more than {self.limits.line_bytes} bytes")
        self.count_input(lines=len(lines), size=size)
        await self.allowance.spend(size)

    def count_input(self, *, lines: int, size: int) -> None:
        """Count input. Raises `TurnedAway` when the session has carried too many bytes. A subclass also counts the `lines`."""
        self.bytes_in += size
        self._check_size()

    def count_output(self, size: int) -> None:
        """Count output. Raises `TurnedAway` when the session has carried too many bytes."""
        self.bytes_out += size
        self._check_size()

    def _check_size(self) -> None:
        limit = self.limits.session_bytes
        if limit is not None and self.bytes_in + self.bytes_out > limit:
            raise TurnedAway("session_bytes", f"the session has carried more than {limit} bytes")

    async def carry_output(self, hand_on: Callable[[LineBlock], bool], *, make_room: Callable[[], Awaitable[bool]]) -> None:
        """Hand on every block of the process's lines until their good end, as fast as the client takes them.

        Only here does a client that does not read stop its process: nothing is read while there is no room. What room is, the medium knows:
        a buffer of the system, what is kept for a client that comes back, or what a broker may keep.

        Args:
            hand_on: takes a block, and returns True when there is no room for another one. It may neither wait nor start anything.
            make_room: waits until there is. It returns False when nobody will take more.
        """
        while await self.hand_output(hand_on):
            if not await make_room():
                return

    async def hand_output(self, hand_on: Callable[[LineBlock], bool]) -> bool:
        """Call `hand_on(block)` for each block of the process's lines until it returns True. Returns False at their good end.

        `hand_on` may be called outside every task: it must neither wait nor start anything. An error that it raises is raised here.
        """
        lines = self.transport.read_lines()
        if isinstance(lines, PouredBlocks):
            return await lines.pour_blocks(hand_on)
        async for batch in lines:
            if hand_on(LineBlock.of(batch)):
                return True
        return False


def torn_tail(exc: TruncatedStream | ProcessError) -> bytes:
    """Return the bytes after the last newline of a process that ended in the middle of a line, else none."""
    torn = exc if isinstance(exc, TruncatedStream) else exc.__cause__
    return torn.bytes_tail if isinstance(torn, TruncatedStream) else b""


def chosen_launch(
    launch: Callable[[_Options], Transport] | None,
    process: Callable[[_Options], Transport],
    options: _Options,
    *,
    command: Sequence[str] | None,
) -> Callable[[_Options], Transport]:
    """Return `launch`, or else `process`, which runs `command` or the agent of `options` on this machine.

    Raises `ConfigurationError` now, to the operator, for what would fail for every client.
    """
    if launch is None:
        process(options)
        return process
    if command is not None:
        raise ConfigurationError("command and launch both say what to run: give one of them", option="launch")
    return launch


async def start_process(
    launch: Callable[[_Options], Transport], options: _Options, client: Client, *, of: str
) -> tuple[Transport, SessionTerms]:
    """Return the transport that `launch` makes, connected, and its terms. The caller bounds the wait. `of` names what has called `launch`.

    Raises what the transport raises; then it is closed.
    """
    transport = launch(options)
    check_transport(transport, of=of, option="launch")
    try:
        terms = attach_to(transport, client)
        terms.check_prompts_pass(of=of)
        await transport.connect()
    except BaseException:
        await close_quietly(transport)
        raise
    return transport, terms


async def wait_for_turns(*, run: Callable[[], bool], may_follow: Callable[[], bool], changed: Callable[[], Awaitable[object]]) -> None:
    """Wait until no turn runs, and none follows from a prompt that the process has got. The caller bounds the wait.

    Args:
        run: returns True while a turn runs.
        may_follow: returns True while a turn may follow (see `TurnTracker.turn_may_follow`). That is waited for two seconds.
        changed: waits until the process has said something.
    """
    while run() or may_follow():
        with anyio.move_on_after(math.inf if run() else _NEXT_TURN) as waiting:
            await changed()
        if waiting.cancelled_caught:
            return


async def close_quietly(transport: Transport) -> None:
    """Close the transport of a session, even while the caller is being cancelled. The transport bounds the wait.

    An error of that says less than why it is closed, and goes to the log.
    """
    with anyio.CancelScope(shield=True):
        try:
            await transport.close()
        except Exception as exc:  # noqa: BLE001 - a program's own transport may raise anything
            logger.info("the transport of a session could not be closed: %s", printable(exc))


def trace_of(trace: Mapping[str, str]) -> dict[str, str]:
    """Return the trace context of a client. Only these two names: they become environment variables of the process."""
    return {name: value for name in _TRACE_FIELDS if _TRACE_VALUE.fullmatch(value := trace.get(name, ""))}
