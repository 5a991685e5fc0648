"""What real shells offer at the end of a command line once they have read the program's script: bash, zsh and fish, each asked itself.

The scripts run the program, so a directory with a `claude-transport` in it is first on the shells' path.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from program_process import PATIENCE

from claude_transport.app.shell_completion import script_for

Offers = dict[str, str]
"""What a shell offers, and how it explains it."""
PATH = "/usr/bin:/bin:/usr/local/bin"
ENVIRONMENT = {"LANG": "C.UTF-8", "TERM": "dumb"} | {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}


def why_no_shell(name: str) -> str | None:
    """Why this shell cannot be asked, or None. Where CI is set that is an error and not a reason: `.ci/run` installs them."""
    if shutil.which(name) is not None:
        return None
    if os.environ.get("CI"):
        raise AssertionError(f"{name} must be there where CI is set: install {name}")
    return f"no {name} on this machine (Debian: {name})"


def run_in(name: str, *arguments: str, cwd: Path, stdin: str = "") -> list[str]:
    """The lines that a shell prints, with nothing of the user's settings. Skips the test when there is no such shell."""
    reason = why_no_shell(name)
    if reason is not None:
        pytest.skip(reason)
    home = cwd.with_name(f"{cwd.name}-home")
    home.mkdir(exist_ok=True)
    installed = home / "claude-transport"
    installed.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -W error -m claude_transport "$@"\n', "utf-8")
    installed.chmod(0o755)
    ran = subprocess.run(
        [str(shutil.which(name)), *arguments],
        input=stdin.encode(),
        capture_output=True,
        cwd=cwd,
        env={**ENVIRONMENT, "HOME": str(home), "PATH": f"{home}:{PATH}"},
        timeout=PATIENCE,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, b""), ran.stderr.decode()
    return ran.stdout.decode().splitlines()


def offered_by_bash(line: str, cwd: Path) -> set[str]:
    """What bash offers; it takes words apart at blanks and at `=`."""
    words = [word for word in re.split(r"(=)| +", line) if word is not None]
    words = [word for index, word in enumerate(words) if word or index == len(words) - 1]
    words = words[:-1] if words[-2:] == ["=", ""] else words
    ask = f"""
COMP_WORDS=({" ".join(shlex.quote(word) for word in words)})
COMP_CWORD={len(words) - 1}
_claude_transport_completion claude-transport
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    found = run_in("bash", "--norc", "--noprofile", "-c", script_for("bash") + ask, cwd=cwd)
    return {word for word in found if word}


def explained_by_fish(lines: Sequence[str], cwd: Path) -> list[Offers]:
    """What fish offers at the end of each line. A directory ends with a slash, and a value comes with its option: both are cut."""
    script = "\n".join([script_for("fish"), *(f"complete -C {shlex.quote(line)}; echo '<end>'" for line in lines)])
    offers: list[Offers] = [{}]
    for row in run_in("fish", "--no-config", "-c", script, cwd=cwd):
        word, _, told = row.partition("\t")
        if word == "<end>":
            offers.append({})
        else:
            offers[-1][re.sub(r"^--[\w-]+=", "", word).rstrip("/")] = told
    return offers[:-1]


# zsh completes only where somebody types: the outer one types into the inner one, which is interactive, on a pseudo-terminal.
OUTER = r"""
zmodload zsh/zpty
zpty -b inner @ZSH@ -f -i
zpty -w inner "PROMPT= RPROMPT=; stty columns 1000; source $1; print -r -- '<''ready>'"
zpty -r inner seen '*<ready>*'
while IFS= read -r line; do
    zpty -n -w inner "$line"$'\t'
    zpty -r inner seen '*<end>*'
    print -r -- "$seen"
done
zpty -d inner
"""
# `compadd` is what every completion of zsh hands its words to; with -O, -A or -D it only sorts them out.
INNER = r"""
unsetopt zle_bracketed_paste prompt_cr prompt_sp
autoload -Uz compinit
@BEFORE@
compinit -u -D
@AFTER@
compadd() {
    builtin compadd "$@"
    local result=$?
    if [[ ${@[(I)-[OAD]]} -eq 0 ]]; then
        local -a found told
        local at=${@[(I)-(ld|d)]}
        [[ $at -gt 0 ]] && told=("${(@P)@[at+1]}")
        [[ $#told -gt 0 ]] && print -rl -- "<told>${^told[@]}"
        builtin compadd -O found "$@"
        [[ $#found -gt 0 ]] && print -rl -- "<word>${^found[@]}"
    fi
    return $result
}
ask() {
    print
    _main_complete
    compstate[insert]= compstate[list]=
    print -r -- "<end>"
}
zle -C ask complete-word ask
tab() { zle ask; BUFFER= }
zle -N tab
bindkey '^I' tab
"""


def explained_by_zsh(lines: Sequence[str], cwd: Path, *, on_fpath: bool = False) -> list[Offers]:
    """What zsh offers at the end of each line; its script is evaluated, or found by `compinit` as a file on `fpath`.

    Explanations are there where a single thing is offered, or commands: in longer lists, zsh hands them over in columns.
    """
    place = cwd.with_name(f"{cwd.name}-zsh")
    place.mkdir(exist_ok=True)
    script = place / "_claude-transport"
    script.write_text(script_for("zsh"), "utf-8")
    found_by_itself = f"fpath=({shlex.quote(str(place))} $fpath)"
    before, after = (found_by_itself, "") if on_fpath else ("", f'eval "$(<{shlex.quote(str(script))})"')
    (place / "inner").write_text(INNER.replace("@BEFORE@", before).replace("@AFTER@", after), "utf-8")
    (place / "outer").write_text(OUTER.replace("@ZSH@", shlex.quote(str(shutil.which("zsh")))), "utf-8")
    offers: list[Offers] = [{}]
    told: Offers = {}
    for row in run_in("zsh", "-f", str(place / "outer"), str(place / "inner"), cwd=cwd, stdin="".join(f"{line}\n" for line in lines)):
        if "<end>" in row:
            offers[-1] = {word: told.get(word, "") for word in offers[-1]}
            offers.append({})
        elif "<told>" in row:
            word, _, explanation = row.split("<told>")[1].partition(" -- ")
            told[word.rstrip()] = explanation.strip()
        elif "<word>" in row:
            offers[-1][re.sub(r"\\(.)", r"\1", row.split("<word>")[1])] = ""
    return offers[:-1]


def offered_by_fish(line: str, cwd: Path) -> set[str]:
    """What fish offers."""
    return set(explained_by_fish([line], cwd)[0])


def offered_by_zsh(line: str, cwd: Path) -> set[str]:
    """What zsh offers."""
    return set(explained_by_zsh([line], cwd)[0])


OFFERED_BY: Mapping[str, Callable[[str, Path], set[str]]] = {"bash": offered_by_bash, "zsh": offered_by_zsh, "fish": offered_by_fish}
