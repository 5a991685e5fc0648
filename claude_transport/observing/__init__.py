"""Watching a running session without taking it over.

`observe` returns an `Observation`: an async iterator over `ObservedLine`s. The session is one of this process, in an `ObservableTransport`,
or one of a gateway. `ReplayGap` is raised for a position that is not kept any more.
"""

from __future__ import annotations

from claude_transport.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "errors": "ReplayGap",
        "serving.following": "Observation",
        "observing.observers": "observe",
        "protocol.observation": "ObservedLine",
        "wrappers.observable": "ObservableTransport",
    },
)
