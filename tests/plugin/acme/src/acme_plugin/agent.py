"""Acme, an agent: its options, its launch, its turns, and one call."""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from acme_plugin.readers import AcmeCounts, AcmeTape
from claude_transport.agents import (
    Agent,
    AgentOptions,
    AskedCall,
    Attempt,
    CallPlan,
    Heard,
    MetricsReader,
    Scene,
    StartContext,
    TapeReader,
    TurnTracker,
)
from claude_transport.errors import ConfigurationError
from claude_transport.launch import Launch, PlannedLaunch
from claude_transport.messages import Message, decode_message, synthetic_turn


class AcmeOptions(AgentOptions, frozen=True, kw_only=True):
    """How to run Acme. Every options class needs `cwd` and `env`."""

    agent_name: ClassVar[str] = "acme"
    model: str | None = None
    cwd: str | None = None
    env: Mapping[str, str] = {}


class AcmeTurns(TurnTracker):
    """A turn lasts from `ask` to `done`."""

    def __init__(self) -> None:
        self._running = 0

    @property
    def busy(self) -> bool:
        return self._running > 0

    def said(self, lines: Sequence[bytes]) -> None:
        self._running += sum(b'"ask"' in line for line in lines)

    def heard(self, block: Any, *, exactly: bool = False) -> None:
        self._running -= min(bytes(block).count(b'"done"'), self._running)

    def rest(self) -> None:
        self._running = 0


class Acme(Agent):
    name: ClassVar[str] = "acme"
    title: ClassVar[str] = "Acme"
    program: ClassVar[str] = "acme"
    options_type: ClassVar[type[AgentOptions]] = AcmeOptions
    honours: ClassVar[frozenset[str]] = frozenset({"model"})

    def speaks(self, line: bytes) -> bool:
        return line.lstrip().startswith(b'{"acme"')

    def follow_turns(self) -> TurnTracker:
        return AcmeTurns()

    def metrics_reader(self) -> MetricsReader:
        return AcmeCounts()

    def tape_reader(self, scene: Scene) -> TapeReader:
        return AcmeTape(scene)

    def check(self, options: AcmeOptions, *, command: Sequence[Any] | None, launcher: object) -> None:
        if options.model == "":
            raise ConfigurationError("model is empty", option="model")

    def plan(self, options: AcmeOptions, context: StartContext) -> PlannedLaunch:
        program = (sys.executable, str(Path(__file__).with_name("program.py")), *([options.model] if options.model else []))
        launch = Launch(argv=tuple(context.command or program), env={**context.inherited, **options.env}, cwd=options.cwd)
        return PlannedLaunch(launch=launch)

    def plan_call(self, call: AskedCall, env: Mapping[str, str]) -> CallPlan:
        plan = super().plan_call(call, env)
        model = call.options.model
        return plan if model is None else CallPlan(options=msgspec.structs.replace(plan.options, model=model))

    async def converse(
        self, transport: Any, prompts: Sequence[str], hear: Callable[[Heard], Awaitable[object]], *, close_timeout: float | None
    ) -> None:
        async with transport:
            lines = (line async for batch in transport.read_lines() for line in batch)
            for prompt in prompts:
                await transport.write(json.dumps({"acme": "ask", "text": prompt}).encode() + b"\n")
                async for line in lines:
                    message = json.loads(line)
                    is_over = message["acme"] == "done"
                    await hear(Heard(line=line, text=message.get("text", ""), ends_turn=is_over))
                    if is_over:
                        break

    def attempt(self, call: AskedCall, plan: CallPlan) -> Attempt:
        return OneCall(call, plan.options)


class MuteOptions(AcmeOptions, frozen=True, kw_only=True):
    agent_name: ClassVar[str] = "mute"


class Mute(Acme):
    """It has no conversations."""

    name: ClassVar[str] = "mute"
    title: ClassVar[str] = "Mute"
    options_type: ClassVar[type[AgentOptions]] = MuteOptions
    converse = Agent.converse


class BareOptions(AgentOptions, frozen=True, kw_only=True):
    agent_name: ClassVar[str] = "bare"


class Bare(Acme):
    """It cannot be used: its options lack what every process has."""

    name: ClassVar[str] = "bare"
    options_type: ClassVar[type[AgentOptions]] = BareOptions


class OneCall(Attempt):
    def __init__(self, call: AskedCall, options: AcmeOptions) -> None:
        self._call = call
        self._options = options

    async def run(self, hear: Callable[[Message], object]) -> None:
        transport: Any = self._call.transport_with(self._options)
        try:
            async with transport:
                self.dispatched = True
                await transport.write(json.dumps({"acme": "ask", "text": self._call.prompt}).encode() + b"\n")
                async for lines in transport.read_lines():
                    for line in lines:
                        message = json.loads(line)
                        if message["acme"] == "said":
                            for each in synthetic_turn(str(uuid.uuid4()), message["text"]):
                                hear(decode_message(each))
                        elif message["acme"] == "done":
                            return
        finally:
            self.stderr_tail = transport.info.stderr_tail
            self.exit_code = os.EX_OK if transport.info.exit_code is None else transport.info.exit_code
