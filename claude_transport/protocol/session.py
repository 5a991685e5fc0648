"""Which session a conversation is in: what its options asked for, what the CLI says, and where it could be taken up again."""

from __future__ import annotations

from claude_transport.protocol.envelope import Message


class SessionForked(Message, frozen=True, kw_only=True):
    """The session that runs (`actual`) is another one than was named (`expected`); handed on right behind the init that says so.

    `expected` is the id that the options name (`session_id`, else `resume`), or the one this conversation was in before. `requested` is
    True when a fork was asked for: the resumed session stays as it is, and what is said from here on belongs to `actual` alone. When
    it is False, whoever keeps conversations by session id has to look: an older CLI, another machine or a third-party transport may
    answer a resume with a new session. A `/clear` says `ConversationReset` instead. CLI 2.1.329 keeps the id of a resume [16b], takes
    the one it is told [16d, 16m], and makes up a new one only for a fork.
    """

    expected: str = ""
    actual: str = ""
    requested: bool = False

    @property
    def type(self) -> str:
        """Always `session_forked`, which is never on the wire: `raw` is empty."""
        return "session_forked"

    def to_dict(self) -> dict[str, str | bool]:
        """The fields, and the type."""
        return {"type": self.type, "expected": self.expected, "actual": self.actual, "requested": self.requested}


class SessionIdentity:
    """The session id and the place to resume at, taken from `system/init` and from nothing else.

    Other frames carry a session id, too. The result of a resume that failed names the session that was asked for and does not exist
    [16g], and the `new_conversation_id` of a reset is not the id of the session that follows it [18za].
    """

    def __init__(self) -> None:
        self._expected: str | None = None
        self._fork_requested = False
        self.session_id: str | None = None
        self.last_uuid: str | None = None
        """The last message of the main thread: where a resumed session would go on."""

    def expect(self, session_id: str | None, *, fork: bool = False) -> None:
        """The options name this session; with `fork` they ask for a copy of it under a new id."""
        self._expected = session_id
        self._fork_requested = fork

    def entered(self, session_id: str | None) -> SessionForked | None:
        """An init names `session_id`: the message to hand on when that is not the session that was to be expected."""
        if not session_id or session_id == self.session_id:
            return None
        expected, requested = self.session_id or self._expected, self._fork_requested
        # what was said in the session before is no place to resume this one at
        self.session_id, self.last_uuid = session_id, None
        self._expected, self._fork_requested = None, False
        return None if expected in (None, session_id) else SessionForked(expected=expected or "", actual=session_id, requested=requested)

    def spoke(self, uuid: str | None) -> None:
        """The main thread said something, under this uuid."""
        self.last_uuid = uuid or self.last_uuid

    def reset(self) -> None:
        """The conversation was cleared: the next init names a new session, and rightly so."""
        self.session_id = self.last_uuid = None
        self._expected = None
