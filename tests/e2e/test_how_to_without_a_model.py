"""The how-to "Test your code without a model" has the real `claude` answer from a script: its piece of code, as it stands there."""

from __future__ import annotations

import os
import re
import textwrap
from pathlib import Path
from typing import Any

import anyio
import pytest
from conftest import CLIHome

import claude_transport as ct

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "test-without-a-model.md"


async def test_the_real_claude_says_what_the_page_scripts(claude_cli: str, cli_home: CLIHome, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        monkeypatch.delenv(name)
    clean = {"PATH": f"{Path(claude_cli).parent}:/usr/bin:/bin", "HOME": str(cli_home.home), "TMPDIR": str(cli_home.tmp), "LANG": "C.UTF-8"}
    for name, value in clean.items():
        monkeypatch.setenv(name, value)
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    page: dict[str, Any] = {"ct": ct}
    exec(f"async def shown():\n{textwrap.indent(code, '    ')}    return api.requests", page)
    with anyio.fail_after(60):
        requests = await page["shown"]()
    assert requests, "nothing was asked of the API in the test"
    assert list(cli_home.home.iterdir()) == [], "isolated_config keeps the CLI out of the home"
