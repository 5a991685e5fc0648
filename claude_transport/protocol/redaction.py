"""`Redactor`: removes secrets and personal data from lines and texts, and keeps their shape.

It finds keys and tokens by their format, values by the names of their fields and variables, home directories, e-mail addresses, and what it
is told about this machine (`secrets`, `users`, `homes`). The replacements are fixed: `[secret]`, `/home/user`, `user`, `user@example.com`,
and `0` for a number. So redacting twice changes nothing, and two tapes can be compared.

In doubt it removes too much. It cannot find a secret that looks like a word and stands where no secret is expected. Which secrets a program
uses is collected by `redactor_knowing`.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial

import msgspec

from claude_transport.protocol.envelope import encode_json
from claude_transport.protocol.framing import OversizedLine
from claude_transport.text.secret_forms import (
    HOME_USER,
    SECRET,
    find_home_users,
    find_secrets,
    is_login_name,
    is_password_name,
    is_secret_name,
    redact_emails,
    redact_homes,
    redact_secrets,
)
from claude_transport.text.sliced_pattern import SlicedPattern

# A line without any of these (in lower case) has nothing to redact. This check is very cheap.
_HINTS = (
    *("@", "key", "token", "secret", "passw", "passphrase", "credential", "bearer", "authorization", "cookie", "anthropic_", "://"),
    *("home", "users", "login", "logname", "username", "user_name", "sk-", "sk_", "rk_", "glpat-", "xox", "akia", "asia", "aiza"),
    *("glrt-", "xapp-", "gocspx-", "pplx-", "xai-", "hvs.", "age-secret-key"),
    *("dckr_pat_", "dop_v1_", "lin_api_", "r8_", "shpat_", "whsec_"),
    *("%40", "webhooks/", "hooks.slack.com", "documents and settings"),
    *("ghp_", "gho_", "ghr_", "ghs_", "ghu_", "github_pat_"),
    *("ya29.", "npm_", "pypi-", "hf_", "gsk_", "eyj", "sg.", "jwt", "sig", "-----begin"),
)


# Account names that identify no person, and words so common that replacing them would damage every text.
# fmt: off
_COMMON_USERS = frozenset((
    "admin", "administrator", "app", "build", "builder", "ci", "claude", "code", "debian", "default", "dev", "developer", "docker",
    "ec2-user", "git", "guest", "home", "jenkins", "main", "me", "node", "nobody", "ops", "root", "runner", "system", "test", "tester",
    "ubuntu", "user", "users", "vagrant", "work", "worker",
))
# Below a secret name, these describe the value and are not secret: {"token": {"type": "string", "description": …}} is a JSON schema.
_DESCRIPTIONS = frozenset((
    "type", "$ref", "description", "title", "format", "enum", "anyOf", "oneOf", "allOf", "required", "items", "behavior",
))
# fmt: on
_MIN_USER = 3
_MIN_SECRET = 4
"""Minimum characters of a known secret: shorter values occur everywhere."""

_GOES_ON = (b"A1B2C3D4" * 8, b"a1b2c3d4" * 8, b"a1b2c3d4" * 4 + b"." + b"a1b2c3d4" * 4)
"""How the word at the end of a cut line may go on, so that it has the form of a key."""

_SETTING = re.compile(r"\$\{?\w+\}?|<[^<>]*>|\*+|\[secret\]|none|null|true|false", re.IGNORECASE)


_COMMON = '"\\etsaorin, u:cdl_pm-0hf1gbky2{}vw459386.7/qx[]'
"""The characters of a conversation in lower case, from the commonest to the rarest, as the recordings have them. All others are rarer."""


def any_word(words: Iterable[str]) -> str:
    """Return a pattern that matches in a text where, and only where, it contains one of `words`, which must not be empty.

    Python's `re` looks for the first character of a pattern quickly when it is one of a few. So each word is found by its rarest character,
    and what stands before and after that is compared only there. A line of 270 bytes takes a quarter of the time of sixty searches.
    """
    by_rarest: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for word in sorted(set(words)):
        at = max(range(len(word)), key=lambda index: _rarity(word[index]))
        by_rarest[word[at]].append((word[:at], word[at + 1 :]))
    return "|".join(f"{re.escape(char)}(?:{'|'.join(_rest(char, *around) for around in rest)})" for char, rest in by_rarest.items())


def _rest(char: str, before: str, after: str) -> str:
    behind = f"(?<={re.escape(before + char)})" if before else ""
    return behind + re.escape(after)


def _rarity(char: str) -> int:
    place = _COMMON.find(char)
    return len(_COMMON) if place < 0 else place


@cache
def _hint() -> re.Pattern[str]:
    """Return what finds a hint in a text. Compiling it takes milliseconds, and most conversations redact nothing."""
    return re.compile(any_word(_HINTS))


@cache
def _hint_in_bytes() -> re.Pattern[bytes]:
    """Return what finds a hint in a line."""
    return re.compile(any_word(_HINTS).encode())


class Redactor:
    """Removes secrets and personal data from text, without changing the structure of JSON.

    It knows the usual forms of keys, tokens, home directories and e-mail addresses, and the JSON fields that hold secrets. The arguments
    add what it cannot know; very short values are ignored.

    Args:
        secrets: values that are secret wherever they occur.
        users: account names, which are replaced as whole words; common ones such as `root` are kept.
        homes: home directories that do not look like one, such as `/srv/people/alice`.
    """

    def __init__(self, *, secrets: Iterable[str] = (), users: Iterable[str] = (), homes: Iterable[str] = ()) -> None:
        self._secrets = tuple(sorted({secret for secret in secrets if len(secret) >= _MIN_SECRET}, key=len, reverse=True))
        self._users = frozenset(user for user in users if len(user) >= _MIN_USER and user.lower() not in _COMMON_USERS)
        self._homes = frozenset(home.rstrip("/\\") for home in homes if len(home.strip("/\\")) >= _MIN_USER and home.strip("/") != "root")
        spellings = {spelling for secret in self._secrets for spelling in (secret, json.dumps(secret, ensure_ascii=False)[1:-1])}
        known = sorted(spellings, key=len, reverse=True)  # in nested JSON, such as the input of a tool, a secret is escaped
        self._known_secret = SlicedPattern("|".join(map(re.escape, known))) if known else None
        self._byte_secrets = tuple(spelling.encode("utf-8", "surrogatepass") for spelling in known)
        self.several_words: tuple[str, ...] = tuple(text for text in (*known, *self._homes) if len(text.split(None, 1)) > 1)
        """Known secrets and homes with spaces in them: the end of a word is not their end."""
        self._known_home = _paths(self._homes)
        names = "|".join(re.escape(user) for user in sorted(self._users, key=len, reverse=True))
        self._known_user = SlicedPattern(rf"(?<![A-Za-z0-9])(?:{names})(?![A-Za-z0-9])") if names else None
        # JSON may write parts of a secret as escapes, so the hint for a raw line is its longest plain part
        own = [*map(_plain_run, self._secrets), *self._users, *map(_plain_run, self._homes)]
        self._hints = tuple(hint.lower() for hint in own)
        self._byte_hints = tuple(hint.encode("utf-8", "surrogatepass") for hint in self._hints)

    def with_users(self, users: Iterable[str]) -> Redactor:
        """Return a copy that removes these account names, too. The original does not change."""
        return Redactor(secrets=self._secrets, users={*self._users, *users}, homes=self._homes)

    def line(self, line: bytes, *, instead: Callable[[str, str], str | None] | None = None) -> bytes:
        """Return one line of a conversation without its secrets and personal data; the same object when it has none.

        The line may be JSON or not, whole or cut, UTF-8 or not. JSON keeps its fields; the value of a field with a secret name is replaced
        as a whole. `instead(field, text)` may return what stands in place of a string value, or None.
        """
        if isinstance(line, OversizedLine) and len(line) < line.size:
            return OversizedLine(self._cut_line(bytes(line), instead), size=line.size, limit=line.limit)
        if instead is None and not self._may_hold_something(line):
            return line
        if line.lstrip()[:1] in (b"{", b"["):
            rewrite = self._string if instead is None else partial(self._other_string, instead)
            redacted = rewrite_strings(line, rewrite, keep=is_secret_name, number=self._is_secret_number)
        else:
            redacted = self.text(line.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        return line if redacted == line else redacted

    def _cut_line(self, line: bytes, instead: Callable[[str, str], str | None] | None) -> bytes:
        """Return the beginning of a line without its secrets, and without the first part of one that lies on the cut."""
        redacted = self.line(line, instead=instead)
        for more in _GOES_ON:
            longer = self.line(line + more, instead=instead)
            same = next((at for at, (one, other) in enumerate(zip(redacted, longer, strict=False)) if one != other), len(redacted))
            redacted = redacted[:same]
        begun = max((_begun_chars(redacted, spelling) for spelling in self._byte_secrets), default=0)
        return redacted[: len(redacted) - begun]

    def text(self, text: str) -> str:
        """Return plain text without secrets, home directories, known user names and e-mail addresses.

        A fixed word stands in place of each. Text that has none of them is returned as it is.
        """
        low = text.lower()
        if _hint().search(low) is None and not any(hint in low for hint in self._hints):
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
            return True  # escapes can hide ordinary letters
        low = line.lower()
        return _hint_in_bytes().search(low) is not None or self.may_know(low)

    def may_know(self, low: bytes) -> bool:
        """Return whether something that it was told may be in `low`, a text in lower case: a secret, an account name or a home."""
        for hint in self._byte_hints:  # noqa: SIM110 - runs for every line, and takes half the time of any() with a generator
            if hint in low:
                return True
        return False

    def _other_string(self, instead: Callable[[str, str], str | None], text: str, place: Place) -> str:
        other = None if place.is_key else instead(place.name, text)
        return self._string(text, place) if other is None else other

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
            or is_secret_name(place.pair)
            or (flag.startswith("-") and "=" not in flag and is_secret_name(flag.lstrip("-")))
        )

    def _is_secret_number(self, place: Place) -> bool:
        return is_password_name(place.name)


def _begun_chars(line: bytes, secret: bytes) -> int:
    """Return how many bytes at the end of `line` begin `secret`."""
    return next((size for size in range(len(secret) - 1, _MIN_SECRET - 1, -1) if line.endswith(secret[:size])), 0)


def _paths(homes: Iterable[str]) -> SlicedPattern | None:
    """Match these directories as paths, as paths in nested JSON, and as the CLI's names of project folders."""
    spellings = {spelling for home in homes for spelling in (home, home.replace("\\", "\\\\"), re.sub(r"[^A-Za-z0-9]", "-", home))}
    if not spellings:
        return None
    return SlicedPattern("(?:" + "|".join(re.escape(one) for one in sorted(spellings, key=len, reverse=True)) + r")(?![A-Za-z0-9_])")


