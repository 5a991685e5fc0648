"""The tests of langchain-claude-agent-sdk in our words: a chat model over the official SDK and a fake `claude`."""

from __future__ import annotations

import asyncio

import pytest
from claude_agent_sdk import CLINotFoundError, HookMatcher, create_sdk_mcp_server
from claude_agent_sdk import tool as sdk_tool
from langchain_claude_agent_sdk import ChatClaudeAgent
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool
from pydantic import BaseModel

from claude_transport.testing import Scenario, steps

SESSION = "11111111-1111-4111-8111-111111111111"
HELLO = [HumanMessage("hello")]


def chat(fake, *, extra_options=None, **fields):
    return ChatClaudeAgent(extra_options={"cli_path": fake.path, **(extra_options or {})}, **fields)


def run_of(fake):
    (run,) = [call for call in fake.calls() if call.counts]
    return run


@pytest.mark.parametrize("awaited", [False, True])
def test_an_answer_has_its_text_its_usage_and_its_session(fake_claude, awaited):
    fake = fake_claude(Scenario.turns([[steps.ToolUse("Bash", {"command": "ls"}, ask=False), steps.Text("hi there")]]))
    answer = asyncio.run(chat(fake).ainvoke(HELLO)) if awaited else chat(fake).invoke(HELLO)
    (call,) = answer.tool_calls
    assert (answer.content, call["name"], call["args"]) == ("hi there", "Bash", {"command": "ls"})
    assert answer.usage_metadata == {"input_tokens": 12, "output_tokens": 7, "total_tokens": 19}
    told = answer.response_metadata
    assert (told["model_name"], told["stop_reason"], told["num_turns"]) == ("claude-opus-5-5", "end_turn", 2)
    assert (told["total_cost_usd"], len(told["session_id"])) == (pytest.approx(0.000188), 36)


FIRST = [HumanMessage("first"), AIMessage("1")]
OF_A_SESSION = [HumanMessage("first"), AIMessage("1", response_metadata={"session_id": SESSION})]


@pytest.mark.parametrize(
    ("fields", "before", "options", "prompt"),
    [
        ({}, [SystemMessage("be terse")], {"--append-system-prompt": "be terse", "--system-prompt": None}, "hello"),
        (
            {"append_system_prompt": False},
            [SystemMessage("be terse")],
            {"--append-system-prompt": None, "--system-prompt": "be terse"},
            "hello",
        ),
        ({"model": "claude-haiku-4-5", "max_turns": 4}, [], {"--model": "claude-haiku-4-5", "--max-turns": "4"}, "hello"),
        ({"model_name": "claude-haiku-4-5"}, [], {"--model": "claude-haiku-4-5", "--max-turns": None}, "hello"),
        ({"extra_options": {"permission_mode": "acceptEdits"}}, [], {"--permission-mode": "acceptEdits"}, "hello"),
        ({}, OF_A_SESSION, {"--resume": SESSION}, "hello"),
        ({}, FIRST, {"--resume": None}, "User: first\nAssistant: 1\n\nUser: hello"),
    ],
)
def test_fields_and_messages_become_options_and_a_prompt(fake_claude, tmp_path, fields, before, options, prompt):
    fake = fake_claude(Scenario.turns(["ok"]))
    chat(fake, cwd=str(tmp_path), **fields).invoke([*before, *HELLO])
    run = run_of(fake)
    assert ({name: run.option(name) for name in options}, run.prompts, run.cwd) == (options, [prompt], str(tmp_path))


@tool
def greet(name: str) -> str:
    """Greets a person."""
    return f"hello {name}"


def double(x: int) -> dict[str, int]:
    """Doubles a number."""
    return {"result": x * 2}


@tool
def boom(x: int) -> int:
    """Fails."""
    raise ValueError(f"boom-{x}")


class Search(BaseModel):
    """Describes a search."""

    q: str
    limit: int = 10


LOOKUP = {"name": "lookup", "description": "Looks up.", "parameters": {"type": "object", "properties": {"key": {"type": "string"}}}}


@pytest.mark.parametrize(
    ("bound", "name", "given", "said"),
    [
        (greet, "greet", {"name": "Ada"}, "hello Ada"),
        (double, "double", {"x": 4}, '{"result": 8}'),
        (boom, "boom", {"x": 1}, "boom-1"),
        (Search, "Search", {"q": "a", "limit": 5}, '{"q": "a", "limit": 5}'),
        ({"type": "function", "function": LOOKUP}, "lookup", {"key": "k"}, '{"key": "k"}'),
        (LOOKUP, "lookup", {"key": "k"}, '{"key": "k"}'),
    ],
)
def test_bound_tools_run_beside_those_of_a_server_of_the_user(fake_claude, bound, name, given, said):
    heard = []

    async def hear(told, *_):
        heard.append((told["tool_name"], told.get("error") or told["tool_response"]))
        return {}

    @sdk_tool("ping", "Answers", {})
    async def ping(_given):
        return {"content": [{"type": "text", "text": "pong"}]}

    calls = [steps.ToolUse(f"mcp__langchain-tools__{name}", given, is_error=name == "boom"), steps.ToolUse("mcp__own__ping", ask=False)]
    fake = fake_claude(Scenario.turns([calls]))
    hooks = {event: [HookMatcher(hooks=[hear])] for event in ("PostToolUse", "PostToolUseFailure")}
    model = chat(fake, extra_options={"hooks": hooks, "mcp_servers": {"own": create_sdk_mcp_server("own", tools=[ping])}})
    answer = model.bind_tools(["Read", bound]).invoke(HELLO)
    assert [name for name, _ in heard] == [call["name"] for call in answer.tool_calls] == [call.name for call in calls]
    assert [said in str(heard[0][1]), "pong" in str(heard[1][1])] == [True, True]
    assert run_of(fake).option("--allowedTools") == f"Read,mcp__langchain-tools__{name}"


