"""What is under way: turns, queued messages, background tasks."""

from __future__ import annotations

import logging

import anyio

from claude_transport.errors import ClaudeTransportError, ControlRequestFailed, ControlTimeout, InputClosed, NotConnected, UsageError
from claude_transport.protocol.answers import InterruptReceipt, MessageCancellation, TaskOutput
from claude_transport.query.arguments import check_seconds
from claude_transport.query.controls.asking import DEFAULT_CONTROL_TIMEOUT, Asking
from claude_transport.query.reports import InterruptOutcome

__all__ = ["TaskControls"]

logger: logging.Logger = logging.getLogger(__name__)

INTERRUPT_TIMEOUT = 10.0
"""Seconds for the answer to an interrupt, which takes 5-30 ms [07a]; whoever interrupts does not want to wait."""


class TaskControls(Asking):
    """Turns, queued messages and background tasks: stop them, look at them."""

    async def interrupt(self, *, timeout: float = INTERRUPT_TIMEOUT) -> InterruptOutcome:
        """Stop the running turn: what came of it, in at most `timeout` seconds. An outcome in any case, never an error of the peer's. [07a]

        Messages that wait in the queue are left alone and make the next turn; `interrupt_all` drops them. A running turn is out of reach
        (`dead`) after `end_input()`, since nothing can be asked any more, and when the peer refuses, which the CLI was never seen to do:
        it agrees even when nothing runs [07c]. `aclose()` stops it all the same. Prompts that wait for the query to start are sent
        first, within the same `timeout`, and stopped as well.

        Raises `UsageError` only for a call from another event loop.
        """
        check_seconds("timeout", timeout)
        deadline = anyio.current_time() + timeout
        with anyio.CancelScope(deadline=deadline) as waiting:
            await self._early_prompts_sent()
        if waiting.cancelled_caught:
            return InterruptOutcome.timed_out
        running = self.is_running
        try:
            await self.request("interrupt", timeout=max(deadline - anyio.current_time(), 0.0))
        except ControlTimeout:
            return InterruptOutcome.timed_out
        except (ControlRequestFailed, InputClosed) as exc:
            if not self.has_ended and not self.is_running:
                return InterruptOutcome.not_running
            logger.info("the running turn cannot be interrupted: %s", exc)
            return InterruptOutcome.dead
        except NotConnected:
            return InterruptOutcome.not_running
        except UsageError:
            if self.has_ended:
                return InterruptOutcome.dead
            raise  # of another event loop
        except ClaudeTransportError:
            return InterruptOutcome.dead
        return InterruptOutcome.acknowledged if running else InterruptOutcome.not_running

    async def interrupt_all(self, *, timeout: float = INTERRUPT_TIMEOUT) -> InterruptReceipt:
        """Stop the running turn and drop the messages that wait: their uuids. Raises as every request does, unlike `interrupt`. [07f]"""
        return await self._ask(InterruptReceipt, "interrupt", timeout=timeout, cancel_queued=True)

    async def cancel_message(self, uuid: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> bool:
        """Drop a message that waits in the queue: True when that was done, False when it was taken up already or never there. [10e]"""
        return (await self._ask(MessageCancellation, "cancel_async_message", timeout=timeout, message_uuid=uuid)).cancelled

    async def stop_task(self, task_id: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> None:
        """Stop a background shell or agent. Its `task_notification` comes before this returns [24d].

        An id that no task has succeeds just the same [08a]: `background_tasks` and the task messages tell what there is.
        """
        await self._tell("stop_task", timeout=timeout, task_id=task_id)

    async def background(self, tool_use_id: str | None = None, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> bool | None:
        """Let a running tool go on in the background: whether it did; without an id all of them, and None. [08a]

        A shell can be moved once its `task_started` has come, about two seconds after it was started; before, this is False.
        """
        answer = await self.request("background_tasks", timeout=timeout, **({} if tool_use_id is None else {"tool_use_id": tool_use_id}))
        backgrounded = answer.get("backgrounded")
        return backgrounded if isinstance(backgrounded, bool) else None

    async def task_output(self, task_id: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT) -> TaskOutput:
        """What a background shell has written so far. Raises `ControlRequestFailed` for an id that none has. [24d]"""
        return await self._ask(TaskOutput, "get_task_output", timeout=timeout, task_id=task_id)
