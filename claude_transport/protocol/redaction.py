"""`Redactor`: lines and texts without secrets and personal data, of the same shape as before.

It knows the shapes of keys and tokens, the names of fields and variables that hold them, home directories and e-mail addresses, and
whatever it is told of this machine (`secrets`, `users`, `homes`). What it puts in their place is always the same: `[secret]`,
`/home/user`, `user`, `user@example.com`, and `0` for a number; so redacting twice changes nothing, and two tapes can be compared.

It errs on the side of taking too much out. It cannot know a secret that looks like a word and stands where no secret is expected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from claude_transport.protocol.home_paths import HOME_USER, redact_homes
from claude_transport.protocol.json_strings import Place, rewrite_strings
from claude_transport.protocol.oversized import OversizedLine
from claude_transport.protocol.secret_names import SECRET, is_login_name, is_password_name, is_secret_name
from claude_transport.protocol.secret_patterns import redact_emails, redact_secrets

__all__ = ["Redactor"]

# Only a line that holds one of these, in lower case, can hold anything to redact; looking for them costs next to nothing.
_HINTS = (
    *("@", "key", "token", "secret", "passw", "passphrase", "credential", "bearer", "authorization", "cookie", "anthropic_", "://"),
    *("home", "users", "login", "logname", "username", "user_name", "sk-", "sk_", "rk_", "glpat-", "xox", "akia", "asia", "aiza"),
    *("glrt-", "xapp-", "gocspx-", "pplx-", "xai-", "hvs.", "age-secret-key"),
    *("dckr_pat_", "dop_v1_", "lin_api_", "r8_", "shpat_", "whsec_"),
    *("%40", "webhooks/", "hooks.slack.com", "documents and settings"),
    *("ghp_", "gho_", "ghr_", "ghs_", "ghu_", "github_pat_"),
    *("ya29.", "npm_", "pypi-", "hf_", "gsk_", "eyj", "sg.", "jwt", "sig", "-----begin"),
)

# Account names so common that they tell nothing of anybody, and words so common that replacing them would garble every text.
# fmt: off
_COMMON_USERS = frozenset((
    "admin", "administrator", "app", "build", "builder", "ci", "claude", "code", "debian", "default", "dev", "developer", "docker",
    "ec2-user", "git", "guest", "home", "jenkins", "main", "me", "node", "nobody", "ops", "root", "runner", "system", "test", "tester",
    "ubuntu", "user", "users", "vagrant", "work", "worker",
))
# Beside a secret name, these say what the value is, not which: {"token": {"type": "string", "description": …}} is a JSON schema.
_DESCRIPTIONS = frozenset((
    "type", "$ref", "description", "title", "format", "enum", "anyOf", "oneOf", "allOf", "required", "items", "behavior",
))
# fmt: on
_MIN_USER = 3
_MIN_SECRET = 4
"""Characters: anything shorter would be found everywhere."""

_SETTING = re.compile(r"\$\{?\w+\}?|<[^<>]*>|\*+|\[secret\]|none|null|true|false", re.IGNORECASE)


class Redactor:
    """Takes secrets and personal data out of text, without changing the shape of the JSON it is in.

    Args:
        secrets: values that are secret wherever they stand, whatever they look like.
        users: account names, replaced where they stand as whole words (not the common ones, such as `root`).
        homes: home directories that do not look like one, such as `/srv/people/alice`.
    """

    def __init__(self, *, secrets: Iterable[str] = (), users: Iterable[str] = (), homes: Iterable[str] = ()) -> None:
        self._secrets = tuple(sorted({secret for secret in secrets if len(secret) >= _MIN_SECRET}, key=len, reverse=True))
        self._users = frozenset(user for user in users if len(user) >= _MIN_USER and user.lower() not in _COMMON_USERS)
        self._homes = frozenset(home.rstrip("/\\") for home in homes if len(home.strip("/\\")) >= _MIN_USER and home.strip("/") != "root")
        known = [*(re.escape(secret) for secret in self._secrets)]
        self._known_secret = re.compile("|".join(known)) if known else None
        self._known_home = _paths(self._homes)
        names = "|".join(re.escape(user) for user in sorted(self._users, key=len, reverse=True))
        self._known_user = re.compile(rf"(?<![A-Za-z0-9])(?:{names})(?![A-Za-z0-9])") if names else None
        # a secret inside JSON may be written with escapes: only its longest plain run is looked for in the raw line
        own = [*map(_plain_run, self._secrets), *self._users, *map(_plain_run, self._homes)]
        self._hints = (*_HINTS, *(hint.lower() for hint in own))
        self._byte_hints = tuple(hint.encode("utf-8", "surrogatepass") for hint in self._hints)

    def with_users(self, users: Iterable[str]) -> Redactor:
        """The same, knowing more account names."""
        return Redactor(secrets=self._secrets, users={*self._users, *users}, homes=self._homes)

    def line(self, line: bytes) -> bytes:
        """`line` (JSON or not, whole or torn, UTF-8 or not) without secrets; the very same object when there were none."""
        if not self._may_hold_something(line):
            return line
        if line.lstrip()[:1] in (b"{", b"["):
            redacted = rewrite_strings(line, self._string, keep=is_secret_name, number=self._is_secret_number)
        else:
            redacted = self.text(line.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        if redacted == line:
            return line
        return OversizedLine(redacted, size=line.size, limit=line.limit) if isinstance(line, OversizedLine) else redacted

    def text(self, text: str) -> str:
        """`text` without secrets, home directories, user names and e-mail addresses."""
        low = text.lower()
        if not any(hint in low for hint in self._hints):
            return text
        if self._known_secret is not None:
            text = self._known_secret.sub(SECRET, text)
        text = redact_secrets(text)
        if self._known_home is not None:
            text = self._known_home.sub(_home, text)
        text = redact_homes(text)
        if "@" in text or "%40" in text:
            text = redact_emails(text)
        if self._known_user is not None:
            text = self._known_user.sub(HOME_USER, text)
        return text

    def _may_hold_something(self, line: bytes) -> bool:
        if b"\\u00" in line:
            return True  # ordinary letters may be written as escapes
        low = line.lower()
        for hint in self._byte_hints:  # noqa: SIM110 - half the time of any() with a generator, and this is done for every line
            if hint in low:
                return True
        return False

    def _string(self, text: str, place: Place) -> str:
        if place.is_key or not text:
            return self.text(text)
        if self._is_secret_place(place):
            return text if _SETTING.fullmatch(text) else SECRET
        if is_login_name(place.name):
            return text if text.lower() in _COMMON_USERS else HOME_USER
        return self.text(text)

    def _is_secret_place(self, place: Place) -> bool:
        if place.within and place.name in _DESCRIPTIONS:
            return False
        flag = place.previous
        return (
            place.within != ""
            or is_secret_name(place.name)
            or (place.pair != "" and is_secret_name(place.pair))
            or (flag.startswith("-") and "=" not in flag and is_secret_name(flag.lstrip("-")))
        )

    def _is_secret_number(self, place: Place) -> bool:
        return is_password_name(place.name)


def _paths(homes: Iterable[str]) -> re.Pattern[str] | None:
    """These directories, as paths, as paths inside JSON inside JSON, and as the CLI's names of project folders."""
    spellings = {spelling for home in homes for spelling in (home, home.replace("\\", "\\\\"), re.sub(r"[^A-Za-z0-9]", "-", home))}
    if not spellings:
        return None
    return re.compile("(?:" + "|".join(re.escape(one) for one in sorted(spellings, key=len, reverse=True)) + r")(?![A-Za-z0-9_])")


def _home(match: re.Match[str]) -> str:
    return "/home/user" if match[0].startswith("/") else "-home-user" if match[0].startswith("-") else "C:\\Users\\user"


def _plain_run(text: str) -> str:
    """The longest part of `text` that JSON writes as it is."""
    return max(re.split(r"[^A-Za-z0-9]+", text), key=len)
