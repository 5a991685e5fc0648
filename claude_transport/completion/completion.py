"""`Completion`: the result of one call, the same on both paths."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from claude_transport.completion.assembly import ADVICE, build_api_message, require_anthropic
from claude_transport.completion.resolution import AgentKind, AgentResolution, Resolution, TransportKind
from claude_transport.launch.credentials import Payer
from claude_transport.protocol.envelope import Message, Usage
from claude_transport.protocol.messages import AssistantMessage, InitMessage, ResultMessage, UserMessage

if TYPE_CHECKING:
    from anthropic.types import Message as APIMessage


class Completion(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The answer to one call of `complete()` or `stream()`, with what it cost and which path (the CLI or the API) and account it used.

    `text` is the text blocks of the main conversation, joined by newlines; `text_blocks` has them one by one. A failed call has neither:
    the text of a failed attempt is no answer. After a timeout, they are what was written until then. `usage` counts tokens, with those of
    the cache. `usage` and `cost_usd` (US dollars at list price) belong to the attempt that succeeded. `cost_usd` is None when the
    price is not known.

    `transport` is the path that answered, `resolution` says why it was chosen. `agent` is the name of the agent that answered,
    `agent_resolution` says why. `structured_output` is the answer as data when a schema was given, else None.

    `duration` is the seconds of the whole call, `attempts` the number of attempts. `api_key_source` and `billing_source` name the
    credential and the account that pays, never a secret. `session_id` (CLI path) can be passed to `ClaudeOptions(resume=…)`; for an
    agent with threads it is the id of the thread.

    `exit_code` is the CLI's. It is -1 when the CLI was not started, or when a signal or the timeout ended it, and None on the API path.

    `warnings` are sentences about the answer. `category` is `interactive` or `background-task` when the answer looks unfinished; for a
    failed call it is the category of the error. `events` are all messages of the attempt; partial messages only when the options asked for
    them. `conversation` are those of them that `claude -p` prints. `event.to_dict()` is an event as JSON has it.

    `stderr_tail` is the end of the standard error of the process, also of one that answered well. It may hold secrets, so `repr()` shows
    only its length.
    """

    text: str
    text_blocks: tuple[str, ...] = ()
    usage: Usage = Usage()
    cost_usd: float | None = None
    model: str | None = None
    stop_reason: str | None = None
    structured_output: Any = None
    transport: TransportKind
    resolution: Resolution
    agent_resolution: AgentResolution = AgentResolution()
    api_key_source: str | None = None
    billing_source: Payer = "unknown"
    session_id: str | None = None
    exit_code: int | None = None
    duration: float = 0.0
    attempts: int = 1
    warnings: tuple[str, ...] = ()
    category: str | None = None
    events: tuple[Message, ...] = ()
    stderr_tail: str = ""

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        shown = {name: getattr(self, name) for name in self.__struct_fields__}
        return [*(shown | {"stderr_tail": f"<{len(self.stderr_tail)} characters>" if self.stderr_tail else ""}).items()]

    def __repr__(self) -> str:
        return f"Completion({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    @property
    def conversation(self) -> tuple[Message, ...]:
        """The `events` that `claude -p --output-format stream-json` prints: init, what the model and its tools say, results."""
        return tuple(event for event in self.events if isinstance(event, InitMessage | AssistantMessage | UserMessage | ResultMessage))

    @property
    def agent(self) -> AgentKind:
        """The agent that answered: `claude-code` (also for the Messages API), or the name of another agent."""
        return self.agent_resolution.kind

    @cached_property
    def raw_message(self) -> APIMessage:
        """The reply as an `anthropic.types.Message`, on both paths. The first access imports `anthropic`.

        On the CLI path it is built from everything that the main conversation said, without the tool calls that the CLI has run.

        Raises:
            ConfigurationError: `anthropic` is not installed.
        """
        require_anthropic()
        from anthropic.types import Message as APIMessage

        # `construct`, as the SDK does for what the API sends: it accepts blocks that it does not know yet
        failed = self.category not in (None, *ADVICE) and not self.text
        return APIMessage.construct(None, **build_api_message(self.events, usage=self.usage, failed=failed))


_ATTRIBUTE = "completion"


def attach_completion(error: BaseException, completion: Completion) -> None:
    """Attach what there was of the call to the `error` that ended it."""
    setattr(error, _ATTRIBUTE, completion)


def partial_completion(error: BaseException) -> Completion | None:
    """Return what a failed call had received before `error` ended it, as a `Completion`: events, attempts, tokens.

    Its `text` is empty, because the text of a failed attempt is no answer. Only after a timeout (`exec.cli.timeout`), it is what was
    written until then. `events` has the whole messages of the last attempt.

    Returns None when `error` was not raised by `complete()` or `stream()`.
    """
    found = getattr(error, _ATTRIBUTE, None)
    return found if isinstance(found, Completion) else None
