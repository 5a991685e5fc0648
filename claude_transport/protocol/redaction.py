"""`Redactor`: removes secrets and personal data from lines and texts, and keeps their shape.

It finds keys and tokens by their format, values by the names of their fields and variables, home directories, e-mail addresses, and what it
is told about this machine (`secrets`, `users`, `homes`). The replacements are fixed: `[secret]`, `/home/user`, `user`, `user@example.com`,
and `0` for a number. So redacting twice changes nothing, and two tapes can be compared.

In doubt it removes too much. It cannot find a secret that looks like a word and stands where no secret is expected. Which secrets a program
uses is collected by `redactor_knowing`.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from claude_transport.protocol.envelope import encode_json
from claude_transport.protocol.framing import OversizedLine

SECRET = "[secret]"  # noqa: S105 - replaces a secret
EMAIL = "user@example.com"
HOME_USER = "user"

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

_SETTING = re.compile(r"\$\{?\w+\}?|<[^<>]*>|\*+|\[secret\]|none|null|true|false", re.IGNORECASE)

_MAX_NESTING: Final = 12
"""Maximum levels of an option's value that are searched: deeper than any settings file."""

_MIN_KNOWN_SECRET: Final = 8
"""Minimum characters of the value of a secret variable: shorter ones are settings (`TOKEN=auto`), and occur everywhere."""

_MIN_NAMED_SECRET: Final = 4
"""Minimum characters of a header whose name promises a secret; the `Redactor` ignores shorter ones."""

_CUSTOM_HEADERS: Final = "ANTHROPIC_CUSTOM_HEADERS"
"""The variable with headers that the CLI sends with every request. Gateways and proxies read credentials from them, under any name."""

_TRIMMED: Final = " \t\r\n\v\f\xa0\ufeff"
"""Characters that JavaScript's `trim()` removes, as far as headers can contain them."""

_SCHEMES: Final = frozenset(("apikey", "basic", "bearer", "digest", "negotiate", "token"))
"""Words before a credential, in lower case."""


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
        known = [*(re.escape(secret) for secret in self._secrets)]
        self._known_secret = re.compile("|".join(known)) if known else None
        self._known_home = _paths(self._homes)
        names = "|".join(re.escape(user) for user in sorted(self._users, key=len, reverse=True))
        self._known_user = re.compile(rf"(?<![A-Za-z0-9])(?:{names})(?![A-Za-z0-9])") if names else None
        # JSON may write parts of a secret as escapes, so the hint for a raw line is its longest plain part
        own = [*map(_plain_run, self._secrets), *self._users, *map(_plain_run, self._homes)]
        self._hints = (*_HINTS, *(hint.lower() for hint in own))
        self._byte_hints = tuple(hint.encode("utf-8", "surrogatepass") for hint in self._hints)

    def with_users(self, users: Iterable[str]) -> Redactor:
        """Return a copy that removes these account names, too. The original does not change."""
        return Redactor(secrets=self._secrets, users={*self._users, *users}, homes=self._homes)

    def line(self, line: bytes) -> bytes:
        """Return one line of a conversation without its secrets and personal data; the same object when it has none.

        The line may be JSON or not, whole or cut, UTF-8 or not. JSON keeps its fields; the value of a field with a secret name is replaced
        as a whole.
        """
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
        """Return plain text without secrets, home directories, known user names and e-mail addresses.

        A fixed word stands in place of each. Text that has none of them is returned as it is.
        """
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
            return True  # escapes can hide ordinary letters
        low = line.lower()
        for hint in self._byte_hints:  # noqa: SIM110 - runs for every line, and takes half the time of any() with a generator
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
    """Match these directories as paths, as paths in nested JSON, and as the CLI's names of project folders."""
    spellings = {spelling for home in homes for spelling in (home, home.replace("\\", "\\\\"), re.sub(r"[^A-Za-z0-9]", "-", home))}
    if not spellings:
        return None
    return re.compile("(?:" + "|".join(re.escape(one) for one in sorted(spellings, key=len, reverse=True)) + r")(?![A-Za-z0-9_])")


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


