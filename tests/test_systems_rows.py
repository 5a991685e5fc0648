"""The systems that this library replaces. `proofs.toml` names the tests of each row and what they show."""

from __future__ import annotations

import ast

import pytest
from proof_map import PROOFS as ALL_PROOFS
from proof_map import SYSTEM_ROWS, find_test

from claude_transport.completion.readiness import CLAUDE_CODE, AgentCLI
from claude_transport.launch.discovery import CLI

PROOFS = {row: ALL_PROOFS[row] for row in SYSTEM_ROWS}


@pytest.mark.parametrize("row", SYSTEM_ROWS)
def test_every_proof_of_a_row_exists_and_is_never_skipped(row: str) -> None:
    assert PROOFS[row]
    for proof in PROOFS[row]:
        test = find_test(proof)
        assert test is not None, proof
        marks = " ".join(map(ast.unparse, test.decorator_list))
        assert "mark.skip" not in marks, proof
        assert "mark.xfail" not in marks, proof


def test_s1_10_another_agents_cli_can_be_described_beside_claude_code() -> None:
    """The seam for a second agent; only Claude Code's protocol is spoken."""
    found = CLI(path="/opt/codex", source="explicit", searched=())
    other = AgentCLI(name="codex", find=lambda _explicit=None, /, *, env: found, read_version=lambda _cli, /: "1.0")
    assert other.find(env={}) is found
    assert (other.name, other.read_version(found)) == ("codex", "1.0")
    assert CLAUDE_CODE.name == "claude-code"
