"""How noxfile.py declares its sessions, and how their steps are played.

nox is not installed where the tests run, so what is needed of it is handed over.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn, Protocol

PROGRAMS = "Scripts" if sys.platform == "win32" else "bin"
# pytest options of the user could change what is run. Each worker of pytest would compile all tests again where a user forbids .pyc files.
ALWAYS = {"PYTEST_ADDOPTS": "", "PYTHONDONTWRITEBYTECODE": ""}


class Session(Protocol):
    """What the steps need of `nox.Session`."""

    @property
    def posargs(self) -> list[str]: ...

    @property
    def cache_dir(self) -> Path: ...

    def run(self, *command: str, env: Mapping[str, str], **options: Any) -> Any: ...

    def install(self, *packages: str) -> None: ...

    def notify(self, session: str, *, posargs: Iterable[str]) -> None: ...

    def skip(self, *why: object) -> NoReturn: ...


class Quiet(str):
    """A command whose output is shown only when it fails."""

    __slots__ = ()


class SkipIf(str):
    """A command that prints why the rest of the session cannot run on this machine, or nothing."""

    __slots__ = ()


class Sessions:
    """Declares sessions: `shared("lint", "Style.")("ruff check .")`.

    Args:
        register: `nox.session`.
        groups: Returns the packages of dependency groups.
    """

    def __init__(self, *, register: Callable[..., object], groups: Callable[..., Iterable[str]]) -> None:
        self._register = register
        self._groups = groups

    def shared(self, name: str, text: str, *, then: Iterable[str] = ()) -> Callable[..., None]:
        """Declare a session that uses the environment of `checks`; the sessions `then` follow it."""

        def steps_are(*steps: str) -> None:
            def run(session: Session) -> None:
                play(session, steps, env={}, shared="checks")
                for following in then:
                    session.notify(following, posargs=[])

            run.__doc__ = text
            self._register(run, name=name, venv_backend="none", requires=["checks"])

        return steps_are

    def apart(
        self, name: str, text: str, *, install: str = "-e .", groups: str = "", env: Mapping[str, str] | None = None, **options: Any
    ) -> Callable[..., None]:
        """Declare a session that has an environment of its own, with these packages and dependency groups."""

        def steps_are(*steps: str) -> None:
            def run(session: Session) -> None:
                if packages := [*install.split(), *self._groups(*groups.split())]:
                    session.install(*packages)
                play(session, steps, env=env or {})

            run.__doc__ = text
            self._register(run, name=name, **options)

        return steps_are


def play(session: Session, steps: Iterable[str], *, env: Mapping[str, str], shared: str = "") -> None:
    """Run commands, one after the other, in the environment of the session, or in that of the session with the name `shared`.

    A command may have these words: `{args}` for what comes after `--` on the command line of nox, `'{args or WORDS}'` with a default,
    `{cache}` for the folder that nox keeps between runs, `{folder}` for an empty one outside of the repository, and `{nox}` for the Python
    that runs nox.
    """
    place = {**ALWAYS, **env}
    programs = session.cache_dir.resolve().parent / shared / PROGRAMS
    if shared:
        place["PATH"] = os.pathsep.join([str(programs), os.environ.get("PATH", "")])
    with tempfile.TemporaryDirectory(prefix="session-") as folder:
        values = {"cache": str(session.cache_dir.resolve()), "folder": folder, "nox": sys.executable}
        for step in steps:
            program, *arguments = filled(step, session.posargs, values)
            command = [str(programs / program) if shared else program, *arguments]
            options = {"external": True} if shared else {}
            if not isinstance(step, SkipIf):
                session.run(*command, env=place, silent=isinstance(step, Quiet), **options)
            elif why := str(session.run(*command, env=place, silent=True, stderr=None, **options)).strip():
                session.skip(why)


def filled(step: str, arguments: list[str], values: Mapping[str, str]) -> list[str]:
    """Return the words of a command."""
    words: list[str] = []
    for each in shlex.split(step):
        if each.startswith("{args"):
            words += arguments or each[len("{args") : -1].removeprefix(" or ").split()
        else:
            words.append(each.format_map(values) if "{" in each else each)
    return words


def declared(noxfile: str) -> dict[str, str]:
    """Return the declaration of each session in the source of noxfile.py, by its name."""
    parts = re.split(r'^(?:shared|apart)\("(\w+)"', noxfile, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))
