"""The how-to "Test your code without a model" has the real `claude` answer from a script: its piece of code, as it stands there."""

from __future__ import annotations

import os
import re
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

import claude_transport as ct

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "test-without-a-model.md"


@pytest.mark.needs("nothing is written beside the directories")
async def test_the_real_claude_says_what_the_page_scripts(claude_cli: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _words, code, blocking = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    page: dict[str, Any] = {"ct": ct}
    exec(f"async def shown():\n{textwrap.indent(code, '    ')}    return api.requests", page)
    exec(f"def blocks():\n{textwrap.indent(blocking, '    ')}    return api.requests", page)
    with tempfile.TemporaryDirectory(prefix="ct-", ignore_cleanup_errors=True) as short, monkeypatch.context() as world:
        for name in list(os.environ):
            world.delenv(name)
        path = f"{Path(claude_cli).parent}:/usr/bin:/bin"
        for name, value in {"PATH": path, "HOME": str(tmp_path), "TMPDIR": short, "LANG": "C.UTF-8"}.items():
            world.setenv(name, value)
        with anyio.fail_after(60):
            requests = await page["shown"]()
            requests_in_a_thread = await anyio.to_thread.run_sync(page["blocks"])
    assert requests, "nothing was asked of the API in the test"
    assert requests_in_a_thread, "nothing was asked of the API in the test without an event loop"
    assert list(tmp_path.iterdir()) == [], "isolated_config keeps the CLI out of the home"
