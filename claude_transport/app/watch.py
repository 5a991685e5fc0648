"""`claude-transport watch`: shows a running session of a gateway on the terminal, one line for each thing that happens."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Final

import anyio.lowlevel

from claude_transport.agents.scene import Event, EventStore
from claude_transport.app.event_loop import run_interruptibly, run_on
from claude_transport.app.failures import EXIT_OK
from claude_transport.app.terminal import Look, TerminalOutput, choose_look, json_for_terminals, one_line
from claude_transport.errors import ConfigurationError
from claude_transport.inspection.timeline import Reading
from claude_transport.observing.observers import observe
from claude_transport.protocol.observation import ObservedLine
from claude_transport.protocol.tape import TapeHeader
from claude_transport.serving.following import Observation

_PAGE: Final = re.compile(r"(?P<gateway>.*)/observe/(?P<session>[\w-]{1,64})/?", re.ASCII)
_MAX_EVENTS: Final = 1000
"""Events that are in memory: those that an answer may still change."""
_TITLE: Final = 16
_STYLES: Final = {"user": "bold", "assistant": "", "tools": "cyan", "control": "dim", "session": "dim"}


def run(args: SimpleNamespace) -> int:
    """Show the session until it ends, and return 0. Raises what `failures` can report."""
    url, session = _place(args.url, args.session)
    token = None
    if args.token_env is not None:
        token = os.environ.get(args.token_env, "")
        if not token:
            raise ConfigurationError(f"the environment variable {args.token_env} is not set: put the token in it", option="token_env")
    watching = observe(url, session=session, since=args.since, token=token)
    look = choose_look(sys.stdout, sys.stderr, env=os.environ, plain=args.plain, no_color=args.no_color)
    return run_on(args.backend, partial(_run, watching, look, args.json))


def _place(url: str, session: str | None) -> tuple[str, str | None]:
    """Return the address of the gateway and the session. The address of the live page names both."""
    for web, ours in (("http://", "ws://"), ("https://", "wss://")):
        if url.startswith(web):
            url = ours + url.removeprefix(web)
    found = _PAGE.fullmatch(url)
    if found is None:
        if session is None:
            raise ConfigurationError("URL names no session: give --session ID, or the address of its live page", option="session")
        return url, session
    if session is not None and session != found["session"]:
        raise ConfigurationError("URL and --session name two different sessions. Give one of them.", option="session")
    return found["gateway"], found["session"]


async def _run(watching: Observation, look: Look, as_json: bool) -> int:
    return await run_interruptibly(partial(_watch, watching, look, as_json), give_up=anyio.lowlevel.checkpoint)


async def _watch(watching: Observation, look: Look, as_json: bool) -> int:
    output, shown = TerminalOutput(sys.stdout), _Shown(look)
    async with watching:
        begun = False
        async for line in watching:
            if as_json:
                if not begun:
                    await output.write_bytes(TapeHeader(scrubbed=watching.scrubbed is True).encode())
                    begun = True
                await output.write_bytes(json_for_terminals(line.record.encode()))
            elif text := "".join(f"{row}\n" for row in shown.rows(line)):
                await output.write(text)
    return EXIT_OK


class _Shown:
    """Reads lines as `inspect` does, and gives each event as one line of text when it begins."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._shelf = EventStore(max_events=_MAX_EVENTS)
        self._reading = Reading(self._shelf)
        self._last = 0

    def rows(self, line: ObservedLine) -> Iterator[str]:
        """Yield the lines of text for what `line` has begun."""
        if line.skipped:
            yield self._look.paint(f"{line.t:10.3f}  {line.skipped} lines were missed", "yellow")
        self._reading.read(line.position, line.record)
        for number in range(self._last + 1, self._shelf.count + 1):
            event = self._shelf.get(number)
            if event is not None and event.level != "minor":
                yield self._row(event)
        self._last = self._shelf.count

    def _row(self, event: Event) -> str:
        style = {"error": "red", "warning": "yellow"}.get(event.level, _STYLES[event.lane])
        head = f"{event.t:10.3f}  {'  ' if event.nested else ''}{one_line(event.title, width=40):<{_TITLE}}  "
        text = head + one_line(event.gist, width=max(20, self._look.width - len(head)))
        return self._look.paint(text.rstrip(), style) if style else text.rstrip()
