# Written by docs/generate_names.py from the table in __init__.py: do not edit.

from claude_transport.agents.agent import Agent as Agent
from claude_transport.agents.agent import AgentReason as AgentReason
from claude_transport.agents.agent import AskedCall as AskedCall
from claude_transport.agents.agent import Attempt as Attempt
from claude_transport.agents.agent import CallPlan as CallPlan
from claude_transport.agents.agent import Heard as Heard
from claude_transport.agents.agent import HeldOptions as HeldOptions
from claude_transport.agents.agent import StartContext as StartContext
from claude_transport.agents.registry import agent_names as agent_names
from claude_transport.agents.registry import find_agent as find_agent
from claude_transport.launch.options import AgentOptions as AgentOptions
from claude_transport.protocol.turn_tracker import TurnTracker as TurnTracker

__all__ = [
    "Agent",
    "AgentOptions",
    "AgentReason",
    "AskedCall",
    "Attempt",
    "CallPlan",
    "Heard",
    "HeldOptions",
    "StartContext",
    "TurnTracker",
    "agent_names",
    "find_agent",
]
