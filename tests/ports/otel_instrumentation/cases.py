"""The tests of otel-instrumentation-claude-agent-sdk in our words: the spans, metrics and events of runs that a fake `claude` plays."""

from __future__ import annotations

import claude_agent_sdk
import pytest
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, HookMatcher, ProcessError, create_sdk_mcp_server, tool
from claude_agent_sdk import query as imported_before
from opentelemetry.instrumentation.claude_agent_sdk import ClaudeAgentSdkInstrumentor
from opentelemetry.instrumentation.claude_agent_sdk._constants import SCHEMA_URL
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from claude_transport.testing import Scenario, steps

AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.provider.name": "anthropic"}
SESSION = "11111111-1111-4111-8111-111111111111"


class Report:
    def __init__(self, **options):
        self.spans, self.metrics, self.logs = InMemorySpanExporter(), InMemoryMetricReader(), InMemoryLogRecordExporter()
        self.tracers, loggers = TracerProvider(), LoggerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.spans))
        loggers.add_log_record_processor(SimpleLogRecordProcessor(self.logs))
        providers = {"tracer_provider": self.tracers, "meter_provider": MeterProvider([self.metrics]), "logger_provider": loggers}
        ClaudeAgentSdkInstrumentor().instrument(**providers, **options)

    def named(self, name):
        return [span for span in self.spans.get_finished_spans() if span.name.startswith(name)]

    def told(self):
        return [(span.name, span.status.status_code.name, span.status.description) for span in self.named("execute_tool")]

    def points(self):
        (scope,) = self.metrics.get_metrics_data().resource_metrics[0].scope_metrics
        return {metric.name: [dict(point.attributes) for point in metric.data.data_points] for metric in scope.metrics}

    def events(self):
        return [(log.log_record.event_name, dict(log.log_record.attributes)) for log in self.logs.get_finished_logs()]


@pytest.fixture
def instrumented():
    yield Report
    ClaudeAgentSdkInstrumentor().uninstrument()


async def ask(fake, query=None, **options):
    messages = (query or claude_agent_sdk.query)(prompt="Go", options=ClaudeAgentOptions(cli_path=fake.path, **options))
    return [message async for message in messages][-1]


@pytest.mark.parametrize("query", [None, imported_before], ids=["by its module", "imported before"])
@pytest.mark.parametrize("nested", [True, False])
async def test_a_query_is_one_span(fake_claude, instrumented, query, nested):
    report, parent = instrumented(agent_name="helper"), None
    if nested:
        with report.tracers.get_tracer("test").start_as_current_span("outer") as parent:
            result = await ask(fake_claude(Scenario.turns(["4"])), query)
    else:
        result = await ask(fake_claude(Scenario.turns(["4"])), query)
    (span,) = report.named("invoke_agent")
    assert (span.name, span.kind.name, span.parent) == ("invoke_agent helper", "CLIENT", parent and parent.get_span_context())
    assert span.attributes == AGENT | {
        "gen_ai.agent.name": "helper",
        "gen_ai.response.model": "claude-opus-5-5",
        "gen_ai.response.finish_reasons": ("end_turn",),
        "gen_ai.conversation.id": result.session_id,
        "gen_ai.usage.input_tokens": 12,
        "gen_ai.usage.output_tokens": 7,
    }
    measured = AGENT | {"gen_ai.request.model": "claude-opus-5-5"}
    tokens = [measured | {"gen_ai.token.type": kind} for kind in ("input", "output")]
    assert report.points() == {"gen_ai.client.token.usage": tokens, "gen_ai.client.operation.duration": [measured]}


@tool("greet", "Greets a person", {"name": str})
async def greet(given):
    return {"content": [{"type": "text", "text": f"Hello {given['name']}"}]}


