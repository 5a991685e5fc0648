"""What would be run for `CodexOptions`: checks, command line, program, environment, who pays. Nothing is started but fakes."""

from __future__ import annotations

import json
import math
import sys
import tomllib
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claude_transport import Launcher, Query, SubprocessTransport
from claude_transport.codex import (
    CodexOptions,
    build_codex_argv,
    build_codex_environment,
    check_codex_payer,
    describe_codex_credentials,
    describe_codex_environment,
    find_codex,
)
from claude_transport.codex.configuration import configuration_texts
from claude_transport.codex.options import CODEX_OPTIONS
from claude_transport.errors import CLINotFoundError, ConfigurationError, NotExecutableError, WorkingDirectoryError
from claude_transport.launch.credentials import CredentialReport
from claude_transport.launch.discovery import ask_cli_version, read_cli_version
from claude_transport.launch.options import default_of, fields_of
from claude_transport.testing import CodexScenario, FakeCodex, steps
from claude_transport.wrappers.redactor import redactor_for


def settings_of(argv: list[str]) -> dict[str, Any]:
    """The settings on a command line, read as Codex reads them: up to the first `=` a dotted path, then TOML."""
    found: dict[str, Any] = {}
    for flag, argument in pairwise(argv):
        if flag == "-c":
            name, _, text = argument.partition("=")
            found[name] = tomllib.loads(f"value = {text}")["value"]
    return found


# Options.


def test_options_have_the_promised_names_and_a_line_on_their_page() -> None:
    defaults = {field.name: default_of(field) for field in fields_of(CodexOptions)}
    promised = {"model": None, "cwd": None, "sandbox": None, "approval_policy": None, "config": {}, "codex_path": None}
    promised |= {"codex_home": None, "env": {}, "extra_args": ()}
    assert {name: defaults[name] for name in promised} == promised
    assert set(CODEX_OPTIONS) == set(defaults)


def test_options_are_copied_with_changes_and_show_no_values_that_may_be_secret() -> None:
    options = CodexOptions(env={"LAB_KEY": "sk-secret"}, config={"a": "secret"}, extra_args=("--token", "secret"), model="gpt-5.5")
    assert repr(options) == "CodexOptions(model='gpt-5.5', config=['a'], env=['LAB_KEY'], extra_args=...)"
    assert options.replace(model=None).model is None
    assert "secret" not in repr(options.replace(config="secret"))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("model", 5),
        ("model", " "),
        ("model", "a\nb"),
        ("sandbox", "none"),
        ("sandbox", ["read-only"]),
        ("approval_policy", "always"),
        ("approval_policy", {"granular": True}),
        ("approval_policy", {"other": {}}),
        ("config", [("a", 1)]),
        ("config", {5: 1}),
        ("config", {"a..b": 1}),
        ("config", {"a=b": 1}),
        ("config", {"": 1}),
        ("config", {"a": None}),
        ("config", {"a": b"bytes"}),
        ("config", {"a": 2**63}),
        ("config", {"a": {"": 1}}),
        ("config", {"a": {1: 1}}),
        ("config", {"a": "\ud800"}),
        ("config", {"a": "\0"}),
        ("config", {"a": "x" * 8_000}),
        ("config", {"model_providers.lab": {"experimental_bearer_token": "sk-1"}}),
        ("config", {"model_providers.lab.http_headers.Authorization": "Bearer sk-1"}),
        ("extra_args", "--disable plugins"),
        ("extra_args", ("--disable", 5)),
        ("extra_args", ("proxy",)),
        ("extra_args", ("--listen", "ws://127.0.0.1:1")),
        ("extra_args", ("--listen=off",)),
        ("extra_args", ("--help",)),
        ("extra_args", ("--disable", "a\0b")),
        ("codex_home", ""),
        ("codex_home", 5),
        ("codex_path", 5),
        ("cwd", "a\0b"),
        ("env", {"": "x"}),
        ("env", {"A": 5}),
        ("env_mode", "some"),
        ("env_allow", "PATH"),
        ("billing", "me"),
    ],
)
def test_no_transport_is_made_with_what_codex_would_refuse_or_misread(option: str, value: Any) -> None:
    options = CodexOptions().replace(**{option: value})
    with pytest.raises(ConfigurationError) as caught:
        SubprocessTransport(options)
    assert (caught.value.code, caught.value.option, caught.value.retryable) == ("config.invalid", option, False)
    assert str(caught.value).startswith(option)
    assert "sk-1" not in str(caught.value)