def _home(match: re.Match[str]) -> str:
    return "/home/user" if match[0].startswith("/") else "-home-user" if match[0].startswith("-") else "C:\\Users\\user"


def _plain_run(text: str) -> str:
    """Return the longest part of `text` that JSON writes without escapes."""
    return max(re.split(r"[^A-Za-z0-9]+", text), key=len)


def redactor_knowing(environments: Iterable[Mapping[str, str]], *, confidential: object = None, users: Iterable[str] = ()) -> Redactor:
    """Make a `Redactor` for a program.

    Args:
        environments: environments whose users, homes and secrets are removed.
        confidential: a value, such as options, whose secrets are removed (see `find_secrets`).
        users: further account names.
    """
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


# Strings inside a JSON line, rewritten in place. All other bytes stay as they are.

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+\\?"?|[{}\[\]:,]|[^\s"{}\[\]:,]++', re.DOTALL)
_COLON = re.compile(rb"\s*+:")
_NUMBER = re.compile(rb"-?[0-9][0-9.eE+-]*")
_PAIR_NAMES = frozenset({"name", "key", "header"})


class Place(msgspec.Struct):
    """The position of a value: the name of its field, or of the array that it is in.

    `pair` is its name in an object like `{"name": …, "value": …}`. `previous` is the string before it in an array, which may be a command
    line flag. `within` is the name of the outermost surrounding object that `keep` accepted.
    """

    name: str = ""
    is_key: bool = False
    pair: str = ""
    previous: str = ""
    within: str = ""


