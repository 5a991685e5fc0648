# Written by docs/generate_names.py from the table in __init__.py: do not edit.

from claude_transport.interop.agent_sdk.adapting import AdaptedTransport as AdaptedTransport
from claude_transport.interop.agent_sdk.adapting import adapt as adapt
from claude_transport.interop.agent_sdk.adapting import official_error as official_error
from claude_transport.interop.agent_sdk.translation import MovedOptions as MovedOptions
from claude_transport.interop.agent_sdk.translation import TransportOptions as TransportOptions
from claude_transport.interop.agent_sdk.translation import options_from as options_from
from claude_transport.interop.agent_sdk.translation import transport_from as transport_from

__all__ = [
    "AdaptedTransport",
    "MovedOptions",
    "TransportOptions",
    "adapt",
    "official_error",
    "options_from",
    "transport_from",
]
