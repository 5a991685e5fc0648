"""Logs each line on the wire as one JSON object, made from the fields of the record."""

from __future__ import annotations

import json
import logging
import sys

import anyio

import claude_transport as ct
from claude_transport import testing


class JsonLines(logging.Formatter):
    """The fields of `LoggingTransport`, as JSON."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {name.removeprefix("claude_"): value for name, value in vars(record).items() if name.startswith("claude_")}
        for varying in ("request_id", "uuid", "size"):  # so that this page always shows the same
            fields.pop(varying, None)
        return json.dumps({"level": record.levelname, **fields})


async def main() -> None:
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonLines())
    wire = logging.getLogger("claude_transport.wire")
    wire.addHandler(handler)
    wire.setLevel(logging.DEBUG)
    try:
        transport = ct.LoggingTransport(ct.MockTransport([testing.result("Done.")]))
        async with ct.Query(transport) as query:
            await (await query.send("My key is sk-ant-api03-not-a-real-one")).result()
    finally:
        wire.removeHandler(handler)
        wire.setLevel(logging.NOTSET)


if __name__ == "__main__":
    anyio.run(main)