class _Frame(msgspec.Struct):
    """An open object or array. `name` is that of the array, or of the field whose value comes next."""

    is_object: bool
    name: str
    within: str
    pair: str = ""
    previous: str = ""


def rewrite_strings(
    line: bytes, rewrite: Callable[[str, Place], str], *, keep: Callable[[str], bool], number: Callable[[Place], bool]
) -> bytes:
    """Replace each string of a JSON line by `rewrite(text, place)`; returns `line` itself when nothing changed.

    Args:
        line: JSON, possibly cut.
        rewrite: returns the new text of a string.
        keep: True for names of surrounding objects that `Place.within` should report.
        number: True for places whose number becomes 0.
    """
    pieces: list[bytes] = []
    done = 0
    stack = [_Frame(is_object=False, name="", within="")]
    for match in _TOKEN.finditer(line):
        token, frame = match[0], stack[-1]
        first = token[:1]
        new = token
        if first == b'"':
            new = _rewrite_token(token, frame, rewrite, is_key=frame.is_object and _COLON.match(line, match.end()) is not None)
        elif first in (b"{", b"["):
            within = frame.name if not frame.within and first == b"{" and keep(frame.name) else frame.within
            stack.append(_Frame(is_object=first == b"{", name="" if first == b"{" else frame.name, within=within))
        elif first in (b"}", b"]"):
            if len(stack) > 1:
                stack.pop()
        elif _NUMBER.fullmatch(token) and number(Place(frame.name, False, frame.pair, "", frame.within)):
            new = b"0"
        if new is not token:
            pieces.append(line[done : match.start()])
            pieces.append(new)
            done = match.end()
    if not pieces:
        return line
    pieces.append(line[done:])
    return b"".join(pieces)


