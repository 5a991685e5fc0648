"""Which reply is next: a sequence, a router on the prompt, or a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from claude_transport.errors import ConfigurationError
from claude_transport.testing.api_requests import RecordedRequest
from claude_transport.testing.replies import ErrorReply, MessageReply, RawReply, Reply, text

__all__ = ["Script", "ScriptLike"]

ReplyLike: TypeAlias = Reply | str
ScriptLike: TypeAlias = (
    ReplyLike | Sequence[ReplyLike] | Mapping[str, ReplyLike | Sequence[ReplyLike]] | Callable[[RecordedRequest], ReplyLike] | None
)


class Script:
    """The reply for each model request: `script` may be

    * a reply, or a string for a text reply: used for every request;
    * a sequence of them: each is used for its `times` requests, then `default`;
    * a mapping from a part of the prompt to either of these: the first key that occurs in the prompt wins (an empty key always does);
    * a function from the request to a reply, called once per request (its reply's `times` means nothing);
    * None: always `default`.

    Raises `ConfigurationError` for anything else, and when a reply with `times=None` hides replies behind it.
    """

    def __init__(self, script: ScriptLike = None, *, default: ReplyLike = "Hello from the fake Messages API.") -> None:
        self._default = _reply(default)
        self._function: Callable[[RecordedRequest], ReplyLike] | None = None
        self._routes: dict[str, _Line] = {}
        if isinstance(script, Mapping):
            self._routes = {str(key): _Line(value) for key, value in script.items()}
        elif callable(script):
            self._function = script
        elif script is not None:
            self._routes = {"": _Line(script)}

    def reply_to(self, request: RecordedRequest) -> Reply:
        """The next reply for this request; what a scripted function raises comes out as it is."""
        if self._function is not None:
            return _reply(self._function(request))
        for key, line in self._routes.items():
            if key in request.prompt:
                return line.pop() or self._default
        return self._default


class _Line:
    """Replies in a row, each used for its `times`."""

    def __init__(self, replies: ReplyLike | Sequence[ReplyLike]) -> None:
        if isinstance(replies, str | MessageReply | ErrorReply | RawReply):
            self._left: list[tuple[Reply, int | None]] = [(_reply(replies), None)]
            return
        if not isinstance(replies, Sequence):
            raise ConfigurationError(f"a script is made of replies, not of {type(replies).__name__}", option="script")
        made = [_reply(reply) for reply in replies]
        if any(reply.times is None for reply in made[:-1]):
            raise ConfigurationError("a reply with times=None hides those behind it: say how many times", option="script")
        self._left = [(reply, reply.times) for reply in made]

    def pop(self) -> Reply | None:
        if not self._left:
            return None
        reply, times = self._left[0]
        if times is not None:
            self._left[:1] = [(reply, times - 1)] if times > 1 else []
        return reply


def _reply(value: ReplyLike) -> Reply:
    if isinstance(value, str):
        return text(value)
    if not isinstance(value, MessageReply | ErrorReply | RawReply):
        raise ConfigurationError(f"a reply or a string is needed, not {type(value).__name__}", option="script")
    if value.times is not None and value.times < 1:
        raise ConfigurationError(f"times={value.times}: a reply answers at least one request", option="times")
    return value
