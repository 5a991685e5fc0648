"""`Mailbox`, compared with a plain list: what waits, what it costs, and what goes first."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from claude_transport.client.storage import ClaudeMailbox
from claude_transport.exchange.mailbox import MOST_IN_RUN, Mailbox
from claude_transport.protocol.codec import decode_message


class Texts(Mailbox[object]):
    """Numbers are partial, everything costs as many bytes as its text has letters."""

    partial = (int,)

    @staticmethod
    def cost_of(message: object) -> int:
        return len(str(message))

    @staticmethod
    def most_cost_of(messages: Sequence[object]) -> int:
        return 100 * len(messages)


def taken(box: Texts) -> list[object]:
    return [box.take() for _ in range(len(box))]


def cost(messages: Sequence[object]) -> int:
    return sum(map(Texts.cost_of, messages))


@pytest.mark.parametrize("seed", range(40))
def test_what_waits_and_what_it_costs_is_as_in_a_list(seed: int) -> None:
    at = random.Random(seed)
    box = Texts()
    naive: list[object] = []
    for number in range(2000):
        match at.choices(["add", "take", "count", "trim", "keep", "shed"], [60, 38, at.choice([0, 10]), 0.2, 0.2, 0.2])[0]:
            case "add":
                added: object = number if at.random() < 0.5 else "x" * at.randrange(9)
                naive.append(added)
                box.append(naive[-1])
            case "take":
                assert box.take() == (naive.pop(0) if naive else None)
            case "count":
                assert box.count() == box.cost == cost(naive) <= box.cost_at_most
            case "trim":
                most = at.randrange(cost(naive) + 2)
                while cost(naive) > most:
                    naive.pop(0)
                box.trim(most)
            case "keep":
                naive = [each for each in naive if each not in ("x", "xx")]
                box.keep(lambda each: each not in ("x", "xx"))
            case "shed":
                before, most = list(naive), max(cost(naive) - 20, 0)
                naive = [each for each in naive if isinstance(each, str)]
                while naive and cost(naive) > most:
                    naive.pop(0)
                assert box.shed(20) == (len(before) - len(naive), cost(before) - cost(naive))
        assert (len(box), box.is_dry()) == (len(naive), not naive)
    assert [message for _, message in box.peek()] == naive
    assert taken(box) == naive
    assert (box.take(), box.count()) == (None, 0)


@pytest.mark.parametrize("places", [[3], [0, 1, 2], [0, 2, 3, 9], [5, 6, 8, 9, 10, 40], [*range(MOST_IN_RUN + 3), 2 * MOST_IN_RUN]])
def test_messages_that_do_not_follow_each_other_keep_their_places(places: list[int]) -> None:
    box = ClaudeMailbox()
    letters = [(place, decode_message(b'{"type":"keep_alive","n":%d}' % place)) for place in places]
    box.put_letters(letters)
    assert list(box.peek()) == letters
    assert [(box.take(), box.taken_upto) for _ in places] == [(message, place) for place, message in letters]


def test_places_count_on_and_what_was_given_up_leaves_a_gap() -> None:
    box = Texts(taken_upto=9)
    for number in range(3 * MOST_IN_RUN):
        box.append("even" if number % 2 == 0 else number)
    assert [place for place, _ in box.peek()] == [*range(10, 10 + 3 * MOST_IN_RUN)]
    box.shed(1)
    assert ([place for place, _ in box.peek()], box.taken_upto) == ([*range(10, 10 + 3 * MOST_IN_RUN, 2)], 9)
    assert [(box.take(), box.taken_upto) for _ in range(3)] == [("even", 10), ("even", 12), ("even", 14)]


def test_what_is_appended_one_by_one_waits_in_few_runs() -> None:
    box = Texts()
    for _ in range(2 * MOST_IN_RUN + 1):
        box.append("x")
    assert len(box.runs) == 2
    assert (len(box), box.count()) == (2 * MOST_IN_RUN + 1, 2 * MOST_IN_RUN + 1)
