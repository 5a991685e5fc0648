"""What `--help` says beyond the options: what a command does, examples, exit codes, environment variables and files."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from claude_transport.app.parser import HELP_WIDTH

Rows = Sequence[tuple[str, str]]

_INTERRUPTED: Final = ("130", "interrupted by Ctrl-C (143 by SIGTERM, 129 by SIGHUP)")
_EXIT_CODES: Final = (
    ("0", "it worked"),
    ("1", "the run failed, or its output could not be written"),
    ("2", "nothing was run (usage, configuration, no claude)"),
    ("3", "the model's side failed (credential, limit, API), after every retry"),
    _INTERRUPTED,
)
_READING: Final = (("0", "it worked"), ("1", "the output could not be written"), ("2", "wrong usage"))

_TRACEBACK: Final = ("CLAUDE_TRANSPORT_TRACEBACK", "1 shows the traceback of an error as well")
_MARKDOWN: Final = ("NO_COLOR", "when it is not empty: no colours, no Markdown, nothing that moves; so does TERM=dumb")
_COLOURS: Final = ("NO_COLOR", "when it is not empty: no colours; so does TERM=dumb")
_COLUMNS: Final = ("COLUMNS", "the width to write for, in characters (default: that of the terminal)")
_CLI_PATH: Final = ("CLAUDE_CLI_PATH", "the claude to run, when --cli-path names none; else PATH and the usual places are searched")
_PATH: Final = ("CLAUDE_TRANSPORT", "auto, cli or api, when --transport says nothing")
_CREDENTIALS: Final = (
    "ANTHROPIC_API_KEY, CLAUDE_CODE_OAUTH_TOKEN",
    "credentials, of which claude takes one; `claude-transport doctor` says which",
)
_CONFIG: Final = ("CLAUDE_CONFIG_DIR", "where claude keeps its settings and its login")
_LOGIN: Final = ("~/.claude", "claude's settings and login, unless CLAUDE_CONFIG_DIR is set")
_NO_FILES: Final = (("none", "but the streams"),)


class Manual(NamedTuple):
    """The manual of one command. Each row is a name and what it means; `examples` are command lines."""

    summary: str
    description: str
    examples: Sequence[str]
    environment: Rows
    files: Rows
    exit_codes: Rows = _EXIT_CODES

    @property
    def set_description(self) -> str:
        """The description, wrapped."""
        return "\n".join(textwrap.wrap(self.description, HELP_WIDTH))

    @property
    def set_epilog(self) -> str:
        """Everything behind the options, wrapped."""
        sections = (("exit codes", self.exit_codes), ("environment", self.environment), ("files", self.files))
        examples = "\n".join(["examples:", *(f"  {line}" for line in self.examples)])
        return "\n\n".join([examples, *(_section(title, rows) for title, rows in sections)])


def _section(title: str, rows: Rows) -> str:
    """Exit codes stand in front of their meaning, names above it."""
    lines = [f"{title}:"]
    for name, meaning in rows:
        head = f"  {name:<5}"
        if len(name) > 4:
            lines.append(head)
            head = " " * 7
        lines += textwrap.wrap(meaning, HELP_WIDTH, initial_indent=head, subsequent_indent=" " * 7)
    return "\n".join(lines)


MANUAL: Final[Mapping[str, Manual]] = {
    "": Manual(
        "",
        "Ask a Claude, and find out what would run when you do. Answers and reports go to stdout, everything else to stderr.",
        (
            'claude-transport ask --offline "Hello, Claude"',
            "claude-transport doctor",
            "claude-transport ask --help",
        ),
        (_CLI_PATH, _PATH, _CREDENTIALS, _CONFIG, _MARKDOWN, _TRACEBACK),
        (_LOGIN,),
    ),
    "ask": Manual(
        "one prompt, its answer as it is written",
        "Asks one thing and shows the answer as it is written. Tool calls are one line each on stderr; when claude needs permission for "
        "a tool, the question is asked on the terminal, and without one the tool is denied.",
        (
            'claude-transport ask "What is a transport?"',
            'git diff | claude-transport ask --system-prompt "Review this."',
            'claude-transport ask --offline --json "Hello"',
        ),
        (_CLI_PATH, _PATH, _CREDENTIALS, _CONFIG, _MARKDOWN, _COLUMNS, _TRACEBACK),
        (_LOGIN,),
    ),
    "doctor": Manual(
        "what would run, who would pay, and does it work",
        "Says which claude would run, which credential would win and who would pay, by name and never by value; then tries that claude, "
        "from start to end, against an API inside this program. Nothing leaves the machine.",
        ("claude-transport doctor", "claude-transport doctor --offline", "claude-transport doctor --json | jq .ready"),
        (_CLI_PATH, _PATH, _CREDENTIALS, _CONFIG, _COLOURS, _TRACEBACK),
        (_LOGIN, (".claude/settings.json", "of the project: the names in it are reported, not the values")),
        (
            ("0", "what was tried works, also when no credential was found; --json says in `ready` whether there is all that it needs"),
            ("1", "something does not work, or the output could not be written"),
            ("2", "there is no claude, or wrong usage"),
            _INTERRUPTED,
        ),
    ),
    "serve": Manual(
        "let clients elsewhere talk to the claude here",
        "A gateway: each client that shows a token gets a claude of its own. The URLs are printed on stdout, one on each line; the log "
        "goes to stderr. Without tokens, only this machine can connect, and everybody on it can. SIGTERM or Ctrl-C begins the drain, in "
        "which running turns may end and no session begins; a second one cuts it short.",
        (
            "claude-transport serve --listen tcp://127.0.0.1:7411 --token-file tokens",
            "claude-transport serve --listen unix:///run/claude.sock --token-env TOKEN",
        ),
        (_CLI_PATH, ("the one that --token-env names", "a token; the sessions do not see it"), _CREDENTIALS, _CONFIG, _TRACEBACK),
        (("FILE of --token-file", "lines of `NAME TOKEN`; refused when others can read it"), _LOGIN),
        (
            ("0", "it was asked to end (SIGTERM, Ctrl-C), and has"),
            ("1", "the gateway failed, or its URLs could not be printed"),
            ("2", "nothing was served (usage, configuration)"),
        ),
    ),
    "inspect": Manual(
        "what is on a tape: figures, or a page",
        "Turns, tools, control requests, tokens, costs and problems of a recorded conversation, as text, as JSON, or as a page with "
        "the whole timeline that needs no other file.",
        (
            "claude-transport inspect tape.ndjson",
            "claude-transport inspect tape.ndjson --html tape.html",
            "claude-transport inspect tape.ndjson --json | jq .cost_usd",
        ),
        (_COLOURS, _COLUMNS, _TRACEBACK),
        (
            ("the tape", "it is only read"),
            ("FILE of --html", "the page; one that is there is replaced in one step; readable for you alone"),
        ),
        (
            ("0", "the tape could be read, whatever went wrong on it"),
            ("1", "the output could not be written"),
            ("2", "there is no tape, it is something else, or the page cannot be written"),
            ("130", "interrupted by Ctrl-C"),
        ),
    ),
    "record": Manual(
        "ask, and keep the conversation on a tape",
        "Asks one prompt after the other, in one conversation, shows the answers as `ask` does, and keeps everything but secrets on a tape "
        "that `inspect` explains and `replay` plays.",
        (
            'claude-transport record -o tape.ndjson "What is a transport?" "And a wrapper?"',
            "git diff | claude-transport record -o tape.ndjson -",
        ),
        (_CLI_PATH, _CREDENTIALS, _CONFIG, _MARKDOWN, _COLUMNS, _TRACEBACK),
        (("TAPE of --output", "the tape, readable for you alone; a file that is there already is refused without --force"), _LOGIN),
        (
            ("0", "every prompt was answered well"),
            ("1", "a run failed, or the tape or the output could not be written"),
            ("2", "nothing was run (usage, configuration, no claude, no place for the tape)"),
            *_EXIT_CODES[3:],
        ),
    ),
    "replay": Manual(
        "play a tape as the claude on it",
        "Plays a tape on stdin and stdout as the claude on it spoke, for a host that takes it for its claude. It ends as the tape does.",
        (
            "claude-transport replay tape.ndjson < said_by_the_host.ndjson",
            'exec claude-transport replay tape.ndjson -- "$@"',
        ),
        (_TRACEBACK,),
        (("the tape", "it is only read"),),
        (
            ("N", "the exit code on the tape; 128 plus the number when a signal ended claude"),
            ("0", "the tape was played to its end"),
            ("1", "the output could not be written, or the connection on the tape was lost"),
            ("2", "the tape cannot be read, or the host does not follow it: another kind of line, or too few"),
            _INTERRUPTED,
        ),
    ),
    "mcp-bridge": Manual(
        "a stdio MCP server with the tools of another program: for claude to start",
        "Hands every MCP message on to a BridgeHost in another program, and its messages back, until stdin ends. "
        "The host makes the configuration with which claude starts it; it is not meant to be started by hand.",
        ("claude-transport mcp-bridge --url unix:///tmp/host.sock --server tools",),
        (
            ("CLAUDE_TRANSPORT_BRIDGE_URL", "where the host is, when --url says nothing"),
            ("CLAUDE_TRANSPORT_BRIDGE_SERVER", "which of its servers, when --server says nothing"),
            ("CLAUDE_TRANSPORT_BRIDGE_TOKEN", "the token; command lines can be read by everybody"),
            _TRACEBACK,
        ),
        _NO_FILES,
        (
            ("0", "the host was there all the time"),
            ("1", "it was not: each request got an error"),
            ("2", "nothing was run: an address, a name or a token is missing"),
        ),
    ),
    "bench": Manual(
        "how fast this installation reads",
        "Reads small messages from a child process in every way the library has, each beside a loop of os.read and msgspec that does "
        "nothing else, in turns, for about 10 seconds. What is counted is the processor time of the reading thread. No claude is needed.",
        ("claude-transport bench", "claude-transport bench --backend trio --json"),
        (_COLOURS, _TRACEBACK),
        _NO_FILES,
        (
            ("0", "it was measured"),
            ("1", "no child could be run, or the output could not be written"),
            ("2", "wrong usage"),
            _INTERRUPTED,
        ),
    ),
    "completion": Manual(
        "a script that completes this program's command lines in a shell",
        "Prints a script for bash, zsh or fish: commands, options, their values, and files where files are wanted. "
        "It is made from the options themselves, so that it knows those of this version.",
        (
            'eval "$(claude-transport completion bash)"    # in ~/.bashrc',
            'eval "$(claude-transport completion zsh)"     # in ~/.zshrc, after compinit',
            "claude-transport completion fish | source      # in config.fish",
        ),
        (_TRACEBACK,),
        _NO_FILES,
        _READING,
    ),
}
