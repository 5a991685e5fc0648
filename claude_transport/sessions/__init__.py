"""Sessions that were stored: list them, read them, rename, tag, fork and delete them, and copy them into a store.

The functions have the names, the arguments and the results of the official SDK. Those that work on the files of the CLI are synchronous;
those that speak to a store are `async`. `docs/reference/sessions.md` lists each difference, with its reason.
"""

from __future__ import annotations

from claude_transport.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "sessions.changing": "ForkSessionResult delete_session fork_session rename_session tag_session",
        "sessions.importing": "import_session_to_store",
        "sessions.listing": "SDKSessionInfo get_session_info list_sessions",
        "sessions.places": "project_key_for_directory",
        "sessions.reading": "SessionMessage get_session_messages get_subagent_messages list_subagents",
    },
)
