# Written by docs/generate_names.py from the table in __init__.py: do not edit.

from claude_transport.agents.agent import Agent as Agent
from claude_transport.agents.agent import AgentReason as AgentReason
from claude_transport.agents.agent import AskedCall as AskedCall
from claude_transport.agents.agent import Attempt as Attempt
from claude_transport.agents.agent import CallPlan as CallPlan
from claude_transport.agents.agent import Heard as Heard
from claude_transport.agents.agent import HeldOptions as HeldOptions
from claude_transport.agents.agent import StartContext as StartContext
from claude_transport.agents.readers import LineMeaning as LineMeaning
from claude_transport.agents.readers import MetricsReader as MetricsReader
from claude_transport.agents.readers import PromptFollower as PromptFollower
from claude_transport.agents.readers import SpanMaker as SpanMaker
from claude_transport.agents.readers import SpanTexts as SpanTexts
from claude_transport.agents.readers import TapeReader as TapeReader
from claude_transport.agents.readers import WrittenPrompt as WrittenPrompt
from claude_transport.agents.registry import agent_names as agent_names
from claude_transport.agents.registry import find_agent as find_agent
from claude_transport.agents.scene import CallBook as CallBook
from claude_transport.agents.scene import Scene as Scene
from claude_transport.agents.scene import TapeFigures as TapeFigures
from claude_transport.launch.options import AgentOptions as AgentOptions
from claude_transport.protocol.conversation import Settle as Settle
from claude_transport.protocol.turn_tracker import TurnTracker as TurnTracker

__all__ = [
    "Agent",
    "AgentOptions",
    "AgentReason",
    "AskedCall",
    "Attempt",
    "CallBook",
    "CallPlan",
    "Heard",
    "HeldOptions",
    "LineMeaning",
    "MetricsReader",
    "PromptFollower",
    "Scene",
    "Settle",
    "SpanMaker",
    "SpanTexts",
    "StartContext",
    "TapeFigures",
    "TapeReader",
    "TurnTracker",
    "WrittenPrompt",
    "agent_names",
    "find_agent",
]
