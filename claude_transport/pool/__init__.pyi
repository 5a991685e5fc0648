# Written by docs/generate_names.py from the table in __init__.py: do not edit.

from claude_transport.pool.pool import SessionPool as SessionPool
from claude_transport.pool.stock import PoolSnapshot as PoolSnapshot
from claude_transport.pool.stock import Retirement as Retirement

__all__ = [
    "PoolSnapshot",
    "Retirement",
    "SessionPool",
]
