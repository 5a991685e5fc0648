"""The errors that users meet most: what provokes each, on the command line or in Python. `generate_met_errors` makes a page of them.

A provocation uses only the program and public names. It runs in a `World`: a home directory of its own, with the programs and files that
it names, and nothing of the environment around it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Self

import anyio
import anyio.to_thread

import claude_transport as ct
from claude_transport.testing import FakeClaude, FakeMessagesAPI, Scenario, ScriptedTurn, replies, steps
from claude_transport.testing.replies import ErrorReply
from claude_transport.testing.scenario import Answer

__all__ = ["COMMANDS", "PYTHON", "Command", "Snippet", "World", "provoke"]

HOME = "/home/you"
"""What the page shows in place of the directory of a `World`."""
PATIENCE = 60.0
"""Seconds for a command; never reached unless something is broken."""
KEY = {"ANTHROPIC_API_KEY": "sk-ant-api03-made-up-and-never-shown"}
NO_PORT = "http://127.0.0.1:9"
"""An address where nothing listens."""


class Command(NamedTuple):
    """A command line that fails. `why` says when users meet it, `code` is the code of the error.

    With `loop` it gets that far that an event loop runs. `api` is the answer of an API on loopback, whose address is in the environment.
    `bare` hides the official SDK, whose wheel has a claude.
    """

    title: str
    code: str
    why: str
    line: tuple[str, ...]
    env: Mapping[str, str] = {}
    loop: bool = False
    api: ErrorReply | None = None
    bare: bool = False


class Snippet(NamedTuple):
    """Some lines of Python that fail. The function's source is what the page shows."""

    title: str
    code: str
    why: str
    run: Callable[[], Awaitable[object]]


SAYS = {
    "claude": Scenario.echo(),
    "dying": Scenario(startup=(steps.Stderr("error while loading shared libraries: libssl.so.3\n"), steps.Exit(127))),
    "killed": Scenario(otherwise=ScriptedTurn((steps.Text("Well"), steps.DieBySignal("SIGKILL")))),
    "silent": Scenario(answers={"initialize": Answer(never=True)}),
    "mute": Scenario(otherwise=ScriptedTurn((steps.Init(), steps.Hang()))),
    "leaving": Scenario(otherwise=ScriptedTurn((steps.Text("I leave"), steps.Exit(0)))),
    "old": Scenario(version="1.0.9"),
    "stubborn": Scenario(answers={"set_model": Answer(error="no such model: nope"), "get_status": Answer(never=True)}),
    "limited": Scenario(otherwise=ScriptedTurn((steps.Result(subtype="error_max_turns", is_error=True, terminal_reason="max_turns"),))),
    "poor": Scenario(
        otherwise=ScriptedTurn((steps.Result(subtype="error_max_budget_usd", is_error=True, terminal_reason="budget_exhausted"),))
    ),
    "refusing": Scenario(
        otherwise=ScriptedTurn((steps.Result(is_error=True, terminal_reason="api_error", stop_reason="refusal", text="I cannot help."),))
    ),
    "offline": Scenario(
        otherwise=ScriptedTurn(
            (
                steps.Result(
                    is_error=True,
                    terminal_reason="api_error",
                    text="API Error: Connection refused (ECONNREFUSED)",
                    extra={"api_error": "connection_failed"},
                ),
            )
        )
    ),
    "logged-out": Scenario(
        otherwise=ScriptedTurn(
            (steps.Result(is_error=True, terminal_reason="api_error", api_error_status=401, text="Not logged in · Please run /login"),)
        )
    ),
}
"""The programs in the home directory of a `World`, by name."""


