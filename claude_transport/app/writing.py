"""What is written to stdout and stderr as a whole, and how it is told that it could not be."""

from __future__ import annotations

import contextlib
import errno
import sys
from collections.abc import Iterator

from claude_transport.errors import ClaudeTransportError


def output_failure(error: OSError) -> ClaudeTransportError:
    """The error for a stdout that cannot be written to: a full disk, a stream that is closed. Its code is `output.failed`."""
    why = "it is closed" if error.errno == errno.EBADF else error.strerror or str(error)
    return ClaudeTransportError(f"cannot write to stdout: {why}", code="output.failed", category="output")


@contextlib.contextmanager
def told_as_output_failure() -> Iterator[None]:
    """A block that writes to stdout. A reader that has gone stays a `BrokenPipeError`: that is no failure that anybody needs to hear of."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise output_failure(error) from error


def write_out(text: str) -> None:
    """A line on stdout, or several, at once; what its encoding lacks becomes `?`. Raises `output_failure()`, or `BrokenPipeError`."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    with told_as_output_failure():
        print(text.encode(encoding, "replace").decode(encoding), flush=True)


def write_remark(text: str) -> None:
    """A line on stderr, at once; lost when nobody can read it, for what it is about is not."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)
