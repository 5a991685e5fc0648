"""client"""

from __future__ import annotations

from claude_transport.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "client.lanes": "Lane Lanes split_by_parent",
        "client.query": "Query QueryOptions",
        "client.questions": "Allow CallbackContext Deny HookMatcher",
        "client.reports": "CloseReport InterruptOutcome ResumePoint",
        "client.storage": "Turn",
        "client.watchdog": "StallEvent Watchdog",
    },
)
