"""A transport for a `claude` that you start yourself: the library says what to run, and your code runs it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from subprocess import PIPE

import anyio
import msgspec
from anyio.abc import ByteStream, ByteStreamConnectable, Process

import claude_transport as ct
from claude_transport.testing import FakeClaude, Scenario


class Pipes(ByteStream):
    """The two pipes of a process. Closing them ends it."""

    def __init__(self, process: Process, folder: tempfile.TemporaryDirectory[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process, self.folder, self.stdin, self.stdout = process, folder, process.stdin, process.stdout

    async def receive(self, max_bytes: int = 65536) -> bytes:
        return await self.stdout.receive(max_bytes)

    async def send(self, item: bytes) -> None:
        await self.stdin.send(item)

    async def send_eof(self) -> None:
        await self.stdin.aclose()

    async def aclose(self) -> None:
        with anyio.CancelScope(shield=True):
            await self.stdin.aclose()
            with anyio.move_on_after(5):
                await self.process.wait()
            await self.process.aclose()
            self.folder.cleanup()


class Starter(ByteStreamConnectable):
    """Starts what the specification of the library says."""

    def __init__(self, options: ct.ClaudeOptions) -> None:
        self.options = options
        self.answers: frozenset[str] = frozenset()

    async def connect(self) -> ByteStream:
        prompt = "stdio" if "can_use_tool" in self.answers else None
        cli = ct.find_cli(self.options.cli_path)
        launch = ct.launch.build_launch(self.options, cli=cli, inherited=os.environ, permission_prompt=prompt)
        folder = tempfile.TemporaryDirectory(prefix="own-process-")  # only its owner may look inside
        paths = [str(Path(folder.name, f"{number}{planned.suffix}")) for number, planned in enumerate(launch.files)]
        for path, planned in zip(paths, launch.files, strict=True):
            Path(path).write_bytes(planned.content)
        launch = launch.with_paths(files=paths)
        process = await anyio.open_process(launch.argv, stdin=PIPE, stdout=PIPE, stderr=None, cwd=launch.cwd, env=launch.env)
        return Pipes(process, folder)


class OwnProcess(ct.StreamTransport):
    """Takes the options that `SubprocessTransport` takes."""

    def __init__(self, options: ct.ClaudeOptions) -> None:
        self.starter = Starter(options)
        super().__init__(self.starter)

    def attach(self, client: ct.transports.Client) -> ct.transports.SessionTerms:
        self.starter.answers = client.answers
        terms = ct.transports.session_terms(self.starter.options)
        return msgspec.structs.replace(terms, on_failure=super().attach(client).on_failure)


async def main() -> None:
    with FakeClaude(Scenario.turns(["Hello!"])) as fake:
        options = ct.ClaudeOptions(cli_path=fake.path, model="haiku", system_prompt="Be short.", allowed_tools=["Bash(ls *)"])
        async with ct.Query(OwnProcess(options)) as query:
            print("said:", (await (await query.send("Hi")).result()).result)
        (call,) = fake.calls()
        print("started with:", *(argument for argument in call.argv if argument.startswith(("--model", "--allowed"))))


if __name__ == "__main__":
    anyio.run(main)
