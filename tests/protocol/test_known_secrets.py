"""The secrets that are known by where they stand: the values of `ANTHROPIC_CUSTOM_HEADERS`, read as the CLI reads them."""

from __future__ import annotations

import json

import pytest

from claude_transport.launch.options import ClaudeOptions
from claude_transport.protocol.redaction import redactor_knowing
from claude_transport.text.secret_forms import find_secrets

HEADERS = (
    "x-team: plain-looking words\r\nAuthorization: Bearer quite-plain-credential\n\n"
    "no header\nX-Proxy:Basic cGxhaW46d29yZHM\n: nameless-value"
)
SECRETS = ["plain-looking words", "quite-plain-credential", "Bearer quite-plain-credential", "cGxhaW46d29yZHM", "Basic cGxhaW46d29yZHM"]

PLACES = {
    "the environment": {"ANTHROPIC_CUSTOM_HEADERS": HEADERS},
    "options.env": ClaudeOptions(env={"ANTHROPIC_CUSTOM_HEADERS": HEADERS}),
    "settings": ClaudeOptions(settings={"env": {"ANTHROPIC_CUSTOM_HEADERS": HEADERS}}),
    "settings as JSON": ClaudeOptions(settings=json.dumps({"env": {"ANTHROPIC_CUSTOM_HEADERS": HEADERS}})),
    "an MCP server's environment": ClaudeOptions(mcp_servers={"a": {"command": "x", "env": {"ANTHROPIC_CUSTOM_HEADERS": HEADERS}}}),
}


@pytest.mark.parametrize("place", PLACES)
def test_every_value_among_the_custom_headers_is_a_secret_with_and_without_its_scheme(place: str) -> None:
    found = set(find_secrets(PLACES[place]))
    assert found == set(SECRETS)


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ("x-flag: true", set()),  # a setting; taken out everywhere, it would garble everything
        ("x-api-key: short", {"short"}),  # its name says that it is a secret
        ("x-a:  \tpadded-value \t\r", {"padded-value"}),
        ("x-a: with: colons: inside", {"with: colons: inside"}),
        ("\ufeffx-a: \ufeffvalue-with-a-mark\ufeff", {"value-with-a-mark"}),
        ("x-a: one-line-only\x0bstill-the-same", {"one-line-only\x0bstill-the-same"}),
        ("", set()),
        ("\n\n:\n: \nx-a:", set()),
    ],
)
def test_headers_are_read_as_the_cli_reads_them(headers: str, found: set[str]) -> None:
    assert set(find_secrets({"ANTHROPIC_CUSTOM_HEADERS": headers})) == found


@pytest.mark.parametrize("value", [None, 5, ["x-api-key: only-a-text-has-headers"]])
def test_headers_that_are_no_text_hold_no_secret(value: object) -> None:
    assert set(find_secrets({"ANTHROPIC_CUSTOM_HEADERS": value})) == set()


def test_no_header_value_is_left_in_what_is_redacted() -> None:
    redactor = redactor_knowing([{"ANTHROPIC_CUSTOM_HEADERS": HEADERS}])
    said = json.dumps({"type": "user", "output": f"ANTHROPIC_CUSTOM_HEADERS={HEADERS}", "more": "send plain-looking words"}).encode()
    for redacted in (redactor.line(said).decode(), redactor.text(HEADERS), redactor.text("headers: {'x': 'quite-plain-credential'}")):
        assert not [secret for secret in SECRETS if secret in redacted]
