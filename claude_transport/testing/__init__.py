"""Test programs that talk to Claude: stand-ins for the CLI and for the API, tapes, and the contract of `Transport` as a test.

A fake CLI: `FakeClaude` is a real executable that plays a `Scenario`: a list of `ScriptedTurn` and `Rule`, made of the `steps`. `Answer`
    answers one control request, `FakeClaudeCall` is one start that it has recorded, `FakePlace` where that start stands.
A fake Codex: `FakeCodex` plays a `CodexScenario`, whose steps are in `claude_transport.codex.testing.scenario`. `CodexRule` chooses the
    answer to a prompt, `CodexReply` answers one request, `FakeCodexCall` is one start that it has recorded.
A fake API: `FakeMessagesAPI` is a Messages API on loopback that gives `replies`; `RecordedRequest` is one request that it has received.
    `FakeResponsesAPI` is the same for Codex: a Responses API.
Messages of the CLI: `assistant`, `thinking`, `tool_use`, `tool_result`, `stream_event`, `streamed`, `rate_limit`, `subagent`, `compaction`
    and `result` make them, `can_use_tool` and `hook_callback` its questions, for mocks and for `Scenario.turns`.
A transport without a process: `MockScript` is what `MockTransport.script()` returns. `ExpectationFailed` says which step did not come.
Tapes: `Tape`, `TapeHeader`, `TapeRecord` read and write recordings; `Redactor` removes secrets from them.
Faults: `faults` are the classes for `FaultyTransport`.
The contract: `run_conformance` checks a transport against the `CLAUSES` (each a `Clause`) and returns a `Report`. More is in
    `claude_transport.testing.conformance`.
Session stores: `run_store_conformance` checks a `SessionStore` against the `STORE_CLAUSES` (each a `StoreClause`) in the same way.

The pytest plugin: `MockClaude`, `TapeShelf`, `MakeFakeClaude` and `MakeFakeCodex` are the types of fixtures. `TapeMissing` says how to
    record the tape that is not there. `Standing` is how far a script, tape, fake or API has come, which the report of a failed test says.

The pytest plugin imports this package at every start of pytest, so each name is loaded when it is first used.
"""

from __future__ import annotations

from claude_transport.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "protocol.expectation": "ExpectationFailed",
        "protocol.redaction": "Redactor",
        "protocol.tape": "Tape TapeHeader TapeRecord",
        "testing.api_server": "RecordedRequest",
        "testing.conformance.clause": "Clause",
        "testing.conformance.clauses": "CLAUSES",
        "testing.conformance.run": "Report run_conformance",
        "codex.testing.scenario": "CodexReply CodexRule CodexScenario",
        "testing.fake_claude": "FakeClaude FakeClaudeCall MakeFakeClaude",
        "codex.testing.fake_codex": "FakeCodex FakeCodexCall MakeFakeCodex",
        "testing.fake_program": "FakePlace",
        "testing.fake_messages_api": "FakeMessagesAPI",
        "codex.testing.fake_responses_api": "FakeResponsesAPI",
        "testing.mock_claude": "MockClaude",
        "testing.scenario": "Answer Rule Scenario",
        "testing.standing": "Standing",
        "testing.steps": "ScriptedTurn",
        "testing.tape_shelf": "TapeMissing TapeShelf",
        "testing.wire": "assistant can_use_tool compaction hook_callback rate_limit result stream_event streamed subagent thinking "
        "tool_result tool_use",
        "testing.store_conformance": "STORE_CLAUSES StoreClause run_store_conformance",
        "transports.script": "MockScript",
        "wrappers": "faults",
    },
    modules=("replies", "steps"),
)
