"""What is no transport is refused where it is given, by every wrapper and by everything else that takes one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from test_laws import WRAPPERS, discovered

import claude_transport as ct
from claude_transport.codex import CodexPool, CodexSession
from claude_transport.gateway.gateway import Gateway
from claude_transport.interop.agent_sdk import adapt
from claude_transport.observing.observers import observe
from claude_transport.transport import Client


class Half:
    """Has three of the six methods."""

    async def connect(self) -> None: ...
    async def write(self, data: str) -> None: ...
    async def close(self) -> None: ...


NO_TRANSPORTS: list[tuple[object, str]] = [
    (None, "None"),
    ("claude", "str, which has no connect, write, read_messages, end_input, close, is_ready"),
    (ct.ClaudeOptions(), "ClaudeOptions, which has no connect, write, read_messages, end_input, close, is_ready"),
    (ct.SubprocessTransport, "the class SubprocessTransport: pass an instance"),
    (Half(), "Half, which has no read_messages, end_input, is_ready"),
    (ct.MockTransport, "the class MockTransport: pass an instance"),
]
OTHERS: dict[str, Callable[[Any], object]] = {
    "Query": ct.Query,
    "JSONRPCPeer": ct.JSONRPCPeer,
    "CodexSession": CodexSession,
    "adapt": adapt,
    "observe": functools.partial(observe, session="s1"),
}
TAKES_FACTORIES = {"FailoverTransport"}
"""It makes its transports itself. What a function returns that is none is refused in test_failover.py."""
each_no_transport = pytest.mark.parametrize(("given", "shown"), NO_TRANSPORTS, ids=[shown.partition(",")[0] for _, shown in NO_TRANSPORTS])


@pytest.mark.parametrize(
    ("name", "given", "shown"),
    # a text is an address for `observe`
    [
        (name, *each)
        for name in (*WRAPPERS, *OTHERS)
        if name not in TAKES_FACTORIES
        for each in NO_TRANSPORTS
        if (name, each[0]) != ("observe", "claude")
    ],
)
def test_it_is_refused_by_name(name: str, given: object, shown: str) -> None:
    make = OTHERS.get(name) or WRAPPERS[name]
    with pytest.raises(ct.ConfigurationError) as caught:
        make(given)
    assert (caught.value.code, caught.value.option) == ("config.invalid", "transport")
    assert str(caught.value) == f"{name}: transport must be a Transport, not {shown}"


@pytest.mark.parametrize("each", [*discovered()], ids=lambda each: str(each.__name__))
def test_every_wrapper_takes_the_transport_first_under_that_name(each: type) -> None:
    first = next(iter(inspect.signature(each).parameters))
    assert first == ("factories" if each.__name__ in TAKES_FACTORIES else "transport")


def test_a_wrapper_of_the_user_is_named() -> None:
    class Counting(ct.wrappers.ObservingWrapper):
        pass

    with pytest.raises(ct.ConfigurationError, match=r"^Counting: transport must be a Transport, not None$"):
        Counting(None)  # type: ignore[arg-type]


@each_no_transport
async def test_a_factory_that_returns_none_is_refused_when_its_pool_starts_a_session(given: object, shown: str) -> None:
    def make(_options: object) -> Any:
        return given

    pools: dict[str, Any] = {"SessionPool": ct.SessionPool, "CodexPool": CodexPool}
    for name, pool in pools.items():
        with anyio.fail_after(30):
            async with pool(make_transport=make, warm=1) as warm:
                with pytest.raises(ct.ConfigurationError) as caught:
                    await warm.warm_up()
        assert caught.value.option == "make_transport"
        assert str(caught.value) == f"{name}: make_transport must return a Transport, not {shown}"


class Forgetful(ct.TransportWrapper):
    def attach(self, client: Client) -> Any:
        super().attach(client)


class Wrong(ct.TransportWrapper):
    def attach(self, client: Client) -> Any:
        return {"client": client}


@pytest.mark.parametrize("outside", [lambda transport: transport, ct.LoggingTransport], ids=["alone", "wrapped"])
@pytest.mark.parametrize(("wrapper", "shown"), [(Forgetful, "None"), (Wrong, "dict")])
async def test_terms_that_attach_has_not_returned_are_missed_by_name(outside: Any, wrapper: Any, shown: str) -> None:
    with anyio.fail_after(30), pytest.raises(ct.UsageError) as caught:
        await ct.Query(outside(wrapper(ct.MockTransport()))).start()
    assert str(caught.value) == f"{wrapper.__name__}.attach() returned {shown}, not SessionTerms"


class Refusing(ct.TransportWrapper):
    async def connect(self) -> None:
        raise KeyError("a defect of the operator's wrapper")


@pytest.mark.parametrize(
    ("launch", "code"),
    [(lambda _options: None, "config.invalid"), (lambda _options: Refusing(ct.MockTransport()), "transport.failed")],
    ids=["no transport", "a defect"],
)
async def test_a_gateway_tells_its_client_at_once(launch: Any, code: str, caplog: pytest.LogCaptureFixture) -> None:
    token = "t" * 32
    async with Gateway(launch=launch, listen=["tcp://127.0.0.1:0"], tokens={"alice": token}) as gateway:
        transport = ct.NetworkTransport(gateway.urls[0], token=token)
        with anyio.fail_after(30), pytest.raises(ct.CLIConnectionError, match=rf"could not be started \({code}\)"):
            await functools.partial(ct.Query(transport).start)()
    assert "could not be started for alice" in caplog.text
