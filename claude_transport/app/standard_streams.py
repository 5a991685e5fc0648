"""stdin, stdout and stderr of the program: streams that are missing at the start, whole lines of output, and the last flush.

Nothing here needs an event loop or another package: every command uses it, and so does `--help`. Output that must not block an event
loop, and what a terminal shows, is in `terminal`.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Final, TextIO

from claude_transport.errors import ClaudeTransportError, ClaudeTransportWarning

_STREAMS: Final = (
    ("stdin", 0, os.O_RDONLY, "r", "strict"),
    ("stdout", 1, os.O_RDONLY, "w", "strict"),  # read-only: writing to a closed stdout must fail, not get lost
    ("stderr", 2, os.O_WRONLY, "w", "backslashreplace"),
)


def open_missing_streams() -> None:
    """Open each standard stream that the process was started without (`<&-`).

    stdin is then empty, writing to stdout fails, and what is written to stderr is lost. Without this, the next file that is opened would
    get the number of the missing stream, and a child's stderr could end up in that file.
    """
    for name, number, flags, mode, errors in _STREAMS:
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, flags)
            if opened != number and not _is_open(number):
                os.dup2(opened, number)
                os.close(opened)
                opened = number
            os.set_inheritable(opened, True)
            setattr(sys, name, open(opened, mode, encoding="utf-8", errors=errors, closefd=False))  # noqa: SIM115 - stays open


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def write_out(text: str) -> None:
    """Write lines to stdout at once. Characters that its encoding lacks become `?`.

    Raises:
        ClaudeTransportError: stdout cannot be written to (`output.failed`).
        BrokenPipeError: The reader of stdout has gone.
    """
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    with told_as_output_failure():
        print(text.encode(encoding, "replace").decode(encoding), flush=True)


def write_remark(text: str) -> None:
    """Write a line to stderr at once. It is lost if stderr cannot be written to."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def told_as_output_failure() -> Iterator[None]:
    """Turn an `OSError` of a block that writes to stdout into `output_failure()`. A `BrokenPipeError` stays as it is."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise output_failure(error) from error


def output_failure(error: OSError) -> ClaudeTransportError:
    """Return the error for a stdout that cannot be written to, such as a full disk or a closed stream. Its code is `output.failed`."""
    why = "it is closed" if error.errno == errno.EBADF else error.strerror or str(error)
    return ClaudeTransportError(f"cannot write to stdout: {why}", code="output.failed", category="output")


def last_flush(stream: TextIO) -> OSError | None:
    """Flush a stream at the end of the program, and return what went wrong, or None.

    After a failure the stream leads to the null device. Otherwise the interpreter's own flush would fail again, and exit with 120.
    """
    try:
        stream.flush()
    except OSError as error:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
        return error
    except ValueError:
        pass  # closed: there is nothing left to flush
    return None


@contextlib.contextmanager
def warnings_as_log() -> Iterator[None]:
    """A block in which each `ClaudeTransportWarning` is a warning of the library's log: every command shows that in its own way.

    Filters of the interpreter do not apply to it: with `python -W error`, the program works as without.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("default", category=ClaudeTransportWarning)
        show = warnings.showwarning

        def log(
            message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None, line: str | None = None
        ) -> None:
            if issubclass(category, ClaudeTransportWarning):
                logging.getLogger("claude_transport").warning("%s", message)
            else:
                show(message, category, filename, lineno, file, line)

        warnings.showwarning = log
        yield


@contextlib.contextmanager
def warnings_to_stderr() -> Iterator[None]:
    """A block in which warnings of the library's log go to stderr, unless the command shows the log itself, or logging is configured."""
    root = logging.getLogger()
    if root.handlers:
        yield
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.WARNING)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
