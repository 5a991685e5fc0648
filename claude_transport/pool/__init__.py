"""Warm sessions: started and initialised before anybody asks for them, never more than so many, each for one use.

Each module owns one noun: `limits` how many, how old and how large (pure), `recipe` what every session is made of, `session` one of them,
`memory` how large a process is, `snapshot` what can be seen of it all, `waiter` somebody who waits for one, `pool` the whole.
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
