"""What a stream may tell about itself, through any number of wrappers (anyio's typed attributes)."""

from __future__ import annotations

import datetime as dt

from anyio import TypedAttributeSet, typed_attribute

__all__ = ["StreamAttribute"]


class StreamAttribute(TypedAttributeSet):
    """Facts about what is at the other end; a stream provides those that make sense for it."""

    address: str = typed_attribute()
    pid: int = typed_attribute()
    exit_code: int | None = typed_attribute()
    signal: int | None = typed_attribute()
    killed: bool = typed_attribute()
    stderr_tail: str = typed_attribute()
    started_at: dt.datetime = typed_attribute()
    ended: bool = typed_attribute()  # the peer is known to be gone; bytes of it may still wait to be read
