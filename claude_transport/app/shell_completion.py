"""`claude-transport completion SHELL`: a script that completes the program's command lines, made from its parser.

Only what every version of the three shells of the last ten years has is used (bash from 3.2 on, as macOS has it), and no other
package of completions has to be there.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from claude_transport.app.arguments import build_parser
from claude_transport.app.failures import EXIT_OK
from claude_transport.app.parser import PROGRAM, Argument, Parser
from claude_transport.app.writing import write_out


def run(args: argparse.Namespace) -> int:
    """Print the script for `args.shell` on stdout."""
    write_out(_RENDERERS[args.shell](build_parser()).rstrip("\n"))
    return EXIT_OK


# ------------------------------------------------------------------------------------------------------------------------- bash

_BASH: Final = """\
# bash completion for claude-transport, made by: claude-transport completion bash
_claude_transport() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command="" words="" files="" index word
    COMPREPLY=()
    # bash takes `--option=value` apart at the `=`
    if [[ $cur == "=" ]]; then
        cur=""
    elif [[ $prev == "=" ]]; then
        prev=${COMP_WORDS[COMP_CWORD-2]}
    fi
    for ((index = 1; index < COMP_CWORD; index++)); do
        if [[ ${COMP_WORDS[index]} == "--" ]]; then
            return 0
        elif [[ -z $command && ${COMP_WORDS[index]} != -* ]]; then
            command=${COMP_WORDS[index]}
        fi
    done
    case "$command $prev" in
@VALUES@
    *)
        if [[ $cur == -* ]]; then
            case "$command" in
@OPTIONS@
            esac
        else
            case "$command" in
@PLACES@
            esac
        fi
        ;;
    esac
    while IFS= read -r word; do
        COMPREPLY+=("$word")
    done < <(
        case "$files" in
        file) compgen -f -- "$cur" ;;
        directory) compgen -d -- "$cur" ;;
        *) compgen -W "$words" -- "$cur" ;;
        esac
    )
    if [[ -n $files ]]; then
        compopt -o filenames 2>/dev/null
    fi
    return 0
}
complete -F _claude_transport claude-transport
"""


def render_bash(parser: Parser) -> str:
    """The script for bash."""
    values: list[str] = []
    options = [f"                '') words={shlex.quote(_flags(parser.arguments()))} ;;"]
    places = [f"                '') words={shlex.quote(' '.join(parser.commands))} ;;"]
    for name, command in parser.commands.items():
        arguments = command.arguments()
        options.append(f"                {name}) words={shlex.quote(_flags(arguments))} ;;")
        for argument in arguments:
            if not argument.flags:
                places.append(f"                {name}) {_bash_values(argument)} ;;")
            elif argument.kind != "switch":
                patterns = " | ".join(f"'{name} {flag}'" for flag in argument.flags)
                values.append(f"    {patterns}) {_bash_values(argument)} ;;")
    script = _BASH
    for mark, lines in (("@VALUES@", values), ("@OPTIONS@", options), ("@PLACES@", places)):
        script = script.replace(mark, "\n".join(lines))
    return script


def _flags(arguments: Iterable[Argument]) -> str:
    return " ".join(flag for argument in arguments for flag in argument.flags)


def _bash_values(argument: Argument) -> str:
    if argument.kind in {"file", "directory"}:
        return f"files={argument.kind}"
    return f"words={shlex.quote(' '.join(argument.choices))}"


# -------------------------------------------------------------------------------------------------------------------------- zsh

_ZSH: Final = """\
#compdef claude-transport
# zsh completion for claude-transport, made by: claude-transport completion zsh
_claude-transport() {
    local curcontext="$curcontext" state line
    local -a commands
    typeset -A opt_args
    commands=(
@COMMANDS@
    )
    _arguments -C \\
@OPTIONS@
        '1: :->command' \\
        '*:: :->arguments'
    case "$state" in
    command) _describe -t commands command commands ;;
    arguments)
        case "$words[1]" in
@CASES@
        esac
        ;;
    esac
}
if [ "$funcstack[1]" = "_claude-transport" ]; then
    _claude-transport "$@"
