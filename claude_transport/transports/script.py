"""`MockScript`: a conversation that a test writes in advance, step by step: what the host must write, and what it reads in return.

```python
claude = MockTransport.script().expect(type="user").reply({"type": "result", ...}).expect_control("interrupt").reply().end()
```
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Self

from claude_transport.errors import ProcessError, UsageError
from claude_transport.protocol.expectation import Expectation, ExpectationFailed, describe_message

Line = Mapping[str, Any] | bytes
"""A message, or a raw line."""

_WITHOUT_EFFECT = frozenset({"keep_alive", "control_cancel_request"})
"""Types of messages that a host may write at any time, and that the CLI does not react to (recordings 18p, 09a)."""


class _Emit:
    """A step that plays lines."""

    def __init__(self, lines: tuple[Line, ...]) -> None:
        self.lines = lines


class _Expect:
    """A step that waits for a message of the host, and the replies to it."""

    def __init__(self, expectation: Expectation, *, is_control: bool) -> None:
        self.expectation = expectation
        self.is_control = is_control
        self.replies: list[Callable[[Mapping[str, Any]], Line]] = []


class _End:
    """The step that ends the stream."""

    def __init__(self, error: ProcessError | None) -> None:
        self.error = error


class ScriptBuilder:
    """The methods that write a script. Each adds a step and returns the object itself."""

    @property
    def _player(self) -> ScriptPlayer:
        raise NotImplementedError

    def expect(self, predicate: Callable[[dict[str, Any]], object] | None = None, /, **fields: Any) -> Self:
        """Expect a message with these fields, e.g. `type="user", message={"content": "Hi"}`, for which `predicate` returns True.

        A nested mapping must be contained in that of the message. A function in place of a value is called with the value of the message.

        Raises:
            UsageError: there are neither fields nor a predicate.
        """
        if predicate is None and not fields:
            raise UsageError("expect() needs fields or a predicate: every message would meet it")
        return self._with(_Expect(Expectation(fields, predicate), is_control=fields.get("type") == "control_request"))

    def expect_control(self, subtype: str, /, **fields: Any) -> Self:
        """Expect this control request, e.g. `expect_control("set_model", model="haiku")`. It is answered only by a `reply()` after it."""
        return self._with(_Expect(Expectation({"type": "control_request", "request": {"subtype": subtype, **fields}}), is_control=True))

    def reply(self, *messages: Line) -> Self:
        """Play these messages when the host has met the expectation before this call.

        After `expect_control()`, a mapping without a `type` is the payload of a success. Without arguments it is a success without payload.

        Raises:
            UsageError: there is no expectation before it, or no message where one is needed.
        """
        step = self._player.last_expectation("reply()")
        if step.is_control and not messages:
            step.replies.append(lambda request: _response(request, {"subtype": "success"}))
        elif not messages:
            raise UsageError("reply() needs messages, unless it follows expect_control()")
        for message in messages:
            step.replies.append(_answerer(message) if step.is_control else _speaker(message))
        return self

    def reply_error(self, error: str, *, error_code: str | None = None) -> Self:
        """Answer the expected control request with this error.

        Raises:
            UsageError: it does not follow `expect_control()`.
        """
        step = self._player.last_expectation("reply_error()")
        if not step.is_control:
            raise UsageError("reply_error() answers control requests: put it after expect_control()")
        body = {"subtype": "error", "error": error} | ({} if error_code is None else {"error_code": error_code})
        step.replies.append(lambda request: _response(request, body))
        return self

    def emit(self, *messages: Line) -> Self:
        """Play these messages as soon as every step before them is done. Bytes are played as they are, so a line can be noise."""
        return self._with(_Emit(messages))

    def end(self, exit_code: int = 0, *, signal: int | None = None, stderr: str = "") -> Self:
        """End the stream: well, or with the `ProcessError` of a program that exited with `exit_code` or was ended by `signal`."""
        error = None
        if exit_code or signal is not None:
            how = f"exit code {exit_code}" if signal is None else f"signal {signal}"
            error = ProcessError(
                f"the scripted claude ended with {how}",
                exit_code=exit_code if signal is None else None,
                signal=signal,
                stderr_tail=stderr,
            )
        return self._with(_End(error))

    def assert_exhausted(self) -> None:
        """Raise `ExpectationFailed` unless the host has met every expectation and has read every line."""
        self._player.assert_exhausted()

    def _with(self, step: _Emit | _Expect | _End) -> Self:
        self._player.add(step)
        return self


class MockScript(ScriptBuilder):
    """The steps of a conversation that a test writes in advance, for `MockTransport(script=…)`.

    Chain `expect()` (what the host must write), `reply()` (what it reads in return), `emit()` and `end()`. The steps are played strictly in
    order. A message of the host must meet the next expectation. Any other message raises `ExpectationFailed`, in its `write()` and in the
    reader; the error names the step and shows both.

    `initialize` is answered without an expectation, unless the script expects it. `keep_alive` and withdrawn requests are ignored. After
    the last step the stream stays open until the host ends its input, as with the CLI, unless the last step is `end()`.
    """

    def __init__(self) -> None:
        self.player = ScriptPlayer()
        """Plays the steps."""

    @property
    def _player(self) -> ScriptPlayer:
        return self.player


class ScriptPlayer:
    """The state of a script that is being played."""

    def __init__(self) -> None:
        self._steps: list[_Emit | _Expect | _End] = []
        self._position = 0
        self._outputs: deque[Line] = deque()
        self._ended: _End | None = None
        self._failure: ExpectationFailed | None = None

    def add(self, step: _Emit | _Expect | _End) -> None:
        if self._steps and isinstance(self._steps[-1], _End):
            raise UsageError("nothing can follow end()")
        self._steps.append(step)
        self._advance()

    def last_expectation(self, asked: str) -> _Expect:
        step = self._steps[-1] if self._steps else None
        if not isinstance(step, _Expect):
            raise UsageError(f"{asked} answers the expectation before it: put it after expect() or expect_control()")
        return step

    def received(self, message: dict[str, Any]) -> bool:
        """Take a message of the host. Returns False when the mock has to answer it: an `initialize` that the script does not expect."""
        step = self._current()
        expectation = step.expectation if isinstance(step, _Expect) else None
        wrong = "" if expectation is None else expectation.misfit(message)
        if expectation is None or wrong is not None:
            if message.get("type") in _WITHOUT_EFFECT:
                return True
            if _is_initialize(message) and (expectation is None or not expectation.is_request("initialize")):
                return False
            self._fail(actual=describe_message(message), why=wrong or "")
        if isinstance(step, _Expect):
            self._outputs.extend(answer(message) for answer in step.replies)
        self._position += 1
        self._advance()
        return True

    def next_output(self) -> Line | None:
        """Return the next line to play, or None. Raises the failed expectation, or the error that ends the stream."""
        if self._failure is not None:
            raise copy.copy(self._failure)
        if self._outputs:
            return self._outputs.popleft()
        if self._ended is not None and self._ended.error is not None:
            raise self._ended.error
        return None

    def is_over(self, *, input_ended: bool) -> bool:
        """Return whether the stream is at its end. Raises `ExpectationFailed` when the input ended before all expectations were met."""
        if self._ended is None and input_ended and self._current() is not None:
            self._fail(actual="the end of the input")
        return self._ended is not None or input_ended

    def assert_exhausted(self) -> None:
        """Raise `ExpectationFailed` unless the host has met every expectation and has read every line."""
        if self._failure is not None:
            raise copy.copy(self._failure)
        if self._current() is not None:
            self._fail(actual="nothing more")
        if self._outputs:
            raise ExpectationFailed.at(
                self._step_name(),
                expected="that everything is read",
                actual=f"{len(self._outputs)} lines that were not read, the first of them {self._outputs[0]!r}",
            )

    def _current(self) -> _Emit | _Expect | _End | None:
        return self._steps[self._position] if self._position < len(self._steps) else None

    def _advance(self) -> None:
        """Do the steps that do not wait for the host."""
        while (step := self._current()) is not None and not isinstance(step, _Expect):
            if isinstance(step, _End):
                self._ended = step
            else:
                self._outputs.extend(step.lines)
            self._position += 1

    def _step_name(self) -> str:
        return f"step {min(self._position + 1, len(self._steps))} of {len(self._steps)}"

    def _fail(self, *, actual: str, why: str = "") -> None:
        step = self._current()
        expected = str(step.expectation) if isinstance(step, _Expect) else "nothing more: the script is at its end"
        self._failure = ExpectationFailed.at(self._step_name(), expected=expected, actual=actual, why=why)
        raise self._failure


def _is_initialize(message: Mapping[str, Any]) -> bool:
    request = message.get("request")
    return message.get("type") == "control_request" and isinstance(request, Mapping) and request.get("subtype") == "initialize"


def _speaker(message: Line) -> Callable[[Mapping[str, Any]], Line]:
    return lambda _request: message


def _answerer(message: Line) -> Callable[[Mapping[str, Any]], Line]:
    if isinstance(message, bytes) or "type" in message:
        return _speaker(message)
    return lambda request: _response(request, {"subtype": "success", "response": message})


def _response(request: Mapping[str, Any], body: Mapping[str, Any]) -> Line:
    identity = {"request_id": request["request_id"]} if "request_id" in request else {}  # a request may have none [18l]
    return {"type": "control_response", "response": {**body, **identity}}
