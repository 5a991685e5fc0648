"""The figures of a tape are those that the real CLI told while it was recorded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from live_session import PATIENCE, Doorkeeper, bash

import claude_transport as ct
from claude_transport.inspection import read_timeline, render_page, summarize
from claude_transport.testing import FakeMessagesAPI, replies


async def test_the_figures_of_a_tape_are_those_the_real_cli_told(
    claude_cli: str, cli_home: Any, cli_env: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    script = [
        bash("touch first.txt && echo done"),
        replies.text("The first one is done."),
        bash("touch second.txt"),
        replies.text("The second one was refused."),
        replies.error(400),
    ]
    tape = tmp_path / "tape.ndjson"
    door = Doorkeeper([ct.Allow(), ct.Deny("not twice")])
    async with FakeMessagesAPI(script) as api:
        environment = cli_env(api, CLAUDE_CODE_MAX_RETRIES="0")
        options = ct.ClaudeOptions(
            cli_path=claude_cli, cwd=cli_home.project, env=environment, env_mode="exact", include_partial_messages=True
        )
        with anyio.fail_after(PATIENCE):
            async with ct.Query(ct.RecordingTransport(ct.SubprocessTransport(options), tape), can_use_tool=door) as query:
                results = [await (await query.send(prompt)).result() for prompt in ("Run it", "Again", "Thanks")]
                initialization = query.initialization
    summary = summarize(tape)
    assert [(turn.prompt, turn.outcome) for turn in summary.turns] == [
        (prompt, result.outcome.code) for prompt, result in zip(("Run it", "Again", "Thanks"), results, strict=True)
    ]
    assert [turn.outcome == "ok" for turn in summary.turns] == [True, True, False]
    assert summary.cost_usd == pytest.approx(results[-1].total_cost_usd)
    assert summary.tokens.output_tokens == sum(result.usage.output_tokens for result in results)
    assert [(tool.name, tool.calls, tool.errors, tool.denied, tool.open) for tool in summary.tools] == [("Bash", 2, 0, 1, 0)]
    asked = {stats.name: (stats.asked_by, stats.calls, stats.denied, stats.open) for stats in summary.requests}
    if initialization is not None and initialization.current_permission_mode is None:
        assert asked.pop("get_settings") == ("host", 1, 0, 0)  # such a CLI is asked for the mode that its settings chose
    assert asked == {"initialize": ("host", 1, 0, 0), "can_use_tool": ("claude", 2, 1, 0)}
    assert summary.session_ids == (results[0].session_id,)
    assert initialization is not None
    assert initialization.claude_code_version in {None, summary.cli_version}  # before 2.1.308 it does not say it

    timeline = read_timeline(tape)
    texts = [event for event in timeline.events if event.kind == "text" and not event.status]
    assert [text.gist for text in texts] == ["The first one is done.", "The second one was refused."]
    assert all(text.pieces and text.waited is not None for text in texts)
    assert "The second one was refused." in "".join(render_page(timeline, title="real"))
