"""`tool` and `create_sdk_mcp_server`: tools of this program, with types, for a model that `Query(mcp_servers=…)` talks to.

The names and the arguments are those of the official SDK, and its tools work here. Whatever goes wrong in a call (arguments that do not
fit, an exception, a result that MCP cannot carry) is a failed tool that the model can read. It never ends the session.
"""

from __future__ import annotations

import copy
import functools
import inspect
import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Generic,
    Literal,
    NotRequired,
    Required,
    TypedDict,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
    overload,
)

import msgspec

from claude_transport.errors import ConfigurationError
from claude_transport.loggers import logger_for
from claude_transport.text.printable import printable

if TYPE_CHECKING:
    from mcp.server import Server
    from mcp.types import CallToolResult, ToolAnnotations

logger: logging.Logger = logger_for(__name__)

T = TypeVar("T")

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_MAX_SIZE: Final = "maxResultSizeChars"


@dataclass(frozen=True)
class SdkMcpTool(Generic[T]):
    """One tool, made by `tool`, for `create_sdk_mcp_server`.

    * `name`, `description`: what the model knows it by.
    * `input_schema`: describes its arguments, as `tool` was given it; for a plain function, a class made of its parameters.
    * `handler`: an async function of one argument, the arguments of a call: a `T` for a class, and a dictionary for a mapping.
    * `annotations`: hints of MCP, such as `readOnlyHint`.
    """

    name: str
    description: str
    input_schema: type[T] | Mapping[str, Any]
    handler: Callable[[T], Awaitable[Any]]
    annotations: ToolAnnotations | Mapping[str, Any] | None = None


class SdkMcpServer(TypedDict):
    """What `create_sdk_mcp_server` returns: a value for `Query(mcp_servers={name: …})`. `instance` is the `mcp.server.Server`."""

    type: Literal["sdk"]
    name: str
    instance: Server[Any]


Handler = Callable[[T], Awaitable[Any]]


@overload
def tool(name: Callable[..., Awaitable[Any]]) -> SdkMcpTool[Any]: ...
@overload
def tool(
    name: str, description: str, input_schema: type[T], annotations: ToolAnnotations | Mapping[str, Any] | None = None
) -> Callable[[Handler[T]], SdkMcpTool[T]]: ...
@overload
def tool(
    name: str, description: str, input_schema: Mapping[str, Any], annotations: ToolAnnotations | Mapping[str, Any] | None = None
) -> Callable[[Handler[dict[str, Any]]], SdkMcpTool[dict[str, Any]]]: ...
@overload
def tool(
    name: str | None = None,
    description: str | None = None,
    input_schema: None = None,
    annotations: ToolAnnotations | Mapping[str, Any] | None = None,
) -> Callable[[Callable[..., Awaitable[Any]]], SdkMcpTool[Any]]: ...
def tool(
    name: str | Callable[..., Awaitable[Any]] | None = None,
    description: str | None = None,
    input_schema: Any = None,
    annotations: ToolAnnotations | Mapping[str, Any] | None = None,
) -> Any:
    """Make a tool of an async function: `@tool("add", "Adds two numbers", {"a": float, "b": float})`, or just `@tool`.

    Args:
        name: 1 to 128 letters, digits and `_ . -`. By default the name of the function.
        description: for the model. By default the docstring of the function.
        input_schema: a mapping of names to types, all required; a JSON schema (a mapping with `type` and `properties`); a `TypedDict`; or a
            `msgspec.Struct`. The function gets one argument: a dictionary, or an object of the Struct. Without it, the parameters of the
            function are the arguments, and need annotations. `Annotated[int, "how many"]` describes one argument.
        annotations: hints of MCP. `readOnlyHint` lets the CLI run the tool beside others. `maxResultSizeChars` is for the CLI: results up
            to this size stay in the conversation.

    The function returns a text, a mapping with MCP `content` blocks (and `is_error`), a list of blocks, None, or another value, which is
    given to the model as JSON.

    Raises:
        ConfigurationError: the function is not async, a name is not valid, or a type has no JSON schema.
    """
    if callable(name) and not isinstance(name, str):
        return _made(name, None, None, None, None)
    return lambda function: _made(function, name, description, input_schema, annotations)


