# Written by docs/generate_names.py from the table in __init__.py: do not edit.

from claude_transport.client.blocking import SyncQuery as SyncQuery
from claude_transport.client.blocking import SyncTurn as SyncTurn
from claude_transport.client.lanes import Lane as Lane
from claude_transport.client.lanes import Lanes as Lanes
from claude_transport.client.lanes import split_by_parent as split_by_parent
from claude_transport.client.query import Query as Query
from claude_transport.client.query import QueryOptions as QueryOptions
from claude_transport.client.questions import Allow as Allow
from claude_transport.client.questions import CallbackContext as CallbackContext
from claude_transport.client.questions import Deny as Deny
from claude_transport.client.questions import HookMatcher as HookMatcher
from claude_transport.client.reports import CloseReport as CloseReport
from claude_transport.client.reports import ResumePoint as ResumePoint
from claude_transport.client.storage import Turn as Turn
from claude_transport.client.tools import SdkMcpServer as SdkMcpServer
from claude_transport.client.tools import SdkMcpTool as SdkMcpTool
from claude_transport.client.tools import create_sdk_mcp_server as create_sdk_mcp_server
from claude_transport.client.tools import tool as tool
from claude_transport.client.watchdog import StallEvent as StallEvent
from claude_transport.client.watchdog import Watchdog as Watchdog
from claude_transport.exchange.outcomes import InterruptOutcome as InterruptOutcome

__all__ = [
    "Allow",
    "CallbackContext",
    "CloseReport",
    "Deny",
    "HookMatcher",
    "InterruptOutcome",
    "Lane",
    "Lanes",
    "Query",
    "QueryOptions",
    "ResumePoint",
    "SdkMcpServer",
    "SdkMcpTool",
    "StallEvent",
    "SyncQuery",
    "SyncTurn",
    "Turn",
    "Watchdog",
    "create_sdk_mcp_server",
    "split_by_parent",
    "tool",
]
