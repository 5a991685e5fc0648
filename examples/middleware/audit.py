"""A wrapper that keeps an audit file of what was asked and answered, without secrets, in files of a limited size."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from logging.handlers import RotatingFileHandler
from pathlib import Path

import anyio

import claude_transport as ct
from claude_transport import testing
from claude_transport.wrappers import ObservingWrapper, peek, redactor_for

KEPT = {"user", "assistant", "result", "control_request", "control_response"}


class RotatingAudit(ObservingWrapper):
    """Writes the lines of both directions to `path`, and begins another file after `max_bytes`."""

    def __init__(self, transport: ct.TransportLike, path: Path, *, max_bytes: int = 10_000_000) -> None:
        super().__init__(transport)
        self.redactor = redactor_for(transport)  # knows the values in env={…} of the options below
        self.file = RotatingFileHandler(path, maxBytes=max_bytes, backupCount=3, encoding="utf-8")

    def on_written(self, data: str | bytes) -> None:
        for line in (data.encode() if isinstance(data, str) else data).splitlines():
            self.keep(">", line)

    def on_lines(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            self.keep("<", line)

    def keep(self, direction: str, line: bytes) -> None:
        if peek(line).type in KEPT:
            text = self.redactor.line(line).decode("utf-8", "replace")
            self.file.emit(logging.makeLogRecord({"msg": f"{direction} {text}"}))

    def on_closed(self, error: BaseException | None) -> None:
        self.file.close()


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder, testing.FakeClaude(testing.Scenario.text("The token is tok-4711-secret.")) as fake:
        path = Path(folder, "audit.log")
        options = ct.ClaudeOptions(cli_path=fake.path, env={"ACME_TOKEN": "tok-4711-secret"})
        async with ct.Query(RotatingAudit(ct.SubprocessTransport(options), path)) as query:
            answer = await (await query.send("What is the token?")).result()
        print(answer.result)
        kept = await anyio.Path(path).read_text("utf-8")
    print("asked:", "What is the token?" in kept, "· secret:", "tok-4711" in kept, "· removed:", "[secret]" in kept)


if __name__ == "__main__":
    anyio.run(main)
