"""`MockClaude`: what the fixture `mock_claude` gives to a test: it makes mocks and checks their scripts afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from claude_transport.testing.standing import Standing
from claude_transport.transports.mock import MockTransport


class MockClaude:
    """Call it to make a `MockTransport` that plays responses, or call `script()` to make one that plays a script.

    With `strict`, as in the fixture, the mocks are strict.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self.transports: list[MockTransport] = []
        """Every mock that was made, in order."""
        self._strict = strict
        self._names: list[str] = []

    def __call__(self, responses: Iterable[Mapping[str, Any] | bytes] = ()) -> MockTransport:
        """Make a mock that plays these responses."""
        return self._add("mock", MockTransport(responses, strict=self._strict))

    def script(self) -> MockTransport:
        """Make a mock with an empty script, to be filled: `mock_claude.script().expect(type="user").reply({...})`."""
        return self._add("script", MockTransport.script(strict=self._strict))

    def _add(self, kind: str, transport: MockTransport) -> MockTransport:
        self.transports.append(transport)
        self._names.append(f"{kind} {len(self.transports)}")
        return transport

    @property
    def written(self) -> list[dict[str, Any]]:
        """Every message that was written to any of the mocks."""
        return [message for transport in self.transports for message in transport.written]

    def assert_exhausted(self) -> None:
        """Raise `ExpectationFailed` for the first script that was not played to its end, or the first responses that were not read."""
        for transport in self.transports:
            transport.assert_exhausted()

    def standings(self) -> list[Standing]:
        """Return where each mock stands, for the report of a test."""
        return [
            Standing(
                name=name,
                whereabouts=mock.whereabouts,
                received_last=mock.received_last,
                failure=mock.failure,
                leftover=mock.leftover(),
                is_over=mock.is_closed,
            )
            for name, mock in zip(self._names, self.transports, strict=True)
        ]
