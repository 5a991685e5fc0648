"""`Talking`: what is said to Claude in a conversation, and what comes back."""

from __future__ import annotations

import uuid as uuids
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal

from claude_transport.errors import ControlRequestFailed, ResultError, UsageError
from claude_transport.protocol.control import encode_user_message
from claude_transport.protocol.conversation import Conversation
from claude_transport.protocol.messages import AssistantMessage, Message
from claude_transport.protocol.system import CompactBoundary
from claude_transport.query.arguments import check_seconds
from claude_transport.query.compatibility import Compatibility
from claude_transport.query.connection import Connection
from claude_transport.query.controls import DEFAULT_CONTROL_TIMEOUT, Controls
from claude_transport.query.life import Life
from claude_transport.query.outbox import Delivery, Outbox
from claude_transport.query.questions import Questions
from claude_transport.query.requests import Requests
from claude_transport.query.starting import Starting
from claude_transport.query.storage import AllMessages, Storage
from claude_transport.query.turns import Turn
from claude_transport.query.watching import Watch

__all__ = ["Priority", "Talking"]

Priority = Literal["now", "next", "later"]


class Talking(Controls):
    """The voice of a `Query`: prompts, requests, and every message that comes. All of it from any task."""

    _conversation: Conversation
    _compatibility: Compatibility
    _connection: Connection
    _life: Life
    _outbox: Outbox
    _questions: Questions
    _requests: Requests
    _start: Starting
    _storage: Storage
    _watch: Watch

    async def send(
        self, content: str | Sequence[Mapping[str, Any]], *, uuid: str | uuids.UUID | None = None, priority: Priority | None = None
    ) -> Turn:
        """Send a prompt, text or content blocks: a handle on its turn, once the transport has taken it.

        Any text that was not used before will do for `uuid`, and without one it is made up. Empty content runs a turn like any other;
        text of nothing but blanks is answered by the CLI itself (2.1.329, real).
        `priority` is "now" (aborts the running turn), "next" (the default) or "later" (never folded into the running turn).
        A cancelled call takes the prompt back, unless it is being written already. While the query starts, it waits for that.

        Raises:
            NotConnected, TransportClosed, InputClosed, ConnectionLost: it cannot be sent.
            CLIVersionMismatch: `verbatim_prompts` is on, and this CLI is too old to leave a command or an `@path` in the text alone.
            UsageError: the uuid was used before; the CLI would drop it (docs/reference/protocol.md#repeated-uuids). Or it is empty or no
                text, the content is neither text nor blocks, or the priority is none.
        """
        with self._life.awaiting_ready():
            await self._life.until_ready()
            return await self._send(content, _checked(uuid), priority)

    async def _send(self, content: str | Sequence[Mapping[str, Any]], uuid: str, priority: Priority | None) -> Turn:
        is_verbatim = self._connection.terms.verbatim_prompts
        self._compatibility.check_prompt(content, verbatim=is_verbatim)
        delivery = Delivery(encode_user_message(content, uuid=uuid, priority=priority, client_composed=is_verbatim or None))
        if not self._conversation.is_running:
            self._watch.restart()
        is_command = isinstance(content, str) and content.startswith("/") and not is_verbatim
        self._conversation.send(uuid, priority=priority, is_command=is_command)
        turn = Turn(uuid, conversation=self._conversation, reading=self._storage)
        self._storage.add_turn(turn)
        try:
            self._connection.note_prompt(uuid)  # here, because the outbox is written out by another task
            await self._outbox.send(delivery)
        except BaseException:
            if not delivery.may_arrive:
                self._conversation.withdraw(uuid)
                self._storage.note_change()
            raise
        return turn

    async def _early_prompts_sent(self) -> None:
        await self._life.nothing_waits_for_ready()

    async def compact(self, instructions: str = "") -> CompactBoundary:
        """Replace the conversation by a summary, in a turn of its own: the boundary, with the tokens before (and after, where told).

        `instructions` say what the summary is to keep. It sends `/compact`, after what is running and waiting, and returns when that turn
        has ended; a model writes the summary, which is paid. What the turn says is in `messages()` too. For a bound, use a cancel scope:
        a cancelled call leaves the turn to the CLI, and `interrupt()` stops it.

        Raises:
            ResultError: it failed, or there was nothing to compact; the message is what the CLI said.
            UsageError: `instructions` is no text, or the option `verbatim_prompts` sends slash commands as plain text.
            NotConnected, TransportClosed, InputClosed, ConnectionLost: it cannot be sent, or the conversation ended first.
        """
        if not isinstance(instructions, str):
            raise UsageError(f"instructions is text, not {type(instructions).__name__}")
        await self._life.until_ready()
        if self._connection.terms.verbatim_prompts:
            raise UsageError("verbatim_prompts sends /compact as plain text to the model: compact in a session without that option")
        turn = await self.send(f"/compact {instructions}".rstrip(), priority="later")
        boundary: CompactBoundary | None = None
        said = ""
        async for message in turn:
            if isinstance(message, CompactBoundary):
                boundary = message
            elif isinstance(message, AssistantMessage):
                said = message.text
        result = (await turn.result()).raise_for_error()
        if boundary is None:
            raise ResultError(f"the conversation was not compacted: {said or result.result or 'the CLI gave no reason'}", result=result)
        return boundary

    async def request(self, subtype: str, *, timeout: float = DEFAULT_CONTROL_TIMEOUT, **fields: Any) -> dict[str, Any]:
        """Ask the CLI anything: the response fields, {} where it answers with none.

        Raises:
            CLIVersionMismatch: this CLI is too old for it.
            ControlRequestFailed: it refused; `error_code` says why, when it gave a code.
            ControlTimeout: no answer in `timeout` seconds (`math.inf` waits for ever).
            ConnectionLost, ProcessError, TransportClosed, InputClosed: there is nobody to answer, or no way to ask.
            UsageError: the fields cannot be written as JSON, or `timeout` is no number of seconds.
        """
        self._life.refuse_if_over()
        check_seconds("timeout", timeout)
        self._compatibility.check_request(subtype, fields)
        request = self._requests.prepare(subtype, fields)
        self._requests.post(request)
        with self._storage.needing_input(request.is_open):
            try:
                return (await self._requests.answer_to(request, timeout=timeout)).payload
            except ControlRequestFailed as exc:
                explained = self._compatibility.explained(exc, subtype=subtype)
                if explained is exc:
                    raise
                raise explained from exc

    async def end_input(self) -> None:
        """Say that no further prompt will come. The running turn finishes, but the CLI can ask nothing of this program any more.

        Raises:
            UsageError: something runs that hooks of this query guard, and the CLI lets things go on when it cannot ask a hook (code
                `usage.guards_need_input`). Wait until `is_quiet`, or close the query, which interrupts the turn.
        """
        self._life.refuse_if_over()
        guards = self._questions.guards
        if guards and not self._start.blocks_on_failure and not self._conversation.quiet:
            raise UsageError(
                f"the input cannot end while something runs that hooks guard ({', '.join(guards)}): {self._start.cli_name} goes on "
                "unasked when it cannot ask a hook. Wait until is_quiet, or call aclose()",
                code="usage.guards_need_input",
            )
        await self._outbox.end()

    def messages(self) -> AllMessages:
        """Every message in order, from the first that nobody has taken yet; also those that belong to no turn.

        What was not taken of a turn goes with its handle: ask for all messages before sending, to miss nothing. What is given up over
        `max_buffered_bytes` is counted in `dropped_messages`. Two such iterations at once share the messages between them. It ends with
        the conversation; when that failed, it raises the cause after the last message.
        """
        return AllMessages(self._storage)

    def __aiter__(self) -> AsyncIterator[Message]:
        return self.messages()

    async def changed(self) -> None:
        """Return at the next sign of life: a message, the end, an answered question. For loops that watch the query's facts."""
        await self._storage.change()


def _checked(uuid: object) -> str:
    """A uuid as it goes over the wire and comes back; an empty one would come back as none, and its turn would never be found."""
    if uuid is None or isinstance(uuid, uuids.UUID):
        return str(uuid or uuids.uuid4())
    if not isinstance(uuid, str) or not uuid:
        raise UsageError(f"a uuid is text that is not empty, or a uuid.UUID, not {uuid!r}")
    return uuid
