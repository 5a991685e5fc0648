"""`claude-transport record --as-claude TAPE -- [claude]`, which a host starts in place of claude, and `record --to-script TAPE`.

Recording itself is in `testing/stand_in/tee.py`. The arguments are read without click: the host waits, and its own arguments follow.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import msgspec

from claude_transport.app.failures import EXIT_OK, PROGRAM
from claude_transport.errors import CLINotFoundError, ConfigurationError, UsageError
from claude_transport.launch.discovery import PATH_VARIABLE, find_cli, path_directories
from claude_transport.testing.stand_in import VARIABLE, WORDS

_MARKS: Final = (b"--as-claude", b"claude-transport replay", b"stand_in/tee.py", b"stand_in/player.py")
"""Texts by which a script is found to be a replacement of claude, and not claude itself."""
_HEAD_BYTES: Final = 4096


def read_arguments(words: Sequence[str]) -> SimpleNamespace:
    """Read the words after `record`. Raises `UsageError`."""
    split = words.index("--") if "--" in words else len(words)
    values: dict[str, str | None] = {"--as-claude": None, "--turn": None}
    force = False
    rest = iter(words[:split])
    for word in rest:
        name, joined, value = word.partition("=")
        if word == "--force":
            force = True
            continue
        if name not in values:
            raise UsageError(
                f"record --as-claude does not take {word!r}. It takes TAPE, --force and --turn N; claude's own come after `--`."
            )
        following = value if joined else next(rest, None)
        if not following:
            raise UsageError(f"{name} needs a value.")
        values[name] = following
    turn = values["--turn"]
    if turn is not None and not (turn.isascii() and turn.isdigit() and 0 < int(turn) < 10**9):
        raise UsageError(f"--turn takes the number of a turn, from 1, not {turn!r}.")
    return SimpleNamespace(tape=values["--as-claude"], turn=turn, force=force, command=list(words[split + 1 :]))


def run(args: SimpleNamespace) -> int:
    """Record, or play, as `CLAUDE_TRANSPORT_TAPES` says. The process ends as claude does, so it seldom returns.

    Raises `CLINotFoundError` if there is no claude but this program, and `ConfigurationError` on Windows, for a tape that is missing and
    must not be recorded, and for a wrong variable.
    """
    if os.name != "posix":
        raise ConfigurationError("record --as-claude needs a POSIX system; use RecordingTransport on this one", option="as_claude")
    word = os.environ.get(VARIABLE, "") or "record"
    if word not in WORDS:
        raise ConfigurationError(f"{VARIABLE} is {word!r}; set it to one of {', '.join(WORDS)}", option=VARIABLE)
    path = Path(args.tape)
    if args.turn is None and word != "record" and (word != "auto" or path.exists()):
        return _replay(path, args.command)
    from claude_transport.testing.stand_in import tee

    options = [*(["--force"] if args.force else []), *([] if args.turn is None else ["--turn", args.turn]), args.tape]
    return tee.main([*options, "--", *command_of_claude(args.command, os.environ)])


def _replay(path: Path, command: Sequence[str]) -> int:
    arguments = command[1:] if command and not command[0].startswith("-") else command
    if not path.exists():
        again = f"{VARIABLE}=record {PROGRAM} record --as-claude {shlex.quote(str(path))} -- {_shown(command)}"
        raise ConfigurationError(f"there is no tape at {path}; record it with: {again}", option="as_claude", code="testing.tape_missing")
    from claude_transport.testing.stand_in import player

    return player.play_once(path, list(arguments))


def _shown(command: Sequence[str]) -> str:
    """Return a command line that can be shown: its secrets are removed."""
    from claude_transport.protocol.redaction import redactor_knowing

    clean = redactor_knowing([os.environ], confidential=list(command)).line(msgspec.json.encode(list(command)))
    return shlex.join(msgspec.json.decode(clean, type=list[str]))


def command_of_claude(words: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """Return the command line to run: `words`, with the claude that is found first when they begin with an option.

    A script that stands in for claude is not found. Raises `CLINotFoundError` if there is no other.
    """
    if words and not words[0].startswith("-"):
        return list(words)
    rest = dict(env)
    if is_stand_in(Path(rest.get(PATH_VARIABLE, ""))):
        del rest[PATH_VARIABLE]
    directories = [folder for folder in path_directories(rest, sys.platform) if not is_stand_in(folder / "claude")]
    rest["PATH"] = os.pathsep.join(map(str, directories))
    found = find_cli(env=rest)
    if is_stand_in(Path(found.path)):
        raise CLINotFoundError(f"{found.path} is a recorder, not a claude. Name the real one after `--`.", searched=found.searched)
    return [found.path, *words]


def is_stand_in(path: Path) -> bool:
    """Return whether the file is a script that starts this program in place of claude."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except (OSError, ValueError):
        return False
    return head.startswith(b"#!") and any(mark in head for mark in _MARKS)


def print_script(args: SimpleNamespace) -> int:
    """Print a test made from the tape. Raises `ConfigurationError` if the file is not a tape of claude with a prompt."""
    from claude_transport.protocol.tape import Tape
    from claude_transport.testing.tape_script import script_of_tape

    sys.stdout.write(script_of_tape(Tape.read(args.to_script), name=Path(args.to_script).name))
    return EXIT_OK
