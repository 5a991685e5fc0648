"""A call through the API shows no credential: not in its error, the causes, the local variables of a traceback, or a log.

The address of the API may hold secrets, too. Its origin alone (scheme, host and port) may be shown.
"""

from __future__ import annotations

import base64
import copy
import dataclasses
import io
import json
import logging
import pickle
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from call_errors import Waits

import claude_transport as ct
from claude_transport.completion.classification import classify_reported, forget_secrets, origin_of, with_address
from claude_transport.completion.request import Credential
from claude_transport.protocol.diagnosis import ReportedFailure
from claude_transport.testing import FakeMessagesAPI, replies

KEY = "harbour-Lantern-Q7zz"  # no form that a pattern knows: what hides it must know it
USER, PASSWORD, PATH, QUERY = "wharfmaster", "tide-Table-33", "quay-Seventeen", "berth-Forty"
SECRETS = (KEY, USER, PASSWORD, PATH, QUERY)
NO_PORT = "127.0.0.1:9"
REST = "Check ANTHROPIC_BASE_URL, the network and the proxy, then try again. (transport=api, category=transport)"


def options_with(url: str, **env: str) -> ct.ClaudeOptions:
    return ct.ClaudeOptions(env={"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": url, "NO_PROXY": "127.0.0.1", **env}, env_mode="exact")


def dirty(host: str) -> str:
    """The address of an API at this host, with a secret wherever an address can have one."""
    return f"http://{USER}:{PASSWORD}@{host}/{PATH}"


async def failure(options: ct.ClaudeOptions, **arguments: Any) -> ct.ClaudeTransportError:
    """The error of a call, whose traceback begins here: this function has no local variable with a secret."""
    try:
        await ct.complete("Hi", transport="api", model="haiku", options=options, sleep=Waits(), retry=ct.RetryPolicy.none(), **arguments)
    except ct.ClaudeTransportError as error:
        return error
    raise AssertionError("the call did not fail")


def chain_of(error: BaseException) -> Iterator[BaseException]:
    waiting = [error]
    while waiting:
        each = waiting.pop()
        yield each
        waiting += [inner for inner in (each.__cause__, each.__context__) if inner is not None]


def shown_by(error: ct.ClaudeTransportError) -> str:
    """All that is shown of an error: by itself, by its causes, by its facts, and by a traceback with the local variables."""
    texts = [error.reason, repr(ct.completion.partial_completion(error)), repr(pickle.loads(pickle.dumps(error)))]
    for each in chain_of(error):
        request = vars(each).get("request")
        texts += [] if request is None else [str(dict(request.headers))]
        texts += [str(each), repr(each), repr(each.args), repr({name: value for name, value in vars(each).items() if name != "completion"})]
    texts += traceback.TracebackException.from_exception(error, capture_locals=True).format()
    return "\n".join(texts)


def secrets_in(text: str, *, secrets: tuple[str, ...] = SECRETS) -> list[str]:
    """The lines of `text` with a secret."""
    return [line for line in text.splitlines() if any(secret in line for secret in secrets)]


@pytest.fixture
def everything_logged() -> Iterator[Callable[[], str]]:
    """All that any logger says, at the finest level."""
    stream = io.StringIO()
    handler, root = logging.StreamHandler(stream), logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(1)
    yield stream.getvalue
    root.removeHandler(handler)
    root.setLevel(before)


