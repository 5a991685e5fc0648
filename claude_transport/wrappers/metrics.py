"""`MetricsTransport`: counts bytes, lines, messages, times, tokens, costs and failures of a session while it runs.

`Metrics` holds the counts of one session, and `MetricsRegistry` sums up many sessions. What a snapshot of them looks like, also for
Prometheus, is in `metrics_snapshot`.
"""

from __future__ import annotations

import functools
import logging
import math
import re
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeAlias

import anyio
import msgspec

from claude_transport.agents.readers import MetricsReader, PromptFollower
from claude_transport.agents.registry import AgentFinder
from claude_transport.errors import ConfigurationError, ConnectionLost, ProcessError, TransportClosed
from claude_transport.loggers import logger_for
from claude_transport.protocol.codec import decode_message
from claude_transport.protocol.conversation import Settle
from claude_transport.protocol.envelope import DecodeFailure, Message, ModelUsage, OversizedMessage, Usage
from claude_transport.protocol.messages import APIMessage, AssistantMessage, ResultMessage, StreamEvent
from claude_transport.protocol.token_counts import ModelCounts, TokenCounts, token_counts
from claude_transport.transport import TransportLike
from claude_transport.wrappers.base import ObservingWrapper
from claude_transport.wrappers.gen_ai import OTHER_MODEL, error_type, measured, measured_loss, model_label
from claude_transport.wrappers.metrics_snapshot import MetricsSnapshot, Timing, families_of, prometheus_text
from claude_transport.wrappers.prompt_watch import PromptWatch, size_of, without_deltas

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider

logger: logging.Logger = logger_for(__name__)

P = ParamSpec("P")

_SCOPE: Final = "claude_transport"

_MAX_TYPES = 100
"""Types of messages counted separately. A peer that makes up more of them must not grow the memory or a dashboard."""

_FOLLOWED: Final = frozenset({"result", "command_lifecycle", "conversation_reset", "rate_limit_event"})
"""Types that decide about a prompt, besides `assistant` and `system/init`. Messages of other types are counted and not decoded."""

_REMEMBERED = 4096
"""API messages remembered, so that another block of the same one is not counted again. Their blocks come close together."""


_MAX_CODES = 100
"""Codes of failures counted separately. A wrapped transport that makes up more of them must not grow the memory or a dashboard."""

_OTHER_CODE: Final = "_OTHER"
"""Replaces what is not a code: OpenTelemetry's own fallback for `error.type`."""

_SESSION_ENDED: Final = "session_ended"
"""Why prompts are lost in a session that ended without an error, as the spans say it."""

_MAX_MODELS = 100
"""Models counted separately. A peer that makes up more of them must not grow the memory or a dashboard."""

OnResult: TypeAlias = Callable[[float, ResultMessage], None]
"""Called with the seconds since a prompt was written, and with its result: a `ResultMessage`, whatever the agent is."""

OnLost: TypeAlias = Callable[[float, str, str], None]
"""Called with the seconds since a lost prompt was written, the code that says why it was lost, and the agent that it was for."""


