"""`ObservableTransport`: keeps the last lines of a conversation, so that `observe()` can show them while it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import anyio

from claude_transport.errors import ConfigurationError
from claude_transport.protocol.observation import DEFAULT_KEPT_BYTES, LineLog
from claude_transport.protocol.tape import INPUT_ENDED, OUTPUT_ENDED
from claude_transport.transport import TransportLike, info_of
from claude_transport.wrappers.base import ObservingWrapper
from claude_transport.wrappers.redactor import redactor_for


class ObservableTransport(ObservingWrapper):
    """Wraps `transport`, and keeps its last lines in both directions for `observe()`. The conversation never waits for an observer.

    Args:
        scrub: redact what observers see, as a tape is: secrets, home directories, user names and e-mail addresses. With False they see
            every line as it is.
        max_bytes: bytes of lines to keep. Older lines are forgotten, and so is a line that alone is longer.

    Raises:
        ConfigurationError: `max_bytes` is not a positive whole number.
    """

    def __init__(self, transport: TransportLike, *, scrub: bool = True, max_bytes: int = DEFAULT_KEPT_BYTES) -> None:
        super().__init__(transport)
        if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 1:
            raise ConfigurationError("max_bytes must be a positive whole number", option="max_bytes")
        self.scrub: bool = bool(scrub)
        """Whether observers see redacted lines."""
        self._max_bytes = max_bytes
        self._log: LineLog | None = None

    @property
    def log(self) -> LineLog:
        """The lines that are kept. `observe()` reads it. It needs a running event loop, whose clock it uses."""
        if self._log is None:
            self._log = LineLog(clock=anyio.current_time, redactor=partial(redactor_for, self.transport), max_bytes=self._max_bytes)
        return self._log

    def on_written(self, data: str | bytes) -> None:
        """Keep lines that the wrapped transport has taken."""
        raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
        self.log.append_lines("in", [line for line in raw.split(b"\n") if line])

    def on_lines(self, lines: Sequence[bytes]) -> None:
        """Keep lines that were read."""
        self.log.append_lines("out", lines)

    def on_input_ended(self) -> None:
        """Keep a note that the input has ended."""
        self.log.append_lines("note", [INPUT_ENDED])

    def on_read_end(self, error: Exception | None) -> None:
        """Keep notes about the end of the output, and end the log: nothing more can be read."""
        info = info_of(self.transport)
        exit_code, signal = getattr(error, "exit_code", info.exit_code), getattr(error, "signal", info.signal)
        self.log.end(exit_code=exit_code, signal=signal)

    def on_closed(self, error: BaseException | None) -> None:
        """End the log, if the output was not read to its end."""
        info = info_of(self.transport)
        self.log.end(exit_code=info.exit_code, signal=info.signal, notes=() if info.exit_code is None else (OUTPUT_ENDED,))
