"""What the API path knows of models: their full names, their longest answers, and what they cost, cache included."""

from __future__ import annotations

import pytest

from claude_transport.completion.models import ALIASES, KNOWN_MODELS, UNKNOWN_MAX_TOKENS, cost_of, full_name, max_tokens_of
from claude_transport.protocol.envelope import Usage

MILLION = 1_000_000


@pytest.mark.parametrize(
    ("usage", "dollars"),
    [
        (Usage(), 0),
        (Usage(input_tokens=MILLION), 4),
        (Usage(output_tokens=MILLION), 20),
        (Usage(cache_creation_input_tokens=MILLION), 5),
        (Usage(cache_read_input_tokens=MILLION), 0.2),
        (Usage(cache_creation_input_tokens=MILLION, cache_creation={"ephemeral_1h_input_tokens": MILLION}), 8),
        (Usage(cache_creation_input_tokens=MILLION, cache_creation={"ephemeral_1h_input_tokens": MILLION // 2}), 6.5),
        (Usage(cache_creation_input_tokens=MILLION, cache_creation={"ephemeral_1h_input_tokens": "all"}), 5),
        (Usage(input_tokens=12, output_tokens=7), 0.000188),  # what the CLI charged for it [16a_first_session]
    ],
)
def test_every_kind_of_token_has_its_price(usage: Usage, dollars: float) -> None:
    assert cost_of("claude-opus-5-5", usage=usage) == pytest.approx(dollars)


def test_a_model_whose_price_is_not_known_costs_nobody_knows_what() -> None:
    assert cost_of("claude-nonesuch-9", usage=Usage(input_tokens=1)) is None
    assert cost_of("", usage=Usage()) is None


def test_a_dated_name_is_the_same_model() -> None:
    assert cost_of("claude-haiku-4-5-20251001", usage=Usage(input_tokens=MILLION)) == 1
    assert max_tokens_of("claude-haiku-4-5-20251001") == 32_000
    assert full_name("claude-haiku-4-5-20251001") == "claude-haiku-4-5-20251001"


def test_aliases_are_what_the_cli_makes_of_them_and_other_names_stay() -> None:
    assert full_name("haiku") == "claude-haiku-5-5"
    assert full_name(None) == full_name("opus") == "claude-opus-5-5"
    assert full_name("claude-nonesuch-9") == "claude-nonesuch-9"
    assert set(ALIASES.values()) <= set(KNOWN_MODELS)


def test_the_longest_answer_is_that_of_the_model() -> None:
    assert max_tokens_of("claude-opus-5-5") == 128_000
    assert max_tokens_of("claude-nonesuch-9") == UNKNOWN_MAX_TOKENS
