"""`claude-transport completion SHELL`: the scripts for bash, zsh and fish, and the answers to what they ask.

A script asks the program itself: it runs it with `_CLAUDE_TRANSPORT_COMPLETE` in the environment, and click answers. The scripts differ
from click's own in four points: bash may be as old as 3.2, fish keeps explanations with commas, and zsh and fish complete
`--option=value`, also where the value is a file.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar, Final

from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    shell_complete,
)

from claude_transport.app.arguments import program
from claude_transport.app.failures import COMPLETE_VARIABLE, EXIT_OK, PROGRAM
from claude_transport.app.standard_streams import write_out

_BASH: Final = """\
# bash completion for %(prog_name)s, made by: %(prog_name)s completion bash
%(complete_func)s() {
    local cur=${COMP_WORDS[COMP_CWORD]} answer kind=""
    [[ $cur == "=" ]] && cur=""
    COMPREPLY=()
    while IFS= read -r answer; do
        case $answer in
        plain,*) COMPREPLY+=("${answer#plain,}") ;;
        file,*) kind="-f" ;;
        dir,*) kind="-d" ;;
        esac
    done < <(IFS=$'\n'; env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD %(complete_var)s=bash_complete "$1")
    if [[ -n $kind ]]; then
        while IFS= read -r answer; do
            COMPREPLY+=("$answer")
        done < <(compgen $kind -- "$cur")
        compopt -o filenames 2>/dev/null
    fi
    return 0
}
complete -F %(complete_func)s %(prog_name)s
"""
_ZSH: Final = """\
#compdef %(prog_name)s
# zsh completion for %(prog_name)s, made by: %(prog_name)s completion zsh
%(complete_func)s() {
    local -a answers plain
    local kind value told
    answers=("${(@f)$(COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT-1)) %(complete_var)s=zsh_complete $words[1])}")
    compset -P '--*='
    for kind value told in "${answers[@]}"; do
        case $kind in
        plain) [[ $told == "_" ]] && plain+=("$value") || plain+=("$value:$told") ;;
        file) _files ;;
        dir) _files -/ ;;
        esac
    done
    (( $#plain )) && _describe -V %(prog_name)s plain
}
if [[ $funcstack[1] == _%(prog_name)s ]]; then
    %(complete_func)s "$@"
else
    compdef %(complete_func)s %(prog_name)s
fi
"""
_FISH: Final = """\
# fish completion for %(prog_name)s, made by: %(prog_name)s completion fish
function %(complete_func)s
    set -l word (commandline -ct)
    set -l before (string match -r -- '^--[^=]*=' $word)
    for answer in (env %(complete_var)s=fish_complete COMP_WORDS=(commandline -cp) COMP_CWORD=$word %(prog_name)s)
        set -l parts (string split -m 1 , -- $answer)
        switch $parts[1]
            case plain
                echo "$before$parts[2]"
            case file
                for path in (__fish_complete_path $parts[2])
                    echo "$before$path"
                end
            case dir
                for path in (__fish_complete_directories $parts[2])
                    echo "$before$path"
                end
        end
    end
end
complete -c %(prog_name)s -f -a '(%(complete_func)s)'
"""


class _Completion(ShellComplete):
    """What all three shells share: after `--` there are no options."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[Any]]:
        found = super().get_completions(args, incomplete)
        return [item for item in found if "--" not in args or not str(item.value).startswith("-")]

    def source(self) -> str:
        return self.source_template % self.source_vars()


@add_completion_class
class _Bash(_Completion, BashComplete):
    source_template: ClassVar[str] = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the complete words and the last one. Bash makes three words of `--option=value`."""
        args, incomplete = super().get_completion_args()
        return [word for word in args if word != "="], incomplete


@add_completion_class
class _Zsh(_Completion, ZshComplete):
    source_template: ClassVar[str] = _ZSH


@add_completion_class
class _Fish(_Completion, FishComplete):
    source_template: ClassVar[str] = _FISH


_SHELLS: Final[dict[str, type[ShellComplete]]] = {shell.name: shell for shell in (_Bash, _Zsh, _Fish)}


def run(args: SimpleNamespace) -> int:
    """Print the script for `args.shell` on stdout."""
    write_out(script_for(args.shell).rstrip("\n"))
    return EXIT_OK


def script_for(shell: str) -> str:
    """Return the script for `bash`, `zsh` or `fish`."""
    return _SHELLS[shell](program, {}, PROGRAM, COMPLETE_VARIABLE).source()


def answer(instruction: str) -> int:
    """Print what may stand at the end of a command line, for the script that asked: `bash_complete`, for example."""
    return shell_complete(program, {}, PROGRAM, COMPLETE_VARIABLE, instruction)
