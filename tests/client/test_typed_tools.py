"""`tool` and `create_sdk_mcp_server`: schemas from types, and calls that go wrong are answers to the model, never errors of the session."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import claude_agent_sdk as sdk
import msgspec
import pytest
from mcp.types import ToolAnnotations
from mcp_peers import Cli
from peers import Frame

from claude_transport import Query
from claude_transport.client import SdkMcpTool, create_sdk_mcp_server, tool
from claude_transport.errors import ConfigurationError


class Order(TypedDict):
    fruit: Annotated[str, "which fruit"]
    pieces: int
    gift: NotRequired[bool]


class Parcel(msgspec.Struct):
    fruit: str
    pieces: int = 1


@tool("order", "Orders fruit", Order)
async def order(args: Order) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": f"{args['pieces']} {args['fruit']} {args.get('gift')}"}]}


@tool("parcel", "Sends fruit", Parcel)
async def parcel(given: Parcel) -> str:
    return f"{given.pieces} {given.fruit}"


@tool("add", "Adds", {"a": float, "b-b": Annotated[int, "the second"]})
async def add(args: dict[str, Any]) -> str:
    return str(args["a"] + args["b-b"])


@tool("strict", "A JSON schema", {"type": "object", "properties": {"n": {"type": "integer", "minimum": 3}}, "required": ["n"]})
async def strict(args: dict[str, Any]) -> str:
    return str(args)


@tool
async def stock(fruit: Annotated[str, "which fruit"], *, size: Literal["small", "large"] = "small", tags: list[str] | None = None) -> Any:
    """How much there is."""
    return {"fruit": fruit, "size": size, "tags": tags}


@tool("failing", "Fails", {})
async def failing(_args: dict[str, Any]) -> str:
    raise LookupError("no such shelf")


TOOLS = [order, parcel, add, strict, stock, failing]


async def listed(tools: list[Any], *, make: Callable[..., Any] = create_sdk_mcp_server) -> dict[str, Frame]:
    """What the CLI is told about these tools."""
    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": make("box", tools=tools)}):
        await cli.shake_hands()
        answer = await cli.reply(cli.say({"id": 1, "method": "tools/list"}))
    return {each["name"]: each for each in answer["result"]["tools"]}


async def call(name: str, arguments: Frame, *, tools: list[Any] = TOOLS, make: Any = create_sdk_mcp_server) -> tuple[bool, str]:
    """Whether a call failed, and what the model is told. The session must answer one more call after it."""
    cli = Cli()
    async with Query(cli.transport, mcp_servers={"box": make("box", tools=tools)}):
        await cli.shake_hands()
        answer = await cli.reply(cli.call(name, id=7, **arguments))
        await cli.reply(cli.say({"id": 8, "method": "tools/list"}))
    result = answer["result"]
    return bool(result.get("isError")), "".join(block.get("text", "") for block in result["content"])


async def test_schemas_come_from_types() -> None:
    schemas = {name: entry["inputSchema"] for name, entry in (await listed(TOOLS)).items()}
    assert schemas["order"]["properties"]["fruit"] == {"type": "string", "description": "which fruit"}
    assert sorted(schemas["order"]["required"]) == ["fruit", "pieces"]
    assert schemas["order"]["properties"]["gift"] == {"type": "boolean"}
    assert schemas["parcel"]["properties"]["pieces"] == {"type": "integer", "default": 1}
    assert schemas["add"]["properties"] == {"a": {"type": "number"}, "b-b": {"type": "integer", "description": "the second"}}
    assert schemas["add"]["required"] == ["a", "b-b"]
    assert schemas["strict"] == dict(strict.input_schema)  # type: ignore[call-overload]
    assert schemas["stock"]["properties"]["size"] == {"enum": ["large", "small"], "default": "small"}
    assert schemas["stock"]["required"] == ["fruit"]
    assert all(schema["type"] == "object" and "$ref" not in schema for schema in schemas.values())


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("order", {"fruit": "figs", "pieces": 2}, "2 figs None"),
        ("order", {"fruit": "figs", "pieces": 2, "gift": True, "more": 1}, "2 figs True"),
        ("parcel", {"fruit": "figs"}, "1 figs"),
        ("add", {"a": 1, "b-b": 2}, "3.0"),
        ("strict", {"n": 3}, "{'n': 3}"),
        ("stock", {"fruit": "figs", "tags": ["a"]}, '{"fruit":"figs","size":"small","tags":["a"]}'),
    ],
)
async def test_a_call_gets_its_arguments_in_the_types_that_were_asked_for(name: str, arguments: Frame, text: str) -> None:
    assert await call(name, arguments) == (False, text)


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("order", {"fruit": "figs"}, "Input validation error"),
        ("order", {"fruit": "figs", "pieces": "2"}, "Input validation error: Expected `int`"),
        ("parcel", {}, "Input validation error"),
        ("add", {"a": "1", "b-b": 2}, "Input validation error"),
        ("strict", {"n": 2}, "Input validation error: 2 is less than the minimum of 3"),
        ("strict", {}, "Input validation error: 'n' is a required property"),
        ("stock", {"fruit": "figs", "size": "huge"}, "Input validation error"),
        ("stock", {}, "Input validation error"),
        ("failing", {}, "no such shelf"),
        ("unknown", {}, "Tool 'unknown' not found"),
    ],
)
async def test_a_call_that_goes_wrong_is_answered_to_the_model_and_the_session_goes_on(name: str, arguments: Frame, told: str) -> None:
    failed, text = await call(name, arguments)
    assert failed
    assert text.startswith(told)


@pytest.mark.parametrize(
    ("returned", "outcome"),
    [
        (None, (False, "")),
        (3, (False, "3")),
        ({"content": [{"type": "text", "text": "a"}], "is_error": True}, (True, "a")),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], (False, "ab")),
        ({"content": [{"type": "resource_link", "name": "n", "uri": "file:///x"}]}, (False, "n\nfile:///x")),
        ({"content": [{"type": "resource", "resource": {"uri": "file:///x", "text": "t"}}, {"type": "odd"}]}, (False, "t")),
        ({"content": [{"type": "text"}]}, (True, None)),
        ({"content": ["no block"]}, (True, None)),
        pytest.param(object(), (True, None), id="no result"),
    ],
    ids=str,
)
async def test_what_a_tool_returns_is_a_result_or_a_failed_one(returned: Any, outcome: tuple[bool, str | None]) -> None:
    @tool("odd", "Returns what it likes", {})
    async def odd(_args: dict[str, Any]) -> Any:
        return returned

    failed, text = await call("odd", {}, tools=[odd])
    assert failed == outcome[0]
    assert outcome[1] is None or text == outcome[1]


async def test_hints_and_the_size_of_results_reach_the_cli() -> None:
    hints = {"readOnlyHint": True, "maxResultSizeChars": 500}
    mine = [
        SdkMcpTool(name, "d", {}, failing.handler, given) for name, given in (("a", hints), ("b", ToolAnnotations(read_only_hint=True)))
    ]
    told = await listed(mine)
    assert (told["a"]["annotations"], told["a"]["_meta"]) == ({"readOnlyHint": True}, {"anthropic/maxResultSizeChars": 500})
    assert told["b"]["annotations"] == {"readOnlyHint": True}


async def test_tools_of_the_official_sdk_work_here_and_these_work_there() -> None:
    @sdk.tool("theirs", "Theirs", {"n": int})
    async def theirs(args: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": str(args["n"] + 1)}]}

    assert await call("theirs", {"n": 1}, tools=[theirs]) == (False, "2")
    assert (await call("theirs", {"n": "1"}, tools=[theirs]))[0]
    assert await call("order", {"fruit": "figs", "pieces": 2, "gift": True}, tools=[order], make=sdk.create_sdk_mcp_server) == (
        False,
        "2 figs True",
    )
    mine, official = await listed([order]), await listed([order], make=sdk.create_sdk_mcp_server)
    assert set(mine["order"]["inputSchema"]["properties"]) == set(official["order"]["inputSchema"]["properties"])


class Recursive(msgspec.Struct):
    name: str
    children: list[Recursive] = []


async def test_a_type_that_holds_itself_is_an_object_at_the_top_too() -> None:
    @tool("tree", "A tree", Recursive)
    async def tree(given: Recursive) -> str:
        return given.children[0].name

    assert (await listed([tree]))["tree"]["inputSchema"]["type"] == "object"
    assert await call("tree", {"name": "a", "children": [{"name": "b"}]}, tools=[tree]) == (False, "b")


async def plain(args: Any) -> None: ...
def not_async(args: Any) -> None: ...
async def without_annotation(a) -> None: ...  # type: ignore[no-untyped-def]
async def with_many(*args: int) -> None: ...
async def with_a_name_of_pythons_own(__weakref__: int) -> None: ...
async def with_an_odd_type(a: Callable[[], int]) -> None: ...
async def with_a_name_that_is_not_there(a: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("make", "option"),
    [
        (lambda: tool("no name", "d", {})(plain), "name"),
        (lambda: tool("", "d", {})(plain), "name"),
        (lambda: tool("t", "d", {})(not_async), "tool"),  # type: ignore[arg-type]
        (lambda: tool("t", "d", int)(plain), "input_schema"),
        (lambda: tool("t", "d", {"a": Callable[[], int]})(plain), "input_schema"),
        (lambda: tool("t", "d", {"type": "object", "properties": {"a": {"type": "nothing"}}})(plain), "input_schema"),
        (lambda: tool(without_annotation), "input_schema"),
        (lambda: tool(with_many), "input_schema"),
        (lambda: tool(with_a_name_of_pythons_own), "input_schema"),
        (lambda: tool(with_an_odd_type), "input_schema"),
        (lambda: tool(with_a_name_that_is_not_there), "input_schema"),
        (lambda: create_sdk_mcp_server("box", tools=[order, order]), "tools"),
    ],
)
def test_what_makes_no_tool_is_refused_when_it_is_made(make: Callable[[], Any], option: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make()
    assert caught.value.option == option


@pytest.mark.parametrize("module", ["mcp.server", "mcp.types", "jsonschema.exceptions"])
def test_without_the_package_a_server_of_tools_says_how_to_install_it(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tool("t", "d", {"type": "object", "properties": {}})(plain)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigurationError, match=r"pip install 'claude-transport\[mcp\]'"):
        create_sdk_mcp_server("box", tools=[made])


async def test_the_default_of_a_parameter_is_a_new_copy_for_each_call() -> None:
    @tool
    async def collect(tags: list[str] = ["first"]) -> str:  # noqa: B006 - it is what is tested
        tags.append("more")
        return ",".join(tags)

    @tool
    async def take(text: str = "plain") -> str:
        return text

    tools = [collect, take]
    assert [await call("collect", {}, tools=tools) for _ in range(2)] == [(False, "first,more")] * 2
    assert await call("take", {}, tools=tools) == (False, "plain")
