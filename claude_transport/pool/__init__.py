"""Warm sessions: started before they are needed, bounded in number, and each used once.

* `pool`: `SessionPool`, what users see.
* `stock`: the sessions of a pool, their limits, and the decisions to start, hand out and end them.
"""

from __future__ import annotations

from claude_transport.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "pool.pool": "SessionPool",
        "pool.stock": "PoolSnapshot Retirement",
    },
)
