"""What a script or a tape expects the host to write next, and the error when the host writes something else.

Scripts (`transports.script`) and tapes (`tape`, `transports.replay`) both use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from claude_transport.errors import UsageError

_SHOWN_CHARS = 400


class ExpectationFailed(UsageError, AssertionError):
    """Raised in a test when the program under test writes something else than the script or tape expects.

    `step` is the place in the script or tape, `expected` what should have come there, and `actual` what came: three texts. `diff` names
    each field that differs from the line on the tape, with both values. Without a line to compare with, `diff` is empty. The error is also
    an `AssertionError`, so test runners show a failed test, with `diff` below its message.
    """

    code = "testing.expectation_failed"

    def __init__(self, message: str = "", *, step: str = "", expected: str = "", actual: str = "", diff: str = "", **common: Any) -> None:
        super().__init__(message, **common)
        self.step = step
        self.expected = expected
        self.actual = actual
        self.diff = diff
        if diff:
            self.add_note(f"- is on the tape, + came from the host\n{diff}")

    @classmethod
    def at(cls, step: str, *, expected: str, actual: str, why: str = "", diff: str = "") -> ExpectationFailed:
        """Return the error for one step, whose message contains all four texts. Its attributes `step`, `expected` and `actual` hold three
        of them.

        `step` names the place in the script or tape, `expected` what should have come, `actual` what came; `why` may say what is wrong with
        it. `diff` shows the fields that differ.
        """
        message = f"{step}: expected {expected}, got {actual}" + (f" ({why})" if why else "")
        return cls(message, step=step, expected=expected, actual=actual, diff=diff)


class Expectation(msgspec.Struct, frozen=True):
    """One expected message: the `fields` it must have, and a `predicate` it must satisfy. Other fields are allowed.

    A mapping among the fields is compared in the same way. A callable gets the value and returns True when it is accepted.
    """

    fields: Mapping[str, Any] = {}
    predicate: Callable[[dict[str, Any]], object] | None = None

    def misfit(self, message: dict[str, Any]) -> str | None:
        """Return what is wrong with `message`, in words; None when it is as expected."""
        wrong = _misfit(self.fields, message, path="")
        if wrong is not None:
            return wrong
        if self.predicate is not None and not self.predicate(message):
            return f"{_name(self.predicate)} returned False"
        return None

    def is_request(self, subtype: str) -> bool:
        """True when this expects a control request with this subtype."""
        request = self.fields.get("request")
        return self.fields.get("type") == "control_request" and isinstance(request, Mapping) and request.get("subtype") == subtype

    @property
    def judges_errors(self) -> bool:
        """True when this says by itself whether a control response may be an error: by a predicate, by its subtype, or by `isError`."""
        response = self.fields.get("response")
        answer = _within(response, "response", "mcp_response")
        result = _within(answer, "result")
        names_it = "subtype" in _within(response) or "error" in _within(response) or "error" in answer or "isError" in result
        return self.predicate is not None or callable(response) or names_it

    def __str__(self) -> str:
        rest = dict(self.fields)
        what = str(rest.pop("type", "a message"))
        request = rest.get("request")
        if what == "control_request" and isinstance(request, Mapping) and "subtype" in request:
            what = f"{what} {request['subtype']}"
            rest["request"] = {name: value for name, value in request.items() if name != "subtype"}
            if not rest["request"]:
                del rest["request"]
        text = what
        if rest:
            text += " with " + ", ".join(f"{name}={_shown(value)}" for name, value in rest.items())
        return text if self.predicate is None else f"{text} that satisfies {_name(self.predicate)}"


def describe_message(message: Any) -> str:
    """Describe a message in a few words for an error: its type, its subtype and its beginning."""
    if not isinstance(message, dict):
        return f"a line that is not a JSON object: {_shown(message)}"
    request = message.get("request")
    subtype = f" {request.get('subtype')}" if isinstance(request, dict) else ""
    return f"{message.get('type', 'a message without a type')}{subtype} {_shown(message)}"


def error_answered(message: Any) -> str | None:
    """Return the error with which a host answers a question of the CLI; None for any other message.

    The error may be inside an MCP response, also as the text of a tool that has failed.
    """
    response = message.get("response") if isinstance(message, dict) and message.get("type") == "control_response" else None
    if not isinstance(response, dict):
        return None
    if response.get("subtype") == "error":
        return str(response.get("error"))
    answer = _within(response, "response", "mcp_response")
    if (error := answer.get("error")) is not None:
        return str(error.get("message", error) if isinstance(error, dict) else error)
    result = _within(answer, "result")
    if not result.get("isError"):
        return None
    content = result.get("content")
    return "\n".join(str(_within(block).get("text", "")) for block in (content if isinstance(content, list) else ()))


def _within(value: Any, *path: str) -> Mapping[str, Any]:
    """Return the mapping at this path inside `value`; an empty one when there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def each_registered_hook(message: Any) -> Iterator[tuple[str, str | None, str]]:
    """Yield event, matcher and id of each hook that a message of a host registers, in its order; nothing if it is no `initialize`."""
    request = message.get("request") if isinstance(message, Mapping) and message.get("type") == "control_request" else None
    hooks = request.get("hooks") if isinstance(request, Mapping) and request.get("subtype") == "initialize" else None
    for event, matchers in hooks.items() if isinstance(hooks, Mapping) else ():
        for matcher in matchers if isinstance(matchers, list | tuple) else ():
            ids = matcher.get("hookCallbackIds") if isinstance(matcher, Mapping) else None
            for callback_id in ids if isinstance(ids, list | tuple) else ():
                yield str(event), matcher.get("matcher"), str(callback_id)


def registered_hooks(message: Any) -> dict[str, str]:
    """Return the hooks that a message of a host registers, if it is an `initialize`: the id of each, and its event."""
    return {callback_id: event for event, _, callback_id in each_registered_hook(message)}


def registered_servers(message: Any) -> list[str]:
    """Return the names of the MCP servers that a control request of a host registers: `initialize`, or `mcp_set_servers`."""
    request = message.get("request") if isinstance(message, Mapping) and message.get("type") == "control_request" else None
    if not isinstance(request, Mapping):
        return []
    names = request.get({"initialize": "sdkMcpServers", "mcp_set_servers": "servers"}.get(str(request.get("subtype")), ""))
    return [str(name) for name in names] if isinstance(names, Mapping | list | tuple) else []


def _misfit(expected: Any, actual: Any, *, path: str) -> str | None:
    if isinstance(expected, Mapping):
        if not isinstance(actual, Mapping):
            return f"{path or 'the message'} is {_shown(actual)}, not an object"
        for name, value in expected.items():
            where = f"{path}.{name}" if path else str(name)
            if name not in actual:
                return f"{where} is missing"
            wrong = _misfit(value, actual[name], path=where)
            if wrong is not None:
                return wrong
        return None
    if isinstance(expected, Sequence) and not isinstance(expected, str | bytes):
        if not isinstance(actual, Sequence) or isinstance(actual, str) or len(actual) != len(expected):
            return f"{path} is {_shown(actual)}, not a list of {len(expected)}"
        misfits = (_misfit(want, have, path=f"{path}[{index}]") for index, (want, have) in enumerate(zip(expected, actual, strict=True)))
        return next((wrong for wrong in misfits if wrong is not None), None)
    if callable(expected):
        return None if expected(actual) else f"{path} is {_shown(actual)}, for which {_name(expected)} returned False"
    return None if expected == actual else f"{path} is {_shown(actual)}, not {_shown(expected)}"


def _shown(value: Any) -> str:
    text = _name(value) if callable(value) else repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", None) or repr(function)