async def test_a_home_of_codex_that_is_not_there_is_refused_before_the_start() -> None:
    with FakeCodex() as fake:
        transport = SubprocessTransport(CodexOptions(codex_path=fake.path, codex_home="/nowhere/at/all"))
        with pytest.raises(ConfigurationError, match="there is no directory '/nowhere/at/all'") as caught:
            await transport.connect()
        assert (caught.value.code, caught.value.option) == ("config.invalid", "codex_home")
        assert fake.calls() == []


def test_two_options_for_one_thing_are_refused(tmp_path: Path) -> None:
    for options, named in (
        (CodexOptions(model="a", config={"model": "b"}), "config"),
        (CodexOptions(sandbox="read-only", config={"sandbox_mode": "read-only"}), "config"),
        (CodexOptions(codex_home=tmp_path, env={"CODEX_HOME": "/elsewhere"}), "codex_home"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            SubprocessTransport(options)
        assert caught.value.option == named


def test_options_of_another_kind_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="options must be the options of an agent, such as ClaudeOptions, not dict"):
        SubprocessTransport({"model": "x"})  # type: ignore[arg-type]


# The command line.


def test_the_command_line_has_settings_in_toml_and_then_the_extra_arguments() -> None:
    granular = {"granular": {"mcp_elicitations": True, "rules": False, "sandbox_approval": True}}
    options = CodexOptions(
        model="gpt-5.5",
        sandbox="workspace-write",
        approval_policy=granular,
        config={"features.plugins": False, "model_providers": {"lab": {"name": 'l"ab', "query_params": {"a b": "1"}}}},
        extra_args=("--disable", "apps"),
    )
    argv = build_codex_argv(options, Path("/opt/codex"))
    assert (argv[:2], argv[-2:]) == (["/opt/codex", "app-server"], ["--disable", "apps"])
    assert settings_of(argv) == {
        "features.plugins": False,
        "model_providers": {"lab": {"name": 'l"ab', "query_params": {"a b": "1"}}},
        "model": "gpt-5.5",
        "sandbox_mode": "workspace-write",
        "approval_policy": granular,
    }
    assert build_codex_argv(CodexOptions(), "codex") == ["codex", "app-server"]


plain = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20),
)


@given(
    st.recursive(plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab\"'\n. é", min_size=1), inner, max_size=3))
)
def test_every_value_that_toml_can_hold_is_read_back_as_it_was(value: Any) -> None:
    (read,) = settings_of(build_codex_argv(CodexOptions(config={"a": value}), "codex")).values()
    assert (read, type(read)) == (value, type(value))


def test_a_number_that_is_none_and_a_path_are_written_too() -> None:
    assert math.isnan(settings_of(build_codex_argv(CodexOptions(config={"a": math.nan}), "codex"))["a"])
    assert settings_of(build_codex_argv(CodexOptions(config={"a": Path("/tmp")}), "codex")) == {"a": "/tmp"}


def test_a_value_without_an_end_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ConfigurationError, match="more than 16 levels"):
        build_codex_argv(CodexOptions(config={"a": endless}), "codex")


# The program.


def make(path: Path, *, version: str | None = None, executable: bool = True) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n", "utf-8")
    path.chmod(0o755 if executable else 0o644)
    if version is not None:
        (path.parent.parent / "codex-package.json").write_text(json.dumps({"version": version}), "utf-8")
    return path


def script_of(modules: Path) -> Path:
    """npm's `codex` with its link in `.bin`, as `npm install @openai/codex` makes them."""
    script = make(modules / "@openai/codex/bin/codex.js")
    link = modules / ".bin/codex"
    link.parent.mkdir(parents=True)
    link.symlink_to(script)
    return link


TARGET = "x86_64-unknown-linux-musl"
LINUX = {"platform": "linux", "machine": "x86_64"}


