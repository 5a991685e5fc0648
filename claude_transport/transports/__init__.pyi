# Written by docs/generate_names.py from the table in __init__.py: do not edit.

from claude_transport.agents.claude_code import options_to_resume as options_to_resume
from claude_transport.agents.claude_code import session_terms as session_terms
from claude_transport.transport import AtOnce as AtOnce
from claude_transport.transport import BeforePrompt as BeforePrompt
from claude_transport.transport import Client as Client
from claude_transport.transport import Confidential as Confidential
from claude_transport.transport import PermissionSetting as PermissionSetting
from claude_transport.transport import SessionTerms as SessionTerms
from claude_transport.transport import Storage as Storage
from claude_transport.transport import Transport as Transport
from claude_transport.transport import TransportInfo as TransportInfo
from claude_transport.transport import TransportLike as TransportLike
from claude_transport.transports.forwarding import Forwarded as Forwarded
from claude_transport.transports.forwarding import forward as forward
from claude_transport.transports.mock import MockTransport as MockTransport
from claude_transport.transports.network import NetworkTransport as NetworkTransport
from claude_transport.transports.opening import open_transport as open_transport
from claude_transport.transports.replay import ReplayTransport as ReplayTransport
from claude_transport.transports.start_gate import StartGate as StartGate
from claude_transport.transports.stream import StreamTransport as StreamTransport
from claude_transport.transports.subprocess import SubprocessTransport as SubprocessTransport

__all__ = [
    "AtOnce",
    "BeforePrompt",
    "Client",
    "Confidential",
    "Forwarded",
    "MockTransport",
    "NetworkTransport",
    "PermissionSetting",
    "ReplayTransport",
    "SessionTerms",
    "StartGate",
    "Storage",
    "StreamTransport",
    "SubprocessTransport",
    "Transport",
    "TransportInfo",
    "TransportLike",
    "forward",
    "open_transport",
    "options_to_resume",
    "session_terms",
]
