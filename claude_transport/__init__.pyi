# Written by docs/generate_names.py from the table in __init__.py: do not edit.

from claude_transport import backoff as backoff
from claude_transport import bridge as bridge
from claude_transport import client as client
from claude_transport import codex as codex
from claude_transport import completion as completion
from claude_transport import control as control
from claude_transport import errors as errors
from claude_transport import gateway as gateway
from claude_transport import hooks as hooks
from claude_transport import inspection as inspection
from claude_transport import interop as interop
from claude_transport import jsonrpc as jsonrpc
from claude_transport import launch as launch
from claude_transport import messages as messages
from claude_transport import observing as observing
from claude_transport import pool as pool
from claude_transport import testing as testing
from claude_transport import transports as transports
from claude_transport import wire as wire
from claude_transport import wrappers as wrappers
from claude_transport.backoff import RetryPolicy as RetryPolicy
from claude_transport.client.query import Query as Query
from claude_transport.client.questions import Allow as Allow
from claude_transport.client.questions import Deny as Deny
from claude_transport.client.questions import HookMatcher as HookMatcher
from claude_transport.client.reports import CloseReport as CloseReport
from claude_transport.client.storage import Turn as Turn
from claude_transport.completion.call import complete as complete
from claude_transport.completion.call import stream as stream
from claude_transport.completion.completion import Completion as Completion
from claude_transport.completion.one_shot import query as query
from claude_transport.completion.readiness import PreflightReport as PreflightReport
from claude_transport.completion.readiness import preflight as preflight
from claude_transport.completion.resolution import Resolution as Resolution
from claude_transport.completion.resolution import resolve_agent as resolve_agent
from claude_transport.completion.resolution import resolve_transport as resolve_transport
from claude_transport.errors import AuthFailed as AuthFailed
from claude_transport.errors import AuthenticationError as AuthenticationError
from claude_transport.errors import Busy as Busy
from claude_transport.errors import CLIConnectionError as CLIConnectionError
from claude_transport.errors import CLIJSONDecodeError as CLIJSONDecodeError
from claude_transport.errors import CLINotFoundError as CLINotFoundError
from claude_transport.errors import ClaudeTransportError as ClaudeTransportError
from claude_transport.errors import ConfigurationError as ConfigurationError
from claude_transport.errors import ConnectTimeout as ConnectTimeout
from claude_transport.errors import ConnectionLost as ConnectionLost
from claude_transport.errors import ControlError as ControlError
from claude_transport.errors import ControlRequestFailed as ControlRequestFailed
from claude_transport.errors import ControlTimeout as ControlTimeout
from claude_transport.errors import InputClosed as InputClosed
from claude_transport.errors import JSONRPCError as JSONRPCError
from claude_transport.errors import LineTooLong as LineTooLong
from claude_transport.errors import MissingResult as MissingResult
from claude_transport.errors import NotConnected as NotConnected
from claude_transport.errors import OutcomeUncertain as OutcomeUncertain
from claude_transport.errors import Overloaded as Overloaded
from claude_transport.errors import ProcessError as ProcessError
from claude_transport.errors import ProtocolError as ProtocolError
from claude_transport.errors import RateLimited as RateLimited
from claude_transport.errors import ReplayGap as ReplayGap
from claude_transport.errors import ResultError as ResultError
from claude_transport.errors import SpawnError as SpawnError
from claude_transport.errors import StructuredOutputMissing as StructuredOutputMissing
from claude_transport.errors import TransportClosed as TransportClosed
from claude_transport.errors import TruncatedStream as TruncatedStream
from claude_transport.errors import UsageError as UsageError
from claude_transport.exchange.outcomes import InterruptOutcome as InterruptOutcome
from claude_transport.gateway.gateway import Gateway as Gateway
from claude_transport.gateway.service import serve as serve
from claude_transport.jsonrpc import JSONRPCPeer as JSONRPCPeer
from claude_transport.launch.argv import build_argv as build_argv
from claude_transport.launch.discovery import CLI as CLI
from claude_transport.launch.discovery import find_cli as find_cli
from claude_transport.launch.environ import build_environment as build_environment
from claude_transport.launch.environ import describe_environment as describe_environment
from claude_transport.launch.launcher import Launcher as Launcher
from claude_transport.launch.options import BillingPolicy as BillingPolicy
from claude_transport.launch.options import ClaudeOptions as ClaudeOptions
from claude_transport.launch.rules import split_rules as split_rules
from claude_transport.observing.observers import observe as observe
from claude_transport.pool.pool import SessionPool as SessionPool
from claude_transport.protocol.blocks import TextBlock as TextBlock
from claude_transport.protocol.blocks import ThinkingBlock as ThinkingBlock
from claude_transport.protocol.blocks import ToolResultBlock as ToolResultBlock
from claude_transport.protocol.blocks import ToolUseBlock as ToolUseBlock
from claude_transport.protocol.blocks import UnknownBlock as UnknownBlock
from claude_transport.protocol.codec import decode_message as decode_message
from claude_transport.protocol.conversation import TurnState as TurnState
from claude_transport.protocol.diagnosis import Outcome as Outcome
from claude_transport.protocol.envelope import DecodeFailure as DecodeFailure
from claude_transport.protocol.envelope import Message as Message
from claude_transport.protocol.envelope import OversizedMessage as OversizedMessage
from claude_transport.protocol.envelope import UnknownMessage as UnknownMessage
from claude_transport.protocol.envelope import encode_message as encode_message
from claude_transport.protocol.messages import AssistantMessage as AssistantMessage
from claude_transport.protocol.messages import CommandLifecycle as CommandLifecycle
from claude_transport.protocol.messages import ConversationReset as ConversationReset
from claude_transport.protocol.messages import RateLimitEvent as RateLimitEvent
from claude_transport.protocol.messages import ResultMessage as ResultMessage
from claude_transport.protocol.messages import StreamEvent as StreamEvent
from claude_transport.protocol.messages import SystemMessage as SystemMessage
from claude_transport.protocol.messages import ToolProgress as ToolProgress
from claude_transport.protocol.messages import UserMessage as UserMessage
from claude_transport.transport import Transport as Transport
from claude_transport.transport import TransportInfo as TransportInfo
from claude_transport.transport import TransportLike as TransportLike
from claude_transport.transports.mock import MockTransport as MockTransport
from claude_transport.transports.network import NetworkTransport as NetworkTransport
from claude_transport.transports.opening import open_transport as open_transport
from claude_transport.transports.replay import ReplayTransport as ReplayTransport
from claude_transport.transports.stream import StreamTransport as StreamTransport
from claude_transport.transports.subprocess import SubprocessTransport as SubprocessTransport
from claude_transport.wrappers.base import TransportWrapper as TransportWrapper
from claude_transport.wrappers.faulty import FaultyTransport as FaultyTransport
from claude_transport.wrappers.logging import LoggingTransport as LoggingTransport
from claude_transport.wrappers.metrics import MetricsTransport as MetricsTransport
from claude_transport.wrappers.recording import RecordingTransport as RecordingTransport
from claude_transport.wrappers.retrying import RetryingTransport as RetryingTransport
from claude_transport.wrappers.stateful import StatefulTransport as StatefulTransport
from claude_transport.wrappers.stateful import TransportState as TransportState
from claude_transport.wrappers.tracing import TracingTransport as TracingTransport