@pytest.mark.parametrize("captures", [True, False])
@pytest.mark.parametrize(
    ("step", "kind", "arguments", "output"),
    [
        (steps.ToolUse("Bash", {"command": "ls"}, output="a.txt"), "function", '{"command": "ls"}', "a.txt"),
        (steps.ToolUse("mcp__desk__greet", {"name": "Ada"}), "extension", '{"name": "Ada"}', "Hello Ada"),
        (steps.ToolUse("Bash", {"command": "exit 7"}, output="exit 7", is_error=True), "function", '{"command": "exit 7"}', None),
    ],
)
async def test_a_tool_call_is_a_span_below_its_run(fake_claude, instrumented, captures, step, kind, arguments, output):
    report = instrumented(capture_content=captures)
    desk = create_sdk_mcp_server("desk", tools=[greet])
    await ask(fake_claude(Scenario.turns([[step]])), allowed_tools=["Bash", "mcp__desk__greet"], mcp_servers={"desk": desk})
    (span,), (agent,) = report.named("execute_tool"), report.named("invoke_agent")
    given = dict(span.attributes)
    content = {name: given.pop(f"gen_ai.tool.call.{name}", None) for name in ("id", "arguments", "result")}
    assert (content["id"].startswith("toolu_"), content["arguments"]) == (True, arguments if captures else None)
    assert (output in content["result"]) if captures and output else content["result"] is None
    about = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": step.name, "gen_ai.tool.type": kind}
    assert given == AGENT | about | ({} if output else {"error.type": "_OTHER"})
    assert report.told() == [(f"execute_tool {step.name}", "UNSET" if output else "ERROR", None if output else "exit 7")]
    assert (span.kind.name, span.parent.span_id) == ("INTERNAL", agent.context.span_id)


async def test_a_hook_of_the_user_comes_first_and_what_it_denies_does_not_run(fake_claude, instrumented):
    report, seen = instrumented(), []

    async def deny(given, *_):
        seen.append((given["tool_name"], len(report.spans.get_finished_spans())))
        return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": "no"}}

    calls = [steps.ToolUse("Bash", {"command": "rm a"}, output="gone"), steps.ToolUse("Read", {"file_path": "a"}, output="text")]
    fake = fake_claude(Scenario.turns([calls]))
    result = await ask(fake, allowed_tools=["Bash", "Read"], hooks={"PreToolUse": [HookMatcher("Bash", hooks=[deny])]})
    assert (seen, [denied["tool_name"] for denied in result.permission_denials]) == ([("Bash", 0)], ["Bash"])
    assert report.told() == [("execute_tool Read", "UNSET", None), ("execute_tool Bash", "ERROR", "Span not properly closed")]


async def test_each_turn_of_a_client_is_a_span_with_its_own_tools(fake_claude, instrumented):
    report = instrumented()
    fake = fake_claude(Scenario.turns([[steps.ToolUse("Read", output="a")], [steps.ToolUse("Bash", output="b")]]))
    async with ClaudeSDKClient(ClaudeAgentOptions(cli_path=fake.path, allowed_tools=["Read", "Bash"])) as client:
        for prompt in ("Hello", "And now?"):
            await client.query(prompt)
            results = [message async for message in client.receive_response()]
    agents, tools = report.named("invoke_agent"), report.named("execute_tool")
    assert [span.attributes["gen_ai.conversation.id"] for span in agents] == [results[-1].session_id] * 2
    assert [(span.name, span.parent.span_id) for span in tools] == [
        ("execute_tool Read", agents[0].context.span_id),
        ("execute_tool Bash", agents[1].context.span_id),
    ]
    assert fake.calls()[0].prompts == ["Hello", "And now?"]


async def test_a_crash_is_an_error_of_its_span_and_the_resumed_run_has_none(fake_claude, instrumented):
    report = instrumented()
    fake = fake_claude([Scenario.crash(exit_code=3, after=[steps.ToolUse("Bash", output="x")]), Scenario.turns(["Here again."])])
    with pytest.raises(ProcessError):
        await ask(fake, allowed_tools=["Bash"])
    assert (await ask(fake, resume=SESSION)).result == "Here again."
    assert [call.option("--resume") for call in fake.calls() if call.counts] == [None, SESSION]
    agents = report.named("invoke_agent")
    assert [(span.status.status_code.name, len(span.events), span.attributes.get("error.type")) for span in agents] == [
        ("ERROR", 1, "ProcessError"),
        ("UNSET", 0, None),
    ]
    assert {span.instrumentation_scope.schema_url for span in agents} == {SCHEMA_URL}
    assert [point.get("error.type") for point in report.points()["gen_ai.client.operation.duration"]] == ["ProcessError", None]
    failed = [attributes for name, attributes in report.events() if name == "gen_ai.client.operation.exception"]
    assert [event["exception.type"] for event in failed] == ["ProcessError"]
    assert "exit code 3" in failed[0]["exception.message"]
