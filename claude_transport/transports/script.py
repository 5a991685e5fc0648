"""`MockScript`: a conversation written down in advance, step by step: what the host must say, and what it hears in return.

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
"""What is said: a message, or a raw line."""

_WITHOUT_EFFECT = frozenset({"keep_alive", "control_cancel_request"})
"""What a host may say at any time, and what the CLI does not react to (recordings 18p, 09a)."""


class _Emit:
    """A step that says something."""

    def __init__(self, lines: tuple[Line, ...]) -> None:
        self.lines = lines


class _Expect:
    """A step that waits for the host, and what the host is told when it has said it."""

    def __init__(self, expectation: Expectation, *, is_control: bool) -> None:
        self.expectation = expectation
        self.is_control = is_control
        self.replies: list[Callable[[Mapping[str, Any]], Line]] = []


class _End:
    """The step that ends the stream."""

    def __init__(self, error: ProcessError | None) -> None:
        self.error = error


class MockScript:
    """The steps of a conversation, built by chaining, and played by `MockTransport(script=…)`.

    The steps are played strictly in order. What the host says must meet the expectation that is next; anything else fails, in the
    `write()` that said it and in whoever reads, with an `ExpectationFailed` that names the step and shows both. `initialize` is
    answered without being asked for, unless the script expects it; `keep_alive` and withdrawn requests are ignored. After the last
    step the stream stays open until the host ends its input, as with the CLI, unless `end()` says otherwise.
    """

    def __init__(self) -> None:
        self._steps: list[_Emit | _Expect | _End] = []
        self._position = 0
        self._outputs: deque[Line] = deque()
        self._ended: _End | None = None
        self._failure: ExpectationFailed | None = None

    # ------------------------------------------------------------------------------------------------------------- building

    def expect(self, predicate: Callable[[dict[str, Any]], object] | None = None, /, **fields: Any) -> Self:
        """The host must say a message with these fields, e.g. `type="user", message={"content": "Hi"}`, that satisfies `predicate`.

        Nested mappings need only be contained; a callable in place of a value is asked about it.
        """
        if predicate is None and not fields:
            raise UsageError("expect() needs fields or a predicate: an expectation that everything meets proves nothing")
        return self._add(_Expect(Expectation(fields, predicate), is_control=fields.get("type") == "control_request"))

    def expect_control(self, subtype: str, /, **fields: Any) -> Self:
        """The host must make this control request, e.g. `expect_control("set_model", model="haiku")`. Only `reply()` answers it."""
        return self._add(_Expect(Expectation({"type": "control_request", "request": {"subtype": subtype, **fields}}), is_control=True))

    def reply(self, *messages: Line) -> Self:
        """What the host hears when it has met the expectation before this.

        After `expect_control()`, a mapping without a `type` is the payload of a success, and nothing at all a success without one.
        """
        step = self._last_expectation("reply()")
        if step.is_control and not messages:
            step.replies.append(lambda request: _response(request, {"subtype": "success"}))
        elif not messages:
            raise UsageError("reply() to something that is no control request needs messages")
        for message in messages:
            step.replies.append(_answerer(message) if step.is_control else _speaker(message))
        return self

    def reply_error(self, error: str, *, error_code: str | None = None) -> Self:
        """The host hears that its control request failed."""
        step = self._last_expectation("reply_error()")
        if not step.is_control:
            raise UsageError("reply_error() answers control requests: put it after expect_control()")
        body = {"subtype": "error", "error": error} | ({} if error_code is None else {"error_code": error_code})
        step.replies.append(lambda request: _response(request, body))
        return self

    def emit(self, *messages: Line) -> Self:
        """Say these, as soon as everything before them is done; bytes are said as they are, so a line can be noise."""
        return self._add(_Emit(messages))

    def end(self, exit_code: int = 0, *, signal: int | None = None, stderr: str = "") -> Self:
        """End the stream: well, or with the `ProcessError` of a program that exited with `exit_code` or died of `signal`."""
        error = None
        if exit_code or signal is not None:
            how = f"exit code {exit_code}" if signal is None else f"signal {signal}"
            error = ProcessError(
                f"the scripted claude ended with {how}",
                exit_code=exit_code if signal is None else None,
                signal=signal,
                stderr_tail=stderr,
            )
        return self._add(_End(error))

    def _add(self, step: _Emit | _Expect | _End) -> Self:
        if self._steps and isinstance(self._steps[-1], _End):
            raise UsageError("nothing can follow end()")
        self._steps.append(step)
        self._advance()
        return self

    def _last_expectation(self, asked: str) -> _Expect:
        step = self._steps[-1] if self._steps else None
        if not isinstance(step, _Expect):
            raise UsageError(f"{asked} goes with the expectation before it: put it after expect() or expect_control()")
        return step

    # -------------------------------------------------------------------------------------------------------------- playing

    def received(self, message: dict[str, Any]) -> bool:
        """The host said this; False when it is for the mock itself to answer (an `initialize` that the script does not mention)."""
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
        """What is said next, if anything may be; raises what went wrong, or how the scripted process ended."""
        if self._failure is not None:
            raise copy.copy(self._failure)
        if self._outputs:
            return self._outputs.popleft()
        if self._ended is not None and self._ended.error is not None:
            raise self._ended.error
        return None

    def is_over(self, *, input_ended: bool) -> bool:
        """Whether the stream is at its end; raises `ExpectationFailed` when the host ended its input with expectations unmet."""
        if self._ended is None and input_ended and self._current() is not None:
            self._fail(actual="the end of the input")
        return self._ended is not None or input_ended

    def assert_exhausted(self) -> None:
        """Raise `ExpectationFailed` unless everything expected was said, and everything to say was heard."""
        if self._failure is not None:
            raise copy.copy(self._failure)
        if self._current() is not None:
            self._fail(actual="nothing more")
        if self._outputs:
            raise ExpectationFailed.at(
                self._step_name(),
                expected="that everything is read",
                actual=f"{len(self._outputs)} lines nobody read, the first of them {self._outputs[0]!r}",
            )

    def _current(self) -> _Emit | _Expect | _End | None:
        return self._steps[self._position] if self._position < len(self._steps) else None

    def _advance(self) -> None:
        """Do everything that waits for nobody."""
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


class Scripted:
    """What a transport that plays a `MockScript` offers to build it: each method adds a step and gives the transport itself."""

    _script: MockScript | None = None

    def expect(self, predicate: Callable[[dict[str, Any]], object] | None = None, /, **fields: Any) -> Self:
        """See `MockScript.expect`."""
        self._steps().expect(predicate, **fields)
        return self

    def expect_control(self, subtype: str, /, **fields: Any) -> Self:
        """See `MockScript.expect_control`."""
        self._steps().expect_control(subtype, **fields)
        return self

    def reply(self, *messages: Line) -> Self:
        """See `MockScript.reply`."""
        self._steps().reply(*messages)
        return self

    def reply_error(self, error: str, *, error_code: str | None = None) -> Self:
        """See `MockScript.reply_error`."""
        self._steps().reply_error(error, error_code=error_code)
        return self

    def emit(self, *messages: Line) -> Self:
        """See `MockScript.emit`."""
        self._steps().emit(*messages)
        return self

    def end(self, exit_code: int = 0, *, signal: int | None = None, stderr: str = "") -> Self:
        """See `MockScript.end`."""
        self._steps().end(exit_code, signal=signal, stderr=stderr)
        return self

    def assert_exhausted(self) -> None:
        """See `MockScript.assert_exhausted`."""
        self._steps().assert_exhausted()

    def _steps(self) -> MockScript:
        if self._script is None:
            raise UsageError("this mock plays responses, not a script: make it with MockTransport.script()")
        return self._script


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
