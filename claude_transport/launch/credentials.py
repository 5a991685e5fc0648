"""Which credential a session would use, which headers it sends, and which account pays. It looks at names, never at values.

The order was observed on CLI 2.1.329 against a loopback API, by the headers that it sent (docs/reference/protocol.md#credentials):

* A cloud switch that is on decides alone.
* Otherwise the two headers are filled separately: `Authorization` from `ANTHROPIC_AUTH_TOKEN`, else from the key helper; `x-api-key` from
  `ANTHROPIC_API_KEY`, else from the key helper. A token and a key give **both** headers.
* `CLAUDE_CODE_OAUTH_TOKEN`, and after it the login, count only without a key, a helper and a token.
* Variables in the `env` block of settings win over the environment of the process. An empty variable counts as not set.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

from claude_transport.launch.environ import CLOUD_SWITCHES, is_switched_on, settings_variables

CredentialKind: TypeAlias = Literal["cloud", "auth_token", "api_key", "api_key_helper", "oauth_token", "login", "none", "unknown"]
Payer: TypeAlias = Literal["cloud account", "api account", "token owner", "subscription", "nobody", "unknown"]

LOGIN_FILE: Final = ".credentials.json"  # inside the configuration directory, on Linux; macOS and Windows keep the login elsewhere

PAYERS: Final[Mapping[str, Payer]] = {
    "cloud": "cloud account",
    "auth_token": "token owner",
    "api_key": "api account",
    "api_key_helper": "api account",
    "oauth_token": "subscription",
    "login": "subscription",
    "none": "nobody",
    "unknown": "unknown",
}


class CredentialReport(msgspec.Struct, frozen=True, kw_only=True):
    """Says which credential the CLI would use, and which account pays. `describe_credentials` makes it. It holds names, never values.

    * `winner`: the kind of the credential that counts; `none` when there is none, `unknown` when only a login could decide and it was not
      looked for.
    * `name`: the variable, setting or file that it comes from; None when `winner` is `none` or `unknown`.
    * `headers`: the HTTP headers that carry it; empty for a cloud provider, and when `name` is None.
    * `payer`: whose account pays.
    * `present`: the names of the other credentials that are set and do not win.
    * `ambiguous`: two credentials are sent at once, and the server chooses. With a token and a key, `winner` and `payer` are those of the
      token, as the CLI's documentation says.
    * `notes`: sentences that explain the result.
    * `missing`: what is missing and what to do, when a credential is needed and none was found; else empty.
    """

    winner: CredentialKind
    name: str | None
    headers: tuple[str, ...]
    payer: Payer
    present: tuple[str, ...]
    ambiguous: bool = False
    notes: tuple[str, ...] = ()
    missing: str = ""


def describe_credentials(
    env: Mapping[str, str], *, settings: Mapping[str, Any] | None = None, config_dir: str | PathLike[str] | None = None, bare: bool = False
) -> CredentialReport:
    """Find out which credential the CLI would use, and which account would pay. Starts nothing, opens no file, and never raises.

    Args:
        env: the environment of the CLI process.
        settings: the settings document of the CLI, parsed. Variables in its `env` block win over `env`.
        config_dir: the configuration directory of the CLI; a login counts when its file exists there. With None, the login is not looked
            for, and `winner` may be `unknown`.
        bare: the session is started with `--bare`: it reads neither the OAuth token nor the login.
    """
    settings = settings or {}
    overlay = settings_variables(settings)
    merged = {**env, **overlay}
    present = _present(merged, settings)
    notes = [f"{name} comes from the settings, which win over the environment" for name in present if overlay.get(name)]
    cloud = [name for name in present if name in CLOUD_SWITCHES]
    if cloud:
        return _report("cloud", cloud[0], (), present, notes)
    headers = _headers(present)
    if headers:
        return _from_headers(headers, present, notes)
    if bare:
        notes.append("a bare session reads neither CLAUDE_CODE_OAUTH_TOKEN nor the login")
        return _none("no credential was found for a bare session. Set ANTHROPIC_API_KEY.", present, notes)
    if "CLAUDE_CODE_OAUTH_TOKEN" in present:
        return _report("oauth_token", "CLAUDE_CODE_OAUTH_TOKEN", ("Authorization",), present, notes)
    return _login(config_dir, present, notes)


def _present(env: Mapping[str, str], settings: Mapping[str, Any]) -> list[str]:
    """Return the names of the credentials that exist, strongest first."""
    found = [name for name in CLOUD_SWITCHES if is_switched_on(env.get(name))]
    found += [name for name in ("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY") if env.get(name)]
    if settings.get("apiKeyHelper"):
        found.append("apiKeyHelper")
    if env.get("CLAUDE_CODE_OAUTH_TOKEN"):
        found.append("CLAUDE_CODE_OAUTH_TOKEN")
    return found


def _headers(present: list[str]) -> dict[str, str]:
    """Return each header that would be sent, with the name its value comes from."""
    sources = {"Authorization": ("ANTHROPIC_AUTH_TOKEN", "apiKeyHelper"), "x-api-key": ("ANTHROPIC_API_KEY", "apiKeyHelper")}
    chosen = {header: next((name for name in names if name in present), None) for header, names in sources.items()}
    return {header: name for header, name in chosen.items() if name is not None}


def _from_headers(headers: Mapping[str, str], present: list[str], notes: list[str]) -> CredentialReport:
    kinds: Mapping[str, CredentialKind] = {
        "ANTHROPIC_AUTH_TOKEN": "auth_token",
        "ANTHROPIC_API_KEY": "api_key",
        "apiKeyHelper": "api_key_helper",
    }
    name = next(name for name in kinds if name in headers.values())
    ambiguous = len(set(headers.values())) > 1
    if ambiguous:
        notes.append(f"two credentials are sent at once, {' and '.join(headers.values())}: the server decides which one counts")
    return _report(kinds[name], name, tuple(headers), present, notes, ambiguous=ambiguous)


def _login(config_dir: str | PathLike[str] | None, present: list[str], notes: list[str]) -> CredentialReport:
    if config_dir is None:
        notes.append("a login is used when there is one; it was not looked for")
        return _report("unknown", None, (), present, notes)
    if (Path(config_dir) / LOGIN_FILE).is_file():
        return _report("login", LOGIN_FILE, ("Authorization",), present, notes)
    notes.append("no login file in the configuration directory (macOS and Windows keep the login elsewhere)")
    return _none(
        "no credential was found for claude. Run `claude` and /login, or set ANTHROPIC_API_KEY, unless its login is kept elsewhere.",
        present,
        notes,
    )


def _none(missing: str, present: list[str], notes: list[str]) -> CredentialReport:
    return msgspec.structs.replace(_report("none", None, (), present, notes), missing=missing)


def _report(
    winner: CredentialKind, name: str | None, headers: tuple[str, ...], present: list[str], notes: list[str], *, ambiguous: bool = False
) -> CredentialReport:
    losing = tuple(other for other in present if other != name)
    return CredentialReport(
        winner=winner, name=name, headers=headers, payer=PAYERS[winner], present=losing, ambiguous=ambiguous, notes=tuple(notes)
    )