@pytest.mark.parametrize(
    "place",
    [
        f"@openai/codex-linux-x64/vendor/{TARGET}/bin/codex",
        f"@openai/codex/node_modules/@openai/codex-linux-x64/vendor/{TARGET}/bin/codex",
        f"@openai/codex/vendor/{TARGET}/bin/codex",
        f"@openai/codex/vendor/{TARGET}/codex/codex",
    ],
)
def test_the_native_binary_is_run_in_place_of_the_script_of_npm(tmp_path: Path, place: str) -> None:
    modules = tmp_path / "node_modules"
    link, native = script_of(modules), make(modules / place, version="0.169.0")
    for found in (
        find_codex(link, env={}, **LINUX),
        find_codex(env={"CODEX_CLI_PATH": str(link)}, **LINUX),
        find_codex(env={"PATH": f"{link.parent}"}, **LINUX),
        find_codex(env={}, home=tmp_path, **LINUX),
    ):
        assert Path(found.path).resolve() == native
        assert read_cli_version(found) == "0.169.0"


def test_the_script_of_npm_is_run_where_its_binary_is_for_another_machine(tmp_path: Path) -> None:
    link = script_of(tmp_path / "node_modules")
    make(tmp_path / f"node_modules/@openai/codex-linux-x64/vendor/{TARGET}/bin/codex")
    assert find_codex(link, env={}, platform="linux", machine="aarch64").path == str(link)
    assert find_codex(link, env={}, platform="linux", machine="riscv64").path == str(link)


def test_a_global_package_without_a_link_is_found(tmp_path: Path) -> None:
    native = make(tmp_path / f"prefix/lib/node_modules/@openai/codex/vendor/{TARGET}/bin/codex")
    found = find_codex(env={"NPM_CONFIG_PREFIX": str(tmp_path / "prefix")}, home=tmp_path, **LINUX)
    assert (found.path, found.source) == (str(native), "npm")


def test_the_order_is_the_explicit_path_then_the_variable_then_path(tmp_path: Path) -> None:
    first, second, third = (make(tmp_path / name / "codex") for name in ("a", "b", "c"))
    env = {"CODEX_CLI_PATH": str(second), "PATH": str(third.parent)}
    assert find_codex(first, env=env).source == "explicit path"
    assert find_codex(env=env).path == str(second)
    assert find_codex(env={"PATH": env["PATH"]}).path == str(third)
    assert find_codex("codex", env={"PATH": env["PATH"]}).path == str(third)


def test_a_missing_codex_says_where_it_was_looked_for_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CLINotFoundError, match="npm install -g @openai/codex") as caught:
        find_codex(env={"PATH": f"{tmp_path}:node_modules/.bin"}, home=tmp_path, platform="darwin", machine="arm64")
    assert any("codex-darwin-arm64" in place for place in caught.value.searched)
    assert not any(place.startswith("PATH: node_modules") for place in caught.value.searched)
    with pytest.raises(CLINotFoundError, match="CODEX_CLI_PATH names"):
        find_codex(env={"CODEX_CLI_PATH": str(tmp_path / "none")})
    with pytest.raises(NotExecutableError):
        find_codex(make(tmp_path / "codex", executable=False), env={})


def test_the_version_comes_from_the_package_or_from_the_program(tmp_path: Path) -> None:
    modules = tmp_path / "node_modules/@openai"
    for folder, version in (("codex", "0.169.0"), ("codex-linux-x64", "0.170.0-alpha.1-linux-x64")):
        (modules / folder).mkdir(parents=True)
        (modules / folder / "package.json").write_text(json.dumps({"name": "@openai/codex", "version": version}), "utf-8")
    assert read_cli_version(make(modules / "codex/bin/codex.js")) == "0.169.0"
    assert read_cli_version(make(modules / "codex-linux-x64/vendor/x/codex/codex")) == "0.170.0-alpha.1"
    with FakeCodex() as fake:
        assert read_cli_version(fake.path) is None
        assert ask_cli_version(fake.path) == "0.169.0"


# The environment.


def test_the_home_and_the_directory_are_in_the_environment_and_marks_of_a_session_are_not(tmp_path: Path) -> None:
    inherited = {"PATH": "/bin", "CODEX_SANDBOX_NETWORK_DISABLED": "1", "CODEX_THREAD_ID": "x", "CODEX_HOME": "/mine"}
    options = CodexOptions(codex_home=tmp_path, cwd="/work", env={"A": "1"})
    env = build_codex_environment(options, inherited, platform="linux")
    assert env == {"PATH": "/bin", "CODEX_HOME": str(tmp_path), "PWD": "/work", "A": "1"}
    assert describe_codex_environment(options, inherited, platform="linux") == {
        "A": "options.env",
        "CODEX_HOME": "option codex_home",
        "CODEX_SANDBOX_NETWORK_DISABLED": "removed: set by an enclosing session",
        "CODEX_THREAD_ID": "removed: set by an enclosing session",
        "PATH": "inherited",
        "PWD": "option cwd",
    }