def _rewrite_token(token: bytes, frame: _Frame, rewrite: Callable[[str, Place], str], *, is_key: bool) -> bytes:
    text, whole = _decode(token)
    if is_key:
        frame.name = text
    place = Place(frame.name, is_key, frame.pair if frame.name == "value" else "", frame.previous, frame.within)
    new = rewrite(text, place)
    if not is_key and frame.name in _PAIR_NAMES:
        frame.pair = text
    frame.previous = "" if frame.is_object else text
    if new == text:
        return token
    if whole:
        return encode_json(new)
    # not a valid string: the replacement has no quotes and backslashes, so the rest keeps its meaning
    return b'"' + new.encode("utf-8", "surrogateescape") + (b'"' if len(token) > 1 and token.endswith(b'"') else b"")


def _decode(token: bytes) -> tuple[str, bool]:
    """Return the text and True; for a token that is not a valid JSON string, the raw text between its quotes and False."""
    if b"\\" not in token and len(token) > 1 and token.endswith(b'"'):
        text = token[1:-1].decode("utf-8", "replace")
        if text.isascii() and text.isprintable():  # most are, and need no parser
            return text, True
    try:
        return json.loads(token), True
    except ValueError:
        body = token[1:-1] if len(token) > 1 and token.endswith(b'"') else token[1:]
        return body.decode("utf-8", "surrogateescape"), False
