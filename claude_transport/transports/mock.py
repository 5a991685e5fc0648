"""`MockTransport`: plays the messages that a test gives it, and records what is written to it.

The steps of a scripted conversation are in `script`. A recorded conversation is played by `replay`. A scripted hook call names an
event, and the host gives its callbacks ids of its own: `with_hook_id()` finds which one is meant.
"""

from __future__ import annotations

import copy
import json
import re
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, Self

import anyio
import anyio.lowlevel
import msgspec

from claude_transport.errors import Busy, ConfigurationError, InputClosed, NotConnected, TransportClosed, UsageError
from claude_transport.protocol.codec import LineDecoder
from claude_transport.protocol.envelope import encode_line
from claude_transport.protocol.expectation import (
    ExpectationFailed,
    describe_message,
    each_registered_hook,
    error_answered,
    registered_hooks,
    registered_servers,
)
from claude_transport.transport import Client, DecodedLines, SessionTerms, Transport, TransportInfo
from claude_transport.transports.script import MockScript, ScriptBuilder, ScriptPlayer
from claude_transport.transports.stream import FailureCount, LineBatches, bytes_to_send

_INITIALIZED: dict[str, Any] = {
    "commands": [],
    "agents": [],
    "models": [],
    "account": {"tokenSource": "none"},
    "output_style": "default",
    "available_output_styles": ["default"],
    "claude_code_version": "0.0.0-mock",
    "capabilities": [],
}

_BY_ITSELF = frozenset({"initialize", "interrupt", "mcp_set_servers", "get_settings", "get_binary_version"})
"""The control requests that a host makes without being told to: at the start, when it is closed, and to see that a CLI lives."""

_NO_REQUEST = "no control request that the program decides on: a list answers none; a script does, after expect_control()"

_POLITENESS = 10
"""Checkpoints that the first read waits for a first write. A client of the control protocol sends `initialize` at once."""


