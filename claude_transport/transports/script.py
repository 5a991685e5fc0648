"""`MockScript`: a conversation that a test describes in advance, step by step: what the host must write, and what it then reads.

```python
claude = MockTransport.script().expect(type="user").reply({"type": "result", ...}).expect_control("interrupt").reply().end()
```

`MockTransport`, in `mock.py`, plays it. How a message is compared with an expectation is in `protocol/expectation.py`.
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
"""Types of messages that a host may write at any time, and that the CLI does not answer."""


class _Emit:
    """A step that plays lines."""

    def __init__(self, lines: tuple[Line, ...]) -> None:
        self.lines = lines


class _Expect:
    """A step that waits for a message of the host, and then plays the replies to it."""

    def __init__(self, expectation: Expectation, *, is_control: bool) -> None:
        self.expectation = expectation
        self.is_control = is_control
        self.replies: list[Callable[[Mapping[str, Any]], Line]] = []


class _End:
    """The step that ends the stream, as a program with this end does."""

    def __init__(self, exit_code: int | None, signal: int | None, stderr: str) -> None:
        self.exit_code = exit_code
        self.signal = signal
        self.stderr = stderr

    @property
    def error(self) -> ProcessError | None:
        if not self.exit_code and self.signal is None:
            return None
        how = f"exit code {self.exit_code}" if self.signal is None else f"signal {self.signal}"
        return ProcessError(f"the scripted claude ended with {how}", exit_code=self.exit_code, signal=self.signal, stderr_tail=self.stderr)


class ScriptBuilder:
    """The methods that describe a script. Each returns the object itself, so calls can be chained.

    `MockScript` and `MockTransport` inherit them, and say with `_player` which script is meant.
    """

    @property
    def _player(self) -> ScriptPlayer:
        raise NotImplementedError

    def expect(self, predicate: Callable[[dict[str, Any]], object] | None = None, /, **fields: Any) -> Self:
        """Expect a message with these fields, for example `type="user", message={"content": "Hi"}`; other fields may have any value.

        Nested mappings are compared in the same way. A function in place of a value is called with the value in the message, and returns
        whether it accepts it. `predicate` is called with the whole message.

        Raises:
            UsageError: neither fields nor a predicate were given.
        """
        if predicate is None and not fields:
            raise UsageError("expect() needs fields or a predicate; without them, any message would do")
        return self._with(_Expect(Expectation(fields, predicate), is_control=fields.get("type") == "control_request"))

    def expect_control(self, subtype: str, /, **fields: Any) -> Self:
        """Expect this control request, for example `expect_control("set_model", model="haiku")`. It gets no
        answer unless `reply()` or `reply_error()` follows.
        """
        return self._with(_Expect(Expectation({"type": "control_request", "request": {"subtype": subtype, **fields}}), is_control=True))

    def reply(self, *messages: Line) -> Self:
        """Play these messages as soon as the last expectation is met.

        After `expect_control()`, a mapping without a `type` is sent as the payload of a successful control response. Without arguments,
        the response is a success without payload.

        Raises:
            UsageError: the last step is not an expectation, or was met already; or `messages` is empty after `expect()`.
        """
        step = self._player.last_expectation("reply()")
        if step.is_control and not messages:
            step.replies.append(lambda request: _response(request, {"subtype": "success"}))
        elif not messages:
            raise UsageError("reply() needs messages, unless it follows expect_control()")
        for message in messages:
            step.replies.append(_response_with(message) if step.is_control else _unchanged(message))
        return self

    def reply_error(self, error: str, *, error_code: str | None = None) -> Self:
        """Answer the expected control request with this error.

        Raises:
            UsageError: the last step is not an `expect_control()`, or was met already.
        """
        step = self._player.last_expectation("reply_error()")
        if not step.is_control:
            raise UsageError("reply_error() answers a control request: call it after expect_control()")
        body = {"subtype": "error", "error": error} | ({} if error_code is None else {"error_code": error_code})
        step.replies.append(lambda request: _response(request, body))
        return self

    def emit(self, *messages: Line) -> Self:
        """Play these messages as soon as all earlier steps are done. `bytes` are played unchanged, so a line need not be JSON."""
        return self._with(_Emit(messages))

    def end(self, exit_code: int = 0, *, signal: int | None = None, stderr: str = "") -> Self:
        """End the stream. With an `exit_code` other than 0 or a `signal`, the reader gets the `ProcessError` of such a program.

        The `info` of the transport then has all three.
        """
        return self._with(_End(exit_code if signal is None else None, signal, stderr))

    def assert_exhausted(self) -> None:
        """Raise `ExpectationFailed` unless the host has met every expectation and has read every line."""
        leftover = self._player.leftover()
        if leftover is not None:
            raise leftover

    def _with(self, step: _Emit | _Expect | _End) -> Self:
        self._player.add(step)
        return self


class MockScript(ScriptBuilder):
    """The steps of a conversation that a test writes in advance, for `MockTransport(script=…)`.

    The steps are played in order, once. Each message of the host must meet the next expectation; otherwise `write()` and the reader raise
    `ExpectationFailed`, which shows the step, the expectation and the message. There are two exceptions. The mock answers `initialize` by
    itself, unless that is the next expectation. It ignores `keep_alive` and `control_cancel_request`, unless they meet the expectation.

    After the last step the stream stays open until the host ends its input, as with the CLI; `end()` ends it at once. When the host has
    read that end, `write()` raises `TransportClosed`, as at a process that is gone. The script does not count that as a failure.
    """

    def __init__(self) -> None:
        self.player: ScriptPlayer = ScriptPlayer()
        """Holds the steps, and the position of the next one."""

    @property
    def _player(self) -> ScriptPlayer:
        return self.player


class ScriptPlayer:
    """The steps of a script, and its state while it is played. It does no I/O: `MockTransport` passes messages and lines."""

    def __init__(self) -> None:
        self._steps: list[_Emit | _Expect | _End] = []
        self._position = 0
        self._outputs: deque[Line] = deque()
        self._ended: _End | None = None
        self._end_was_read = False
        self._failure: ExpectationFailed | None = None

    def add(self, step: _Emit | _Expect | _End) -> None:
        if self._steps and isinstance(self._steps[-1], _End):
            raise UsageError("nothing can follow end()")
        self._steps.append(step)
        self._advance()

    def last_expectation(self, asked: str) -> _Expect:
        step = self._steps[-1] if self._steps else None
        if not isinstance(step, _Expect):
            raise UsageError(f"{asked} answers an expectation: call it directly after expect() or expect_control()")
        if self._current() is None:
            raise UsageError(f"{asked} comes too late: the host has already met the expectation")
        return step

    def received(self, message: dict[str, Any]) -> bool:
        """Take a message of the host. Returns False for an `initialize` that the script does not expect: the mock must answer it.

        Raises `ExpectationFailed` when the message does not meet the next expectation.
        """
        step = self._current()
        why = ""
        if isinstance(step, _Expect):
            misfit = step.expectation.misfit(message)
            if misfit is None:  # the message meets the expectation
                self._outputs.extend(answer(message) for answer in step.replies)
                self._position += 1
                self._advance()
                return True
            why = misfit
        if message.get("type") in _WITHOUT_EFFECT:
            return True
        if _is_initialize(message) and not (isinstance(step, _Expect) and step.expectation.is_request("initialize")):
            return False
        raise self._failed(actual=describe_message(message), why=why)

    def next_output(self) -> Line | None:
        """Return the next line to play; None when there is none at the moment.

        Raises `ExpectationFailed` after a message that did not meet its expectation, and the `ProcessError` of `end()` after the last line.
        """
        if self._failure is not None:
            raise copy.copy(self._failure)
        if self._outputs:
            return self._outputs.popleft()
        if self._ended is not None and (error := self._ended.error) is not None:
            self._end_was_read = True
            raise error
        return None

    def end_of_process(self) -> dict[str, Any]:
        """Return how the program ended, as `TransportInfo` names it; nothing while there is something left to play."""
        end = self._ended
        if end is None or self._outputs:
            return {}
        return {"exit_code": end.exit_code, "signal": end.signal, "stderr_tail": end.stderr}

    @property
    def end_was_read(self) -> bool:
        """True once the reader has got the end that `end()` describes: the scripted program is gone."""
        return self._end_was_read

    @property
    def failure(self) -> ExpectationFailed | None:
        """The first message, or end of the input, that the script did not expect; None so far."""
        return self._failure

    @property
    def judges_errors(self) -> bool:
        """True when the next expectation says by itself whether an answer of the host may be an error."""
        step = self._current()
        return isinstance(step, _Expect) and step.expectation.judges_errors

    @property
    def step_name(self) -> str:
        """The current step, as errors name it."""
        return f"step {min(self._position + 1, len(self._steps))} of {len(self._steps)}"

    @property
    def whereabouts(self) -> str:
        """The current step and what it waits for, in words."""
        step = self._current()
        if isinstance(step, _Expect):
            return f"{self.step_name}: waiting for {step.expectation}"
        if self._outputs:
            return f"{self.step_name}: waiting for the host to read {len(self._outputs)} lines"
        return f"{self.step_name}: all steps are done" + ("" if self._ended is not None else "; waiting for the end of the input")

    def is_over(self, *, input_ended: bool) -> bool:
        """Return whether the stream has ended. Raises `ExpectationFailed` when the host ended its input before it met all expectations."""
        if self._ended is None and input_ended and self._current() is not None:
            raise self._failed(actual="the end of the input")
        self._end_was_read = self._end_was_read or self._ended is not None
        return self._ended is not None or input_ended

    def leftover(self) -> ExpectationFailed | None:
        """Return the error of a script that was not played to its end: the host has not met an expectation, or not read a line."""
        if self._failure is not None:
            return copy.copy(self._failure)
        if isinstance(step := self._current(), _Expect):
            return ExpectationFailed.at(self.step_name, expected=str(step.expectation), actual="nothing more")
        if self._outputs:
            return ExpectationFailed.at(
                self.step_name,
                expected="the host to read every line",
                actual=f"{len(self._outputs)} unread lines, the first of them {self._outputs[0]!r}",
            )
        return None

    def _current(self) -> _Emit | _Expect | _End | None:
        """Return the next step; None at the end. After `_advance()` it is always an expectation."""
        return self._steps[self._position] if self._position < len(self._steps) else None

    def _advance(self) -> None:
        """Do all steps up to the next expectation."""
        while (step := self._current()) is not None and not isinstance(step, _Expect):
            if isinstance(step, _End):
                self._ended = step
            else:
                self._outputs.extend(step.lines)
            self._position += 1

    def _failed(self, *, actual: str, why: str = "") -> ExpectationFailed:
        """Return the error for the current step, and keep it for the reader."""
        step = self._current()
        expected = str(step.expectation) if isinstance(step, _Expect) else "no further message: all steps of the script are done"
        self._failure = self._failure or ExpectationFailed.at(self.step_name, expected=expected, actual=actual, why=why)
        return self._failure


def _is_initialize(message: Mapping[str, Any]) -> bool:
    request = message.get("request")
    return message.get("type") == "control_request" and isinstance(request, Mapping) and request.get("subtype") == "initialize"


def _unchanged(message: Line) -> Callable[[Mapping[str, Any]], Line]:
    """Return a reply that is `message`, whatever the request."""
    return lambda _request: message


def _response_with(message: Line) -> Callable[[Mapping[str, Any]], Line]:
    """Return a reply to a control request: a success with the payload `message`, or `message` itself when it has a type."""
    if isinstance(message, bytes) or "type" in message:
        return _unchanged(message)
    return lambda request: _response(request, {"subtype": "success", "response": message})


def _response(request: Mapping[str, Any], body: Mapping[str, Any]) -> Line:
    identity = {"request_id": request["request_id"]} if "request_id" in request else {}  # a request may lack the id [18l]
    return {"type": "control_response", "response": {**body, **identity}}
