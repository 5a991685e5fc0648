"""transports"""

from __future__ import annotations

from claude_transport.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "transport": "Client PermissionSetting SessionTerms Transport TransportInfo TransportLike",
        "transports.mock": "MockTransport",
        "transports.network": "NetworkTransport",
        "transports.opening": "open_transport",
        "transports.replay": "ReplayTransport",
        "transports.start_gate": "StartGate",
        "transports.stream": "Connectable StreamTransport",
        "transports.subprocess": "SubprocessTransport options_to_resume session_terms",
    },
)
