"""What credentials and personal data look like: names that promise a secret, and forms of keys, tokens, homes and addresses in text.

`protocol.redaction` removes them from lines, and `errors` from the reason of an error. It also finds the secrets that a program is given.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from claude_transport.text.sliced_pattern import SlicedPattern

SECRET = "[secret]"  # noqa: S105 - replaces a secret
EMAIL = "user@example.com"
HOME_USER = "user"

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
"""Characters at the end of a name that are checked and cached: the peer chooses how long its names are, and the last word decides."""


def is_secret_name(name: str) -> bool:
    """True when a value with this name is a secret: `api_key`, `x-api-key`, `accessToken`, `DB_PASSWORD`, every `ANTHROPIC_…`.

    `apiKeySource`, `public_key` and `input_tokens` with a number are not: the last word decides.
    """
    return name.startswith("ANTHROPIC_") or _is_secret_name(name[-_MAX_NAME:])


@lru_cache(maxsize=4096)
def _is_secret_name(name: str) -> bool:
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
    return _is_password_name(name[-_MAX_NAME:])


@lru_cache(maxsize=1024)
def _is_password_name(name: str) -> bool:
    words = _WORD.findall(name)
    return bool(words) and words[-1].lower() in _PASSWORD_WORDS


def is_login_name(name: str) -> bool:
    """True when a value with this name is the name of a user account."""
    return name.lower() in _LOGIN_NAMES


# Secrets and e-mail addresses inside free text.


_KNOWN_SHAPES = SlicedPattern(
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
_KEY_BEGIN = SlicedPattern(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_END = SlicedPattern(r"-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
# a scheme and a credential; prose ("bearer certificates") has no digits and is shorter
_BEARER = SlicedPattern(r"(?i)\b(bearer\s++)(?=[^\s\"'\\,;]{0,80}[0-9]|[^\s\"'\\,;]{24})[\w.~+/=-]{6,}+")
_USERINFO = SlicedPattern(r"(?<=://)([^\s/@\"'<>\\]*+)@")
_URL_PARAMETER = SlicedPattern(
    r"(?i)([?&](?:key|sig|signature|code|auth|x-amz-(?:signature|credential|security-token)|x-goog-signature)=)([^&\s\"'#\\<>]++)"
)
# knowing such an address is enough to post to it
_WEBHOOK = SlicedPattern(r"(hooks\.slack\.com/(?:services|workflows)/|discord(?:app)?\.com/api/webhooks/)([\w/-]{8,}+)")
_NETRC = SlicedPattern(r"(\bmachine[ \t]++[^\s\"'\\]{1,200}+[ \t]++login[ \t]++[^\s\"'\\]{1,200}+[ \t]++password[ \t]++)([^\s\"'\\]++)")
_HEADER = SlicedPattern(r"(?i)\b((?:proxy-)?authorization|(?:set-)?cookie)(\\*+[\"']?[ \t]*+:[ \t]*+\\*+[\"']?)([^\r\n\"'\\]++)")

_NAMES = (
    r"(?:api|access|secret|private|auth|signing|encryption|account|master)[_-]?key(?:[_-]?id)?"
    r"|token|secret|passw(?:or)?d|passphrase|credentials?"
)
_ASSIGNMENT = SlicedPattern(
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
_FLAG = SlicedPattern(rf"(?i)(?<![\w-])(--?(?:[\w-]{{0,40}}?[_-])?(?:{_NAMES})[ \t]++)([^\s\"'\\-][^\s\"'\\]*+)")

# values in the place of a secret that are not secret: names, types, references to the secret
_NO_SECRET = SlicedPattern(
    r"""(?xi)
    (?:none|null|nil|undefined|true|false|yes|no|str|string|bytes?|int|integer|number|bool|boolean|any|optional|required|missing|invalid|expired
      |unset|empty|redacted|hidden|\*+|x+|\.+|-+|_+)\W*
    | [$%{<(\[|].*
    | \[secret\].*
    | [A-Za-z_][\w.]*[(\[].*
    """
)
_LOOKS_RANDOM = SlicedPattern(r"[^\d]*+\d|.{16}|[^\sA-Za-z]*+[!@#$%^*]")


def redact_secrets(text: str) -> str:
    """Replace every credential in `text` by `[secret]`; the text around it stays."""
    text = _redact_private_keys(text)
    text = _KNOWN_SHAPES.sub(SECRET, text)
    text = _USERINFO.sub(_userinfo, text)
    text = _URL_PARAMETER.sub(rf"\1{SECRET}", text)
    text = _WEBHOOK.sub(rf"\1{SECRET}", text)
    text = _NETRC.sub(rf"\1{SECRET}", text)
    text = _HEADER.sub(_header, text)
    text = _BEARER.sub(rf"\1{SECRET}", text)
    text = _FLAG.sub(rf"\1{SECRET}", text)
    return _ASSIGNMENT.sub(_assignment, text)


def _redact_private_keys(text: str) -> str:
    """Replace each private key; to the end of the text when its closing line is missing, so that half a key is removed as well."""
    pieces: list[str] = []
    done = 0
    while (begin := _KEY_BEGIN.search(text, done)) is not None:
        end = _KEY_END.search(text, begin.end())
        pieces += (text[done : begin.start()], SECRET)
        done = len(text) if end is None else end.end()
    return "".join((*pieces, text[done:])) if pieces else text


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
_EMAIL = SlicedPattern(r"(?<![\w.+-])[\w.%+-]{1,64}(?:@|%40)(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}(?![\w-])")
# reserved for examples (RFC 2606), or not an address: `git@github.com:…`, `icon@2x.png`
_NO_EMAIL = SlicedPattern(
    r"(?i)git@.*|.*[@.]example\.(?:com|net|org)|.*\.(?:example|invalid|test|localhost|png|jpe?g|gif|svg|webp|css|js|json|tgz)"
)


def redact_emails(text: str) -> str:
    """Replace every e-mail address in `text` by `user@example.com`."""
    return _EMAIL.sub(lambda match: match[0] if _NO_EMAIL.compiled.fullmatch(match[0].replace("%40", "@")) else EMAIL, text)


# Home directories inside free text.

_HOME = SlicedPattern(
    r"(?<![\w.-])((?:/(?:var|export|data|mnt|nfs|usr))?/home/|(?:/mnt)?(?:/[a-z])?/Users/)([^/\\\s\"'`<>|:*?;,()\[\]{}$]+)"
)
_WINDOWS_HOME = SlicedPattern(
    r"(?i)(?<=[a-z]:)((?:\\{1,4}|/)(?:users|documents and settings)(?:\\{1,4}|/))"
    r"([^/\\\"'`<>|:*?\r\n$%]{1,64}(?=[\\/])|[^/\\\s\"'`<>|:*?$%]+)"
)
# the CLI derives a project's folder from its path: /home/alice/x becomes ~/.claude/projects/-home-alice-x
_PROJECT_FOLDER = SlicedPattern(r"(?i)(?<=[/\\])((?:[a-z]-)?-(?:home|users)-)([^-/\\\s\"'`]+)")
_ENCODED_HOME = SlicedPattern(r"(?i)(%2F(?:home|users)%2F)([^%/\\\s\"'`<>&?#]++)")
_NOBODY = frozenset({"", ".", "..", "...", "all users", "default", "public", "shared", HOME_USER})


def redact_homes(text: str) -> str:
    """Replace the user in every home directory: `/home/alice/x` becomes `/home/user/x`."""
    for pattern in (_HOME, _WINDOWS_HOME, _PROJECT_FOLDER, _ENCODED_HOME):
        text = pattern.sub(lambda match: match[0] if match[2].lower() in _NOBODY else match[1] + HOME_USER, text)
    return text


def find_home_users(text: str) -> set[str]:
    """Return the names of the users whose home directories `text` mentions."""
    names = {match[2] for pattern in (_HOME, _WINDOWS_HOME) for match in pattern.compiled.finditer(text)}
    return {name for name in names if name.lower() not in _NOBODY}