class MetricsTransport(ObservingWrapper):
    """Counts what passes through `transport`: bytes, lines, messages, tokens, cost, times and failures. `metrics.snapshot()` returns them.

    Args:
        metrics: the `Metrics` to count into; by default a new one. Give the same one to each transport of a session that reconnects, and
            the counts continue.
        registry: a `MetricsRegistry` that adds the counts of this session to its sum, and keeps them there when the session is over.

    Counting changes nothing of what passes, and never fails a session.

    Inside a `RetryingTransport`, every attempt to connect is counted as one. Around a `RetryingTransport`, all attempts of a `connect()`
    are one. `retries` is the same in both places.

    Raises:
        ConfigurationError: `metrics` is not a `Metrics`; or a `MetricsTransport` inside has the same `metrics` or `registry`.
    """

    def __init__(self, transport: TransportLike, *, metrics: Metrics | None = None, registry: MetricsRegistry | None = None) -> None:
        super().__init__(transport)
        if metrics is not None and not isinstance(metrics, Metrics):
            raise ConfigurationError(f"metrics must be a Metrics, not {type(metrics).__name__}", option="metrics")
        self._metrics = Metrics() if metrics is None else metrics
        remedy = "so everything would be counted twice. Keep one MetricsTransport, or give each its own"
        self.claim(self._metrics, taken=f"a MetricsTransport inside counts into the same metrics, {remedy} Metrics.", option="metrics")
        if registry is not None:
            self.claim(registry, taken=f"a MetricsTransport inside has the same registry, {remedy} MetricsRegistry.", option="registry")
        self._connection = self._metrics.begin_connection(is_connected=transport.is_ready())
        self._connecting_since: float | None = None
        self._known_retries = self.info.connect_retries
        self._write_error: Exception | None = None
        self._retire: Callable[[], object] | None = None
        if registry is not None:
            registry.add(self._metrics)
            # a transport that is dropped without being closed must not take its counts along, nor leave them running for ever
            retire = weakref.finalize(self, registry.retire, self._metrics)
            retire.atexit = False
            self._retire = retire

    @property
    def metrics(self) -> Metrics:
        """The `Metrics` that this transport counts into: the given one, or its own."""
        return self._metrics

    def on_connecting(self) -> None:
        """Note the time at which connecting begins, and count a retry after a failed attempt. Called by `connect()`."""
        self._connecting_since = None
        if not self.is_ready():
            self._connecting_since = anyio.current_time()
            self._metrics.connecting()

    def on_connected(self) -> None:
        """Count the connection, and the seconds that connecting took, as `connect` of the snapshot. Called by `connect()`."""
        if self._connecting_since is not None:
            self._metrics.connected(anyio.current_time() - self._connecting_since, retries=self._new_retries())

    def on_connect_failed(self, error: BaseException) -> None:
        """Count the attempt, and its failure by the code of `error`. A cancelled attempt is no failure. Called by `connect()`."""
        if self._connecting_since is not None:
            self._metrics.not_connected(error, retries=self._new_retries())

    def on_writing(self, data: str | bytes) -> None:
        """Note the time of each prompt in `data`, to measure how long its result takes. Called by `write()` before it writes."""
        self._metrics.writing(data)

    def on_written(self, data: str | bytes) -> None:
        """Count the bytes, lines, messages and prompts of `data`, which the wrapped transport has taken. Called by `write()`."""
        self._write_error = None
        self._metrics.written(data)

    def on_write_failed(self, data: str | bytes, error: BaseException) -> None:
        """Stop measuring the prompts in `data`, whose write has failed; `data` is not counted. Called by `write()`."""
        if isinstance(error, TransportClosed | ConnectionLost | OSError):
            self._write_error = error
        self._metrics.not_written(data)

    def on_lines(self, lines: Sequence[bytes]) -> None:
        """Count the lines that were read, and the messages, results, tokens and costs on them. Called when a reader gets lines."""
        self._metrics.read(lines)

    def on_read_end(self, error: Exception | None) -> None:
        """Count the failure if there is an `error`, and the prompts that are lost. Called when there is nothing more to read."""
        self._metrics.ended(error, connection=self._connection)

    def on_closing(self) -> None:
        """Count the failure of a connection whose end no reader has seen, if it was lost before. Called by `close()`."""
        if self._metrics.is_running:
            info, error = self.info, self._write_error
            if info.signal is not None or info.exit_code:
                error = ProcessError(exit_code=info.exit_code, signal=info.signal)
            elif isinstance(error, TransportClosed):
                error = ConnectionLost()  # the write says that it is closed, and this program has not closed it
            if error is not None:
                self._metrics.ended(error, connection=self._connection)

    def on_closed(self, error: BaseException | None) -> None:
        """Count the prompts that are lost. The session no longer runs; its counts stay in the sum of the registry. Called by `close()`."""
        self._metrics.ended(connection=self._connection)
        if self._retire is not None:
            self._retire()

    def _new_retries(self) -> int:
        """Return the retries of a `RetryingTransport` inside that were not counted yet."""
        before, self._known_retries = self._known_retries, self.info.connect_retries
        return self._known_retries - before


