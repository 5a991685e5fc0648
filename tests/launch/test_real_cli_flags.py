"""The tables against the real binary: every flag exists, and what validation refuses in the CLI's name the CLI refuses.

The CLI gets a home of its own, a key that is none, an address on the loopback interface where nobody listens, and an input that ends at
once: it starts, reads its options, and exits. Nothing is sent anywhere.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cli_under_test import binary_under_test

from claude_transport.errors import ConfigurationError
from claude_transport.launch.argv import FIXED_ARGUMENTS, FLAGS, build_argv
from claude_transport.launch.discovery import CLI, find_cli, read_cli_version
from claude_transport.launch.launch import build_launch
from claude_transport.launch.options import ClaudeOptions
from claude_transport.launch.payloads import PAYLOADS, build_payloads
from claude_transport.launch.validation import validate_options

pytestmark = pytest.mark.e2e

ID, OTHER_ID, THIRD_ID = (f"11111111-1111-4111-8111-11111111111{digit}" for digit in "123")
AGENT = {"description": "d", "prompt": "p"}
AS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
PATIENCE = 60.0  # seconds for one start of the CLI, which takes 0.3, on a machine with much else to do


class Outcome(NamedTuple):
    """How one run ended."""

    code: int
    stdout: str
    stderr: str


class RealCLI:
    """The binary and its clean world."""

    def __init__(self, cli: CLI, folder: Path) -> None:
        self.cli = cli
        self.folder = folder
        self.project = folder / "project"
        for name in ("home", "config", "project", "t", "payloads"):
            (folder / name).mkdir()
        self.env = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder / "home"),
            "CLAUDE_CONFIG_DIR": str(folder / "config"),
            "TMPDIR": str(folder / "t"),
            "LANG": "C.UTF-8",
            "ANTHROPIC_API_KEY": "sk-ant-fake",
            "ANTHROPIC_BASE_URL": "http://127.0.0.1:9",  # the discard port: nobody listens
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_ERROR_REPORTING": "1",
        }

    def run(self, argv: Sequence[str], *, env: dict[str, str] | None = None, stdin: str = "") -> Outcome:
        """Run `argv` in the project with this input, which then ends."""
        done = subprocess.run(
            argv,
            env=self.env if env is None else env,
            cwd=self.project,
            input=stdin.encode(),
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
        return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())

    def run_flags(self, *flags: str) -> Outcome:
        return self.run([self.cli.path, *FIXED_ARGUMENTS, *flags])

    def write(self, flag: str, suffix: str, content: bytes) -> str:
        path = self.folder / "payloads" / f"{flag.strip('-')}{suffix}"
        path.write_bytes(content)
        return str(path)

    def run_options(self, options: ClaudeOptions) -> tuple[list[str], Outcome]:
        """Run a whole launch: its files are written, its environment is the child's."""
        planned = build_launch(options, cli=self.cli, inherited=self.env)
        launch = planned.with_paths(files=[self.write(file.flag, file.suffix, file.content) for file in planned.files])
        return list(launch.argv), self.run(launch.argv, env=launch.env)

    def run_unchecked(self, options: ClaudeOptions) -> Outcome:
        """Run what the tables make of `options`, without asking validation."""
        delivered = build_payloads(options, delivery="files", permissions={})
        files = [(file.flag, self.write(file.flag, file.suffix, file.content)) for file in delivered.files]
        return self.run(build_argv(options, self.cli, environment=self.env, files=files))


@pytest.fixture(scope="module")
def bundled(request: pytest.FixtureRequest) -> CLI:
    return find_cli(binary_under_test(request.config))


@pytest.fixture
def real(bundled: CLI) -> Iterator[RealCLI]:
    # a short name: the CLI opens a socket below TMPDIR, and looks elsewhere when its path is too long
    with tempfile.TemporaryDirectory(prefix="ct-", ignore_cleanup_errors=True) as folder:
        yield RealCLI(bundled, Path(os.path.realpath(folder)))


# ------------------------------------------------------------------------------------------------------ every flag exists

