"""`Closing`: how a conversation is closed: asked to end, given its time, and reported on."""

from __future__ import annotations

import functools

import anyio

from claude_transport.protocol.conversation import Conversation
from claude_transport.query.arguments import check_seconds
from claude_transport.query.connection import Connection
from claude_transport.query.life import DEFAULT_CLOSE_TIMEOUT, Life
from claude_transport.query.outbox import Outbox
from claude_transport.query.questions import Questions
from claude_transport.query.reports import CloseReport
from claude_transport.query.requests import Requests
from claude_transport.query.storage import Storage

__all__ = ["Closing"]


class Closing:
    """The closing of one conversation, from any task."""

    def __init__(
        self,
        life: Life,
        connection: Connection,
        conversation: Conversation,
        storage: Storage,
        *,
        requests: Requests,
        outbox: Outbox,
        questions: Questions,
    ) -> None:
        self._life = life
        self._connection = connection
        self._conversation = conversation
        self._storage = storage
        self._requests = requests
        self._outbox = outbox
        self._questions = questions

    def ask(self, *, timeout: float, wait_for_background: bool = False) -> None:
        """As `Query.aclose()`, without waiting. Of several who ask, the least patient decides."""
        self._life.ask_to_close(timeout=timeout, wait_for_background=wait_for_background)
        self._storage.note_change()
        self._storage.look_again()
        self._connection.give_up()

    def abandon(self, *, timeout: float) -> None:
        """As `Query.abandon()`: from any thread, and from finalisers, which run in whichever thread it pleases."""
        check_seconds("timeout", timeout)
        self._life.call(functools.partial(self.ask, timeout=timeout))

    async def finish(self, *, timeout: float, wait_for_background: bool) -> CloseReport:
        """As `Query.aclose()`."""
        self._life.refuse_elsewhere()
        check_seconds("timeout", timeout)
        self.ask(timeout=timeout, wait_for_background=wait_for_background)
        task = self._life.begin(self._connection.close, name="close claude query")
        if not self._questions.am_i_answering():
            try:
                await task.wait()
            finally:
                if not task.finished:  # whoever was patient waits no more
                    self.ask(timeout=DEFAULT_CLOSE_TIMEOUT)
                await task.join()
        info = self._connection.info
        return CloseReport(
            ended_by_itself=self._life.ended_by_itself,
            lost_turns=self._life.lost_turns,
            dropped_tasks=dict(self._life.dropped_tasks),
            exit_code=info.exit_code,
            signal=info.signal,
            killed=info.killed,
        )

    async def ending_when_asked(self) -> None:
        """Wait until closing is asked for, then let the conversation end by itself; return when it has, or its time is over."""
        life = self._life
        await life.close_requested.wait()
        with anyio.move_on_after(life.close_timeout) as limit:
            while life.wait_for_background and not (self._conversation.quiet or life.ended.is_set()):
                await self._change(limit)
            if self._conversation.open_turns:
                self._requests.tell("interrupt")
            self._outbox.post_end()
            while not life.ended.is_set():
                await self._change(limit)
        life.ended_by_itself = life.ended.is_set()

    async def _change(self, limit: anyio.CancelScope) -> None:
        """Wait until something changes, and then no longer than whoever asked meanwhile wants to."""
        await self._storage.change()
        limit.deadline = min(limit.deadline, anyio.current_time() + self._life.close_timeout)
