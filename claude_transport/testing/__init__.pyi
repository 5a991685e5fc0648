# Written by docs/generate_names.py from the table in __init__.py: do not edit.

from claude_transport.testing import replies as replies
from claude_transport.testing import steps as steps
from claude_transport.codex.testing.fake_codex import FakeCodex as FakeCodex
from claude_transport.codex.testing.fake_codex import FakeCodexCall as FakeCodexCall
from claude_transport.codex.testing.fake_codex import MakeFakeCodex as MakeFakeCodex
from claude_transport.codex.testing.fake_responses_api import FakeResponsesAPI as FakeResponsesAPI
from claude_transport.codex.testing.scenario import CodexReply as CodexReply
from claude_transport.codex.testing.scenario import CodexRule as CodexRule
from claude_transport.codex.testing.scenario import CodexScenario as CodexScenario
from claude_transport.protocol.expectation import ExpectationFailed as ExpectationFailed
from claude_transport.protocol.redaction import Redactor as Redactor
from claude_transport.protocol.tape import Tape as Tape
from claude_transport.protocol.tape import TapeHeader as TapeHeader
from claude_transport.protocol.tape import TapeRecord as TapeRecord
from claude_transport.testing.api_server import RecordedRequest as RecordedRequest
from claude_transport.testing.conformance.clause import Clause as Clause
from claude_transport.testing.conformance.clauses import CLAUSES as CLAUSES
from claude_transport.testing.conformance.run import Report as Report
from claude_transport.testing.conformance.run import run_conformance as run_conformance
from claude_transport.testing.fake_claude import FakeClaude as FakeClaude
from claude_transport.testing.fake_claude import FakeClaudeCall as FakeClaudeCall
from claude_transport.testing.fake_claude import MakeFakeClaude as MakeFakeClaude
from claude_transport.testing.fake_messages_api import FakeMessagesAPI as FakeMessagesAPI
from claude_transport.testing.fake_program import FakePlace as FakePlace
from claude_transport.testing.mock_claude import MockClaude as MockClaude
from claude_transport.testing.scenario import Answer as Answer
from claude_transport.testing.scenario import Rule as Rule
from claude_transport.testing.scenario import Scenario as Scenario
from claude_transport.testing.standing import Standing as Standing
from claude_transport.testing.steps import ScriptedTurn as ScriptedTurn
from claude_transport.testing.store_conformance import STORE_CLAUSES as STORE_CLAUSES
from claude_transport.testing.store_conformance import StoreClause as StoreClause
from claude_transport.testing.store_conformance import run_store_conformance as run_store_conformance
from claude_transport.testing.tape_shelf import TapeMissing as TapeMissing
from claude_transport.testing.tape_shelf import TapeShelf as TapeShelf
from claude_transport.testing.wire import assistant as assistant
from claude_transport.testing.wire import can_use_tool as can_use_tool
from claude_transport.testing.wire import compaction as compaction
from claude_transport.testing.wire import hook_callback as hook_callback
from claude_transport.testing.wire import rate_limit as rate_limit
from claude_transport.testing.wire import result as result
from claude_transport.testing.wire import stream_event as stream_event
from claude_transport.testing.wire import streamed as streamed
from claude_transport.testing.wire import subagent as subagent
from claude_transport.testing.wire import thinking as thinking
from claude_transport.testing.wire import tool_result as tool_result
from claude_transport.testing.wire import tool_use as tool_use
from claude_transport.transports.script import MockScript as MockScript
from claude_transport.wrappers import faults as faults

__all__ = [
    "CLAUSES",
    "STORE_CLAUSES",
    "Answer",
    "Clause",
    "CodexReply",
    "CodexRule",
    "CodexScenario",
    "ExpectationFailed",
    "FakeClaude",
    "FakeClaudeCall",
    "FakeCodex",
    "FakeCodexCall",
    "FakeMessagesAPI",
    "FakePlace",
    "FakeResponsesAPI",
    "MakeFakeClaude",
    "MakeFakeCodex",
    "MockClaude",
    "MockScript",
    "RecordedRequest",
    "Redactor",
    "Report",
    "Rule",
    "Scenario",
    "ScriptedTurn",
    "Standing",
    "StoreClause",
    "Tape",
    "TapeHeader",
    "TapeMissing",
    "TapeRecord",
    "TapeShelf",
    "assistant",
    "can_use_tool",
    "compaction",
    "faults",
    "hook_callback",
    "rate_limit",
    "result",
    "run_conformance",
    "run_store_conformance",
    "stream_event",
    "streamed",
    "subagent",
    "thinking",
    "tool_result",
    "tool_use",
]
