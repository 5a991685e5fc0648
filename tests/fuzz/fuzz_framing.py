"""Fuzzes framing and decoding with atheris, coverage-guided: `python tests/fuzz/fuzz_framing.py -max_total_time=60`.

The oracle is `framing_oracle.target`, which `tests/protocol/test_fuzz_target.py` runs without atheris, bounded, with every test run.
Arguments go to libFuzzer; without a corpus folder among them, it starts from the recorded lines. An input that breaks the oracle is
printed and kept in the `-artifact_prefix`; it belongs into `test_fuzz_target.py`.
"""

from __future__ import annotations

import sys
import tempfile
from importlib import import_module
from pathlib import Path

atheris = import_module("atheris")  # no plain import: it is installed for fuzzing only, and type checkers cannot see into it
sys.path.insert(0, str(Path(__file__).parent.parent / "protocol"))
with atheris.instrument_imports(include=["claude_transport"]):
    oracle = import_module("framing_oracle")
sample_lines = import_module("recorded_lines").sample_lines


def costly_lines() -> list[bytes]:
    """More misfits than may be saved in one line, an odd value deep inside, and noise with many places where JSON may begin."""
    opening = b'{"type":"assistant","message":{"content":['
    return [
        opening + b"7," * 1200 + b"7]}}",
        opening + b'{"type":"tool_result","content":[' * 60 + b"7" + b"]}" * 60 + b"]}}",
        b"x " + b'{"a":[' * 20 + b"0," * 1500,
    ]


def write_corpus(folder: Path) -> None:
    """Write one input for each recorded line, with the largest limit and small chunks, one with many, and some that are costly to read."""
    inputs = [*sample_lines(), b"\n".join(sample_lines()[:20]), *costly_lines()]
    for number, lines in enumerate(inputs):
        (folder / f"recorded-{number}").write_bytes(b"\0\5" + lines + b"\n")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="fuzz-corpus-") as folder:
        given = any(not argument.startswith("-") for argument in sys.argv[1:])
        if not given:
            write_corpus(Path(folder))
        atheris.Setup([*sys.argv, *([] if given else [folder])], oracle.target)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
