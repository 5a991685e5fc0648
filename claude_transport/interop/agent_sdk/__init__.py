"""Use this library together with the official `claude_agent_sdk`, or move away from it.

Under the official client: `adapt` makes an `AdaptedTransport` of any transport of this library. `official_error` translates an error.
    `transport_from` makes the transport that the official client would have made for itself; `TransportOptions` are its arguments.
Away from it: `options_from` takes an official `ClaudeAgentOptions` apart. It returns `MovedOptions`: what `Query` and its transport take.

The official SDK is imported when one of these is called, never by an import.
"""

from __future__ import annotations

from claude_transport.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "interop.agent_sdk.adapting": "AdaptedTransport adapt official_error",
        "interop.agent_sdk.translation": "MovedOptions TransportOptions options_from transport_from",
    },
)
