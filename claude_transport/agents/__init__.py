"""Agents: the programs that run turns. Some are built in; plug-ins add more.

Find one: `find_agent` takes a name or options, `agent_names` lists the names.
Add one: `Agent` is what a plug-in implements, with `AgentOptions`, `StartContext`, `TurnTracker`, `HeldOptions`, for one call
    `AskedCall`, `AgentReason`, `CallPlan` and `Attempt`, and for a conversation `Heard`.
"""

from __future__ import annotations

from claude_transport.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "agents.agent": "Agent AgentReason AskedCall Attempt CallPlan Heard HeldOptions StartContext",
        "agents.registry": "agent_names find_agent",
        "launch.options": "AgentOptions",
        "protocol.turn_tracker": "TurnTracker",
    },
)
