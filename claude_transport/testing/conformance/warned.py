"""`Warned`: whether anything was logged as a warning meanwhile."""

from __future__ import annotations

import logging
from typing import Self

__all__ = ["Warned"]


class Warned(logging.Handler):
    """True when something was logged at WARNING or above inside the block, by a logger whose records reach the root."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record."""
        self.records.append(record)

    def __bool__(self) -> bool:
        return bool(self.records)

    def __enter__(self) -> Self:
        logging.getLogger().addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger().removeHandler(self)
