# Written by docs/generate_names.py from the table in __init__.py: do not edit.

from claude_transport.agents.warm_pool import PoolSnapshot as PoolSnapshot
from claude_transport.agents.warm_pool import Retirement as Retirement
from claude_transport.pool.pool import SessionPool as SessionPool

__all__ = [
    "PoolSnapshot",
    "Retirement",
    "SessionPool",
]
