"""`Recipe`: what every session of a pool is made of."""

from __future__ import annotations

from collections.abc import Callable

from claude_transport.errors import ConfigurationError
from claude_transport.launch.options import ClaudeOptions
from claude_transport.pool.session import LateGuard, PooledSession
from claude_transport.query.arguments import check_callback
from claude_transport.query.query import Query
from claude_transport.query.query_options import QueryOptions
from claude_transport.transport import TransportLike
from claude_transport.transports.subprocess import SubprocessTransport

__all__ = ["MakeTransport", "Recipe"]

MakeTransport = Callable[[ClaudeOptions], TransportLike]
"""Called for every session: a new transport, not connected."""


class Recipe:
    """Options, a way to make transports of them, and the arguments of the queries.

    Raises `ConfigurationError` for options that can serve one session only, and for arguments that no query would take.
    """

    def __init__(self, options: ClaudeOptions | None, *, make_transport: MakeTransport | None, arguments: QueryOptions) -> None:
        self._options = ClaudeOptions() if options is None else options
        self._make_transport = SubprocessTransport if make_transport is None else make_transport
        self._arguments = arguments
        check_callback("make_transport", make_transport)
        _check_for_many(self._options)
        if make_transport is None:
            self.make()  # what is wrong with the arguments is found now, and not by the first session; nothing is started by it

    @property
    def has_guard(self) -> bool:
        """True when the sessions are started in a way that they ask for permission."""
        return self._arguments.get("can_use_tool") is not None

    def make(self) -> PooledSession:
        """A session, not started."""
        callback = self._arguments.get("can_use_tool")
        check_callback("can_use_tool", callback)
        guard = None if callback is None else LateGuard(callback)
        arguments: QueryOptions = {**self._arguments, "can_use_tool": guard}
        return PooledSession(Query(self._make_transport(self._options), **arguments), guard=guard)


def _check_for_many(options: object) -> None:
    if not isinstance(options, ClaudeOptions):
        raise ConfigurationError(f"options is a ClaudeOptions, not {type(options).__name__}", option="options")
    if options.session_id is not None:
        raise ConfigurationError("session_id names one session, and a pool has many: leave it out", option="session_id")
    for option, is_set in (("resume", options.resume is not None), ("continue_conversation", options.continue_conversation)):
        if is_set and not options.fork_session:
            message = f"{option} lets every session of the pool write on the same conversation: set fork_session, too"
            raise ConfigurationError(message, option=option)
