"""The schemas mean the same to a validator of another language: ajv, on Node, judges every line as `WireCheck` does.

`nox -s tests` has npm install it into nox's cache; `--ajv FOLDER` names another place. Where there is none, the test is skipped, but fails
where CI is set and there is an npm.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from node_program import node
from wire_corpus import Case, mutants, recorded_cases

from claude_transport.wire import WIRE_RANGES, WireCheck
from claude_transport.wire.documents import schema_on_tape

NOX_CACHE = Path(__file__).parents[2] / ".nox" / ".cache" / "ajv"
SCRIPT = Path(__file__).parent / "ajv_verdicts.cjs"
HINT = "run `nox -s tests`, which installs it from npm, or pass --ajv FOLDER"
MUTANTS = 2000
OLDEST, *BETWEEN, NEWEST = WIRE_RANGES
PATIENCE = 120


@pytest.fixture(scope="module")
def ajv(request: pytest.FixtureRequest) -> list[str]:
    """What starts Node, and the folder of its modules."""
    given: str | None = request.config.getoption("--ajv")
    cached = sorted(NOX_CACHE.glob("[0-9]*/node_modules"))
    modules, program = Path(given) / "node_modules" if given else cached[-1] if cached else None, node()
    if modules is not None and (modules / "ajv").is_dir() and program is not None:
        return [program, str(modules.absolute())]
    what = f"no ajv at {modules}, or no Node: {HINT}"
    if given or (os.environ.get("CI") and shutil.which("npm")):
        pytest.fail(what)
    pytest.skip(what)


def verdicts_of_ajv(ajv: list[str], start: str, cases: list[Case]) -> list[bool]:
    documents = {direction: schema_on_tape(direction, cli_version=start) for direction in ("in", "out")}
    program, modules = ajv
    given = json.dumps({"documents": documents, "cases": cases})
    env = {**os.environ, "NODE_PATH": modules}
    ran = subprocess.run([program, str(SCRIPT)], input=given, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ran.returncode == 0, ran.stderr
    found: list[bool] = json.loads(ran.stdout)
    return found


def our_verdicts(start: str, cases: list[Case]) -> list[bool]:
    check = WireCheck(cli_version=start)
    return [our_verdict(check, case) for case in cases]


def our_verdict(check: WireCheck, case: Case) -> bool:
    ask(check, case)
    found = check.add(case.direction, case.text.encode("utf-8", "surrogatepass"))
    return all(finding.kind == "unknown" for finding in found)


def ask(check: WireCheck, case: Case) -> None:
    """Put the question to which the case is the answer, under whatever id the answer has; one that no schema knows for a case without."""
    try:
        reply = json.loads(case.text).get("response")
    except (ValueError, AttributeError):
        return
    request: dict[str, Any] = {"subtype": (case.definition or "").partition(".")[2]}
    request_id = reply.get("request_id") if isinstance(reply, dict) else None
    question = {"type": "control_request", "request_id": request_id, "request": request}
    check.add("in" if case.direction == "out" else "out", json.dumps(question).encode())


@pytest.mark.parametrize("start", [OLDEST, *(pytest.param(start, marks=pytest.mark.nightly) for start in BETWEEN), NEWEST])
def test_ajv_and_we_judge_every_recorded_line_alike(ajv: list[str], start: str) -> None:
    cases = recorded_cases()
    theirs, ours = verdicts_of_ajv(ajv, start, cases), our_verdicts(start, cases)
    assert [case for case, their, our in zip(cases, theirs, ours, strict=True) if their is not our] == []
    assert len(cases) > 1000
    assert sum(theirs) > len(cases) - 40  # the lines that the recording host got wrong on purpose


@pytest.mark.parametrize("start", [pytest.param(OLDEST, marks=pytest.mark.nightly), NEWEST])
def test_ajv_and_we_judge_two_thousand_mutants_alike(ajv: list[str], start: str) -> None:
    cases = mutants(recorded_cases(), MUTANTS)
    theirs, ours = verdicts_of_ajv(ajv, start, cases), our_verdicts(start, cases)
    assert [case for case, their, our in zip(cases, theirs, ours, strict=True) if their is not our] == []
    assert len(cases) == MUTANTS
    assert 400 < sum(theirs) < MUTANTS - 400