__all__ = [
    "CLI",
    "Allow",
    "AssistantMessage",
    "AuthFailed",
    "AuthenticationError",
    "BillingPolicy",
    "Busy",
    "CLIConnectionError",
    "CLIJSONDecodeError",
    "CLINotFoundError",
    "ClaudeOptions",
    "ClaudeTransportError",
    "CloseReport",
    "CommandLifecycle",
    "Completion",
    "ConfigurationError",
    "ConnectTimeout",
    "ConnectionLost",
    "ControlError",
    "ControlRequestFailed",
    "ControlTimeout",
    "ConversationReset",
    "DecodeFailure",
    "Deny",
    "FaultyTransport",
    "Gateway",
    "HookMatcher",
    "InputClosed",
    "InterruptOutcome",
    "JSONRPCError",
    "JSONRPCPeer",
    "Launcher",
    "LineTooLong",
    "LoggingTransport",
    "Message",
    "MetricsTransport",
    "MissingResult",
    "MockTransport",
    "NetworkTransport",
    "NotConnected",
    "Outcome",
    "OutcomeUncertain",
    "Overloaded",
    "OversizedMessage",
    "PreflightReport",
    "ProcessError",
    "ProtocolError",
    "Query",
    "RateLimitEvent",
    "RateLimited",
    "RecordingTransport",
    "ReplayGap",
    "ReplayTransport",
    "Resolution",
    "ResultError",
    "ResultMessage",
    "RetryPolicy",
    "RetryingTransport",
    "SessionPool",
    "SpawnError",
    "StatefulTransport",
    "StreamEvent",
    "StreamTransport",
    "StructuredOutputMissing",
    "SubprocessTransport",
    "SystemMessage",
    "TextBlock",
    "ThinkingBlock",
    "ToolProgress",
    "ToolResultBlock",
    "ToolUseBlock",
    "TracingTransport",
    "Transport",
    "TransportClosed",
    "TransportInfo",
    "TransportLike",
    "TransportState",
    "TransportWrapper",
    "TruncatedStream",
    "Turn",
    "TurnState",
    "UnknownBlock",
    "UnknownMessage",
    "UsageError",
    "UserMessage",
    "build_argv",
    "build_environment",
    "complete",
    "decode_message",
    "describe_environment",
    "encode_message",
    "find_cli",
    "observe",
    "open_transport",
    "preflight",
    "query",
    "resolve_agent",
    "resolve_transport",
    "serve",
    "split_rules",
    "stream",
]

__version__: str