class Metrics:
    """The counts of one session, also over several connections. A `MetricsTransport` counts into it.

    Call `snapshot()` to read the counts, at any time and from any thread. The other methods, except `prometheus_text()`, `on_result()` and
    `on_lost()`, are for `MetricsTransport`.

    Args:
        clock: returns the current time in seconds, to measure prompts; by default that of the event loop.
    """

    def __init__(self, *, clock: Callable[[], float] = anyio.current_time) -> None:
        self._clock = clock
        self._bytes_read = self._bytes_written = self._lines_read = self._lines_written = self._unreadable = self._prompts = 0
        self._read: dict[str, int] = {}
        self._written: dict[str, int] = {}
        self._results: dict[str, int] = {}
        self._deltas = 0
        self._tokens = TokenLedger()
        self._agents = AgentFinder()
        self._watch = PromptWatch()
        self._other: MetricsReader | None = None  # in place of `_watch`, once the lines have told that they are those of another agent
        self._asked: dict[str, float] = {}  # prompts without a result, and when they were written
        self._last_result: str | None = None
        self._silent: set[str] = set()  # those that the model has not begun to answer
        self._connect = self._first_message = self._result = Timing()
        self._listeners: _Listeners[float, ResultMessage] = _Listeners()
        self._connection = 0  # the number of the current one
        self._is_running = self._has_ended = self._attempt_failed = self._result_failed = False
        self._retries = 0
        self._connects: dict[str, int] = {}
        self._failures: dict[str, int] = {}
        self._lost: dict[str, int] = {}
        self._in_flight: set[str] = set()  # prompts whose write has not returned
        self._lost_in_flight: dict[str, tuple[float, str]] = {}  # those of them that are lost if they were written
        self._lost_listeners: _Listeners[float, str, str] = _Listeners()

    @property
    def is_running(self) -> bool:
        """True while the session is connected: from a successful `connect()` until the stream has ended or the transport is closed."""
        return self._is_running

    def snapshot(self) -> MetricsSnapshot:
        """Return the counts of this session until now, as a `MetricsSnapshot` that no longer changes. May be called from any thread."""
        read = dict(self._read)
        if self._deltas:
            kind = "stream_event" if self._other is None else self._other.delta_kind
            read[kind] = read.get(kind, 0) + self._deltas
        return MetricsSnapshot(
            bytes_read=self._bytes_read,
            bytes_written=self._bytes_written,
            lines_read=self._lines_read,
            lines_written=self._lines_written,
            messages_read=read,
            messages_written=dict(self._written),
            unreadable_lines=self._unreadable,
            prompts=self._prompts,
            results=dict(self._results),
            api_messages=self._tokens.api_messages,
            tokens=self._tokens.settled,
            tokens_in_progress=self._tokens.in_progress,
            models=self._tokens.models,
            cost_usd=self._tokens.cost_usd,
            connect=self._connect,
            first_message=self._first_message,
            result=self._result,
            running=int(self._is_running),
            connects=dict(self._connects),
            retries=self._retries,
            failures=dict(self._failures),
            lost_prompts=dict(self._lost),
        )

    def prometheus_text(self, *, labels: Mapping[str, str] | None = None) -> str:
        """Return the counts of this session until now as text in the Prometheus format, as the function `prometheus_text` does.

        `labels` are added to every sample.

        Raises:
            ConfigurationError: the name of a label is not valid in Prometheus.
        """
        return prometheus_text(self.snapshot(), labels=labels)

    def on_result(self, listener: OnResult) -> None:
        """Call `listener(seconds, result)` for every prompt that gets a result; `seconds` is the time since the prompt was written.

        Several listeners may be added; each is called once, however often it was added. `listener` must not block. Of all exceptions that
        listeners raise, only the first is logged; none changes anything.
        """
        self._listeners.add(listener)

    def on_lost(self, listener: OnLost) -> None:
        """Call `listener(seconds, code, agent)` for every prompt that is lost: it was written, and the session ended before its result.

        `seconds` is the time since the prompt was written. `code` is that of the error that ended the session, or `session_ended`. `agent`
        is a string, the name of the agent. What `on_result()` says about listeners holds here, too.
        """
        self._lost_listeners.add(listener)

    def begin_connection(self, *, is_connected: bool = False) -> int:
        """Begin a new connection, and return its number. Called by each new `MetricsTransport`.

        The open prompts are lost, because the new peer does not know them. `is_connected` is True if the transport is connected already.
        """
        for settled in self._prompts_of.ended():
            if self._forget(settled.uuid) is not None and settled.uuid not in self._in_flight:
                _count_code(self._lost, _SESSION_ENDED)  # when that was is not known, so no listener is told
        self._connection += 1
        self._is_running, self._has_ended, self._result_failed = is_connected, False, False
        self._watch = PromptWatch()
        self._other = None if self._other is None else self._agents.agent.metrics_reader()
        self._tokens.begin_process()
        self._asked.clear()
        self._silent.clear()
        self._in_flight.clear()
        self._lost_in_flight.clear()
        return self._connection

    def connecting(self) -> None:
        """Count a retry, if the last attempt to connect has failed. Called by `MetricsTransport` when an attempt begins."""
        self._retries += self._attempt_failed

    def connected(self, seconds: float, *, retries: int = 0) -> None:
        """Count a successful connect that took this many seconds and `retries` repeated attempts. Called by `MetricsTransport`."""
        self._connect = _timed(self._connect, seconds)
        self._retries += retries
        self._attempt_failed = False
        self._is_running = True
        _count_code(self._connects, "ok")

    def not_connected(self, error: BaseException, *, retries: int = 0) -> None:
        """Count an attempt to connect that raised `error`, after `retries` repeated ones. Called by `MetricsTransport`."""
        self._retries += retries
        self._attempt_failed = True
        if isinstance(error, TransportClosed) or not isinstance(error, Exception):
            _count_code(self._connects, "cancelled")  # by this program: it closed the transport, or gave up
            return
        _count_code(self._connects, error_type(error))
        _count_code(self._failures, error_type(error))

    def writing(self, data: str | bytes) -> None:
        """Note the time of each prompt in `data`, which is about to be written. Called by `MetricsTransport`.

        `written()` or `not_written()` must follow. The answer may come before that.
        """
        if not self._agents.is_decided:
            self._find_agent((data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data).split(b"\n"))
        for prompt in self._prompts_of.writing(data):
            self._asked[prompt.uuid] = self._clock()
            self._silent.add(prompt.uuid)
            self._in_flight.add(prompt.uuid)

    def written(self, data: str | bytes) -> None:
        """Count the bytes, lines, messages and prompts of `data`, which has been written. Called by `MetricsTransport`."""
        raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
        self._bytes_written += len(raw) + (not raw.endswith(b"\n"))
        for line in raw.removesuffix(b"\n").split(b"\n"):
            self._lines_written += 1
            if self._other is not None:
                _count(self._written, self._other.kind_of(line) or "untyped")
                continue
            try:
                kind = _decode_head(line).type
            except _REFUSED:
                kind = decode_message(line).type
            _count(self._written, kind)
        for prompt in self._prompts_of.written(data):
            self._prompts += 1
            self._in_flight.discard(prompt.uuid)
            lost = self._lost_in_flight.pop(prompt.uuid, None)
            if lost is not None:
                self._lose(*lost)

    def not_written(self, data: str | bytes) -> None:
        """Stop measuring the prompts in `data`, whose write has failed. Called by `MetricsTransport`."""
        for prompt in self._prompts_of.not_written(data):
            self._forget(prompt.uuid)
            self._in_flight.discard(prompt.uuid)
            self._lost_in_flight.pop(prompt.uuid, None)

    def read(self, lines: Sequence[bytes]) -> None:
        """Count `lines`, which were read, and the messages, results, tokens and costs on them. Called by `MetricsTransport`."""
        if not self._agents.is_decided:
            self._find_agent(lines)
        other = self._other
        telling = without_deltas(lines) if other is None else other.telling(lines)
        self._bytes_read += size_of(lines)
        self._lines_read += len(lines)
        self._deltas += len(lines) - len(telling)
        look_at = self._look_at if other is None else functools.partial(self._look_at_other, other)
        for line in telling:
            look_at(line)

    def ended(self, error: Exception | None = None, *, connection: int | None = None) -> None:
        """Count the failure of the current connection, if `error` ended it, and its prompts without a result as lost.

        Called by `MetricsTransport` at the end of the stream, and at that of the transport. Only the first end of a connection is counted.
        The end of another `connection` than the current one is not.
        """
        if connection not in (None, self._connection):
            return
        if isinstance(error, ProcessError) and error.exit_code == 1 and self._result_failed:
            error = None  # not a crash: after a failed result, the CLI exits with code 1 (docs/reference/protocol.md#exit-codes)
        if error is not None and not self._has_ended:
            _count_code(self._failures, error_type(error))
        self._has_ended = self._has_ended or self._is_running or error is not None
        self._is_running = False
        why = _SESSION_ENDED if error is None else error_type(error)
        for settled in self._prompts_of.ended():
            asked = self._forget(settled.uuid)
            if asked is None:
                continue
            seconds = self._clock() - asked
            if settled.uuid in self._in_flight:
                self._lost_in_flight[settled.uuid] = (seconds, why)
            else:
                self._lose(seconds, why)

    def _lose(self, seconds: float, code: str) -> None:
        label = _count_code(self._lost, code)
        self._lost_listeners.tell(seconds, label, self._agents.agent.program)

    @property
    def _prompts_of(self) -> PromptFollower:
        return self._watch if self._other is None else self._other.prompts

    def _find_agent(self, lines: Sequence[bytes]) -> None:
        self._other = self._agents.look(lines).metrics_reader()

    def _look_at_other(self, reader: MetricsReader, line: bytes) -> None:
        kind = reader.kind_of(line)
        if kind is None:
            self._unreadable += 1
            return
        _count(self._read, kind)
        for meaning in reader.read(line, kind):
            if meaning.spoke is not None:
                self._spoke(meaning.spoke)
            if meaning.usage is not None:
                self._tokens.message(*meaning.usage, is_subagent=False)
            if meaning.result is not None:
                self._tokens.result(meaning.result, answers=meaning.answers)
                code = meaning.result.outcome.code
                self._results[code] = self._results.get(code, 0) + 1
            self._settle(meaning.settled)

    def _settle(self, prompts: Iterable[Settle]) -> None:
        """Stop measuring prompts that have reached their final state, and tell the listeners about those with a result."""
        for settled in prompts:
            asked = self._forget(settled.uuid)
            if asked is not None and settled.result is not None:
                seconds = self._clock() - asked
                self._result = _timed(self._result, seconds)
                self._listeners.tell(seconds, settled.result)

    def _look_at(self, line: bytes) -> None:
        message: Message | None
        try:
            if line.__class__ is not bytes:
                raise ValueError("only the head of a line")
            head = _decode_head(line)
            message = _message_of(head, line)
            kind = head.type
        except _REFUSED:
            message = decode_message(line)
            kind = message.type
        if isinstance(message, DecodeFailure | OversizedMessage):
            self._unreadable += 1
            return
        _count(self._read, kind)
        if message is not None:
            self._follow(message)

    def _follow(self, message: Message) -> None:
        if isinstance(message, AssistantMessage) and not message.is_synthetic:
            api = message.message
            self._tokens.message(api.id, api.usage, is_subagent=message.parent_tool_use_id is not None)
        elif isinstance(message, StreamEvent):
            self._follow_event(message)
        verdict = self._watch.received(message)
        if isinstance(message, AssistantMessage | StreamEvent) and verdict.owners:
            self._spoke(verdict.owners[0])
        if isinstance(message, ResultMessage) and (message.uuid is None or message.uuid != self._last_result):
            self._last_result = message.uuid
            self._result_failed = message.is_error is True
            self._tokens.result(message)
            code = message.outcome.code
            self._results[code] = self._results.get(code, 0) + 1
        self._settle(verdict.settled)

    def _follow_event(self, message: StreamEvent) -> None:
        """Count the two events of an API message that have a usage: the first one and the last but one."""
        usage = message.event.get("usage")
        if message.api_message_id and isinstance(usage, Usage):
            self._tokens.message(message.api_message_id, usage, is_subagent=message.parent_tool_use_id is not None)

    def _spoke(self, uuid: str) -> None:
        if uuid in self._silent:
            self._silent.discard(uuid)
            self._first_message = _timed(self._first_message, self._clock() - self._asked[uuid])

    def _forget(self, uuid: str) -> float | None:
        self._silent.discard(uuid)
        return self._asked.pop(uuid, None)


