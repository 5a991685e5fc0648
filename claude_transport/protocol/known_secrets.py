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

_MIN_NAMED_SECRET: Final = 4
"""Characters of a header whose name promises a secret; the `Redactor` looks for nothing shorter."""

_CUSTOM_HEADERS: Final = "ANTHROPIC_CUSTOM_HEADERS"
"""The variable whose headers the CLI sends with every request: gateways and proxies take their credentials from them, under any name."""

_TRIMMED: Final = " \t\r\n\v\f\xa0\ufeff"
"""What JavaScript's `trim()` takes away, as far as it occurs in headers."""

_SCHEMES: Final = frozenset(("apikey", "basic", "bearer", "digest", "negotiate", "token"))
"""Words in front of a credential, in lower case."""


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
    """Every text below a secret name in `value`, which may be a Struct, a mapping, a sequence, or JSON in a text.

    Also every value among the headers of `ANTHROPIC_CUSTOM_HEADERS`, whatever the header is called, with 8 characters or more (4 when the
    header's name promises a secret); and what stands behind `Bearer` or `Basic` in it.
    """
    return _find(value, is_secret=False, nesting=0)


def _find(value: object, *, is_secret: bool, nesting: int) -> Iterator[str]:
    if nesting > _MAX_NESTING:
        return
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if name == _CUSTOM_HEADERS and isinstance(inner, str):
                yield from _header_values(inner)
                continue
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


def _header_values(text: str) -> Iterator[str]:
    """Every value among headers written as the CLI reads them: `Name: value`, one on each line.

    The CLI splits at line feeds, trims name and value, and skips a line without a colon or a name (2.1.92 to 2.1.330; an end-to-end test
    shows which headers it sends).
    """
    for line in text.split("\n"):
        name, colon, value = line.partition(":")
        name, value = name.strip(_TRIMMED), value.strip(_TRIMMED)
        if not (colon and name and value):
            continue
        named = is_secret_name(name)
        if len(value) >= (_MIN_NAMED_SECRET if named else _MIN_KNOWN_SECRET):
            yield value
        scheme, _, credential = value.partition(" ")
        if (named or scheme.lower() in _SCHEMES) and len(credential.strip()) >= _MIN_NAMED_SECRET:
            yield credential.strip()
