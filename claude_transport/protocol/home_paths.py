"""Home directories inside free text: whose they are, and what stands in their place."""

from __future__ import annotations

import re

__all__ = ["HOME_USER", "find_home_users", "redact_homes"]

HOME_USER = "user"

_HOME = re.compile(r"(?<![\w.-])((?:/(?:var|export|data|mnt|nfs|usr))?/home/|(?:/mnt)?(?:/[a-z])?/Users/)([^/\\\s\"'`<>|:*?;,()\[\]{}$]+)")
_WINDOWS_HOME = re.compile(
    r"(?i)(?<=[a-z]:)((?:\\{1,4}|/)(?:users|documents and settings)(?:\\{1,4}|/))"
    r"([^/\\\"'`<>|:*?\r\n$%]{1,64}(?=[\\/])|[^/\\\s\"'`<>|:*?$%]+)"
)
# the CLI names a project's folder after its path: /home/alice/x is ~/.claude/projects/-home-alice-x
_PROJECT_FOLDER = re.compile(r"(?i)(?<=[/\\])((?:[a-z]-)?-(?:home|users)-)([^-/\\\s\"'`]+)")
_ENCODED_HOME = re.compile(r"(?i)(%2F(?:home|users)%2F)([^%/\\\s\"'`<>&?#]++)")
_NOBODY = frozenset({"", ".", "..", "...", "all users", "default", "public", "shared", HOME_USER})


def redact_homes(text: str) -> str:
    """`text` with the user in every home directory replaced: `/home/alice/x` becomes `/home/user/x`."""
    for pattern in (_HOME, _WINDOWS_HOME, _PROJECT_FOLDER, _ENCODED_HOME):
        text = pattern.sub(lambda match: match[0] if match[2].lower() in _NOBODY else match[1] + HOME_USER, text)
    return text


def find_home_users(text: str) -> set[str]:
    """The names of the users whose home directories `text` mentions."""
    names = {match[2] for pattern in (_HOME, _WINDOWS_HOME) for match in pattern.finditer(text)}
    return {name for name in names if name.lower() not in _NOBODY}