class MockTransport(ScriptBuilder, Transport):
    """A transport for tests: plays `responses` (dicts, or raw lines as bytes), and records in `written` what is written to it.

    If no control request is written, it plays all responses and then ends the stream. `Query` and the official SDK write control requests,
    and then it behaves like the CLI. It answers `initialize` and every other control request with a success. Each user message releases the
    responses up to the next `result`. A `control_request` among the responses holds back the following ones until it is answered. When a
    prompt comes and no responses are left, the stream ends, so that a test with too few responses fails instead of hanging.

    With a `MockScript` as `script`, it plays that, and no `responses`. `MockTransport.script().expect(type="user").reply({...})` makes a
    mock and its script at once.

    With `strict`, more is an `ExpectationFailed`, in `write()` and in the reader:

    * a prompt for which no responses are left;
    * a control request beside a list of responses. Those that a `Query` makes by itself are allowed, such as an `interrupt` when it closes;
    * a call of a hook that `initialize` did not register, or a permission question to a `Query` without `can_use_tool`;
    * an error as the answer to a question, unless the script expects it.

    The fixture `mock_claude` makes strict mocks.

    Raises:
        ConfigurationError: `responses` is one message and not a list, or holds something else than dicts and bytes.
    """

    def __init__(
        self, responses: Iterable[Mapping[str, Any] | bytes] = (), *, script: MockScript | None = None, strict: bool = False
    ) -> None:
        self._script = None if script is None else script.player
        self._responses: deque[Mapping[str, Any] | bytes] = deque(_checked(responses))
        self._total = len(self._responses)
        self._turns_left = _count_turns(self._responses)
        self._strict = strict
        self._accepted = 0  # messages of the host before the first failure
        self._failure: ExpectationFailed | None = None
        self._answers: deque[Mapping[str, Any]] = deque()
        self._asked: set[str] = set()  # ids of control requests among the responses that wait for the host's answer
        self._called: dict[str, str] = {}  # the MCP servers that questions of a strict mock call, by the ids of these
        self._prompts = 0  # user messages whose result has not been played yet
        self._conversing = False
        self._change = anyio.Event()
        self._reading = False
        self._connected = False
        self._closed = False
        self._input_ended = False
        self._bytes_read = 0
        self._bytes_written = 0
        self._pending: deque[bytes] = deque()
        self._decoder = LineDecoder()
        self._failures = FailureCount("MockTransport")
        self.written: list[dict[str, Any]] = []
        """Every message that was written, decoded, in order."""
        self.client: Client | None = None
        """What the layer above said about itself when it attached; None before that."""

    @classmethod
    def script(cls, *, strict: bool = False) -> Self:
        """Return a new mock with an empty script. Chain `expect`, `reply`, `emit` and `end` to write the script; each returns the mock.

        `MockScript` says how a script is played, `MockTransport` what `strict` adds.
        """
        return cls(script=MockScript(), strict=strict)

    @property
    def _player(self) -> ScriptPlayer:
        if self._script is None:
            raise UsageError("this mock plays responses, not a script: create it with MockTransport.script()")
        return self._script

    @property
    def failure(self) -> ExpectationFailed | None:
        """The first thing that your program did against the script or the responses; None so far. It is kept also when it was caught."""
        return self._failure if self._failure is not None or self._script is None else self._script.failure

    @property
    def whereabouts(self) -> str:
        """The next step of the script, or the next response, and what it waits for. To debug a test that hangs."""
        if self._script is not None:
            return self._script.whereabouts
        place = self._where_it_stands()
        if self._asked:
            return f"{place}: waiting for the answer to {', '.join(sorted(self._asked))}"
        if not self._responses:
            return f"{place}: everything was played" + ("" if self._input_ended else "; waiting for the end of the input")
        waits = "a prompt" if self._conversing and not self._prompts else "a reader"
        return f"{place}: waiting for {waits}" if self._connected else f"{place}: not connected"

    @property
    def received_last(self) -> str:
        """The last message of your program, in a few words: before one that was not expected. It is empty before there is one."""
        accepted = self.written if self.failure is None else self.written[: self._accepted]
        return describe_message(accepted[-1]) if accepted else ""

    @property
    def is_closed(self) -> bool:
        """True after `close()`: no step can be played any more."""
        return self._closed

    def leftover(self) -> ExpectationFailed | None:
        """Return the error of a script, or a list of responses, that was not played to its end; None when it was."""
        if self._script is not None:
            return self._script.leftover()
        if not self._responses:
            return None
        rest = _as_mapping(self._responses[0]) or self._responses[0]
        said = f"result {rest.get('result')!r}" if isinstance(rest, Mapping) and rest.get("type") == "result" else describe_message(rest)
        wanted = "one more prompt, which this answers" if self._conversing and not self._prompts else "the host to read this"
        actual = "nothing more" if self._connected else "a mock that was never connected"
        return ExpectationFailed.at(self._where_it_stands(), expected=f"{wanted}: {said}", actual=actual)

    def assert_exhausted(self) -> None:
        """Raise `ExpectationFailed` unless the script was played to its end, or every response was read."""
        if (leftover := self.leftover()) is not None:
            raise leftover

    async def connect(self) -> None:
        """Make the mock ready for reading and writing. It starts nothing.

        Raises:
            TransportClosed: `close()` was called.
        """
        await anyio.lowlevel.checkpoint()
        if self._closed:
            raise TransportClosed("the transport is closed")
        self._connected = True

    def is_ready(self) -> bool:
        """Return True between `connect()` and `close()`, also when all responses were played. False once the end of a script was read."""
        return self._connected and not self._closed and not self._has_ended()

    def attach(self, client: Client) -> SessionTerms:
        """Keep `client`, the layer above (usually a `Query`), in the attribute `client`, for the test to look at.

        Returns `SessionTerms` that only make the layer above report lines that hold no message, so that `info` counts them.
        """
        self.client = client
        return SessionTerms(on_failure=self._failures)

    async def write(self, data: str | bytes) -> None:
        """Add each message in `data` to `written`, and react to it as the CLI would, or as the script says.

        Raises:
            UsageError: a line is not a JSON object; it would end the CLI. Or `data` is neither `str` nor bytes, or no UTF-8.
            ExpectationFailed: the script, or the list of responses of a strict mock, does not expect the message.
            InputClosed, NotConnected, TransportClosed: after `end_input()`, before `connect()`, after `close()`.
            TransportClosed: the reader has got the `end()` of the script. It has its exit code, signal and standard error.
        """
        # first, so that a cancelled write has written nothing, and a finished one returns before the reader reacts
        await anyio.lowlevel.checkpoint()
        self._refuse_unless_open()
        if self._input_ended:
            raise InputClosed("end_input() was called")
        if self._script is not None and self._has_ended():
            raise TransportClosed("the peer is gone", **self._script.end_of_process())
        lines = bytes_to_send(data)
        for line in lines.split(b"\n"):
            if line.strip():
                self._take(line)
        self._bytes_written += len(lines) + (not lines.endswith(b"\n"))  # with the newline that a real transport adds
        self._wake()

    def read_lines(self) -> AsyncIterator[Sequence[bytes]]:
        """Return an iterator over the responses as raw lines without newlines, one in each batch.

        Raises:
            NotConnected: `connect()` was not called.
            TransportClosed: `close()` was called.
        """
        self._refuse_unless_open()
        return LineBatches(self.next_batch)

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Return an iterator over the responses as dicts. Raw lines that hold no message are left out; `info` counts them.

        Raises:
            NotConnected: `connect()` was not called.
            TransportClosed: `close()` was called.
        """
        self._refuse_unless_open()
        return DecodedLines(self.next_batch, pending=self._pending, decoder=self._decoder, on_failure=self._failures)

    async def end_input(self) -> None:
        """End the input. The stream ends when everything that was released has been played.

        Raises:
            NotConnected: `connect()` was not called.
            TransportClosed: `close()` was called.
        """
        await anyio.lowlevel.checkpoint()
        self._refuse_unless_open()
        self._input_ended = True
        self._wake()

    async def close(self) -> None:
        """End the stream: a waiting reader's iteration ends, and later reads and writes raise `TransportClosed`."""
        self._closed = True
        self._wake()
        await anyio.lowlevel.checkpoint()

    @property
    def info(self) -> TransportInfo:
        """The bytes that were read and written, and the numbers of lines that held no message. There is no process, but a script that has
        ended says how it would have ended.
        """
        return TransportInfo(
            kind=type(self).__name__,
            bytes_read=self._bytes_read,
            bytes_written=self._bytes_written,
            **self._failures.counts(),
            **({} if self._script is None else self._script.end_of_process()),
        )

    def _take(self, line: bytes) -> None:
        try:
            message = _read(line)
        except ValueError as exc:  # also msgspec's errors
            # the line is not shown: it may be a prompt, or hold a key
            raise UsageError(f"a line that is not a JSON object would end the CLI ({len(line)} bytes): {exc}") from exc
        self.written.append(message)
        if self._strict:
            self._refuse_error(message)
        if self._script is not None:
            self._wake()  # a message that the script does not expect fails the reader, too
            if self._script.received(message):
                self._accepted = len(self.written)
                return
        kind = message.get("type")
        if kind == "user":
            self._prompts += 1
            self._turns_left -= 1
            if self._strict and self._turns_left < 0:
                self._fail(expected="no further prompt: no responses are left for it", actual=describe_message(message))
        elif kind == "control_request":
            self._conversing = True
            if self._strict and _subtype_of(message) not in _BY_ITSELF:  # of a script, only `initialize` comes so far
                self._fail(expected=_NO_REQUEST, actual=describe_message(message))
            self._answers.append(_answer_to(message))
        elif kind == "control_response":
            self._asked.discard(str((message.get("response") or {}).get("request_id")))
        self._accepted = len(self.written)

    def _where_it_stands(self) -> str:
        """Return the next step of the script, or the next response, as errors name it."""
        if self._script is not None:
            return self._script.step_name
        return f"response {min(self._total - len(self._responses) + 1, self._total)} of {self._total}"

    def _fail(self, *, expected: str, actual: str, why: str = "") -> NoReturn:
        """Raise an error, which the reader gets, too."""
        self._failure = self._failure or ExpectationFailed.at(self._where_it_stands(), expected=expected, actual=actual, why=why)
        self._wake()
        raise copy.copy(self._failure)

    def _refuse_error(self, message: dict[str, Any]) -> None:
        """Fail when a question was answered with an error, which the script does not expect."""
        error = error_answered(message)
        if error is not None and not (self._script is not None and self._script.judges_errors):
            actual = f"the error {error!r} in {describe_message(message)}"
            self._fail(expected="an answer that is no error", actual=actual, why=self._why_refused(message))

    def _with_hook_id(self, response: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the response with the id of the hook that it names. Keeps the error of a hook that is not there."""
        try:
            return with_hook_id(response, self.written)
        except ExpectationFailed as failed:
            self._failure = failed
            raise copy.copy(failed) from None

    def _refuse_unregistered(self, response: Mapping[str, Any] | bytes) -> None:
        """Fail when a question is asked for which the host has registered nothing: the CLI would not ask it."""
        request = _as_mapping(response).get("request")
        subtype = request.get("subtype") if isinstance(request, Mapping) else None
        if not isinstance(request, Mapping):
            return
        if subtype == "hook_callback":
            registered = {name: event for message in self.written for name, event in registered_hooks(message).items()}
            if request.get("callback_id") not in registered:
                self._fail(
                    expected=f"`initialize` to register the hook {request.get('callback_id')!r}, which is called next",
                    actual=f"hooks {', '.join(sorted(registered))}" if registered else "no hooks",
                )
        elif subtype == "can_use_tool" and self.client is not None and self.client.initializes:  # other layers do not say what they answer
            if "can_use_tool" not in self.client.answers:
                self._fail(expected="a program with a callback can_use_tool, which is asked next", actual="none")
        elif subtype == "mcp_message":
            self._called[str(_as_mapping(response).get("request_id"))] = str(request.get("server_name"))

    def _why_refused(self, message: Mapping[str, Any]) -> str:
        """Return what the host lacks that has answered a question with an error; empty when that is not known."""
        server = self._called.get(str((message.get("response") or {}).get("request_id")))
        known = {name for sent in self.written for name in registered_servers(sent)}
        return "" if server is None or server in known else f"the program has registered no MCP server {server!r}"

    def _next_response(self) -> Mapping[str, Any] | bytes | None:
        """Return the next response, or None while there is none that may be played."""
        if self._answers:
            return self._answers.popleft()
        if self._script is not None:
            return self._script.next_output()
        if not self._responses:
            return None
        if self._conversing and (self._is_waiting_for_an_answer() or not self._prompts):
            return None
        response = self._responses.popleft()
        if self._conversing:
            # raw lines are played by the same rules
            message = _as_mapping(response)
            if message.get("type") == "result":
                self._prompts -= 1
            elif message.get("type") == "control_request":
                self._asked.add(str(message.get("request_id")))
        return response

    def _is_waiting_for_an_answer(self) -> bool:
        """After the end of the input no answer can come, and the CLI takes that as a denial (docs/reference/protocol.md#end-of-input)."""
        return bool(self._asked) and not self._input_ended

    def _is_over(self) -> bool:
        """Return whether no response can follow. Called only when there is none at the moment."""
        if self._closed:
            return True
        if self._script is not None:
            return self._script.is_over(input_ended=self._input_ended)
        if self._responses:
            return self._input_ended and not self._prompts
        return not self._conversing or self._input_ended or self._prompts > 0

    async def next_batch(self) -> Sequence[bytes]:
        """Return the next line without its newline, as a batch. The iterators call it. It raises `StopAsyncIteration` at the end.

        Raises:
            Busy: another task is reading.
            ExpectationFailed, ProcessError: the script has failed, or ends the stream with this error.
        """
        if self._reading:
            raise Busy("another task is already reading from this transport")
        self._reading = True
        try:
            for _ in range(_POLITENESS):
                if self.written or self._closed:
                    break
                await anyio.lowlevel.checkpoint()
            while not self._closed:
                if self._failure is not None:
                    raise copy.copy(self._failure)
                response = self._next_response()
                if isinstance(response, Mapping):
                    response = self._with_hook_id(response)
                if response is not None:
                    if self._strict:
                        self._refuse_unregistered(response)
                    line = response.rstrip(b"\n") if isinstance(response, bytes) else encode_line(response)[:-1]
                    self._bytes_read += len(line) + 1
                    return (line,)
                if self._is_over():
                    break
                self._change = anyio.Event()
                await self._change.wait()
            raise StopAsyncIteration
        finally:
            self._reading = False

    def _wake(self) -> None:
        self._change.set()

    def _has_ended(self) -> bool:
        """Return whether the script had an `end()`, and the reader has got it."""
        return self._script is not None and self._script.end_was_read

    def _refuse_unless_open(self) -> None:
        if self._closed:
            raise TransportClosed("the transport is closed")
        if not self._connected:
            raise NotConnected("connect() has not been called")


def _checked(responses: Iterable[Mapping[str, Any] | bytes]) -> Iterator[Mapping[str, Any] | bytes]:
    if isinstance(responses, Mapping | str | bytes):
        raise ConfigurationError(f"responses is a list of messages, not one {type(responses).__name__}", option="responses")
    for index, response in enumerate(responses):
        if not isinstance(response, Mapping | bytes):
            raise ConfigurationError(
                f"responses[{index}] is {type(response).__name__}, neither a dict nor bytes; "
                "`assistant(…)` and `result(…)` of claude_transport.testing make them",
                option="responses",
            )
        yield response


def _count_turns(responses: Iterable[Mapping[str, Any] | bytes]) -> int:
    """Return how many prompts the responses answer: each `result` ends a turn, and what follows the last one is a turn without an end."""
    kinds = [_as_mapping(response).get("type") for response in responses]
    return kinds.count("result") + bool(kinds and kinds[-1] != "result")


def _as_mapping(response: Mapping[str, Any] | bytes) -> Mapping[str, Any]:
    """Return the response as a mapping; an empty one for a line that is no message."""
    if not isinstance(response, bytes):
        return response
    try:
        message = json.loads(response)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


def _read(line: bytes) -> dict[str, Any]:
    """Return the object on a line of the host, as the CLI reads it: half of a surrogate pair is no error there, nor are bytes that are no
    UTF-8. Raises `ValueError` for anything else than an object.
    """
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except ValueError:  # also msgspec's errors
        message = json.loads(line.decode("utf-8", "replace"), parse_constant=_refuse_constant)
    return msgspec.convert(message, dict[str, Any])


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _subtype_of(message: Mapping[str, Any]) -> object:
    """Return which control request a message is."""
    request = message.get("request")
    return request.get("subtype") if isinstance(request, Mapping) else None


def _answer_to(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the CLI's answer to a control request: a success, with the usual fields for `initialize`."""
    subtype = _subtype_of(message)
    payload = _INITIALIZED if subtype == "initialize" else {"still_queued": []} if subtype == "interrupt" else {}
    response = {"subtype": "success", "request_id": message.get("request_id"), "response": payload}
    return {"type": "control_response", "response": response}


_PLACEHOLDER = re.compile(r"\{\{hook\.(\w+)\}\}")
_NAMES_ONLY = re.compile(r"[\w\-|, ]*", re.ASCII)


def with_hook_id(message: Mapping[str, Any], written: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return a hook call with the id of the first hook that `written` registers for it, in place of `{{hook.EVENT}}`.

    Any other message is returned as it is. Raises `ExpectationFailed` when no hook is registered for the event and the tool.
    """
    request = message.get("request")
    named = _PLACEHOLDER.fullmatch(str(request.get("callback_id"))) if isinstance(request, Mapping) else None
    if named is None or not isinstance(request, Mapping):
        return message
    event = named[1]
    given = request.get("input")
    subject = given.get("tool_name") if isinstance(given, Mapping) else None
    registered = [hook for sent in written for hook in each_registered_hook(sent)]
    for known, matcher, callback_id in registered:
        if known == event and (subject is None or _takes(matcher, str(subject))):
            return {**message, "request": {**request, "callback_id": callback_id}}
    of = "" if subject is None else f" of {subject}"
    hooks = ", ".join(known if matcher is None else f"{known} with the matcher {matcher!r}" for known, matcher, _ in registered)
    expected = f"`initialize` to register a hook for {event}{of}, which is called next"
    raise ExpectationFailed.at("hook call", expected=expected, actual=hooks or "no hooks")


def _takes(matcher: object, subject: str) -> bool:
    """Return whether a matcher is for this tool, as the CLI decides it.

    Nothing and `*` are for all tools. Names are whole names, and `Task` also names the tool `Agent`. Other text is a regular expression.
    """
    if not isinstance(matcher, str) or matcher in {"", "*"}:
        return True
    if _NAMES_ONLY.fullmatch(matcher):
        names = {name.strip() for name in re.split(r"[|,]", matcher)}
        return subject in names or (subject == "Agent" and "Task" in names)
    try:
        return re.search(matcher, subject) is not None
    except re.error:
        return False
