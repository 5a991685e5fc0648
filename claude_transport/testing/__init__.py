"""For people who test programs that talk to Claude: what stands in for the CLI, for the API, and what proves a transport right.

Every name is loaded when it is first used, because the pytest plugin lives here and is loaded at every start of pytest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from claude_transport.protocol.expectation import ExpectationFailed
    from claude_transport.protocol.redaction import Redactor
    from claude_transport.protocol.tape import Tape, TapeHeader, TapeRecord
    from claude_transport.testing import replies, steps
    from claude_transport.testing.conformance import CLAUSES, Clause, Report, run_conformance
    from claude_transport.testing.fake_claude import FakeClaude, FakeClaudeCall
    from claude_transport.testing.fake_messages_api import FakeMessagesAPI, RecordedRequest
    from claude_transport.testing.scenario import Answer, Rule, Scenario, ScriptedTurn
    from claude_transport.testing.scenario import Turn as Turn  # the former name, for those who use it
    from claude_transport.transports.script import MockScript
    from claude_transport.wrappers import faults

__all__ = [
    "CLAUSES",
    "Answer",
    "Clause",
    "ExpectationFailed",
    "FakeClaude",
    "FakeClaudeCall",
    "FakeMessagesAPI",
    "MockScript",
    "RecordedRequest",
    "Redactor",
    "Report",
    "Rule",
    "Scenario",
    "ScriptedTurn",
    "Tape",
    "TapeHeader",
    "TapeRecord",
    "faults",
    "replies",
    "run_conformance",
    "steps",
]

_HOMES = {
    "protocol.expectation": "ExpectationFailed",
    "protocol.redaction": "Redactor",
    "protocol.tape": "Tape TapeHeader TapeRecord",
    "testing.conformance": "CLAUSES Clause Report run_conformance",
    "testing.fake_claude": "FakeClaude FakeClaudeCall",
    "testing.fake_messages_api": "FakeMessagesAPI RecordedRequest",
    "testing.scenario": "Answer Rule Scenario ScriptedTurn Turn",
    "transports.script": "MockScript",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
_MODULES = {"faults": "wrappers.faults", "replies": "testing.replies", "steps": "testing.steps"}


def __getattr__(name: str) -> Any:
    package = __name__.partition(".")[0]
    value: Any
    if name in _MODULES:
        value = import_module(f"{package}.{_MODULES[name]}")
    elif name in _HOME_OF:
        value = getattr(import_module(f"{package}.{_HOME_OF[name]}"), name)
    else:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
