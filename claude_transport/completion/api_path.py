"""One attempt at a call through the Messages API. `anthropic` is imported only when an attempt is made.

`APIStream` turns the bytes of a streamed answer into events and one message, without I/O. `APIPath` sends the request, and passes on the
same messages that the CLI would send. `classification` turns exceptions of the SDK into errors of this library.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote, urlsplit

import anyio
import msgspec

from claude_transport.agents.agent import Attempt
from claude_transport.completion.assembly import require_anthropic
from claude_transport.completion.classification import (
    classify_api_exception,
    classify_reported,
    forget_secrets,
    origin_of,
    with_address,
)
from claude_transport.completion.models import cost_of
from claude_transport.completion.readiness import check_billing
from claude_transport.completion.request import CompletionRequest, Credential, api_environment, find_credential
from claude_transport.completion.resolution import API_VARIABLES, TransportKind
from claude_transport.errors import ConfigurationError, ResultError
from claude_transport.launch.credentials import Payer
from claude_transport.launch.environ import CREDENTIAL_HEADERS, CUSTOM_HEADERS
from claude_transport.loggers import logger_for
from claude_transport.protocol.codec import decode_message
from claude_transport.protocol.diagnosis import ReportedFailure
from claude_transport.protocol.envelope import Message
from claude_transport.protocol.messages import AssistantMessage, ResultMessage, StreamEvent
from claude_transport.text.secret_forms import SECRET, find_secrets, redact_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anthropic import AsyncAnthropic, Omit

logger: logging.Logger = logger_for(__name__)


# The streamed answer: bytes become events, and the events become one message.


_TEXTS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature", "input_json_delta": "partial_json"}
"""Kind of delta → name of the field that holds its text."""


class APIStream:
    """Reads one streamed answer: pass its bytes to `feed()`. Unknown events are passed on, and left out of the message."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._data: list[bytes] = []
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        # pieces of each growing text: adding to the text at every delta would take quadratic time
        self._pieces: dict[tuple[int, str], list[str]] = {}
        self.is_complete: bool = False
        """Whether the API reported the end of the message. A stream that ends without it was cut."""

    def feed(self, chunk: bytes) -> list[dict[str, Any]]:
        """Return the events that `chunk` completes, in order. A chunk may hold any part of a line."""
        self._rest.append(chunk)
        if b"\n" not in chunk:
            return []  # joined when its line is complete: joining at each chunk would take quadratic time
        *lines, rest = b"".join(self._rest).split(b"\n")
        self._rest = [rest]
        events = []
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line[5:].lstrip(b" "))
            elif not line and self._data:
                event = _decoded(b"\n".join(self._data))
                self._data = []
                if event is not None:
                    self._take(event)
                    events.append(event)
        return events

    @property
    def message_id(self) -> str:
        """Id of the message; empty before the message begins."""
        found = self._message.get("id")
        return found if isinstance(found, str) else ""

    @property
    def has_begun(self) -> bool:
        """Whether the message has begun."""
        return bool(self._message)

    def message(self) -> dict[str, Any]:
        """The message so far, with the names of the wire."""
        content = []
        for index in sorted(self._blocks):
            block = dict(self._blocks[index])
            for (of, name), pieces in self._pieces.items():
                if of == index:
                    _add_text(block, name, "".join(pieces))
            content.append(block)
        return {**self._message, "content": content}

    def _take(self, event: dict[str, Any]) -> None:
        match event.get("type"):
            case "message_start":
                self._message = _object(event.get("message"))
            case "content_block_start":
                self._blocks[_index(event)] = _object(event.get("content_block"))
            case "content_block_delta":
                self._take_delta(_index(event), _object(event.get("delta")))
            case "message_delta":
                self._message |= _object(event.get("delta"))
                known = {name: value for name, value in _object(event.get("usage")).items() if value is not None}
                self._message["usage"] = {**_object(self._message.get("usage")), **known}
            case "message_stop":
                self.is_complete = self.has_begun

    def _take_delta(self, index: int, delta: dict[str, Any]) -> None:
        kind = delta.get("type")
        name = _TEXTS.get(kind) if isinstance(kind, str) else None
        if name is not None and isinstance(text := delta.get(name), str):
            self._pieces.setdefault((index, name), []).append(text)
        elif kind == "citations_delta" and index in self._blocks:
            self._blocks[index]["citations"] = [*(self._blocks[index].get("citations") or ()), delta.get("citation")]


