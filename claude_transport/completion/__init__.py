"""One call: one prompt, one answer, through the CLI or through the Messages API.

Call: `complete` returns a `Completion`, and so does `complete_sync` in a program without an event loop. `stream` returns a
    `CompletionStream` of text; `stream_sync` returns a `SyncCompletionStream`. `partial_completion` gives what a failed call had.
Messages: `query` runs one conversation, and returns an `OneShot` to iterate over.
Choose: `resolve_transport` chooses the path, and explains it in a `Resolution`. `resolve_agent` chooses the agent, and explains it in an
    `AgentResolution`.
Check first: `preflight` checks what a call needs and returns a `PreflightReport`. `read_login_status` asks the CLI for its `LoginStatus`.
"""

from __future__ import annotations

from claude_transport.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "completion.blocking": "SyncCompletionStream complete_sync stream_sync",
        "completion.call": "CompletionStream complete stream",
        "completion.completion": "Completion partial_completion",
        "completion.one_shot": "OneShot query",
        "completion.readiness": "LoginStatus PreflightReport preflight read_login_status",
        "completion.resolution": "AgentResolution Resolution resolve_agent resolve_transport",
    },
)
