"""The fake Messages API plays its script, records what it is asked, and can be closed at any moment."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from anyio.abc import SocketStream

from claude_transport.errors import ConfigurationError, UsageError
from claude_transport.testing import FakeMessagesAPI, RecordedRequest, replies
from claude_transport.testing.fake_messages_api import Script, parse_request
from claude_transport.testing.http_server import HTTPRequest

CLI_AGENT = {"user-agent": "claude-cli/2.1.329 (external, sdk-cli)"}


def body(prompt: object = "Hi", **fields: Any) -> dict[str, Any]:
    return {"model": "claude-haiku-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": prompt}], **fields}


async def call(
    api: FakeMessagesAPI, method: str, path: str, *, headers: Mapping[str, str] | None = None, content: bytes = b"", **json: Any
) -> tuple[int, dict[str, Any]]:
    """Status and body of one HTTP/1.0 exchange (which ends with its connection: nothing to parse)."""
    content = msgspec.json.encode(json) if json else content
    lines = [
        f"{method} {path} HTTP/1.0",
        f"content-length: {len(content)}",
        *(f"{name}: {value}" for name, value in (headers or {}).items()),
    ]
    async with await connect(api) as stream:
        await stream.send("\r\n".join([*lines, "", ""]).encode() + content)
        said = b""
        try:
            while True:
                said += await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            pass
    head, _, answer = said.partition(b"\r\n\r\n")
    if not head:
        raise ConnectionError("hung up without an answer")
    text = answer.decode()
    return int(head.split()[1]), {"text": text} if b"event-stream" in head else msgspec.json.decode(text or "{}")


async def connect(api: FakeMessagesAPI) -> SocketStream:
    return await anyio.connect_tcp("127.0.0.1", int(api.url.rpartition(":")[2]))


async def ask(api: FakeMessagesAPI, prompt: object = "Hi", **fields: Any) -> str:
    """The text of the answer; a failure answers with its status."""
    status, message = await call(api, "POST", "/v1/messages", **body(prompt, **fields))
    return "".join(block["text"] for block in message["content"]) if status == 200 else str(status)


async def read_until(stream: SocketStream, wanted: bytes) -> bytes:
    said = b""
    while wanted not in said:
        said += await stream.receive()
    return said


def recorded(json: dict[str, Any], *, headers: dict[str, str] | None = None, path: str = "/v1/messages") -> RecordedRequest:
    request = HTTPRequest(method="POST", target=path, version="1.1", headers=headers or CLI_AGENT, body=msgspec.json.encode(json))
    return parse_request(request)


# --------------------------------------------------------------------------------------------------------------- scripts


async def test_a_sequence_is_used_in_order_and_then_the_default_answers() -> None:
    async with FakeMessagesAPI([replies.text("one", times=2), "two"], default="spent") as api:
        assert [await ask(api) for _ in range(5)] == ["one", "one", "two", "spent", "spent"]


async def test_a_single_reply_answers_every_request() -> None:
    async with FakeMessagesAPI("always") as api:
        assert [await ask(api) for _ in range(3)] == ["always"] * 3


async def test_a_router_picks_the_first_key_that_occurs_in_the_prompt() -> None:
    async with FakeMessagesAPI({"red": ["1st red", "2nd red"], "blue": "any blue"}, default="neither") as api:
        asked = [await ask(api, prompt) for prompt in ("dark red", "sky blue", "red and blue", "blue", "red", "green")]
    assert asked == ["1st red", "any blue", "2nd red", "any blue", "neither", "neither"]


async def test_a_function_sees_the_recorded_request() -> None:
    async with FakeMessagesAPI(lambda request: f"{request.model} was asked {request.prompt!r}") as api:
        assert await ask(api, "why?") == "claude-haiku-5-5 was asked 'why?'"


async def test_replacing_the_script_ends_a_reply_that_repeats() -> None:
    async with FakeMessagesAPI(replies.error(529)) as api:
        assert [await ask(api) for _ in range(4)] == ["529"] * 4
        api.replace("recovered")
        assert await ask(api) == "recovered"


async def test_a_failing_function_gives_the_client_a_500_and_its_exception_to_whoever_closes() -> None:
    def broken(request: RecordedRequest) -> str:
        raise LookupError(request.prompt)

    api = FakeMessagesAPI(broken)
    await api.start()
    assert await ask(api, "boom") == "500"
    with pytest.raises(LookupError, match="boom"):
        await api.aclose()
    await api.aclose()  # told once


@pytest.mark.parametrize(
    "make",
    [
        lambda: Script([replies.error(500), "hidden"]),
        lambda: Script(42),  # type: ignore[arg-type]
        lambda: Script([None]),  # type: ignore[list-item]
        lambda: Script([replies.text("x", times=0)]),
        lambda: replies.error(200),
        lambda: replies.text("abc", chunks=["a", "b"]),
        lambda: replies.text("abc", chunks=0),
    ],
)
def test_a_script_that_cannot_be_played_is_refused_when_it_is_written(make: Callable[[], object]) -> None:
    with pytest.raises(ConfigurationError):
        make()


# ------------------------------------------------------------------------------------------------- telling requests apart


@pytest.mark.parametrize(
    ("json", "kind", "purpose"),
    [
        (body("Say hello", context_management={}, tools=[{"name": "Bash"}]), "conversation", ""),
        (body("Say hello", context_management={}, tools=[]), "conversation", ""),
        (body("Say hello", context_management={}, output_config={"format": {}}), "conversation", ""),
        (body([{"type": "text", "text": "<session>x</session>"}], tools=[], output_config={"format": {}}), "side", "title"),
        (body("quota", max_tokens=1), "side", "quota"),
        (
            body([{"type": "text", "text": "<system-reminder>This is a side question from …"}, {"type": "text", "text": "?"}], tools=[{}]),
            "side",
            "side_question",
        ),
        (body("CRITICAL: Respond with TEXT ONLY. Do NOT call any tools."), "side", "compaction"),
        ({"model": "m", "messages": "no list"}, "malformed", ""),
        ({"messages": []}, "malformed", ""),
        ({"model": "m", "messages": [None, {"role": "user", "content": 7}, {"role": "user", "content": [3]}]}, "conversation", ""),
    ],
)
def test_side_requests_of_the_cli_are_told_from_the_conversation(json: dict[str, Any], kind: str, purpose: str) -> None:
    request = recorded(json)
    assert (request.kind, request.purpose) == (kind, purpose)


def test_other_clients_have_no_side_requests() -> None:
    assert recorded(body("quota", max_tokens=1), headers={"user-agent": "AsyncAnthropic/Python"}).kind == "conversation"


def test_the_prompt_is_the_last_text_the_user_wrote_whatever_the_cli_adds_around_it() -> None:
    reminder = {"type": "text", "text": "<system-reminder>\nbe good\n</system-reminder>"}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "42"}
    messages = [
        {"role": "user", "content": [reminder, {"type": "text", "text": "first"}, {"type": "text", "text": "second"}]},
        {"role": "assistant", "content": "ok"},
        {"role": "user", "content": [result, reminder]},
        {"role": "system", "content": "Today is Monday."},
    ]
    request = recorded({"model": "m", "messages": messages})
    assert request.prompt == "first\nsecond"
    assert request.tool_results == [result]


@pytest.mark.parametrize(
    ("headers", "credential"),
    [
        ({}, "none"),
        ({"x-api-key": "k"}, "x-api-key"),
        ({"authorization": "Bearer t"}, "authorization"),
        ({"x-api-key": "k", "authorization": "Bearer t"}, "both"),
    ],
)
def test_the_request_says_which_credential_arrived_and_never_shows_it(headers: dict[str, str], credential: str) -> None:
    request = recorded(body(), headers=headers)
    assert request.credential == credential
    assert "Bearer" not in repr(request)


async def test_side_requests_and_counting_leave_the_script_alone() -> None:
    async with FakeMessagesAPI(["the only one"]) as api:
        title = body("<session>x</session>", output_config={"format": {"type": "json_schema"}})
        _, named = await call(api, "POST", "/v1/messages?beta=true", headers=CLI_AGENT, **title)
        assert "title" in msgspec.json.decode(named["content"][0]["text"])
        _, counted = await call(api, "POST", "/v1/messages/count_tokens", **body("x" * 4000))
        assert 1000 <= counted["input_tokens"] <= 1100
        assert await call(api, "HEAD", "/api/hello") == (200, {})
        assert await call(api, "GET", "/") == (200, {})
        assert (await call(api, "GET", "/v1/models"))[1]["data"][0]["id"].startswith("claude-")
        assert (await call(api, "GET", "/v1/models/claude-haiku-5-5"))[1]["type"] == "model"
        assert (await call(api, "GET", "/v1/models/nobody"))[1]["error"]["type"] == "not_found_error"
        assert (await call(api, "GET", "/v1/nowhere"))[1]["error"]["type"] == "not_found_error"
        assert (await call(api, "POST", "/v1/messages", content=b'{"model": '))[1]["error"]["type"] == "invalid_request_error"
        assert await ask(api) == "the only one"
    kinds = [request.kind for request in api.requests]
    assert kinds == ["side", "count_tokens", "probe", "probe", "models", "models", "models", "other", "malformed", "conversation"]
    assert api.requests[0].query == "beta=true"
    assert len(api.conversation) == 1


async def test_a_side_script_answers_the_side_requests() -> None:
    async with FakeMessagesAPI(["main"], side=["aside"]) as api:
        _, answer = await call(api, "POST", "/v1/messages", headers=CLI_AGENT, **body("CRITICAL: Respond with TEXT ONLY"))
    assert answer["content"][0]["text"] == "aside"


# -------------------------------------------------------------------------------------------------------------- waiting


async def test_a_gated_reply_waits_until_the_gate_is_opened() -> None:
    streamed = msgspec.json.encode(body(stream=True))
    async with FakeMessagesAPI(replies.gated("before after", chunks=["before ", "after"])) as api:
        async with await connect(api) as stream:
            await stream.send(b"POST /v1/messages HTTP/1.0\r\ncontent-length: %d\r\n\r\n%s" % (len(streamed), streamed))
            said = await read_until(stream, b"before ")
            await api.wait_at_gate()
            assert b"after" not in said
            assert api.requests[0].outcome == "pending"
            api.open_gate()
            await read_until(stream, b"after")
            await api.wait_until(lambda: api.requests[0].outcome != "pending")
        api.close_gate()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, api)  # not streamed: the whole answer waits
            await api.wait_at_gate()
            api.open_gate()
    assert [request.outcome for request in api.requests] == ["cut", "answered"]  # HTTP/1.0: its end is the end of the connection


async def test_a_gate_before_the_first_chunk_holds_back_even_the_status_line() -> None:
    async with FakeMessagesAPI(replies.gated("late", after_chunks=0)) as api, anyio.create_task_group() as tasks:
        tasks.start_soon(ask, api, "first")
        await api.wait_for_requests(1)
        await api.wait_at_gate()
        api.open_gate()


async def test_a_client_that_leaves_a_waiting_reply_is_noticed_at_once() -> None:
    async with FakeMessagesAPI([replies.gated("never read"), "next"]) as api:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, api)
            await api.wait_at_gate()
            tasks.cancel_scope.cancel()
        await api.wait_until(lambda: api.requests[0].outcome == "client_gone")
        assert await ask(api) == "next"


async def test_waiting_for_what_does_not_come_says_what_was_seen() -> None:
    async with FakeMessagesAPI() as api:
        await ask(api, "only one")
        with pytest.raises(TimeoutError, match=r"2 conversation requests.*'only one'"):
            await api.wait_for_requests(2, timeout=0)
    with pytest.raises(UsageError, match="not running"):
        await api.wait_at_gate()


async def test_a_slow_reply_is_whole_in_the_end() -> None:
    async with FakeMessagesAPI(replies.slow("a b c d", delay=0.001, chunks=4)) as api:
        _, answer = await call(api, "POST", "/v1/messages", **body(stream=True))
    assert answer["text"].count("text_delta") == 4


# ------------------------------------------------------------------------------------------------- opening and closing


@pytest.mark.parametrize("reply", [replies.gated("x"), replies.slow("a b", delay=1000, chunks=2), replies.gated("x", after_chunks=0)])
@pytest.mark.parametrize("stream", [True, False])
async def test_closing_drops_replies_in_flight_at_once(reply: replies.Reply, stream: bool) -> None:
    api = FakeMessagesAPI(reply)

    whole = []

    async def hang() -> None:
        try:
            whole.append("message_stop" in str(await call(api, "POST", "/v1/messages", **body(stream=stream))))
        except ConnectionError:
            whole.append(False)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            await api.start()
            tasks.start_soon(hang)
            tasks.start_soon(hang)
            await api.wait_for_requests(2)
            await api.aclose()
    assert [request.outcome for request in api.requests] == ["stopped", "stopped"]
    assert whole == [False, False]


async def test_closing_leaves_no_open_socket_on_either_side() -> None:
    async with FakeMessagesAPI(replies.gated("x")) as api:
        idle = await connect(api)
        await idle.send(b"POST /v1/mess")
    async with idle:
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await idle.receive()
    with pytest.raises(OSError, match="onnect"):
        await connect(api)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc to count file descriptors")
async def test_closing_leaves_no_file_descriptor_even_for_a_moment() -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = descriptors()
    async with FakeMessagesAPI(replies.gated("x" * 10_000_000, chunks=1)) as api:
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(ask, api)
            await api.wait_for_requests(3)
            tasks.cancel_scope.cancel()
        idle = [await connect(api) for _ in range(3)]
        api.replace("served")
        await ask(api)
    for stream in idle:
        await stream.aclose()
    await anyio.wait_all_tasks_blocked()
    assert descriptors() <= before


async def test_it_may_be_started_in_one_task_and_closed_in_another() -> None:
    api = FakeMessagesAPI("hello")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(api.start)
    assert await ask(api) == "hello"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(api.aclose)
        tasks.start_soon(api.aclose)


async def test_leaving_by_cancellation_still_closes() -> None:
    api = FakeMessagesAPI()
    with anyio.CancelScope() as scope:
        async with api:
            scope.cancel()
            await anyio.sleep_forever()
    async with FakeMessagesAPI(port=int(api.url.rpartition(":")[2])) as again:  # the port is free
        assert await ask(again)


async def test_what_cannot_be_started_says_so() -> None:
    with pytest.raises(UsageError):
        _ = FakeMessagesAPI().url
    async with FakeMessagesAPI() as api:
        with pytest.raises(UsageError):
            await api.start()
        with pytest.raises(ConfigurationError, match="cannot listen"):
            await FakeMessagesAPI(port=int(api.url.rpartition(":")[2])).start()


async def test_the_environment_names_this_server_and_extras_win() -> None:
    async with FakeMessagesAPI() as api:
        environment = api.environment(ANTHROPIC_API_KEY="sk-ant-other", MORE="1")
    assert environment["ANTHROPIC_BASE_URL"] == api.url
    assert environment["ANTHROPIC_API_KEY"] == "sk-ant-other"
    assert environment["MORE"] == environment["DISABLE_TELEMETRY"] == "1"


async def test_the_fixture_is_a_running_api(fake_messages_api: FakeMessagesAPI) -> None:
    fake_messages_api.replace(["from the fixture"])
    assert await ask(fake_messages_api) == "from the fixture"


def test_importing_it_loads_neither_pytest_nor_anthropic() -> None:
    probe = (
        "import sys, claude_transport.testing.fake_messages_api; "
        "print([n for n in ('pytest', 'anthropic', 'trio', 'h11') if n in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", probe], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "[]"


async def test_without_h11_starting_it_names_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "claude_transport.testing.http_server", raising=False)
    monkeypatch.setitem(sys.modules, "h11", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'claude-transport\[testing\]'"):
        await FakeMessagesAPI().start()