def _add_text(block: dict[str, Any], name: str, text: str) -> None:
    """Add the text of all deltas of one kind. The input of a tool call arrives as text, and is JSON when complete."""
    if name == "partial_json":
        block["input"] = _decoded(text.encode()) or {}
        return
    begun = block.get(name)
    block[name] = (begun if isinstance(begun, str) else "") + text


def _decoded(data: bytes) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None  # an event that is not JSON is skipped; if it mattered, the message does not become complete
    return found if isinstance(found, dict) else None


def _object(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _index(event: Mapping[str, Any]) -> int:
    index = event.get("index")
    return index if isinstance(index, int) else 0


_HOME: Final = "https://api.anthropic.com"

_BASE_URL: Final = "ANTHROPIC_BASE_URL"

NOT_CUSTOM: Final = frozenset({*CREDENTIAL_HEADERS, "cookie"})
"""Headers, in lower case, that carry a credential. Custom headers do not set them: each call sends one credential."""

_BOM: Final = "\ufeff"
"""A byte-order mark, which the CLI removes from the names of custom headers."""

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The name of a header."""

_UNSENDABLE: Final = re.compile(r"[\0\r\n\ud800-\udfff]")
"""A character that no value of a header can have."""

_NO_ANSWER: Final = {
    "max_tokens": ReportedFailure(api_error="max_output_tokens"),
    "model_context_window_exceeded": ReportedFailure(terminal_reason="prompt_too_long"),
    "refusal": ReportedFailure(stop_reason="refusal", terminal_reason=None),
}
"""Stop reasons of messages that are no answer. The CLI reports them as failures (after asking again), and so does this path."""


class CredentialsError(Exception):
    """There is no credential, so the API was not asked."""


class APIPath(Attempt):
    """One attempt. Call `run()` once. It has no side effects, so another attempt is always safe."""

    kind: TransportKind = "api"
    exit_code: int | None = None

    def __init__(self, request: CompletionRequest) -> None:
        self._request = request
        self.payer: Payer = "unknown"
        self.api_key_source: str | None = None
        self._env: Mapping[str, str] = {}

    async def run(self, hear: Callable[[Message], object]) -> None:
        """Ask, and pass to `hear` each event of the stream, then the whole message and a result, as the CLI would send them.

        Raises `ClaudeTransportError`: exceptions of the SDK are translated (see `classification`).
        """
        try:
            require_anthropic()
            body = self._request.api_body()
            credential = self._credential()
            self._env = api_environment(self._request.options)
            with _without_path(self._url):
                async with self._client(credential) as client:
                    self.dispatched = True
                    async with client.messages.with_streaming_response.create(**body, stream=True) as response:
                        stream = await _read(response.http_response, hear)
        except Exception as exc:  # the SDK and its HTTP client may raise anything; it is translated here
            forget_secrets(exc, self._hide())
            error = with_address(classify_api_exception(exc), self._url)
            if isinstance(error, ResultError) and isinstance(error.result, ReportedFailure):
                error.result = _made(_failed(error.result, sentence=error.args[0]))
                hear(error.result)
            if error is exc:
                raise
            raise error from exc
        self._conclude(stream.message(), hear)

    def _credential(self) -> Credential:
        """Return the credential of this call. Raises `AuthFailed` when there is none."""
        options = self._request.options
        check_billing("api", options.billing)
        found = find_credential(options)
        if found is None:
            cause = CredentialsError("neither ANTHROPIC_API_KEY nor ANTHROPIC_AUTH_TOKEN is set")
            raise classify_api_exception(cause) from cause
        if _UNSENDABLE.search(found.value):
            text = f"{found.name} holds a line break or another character that cannot be sent. Correct it"
            raise ConfigurationError(text, option=found.name)
        self.api_key_source = found.name
        self.payer = "api account" if found.name == "ANTHROPIC_API_KEY" else "token owner"
        return found

    def _client(self, credential: Credential) -> AsyncAnthropic:
        """Make the client. It gets the credential as an argument, so that the SDK looks for no other one.

        All headers are headers of the client: the SDK logs those of a request.
        """
        from anthropic import AsyncAnthropic

        is_key = credential.name == "ANTHROPIC_API_KEY"
        url = _address_of(self._url)
        client: AsyncAnthropic | None = None
        try:
            client = AsyncAnthropic(
                api_key=credential.value if is_key else None,
                auth_token=None if is_key else credential.value,
                base_url=url,
                max_retries=0,  # retries of the SDK would multiply with ours, unseen
            )
        except Exception as exc:
            if not isinstance(exc, ValueError) and type(exc).__name__ != "InvalidURL":
                raise
        if client is None:  # outside of `except`: the words of that exception may be a part of a password
            names = "HTTPS_PROXY, HTTP_PROXY or ALL_PROXY"
            raise ConfigurationError(f"{names} is not the address of a proxy, such as http://host:port. Correct it", option="HTTPS_PROXY")
        # `Omit` is not in the type, but the SDK heeds it here as in the headers of a request
        return client.with_options(default_headers=cast("Mapping[str, str]", self._headers(client)))

    @property
    def _url(self) -> str:
        return self._env.get(_BASE_URL) or _HOME

    def _headers(self, client: AsyncAnthropic) -> dict[str, str | Omit]:
        """Return the headers from ANTHROPIC_CUSTOM_HEADERS in the environment that the options make, and the credential.

        The SDK always reads that variable of this process. Those headers are removed here. A credential is never among them.
        """
        from anthropic import Omit

        inner = {name.strip(_BOM + " \t"): value for name, value in _custom_headers(self._env).items() if name}
        if left_out := sorted(NOT_CUSTOM & inner.keys()):
            logger.warning("%s of %s not sent: a call sends one credential", ", ".join(left_out), CUSTOM_HEADERS)
        kept = {name: value for name, value in inner.items() if name not in NOT_CUSTOM}
        if not all(_TOKEN.fullmatch(name) and not _UNSENDABLE.search(value) for name, value in kept.items()):
            # the HTTP client would quote it in its error, and in its log
            raise ConfigurationError(
                f"{CUSTOM_HEADERS}: a line is no header that can be sent (Name: value). Correct it", option=CUSTOM_HEADERS
            )
        ours = {name.lower(): value for name, value in client.auth_headers.items()}
        return {**dict.fromkeys(_custom_headers(os.environ), Omit()), **kept, **ours}

    def _hide(self) -> Callable[[str], str]:
        """Return a function that removes the credentials of this call, and all of its address but the origin, from a text."""
        url, keys = self._env.get(_BASE_URL, ""), (self._env.get(name, "").strip() for name in API_VARIABLES)
        known = {secret for secret in (*find_secrets(self._env), *keys, *_secrets_in(url)) if len(secret) >= _LEAST_SECRET}
        spelt = {spelling for secret in known for spelling in _spellings(secret)}

        def hide(text: str) -> str:
            text = _without_path_of(url, text)
            for each in sorted(spelt, key=len, reverse=True):
                text = text.replace(each, SECRET)
            return redact_secrets(text)

        return hide

    def _conclude(self, message: dict[str, Any], hear: Callable[[Message], object]) -> None:
        """Pass on the whole message and its result. Raises the error of an answer that was cut or refused."""
        # through the decoder, which accepts what this version does not know
        said = cast("AssistantMessage", decode_message(msgspec.json.encode({"type": "assistant", "message": message})))
        hear(said)
        failure = _NO_ANSWER.get(said.message.stop_reason or "")
        error = None if failure is None else classify_reported(failure, "api")
        result = _made(_result_of(message) | ({} if failure is None else _failed(failure, sentence=str(error))))
        cost = cost_of(said.message.model, usage=result.usage)
        result = msgspec.structs.replace(result, total_cost_usd=cost or 0, raw=b"")
        hear(result)
        if error is not None:
            error.result = result
            raise error


def _custom_headers(env: Mapping[str, str]) -> dict[str, str]:
    """Read ANTHROPIC_CUSTOM_HEADERS: one header on a line, by lower-case name. Lines that are no header are skipped, as in the SDK."""
    lines = (line.partition(":") for line in env.get(CUSTOM_HEADERS, "").split("\n"))
    return {name.strip().lower(): value.strip() for name, colon, value in lines if colon}


# The address of the API. Only its origin may be shown: the rest may hold a secret.


def _address_of(url: str) -> str:
    """Return `url` as the SDK gets it: without user and password, which its HTTP client would send in place of the credential.

    Raises `ConfigurationError` when it is no address of a server.
    """
    try:
        parts = urlsplit(url.strip())
        port = parts.port  # raises for one that is no number
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ConfigurationError(f"{_BASE_URL} must be an address such as https://host:port", option=_BASE_URL)
    host = parts.netloc.rpartition("@")[2]
    if host != parts.netloc:
        logger.warning("user and password of %s are not sent: a call sends one credential", _BASE_URL)
    return parts._replace(netloc=host).geturl()


def _secrets_in(url: str) -> set[str]:
    """Return the parts of `url` that may be a secret: a password, a user without one, and the query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return {url}
    user, colon, password = parts.netloc.rpartition("@")[0].partition(":")
    found = {password if colon else user, parts.query}
    return found | set(map(unquote, found))


def _spellings(secret: str) -> tuple[str, ...]:
    """Return a secret as text, JSON and Python write it: the HTTP client quotes a header that it refuses."""
    sent = secret.encode("utf-8", "surrogateescape")
    return secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], repr(sent)[2:-1]


