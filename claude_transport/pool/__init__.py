"""A pool of warm sessions: processes of `claude` that were started and initialised before they are needed.

`SessionPool` lends each to one user. `PoolSnapshot` is what the pool holds at one moment. `Retirement` says why the pool ended a session.
"""

from __future__ import annotations

from claude_transport.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "agents.warm_pool": "PoolSnapshot Retirement",
        "pool.pool": "SessionPool",
    },
)
