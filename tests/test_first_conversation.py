"""What a program loads on its way to the first message: what most conversations never need is loaded when it is."""

from __future__ import annotations

import json
import subprocess
import sys

NEVER_ON_THE_WAY = {
    "claude_transport.protocol.tape": "a recording",
    "claude_transport.streams.launched": "a launcher",
    "claude_transport.streams.tls": "a network",
    "claude_transport.transports.network": "a network",
    "claude_transport.wrappers.base": "a wrapper",
}
"""Module, and what it is loaded for."""


def test_what_a_conversation_may_never_need_is_not_loaded_for_it() -> None:
    names = "from claude_transport import ClaudeOptions, Query, SubprocessTransport"
    code = f"{names}\nimport json, sys\nprint(json.dumps([name for name in sys.modules if name.startswith('claude_transport')]))"
    ran = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, timeout=60)
    loaded = set(json.loads(ran.stdout))
    assert "claude_transport.client.query" in loaded
    assert loaded & set(NEVER_ON_THE_WAY) == set()