def _without_path_of(url: str, text: str) -> str:
    """Return `text` with the origin of `url` in its place, also where user and password were left out, and without its path."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return text
    if not parts.netloc:
        return text
    origin, path = origin_of(url), parts.path.rstrip("/")
    for each in (url.strip(), parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()):
        text = text.replace(each.rstrip("/"), origin)
    return text.replace(path, "/…") if len(path) >= _LEAST_PATH else text


_LEAST_SECRET: Final = 4
"""Characters of a secret that is removed from texts: a shorter one occurs everywhere."""

_LEAST_PATH: Final = 5
"""Characters of a path that is removed from texts: a shorter one, such as `/v1`, is no secret, and occurs everywhere."""

_address: ContextVar[str] = ContextVar("_address", default="")


class _WithoutPath(logging.Filter):
    """Removes the path of the API's address from what the SDK and its HTTP client log during a call: both log whole URLs."""

    def filter(self, record: logging.LogRecord) -> bool:
        url = _address.get()
        if url and isinstance(record.args, tuple):
            texts = [str(each) for each in record.args]
            record.args = tuple(
                _without_path_of(url, text) if "://" in text else each for each, text in zip(record.args, texts, strict=True)
            )
        return True


_FILTER: Final = _WithoutPath()
_LOGGERS: Final = ("anthropic._base_client", "httpx2", "httpx")


