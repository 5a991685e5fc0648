"""Bridges to other libraries. `agent_sdk` is for the official `claude_agent_sdk`. Each library is imported when it is used."""
