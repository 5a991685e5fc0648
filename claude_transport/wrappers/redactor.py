"""`redactor_for`: makes a `Redactor` that knows the secrets of this process and of one transport's options. Redacting is in `protocol`."""

from __future__ import annotations

import contextlib
import getpass
import os
from collections.abc import Callable, Mapping

import msgspec

from claude_transport.protocol.redaction import Redactor, redactor_knowing
from claude_transport.transport import TransportLike, confidential_of

_MARGIN = 2**16
"""Bytes or characters: half of what an environment variable can hold, so longer than any secret."""

_MAX_BYTES_PER_CHAR = 4
"""In UTF-8."""


def redactor_for(transport: TransportLike, *, confidential: object = None) -> Redactor:
    """Return a `Redactor` that knows this machine's user and home, and the secrets in this process's environment and the options.

    Secrets in options are the values of variables, headers and settings (`env`, `mcp_servers`, `settings`, …) whose names say so, at any
    depth. Every value in `ANTHROPIC_CUSTOM_HEADERS` is one. A transport tells its options, and what else may hold secrets, as
    `Transport.confidential`: `SubprocessTransport` adds the settings files of its session, and `NetworkTransport` its token. The argument
    `confidential` is searched, too.
    """
    told = confidential_of(transport)
    environments: list[Mapping[str, str]] = [os.environ]
    env = {} if told.options is None else msgspec.structs.asdict(told.options).get("env")
    if isinstance(env, Mapping):
        environments.append({name: value for name, value in env.items() if isinstance(value, str)})
    holders = [confidential, told.options, *told.values]
    users: set[str] = set()
    with contextlib.suppress(Exception):  # the user may not exist, as in a container with a made-up uid
        users.add(getpass.getuser())
    return redactor_knowing(environments, confidential=holders, users=users)


def redacted_head(data: bytes, *, redact: Callable[[bytes], bytes], at_most: int) -> tuple[str, bool]:
    """Return the beginning of `redact(data)` as text, and whether that is all of it.

    A part has at least `at_most` characters, or fewer where there are secrets. The cost does not grow with `data`. A secret of up to
    64 KiB is never cut in two: a part holds only what stays the same when 64 KiB more are redacted with it.
    """
    near = at_most * _MAX_BYTES_PER_CHAR
    if len(data) <= near + _MARGIN:
        return _text_of(redact(data)), True
    shorter, longer = (_text_of(redact(bytes(data[:length]))) for length in (near, near + _MARGIN))
    same = next((index for index, (one, other) in enumerate(zip(shorter, longer, strict=False)) if one != other), len(shorter))
    return shorter[:same], False


def _text_of(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