# ---------------------------------------------------------------------------------------------------- the address of the API


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        (f"http://{USER}:{PASSWORD}@gw.example:8080/{PATH}?k={QUERY}#{PATH}", "http://gw.example:8080"),
        (f"https://{PASSWORD}@gw.example/{PATH}", "https://gw.example"),
        (f"https://{USER}:a@{PASSWORD}@gw.example", "https://gw.example"),
        (f"https://gw.example?{QUERY}", "https://gw.example"),
        (f"http://{USER}:{PASSWORD}@[::1]:81/{PATH}", "http://[::1]:81"),
        (f"http://{USER}:{PASSWORD}/rest@gw.example/", "an address that is no URL"),  # a password with an unescaped slash
        (f"{USER}:{PASSWORD}@gw.example/{PATH}", "an address that is no URL"),
        (f"http://[{PASSWORD}", "an address that is no URL"),
        (f"/{PATH}", "an address that is no URL"),
    ],
)
def test_the_origin_of_an_address_has_no_user_password_path_and_query(url: str, origin: str) -> None:
    assert origin_of(url) == origin
    for kind in ("api", "cli"):
        told = with_address(classify_reported(ReportedFailure(api_error="connection_failed"), kind), url)
        assert told.args == (f"The API at {origin} could not be reached. {REST.replace('=api', '=' + kind)}",)


async def test_an_api_that_is_not_reached_is_named_by_its_origin_alone(everything_logged: Callable[[], str]) -> None:
    error = await failure(options_with(f"{dirty(NO_PORT)}?{QUERY}"))
    assert str(error) == f"The API at http://{NO_PORT} could not be reached: connection refused. {REST}"
    assert secrets_in(shown_by(error) + everything_logged()) == []


async def test_the_result_of_an_api_that_is_not_reached_says_it_once() -> None:
    """Also where the reason of the system has no name: a port of another protocol, for example."""
    error = await failure(options_with("http://127.0.0.1:9", NO_PROXY=""), on_event=None)
    assert isinstance(error, ct.errors.APIFailed)
    assert str(error).count("could not be reached") == str(error).count("(transport=") == 1


@pytest.mark.parametrize(
    "url",
    [
        f"{USER}:{PASSWORD}@gw.example/{PATH}",
        f"http://{USER}:{PASSWORD}@gw.example:no/{PATH}",
        f"http://{USER}:{PASSWORD}/x@gw.example/{PATH}",
        f"http://[{PASSWORD}/{PATH}",
        f"{PASSWORD}://gw.example/{PATH}",
        f"http:///{PATH}",
        f"http://{USER}:{PASSWORD}@gw.example:0/{PATH}",
    ],
    ids=["no-scheme", "port", "slash-in-password", "bracket", "scheme", "no-host", "port-0"],
)
async def test_an_address_that_is_none_is_refused_and_not_shown(url: str, everything_logged: Callable[[], str]) -> None:
    options = options_with(url)
    del url
    error = await failure(options)
    assert (type(error), error.code) == (ct.ConfigurationError, "config.invalid")
    assert error.args == ("ANTHROPIC_BASE_URL must be an address such as https://host:port",)
    assert error.option == "ANTHROPIC_BASE_URL"  # type: ignore[attr-defined]
    assert secrets_in(shown_by(error) + everything_logged()) == []


async def test_the_user_and_password_of_the_address_do_not_take_the_place_of_the_key(
    fake_messages_api: FakeMessagesAPI, everything_logged: Callable[[], str]
) -> None:
    """The HTTP client of the SDK would send them as `Authorization: Basic`, and no key."""
    host = fake_messages_api.url.removeprefix("http://")
    completion = await ct.complete(
        "Hi", transport="api", model="haiku", options=options_with(f"http://{USER}:{PASSWORD}@{host}"), retry=ct.RetryPolicy.none()
    )
    (request,) = fake_messages_api.requests
    assert (request.headers["authorization"], completion.api_key_source) == (f"Bearer {KEY}", "ANTHROPIC_API_KEY")
    assert "user and password of ANTHROPIC_BASE_URL are not sent: a call sends one credential" in everything_logged()
    assert secrets_in(repr(completion) + everything_logged()) == []