def _made(function: Any, name: Any, description: Any, schema: Any, annotations: Any) -> SdkMcpTool[Any]:
    called = getattr(function, "__name__", type(function).__name__) if name is None else name
    if not isinstance(called, str) or not _NAME.fullmatch(called):
        raise ConfigurationError(f"{called!r} is not a valid name of a tool: use 1 to 128 letters, digits and _ . -", option="name")
    if not inspect.iscoroutinefunction(function) and not inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
        raise ConfigurationError(f"the tool {called!r} is no async function: define it with `async def`", option="tool")
    words = (inspect.getdoc(function) or "") if description is None else str(description)
    handler = function
    if schema is None:
        schema, handler = _of_parameters(called, function)
    made = SdkMcpTool(called, words, schema, handler, annotations)
    _Arguments.of(made)  # raises now what the server would raise
    return made


def _of_parameters(name: str, function: Any) -> tuple[type[msgspec.Struct], Handler[Any]]:
    """Return a class with the parameters of the function as fields, and a function that takes an object of it."""
    hints = _hints(name, function)
    fields: list[Any] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY) or parameter.name not in hints:
            message = f"the parameter {parameter} of the tool {name!r} has no annotation, or cannot be given by name"
            raise ConfigurationError(message, option="input_schema")
        default = () if parameter.default is parameter.empty else (_default(parameter.default),)
        fields.append((parameter.name, _described(hints[parameter.name]), *default))

    async def call(arguments: msgspec.Struct) -> Any:
        return await function(**{field: getattr(arguments, field) for field in arguments.__struct_fields__})

    return _struct(name, fields, kw_only=True), call


def _default(value: Any) -> Any:
    """Return the default of a field: a new copy for each call, where it could be changed."""
    return msgspec.field(default_factory=functools.partial(copy.copy, value)) if isinstance(value, list | dict | set) else value


def _struct(name: str, fields: list[Any], **more: Any) -> type[msgspec.Struct]:
    try:
        return msgspec.defstruct("Arguments", fields, **more)
    except (TypeError, ValueError) as exc:
        raise ConfigurationError(f"the arguments of the tool {name!r} cannot be described: {exc}", option="input_schema") from exc


def _hints(name: str, described: Any) -> dict[str, Any]:
    try:
        return get_type_hints(described, include_extras=True)
    except Exception as exc:
        raise ConfigurationError(f"the annotations of the tool {name!r} cannot be read: {exc}", option="input_schema") from exc


def _described(hint: Any) -> Any:
    """Return the type with the first text of `Annotated[type, "text"]` as a description that msgspec knows."""
    if get_origin(hint) is not Annotated:
        return hint
    inner, *extras = get_args(hint)
    known = [msgspec.Meta(description=extra) if isinstance(extra, str) else extra for extra in extras]
    for extra in known:
        inner = Annotated[inner, extra] if isinstance(extra, msgspec.Meta) else inner
    return inner


