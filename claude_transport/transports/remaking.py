"""`Remakable`: a transport that knows what it was made with, so that another one can be made."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Self

from claude_transport.transport import Transport

__all__ = ["Remakable"]


class Remakable(Transport):
    """Remembers its arguments, whatever a subclass takes, for `reconnect()`.

    It is a class of its own so that the `__init__` of a transport is nearer than this `__new__`, and `help()` shows its arguments.
    """

    _make_another: Callable[[], Self]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        self = super().__new__(cls)
        self._make_another = functools.partial(cls, *args, **kwargs)
        return self
