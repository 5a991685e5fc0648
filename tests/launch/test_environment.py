"""The child's environment: whose marks it loses, who pays, and that its values are never described."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claude_transport.errors import ConfigurationError
from claude_transport.launch.environ import CLOUD_SWITCHES, NESTING, VARIABLES, build_environment, describe_environment, environment_now
from claude_transport.launch.options import BillingPolicy, ClaudeOptions, EnvironmentMode
from claude_transport.launch.validation import validate_options

SECRET = "sentinel-secret-77ab"
OTHER_PAYERS: tuple[str, ...] = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", *CLOUD_SWITCHES)


def build(inherited: Mapping[str, str] | None = None, *, platform: str = "linux", **options: Any) -> dict[str, str]:
    return build_environment(ClaudeOptions(session_state_events=False, **options), inherited or {}, platform=platform)


def describe(inherited: Mapping[str, str] | None = None, *, platform: str = "linux", **options: Any) -> dict[str, str]:
    return describe_environment(ClaudeOptions(session_state_events=False, **options), inherited or {}, platform=platform)


# ---------------------------------------------------------------------------------------------- marks of a session


@pytest.mark.parametrize("mode", ["inherit", "allowlist", "exact"])
@pytest.mark.parametrize("name", sorted(NESTING))
def test_a_mark_of_an_enclosing_session_is_not_inherited_in_any_mode(name: str, mode: EnvironmentMode) -> None:
    assert build({name: "1", "PATH": "/bin"}, env_mode=mode, env_allow=["*"]).get(name) is None


@pytest.mark.parametrize("name", ["CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SSE_PORT", "CLAUDE_CODE_SESSION_ID"])
def test_the_marks_that_make_a_session_a_nested_one_are_known(name: str) -> None:
    assert name in NESTING


def test_who_sets_a_mark_on_purpose_gets_it() -> None:
    assert build({"CLAUDECODE": "1"}, env={"CLAUDECODE": "2"}) == {"CLAUDECODE": "2"}


def test_the_entry_point_is_inherited_from_nobody_and_set_by_its_option() -> None:
    assert build({"CLAUDE_CODE_ENTRYPOINT": "cli"}) == {}
    assert build({"CLAUDE_CODE_ENTRYPOINT": "cli"}, entrypoint="sdk-mine") == {"CLAUDE_CODE_ENTRYPOINT": "sdk-mine"}


# ------------------------------------------------------------------------------------------------------ three modes


INHERITED = {"PATH": "/bin", "LC_ALL": "C", "XDG_CACHE_HOME": "/c", "SECRET": SECRET, "MY_A": "1", "MY_B": "2", "HTTPS_PROXY": "p"}


def test_inherit_keeps_everything_and_adds_what_is_given() -> None:
    assert build(INHERITED, env={"MY_A": "9", "NEW": "n"}) == {**INHERITED, "MY_A": "9", "NEW": "n"}


def test_allowlist_keeps_what_a_program_needs_and_what_is_named() -> None:
    env = build(INHERITED, env={"NEW": "n"}, env_mode="allowlist", env_allow=["MY_?"])
    assert env == {name: value for name, value in INHERITED.items() if name != "SECRET"} | {"NEW": "n"}


def test_exact_keeps_nothing_but_what_the_options_say() -> None:
    assert build(INHERITED, env={"PATH": "/opt"}, env_mode="exact", pin_cli=True) == {"PATH": "/opt", "DISABLE_AUTOUPDATER": "1"}


def test_credentials_do_not_pass_the_allowlist_unless_they_are_named() -> None:
    inherited = dict.fromkeys(OTHER_PAYERS, "1")
    assert build(inherited, env_mode="allowlist") == {}
    assert build(inherited, env_mode="allowlist", env_allow=["ANTHROPIC_API_KEY"]) == {"ANTHROPIC_API_KEY": "1"}


def test_names_differ_by_case_on_posix_and_do_not_on_windows() -> None:
    inherited = {"Path": "C:\\bin", "Mine": "1", "claudecode": "1"}
    assert build(inherited, env_mode="allowlist", env_allow=["mine"], platform="win32") == {"PATH": "C:\\bin", "MINE": "1"}
    assert build(inherited, env_mode="allowlist", env_allow=["mine"]) == {}
    assert build({"Path": "a"}, env={"path": "b"}, platform="win32") == {"PATH": "b"}


def test_the_environment_of_this_process_is_only_read() -> None:
    before = dict(os.environ)
    build_environment(ClaudeOptions(billing="subscription", env={"NEW_VARIABLE": "1"}), os.environ)
    assert dict(os.environ) == before


# ------------------------------------------------------------------------------------------- what the options imply


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"max_retries": 0}, {"CLAUDE_CODE_MAX_RETRIES": "0"}),
        ({"max_output_tokens": 4096}, {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": "4096"}),
        ({"mcp_timeout": 1.5}, {"MCP_TIMEOUT": "1500"}),
        ({"mcp_tool_timeout": 0.0001}, {"MCP_TOOL_TIMEOUT": "1"}),
        ({"background_wait_ceiling": 2}, {"CLAUDE_CODE_PRINT_BG_WAIT_CEILING_MS": "2000"}),
        ({"background_wait_ceiling": math.inf}, {"CLAUDE_CODE_PRINT_BG_WAIT_CEILING_MS": "0"}),
        ({"disable_background_tasks": True}, {"CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1"}),
        ({"enable_file_checkpointing": True}, {"CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING": "true"}),
        ({"pin_cli": True}, {"DISABLE_AUTOUPDATER": "1"}),
        ({"config_dir": Path("/c")}, {"CLAUDE_CONFIG_DIR": "/c"}),
        ({"client_app": "app/1"}, {"CLAUDE_AGENT_SDK_CLIENT_APP": "app/1"}),
        ({"cwd": "/srv/dir/.."}, {"PWD": "/srv"}),
    ],
)
def test_an_option_becomes_its_variable(options: dict[str, Any], expected: dict[str, str]) -> None:
    assert build(**options) == expected


def test_session_state_events_are_on_by_default() -> None:
    assert build_environment(ClaudeOptions(), {}) == {"CLAUDE_CODE_SDK_READS_SESSION_STATE": "1"}


def test_an_option_wins_over_what_is_inherited_and_env_wins_over_an_option() -> None:
    assert build({"MCP_TIMEOUT": "1"}, mcp_timeout=2) == {"MCP_TIMEOUT": "2000"}
    assert build({"MCP_TIMEOUT": "1"}, mcp_timeout=2, env={"MCP_TIMEOUT": "3"}) == {"MCP_TIMEOUT": "3"}


def test_no_two_options_write_one_variable() -> None:
    names = [row.name for row in VARIABLES]
    assert len(names) == len(set(names))


# ----------------------------------------------------------------------------------------------- who pays


@pytest.mark.parametrize("name", OTHER_PAYERS)
def test_a_subscription_is_not_outbid_by_an_inherited_key(name: str) -> None:
    inherited = {name: SECRET, "CLAUDE_CODE_OAUTH_TOKEN": "t"}
    assert build(inherited) == inherited
    assert build(inherited, billing="subscription") == {"CLAUDE_CODE_OAUTH_TOKEN": "t"}
    assert build({name: ""}, billing="subscription") == {}, "an empty one is removed, too"


@pytest.mark.parametrize("name", OTHER_PAYERS)
def test_strict_subscription_refuses_to_start_while_another_could_pay(name: str) -> None:
    with pytest.raises(ConfigurationError, match=name) as caught:
        build({name: SECRET}, billing="subscription_strict")
    assert caught.value.option == "billing"
    assert SECRET not in str(caught.value)
    assert build({name: "", "PATH": "/bin"}, billing="subscription_strict").get(name, "") == ""


@pytest.mark.parametrize("policy", ["subscription", "subscription_strict"])
@pytest.mark.parametrize("name", OTHER_PAYERS)
def test_env_may_not_contradict_a_subscription(name: str, policy: BillingPolicy) -> None:
    with pytest.raises(ConfigurationError, match=f"{name}.*remove it from env") as caught:
        build(env={name: SECRET}, billing=policy)
    assert caught.value.option == "env"
    assert SECRET not in str(caught.value)


HEADERS_THAT_PAY = (
    f"x-api-key: {SECRET}",
    f"x-team: blue\nX-Api-Key:{SECRET}",
    f"x-team: blue\r\n  AUTHORIZATION : Bearer {SECRET}\r\n",
    f"\ufeffProxy-Authorization: Basic {SECRET}",
)


@pytest.mark.parametrize("headers", HEADERS_THAT_PAY)
def test_a_subscription_is_not_outbid_by_a_credential_among_custom_headers(headers: str) -> None:
    inherited = {"ANTHROPIC_CUSTOM_HEADERS": headers, "PATH": "/bin"}
    assert build(inherited) == inherited
    assert build(inherited, billing="subscription") == {"PATH": "/bin"}
    assert describe(inherited, billing="subscription")["ANTHROPIC_CUSTOM_HEADERS"] == 'removed: billing="subscription"'
    assert build({**inherited, "ANTHROPIC_API_KEY": "k"}, billing="api_key") == {"ANTHROPIC_API_KEY": "k", "PATH": "/bin"}
    with pytest.raises(ConfigurationError, match=r"ANTHROPIC_CUSTOM_HEADERS.*remove it from env") as caught:
        build(env=inherited, billing="subscription")
    assert (caught.value.option, SECRET in str(caught.value)) == ("env", False)
    with pytest.raises(ConfigurationError, match=r"ANTHROPIC_CUSTOM_HEADERS.*remove one") as caught:
        validate_options(ClaudeOptions(billing="subscription", settings={"env": inherited}))
    assert (caught.value.option, SECRET in str(caught.value)) == ("settings", False)
    with pytest.raises(ConfigurationError, match="ANTHROPIC_CUSTOM_HEADERS") as caught:
        build(inherited, billing="subscription_strict")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("policy", ["subscription", "subscription_strict"])
def test_custom_headers_that_pay_nothing_are_kept(policy: BillingPolicy) -> None:
    inherited = {"ANTHROPIC_CUSTOM_HEADERS": "x-team: blue\nx-note: authorization: none"}
    assert build(inherited, billing=policy) == inherited
    assert build(env=inherited, billing=policy) == inherited


def test_billing_by_key_needs_one_and_removes_the_others() -> None:
    with pytest.raises(ConfigurationError, match="ANTHROPIC_API_KEY"):
        build({"ANTHROPIC_AUTH_TOKEN": "t"}, billing="api_key")
    everything = dict.fromkeys((*OTHER_PAYERS, "CLAUDE_CODE_OAUTH_TOKEN"), "1")
    assert build(everything, billing="api_key") == {"ANTHROPIC_API_KEY": "1"}
    assert build({}, env={"ANTHROPIC_API_KEY": "k"}, env_mode="exact", billing="api_key") == {"ANTHROPIC_API_KEY": "k"}


# ------------------------------------------------------------------------------------------------------- the description


def test_every_variable_is_described_by_where_it_comes_from() -> None:
    inherited = {"PATH": "/bin", "CLAUDECODE": "1", "ANTHROPIC_API_KEY": SECRET, "ODD": "1"}
    assert describe(inherited, env={"A": SECRET}, pin_cli=True, billing="subscription", env_mode="allowlist", cwd="/") == {
        "A": "options.env",
        "ANTHROPIC_API_KEY": 'removed: billing="subscription"',
        "CLAUDECODE": "removed: set by an enclosing session",
        "DISABLE_AUTOUPDATER": "option pin_cli",
        "ODD": "removed: not in env_allow",
        "PATH": "inherited",
        "PWD": "option cwd",
    }
    assert describe({"PATH": "/bin"}, env_mode="exact") == {"PATH": 'removed: env_mode="exact"'}


names = st.sampled_from([*OTHER_PAYERS, "CLAUDECODE", "PATH", "MINE", "MCP_TIMEOUT"])
variables = st.dictionaries(names, st.just(SECRET), max_size=6)


@settings(deadline=None)
@given(
    inherited=variables, env=variables, mode=st.sampled_from(get_args(EnvironmentMode)), billing=st.sampled_from(get_args(BillingPolicy))
)
def test_the_description_names_exactly_what_the_child_gets_and_never_a_value(inherited: Any, env: Any, mode: Any, billing: Any) -> None:
    options: dict[str, Any] = {"env": env, "env_mode": mode, "billing": billing, "mcp_timeout": 3}
    try:
        built = build(inherited, **options)
    except ConfigurationError as error:
        described, built = {"refusal": str(error)}, {"refusal": ""}
    else:
        described = describe(inherited, **options)
    assert SECRET not in str(described)
    assert {name for name, origin in described.items() if not origin.startswith("removed")} == set(built)


# ------------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("env", [{"": "x"}, {"A=B": "x"}, {"A": 1}, {1: "x"}, {"A": None}, ["A"]])
def test_an_env_that_is_no_environment_is_refused_without_its_values(env: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        build(env=env)
    assert caught.value.option == "env"


@pytest.mark.parametrize("value", [math.nan, "5", [1]])
def test_a_duration_that_is_none_is_refused_by_name(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="MCP_TIMEOUT") as caught:
        build(mcp_timeout=value)
    assert caught.value.option == "mcp_timeout"


def test_the_environment_of_the_host_is_read_again_when_it_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = environment_now()
    assert before == dict(os.environ)
    assert environment_now() is before
    monkeypatch.setenv("CT_TEST_NOW", "1")
    assert environment_now() == dict(os.environ) == {**before, "CT_TEST_NOW": "1"}
    monkeypatch.delenv("CT_TEST_NOW")
    assert environment_now() == dict(os.environ) == before
    monkeypatch.setattr(os, "environ", {"ONLY": "this"})  # as a program may do
    assert environment_now() == {"ONLY": "this"}
