"""`parse_address`: addresses from URLs, and errors that never repeat the URL."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from claude_transport.errors import ConfigurationError
from claude_transport.streams.address import Address, parse_address

SECRET = "hunter2-hunter2"
KLOESTER = "xn--klster-xxa.example"
BRIDGE, E, U = quote("/brücke"), quote("é"), quote("ü")


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("tcp://127.0.0.1:7777", Address(scheme="tcp", host="127.0.0.1", port=7777)),
        ("tls://claude.example:7777/", Address(scheme="tls", host="claude.example", port=7777)),
        ("TLS://Claude.Example:7777", Address(scheme="tls", host="claude.example", port=7777)),
        ("tcp://[::1]:7777", Address(scheme="tcp", host="::1", port=7777)),
        ("unix:///run/claude.sock", Address(scheme="unix", path="/run/claude.sock")),
        ("unix:///run/with%20blank", Address(scheme="unix", path="/run/with blank")),
        ("ws://claude.example", Address(scheme="ws", host="claude.example", port=80, target="/")),
        ("wss://claude.example/session?model=haiku", Address(scheme="wss", host="claude.example", port=443, target="/session?model=haiku")),
        (
            "ws://Klöster.example/brücke%20é?a=ü%e9",
            Address(scheme="ws", host="klöster.example", port=80, target=f"{BRIDGE}%20{E}?a={U}%e9"),
        ),
        ("tcp://łódź.example:7777", Address(scheme="tcp", host="łódź.example", port=7777)),
    ],
)
def test_a_url_says_where_to_go(url: str, address: Address) -> None:
    assert parse_address(url) == address


@pytest.mark.parametrize(
    ("url", "written"),
    [
        ("tcp://[::1]:7777/", "tcp://[::1]:7777"),
        ("unix:///run/with%20blank", "unix:///run/with%20blank"),
        ("ws://claude.example", "ws://claude.example:80"),
        ("wss://claude.example/session?model=haiku", "wss://claude.example:443/session"),
        ("ws://claude.example/", "ws://claude.example:80"),
        ("ws://claude.example/?a=b", "ws://claude.example:80"),
        ("ws://claude.example/session/?a=b", "ws://claude.example:80/session/"),
        ("ws://claude.example//", "ws://claude.example:80//"),
        ("ws://klöster.example/brücke", f"ws://klöster.example:80{BRIDGE}"),
    ],
)
def test_an_address_is_written_as_a_url_without_its_query(url: str, written: str) -> None:
    assert str(parse_address(url)) == written


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("127.0.0.1:7777", "begins with a scheme"),
        ("", "begins with a scheme"),
        ("http://claude.example", "did you mean ws://"),
        ("https://claude.example", "did you mean wss://"),
        ("gopher://claude.example:70", "no scheme gopher://"),
        ("tcp://claude.example", "names no port"),
        ("tcp://:7777", "names no host"),
        ("tcp://claude.example:seven", "host or port cannot be read"),
        ("tcp://claude.example:70000", "host or port cannot be read"),
        ("tcp://[::1:7777", "host or port cannot be read"),
        ("tcp://klöster..example:7777", "no name that a host can have"),
        ("ws://" + "ö" * 70, "no name that a host can have"),
        ("tcp://claude.example:7777/path", "a path means nothing"),
        ("tcp://claude.example:7777?model=haiku", "a query .* means nothing"),
        ("wss://claude.example/#top", "a fragment"),
        ("unix://run/claude.sock", "three slashes"),
        ("unix:///run/%00", "no zero byte"),
        ("unix:///" + "x" * 103, "103 bytes, and this one has 104"),
        ("tcp://claude.example:7777\n", "control character"),
        (f"tcp://{SECRET}@claude.example:7777", "no place in a URL"),
        (f"wss://user:{SECRET}@claude.example", "no place in a URL"),
        (f"wss://claude.example/?access_token={SECRET}", "'access_token'.*give `token=`"),
        (f"wss://claude.example/?model=haiku&api_key={SECRET}", "'api_key'.*give `token=`"),
        (f"tls://claude.example:1?token={SECRET}", "given as `token=`"),
    ],
)
def test_what_is_wrong_with_a_url_is_said_without_its_secrets(url: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        parse_address(url)
    assert caught.value.option == "url"
    assert SECRET not in str(caught.value)


def test_what_is_no_string_is_no_url() -> None:
    with pytest.raises(ConfigurationError, match="not bytes"):
        parse_address(b"tcp://127.0.0.1:1")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "stays", "encrypted"),
    [
        ("tcp://127.0.0.1:1", True, False),
        ("tcp://[::1]:1", True, False),
        ("ws://localhost", True, False),
        ("unix:///run/claude.sock", True, False),
        ("tcp://192.0.2.1:1", False, False),
        ("ws://127.0.0.1.example", False, False),
        ("tls://claude.example:1", False, True),
        ("wss://claude.example", False, True),
    ],
)
def test_an_address_knows_whether_what_is_said_can_be_overheard(url: str, stays: bool, encrypted: bool) -> None:
    address = parse_address(url)
    assert (address.stays_here, address.is_encrypted) == (stays, encrypted)


@pytest.mark.parametrize(
    ("url", "written"),
    [
        ("ws://claude.example/", "ws://claude.example:80/"),
        ("wss://claude.example:8443/talk/?model=haiku", "wss://claude.example:8443/talk/?model=haiku"),
        ("ws://[::1]:80/talk", "ws://[::1]:80/talk"),
        (f"ws://{'a' * 70}/", f"ws://{'a' * 70}:80/"),
        ("ws://klöster.example/brücke%20é?a=ü", f"ws://{KLOESTER}:80{BRIDGE}%20{E}?a={U}"),
    ],
)
def test_what_is_sent_of_a_url_is_ascii(url: str, written: str) -> None:
    assert parse_address(url).whole_url == written
