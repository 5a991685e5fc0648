"""What a URL of a Redis server says, for fleets and session stores."""

from __future__ import annotations

import ssl

import pytest

from claude_transport import errors
from claude_transport.redis.address import RedisAddress


def test_a_url_names_server_user_database_and_the_parameters_of_its_user() -> None:
    address = RedisAddress.of("redis://me:p%40ss@redis.example.com/3?prefix=mine&owner=", parameters=("prefix", "owner"))
    assert (address.host, address.port, address.username, address.password) == ("redis.example.com", 6379, "me", "p@ss")
    assert (address.database, address.tls, address.parameters) == (3, None, {"prefix": "mine", "owner": ""})
    assert repr(address) == str(address) == "redis://redis.example.com:6379/3"


def test_a_url_without_a_login_names_neither_a_user_nor_a_password() -> None:
    address = RedisAddress.of("redis://redis.example.com")
    assert (address.port, address.username, address.password, address.database) == (6379, None, None, 0)
    address = RedisAddress.of("redis://:p%40ss@redis.example.com")
    assert (address.username, address.password) == (None, "p@ss")


def test_the_text_of_an_address_with_tls_says_so_and_hides_the_password() -> None:
    address = RedisAddress.of("rediss://me:hunter2@host:7000/0")
    assert str(address) == "rediss://host:7000/0"
    assert address.without_password("login of me:hunter2 failed") == "login of me:*** failed"
    assert RedisAddress.of("redis://host").without_password("nothing") == "nothing"


def test_a_context_of_the_caller_is_used_as_it_is() -> None:
    context = ssl.create_default_context()
    assert RedisAddress.of("rediss://host/0", ssl_context=context).tls is context


@pytest.mark.parametrize("url", ["redis://host/0", "rediss://host/0?ssl_cert_reqs=none"])
def test_a_context_that_the_url_contradicts_is_refused(url: str) -> None:
    with pytest.raises(errors.ConfigurationError, match="ssl_context needs rediss://") as caught:
        RedisAddress.of(url, ssl_context=ssl.create_default_context())
    assert caught.value.option == "ssl_context"


@pytest.mark.parametrize(
    "url",
    [
        "redis://host/0?prefix=x&hunter2=1",
        "redis://host/0#hunter2",
        "redis://host/123456?prefix=hunter2",
        "redis://host/٣?prefix=hunter2",
        "redis://host /0?prefix=hunter2",
        "redis://host/0?prefix=hunter2\n",
        "redis://host/0?prefix=hunter2\ud800",
        "redis://host:port/0?prefix=hunter2",
        "redis:///0?prefix=hunter2",
    ],
)
def test_what_is_no_such_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(errors.ConfigurationError) as caught:
        RedisAddress.of(url, parameters=("prefix",))
    assert caught.value.option == "url"
    assert "hunter2" not in f"{caught.value!r} {caught.value.__cause__!r}"


def test_a_refused_query_is_told_what_it_may_have() -> None:
    with pytest.raises(errors.ConfigurationError, match="may have prefix and owner, and ssl_ca_certs, "):
        RedisAddress.of("redis://host/0?other=1", parameters=("prefix", "owner"))
    with pytest.raises(errors.ConfigurationError, match=r"may have ssl_ca_certs, .* with rediss://"):
        RedisAddress.of("redis://host/0?ssl_ca_certs=x")
