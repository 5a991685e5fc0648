"""For people who test programs that talk to Claude: what stands in for the CLI, for the API, and what proves a transport right."""

from __future__ import annotations

from claude_transport.testing import replies
from claude_transport.testing.api_requests import RecordedRequest
from claude_transport.testing.fake_messages_api import FakeMessagesAPI

__all__ = ["FakeMessagesAPI", "RecordedRequest", "replies"]