EVERYTHING = ClaudeOptions(
    model="haiku",
    fallback_model=["sonnet", "opus"],
    betas=["a-beta", "-another"],
    effort="low",
    thinking={"type": "adaptive", "display": "omitted"},
    advisor="opus",
    autocompact="500k",
    exclude_dynamic_system_prompt_sections=True,
    system_prompt_snapshot=True,
    output_format={"type": "json_schema", "schema": {"type": "object"}},
    tools=["Bash", "-Odd"],
    allowed_tools=["Bash(git log:*)", "--odd", 'Odd(a&b|c%PATH%"^d\ne)'],
    disallowed_tools=["WebFetch"],
    permission_mode="plan",
    permission_prompt_tool_name="stdio",
    permission_prompts="none",
    strict_mcp_config=True,
    agent="-nobody",
    plugins=[{"type": "local", "path": "."}],
    disable_slash_commands=True,
    chrome=False,
    session_id=ID,
    no_session_persistence=True,
    session_mirror=True,
    name="--version",
    max_turns=3,
    max_budget_usd=1e-7,
    task_budget={"total": 5000},
    include_partial_messages=True,
    include_hook_events=True,
    forward_subagent_text=True,
    replay_user_messages=True,
    prompt_suggestions=True,
    auth_status_events=True,
    debug="api,hooks",
    debug_file="debug.log",
    add_dirs=["-nowhere"],
    setting_sources=["user", "project"],
    project_config_root="/",
    workload="w",
    system_prompt="You are a test.",
    append_system_prompt="Be short.",
    append_subagent_system_prompt="Be shorter.",
    agents={"a": AGENT},
    mcp_servers={"a": {"type": "sdk", "name": "a"}},
    settings={"model": "haiku"},
)
GROUPS: dict[str, ClaudeOptions] = {
    "everything that goes together": EVERYTHING,
    "bare, empty system prompt, no tools": ClaudeOptions(
        bare=True,
        thinking={"type": "enabled", "budget_tokens": 2048},
        tools=[],
        setting_sources=[],
        system_prompt="",
        debug=True,
        plugin_urls=["http://127.0.0.1:9/plugin.zip"],
    ),
    "safe, continued, forked": ClaudeOptions(
        safe_mode=True, continue_conversation=True, fork_session=True, chrome=True, debug_to_stderr=True, await_initialize=True
    ),
    "restricted, with a sandbox": ClaudeOptions(restricted=True, max_thinking_tokens=0, sandbox={"enabled": False}),
    "without permissions": ClaudeOptions(
        dangerously_skip_permissions=True,
        allow_dangerously_skip_permissions=True,
        env={"IS_SANDBOX": "1"},
        tools={"type": "preset", "preset": "claude_code"},
    ),
}
# Flags that need a session, or a token, to be accepted: the CLI's answer to each shows that it knows them.
KNOWN_BY_THEIR_ANSWER = {"--resume", "--resume-session-at", "--resume-drops-turn", "--file"}


def test_the_groups_below_hold_every_flag_of_the_tables() -> None:
    used = {
        argument.partition("=")[0]
        for options in GROUPS.values()
        for argument in build_argv(options, "claude", environment={"ANTHROPIC_API_KEY": "k"})
    }
    assert used | KNOWN_BY_THEIR_ANSWER >= {row.flag for row in FLAGS if row.flag}
    options = [option for option in ClaudeOptions.__struct_fields__ if option in {row.option for row in PAYLOADS}]
    assert all(any(getattr(group, option) for group in GROUPS.values()) for option in options)


@pytest.mark.needs("the flags of 2.1.330")
@pytest.mark.parametrize("options", GROUPS.values(), ids=list(GROUPS))
def test_the_cli_knows_every_flag_and_accepts_its_value(options: ClaudeOptions, real: RealCLI) -> None:
    argv, outcome = real.run_options(options)
    assert "unknown option" not in outcome.stderr
    assert outcome.code == 0, f"{argv}: {outcome.stderr[:2000]}"
    assert "Claude Code)" not in outcome.stdout, "a value was read as --version"


