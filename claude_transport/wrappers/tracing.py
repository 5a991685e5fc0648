"""`TracingTransport`: makes an OpenTelemetry span of each turn and tool call, and hands the trace on to the peer.

The spans are made in `spans`, which imports OpenTelemetry and is loaded only when that is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from claude_transport.agents.registry import AgentFinder
from claude_transport.errors import ConfigurationError
from claude_transport.protocol.codec import decode_message
from claude_transport.protocol.redaction import Redactor
from claude_transport.transport import AtOnce, Client, SessionTerms, TransportLike
from claude_transport.wrappers.base import ObservingWrapper
from claude_transport.wrappers.prompt_watch import without_deltas
from claude_transport.wrappers.redactor import redactor_for

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import TracerProvider

    from claude_transport.wrappers.spans import SessionSpans


DEFAULT_MAX_CONTENT_CHARS = 4000
"""Characters of one attribute. Many collectors cut or refuse longer ones."""

_SCOPE: Final = "claude_transport"

_SILENT: Final = (b'{"type":"stream_event"', b'{"type":"transcript_mirror"', b'{"type":"control_', b'{"type":"keep_alive"')
"""Beginnings of lines that concern no span. Such a line that is written differently is decoded in vain."""


class TracingTransport(ObservingWrapper):
    """Makes OpenTelemetry spans of the turns and tool calls that pass through `transport`, and hands the current trace on to the CLI.

    Args:
        tracer_provider: makes the spans, in place of the global provider.
        content: add prompts, answers, and the input and output of tools to the spans, redacted. Otherwise a span holds only names, ids,
            numbers and outcomes.
        max_content_chars: the most characters of each of these texts.
        redactor: the `Redactor` for them. The default one removes what looks secret, and the secrets in this process's environment and in
            the transport's options.

    A span `invoke_agent claude` lasts from a prompt to its result; another agent has its own name there. Its parent is the span that is
    current where the prompt is sent, or else the one that was current at `connect()`. Below it is a span `execute_tool NAME` for each tool
    call; calls of a subagent are below the call that started it. A turn that failed or was lost has the status ERROR and `error.type`.
    Attributes have the names of OpenTelemetry's conventions for generative AI.

    The span that is current at `connect()` becomes the parent of the spans that the CLI makes: a child process gets `TRACEPARENT` and
    `TRACESTATE`.

    Without OpenTelemetry, or while no SDK is configured, the wrapper does nothing and costs nothing. After an SDK was configured, prompts
    are traced at once, and lines that are read from the next iterator on.

    Raises:
        ConfigurationError: `max_content_chars` is not a whole number of at least 1; or a `TracingTransport` inside has the same provider.
    """

    def __init__(
        self,
        transport: TransportLike,
        *,
        tracer_provider: TracerProvider | None = None,
        content: bool = False,
        max_content_chars: int = DEFAULT_MAX_CONTENT_CHARS,
        redactor: Redactor | None = None,
    ) -> None:
        super().__init__(transport)
        if isinstance(max_content_chars, bool) or not isinstance(max_content_chars, int) or max_content_chars < 1:
            raise ConfigurationError(
                f"max_content_chars must be a whole number of at least 1, not {max_content_chars!r}", option="max_content_chars"
            )
        taken = "a TracingTransport inside makes the same spans, so every turn would have two. Keep one of them."
        self.claim((_SCOPE, None if tracer_provider is None else id(tracer_provider)), taken=taken)
        self._provider = tracer_provider
        self._context: Context | None = None
        self._client = Client(initializes=False)
        self._attached: Client | None = None
        self._spans: SessionSpans | None = None
        self._other: Any = None  # the same as `_spans`, once the lines have told that they are those of another agent
        self._agents = AgentFinder()
        self._global_provider: tuple[Callable[[], object], tuple[type, ...]]  # what returns it, and the classes that make no spans
        try:
            from opentelemetry import trace
        except ImportError:
            return
        from claude_transport.wrappers.spans import SessionSpans, SpanContent

        said = SpanContent(redactor=redactor or redactor_for(transport), limit=max_content_chars) if content else None
        self._global_provider = (trace.get_tracer_provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider))
        self._tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)
        self._content = said
        self._spans = SessionSpans(self._tracer, content=said)

    @property
    def is_idle(self) -> bool:
        """True while there is no OpenTelemetry SDK that would get the spans. Then no spans are made, and reading costs nothing extra."""
        if self._spans is None or self._provider is not None:
            return self._spans is None
        provider, unconfigured = self._global_provider
        return isinstance(provider(), unconfigured)

    def pass_at_once(self, inner: AtOnce) -> AtOnce | None:
        """Have lines written without waiting while no spans are made."""
        if self._spans is None:
            return inner
        if self._provider is not None:
            return None
        provider, unconfigured = self._global_provider

        def write(line: bytes) -> bool:  # `is_idle` without its calls: an idle wrapper adds two functions to a prompt
            return isinstance(provider(), unconfigured) and inner.write(line)

        return AtOnce(connect=bool, write=write, end_input=bool, close=bool)

    async def connect(self) -> None:
        """Connect the wrapped transport, after telling it the trace of the current span, so that the CLI's spans go below that span.

        The errors of the wrapped transport pass unchanged.
        """
        if self._spans is not None and not self.is_ready():
            self._tell(self._keep_context)
            if self._traced(self._client) != (self._attached or self._client):
                self.attach(self._client)  # nothing above has attached, or another span was current then
        await super().connect()

    def attach(self, client: Client) -> SessionTerms:
        """Return the `SessionTerms` of the wrapped transport, after telling it about `client`, with the trace of the current span.

        `client` is the layer above, usually a `Query`. If a span is current, its trace replaces that of `client`. The returned terms have
        an `on_prompt` that remembers the current span where each prompt is sent, because another task may write the prompt.
        """
        self._client = client
        if self._spans is None:
            return super().attach(client)
        self._attached = self._traced(client)
        terms = super().attach(self._attached)
        on_prompt = terms.on_prompt
        given, (provider, unconfigured) = self._provider, self._global_provider

        def remember(uuid: str) -> None:
            if given is not None or not isinstance(provider(), unconfigured):
                self._tell(self._remember, uuid)
            if on_prompt is not None:
                on_prompt(uuid)

        return msgspec.structs.replace(terms, on_prompt=remember)

    def on_writing(self, data: str | bytes) -> None:
        """Begin a span for each prompt in `data`. Called by `write()` before it writes."""
        if self._spans is not None and not self._agents.is_decided:
            self._find_agent((data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data).split(b"\n"))
        if self._spans is not None:
            self._spans.writing(data, context=_current_context() or self._context)

    def on_written(self, data: str | bytes) -> None:
        """Note that the prompts in `data` were written, so their spans stay open until their results. Called by `write()`."""
        if self._spans is not None:
            self._spans.written(data)

    def on_write_failed(self, data: str | bytes, error: BaseException) -> None:
        """End the spans of the prompts in `data` with the status ERROR; `error` gives their `error.type`. Called by `write()`."""
        if self._spans is not None:
            self._spans.not_written(data, error)

    def on_lines(self, lines: Sequence[bytes]) -> None:
        """Begin and end the spans of the turns and tool calls that `lines` are about. Called when a reader gets lines."""
        if self._spans is not None and not self._agents.is_decided:
            self._find_agent(lines)
        spans, other = self._spans, self._other
        if spans is None:
            return
        if other is not None:
            for line in other.telling(lines):
                self._tell(other.heard, line, context=self._context)
            return
        for line in without_deltas(lines):
            if not line.startswith(_SILENT):
                self._tell(spans.received, decode_message(line), context=self._context)  # an error in one message affects no other

    def on_read_end(self, error: Exception | None) -> None:
        """End all spans that are still open, with the status ERROR. Called when there is nothing more to read.

        Their `error.type` is the code of `error` or its class; `session_ended` when the stream ended well.
        """
        if self._spans is not None:
            self._spans.ended(error)

    def on_closed(self, error: BaseException | None) -> None:
        """End all spans that are still open, with the status ERROR. Called by `close()` at its end.

        Their `error.type` is the code of `error` or its class; `session_ended` when closing went well.
        """
        if self._spans is not None:
            self._spans.ended(error)

    def _find_agent(self, lines: Sequence[bytes]) -> None:
        """Make the spans of another agent from now on, when the lines tell that they are its. No span was made before."""
        self._other = self._agents.look(lines).spans(self._tracer, content=self._content)
        self._spans = self._other or self._spans

    def _remember(self, uuid: str) -> None:
        context = _current_context()
        if self._spans is not None and context is not None:
            self._spans.noted(uuid, context=context)

    def _keep_context(self) -> None:
        self._context = _current_context()

    def _traced(self, client: Client) -> Client:
        """Return `client` with the trace of the current span, if a span is current."""
        fields: dict[str, str] = {}
        self._tell(_inject, fields)
        return msgspec.structs.replace(client, trace=fields) if fields else client


def _inject(fields: dict[str, str]) -> None:
    """Write the trace of the current span into `fields`. Baggage is left out: it is the application's, and may hold anything."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    TraceContextTextMapPropagator().inject(fields)


def _current_context() -> Context | None:
    """Return the current context, if a span is current in it."""
    from opentelemetry import context, trace

    return context.get_current() if trace.get_current_span().get_span_context().is_valid else None
