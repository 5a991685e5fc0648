"""The simulated Claude: a real child process in the place of the CLI, through the whole stack; no network, no key, no claude."""

from __future__ import annotations

from claude_transport.testing.fake_claude import FakeClaude
from claude_transport.testing.scenario import Scenario

NOTICE = "simulated: no Claude was asked, the answer is made up on this machine"


def simulated_claude(*, pace: float = 0.03) -> FakeClaude:
    """The program to run as `cli_path`, for as long as the `with` block lasts; `pace` is seconds before each word."""
    return FakeClaude(Scenario.simulated(pace=pace))