@pytest.mark.needs("the flags of 2.1.330")
def test_a_flag_is_called_hidden_exactly_when_the_help_does_not_name_it(real: RealCLI) -> None:
    heads = re.findall(r"(?m)^ {2}(?:-\w, )?(--[A-Za-z-]+(?:, --[A-Za-z-]+)*)", real.run([real.cli.path, "--help"]).stdout)
    listed = {flag for head in heads for flag in head.split(", ")}
    flags = {row.flag: row.hidden for row in FLAGS if row.flag}
    assert {flag for flag, hidden in flags.items() if hidden is (flag in listed)} == set()


def test_an_unknown_flag_is_told_apart_from_a_known_one(real: RealCLI) -> None:
    outcome = real.run_options(ClaudeOptions(extra_args={"no-such-flag": "x"}))[1]
    assert outcome.code == 1
    assert "error: unknown option '--no-such-flag" in outcome.stderr


@pytest.mark.needs("the flags of 2.1.330")
def test_the_flags_about_a_cut_are_known_and_a_missing_session_is_what_fails(real: RealCLI) -> None:
    outcome = real.run_options(ClaudeOptions(resume=OTHER_ID, resume_session_at=THIRD_ID, resume_drops_turn=ID))[1]
    assert outcome.code == 1
    assert "No conversation found" in outcome.stderr


@pytest.mark.needs("the flags of 2.1.330")
def test_everything_for_another_machine_arrives_by_initialize(real: RealCLI) -> None:
    options = EVERYTHING.replace(debug_file=None, permission_mode=None)
    launch = build_launch(options, cli=real.cli, inherited=real.env, delivery="initialize")
    assert launch.initialize_first
    request = {"type": "control_request", "request_id": "1", "request": {"subtype": "initialize", **launch.initialize}}
    outcome = real.run(launch.argv, env=launch.env, stdin=json.dumps(request) + "\n")
    assert outcome.code == 0, outcome.stderr[:2000]
    answers = [json.loads(line) for line in outcome.stdout.splitlines()]
    (answer,) = [answer["response"] for answer in answers if answer["type"] == "control_response"]
    assert (answer["subtype"], answer["request_id"]) == ("success", "1")
    assert "a" in [agent["name"] for agent in answer["response"]["agents"]]


def test_the_version_read_from_the_files_is_the_one_the_binary_says(real: RealCLI) -> None:
    said = real.run([real.cli.path, "--version"]).stdout
    match = re.match(r"\d+\.\d+\.\d+", said)
    assert match is not None
    assert read_cli_version(real.cli) == match.group()


# -------------------------------------------------------------------------- what is refused here would be refused by the CLI

# (options, what the CLI says about them)
REFUSED_BY_THE_CLI: list[tuple[dict[str, Any], str]] = [
    ({"session_id": "not-a-uuid"}, "Invalid session ID"),
    ({"session_id": ID, "resume": OTHER_ID}, "--fork-session"),
    ({"session_id": ID, "continue_conversation": True}, "--fork-session"),
    ({"resume": ""}, "--resume requires"),
    ({"resume_session_at": ID}, "requires --resume"),
    ({"resume_drops_turn": ID, "resume": OTHER_ID}, "requires --resume-session-at"),
    ({"permission_mode": "yolo"}, "--permission-mode"),
    ({"permission_prompts": "nobody"}, "--permission-prompts"),
    ({"thinking": {"type": "always"}}, "--thinking"),
    ({"thinking": {"type": "adaptive", "display": "all"}}, "--thinking-display"),
    ({"autocompact": 99_999}, "--autocompact"),
    ({"autocompact": "99k"}, "--autocompact"),
    ({"max_budget_usd": 0}, "--max-budget-usd"),
    ({"max_turns": "three"}, "--max-turns"),
    ({"task_budget": {"total": 0}}, "--task-budget"),
    ({"setting_sources": ["team"]}, "Invalid setting source"),
    ({"project_config_root": "here"}, "absolute"),
    ({"system_prompt": {"type": "file", "path": "no-such-file"}}, "not found"),
    ({"settings": "no-such-file.json"}, "not found"),
    ({"mcp_servers": "no-such-file.json"}, "not found"),
    ({"output_format": {"type": "json_schema", "schema": [1]}}, "must be a JSON object"),
    ({"files": ["file_id:path"]}, "CLAUDE_CODE_SESSION_ACCESS_TOKEN"),
]
BYPASSING: list[dict[str, Any]] = [
    {"permission_mode": "bypassPermissions"},
    {"dangerously_skip_permissions": True},
    {"allow_dangerously_skip_permissions": True},
    {"extra_args": {"dangerously-skip-permissions": None}},
]


