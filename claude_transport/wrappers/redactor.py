"""`redactor_for`: a redactor that knows the secrets of this process, and of the options of one transport."""

from __future__ import annotations

import contextlib
import getpass
import os
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from claude_transport.protocol.redaction import Redactor
from claude_transport.protocol.secret_names import is_secret_name
from claude_transport.protocol.secret_patterns import find_home_users
from claude_transport.transport import TransportLike

__all__ = ["redactor_for"]

_MAX_WRAPPERS = 16
"""Wrappers around wrappers that are looked through for options."""

_MAX_NESTING = 12
"""Levels of an option's value that are looked through: deeper than any settings file."""

_MIN_KNOWN_SECRET = 8
"""Characters: shorter values of secret variables are settings (`TOKEN=auto`), and would be found everywhere."""


def redactor_for(transport: TransportLike) -> Redactor:
    """A `Redactor` that knows this machine's user and home, and the secrets in this process's environment and the transport's options.

    Of the options these are the values of secretly named variables, headers and settings (`env`, `mcp_servers`, `settings`, …), however
    deep they are, and however many wrappers there are around the transport.
    """
    environments: list[Mapping[str, str]] = [os.environ]
    secrets: set[str] = set()
    inside: object = transport
    for _ in range(_MAX_WRAPPERS):
        options = getattr(inside, "options", None)
        env = getattr(options, "env", None)
        if isinstance(env, Mapping):
            environments.append({name: value for name, value in env.items() if isinstance(value, str)})
        secrets.update(_find_secrets(options, is_secret=False, nesting=0))
        inside = getattr(inside, "transport", None)
    users: set[str] = set()
    homes: set[str] = set()
    with contextlib.suppress(Exception):  # there may be no such user at all, as in a container with a made-up uid
        users.add(getpass.getuser())
    for environment in environments:
        users.update(environment[name] for name in ("USER", "LOGNAME", "USERNAME") if environment.get(name))
        homes.update(environment[name] for name in ("HOME", "USERPROFILE") if environment.get(name))
        secrets.update(_find_secrets(environment, is_secret=False, nesting=0))
    for home in homes:
        users.update(find_home_users(home))
    return Redactor(secrets=secrets, users=users, homes=homes)


def _find_secrets(value: object, *, is_secret: bool, nesting: int) -> Iterator[str]:
    """Every text below a secret name in `value`, which may be a Struct, a mapping, a sequence, or JSON in a text."""
    if nesting > _MAX_NESTING:
        return
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, Mapping):
        for name, inner in value.items():
            # what Anthropic's variables are about varies: a model's name is no secret
            named = isinstance(name, str) and is_secret_name(name.removeprefix("ANTHROPIC_"))
            yield from _find_secrets(inner, is_secret=is_secret or named, nesting=nesting + 1)
    elif isinstance(value, str):
        if is_secret:
            # `Bearer …`: the credential is a secret without its scheme, too
            yield from (part for part in {value, value.rpartition(" ")[2]} if len(part) >= _MIN_KNOWN_SECRET)
        elif value.lstrip().startswith("{"):
            with contextlib.suppress(msgspec.DecodeError, ValueError, RecursionError):
                yield from _find_secrets(msgspec.json.decode(value), is_secret=False, nesting=nesting + 1)
    elif isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        for inner in value:
            yield from _find_secrets(inner, is_secret=is_secret, nesting=nesting + 1)
