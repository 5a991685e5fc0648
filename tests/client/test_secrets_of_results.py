"""The error of a failed result tells what the CLI wrote, without the secrets that the options gave it."""

from __future__ import annotations

from typing import Any

import pytest

import claude_transport as ct
from claude_transport.testing import FakeClaude, Scenario
from claude_transport.testing.scenario import Turn
from claude_transport.testing.steps import Result

SECRET = "violet-harbour-1729"
SAYS_IT = f"API Error: 401 the key {SECRET} is not known here"


@pytest.mark.parametrize(
    "result",
    [
        Result(SAYS_IT, subtype="success", is_error=True),
        Result(None, subtype="error_during_execution", is_error=True, errors=[SAYS_IT]),
        Result(f"{SAYS_IT} {50_000 * 'x'}", subtype="success", is_error=True),
    ],
    ids=["text", "errors", "long"],
)
@pytest.mark.parametrize(
    "options",
    [{"env": {"MY_TOKEN": SECRET}}, {"mcp_servers": {"it": {"type": "http", "url": "http://[::1]:1", "headers": {"X-Api-Key": SECRET}}}}],
    ids=["env", "headers"],
)
async def test_a_secret_of_the_options_is_not_in_the_error_of_a_result(result: Result, options: dict[str, Any]) -> None:
    with FakeClaude(Scenario(otherwise=Turn((result,)))) as fake:
        async with ct.Query(ct.SubprocessTransport(ct.ClaudeOptions(cli_path=str(fake.path), **options))) as query:
            failed = await (await query.send("Hi")).result()
    with pytest.raises(ct.ResultError) as caught:
        failed.raise_for_error()
    error = caught.value
    assert "the key" in error.reason
    assert SECRET not in error.reason + str(error) + repr(error) + str(error.__cause__)
    assert SECRET in (failed.result or failed.errors[0])  # the data of the program is not changed
