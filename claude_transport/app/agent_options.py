"""The arguments of the program that say how an agent is run: which agent takes which, and the options that they make."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

from msgspec.structs import replace

from claude_transport.agents.agent import Agent
from claude_transport.agents.registry import LIBRARY_AGENTS, find_agent
from claude_transport.app.arguments import OF_ONE_AGENT
from claude_transport.errors import ConfigurationError
from claude_transport.launch.options import AgentOptions

_OF_ALL: Final = ("model", "cwd")
_CHOSEN: Final = (None, "auto", "claude-code")


def refuse_foreign(args: SimpleNamespace, name: str) -> None:
    """Raise `ConfigurationError` for an argument that the agent `name` cannot fulfil. It is refused, not ignored."""
    for argument, owner in OF_ONE_AGENT.items():
        taken = name == owner if name in LIBRARY_AGENTS else argument in _fields_of(find_agent(name))
        if not taken and _is_given(getattr(args, argument, None)):
            said = f"{_option(argument)} is for {owner}: leave it out, or give --agent {owner}"
            raise ConfigurationError(said, option=argument)


def options_for(args: SimpleNamespace, agent: Agent, *, base: AgentOptions) -> Any:
    """Return the options of an agent: `base`, with what the arguments give. Raises `ConfigurationError` for one that it cannot fulfil."""
    refuse_foreign(args, agent.name)
    fields = _fields_of(agent)
    given = {name: value for name in (*_OF_ALL, *OF_ONE_AGENT) if _is_given(value := getattr(args, name, None))}
    for name in given.keys() - fields:
        raise ConfigurationError(f"{_option(name)} is not for {agent.name}: leave it out", option=name)
    return replace(base, **given)


def other_programs(args: SimpleNamespace) -> dict[str, AgentOptions]:
    """Return the options of each other agent than Claude Code whose program an argument names, by the name of the agent.

    An agent is loaded only when its program is named. The calls take these options as an argument with the name of the agent.
    """
    named = {owner: argument for argument, owner in OF_ONE_AGENT.items() if argument.endswith("_path") and owner != "claude-code"}
    given = {owner: getattr(args, argument, None) for owner, argument in named.items()}
    return {owner: find_agent(owner).plain_options().replace(**{named[owner]: path}) for owner, path in given.items() if path is not None}


def check_program(args: SimpleNamespace, named: str | None) -> None:
    """Raise `ConfigurationError` if the arguments name two programs to run. `named` is the option that names a claude, if there is one."""
    if args.offline and args.cli_path is not None:
        raise ConfigurationError("--offline and --cli-path name two different programs. Give one of them.", option="cli_path")
    if named is None:
        return
    for other in () if args.agent not in _CHOSEN else other_programs(args):
        said = f"{named} runs a claude, and {_option(find_agent(other).path_option)} a {find_agent(other).program}. Give one of them."
        raise ConfigurationError(said, option="agent")
    if args.agent not in _CHOSEN:
        raise ConfigurationError(f"{named} runs a claude, and --agent {args.agent} a {args.agent}. Give one of them.", option="agent")


def _is_given(value: object) -> bool:
    """Whether an argument is on the command line. An empty text is: the agent refuses it by its name."""
    return value is not None and value is not False and value not in ((), [])


def _fields_of(agent: Agent) -> frozenset[str]:
    return frozenset(agent.options_type.__struct_fields__)


def _option(argument: str) -> str:
    return f"--{argument.replace('_', '-')}"