def find_secrets(value: object) -> Iterator[str]:
    """Yield every text below a secret name in `value`, which may be a Struct, a mapping, a sequence, or JSON as text.

    From `ANTHROPIC_CUSTOM_HEADERS`, yield each header's value with 8 characters or more, whatever the header's name; 4 when its name
    promises a secret. Also yield the credential after `Bearer` or `Basic`.
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
            # not every Anthropic variable is a secret: a model's name is not
            named = isinstance(name, str) and is_secret_name(name.removeprefix("ANTHROPIC_"))
            yield from _find(inner, is_secret=is_secret or named, nesting=nesting + 1)
    elif isinstance(value, str):
        if is_secret:
            # in `Bearer …`, the credential alone is a secret, too
            yield from (part for part in {value, value.rpartition(" ")[2]} if len(part) >= _MIN_KNOWN_SECRET)
        elif value.lstrip().startswith("{"):
            with contextlib.suppress(msgspec.DecodeError, ValueError, RecursionError):
                yield from _find(msgspec.json.decode(value), is_secret=False, nesting=nesting + 1)
    elif isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        for inner in value:
            yield from _find(inner, is_secret=is_secret, nesting=nesting + 1)


def _header_values(text: str) -> Iterator[str]:
    """Yield the values of headers, read as the CLI reads them: `Name: value`, one per line.

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


# Names that promise a secret: of JSON fields, environment variables, headers and flags.

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

# fmt: off
_SECRET_WORDS = frozenset((
    "apikey", "apikeys", "authorization", "cookie", "cookies", "credential", "credentials", "jwt", "passphrase", "passwd", "password",
    "passwords", "secret", "secrets",
))
_KEYS = frozenset((
    "access", "account", "api", "auth", "encryption", "license", "master", "private", "secret", "service", "session", "signing", "storage",
))
# Words before `token` that make it harmless: tokens of a tokenizer, of pagination, of MCP progress.
_PLAIN_TOKENS = frozenset(("bos", "eos", "mask", "max", "min", "next", "num", "pad", "page", "progress", "stop", "total", "unk"))
# fmt: on
_RUN_TOGETHER = ("apikey", "authtoken", "accesstoken", "accesskey", "apitoken", "privatekey", "secretkey", "password", "passphrase")
_PASSWORD_WORDS = frozenset(("passphrase", "passwd", "password", "passwords"))
_LOGIN_NAMES = frozenset(("login", "loginname", "logname", "user_name", "username"))
_MAX_NAME = 200
"""Characters of a name that are checked and cached: the peer chooses how long its names are."""


