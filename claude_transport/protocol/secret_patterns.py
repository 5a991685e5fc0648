"""What secrets and e-mail addresses look like inside free text, and how they are replaced.

Every pattern takes time linear in the text: what may repeat without bound is either possessive, or begins only where the same
run of characters does not already begin, or always ends in a match.

Compiling them takes milliseconds, so each is compiled at its first use: most processes never meet a secret. The module itself is loaded
at once, for secrets are looked for in error paths too, where an import may find no free file descriptor.
"""

from __future__ import annotations

import functools
import re

from claude_transport.protocol.secret_names import SECRET

__all__ = ["EMAIL", "redact_emails", "redact_secrets"]

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
