"""What a wrapper lets pass without waiting, and when: while it has nothing to do, and not a line longer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import pytest

from claude_transport.errors import InputClosed
from claude_transport.transport import AtOnce, Client, SessionTerms, TransportLike
from claude_transport.transports.mock import MockTransport
from claude_transport.wrappers import FaultyTransport, LoggingTransport, StatefulTransport, TracingTransport, TransportWrapper, faults
from claude_transport.wrappers.base import LineWrapper, ObservingWrapper
from claude_transport.wrappers.stateful import TransportState

LINE = b'{"type":"user"}\n'


class Prompt(MockTransport):
    """A transport that does everything at once, and keeps which call did it."""

    def __init__(self) -> None:
        super().__init__()
        self.at_once: list[object] = []

    def attach(self, client: Client) -> SessionTerms:
        return SessionTerms(
            at_once=AtOnce(
                connect=lambda: self.note("connect"),
                write=self.note,
                end_input=lambda: self.note("end_input"),
                close=lambda: self.note("close"),
            )
        )

    def note(self, call: object) -> bool:
        self.at_once.append(call)
        return True


def offered(wrapper: TransportWrapper) -> AtOnce:
    found = wrapper.attach(Client()).at_once
    assert found is not None
    return found


@pytest.mark.parametrize("base", [TransportWrapper, LineWrapper, ObservingWrapper])
def test_a_base_class_withholds_everything_because_a_subclass_may_override_its_methods(base: type[TransportWrapper]) -> None:
    assert base(Prompt()).attach(Client()).at_once is None


@pytest.mark.parametrize(
    "wrap",
    [LoggingTransport, StatefulTransport, TracingTransport, lambda inside: FaultyTransport(inside, ())],
    ids=["log", "state", "trace", "fault"],
)
async def test_only_writing_passes_at_once(wrap: Callable[[TransportLike], TransportWrapper]) -> None:
    inside = Prompt()
    wrapper = wrap(inside)
    await wrapper.connect()
    calls = offered(wrapper)
    assert (calls.connect(), calls.end_input(), calls.close(), inside.at_once) == (False, False, False, [])
    assert calls.write(LINE)
    assert inside.at_once == [LINE]
    await wrapper.close()


def test_a_logger_that_is_turned_on_gets_the_next_line(caplog: pytest.LogCaptureFixture) -> None:
    inside = Prompt()
    logger = logging.getLogger("test_idle_writes")
    calls = offered(LoggingTransport(inside, logger=logger, level=logging.DEBUG))
    caplog.set_level(logging.INFO, logger=logger.name)
    assert calls.write(LINE)
    caplog.set_level(logging.DEBUG, logger=logger.name)
    assert not calls.write(LINE)
    assert inside.at_once == [LINE]


async def test_a_state_that_forbids_writing_forbids_it_at_once_as_well() -> None:
    inside = Prompt()
    wrapper = StatefulTransport(inside)
    calls = offered(wrapper)
    assert not calls.write(LINE)
    await wrapper.connect()
    assert calls.write(LINE)
    seen: list[Sequence[TransportState]] = []
    wrapper.on_change = lambda old, new: seen.append((old, new))
    assert not calls.write(LINE)
    wrapper.on_change = None
    await wrapper.end_input()
    assert not calls.write(LINE)
    with pytest.raises(InputClosed):
        await wrapper.write(LINE)
    await wrapper.close()
    assert not calls.write(LINE)
    assert inside.at_once == [LINE]


def test_faults_of_any_kind_withhold_everything() -> None:
    assert FaultyTransport(Prompt(), [faults.Split()]).attach(Client()).at_once is None
