"""The secrets that are known by where they stand: in an environment, in options, in settings, whatever they look like."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from claude_transport.protocol.home_paths import find_home_users
from claude_transport.protocol.redaction import Redactor
from claude_transport.protocol.secret_names import is_secret_name

__all__ = ["find_secrets", "redactor_knowing"]

_MAX_NESTING: Final = 12
"""Levels of an option's value that are looked through: deeper than any settings file."""

_MIN_KNOWN_SECRET: Final = 8
"""Characters: shorter values of secret variables are settings (`TOKEN=auto`), and would be found everywhere."""


def redactor_knowing(environments: Iterable[Mapping[str, str]], *, confidential: object = None, users: Iterable[str] = ()) -> Redactor:
    """A `Redactor` that knows the users, homes and secrets of these environments, and the secrets in `confidential`."""
    secrets = set(find_secrets(confidential))
    users = set(users)
    homes: set[str] = set()
    for environment in environments:
        users.update(environment[name] for name in ("USER", "LOGNAME", "USERNAME") if environment.get(name))
        homes.update(environment[name] for name in ("HOME", "USERPROFILE") if environment.get(name))
        secrets.update(find_secrets(environment))
    for home in homes:
        users.update(find_home_users(home))
    return Redactor(secrets=secrets, users=users, homes=homes)


def find_secrets(value: object) -> Iterator[str]:
    """Every text below a secret name in `value`, which may be a Struct, a mapping, a sequence, or JSON in a text."""
    return _find(value, is_secret=False, nesting=0)


def _find(value: object, *, is_secret: bool, nesting: int) -> Iterator[str]:
    if nesting > _MAX_NESTING:
        return
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, Mapping):
        for name, inner in value.items():
            # what Anthropic's variables are about varies: a model's name is no secret
            named = isinstance(name, str) and is_secret_name(name.removeprefix("ANTHROPIC_"))
            yield from _find(inner, is_secret=is_secret or named, nesting=nesting + 1)
    elif isinstance(value, str):
        if is_secret:
            # `Bearer …`: the credential is a secret without its scheme, too
            yield from (part for part in {value, value.rpartition(" ")[2]} if len(part) >= _MIN_KNOWN_SECRET)
        elif value.lstrip().startswith("{"):
            with contextlib.suppress(msgspec.DecodeError, ValueError, RecursionError):
                yield from _find(msgspec.json.decode(value), is_secret=False, nesting=nesting + 1)
    elif isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        for inner in value:
            yield from _find(inner, is_secret=is_secret, nesting=nesting + 1)