else
    compdef _claude-transport claude-transport
fi
"""
_ZSH_ACTIONS: Final = {"file": "_files", "directory": "_files -/"}


def render_zsh(parser: Parser) -> str:
    """The script for zsh: to be evaluated, or kept as a file `_claude-transport` on `fpath`."""
    commands = (f"        {_quoted(f'{name}:{command.summary}')}" for name, command in parser.commands.items())
    options = (f"        {spec} \\" for argument in parser.arguments() for spec in _zsh_specs(argument))
    cases = []  # with -S, because behind a `--` there are no options
    for name, command in parser.commands.items():
        specs = " \\\n".join(f"                {spec}" for argument in command.arguments() for spec in _zsh_specs(argument))
        cases.append(f"        {name})\n            _arguments -S \\\n{specs}\n            ;;")
    script = _ZSH
    for mark, lines in (("@COMMANDS@", commands), ("@OPTIONS@", options), ("@CASES@", cases)):
        script = script.replace(mark, "\n".join(lines))
    return script


def _zsh_specs(argument: Argument) -> Iterator[str]:
    action = f"({' '.join(argument.choices)})" if argument.choices else _ZSH_ACTIONS.get(argument.kind, "")
    if not argument.flags:
        yield _quoted(f"{'*' if argument.repeatable else '1'}:{argument.metavar}:{action}")
        return
    told = re.sub(r"([\[\]\\])", r"\\\1", argument.help)
    value = "" if argument.kind == "switch" else f":{argument.metavar or argument.name}:{action}"
    head = "*" if argument.repeatable else f"({' '.join(argument.flags)})" if len(argument.flags) > 1 else ""
    for flag in argument.flags:
        joint = "" if argument.kind == "switch" else "=" if flag.startswith("--") else "+"
        yield _quoted(f"{head}{flag}{joint}[{told}]{value}")


def _quoted(text: str) -> str:
    """For zsh and POSIX shells: nothing inside of it means anything."""
    return "'" + text.replace("'", "'\\''") + "'"


# ------------------------------------------------------------------------------------------------------------------------- fish

_FISH: Final = """\
# fish completion for claude-transport, made by: claude-transport completion fish
function __claude_transport_is -d 'the command on the command line is this one; an empty one: there is none yet'
    set -l words (commandline -opc)
    set -e words[1]
    for word in $words
        if string match -q -- '-*' $word
            continue
        end
        test "$word" = "$argv[1]"
        return
    end
    test -z "$argv[1]"
end
complete -c claude-transport -f
"""


def render_fish(parser: Parser) -> str:
    """The script for fish."""
    lines = [_fish_line("", argument) for argument in parser.arguments()]
    for name, command in parser.commands.items():
        lines.append(f"complete -c {PROGRAM} -n '__claude_transport_is \"\"' -a {name} -d {_fish_quoted(command.summary)}")
    for name, command in parser.commands.items():
        lines += [_fish_line(name, argument) for argument in command.arguments()]
    return _FISH + "\n".join(line for line in lines if line) + "\n"


def _fish_line(command: str, argument: Argument) -> str:
    told = _fish_quoted(argument.help)
    condition = f"complete -c {PROGRAM} -n '__claude_transport_is \"{command}\"'"
    if not argument.flags:
        values = _fish_values(argument)
        return f"{condition}{values}" if values else ""
    flags = " ".join(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in argument.flags)
    if argument.kind == "switch":
        return f"{condition} {flags} -d {told}"
    return f"{condition} {flags} -r{_fish_values(argument) or ' -f'} -d {told}"


def _fish_values(argument: Argument) -> str:
    if argument.kind == "file":
        return " -F"
    if argument.kind == "directory":
        return " -f -a '(__fish_complete_directories)'"
    return f" -f -a {_fish_quoted(' '.join(argument.choices))}" if argument.choices else ""


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_RENDERERS: Final[Mapping[str, Callable[[Parser], str]]] = {"bash": render_bash, "zsh": render_zsh, "fish": render_fish}
