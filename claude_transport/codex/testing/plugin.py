"""The pytest plugin for tests of programs that talk to Codex (entry point `pytest11`): its fixtures.

pytest loads it at every start where this package is installed. Therefore each fixture imports what it needs only when a test uses it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import pytest

from claude_transport.testing.judging import closing, is_async, judge_of, judged, making, serving_in_a_thread

if TYPE_CHECKING:
    from claude_transport.codex.testing.fake_codex import MakeFakeCodex
    from claude_transport.codex.testing.fake_responses_api import FakeResponsesAPI


@pytest.fixture
def fake_codex(request: pytest.FixtureRequest) -> Iterator[MakeFakeCodex]:
    """Make fake `codex` executables: `fake_codex(scenario).path`. Without a scenario it echoes. Its files go after the test."""
    from claude_transport.codex.testing.fake_codex import FakeCodex

    yield from making(request, FakeCodex)


@pytest.fixture
def fake_responses_api(request: pytest.FixtureRequest) -> Iterator[FakeResponsesAPI]:
    """Give a test a running `FakeResponsesAPI`; `fake_responses_api.replace(script)` sets its script.

    It fails a test as `fake_messages_api` does.

    Under anyio's pytest plugin, the server runs in the event loop of the test. For any other test it runs in a thread, as with `with`. An
    async test awaits the methods that wait; in a plain test, `call()` runs them. Needs `pip install 'claude-transport[testing]'`.
    """
    from claude_transport.codex.testing.fake_responses_api import FakeResponsesAPI

    if is_async(request):
        yield request.getfixturevalue("_fake_responses_api_of_the_loop")
        return
    yield from serving_in_a_thread(request, FakeResponsesAPI(strict=judge_of(request).strict))


@pytest.fixture
async def _fake_responses_api_of_the_loop(anyio_backend: object, request: pytest.FixtureRequest) -> AsyncIterator[FakeResponsesAPI]:
    """Give the async test of `fake_responses_api` the server, in the event loop of the test."""
    from claude_transport.codex.testing.fake_responses_api import FakeResponsesAPI

    api = FakeResponsesAPI(strict=judge_of(request).strict)
    with judged(request, api.standings), closing(request):
        async with api:
            yield api