async def test_a_call_that_works_logs_no_credential_and_no_path(
    fake_messages_api: FakeMessagesAPI, everything_logged: Callable[[], str]
) -> None:
    """The SDK logs the headers and the address of its requests."""
    gateway = "pilot-Boat-8812"
    clean = options_with(fake_messages_api.url, ANTHROPIC_CUSTOM_HEADERS=f"x-gateway: {gateway}")
    assert (await ct.complete("Hi", transport="api", model="haiku", options=clean)).text
    assert fake_messages_api.requests[0].headers["x-gateway"] == gateway
    error = await failure(options_with(f"{fake_messages_api.url}/{PATH}", ANTHROPIC_CUSTOM_HEADERS=f"x-gateway: {gateway}"))
    assert fake_messages_api.requests[1].path == f"/{PATH}/v1/messages"
    assert error.reason == "POST /…/v1/messages is not served here"
    logged = everything_logged()
    assert f"HTTP Request: POST {fake_messages_api.url}/v1/messages" in logged
    assert f"HTTP Request: POST {fake_messages_api.url} " not in logged
    assert secrets_in(shown_by(error) + logged, secrets=(*SECRETS, gateway)) == []


async def test_what_a_program_logs_after_a_call_is_its_own(
    fake_messages_api: FakeMessagesAPI, everything_logged: Callable[[], str]
) -> None:
    url = f"{fake_messages_api.url}/{PATH}"
    await failure(options_with(url))
    logging.getLogger("httpx2").info("HTTP Request: %s %s", "GET", url)
    assert f"HTTP Request: GET {url}\n" in everything_logged()


# -------------------------------------------------------------------------------------------------------------- the credential


def test_a_credential_shows_its_name_and_never_its_value() -> None:
    held = Credential("ANTHROPIC_API_KEY", KEY)
    shown = [str(held), repr(held), f"{held}", format(held), "%s %r" % (held, held), repr([held]), repr({"held": held})]  # noqa: UP031
    assert [KEY in each for each in shown] == [False] * len(shown)
    assert repr(held) == "Credential('ANTHROPIC_API_KEY')"
    assert (held.name, held.value) == ("ANTHROPIC_API_KEY", KEY)
    assert not hasattr(held, "__dict__")
    assert not hasattr(held, "__rich_repr__")


@pytest.mark.parametrize(
    "convert",
    [
        pickle.dumps,
        copy.copy,
        json.dumps,
        msgspec.json.encode,
        msgspec.msgpack.encode,
        msgspec.to_builtins,
        msgspec.structs.asdict,
        msgspec.structs.astuple,
        dataclasses.asdict,
        vars,
        dict,
        list,
    ],
    ids=lambda convert: f"{convert.__module__}.{convert.__name__}",
)
def test_a_credential_is_converted_into_nothing(convert: Callable[[Any], object]) -> None:
    with pytest.raises(TypeError) as caught:
        convert(Credential("ANTHROPIC_API_KEY", KEY))
    assert KEY not in "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())


def test_credentials_are_equal_by_name_and_value() -> None:
    held = Credential("ANTHROPIC_API_KEY", KEY)
    assert held == Credential("ANTHROPIC_API_KEY", KEY)
    assert hash(held) == hash(Credential("ANTHROPIC_API_KEY", KEY))
    assert held != Credential("ANTHROPIC_API_KEY", "another")
    assert held != Credential("ANTHROPIC_AUTH_TOKEN", KEY)
    assert held != KEY


# ------------------------------------------------------------------------------------------------------------- custom headers

OTHER = "other-Credential-41"
CREDENTIALS = (
    "Authorization",
    "AUTHORIZATION",
    "x-api-key",
    "X-Api-Key",
    "X-API-KEY",
    "Proxy-Authorization",
    "proxy-authorization",
    "Cookie",
)