class MetricsRegistry:
    """The sum of the counts of many sessions: give it as `registry` to the `MetricsTransport` of each session.

    The sum only grows, because finished sessions stay in it. A program may have several registries; they are independent of each other.
    """

    def __init__(self) -> None:
        self._running: dict[int, Metrics] = {}
        self._paused: dict[int, MetricsSnapshot] = {}  # sessions whose transport is closed and whose counts may go on
        self._over = MetricsSnapshot(sessions=0)  # sessions whose counts are gone
        self._listeners: _Listeners[float, ResultMessage] = _Listeners()
        self._lost_listeners: _Listeners[float, str, str] = _Listeners()
        # Another thread may read the sum and must not see a session in neither place. Reentrant, because the garbage collector may
        # retire a session at any moment.
        self._lock = RLock()

    @property
    def running(self) -> int:
        """The number of sessions that are running: each is connected, and neither has its stream ended nor its transport been closed."""
        with self._lock:
            return sum(metrics.is_running for metrics in tuple(self._running.values()))

    def add(self, metrics: Metrics) -> None:
        """Add the session that `metrics` counts to the sum and to the running ones. Each new `MetricsTransport` with a registry calls it.

        A session that is in the sum already, because it reconnects, is running again and is not added twice. From now on the listeners of
        this registry get its results and lost prompts.
        """
        with self._lock:
            if self._paused.pop(id(metrics), None) is None and id(metrics) not in self._running:
                weakref.finalize(metrics, self._forget, id(metrics)).atexit = False
            self._running[id(metrics)] = metrics
        metrics.on_result(self._listeners.tell)
        metrics.on_lost(self._lost_listeners.tell)

    def retire(self, metrics: Metrics) -> None:
        """Take the session of `metrics` out of the running ones; its counts stay in the sum. Called at the end of its transport.

        A second call does nothing.
        """
        with self._lock:
            if self._running.pop(id(metrics), None) is not None:
                self._paused[id(metrics)] = msgspec.structs.replace(metrics.snapshot(), running=0)

    def _forget(self, key: int) -> None:
        """Keep only the sum of a session whose counts no longer exist, so that they cannot go on."""
        with self._lock:
            snapshot = self._paused.pop(key, None)
            if snapshot is not None:
                self._over = self._over.plus(snapshot)

    def snapshot(self) -> MetricsSnapshot:
        """Return the sum of the counts of all sessions until now, running and finished. May be called from any thread."""
        with self._lock:
            while True:
                over, paused, running = self._over, tuple(self._paused.values()), tuple(self._running.values())
                if over is self._over and len(paused) == len(self._paused):
                    break  # otherwise the garbage collector has moved a session meanwhile
        return MetricsSnapshot.total([over, *paused, *(metrics.snapshot() for metrics in running)])

    def prometheus_text(self, *, labels: Mapping[str, str] | None = None) -> str:
        """Return the sum of the counts of all sessions as text in the Prometheus format, as the function `prometheus_text` does.

        `labels` are added to every sample.

        Raises:
            ConfigurationError: the name of a label is not valid in Prometheus.
        """
        return prometheus_text(self.snapshot(), labels=labels)

    def on_result(self, listener: OnResult) -> None:
        """Call `listener(seconds, result)` for every prompt of any session that gets a result; `seconds` is the time since the prompt.

        Several listeners may be added. `listener` must not block. Of all exceptions that listeners raise, only the first is logged; none
        changes anything.
        """
        self._listeners.add(listener)

    def on_lost(self, listener: OnLost) -> None:
        """Call `listener(seconds, code, agent)` for every prompt of any session that is lost, as `Metrics.on_lost()` does."""
        self._lost_listeners.add(listener)

    def instrument(self, *, meter_provider: MeterProvider | None = None) -> None:
        """Export the counts of all sessions through OpenTelemetry, with the given `meter_provider` or the global one. Call it once.

        It creates an observable counter `claude_transport.NAME` for each family of counts (`claude_transport.tokens`, …), the up-down
        counter `claude_transport.sessions.running`, and the histogram `gen_ai.client.operation.duration` of OpenTelemetry's conventions.
        What failed has the attribute `error.type`, also in the histogram, which has the lost prompts, too. The counters are read at an
        export, so counting costs no more.

        Raises:
            ConfigurationError: OpenTelemetry is not installed (`pip install claude-transport[otel]`).
        """
        try:
            from opentelemetry.metrics import Observation, get_meter
        except ImportError as exc:
            raise ConfigurationError(
                "OpenTelemetry is not installed: pip install 'claude-transport[otel]', and an SDK of your choice", option="instrument"
            ) from exc

        def observer(name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
            def observe(_: CallbackOptions) -> Iterable[Observation]:
                for family in families_of(self.snapshot()):
                    if family.name == name:
                        for sample in family.samples:
                            yield Observation(sample.value, dict(sample.labels))

            return observe

        meter = get_meter(_SCOPE, meter_provider=meter_provider)
        for family in families_of(MetricsSnapshot()):
            create = meter.create_observable_counter if family.only_grows else meter.create_observable_up_down_counter
            create(f"{_SCOPE}.{family.name}", [observer(family.name)], unit=family.unit, description=family.doc)
        durations = meter.create_histogram("gen_ai.client.operation.duration", unit="s", description="From a prompt to its result or loss.")
        self.on_result(lambda seconds, result: durations.record(seconds, measured(result)))
        self.on_lost(lambda seconds, code, agent: durations.record(seconds, measured_loss(code, agent=agent)))


class _Listeners(Generic[P]):
    """Functions that are called with each result or loss. One that fails harms neither the counts nor the others."""

    def __init__(self) -> None:
        self._listeners: list[Callable[P, None]] = []
        self._complained = False

    def add(self, listener: Callable[P, None]) -> None:
        if listener not in self._listeners:  # the metrics of a session are registered again at each connection
            self._listeners.append(listener)

    def tell(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for listener in self._listeners:
            try:
                listener(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - see above
                if not self._complained:
                    self._complained = True
                    logger.warning("a listener of metrics raised %s", type(error).__name__)  # its text may quote the conversation


class TokenLedger:
    """Counts tokens and costs: each API message once, however many lines repeat it, and each result once.

    It is called with the usage of every API message and with every result, in order. An API message of N blocks arrives as N lines with
    the same id and usage; the output tokens in it are those known at its beginning. The events of a stream have the final number.
    A result settles the turn: its `usage` is that of the turn's own messages, and `model_usage_since_last_result` is that of
    everything since the last result.
    """

    def __init__(self) -> None:
        self._settled = TokenCounts()
        self._open: dict[str, TokenCounts] = {}
        self._seen: dict[str, None] = {}
        self._models: dict[str, ModelCounts] = {}
        self._cumulative: dict[str, ModelCounts] = {}
        self._cumulative_cost = 0.0
        self._cost = 0.0
        self.api_messages: int = 0

    @property
    def settled(self) -> TokenCounts:
        """The sum of the usage of all results."""
        return self._settled

    @property
    def in_progress(self) -> TokenCounts:
        """The usage of API messages of the main conversation since the last result."""
        total = TokenCounts()
        for counts in tuple(self._open.values()):
            total = total.plus(counts)
        return total

    @property
    def models(self) -> dict[str, ModelCounts]:
        """All usage, by model."""
        return dict(self._models)

    @property
    def cost_usd(self) -> float:
        """All costs in US dollars."""
        return self._cost

    def begin_process(self) -> None:
        """Expect the cumulative numbers of a new process, which counts from zero."""
        self._open.clear()
        self._cumulative, self._cumulative_cost = {}, 0.0

    def message(self, message_id: str, usage: Usage | None, *, is_subagent: bool = False) -> None:
        """Count an API message, or another piece of it. Where its pieces differ, the largest number counts, because numbers only grow."""
        if not message_id:
            return
        if message_id not in self._seen:
            self.api_messages += 1
            self._seen[message_id] = None
            if len(self._seen) > _REMEMBERED:
                del self._seen[next(iter(self._seen))]
        if usage is None or is_subagent:
            return
        known = self._open.get(message_id, TokenCounts())
        names = TokenCounts.__struct_fields__
        counts = token_counts(usage)
        self._open[message_id] = TokenCounts(**{name: max(getattr(known, name), getattr(counts, name)) for name in names})

    def result(self, result: ResultMessage, *, answers: Sequence[str] | None = None) -> None:
        """Count the result of a turn. `answers` are the ids of its API messages; None is for all, where one turn runs at a time."""
        self._settled = self._settled.plus(token_counts(result.usage))
        for message_id in tuple(self._open) if answers is None else answers:
            self._open.pop(message_id, None)
        before, cost_before = self._cumulative, self._cumulative_cost
        self._cumulative = {model: _counts(used) for model, used in result.model_usage.items()}
        self._cumulative_cost = _dollars(result.total_cost_usd)
        since = result.model_usage_since_last_result
        if since is not None:
            used = {model: _counts(counts) for model, counts in since.items()}
            self._cost += sum(counts.cost_usd for counts in used.values())
        else:
            used = {model: _growth(before.get(model), counts) for model, counts in self._cumulative.items()}
            # less than before: a new conversation in the same process counts from zero [18za]
            self._cost += self._cumulative_cost - (cost_before if self._cumulative_cost >= cost_before else 0.0)
        for model, counts in used.items():
            label = model_label(model)
            if label not in self._models and len(self._models) >= _MAX_MODELS:
                label = OTHER_MODEL
            self._models[label] = self._models.get(label, ModelCounts()).plus(counts)


def _dollars(amount: float) -> float:
    """Return `amount`, or 0 for a negative number or NaN: one NaN would spoil every later sum."""
    try:
        return float(amount) if 0 <= amount < math.inf else 0.0
    except OverflowError:  # an integer too large for a float
        return 0.0


def _counts(usage: ModelUsage) -> ModelCounts:
    return ModelCounts(tokens=token_counts(usage), cost_usd=_dollars(usage.cost_usd))


def _growth(before: ModelCounts | None, now: ModelCounts) -> ModelCounts:
    if before is None:
        return now
    names = TokenCounts.__struct_fields__
    grown: Mapping[str, int] = {name: getattr(now.tokens, name) - getattr(before.tokens, name) for name in names}
    if min(grown.values()) < 0:
        return now
    return ModelCounts(tokens=TokenCounts(**grown), cost_usd=max(0.0, now.cost_usd - before.cost_usd))


def _message_of(head: _Head, line: bytes) -> Message | None:
    """Return the part of a message that is counted; None when only its type is counted."""
    if head.type == "assistant":
        api = _decode_api(head.message)
        error = head.error if isinstance(head.error, str) else None
        return AssistantMessage(
            message=APIMessage(id=api.id, model=api.model, usage=api.usage),
            parent_tool_use_id=head.parent_tool_use_id,
            uuid=head.uuid,
            error=error,
        )
    if head.type == "stream_event":
        event = _decode_event(head.event)
        if event.type not in ("message_start", "message_delta"):
            return None
        envelope = _decode_envelope(line)
        usage = event.usage if event.message is None else event.message.usage
        message_id = envelope.api_message_id if event.message is None else event.message.id
        return StreamEvent(event={"usage": usage}, api_message_id=message_id, parent_tool_use_id=envelope.parent_tool_use_id)
    if head.type in _FOLLOWED or (head.type == "system" and head.subtype == "init"):
        return decode_message(line)
    return None


def _count(counts: dict[str, int], kind: str) -> None:
    kind = kind or "untyped"
    # checked once per type: a label must be a name, because the peer chooses its text
    if kind not in counts and (len(counts) >= _MAX_TYPES or not _NAME.fullmatch(kind)):
        kind = "other"
    counts[kind] = counts.get(kind, 0) + 1


def _count_code(counts: dict[str, int], code: str) -> str:
    """Count `code`, or what stands for it in a label, and return that."""
    if code not in counts and (len(counts) >= _MAX_CODES or not _CODE.fullmatch(code)):
        code = _OTHER_CODE
    counts[code] = counts.get(code, 0) + 1
    return code


def _timed(timing: Timing, seconds: float) -> Timing:
    return timing.plus(Timing(count=1, total=seconds, longest=seconds, last=seconds))


class _Head(msgspec.Struct, gc=False):
    """The few fields of a line that tell what it is. The decoder skips the rest."""

    type: str = ""
    subtype: Any = None
    parent_tool_use_id: str | None = None
    error: Any = None
    uuid: str | None = None
    message: msgspec.Raw = msgspec.Raw(b"{}")
    event: msgspec.Raw = msgspec.Raw(b"{}")


class _APIHead(msgspec.Struct, gc=False):
    id: str = ""
    model: str = ""
    usage: Usage | None = None


class _EventHead(msgspec.Struct, gc=False):
    type: str = ""
    message: _APIHead | None = None
    usage: Usage | None = None


class _MessageEnvelope(msgspec.Struct, gc=False):
    api_message_id: str | None = None
    parent_tool_use_id: str | None = None


_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,49}|[a-z][A-Za-z0-9]{0,49}(?:/[a-z][A-Za-z0-9]{0,49}){0,3}")
"""The shape of a message type, and of a method."""

_CODE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,99}")
"""The shape of a code (`exec.cli.exited`), and of the class of an error of another library."""

_decode_head: Final = msgspec.json.Decoder(_Head).decode
_decode_api: Final = msgspec.json.Decoder(_APIHead).decode
_decode_event: Final = msgspec.json.Decoder(_EventHead).decode
_decode_envelope: Final = msgspec.json.Decoder(_MessageEnvelope).decode
_REFUSED: Final = (msgspec.MsgspecError, ValueError, RecursionError)
