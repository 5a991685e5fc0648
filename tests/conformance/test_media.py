"""Every clause, on every medium that comes with the library, on every event loop."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import claude_transport.wrappers
from claude_transport.testing.conformance import Reason, media, run_conformance
from claude_transport.testing.conformance.pytest_adapter import Case, parametrize
from claude_transport.transport import Transport

MEDIA = media.shipped()


@parametrize(*(medium for medium in MEDIA if medium.name != "ssh"), timeout=15.0)  # that one is asked in test_ssh_medium.py
def test_a_medium_keeps_the_clause_or_cannot_express_it(case: Case) -> None:
    row = case.check()
    assert row.verdict == "passed" or (row.verdict == "excluded" and isinstance(row.reason, Reason))


def test_only_the_mock_and_what_cannot_say_how_it_ended_leave_clauses_out() -> None:
    assert [medium.name for medium in MEDIA if medium.excludes and medium.name != "ssh"] == ["mock", "unix", "gateway, plain"]


@pytest.mark.one_loop
@parametrize(media.mutual_tls(), media.tcp(compression=True), timeout=15.0)
def test_a_variant_of_a_medium_keeps_the_clause_too(case: Case) -> None:
    row = case.check()
    assert row.verdict == "passed" or (row.verdict == "excluded" and isinstance(row.reason, Reason))


def test_every_wrapper_there_is_has_a_medium() -> None:
    package = claude_transport.wrappers
    modules = [importlib.import_module(f"{package.__name__}.{module.name}") for module in pkgutil.iter_modules(package.__path__)]
    defined = [each for module in modules for each in vars(module).values() if getattr(each, "__module__", "") == module.__name__]
    wrappers = {each.__name__ for each in defined if isinstance(each, type) and issubclass(each, Transport) and each.__name__[0] != "_"}
    assert wrappers == {medium.name.partition("(")[0] for medium in MEDIA if "(" in medium.name}


def test_a_child_that_dies_by_a_signal_is_a_failure_after_the_last_message() -> None:
    clauses = ["read.failure-after-last-message", "write.broken-stays-broken", "ready.not-when-broken"]
    report = run_conformance(media.subprocess(failure=-9), clauses=clauses, timeout=15.0)
    assert len(report.passed) == 6, str(report)
