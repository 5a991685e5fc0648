"""What a transport is made with: shown as it is, and refused where it bounds nothing."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest

import claude_transport as ct
from claude_transport import errors


def stream(**bounds: Any) -> ct.Transport:
    return ct.StreamTransport(object(), **bounds)  # type: ignore[arg-type]


def network(**bounds: Any) -> ct.Transport:
    return ct.NetworkTransport("tcp://127.0.0.1:1", **bounds)


@pytest.mark.parametrize("make", [stream, ct.SubprocessTransport, network])
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("max_line_bytes", 0),
        ("max_line_bytes", -1),
        ("max_line_bytes", 1.5),
        ("max_line_bytes", True),
        ("max_line_bytes", "10"),
        ("max_line_bytes", None),
        ("close_timeout", -1),
        ("close_timeout", math.nan),
        ("close_timeout", "5"),
        ("close_timeout", None),
    ],
)
def test_a_number_that_bounds_nothing_is_refused_by_its_name(make: Callable[..., ct.Transport], option: str, value: object) -> None:
    with pytest.raises(errors.ConfigurationError) as caught:
        make(**{option: value})
    assert caught.value.option == option


@pytest.mark.parametrize("value", [math.nan, -1, "5"])
def test_a_connect_timeout_that_bounds_nothing_is_refused(value: object) -> None:
    with pytest.raises(errors.ConfigurationError) as caught:
        network(connect_timeout=value)
    assert caught.value.option == "connect_timeout"


@pytest.mark.parametrize("make", [stream, ct.SubprocessTransport, network])
def test_the_smallest_numbers_that_mean_something_are_taken(make: Callable[..., ct.Transport]) -> None:
    assert not make(max_line_bytes=1, close_timeout=0).is_ready()


@pytest.mark.parametrize(("kind", "first"), [(ct.StreamTransport, "connectable"), (ct.TransportWrapper, "transport")])
def test_the_arguments_that_help_shows_are_those_that_are_taken(kind: type, first: str) -> None:
    assert next(iter(inspect.signature(kind).parameters)) == first
