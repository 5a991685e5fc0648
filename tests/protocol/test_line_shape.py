"""`shape_of()`: what the outermost fields of a line tell about who speaks, and never an error."""

from __future__ import annotations

import pytest

from claude_transport.protocol.framing import OversizedLine
from claude_transport.protocol.line_shape import LineShape, shape_of

LONGEST = 2**20
"""Bytes of the longest line that is read."""


def padded(line: bytes, size: int) -> bytes:
    """Return an object with as many spaces at its end as make it `size` bytes."""
    return line[:-1] + b" " * (size - len(line)) + line[-1:]


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"user","message":{}}',
        b'{"type":"control_request","request":{"subtype":"mcp_message","message":{"method":"x","id":1}}}',
        b' { "message" : {} , "type" : "assistant" } ',
        b'{"type":"session.created"}',
        b'{"type":"user","id":1,"method":"x","result":{}}',
        b'{"type":"threads"}',
        b'{"type":7}',
        b'{"type":null}',
        padded(b'{"type":"user"}', LONGEST),
    ],
)
def test_a_type_makes_a_typed_line_whatever_else_it_holds(line: bytes) -> None:
    assert shape_of(line) is LineShape.TYPED


@pytest.mark.parametrize("name", ["thread.started", "turn.started", "turn.completed", "item.updated"])
def test_three_beginnings_of_a_type_make_an_event(name: str) -> None:
    assert shape_of(b'{"thread_id":"t","type":"%s"}' % name.encode()) is LineShape.EVENT


@pytest.mark.parametrize(
    "line",
    [
        b'{"id":0,"method":"initialize","params":{"type":"user"}}',
        b'{"jsonrpc":"2.0","method":"initialized"}',
        b'{"method":null}',
        b'{"id":1,"result":null}',
        b'{"id":1,"result":{}}',
        b'{"error":{},"id":1}',
        b'{"id":null,"error":{"code":-32700}}',
        padded(b'{"method":"initialized"}', LONGEST),
    ],
)
def test_a_method_or_an_id_with_an_answer_makes_json_rpc(line: bytes) -> None:
    assert shape_of(line) is LineShape.RPC


@pytest.mark.parametrize(
    "line",
    [
        b'{"id":1}',
        b'{"result":{}}',
        b'{"error":{}}',
        b'{"message":{"type":"user"}}',
        b"{}",
        b"[]",
        b"7",
        b"null",
        b"",
        b"not JSON",
        b'{"type":',
        b'{"type":"user"',
        b"\xff\xfe",
        b'{"other":"\xff"}',
        b"[" * 100_000,
        b'{"params":' + b"[" * 100_000,
        OversizedLine(b'{"type":"user"', size=10**9, limit=14),
        OversizedLine(b'{"type":"user"}', size=10**9, limit=15),
        padded(b'{"type":"user"}', LONGEST + 1),
        padded(b'{"method":"initialized"}', LONGEST + 1),
    ],
    ids=lambda line: repr(line[:40]),
)
def test_anything_else_tells_nothing_and_raises_nothing(line: bytes) -> None:
    assert shape_of(line) is None
