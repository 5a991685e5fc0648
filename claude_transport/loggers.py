"""The loggers of this library. They print nothing in a program that has configured no logging.

Each module takes its logger from here, and not from `logging`: importing the package alone then does not load `logging`, which would take
longer than the rest of that import.
"""

from __future__ import annotations

import logging

_ROOT = __name__.partition(".")[0]

logging.getLogger(_ROOT).addHandler(logging.NullHandler())  # without any handler, logging itself writes warnings to stderr


def logger_for(module: str) -> logging.Logger:
    """Return the logger of a module of this library; `module` is its `__name__`."""
    return logging.getLogger(module)
