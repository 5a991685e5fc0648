"""The tests of ag-ui-claude-sdk in our words: the events of runs with the real worker, the real SDK, and a fake `claude` below."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import claude_agent_sdk
import pytest
from ag_ui.core import RunAgentInput
from ag_ui_claude_sdk.adapter import ClaudeAgentAdapter
from claude_agent_sdk import PermissionResultAllow, PermissionResultDeny

from claude_transport.testing import Answer, Rule, Scenario, steps

THOUGHT = {"type": "thinking", "thinking": "Let me think.", "signature": "c2ln"}
CONFIRM = {"name": "confirm", "description": "Confirms", "parameters": {"type": "object"}}
TEXT = ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"]
TOOL = ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_ARGS", "TOOL_CALL_END"]
REASONING = ["REASONING_START", "REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT", "REASONING_MESSAGE_END", "REASONING_END"]


def asked(content="hi", *, thread="thread", run="run", **fields):
    messages = [{"id": f"of {run}", "role": "user", "content": content}]
    given = {"messages": messages, "tools": [], "context": [], "state": None, "forwarded_props": {}, **fields}
    return RunAgentInput.model_validate({"thread_id": thread, "run_id": run, **given})


async def events_of(adapter, given, seen=None):
    events = [] if seen is None else seen
    async for event in adapter.run(given):
        if event.type != "CUSTOM":
            events.append(event)
    return events


def kinds(events):
    return [event.type.value for event in events]


@pytest.fixture
async def adapt():
    adapters = []

    def make(fake, *, options=None, **given):
        adapters.append(ClaudeAgentAdapter("test", options={"cli_path": str(fake.path), **(options or {})}, **given))
        return adapters[-1]

    yield make
    for adapter in adapters:
        await adapter.shutdown()


async def test_a_streamed_answer_is_reasoning_and_a_text_and_ends_with_both_in_a_snapshot(fake_claude, adapt):
    fake = fake_claude(Scenario.turns([[steps.Assistant([THOUGHT]), steps.Text("Hello world", chunks=["Hello ", "world"])]]))
    events = await events_of(adapt(fake), asked())
    assert kinds(events) == [
        "RUN_STARTED",
        *REASONING,
        "REASONING_ENCRYPTED_VALUE",
        TEXT[0],
        TEXT[1],
        *TEXT[1:],
        "MESSAGES_SNAPSHOT",
        "RUN_FINISHED",
    ]
    assert [event.delta for event in events if hasattr(event, "delta")] == ["Let me think.", "Hello ", "world"]
    assert [message.content for message in events[-2].messages] == ["hi", "Hello world"]
    assert (events[6].encrypted_value, events[6].entity_id) == ("c2ln", events[1].message_id)


@pytest.mark.parametrize("answer", [PermissionResultAllow(), PermissionResultDeny(message="Not today.")])
async def test_a_tool_call_is_shown_and_its_result_is_that_of_the_permission(fake_claude, adapt, answer):
    async def decide(name, given, _context):
        return answer

    fake = fake_claude(Scenario.turns([[steps.ToolUse("Bash", {"command": "ls"}, output="a.txt"), steps.Text("Done.")]]))
    events = await events_of(adapt(fake, options={"can_use_tool": decide}), asked())
    assert kinds(events) == ["RUN_STARTED", *TOOL, "TOOL_CALL_RESULT", *TEXT, "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    assert (events[1].tool_call_name, "".join(event.delta for event in events[2:4])) == ("Bash", '{"command":"ls"}')
    assert events[5].tool_call_id == events[1].tool_call_id
    assert ("a.txt" if isinstance(answer, PermissionResultAllow) else "Not today.") in events[5].content


async def test_the_tool_for_state_is_called_in_this_process_and_changes_the_state(fake_claude, adapt):
    call = steps.ToolUse("mcp__ag_ui__ag_ui_update_state", {"state_updates": {"count": 7}})
    fake = fake_claude(Scenario.turns([[call]]))
    events = await events_of(adapt(fake), asked(state={"count": 0, "name": "a"}))
    assert [event.snapshot for event in events if event.type == "STATE_SNAPSHOT"] == [{"count": 0, "name": "a"}, {"count": 7, "name": "a"}]
    (run,) = fake.calls()
    assert '"count": 0' in run.option("--system-prompt")
    assert run.option("--allowedTools") == call.name


async def test_two_runs_of_a_thread_share_a_process_one_after_the_other_and_threads_do_not(fake_claude, adapt):
    other = Rule(contains="three", turn="Third.")
    fake = fake_claude(Scenario.turns([[steps.Text("First.", gate="go")], "Second."], rules=[other]))
    adapter, seen = adapt(fake), []
    both = asyncio.gather(events_of(adapter, asked("one", run="1"), seen), events_of(adapter, asked("two", run="2"), seen))
    assert kinds(await events_of(adapter, asked("three", thread="other")))[-1] == "RUN_FINISHED"
    fake.open_gate("go")
    await both
    runs = [(event.type.value, event.run_id) for event in seen if event.type in ("RUN_STARTED", "RUN_FINISHED")]
    assert runs == [(kind, run) for run in ("1", "2") for kind in ("RUN_STARTED", "RUN_FINISHED")]
    assert sorted(call.prompts for call in fake.calls()) == [["one", "two"], ["three"]]


async def test_pictures_and_documents_reach_the_cli(fake_claude, adapt):
    def part(kind, mime_type):
        return {"type": kind, "source": {"type": "data", "value": "aGk=", "mime_type": mime_type}}

    fake = fake_claude(Scenario.turns(["Seen."]))
    await events_of(adapt(fake), asked([{"type": "text", "text": "look"}, part("image", "image/png"), part("document", "application/pdf")]))
    sources = [{"type": "base64", "media_type": kind, "data": "aGk="} for kind in ("image/png", "application/pdf")]
    blocks = [{"type": kind, "source": source} for kind, source in zip(("image", "document"), sources, strict=True)]
    assert fake.calls()[0].prompts == [[{"type": "text", "text": "look"}, *blocks]]


async def test_a_crash_ends_its_run_and_the_next_run_has_another_process(fake_claude, adapt):
    fake = fake_claude([Scenario.crash(exit_code=3, after=[steps.Text("half")]), Scenario.turns(["Here again."])])
    adapter = adapt(fake)
    crashed, after = await events_of(adapter, asked("one")), await events_of(adapter, asked("two"))
    assert (kinds(crashed)[-1], "exit code 3" in crashed[-1].message, "RUN_FINISHED" in kinds(crashed)) == ("RUN_ERROR", True, False)
    assert (kinds(after)[-1], [call.prompts for call in fake.calls()]) == ("RUN_FINISHED", [["one"], ["two"]])


async def test_an_error_of_the_api_ends_its_run_once_and_keeps_the_process(fake_claude, adapt):
    text = "API Error: 400 You have reached your limits."
    failing = [steps.Assistant(text, model="<synthetic>"), steps.Result(text=text, is_error=True, api_error_status=400)]
    fake = fake_claude(Scenario.turns([failing, "Here again."]))
    adapter = adapt(fake)
    failed, after = await events_of(adapter, asked("one")), await events_of(adapter, asked("two"))
    assert (kinds(failed)[-1], failed[-1].message, failed[-1].code) == ("RUN_ERROR", text, "400")
    assert (kinds(after)[-1], [call.prompts for call in fake.calls()]) == ("RUN_FINISHED", [["one", "two"]])


@pytest.mark.parametrize(
    ("options", "fields", "expected"),
    [
        ({"model": "claude-x", "api_key": "sk"}, {}, {"--model": "claude-x", "--setting-sources": ""}),
        ({"setting_sources": ["project"]}, {}, {"--model": None, "--setting-sources": "project"}),
        ({"model": "claude-x"}, {"forwarded_props": {"model": "claude-y", "temperature": 0.5}}, {"--model": "claude-y"}),
        ({"system_prompt": "BASE"}, {}, {"--system-prompt": "BASE", "--allowedTools": None}),
    ],
)
async def test_options_and_forwarded_properties_are_those_of_the_cli(fake_claude, adapt, options, fields, expected):
    fake = fake_claude(Scenario.turns(["ok"]))
    await events_of(adapt(fake, options=options), asked(**fields))
    (run,) = fake.calls()
    assert {name: run.option(name) for name in expected} == expected


async def test_a_tool_of_the_user_interface_ends_the_run_and_is_pending(fake_claude, adapt):
    fake = fake_claude(Scenario.turns([[steps.ToolUse("mcp__ag_ui__confirm", {"what": "it"}), steps.Text("never")]]))
    events = await events_of(adapt(fake), asked(tools=[CONFIRM]))
    (call,) = [event.tool_call_id for event in events if event.type == "TOOL_CALL_START"]
    assert (kinds(events)[-1], events[-1].outcome.pending_tool_call_ids, TEXT[0] in kinds(events)) == ("RUN_FINISHED", [call], False)


class Store:
    binding = None

    async def load(self, _thread):
        return self.binding

    async def save(self, _thread, binding):
        self.binding = binding


@pytest.mark.parametrize("behavior", ["allow", "deny"])
async def test_a_deferred_call_gets_its_decision_in_a_process_that_resumes(fake_claude, adapt, monkeypatch, tmp_path, behavior):
    async def profile(_name):
        return {"cwd": str(tmp_path)}

    monkeypatch.setattr(claude_agent_sdk, "get_session_info", lambda *_, **__: SimpleNamespace())  # a fake writes no transcript
    rest = {"session_binding_store": Store(), "resolve_profile": profile, "defer_tools": ("Bash",)}
    bash = steps.ToolUse("Bash", {"command": "deploy"})
    waiting = (await events_of(adapt(fake_claude(Scenario.turns([[bash]])), **rest), asked()))[-1].outcome.interrupts[0]
    session, about = rest["session_binding_store"].binding.session_id, {"tool_name": "Bash", "tool_input": dict(bash.input)}
    question = {"subtype": "hook_callback", "callback_id": "{{hook.PreToolUse}}", "tool_use_id": waiting.id}
    question["input"] = {"hook_event_name": "PreToolUse", "tool_use_id": waiting.id, **about}
    said = [steps.Text("{{answer.response.hookSpecificOutput.permissionDecision}}"), steps.Result()]
    resumed = fake_claude(
        Scenario(answers={"initialize": Answer(after=[steps.Request(question, on_success=said)])}, replies=["Then this."])
    )
    calls = [{"id": waiting.id, "type": "function", "function": {"name": "Bash", "arguments": "{}"}}]
    messages = [{"id": "1", "role": "assistant", "toolCalls": calls}, {"id": "2", "role": "user", "content": "And more"}]
    decision = [{"interruptId": waiting.id, "status": "resolved", "payload": {"behavior": behavior}}]
    events = await events_of(adapt(resumed, **rest), asked(run="2", messages=messages, resume=decision))
    (run,) = resumed.calls()
    assert (run.option("--resume"), run.cwd, run.prompts) == (session, str(tmp_path), ["And more"])
    texts = "".join(event.delta for event in events if event.type == TEXT[1])
    assert (kinds(events)[-1], texts, rest["session_binding_store"].binding.pending) == ("RUN_FINISHED", f"{behavior}Then this.", None)
