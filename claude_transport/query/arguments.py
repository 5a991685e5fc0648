"""What a `Query` is made with, checked when it is made: a guard that is misspelt must not be a guard that never runs."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from claude_transport.errors import ConfigurationError, UsageError
from claude_transport.launch.rules import check_agent_rules, check_skills
from claude_transport.protocol.hooks import HookEvent

__all__ = [
    "check_callback",
    "check_fields",
    "check_hook_event",
    "check_number",
    "check_on_error",
    "check_seconds",
    "check_sequence",
    "check_transport",
]

_METHODS = ("connect", "write", "read_messages", "end_input", "close", "is_ready")


def check_transport(transport: object) -> None:
    """Refuse what has not the six methods of a transport."""
    missing = [name for name in _METHODS if not callable(getattr(transport, name, None))]
    if missing:
        _refuse("transport", f"{type(transport).__name__} is no transport: it has no {', '.join(missing)}")


def check_callback(option: str, callback: object) -> None:
    """Refuse a callback that cannot be called; None is no callback."""
    if callback is not None and not callable(callback):
        _refuse(option, f"{option} is an async function, not {type(callback).__name__}")


def check_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Return `fields`; refuse `skills` and agents that would allow other skills or tools than they name."""
    check_skills(fields.get("skills"))
    agents = fields.get("agents")
    if isinstance(agents, Mapping):
        check_agent_rules(agents)
    return fields


def check_on_error(value: object) -> None:
    """Refuse anything but the two policies: a misspelt "deny" must not become an "allow"."""
    if value not in ("deny", "allow"):
        _refuse("on_callback_error", f'on_callback_error is "deny" or "allow", not {value!r}')


def check_number(option: str, value: object, *, positive: bool) -> None:
    """Refuse what is no number, or too small a one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not (value > 0 if positive else value >= 0):
        _refuse(option, f"{option} is a number {'above' if positive else 'of at least'} 0, not {value!r}")


def check_seconds(name: str, value: object) -> None:
    """Refuse what is no time to wait, before anything is begun that would have to be undone; less than none is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise UsageError(f"{name} is a number of seconds, math.inf for no limit, not {value!r}")


def check_hook_event(event: object) -> None:
    """Refuse the name of an event that does not exist: its hooks would never run, without a word."""
    if not isinstance(event, str) or event not in HookEvent.__members__:
        close: list[str] = []
        with contextlib.suppress(OSError):  # no file descriptor may be free: then there is no hint
            import difflib  # only for those who need the hint

            close = difflib.get_close_matches(str(event), HookEvent.__members__, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        _refuse("hooks", f"there is no hook event {event!r}{hint} (an event of a newer CLI can be registered by initialize=)")


def check_sequence(option: str, value: Any, *, of: type, what: str) -> None:
    """Refuse what is no list of `of`."""
    is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes | Mapping)
    if not is_list or not all(isinstance(item, of) for item in value):
        _refuse(option, f"{what} must be a list of {of.__name__}, not {value!r}")


def _refuse(option: str, message: str) -> NoReturn:
    raise ConfigurationError(message, option=option)
