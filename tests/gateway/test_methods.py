"""The pages of a gateway are read with GET and HEAD. Any other method gets 405, on its own listeners and inside an ASGI server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from rehearsal import ALICE
from test_mounted_observers import Exchange
from test_observers import Scene, scene

from claude_transport.gateway.asgi import GatewayApplication

METHODS = ("POST", "PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "BREW", "get")
PAGES = ("/healthz", "/metrics", "/observe", "/observe/ID", "/observe/ID/events", "/observe/ID/timeline")
ALLOW = "GET, HEAD, OPTIONS"

Answer = tuple[int, dict[str, str], str]
Ask = Callable[..., Awaitable[Answer]]


async def on_a_socket(stage: Scene, method: str, path: str, *, body: str = "", **headers: str) -> Answer:
    """Send one request to the gateway's own listener, and read until it hangs up."""
    host, _, port = stage.url.removeprefix("ws://").rstrip("/").rpartition(":")
    told = {"host": "localhost", "authorization": f"Bearer {ALICE}", **({"content-length": str(len(body))} if body else {}), **headers}
    lines = [f"{method} {path.replace('ID', stage.session)} HTTP/1.1", *(f"{name}: {value}" for name, value in told.items()), "", body]
    answer = b""
    async with await anyio.connect_tcp(host, int(port)) as stream:
        await stream.send("\r\n".join(lines).encode())
        with anyio.fail_after(30):
            try:
                while True:
                    answer += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                pass
    head, _, text = answer.decode().partition("\r\n\r\n")
    first, *rest = head.split("\r\n")
    return int(first.split()[1]), {name.lower(): value for name, value in (line.split(": ", 1) for line in rest)}, text


async def when_mounted(stage: Scene, method: str, path: str, *, body: str = "", **headers: str) -> Answer:
    """Send one request to the gateway inside an ASGI server, which does not wait for the body."""
    asked = Exchange(path.replace("ID", stage.session), **{"authorization": f"Bearer {ALICE}", **headers})
    asked.scope["method"] = method
    with anyio.fail_after(30):
        await GatewayApplication(stage.gateway)(asked.scope, asked.receive, asked.send)
    assert asked.over
    return asked.status, asked.headers, asked.body.decode()


BOTH = pytest.mark.parametrize("ask", [on_a_socket, when_mounted], ids=["socket", "mounted"])


def refused(stage: Scene) -> int:
    return stage.gateway.metrics.refused["method"]


@BOTH
async def test_every_page_answers_405_to_a_method_that_changes_something_and_says_which_are_allowed(ask: Any) -> None:
    async with scene(observable=True) as stage:
        for path in PAGES:
            for method in METHODS:
                status, headers, text = await ask(stage, method, path, body="x=1")
                assert (method, path, status, headers.get("allow")) == (method, path, 405, ALLOW)
                assert text == f"{method} is not answered here: use one of {ALLOW}\n"
        assert refused(stage) == len(PAGES) * len(METHODS)


@BOTH
async def test_head_answers_as_get_does_and_without_the_body(ask: Any) -> None:
    async with scene(observable=True) as stage:
        for path in PAGES[:4]:
            status, headers, text = await ask(stage, "GET", path)
            assert status == 200
            assert int(headers["content-length"]) == len(text.encode())
            got = await ask(stage, "HEAD", path)
            assert (got[0], _fixed(got), got[2]) == (200, _fixed((status, headers, text)), "")
            assert got[1].keys() == headers.keys()
            assert int(got[1]["content-length"]) > 0
        for path in PAGES[4:]:
            status, headers, text = await ask(stage, "HEAD", path)
            assert (status, headers["content-type"], text) == (200, "text/event-stream; charset=utf-8", "")
            assert "content-length" not in headers
        assert (await ask(stage, "HEAD", PAGES[4], authorization="Bearer not-a-token-of-this-gateway"))[::2] == (401, "")
        assert (await ask(stage, "HEAD", "/other"))[::2] == (404, "")


def _fixed(answer: Answer) -> dict[str, str]:
    """The headers of an answer without the two that change by themselves: the date, and the length of the page of counters."""
    return {name: value for name, value in answer[1].items() if name not in {"date", "content-length"}}


@BOTH
async def test_options_says_which_methods_are_allowed_and_needs_no_token(ask: Any) -> None:
    async with scene(observable=True) as stage:
        for path in PAGES:
            status, headers, text = await ask(stage, "OPTIONS", path, authorization="")
            assert (path, status, headers["allow"], text) == (path, 200, ALLOW, "")
        assert refused(stage) == 0


@BOTH
async def test_a_method_does_not_open_what_a_host_name_or_a_path_closes(ask: Any) -> None:
    async with scene(observable=True) as stage:
        for method in ("POST", "OPTIONS", "HEAD"):
            for path in PAGES:
                assert (await ask(stage, method, path, host="evil.example"))[0] == 421
            assert (await ask(stage, method, "/other"))[0] == 404


async def test_a_websocket_is_opened_with_get_only() -> None:
    upgrade = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    async with scene() as stage:
        status, headers, text = await on_a_socket(stage, "POST", "/", **upgrade)
        assert (status, headers["allow"], text) == (405, "GET", "A WebSocket is opened with GET.\n")
        assert (await on_a_socket(stage, "POST", "/", authorization="Bearer not-a-token-of-this-gateway"))[0] == 401