@contextmanager
def _without_path(url: str) -> Iterator[None]:
    """Keep the path of `url` out of the logs of the SDK and its HTTP client, for what this task calls."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)  # once: a logger has each filter only once
    token = _address.set(url)
    try:
        yield
    finally:
        _address.reset(token)


async def _read(response: Any, hear: Callable[[Message], object]) -> APIStream:
    """Read all of `response`, and pass each event to `hear`. Raises what the SDK would raise.

    `response` belongs to the HTTP client of the SDK: httpx or its successor, by version of the SDK.
    """
    from anthropic import APIConnectionError, APIStatusError

    stream = APIStream()
    chunks = response.aiter_bytes()
    try:
        async for chunk in chunks:
            for event in stream.feed(chunk):
                if event.get("type") == "error":
                    raise APIStatusError("the stream reported an error", response=response, body=event)
                if event.get("type") != "ping":
                    hear(StreamEvent(event=event, api_message_id=stream.message_id or None))
            if stream.is_complete:
                return stream
    finally:
        await _exhaust(chunks)
    raise APIConnectionError(message="the stream ended before the message was whole", request=response.request)


async def _exhaust(chunks: AsyncIterator[bytes]) -> None:
    """Let every generator under `chunks` end from the inside.

    The event loop closes a half-read generator at any time, and trio warns of each one. Those of the HTTP client cannot be reached. So
    reading goes on until its next wait, which is cancelled.
    """
    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            async for _ in chunks:
                pass
        except Exception:  # noqa: BLE001, S110 - a connection that breaks while it is given up has done what was wanted
            pass


def _result_of(message: dict[str, Any]) -> dict[str, Any]:
    """Make the result that the CLI would send for this answer, with the fields that mean the same here."""
    texts = [block.get("text") for block in message["content"] if block.get("type") == "text"]
    return {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "num_turns": 1,
        "result": "\n".join(text for text in texts if isinstance(text, str)),
        "stop_reason": message.get("stop_reason"),
        "usage": message.get("usage"),
    }


def _failed(failure: ReportedFailure, *, sentence: str) -> dict[str, Any]:
    """Make the fields of the result that the CLI would send for this failure: with the words of the API, else with `sentence`."""
    known = ("subtype", "is_error", "terminal_reason", "stop_reason", "api_error", "api_error_status")
    told = {name: value for name in known if (value := getattr(failure, name)) is not None}
    return {"type": "result", "num_turns": 1, **told, "result": failure.result or sentence}


def _made(fields: dict[str, Any]) -> ResultMessage:
    return cast("ResultMessage", decode_message(msgspec.json.encode(fields)))