PAYING = ("CODEX_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL")


@pytest.mark.parametrize("name", PAYING)
def test_a_policy_keeps_the_key_of_another_account_from_codex(name: str) -> None:
    inherited = {"PATH": "/bin", name: "sk-inherited"}
    assert build_codex_environment(CodexOptions(), inherited) == inherited
    assert build_codex_environment(CodexOptions(billing="subscription"), inherited) == {"PATH": "/bin"}
    assert build_codex_environment(CodexOptions(billing="api_key"), inherited) == inherited
    for options, given_env in (
        (CodexOptions(billing="subscription_strict"), inherited),
        (CodexOptions(billing="subscription", env={name: "sk-given"}), {}),
    ):
        with pytest.raises(ConfigurationError, match=name) as caught:
            build_codex_environment(options, given_env)
        assert "sk-" not in str(caught.value)


async def test_a_key_of_another_account_does_not_reach_the_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in PAYING:
        monkeypatch.setenv(name, "sk-inherited")
    with FakeCodex() as fake:
        async with SubprocessTransport(CodexOptions(codex_path=fake.path, codex_home=tmp_path, billing="subscription")):
            pass
        (call,) = fake.calls()
        assert not set(PAYING) & set(call.env_names)
        assert "CODEX_HOME" in call.env_names


# Who pays.


def login(home: Path, **content: Any) -> CodexOptions:
    home.mkdir(exist_ok=True)
    (home / "auth.json").write_text(json.dumps(content), "utf-8")
    return CodexOptions(codex_home=home, env_mode="exact")


TOKENS = {"id_token": "a.b.c", "access_token": "secret-token"}


@pytest.mark.parametrize(
    ("content", "winner", "payer"),
    [
        ({"OPENAI_API_KEY": "sk-secret"}, "api_key", "api account"),
        ({"OPENAI_API_KEY": "sk-secret", "tokens": TOKENS}, "api_key", "api account"),
        ({"auth_mode": "apikey", "OPENAI_API_KEY": "sk-secret"}, "api_key", "api account"),
        ({"auth_mode": "chatgpt", "OPENAI_API_KEY": "sk-secret", "tokens": TOKENS}, "login", "subscription"),
        ({"OPENAI_API_KEY": None, "tokens": TOKENS}, "login", "subscription"),
        ({"auth_mode": "agentIdentity"}, "unknown", "unknown"),
        ({}, "none", "nobody"),
    ],
)
def test_the_login_is_known_by_its_kind(tmp_path: Path, content: Mapping[str, Any], winner: str, payer: str) -> None:
    report = describe_codex_credentials(login(tmp_path, **content), {"OPENAI_API_KEY": "sk-inherited"})
    assert (report.winner, report.payer) == (winner, payer)
    assert report.name == ("auth.json" if winner in ("api_key", "login") else None)
    assert "secret" not in repr(report)


UNREADABLE_LOGINS = {
    "no text": b"\xff{",
    "no JSON": b"{",
    "no object": b"[]",
    "a mode that is no text": b'{"auth_mode": 1, "OPENAI_API_KEY": "sk-secret"}',
    "too deep": b'{"OPENAI_API_KEY": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "too long": b'{"OPENAI_API_KEY": "sk-secret"}' + b" " * 2**20,
}


@pytest.mark.parametrize("what", UNREADABLE_LOGINS)
def test_a_login_that_is_no_login_counts_as_none(tmp_path: Path, what: str) -> None:
    options = login(tmp_path)
    (tmp_path / "auth.json").write_bytes(UNREADABLE_LOGINS[what])
    report = describe_codex_credentials(options, {})
    assert (report.winner, report.name, report.missing) == ("none", None, "no credential was found for codex. Run `codex login`.")


def test_a_login_that_is_a_directory_counts_as_none(tmp_path: Path) -> None:
    options = login(tmp_path)
    (tmp_path / "auth.json").unlink()
    (tmp_path / "auth.json").mkdir()
    assert describe_codex_credentials(options, {}).winner == "none"


