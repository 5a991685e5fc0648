"""`MockClaude`: makes the mocks of one test, and knows afterwards whether their scripts were played."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from claude_transport.transports.mock import MockTransport


class MockClaude:
    """Call it for a `MockTransport` that plays responses; call `script()` for one that plays a script."""

    def __init__(self) -> None:
        self.transports: list[MockTransport] = []
        """Every mock it made, in order."""
        self._scripted: list[MockTransport] = []

    def __call__(self, responses: Iterable[Mapping[str, Any] | bytes] = ()) -> MockTransport:
        """A mock that plays these responses."""
        self.transports.append(MockTransport(responses))
        return self.transports[-1]

    def script(self) -> MockTransport:
        """A mock to be scripted: `mock_claude.script().expect(type="user").reply({...})`."""
        transport = MockTransport.script()
        self.transports.append(transport)
        self._scripted.append(transport)
        return transport

    @property
    def written(self) -> list[dict[str, Any]]:
        """Every message that was written to any of them."""
        return [message for transport in self.transports for message in transport.written]

    def assert_exhausted(self) -> None:
        """Raise `ExpectationFailed` for the first script that was not played to its end."""
        for transport in self._scripted:
            transport.assert_exhausted()
