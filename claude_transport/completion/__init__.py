"""One call, two paths: the CLI or the API, chosen and paid for knowingly."""

from __future__ import annotations

from claude_transport.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "completion.complete": "CompletionStream complete stream",
        "completion.completion": "Completion partial_completion",
        "completion.preflight": "LoginStatus PreflightReport preflight read_login_status",
        "completion.resolution": "Resolution resolve_transport",
    },
)
