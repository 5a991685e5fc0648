"""Plug-ins: what installed distributions add to this library, under an entry point group.

Nothing is looked for before it is asked for by its name, and only the program that uses this library asks: no line of a peer or of a client
chooses a plug-in. A plug-in is code that the user has installed, so it may do what the program may.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from claude_transport.errors import ConfigurationError
from claude_transport.text.secret_forms import redact_secrets

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

PluginGroup: TypeAlias = Literal["agents", "schemes", "session_stores"]

_OPTION: Final[dict[PluginGroup, str]] = {"agents": "agent", "schemes": "target", "session_stores": "session_store"}
"""The option with which a program asks for one."""


def plugin_names(group: PluginGroup) -> tuple[str, ...]:
    """Return the names of the plug-ins that are installed in `group`, sorted. Loads none of them."""
    return tuple(sorted({point.name for point in _points(group)}))


def load_plugin(group: PluginGroup, name: str) -> Any:
    """Load the plug-in of this name; None when no distribution has one.

    Raises:
        ConfigurationError: code `config.plugin_failed`; the message names the distribution. It cannot be imported, or two distributions
            have one of this name.
    """
    points = [point for point in _points(group) if point.name == name]
    if not points:
        return None
    if len({(point.value, _distribution_of(point)) for point in points}) > 1:
        places = " and ".join(sorted({_distribution_of(point) for point in points}))
        raise failed_plugin(group, f"{places} both have a plug-in {name!r} in {_full(group)}. Remove one of them.")
    try:
        return points[0].load()
    except (Exception, SystemExit) as exc:
        raise failed_plugin(
            group,
            f"{_distribution_of(points[0])} has a plug-in {name!r} in {_full(group)}, and it cannot be imported "
            f"({type(exc).__name__}: {exc}). Correct or remove that distribution.",
        ) from exc


def load_late(module: str, name: str) -> Any:
    """Return a part of this library that stands above its caller, and is loaded only where it is used: an agent, a medium, an observer."""
    return getattr(import_module(module), name)


def distribution_of(group: PluginGroup, name: str) -> str:
    """Return the name and the version of the distribution that has this plug-in, for messages."""
    return " and ".join(sorted({_distribution_of(point) for point in _points(group) if point.name == name}))


def failed_plugin(group: PluginGroup, message: str) -> ConfigurationError:
    """Return the error for a plug-in that cannot be used. Its words may repeat a URL, so secrets are removed."""
    return ConfigurationError(redact_secrets(message), option=_OPTION[group], code="config.plugin_failed")


def _points(group: PluginGroup) -> Iterable[EntryPoint]:
    from importlib.metadata import entry_points  # it takes longer to import than the rest, and few programs ask

    return entry_points(group=_full(group))


def _full(group: PluginGroup) -> str:
    return f"claude_transport.{group}"


def _distribution_of(point: EntryPoint) -> str:
    return "an unknown distribution" if point.dist is None else f"{point.dist.name} {point.dist.version}"
