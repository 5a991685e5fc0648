"""`redactor_for`: a redactor that knows the secrets of this process, and of the options of one transport."""

from __future__ import annotations

import contextlib
import getpass
import os
from collections.abc import Callable, Mapping

from claude_transport.protocol.redaction import Redactor, redactor_knowing
from claude_transport.transport import TransportLike

_MAX_WRAPPERS = 16
"""Wrappers around wrappers that are looked through for options."""

_MARGIN = 2**16
"""Bytes or characters: half of what a variable of an environment can hold, so longer than any secret."""

_MAX_BYTES_PER_CHAR = 4
"""In UTF-8."""


def redactor_for(transport: TransportLike, *, confidential: object = None) -> Redactor:
    """A `Redactor` that knows this machine's user and home, and the secrets in this process's environment and the transport's options.

    Of the options these are the values of secretly named variables, headers and settings (`env`, `mcp_servers`, `settings`, …), however
    deep they are, and however many wrappers there are around the transport. Every value in `ANTHROPIC_CUSTOM_HEADERS` is one of them.
    A transport may name more in an attribute `confidential`: `SubprocessTransport` names the settings files that its session reads.
    The argument `confidential` is looked through likewise.
    """
    environments: list[Mapping[str, str]] = [os.environ]
    holders: list[object] = [confidential]
    inside: object = transport
    for _ in range(_MAX_WRAPPERS):
        options = getattr(inside, "options", None)
        env = getattr(options, "env", None)
        if isinstance(env, Mapping):
            environments.append({name: value for name, value in env.items() if isinstance(value, str)})
        holders += [options, getattr(inside, "confidential", None)]
        inside = getattr(inside, "transport", None)
    users: set[str] = set()
    with contextlib.suppress(Exception):  # there may be no such user at all, as in a container with a made-up uid
        users.add(getpass.getuser())
    return redactor_knowing(environments, confidential=holders, users=users)


def redacted_head(data: bytes, *, redact: Callable[[bytes], bytes], at_most: int) -> tuple[str, bool]:
    """The beginning of `redact(data)` as text, and whether it is all of it: when not, at least `at_most` characters where there are no
    secrets, and perhaps fewer where there are.

    What it costs does not grow with `data`. A secret is not cut in two, if it is no longer than 64 KiB: what is shown of a part is
    only what stays the same when 64 KiB more are known.
    """
    near = at_most * _MAX_BYTES_PER_CHAR
    if len(data) <= near + _MARGIN:
        return _text_of(redact(data)), True
    shorter, longer = (_text_of(redact(bytes(data[:length]))) for length in (near, near + _MARGIN))
    same = next((index for index, (one, other) in enumerate(zip(shorter, longer, strict=False)) if one != other), len(shorter))
    return shorter[:same], False


def _text_of(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
