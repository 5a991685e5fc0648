"""`Facts`: what can be seen of a conversation at any time, from anywhere."""

from __future__ import annotations

from claude_transport.errors import NotConnected
from claude_transport.protocol.conversation import Conversation
from claude_transport.protocol.initialization import InitializationInfo
from claude_transport.query.connection import Connection
from claude_transport.query.life import Life
from claude_transport.query.questions import Questions
from claude_transport.query.reports import ResumePoint
from claude_transport.query.requests import Requests
from claude_transport.query.starting import Starting
from claude_transport.query.storage import Storage
from claude_transport.transport import TransportInfo

__all__ = ["Facts"]


class Facts:
    """The facts of a `Query`: looking at them costs next to nothing and changes nothing."""

    _conversation: Conversation
    _connection: Connection
    _life: Life
    _start: Starting
    _storage: Storage
    _questions: Questions
    _requests: Requests

    def __repr__(self) -> str:
        counts = {
            "open turns": len(self.open_turns),
            "pending requests": len(self.pending_requests),
            "pending questions": len(self.pending_questions),
            "buffered bytes": self.buffered_bytes,
            "failed callbacks": self.failed_callbacks,
        }
        said = [f"{count} {what}" for what, count in counts.items() if count]
        return f"<Query over {self.info.kind}: {', '.join([self._life.phase, *said])}>"

    @property
    def initialization(self) -> InitializationInfo:
        """The CLI's answer to `initialize`: commands, models, account, capabilities, …"""
        if self._start.initialization is None:
            raise NotConnected("the query has not been initialised")
        return self._start.initialization

    @property
    def info(self) -> TransportInfo:
        """What is known of the connection."""
        return self._connection.info

    @property
    def is_quiet(self) -> bool:
        """True when nothing is under way that could still ask the host for something, so that input may end."""
        return self._conversation.quiet

    @property
    def is_running(self) -> bool:
        """True while a turn runs or waits: while there is something an interrupt could stop."""
        return self._conversation.is_running

    @property
    def has_ended(self) -> bool:
        """True once the peer has ended, or the query is closed."""
        return self._life.is_over

    @property
    def resume_point(self) -> ResumePoint | None:
        """Session id and last message, to take the conversation up with a new process; None before the first turn."""
        session_id = self._conversation.session_id
        return None if session_id is None else ResumePoint(session_id, self._conversation.last_uuid)

    @property
    def open_turns(self) -> tuple[str, ...]:
        """Uuids of the prompts that have neither a result nor another end, in the order of sending."""
        return self._conversation.open_turns

    @property
    def late_responses(self) -> int:
        """Answers that came for requests nobody waited for any more."""
        return self._conversation.late_responses

    @property
    def pending_requests(self) -> dict[str, str]:
        """Our requests that wait for an answer: id to subtype."""
        return self._requests.pending

    @property
    def pending_questions(self) -> tuple[str, ...]:
        """Ids of the CLI's requests whose callbacks are still at work."""
        return self._questions.open

    @property
    def failed_callbacks(self) -> int:
        """Callbacks (can_use_tool, hooks, on_request, MCP servers of this program) that raised, cancelled themselves, or gave no answer
        that the CLI could be told. Each is logged by `claude_transport.query.failures`; the conversation goes on."""
        return self._questions.failures.failed

    @property
    def late_answers(self) -> int:
        """Answers of callbacks that were dropped: the CLI had withdrawn its question by then, or a hook had overrun its time."""
        return self._questions.failures.late

    @property
    def background_tasks(self) -> dict[str, str]:
        """Background agents at work: task id to description."""
        return self._conversation.background_agents

    @property
    def buffered_bytes(self) -> int:
        """Bytes of memory that messages take which were read and not yet taken.

        It is an estimate: the line of each message, its Struct, and the objects that were made of its JSON, which are counted by the
        brackets, commas and colons of the line. What they really take is never more than twice as much. A message that waits both in
        a turn and for `messages()` counts twice.
        """
        return self._storage.buffered_bytes

    @property
    def dropped_messages(self) -> int:
        """Unread messages that were given up to stay within `max_buffered_bytes`."""
        return self._storage.dropped_messages
