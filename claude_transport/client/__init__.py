"""The client end of the control protocol: one conversation with a `claude` process, over any transport.

The conversation: `Query` starts it, sends prompts, and closes it. `QueryOptions` are its keyword arguments as a type. `Turn` is one
    prompt and its answer. `SyncQuery` and `SyncTurn` do the same for programs without an event loop. `CloseReport`, `InterruptOutcome` and
    `ResumePoint` are what their methods return.
Callbacks: `Allow` and `Deny` answer `can_use_tool`. `HookMatcher` registers hook callbacks. `CallbackContext` is what each callback
    receives.
Subagents: `split_by_parent` gives `Lanes`: one `Lane` of messages for the main conversation and one for each subagent.
Tools: `tool` makes a tool of an async function, an `SdkMcpTool`; `create_sdk_mcp_server` makes an `SdkMcpServer` of several.
Stalls: `Watchdog` says after how many silent seconds a `StallEvent` is reported.

The messages are in `claude_transport.messages`, the answers of the CLI in `claude_transport.control`, hooks in `claude_transport.hooks`.
"""

from __future__ import annotations

from claude_transport.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "client.blocking": "SyncQuery SyncTurn",
        "client.lanes": "Lane Lanes split_by_parent",
        "client.query": "Query QueryOptions",
        "client.questions": "Allow CallbackContext Deny HookMatcher",
        "client.reports": "CloseReport ResumePoint",
        "exchange.outcomes": "InterruptOutcome",
        "client.storage": "Turn",
        "client.tools": "SdkMcpServer SdkMcpTool create_sdk_mcp_server tool",
        "client.watchdog": "StallEvent Watchdog",
    },
)
