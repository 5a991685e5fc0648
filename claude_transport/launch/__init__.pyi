# Written by docs/generate_names.py from the table in __init__.py: do not edit.

from claude_transport.launch.argv import build_argv as build_argv
from claude_transport.launch.credentials import CredentialReport as CredentialReport
from claude_transport.launch.credentials import describe_credentials as describe_credentials
from claude_transport.launch.discovery import CLI as CLI
from claude_transport.launch.discovery import CLIChange as CLIChange
from claude_transport.launch.discovery import find_cli as find_cli
from claude_transport.launch.discovery import on_cli_change as on_cli_change
from claude_transport.launch.environ import build_environment as build_environment
from claude_transport.launch.environ import describe_environment as describe_environment
from claude_transport.launch.launch import Launch as Launch
from claude_transport.launch.launch import PlannedLaunch as PlannedLaunch
from claude_transport.launch.launch import build_launch as build_launch
from claude_transport.launch.launcher import Launcher as Launcher
from claude_transport.launch.options import BillingPolicy as BillingPolicy
from claude_transport.launch.options import ClaudeOptions as ClaudeOptions
from claude_transport.launch.options import EnvironmentMode as EnvironmentMode
from claude_transport.launch.options import PermissionMode as PermissionMode
from claude_transport.launch.rules import split_rules as split_rules

__all__ = [
    "CLI",
    "BillingPolicy",
    "CLIChange",
    "ClaudeOptions",
    "CredentialReport",
    "EnvironmentMode",
    "Launch",
    "Launcher",
    "PermissionMode",
    "PlannedLaunch",
    "build_argv",
    "build_environment",
    "build_launch",
    "describe_credentials",
    "describe_environment",
    "find_cli",
    "on_cli_change",
    "split_rules",
]
