"""Sessions that were stored: list them, read them, rename, tag, fork and delete them, and copy them into a store.

The functions have the names, the arguments and the results of the official SDK. Those that work on the files of the CLI are synchronous;
those that speak to a store are `async`. `docs/reference/sessions.md` lists each difference, with its reason.
"""

from __future__ import annotations

from claude_transport.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "launch.session_store": "SessionKey SessionListSubkeysKey SessionStore SessionStoreEntry SessionStoreListEntry "
        "SessionSummaryEntry SharedSessionStore",
        "sessions.changing": "ForkSessionResult delete_session fork_session rename_session tag_session",
        "sessions.file_store": "FileSessionStore",
        "sessions.from_store": "delete_session_via_store fork_session_via_store get_session_info_from_store "
        "get_session_messages_from_store get_subagent_messages_from_store list_sessions_from_store list_subagents_from_store "
        "rename_session_via_store tag_session_via_store",
        "sessions.importing": "import_session_to_store",
        "sessions.listing": "SDKSessionInfo get_session_info list_sessions",
        "sessions.memory_store": "InMemorySessionStore",
        "sessions.opening": "open_session_store",
        "sessions.places": "project_key_for_directory",
        "sessions.reading": "SessionMessage get_session_messages get_subagent_messages list_subagents",
        "sessions.redis_store": "RedisSessionStore",
        "sessions.sqlite_store": "SQLiteSessionStore",
        "sessions.summaries": "fold_session_summary",
    },
)