def test_a_login_that_cannot_be_read_counts_as_none(tmp_path: Path) -> None:
    options = login(tmp_path)
    (tmp_path / "auth.json").write_bytes(b"\xff{")
    assert describe_codex_credentials(options, {}).winner == "none"
    (tmp_path / "config.toml").write_text("no toml", "utf-8")
    assert describe_codex_credentials(options, {}).winner == "none"
    assert describe_codex_credentials(options.replace(config={"cli_auth_credentials_store": "keyring"}), {}).winner == "unknown"
    assert describe_codex_credentials(CodexOptions(env_mode="exact"), {}).winner == "none"


def test_the_model_provider_wins_over_the_login(tmp_path: Path) -> None:
    options = login(tmp_path, OPENAI_API_KEY="sk-secret")
    (tmp_path / "config.toml").write_text('model_provider = "lab"\n[model_providers.lab]\nenv_key = "LAB_KEY"\n', "utf-8")
    missing = describe_codex_credentials(options, {})
    assert (missing.winner, missing.present) == ("none", ("auth.json",))
    assert "LAB_KEY, which the model provider names, is not set" in missing.notes
    there = describe_codex_credentials(options.replace(env={"LAB_KEY": "sk-lab"}), {})
    assert (there.winner, there.name, there.payer) == ("api_key", "LAB_KEY", "api account")
    assert describe_codex_credentials(options.replace(config={"model_provider": "openai"}), {}).name == "auth.json"
    assert describe_codex_credentials(options.replace(config={"model_provider": "amazon-bedrock"}), {}).payer == "cloud account"
    assert describe_codex_credentials(options.replace(config={"model_provider": "ollama"}), {}).payer == "nobody"
    headers = options.replace(config={"model_providers.lab": {"env_key": 5, "env_http_headers": {"X": "KEY"}}})
    assert describe_codex_credentials(headers, {}).payer == "token owner"


LAB = {"model_provider": "lab", "model_providers.lab.base_url": "https://lab.example"}
KEYED = {**LAB, "model_providers.lab.env_key": "LAB_KEY"}
NO_LOGIN = "no credential was found for codex. Run `codex login`."
NO_KEY = "no credential was found for codex. Set LAB_KEY, which the model provider names."
NOTE_OF_NO_LOGIN = "there is no login: run `codex login`"
NOTE_OF_LAB = "the model provider 'lab' decides, not the login of Codex"


def report_of(winner: Any, payer: Any, name: str | None, *notes: str, present: tuple[str, ...] = (), missing: str = "") -> CredentialReport:
    headers = () if name is None else ("Authorization",)
    return CredentialReport(winner=winner, name=name, headers=headers, payer=payer, present=present, notes=notes, missing=missing)


@pytest.mark.parametrize(
    ("content", "config", "report"),
    [
        ({}, {}, report_of("none", "nobody", None, NOTE_OF_NO_LOGIN, missing=NO_LOGIN)),
        ({"auth_mode": "apikey", "tokens": TOKENS}, {}, report_of("none", "nobody", None, NOTE_OF_NO_LOGIN, missing=NO_LOGIN)),
        ({"OPENAI_API_KEY": "sk-secret"}, {}, report_of("api_key", "api account", "auth.json")),
        (
            {"auth_mode": "agentIdentity", "tokens": TOKENS},
            {},
            report_of("unknown", "unknown", None, "the login may be in the keyring of the system, which was not looked at"),
        ),
        (
            {"tokens": TOKENS},
            {**LAB, "model_providers.lab.requires_openai_auth": True},
            report_of("login", "subscription", "auth.json"),
        ),
        (
            {"tokens": TOKENS},
            LAB,
            report_of("none", "nobody", None, NOTE_OF_LAB, "nothing is known of a key for it", present=("auth.json",)),
        ),
        (
            {},
            KEYED,
            report_of("none", "nobody", None, NOTE_OF_LAB, "LAB_KEY, which the model provider names, is not set", missing=NO_KEY),
        ),
        ({}, {**KEYED, "model_providers.lab.env_key": "SET_KEY"}, report_of("api_key", "api account", "SET_KEY", NOTE_OF_LAB)),
        ({}, {"model_provider": "ollama"}, report_of("none", "nobody", None, NOTE_OF_LAB.replace("lab", "ollama"))),
        (
            {},
            {**LAB, "model_providers.lab.auth": {"command": "print-token"}},
            report_of("auth_token", "token owner", "model_providers.lab.auth", NOTE_OF_LAB),
        ),
    ],
)
def test_a_report_says_which_credential_is_sent_and_why(tmp_path: Path, content: Any, config: Any, report: CredentialReport) -> None:
    options = login(tmp_path, **content).replace(config=config, env={"SET_KEY": "sk-lab"})
    assert describe_codex_credentials(options, {}) == report