class _Arguments:
    """What a tool takes: the JSON schema for the model, and how the arguments of a call become those of the function."""

    def __init__(self, schema: Mapping[str, Any], accept: Callable[[dict[str, Any]], Any]) -> None:
        self.schema = schema
        self.accept = accept
        """Returns the argument of the handler. Raises `ValueError` for arguments that do not fit."""

    @classmethod
    def of(cls, made: SdkMcpTool[Any]) -> _Arguments:
        """Read the `input_schema` of a tool. Raises `ConfigurationError` when it describes no object."""
        given: Any = made.input_schema
        if isinstance(given, Mapping):
            if isinstance(given.get("type"), str) and "properties" in given:
                return cls.of_schema(made.name, given)
            return cls.of_fields(made.name, [(name, hint, True) for name, hint in given.items()])
        if is_typeddict(given):
            return cls.of_fields(made.name, _fields_of(made.name, given))
        if isinstance(given, type) and issubclass(given, msgspec.Struct):
            return cls(_schema_of(made.name, given), lambda arguments: msgspec.convert(arguments, given))
        message = f"the input_schema of the tool {made.name!r} is {given!r}: give a mapping, a TypedDict or a msgspec.Struct"
        raise ConfigurationError(message, option="input_schema")

    @classmethod
    def of_schema(cls, name: str, schema: Mapping[str, Any]) -> _Arguments:
        """Take a JSON schema as it is."""
        try:
            from jsonschema.exceptions import SchemaError  # type: ignore[import-untyped]  # the package mcp brings it
            from jsonschema.validators import validator_for  # type: ignore[import-untyped]
        except ImportError as exc:
            raise _needs_mcp() from exc
        try:
            kind: Any = validator_for(schema)
            kind.check_schema(schema)
        except SchemaError as exc:
            message = f"the input_schema of the tool {name!r} is no JSON schema: {exc.message}"
            raise ConfigurationError(message, option="input_schema") from exc
        validator = kind(schema)

        def accept(arguments: dict[str, Any]) -> dict[str, Any]:
            for error in validator.iter_errors(arguments):
                raise ValueError(error.message)
            return arguments

        return cls(schema, accept)

    @classmethod
    def of_fields(cls, name: str, fields: list[tuple[str, Any, bool]]) -> _Arguments:
        """Take names, types, and whether each is required. The names need not be identifiers."""
        names = {f"field_{number}": field for number, (field, _hint, _required) in enumerate(fields)}
        described = [
            (inner, _described(hint)) if required else (inner, _described(hint) | msgspec.UnsetType, msgspec.UNSET)
            for inner, (_field, hint, required) in zip(names, fields, strict=True)
        ]
        struct = _struct(name, described, kw_only=True, rename=names)

        def accept(arguments: dict[str, Any]) -> dict[str, Any]:
            made = msgspec.convert(arguments, struct)
            values = {field: getattr(made, inner) for inner, field in names.items()}
            return {field: value for field, value in values.items() if value is not msgspec.UNSET}

        return cls(_schema_of(name, struct), accept)


def _fields_of(name: str, typed_dict: Any) -> list[tuple[str, Any, bool]]:
    fields: list[tuple[str, Any, bool]] = []
    for field, hint in _hints(name, typed_dict).items():
        required = field in typed_dict.__required_keys__
        while get_origin(hint) in (Required, NotRequired):
            # texts of annotations hide these two from `__required_keys__`
            required = get_origin(hint) is Required
            (hint,) = get_args(hint)
        fields.append((field, hint, required))
    return fields


