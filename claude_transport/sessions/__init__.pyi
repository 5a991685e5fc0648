# Written by docs/generate_names.py from the table in __init__.py: do not edit.

from claude_transport.launch.session_store import SessionKey as SessionKey
from claude_transport.launch.session_store import SessionListSubkeysKey as SessionListSubkeysKey
from claude_transport.launch.session_store import SessionStore as SessionStore
from claude_transport.launch.session_store import SessionStoreEntry as SessionStoreEntry
from claude_transport.launch.session_store import SessionStoreListEntry as SessionStoreListEntry
from claude_transport.launch.session_store import SessionSummaryEntry as SessionSummaryEntry
from claude_transport.launch.session_store import SharedSessionStore as SharedSessionStore
from claude_transport.sessions.changing import ForkSessionResult as ForkSessionResult
from claude_transport.sessions.changing import delete_session as delete_session
from claude_transport.sessions.changing import fork_session as fork_session
from claude_transport.sessions.changing import rename_session as rename_session
from claude_transport.sessions.changing import tag_session as tag_session
from claude_transport.sessions.file_store import FileSessionStore as FileSessionStore
from claude_transport.sessions.from_store import delete_session_via_store as delete_session_via_store
from claude_transport.sessions.from_store import fork_session_via_store as fork_session_via_store
from claude_transport.sessions.from_store import get_session_info_from_store as get_session_info_from_store
from claude_transport.sessions.from_store import get_session_messages_from_store as get_session_messages_from_store
from claude_transport.sessions.from_store import get_subagent_messages_from_store as get_subagent_messages_from_store
from claude_transport.sessions.from_store import list_sessions_from_store as list_sessions_from_store
from claude_transport.sessions.from_store import list_subagents_from_store as list_subagents_from_store
from claude_transport.sessions.from_store import rename_session_via_store as rename_session_via_store
from claude_transport.sessions.from_store import tag_session_via_store as tag_session_via_store
from claude_transport.sessions.importing import import_session_to_store as import_session_to_store
from claude_transport.sessions.listing import SDKSessionInfo as SDKSessionInfo
from claude_transport.sessions.listing import get_session_info as get_session_info
from claude_transport.sessions.listing import list_sessions as list_sessions
from claude_transport.sessions.memory_store import InMemorySessionStore as InMemorySessionStore
from claude_transport.sessions.opening import open_session_store as open_session_store
from claude_transport.sessions.places import project_key_for_directory as project_key_for_directory
from claude_transport.sessions.reading import SessionMessage as SessionMessage
from claude_transport.sessions.reading import get_session_messages as get_session_messages
from claude_transport.sessions.reading import get_subagent_messages as get_subagent_messages
from claude_transport.sessions.reading import list_subagents as list_subagents
from claude_transport.sessions.redis_store import RedisSessionStore as RedisSessionStore
from claude_transport.sessions.sqlite_store import SQLiteSessionStore as SQLiteSessionStore
from claude_transport.sessions.summaries import fold_session_summary as fold_session_summary

__all__ = [
    "FileSessionStore",
    "ForkSessionResult",
    "InMemorySessionStore",
    "RedisSessionStore",
    "SDKSessionInfo",
    "SQLiteSessionStore",
    "SessionKey",
    "SessionListSubkeysKey",
    "SessionMessage",
    "SessionStore",
    "SessionStoreEntry",
    "SessionStoreListEntry",
    "SessionSummaryEntry",
    "SharedSessionStore",
    "delete_session",
    "delete_session_via_store",
    "fold_session_summary",
    "fork_session",
    "fork_session_via_store",
    "get_session_info",
    "get_session_info_from_store",
    "get_session_messages",
    "get_session_messages_from_store",
    "get_subagent_messages",
    "get_subagent_messages_from_store",
    "import_session_to_store",
    "list_sessions",
    "list_sessions_from_store",
    "list_subagents",
    "list_subagents_from_store",
    "open_session_store",
    "project_key_for_directory",
    "rename_session",
    "rename_session_via_store",
    "tag_session",
    "tag_session_via_store",
]
