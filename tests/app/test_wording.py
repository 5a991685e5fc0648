"""The messages of the program name its own options, and no argument of Python."""

from __future__ import annotations

import inspect
import shutil
import subprocess
from pathlib import Path

import pytest

from claude_transport import fleet, gateway, observing, transports
from claude_transport.app.arguments import COMMANDS
from claude_transport.app.failures import OPTIONS, in_program_words
from claude_transport.app.main import main
from claude_transport.completion import complete
from claude_transport.gateway.gateway import Gateway
from claude_transport.launch.options import ClaudeOptions

LOOPBACK = "tcp://127.0.0.1:0"
SERVE = ("serve", "--offline", "--listen")
WORKER = ("worker", "--offline", "--broker", "redis://127.0.0.1:1/0")
ON_THE_NETWORK = "can be reached from other machines, and"

MISTAKES: dict[tuple[str, ...], list[str]] = {
    ("completion",): [
        "Missing argument 'SHELL'. Choose from: bash, zsh, fish [usage.error]",
        "See `claude-transport completion --help`.",
    ],
    ("help", "aks"): ["there is no command 'aks'. [usage.error]", "Did you mean ask?", "See `claude-transport help --help`."],
    ("ask", "--nope", "hi"): ["ask has no option --nope. [usage.error]", "See `claude-transport ask --help`."],
    ("ask", "--modle", "x", "hi"): [
        "ask has no option --modle. [usage.error]",
        "Did you mean --model?",
        "See `claude-transport ask --help`.",
    ],
    (*SERVE, "tcp://0.0.0.0:0"): [
        f"tcp://0.0.0.0:0 {ON_THE_NETWORK} does not authenticate clients: each could run claude on this machine. [config.invalid]",
        "Give --token-file or --token-env, or --client-ca with TLS",
    ],
    (*SERVE, "tcp://0.0.0.0:0", "--token-env", "TOKEN"): [
        (
            f"tcp://0.0.0.0:0 {ON_THE_NETWORK} would carry tokens and conversations without encryption: use tls:// or wss://, or give "
            "--allow-plaintext behind a proxy that encrypts [config.invalid]"
        )
    ],
    (*SERVE, "tls://127.0.0.1:0"): ["tls://127.0.0.1:0 needs a certificate: give --certificate [config.invalid]"],
    (*SERVE, "ws://token@127.0.0.1:0"): [
        "a user, password or token has no place in a URL, where logs and process lists show it: give --token-env [config.invalid]"
    ],
    (*SERVE, LOOPBACK, "--token-file", "/no/file"): [
        "the token file '/no/file' cannot be read: No such file or directory [config.invalid]"
    ],
    (*SERVE, "tls://127.0.0.1:0", "--certificate", "/no/file"): [
        "--certificate /no/file cannot be read: No such file or directory [config.invalid]"
    ],
    (*SERVE, LOOPBACK, "--origin", "here"): ["--origin is not a list of origins such as 'https://example.org' [config.invalid]"],
    (*SERVE, LOOPBACK, "--host-name", "http://x"): [
        "--host-name: 'http://x' is not a host name or an address: give it without scheme, port and path [config.invalid]"
    ],
    (*SERVE, LOOPBACK, "--choice", "colour"): ["--choice: ClaudeOptions has no option colour [config.invalid]"],
    ("serve", "--listen", LOOPBACK, "--cli-path", "/no/claude"): [
        "--cli-path names '/no/claude', which does not exist. [exec.cli.binary_not_found]",
        "Correct --cli-path, or leave it out, so that the program is searched for.",
    ],
    (*WORKER, "--lease", "0.5"): ["--lease must be at least 1 second, not 0.5 [config.invalid]"],
    (*WORKER, "--metrics-port", "70000"): ["--metrics-port must be a number from 0 to 65535, not 70000 [config.invalid]"],
    (*WORKER, "--capacity", "1000"): ["--capacity must be a whole number from 1 to 500, not 1000 [config.invalid]"],
    ("watch", "ws://127.0.0.1:1"): ["URL names no session: give --session ID, or the address of its live page [config.invalid]"],
    ("watch", "ws://127.0.0.1:1", "--session", "a b"): ["--session must be the id of a session: letters, digits, - and _ [config.invalid]"],
    ("ask", "--offline", "--cwd", "/no/folder", "hi"): [
        "the working directory '/no/folder' does not exist or is not a directory. [exec.cli.cwd_unusable]",
        "Make it, or correct --cwd.",
    ],
    ("ask", "--offline", "--model", "", "hi"): ["--model: is empty; leave it out [config.invalid]"],
    ("ask", "--agent", "codex", "--max-turns", "2", "hi"): [
        "--max-turns: Codex cannot do this. [config.invalid]",
        "Remove it, or use --agent claude-code",
    ],
    ("inspect", "tape", "--html", "-", "--json"): [
        "--html - and --json both write to stdout. [config.invalid]",
        "Give one of them, or a FILE to --html.",
    ],
}


@pytest.mark.parametrize("argv", MISTAKES, ids=" ".join)
def test_a_mistake_is_told_in_the_words_of_the_command_line(
    argv: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "0123456789abcdef")
    assert main(argv) == 2
    first, *more = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("·")]
    assert [first.removeprefix("claude-transport: "), *(line.removeprefix("  ") for line in more)] == MISTAKES[argv]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the files")
def test_files_that_are_no_certificate_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "certificate.pem")
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=x"]
    subprocess.run([*new, "-keyout", key, "-out", certificate], capture_output=True, check=True)
    for given, told in (
        (("--certificate", certificate), f"--certificate {certificate} cannot be used: it needs a chain and its private key as PEM ("),
        (("--certificate", certificate, "--key", certificate), f"--certificate {certificate} and --key {certificate} cannot be used: "),
        (("--certificate", certificate, "--key", key, "--client-ca", key), f"--client-ca {key} cannot be used: it needs a certificate"),
    ):
        assert main([*SERVE, "tls://127.0.0.1:0", *given]) == 2
        assert capsys.readouterr().err.startswith(f"claude-transport: {told}")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("max_turns: Codex cannot do this", "--max-turns: Codex cannot do this"),
        ('use transport="cli", or agent="claude-code"', "use --transport cli, or --agent claude-code"),
        ("the name of the session, and model 3", "the name of the session, and model 3"),
        ("name must be short", "--name must be short"),
        ("--max-turns and my_max_turns stay", "--max-turns and my_max_turns stay"),
    ],
)
def test_only_arguments_become_options(text: str, told: str) -> None:
    assert in_program_words(text) == told


def test_every_translated_argument_is_one_of_the_library_and_every_option_one_of_the_program() -> None:
    flags = {flag for command in COMMANDS for param in command.params for flag in param.opts}
    assert set(OPTIONS.values()) - flags == set()
    takes = (Gateway, fleet.FleetWorker, observing.observe, transports.ReplayTransport, complete)
    known = {name for each in takes for name in inspect.signature(each).parameters} | set(ClaudeOptions.__struct_fields__)
    assert set(OPTIONS) - known <= {"codex_path", "sandbox", "approval_policy"}  # of CodexOptions
    assert gateway is not None


@pytest.mark.parametrize("command", ["", "ask", "serve"])
def test_help_and_a_command_is_the_help_of_the_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [command] if command else []
    assert main([*words, "--help"]) == 0
    shown = capsys.readouterr()
    assert main(["help", *words]) == 0
    assert capsys.readouterr() == shown


def test_a_capital_v_is_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    shown = capsys.readouterr()
    assert main(["-V"]) == 0
    assert capsys.readouterr() == shown
