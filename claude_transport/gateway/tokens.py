"""`GatewayTokens`: bearer tokens by the name of their owner, kept as digests, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from claude_transport.errors import ConfigurationError

__all__ = ["MIN_TOKEN_CHARS", "GatewayTokens"]

logger: logging.Logger = logging.getLogger(__name__)

MIN_TOKEN_CHARS: Final = 16
"""Characters: with fewer, guessing over the network becomes a plan. Python's `secrets.token_urlsafe()` gives 43."""

_MAX_FILE_CHARS: Final = 2**20
"""Characters of a token file: ten thousand tokens. What is larger is another file."""

Compare: TypeAlias = Callable[[bytes, bytes], bool]

_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_TOKEN = re.compile(r"[\x21-\x7e]+")  # what fits into an HTTP header and on a line


class GatewayTokens:
    """The bearer tokens that are accepted, each with the name its owner is known by in logs and limits.

    Only digests are kept: neither a core dump nor a `repr` gives a token away. `bool(tokens)` is False when there are none. Two digests
    are compared by `compare` alone, which takes as long for any two.

    Raises:
        ConfigurationError: a token is too short or has characters that no header can carry, a name is no name, or two owners share a token.
    """

    def __init__(self, tokens: Mapping[str, str] | None = None, *, compare: Compare = hmac.compare_digest) -> None:
        self._compare = compare
        self._names: dict[str, bytes] = {}
        for name, token in (tokens or {}).items():
            self._add(name, token)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> GatewayTokens:
        """The tokens in a file: one on each line, `NAME TOKEN` or only the token; blank lines and those that begin with `#` are nothing.

        Raises:
            ConfigurationError: it cannot be read, holds no token, or may be read by others than its owner and group (`chmod 600`).
        """
        try:
            with Path(path).open(encoding="utf-8") as file:
                mode = os.fstat(file.fileno()).st_mode  # of what is read, not of what stands there a moment later
                text = file.read(_MAX_FILE_CHARS + 1)
        except (OSError, UnicodeDecodeError) as exc:
            raise ConfigurationError(f"the token file {os.fspath(path)!r} cannot be read: {exc}", option="tokens") from exc
        if len(text) > _MAX_FILE_CHARS:  # a token that is cut off would be another token
            raise ConfigurationError(f"the token file {os.fspath(path)!r} is too large to be one", option="tokens")
        if mode & stat.S_IRWXO:
            raise ConfigurationError(f"the token file {os.fspath(path)!r} is open to every user of this system: chmod 600", option="tokens")
        if mode & stat.S_IRWXG:
            logger.warning("the token file %r is open to its group", os.fspath(path))
        tokens = cls()
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) > 2:
                raise ConfigurationError(f"line {number} of the token file has more than a name and a token", option="tokens")
            tokens._add(words[0] if len(words) == 2 else f"token-{number}", words[-1])
        if not tokens:
            raise ConfigurationError(f"the token file {os.fspath(path)!r} holds no token", option="tokens")
        return tokens

    @classmethod
    def from_environment(cls, variable: str, *, env: Mapping[str, str] | None = None) -> GatewayTokens:
        """The one token in an environment variable, whose owner is called like the variable; `ConfigurationError` when it is not set."""
        value = (os.environ if env is None else env).get(variable, "")
        if not value:
            raise ConfigurationError(f"the environment variable {variable} is not set: there is no token in it", option="tokens")
        return cls({variable: value})

    def joined(self, other: GatewayTokens) -> GatewayTokens:
        """These and those; `ConfigurationError` when a name or a token is in both."""
        both = GatewayTokens(compare=self._compare)
        for tokens in (self, other):
            for name, digest in tokens._names.items():  # noqa: SLF001 - one of us
                both._keep(name, digest)
        return both

    def owner(self, presented: str | None) -> str | None:
        """The name of who holds this token, or None. Takes the same time whichever token it is nearly like, or none."""
        digest = _digest(presented or "")
        found = None
        for name, known in self._names.items():
            if self._compare(known, digest):
                found = name  # no early end: how long this takes says nothing about which one it was
        return found

    def _add(self, name: str, token: str) -> None:
        if not _NAME.fullmatch(name):
            raise ConfigurationError("the name of a token's owner is 1 to 64 letters, digits and . _ @ -", option="tokens")
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise ConfigurationError(f"the token of {name} has characters that a header cannot carry", option="tokens")
        if len(token) < MIN_TOKEN_CHARS:
            raise ConfigurationError(f"the token of {name} has fewer than {MIN_TOKEN_CHARS} characters: it can be guessed", option="tokens")
        self._keep(name, _digest(token))

    def _keep(self, name: str, digest: bytes) -> None:
        if name in self._names:
            raise ConfigurationError(f"there are two tokens of the name {name}", option="tokens")
        if digest in self._names.values():
            raise ConfigurationError(f"{name} has somebody else's token: each could take over the other's sessions", option="tokens")
        self._names[name] = digest

    def __bool__(self) -> bool:
        return bool(self._names)

    def __repr__(self) -> str:
        """Names only."""
        return f"GatewayTokens({', '.join(sorted(self._names))})"


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
