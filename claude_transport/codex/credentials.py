"""Which credential `codex app-server` would use, and which account pays. It looks at names and kinds, never at secrets.

Observed on 0.169.0 against a loopback API, by the headers that it sent:

* The model provider decides. One with `env_key` sends the key in that variable, and no other credential.
* The provider `openai` uses the login in `auth.json`. Its `auth_mode` says whether that is a key or a ChatGPT account; without it, a
  key that is there wins over the tokens of an account.
* `app-server` reads no key from the environment: `OPENAI_API_KEY`, `CODEX_API_KEY` and `CODEX_ACCESS_TOKEN` change nothing, nor does
  `OPENAI_BASE_URL`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from claude_transport.codex.configuration import effective_settings, find_codex_home, read_configuration, read_file
from claude_transport.codex.environ import build_codex_environment
from claude_transport.codex.options import CodexOptions
from claude_transport.errors import ConfigurationError
from claude_transport.launch.credentials import PAYERS, CredentialKind, CredentialReport

LOGIN_FILE: Final = "auth.json"
VARIABLES: Final = ("CODEX_API_KEY", "OPENAI_API_KEY", "CODEX_ACCESS_TOKEN")
"""Credentials that other commands of Codex read, and `app-server` does not."""

_KEYLESS: Final = ("ollama", "lmstudio")
_CLOUDS: Final = ("amazon-bedrock",)
_KEY_MODES: Final = ("apikey",)
_ACCOUNT_MODES: Final = ("chatgpt", "chatgptAuthTokens")


_NULL: Final = msgspec.Raw(b"null")


class _Login(msgspec.Struct):
    """What is looked at in `auth.json`: the kind. The values stay undecoded."""

    auth_mode: str | None = None
    key: msgspec.Raw = msgspec.field(default=_NULL, name="OPENAI_API_KEY")
    tokens: msgspec.Raw = _NULL


def describe_codex_credentials(options: CodexOptions, inherited: Mapping[str, str]) -> CredentialReport:
    """Find out which credential `codex app-server` would use, and which account would pay. Starts nothing.

    It reads `config.toml` and the kind of login in `auth.json`, in the home of a Codex with these options and this environment, usually
    `os.environ`. The report holds names, never values. Projects' own settings are not looked at.

    Raises `ConfigurationError` for an option `env` that is not valid.
    """
    env = build_codex_environment(options.replace(billing="inherit"), inherited)
    home = find_codex_home(env)
    settings = effective_settings(read_configuration(home), options)
    provider = settings.get("model_provider", "openai")
    login = _kind_of_login(home, settings)
    notes = [f"{name} is set, and app-server does not read it" for name in VARIABLES if env.get(name)]
    present = [name for name in VARIABLES if env.get(name)]
    table = _table(_table(settings, "model_providers"), provider)
    if provider == "openai" or table.get("requires_openai_auth") is True:
        if login == "unknown":
            notes.append("the login may be in the keyring of the system, which was not looked at")
        elif login == "none":
            notes.append("there is no login: run `codex login`")
        found = _report(login, LOGIN_FILE if login in ("api_key", "login") else None, present, notes)
        return found if login != "none" else msgspec.structs.replace(found, missing="no credential was found for codex. Run `codex login`.")
    if login in ("api_key", "login"):
        present.append(LOGIN_FILE)
    notes.insert(0, f"the model provider {provider!r} decides, not the login of Codex")
    kind, name = _credential_of_provider(str(provider), table, env, notes)
    found = _report(kind, name, [each for each in present if each != name], notes)
    variable = table.get("env_key")
    if kind == "none" and isinstance(variable, str):
        return msgspec.structs.replace(found, missing=f"no credential was found for codex. Set {variable}, which the model provider names.")
    return found


def check_codex_payer(options: CodexOptions, inherited: Mapping[str, str]) -> CredentialReport | None:
    """Check that `options.billing` allows the account that would pay. Returns the report; None without a policy.

    `subscription` refuses a login with an API key. `subscription_strict` also refuses a model provider with a key of its own. `api_key`
    requires a key that `app-server` reads. Raises `ConfigurationError(option="billing")`.
    """
    if options.billing == "inherit":
        return None
    found = describe_codex_credentials(options, inherited)
    if options.billing == "api_key":
        if found.winner not in ("api_key", "auth_token"):
            have = "the login of ChatGPT would pay" if found.winner == "login" else "no key was found that app-server reads"
            raise ConfigurationError(
                f'billing="api_key": {have}. Log in with `codex login --with-api-key`, or name the variable with the key in env_key of a '
                "model provider",
                option="billing",
            )
        return found
    by_login = found.name == LOGIN_FILE
    if found.payer not in ("subscription", "nobody", "unknown") and (by_login or options.billing == "subscription_strict"):
        raise ConfigurationError(
            f'billing="{options.billing}": {found.name} has a credential of another account. '
            + ("Run `codex login`, or choose another billing" if by_login else "Choose another model_provider, or another billing"),
            option="billing",
        )
    return found


def _table(settings: Mapping[str, Any], name: object) -> Mapping[str, Any]:
    found = settings.get(name) if isinstance(name, str) else None
    return found if isinstance(found, Mapping) else {}


def _credential_of_provider(
    provider: str, table: Mapping[str, Any], env: Mapping[str, str], notes: list[str]
) -> tuple[CredentialKind, str | None]:
    """Return the kind and the name of what a model provider other than OpenAI's own is sent."""
    variable = table.get("env_key")
    if isinstance(variable, str):
        if env.get(variable):
            return "api_key", variable
        notes.append(f"{variable}, which the model provider names, is not set")
        return "none", None
    for name in ("experimental_bearer_token", "auth", "http_headers", "env_http_headers"):
        if table.get(name):
            return "auth_token", f"model_providers.{provider}.{name}"
    if provider in _CLOUDS:
        return "cloud", provider
    if provider not in _KEYLESS:
        notes.append("nothing is known of a key for it")
    return "none", None


def _kind_of_login(home: Path | None, settings: Mapping[str, Any]) -> CredentialKind:
    if settings.get("cli_auth_credentials_store", "file") in ("keyring", "auto", "ephemeral"):
        return "unknown"
    text = None if home is None else read_file(home / LOGIN_FILE)
    if text is None:
        return "none"
    try:
        login = msgspec.json.decode(text, type=_Login)
    except (msgspec.DecodeError, RecursionError):
        return "none"
    has_key = bytes(login.key) not in (b"null", b'""')
    if login.auth_mode in _KEY_MODES or (login.auth_mode is None and has_key):
        return "api_key" if has_key else "none"
    if login.auth_mode in _ACCOUNT_MODES or (login.auth_mode is None and bytes(login.tokens) != b"null"):
        return "login"
    return "none" if login.auth_mode is None else "unknown"


def _report(kind: CredentialKind, name: str | None, present: list[str], notes: list[str]) -> CredentialReport:
    headers = ("Authorization",) if kind in ("api_key", "login", "auth_token") else ()
    return CredentialReport(winner=kind, name=name, headers=headers, payer=PAYERS[kind], present=tuple(present), notes=tuple(notes))
