"""Which names promise a secret: of JSON fields, environment variables, headers and command line flags."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["SECRET", "is_login_name", "is_password_name", "is_secret_name"]

SECRET = "[secret]"  # noqa: S105 - what stands in place of one

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

# fmt: off
_SECRET_WORDS = frozenset((
    "apikey", "apikeys", "authorization", "cookie", "cookies", "credential", "credentials", "jwt", "passphrase", "passwd", "password",
    "passwords", "secret", "secrets",
))
_KEYS = frozenset((
    "access", "account", "api", "auth", "encryption", "license", "master", "private", "secret", "service", "session", "signing", "storage",
))
# Tokens that are no secrets: what a tokenizer has, what a page is fetched with, what MCP counts its progress by.
_PLAIN_TOKENS = frozenset(("bos", "eos", "mask", "max", "min", "next", "num", "pad", "page", "progress", "stop", "total", "unk"))
# fmt: on
_RUN_TOGETHER = ("apikey", "authtoken", "accesstoken", "accesskey", "apitoken", "privatekey", "secretkey", "password", "passphrase")
_PASSWORD_WORDS = frozenset(("passphrase", "passwd", "password", "passwords"))
_LOGIN_NAMES = frozenset(("login", "loginname", "logname", "user_name", "username"))
_MAX_NAME = 200
"""Characters of a name that are looked at, and remembered: the peer chooses how long its names are."""


def is_secret_name(name: str) -> bool:
    """Whether a value of this name is a secret: `api_key`, `x-api-key`, `accessToken`, `DB_PASSWORD`, every `ANTHROPIC_…`.

    `apiKeySource`, `input_tokens` with a number, `public_key` and the like are not: the last word decides.
    """
    return _is_secret_name(name[:_MAX_NAME])


@lru_cache(maxsize=4096)
def _is_secret_name(name: str) -> bool:
    if name.startswith("ANTHROPIC_"):
        return True
    words = [word.lower() for word in _WORD.findall(name)]
    if not words:
        return False
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last == "id" and words[-3:-1] == ["access", "key"]:
        return True
    if last in ("token", "tokens"):
        return before not in _PLAIN_TOKENS
    return last in _SECRET_WORDS or (last in ("key", "keys") and before in _KEYS) or last.endswith(_RUN_TOGETHER)


def is_password_name(name: str) -> bool:
    """Whether even a number under this name is a secret; numbers under other secret names are counts, as in `max_token`."""
    return _is_password_name(name[:_MAX_NAME])


@lru_cache(maxsize=1024)
def _is_password_name(name: str) -> bool:
    words = _WORD.findall(name)
    return bool(words) and words[-1].lower() in _PASSWORD_WORDS


def is_login_name(name: str) -> bool:
    """Whether a value of this name is the name of a user account."""
    return name.lower() in _LOGIN_NAMES
