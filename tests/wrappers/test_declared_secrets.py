"""A transport declares what a redactor has to know of it, and wrappers hand that on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import claude_transport as ct
from claude_transport.transport import Confidential
from claude_transport.wrappers import LoggingTransport, RetryingTransport, redactor_for
from claude_transport.wrappers.base import TransportWrapper

SECRET = "zaphod-beeblebrox-42"


class WithToken(ct.MockTransport):
    """An own transport that holds a token and options."""

    @property
    def confidential(self) -> Confidential:
        return Confidential(ct.ClaudeOptions(env={"ACME_TOKEN": SECRET}), ({"password": "slartibartfast-9"},))


def clean(transport: ct.TransportLike, text: str) -> str:
    return redactor_for(transport).text(text)


def test_what_a_transport_declares_is_removed_below_any_number_of_wrappers() -> None:
    transport: ct.TransportLike = WithToken()
    for _ in range(40):
        transport = LoggingTransport(transport)
    shown = clean(transport, f"{SECRET} and slartibartfast-9")
    assert SECRET not in shown
    assert "slartibartfast-9" not in shown


def test_a_wrapper_adds_secrets_of_its_own() -> None:
    class Signing(TransportWrapper):
        @property
        def confidential(self) -> Confidential:
            inside = super().confidential
            return inside._replace(values=(*inside.values, {"signing_key": "ford-prefect-7"}))

    shown = clean(RetryingTransport(Signing(WithToken())), f"{SECRET} and ford-prefect-7")
    assert SECRET not in shown
    assert "ford-prefect-7" not in shown


def test_a_network_transport_declares_its_token_and_its_options() -> None:
    options = {"env": {"ACME_TOKEN": SECRET}}
    shown = clean(ct.NetworkTransport("wss://gateway.example", token="marvin-the-android", options=options), f"{SECRET} marvin-the-android")
    assert SECRET not in shown
    assert "marvin-the-android" not in shown


def test_a_foreign_transport_is_not_asked() -> None:
    class Foreign:
        async def connect(self) -> None: ...
        async def write(self, data: str) -> None: ...
        async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
            yield {}

        async def end_input(self) -> None: ...
        async def close(self) -> None: ...
        def is_ready(self) -> bool:
            return True

        @property
        def options(self) -> object:
            raise AssertionError("nobody asks for this")

        confidential = transport = options

    assert clean(LoggingTransport(Foreign()), "nothing secret") == "nothing secret"


def test_a_stack_finds_its_layers() -> None:
    inside = ct.MockTransport()
    state = LoggingTransport(inside)
    stack = RetryingTransport(state)
    assert stack.find(LoggingTransport) is state
    assert stack.find(RetryingTransport) is stack
    assert state.find(RetryingTransport) is None
    assert stack.innermost is inside
    assert state.innermost is inside
