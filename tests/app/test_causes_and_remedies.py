"""Every failure of the program ends with its cause and its remedy: all of stderr, as a user sees it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from program_process import Program
from program_terminal import Terminal

import claude_transport as ct
from claude_transport.app.failures import EXIT_FAILED, EXIT_MODEL, EXIT_USAGE, hints_for
from claude_transport.testing.fake_claude import FakeClaude
from claude_transport.testing.scenario import Scenario

Play = Callable[..., FakeClaude]
BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])
SECRET = "sk-ant-api03-nobody-may-see-this-one"
WITHOUT_SDK = ("claude_agent_sdk",)
"""The module whose wheel has a claude: hidden, as if it were not installed."""


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port of loopback that refuses connections: it is taken, and nobody listens there."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], str]:
    """`script(body)`: the path of a program for `sh`."""

    def write(body: str) -> str:
        path = tmp_path / "program"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return str(path)

    return write


def told(program: Program, *arguments: str, without: tuple[str, ...] = (), env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """The exit code and all of stderr; nothing is on stdout."""
    ran = program.run(*arguments, env=env, without=without)
    assert ran.stdout == b""
    return ran.returncode, ran.stderr.decode()


# ------------------------------------------------------------------------------------------------- programs that are no claude


@BACKENDS
def test_a_program_that_says_nothing_is_named_with_its_exit_code(program: Program, backend: str) -> None:
    assert told(program, "ask", "--backend", backend, "--cli-path", "/bin/true", "Hello") == (
        EXIT_FAILED,
        (
            "claude-transport: /bin/true ended with exit code 0 and said nothing: it is probably no Claude CLI. [connection.lost]\n"
            "  Run `/bin/true --version`: it must answer `… (Claude Code)`. "
            "If it does not, name another program (--cli-path, CLAUDE_CLI_PATH).\n"
        ),
    )


@BACKENDS
def test_a_program_that_prints_prose_is_told_with_its_first_line(program: Program, backend: str, script: Callable[[str], str]) -> None:
    path = script("echo 'Please run the setup first.'; echo 'And more.'")
    code, said = told(program, "ask", "--backend", backend, "--cli-path", path, "Hello")
    assert code == EXIT_FAILED
    assert said.splitlines() == [
        "· SubprocessTransport: left out a line that holds no message (noise, 27 bytes)",
        "· SubprocessTransport: left out a line that holds no message (noise, 9 bytes)",
        (
            f"claude-transport: {path} ended with exit code 0, and none of its output was a message of the Claude CLI. It began with "
            "'Please run the setup first.'. [exec.cli.invalid_json]"
        ),
        f"  Run `{path} --version`: it must answer `… (Claude Code)`. If it does not, name another program (--cli-path, CLAUDE_CLI_PATH).",
    ]


def test_a_secret_in_the_first_line_of_prose_is_not_shown(program: Program, script: Callable[[str], str]) -> None:
    code, said = told(
        program, "ask", "-q", "--cli-path", script('echo "the key is $ANTHROPIC_API_KEY"'), "Hello", env={"ANTHROPIC_API_KEY": SECRET}
    )
    assert code == EXIT_FAILED
    assert "It began with 'the key is " in said
    assert SECRET not in said


# ---------------------------------------------------------------------------------------------------------- an API out of reach


@BACKENDS
def test_an_api_out_of_reach_is_told_with_its_address_and_the_reason_of_the_system(
    program: Program, backend: str, closed_port: int
) -> None:
    env = {"ANTHROPIC_API_KEY": SECRET, "ANTHROPIC_BASE_URL": f"http://alice:hidden@127.0.0.1:{closed_port}/v1?token=hidden"}
    code, said = told(program, "ask", "--transport", "api", "--backend", backend, "Hello", env=env)
    remark = "· user and password of ANTHROPIC_BASE_URL are not sent: a call sends one credential\n"  # at each attempt
    assert (code, said.replace(remark, "")) == (
        EXIT_MODEL,
        (
            f"claude-transport: The API at http://127.0.0.1:{closed_port} could not be reached: connection refused. "
            "[result.connection_failed]\n"
            "  Check ANTHROPIC_BASE_URL, the network and the proxy, then try again.\n"
        ),
    )


@BACKENDS
def test_an_api_whose_name_has_no_address_is_told_with_that(program: Program, backend: str) -> None:
    env = {"ANTHROPIC_API_KEY": SECRET, "ANTHROPIC_BASE_URL": "http://api.invalid"}
    code, said = told(program, "ask", "--transport", "api", "--backend", backend, "Hello", env=env)
    assert code == EXIT_MODEL
    assert said.startswith(
        "claude-transport: The API at http://api.invalid could not be reached: the host name has no address. [result.connection_failed]\n"
    )


# ----------------------------------------------------------------------------------------------------------- no claude, no key


ADVICE = (
    "  Install Claude Code (https://code.claude.com/docs/en/setup), or `pip install claude-agent-sdk`, whose wheels carry the CLI; "
    "or point the option --cli-path or the variable CLAUDE_CLI_PATH at the binary.\n"
    "  --verbose lists the places that were searched.\n"
)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("ask", "--transport", "cli", "Hello"), "no claude was found, and the choice is the CLI. [config.no_auth_path]"),
        (("record", "-o", "tape.ndjson", "Hello"), "no claude was found, and the choice is the CLI. [config.no_auth_path]"),
        (("serve", "--listen", "tcp://127.0.0.1:0"), "no claude was found in 12 places. [exec.cli.binary_not_found]"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_where_only_a_claude_helps_the_advice_names_no_key(program: Program, arguments: tuple[str, ...], what: str) -> None:
    assert told(program, *arguments, without=WITHOUT_SDK) == (EXIT_USAGE, f"claude-transport: {what}\n{ADVICE}")


def test_where_both_would_help_the_advice_names_both(program: Program) -> None:
    assert told(program, "ask", "Hello", without=WITHOUT_SDK) == (
        EXIT_USAGE,
        (
            "claude-transport: neither path is open: no claude was found, and neither ANTHROPIC_API_KEY nor ANTHROPIC_AUTH_TOKEN is set. "
            "[config.no_auth_path]\n"
            "  Install Claude Code and log in, or set ANTHROPIC_API_KEY.\n"
            "  --verbose lists the places that were searched.\n"
        ),
    )


def test_the_api_without_a_key_names_the_variable_and_no_login(program: Program) -> None:
    assert told(program, "ask", "--transport", "api", "Hello") == (
        EXIT_MODEL,
        (
            "claude-transport: The credential is missing or was refused. [exec.cli.auth_failed]\n"
            "  Neither ANTHROPIC_API_KEY nor ANTHROPIC_AUTH_TOKEN is set. Set ANTHROPIC_API_KEY, or use `--transport cli` with a login.\n"
        ),
    )


@pytest.mark.parametrize("option", ["-v", "--verbose"])
def test_verbose_lists_each_searched_place_once(program: Program, option: str) -> None:
    twice = {"PATH": "/usr/local/bin:/usr/bin:/usr/local/bin:/bin"}
    code, said = told(program, "ask", option, "--transport", "cli", "Hello", without=WITHOUT_SDK, env=twice)
    assert code == EXIT_USAGE
    places = [line.strip() for line in said.partition("  Looked at:\n")[2].splitlines()]
    paths = [place.partition(": ")[2] for place in places]
    assert "PATH: /usr/local/bin/claude (not there)" in places
    assert len(paths) == len(set(paths)) > 5
    assert "--verbose lists" not in said


# ------------------------------------------------------------------------------------------------------ slips on the command line


def test_a_prompt_without_quotes_gets_them_in_the_suggestion(program: Program) -> None:
    assert told(program, "ask", "What", "is", "this") == (
        EXIT_USAGE,
        (
            "claude-transport: ask takes one prompt, and got 3 words. [usage.error]\n"
            "  Put the prompt in quotes: claude-transport ask 'What is this'\n"
            "  See `claude-transport ask --help`.\n"
        ),
    )


def test_a_mistyped_option_gets_the_nearest_one_as_a_suggestion(program: Program) -> None:
    assert told(program, "ask", "--ofline", "Hello") == (
        EXIT_USAGE,
        "claude-transport: ask has no option --ofline. [usage.error]\n  Did you mean --offline?\n  See `claude-transport ask --help`.\n",
    )


def test_a_mistyped_command_gets_the_nearest_one_as_a_suggestion(program: Program) -> None:
    assert told(program, "aks", "Hello") == (
        EXIT_USAGE,
        "claude-transport: there is no command 'aks'. [usage.error]\n  Did you mean ask?\n  See `claude-transport --help`.\n",
    )


def test_a_prompt_in_place_of_a_command_gets_its_command_as_a_suggestion(program: Program) -> None:
    assert told(program, "What is this?") == (
        EXIT_USAGE,
        (
            "claude-transport: there is no command 'What is this?'. [usage.error]\n"
            "  To ask that: claude-transport ask 'What is this?'\n"
            "  See `claude-transport --help`.\n"
        ),
    )


# ------------------------------------------------------------------------------------------------------------- waiting, and serving


@BACKENDS
def test_replay_on_a_terminal_says_what_it_waits_for(
    program: Program, terminal: Terminal, tmp_path: Path, backend: str, play: Play
) -> None:
    tape = tmp_path / "tape.ndjson"
    recorded = program.run("record", "-o", str(tape), "--cli-path", str(play(Scenario.text("Hi.")).path), "one")
    assert recorded.returncode == 0, recorded.stderr
    with terminal.start(program, "replay", "--backend", backend, str(tape)) as process:
        terminal.read_until(b"Ctrl-D")
        terminal.type("\x04")
        assert terminal.finish(process) == EXIT_USAGE
    assert terminal.text.startswith("claude-transport: replay waits for the lines of a host program on stdin, as JSON; Ctrl-D ends them\n")


def test_replay_in_a_pipe_says_nothing_of_waiting(program: Program, tmp_path: Path, play: Play) -> None:
    tape = tmp_path / "tape.ndjson"
    assert program.run("record", "-o", str(tape), "--cli-path", str(play(Scenario.text("Hi.")).path), "one").returncode == 0
    assert b"waits" not in program.run("replay", str(tape)).stderr


@BACKENDS
def test_serve_without_the_claude_that_was_named_says_so_at_start(program: Program, backend: str) -> None:
    arguments = ("serve", "--backend", backend, "--listen", "tcp://127.0.0.1:0")
    assert told(program, *arguments, env={"CLAUDE_CLI_PATH": "/no/such/claude"}) == (
        EXIT_USAGE,
        (
            "claude-transport: CLAUDE_CLI_PATH names '/no/such/claude', which does not exist. [exec.cli.binary_not_found]\n"
            "  Correct CLAUDE_CLI_PATH, or leave it out, so that the program is searched for.\n"
        ),
    )


def test_serve_without_a_codex_says_so_at_start(program: Program) -> None:
    arguments = ("serve", "--agent", "codex", "--listen", "tcp://127.0.0.1:0")
    assert told(program, *arguments, env={"CODEX_CLI_PATH": "/no/such/codex"}) == (
        EXIT_USAGE,
        (
            "claude-transport: CODEX_CLI_PATH names '/no/such/codex', which does not exist. [exec.cli.binary_not_found]\n"
            "  Correct CODEX_CLI_PATH, or leave it out, so that the program is searched for.\n"
        ),
    )


def test_the_last_words_have_no_part_of_a_key_at_which_standard_error_was_cut() -> None:
    key = "sk-ant-api03-Zm9vYmFyYmF6cXV4"
    blank = " " * (64 * 2**10 - len("tail") - 12)
    error = ct.ProcessError("It ended.", exit_code=9, stderr_tail=f"{key[-10:]} {blank}\ntail")
    words = list(hints_for(error))
    assert (words[0], words[2], [line for line in words if key[-10:] in line]) == ("Its last words:", "  tail", [])
