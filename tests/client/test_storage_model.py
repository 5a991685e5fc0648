"""`MessageStorage` beside a naive model of it: whoever reads what in whichever order, everything comes once, in order, and is counted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from peers import ForeignTransport

from claude_transport import Message
from claude_transport.client.connection import Connection
from claude_transport.client.storage import AllMessages, ClaudeMailbox, MessageStorage, cost_of
from claude_transport.exchange.ending import TransportEnd
from claude_transport.protocol.codec import LineDecoder
from claude_transport.protocol.conversation import Conversation

UUIDS = ("a", "b")

PUT = st.tuples(st.just("put"), st.integers(1, 4) | st.just(600), st.sampled_from([(), ("a",), ("b",), ("a", "b"), ("gone",)]))
TAKE = st.tuples(st.just("take"), st.integers(1, 5) | st.just(600), st.sampled_from(["a", "b", "all"]))
OTHER = st.tuples(st.sampled_from(["subscribe", "unsubscribe"]), st.just(1), st.just(""))
STEPS = st.lists(PUT | TAKE | OTHER, max_size=30)


def message_of(place: int) -> Message:
    line = b'{"type":"stream_event","event":{"type":"ping","place":%d}}' % place
    return LineDecoder().messages([line])[0]


class Naive:
    """A plain list of places for each reader, and for the inbox the place of the last one that was taken."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[int]] = {"a": [], "b": [], "all": []}
        self.taken_upto = -1
        self.is_subscribed = False

    def put(self, places: list[int], turns: tuple[str, ...]) -> None:
        owners = [uuid for uuid in turns if uuid in UUIDS]
        for uuid in owners:
            self.waiting[uuid] += places
        if self.is_subscribed or not owners:
            self.waiting["all"] += places

    def take(self, whose: str) -> int | None:
        if not self.waiting[whose]:
            return None
        place = self.waiting[whose].pop(0)
        if whose == "all":
            self.taken_upto = place
        return place

    def subscribe(self) -> None:
        in_turns = {place for uuid in UUIDS for place in self.waiting[uuid] if place > self.taken_upto}
        self.waiting["all"] = sorted(in_turns.union(self.waiting["all"]))
        self.is_subscribed = True


class Real:
    """The storage with two turns whose handles are held."""

    def __init__(self) -> None:
        self.connection = Connection(
            ForeignTransport(), Conversation(), end=TransportEnd(ForeignTransport(), transport_close_timeout=1, close_timeout=None)
        )
        self.storage = MessageStorage(self.connection, max_buffered_bytes=1)
        self.turns = {uuid: self.storage.open_turn(uuid, Conversation()) for uuid in UUIDS}
        self.reader: AllMessages | None = None

    def take(self, whose: str) -> Message | None:
        if whose != "all":
            return self.turns[whose].mailbox.take()
        assert self.reader is not None
        return self.reader.take()


@given(steps=STEPS)
def test_everything_comes_to_each_reader_once_and_in_order(steps: list[tuple[str, int, tuple[str, ...] | str]]) -> None:
    naive, real = Naive(), Real()
    messages: list[Message] = []
    for step, count, whom in steps:
        if step == "put" and isinstance(whom, tuple):
            places = list(range(len(messages), len(messages) + count))
            messages += map(message_of, places)
            naive.put(places, whom)
            real.storage.put([messages[place] for place in places], whom)
        elif step == "take" and isinstance(whom, str) and (whom != "all" or real.reader is not None):
            for _ in range(count):
                place, message = naive.take(whom), real.take(whom)
                assert message is (None if place is None else messages[place])
        elif step == "subscribe" and real.reader is None:
            naive.subscribe()
            real.reader = AllMessages(real.storage, real.connection)
        elif step == "unsubscribe":
            naive.is_subscribed, real.reader = False, None
        waiting = [place for places in naive.waiting.values() for place in places]
        if count % 2:  # counting changes how messages are kept
            assert real.storage.buffered_bytes == sum(cost_of(messages[place]) for place in waiting)


def test_what_its_turn_left_unread_is_not_lost_by_a_message_between_turns() -> None:
    real = Real()
    messages = [message_of(place) for place in range(3)]
    real.storage.put(messages[:2], ("a",))
    real.storage.put(messages[2:], ())
    real.reader = AllMessages(real.storage, real.connection)
    assert [real.take("all") for _ in range(4)] == [*messages, None]


def test_a_message_that_waits_has_not_been_taken_and_one_that_was_given_up_neither() -> None:
    mailbox = ClaudeMailbox(taken_upto=2)
    message = message_of(7)
    mailbox.put(7, [message])
    upto = [mailbox.taken_upto]
    mailbox.shed(1)
    assert [*upto, mailbox.taken_upto, len(mailbox)] == [2, 2, 0]