def _schema_of(name: str, struct: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON schema of a class, as an object at the top: MCP takes no reference there."""
    try:
        whole = msgspec.json.schema(struct)
    except (TypeError, ValueError) as exc:
        raise ConfigurationError(f"the arguments of the tool {name!r} have no JSON schema: {exc}", option="input_schema") from exc
    definitions = dict(whole.get("$defs", {}))
    top = str(whole.get("$ref", "")).removeprefix("#/$defs/")
    is_recursive = json.dumps(definitions).count(f'"#/$defs/{top}"') > 0
    described = dict(definitions[top] if is_recursive else definitions.pop(top))
    described.pop("title", None)
    return {**described, "$defs": definitions} if definitions else described


def create_sdk_mcp_server(name: str, version: str = "1.0.0", tools: Sequence[SdkMcpTool[Any]] | None = None) -> SdkMcpServer:
    """Make a server of these tools, for `Query(mcp_servers={"shop": create_sdk_mcp_server("shop", tools=[…])})`. Needs the package `mcp`.

    A call of a tool that is unknown, or whose arguments do not fit, gets a failed result (`isError`) that says so; the function is not
    called. So does a call whose function raises, with the text of the exception.

    Args:
        name: the server's name for itself. The model knows its tools by the name in `mcp_servers`.
        version: the server's version, for information.
        tools: made by `tool`, or by that of the official SDK.

    Raises:
        ConfigurationError: two tools have one name, a schema is not valid, or the package `mcp` is missing or too old.
    """
    try:
        from mcp.server import Server
        from mcp.types import ListToolsResult, Tool, jsonrpc_message_adapter  # noqa: F401 - version 1 has no such adapter
    except ImportError as exc:
        raise _needs_mcp() from exc
    arguments = {made.name: _Arguments.of(made) for made in tools or ()}
    by_name = {made.name: made for made in tools or ()}
    if len(by_name) != len(tools or ()):
        raise ConfigurationError(f"two tools of the server {name!r} have one name: rename one of them", option="tools")
    listed = [Tool.model_validate(_listing(made, arguments[made.name].schema)) for made in by_name.values()]

    async def list_tools(_context: Any, _params: Any) -> ListToolsResult:
        return ListToolsResult(tools=listed)

    async def call_tool(_context: Any, params: Any) -> CallToolResult:
        made = by_name.get(params.name)
        if made is None:
            return _failed(f"Tool {params.name!r} not found")
        return await _called(made, arguments[made.name], params.arguments or {})

    server: Server[Any] = Server(name, version=version, on_list_tools=list_tools, on_call_tool=call_tool)
    return SdkMcpServer(type="sdk", name=name, instance=server)


def _needs_mcp() -> ConfigurationError:
    message = "in-process MCP servers need the package mcp, 2 or newer: pip install 'claude-transport[mcp]'"
    return ConfigurationError(message, option="mcp_servers")


def _listing(made: SdkMcpTool[Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tool's entry in the answer to `tools/list`."""
    hints: Any = made.annotations
    if hints is not None and not isinstance(hints, Mapping):
        hints = hints.model_dump(by_alias=True, exclude_none=True)
    hints = dict(hints or {})
    largest = hints.pop(_MAX_SIZE, None)  # the CLI reads it elsewhere
    whole: dict[str, Any] = {"name": made.name, "description": made.description, "inputSchema": dict(schema)}
    if hints:
        whole["annotations"] = hints
    if largest is not None:
        whole["_meta"] = {f"anthropic/{_MAX_SIZE}": largest}
    return whole


async def _called(made: SdkMcpTool[Any], arguments: _Arguments, given: dict[str, Any]) -> CallToolResult:
    from mcp.types import CallToolResult

    try:
        value = arguments.accept(given)
    except (ValueError, RecursionError) as exc:  # msgspec.ValidationError is a ValueError
        return _failed(f"Input validation error: {printable(exc)}")
    try:
        return CallToolResult.model_validate(_result(await made.handler(value)))
    except Exception as exc:
        logger.warning("the tool %r failed", made.name, exc_info=True)
        return _failed(str(exc) or type(exc).__name__)


def _failed(text: str) -> CallToolResult:
    from mcp.types import CallToolResult

    return CallToolResult.model_validate({"content": [{"type": "text", "text": text}], "isError": True})


def _result(returned: object) -> dict[str, Any]:
    """Return the fields of an MCP result for what a tool returned."""
    match returned:
        case None:
            return {"content": []}
        case str():
            return {"content": [{"type": "text", "text": returned}]}
        case {"content": Sequence() as blocks} if not isinstance(blocks, str):
            return {"content": _blocks(blocks), "isError": isinstance(returned, Mapping) and bool(returned.get("is_error"))}
        case Sequence() if returned and all(isinstance(block, Mapping) and isinstance(block.get("type"), str) for block in returned):
            return {"content": _blocks(returned)}
    return {"content": [{"type": "text", "text": msgspec.json.encode(returned).decode()}]}


def _blocks(blocks: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the blocks that the CLI shows to its model. Links and resources of text become texts; what it cannot show is left out."""
    shown: list[dict[str, Any]] = []
    for block in blocks:
        kind = block.get("type")
        resource = block.get("resource") or {}
        if kind in ("text", "image", "audio"):
            shown.append(dict(block))
        elif kind == "resource_link":
            parts = [str(block[part]) for part in ("name", "uri", "description") if block.get(part)]
            shown.append({"type": "text", "text": "\n".join(parts) or "Resource link"})
        elif kind == "resource" and "text" in resource:
            shown.append({"type": "text", "text": resource["text"]})
        else:
            logger.warning("a tool returned a block of type %s that the CLI cannot show, and it is left out", printable(kind))
    return shown