@pytest.mark.parametrize(
    ("billing", "config", "told"),
    [
        (
            "subscription",
            {},
            'billing="subscription": auth.json has a credential of another account. Run `codex login`, or choose another billing',
        ),
        (
            "subscription_strict",
            KEYED,
            'billing="subscription_strict": LAB_KEY has a credential of another account. Choose another model_provider, or another billing',
        ),
    ],
)
def test_a_refused_account_comes_with_what_to_change(tmp_path: Path, billing: Any, config: Any, told: str) -> None:
    options = login(tmp_path, OPENAI_API_KEY="sk-secret").replace(billing=billing, config=config, env={"LAB_KEY": "sk-lab"})
    with pytest.raises(ConfigurationError) as caught:
        check_codex_payer(options, {})
    assert (str(caught.value), caught.value.option, caught.value.code) == (told, "billing", ConfigurationError.code)


def test_variables_that_app_server_does_not_read_are_named() -> None:
    report = describe_codex_credentials(CodexOptions(), {"CODEX_API_KEY": "sk-1", "HOME": "/nowhere"})
    assert report.present == ("CODEX_API_KEY",)
    assert "CODEX_API_KEY is set, and app-server does not read it" in report.notes


def test_a_policy_refuses_the_account_that_it_does_not_allow(tmp_path: Path) -> None:
    key, account = login(tmp_path / "key", OPENAI_API_KEY="sk-secret"), login(tmp_path / "account", tokens=TOKENS)
    provider = account.replace(config={"model_provider": "lab", "model_providers.lab.env_key": "LAB_KEY"}, env={"LAB_KEY": "sk-lab"})
    allowed = {"inherit": (key, account, provider), "subscription": (account, provider), "subscription_strict": (account,)}
    allowed |= {"api_key": (key, provider)}
    for billing, these in allowed.items():
        for options in (key, account, provider):
            with_policy = options.replace(billing=billing)
            if options in these:
                check_codex_payer(with_policy, {})
                continue
            with pytest.raises(ConfigurationError) as caught:
                check_codex_payer(with_policy, {})
            assert caught.value.option == "billing"
    with pytest.raises(ConfigurationError, match="no key was found that app-server reads"):
        check_codex_payer(CodexOptions(billing="api_key", env_mode="exact"), {"OPENAI_API_KEY": "sk-1"})


async def test_a_session_with_the_wrong_account_is_not_started(tmp_path: Path) -> None:
    options = login(tmp_path, OPENAI_API_KEY="sk-secret")
    with FakeCodex() as fake:
        with pytest.raises(ConfigurationError, match="has a credential of another account"):
            await SubprocessTransport(options.replace(billing="subscription", codex_path=fake.path)).connect()
        assert fake.calls() == []


def test_options_with_which_nothing_can_be_started_have_no_texts_for_redactors(tmp_path: Path) -> None:
    """The environment of such options is refused; a redactor is made all the same, to show the refusal."""
    options = login(tmp_path).replace(billing="subscription", env={"OPENAI_API_KEY": "sk-secret"})
    assert list(configuration_texts(options)) == []
    (tmp_path / "config.toml").write_text('[mcp_servers.x.env]\nAPI_TOKEN = "value-of-a-server"\n', "utf-8")
    allowed = options.replace(billing="inherit", config={"model_providers.lab.env_key": "OPENAI_API_KEY"})
    assert [json.loads(text) for text in configuration_texts(allowed)] == [
        {"mcp_servers": {"x": {"env": {"API_TOKEN": "value-of-a-server"}}}},
        {"secrets": {"OPENAI_API_KEY": "sk-secret"}},
    ]


# The process.


async def test_the_transport_shows_the_options_and_knows_their_secrets(tmp_path: Path) -> None:
    servers = '[mcp_servers.x.env]\nAPI_TOKEN = "value-of-a-server"\n'
    (tmp_path / "config.toml").write_text(f'{servers}[model_providers.lab]\nenv_key = "LAB_KEY"\n', "utf-8")
    with FakeCodex(CodexScenario(startup=(steps.Stderr("saw value-of-a-server and value-of-a-key\n"), steps.Exit(1)))) as fake:
        options = CodexOptions(codex_path=fake.path, codex_home=tmp_path, env={"LAB_KEY": "value-of-a-key"})
        transport = SubprocessTransport(options)
        assert transport.options is options
        said = redactor_for(transport).text("value-of-a-server, value-of-a-key")
        assert said == "[secret], [secret]"
        await transport.connect()
        with pytest.raises(Exception, match=r"exit code 1|exited") as caught:
            await anext(transport.read_messages())
        assert "value-of-a" not in str(caught.value)
        assert str(caught.value).endswith("saw [secret] and [secret]")
        await transport.close()


