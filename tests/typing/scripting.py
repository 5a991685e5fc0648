"""What type checkers know of scripted fakes: read by mypy and pyright, run by nobody.

Lists are often in a variable of their own. Then a type checker decides what they hold before it sees what takes them.
"""

from __future__ import annotations

from typing import assert_type

import claude_transport as ct
from claude_transport.codex.testing import scenario as codex_steps
from claude_transport.testing import Answer, CodexScenario, FakeClaude, Rule, Scenario, ScriptedTurn, assistant, result, steps

texts: list[steps.Text] = [steps.Text("a")]
mixed = [steps.Text("a"), steps.Stderr("b"), steps.Hang()]
messages = [assistant("a"), result("b")]
raw: list[bytes] = [b"{}"]
words: list[str] = ["a", "b"]
given: dict[str, str] = {"command": "ls"}
scripted: list[ScriptedTurn] = [ScriptedTurn(texts), ScriptedTurn(mixed), ScriptedTurn(messages)]
of_one_kind: list[list[steps.Text]] = [texts]
annotated: list[list[steps.Step] | str] = [[steps.Text("a"), steps.ToolUse("Bash", given)], "b"]
rules = [Rule(contains="x", turn=texts), Rule(contains="y", turn=mixed), Rule(contains="z", turn="a")]
answers = {"initialize": Answer(before=texts, after=mixed, response=given)}
calls = [steps.ToolUse("Agent", given, steps=mixed), steps.Request.can_use_tool("Bash", given, on_success=texts, on_deny=mixed)]

for turns in (Scenario.turns(of_one_kind), Scenario.turns([texts, mixed, messages, raw, calls]), Scenario.turns(annotated)):
    assert_type(turns, Scenario)
Scenario.turns(words)
Scenario.turns(scripted)
Scenario(replies=of_one_kind, otherwise=mixed, startup=mixed, at_eof=texts, rules=rules, answers=answers)
Scenario(replies=scripted, script=mixed)
Scenario.crash(after=mixed)
steps.OnSignal("SIGTERM", steps=mixed)
scenarios = [Scenario.text("a", chunks=words), Scenario.crash(after=texts)]
FakeClaude(scenarios)
ct.MockTransport(messages)
ct.MockTransport(raw)

said: list[codex_steps.Say] = [codex_steps.Say("a")]
done = [codex_steps.Say("a"), codex_steps.RunCommand("ls"), steps.Hang()]
CodexScenario.turns([said, done])
CodexScenario(replies=[said], otherwise=done, startup=done)

Scenario.turns(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Scenario.turns([5])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
Scenario.turns([["a"]])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
