# Written by docs/generate_names.py from the table in __init__.py: do not edit.

from claude_transport.completion.blocking import SyncCompletionStream as SyncCompletionStream
from claude_transport.completion.blocking import complete_sync as complete_sync
from claude_transport.completion.blocking import stream_sync as stream_sync
from claude_transport.completion.call import CompletionStream as CompletionStream
from claude_transport.completion.call import complete as complete
from claude_transport.completion.call import stream as stream
from claude_transport.completion.completion import Completion as Completion
from claude_transport.completion.completion import partial_completion as partial_completion
from claude_transport.completion.one_shot import OneShot as OneShot
from claude_transport.completion.one_shot import query as query
from claude_transport.completion.readiness import LoginStatus as LoginStatus
from claude_transport.completion.readiness import PreflightReport as PreflightReport
from claude_transport.completion.readiness import preflight as preflight
from claude_transport.completion.readiness import read_login_status as read_login_status
from claude_transport.completion.resolution import AgentResolution as AgentResolution
from claude_transport.completion.resolution import Resolution as Resolution
from claude_transport.completion.resolution import resolve_agent as resolve_agent
from claude_transport.completion.resolution import resolve_transport as resolve_transport

__all__ = [
    "AgentResolution",
    "Completion",
    "CompletionStream",
    "LoginStatus",
    "OneShot",
    "PreflightReport",
    "Resolution",
    "SyncCompletionStream",
    "complete",
    "complete_sync",
    "partial_completion",
    "preflight",
    "query",
    "read_login_status",
    "resolve_agent",
    "resolve_transport",
    "stream",
    "stream_sync",
]
