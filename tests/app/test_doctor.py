"""`doctor`: what it finds, what it tries, what it must not use or tell."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from program_process import PATIENCE, Program

from claude_transport.codex.testing.fake_codex import FakeCodex
from claude_transport.launch.features import NEWEST_CLI
from claude_transport.testing.fake_claude import FakeClaude
from claude_transport.testing.scenario import Answer, Scenario, Turn
from claude_transport.testing.steps import Exit, Result, Stderr, Text

Play = Callable[..., FakeClaude]
SECRET = "sk-ant-nobody-may-see-this"
BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


def examine(program: Program, *arguments: str, exit_code: int = 0, **options: Any) -> dict[str, Any]:
    """The report as JSON, which is all there is on stdout."""
    ran = program.run("doctor", "--json", *arguments, **options)
    assert ran.returncode == exit_code, ran.stdout + ran.stderr
    report: dict[str, Any] = json.loads(ran.stdout)
    assert report["exit_code"] == exit_code
    assert report["ok"] is (exit_code == 0)
    return report


@BACKENDS
def test_offline_tries_the_simulated_claude_and_times_every_step(program: Program, play: Play, backend: str) -> None:
    claude = play(Scenario.echo())
    report = examine(program, "--offline", "--backend", backend, env={"CLAUDE_CLI_PATH": str(claude.path)})
    assert report["backend"] == backend
    run = report["test_run"]
    assert (run["ok"], run["against"], run["error"]) == (True, "simulated", None)
    assert [step["name"] for step in run["steps"]] == ["spawn", "initialize", "first message", "result", "close"]
    assert all(step["ms"] >= 0 for step in run["steps"])
    assert report["cli"]["path"] == str(claude.path)
    assert report["cli"]["source"] == "CLAUDE_CLI_PATH"
    assert claude.calls() == []  # it was found, and not run


@BACKENDS
def test_no_claude_is_exit_code_2_and_every_place_that_was_searched(program: Program, backend: str) -> None:
    report = examine(program, "--cli-path", "claudette", "--backend", backend, exit_code=2)
    assert report["cli"]["searched"] == [f"explicit path: {folder}/claudette (not there)" for folder in ("/usr/bin", "/bin")]
    assert report["cli"]["error"]["code"] == "exec.cli.binary_not_found"
    assert report["cli"]["error"]["remedy"]
    assert report["test_run"] is None


def test_no_claude_is_told_in_words_too(program: Program) -> None:
    ran = program.run("doctor", "--cli-path", "/no/such/claude")
    assert ran.returncode == 2
    assert b"looked at     explicit path: /no/such/claude (not there)" in ran.stdout
    assert b"There is no claude to run." in ran.stdout


def test_offline_works_where_there_is_no_claude(program: Program) -> None:
    report = examine(program, "--offline", "--cli-path", "/no/such/claude")
    assert report["cli"]["error"]["code"] == "exec.cli.binary_not_found"


@BACKENDS
def test_a_claude_that_dies_is_reported_with_code_last_words_and_remedy(program: Program, play: Play, backend: str) -> None:
    fake = play(Scenario(answers={"initialize": Answer(never=True, before=(Stderr("cannot open shared object\n"), Exit(127)))}))
    report = examine(program, "--cli-path", str(fake.path), "--backend", backend, exit_code=1)
    error = report["test_run"]["error"]
    assert (error["type"], error["code"], error["exit_code"]) == ("ProcessError", "exec.cli.exited", 127)
    assert "  cannot open shared object" in error["details"]
    assert [step["name"] for step in report["test_run"]["steps"]] == ["spawn"]


def test_a_claude_that_never_initialises_is_given_up_after_the_timeout(program: Program, play: Play) -> None:
    fake = play(Scenario(answers={"initialize": Answer(never=True)}))
    report = examine(program, "--cli-path", str(fake.path), "--timeout", "0.7", exit_code=1)
    assert report["test_run"]["error"]["category"] == "transport"
    assert report["test_run"]["error"]["code"] in {"exec.cli.timeout", "connect.timeout"}


def test_a_claude_that_asks_another_api_does_not_pass(program: Program, play: Play) -> None:
    report = examine(program, "--cli-path", str(play(Scenario.text("From elsewhere.")).path), exit_code=1)
    assert report["test_run"]["error"]["code"] == "doctor.other_api"


def test_a_failed_answer_does_not_pass(program: Program, play: Play) -> None:
    fake = play(Scenario(otherwise=Turn((Result(is_error=True, api_error_status=401, text="no"),))))
    ran = program.run("doctor", "--cli-path", str(fake.path))
    assert ran.returncode == 1
    assert b"[exec.cli.auth_failed]" in ran.stdout
    assert b"Something does not work" in ran.stdout


def test_the_test_run_gets_none_of_the_users_credentials_settings_or_home(program: Program, play: Play) -> None:
    names = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "HOME", "CLAUDE_CONFIG_DIR", "ANTHROPIC_BASE_URL")
    fake = play(Scenario.echo(), record_env=names)
    own = {"ANTHROPIC_API_KEY": SECRET, "ANTHROPIC_AUTH_TOKEN": SECRET, "CLAUDE_CODE_OAUTH_TOKEN": SECRET, "MY_SECRET": SECRET}
    examine(program, "--cli-path", str(fake.path), exit_code=1, env=own)
    (call,) = fake.calls()
    assert "MY_SECRET" not in call.env_names
    assert call.env["ANTHROPIC_API_KEY"] == "sk-ant-fake"
    assert call.env["ANTHROPIC_BASE_URL"].startswith("http://127.0.0.1:")
    assert SECRET not in str(call.env)
    assert call.env["HOME"] != program.env["HOME"]
    assert call.env["CLAUDE_CONFIG_DIR"] not in {"", str(Path(program.env["HOME"]) / ".claude")}
    assert not Path(call.env["HOME"]).exists()  # thrown away
    assert "--setting-sources=" in call.argv


@pytest.mark.parametrize("arguments", [("--json",), ("-v",)])
def test_credentials_are_named_and_never_shown(program: Program, arguments: tuple[str, ...]) -> None:
    env = {"ANTHROPIC_API_KEY": SECRET, "CLAUDE_CODE_OAUTH_TOKEN": SECRET, "CLAUDECODE": "1", "HTTPS_PROXY": f"http://u:{SECRET}@proxy"}
    ran = program.run("doctor", "--offline", *arguments, env=env)
    assert ran.returncode == 0
    assert SECRET.encode() not in ran.stdout + ran.stderr
    for name in env:
        assert name.encode() in ran.stdout


def test_the_winning_credential_and_who_pays_are_told(program: Program) -> None:
    report = examine(program, "--offline", env={"ANTHROPIC_API_KEY": SECRET, "CLAUDE_CODE_OAUTH_TOKEN": SECRET, "CLAUDECODE": "1"})
    credential = report["credential"]
    assert (credential["winner"], credential["name"], credential["payer"]) == ("api_key", "ANTHROPIC_API_KEY", "api account")
    assert credential["present"] == ["CLAUDE_CODE_OAUTH_TOKEN"]
    assert report["environment"]["removed"] == {"CLAUDECODE": "set by an enclosing session"}


def test_codex_is_found_not_run_and_its_payer_is_told(program: Program, tmp_path: Path) -> None:
    home = tmp_path / "codex"
    home.mkdir()
    (home / "auth.json").write_text(json.dumps({"OPENAI_API_KEY": SECRET}), "utf-8")
    with FakeCodex() as fake:
        env = {"CODEX_CLI_PATH": str(fake.path), "CODEX_HOME": str(home)}
        report = examine(program, "--offline", env=env)
        said = program.run("doctor", "--offline", env=env).stdout.decode()
        assert fake.calls() == []
    codex = report["codex"]
    assert (codex["path"], codex["source"], codex["home"]) == (env["CODEX_CLI_PATH"], "CODEX_CLI_PATH", str(home))
    assert (codex["credential"]["winner"], codex["credential"]["payer"]) == ("api_key", "api account")
    assert SECRET not in json.dumps(report) + said
    assert "auth.json; the API account pays" in said


@pytest.mark.parametrize(
    ("version", "note"),
    [
        ("0.160.1", "in the supported range, 0.150.1 to 0.171.0"),
        ("0.120.0", "outside the supported range: older than 0.150.1, the oldest codex that this library talks to: "),
        ("0.999.0", "outside the supported range: newer than 0.171.0, the newest codex that this library was tested with"),
    ],
)
def test_the_version_of_codex_is_compared_with_the_supported_ones(program: Program, tmp_path: Path, version: str, note: str) -> None:
    package = tmp_path / "node_modules" / "@openai" / "codex"
    (package / "bin").mkdir(parents=True)
    (package / "package.json").write_text(json.dumps({"name": "@openai/codex", "version": version}), "utf-8")
    binary = package / "bin" / "codex"
    binary.write_text("#!/bin/sh\nexit 3\n", "utf-8")
    binary.chmod(0o755)
    env = {"CODEX_CLI_PATH": str(binary)}
    codex = examine(program, "--offline", env=env)["codex"]
    assert codex["version"] == version
    assert codex["version_note"].startswith(note)
    said = " ".join(program.run("doctor", "--offline", env=env).stdout.decode().split())
    assert f"version {version}, {note}" in said


def test_a_machine_without_codex_is_fine(program: Program) -> None:
    report = examine(program, "--offline", env={"CODEX_CLI_PATH": "/no/such/codex"})
    assert (report["codex"]["path"], report["codex"]["credential"]) == (None, None)
    assert "/no/such/codex" in report["codex"]["problem"]


def test_settings_of_the_user_and_the_project_count_for_the_credential(program: Program, tmp_path: Path) -> None:
    project = tmp_path / "project"
    for folder, document in (
        (Path(program.env["HOME"]), {"apiKeyHelper": f"echo {SECRET}"}),
        (project, {"env": {"ANTHROPIC_AUTH_TOKEN": SECRET}}),
    ):
        (folder / ".claude").mkdir(parents=True)
        (folder / ".claude" / "settings.json").write_text(json.dumps(document))
    credential = examine(program, "--offline", cwd=project)["credential"]
    assert credential["name"] == "ANTHROPIC_AUTH_TOKEN"
    assert "apiKeyHelper" in str(credential)
    assert SECRET not in str(credential)


def test_a_settings_file_that_is_no_json_is_passed_over(program: Program) -> None:
    folder = Path(program.env["HOME"]) / ".claude"
    folder.mkdir()
    (folder / "settings.json").write_text("{")
    assert examine(program, "--offline")["credential"]["winner"] == "none"


@pytest.fixture
def good_claude(play: Play, tmp_path: Path) -> str:
    """The path of a claude that passes the doctor's test run: it asks the API that it is told to ask."""
    request = {"model": "m", "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "This is a checkup."}]}
    claude = tmp_path / "good-claude"
    claude.write_text(
        f"#!{sys.executable}\n"
        "import os, sys, urllib.request\n"
        f"url, body = os.environ['ANTHROPIC_BASE_URL'] + '/v1/messages', {json.dumps(request).encode()!r}\n"
        "headers = {'x-api-key': os.environ['ANTHROPIC_API_KEY'], 'content-type': 'application/json'}\n"
        "urllib.request.urlopen(urllib.request.Request(url, body, headers)).read()\n"
        f"os.execv({str(play(Scenario.echo()).path)!r}, sys.argv)\n"
    )
    claude.chmod(0o755)
    return str(claude)


def test_a_claude_that_works_without_a_credential_is_not_ready_and_the_doctor_says_how_to_get_one(
    program: Program, good_claude: str
) -> None:
    ran = program.run("doctor", "--cli-path", good_claude)
    assert ran.returncode == 0, ran.stdout
    verdict = " ".join(ran.stdout.decode().rpartition("close")[2].split())
    assert "Everything works" not in verdict
    assert "The program works, but a real prompt will fail without a credential." in verdict
    assert all(way in verdict for way in ("ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "run `claude` to log in"))
    report = examine(program, "--cli-path", good_claude)
    assert (report["credential"]["winner"], report["ready"]) == ("none", False)


def test_a_claude_that_works_and_has_a_credential_is_ready(program: Program, good_claude: str) -> None:
    env = {"CLAUDE_CODE_OAUTH_TOKEN": SECRET}
    assert program.run("doctor", "--cli-path", good_claude, env=env).stdout.endswith(b"\nEverything works.\n")
    assert examine(program, "--cli-path", good_claude, env=env)["ready"] is True


def test_a_simulated_run_never_makes_ready_because_claude_was_not_tried(program: Program) -> None:
    assert examine(program, "--offline", env={"ANTHROPIC_API_KEY": SECRET})["ready"] is False


def test_a_claude_that_does_not_work_is_not_ready_whatever_the_credential(program: Program, play: Play) -> None:
    fake = play(Scenario.text("From elsewhere."))
    assert examine(program, "--cli-path", str(fake.path), exit_code=1, env={"ANTHROPIC_API_KEY": SECRET})["ready"] is False


@pytest.mark.parametrize(
    ("version", "note"),
    [(NEWEST_CLI, "was tested with"), ("2.1.92", "in the supported range"), ("2.9.0", "newer than"), ("2.0.5", "older than")],
)
def test_the_version_is_read_from_the_files_and_compared(program: Program, tmp_path: Path, version: str, note: str) -> None:
    claude = tmp_path / "claude"
    claude.write_text("#!/bin/sh\nexit 9\n")
    claude.chmod(0o755)
    (tmp_path / "claude.version").write_text(version)
    found = examine(program, "--offline", "--cli-path", str(claude))["cli"]
    assert found["version"] == version
    assert note in found["version_note"]


def test_a_version_that_no_file_tells_is_learnt_from_the_test_run(program: Program, play: Play) -> None:
    fake = play(Scenario.echo(version="2.7.1"))
    found = examine(program, "--cli-path", str(fake.path), exit_code=1)["cli"]
    assert found["version"] == "2.7.1"
    assert len(fake.calls()) == 1


def test_the_words_of_the_report_name_every_step(program: Program) -> None:
    ran = program.run("doctor", "--offline")
    text = ran.stdout.decode()
    assert ran.stderr == b""
    assert text.endswith("\nThe simulated run works.\n")
    assert all(f"✓ {step}" in text for step in ("spawn", "initialize", "first message", "result", "close"))
    assert all(len(line) <= 80 or "/" in line for line in text.splitlines())


@BACKENDS
def test_ctrl_c_ends_the_test_run_and_its_claude(program: Program, play: Play, backend: str) -> None:
    fake = play(Scenario(otherwise=Turn((Text("first last", chunks=["first ", "last"], gate="never"), Result()))))
    with program.start("doctor", "--backend", backend, "--cli-path", str(fake.path)) as process:
        assert process.stdout is not None
        seen = b""
        while b"first message" not in seen:
            chunk = os.read(process.stdout.fileno(), 4096)
            assert chunk, seen
            seen += chunk
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
    with pytest.raises(ProcessLookupError):
        os.kill(fake.calls()[0].pid, 0)