def is_secret_name(name: str) -> bool:
    """True when a value with this name is a secret: `api_key`, `x-api-key`, `accessToken`, `DB_PASSWORD`, every `ANTHROPIC_…`.

    `apiKeySource`, `public_key` and `input_tokens` with a number are not: the last word decides.
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
    """True when even a number with this name is a secret. Numbers with other secret names are counts, as in `max_token`."""
    return _is_password_name(name[:_MAX_NAME])


@lru_cache(maxsize=1024)
def _is_password_name(name: str) -> bool:
    words = _WORD.findall(name)
    return bool(words) and words[-1].lower() in _PASSWORD_WORDS


def is_login_name(name: str) -> bool:
    """True when a value with this name is the name of a user account."""
    return name.lower() in _LOGIN_NAMES


# Secrets and e-mail addresses inside free text.


class _Pattern:
    """A regular expression that is compiled when it is first used."""

    def __init__(self, source: str) -> None:
        self._source = source

    @functools.cached_property
    def compiled(self) -> re.Pattern[str]:
        """The compiled expression."""
        return re.compile(self._source)


_KNOWN_SHAPES = _Pattern(
    r"""(?x)
    (?<![A-Za-z0-9])(?:
        sk-ant-[\w-]++                                   # Anthropic, of every kind
      | sk-(?:proj|svcacct|admin|or|live|test)-[\w-]{8,}
      | sk-[A-Za-z0-9]{20,}
      | [sr]k_(?:live|test)_[A-Za-z0-9]{8,}
      | gh[opsur]_[A-Za-z0-9]{20,} | github_pat_\w{20,} | gl(?:pat|rt)-[\w-]{16,}
      | xox[abeprs]-[A-Za-z0-9-]{10,} | xapp-[A-Za-z0-9-]{10,}
      | (?:AKIA|ASIA)[0-9A-Z]{16}
      | AIza[\w-]{30,} | ya29\.[\w-]{16,}
      | (?:GOCSPX|pplx|xai)-[\w-]{16,} | hvs\.[\w-]{20,} | AGE-SECRET-KEY-1[0-9A-Z]{20,}
      | (?:dckr_pat|dop_v1|lin_api|r8|shpat|whsec)_[\w-]{16,}
      | npm_[A-Za-z0-9]{30,} | pypi-[\w-]{20,} | hf_[A-Za-z0-9]{24,} | gsk_[A-Za-z0-9]{24,}
    )
    | (?<![\w-])eyJ[\w-]{12,}+\.[\w-]++(?:\.[\w-]*+)?       # JSON web tokens
    | (?<![\w-])SG\.[\w-]{16,}+\.[\w-]{16,}
    """
)
# up to the end of the text when the closing line is missing, so that half a key is removed as well
_PRIVATE_KEY = _Pattern(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?s:.*?)(?:-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)"
)
# a scheme and a credential; prose ("bearer certificates") has no digits and is shorter
_BEARER = _Pattern(r"(?i)\b(bearer\s++)(?=[^\s\"'\\,;]{0,80}[0-9]|[^\s\"'\\,;]{24})[\w.~+/=-]{6,}+")
_USERINFO = _Pattern(r"(?<=://)([^\s/@\"'<>\\]*+)@")
_URL_PARAMETER = _Pattern(
    r"(?i)([?&](?:key|sig|signature|code|auth|x-amz-(?:signature|credential|security-token)|x-goog-signature)=)([^&\s\"'#\\<>]++)"
)
# knowing such an address is enough to post to it
_WEBHOOK = _Pattern(r"(hooks\.slack\.com/(?:services|workflows)/|discord(?:app)?\.com/api/webhooks/)([\w/-]{8,}+)")
_NETRC = _Pattern(r"(\bmachine[ \t]++[^\s\"'\\]{1,200}+[ \t]++login[ \t]++[^\s\"'\\]{1,200}+[ \t]++password[ \t]++)([^\s\"'\\]++)")
_HEADER = _Pattern(r"(?i)\b((?:proxy-)?authorization|(?:set-)?cookie)(\\*+[\"']?[ \t]*+:[ \t]*+\\*+[\"']?)([^\r\n\"'\\]++)")

_NAMES = (
    r"(?:api|access|secret|private|auth|signing|encryption|account|master)[_-]?key(?:[_-]?id)?"
    r"|token|secret|passw(?:or)?d|passphrase|credentials?"
)
_ASSIGNMENT = _Pattern(
    rf"""(?xi)
    (?P<before>
        (?:(?P<anthropic>ANTHROPIC_\w{{1,64}}+) | (?P<name>{_NAMES}))
        \\*+["'`]?[ \t]*+(?:=>|:=|[:=])[ \t]*+
    )
    (?:
        "(?P<double>[^"\\\n]*+(?:\\.[^"\\\n]*+)*+)
      | '(?P<single>[^'\\\n]*+(?:\\.[^'\\\n]*+)*+)
      | (?P<opening>\\++["'])(?P<escaped>[^"'\\\n]*+)
      | (?P<bare>[^\s"'\\&;<>]++)
    )
    """
)
_FLAG = _Pattern(rf"(?i)(?<![\w-])(--?(?:[\w-]{{0,40}}?[_-])?(?:{_NAMES})[ \t]++)([^\s\"'\\-][^\s\"'\\]*+)")

# values in the place of a secret that are not secret: names, types, references to the secret
_NO_SECRET = _Pattern(
    r"""(?xi)
    (?:none|null|nil|undefined|true|false|yes|no|str|string|bytes?|int|integer|number|bool|boolean|any|optional|required|missing|invalid|expired
      |unset|empty|redacted|hidden|\*+|x+|\.+|-+|_+)\W*
    | [$%{<(\[|].*
    | \[secret\].*
    | [A-Za-z_][\w.]*[(\[].*
    """
)
_LOOKS_RANDOM = _Pattern(r"[^\d]*+\d|.{16}|[^\sA-Za-z]*+[!@#$%^*]")


def redact_secrets(text: str) -> str:
    """Replace every credential in `text` by `[secret]`; the text around it stays."""
    text = _PRIVATE_KEY.compiled.sub(SECRET, text)
    text = _KNOWN_SHAPES.compiled.sub(SECRET, text)
    text = _USERINFO.compiled.sub(_userinfo, text)
    text = _URL_PARAMETER.compiled.sub(rf"\1{SECRET}", text)
    text = _WEBHOOK.compiled.sub(rf"\1{SECRET}", text)
    text = _NETRC.compiled.sub(rf"\1{SECRET}", text)
    text = _HEADER.compiled.sub(_header, text)
    text = _BEARER.compiled.sub(rf"\1{SECRET}", text)
    text = _FLAG.compiled.sub(rf"\1{SECRET}", text)
    return _ASSIGNMENT.compiled.sub(_assignment, text)


def _userinfo(match: re.Match[str]) -> str:
    userinfo = match[1]
    return f"{SECRET}@" if ":" in userinfo or len(userinfo) >= 16 else match[0]


def _header(match: re.Match[str]) -> str:
    scheme, space, _ = match[3].partition(" ")
    keeps_scheme = space and scheme.lower() in ("basic", "bearer", "digest", "token", "apikey", "negotiate")
    return f"{match[1]}{match[2]}{scheme + ' ' if keeps_scheme else ''}{SECRET}"


def _assignment(match: re.Match[str]) -> str:
    before = match["before"]
    for group, quote in (("double", '"'), ("single", "'"), ("escaped", match["opening"])):
        if (value := match[group]) is not None:
            return match[0] if not value or _NO_SECRET.compiled.fullmatch(value) else f"{before}{quote}{SECRET}"
    bare: str = match["bare"]
    value = bare.rstrip(",)]}")
    name = (match["name"] or "").lower()
    if not value or _NO_SECRET.compiled.fullmatch(value) or (name == "token" and value.isdigit()):
        return match[0]
    # prose such as `secret: practice` needs a second sign of a secret; `SECRET=practice` and a password do not
    spoken = before.rstrip(" \t").endswith(":") and before != before.rstrip(" \t")
    if spoken and not name.startswith("passw") and not _LOOKS_RANDOM.compiled.match(value):
        return match[0]
    return f"{before}{SECRET}{bare[len(value) :]}"


# in any alphabet, also inside a URL
_EMAIL = _Pattern(r"(?<![\w.+-])[\w.%+-]{1,64}(?:@|%40)(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}(?![\w-])")
# reserved for examples (RFC 2606), or not an address: `git@github.com:…`, `icon@2x.png`
_NO_EMAIL = _Pattern(
    r"(?i)git@.*|.*[@.]example\.(?:com|net|org)|.*\.(?:example|invalid|test|localhost|png|jpe?g|gif|svg|webp|css|js|json|tgz)"
)


def redact_emails(text: str) -> str:
    """Replace every e-mail address in `text` by `user@example.com`."""
    return _EMAIL.compiled.sub(lambda match: match[0] if _NO_EMAIL.compiled.fullmatch(match[0].replace("%40", "@")) else EMAIL, text)


# Home directories inside free text.

_HOME = re.compile(r"(?<![\w.-])((?:/(?:var|export|data|mnt|nfs|usr))?/home/|(?:/mnt)?(?:/[a-z])?/Users/)([^/\\\s\"'`<>|:*?;,()\[\]{}$]+)")
_WINDOWS_HOME = re.compile(
    r"(?i)(?<=[a-z]:)((?:\\{1,4}|/)(?:users|documents and settings)(?:\\{1,4}|/))"
    r"([^/\\\"'`<>|:*?\r\n$%]{1,64}(?=[\\/])|[^/\\\s\"'`<>|:*?$%]+)"
)
# the CLI derives a project's folder from its path: /home/alice/x becomes ~/.claude/projects/-home-alice-x
_PROJECT_FOLDER = re.compile(r"(?i)(?<=[/\\])((?:[a-z]-)?-(?:home|users)-)([^-/\\\s\"'`]+)")
_ENCODED_HOME = re.compile(r"(?i)(%2F(?:home|users)%2F)([^%/\\\s\"'`<>&?#]++)")
_NOBODY = frozenset({"", ".", "..", "...", "all users", "default", "public", "shared", HOME_USER})


def redact_homes(text: str) -> str:
    """Replace the user in every home directory: `/home/alice/x` becomes `/home/user/x`."""
    for pattern in (_HOME, _WINDOWS_HOME, _PROJECT_FOLDER, _ENCODED_HOME):
        text = pattern.sub(lambda match: match[0] if match[2].lower() in _NOBODY else match[1] + HOME_USER, text)
    return text


def find_home_users(text: str) -> set[str]:
    """Return the names of the users whose home directories `text` mentions."""
    names = {match[2] for pattern in (_HOME, _WINDOWS_HOME) for match in pattern.finditer(text)}
    return {name for name in names if name.lower() not in _NOBODY}


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
            within = frame.name if not frame.within and first == b"{" and frame.name and keep(frame.name) else frame.within
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
    if not is_key and frame.is_object and frame.name in _PAIR_NAMES:
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
    try:
        return json.loads(token), True
    except ValueError:
        body = token[1:-1] if len(token) > 1 and token.endswith(b'"') else token[1:]
        return body.decode("utf-8", "surrogateescape"), False
