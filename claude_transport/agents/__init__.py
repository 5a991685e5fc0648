"""Agents: the programs that run turns. Some are built in; plug-ins add more.

Find one: `find_agent` takes a name or options, `agent_names` lists the names.
Add one: `Agent` is what a plug-in implements, with `AgentOptions`, `StartContext`, `TurnTracker`, `HeldOptions`, for one call
    `AskedCall`, `AgentReason`, `CallPlan` and `Attempt`, and for a conversation `Heard`.
Have its lines read: `MetricsReader` counts them, with a `PromptFollower`, `WrittenPrompt`, `LineMeaning` and `Settle`.
    `SpanMaker` traces them, with `SpanTexts`. `TapeReader` shows them to people, with a `Scene`, `CallBook` and `TapeFigures`.
"""

from __future__ import annotations

from claude_transport.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "agents.agent": "Agent AgentReason AskedCall Attempt CallPlan Heard HeldOptions StartContext",
        "agents.readers": "LineMeaning MetricsReader PromptFollower SpanMaker SpanTexts TapeReader WrittenPrompt",
        "agents.registry": "agent_names find_agent",
        "agents.scene": "CallBook Scene TapeFigures",
        "launch.options": "AgentOptions",
        "protocol.conversation": "Settle",
        "protocol.turn_tracker": "TurnTracker",
    },
)
