# Written by docs/generate_names.py from the table in __init__.py: do not edit.

from claude_transport.errors import ReplayGap as ReplayGap
from claude_transport.observing.observers import observe as observe
from claude_transport.protocol.observation import ObservedLine as ObservedLine
from claude_transport.serving.following import Observation as Observation
from claude_transport.wrappers.observable import ObservableTransport as ObservableTransport

__all__ = [
    "ObservableTransport",
    "Observation",
    "ObservedLine",
    "ReplayGap",
    "observe",
]
