"""Every block of code on a page of the documentation is run by a test, or marked with the reason why not. No block is left out."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import anyio
import anyio.to_thread
import pytest
from loading import load_file

import claude_transport as ct
from claude_transport import codex, fleet, sessions
from claude_transport.codex.testing.scenario import CodexScenario
from claude_transport.protocol.tape import Tape
from claude_transport.testing import FakeClaude, FakeCodex, Scenario, conformance
from claude_transport.testing.conformance import media

PROJECT = Path(__file__).parent.parent
LANGUAGES = frozenset({"python", "bash", "sh", "shell", "console", "toml", "yaml", "json"})
OTHER_FENCES = frozenset({"text", "js"})
"""What a program prints, and what tests/wire/test_ajv.py does in JavaScript. Directives begin with a brace, and include files that other
tests run.
"""

rehearsed_claude = load_file(PROJECT / "examples" / "first_conversation.py", "rehearsal_of_the_blocks").rehearsed_claude


class Block(NamedTuple):
    """A fenced block: its page, its language, its number among those of its language on the page, and its text."""

    page: str
    language: str
    number: int
    code: str

    @property
    def key(self) -> str:
        return f"{self.page} {self.language} {self.number}"


def pages() -> list[Path]:
    """Every page that a reader may open."""
    found = [*PROJECT.glob("*.md"), *(PROJECT / "examples").glob("*.md"), *(PROJECT / "docs").rglob("*.md")]
    return sorted(page for page in found if not {"_build", "changelog.d"} & set(page.parts))


def blocks_of(name: str, text: str) -> list[Block]:
    """Return the fenced blocks of a page, also those that are indented or that begin with more backticks or tildes."""
    found: list[Block] = []
    for fence in re.finditer(r"^([ \t]*)(`{3,}|~{3,})([^\n`]*)\n(.*?)^\1\2[ \t]*$", text, re.DOTALL | re.MULTILINE):
        language = fence[3].strip()
        number = sum(block.language == language for block in found)
        found.append(Block(name, language, number, textwrap.dedent(fence[4])))
    return found


ALL = [block for page in pages() for block in blocks_of(str(page.relative_to(PROJECT)), page.read_text("utf-8"))]
BLOCKS = {block.key: block for block in ALL if block.language in LANGUAGES}

# ------------------------------------------------------------------------------------- blocks that another test runs, or nothing

ELSEWHERE = {
    "README.md python 0": "test_docs_examples.py",
    "README.md bash 0": "e2e/test_readme.py",
    "docs/index.md bash 0": "test_landing_page.py",
    "docs/tutorial/your-own-wrapper.md python 0": "test_docs_pages.py",
    "docs/how-to/test-without-a-model.md python 0": "testing/test_wire.py",
    **{f"docs/how-to/test-without-a-model.md python {number}": "e2e/test_how_to_without_a_model.py" for number in (1, 2)},
    **{f"docs/how-to/test-runners.md python {number}": "testing/test_every_runner.py" for number in range(8)},
    **{f"docs/how-to/notebooks.md python {number}": "test_landing_page.py" for number in range(5)},
    **{f"docs/how-to/leave.md bash {number}": "test_leaving.py" for number in range(3)},
    **{key: "test_met_errors.py" for key in BLOCKS if key.startswith("docs/reference/met-errors.md ")},
    "docs/how-to/serve-with-tls.md bash 0": "app/test_deployment_pages.py",
    "docs/reference/program.md bash 10": "app/test_shell_completion.py",
}
"""The test that runs a block, or what stands in it."""

CI, BENCH, NETWORK, SERVER = (
    "CI runs this very command.",
    "A benchmark: it takes minutes, and a test runs it with very little of everything.",
    "It installs packages from an index.",
    "It serves until a signal. test_docs_pages.py reads each command line; tests/app/test_serve.py runs such ones.",
)
WIRE = "It needs a real claude, or a tape of the reader. tests/e2e/test_wire_check.py and tests/app/test_wire_command.py run such ones."
NOT_RUN = {
    "README.md bash 1": CI,
    "CONTRIBUTING.md bash 0": CI,
    "CONTRIBUTING.md bash 1": "It runs these tests.",
    **{f"docs/benchmarks/{name}.md sh 0": BENCH for name in ("close", "network", "pool", "soak", "spawn", "speed", "wrappers")},
    "docs/benchmarks/wrappers.md sh 1": BENCH,
    "docs/benchmarks/mutants.md sh 0": "It takes most of an hour. tests/mutants/test_mutations.py holds what it does.",
    "docs/how-to/record-and-replay.md sh 0": "A host starts it in place of claude. tests/app/test_record_as_claude.py runs its command.",
    "docs/how-to/record-and-replay.md sh 1": "A host starts it in place of claude. tests/app/test_record_and_replay.py runs its command.",
    "docs/how-to/upgrade.md bash 0": NETWORK,
    "docs/how-to/upgrade.md bash 1": NETWORK,
    "docs/tutorial/first-conversation.md bash 0": NETWORK,
    "docs/how-to/run-a-fleet.md bash 0": NETWORK,
    "docs/how-to/serve.md bash 0": SERVER,
    "docs/how-to/serve.md bash 1": SERVER,
    **{f"docs/how-to/serve-with-tls.md bash {number}": SERVER for number in (1, 2, 3)},
    "docs/how-to/watch-a-session.md bash 0": SERVER,
    "docs/reference/program.md bash 3": SERVER,
    "docs/reference/program.md bash 4": SERVER,
    "docs/reference/program.md bash 5": "It needs a broker at the usual port. tests/fleet/test_fleet_program.py runs it with its own.",
    "docs/reference/program.md bash 6": "It reports on this machine. tests/app/test_doctor.py runs it.",
    "docs/reference/program.md bash 7": SERVER,
    "docs/reference/program.md bash 9": "It takes half a minute. tests/app/test_bench.py runs it with few messages.",
    "docs/reference/program.md bash 12": WIRE,
    **{f"docs/how-to/check-the-wire.md bash {number}": WIRE for number in range(4)},
    "docs/explanation/fleet.md python 0": "A sketch of a loop over the state machine; the names are checked, and tests/fleet plays it.",
    "docs/how-to/connect-remotely.md python 1": "It needs the reader's certificates. docs/examples/mutual_tls.py runs the same calls.",
    "docs/how-to/serve-with-tls.md python 0": "It needs the reader's certificates. docs/examples/mutual_tls.py runs the same calls.",
    "docs/how-to/drive-a-json-rpc-agent.md python 0": "npx fetches the agent. tests/e2e runs it where it is installed.",
    "docs/how-to/mcp-servers.md python 0": "Its servers are the reader's. docs/examples/in_process_tools.py runs the first kind.",
    "docs/how-to/record-and-replay.md python 0": "It needs a tape of the reader's. tests/e2e/test_any_host.py runs the same calls.",
    "docs/how-to/warm-sessions.md python 0": "It names a folder of the reader. examples/warm_sessions.py runs the same calls.",
    "docs/how-to/watch-a-session.md python 0": "It needs a running session. docs/examples/watched_session.py runs the same calls.",
}
"""Why a block is not run."""

# ---------------------------------------------------------------------------------------------------------------- blocks that run

Names = dict[str, Any]


class World:
    """What a block may need: a fake `claude` and a fake `codex` that the library finds, and transports that are rehearsed."""

    def __init__(self, stack: AsyncExitStack, patch: pytest.MonkeyPatch, folder: Path) -> None:
        self.stack = stack
        self.patch = patch
        self.folder = folder

    def rehearse(self, owner: Any, *names: str) -> None:
        """Put a rehearsed Claude in place of these transports."""
        for name in names:
            self.patch.setattr(owner, name, lambda *_args, **_options: rehearsed_claude())

    async def query(self, transport: ct.Transport) -> ct.Query:
        return await self.stack.enter_async_context(ct.Query(transport))

    def fake_codex(self) -> None:
        fake = self.stack.enter_context(FakeCodex(CodexScenario.text("Two files.")))
        self.patch.setenv("CODEX_CLI_PATH", str(fake.path))

    def fake_claude(self) -> None:
        fake = self.stack.enter_context(FakeClaude(Scenario.text("Hello!")))
        self.patch.setenv("CLAUDE_CLI_PATH", str(fake.path))

    def short_contract(self) -> None:
        """Check two clauses in place of all."""
        short = partial(conformance.run_conformance, clauses=["write.backpressure", "read.order"])
        self.patch.setattr(conformance, "run_conformance", short)


async def _turn(world: World) -> Names:
    query = await world.query(rehearsed_claude())
    return {"query": query, "turn": await query.send("Hello")}


async def _connected(world: World) -> Names:
    world.rehearse(ct, "SubprocessTransport", "NetworkTransport")
    world.rehearse(fleet, "FleetTransport")
    return {"options": ct.ClaudeOptions(), "token": "a-token-of-the-reader", "TOKEN": "x" * 20, "key": "k", "ask": _deny, "ask_me": _deny}


async def _deny(tool_name: str, given: Any, context: Any) -> ct.Deny:
    return ct.Deny("no")


async def _stored(world: World) -> Names:
    world.rehearse(ct, "SubprocessTransport")
    return {"store": sessions.InMemorySessionStore(), "waiting": {"session": "5f0c8a52-6ab5-4a0e-9d3c-0d5a54b3a1ce"}}


async def _contract(world: World) -> Names:
    world.short_contract()
    mine = ModuleType("mine")
    vars(mine).update(MyTransport=media.memory(), MyWrapper=ct.TransportWrapper)
    world.patch.setitem(sys.modules, "mine", mine)
    return {"my_factory": media.memory(), "MyWrapper": ct.TransportWrapper}


async def _gateway(world: World) -> Names:
    return {"options": ct.ClaudeOptions(cli_path="/bin/true"), "url": "tcp://127.0.0.1:7411", "token": "a-token-of-the-reader"}


async def _places(world: World) -> Names:
    return {"options": ct.ClaudeOptions(), "project": world.folder, "config_dir": world.folder}


async def _codex(world: World) -> Names:
    world.fake_codex()
    return {"home": str(world.folder), "empty": str(world.folder)}


async def _codex_session(world: World) -> Names:
    world.fake_codex()
    transport = ct.SubprocessTransport(codex.CodexOptions(codex_home=str(world.folder)))
    session = await world.stack.enter_async_context(codex.CodexSession(transport))
    await (await session.send("Hello")).result()  # a thread without a turn cannot be forked
    return {"session": session}


async def _claude(world: World) -> Names:
    world.fake_claude()
    return {"options": ct.ClaudeOptions(), "the_users_own": _deny}


GIVEN: dict[str, Callable[[World], Awaitable[Names]]] = {
    "docs/explanation/stalls.md python 0": _turn,
    "docs/how-to/approve-later.md python 0": _stored,
    "docs/how-to/build-middleware.md python 0": _contract,
    "docs/how-to/conformance.md python 0": _contract,
    "docs/how-to/conformance.md python 1": _contract,
    "docs/how-to/connect-remotely.md python 0": _connected,
    "docs/how-to/connect-remotely.md python 2": _connected,
    "docs/how-to/fake-codex.md python 0": _codex,
    "docs/how-to/one-call.md python 0": _claude,
    "docs/how-to/one-call.md python 1": _claude,
    "docs/how-to/run-a-fleet.md python 0": _connected,
    "docs/how-to/run-in-containers.md python 0": _places,
    "docs/how-to/run-over-ssh.md python 0": _connected,
    "docs/how-to/serve.md python 0": _connected,
    "docs/how-to/sessions-across-machines.md python 0": _stored,
    "docs/how-to/sessions-across-machines.md python 1": _stored,
    "docs/how-to/survive-cuts.md python 0": _gateway,
    "docs/how-to/use-codex.md python 0": _codex_session,
    "docs/how-to/warm-sessions.md python 1": _claude,
    "docs/how-to/websocket.md python 0": _connected,
    "docs/how-to/wrap-a-transport.md python 0": _connected,
    "docs/how-to/wrap-a-transport.md python 1": _contract,
    "docs/how-to/wrap-a-transport.md python 2": _contract,
    "docs/how-to/wrap-a-transport.md python 3": _contract,
    "docs/reference/codex-options.md python 0": _codex,
    "docs/tutorial/first-conversation.md python 0": _places,
}
"""The names that the text around a block explains, for each block of Python that is run here."""

IN_A_SHELL = (
    "docs/how-to/record-and-replay.md bash 0",
    "docs/reference/program.md bash 0",
    "docs/reference/program.md bash 1",
    "docs/reference/program.md bash 2",
    "docs/reference/program.md bash 8",
    "docs/how-to/inspect-a-tape.md bash 0",
    "docs/reference/program.md bash 11",
    "examples/README.md bash 0",
)
"""The blocks that a shell runs, in this order, in one folder."""

PARSED = {key: block for key, block in BLOCKS.items() if block.language in {"toml", "json", "yaml"}}


def test_every_block_is_run_or_marked_with_a_reason_and_only_once() -> None:
    tables = [*ELSEWHERE, *NOT_RUN, *GIVEN, *IN_A_SHELL, *PARSED]
    assert sorted(set(BLOCKS) - set(tables)) == [], "run this block in a test, or mark it in NOT_RUN with the reason"
    assert sorted(set(tables) - set(BLOCKS)) == [], "there is no such block"
    assert sorted(key for key in set(tables) if tables.count(key) > 1) == []


def test_every_fence_has_a_language_that_is_known() -> None:
    languages = {block.language for block in ALL if not block.language.startswith("{")}
    assert languages - LANGUAGES - OTHER_FENCES == set()


def test_a_block_is_found_wherever_it_stands() -> None:
    page = "```python\n1\n```\ntext\n\n* a list\n\n  ```python\n  2\n  ```\n\n~~~~bash\nls\n~~~~\n"
    assert [(block.key, block.code) for block in blocks_of("p", page)] == [
        ("p python 0", "1\n"),
        ("p python 1", "2\n"),
        ("p bash 0", "ls\n"),
    ]


@pytest.mark.parametrize("key", ELSEWHERE)
def test_the_test_that_runs_a_block_elsewhere_is_there_and_knows_its_page(key: str) -> None:
    assert Path(BLOCKS[key].page).stem.replace("-", "_") in (PROJECT / "tests" / ELSEWHERE[key]).read_text("utf-8").replace("-", "_")


@pytest.mark.parametrize("key", PARSED)
def test_a_block_of_data_can_be_read(key: str) -> None:
    block = PARSED[key]
    assert tomllib.loads(block.code) if block.language == "toml" else json.loads(block.code)


@pytest.mark.parametrize("key", GIVEN)
async def test_a_block_of_python_runs_as_it_stands_on_the_page(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = BLOCKS[key].code
    tree = ast.parse(f"async def block():\n{textwrap.indent(code, '    ')}")
    waits = any(isinstance(node, ast.Await | ast.AsyncWith | ast.AsyncFor) for node in ast.walk(tree))
    with anyio.fail_after(60):
        async with AsyncExitStack() as stack:
            given = {"ct": ct, **await GIVEN[key](World(stack, monkeypatch, tmp_path))}
            if waits:
                exec(compile(tree, key, "exec"), given)
                await given["block"]()
            else:  # a contract is checked on event loops of its own
                await anyio.to_thread.run_sync(exec, code, given)


def test_the_blocks_for_a_shell_run_one_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(PROJECT / "examples")
    (tmp_path / "bin").mkdir()
    for name, line in (
        ("claude-transport", f'exec {sys.executable} -m claude_transport "$@"'),
        ("git", "echo '+ a line'"),
        ("python", f'exec {sys.executable} "$@"'),
    ):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    with FakeClaude(Scenario.echo()) as fake:
        env = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8", "CLAUDE_CLI_PATH": str(fake.path)}
        if "PYTHONPATH" in os.environ:
            env["PYTHONPATH"] = os.environ["PYTHONPATH"]
        run = partial(subprocess.run, cwd=tmp_path, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False)
        for key in IN_A_SHELL:
            ran = run(["bash", "-ec", _prepared(BLOCKS[key].code, tmp_path)])
            assert ran.returncode == 0, (key, ran.stderr.decode())


def _prepared(code: str, folder: Path) -> str:
    """Make the files that a block for a shell expects, and remove those that it makes. Returns the block."""
    tape = folder / "tape.ndjson"
    if "record -o" in code:
        tape.unlink(missing_ok=True)
    elif tape.exists():
        (folder / "checkout.ndjson").write_bytes(tape.read_bytes())
        (folder / "said_by_the_host.ndjson").write_bytes(b"".join(line + b"\n" for line in Tape.read(tape).lines("in")))
    return code
