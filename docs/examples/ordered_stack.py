"""The recommended order of wrappers, made again after the process has died: nothing is lost, and nothing counts twice."""

from __future__ import annotations

import tempfile
from pathlib import Path

import anyio

import claude_transport as ct
from claude_transport import wrappers
from claude_transport.testing import FakeClaude, Scenario, steps
from claude_transport.transports import options_to_resume


class NoShouting(ct.TransportWrapper):
    """A policy of the program: it changes what is sent."""

    async def write(self, data: str | bytes) -> None:
        text = data if isinstance(data, str) else data.decode()
        await super().write(text.replace("!!!", "."))


async def main() -> None:
    registry = wrappers.MetricsRegistry()
    metrics = wrappers.Metrics()
    state = wrappers.ConnectionState()
    scenario = Scenario.turns(["Hello!", [steps.Exit(code=3)]])
    with FakeClaude(scenario) as claude, tempfile.TemporaryDirectory() as folder:
        tapes = wrappers.TapeSeries(Path(folder, "x.ndjson"))
        options = ct.ClaudeOptions(cli_path=claude.path, session_id="aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee")

        def make() -> ct.Transport:
            transport: ct.Transport = ct.SubprocessTransport(options_to_resume(options))
            transport = ct.RecordingTransport(transport, tapes)
            transport = ct.LoggingTransport(transport)
            transport = ct.MetricsTransport(transport, metrics=metrics, registry=registry)
            transport = ct.TracingTransport(transport)
            transport = NoShouting(transport)
            return ct.StatefulTransport(transport, connection=state)

        transport = ct.RetryingTransport(make(), make_transport=make)
        async with ct.Query(transport) as query:
            await (await query.send("Hi!!!")).result()
            try:
                await (await query.send("Are you there?")).result()
            except ct.ProcessError as error:
                print("exit code:", error.exit_code)
        async with ct.Query(await transport.reconnect()) as query:
            await (await query.send("Hi again")).result()
            print("state:", state.current)

        print("tapes:", [path.name for path in tapes.paths])
        print("on the tape:", b"Hi." in tapes.first.read_bytes(), "Hi!!!" in tapes.first.read_text())
    counted = registry.snapshot()
    print("connects:", counted.connects, "failures:", counted.failures)
    print("prompts:", counted.prompts, "lost:", counted.lost_prompts)

    try:
        ct.MetricsTransport(make(), registry=registry)
    except ct.ConfigurationError as error:
        print(error)


if __name__ == "__main__":
    anyio.run(main)
