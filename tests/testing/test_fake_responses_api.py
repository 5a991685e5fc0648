"""`FakeResponsesAPI` over plain HTTP: what it was asked, and what it says."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http.client import IncompleteRead
from typing import Any

import anyio.to_thread
import pytest

from claude_transport.errors import ConfigurationError, UsageError
from claude_transport.testing import FakeResponsesAPI, replies

ASKED = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Say hello"}]}


def body(*items: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"model": "gpt-5.5", "stream": True, "input": [ASKED, *items], **fields}


async def ask(api: FakeResponsesAPI, content: object = None, *, path: str = "/v1/responses", method: str = "POST") -> tuple[int, bytes]:
    """The status and the body of the answer. A GET has no body."""
    data = None if method == "GET" else json.dumps(body() if content is None else content).encode()
    headers = {"authorization": "Bearer sk-fake", "content-type": "application/json"}

    def send() -> tuple[int, bytes]:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(urllib.request.Request(api.url + path, data, headers, method=method)) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    return await anyio.to_thread.run_sync(send)


async def events(api: FakeResponsesAPI, content: object = None) -> list[dict[str, Any]]:
    status, said = await ask(api, content)
    assert status == 200
    frames = [frame.split("\n") for frame in said.decode().split("\n\n") if frame]
    decoded = [json.loads(data.removeprefix("data: ")) for _, data in frames]
    assert [name.removeprefix("event: ") for name, _ in frames] == [event["type"] for event in decoded]
    return decoded


async def test_a_text_comes_in_deltas_and_then_whole_with_its_usage() -> None:
    usage = replies.Usage(input_tokens=100, output_tokens=7, cache_read_input_tokens=40, reasoning_output_tokens=2)
    async with FakeResponsesAPI(replies.text("Hello, world", chunks=["Hello", ", ", "world"], usage=usage)) as api:
        said = await events(api)
    kinds = [event["type"].removeprefix("response.") for event in said]
    assert kinds == ["created", "output_item.added", *["output_text.delta"] * 3, "output_item.done", "completed"]
    assert [event["delta"] for event in said if "delta" in event] == ["Hello", ", ", "world"]
    assert said[-2]["item"]["content"] == [{"type": "output_text", "text": "Hello, world", "annotations": []}]
    assert said[-1]["response"]["usage"] == {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 40},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 107,
    }


@pytest.mark.parametrize(
    ("reply", "item"),
    [
        (
            replies.exec_command("ls", yield_time_ms=5),
            {"type": "function_call", "name": "exec_command", "arguments": '{"cmd":"ls","yield_time_ms":5}'},
        ),
        (
            replies.tool_use("add", {"a": 1}, id="call_1"),
            {"type": "function_call", "name": "add", "arguments": '{"a":1}', "call_id": "call_1"},
        ),
        (replies.apply_patch("*** Begin Patch"), {"type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin Patch"}),
    ],
)
async def test_a_tool_call_is_an_item_of_its_own(reply: Any, item: dict[str, Any]) -> None:
    async with FakeResponsesAPI(reply) as api:
        said = await events(api)
    (done,) = [event["item"] for event in said if event["type"] == "response.output_item.done"]
    assert {key: done[key] for key in item} == item
    assert done["call_id"]


async def test_a_thought_is_the_summary_of_a_reasoning_item() -> None:
    async with FakeResponsesAPI(replies.exec_command("ls", thought="I look.")) as api:
        said = await events(api)
    deltas = [event["delta"] for event in said if event["type"] == "response.reasoning_summary_text.delta"]
    assert deltas == ["I look."]
    done = [event["item"]["type"] for event in said if event["type"] == "response.output_item.done"]
    assert done == ["reasoning", "function_call"]


@pytest.mark.parametrize(
    ("reply", "status", "error"),
    [
        (replies.error(400), 400, {"type": "invalid_request_error", "code": None}),
        (replies.error(401), 401, {"type": "invalid_request_error", "code": "invalid_api_key"}),
        (replies.error(429, headers={"retry-after": "1"}), 429, {"type": "requests", "code": "rate_limit_exceeded"}),
        (replies.error(500), 500, {"type": "server_error", "code": None}),
        (replies.error(418), 418, {"type": "invalid_request_error", "message": "Scripted error."}),
        (replies.error(401, message="Mine."), 401, {"type": "invalid_request_error", "message": "Mine."}),
        (replies.error(400, message="Mine."), 400, {"type": "invalid_request_error", "message": "Mine."}),
        (
            replies.usage_limit(resets_at=1_800_000_000),
            429,
            {"type": "usage_limit_reached", "plan_type": "plus", "resets_at": 1_800_000_000, "message": "The usage limit has been reached"},
        ),
    ],
)
async def test_an_error_has_the_shape_of_this_api(reply: replies.ErrorReply, status: int, error: dict[str, Any]) -> None:
    async with FakeResponsesAPI(reply) as api:
        got, said = await ask(api)
        assert got == status
        found = json.loads(said)["error"]
        assert {key: found[key] for key in error} == error


async def test_a_response_can_fail_in_the_middle() -> None:
    async with FakeResponsesAPI(replies.failed("context_length_exceeded", message="Too long.")) as api:
        said = await events(api)
    assert [event["type"] for event in said] == ["response.created", "response.failed"]
    assert said[-1]["response"]["error"] == {"code": "context_length_exceeded", "message": "Too long."}


async def test_a_stream_can_be_cut() -> None:
    async with FakeResponsesAPI(replies.cut(replies.text("Hello, world", chunks=3), after_events=3)) as api:
        with pytest.raises((IncompleteRead, ConnectionError)):
            await ask(api)
        await api.wait_until(lambda: [request.outcome for request in api.requests] == ["cut"], what="the cut")


async def test_the_prompt_and_the_results_of_tools_are_read_from_the_history() -> None:
    call = {"type": "function_call", "call_id": "1", "name": "exec_command", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "1", "output": "out"}
    machine = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "About the machine"}]}
    script = {"hello": [replies.exec_command("ls"), "done"], "other": "no"}
    async with FakeResponsesAPI(script) as api:
        await events(api, body(machine))
        await events(api, body(call, result))
        first, second = await api.wait_for_requests(2)
    assert (first.prompt, first.tool_results, second.prompt, second.tool_results) == ("Say hello", [], "Say hello", [result])
    assert (first.kind, first.model, first.credential, first.stream) == ("conversation", "gpt-5.5", "authorization", True)
    assert api.conversation == api.requests


async def test_a_request_without_a_stream_gets_one_answer() -> None:
    async with FakeResponsesAPI(["Hello", replies.failed("x", message="No.")]) as api:
        status, said = await ask(api, body(stream=False))
        assert (status, json.loads(said)["output"][0]["content"][0]["text"]) == (200, "Hello")
        assert (await ask(api, {"model": "m", "input": "Hi"}))[0] == 500
        assert api.requests[1].prompt == "Hi"


async def test_other_requests_are_told_apart() -> None:
    async with FakeResponsesAPI() as api:
        assert (await ask(api, path="/v1/models", method="GET"))[0] == 200
        assert (await ask(api, path="/", method="GET"))[0] == 200
        assert (await ask(api, path="/v1/responses", method="GET"))[0] == 404
        assert (await ask(api, [1]))[0] == 400
        assert (await ask(api, {"model": "m", "input": 5}))[0] == 400
        assert (await ask(api, {"model": "m", "input": [{"role": "user", "content": 5}, 7]}))[0] == 200
    assert [request.kind for request in api.requests] == ["models", "probe", "other", "malformed", "malformed", "conversation"]


async def test_a_gated_answer_waits_and_says_its_rest() -> None:
    said: list[list[dict[str, Any]]] = []
    async with FakeResponsesAPI(replies.gated("one two", chunks=["one ", "two"])) as api, anyio.create_task_group() as tasks:

        async def read() -> None:
            said.append(await events(api))

        tasks.start_soon(read)
        await api.wait_at_gate()
        assert said == []
        api.open_gate()
    assert [event["delta"] for event in said[0] if "delta" in event] == ["one ", "two"]


async def test_the_configuration_names_this_server_and_needs_a_started_one() -> None:
    api = FakeResponsesAPI()
    with pytest.raises(UsageError, match="the FakeResponsesAPI has no address yet"):
        api.configuration()
    async with api:
        settings = api.configuration(model="other")
        assert settings["model"] == "other"
        provider = settings[f"model_providers.{settings['model_provider']}"]
        assert provider["base_url"] == f"{api.url}/v1"
        assert api.environment()[provider["env_key"]]
    with pytest.raises(ConfigurationError):
        FakeResponsesAPI(5)  # type: ignore[arg-type]
