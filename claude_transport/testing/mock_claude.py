"""`MockClaude`: what the fixture `mock_claude` gives to a test: it makes mocks and checks their scripts afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from claude_transport.transports.mock import MockTransport


class MockClaude:
    """Call it to make a `MockTransport` that plays responses, or call `script()` to make one that plays a script."""

    def __init__(self) -> None:
        self.transports: list[MockTransport] = []
        """Every mock that was made, in order."""
        self._scripted: list[MockTransport] = []

    def __call__(self, responses: Iterable[Mapping[str, Any] | bytes] = ()) -> MockTransport:
        """Make a mock that plays these responses."""
        self.transports.append(MockTransport(responses))
        return self.transports[-1]

    def script(self) -> MockTransport:
        """Make a mock with an empty script, to be filled: `mock_claude.script().expect(type="user").reply({...})`."""
        transport = MockTransport.script()
        self.transports.append(transport)
        self._scripted.append(transport)
        return transport

    @property
    def written(self) -> list[dict[str, Any]]:
        """Every message that was written to any of the mocks."""
        return [message for transport in self.transports for message in transport.written]

    def assert_exhausted(self) -> None:
        """Raise `ExpectationFailed` for the first script that was not played to its end."""
        for transport in self._scripted:
            transport.assert_exhausted()
