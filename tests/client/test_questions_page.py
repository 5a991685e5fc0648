"""The table of what the CLI asks a host: every question is in it, and is answered by the argument that it names."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, get_args

import pytest
from loading import load_generator

import claude_transport as ct
from claude_transport.protocol.control import ControlBody, UnknownControl

SUBTYPES = [str(cls.__struct_config__.tag) for cls in get_args(ControlBody) if cls is not UnknownControl]


@pytest.fixture(scope="module")
def generator() -> Any:
    return load_generator("controls")


@pytest.mark.parametrize("subtype", SUBTYPES)
def test_every_question_has_a_row_with_all_its_fields(generator: Any, subtype: str) -> None:
    (cls,) = (each for each in get_args(ControlBody) if each.__struct_config__.tag == subtype)
    (row,) = (line for line in generator.render().splitlines() if line.startswith(f"| `{subtype}` | `{cls.__name__}` |"))
    assert [name for name in cls.__struct_fields__ if f"`{name}`" not in row] == []


def test_each_is_answered_by_an_argument_of_query(generator: Any) -> None:
    arguments = inspect.signature(ct.Query).parameters
    assert set(generator.ANSWERED_BY) == set(get_args(ControlBody))
    assert [words for words in generator.ANSWERED_BY.values() if words.strip("`") not in arguments] == []


def asks(subtype: str) -> dict[str, Any]:
    return {"type": "control_request", "request_id": "q1", "request": {"subtype": subtype}}


def result() -> dict[str, Any]:
    return {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "session_id": "s", "result": "done"}


@pytest.mark.parametrize("subtype", [*SUBTYPES, "from_the_future"])
async def test_on_request_is_offered_what_has_no_handler_of_its_own(subtype: str) -> None:
    offered: list[str] = []

    async def claim(asked: str, _fields: Mapping[str, Any]) -> Mapping[str, Any]:
        offered.append(asked)
        return {"claimed": True}

    mock = ct.MockTransport.script().expect(type="user").reply(asks(subtype))
    mock.expect(type="control_response", response={"subtype": "success", "response": {"claimed": True}}).reply(result())
    async with ct.Query(mock, on_request=claim) as query:
        await (await query.send("Hi")).result()
    assert offered == [subtype]


@pytest.mark.parametrize("subtype", [*SUBTYPES, "from_the_future"])
async def test_what_nobody_wants_is_denied_or_refused(subtype: str) -> None:
    said = {"response": {"behavior": "deny"}} if subtype == "can_use_tool" else {"subtype": "error", "error_code": "unsupported_request"}
    mock = ct.MockTransport.script().expect(type="user").reply(asks(subtype))
    mock.expect(type="control_response", response=said).reply(result())
    async with ct.Query(mock) as query:
        await (await query.send("Hi")).result()
    mock.assert_exhausted()
