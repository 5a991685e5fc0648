"""The arguments of one call, checked before anything is tried, and what each path makes of them.

`build_request` checks. `CompletionRequest.cli_options` and `.api_body` translate. `find_credential` finds what the API path authenticates
with.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NoReturn, SupportsIndex, TypeAlias, get_args

import msgspec

from claude_transport.agents.registry import find_agent
from claude_transport.backoff import RetryPolicy
from claude_transport.completion.models import check_model, full_name, max_tokens_of
from claude_transport.completion.readiness import api_credential_of, check_billing
from claude_transport.completion.resolution import AgentChoice, AgentResolution, TransportChoice
from claude_transport.errors import ConfigurationError, UsageError
from claude_transport.exchange.ending import check_close_timeout
from claude_transport.launch.environ import build_environment
from claude_transport.launch.options import AgentOptions, BillingPolicy, ClaudeOptions, fields_of, is_given
from claude_transport.launch.validation import check_types, validate_options
from claude_transport.protocol.envelope import encode_line, holds_half_a_pair
from claude_transport.transport import TransportLike, check_transport, check_transport_maker
from claude_transport.transports.subprocess import SubprocessTransport

Prompt: TypeAlias = str | Sequence[Mapping[str, Any]]
"""One user prompt: text, or content blocks as the Messages API has them."""

MakeTransport: TypeAlias = Callable[[Any], TransportLike]
"""Makes the transport of one attempt from its options: `ClaudeOptions`, or those of the agent that answers."""

OnStderr: TypeAlias = Callable[[str], object]

PLAIN: Final = ClaudeOptions(tools=(), system_prompt="", strict_mcp_config=True, verbatim_prompts=True)
"""Options for the CLI when the caller gives none: no tools, no system prompt and no servers, as on the API path."""

NOTHING: Final[tuple[object, ...]] = ((), [], {}, "")
"""Values that ask for nothing in any option: `tools=()` is what the API path has."""

API_OPTIONS: Final[Mapping[str, Literal["used", "means nothing"]]] = {
    **dict.fromkeys(
        ("model", "system_prompt", "max_output_tokens", "thinking", "betas", "env", "env_mode", "env_allow", "billing"), "used"
    ),
    **dict.fromkeys(
        (
            *(
                "cli_path",
                "cwd",
                "config_dir",
                "isolated_config",
                "pin_cli",
                "client_app",
                "entrypoint",
                "workload",
                "user",
                "name",
                "title",
            ),
            *("verbatim_prompts", "disallowed_tools", "permission_mode", "permission_prompts", "max_turns"),
            *("strict_mcp_config", "mcp_timeout", "mcp_tool_timeout", "max_retries", "disable_slash_commands", "no_session_persistence"),
            *("disable_background_tasks", "background_wait_ceiling", "include_partial_messages", "include_hook_events"),
            *("forward_subagent_text", "replay_user_messages", "session_state_events", "auth_status_events", "debug", "debug_file"),
            *("debug_to_stderr", "setting_sources", "safe_mode", "bare", "restricted", "exclude_dynamic_system_prompt_sections"),
        ),
        "means nothing",
    ),
}
"""Options that the API path can honour, and options that mean nothing for a single answer without a process or tools. Any other option
would change the answer, so the API path refuses it.
"""


_NOT_ROOT: Final = 1
"""A user id that is not root: the API path runs nothing, so the CLI's limits for root do not apply."""


_HALF: Final = "holds half of a surrogate pair, which cannot be sent. Remove it"


class Credential:
    """The credential of the API path: the `name` of its variable, and its `value`, which only this attribute shows.

    It is no Struct and no dataclass: those are shown by `rich`, and converted by `msgspec`, with all that they hold. For the same reason it
    cannot be pickled.
    """

    __slots__ = ("_value", "name")

    def __init__(self, name: str, value: str) -> None:
        self.name: str = name
        self._value = value

    @property
    def value(self) -> str:
        """The secret itself."""
        return self._value

    def __repr__(self) -> str:
        return f"Credential({self.name!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Credential) and (self.name, self._value) == (other.name, other._value)

    def __hash__(self) -> int:
        return hash((self.name, self._value))

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("a Credential is not pickled: it holds a secret")


class CompletionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One checked call. `options` include what the arguments say about model, system prompt, longest answer and billing.

    `arguments` names the options that came from an argument of the call, with the name of the argument: `{"system_prompt": "system"}`.
    `plain` is True when the caller gave no options.
    """

    prompt: Prompt
    options: ClaudeOptions
    transport: TransportChoice | None = None
    declared: str | Mapping[str, Any] | None = None
    agent: AgentChoice | None = None
    agent_options: AgentOptions | None = None
    chosen: AgentResolution = AgentResolution()
    on_stderr: OnStderr | None = None
    make_transport: MakeTransport | None = None
    arguments: Mapping[str, str] = msgspec.field(default_factory=dict)
    plain: bool = False
    fallback: bool = False
    timeout: float = 300.0
    attempt_timeout: float | None = None
    close_timeout: float | None = None
    retry: RetryPolicy = RetryPolicy()
    heuristics: bool = True
    subject: str | None = None

    @property
    def makes_transport(self) -> bool:
        """Whether the caller makes the transport."""
        return self.make_transport is not None

    @property
    def names_a_session(self) -> bool:
        """Whether the prompt goes into a session with a known name. Sending it twice would put it there twice."""
        options = self.options
        kept = options.resume is not None or options.continue_conversation
        return options.session_id is not None or (kept and not options.fork_session)

    def cli_options(self) -> ClaudeOptions:
        """Return the options to run the CLI with: partial messages on, and no retries of its own unless the caller asked for them."""
        retries = self.options.max_retries
        return self.options.replace(include_partial_messages=True, max_retries=0 if retries is None else retries)

    def transport_with(self, options: AgentOptions) -> TransportLike:
        """Return a new transport for one attempt on the CLI path. Raises `ConfigurationError` when `make_transport` returned none."""
        if self.make_transport is None:
            return SubprocessTransport(options, on_stderr=self.on_stderr)
        transport = self.make_transport(options)
        check_transport(transport, of="complete", option="make_transport")
        return transport

    def api_body(self) -> dict[str, Any]:
        """Return the body of the request to the Messages API.

        Raises `ConfigurationError` for an option that only the CLI can honour, and for one that is not valid.
        """
        options = self.options
        validate_options(options, uid=_NOT_ROOT, environment=api_environment(options), check_files=False)
        for field in fields_of(type(options)):
            value = getattr(options, field.name)
            if field.name not in API_OPTIONS and is_given(field, value, unless=NOTHING):
                raise ConfigurationError(
                    f'{field.name}: only the CLI can do this, but this call goes to the API. Remove it, or use transport="cli".',
                    option=field.name,
                )
        model = full_name(options.model or api_environment(options).get("ANTHROPIC_MODEL") or None)
        content = self.prompt if isinstance(self.prompt, str) else [dict(block) for block in self.prompt]
        body: dict[str, Any] = {
            "model": model,
            "max_tokens": options.max_output_tokens or max_tokens_of(model),
            "messages": [{"role": "user", "content": content}],
        }
        if options.system_prompt:
            if not isinstance(options.system_prompt, str):
                raise ConfigurationError("system_prompt: the API path takes text only; a preset needs the CLI", option="system_prompt")
            body["system"] = options.system_prompt
        if options.thinking is not None:
            body["thinking"] = dict(options.thinking)
        if options.betas:
            body["extra_headers"] = {"anthropic-beta": ",".join(options.betas)}
        return body


def build_request(
    prompt: Prompt,
    *,
    model: str | None,
    system: str | None,
    max_tokens: int | None,
    billing: BillingPolicy,
    options: AgentOptions | None,
    others: Mapping[str, object],
    **rest: Any,
) -> CompletionRequest:
    """Check the arguments of `complete()` or `stream()`. Raises `ConfigurationError` or `UsageError`."""
    _check_prompt(prompt)
    if options is not None and not isinstance(options, AgentOptions):
        raise ConfigurationError(f"options must be ClaudeOptions, not {type(options).__name__}", option="options")
    if options is not None and not isinstance(options, ClaudeOptions):
        rest |= _options_of_another(options, agent=rest["agent"], others=others)
        options = None
    else:
        rest["agent_options"] = _one_of(others)
    if max_tokens is not None and (isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 1):
        raise ConfigurationError(f"max_tokens must be 1 or more, not {max_tokens!r}", option="max_tokens")
    for name, text in (("model", model), ("system", system), ("subject", rest["subject"])):
        if text is not None and not isinstance(text, str):
            raise ConfigurationError(f"{name} must be text, not {type(text).__name__}", option=name)
        if text is not None and holds_half_a_pair(text):
            raise ConfigurationError(f"{name} {_HALF}", option=name)
    named = {
        "model": ("model", model),
        "system_prompt": ("system", system),
        "max_output_tokens": ("max_tokens", max_tokens),
        "billing": ("billing", None if billing == "inherit" else billing),
    }
    given = {option: value for option, (_, value) in named.items() if value is not None}
    base = PLAIN if options is None else options
    request = CompletionRequest(
        prompt=prompt,
        options=base.replace(**given),
        arguments={option: named[option][0] for option in given},
        plain=options is None,
        **rest,
    )
    _check(request)
    return request


def check_for_claude(request: CompletionRequest, agent: AgentResolution) -> None:
    """Check that Claude Code can answer this call. Raises `ConfigurationError` for a model of another agent, and for options of one."""
    check_model(request.options.model, agent)
    other = request.agent_options
    if agent.layer == "argument" and agent.choice == "claude-code" and other is not None:
        name, title = type(other).agent_name, find_agent(other).title
        raise ConfigurationError(f'{name}: these options are for {title}, but the call says claude-code. Use agent="{name}"', option=name)


def api_environment(options: ClaudeOptions) -> dict[str, str]:
    """Return the environment that the API path reads its credential and address from: that of a CLI with these options.

    Raises `ConfigurationError` when the billing policy cannot be kept.
    """
    return build_environment(options, os.environ)


def find_credential(options: ClaudeOptions) -> Credential | None:
    """Find the credential of the API path: a key before a token. None when there is neither, or the billing policy forbids both.

    Raises `ConfigurationError` when the billing policy cannot be kept.
    """
    env = api_environment(options)
    name = api_credential_of(env)
    return None if name is None else Credential(name, env[name].strip())


def _check_prompt(prompt: object) -> None:
    if isinstance(prompt, str) and not prompt.strip():
        raise UsageError("the prompt is empty; give text or content blocks")
    if not isinstance(prompt, str) and not _are_blocks(prompt):
        raise UsageError("a prompt must be text, or a non-empty list of content blocks: mappings with a `type`")
    line = encode_line({"content": prompt})
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError("the prompt cannot be sent: it holds half of a surrogate pair, or is nested too deep") from error


def _are_blocks(prompt: object) -> bool:
    blocks = prompt if isinstance(prompt, Sequence) and not isinstance(prompt, bytes | bytearray) else ()
    return bool(blocks) and all(isinstance(block, Mapping) and isinstance(block.get("type"), str) for block in blocks)


def _check(request: CompletionRequest) -> None:
    choice: object = request.transport
    if choice is not None and not isinstance(choice, str):
        what = choice.__name__ if isinstance(choice, type) else type(choice).__name__
        raise ConfigurationError(
            f"transport must be auto, cli or api, not {what}: give a transport of your own as make_transport=lambda options: …",
            option="transport",
        )
    check_transport_maker(request.make_transport)
    heard: object = request.on_stderr
    if heard is not None and (not callable(heard) or inspect.iscoroutinefunction(heard)):
        raise ConfigurationError(f"on_stderr must be a plain function (not async), not {heard!r}", option="on_stderr")
    if heard is not None and request.make_transport is not None:
        raise ConfigurationError("on_stderr: give it to the transport that make_transport makes", option="on_stderr")
    _check_limit("timeout", request.timeout)
    if request.attempt_timeout is not None:
        _check_limit("attempt_timeout", request.attempt_timeout)
    check_close_timeout(request.close_timeout)
    if not isinstance(request.retry, RetryPolicy):
        raise ConfigurationError(f"retry must be a RetryPolicy, not {type(request.retry).__name__}", option="retry")
    for name in ("heuristics", "fallback"):
        if not isinstance(getattr(request, name), bool):
            raise ConfigurationError(f"{name} must be True or False, not {getattr(request, name)!r}", option=name)
    check_types(request.options)
    payer = request.options.billing
    if payer not in get_args(BillingPolicy):
        raise ConfigurationError(f"billing: {payer!r} is not one of {', '.join(get_args(BillingPolicy))}", option="billing")
    if request.fallback:
        check_billing("api", request.options.billing)


def _check_limit(option: str, seconds: object) -> None:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or math.isnan(seconds) or seconds <= 0:
        raise ConfigurationError(f"{option} must be a number of seconds above 0 (math.inf for no limit), not {seconds!r}", option=option)


def _one_of(others: Mapping[str, object]) -> object:
    """Return the options in the argument of an agent; None without any. Raises `ConfigurationError` for those of another agent."""
    for name, options in others.items():
        if options is not None:
            if not (isinstance(options, AgentOptions) and type(options).agent_name == name):
                kind = find_agent(name).options_type.__name__
                raise ConfigurationError(f"{name} must be {kind}, not {type(options).__name__}", option=name)
            return options
    return None


def _options_of_another(options: AgentOptions, *, agent: str | None, others: Mapping[str, object]) -> dict[str, Any]:
    """Return the fields of the request for options of another agent than Claude, which say who answers."""
    name = type(options).agent_name
    if agent not in (None, name):
        raise ConfigurationError(f"options: these are for {name}, but the call says {agent}", option="options")
    for argument, more in others.items():
        if more is not None:
            raise ConfigurationError(f"{argument}: the options of this call are for another agent. Give one of them", option=argument)
    return {"agent": name, "agent_options": options}
