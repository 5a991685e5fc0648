"""README's first command, word for word, in a fresh copy of the checkout: it installs the package and prints an answer."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def first_command() -> str:
    return re.findall(r"```bash\n(.+?)\n```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)[0]


def test_the_first_command_installs_and_answers_without_claude_key_or_network(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    for name in ("claude_transport", "pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, checkout / name)
    # neither a claude nor a key, and not the environment these tests run in
    hidden = ("ANTHROPIC_", "CLAUDE", "VIRTUAL_ENV", "PYTHON")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    ran = subprocess.run(
        ["bash", "-c", first_command()],
        cwd=checkout,
        env=environment | {"HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "Hello, Claude" in ran.stdout
    assert "simulated" in ran.stdout
