"""What type checkers know of the bridges to the official SDK: read by mypy and pyright, run by nobody."""

from __future__ import annotations

from typing import assert_type

import claude_agent_sdk as sdk

import claude_transport as ct
from claude_transport.interop.agent_sdk import AdaptedTransport, MovedOptions, adapt, official_error, options_from, transport_from


def used_with(transport: ct.SubprocessTransport, options: sdk.ClaudeAgentOptions) -> None:
    adapted = adapt(transport, options=options)
    assert_type(adapted, AdaptedTransport)
    assert_type(adapted.info, ct.TransportInfo)
    sdk.query(prompt="Hi", transport=adapted)
    sdk.ClaudeSDKClient(options, transport=transport_from(options))
    assert_type(official_error(ct.ConnectionLost("cut")), sdk.ClaudeSDKError)


def moved(options: sdk.ClaudeAgentOptions) -> None:
    found = options_from(options)
    assert_type(found, MovedOptions)
    assert_type(found.options, ct.ClaudeOptions)
    assert_type(found.query_options, ct.client.QueryOptions)
    assert_type(found.open_query(), ct.Query)
    ct.Query(ct.SubprocessTransport(found.options, **found.transport_options), **found.query_options)
