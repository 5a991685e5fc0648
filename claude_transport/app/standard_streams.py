"""stdin, stdout and stderr at both ends of a run: stand-ins for those that were closed, and a last flush that is not lost on anybody."""

from __future__ import annotations

import os
import sys
from typing import Final, TextIO

_STREAMS: Final = (
    ("stdin", 0, os.O_RDONLY, "r", "strict"),
    ("stdout", 1, os.O_RDONLY, "w", "strict"),  # not for writing: what is written to a stdout that is closed must not seem to arrive
    ("stderr", 2, os.O_WRONLY, "w", "backslashreplace"),
)


def open_missing_streams() -> None:
    """Give the process each stream that it was started without (`<&-`): a stdin that is empty, a stdout that fails, a stderr for nobody.

    Without them, the next file that is opened would get the number of the missing one, and what a child says on stderr could end up in it.
    """
    for name, number, flags, mode, errors in _STREAMS:
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, flags)
            if opened != number and not _is_open(number):
                os.dup2(opened, number)
                os.close(opened)
                opened = number
            os.set_inheritable(opened, True)
            setattr(sys, name, open(opened, mode, encoding="utf-8", errors=errors, closefd=False))  # noqa: SIM115 - for good


def last_flush(stream: TextIO) -> OSError | None:
    """What kept the rest of the stream from arriving, or None. The stream then leads nowhere.

    Else the interpreter's own flush would fail once more: it would complain, and exit with 120.
    """
    try:
        stream.flush()
    except OSError as error:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        return error
    except ValueError:
        pass  # closed: there is nothing left to flush
    return None


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
