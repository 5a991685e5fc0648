"""`FakeClaude`: an executable that speaks the CLI's protocol and plays a scenario, faults included.

The files and the journal are in `fake_program`. Scenarios are in `scenario`, the program itself is in `fake_claude_process`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from claude_transport.errors import ConfigurationError
from claude_transport.protocol.expectation import ExpectationFailed
from claude_transport.testing.fake_program import FakeCall, FakeProgram
from claude_transport.testing.scenario import Scenario
from claude_transport.testing.standing import Standing

PLAYER = Path(__file__).parent / "fake_claude_process" / "__main__.py"


class FakeClaudeCall(FakeCall, frozen=True, kw_only=True):
    """One run of a `FakeClaude`: how it was started, what it has received, and how it ended. `FakeClaude.calls()` returns it.

    * `argv`: the arguments that the host added. `cwd`: its working directory.
    * `env`: the values of the variables in `record_env`. `env_names`: the names of all variables.
    * `stdin`: the received lines (at most 1 MiB of each; undecodable bytes as `\\xNN`).
    * `signals`: the numbers of the signals that it has caught. `grandchildren`: ids of the processes that it has started.
    * `exit_code`: None while the process runs, and after a death by signal. `killed_by`: the signal number of a `DieBySignal` step.
    * `stderr`: the end of what it has written to standard error. `place`: where it stands. `failure`: what the host has done against the
      scenario, or why a step could not be played.
    * `counts`: False for a run that only says its version, and uses up no scenario of a list. `turns_played`: how many of
      `Scenario.replies` it has begun. `is_done`: True when a `Scenario.script` was played to its end.
    """

    @property
    def prompts(self) -> list[Any]:
        """The `content` of every user message that this run has received, in order: a text, or a list of content blocks."""
        return [message["message"]["content"] for message in self.messages if message.get("type") == "user"]

    def option(self, name: str) -> str | None:
        """Return the value of the CLI option `name` (`"--resume"`), spelled `--resume X` or `--resume=X`; the last one counts.

        Returns None when the option is not there, and an empty text when it has no value.
        """
        found = None
        for position, word in enumerate(self.argv):
            if word == name:
                following = self.argv[position + 1 : position + 2]
                found = "".join(value for value in following if not value.startswith("--"))
            elif word.startswith(f"{name}="):
                found = word[len(name) + 1 :]
        return found

    def requests(self, subtype: str) -> list[dict[str, Any]]:
        """Return the `request` object of every control request of this `subtype` that this run has received, in order."""
        bodies = [message.get("request") for message in self.messages if message.get("type") == "control_request"]
        return [body for body in bodies if isinstance(body, dict) and body.get("subtype") == subtype]


class MakeFakeClaude(Protocol):
    """The type of the fixture `fake_claude`: a function that makes `FakeClaude`s, which the test is judged by.

    Without a `scenario` a fake repeats each prompt. The other arguments are those of `FakeClaude`. A fake is strict, unless the test is
    lenient.
    """

    def __call__(
        self,
        scenario: Scenario | Sequence[Scenario] | None = None,
        *,
        record_env: Sequence[str] = (),
        python: str = sys.executable,
        strict: bool = True,
    ) -> FakeClaude: ...


class FakeClaude(FakeProgram):
    """Makes a program that behaves like the CLI and plays `scenario`, to test with instead of `claude`. It needs no network and no key.

    Pass its `command` to a transport, or its `path` as `cli_path`. Every run plays the scenario from the start; `calls()` tells what each
    run has received. With a list of scenarios, the first start plays the first one, the second start the second one, and so on. A start
    past the end of the list ends with exit code 70 and says so on standard error.

    `--version` is a run of its own, too: it is in `calls()`, plays the `startup` of the scenario of the next start, and says its `version`.
    It uses up no scenario of a list.

    Its files are in a private directory, which is deleted by `close()`, at the end of the `with` block, or when the
    interpreter exits. Closing ends no process.

    Args:
        scenario: what every run does, or a list with what each start does.
        record_env: names of environment variables whose values `calls()` shows; of the others it shows only the names.
        python: the Python interpreter that runs the program.
        strict: a run that is wrong writes why to standard error, and ends with exit code 71. Wrong is a prompt that no turn was written
            for. So is a hook, an MCP server or a tool of it that the scenario calls and the host lacks. So is a permission question to a
            host whose flags exclude it, and a control request that the fake does not know. So is an error as the answer to a question for
            which the scenario has no steps. The fixture `fake_claude` sets it.

    Raises:
        ConfigurationError: `scenario` is not a `Scenario`, or not a list of them.
    """

    def __init__(
        self,
        scenario: Scenario | Sequence[Scenario],
        *,
        record_env: Sequence[str] = (),
        python: str = sys.executable,
        strict: bool = False,
    ) -> None:
        repeats = isinstance(scenario, Scenario)
        scenarios = (scenario,) if isinstance(scenario, Scenario) else scenario
        if not isinstance(scenarios, (list, tuple)):
            raise ConfigurationError(f"FakeClaude: {type(scenario).__name__} is not a Scenario", option="scenario")
        if not scenarios:
            raise ConfigurationError("FakeClaude needs a Scenario; the list is empty", option="scenario")
        for one in scenarios:
            if not isinstance(one, Scenario):
                raise ConfigurationError(f"FakeClaude: {type(one).__name__} is not a Scenario", option="scenario")
        self.scenario = scenario
        self._scenarios, self._repeats = tuple(scenarios), repeats
        super().__init__(scenarios, repeats=repeats, name="claude", player=PLAYER, record_env=record_env, python=python, strict=strict)

    def calls(self) -> list[FakeClaudeCall]:
        """Return what every run of the fake has received and done so far, one `FakeClaudeCall` for each run, the first run first.

        Raises `UsageError` after `close()`.
        """
        return self._calls(FakeClaudeCall)

    def leftover(self) -> ExpectationFailed | None:
        """Return the error of a scenario with turns that no run has played, or with a script that none has played to its end; else None.

        Of a list of scenarios, each must have been started. Raises `UsageError` after `close()`.
        """
        starts = [call for call in self.calls() if call.counts]
        if self._repeats:
            return _unplayed(self._scenarios[0], starts)
        for number, scenario in enumerate(self._scenarios, 1):
            if number > len(starts):
                place = f"scenario {number} of {len(self._scenarios)}"
                return ExpectationFailed.at(place, expected="one more start, which plays it", actual="nothing more")
            if (unplayed := _unplayed(scenario, starts[number - 1 : number])) is not None:
                return unplayed
        return None

    def standings(self) -> list[Standing]:
        """Return where this fake stands, for the report of a test. Raises `UsageError` after `close()`."""
        return self.standings_of(self.calls(), leftover=self.leftover())


def _unplayed(scenario: Scenario, runs: Sequence[FakeClaudeCall]) -> ExpectationFailed | None:
    """Return the error for what none of these runs of the scenario has played."""
    actual = "nothing more" if runs else "a fake that was never started"
    total, played = len(scenario.replies), max((run.turns_played for run in runs), default=0)
    if played < total:
        return ExpectationFailed.at(f"turn {played + 1} of {total}", expected="a prompt that it answers", actual=actual)
    if not scenario.script or any(run.is_done for run in runs):
        return None
    place = runs[-1].place.step if runs else f"step 1 of {len(scenario.script)}"
    wanted = runs[-1].place.waits_for if runs else ""
    return ExpectationFailed.at(place, expected=wanted or "a host that comes so far", actual=actual)
