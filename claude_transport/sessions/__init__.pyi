# Written by docs/generate_names.py from the table in __init__.py: do not edit.

from claude_transport.sessions.changing import ForkSessionResult as ForkSessionResult
from claude_transport.sessions.changing import delete_session as delete_session
from claude_transport.sessions.changing import fork_session as fork_session
from claude_transport.sessions.changing import rename_session as rename_session
from claude_transport.sessions.changing import tag_session as tag_session
from claude_transport.sessions.importing import import_session_to_store as import_session_to_store
from claude_transport.sessions.listing import SDKSessionInfo as SDKSessionInfo
from claude_transport.sessions.listing import get_session_info as get_session_info
from claude_transport.sessions.listing import list_sessions as list_sessions
from claude_transport.sessions.places import project_key_for_directory as project_key_for_directory
from claude_transport.sessions.reading import SessionMessage as SessionMessage
from claude_transport.sessions.reading import get_session_messages as get_session_messages
from claude_transport.sessions.reading import get_subagent_messages as get_subagent_messages
from claude_transport.sessions.reading import list_subagents as list_subagents

__all__ = [
    "ForkSessionResult",
    "SDKSessionInfo",
    "SessionMessage",
    "delete_session",
    "fork_session",
    "get_session_info",
    "get_session_messages",
    "get_subagent_messages",
    "import_session_to_store",
    "list_sessions",
    "list_subagents",
    "project_key_for_directory",
    "rename_session",
    "tag_session",
]
