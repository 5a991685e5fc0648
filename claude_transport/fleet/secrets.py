"""Options without their secrets: a client writes `secret:NAME`, and the worker puts in what it knows under that name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from claude_transport.errors import ConfigurationError
from claude_transport.text.secret_forms import find_secrets, is_secret_name

_NAME: Final = re.compile(r"secret:([\w.-]{1,128})", re.ASCII)

_PLACES: Final = ("env", "mcp_servers")
"""The options in which a name is replaced. In others, such as a system prompt, the value would get into the conversation."""

_MAX_NESTING: Final = 16


def check_no_secrets(options: Mapping[str, Any]) -> None:
    """Check options that are to be kept in a broker.

    Raises:
        ConfigurationError: an option holds a secret. The message names the option, not the value.
    """
    for name, value in options.items():
        found = [each for each in find_secrets({name: value}) if not _NAME.fullmatch(each)]
        if name == "env" and isinstance(value, Mapping):
            found += [text for key, text in value.items() if is_secret_name(str(key)) and not _NAME.fullmatch(str(text))]
        if found:
            raise ConfigurationError(
                f"{name} holds a secret, which the broker of a fleet must not know: write 'secret:NAME', and give NAME to the workers",
                option=name,
            )


def with_secrets(options: Mapping[str, Any], secrets: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of a client with the worker's secrets in the places of their names.

    Raises:
        ConfigurationError: a worker has no secret of this name.
    """
    return {name: _resolved(value, secrets, name, 0) if name in _PLACES else value for name, value in options.items()}


def _resolved(value: Any, secrets: Mapping[str, str], option: str, nesting: int) -> Any:
    if nesting > _MAX_NESTING:
        raise ConfigurationError(f"{option} has more than {_MAX_NESTING} levels", option=option)
    if isinstance(value, Mapping):
        return {key: _resolved(each, secrets, option, nesting + 1) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_resolved(each, secrets, option, nesting + 1) for each in value]
    match = _NAME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return value
    if match[1] not in secrets:
        raise ConfigurationError(f"{option}: this worker has no secret {match[1]}", option=option)
    return secrets[match[1]]