class World:
    """A home directory with the programs of `SAYS`, and some that are no claude. Inside a `with` block, this process lives in it."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.home = Path()

    def __enter__(self) -> Self:
        self.home = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="met-"))).resolve()
        for name, scenario in SAYS.items():
            fake = self._stack.enter_context(FakeClaude(scenario))
            self._write(name, f'#!/bin/sh\nexec "{fake.path}" "$@"\n', mode=0o755)
        self._write("prose", "#!/bin/sh\necho 'Please run the setup first.'\n", mode=0o755)
        self._write("nothing", "#!/bin/sh\n", mode=0o755)
        self._write("notes.txt", "Dear diary\n", mode=0o644)
        self._write("tokens", "alice a-token-of-her-own\n", mode=0o644)
        (self.home / "project").mkdir()
        self._stack.enter_context(environment(self.env()))
        self._stack.enter_context(contextlib.chdir(self.home))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def env(self) -> dict[str, str]:
        """Return the environment: a home, a path without a claude, and nothing else."""
        return {"HOME": str(self.home), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "TERM": "dumb"}

    def _write(self, name: str, text: str, *, mode: int) -> None:
        path = self.home / name
        path.write_text(text, "utf-8")
        path.chmod(mode)


@contextlib.contextmanager
def environment(env: Mapping[str, str]) -> Iterator[None]:
    """A block in which this process has this environment."""
    before = dict(os.environ)
    kept = {name: before[name] for name in ("PYTHONPATH", "COVERAGE_PROCESS_START") if name in before}
    os.environ.clear()
    os.environ.update(kept | dict(env))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


async def provoke(case: Command | Snippet, world: World, *, backend: str) -> str:
    """Return what a user sees: stderr of the command and its exit code, or the last lines of the traceback and the record."""
    if isinstance(case, Snippet):
        return shown(await failure_of(case), world)
    if case.api is None:
        return await anyio.to_thread.run_sync(run, case, world, backend, {})
    async with FakeMessagesAPI(case.api) as api:
        return await anyio.to_thread.run_sync(run, case, world, backend, {"ANTHROPIC_BASE_URL": api.url})


async def failure_of(case: Snippet) -> ct.ClaudeTransportError:
    """Run the lines, and return what they raise."""
    try:
        with anyio.fail_after(PATIENCE):
            await case.run()
    except ct.ClaudeTransportError as error:
        return error
    raise AssertionError(f"{case.title}: nothing was raised")


def run(case: Command, world: World, backend: str, env: Mapping[str, str]) -> str:
    """Run the command in a process, and return its stderr and its exit code. Raises `AssertionError` if the code is another one."""
    program = "from claude_transport.app.main import main; sys.exit(main())"
    hidden = "sys.modules['claude_agent_sdk'] = None; " if case.bare else ""
    words = [*case.line[:1], "--backend", backend, *case.line[1:]] if case.loop else case.line
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import sys; {hidden}{program}", *words],
        input=b"",
        capture_output=True,
        env={**os.environ, **case.env, **env},
        cwd=world.home,
        timeout=PATIENCE,
        check=False,
    )
    said = plain(ran.stderr.decode(), world)
    if f"[{case.code}]" not in said:
        raise AssertionError(f"{case.title}: {said}")
    return f"{said}exit code {ran.returncode}\n"


def shown(error: ct.ClaudeTransportError, world: World) -> str:
    """Return the end of the traceback, and the code and the fields of the error."""
    lines = "".join(traceback.format_exception_only(error))
    fields = {
        name: value
        for name, value in vars(error).items()
        if name not in {"code", "category", "retryable", "advice", "searched", "request_id", "__notes__", "_reason"}
        and value not in (None, "", b"", (), 0)
        and is_small(value)
    }
    record = {"code": error.code, "category": error.category, "retryable": error.retryable, "reason": error.reason, **fields}
    return plain(f"{lines}\n{', '.join(f'{name}={value!r}' for name, value in record.items())}\n", world)


def is_small(value: object) -> bool:
    """Return whether the page can show the value."""
    return isinstance(value, str | int | float | bytes) or (isinstance(value, tuple) and all(isinstance(each, str) for each in value))


def plain(text: str, world: World) -> str:
    """Return `text` with a home that is the same in every run."""
    return text.replace(str(world.home), HOME)


# ------------------------------------------------------------------------------------------------------- on the command line

ASK = ("ask", "--cli-path")
COMMANDS = (
    Command("A prompt without quotes", "usage.error", "The shell makes one word of each.", ("ask", "What", "is", "this")),
    Command("A mistyped option", "usage.error", "The option does not exist.", ("ask", "--ofline", "Hello")),
    Command("A mistyped command", "usage.error", "The command does not exist.", ("aks", "Hello")),
    Command("A prompt in place of a command", "usage.error", "The command `ask` was left out.", ("What is this?",)),
    Command("An empty prompt", "config.invalid", "The pipe on stdin ends at once.", ("ask",)),
    Command("A value that an option cannot have", "usage.error", "`--max-turns` counts from 1.", ("ask", "--max-turns", "0", "Hello")),
    Command("An unknown permission mode", "usage.error", "The mode does not exist.", ("ask", "--permission-mode", "yolo", "Hello")),
    Command(
        "Two programs at once",
        "config.invalid",
        "The simulated Claude is a program, too.",
        ("ask", "--offline", "--cli-path", "./claude", "Hello"),
    ),
    Command(
        "No claude and no key",
        "config.no_auth_path",
        "A new machine: nothing is installed, no key is set.",
        ("ask", "Hello"),
        loop=True,
        bare=True,
    ),
    Command(
        "No claude, and the CLI was asked for",
        "config.no_auth_path",
        "Nothing is installed, and `--transport cli` allows nothing else.",
        ("ask", "--transport", "cli", "Hello"),
        loop=True,
        bare=True,
    ),
    Command(
        "No codex",
        "exec.cli.binary_not_found",
        "Codex is not installed.",
        ("ask", "--agent", "codex", "Hello"),
        loop=True,
    ),
    Command(
        "A claude that is not there",
        "exec.cli.binary_not_found",
        "The path is wrong, or the file was moved.",
        (*ASK, "/opt/claude/bin/claude", "Hello"),
        loop=True,
    ),
    Command(
        "A file that is no program", "exec.cli.not_executable", "The file may not be executed.", (*ASK, "./notes.txt", "Hello"), loop=True
    ),
    Command(
        "A program that says nothing",
        "connection.lost",
        "`--cli-path` names another program, such as `/bin/true`.",
        (*ASK, "./nothing", "Hello"),
        loop=True,
    ),
    Command(
        "A program that prints prose",
        "exec.cli.invalid_json",
        "`--cli-path` names a wrapper that explains itself instead of starting claude.",
        (*ASK, "./prose", "Hello"),
        loop=True,
    ),
    Command(
        "A claude that cannot start",
        "exec.cli.exited",
        "A library is missing, or the installation is broken.",
        (*ASK, "./dying", "Hello"),
        loop=True,
    ),
    Command("A claude that is killed", "exec.cli.exited", "The system had no memory left.", (*ASK, "./killed", "Hello"), loop=True),
    Command(
        "No answer in time",
        "exec.cli.timeout",
        "The turn takes longer than `--timeout` allows.",
        ("ask", "--timeout", "1", "--cli-path", "./mute", "Hello"),
        loop=True,
    ),
    Command(
        "A login that has ended",
        "exec.cli.auth_failed",
        "Nobody has logged in on this machine.",
        (*ASK, "./logged-out", "Hello"),
        loop=True,
    ),
    Command(
        "A directory that is not there",
        "exec.cli.cwd_unusable",
        "`--cwd` names no directory.",
        ("ask", "--cwd", "./projekt", "--cli-path", "./claude", "Hello"),
        loop=True,
    ),
    Command(
        "An API without a key",
        "exec.cli.auth_failed",
        "`--transport api` needs a key; the login of claude is for claude.",
        ("ask", "--transport", "api", "Hello"),
        loop=True,
    ),
    Command(
        "An API that cannot be reached",
        "result.connection_failed",
        "A proxy or a gateway is down, or its address is wrong.",
        ("ask", "--transport", "api", "Hello"),
        {**KEY, "ANTHROPIC_BASE_URL": NO_PORT},
        loop=True,
    ),
    Command(
        "An API whose name is unknown",
        "result.connection_failed",
        "The name in `ANTHROPIC_BASE_URL` is mistyped.",
        ("ask", "--transport", "api", "Hello"),
        {**KEY, "ANTHROPIC_BASE_URL": "https://api.invalid"},
        loop=True,
    ),
    Command(
        "A key that is refused",
        "exec.cli.auth_failed",
        "The key was revoked, or belongs to another service.",
        ("ask", "--transport", "api", "Hello"),
        KEY,
        loop=True,
        api=replies.error(401, message="invalid x-api-key"),
    ),
    Command(
        "A model that does not exist",
        "result.model_not_found",
        "The name is mistyped, or the account may not use the model.",
        ("ask", "--transport", "api", "--model", "claude-nope-1", "Hello"),
        KEY,
        loop=True,
        api=replies.error(404, message="model: claude-nope-1"),
    ),
    Command(
        "A request that the API refuses",
        "result.invalid_request",
        "The request has a mistake that only the API sees.",
        ("ask", "--transport", "api", "Hello"),
        KEY,
        loop=True,
        api=replies.error(400, message="messages: text content blocks must be non-empty"),
    ),
    Command(
        "An account without credit",
        "result.billing",
        "The credit of the account is used up.",
        ("ask", "--transport", "api", "Hello"),
        KEY,
        loop=True,
        api=replies.error(400, message="Your credit balance is too low to access the Anthropic API."),
    ),
    Command(
        "A prompt that is too long",
        "result.prompt_too_long",
        "A whole log was piped into the prompt.",
        ("ask", "--transport", "api", "Hello"),
        KEY,
        loop=True,
        api=replies.error(413, message="prompt is too long: 250000 tokens > 200000 maximum"),
    ),
    Command("A rate limit", "result.rate_limited", "Many requests ran at once.", ("ask", "--offline", "simulate an error"), loop=True),
    Command(
        "An option that only a claude can honour",
        "config.invalid",
        "The API runs no tools.",
        ("ask", "--transport", "api", "--allowed-tools", "Bash", "Hello"),
        KEY,
        loop=True,
    ),
    Command("Too many turns", "result.max_turns", "The task needs more turns than allowed.", (*ASK, "./limited", "Hello"), loop=True),
    Command(
        "A tape that exists", "config.invalid", "Nothing is overwritten by accident.", ("record", "-o", "notes.txt", "--offline", "Hello")
    ),
    Command("A recording without a place", "usage.error", "`--output` was left out.", ("record", "--offline", "Hello")),
    Command("A tape that is not there", "config.invalid", "The name is mistyped.", ("inspect", "tape.ndjson")),
    Command("A file that is no tape", "config.invalid", "The file was not written by `record`.", ("inspect", "notes.txt")),
    Command("A gateway without an address", "usage.error", "`--listen` was left out.", ("serve",)),
    Command(
        "A gateway without a claude",
        "exec.cli.binary_not_found",
        "Claude is not installed where the gateway runs.",
        ("serve", "--listen", "tcp://127.0.0.1:7411"),
        loop=True,
        bare=True,
    ),
    Command(
        "A gateway that all machines can reach",
        "config.invalid",
        "Without TLS, tokens and prompts could be read on the way.",
        ("serve", "--offline", "--listen", "tcp://0.0.0.0:7411"),
        loop=True,
    ),
    Command(
        "A token file that others can read",
        "config.invalid",
        "The file was made with the usual permissions.",
        ("serve", "--offline", "--listen", "tcp://127.0.0.1:7411", "--token-file", "tokens"),
    ),
    Command(
        "A gateway that is not there",
        "connect.refused",
        "The gateway has ended, or listens elsewhere.",
        ("watch", "ws://127.0.0.1:9", "--session", "1a3742c2"),
        loop=True,
    ),
)


# --------------------------------------------------------------------------------------------------------------- in Python


async def not_started() -> None:
    query = ct.Query(ct.SubprocessTransport(ct.ClaudeOptions(cli_path="./claude")))
    await query.send("Hello")


async def closed() -> None:
    async with ct.Query(ct.SubprocessTransport(ct.ClaudeOptions(cli_path="./claude"))) as query:
        pass
    await query.send("Hello")


async def input_ended() -> None:
    async with ct.SubprocessTransport(ct.ClaudeOptions(cli_path="./claude")) as transport:
        await transport.end_input()
        await transport.write('{"type": "user"}')


async def unconnected() -> None:
    transport = ct.SubprocessTransport(ct.ClaudeOptions(cli_path="./claude"))
    await transport.write('{"type": "user"}')


async def a_class() -> None:
    ct.Query(ct.MockTransport)  # type: ignore[arg-type]


async def both() -> None:
    ct.query("Hello", options=ct.ClaudeOptions(), transport=ct.MockTransport())


async def mistyped_event() -> None:
    ct.Query(ct.MockTransport(), hooks={"PreToolUze": []})


async def wrong_mode() -> None:
    options = ct.ClaudeOptions(cli_path="./claude", permission_mode="yolo")  # type: ignore[arg-type]
    async with ct.Query(ct.SubprocessTransport(options)):
        pass


async def no_answer() -> None:
    async with ct.Query(ct.SubprocessTransport(ct.ClaudeOptions(cli_path="./silent"), close_timeout=0.5), initialize_timeout=0.5):
        pass


async def old_claude() -> None:
    async with ct.Query(ct.SubprocessTransport(ct.ClaudeOptions(cli_path="./old"))):
        pass


async def refused_request() -> None:
    async with ct.Query(ct.SubprocessTransport(ct.ClaudeOptions(cli_path="./stubborn"))) as query:
        await query.set_model("nope")


async def left_early() -> None:
    async with ct.Query(ct.SubprocessTransport(ct.ClaudeOptions(cli_path="./leaving"))) as query:
        turn = await query.send("Hello")
        await turn.result()


async def refused_answer() -> None:
    async with ct.Query(ct.SubprocessTransport(ct.ClaudeOptions(cli_path="./refusing"))) as query:
        result = await (await query.send("Hello")).result()
        result.raise_for_error()


async def over_budget() -> None:
    async with ct.Query(ct.SubprocessTransport(ct.ClaudeOptions(cli_path="./poor"))) as query:
        result = await (await query.send("Hello")).result()
        result.raise_for_error()


async def unreached() -> None:
    async with ct.Query(ct.SubprocessTransport(ct.ClaudeOptions(cli_path="./offline"))) as query:
        result = await (await query.send("Hello")).result()
        result.raise_for_error()


async def nobody_listens() -> None:
    async with ct.Query(ct.open_transport("tcp://127.0.0.1:9", resume=False)):
        pass


async def wrong_scheme() -> None:
    ct.open_transport("https://claude.example.org")


async def token_in_url() -> None:
    ct.open_transport("wss://claude.example.org/?token=hunter2")


async def empty_prompt() -> None:
    await ct.complete("  ")


async def forbidden_payer() -> None:
    await ct.complete("Hello", transport="api", billing="subscription")


SNIPPETS = """\
A query that was not started|usage.not_connected|`async with` or `start()` was left out.|not_started
A query that is closed|usage.closed|The `async with` block has ended.|closed
A transport whose input has ended|usage.input_closed|`end_input()` came before the last prompt.|input_ended
A transport that is not connected|usage.not_connected|`async with` or `connect()` was left out.|unconnected
A class in place of a transport|config.invalid|The parentheses were left out.|a_class
Options and a transport|usage.error|A transport has options of its own.|both
A mistyped hook event|config.invalid|A hook of an unknown event would never run.|mistyped_event
An unknown permission mode in options|config.invalid|The type checker reports it, too.|wrong_mode
A claude that does not answer|connect.timeout|The program waits for something, such as a terminal.|no_answer
A claude that is too old|exec.cli.version_mismatch|An old installation is first on `PATH`.|old_claude
A request that claude refuses|control.refused|The value is unknown to this claude.|refused_request
A claude that leaves in the middle of a turn|result.missing|It was ended from outside.|left_early
A model that refuses|result.refusal|The prompt is against the policy of the model.|refused_answer
A budget that is used up|result.budget|`max_budget_usd` is a limit for the whole run.|over_budget
An API that claude cannot reach|result.connection_failed|The machine has no network.|unreached
A server that is not there|connect.refused|The gateway has ended, or listens elsewhere.|nobody_listens
A URL of the web|config.invalid|A gateway is reached over a socket or a WebSocket.|wrong_scheme
A token in a URL|config.invalid|Logs and process lists show URLs.|token_in_url
A call without a prompt|usage.error|The text came out empty.|empty_prompt
A subscription that cannot pay|config.invalid|Only the CLI can use a subscription.|forbidden_payer
"""
PYTHON = tuple(Snippet(*row.split("|")[:3], globals()[row.split("|")[3]]) for row in SNIPPETS.splitlines())
