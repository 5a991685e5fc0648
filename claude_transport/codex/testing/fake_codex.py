"""`FakeCodex`: an executable that speaks the protocol of `codex app-server` and plays a scenario, faults included.

The files and the journal are in `fake_program`. Scenarios are in `scenario`, the program itself is in `fake_codex_process`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from claude_transport.codex.testing.scenario import CodexScenario
from claude_transport.errors import ConfigurationError
from claude_transport.testing.fake_program import FakeCall, FakeProgram
from claude_transport.testing.standing import Standing

PLAYER = Path(__file__).parent / "fake_codex_process" / "__main__.py"


class FakeCodexCall(FakeCall, frozen=True, kw_only=True):
    """One run of a `FakeCodex`: how it was started, what it has received, and how it ended. `FakeCodex.calls()` returns it.

    The fields are those of `FakeClaudeCall`.
    """

    @property
    def prompts(self) -> list[str]:
        """The text of each prompt that this run has received, in order, steered ones included."""
        asked = [message for message in self.messages if message.get("method") in ("turn/start", "turn/steer")]
        inputs = [message.get("params", {}).get("input") for message in asked]
        return ["\n".join(part["text"] for part in given or [] if part.get("type") == "text") for given in inputs]

    def requests(self, method: str) -> list[Any]:
        """Return the `params` of every request and notification of this method that this run has received, in order."""
        return [message.get("params") for message in self.messages if message.get("method") == method]

    @property
    def answers(self) -> list[dict[str, Any]]:
        """The host's answers to the requests of this run, in order, each with `result` or `error`."""
        return [message for message in self.messages if "method" not in message]


class MakeFakeCodex(Protocol):
    """The type of the fixture `fake_codex`: a function that makes `FakeCodex`es, which the test is judged by.

    Without a `scenario` a fake repeats each prompt. The other arguments are those of `FakeCodex`.
    """

    def __call__(
        self, scenario: CodexScenario | None = None, *, record_env: Sequence[str] = (), python: str = sys.executable
    ) -> FakeCodex: ...


class FakeCodex(FakeProgram):
    """Makes a program that behaves like `codex app-server` and plays `scenario`, to test with instead of `codex`. It needs no network.

    Pass its `path` as `codex_path`, or its `command` to a transport. Every run plays the scenario from the start; `calls()` tells what each
    run has received. A thread of one run can be resumed in another. Its files are in a private directory, which is deleted by `close()`, at
    the end of the `with` block, or when the interpreter exits. Closing ends no process.

    Args:
        scenario: what every run does; by default it repeats the prompt.
        record_env: names of environment variables whose values `calls()` shows; of the others it shows only the names.
        python: the Python interpreter that runs the program.

    Raises:
        ConfigurationError: `scenario` is not a `CodexScenario`.
    """

    def __init__(self, scenario: CodexScenario | None = None, *, record_env: Sequence[str] = (), python: str = sys.executable) -> None:
        scenario = CodexScenario.echo() if scenario is None else scenario
        if not isinstance(scenario, CodexScenario):
            raise ConfigurationError(f"FakeCodex: {type(scenario).__name__} is not a CodexScenario", option="scenario")
        self.scenario = scenario
        super().__init__([scenario], repeats=True, name="codex", player=PLAYER, record_env=record_env, python=python)

    def calls(self) -> list[FakeCodexCall]:
        """Return what every run of the fake has received and done so far, one `FakeCodexCall` for each run, the first run first.

        Raises `UsageError` after `close()`.
        """
        return self._calls(FakeCodexCall)

    def standings(self) -> list[Standing]:
        """Return where this fake stands, for the report of a test. Raises `UsageError` after `close()`."""
        return self.standings_of(self.calls(), leftover=None)
