"""Every refusal names its option and says what to do; what can be run is let through."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import claude_transport as ct
from claude_transport.errors import ConfigurationError
from claude_transport.launch.argv import RESERVED_FLAGS
from claude_transport.launch.options import ClaudeOptions
from claude_transport.launch.validation import validate_options
from claude_transport.transports.subprocess import SubprocessTransport
from claude_transport.wrappers.retrying import RetryingTransport

ID = "11111111-1111-4111-8111-111111111111"
PRESET = {"type": "preset", "preset": "claude_code"}
AGENT = {"description": "d", "prompt": "p"}

# (options, the option blamed, what the message must say)
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    # ------------------------------------------------------------------------------------------------------- sessions
    ({"session_id": "not-a-uuid"}, "session_id", "UUID"),
    ({"session_id": f"{ID} "}, "session_id", "UUID"),
    ({"session_id": f"{ID}\n"}, "session_id", "UUID"),
    ({"session_id": "--version"}, "session_id", "UUID"),
    ({"session_id": ID, "resume": "x"}, "session_id", "fork_session=True"),
    ({"session_id": ID, "continue_conversation": True}, "session_id", "fork_session=True"),
    ({"continue_conversation": True, "resume": "x"}, "continue_conversation", "resume name two different conversations; give only one"),
    ({"resume": ""}, "resume", "leave it None"),
    ({"resume": "  "}, "resume", "leave it None"),
    ({"resume_session_at": ID}, "resume_session_at", "needs resume"),
    ({"resume_drops_turn": ID, "resume": ID}, "resume_drops_turn", "needs resume_session_at"),
    ({"name": ""}, "name", "leave it None"),
    # ---------------------------------------------------------------------------------------------------- permissions
    ({"permission_mode": "yolo"}, "permission_mode", "acceptEdits"),
    ({"permission_mode": "bypass"}, "permission_mode", "bypassPermissions"),
    ({"permission_prompts": "nobody"}, "permission_prompts", "host, none"),
    ({"permission_prompt_tool_name": ""}, "permission_prompt_tool_name", "leave it None"),
    ({"restricted": True, "permission_mode": "bypassPermissions"}, "permission_mode", "restricted"),
    ({"restricted": True, "dangerously_skip_permissions": True}, "dangerously_skip_permissions", "remove one"),
    ({"restricted": True, "allow_dangerously_skip_permissions": True}, "allow_dangerously_skip_permissions", "remove one"),
    # ---------------------------------------------------------------------------------------------------------- lists
    ({"allowed_tools": "Bash"}, "allowed_tools", "list or tuple, not str"),
    ({"disallowed_tools": ["Bash", ""]}, "disallowed_tools", "non-empty"),
    ({"disallowed_tools": [1]}, "disallowed_tools", "non-empty string"),
    ({"betas": {"a"}}, "betas", "list or tuple, not set"),
    ({"add_dirs": "src"}, "add_dirs", "list or tuple, not str"),
    ({"env_allow": "PATH"}, "env_allow", "list or tuple"),
    ({"supported_dialog_kinds": None}, "supported_dialog_kinds", "list or tuple, not NoneType"),
    ({"plugin_urls": b"x"}, "plugin_urls", "list or tuple, not bytes"),
    ({"setting_sources": ["user", "team"]}, "setting_sources", "user, project, local"),
    ({"setting_sources": "user"}, "setting_sources", "list or tuple"),
    ({"tools": "Bash"}, "tools", "list or tuple"),
    ({"tools": {"type": "preset"}}, "tools", "claude_code"),
    ({"skills": "some"}, "skills", "list or tuple"),
    ({"skills": ["a*"]}, "skills", "exact"),
    ({"skills": ["a,b"]}, "skills", "exact"),
    ({"skills": ["a) Bash("]}, "skills", "exact"),
    ({"plugins": [{"type": "remote", "path": "x"}]}, "plugins", '"local"'),
    ({"plugins": [{"type": "local"}]}, "plugins", '"path"'),
    ({"plugins": "x"}, "plugins", "list or tuple"),
    # --------------------------------------------------------------------------------------------------------- numbers
    ({"max_turns": 0}, "max_turns", "no limit, so leave it None"),
    ({"max_turns": -1}, "max_turns", "below 1"),
    ({"max_turns": True}, "max_turns", "must be int or None, not bool"),
    ({"max_turns": "3"}, "max_turns", "must be int or None, not str"),
    ({"max_turns": 1.5}, "max_turns", "not float"),
    ({"max_thinking_tokens": -1}, "max_thinking_tokens", "below 0"),
    ({"max_output_tokens": 0}, "max_output_tokens", "below 1"),
    ({"max_retries": -1}, "max_retries", "below 0"),
    ({"max_budget_usd": 0}, "max_budget_usd", "positive"),
    ({"max_budget_usd": -0.5}, "max_budget_usd", "positive"),
    ({"max_budget_usd": math.nan}, "max_budget_usd", "positive"),
    ({"max_budget_usd": math.inf}, "max_budget_usd", "leave it None"),
    ({"mcp_timeout": 0}, "mcp_timeout", "positive"),
    ({"mcp_tool_timeout": math.inf}, "mcp_tool_timeout", "positive"),
    ({"background_wait_ceiling": -1}, "background_wait_ceiling", "positive"),
    ({"task_budget": {"total": 0}}, "task_budget", "positive"),
    ({"task_budget": {"total": True}}, "task_budget", "positive"),
    ({"task_budget": {}}, "task_budget", '"total"'),
    ({"task_budget": 5}, "task_budget", '"total"'),
    ({"autocompact": 99_999}, "autocompact", "100000"),
    ({"autocompact": "99k"}, "autocompact", "500k"),
    ({"autocompact": "always"}, "autocompact", "auto"),
    ({"autocompact": True}, "autocompact", "auto"),
    # ------------------------------------------------------------------------------------------------------- the model
    ({"model": ""}, "model", "leave it None"),
    ({"fallback_model": []}, "fallback_model", "must name a model"),
    ({"fallback_model": ["a", ""]}, "fallback_model", "non-empty"),
    ({"fallback_model": 1}, "fallback_model", "list or tuple, not int"),
    ({"extra_args": None}, "extra_args", "must be a mapping"),
    ({"effort": "maximal"}, "effort", "xhigh"),
    ({"thinking": {"type": "always"}}, "thinking", "adaptive, enabled or disabled"),
    ({"thinking": {"type": "enabled"}}, "thinking", "budget_tokens"),
    ({"thinking": {"type": "enabled", "budget_tokens": 0}}, "thinking", "positive"),
    ({"thinking": {"type": "adaptive", "display": "all"}}, "thinking", "summarized"),
    ({"thinking": {"type": "adaptive"}, "max_thinking_tokens": 5}, "max_thinking_tokens", "give only one"),
    # --------------------------------------------------------------------------------------------------------- prompts
    ({"system_prompt": 3}, "system_prompt", "text or a mapping"),
    ({"system_prompt": {"type": "preset", "preset": "other"}}, "system_prompt", "claude_code"),
    ({"system_prompt": {"type": "custom"}}, "system_prompt", "with prompt"),
    ({"system_prompt": {"type": "file"}}, "system_prompt", "with path"),
    ({"system_prompt": {}}, "system_prompt", "needs a type"),
    ({"system_prompt": {"type": []}}, "system_prompt", "needs a type"),
    ({"system_prompt": {"type": "file", "path": "no-such-file"}}, "system_prompt", "no file no-such-file"),
    ({"system_prompt": {**PRESET, "append": "a"}, "append_system_prompt": "b"}, "append_system_prompt", "give only one"),
    ({"output_format": {"type": "json"}}, "output_format", "json_schema"),
    ({"output_format": {"type": "json_schema", "schema": "{}"}}, "output_format", "JSON object"),
    ({"output_format": {"type": "json_schema"}}, "output_format", "JSON object"),
    ({"output_format": "json"}, "output_format", "json_schema"),
    # ------------------------------------------------------------------------------------------------ servers and agents
    ({"mcp_servers": "no-such-file.json"}, "mcp_servers", "cannot be read"),
    ({"mcp_servers": "{bad}"}, "mcp_servers", "is not JSON"),
    ({"mcp_servers": '{"mcpServers": 3}'}, "mcp_servers", "mcpServers"),
    ({"mcp_servers": '{"a": {"command": "x"}}'}, "mcp_servers", "mcpServers"),
    ({"mcp_servers": ["a"]}, "mcp_servers", "by name"),
    ({"mcp_servers": {"a": "x"}}, "mcp_servers", "a name with a mapping"),
    ({"mcp_servers": {"": {}}}, "mcp_servers", "a name with a mapping"),
    ({"mcp_servers": {"a": {"type": "sdk", "instance": object()}}}, "mcp_servers", "Query(mcp_servers=...)"),
    ({"agents": ["a"]}, "agents", "by name"),
    ({"agents": {"": AGENT}}, "agents", "by name"),
    ({"agents": {"a": "text"}}, "agents", "description"),
    ({"agents": {"a": {"prompt": "p"}}}, "agents", "description"),
    ({"agents": {"a": {"description": "", "prompt": "p"}}}, "agents", "needs a non-empty description"),
    ({"agents": {"a": {"description": "d"}}}, "agents", "a prompt"),
    # -------------------------------------------------------------------------------------------------------- settings
    ({"settings": "no-such-file.json"}, "settings", "cannot be read"),
    ({"settings": "{bad}"}, "settings", "is not JSON"),
    ({"settings": "[1]"}, "settings", "cannot be read"),
    ({"settings": ""}, "settings", "a path, the text of a JSON object, or a mapping"),
    ({"settings": 3}, "settings", "a path"),
    ({"sandbox": True}, "sandbox", "must be a mapping"),
    ({"tool_aliases": ["a"]}, "tool_aliases", "must be a mapping"),
    ({"project_config_root": "here"}, "project_config_root", "absolute"),
    ({"billing": "subscription", "settings": {"env": {"ANTHROPIC_API_KEY": "k"}}}, "settings", "ANTHROPIC_API_KEY"),
    ({"billing": "subscription_strict", "settings": '{"apiKeyHelper": "x"}'}, "settings", "apiKeyHelper"),
    ({"billing": "api_key", "settings": {"env": {"ANTHROPIC_AUTH_TOKEN": "t"}}}, "settings", "remove one"),
    ({"managed_settings": []}, "managed_settings", "must be a mapping"),
    ({"billing": "subscription", "managed_settings": {"env": {"ANTHROPIC_API_KEY": "k"}}}, "managed_settings", "remove one"),
    # ----------------------------------------------------------------------------------------- what initialize can carry
    ({"plugin_delivery": "file"}, "plugin_delivery", "argv, initialize"),
    ({"mcp_servers_delivery": "file"}, "mcp_servers_delivery", "argv, initialize"),
    ({"mcp_servers_delivery": "initialize", "mcp_servers": __file__}, "mcp_servers_delivery", "not the path of a file"),
    ({"sdk_mcp_server_configs": ["a"]}, "sdk_mcp_server_configs", "must be a mapping"),
    ({"sdk_mcp_server_configs": {"": {}}}, "sdk_mcp_server_configs", "the name of a server with a mapping"),
    ({"sdk_mcp_server_configs": {"a": 3}}, "sdk_mcp_server_configs", "the name of a server with a mapping"),
    ({"sdk_mcp_server_manifests": {"a": {}}}, "sdk_mcp_server_manifests", "needs initializeResult"),
    ({"sdk_mcp_server_manifests_origin": "host"}, "sdk_mcp_server_manifests_origin", "host_per_send"),
    ({"tool_config": 3}, "tool_config", "must be a mapping"),
    ({"tool_config": {}}, "tool_config", "askUserQuestion"),
    ({"tool_config": {"askUserQuestion": {"previewFormat": "pdf"}}}, "tool_config", "markdown, html"),
    ({"tool_config": {"askUserQuestion": {"previewFormat": "html", "x": 1}}}, "tool_config", "markdown, html"),
    ({"mcp_tool_idle_timeout": 0}, "mcp_tool_idle_timeout", "positive"),
    ({"mcp_tool_idle_timeout": math.nan}, "mcp_tool_idle_timeout", "positive"),
    # ------------------------------------------------------------------------------------------------- other arguments
    ({"extra_args": ["--x"]}, "extra_args", "must be a mapping"),
    ({"extra_args": {"--x": None}}, "extra_args", "without leading dashes"),
    ({"extra_args": {"x=1": None}}, "extra_args", "without ="),
    ({"extra_args": {"x y": None}}, "extra_args", "not a flag name"),
    ({"extra_args": {"": None}}, "extra_args", "not a flag name"),
    ({"extra_args": {"x\n": None}}, "extra_args", "not a flag name"),
    ({"extra_args": {"x": 3}}, "extra_args", "None for a switch"),
    ({"extra_args": {"p": None}}, "extra_args", "a short flag"),
    ({"extra_args": {"model": "x"}, "model": "y"}, "extra_args", "written by the option model; use only"),
    ({"extra_args": {"allowed-tools": "x"}, "allowed_tools": ["y"]}, "extra_args", "the option allowed_tools"),
    ({"extra_args": {"settings": "x"}, "settings": {}}, "extra_args", "the option settings"),
    ({"extra_args": {"system-prompt": "x"}, "system_prompt": "y"}, "extra_args", "the option system_prompt"),
    ({"extra_args": {"append-system-prompt-file": "x"}, "append_system_prompt": "y"}, "extra_args", "append_system_prompt"),
    ({"extra_args": {"mcp-config": "x"}, "mcp_servers": {"a": {"command": "x"}}}, "extra_args", "the option mcp_servers"),
    *(({"extra_args": {name: None}}, "extra_args", f"--{name} cannot be given: {why}") for name, why in RESERVED_FLAGS.items()),
    # ------------------------------------------------------------------------------------------------- the environment
    ({"env": {"A=B": "x"}}, "env", "not a variable name"),
    ({"env": {"A": 1}}, "env", "must be a string, not int"),
    ({"env": ["A"]}, "env", "must be a mapping"),
    ({"env_mode": "merge"}, "env_mode", "inherit, allowlist, exact"),
    ({"billing": "free"}, "billing", "subscription"),
    ({"isolated_config": True, "config_dir": "/c"}, "isolated_config", "remove config_dir"),
    ({"isolated_config": True, "env": {"CLAUDE_CONFIG_DIR": "/c"}}, "isolated_config", "CLAUDE_CONFIG_DIR"),
    ({"client_app": "app\r\nX-Evil: 1"}, "client_app", "HTTP header"),
    ({"client_app": "app \u2713"}, "client_app", "HTTP header"),
    ({"files": ["id:path"]}, "files", "CLAUDE_CODE_SESSION_ACCESS_TOKEN"),
    # ------------------------------------------------------------------------------------------------------ wrong kinds
    ({"bare": "no"}, "bare", "must be bool, not str"),
    ({"bare": 1}, "bare", "must be bool, not int"),
    ({"strict_mcp_config": 0}, "strict_mcp_config", "bool or None"),
    ({"model": 3}, "model", "must be str or None"),
    ({"cwd": 3}, "cwd", "must be str or PathLike or None, not int"),
    ({"cli_path": ["claude"]}, "cli_path", "not list"),
    ({"debug": 1}, "debug", "bool or str"),
    ({"debug": ""}, "debug", "use True"),
]


@pytest.mark.parametrize(("options", "option", "says"), REFUSED, ids=[str(options)[:70] for options, _, _ in REFUSED])
def test_what_cannot_be_run_as_asked_is_refused_with_the_option_and_the_remedy(options: dict[str, Any], option: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(says)) as caught:
        validate_options(ClaudeOptions(**options), uid=1000)
    assert caught.value.option == option
    assert str(caught.value).startswith(option)
    assert not caught.value.retryable


ON_THE_MACHINE: list[dict[str, Any]] = [
    {"system_prompt": {"type": "file", "path": "no-such-file"}},
    {"mcp_servers": "no-such-file.json"},
    {"settings": "no-such-file.json"},
    {"settings": "[1]"},
    {"files": ["id:path"]},
]
"""What depends on files and variables. Which user may bypass permissions does, too."""


@pytest.mark.parametrize(("options", "option", "says"), REFUSED, ids=[str(options)[:70] for options, _, _ in REFUSED])
def test_a_transport_cannot_be_made_with_what_no_machine_would_run(options: dict[str, Any], option: str, says: str) -> None:
    if options in ON_THE_MACHINE:
        assert SubprocessTransport(ClaudeOptions(**options)).options == ClaudeOptions(**options)
        return
    with pytest.raises(ConfigurationError) as caught:
        SubprocessTransport(ClaudeOptions(**options))
    assert (caught.value.code, caught.value.option, caught.value.retryable) == ("config.invalid", option, False)
    assert str(caught.value).startswith(option)
    assert says in str(caught.value)


def test_what_only_a_machine_tells_is_no_reason_to_refuse_a_transport(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)  # to read it would hang
    monkeypatch.setattr("os.geteuid", lambda: 0, raising=False)
    monkeypatch.delenv("IS_SANDBOX", raising=False)
    for options in (
        ClaudeOptions(settings=pipe, mcp_servers=pipe, system_prompt={"type": "file", "path": pipe}, sandbox={"enabled": True}),
        ClaudeOptions(permission_mode="bypassPermissions", cli_path=tmp_path / "none", cwd=tmp_path / "none"),
    ):
        assert SubprocessTransport(options).options is options


MAKERS: dict[str, Callable[[Any], object]] = {
    "open_transport": ct.open_transport,
    "query": lambda options: ct.query("Hi", options=options),
    "SessionPool": ct.SessionPool,
    "Gateway": lambda options: ct.gateway.Gateway(options, listen=["tcp://127.0.0.1:0"]),
    "RetryingTransport": lambda options: RetryingTransport(SubprocessTransport(options)),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_what_is_made_of_options_refuses_them_when_it_is_made(make: Callable[[Any], object]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make(ClaudeOptions(allowed_tools="Bash"))
    assert (caught.value.code, caught.value.option) == ("config.invalid", "allowed_tools")
    assert str(caught.value) == "allowed_tools: must be a list or tuple, not str"


def test_a_command_that_takes_no_options_has_none_checked() -> None:
    options = ClaudeOptions(permission_mode="yolo")  # type: ignore[arg-type]
    assert SubprocessTransport(options, command=["true"]).options is options


ACCEPTED: list[dict[str, Any]] = [
    {},
    {"session_id": ID},
    {"session_id": ID.upper().replace("1", "A")},
    {"session_id": ID, "resume": "x", "fork_session": True},
    {"session_id": ID, "continue_conversation": True, "fork_session": True},
    {"fork_session": True},
    {"resume": "a title", "resume_session_at": ID, "resume_drops_turn": ID},
    {"permission_mode": "bypassPermissions"},
    {"permission_mode": "manual"},
    {"max_thinking_tokens": 0, "max_retries": 0, "max_turns": 1, "max_budget_usd": 1},
    {"background_wait_ceiling": math.inf},
    {"autocompact": "auto"},
    {"autocompact": "100k"},
    {"autocompact": 100_000},
    {"tools": []},
    {"tools": {"type": "preset", "preset": "claude_code"}},
    {"skills": ["pdf", "plugin:name", "two words"]},
    {"skills": "all"},
    {"plugins": ({"type": "local", "path": Path("x")},)},
    {"system_prompt": ""},
    {"system_prompt": {**PRESET, "append": "a"}},
    {"thinking": {"type": "disabled"}},
    {"thinking": {"type": "enabled", "budget_tokens": 1, "display": "highlights"}},
    {"fallback_model": "a,b"},
    {"mcp_servers": ""},
    {"mcp_servers": {"a": {"type": "sdk", "name": "a"}}},
    {"agents": {"a": {**AGENT, "prompt": ""}}},
    {"settings": {"env": {"ANTHROPIC_API_KEY": "k"}}},
    {"settings": {"apiKeyHelper": "x"}, "billing": "api_key", "env": {"ANTHROPIC_API_KEY": "k"}},
    {"extra_args": {"some-new-flag": None, "other": "-x", "model": "haiku"}},
    {"extra_args": {"strict-mcp-config": None}},
    {"isolated_config": True},
    {"client_app": "my-app/1.0 (été)"},
    {"files": ["id:path"], "env": {"CLAUDE_CODE_SESSION_ACCESS_TOKEN": "t"}},
    {"name": "--version", "model": "-x"},
    {"debug": "api"},
    {"cwd": Path("/"), "add_dirs": [Path("/x"), "y"]},
]


@pytest.mark.parametrize("options", ACCEPTED, ids=[str(options)[:70] for options in ACCEPTED])
def test_what_can_be_run_is_let_through(options: dict[str, Any]) -> None:
    validate_options(ClaudeOptions(**options), uid=1000)
    assert SubprocessTransport(ClaudeOptions(**options)).options == ClaudeOptions(**options)


# ------------------------------------------------------------------------------------- bypassing as root, which the CLI refuses

BYPASSING: list[tuple[dict[str, Any], str]] = [
    ({"permission_mode": "bypassPermissions"}, "permission_mode"),
    ({"dangerously_skip_permissions": True}, "dangerously_skip_permissions"),
    ({"allow_dangerously_skip_permissions": True}, "allow_dangerously_skip_permissions"),
    ({"extra_args": {"dangerously-skip-permissions": None}}, "extra_args"),
]


@pytest.mark.parametrize(("options", "option"), BYPASSING)
def test_bypassing_permissions_as_root_is_refused_with_three_remedies(options: dict[str, Any], option: str) -> None:
    for user in (None, "root"):
        with pytest.raises(ConfigurationError, match="as root") as caught:
            validate_options(ClaudeOptions(user=user, **options), uid=0)
        assert caught.value.option == option
        assert all(remedy in str(caught.value) for remedy in ("user=", "allowed_tools", "IS_SANDBOX"))


@pytest.mark.parametrize(("options", "option"), BYPASSING)
def test_another_user_or_a_declared_sandbox_may_bypass(options: dict[str, Any], option: str) -> None:
    validate_options(ClaudeOptions(**options), uid=1000)
    validate_options(ClaudeOptions(user="nobody", **options), uid=0)
    validate_options(ClaudeOptions(env={"IS_SANDBOX": "1"}, **options), uid=0)
    validate_options(ClaudeOptions(**options), uid=0, environment={"CLAUDE_CODE_BUBBLEWRAP": "1"})
    with pytest.raises(ConfigurationError):
        validate_options(ClaudeOptions(env={"IS_SANDBOX": "0"}, **options), uid=0)


def test_the_user_of_this_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    options = ClaudeOptions(permission_mode="bypassPermissions")
    monkeypatch.setattr("os.geteuid", lambda: 0, raising=False)
    with pytest.raises(ConfigurationError):
        validate_options(options)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    validate_options(options)
    monkeypatch.delattr("os.geteuid")  # as on Windows
    validate_options(options)


# ---------------------------------------------------------------------------------------------------------------- files


def test_files_are_looked_for_from_the_childs_working_directory(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("p", "utf-8")
    (tmp_path / "s.json").write_text("{}", "utf-8")
    (tmp_path / "m.json").write_text('{"mcpServers": {}}', "utf-8")
    options = ClaudeOptions(system_prompt={"type": "file", "path": "p.txt"}, settings="s.json", mcp_servers="m.json")
    validate_options(options.replace(cwd=tmp_path))
    with pytest.raises(ConfigurationError):
        validate_options(options.replace(cwd=tmp_path / "elsewhere"))


def test_a_settings_file_that_the_cli_would_ignore_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text("[]", "utf-8")
    with pytest.raises(ConfigurationError, match="must be a JSON object"):
        validate_options(ClaudeOptions(settings=tmp_path / "s.json"))


def test_files_of_another_machine_are_not_looked_for() -> None:
    options = ClaudeOptions(system_prompt={"type": "file", "path": "/there/p"}, settings="/there/s", mcp_servers="/there/m")
    validate_options(options, check_files=False)
    with pytest.raises(ConfigurationError, match="another machine"):
        validate_options(options.replace(sandbox={"enabled": True}), check_files=False)


def test_inline_documents_are_checked_wherever_the_cli_runs() -> None:
    for options in (ClaudeOptions(settings="{bad}"), ClaudeOptions(mcp_servers="{bad}")):
        with pytest.raises(ConfigurationError, match="is not JSON"):
            validate_options(options, check_files=False)


# ----------------------------------------------------------------------------------------------------------- whole classes

PLACES: list[tuple[str, Any]] = [
    ("model", lambda text: text),
    ("system_prompt", lambda text: text),
    ("cwd", lambda text: text),
    ("cli_path", lambda text: text),
    ("allowed_tools", lambda text: [text]),
    ("add_dirs", lambda text: [Path(text)]),
    ("env", lambda text: {"A": text}),
    ("env", lambda text: {text: "a"}),
    ("extra_args", lambda text: {"x": text}),
    ("settings", lambda text: {"a": {"b": [text]}}),
    ("mcp_servers", lambda text: {"a": {"headers": {"k": text}}}),
    ("agents", lambda text: {"a": {**AGENT, "prompt": text}}),
    ("plugins", lambda text: [{"type": "local", "path": text}]),
    ("title", lambda text: text),
]


@pytest.mark.parametrize(("option", "place"), PLACES, ids=[f"{index} {name}" for index, (name, _) in enumerate(PLACES)])
@pytest.mark.parametrize(("character", "says"), [("\0", "NUL"), ("\ud83d", "surrogate")])
def test_what_no_argument_can_carry_is_refused_wherever_it_is(option: str, place: Any, character: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as caught:
        validate_options(ClaudeOptions(**{option: place(f"a{character}b")}))
    assert caught.value.option == option
    validate_options(ClaudeOptions(**{option: place("ab")}), check_files=False)


junk: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=3)
    | st.lists(st.integers(), max_size=2)
)
junk |= st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3), max_size=2)
KEYS = ("type", "preset", "append", "prompt", "path", "budget_tokens", "display", "total", "schema", "env", "description", "apiKeyHelper")
KINDS = ("preset", "claude_code", "custom", "file", "enabled", "adaptive", "json_schema", "local")
junk |= st.dictionaries(st.sampled_from(KEYS), junk | st.sampled_from(KINDS), max_size=4)
junk |= st.lists(junk, max_size=3) | st.dictionaries(st.text(max_size=2), junk, max_size=2)


@settings(max_examples=800, deadline=None)  # over a hundred options share them; a fraction of a millisecond each
@given(option=st.sampled_from(ClaudeOptions.__struct_fields__), value=junk)
def test_any_value_in_any_option_is_let_through_or_refused_as_that_option(option: str, value: Any) -> None:
    options, refused = ClaudeOptions(**{option: value}), []
    for check in (lambda: SubprocessTransport(options), lambda: validate_options(options, uid=1000)):
        try:
            check()
        except ConfigurationError as refusal:
            refused.append(refusal.option)
    assert refused in ([], [option], [option, option])
