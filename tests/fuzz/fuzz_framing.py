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


def write_corpus(folder: Path) -> None:
    """One input for each recorded line, with the largest limit and small chunks, and one with all of them."""
    inputs = [*sample_lines(), b"\n".join(sample_lines()[:20])]
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
