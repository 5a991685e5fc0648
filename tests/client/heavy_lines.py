"""Lines that take much more memory once they are read than they have bytes, and everyday ones; by name."""

from __future__ import annotations

import json

MANY = 3000


def event(value: bytes) -> bytes:
    return b'{"type":"stream_event","event":{"a":' + value + b"}}"


def listed(item: bytes, *, count: int = MANY) -> bytes:
    return event(b"[" + b",".join([item] * count) + b"]")


def keyed(value: bytes, *, count: int = MANY) -> bytes:
    return b"{" + b",".join(b'"%x":%b' % (number, value) for number in range(count)) + b"}"


def spoken(*items: bytes) -> bytes:
    return b'{"type":"assistant","message":{"content":[' + b",".join(items) + b"]}}"


def text(content: str) -> bytes:
    return spoken(b'{"type":"text","text":"' + content.encode() + b'"}')


UUID = b'"0f5d5c0e-1111-4222-8333-444455556666"'

TINY = {
    "an empty object": b"{}",
    "one letter": b"x",
    "an empty list": b"[]",
    "a torn object": b"{",
    "not a number": b'{"a":NaN}',
    "a keep-alive": b'{"type":"keep_alive"}',
    "a bare event": b'{"type":"stream_event"}',
    "a bare assistant message": b'{"type":"assistant"}',
    "a bare user message": b'{"type":"user"}',
    "a bare result": b'{"type":"result"}',
    "a bare system message": b'{"type":"system"}',
    "a bare init": b'{"type":"system","subtype":"init"}',
    "a bare answer": b'{"type":"control_response","response":{}}',
    "a question of an unknown kind": b'{"type":"control_request","request_id":"a","request":{"subtype":"z"}}',
    "a result with empty usage": b'{"type":"result","usage":{},"modelUsage":{"a":{}}}',
}
"""Lines of a few bytes."""

EVERYDAY = {
    "a piece of text": b'{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta",'
    b'"text":"hello"}},"session_id":%b,"parent_tool_use_id":null,"uuid":%b}' % (UUID, UUID),
    "an answer of 2.3 KB": b'{"type":"assistant","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude",'
    b'"content":[{"type":"text","text":"%b"}],"usage":{"input_tokens":1,"output_tokens":2}},"session_id":%b,"uuid":%b}'
    % (b"word " * 400, UUID, UUID),
    "an answer of 1 MB": text("word " * 200_000),
    "a file of JSON": text(json.dumps(json.dumps([{"name": "a", "values": [1, 2, 3]}] * 1000))[1:-1]),
    "a table": text("1,2,3,4," * 5000),
    "a path of Windows": text("C:\\\\users\\\\a, " * 1000),
    "code": text("if (a[0] == {x: [1]}) { f(a, b); }" * 1000),
    "German": text("übergröße " * 2000),
    "Chinese": text("漢字" * 2000),
    "an init with many tools": b'{"type":"system","subtype":"init","tools":[' + b",".join([b'"Bash"'] * 300) + b"]}",
    "noise": b"warning: the cache at /tmp is not writable, going on without it" * 4,
}

HOSTILE = {
    "one emoji in a long text": text("🎉" + "word " * 20_000),
    "one escaped emoji in a long text": spoken(b'{"type":"text","text":"\\ud83c\\udf89' + b"word " * 20_000 + b'"}'),
    "nothing but emoji": text("🎉" * 2000),
    "empty objects": listed(b"{}"),
    "empty lists": listed(b"[]"),
    "zeros": listed(b"0"),
    "numbers": listed(b"999"),
    "long numbers": listed(b"9" * 25),
    "fractions": listed(b"5e9"),
    "short texts": listed(b'"ab"'),
    "empty texts": listed(b'""'),
    "short German texts": listed('"éa"'.encode()),
    "short Chinese texts": listed('"漢a"'.encode()),
    "short texts of emoji": listed('"🎉a"'.encode()),
    "escaped emoji": listed(b'"\\ud83c\\udf89"'),
    "objects of one key": listed(b'{"a":0}'),
    "objects of an empty key": listed(b'{"":0}'),
    "objects of six keys": listed(b'{"a":0,"b":0,"c":0,"d":0,"e":0,"f":0}'),
    "lists of one number": listed(b"[0]"),
    "lists within lists": event(b"[" * 400 + b"]" * 400),
    "many short stacks of lists": listed(b"[" * 20 + b"]" * 20, count=200),
    "objects within objects": event(b'{"a":' * 400 + b"0" + b"}" * 400),
    "many keys": event(keyed(b"0")),
    "as many keys as just made a dict grow": event(keyed(b"0", count=21_846)),
    "many keys of empty texts": event(keyed(b'""')),
    "empty text blocks": spoken(*[b'{"type":"text"}'] * MANY),
    "empty tool uses": spoken(*[b'{"type":"tool_use"}'] * MANY),
    "empty images": spoken(*[b'{"type":"image"}'] * MANY),
    "empty usage of many models": b'{"type":"result","modelUsage":' + keyed(b"{}") + b"}",
    "empty denials": b'{"type":"result","permission_denials":[' + b",".join([b"{}"] * MANY) + b"]}",
    "empty servers": b'{"type":"system","subtype":"init","mcp_servers":[' + b",".join([b"{}"] * MANY) + b"]}",
    "as many misfits as are saved": spoken(*[b"7"] * 900),
    "misfits with long paths": b'{"type":"result","modelUsage":{'
    + b",".join(b'"%b%d":{"inputTokens":"","outputTokens":"","costUSD":""}' % (b"k" * 100, number) for number in range(200))
    + b"}}",
    "blocks without a type": spoken(*[b"{}"] * 900),
    "a type of 100 kB": b'{"type":"' + b"z" * 100_000 + b'"}',
    "a type of 100 kB with an emoji": b'{"type":"' + "🎉".encode() + b"z" * 100_000 + b'"}',
}
"""Lines that a hostile peer might choose."""
