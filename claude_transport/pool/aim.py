"""`Relocation`: the directory and the model that one use of a session wants, and how a session that is ready gets there.

`set_cwd` moves nearly everything that belongs to a directory: memory, rules, hooks, commands, agents, MCP servers, the transcript and the
permission to write. The variables in the settings of the first directory stay, and so does what its SessionStart hooks have said
(CLI 2.1.330, real; `tests/e2e/test_aimed_sessions.py`). So a session with settings of a project does not move. Up to CLI 2.1.286, the
memory (`CLAUDE.md`) of the first directory stays, too, so there no session moves.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Self

import msgspec

from claude_transport.client.query import Query
from claude_transport.errors import ClaudeTransportError, ConfigurationError
from claude_transport.launch.features import supports
from claude_transport.launch.options import ClaudeOptions
from claude_transport.loggers import logger_for
from claude_transport.text.printable import printable

logger: logging.Logger = logger_for(__name__)

_TIMEOUT = 10.0
"""Seconds for an idle session to answer one request. `set_cwd` took 0.3 to 0.8 s on a busy machine."""

_MEMORY_MOVES = "set_cwd changes the memory"

_OF_A_PROJECT = frozenset({"projectSettings", "localSettings"})


class Relocation(msgspec.Struct, frozen=True):
    """What one use of a session wants: a directory and a model. None stands for that of the pool."""

    cwd: str | None
    model: str | None

    @classmethod
    def at(cls, cwd: object, model: object, *, options: ClaudeOptions) -> Self:
        """Return what differs from the options of the pool.

        Raises:
            ConfigurationError: `cwd` is no absolute path, or `model` no name.
        """
        if model is not None and (not isinstance(model, str) or not model):
            raise ConfigurationError(f"model is {model!r}: give the name of a model, or leave it out", option="model")
        if cwd is None:
            return cls(None, None if model == options.model else model)
        path = os.fspath(cwd) if isinstance(cwd, os.PathLike) else cwd
        if not isinstance(path, str) or not Path(path).is_absolute() or "\0" in path:
            raise ConfigurationError(f"cwd is {cwd!r}: give an absolute path, because the session may run elsewhere", option="cwd")
        path = os.path.normpath(path)
        is_there = options.cwd is not None and os.path.normpath(os.fspath(options.cwd)) == path
        return cls(None if is_there else path, None if model == options.model else model)

    @property
    def is_elsewhere(self) -> bool:
        """True when the use wants another directory or model than those of the pool."""
        return self.cwd is not None or self.model is not None

    def options_for(self, options: ClaudeOptions) -> ClaudeOptions:
        """Return the options with which a new process is there."""
        wanted = {name: value for name, value in (("cwd", self.cwd), ("model", self.model)) if value is not None}
        return options.replace(**wanted) if wanted else options

    async def reached_by(self, query: Query) -> bool:
        """Send a session there that has had no prompt. False when it is not in the directory, or would keep something of its first one.

        Raises:
            ClaudeTransportError: the model was refused. A hook may have done that, so a new process is no way around it.
        """
        if self.model is not None:
            await query.set_model(self.model, timeout=_TIMEOUT)
        if self.cwd is None:
            return True
        why_not = await _move(query, self.cwd)
        if why_not is not None:
            logger.info("a ready session does not go to %s: %s", printable(self.cwd), printable(why_not))
        return why_not is None


async def _move(query: Query, cwd: str) -> str | None:
    """Send a session to a directory. Returns why it is not there; None when it is."""
    version = query.initialization.claude_code_version  # a CLI that is new enough tells it
    if not supports(_MEMORY_MOVES, version=version):
        return f"claude {version} may keep the first CLAUDE.md"
    try:
        settings = await query.settings(timeout=_TIMEOUT)
        if any(source.source in _OF_A_PROJECT for source in settings.sources):
            return "its own directory has settings, which would stay"
        answer = await query.set_cwd(cwd, timeout=_TIMEOUT)
    except ClaudeTransportError as exc:
        return str(exc)
    return None if answer.status == "ok" else answer.reason or answer.status