@pytest.mark.parametrize("variable", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"])
@pytest.mark.parametrize("name", [*CREDENTIALS, " authorization ", "\ufeffAuthorization", "x-api-key\t"])
@pytest.mark.parametrize("place", ["options", "environment", "both"])
async def test_a_call_sends_one_credential_whatever_the_custom_headers_say(
    fake_messages_api: FakeMessagesAPI,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    variable: str,
    name: str,
    place: str,
) -> None:
    given = f"x-own: 1\n{name}: {OTHER}\nx-after: 2"
    env = {variable: KEY, "ANTHROPIC_BASE_URL": fake_messages_api.url}
    if place != "options":
        monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", given)
    if place != "environment":
        env["ANTHROPIC_CUSTOM_HEADERS"] = given
    options = ct.ClaudeOptions(env=env, env_mode="exact")
    completion = await ct.complete("Hi", transport="api", model="haiku", options=options, retry=ct.RetryPolicy.none())
    (request,) = fake_messages_api.requests
    known = ("authorization", "x-api-key", "proxy-authorization", "cookie", "x-own", "x-after")
    own = {} if place == "environment" else {"x-own": "1", "x-after": "2"}
    assert {each: request.headers[each] for each in known if each in request.headers} == {"authorization": f"Bearer {KEY}", **own}
    assert OTHER not in str(dict(request.headers))
    assert completion.api_key_source == variable
    plain = name.strip("\ufeff \t").lower()
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warned == ([] if place == "environment" else [f"{plain} of ANTHROPIC_CUSTOM_HEADERS not sent: a call sends one credential"])


# ---------------------------------------------------------------------------------------------------------------- failed calls


GATEWAY, SHORT, FOREIGN = "pilot-Boat-8812", "q7-zz", "sk-ant-api03-Zm9vYmFyYmF6cXV4"
ALL = (*SECRETS, GATEWAY, SHORT, FOREIGN)


def telling(host: str) -> ct.ClaudeOptions:
    """Options that give the API all kinds of secrets to repeat."""
    headers = f"x-gateway: {GATEWAY}"
    return options_with(f"http://{USER}:{PASSWORD}@{host}", ANTHROPIC_AUTH_TOKEN=SHORT, ANTHROPIC_CUSTOM_HEADERS=headers)


def repeating(host: str) -> str:
    """What an API says that repeats all that it was sent, and a key of its own."""
    return f"no {KEY!r} at http://{USER}:{PASSWORD}@{host}, or {PASSWORD} ({json.dumps(KEY)}) {GATEWAY} <{SHORT}> <{FOREIGN}>"


REPEATED = "no '[secret]' at http://{host}, or [secret] (\"[secret]\") [secret] <[secret]> <[secret]>"


@pytest.mark.parametrize("status", [400, 401, 403, 413, 429, 500, 529])
async def test_an_answer_that_repeats_the_credential_shows_none(
    fake_messages_api: FakeMessagesAPI, everything_logged: Callable[[], str], status: int
) -> None:
    host = fake_messages_api.url.removeprefix("http://")
    fake_messages_api.replace(replies.error(status, message=repeating(host)))
    error = await failure(telling(host))
    said = REPEATED.format(host=host)
    assert isinstance(error, ct.ResultError)
    assert isinstance(error.result, ct.ResultMessage)
    assert (error.reason, error.result.result) == (said, said)
    assert getattr(error.__cause__, "body", None) == {"type": "error", "error": {"type": replies.ERROR_TYPES[status][0], "message": said}}
    assert secrets_in(shown_by(error) + everything_logged(), secrets=ALL) == []


async def test_a_stream_that_fails_and_repeats_the_credential_shows_none(
    fake_messages_api: FakeMessagesAPI, everything_logged: Callable[[], str]
) -> None:
    host = fake_messages_api.url.removeprefix("http://")
    failed = {"type": "error", "error": {"type": "overloaded_error", "message": repeating(host)}}
    fake_messages_api.replace(replies.raw([{"type": "message_start", "message": {"id": "msg_1"}}, failed], times=None))
    error = await failure(telling(host))
    assert (type(error), error.reason) == (ct.Overloaded, REPEATED.format(host=host))
    assert secrets_in(shown_by(error) + everything_logged(), secrets=ALL) == []


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_that_is_not_reached_does_not_show_its_password(
    monkeypatch: pytest.MonkeyPatch, everything_logged: Callable[[], str], scheme: str
) -> None:
    """With the local variables of the HTTP client, which hold its headers."""
    monkeypatch.setenv("HTTP_PROXY", f"http://{USER}:{PASSWORD}@{NO_PORT}/{PATH}")
    monkeypatch.setenv("HTTPS_PROXY", f"http://{USER}:{PASSWORD}@{NO_PORT}/{PATH}")
    error = await failure(options_with(f"{scheme}://api.invalid/{QUERY}"))
    assert str(error) == f"The API at {scheme}://api.invalid could not be reached: connection refused. {REST}"
    shown = shown_by(error) + everything_logged()
    basic = httpx_basic(USER, PASSWORD)
    assert secrets_in(shown, secrets=(*SECRETS, basic)) == []


def httpx_basic(user: str, password: str) -> str:
    return base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.mark.parametrize("proxy", [f"proto://{USER}:{PASSWORD}@127.0.0.1:9", f"http://{USER}:{PASSWORD}/x@127.0.0.1:9"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the SDK's client cannot be deleted half made
async def test_a_proxy_whose_address_is_none_is_refused_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, everything_logged: Callable[[], str], proxy: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    del proxy
    error = await failure(options_with("https://api.invalid"))
    assert (type(error), error.code) == (ct.ConfigurationError, "config.invalid")
    assert error.args == ("HTTPS_PROXY, HTTP_PROXY or ALL_PROXY is not the address of a proxy, such as http://host:port. Correct it",)
    assert error.option == "HTTPS_PROXY"  # type: ignore[attr-defined]
    assert secrets_in(shown_by(error) + everything_logged()) == []


async def test_a_client_of_the_sdk_that_cannot_be_made_for_another_reason_is_not_blamed_on_the_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def half_installed(**_: object) -> None:
        raise ImportError("a part of it is missing")

    monkeypatch.setattr("anthropic.AsyncAnthropic", half_installed)
    error = await failure(options_with("https://api.invalid"))
    assert (type(error), error.code, error.reason) == (ct.errors.APIFailed, "completion.unexpected", "a part of it is missing")


@pytest.mark.parametrize("broken", ["\udce4", "\r", "\n"], ids=["half-a-pair", "return", "newline"])
async def test_a_key_that_no_header_can_hold_is_not_shown(
    fake_messages_api: FakeMessagesAPI, everything_logged: Callable[[], str], broken: str
) -> None:
    options = options_with(fake_messages_api.url)
    options = options.replace(env={**options.env, "ANTHROPIC_API_KEY": f"{KEY}{broken}end"})
    error = await failure(options)
    text = "ANTHROPIC_API_KEY holds a line break or another character that cannot be sent. Correct it"
    assert (type(error), error.args) == (ct.ConfigurationError, (text,))
    assert secrets_in(shown_by(error) + everything_logged()) == []
    assert fake_messages_api.requests == []


@pytest.mark.parametrize("line", [f"x-gateway: {KEY}\rend", f"{KEY} x: 1", f"x-{KEY}é: 1"])
async def test_a_custom_header_that_cannot_be_sent_is_refused_and_not_shown(
    fake_messages_api: FakeMessagesAPI, everything_logged: Callable[[], str], line: str
) -> None:
    options = options_with(fake_messages_api.url, ANTHROPIC_CUSTOM_HEADERS=line)
    del line
    error = await failure(options)
    text = "ANTHROPIC_CUSTOM_HEADERS: a line is no header that can be sent (Name: value). Correct it"
    assert (type(error), error.args) == (ct.ConfigurationError, (text,))
    assert secrets_in(shown_by(error) + everything_logged()) == []
    assert fake_messages_api.requests == []


def test_the_errors_inside_a_group_lose_their_secrets_too() -> None:
    inner = ValueError("bad hunter-two")
    forget_secrets(ExceptionGroup("several addresses were tried", [inner]), lambda text: text.replace("hunter-two", "***"))
    assert str(inner) == "bad ***"
