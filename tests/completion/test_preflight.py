"""What stands in the way of a call, which credential would win, and who would pay; found out without spending anything."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from claude_transport.client.shadowing import check_account
from claude_transport.codex import CodexOptions
from claude_transport.completion.readiness import (
    LoginStatus,
    api_credential_of,
    check_billing,
    find_config_dir,
    preflight,
    read_login_status,
    read_user_settings,
)
from claude_transport.completion.resolution import CHOICES, MATRIX, NO_PATH, AvailableMeans, TransportChoice
from claude_transport.errors import ConfigurationError, SpawnError
from claude_transport.launch.options import ClaudeOptions
from claude_transport.protocol.control import AccountInfo

SECRET = "sk-ant-SENTINEL"
posix_only = pytest.mark.skipif(os.name == "nt", reason="the stand-in is a shell script")


@pytest.fixture
def claude(tmp_path: Path) -> str:
    """An executable that would be run; it is not."""
    path = tmp_path / ("claude.exe" if os.name == "nt" else "claude")
    path.write_text("#!/bin/sh\nexit 99\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def world(tmp_path: Path, claude: str) -> Any:
    """`world(cli=…, **variables)`: an environment with, or without, a claude and nothing else but the variables."""

    def environment(*, cli: bool = True, **variables: str) -> dict[str, str]:
        path = claude if cli else str(tmp_path / "nowhere")
        return {"HOME": str(tmp_path / "home"), "CLAUDE_CLI_PATH": path, **variables}

    return environment


@pytest.fixture
def project(tmp_path: Path) -> ClaudeOptions:
    """Options whose project is empty, so that no settings of this repository count."""
    (tmp_path / "project").mkdir()
    return ClaudeOptions(cwd=tmp_path / "project")


# ------------------------------------------------------------------------------------------------- the matrix, in pre-flight


@pytest.mark.parametrize("row", MATRIX)
@pytest.mark.parametrize("choice", CHOICES)
def test_s1_5_passes_when_any_path_is_open_and_fails_when_none_is(
    row: AvailableMeans, choice: TransportChoice, world: Any, project: ClaudeOptions
) -> None:
    report = preflight(choice, env=world(cli=row.cli, **({"ANTHROPIC_API_KEY": SECRET} if row.api_key else {})), options=project)
    cell = MATRIX[row][choice]
    assert (report.row, report.choice, report.cell) == (row, choice, cell)
    assert report.ok == (row.cli or row.api_key)
    assert any(warning.startswith("the call will fail") for warning in report.warnings) == (cell.failure == "call")
    if report.ok:
        assert report.raise_for_problem() is report
        assert report.resolution is not None
        assert report.resolution.kind == cell.kind
    else:
        helps = {"auto": r"no claude was found.*ANTHROPIC_API_KEY", "cli": r"no claude was found.*Install", "api": r"Set ANTHROPIC_API_KEY"}
        with pytest.raises(ConfigurationError, match=helps[choice]) as caught:
            report.raise_for_problem()
        assert ("ANTHROPIC_API_KEY" in str(caught.value)) == (choice != "cli")
        assert caught.value.code == "config.no_auth_path"


def test_s1_5_says_where_a_claude_was_looked_for(world: Any, project: ClaudeOptions) -> None:
    report = preflight(env=world(cli=False), options=project)
    assert report.cli is None
    assert "nowhere" in report.searched[0]


def test_s1_5_facts_that_are_passed_are_not_looked_for(project: ClaudeOptions) -> None:
    report = preflight(env={}, options=project, cli_available=False, api_key_available=True)
    assert report.row == AvailableMeans(api_key=True, cli=False)
    assert report.searched == ()
    report = preflight(env={"CLAUDE_CLI_PATH": "/nowhere/claude"}, options=project, cli_available=True, api_key_available=False)
    assert report.ok
    assert report.resolution is not None
    assert report.resolution.kind == "cli"


def test_s1_5_the_strict_check_requires_the_key(world: Any, project: ClaudeOptions) -> None:
    assert preflight(env=world(ANTHROPIC_API_KEY=SECRET), options=project, strict=True).ok
    for env in (world(), world(ANTHROPIC_AUTH_TOKEN=SECRET), world(ANTHROPIC_API_KEY=" ")):
        report = preflight(env=env, options=project, strict=True)
        assert (report.ok, report.code) == (False, "config.no_api_key")
        assert "ANTHROPIC_API_KEY" in report.problem


def test_s1_5_the_path_in_the_options_is_the_one_that_counts(world: Any, claude: str, project: ClaudeOptions) -> None:
    report = preflight(env=world(cli=False), options=project.replace(cli_path=claude))
    assert report.cli is not None
    assert report.cli.source == "explicit path"


@posix_only
def test_a_program_that_may_not_be_run_is_named_and_counts_as_none(world: Any, claude: str, project: ClaudeOptions) -> None:
    Path(claude).chmod(0o644)
    report = preflight(env=world(cli=False), options=project.replace(cli_path=claude))
    assert (report.ok, report.cli, report.row) == (False, None, AvailableMeans(api_key=False, cli=False))
    assert [claude in each for each in report.searched] == [True]


def test_s1_3_a_declaration_counts_here_as_it_does_in_the_call(world: Any, project: ClaudeOptions) -> None:
    report = preflight(env=world(ANTHROPIC_API_KEY=SECRET), declared={"transport": "api"}, options=project)
    assert report.resolution is not None
    assert (report.resolution.kind, report.resolution.layer) == ("api", "declared")


def test_a_choice_that_is_none_is_refused_also_where_no_path_is_open(world: Any, project: ClaudeOptions) -> None:
    with pytest.raises(ConfigurationError, match="CLAUDE_TRANSPORT says 'ssh'"):
        preflight(env=world(cli=False, CLAUDE_TRANSPORT="ssh"), options=project)


# ----------------------------------------------------------------------------------------------------- who would pay


@pytest.mark.parametrize(
    ("choice", "variables", "credential", "payer"),
    [
        ("auto", {"ANTHROPIC_API_KEY": SECRET}, "ANTHROPIC_API_KEY", "api account"),
        ("api", {"ANTHROPIC_API_KEY": SECRET, "ANTHROPIC_AUTH_TOKEN": SECRET}, "ANTHROPIC_API_KEY", "api account"),
        ("cli", {"ANTHROPIC_API_KEY": SECRET, "ANTHROPIC_AUTH_TOKEN": SECRET}, "ANTHROPIC_AUTH_TOKEN", "token owner"),
        ("api", {"ANTHROPIC_AUTH_TOKEN": SECRET}, "ANTHROPIC_AUTH_TOKEN", "token owner"),
        ("cli", {"CLAUDE_CODE_OAUTH_TOKEN": SECRET}, "CLAUDE_CODE_OAUTH_TOKEN", "subscription"),
        ("cli", {"CLAUDE_CODE_USE_BEDROCK": "1", "ANTHROPIC_API_KEY": SECRET}, "CLAUDE_CODE_USE_BEDROCK", "cloud account"),
        ("api", {"CLAUDE_CODE_OAUTH_TOKEN": SECRET}, None, "nobody"),
        ("cli", {}, None, "nobody"),
    ],
)
def test_s3_1_says_which_credential_wins_and_who_pays_and_no_value(
    choice: TransportChoice, variables: dict[str, str], credential: str | None, payer: str, world: Any, project: ClaudeOptions
) -> None:
    report = preflight(choice, env=world(**variables), options=project)
    assert (report.credential, report.payer) == (credential, payer)
    assert SECRET not in repr(report)


def test_s3_1_a_key_that_wins_over_the_login_is_warned_about_with_the_remedy(world: Any, project: ClaudeOptions) -> None:
    (warning,) = preflight(env=world(ANTHROPIC_API_KEY=SECRET), options=project).warnings
    assert 'ANTHROPIC_API_KEY wins over the login of claude: billing="subscription"' in warning


def test_s3_1_a_key_of_the_settings_is_not_warned_about_with_a_remedy_that_fails(world: Any, project: ClaudeOptions) -> None:
    """`billing="subscription"` keeps variables from the child, and not settings."""
    settings = json.dumps({"env": {"ANTHROPIC_API_KEY": SECRET}})
    report = preflight(env=world(), options=project.replace(settings=settings))
    assert (report.credential, report.payer) == ("ANTHROPIC_API_KEY", "api account")
    assert report.warnings == ("ANTHROPIC_API_KEY comes from the settings, which win over the environment",)


def test_s3_1_a_billing_policy_changes_who_pays(world: Any, project: ClaudeOptions, tmp_path: Path) -> None:
    login = tmp_path / "home" / ".claude" / ".credentials.json"
    login.parent.mkdir(parents=True)
    login.write_text(SECRET)
    env = world(ANTHROPIC_API_KEY=SECRET)
    assert preflight(env=env, options=project).payer == "api account"
    assert preflight(env=env, options=project, billing="subscription").payer == "subscription"
    assert preflight(env=env, options=project.replace(billing="subscription")).payer == "subscription"


def test_s3_1_a_billing_policy_that_cannot_be_kept_is_a_problem(world: Any, project: ClaudeOptions) -> None:
    strict = preflight(env=world(ANTHROPIC_API_KEY=SECRET), options=project, billing="subscription_strict")
    assert (strict.ok, strict.option) == (False, "billing")
    assert "ANTHROPIC_API_KEY" in strict.problem
    by_api = preflight("api", env=world(ANTHROPIC_API_KEY=SECRET), options=project, billing="subscription")
    assert (by_api.ok, by_api.option) == (False, "billing")
    assert "cannot use a subscription" in by_api.problem
    by_key = preflight("cli", env=world(), options=project, billing="api_key")
    assert (by_key.ok, by_key.option) == (False, "billing")


@pytest.mark.parametrize(
    ("billing", "settings", "blamed"),
    [
        ("subscription", {"env": {"ANTHROPIC_API_KEY": SECRET}}, "ANTHROPIC_API_KEY"),
        ("subscription", {"apiKeyHelper": "echo " + SECRET}, "apiKeyHelper"),
        ("subscription_strict", {"env": {"ANTHROPIC_AUTH_TOKEN": SECRET}}, "ANTHROPIC_AUTH_TOKEN"),
        ("subscription_strict", {"env": {"CLAUDE_CODE_USE_BEDROCK": "1"}}, "CLAUDE_CODE_USE_BEDROCK"),
        ("api_key", {"env": {"ANTHROPIC_AUTH_TOKEN": SECRET}}, "ANTHROPIC_AUTH_TOKEN"),
    ],
)
def test_s3_1_settings_that_break_the_billing_policy_are_a_problem(
    billing: Any, settings: dict[str, Any], blamed: str, world: Any, project: ClaudeOptions, tmp_path: Path
) -> None:
    folder = tmp_path / "home" / ".claude"
    folder.mkdir(parents=True)
    (folder / "settings.json").write_text(json.dumps(settings))
    env = world(**({"ANTHROPIC_API_KEY": SECRET} if billing == "api_key" else {"CLAUDE_CODE_OAUTH_TOKEN": SECRET}))
    report = preflight("cli", env=env, options=project, billing=billing)
    assert (report.ok, report.option) == (False, "billing")
    assert blamed in report.problem
    assert SECRET not in repr(report)
    assert preflight("cli", env=env, options=project.replace(setting_sources=()), billing=billing).ok
    assert preflight("cli", env=env, options=project.replace(setting_sources=["project"]), billing=billing).ok
    assert not preflight("cli", env=env, options=project.replace(setting_sources=["user"]), billing=billing).ok


@pytest.mark.parametrize(
    ("billing", "account", "blamed"),
    [
        ("inherit", {"apiKeySource": "ANTHROPIC_API_KEY"}, None),
        ("subscription", {"tokenSource": "CLAUDE_CODE_OAUTH_TOKEN"}, None),
        ("subscription", {"tokenSource": "none", "apiKeySource": "none", "apiProvider": "firstParty"}, None),
        ("subscription", {}, None),
        ("subscription", {"tokenSource": "CLAUDE_CODE_OAUTH_TOKEN", "apiKeySource": "/login managed key"}, "/login managed key"),
        ("subscription_strict", {"tokenSource": "ANTHROPIC_AUTH_TOKEN"}, "ANTHROPIC_AUTH_TOKEN"),
        ("subscription_strict", {"apiProvider": "bedrock"}, "bedrock"),
        ("api_key", {"apiKeySource": "ANTHROPIC_API_KEY", "tokenSource": "CLAUDE_CODE_OAUTH_TOKEN"}, None),
        ("api_key", {"apiKeySource": "ANTHROPIC_API_KEY", "tokenSource": "ANTHROPIC_AUTH_TOKEN"}, "ANTHROPIC_AUTH_TOKEN"),
        ("api_key", {"apiProvider": "vertex"}, "vertex"),
    ],
)
def test_s3_1_what_the_cli_says_of_its_account_is_held_against_the_policy(billing: Any, account: Any, blamed: str | None) -> None:
    said = msgspec.convert(account, AccountInfo)
    if blamed is None:
        check_account(billing, said)
        return
    with pytest.raises(ConfigurationError, match=re.escape(blamed)) as caught:
        check_account(billing, said)
    assert caught.value.option == "billing"


def test_s3_1_the_policy_is_asked_only_of_the_path_that_is_taken(world: Any, project: ClaudeOptions) -> None:
    assert preflight("api", env=world(ANTHROPIC_API_KEY=SECRET, ANTHROPIC_AUTH_TOKEN=SECRET), options=project, billing="api_key").ok
    check_billing("cli", "subscription_strict")
    check_billing("api", "inherit")
    with pytest.raises(ConfigurationError, match="cannot use a subscription"):
        check_billing("api", "subscription_strict")


def test_settings_decide_about_credentials_and_those_of_the_options_win(world: Any, project: ClaudeOptions, tmp_path: Path) -> None:
    folder = tmp_path / "project" / ".claude"
    folder.mkdir()
    (folder / "settings.json").write_text(json.dumps({"env": {"ANTHROPIC_AUTH_TOKEN": SECRET}, "permissions": {}}))
    (folder / "settings.local.json").write_text("{ this is no JSON")
    assert preflight(env=world(), options=project).credential == "ANTHROPIC_AUTH_TOKEN"
    assert preflight(env=world(), options=project.replace(setting_sources=())).credential is None
    helper = project.replace(setting_sources=(), settings={"apiKeyHelper": "echo"})
    assert preflight(env=world(), options=helper).credential == "apiKeyHelper"
    assert set(read_user_settings(world(), project=tmp_path / "project")) == {"env", "apiKeyHelper"}


def test_a_key_in_the_options_counts_and_one_that_they_keep_out_does_not(world: Any, project: ClaudeOptions) -> None:
    brought = preflight("api", env=world(), options=project.replace(env={"ANTHROPIC_API_KEY": SECRET}), strict=True)
    assert (brought.ok, brought.row.api_key, brought.credential) == (True, True, "ANTHROPIC_API_KEY")
    kept_out = preflight(env=world(cli=False, ANTHROPIC_API_KEY=SECRET), options=project.replace(env_mode="allowlist"))
    assert (kept_out.ok, kept_out.code) == (False, "config.no_auth_path")


def test_the_key_is_named_before_the_token_and_nothing_for_blanks() -> None:
    assert api_credential_of({"ANTHROPIC_API_KEY": " ", "ANTHROPIC_AUTH_TOKEN": "x"}) == "ANTHROPIC_AUTH_TOKEN"
    assert api_credential_of({}) is None


# ------------------------------------------------------------------------------------------------ what the CLI says of itself


def test_e6_a_claude_that_says_it_is_not_logged_in_is_a_problem_before_a_turn_is_spent(world: Any, project: ClaudeOptions) -> None:
    out = LoginStatus(logged_in=False, auth_method="none")
    report = preflight("cli", env=world(), options=project, login_status=out)
    assert (report.ok, report.code) == (False, "exec.cli.auth_failed")
    with pytest.raises(ConfigurationError, match="/login") as caught:
        report.raise_for_problem()
    assert caught.value.category == "auth"
    assert preflight("api", env=world(ANTHROPIC_API_KEY=SECRET), options=project, login_status=out).ok


@pytest.mark.parametrize("code", ["config.no_auth_path", "exec.cli.auth_failed"])
def test_the_problem_of_a_report_is_raised_with_all_that_is_known_of_it(world: Any, project: ClaudeOptions, code: str) -> None:
    report = preflight("cli", env=world(), options=project)
    report = msgspec.structs.replace(report, ok=False, problem="no way", code=code, option="cli_path")
    with pytest.raises(ConfigurationError, match="no way") as caught:
        report.raise_for_problem()
    assert (caught.value.code, caught.value.option) == (code, "cli_path")


def test_e6_without_that_a_login_that_was_not_found_is_a_warning_only(world: Any, project: ClaudeOptions) -> None:
    report = preflight("cli", env=world(), options=project)
    assert report.ok
    assert any("not logged in" in warning for warning in report.warnings)


@pytest.mark.parametrize(
    ("status", "credential", "payer"),
    [
        (LoginStatus(logged_in=True, auth_method="claude.ai", subscription_type="max"), "login (max)", "subscription"),
        (LoginStatus(logged_in=True, auth_method="claude.ai"), "login", "subscription"),
        (LoginStatus(logged_in=True, auth_method="api_key", api_key_source="/login managed key"), "/login managed key", "api account"),
    ],
)
def test_a_login_that_is_in_no_file_is_known_from_what_the_cli_says(
    status: LoginStatus, credential: str, payer: str, world: Any, project: ClaudeOptions
) -> None:
    report = preflight(env=world(), options=project, login_status=status)
    assert (report.credential, report.payer) == (credential, payer)


def stand_in(tmp_path: Path, body: str) -> str:
    path = tmp_path / "stand-in"
    path.write_text(f"#!{sys.executable}\nimport sys, os\n{body}\n")
    path.chmod(0o755)
    return str(path)


@posix_only
async def test_login_status_is_one_bounded_process_in_the_given_environment(tmp_path: Path) -> None:
    said = '{"loggedIn": true, "authMethod": "claude.ai", "email": "a@b", "subscriptionType": "max", "new": 1}'
    seen = tmp_path / "seen"
    program = stand_in(tmp_path, f"open({str(seen)!r}, 'w').write(repr((sys.argv[1:], sorted(os.environ)))); print('''{said}''')")
    found = await read_login_status(program, env={"LC_CTYPE": "C.UTF-8"})
    assert found == LoginStatus(logged_in=True, auth_method="claude.ai", subscription_type="max")
    assert seen.read_text() == repr((["auth", "status", "--json"], ["LC_CTYPE"]))


@posix_only
@pytest.mark.parametrize("body", ["print('Unknown command')", "sys.exit(1)", "print('[]')", "sys.stdout.buffer.write(bytes([255]))"])
async def test_a_cli_that_does_not_know_the_command_has_said_nothing(tmp_path: Path, body: str) -> None:
    assert await read_login_status(stand_in(tmp_path, body), env={}) is None


@posix_only
async def test_a_cli_that_does_not_answer_is_killed_and_has_said_nothing(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    program = stand_in(tmp_path, f"open({str(pid)!r}, 'w').write(str(os.getpid()))\nimport time; time.sleep(600)")
    for timeout in (0.5, 5.0, 50.0):  # up to the first in which this machine gets as far as starting it
        assert await read_login_status(program, env={}, timeout=timeout) is None
        if pid.exists() and pid.read_text():
            break
    else:
        pytest.fail("it was never started")
    alive = subprocess.run(["ps", "-p", pid.read_text(), "-o", "stat="], capture_output=True, text=True, check=False)
    assert alive.stdout.strip() in {"", "Z"}


async def test_a_cli_that_cannot_be_started_says_so(tmp_path: Path) -> None:
    with pytest.raises(SpawnError, match="cannot be started") as caught:
        await read_login_status(tmp_path / "nowhere", env={})
    assert caught.value.path == str(tmp_path / "nowhere")


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    assert find_config_dir({"HOME": "/there"}) == Path("/there/.claude")
    assert find_config_dir({"CLAUDE_CONFIG_DIR": "/there"}) == Path("/there")
    with pytest.raises(ConfigurationError, match="set HOME, or CLAUDE_CONFIG_DIR") as caught:
        find_config_dir({})
    assert caught.value.option == "HOME"


# ------------------------------------------------------------------------------------------------- a problem without a refusal


def test_a_claude_without_a_credential_is_a_problem_and_may_be_tried(world: Any, project: ClaudeOptions) -> None:
    for options, what in ((project, "claude"), (project.replace(bare=True), "a bare session")):
        report = preflight(env=world(), options=options)
        assert (report.ok, report.payer, report.code, report.option) == (True, "nobody", "exec.cli.auth_failed", None)
        assert report.problem.startswith(f"no credential was found for {what}. ")
        assert "ANTHROPIC_API_KEY" in report.problem
        assert report.raise_for_problem() is report
    status = LoginStatus(logged_in=True, auth_method="claude.ai", subscription_type="max")
    assert preflight(env=world(), options=project, login_status=status).problem == ""
    assert preflight(env=world(ANTHROPIC_API_KEY=SECRET), options=project).problem == ""


@pytest.mark.parametrize(
    ("choice", "cli", "variables", "code"),
    [("cli", False, {"ANTHROPIC_API_KEY": SECRET}, "exec.cli.binary_not_found"), ("api", True, {}, "exec.cli.auth_failed")],
)
def test_a_path_that_is_closed_is_a_problem_also_when_the_other_is_open(
    choice: TransportChoice, cli: bool, variables: dict[str, str], code: str, world: Any, project: ClaudeOptions
) -> None:
    report = preflight(choice, env=world(cli=cli, **variables), options=project)
    assert (report.ok, report.payer, report.code, report.option) == (True, "nobody", code, "transport")
    assert report.problem == NO_PATH[choice]


@pytest.mark.parametrize("row", MATRIX)
@pytest.mark.parametrize("choice", CHOICES)
def test_there_is_a_problem_exactly_when_nothing_can_run_or_no_account_is_known(
    row: AvailableMeans, choice: TransportChoice, world: Any, project: ClaudeOptions
) -> None:
    report = preflight(choice, env=world(cli=row.cli, **({"ANTHROPIC_API_KEY": SECRET} if row.api_key else {})), options=project)
    assert bool(report.problem) == (report.payer == "nobody") == (report.code is not None)


def test_a_codex_without_a_credential_is_a_problem_unless_it_needs_none(world: Any, claude: str, tmp_path: Path) -> None:
    def problem(configuration: str) -> tuple[bool, str, str | None]:
        home = tmp_path / "codex"
        home.mkdir(exist_ok=True)
        (home / "config.toml").write_text(configuration, "utf-8")
        env = {"HOME": str(tmp_path), "CODEX_HOME": str(home)}
        report = preflight(env=env, agent="codex", codex=CodexOptions(codex_path=claude))
        return report.ok, report.problem, report.code

    refused = "exec.cli.auth_failed"
    assert problem("") == (True, "no credential was found for codex. Run `codex login`.", refused)
    keyed = 'model_provider = "mine"\n[model_providers.mine]\nname = "mine"\nbase_url = "http://127.0.0.1:1"\nenv_key = "MINE"\n'
    assert problem(keyed) == (True, "no credential was found for codex. Set MINE, which the model provider names.", refused)
    assert problem('model_provider = "ollama"\n') == (True, "", None)
