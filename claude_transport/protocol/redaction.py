"""`Redactor`: lines and texts without secrets and personal data, of the same shape as before.

It knows the shapes of keys and tokens, the names of fields and variables that hold them, home directories and e-mail addresses, and
whatever it is told of this machine (`secrets`, `users`, `homes`). What it puts in their place is always the same: `[secret]`,
`/home/user`, `user`, `user@example.com`, and `0` for a number; so redacting twice changes nothing, and two tapes can be compared.

It errs on the side of taking too much out. It cannot know a secret that looks like a word and stands where no secret is expected.
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

from claude_transport.protocol.framing import OversizedLine

# --- Which names promise a secret: of JSON fields, environment variables, headers and command line flags.


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


# --- What secrets and e-mail addresses look like inside free text, and how they are replaced.


EMAIL = "user@example.com"


class _Pattern:
    """A regular expression that is compiled at its first use."""

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
# to the end of the text when the closing line is missing, so that half a key is gone too
_PRIVATE_KEY = _Pattern(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?s:.*?)(?:-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)"
)
# a scheme and a credential; prose ("bearer certificates") has neither digits nor the length
_BEARER = _Pattern(r"(?i)\b(bearer\s++)(?=[^\s\"'\\,;]{0,80}[0-9]|[^\s\"'\\,;]{24})[\w.~+/=-]{6,}+")
_USERINFO = _Pattern(r"(?<=://)([^\s/@\"'<>\\]*+)@")
_URL_PARAMETER = _Pattern(
    r"(?i)([?&](?:key|sig|signature|code|auth|x-amz-(?:signature|credential|security-token)|x-goog-signature)=)([^&\s\"'#\\<>]++)"
)
# whoever knows these addresses may post
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

# what stands where a secret would, and is none: names, types, references to where the secret is
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
    """`text` with every credential in it replaced by `[secret]`; what is around it stays."""
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
    # `secret: practice`, as people write, needs a second sign; `SECRET=practice` and a password do not
    spoken = before.rstrip(" \t").endswith(":") and before != before.rstrip(" \t")
    if spoken and not name.startswith("passw") and not _LOOKS_RANDOM.compiled.match(value):
        return match[0]
    return f"{before}{SECRET}{bare[len(value) :]}"


# ------------------------------------------------------------------------------------------------------------ personal data

# in any script, and as a part of a URL
_EMAIL = _Pattern(r"(?<![\w.+-])[\w.%+-]{1,64}(?:@|%40)(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}(?![\w-])")
# reserved for examples (RFC 2606), or no address at all: `git@github.com:…`, `icon@2x.png`
_NO_EMAIL = _Pattern(
    r"(?i)git@.*|.*[@.]example\.(?:com|net|org)|.*\.(?:example|invalid|test|localhost|png|jpe?g|gif|svg|webp|css|js|json|tgz)"
)


def redact_emails(text: str) -> str:
    """`text` with every e-mail address replaced by `user@example.com`."""
    return _EMAIL.compiled.sub(lambda match: match[0] if _NO_EMAIL.compiled.fullmatch(match[0].replace("%40", "@")) else EMAIL, text)


# --- Home directories inside free text: whose they are, and what stands in their place.


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


# --- The strings of a JSON line, rewritten in place: whatever is not a rewritten string stays byte for byte as it was.


_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+\\?"?|[{}\[\]:,]|[^\s"{}\[\]:,]++', re.DOTALL)
_COLON = re.compile(rb"\s*+:")
_NUMBER = re.compile(rb"-?[0-9][0-9.eE+-]*")
_PAIR_NAMES = frozenset({"name", "key", "header"})
_LINE_ENDS = (("\u2028", "\\u2028"), ("\u2029", "\\u2029"), ("\x85", "\\u0085"))


class Place(msgspec.Struct):
    """Where a value stands: its field name, or that of the array it is in.

    `pair` is the name it has in an object of `{"name": …, "value": …}`; `previous` the string before it in an array (a command line
    flag, perhaps); `within` the name of the outermost object around it that `keep` has chosen.
    """

    name: str = ""
    is_key: bool = False
    pair: str = ""
    previous: str = ""
    within: str = ""


class _Frame:
    """An open object or array."""

    __slots__ = ("is_object", "name", "pair", "previous", "within")

    def __init__(self, *, is_object: bool, name: str, within: str) -> None:
        self.is_object = is_object
        self.name = name  # of the field whose value comes next, or of the array
        self.pair = ""
        self.previous = ""
        self.within = within


def rewrite_strings(
    line: bytes, rewrite: Callable[[str, Place], str], *, keep: Callable[[str], bool], number: Callable[[Place], bool]
) -> bytes:
    """`line` with `rewrite(text, place)` in place of each string; `line` itself when nothing changed.

    `keep(name)` says which names of surrounding objects are worth a `Place.within`; `number(place)` whether a number there
    becomes 0.
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
        return _encode(new)
    # not a whole, valid string: what is put in holds neither quotes nor backslashes, so the rest means what it meant
    return b'"' + new.encode("utf-8", "surrogateescape") + (b'"' if len(token) > 1 and token.endswith(b'"') else b"")


def _decode(token: bytes) -> tuple[str, bool]:
    """The text, and whether the token is a JSON string that can be read; else it is the raw text between the quotes."""
    try:
        return json.loads(token), True
    except ValueError:
        body = token[1:-1] if len(token) > 1 and token.endswith(b'"') else token[1:]
        return body.decode("utf-8", "surrogateescape"), False


def _encode(text: str) -> bytes:
    encoded = json.dumps(text, ensure_ascii=False)
    for plain, escaped in _LINE_ENDS:
        if plain in encoded:
            encoded = encoded.replace(plain, escaped)
    try:
        return encoded.encode()
    except UnicodeEncodeError:  # a lone surrogate, which only an escape can carry
        return json.dumps(text).encode()


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


# --- The secrets that are known by where they stand: in an environment, in options, in settings, whatever they look like.


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