@pytest.mark.needs("the flags of 2.1.330")
@pytest.mark.parametrize(("options", "says"), REFUSED_BY_THE_CLI, ids=[str(options) for options, _ in REFUSED_BY_THE_CLI])
def test_what_validation_refuses_the_cli_refuses_too(options: dict[str, Any], says: str, real: RealCLI) -> None:
    with pytest.raises(ConfigurationError):
        validate_options(ClaudeOptions(**options, cwd=real.project), uid=1000)
    outcome = real.run_unchecked(ClaudeOptions(**options))
    assert outcome.code == 1
    assert says in outcome.stderr
    assert "unknown option" not in outcome.stderr


@pytest.mark.skipif(not AS_ROOT, reason="the CLI refuses this to root only")
@pytest.mark.parametrize("options", BYPASSING, ids=[str(options) for options in BYPASSING])
def test_root_may_bypass_permissions_neither_here_nor_there(options: dict[str, Any], real: RealCLI) -> None:
    with pytest.raises(ConfigurationError, match="as root"):
        validate_options(ClaudeOptions(**options))
    outcome = real.run_unchecked(ClaudeOptions(**options))
    assert outcome.code == 1
    assert "root" in outcome.stderr


@pytest.mark.parametrize("options", BYPASSING, ids=[str(options) for options in BYPASSING])
def test_a_restricted_session_may_not_bypass_permissions(options: dict[str, Any], real: RealCLI) -> None:
    restricted = ClaudeOptions(restricted=True, **options)
    with pytest.raises(ConfigurationError, match="restricted"):
        validate_options(restricted, uid=1000)
    real.env["IS_SANDBOX"] = "1"
    outcome = real.run_unchecked(restricted)
    assert outcome.code == 1
    assert "restricted" in outcome.stderr


@pytest.mark.needs("the flags of 2.1.330")
# Documents that are read here before they could become a file: the CLI is given the same text on its command line.
@pytest.mark.parametrize(
    ("options", "flag", "says"),
    [
        ({"settings": "{bad}"}, "--settings={bad}", "Invalid JSON"),
        ({"settings": "[1]"}, "--settings=[1]", "not found"),
        ({"mcp_servers": "{bad}"}, "--mcp-config={bad}", "Invalid MCP configuration"),
        ({"mcp_servers": '{"mcpServers": 3}'}, '--mcp-config={"mcpServers": 3}', "mcpServers"),
        ({"agents": {"a": {"prompt": "p"}}}, '--agents={"a": {"prompt": "p"}}', "description"),
        ({"agents": {"a": {"description": "", "prompt": "p"}}}, '--agents={"a": {"description": "", "prompt": "p"}}', "cannot be empty"),
        ({"agents": {"a": {"description": "d"}}}, '--agents={"a": {"description": "d"}}', "prompt"),
        ({"agents": {"a": "text"}}, '--agents={"a": "text"}', "expected object"),
        ({"extra_args": {"sdk-url": "ws://127.0.0.1:9/"}}, "--sdk-url=ws://127.0.0.1:9/", "rejected"),
    ],
)
def test_a_document_that_is_refused_here_is_refused_by_the_cli(options: dict[str, Any], flag: str, says: str, real: RealCLI) -> None:
    with pytest.raises(ConfigurationError):
        validate_options(ClaudeOptions(**options, cwd=real.project))
    outcome = real.run_flags(flag)
    assert outcome.code == 1
    assert says in outcome.stderr


@pytest.mark.parametrize("missing", ["--verbose", "--input-format"])
def test_the_fixed_arguments_are_needed(missing: str, real: RealCLI) -> None:
    position = FIXED_ARGUMENTS.index(missing)
    rest = FIXED_ARGUMENTS[:position] + FIXED_ARGUMENTS[position + (1 if missing == "--verbose" else 2) :]
    assert real.run([real.cli.path, *rest]).code == 1
