"""`redactor_for`: a redactor that knows the secrets of this process, and of the options of one transport."""

from __future__ import annotations

import contextlib
import getpass
import os
from collections.abc import Mapping

from claude_transport.protocol.known_secrets import redactor_knowing
from claude_transport.protocol.redaction import Redactor
from claude_transport.transport import TransportLike

__all__ = ["redactor_for"]

_MAX_WRAPPERS = 16
"""Wrappers around wrappers that are looked through for options."""


def redactor_for(transport: TransportLike, *, confidential: object = None) -> Redactor:
    """A `Redactor` that knows this machine's user and home, and the secrets in this process's environment and the transport's options.

    Of the options these are the values of secretly named variables, headers and settings (`env`, `mcp_servers`, `settings`, …), however
    deep they are, and however many wrappers there are around the transport. `confidential` is looked through likewise.
    """
    environments: list[Mapping[str, str]] = [os.environ]
    holders: list[object] = [confidential]
    inside: object = transport
    for _ in range(_MAX_WRAPPERS):
        options = getattr(inside, "options", None)
        env = getattr(options, "env", None)
        if isinstance(env, Mapping):
            environments.append({name: value for name, value in env.items() if isinstance(value, str)})
        holders.append(options)
        inside = getattr(inside, "transport", None)
    users: set[str] = set()
    with contextlib.suppress(Exception):  # there may be no such user at all, as in a container with a made-up uid
        users.add(getpass.getuser())
    return redactor_knowing(environments, confidential=holders, users=users)
