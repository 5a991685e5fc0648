"""The agents there are: those of this library, and plug-ins of the group `claude_transport.agents`. Each is loaded when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from claude_transport.agents.agent import Agent
from claude_transport.errors import ConfigurationError
from claude_transport.launch.options import AgentOptions
from claude_transport.launch.plugins import distribution_of, failed_plugin, load_late, load_plugin, plugin_names
from claude_transport.protocol.line_shape import LineShape, shape_of

_BUILT_IN: Final = {
    "claude-code": ("claude_transport.agents.claude_code", "ClaudeCode"),
    "codex": ("claude_transport.codex.agent", "Codex"),
}

LIBRARY_AGENTS: Final = tuple(_BUILT_IN)
"""The names of the agents that come with this library, in the order in which `auto` looks for them."""

_SPEAKERS: Final = {LineShape.TYPED: "claude-code", LineShape.EVENT: "codex", LineShape.RPC: "codex"}

_UNDECIDED_LINES: Final = 16
"""Lines without a message after which a session counts as Claude's."""

_loaded: dict[str, Agent] = {}


def agent_names() -> tuple[str, ...]:
    """Return the names of all agents, those of this library first. Loads none of them."""
    return (*_BUILT_IN, *(name for name in plugin_names("agents") if name not in _BUILT_IN))


def find_agent(name_or_options: str | AgentOptions) -> Agent:
    """Return the agent of this name, or the one that these options are for.

    Raises:
        ConfigurationError: there is no such agent, or the plug-in with it cannot be used (code `config.plugin_failed`; the message names
            the distribution).
    """
    if isinstance(name_or_options, AgentOptions):
        return find_agent(type(name_or_options).agent_name)
    if not isinstance(name_or_options, str):
        raise ConfigurationError(f"an agent is a name or options, not {type(name_or_options).__name__}", option="agent")
    if name_or_options not in _loaded:
        _loaded[name_or_options] = _load(name_or_options)
    return _loaded[name_or_options]


class AgentFinder:
    """Finds the agent of a session from its first lines, in whichever direction they go.

    `agent` is Claude Code until a line tells otherwise. `is_decided` is True when no later line can change it: a line has told, or 16 lines
    have told nothing. Asked are the agents of this library, and plug-ins that the program has asked for by name: lines of a peer load none.
    """

    def __init__(self) -> None:
        self.agent: Agent = find_agent("claude-code")
        self.is_decided: bool = False
        self._left = _UNDECIDED_LINES

    def look(self, lines: Iterable[bytes]) -> Agent:
        """Look at the next lines, and return the agent as far as it is known. Does nothing once it is decided."""
        for line in lines if not self.is_decided else ():
            if not line.strip():
                continue
            self._left -= 1
            found = _agent_of(line)
            if found is not None or self._left <= 0:
                self.agent = found or self.agent
                self.is_decided = True
                break
        return self.agent


def agent_of(lines: Iterable[bytes]) -> Agent:
    """Return the agent of a conversation from its lines, of both directions; Claude Code when they do not tell."""
    return AgentFinder().look(lines)


def loaded_agents() -> tuple[Agent, ...]:
    """Return the agents that this process has asked for so far."""
    return tuple(_loaded.values())


def provider_of(program: str) -> str:
    """Return who runs the models of the agent with this program; empty when that is not known. Loads no agent."""
    return next((agent.provider for agent in loaded_agents() if agent.program == program), "")


def _agent_of(line: bytes) -> Agent | None:
    """Return the agent that a line tells, or None. Plug-ins that are loaded come first, because they may know their lines better."""
    for name, agent in tuple(_loaded.items()):
        if name not in _BUILT_IN and agent.speaks(line):
            return agent
    shape = shape_of(line)  # a line that tells nothing loads no agent
    return None if shape is None else find_agent(_SPEAKERS[shape])


def _load(name: str) -> Agent:
    if name in _BUILT_IN:
        module, attribute = _BUILT_IN[name]
        built_in: Agent = load_late(module, attribute)()
        return built_in
    found = load_plugin("agents", name)
    if found is None:
        raise ConfigurationError(f"there is no agent {name!r}; there are {', '.join(agent_names())}", option="agent")
    try:
        agent = found() if isinstance(found, type) else found
    except (Exception, SystemExit) as exc:
        raise _failed(name, f"cannot be made ({type(exc).__name__}: {exc})") from exc
    if not isinstance(agent, Agent):
        raise _failed(name, f"is {type(agent).__name__} and not an Agent")
    kind = agent.options_type
    if not (isinstance(kind, type) and issubclass(kind, AgentOptions) and {"cwd", "env"} <= {*kind.__struct_fields__}):
        raise _failed(name, "has no options_type with cwd and env that is made of AgentOptions")
    if agent.name != name:
        raise _failed(name, f"calls itself {agent.name!r}")
    return agent


def _failed(name: str, what: str) -> ConfigurationError:
    return failed_plugin("agents", f"the agent {name!r} of {distribution_of('agents', name)} {what}. Correct or remove that distribution.")
