"""What a test author may write in a scenario: shorter spellings, turns that end, and errors that name the wrong field."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anyio
import msgspec
import pytest

import claude_transport as ct
from claude_transport import testing
from claude_transport.codex import CodexOptions, CodexSession
from claude_transport.codex.testing import scenario as scenario_of_codex
from claude_transport.testing import (
    CodexRule,
    CodexScenario,
    FakeClaude,
    FakeCodex,
    Rule,
    Scenario,
    ScriptedTurn,
    assistant,
    replies,
    result,
    steps,
)
from claude_transport.testing.fake_claude_process.speech import PLAIN_RESULT

PATIENCE = 20.0  # seconds; a turn that does not end fails its test instead of hanging it
LINE = json.dumps({"type": "system", "subtype": "local_command_output", "content": "raw"}).encode()


async def messages(scenario: Scenario, *prompts: str) -> list[list[Any]]:
    """Return the messages of each turn."""
    turns: list[list[Any]] = []
    with FakeClaude(scenario) as fake, anyio.fail_after(PATIENCE):
        async with ct.Query(ct.SubprocessTransport(ct.ClaudeOptions(cli_path=fake.path))) as query:
            for prompt in prompts:
                turn = await query.send(prompt)
                turns.append([message async for message in turn])
    return turns


def results(turn: list[Any]) -> list[tuple[Any, Any, Any]]:
    return [(each.subtype, each.is_error, each.result) for each in turn if isinstance(each, ct.ResultMessage)]


ENDING: list[tuple[Any, str]] = [
    ((steps.Text("Hi."),), "Hi."),
    ((), ""),
    ((steps.ToolUse("Bash", {"command": "ls"}, output="a", ask=False),), ""),
    ((assistant("I say it."),), ""),
    ((steps.EmitRaw(b'{"type":"resu'), steps.EmitRaw(b'lt"\n'), steps.Noise('"result"')), ""),
]


@pytest.mark.parametrize(("deeds", "text"), ENDING, ids=["text", "nothing", "tool", "message", "half a raw result"])
async def test_a_turn_without_a_result_ends_with_one(deeds: Any, text: str) -> None:
    first, second = await messages(Scenario.turns([deeds, "next"]), "one", "two")
    assert results(first) == [("success", False, text)]
    assert results(second) == [("success", False, "next")]


ENDED: list[tuple[Any, str]] = [
    ((steps.Text("Hi."), steps.Result("Bye.")), "Bye."),
    ((steps.Emit(result("Done.")),), "Done."),
    ((json.dumps(result("Raw.")).encode(),), "Raw."),
    ((steps.EmitRaw(json.dumps(result("Cut."))[:50]), steps.EmitRaw(json.dumps(result("Cut."))[50:] + "\n")), "Cut."),
    ((steps.EmitRaw(json.dumps(result("Open."))), steps.EmitRaw("\n")), "Open."),
    ((steps.Noise(json.dumps(result("Noise."))),), "Noise."),
    ((steps.Request.can_use_tool("Bash", on_error=[steps.Result("Refused.")]),), "Refused."),
]


@pytest.mark.parametrize(("deeds", "text"), ENDED, ids=["step", "message", "raw line", "raw pieces", "newline", "noise", "branch"])
async def test_a_turn_that_sent_a_result_gets_no_second_one(deeds: Any, text: str) -> None:
    prompt = {"type": "user", "message": {"role": "user", "content": "go"}}
    with FakeClaude(Scenario.turns([deeds])) as fake, anyio.fail_after(PATIENCE):
        done = await anyio.run_process(fake.command, input=json.dumps(prompt).encode() + b"\n")
    frames = [json.loads(line) for line in done.stdout.splitlines()]
    assert [frame["result"] for frame in frames if frame["type"] == "result"] == [text]


async def test_a_turn_with_result_false_never_ends() -> None:
    turn = ScriptedTurn([steps.Text("and then")], result=False)
    with FakeClaude(Scenario.turns([turn], exit_code=0)) as fake, anyio.fail_after(PATIENCE):
        async with ct.Query(ct.SubprocessTransport(ct.ClaudeOptions(cli_path=fake.path))) as query:
            sent = await query.send("go")
            await query.end_input()
            with pytest.raises(ct.MissingResult) as caught:
                await sent.result()
    assert caught.value.code == "result.missing"


async def test_a_turn_of_the_fake_codex_ends_by_itself() -> None:
    with FakeCodex(CodexScenario.turns([[scenario_of_codex.Say("Hi.")], "next"])) as fake, anyio.fail_after(PATIENCE):
        async with CodexSession(ct.SubprocessTransport(CodexOptions(codex_path=fake.path))) as session:
            texts = [(await (await session.send(prompt)).result()).text for prompt in ("one", "two")]
    assert texts == ["Hi.", "next"]


def test_the_result_that_ends_a_turn_is_the_step_without_fields() -> None:
    assert msgspec.json.decode(msgspec.json.encode(steps.Result())) == PLAIN_RESULT


NO_TURN = "is not a ScriptedTurn, a list of steps, or a text"
any_: Any = testing  # type checkers refuse these, too
any_codex: Any = scenario_of_codex
WRONG: list[tuple[Callable[[], object], str, str]] = [
    (lambda: any_.steps.Text("a", chunk=["a"]), "chunk", "Text has no field 'chunk'; did you mean 'chunks'?"),
    (lambda: any_.steps.Exit(exit_code=3), "exit_code", "Exit has no field 'exit_code'; did you mean 'code'?"),
    (lambda: any_.steps.Hang(3), "Hang", "Hang takes 0 values, got 1"),
    (lambda: any_.steps.Noise(line="x"), "line", "Noise has no field 'line'; its fields are: text"),
    (
        lambda: any_.steps.ToolUse("Bash", {}, "a"),
        "output",
        "ToolUse takes only name, input without a name; name the others: output=, is_error=, ask=, description=, steps=",
    ),
    (
        lambda: any_.steps.ToolUse("Bash", content="a"),
        "content",
        "ToolUse has no field 'content'; its fields are: name, input, output, is_error, ask, description, steps",
    ),
    (lambda: any_.steps.ToolUse("Bash", {}, input={}), "input", "ToolUse.input is given twice, without a name and with it"),
    (any_.steps.Text, "text", "Text needs 'text'"),
    (lambda: any_.steps.Text(5), "text", "Text.text: Expected `str`, got `int`"),
    (lambda: any_.steps.Text("a", chunks=5), "chunks", "Text.chunks: Expected `array | null`, got `int`"),
    (lambda: any_.steps.Delay("1"), "seconds", "Delay.seconds: Expected `float`, got `str`"),
    (lambda: any_.steps.Delay(float("inf")), "seconds", "Delay.seconds must be a number that is not negative, got inf"),
    (lambda: any_.steps.Emit({"a": object()}), "message", "Emit.message: Encoding objects of type object is unsupported"),
    (lambda: any_.steps.Request("can_use_tool"), "request", "Request.request: Expected `object`, got `str`"),
    (lambda: any_.steps.Request.can_use_tool("Bash", on_deni=[]), "on_deni", "Request has no field 'on_deni'; did you mean 'on_deny'?"),
    (lambda: any_.steps.OnSignal("SIGTERM", steps=[5]), "steps", "OnSignal.steps[0]: Expected `object`, got `int`"),
    (lambda: any_.ScriptedTurn([steps.Text("a"), "b"]), "steps", "ScriptedTurn.steps[1]: Expected `object`, got `str`"),
    (lambda: any_.Rule("a", "b"), "contains", "Rule takes no value without a name; name each: contains=, turn="),
    (lambda: any_.Rule(contains="a", turn=5), "Rule.turn", "Rule.turn: int " + NO_TURN),
    (lambda: any_.Scenario.text("a", modle="b"), "modle", "Scenario has no field 'modle'; did you mean 'model'?"),
    (lambda: any_.Scenario.text("a", otherwise="b"), "otherwise", "Scenario.text sets 'otherwise' by itself"),
    (lambda: any_.Scenario.turns("abc"), "turns", "Scenario.turns takes a list of turns, not str"),
    (
        lambda: any_.Scenario.turns([steps.Text("a")]),
        "Scenario.turns[0]",
        "Scenario.turns[0]: Text is not a ScriptedTurn, a list of steps, or a text",
    ),
    (
        lambda: any_.Scenario(replies=["a", 5]),
        "Scenario.replies[1]",
        "Scenario.replies[1]: int is not a ScriptedTurn, a list of steps, or a text",
    ),
    (lambda: any_.Scenario(replies=any_.ScriptedTurn()), "replies", "Scenario.replies: Expected `array`, got `object`"),
    (
        lambda: any_.Scenario(answers={"initialize": {"nevr": True}}),
        "answers",
        "Scenario.answers[...]: Object contains unknown field `nevr`",
    ),
    (lambda: any_codex.Say("a", chunk=["a"]), "chunk", "Say has no field 'chunk'; did you mean 'chunks'?"),
    (
        lambda: any_codex.Notify("a", {}, True),
        "bare",
        "Notify takes only method, params without a name; name the others: bare=",
    ),
    (lambda: any_.CodexReply(eror={}), "eror", "CodexReply has no field 'eror'; did you mean 'error'?"),
    (lambda: any_.CodexRule(contains="a", steps=5), "CodexRule.steps", "CodexRule.steps: int is not a list of steps, or a text"),
    (lambda: any_.CodexScenario(replies=[[steps.Text("a")]]), "replies", "CodexScenario.replies[0][0].step: Invalid value 'text'"),
    (lambda: any_.CodexScenario.turns("abc"), "turns", "CodexScenario.turns takes a list of turns, not str"),
    (lambda: any_.CodexScenario.text("a", otherwise=()), "otherwise", "CodexScenario.text sets 'otherwise' by itself"),
    (
        lambda: any_.FakeClaude(any_.Scenario(), record_env="PATH"),
        "record_env",
        "FakeClaude: record_env is a list of names, not a text",
    ),
    (lambda: any_.FakeCodex(record_env="PATH"), "record_env", "FakeCodex: record_env is a list of names, not a text"),
]


@pytest.mark.parametrize(("make", "option", "text"), WRONG, ids=[text for _, _, text in WRONG])
def test_a_field_that_is_wrong_is_refused_by_its_name(make: Callable[[], object], option: str, text: str) -> None:
    with pytest.raises(ct.ConfigurationError) as caught:
        make()
    assert (caught.value.code, caught.value.option, str(caught.value)) == ("config.invalid", option, text)


TURN = ScriptedTurn((steps.Text("a"),))
SAME: list[tuple[object, object]] = [
    (Scenario(replies=["a"]), Scenario(replies=(TURN,))),
    (Scenario.turns(["a", [steps.Text("a")], TURN]), Scenario(replies=(TURN, TURN, TURN))),
    (Scenario(otherwise="a"), Scenario(otherwise=[steps.Text("a")])),
    (Rule(contains="x", turn="a"), Rule(contains="x", turn=TURN)),
    (steps.ToolUse("Bash", {"command": "ls"}), steps.ToolUse("Bash", input={"command": "ls"})),
    (steps.Request.can_use_tool("Bash", {"a": 1}), steps.Request.can_use_tool("Bash", input={"a": 1})),
    (replies.tool_use_block("Bash", {"a": 1}), replies.tool_use_block("Bash", input={"a": 1})),
    (steps.Assistant("a"), steps.Assistant([{"type": "text", "text": "a"}])),
    (steps.EmitRaw("é"), steps.EmitRaw("é".encode())),
    (ScriptedTurn([LINE]), ScriptedTurn([steps.EmitRaw(LINE + b"\n")])),
    (ScriptedTurn([LINE + b"\n"]), ScriptedTurn([steps.EmitRaw(LINE + b"\n")])),
    (Scenario(startup=[LINE], at_eof=[LINE]), Scenario(startup=[steps.EmitRaw(LINE + b"\n")], at_eof=[steps.EmitRaw(LINE + b"\n")])),
    (steps.OnSignal("SIGTERM", steps=[result("a")]), steps.OnSignal("SIGTERM", steps=[*ScriptedTurn([result("a")]).steps])),
    (steps.Result("a"), steps.Result(text="a")),
    (
        CodexScenario(otherwise="a", replies=["b"]),
        CodexScenario(otherwise=(scenario_of_codex.Say("a"),), replies=((scenario_of_codex.Say("b"),),)),
    ),
    (CodexRule(contains="x", steps="a"), CodexRule(contains="x", steps=(scenario_of_codex.Say("a"),))),
    (CodexScenario.turns([[LINE]]), CodexScenario.turns([[steps.EmitRaw(LINE + b"\n")]])),
    (scenario_of_codex.CallTool("add", {"a": 1}), scenario_of_codex.CallTool("add", arguments={"a": 1})),
    (scenario_of_codex.Ask("some/question", {"a": 1}), scenario_of_codex.Ask("some/question", params={"a": 1})),
    (steps.ScriptedTurn, ScriptedTurn),
]


@pytest.mark.parametrize(("short", "long"), SAME)
def test_one_thing_is_spelled_in_the_same_way_everywhere(short: object, long: object) -> None:
    assert msgspec.json.encode(short) == msgspec.json.encode(long) if isinstance(short, msgspec.Struct) else short == long


@pytest.mark.parametrize("fields", [{}, {"subtype": "error_max_turns"}, {"is_error": True}, {"subtype": "error_during_execution"}])
async def test_a_result_step_and_a_result_message_say_the_same(fields: dict[str, Any]) -> None:
    """The turn ends in the same way, whether `steps.Result` or `result()` was written."""
    first, second = await messages(Scenario.turns([[steps.Result("Why.", **fields)], [result("Why.", **fields)]]), "one", "two")
    ends = [
        (each.subtype, each.is_error, each.result, each.errors, each.terminal_reason)
        for each in (*first, *second)
        if isinstance(each, ct.ResultMessage)
    ]
    assert len(ends) == 2
    assert ends[0] == ends[1]
    assert "Why." in (ends[0][2] or "", *(ends[0][3] or ()))


async def test_raw_lines_are_played_as_they_are() -> None:
    strange = b'{"type":"system", "subtype":"local_command_output","content":"caf\xc3\xa9"}'
    (turn,) = await messages(Scenario.turns([[strange, b"not JSON", steps.Text("Hi.")]]), "go")
    assert [bytes(message.raw) for message in turn if getattr(message, "subtype", None) == "local_command_output"] == [strange]
    assert results(turn) == [("success", False, "Hi.")]
