"""Together with the official `claude_agent_sdk`, or away from it.

`adapt` makes a transport of this library one for the official client, with the official errors; `transport_from` makes the transport that
the official client would have made for itself; `options_from` is for moving: it takes an official `ClaudeAgentOptions` apart into what a
`Query` and its transport take.

The official SDK is imported when one of these is called, never by an import.
"""

from __future__ import annotations

from claude_transport.interop.agent_sdk.adapting import AdaptedTransport, adapt, official_error
from claude_transport.interop.agent_sdk.translation import MovedOptions, TransportOptions, options_from, transport_from

__all__ = ["AdaptedTransport", "MovedOptions", "TransportOptions", "adapt", "official_error", "options_from", "transport_from"]
