"""Every recording is replayed through a live `Query`, which says what the recorded host said, and hears what it heard."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from recorded_host import RecordedHost

from claude_transport.errors import ControlRequestFailed
from claude_transport.protocol.codec import LineDecoder
from claude_transport.protocol.expectation import ExpectationFailed
from claude_transport.protocol.tape import Tape

# those of this repository, or another CLI's: the folder that CLAUDE_TRANSPORT_RECORDINGS names
RECORDINGS = sorted(Path(os.environ.get("CLAUDE_TRANSPORT_RECORDINGS") or Path(__file__).parent.parent / "recordings").glob("*.ndjson"))

CONTROL = ("control_request", "control_response", "control_cancel_request", "keep_alive")


def with_recorded_ids(line: bytes, uuids: Mapping[str, str]) -> Any:
    """The frame with the ids that it has on the tape, except those of requests, which are the live host's own affair."""
    for live, recorded in uuids.items():
        line = line.replace(live.encode(), recorded.encode())
    try:
        frame = msgspec.json.decode(line)
    except (msgspec.DecodeError, ValueError):
        return line
    kind = frame.get("type") if isinstance(frame, dict) else None
    if kind == "control_response":
        frame["response"].pop("request_id", None)
    elif kind == "system":
        frame.pop("request_id", None)
    return frame


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
async def test_a_recording_is_replayed_to_its_end_and_heard_as_it_was(path: Path) -> None:
    host = RecordedHost(Tape.read(path))
    with anyio.fail_after(30):
        await host.run()
    refused = isinstance(host.start_error, ControlRequestFailed)
    error = host.start_error or host.error
    assert refused or not isinstance(error, ExpectationFailed), error
    expected = [record.whole_line for record in host.tape if record.dir == "out"]
    heard = host.tap.heard if host.introduces_itself else host.tap.heard[1:]
    if refused:  # a Query whose `initialize` is refused leaves, where that host went on [02j, 02k]
        del expected[len(heard) :]
    else:
        host.replay.assert_played()
    assert heard or not expected
    assert [with_recorded_ids(line, host.recorded_uuids) for line in heard] == [with_recorded_ids(line, {}) for line in expected]
    typed = [message.raw for message in LineDecoder().messages(host.tap.heard) if message.type not in CONTROL]
    assert [message.raw for message in host.messages] == typed
