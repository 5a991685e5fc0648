"""`QueryOptions`: the keyword arguments of `Query`, as a type, for functions that hand them on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from claude_transport.query.handlers import CanUseToolCallback, HookMatcher, OnCallbackError
from claude_transport.query.questions import OnRequest
from claude_transport.query.watchdog import Watchdog

__all__ = ["QueryOptions"]


class QueryOptions(TypedDict, total=False):
    """What `Query` takes beside its transport, each key with the meaning and the default that it has there.

    For `**query_options: Unpack[QueryOptions]`: type checkers then know every name, and refuse a misspelt one.
    """

    can_use_tool: CanUseToolCallback | None
    hooks: Mapping[str, Sequence[HookMatcher]] | None
    mcp_servers: Mapping[str, Any] | None
    agents: Mapping[str, Any] | None
    initialize: Mapping[str, Any] | None
    on_request: OnRequest | None
    on_callback_error: OnCallbackError
    initialize_timeout: float
    transport_close_timeout: float
    max_buffered_bytes: int
    watchdog: Watchdog | None