async def test_the_working_directory_and_the_arguments_reach_the_process(tmp_path: Path) -> None:
    with FakeCodex(record_env=("PWD",)) as fake:
        options = CodexOptions(codex_path=fake.path, cwd=tmp_path, config={"features.plugins": False}, extra_args=("--disable", "apps"))
        async with SubprocessTransport(options) as transport:
            assert transport.info.cli_path == str(fake.path)
        (call,) = fake.calls()
        assert call.argv == ["app-server", "-c", "features.plugins=false", "--disable", "apps"]
        assert (call.cwd, call.env["PWD"]) == (str(tmp_path), str(tmp_path))
        with pytest.raises(WorkingDirectoryError):
            await SubprocessTransport(options.replace(cwd=tmp_path / "none")).connect()


async def test_a_command_gets_the_environment_and_no_arguments(tmp_path: Path) -> None:
    with FakeCodex(record_env=("CODEX_HOME",)) as fake:
        async with SubprocessTransport(CodexOptions(codex_home=tmp_path, model="x"), command=fake.command):
            pass
        (call,) = fake.calls()
        assert (call.argv, call.env) == ([], {"CODEX_HOME": str(tmp_path)})


async def test_a_launcher_on_this_machine_starts_it_behind_a_prefix(tmp_path: Path) -> None:
    with FakeCodex(record_env=("BEHIND",)) as fake:
        launcher = Launcher.local(["env", "BEHIND=1"])
        async with SubprocessTransport(CodexOptions(codex_path=fake.path), launcher=launcher):
            pass
        (call,) = fake.calls()
        assert (call.argv, call.env) == (["app-server"], {"BEHIND": "1"})
    with pytest.raises(ConfigurationError, match="there is no program"):
        await SubprocessTransport(CodexOptions(), launcher=Launcher.local(["no-such-prefix"])).connect()


async def test_a_query_says_at_once_that_codex_is_not_for_it() -> None:
    with FakeCodex() as fake:
        query = Query(SubprocessTransport(CodexOptions(codex_path=fake.path)), initialize_timeout=5)
        with pytest.raises(ConfigurationError, match="use CodexSession") as caught:
            await query.__aenter__()
        assert caught.value.option == "transport"
        assert fake.calls() == []


async def test_a_launcher_on_another_machine_sends_arguments_and_environment_to_its_supervisor(tmp_path: Path) -> None:
    client = tmp_path / "docker"
    client.write_text('#!/bin/sh\nwhile [ "$1" != box ]; do shift; done\nshift\nexec "$@"\n', "utf-8")
    client.chmod(0o755)
    with FakeCodex(record_env=("CODEX_HOME", "LAB_KEY", "OPENAI_API_KEY")) as fake:
        options = CodexOptions(
            codex_path=fake.path, codex_home="/there", env={"LAB_KEY": "sk-lab"}, model="gpt-5.5", billing="subscription"
        )
        transport = SubprocessTransport(options, launcher=Launcher.docker("box", program=str(client)))
        await transport.connect()
        assert transport.info.cli_path == str(fake.path)
        await transport.write('{"id": 0, "method": "initialize", "params": {"clientInfo": {"name": "test"}}}\n')
        assert (await anext(transport.read_messages()))["id"] == 0
        await transport.close()
        (call,) = fake.calls()
        assert call.argv == ["app-server", "-c", 'model="gpt-5.5"']
        assert call.env == {"CODEX_HOME": "/there", "LAB_KEY": "sk-lab"}
        none = SubprocessTransport(options.replace(codex_path="/no/such/codex"), launcher=Launcher.docker("box", program=str(client)))
        with pytest.raises(CLINotFoundError, match="codex_path"):
            await none.connect()


def test_claude_options_stay_the_default_and_load_nothing_of_codex() -> None:
    import subprocess

    code = "import sys, claude_transport as ct; ct.SubprocessTransport(ct.ClaudeOptions()); "
    code += "print([name for name in sys.modules if '.codex' in name])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
