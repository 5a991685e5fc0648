"""A small POSIX shell program that starts the CLI at the other end of a remote launcher, and ends it for certain.

A program at the other end is needed for three reasons:

* Secrets. Everybody on both machines can read a command line, and `ssh -o SendEnv` needs a server that accepts it. So the command line is
  always the same (`bootstrap`). Arguments, directory and environment are the first bytes on standard input (`instructions`). They are sent
  after the other end has reported that this program reads them.
* The end. `docker exec` and `kubectl exec` never end what they started. sshd closes two pipes, which a CLI that waits for its API does not
  notice. The supervisor notices that its parent is gone (sshd), or gets a signal (srun), or a second command does its work (`end_command`:
  for containers, whose processes have no parent to watch). Then every process with its mark gets SIGTERM, and SIGKILL two seconds later,
  also tool shells in their own sessions.
* The exit. ssh exits with 255 for a broken connection, and for a program that exits with 255; kubectl exits with 1 for both. The last line
  of the supervisor on standard error is the exit code of the program. Without it, the connection was lost.

The supervisor writes lines of its own, `claude-transport MARK WORD ...`: `ready`, `started PATH` and `refused WHY` on standard output,
before the first byte of the program; `ended CODE` on standard error, after its last byte.

The program runs in the foreground, because dash starts background commands with SIGINT ignored. SIGPIPE is caught: a shell reports on
standard error that a signal ended its child, and that pipe may be closed. The report must not end the supervisor.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from claude_transport.errors import ConfigurationError
from claude_transport.launch.environ import (
    ALWAYS_ALLOWED,
    CLAUDE_RULES,
    CREDENTIAL_HEADERS,
    CUSTOM_HEADERS,
    EnvironmentOptions,
    EnvironmentRules,
    forbidden_variables,
    plan_environment,
)

REMOTE_MARK: Final = "CLAUDE_TRANSPORT_REMOTE"
"""The variable that marks everything that a remote launch started. Local children have another one, because both may be on one machine."""

_NAME: Final = "claude-transport"
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PATTERN: Final = re.compile(r"[A-Za-z0-9_*?]+")
_SYSTEM_PATH: Final = "/usr/bin:/bin:/run/current-system/sw/bin"
"""Where `grep`, `sleep`, `env` and `sed` are looked for before PATH, which may be empty, or begin with the folder of an attacker."""

_PLACES: Final = ('"$HOME/.local/bin"', '"$HOME/.claude/local"', "/usr/local/bin", "/opt/homebrew/bin")
"""Where a bare name is looked for after PATH, which is short for commands of sshd."""

# Only what sh, bash, zsh, fish and csh agree on: a login shell reads it first. One line, for the same reason.
_BOOTSTRAP: Final = 'echo {name} {mark} ready; IFS= read -r l && eval "$l"'

# The first line of the instructions reads the others, up to a line that is a dot. What follows belongs to the program.
_LOADER: Final = r"""n=$(printf '\n.'); n=${n%.}; b=; while IFS= read -r l && [ "$l" != . ]; do b=$b${l#+}$n; done; eval "$b" """

_ENDING: Final = """\
each() {
  any=1
  for file in $(grep -lsF "$variable=$mark" /proc/[0-9]*/environ 2>/dev/null); do
    pid=${file#/proc/}
    kill -s "$1" "${pid%/environ}" 2>/dev/null && any=0
  done
  return $any
}
sweep() {
  PATH=@system@${PATH:+:$PATH}
  [ -r /proc/self/environ ] || return 0
  each TERM || return 0
  for i in 1 2 3 4 5 6 7 8 9 10; do each 0 || return 0; sleep 0.2 2>/dev/null || sleep 1; done
  each KILL
}
""".replace("@system@", _SYSTEM_PATH)

_SUPERVISOR: Final = """\
say() { printf '%s %s %s\\n' claude-transport "$mark" "$*"; }
refuse() { say refused "$@"; exit 0; }
find() {
  case $1 in */*) [ -f "$1" ] && [ -x "$1" ] && found=$1; return ;; esac
  set -f
  IFS=:
  for place in $PATH @places@; do
    if [ -f "$place/$1" ] && [ -x "$place/$1" ]; then found=$place/$1; break; fi
  done
  unset IFS
  set +f
}
look() { now=; read -r a b c now rest <"/proc/$$/stat"; } 2>/dev/null
orphaned() {
  if [ -n "$first" ]; then look; [ "$now" != "$first" ]; return; fi
  [ "$PPID" -gt 1 ] && ! kill -s 0 "$PPID" 2>/dev/null
}
watch() {
  told=
  trap told=1 TERM HUP INT
  PATH=@system@${PATH:+:$PATH}
  cd /
  while sleep 1 || [ -n "$told" ]; do
    [ -n "$told" ] || orphaned || continue
    if [ -r /proc/self/environ ]; then sweep; else kill -s TERM 0; sleep 2; kill -s KILL 0; fi
    return
  done
}
found=
find "$program"
[ -n "$found" ] || refuse not-found
look
first=$now
trap : TERM HUP INT PIPE
say started "$found"
watch </dev/null >/dev/null 2>&1 &
watcher=$!
( start )
code=$?
kill -s KILL "$watcher" 2>/dev/null
sweep
[ -z "$private" ] || rm -rf -- "$private"
say ended "$code" >&2
exit "$code"
""".replace("@places@", " ".join(_PLACES)).replace("@system@", _SYSTEM_PATH)

_KEEPER: Final = """\
end=$1; shift
trap : TERM HUP INT PIPE
"$@"
code=$?
[ $code -eq 0 ] && exit 0
trap '' TERM HUP INT
unset CLAUDE_TRANSPORT_CHILD
export CLAUDE_TRANSPORT_ENDER=keeper
away=$(PATH=@system@${PATH:+:$PATH}; command -v setsid)
is_away=$($away /bin/sh -c "$end" </dev/null 2>/dev/null &)
exit $code
""".replace("@system@", _SYSTEM_PATH)
"""Runs a client that does not end what it started. When the client does not end well, it runs the command that does.

That command runs on its own (in a session, without the mark, and with the variable that spares it), because closing is bounded and must not
kill it. So the keeper waits for it: the substitution ends when the command has closed its standard output.
"""

_ENDER: Final = """\
exec >/dev/null
@command@ &
tries=0
PATH=@system@${PATH:+:$PATH}
while kill -s 0 $! 2>/dev/null && [ $tries -lt 100 ]; do sleep 0.1 2>/dev/null || sleep 1; tries=$((tries + 1)); done
kill -s KILL $! 2>/dev/null
""".replace("@system@", _SYSTEM_PATH)
"""The second command, for at most ten seconds."""


_PAYING: Final = "|".join("*" + "".join(f"[{c.upper()}{c}]" if c.isalpha() else c for c in name) + "*" for name in CREDENTIAL_HEADERS)
_IF_HEADERS_PAY: Final = f'case "${{{CUSTOM_HEADERS}:-}}" in {_PAYING}) @do@ ;; esac\n'
"""What to do when custom headers at the other end may hold a credential. A credential header anywhere counts, and no program is needed."""


class RemoteEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to the environment at the other end: `drop` names, keep only what matches `keep` (None: everything), then `assign`.

    With `drop_headers`, custom headers that hold a credential are dropped, or refused where something is refused. The launch is refused
    there when one of `refuse` is set. `assign` holds what the options say, and nothing of this machine's environment.
    """

    assign: Mapping[str, str]
    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] | None = None
    refuse: tuple[str, ...] = ()
    drop_headers: bool = False

    def __repr__(self) -> str:
        """Show names only: values may be secrets."""
        return f"RemoteEnvironment(assign={sorted(self.assign)}, drop={self.drop}, keep={self.keep}, refuse={self.refuse})"

    @classmethod
    def of(cls, options: EnvironmentOptions, *, trace: Mapping[str, str], rules: EnvironmentRules = CLAUDE_RULES) -> RemoteEnvironment:
        """Make it from `options`, with the trace variables of `trace` below them, by the `rules` of the agent that the options are for.

        Raises `ConfigurationError` for what a shell cannot export.
        """
        assign = {**trace, **plan_environment(options, {}, rules=rules)[0]}
        if "PWD" not in options.env:
            assign.pop("PWD", None)  # made of this machine's directories; the shell at the other end sets its own
        for name in assign:
            if not _VARIABLE.fullmatch(name):
                raise ConfigurationError(
                    f"env: {name!r} cannot be set through a shell, so not at the other end of a launcher", option="env"
                )
        kept: tuple[str, ...] | None = None if options.env_mode == "inherit" else ()
        if options.env_mode == "allowlist":
            kept = tuple(rule for rule in (*ALWAYS_ALLOWED, *options.env_allow) if _PATTERN.fullmatch(rule))
        drop = (*sorted(rules.nesting), *forbidden_variables(options.billing, rules=rules))
        refuse = rules.not_subscription if options.billing == "subscription_strict" else ()
        drop_headers = rules.custom_headers is not None and options.billing != "inherit"
        return cls(assign=assign, drop=drop, keep=kept, refuse=refuse, drop_headers=drop_headers)

    def as_shell(self) -> str:
        """Return the shell code that does it."""
        lines = []
        if self.keep is not None:
            kept = f"{'|'.join(self.keep)}) ;; " if self.keep else ""
            lines.append(
                f"for name in $(PATH={_SYSTEM_PATH}${{PATH:+:$PATH}}; "
                r"env | sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/\1/p'); do "
                f'case $name in {kept}*) command unset "$name" 2>/dev/null ;; esac; done'
            )
        lines += [f"unset {name}" for name in self.drop]
        if self.drop_headers:
            lines.append(_IF_HEADERS_PAY.replace("@do@", f"unset {CUSTOM_HEADERS}").rstrip())
        lines += [f"export {name}={shlex.quote(value)}" for name, value in self.assign.items()]
        return "".join(f"{line}\n" for line in lines)


class Word(msgspec.Struct, frozen=True):
    """A line of the supervisor: its first word, the rest, and where in the text the line begins and ends."""

    name: str
    rest: str
    start: int
    end: int


def bootstrap(mark: str) -> list[str]:
    """Return the command that runs at the other end; only its mark differs between launches."""
    return ["/bin/sh", "-c", _BOOTSTRAP.format(name=_NAME, mark=mark), _NAME]


def end_command(mark: str) -> list[str]:
    """Return a command for the other end that ends everything that the launch with this mark has left there."""
    return ["/bin/sh", "-c", f"mark={mark}\nvariable={REMOTE_MARK}\n{_ENDING}sweep"]


def keeper(client: Sequence[str], *, ender: Sequence[str]) -> list[str]:
    """Return a local command that runs `client`, and then `ender` unless the client exited with 0. Its exit code is the client's."""
    return ["/bin/sh", "-c", _KEEPER, _NAME, _ENDER.replace("@command@", shlex.join(ender)), *client]


def instructions(
    argv: Sequence[str], *, mark: str, environment: RemoteEnvironment, cwd: str | None = None, private: Sequence[str] = ()
) -> bytes:
    """Return the first bytes for the shell that runs `bootstrap(mark)`: what to start, where, and with which environment.

    `private` names variables that each get a directory, made there and removed at the end. A relative `cwd` starts at the login directory,
    or wherever the other end starts.
    """
    words = " ".join(shlex.quote(argument) for argument in argv[1:])
    lines = [f"mark={mark}", f"variable={REMOTE_MARK}", f"program={shlex.quote(argv[0])}", "private="]
    script = "\n".join(lines) + "\n" + _ENDING + _SUPERVISOR
    before, rest = script.split("found=\nfind", 1)
    if cwd is not None:
        folder = cwd if cwd.startswith("/") else f"./{cwd}"
        before += f"cd -- {shlex.quote(folder)} 2>/dev/null || refuse cwd\n"
    if environment.keep is not None:  # without both programs, no variable would be dropped
        before += f"(PATH={_SYSTEM_PATH}${{PATH:+:$PATH}}; command -v env && command -v sed) >/dev/null 2>&1 || refuse tools\n"
    for name in environment.refuse:
        before += f'[ -z "${{{name}:-}}" ] || refuse environment {name}\n'
    if environment.refuse and environment.drop_headers:
        before += _IF_HEADERS_PAY.replace("@do@", f"refuse environment {CUSTOM_HEADERS}")
    if private:
        before += 'private=$(umask 077; mktemp -d "${TMPDIR:-/tmp}/claude-transport-XXXXXX") || refuse directory\n'
    made = "".join(f'mkdir -m 700 "$private/{name}"\n' for name in private)
    folders = "".join(f'export {name}="$1/{name}"\n' for name in private)
    # what is still needed moves into the arguments: a variable of the launch may have the same name as one of the script
    begun = f'{made}set -- "$private" "$found" {words}\n{environment.as_shell()}{folders}'
    before += f'start() {{\n{begun}export {REMOTE_MARK}={mark}\nshift\nexec "$@"\n}}\n'
    block = os.fsencode(f"{before}found=\nfind{rest}")
    if b"\0" in block:
        raise ConfigurationError("an argument, the working directory or a variable holds a NUL character", option="command")
    return os.fsencode(_LOADER) + b"\n" + b"".join(b"+" + line + b"\n" for line in block.split(b"\n")) + b".\n"


def find_word(text: str, *, mark: str, names: Sequence[str]) -> Word | None:
    """Find the last of these words in `text`, whatever stands before it on its line. None when there is none, or its line is not
    complete.
    """
    start = text.rfind(f"{_NAME} {mark} ")
    while start >= 0:
        end = text.find("\n", start)
        name, _, rest = text[start : len(text) if end < 0 else end].split(" ", 2)[2].partition(" ")
        if name in names and end >= 0:
            return Word(name, rest, start, end + 1)
        start = text.rfind(f"{_NAME} {mark} ", 0, start)
    return None


def without_words(text: str, *, mark: str) -> str:
    """Return `text` without the lines of the supervisor."""
    return "\n".join(line for line in text.split("\n") if not line.startswith(f"{_NAME} {mark} "))