@pytest.mark.parametrize(("bound", "allowed"), [(None, "Bash"), (["Read", "WebSearch"], "Read,WebSearch"), ([], None)])
def test_what_is_bound_wins_over_what_the_model_allows(fake_claude, bound, allowed):
    fake = fake_claude(Scenario.turns(["done"]))
    model = chat(fake, extra_options={"allowed_tools": ["Bash"]})
    (model if bound is None else model.bind_tools(bound)).invoke(HELLO)
    assert run_of(fake).option("--allowedTools") == allowed


async def test_a_stream_has_a_chunk_for_each_block_and_adds_up_to_the_answer(fake_claude):
    thought = {"type": "thinking", "thinking": "hmm", "signature": "sig-1"}
    call = steps.ToolUse("Read", {"path": "/x"}, output="x", ask=False)
    fake = fake_claude(Scenario.turns([[steps.Assistant([thought]), steps.Text("let me look "), call, steps.Text("done")]]))
    chunks = [chunk async for chunk in chat(fake).astream(HELLO) if chunk.chunk_position is None]
    assert [(chunk.content, [(part["name"], part["args"], part["index"]) for part in chunk.tool_call_chunks]) for chunk in chunks] == [
        ("", []),
        ("let me look ", []),
        ("", [("Read", '{"path": "/x"}', 2)]),
        ("done", []),
        ("", []),
    ]
    assert [chunk.usage_metadata is None for chunk in chunks] == [True, True, True, True, False]
    whole, invoked = sum(chunks[1:], chunks[0]), await chat(fake).ainvoke(HELLO)
    assert (whole.content, whole.usage_metadata) == (invoked.content, invoked.usage_metadata)
    assert whole.response_metadata["thinking"] == invoked.response_metadata["thinking"] == [{"thinking": "hmm", "signature": "sig-1"}]
    # The CLI sends each block in a message of its own, and the package names the model in each: the names are joined. Their fake hides it.
    assert whole.response_metadata["model_name"] == "claude-opus-5-5" * 4


class Plan(BaseModel):
    topic: str
    steps: list[str] = []


@pytest.mark.parametrize(
    ("schema", "said", "parsed"),
    [
        (Plan, '{"topic": "X", "steps": ["one"]}', Plan(topic="X", steps=["one"])),
        (Plan, '```json\n{"topic": "X"}\n```', Plan(topic="X")),
        (LOOKUP, '{"key": "k"}', {"key": "k"}),
        (Plan, "Sorry, some prose.", None),
    ],
)
def test_a_structured_answer_is_parsed_and_its_schema_is_in_the_system_prompt(fake_claude, schema, said, parsed):
    fake = fake_claude(Scenario.turns([said]))
    structured = chat(fake).with_structured_output(schema, include_raw=True)
    answer = structured.invoke([SystemMessage("Take great care."), *HELLO])
    assert (answer["parsed"], answer["parsing_error"] is None, answer["raw"].content) == (parsed, parsed is not None, said)
    run = run_of(fake)
    assert (run.option("--allowedTools"), run.option("--mcp-config")) == (None, None)
    asked = run.option("--append-system-prompt")
    field = "topic" if schema is Plan else "key"
    assert (asked.startswith("Take great care."), f'"{field}"' in asked) == (True, True)


@pytest.mark.parametrize(
    ("startup", "error"),
    [
        ([], None),
        ([steps.Stderr("missing libnode.so"), steps.Exit(127)], r"exited with status 127.*missing libnode\.so"),
        ([steps.Exit(1)], "<empty stderr>"),
    ],
)
def test_the_cli_is_asked_for_its_version_when_this_is_wished(fake_claude, monkeypatch, startup, error):
    fake = fake_claude(Scenario.echo(startup=startup))
    monkeypatch.setenv("PATH", str(fake.path.parent))
    ChatClaudeAgent()
    assert fake.calls() == []
    if error is None:
        ChatClaudeAgent(validate_cli_on_init=True)
    else:
        with pytest.raises(RuntimeError, match=error):
            ChatClaudeAgent(validate_cli_on_init=True)
    assert [call.argv for call in fake.calls()] == [["--version"]]


def test_a_cli_that_is_not_there_is_named_with_its_remedy(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CLINotFoundError, match="npm install -g"):
        ChatClaudeAgent(validate_cli_on_init=True)
