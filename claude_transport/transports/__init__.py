"""Transports: each carries lines of JSON to a `claude` process and back. `Query` runs over any of them.

The contract: `Transport` is the base class. `TransportLike` is its shape, for type checkers. `TransportInfo` is what a transport tells
    about itself. `Client` describes the layer above a transport, which attaches to it and gets `SessionTerms` with `PermissionSetting`s.
    `AtOnce` is what the transport does without waiting, and `Storage` what it says about its session store. `BeforePrompt` is the type of
    a function that may hold prompts back.
To a process: `SubprocessTransport` starts one here. `NetworkTransport` reaches one elsewhere. `open_transport` chooses by URL.
    `session_terms` returns what options ask of a `Query`. `options_to_resume` returns options that resume a saved session.
    `StartGate` limits how many processes start at once.
Over your own stream: `StreamTransport` makes a transport of an opener of byte streams.
Between two transports: `forward` carries the lines of one to the other and returns `Forwarded`, what it has carried.
Without a process: `MockTransport` answers from a list or a script. `ReplayTransport` plays a recorded tape.

Wrappers, which add something to a transport, are in `claude_transport.wrappers`.
"""

from __future__ import annotations

from claude_transport.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "agents.claude_code": "options_to_resume session_terms",
        "transport": "AtOnce BeforePrompt Client Confidential PermissionSetting SessionTerms Storage Transport TransportInfo TransportLike",
        "transports.forwarding": "Forwarded forward",
        "transports.mock": "MockTransport",
        "transports.network": "NetworkTransport",
        "transports.opening": "open_transport",
        "transports.replay": "ReplayTransport",
        "transports.start_gate": "StartGate",
        "transports.stream": "StreamTransport",
        "transports.subprocess": "SubprocessTransport",
    },
)
