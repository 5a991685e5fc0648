"""The command line of the program, as click commands: what each command takes, and what `--help` says about it.

Nothing here runs a command: `parse()` returns its values, and `main` starts it. Nothing here imports more than click, so that `--help` and
completion are quick. The scripts for shells are in `shell_completion`.
"""

from __future__ import annotations

import math
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from claude_transport.app.failures import PROGRAM

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# These values also exist in `launch.options` and `completion.resolution`, which take long to import; tests hold that they are the same.
PERMISSION_MODES: Final = ("default", "acceptEdits", "auto", "bypassPermissions", "dontAsk", "manual", "plan")
TRANSPORTS: Final = ("auto", "cli", "api")
AGENTS: Final = ("claude-code", "codex", "auto")
SANDBOXES: Final = ("read-only", "workspace-write", "danger-full-access")
APPROVAL_POLICIES: Final = ("untrusted", "on-request", "never")
SHELLS: Final = ("bash", "zsh", "fish")
OF_ONE_AGENT: Final = {
    **dict.fromkeys(("cli_path", "offline", "system_prompt", "permission_mode", "allowed_tools", "max_turns", "choice"), AGENTS[0]),
    **dict.fromkeys(("codex_path", "sandbox", "approval_policy"), AGENTS[1]),
}
"""The arguments of the program that only one agent of this library takes, and its name. A plug-in may take them, too."""
HELP_WIDTH: Final = 80
"""The widest line of the help, in columns."""
_COMMAS_OUTSIDE_PARENTHESES: Final = re.compile(r",(?![^()]*\))")

Rows = Sequence[tuple[str, str]]


def parse(argv: Sequence[str]) -> SimpleNamespace | None:
    """Parse a command line, without the program's name.

    Returns:
        The values of the command's arguments by name, and the command's own name as `command`. None when no command was given.

    Raises:
        click.UsageError: The command line is wrong.
        click.exceptions.Exit: `--help`, `help` or `--version` was given, and has been printed.
    """
    with program.make_context(PROGRAM, list(argv), terminal_width=_help_width()) as context:
        values: SimpleNamespace | None = program.invoke(context)
    if values is not None and values.command == "help":
        return parse([*([values.topic] if values.topic else ()), "--help"])
    return values


def explain_mistake(mistake: click.UsageError) -> tuple[str, str]:
    """Return what is wrong on the command line, and a suggestion for it, which may be empty."""
    command = mistake.ctx.command if mistake.ctx is not None else program
    if isinstance(mistake, click.NoSuchOption):
        options = [flag for param in command.params for flag in param.opts if flag.startswith("--")]
        return f"{command.name} has no option {mistake.option_name}.", _nearest(mistake.option_name, options)
    if isinstance(mistake, _UnknownCommand):
        nearest = _nearest(mistake.words[0], [str(known.name) for known in COMMANDS])
        may_be_a_prompt = command is program and not mistake.words[0].startswith("-")
        asked = f"To ask that: {PROGRAM} ask {shlex.quote(' '.join(mistake.words))}" if may_be_a_prompt else ""
        return f"there is no command {mistake.words[0]!r}.", nearest or asked
    if isinstance(mistake, _TooManyWords):
        what = f"ask takes one prompt, and got {len(mistake.words)} words."
        return what, f"Put the prompt in quotes: {PROGRAM} ask {shlex.quote(' '.join(mistake.words))}"
    return " ".join(mistake.format_message().split()), ""  # click puts the choices on lines of their own


def _nearest(word: str, known: Iterable[str]) -> str:
    import difflib  # only after a mistake

    dashes = "--" if word.startswith("-") else ""  # what all options have makes none of them alike
    close = difflib.get_close_matches(word.lstrip("-"), [each.lstrip("-") for each in known], n=1)
    return f"Did you mean {dashes}{close[0]}?" if close else ""


def help_text() -> str:
    """Return the help of the whole program."""
    with program.make_context(PROGRAM, [], terminal_width=_help_width()) as context:
        return program.get_help(context)


def split_rules(values: Iterable[str]) -> list[str]:
    """Split comma-separated lists into permission rules. A comma inside parentheses belongs to its rule."""
    rules = (rule.strip() for value in values for rule in _COMMAS_OUTSIDE_PARENTHESES.split(value))
    return [rule for rule in rules if rule]


def _help_width() -> int:
    return min(shutil.get_terminal_size().columns, HELP_WIDTH)


class Manual(NamedTuple):
    """What `--help` says besides the options. A row is a name and its meaning; `examples` are command lines."""

    summary: str
    description: str
    examples: Sequence[str]
    environment: Rows
    files: Rows
    exit_codes: Rows


class _Explained(click.Command):
    """A command whose help is a manual page: usage, description, options, examples, exit codes, environment, files."""

    manual: Manual

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the whole page."""
        self.format_usage(ctx, formatter)
        formatter.write_paragraph()
        formatter.write_text(self.manual.description)
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                sections.setdefault(_GROUPS.get(param, "Arguments" if isinstance(param, Positional) else "Options"), []).append(record)
        if isinstance(self, click.Group):
            sections["Commands"] = [(name, command.short_help or "") for name, command in self.commands.items()]
        for title, rows in sections.items():
            if rows:
                _write_section(formatter, title, rows)
        with formatter.section("Examples"):
            for example in self.manual.examples:
                formatter.write_text(example)
        _write_section(formatter, "Exit codes", (*self.manual.exit_codes, NO_READER))
        _write_section(formatter, "Environment", self.manual.environment)
        _write_section(formatter, "Files", self.manual.files)


def _write_section(formatter: click.HelpFormatter, title: str, rows: Rows) -> None:
    with formatter.section(title):
        formatter.write_dl(rows, col_max=min(24, formatter.width // 3))


NO_READER: Final = ("141", "what reads the output has ended, as in `| head -1`")
"""The exit code that every command has."""

_GROUPS: Final[dict[click.Parameter, str]] = {}
"""The heading in the help of each option that is not simply under "Options"."""


def _under(heading: str, options: list[click.Option]) -> list[click.Option]:
    _GROUPS.update(dict.fromkeys(options, heading))
    return options


class _UnknownCommand(click.UsageError):
    """The first word is no command. `words` are all that were given."""

    def __init__(self, words: Sequence[str], ctx: click.Context) -> None:
        super().__init__("there is no such command.", ctx)
        self.words = words


class _TooManyWords(click.UsageError):
    """There is more than one prompt, most likely because of missing quotes. `words` are all of them."""

    def __init__(self, words: Sequence[str], ctx: click.Context) -> None:
        super().__init__("ask takes one prompt.", ctx)
        self.words = words


class Command(_Explained):
    """One command of the program. Its callback returns the parsed values, together with `fixed` ones."""

    def __init__(self, name: str, params: Sequence[click.Parameter], *, fixed: Mapping[str, object] | None = None) -> None:
        self.manual: Manual = MANUAL[name]

        def collect(**values: object) -> SimpleNamespace:
            if values.get("verbose") and values.get("quiet"):
                raise click.UsageError("--verbose and --quiet contradict each other. Give one of them.")
            return SimpleNamespace(command=name, **values, **(fixed or {}))

        super().__init__(name, params=list(params), callback=collect, help=self.manual.description, short_help=self.manual.summary)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments of this command into `ctx`. Raises `click.UsageError` when they are wrong."""
        if self.name != "ask":
            return super().parse_args(ctx, args)
        ctx.allow_extra_args = True  # a prompt without quotes: the suggestion needs all of its words
        more = super().parse_args(ctx, args)
        if more and not ctx.resilient_parsing:
            raise _TooManyWords([ctx.params["prompt"], *more], ctx)
        return more


class Program(_Explained, click.Group):
    """The program itself: it only chooses the command."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first word names, and the other words. Raises `click.UsageError` when it names none."""
        if args[0] not in self.commands and not ctx.resilient_parsing and not args[0].startswith("-"):
            raise _UnknownCommand(args, ctx)
        return super().resolve_command(ctx, args)


def _known_command(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Raise `click.UsageError` for a word that is no command."""
    if value is not None and value not in program.commands and not ctx.resilient_parsing:
        raise _UnknownCommand([value], ctx)
    return value


def _complete_commands(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(name, help=command.short_help) for name, command in program.commands.items() if name.startswith(incomplete)]


class Positional(click.Argument):
    """A positional argument that has an explanation."""

    def __init__(self, name: str, *, help: str, **attributes: Any) -> None:  # noqa: A002 - click's own name for it
        super().__init__([name], **attributes)
        self.help: str | None = help

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return its two columns of the help."""
        return self.make_metavar(ctx), self.help or ""


def _number(read: Callable[[str], float], what: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return a click callback that reads a value with `read()`, which raises `ValueError` for a wrong one."""

    def convert(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        try:
            return read(value) if isinstance(value, str) else value  # a default is a number already
        except ValueError:
            raise click.BadParameter(f"{value!r} is not {what}.", ctx=ctx, param=param) from None

    return convert


def _read_count(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < 1:
        raise ValueError(text)
    return int(text)


def _read_position(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,15}", text):
        raise ValueError(text)
    return int(text)


def _read_seconds(text: str) -> float:
    seconds = float(text)
    if not seconds > 0 or math.isinf(seconds):
        raise ValueError(text)
    return seconds


_COUNT: Final[dict[str, Any]] = {"type": click.UNPROCESSED, "callback": _number(_read_count, "a whole number greater than 0")}
_SECONDS: Final[dict[str, Any]] = {"type": click.UNPROCESSED, "callback": _number(_read_seconds, "a number of seconds greater than 0")}
_POSITION: Final[dict[str, Any]] = {"type": click.UNPROCESSED, "callback": _number(_read_position, "the number of a line, or 0")}
_PORT: Final[dict[str, Any]] = {"type": click.UNPROCESSED, "callback": _number(_read_position, "the number of a port, or 0 for a free one")}
_SPEED: Final[dict[str, Any]] = {"type": click.UNPROCESSED, "callback": _number(float, "a number")}


def _complete_with(kind: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Return a click callback that lets the shell complete names of files (`file`) or directories (`dir`)."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type=kind)]

    return complete


_FILES: Final = _complete_with("file")
_DIRECTORIES: Final = _complete_with("dir")
_COMPLETIONS: Final = {"FILE": _FILES, "TAPE": _FILES, "PATH": _FILES, "DIR": _DIRECTORIES}


def _option(*names: str, metavar: str, help: str, **more: Any) -> click.Option:  # noqa: A002
    """An option with a value. Its metavar decides whether the shell completes names of files."""
    default = more.get("default")
    said = help if default is None else f"{help} (default: {default if isinstance(default, str) else f'{default:g}'})"
    return click.Option(names, metavar=metavar, help=said, shell_complete=_COMPLETIONS.get(metavar), **more)


def _choice(name: str, choices: Sequence[str], *, help: str, metavar: str = "", default: str | None = None) -> click.Option:  # noqa: A002
    return _option(name, metavar=metavar or "|".join(choices), help=help, type=click.Choice(choices), default=default)


def _switch(*names: str, help: str) -> click.Option:  # noqa: A002
    return click.Option(names, is_flag=True, help=help)


def _offline() -> click.Option:
    return _switch("--offline", help="ask a simulated Claude: no claude, no network, no key")


def _every_message() -> click.Option:
    return _switch("--json", help="print every message as one line of JSON, exactly as it came")


def _claude() -> list[click.Option]:
    """The options for a session that `ask` and `record` share."""
    return [
        _model(),
        _option("--system-prompt", metavar="TEXT", help="the system prompt (default: claude's own)"),
        *_permissions(),
        _option("--max-turns", **_COUNT, metavar="N", help="fail after this many turns of claude (default: no limit)"),
        _cwd(),
    ]


def _model() -> click.Option:
    return _option("--model", metavar="NAME", help="alias (haiku, sonnet, opus) or full name (default: claude's own)")


def _permissions() -> list[click.Option]:
    modes = ", ".join(PERMISSION_MODES)
    return [
        _choice(
            "--permission-mode",
            PERMISSION_MODES,
            metavar="MODE",
            help=f"what claude may do without asking: {modes} (default: as claude's settings say)",
        ),
        _option(
            "--allowed-tools",
            multiple=True,
            metavar="RULES",
            help="tools that claude may use without asking, separated by commas: `Read,Bash(git log:*)`; repeatable",
        ),
    ]


def _cwd() -> click.Option:
    return _option("--cwd", metavar="DIR", help="the directory where claude works (default: the current one)")


def _cli_path() -> click.Option:
    return _option("--cli-path", metavar="PATH", help="the claude to run (default: CLAUDE_CLI_PATH, else search for it)")


def _backend() -> click.Option:
    return _choice("--backend", ("asyncio", "trio"), default="asyncio", help="the event loop to run on")


def _run() -> list[click.Option]:
    """The options for the run that `ask` and `record` share."""
    return [
        _cli_path(),
        _backend(),
        _switch("--plain", help="no colours, no Markdown, no progress display"),
        _switch("--no-color", help="no colours, no Markdown (also when NO_COLOR is set)"),
        _switch("-v", "--verbose", help="also print claude's own stderr and a summary, on stderr"),
        _switch("-q", "--quiet", help="print only problems and questions on stderr"),
    ]


def _colours(plain: str = "no colours") -> list[click.Option]:
    return [_switch("--plain", help=plain), _switch("--no-color", help="no colours (also when NO_COLOR is set)")]


def _transport(purpose: str) -> click.Option:
    return _choice("--transport", TRANSPORTS, help=f"{purpose} (default: CLAUDE_TRANSPORT, else auto: claude if there is one)")


class _AgentName(click.Choice[str]):
    """The name of an agent: one of this library, or a plug-in's. Plug-ins are looked for only when it is none of this library."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value not in self.choices:
            from claude_transport.agents.registry import agent_names

            if value in agent_names():
                return value
        return super().convert(value, param, ctx)


def _agent_name(choices: Sequence[str], *, help: str, default: str | None = None) -> click.Option:  # noqa: A002
    return _option("--agent", metavar="|".join(choices), help=help, type=_AgentName(choices), default=default)


def _agent() -> list[click.Option]:
    """The options of `ask` that say which agent answers."""
    return [
        _agent_name(
            AGENTS,
            help="who answers (default: CLAUDE_TRANSPORT_AGENT, else claude-code); auto: claude if there is one, else codex",
        ),
        _option("--codex-path", metavar="PATH", help="the codex to run (default: CODEX_CLI_PATH, else search for it)"),
    ]


def _one_agent(what: str) -> list[click.Option]:
    """The options of `record` and `serve` that name the agent."""
    return [
        _agent_name(AGENTS[:2], default="claude-code", help=what),
        _option("--codex-path", metavar="PATH", help="the codex to run (default: CODEX_CLI_PATH, else search for it)"),
    ]


def _timeouts(what: str) -> list[click.Option]:
    """The options of `ask` and `record` that say how long a run may take, and its end."""
    return [
        _option("--timeout", **_SECONDS, metavar="SECONDS", help=f"stop {what} after this time, with exit code 1 (default: never)"),
        _option(
            "--close-timeout",
            **_SECONDS,
            metavar="SECONDS",
            help="end the agent within this time (default: 1 when the time is over or you interrupt, else up to 10)",
        ),
    ]


def _doors() -> list[click.Option]:
    """The options of `serve` that say where to listen and which clients may connect."""
    return [
        _option(
            "--listen",
            multiple=True,
            required=True,
            metavar="URL",
            help="listen at tcp://HOST:PORT, tls://, unix:///PATH, ws://HOST:PORT/PATH or wss://; port 0 is any free one; repeatable",
        ),
        _option(
            "--token-file",
            metavar="FILE",
            help="the clients' tokens: lines of `NAME TOKEN`, or only a token; refused if other users can read the file",
        ),
        _option("--token-env", metavar="NAME", help="the environment variable that holds a token (default: none)"),
        _option("--certificate", metavar="FILE", help="the certificate chain for tls:// and wss://, as PEM"),
        _option("--key", metavar="FILE", help="the private key of the certificate, if it is in another file"),
        _option("--client-ca", metavar="FILE", help="require clients to have a certificate of this authority (mutual TLS)"),
        _option(
            "--origin",
            multiple=True,
            metavar="ORIGIN",
            help="a web origin that may connect, such as https://example.org (default: none); repeatable",
        ),
        _host_name("a host name under which /healthz, /metrics and /observe answer (default: loopback, and those of --listen); repeatable"),
        _switch("--allow-plaintext", help="let other machines connect without TLS, because a proxy in front has it"),
        _choice(
            "--mode",
            ("link", "plain"),
            help="speak only this protocol: link, which survives a lost connection, or plain lines (default: both)",
        ),
        _switch("--compression", help="compress the output for clients that ask for it (default: no)"),
        _switch("--observable", help="let clients watch their own sessions, at ws:// and wss:// addresses, with `watch` or a browser"),
    ]


def _host_name(purpose: str) -> click.Option:
    return _option("--host-name", multiple=True, metavar="NAME", help=purpose)


def _served() -> list[click.Option]:
    """The options of `serve` for the sessions."""
    return [
        _model(),
        *_permissions(),
        _cwd(),
        _option("--choice", multiple=True, metavar="OPTION", help="another option of ClaudeOptions that clients may set; repeatable"),
        _switch("--no-choices", help="clients may set only the options that --choice names"),
        _cli_path(),
    ]


def _one_of(choices: Sequence[str]) -> str:
    """Return the choices as a list in words."""
    *first, last = choices
    return f"{', '.join(first)} or {last}"


def _served_codex() -> list[click.Option]:
    """The options of `serve` that say whom it serves, and how Codex is run."""
    return [
        *_one_agent("what each client gets"),
        _choice(
            "--sandbox",
            SANDBOXES,
            metavar="MODE",
            help="what commands of codex may do with files, whatever a thread asks for: "
            f"{_one_of(SANDBOXES)} (default: as config.toml says)",
        ),
        _choice(
            "--approval-policy",
            APPROVAL_POLICIES,
            metavar="WHEN",
            help=f"when codex asks the client, whatever a thread asks for: {_one_of(APPROVAL_POLICIES)} (default: as config.toml says)",
        ),
    ]


def _broker() -> click.Option:
    return _option(
        "--broker",
        metavar="URL",
        help="the broker of the fleet: redis://HOST:PORT/DATABASE, or rediss:// for TLS (default: CLAUDE_TRANSPORT_BROKER)",
    )


def _hosted() -> list[click.Option]:
    """The options of `worker` that say which sessions it takes."""
    return [
        _option("--capacity", **_COUNT, default=8, metavar="N", help="the most sessions at the same time"),
        _option("--name", metavar="NAME", help="the name of this worker, which no other one has (default: the host's, with a random end)"),
        _option("--label", multiple=True, metavar="NAME", help="what this worker has, such as `gpu`; sessions ask for it; repeatable"),
        _option("--token-file", metavar="FILE", help="the clients' tokens: lines of `NAME TOKEN` (default: no token is needed)"),
        _option("--token-env", metavar="NAME", help="the environment variable that holds a token"),
        _option("--secret-env", multiple=True, metavar="NAME", help="a variable that sessions may have as `secret:NAME`; repeatable"),
        _option(
            "--session-store",
            metavar="STORE",
            help="where transcripts go, so that other workers can go on: the path of an SQLite file, redis://, or a plug-in's scheme "
            "(default: CLAUDE_TRANSPORT_SESSION_STORE, else nowhere)",
        ),
        _option("--max-sessions", **_COUNT, default=16, metavar="N", help="sessions of one token at the same time"),
        _option("--lease", **_SECONDS, default=15.0, metavar="SECONDS", help="after this silence another worker takes the sessions"),
        _option("--drain-timeout", **_SECONDS, default=30.0, metavar="SECONDS", help="how long a drain waits for running turns to end"),
    ]


def _watched() -> list[click.Option]:
    """The options of `worker` for probes and Prometheus."""
    return [
        _option("--metrics-port", **_PORT, metavar="PORT", help="answer /healthz and /metrics over HTTP at this port (default: no port)"),
        _option("--metrics-host", default="127.0.0.1", metavar="ADDRESS", help="the address of this machine for that port"),
        _host_name("a host name under which /healthz and /metrics answer (default: loopback, and --metrics-host); repeatable"),
    ]


def _limits() -> list[click.Option]:
    return [
        _option(
            "--lease", **_SECONDS, default=60.0, metavar="SECONDS", help="how long a session waits for a client that lost its connection"
        ),
        _option("--max-sessions", **_COUNT, default=16, metavar="N", help="sessions of one token at the same time"),
        _option("--max-total-sessions", **_COUNT, default=64, metavar="N", help="sessions of all tokens at the same time"),
        _option("--drain-timeout", **_SECONDS, default=30.0, metavar="SECONDS", help="how long a drain waits for running turns to end"),
        _option("--close-timeout", **_SECONDS, default=5.0, metavar="SECONDS", help="end a claude within this time"),
    ]


_BROKER: Final = ("CLAUDE_TRANSPORT_BROKER", "the URL of the broker, with its password, for programs without --broker")
_SESSION_STORE: Final = ("CLAUDE_TRANSPORT_SESSION_STORE", "the session store, with its password, without --session-store")
_INTERRUPTED: Final = ("130", "interrupted by Ctrl-C (143 by SIGTERM, 129 by SIGHUP)")
_EXIT_CODES: Final = (
    ("0", "it worked"),
    ("1", "the run failed, or its output could not be written"),
    ("2", "nothing was run (usage, configuration, no claude)"),
    ("3", "the model's side failed (credential, limit, API), after every retry"),
    _INTERRUPTED,
)
_TRACEBACK: Final = ("CLAUDE_TRANSPORT_TRACEBACK", "set to 1 to see the traceback of an error")
_MARKDOWN: Final = ("NO_COLOR", "if not empty: no colours, no Markdown, no progress display; TERM=dumb does the same")
_COLOURS: Final = ("NO_COLOR", "if not empty: no colours; TERM=dumb does the same")
_COLUMNS: Final = ("COLUMNS", "the width of the output, in characters (default: that of the terminal)")
_CLI_PATH: Final = ("CLAUDE_CLI_PATH", "the claude to run without --cli-path; else PATH and the usual places are searched")
_TAPES: Final = (
    "CLAUDE_TRANSPORT_TAPES",
    "with --as-claude: record (the default), replay or none (play TAPE, and never record), auto (play TAPE if it is there)",
)
_PATH: Final = ("CLAUDE_TRANSPORT", "auto, cli or api: used without --transport")
_AGENT: Final = ("CLAUDE_TRANSPORT_AGENT", "claude-code, codex or auto: used without --agent")
_CODEX_PATH: Final = ("CODEX_CLI_PATH", "the codex to run without --codex-path; else PATH and the usual places are searched")
_CREDENTIALS: Final = (
    ("ANTHROPIC_API_KEY", "a key of the API; `doctor` says which credential claude uses"),
    ("CLAUDE_CODE_OAUTH_TOKEN", "a token of a subscription"),
)
_CONFIG: Final = ("CLAUDE_CONFIG_DIR", "where claude keeps its settings and its login")
_LOGIN: Final = ("~/.claude", "claude's settings and login, unless CLAUDE_CONFIG_DIR is set")
_NO_FILES: Final = (("none", "only the standard streams"),)

MANUAL: Final[Mapping[str, Manual]] = {
    "": Manual(
        summary="",
        description="Ask Claude, and find out what runs when you do. Answers and reports go to stdout, everything else to stderr.",
        examples=('claude-transport ask --offline "Hello, Claude"', "claude-transport doctor", "claude-transport ask --help"),
        environment=(_CLI_PATH, _PATH, *_CREDENTIALS, _CONFIG, _MARKDOWN, _TRACEBACK),
        files=(_LOGIN,),
        exit_codes=_EXIT_CODES,
    ),
    "ask": Manual(
        summary="ask one prompt and print the answer as it is written",
        description="Ask one prompt and print the answer as it is written. Each tool call is one line on stderr. If claude needs "
        "permission for a tool, you are asked on the terminal. Without a terminal the tool is denied. With --agent codex, the commands of "
        "Codex run in a sandbox that can only read, and nothing is asked.",
        examples=(
            'claude-transport ask "What is a transport?"',
            'git diff | claude-transport ask --system-prompt "Review this."',
            'claude-transport ask --offline --json "Hello"',
            'claude-transport ask --agent codex "What is a transport?"',
        ),
        environment=(_CLI_PATH, _CODEX_PATH, _PATH, _AGENT, *_CREDENTIALS, _CONFIG, _MARKDOWN, _COLUMNS, _TRACEBACK),
        files=(_LOGIN,),
        exit_codes=_EXIT_CODES,
    ),
    "doctor": Manual(
        summary="report what would run and who would pay, and test it",
        description="Report which claude would run, which credential it would use and who would pay: names only, no values. Then test that "
        "claude from start to end, against an API inside this program. Nothing leaves the machine.",
        examples=("claude-transport doctor", "claude-transport doctor --offline", "claude-transport doctor --json | jq .ready"),
        environment=(_CLI_PATH, _PATH, *_CREDENTIALS, _CONFIG, _COLOURS, _TRACEBACK),
        files=(_LOGIN, (".claude/settings.json", "settings of the project: their names are reported, not their values")),
        exit_codes=(
            ("0", "the test worked, even if there is no credential; see `ready` in the output of --json"),
            ("1", "something does not work, or the output could not be written"),
            ("2", "there is no claude, or the usage is wrong"),
            _INTERRUPTED,
        ),
    ),
    "serve": Manual(
        summary="let clients on other machines use the claude or codex here",
        description="Run a gateway: each client with a valid token gets its own claude; with --agent codex, its own codex app-server, "
        "with which it may do on this machine what codex may. The URLs are printed on stdout, one per line. The "
        "log goes to stderr. Without tokens, only this machine can connect, but every user of it can. SIGTERM or Ctrl-C starts the drain: "
        "running turns may end, new sessions are refused. A second signal ends the drain at once.",
        examples=(
            "claude-transport serve --listen tcp://127.0.0.1:7411 --token-file tokens",
            "claude-transport serve --listen unix:///run/claude.sock --token-env TOKEN",
            "claude-transport serve --agent codex --sandbox read-only --listen unix:///run/codex.sock",
        ),
        environment=(
            _CLI_PATH,
            ("the one that --token-env names", "a token; it is removed before sessions start"),
            *_CREDENTIALS,
            _CONFIG,
            _TRACEBACK,
        ),
        files=(("FILE of --token-file", "lines of `NAME TOKEN`; refused if other users can read it"), _LOGIN),
        exit_codes=(
            ("0", "it was asked to end (SIGTERM, Ctrl-C) and ended"),
            ("1", "the gateway failed, or its URLs could not be printed"),
            ("2", "nothing was served (usage, configuration)"),
        ),
    ),
    "worker": Manual(
        summary="run sessions of a fleet on this machine",
        description="Take sessions from the broker of a fleet, and run a claude for each. The name of the worker is printed on stdout, the "
        "log goes to stderr. SIGTERM or Ctrl-C starts the drain: each session moves to another worker when its turn is over. A second "
        "signal ends the drain at once.",
        examples=(
            "claude-transport worker --broker redis://127.0.0.1:6379/0 --capacity 16",
            "claude-transport worker --label gpu --session-store transcripts.db --token-file tokens",
        ),
        environment=(
            _BROKER,
            _SESSION_STORE,
            _CLI_PATH,
            ("the one that --token-env names", "a token; it is removed before sessions start"),
            ("those that --secret-env names", "secrets of sessions; they are removed before sessions start"),
            *_CREDENTIALS,
            _CONFIG,
            _TRACEBACK,
        ),
        files=(("FILE of --token-file", "lines of `NAME TOKEN`; refused if other users can read it"), _LOGIN),
        exit_codes=(
            ("0", "it was asked to end (SIGTERM, Ctrl-C) and ended"),
            ("1", "the broker cannot be reached, or the name could not be printed"),
            ("2", "nothing was served (usage, configuration)"),
        ),
    ),
    "sessions": Manual(
        summary="list the sessions and the workers of a fleet",
        description="List the sessions of a fleet with their state and their worker, the workers with their load, and how many sessions "
        "wait for a worker. With --stop, end one session.",
        examples=(
            "claude-transport sessions --broker redis://127.0.0.1:6379/0",
            "claude-transport sessions --json | jq .waiting",
            "claude-transport sessions --stop 1a3742c2e0f35b66",
        ),
        environment=(_BROKER, _TRACEBACK),
        files=(("CA certificates of the system", "what a broker at rediss:// is checked with"),),
        exit_codes=(
            ("0", "it worked"),
            ("1", "the broker cannot be reached, or the output could not be written"),
            ("2", "nothing was done (usage, configuration, no such session)"),
            _INTERRUPTED,
        ),
    ),
    "watch": Manual(
        summary="show a running session of a gateway",
        description="Show what is said in a running session of a gateway, one line for each thing that happens, until the session ends. "
        "Secrets are removed, unless the token was made to show them. Watching changes nothing in the session.",
        examples=(
            "claude-transport watch ws://127.0.0.1:7411 --session 1a3742c2 --token-env TOKEN",
            "claude-transport watch http://127.0.0.1:7411/observe/1a3742c2 --token-env TOKEN --json",
        ),
        environment=(
            ("the one that --token-env names", "the token of an observer, or of the owner of the session"),
            _COLOURS,
            _COLUMNS,
            _TRACEBACK,
        ),
        files=_NO_FILES,
        exit_codes=(
            ("0", "the session has ended"),
            ("1", "the gateway could not be reached or refused, the connection ended, or the output could not be written"),
            ("2", "nothing was shown (usage, configuration)"),
            ("3", "the gateway does not accept the token"),
            _INTERRUPTED,
        ),
    ),
    "inspect": Manual(
        summary="show what is on a tape, as figures or as a page",
        description="Show the turns, tools, control requests, tokens, costs and problems of a recorded conversation: as text, as JSON, or "
        "as one HTML file with the whole timeline.",
        examples=(
            "claude-transport inspect tape.ndjson",
            "claude-transport inspect tape.ndjson --html tape.html",
            "claude-transport inspect tape.ndjson --json | jq .cost_usd",
        ),
        environment=(_COLOURS, _COLUMNS, _TRACEBACK),
        files=(
            ("the tape", "it is only read"),
            ("FILE of --html", "the page; an existing file is replaced in one step; only you can read it"),
        ),
        exit_codes=(
            ("0", "the tape could be read, whatever went wrong in the conversation"),
            ("1", "the output could not be written"),
            ("2", "there is no tape, the file is not a tape, or the page cannot be written"),
            ("130", "interrupted by Ctrl-C"),
        ),
    ),
    "record": Manual(
        summary="ask, and record the conversation on a tape",
        description="Ask one prompt after the other, in one conversation. Print the answers as `ask` does, and record everything but "
        "secrets on a tape. With --as-claude, record what any other program says to its claude. `inspect` explains a tape, and `replay` "
        "plays it.",
        examples=(
            'claude-transport record -o tape.ndjson "What is a transport?" "And a wrapper?"',
            "git diff | claude-transport record -o tape.ndjson -",
            'exec claude-transport record --as-claude tape.ndjson -- /path/to/claude "$@"',
            "claude-transport record --to-script tape.ndjson > test_tape.py",
        ),
        environment=(_CLI_PATH, _TAPES, *_CREDENTIALS, _CONFIG, _MARKDOWN, _COLUMNS, _TRACEBACK),
        files=(("TAPE of --output", "the tape; only you can read it; an existing file is refused without --force"), _LOGIN),
        exit_codes=(
            ("0", "every prompt was answered"),
            ("1", "a run failed, or the tape or the output could not be written"),
            ("2", "nothing was run (usage, configuration, no claude, no place for the tape)"),
            *_EXIT_CODES[3:],
            ("N", "with --as-claude: what claude has ended with, or its signal"),
        ),
    ),
    "replay": Manual(
        summary="play a tape as the claude on it",
        description="Play a tape on stdin and stdout, as the claude on it spoke, for a host program that starts this command in place of "
        "claude. It ends as the tape ends.",
        examples=(
            "claude-transport replay tape.ndjson < said_by_the_host.ndjson",
            'exec claude-transport replay tape.ndjson -- "$@"',
        ),
        environment=(_TRACEBACK,),
        files=(("the tape", "it is only read"),),
        exit_codes=(
            ("N", "the exit code on the tape; 128 plus the signal number if a signal ended claude"),
            ("0", "the tape was played to its end"),
            ("1", "the output could not be written, or the connection on the tape was lost"),
            ("2", "the tape cannot be read, or the host does not follow it: a line of another kind, or too few lines"),
            _INTERRUPTED,
        ),
    ),
    "wire": Manual(
        summary="report what claude says that this library does not know",
        description="`wire check` holds a scripted conversation with a claude, in a clean world and against an API in this program, or "
        "reads a TAPE. It prints a line for each thing that is unknown, missing or of another type than the schemas of the wire say: the "
        "kind, how often, the direction, the message, the path, the type. `wire schema` prints the JSON Schema of one direction.",
        examples=(
            "claude-transport wire check",
            "claude-transport wire check tape.ndjson --json",
            'claude -p --verbose --output-format stream-json "Hello" | claude-transport wire check -',
            "claude-transport wire schema --direction in --cli-version 2.1.257",
        ),
        environment=(
            ("CLAUDE_CLI_PATH", "the claude to check without --claude-binary; else PATH and the usual places are searched"),
            _TRACEBACK,
        ),
        files=(("the tape", "it is only read"), ("a temporary directory", "the home of the claude that is checked; removed at the end")),
        exit_codes=(
            ("0", "nothing differs, or the schema was printed"),
            ("1", "something differs, the conversation did not come to its end, or the output could not be written"),
            ("2", "nothing was checked (usage, configuration, no claude, the file is no tape and no lines of JSON)"),
            _INTERRUPTED,
        ),
    ),
    "mcp-bridge": Manual(
        summary="a stdio MCP server with the tools of another program; claude starts it",
        description="Pass every MCP message from stdin to a BridgeHost in another program, and its answers to stdout, until stdin ends. "
        "The host makes the configuration with which claude starts this command. Do not start it by hand.",
        examples=("claude-transport mcp-bridge --url unix:///tmp/host.sock --server tools",),
        environment=(
            ("CLAUDE_TRANSPORT_BRIDGE_URL", "the address of the host, used without --url"),
            ("CLAUDE_TRANSPORT_BRIDGE_SERVER", "the name of its server, used without --server"),
            ("CLAUDE_TRANSPORT_BRIDGE_TOKEN", "the token; there is no option for it, because every user can read command lines"),
            _TRACEBACK,
        ),
        files=_NO_FILES,
        exit_codes=(
            ("0", "the host was reachable all the time"),
            ("1", "the host was not reachable, and each request got an error"),
            ("2", "nothing was run: an address, a name or a token is missing"),
        ),
    ),
    "bench": Manual(
        summary="measure how fast this installation reads",
        description="Read small messages from a child process in every way the library has, each compared with a plain loop of os.read and "
        "msgspec, for about 10 seconds. The figure is the processor time of the reading thread. No claude is needed.",
        examples=("claude-transport bench", "claude-transport bench --backend trio --json"),
        environment=(_COLOURS, _TRACEBACK),
        files=_NO_FILES,
        exit_codes=(
            ("0", "it was measured"),
            ("1", "no child process could be run, or the output could not be written"),
            ("2", "wrong usage"),
            _INTERRUPTED,
        ),
    ),
    "completion": Manual(
        summary="print a script that completes command lines in a shell",
        description="Print a script for bash, zsh or fish that completes commands, options, their values and file names. The script asks "
        "the installed program, so it knows the options of that version.",
        examples=(
            'eval "$(claude-transport completion bash)"    # in ~/.bashrc',
            'eval "$(claude-transport completion zsh)"     # in ~/.zshrc, after compinit',
            "claude-transport completion fish | source      # in config.fish",
        ),
        environment=(_TRACEBACK,),
        files=_NO_FILES,
        exit_codes=(("0", "it worked"), ("1", "the output could not be written"), ("2", "wrong usage")),
    ),
    "help": Manual(
        summary="explain a command, as its --help does",
        description="Print what a command does: its options, examples, exit codes, and the environment variables and files that it uses. "
        "Without a command, list all commands.",
        examples=("claude-transport help", "claude-transport help ask"),
        environment=(_COLUMNS, _TRACEBACK),
        files=_NO_FILES,
        exit_codes=(("0", "it worked"), ("1", "the output could not be written"), ("2", "there is no such command")),
    ),
}
"""The manual of each command; that of the whole program is under an empty name."""

COMMANDS: Final = (
    Command(
        "ask",
        [
            Positional("prompt", metavar="[PROMPT]", required=False, help="what to ask; `-`, or no PROMPT, reads it from a pipe on stdin"),
            _offline(),
            _every_message(),
            *_under("Claude", _claude()),
            *_under("Run", [*_agent(), *_run(), _transport("ask through claude, or the Messages API with a key"), *_timeouts("the run")]),
        ],
    ),
    Command(
        "doctor",
        [
            _switch("--offline", help="test with the simulated Claude"),
            _switch("--json", help="print the report as one JSON object"),
            _switch("--login-status", help="ask claude whether it is logged in: starts it once, in your own environment"),
            _cli_path(),
            _backend(),
            *_colours(),
            _switch("-v", "--verbose", help="also list where claude and codex were searched for"),
            _transport("report where `ask` with this choice would go"),
            _option("--timeout", **_SECONDS, default=60.0, metavar="SECONDS", help="stop the test after this time"),
            _option("--broker", metavar="URL", help="examine the broker of a fleet, and no claude"),
        ],
    ),
    Command(
        "serve",
        [
            _switch("--offline", help="serve the simulated Claude: no claude, no network, no key"),
            _switch("--json", help="write the log as lines of JSON"),
            *_under("Addresses and clients", _doors()),
            *_under("Claude", _served()),
            *_under("Codex", _served_codex()),
            *_under("Limits", _limits()),
            _backend(),
            _switch("-v", "--verbose", help="log every event"),
        ],
    ),
    Command(
        "worker",
        [
            _broker(),
            _switch("--offline", help="run the simulated Claude: no claude, no network, no key"),
            _switch("--json", help="write the log as lines of JSON"),
            *_under("Sessions", _hosted()),
            *_under("Metrics", _watched()),
            *_under("Claude", _served()),
            _backend(),
            _switch("-v", "--verbose", help="log every event"),
        ],
    ),
    Command(
        "sessions",
        [
            _broker(),
            _option("--stop", metavar="ID", help="ask the worker of this session to end it, and list nothing"),
            _switch("--json", help="print the lists as one JSON object"),
            _backend(),
        ],
    ),
    Command(
        "watch",
        [
            Positional(
                "url", metavar="URL", help="ws://HOST:PORT or wss://HOST:PORT of a gateway, or the address of the live page of a session"
            ),
            _option("--session", metavar="ID", help="the id of the session, as the log of the gateway has it (default: the one in URL)"),
            _option("--token-env", metavar="NAME", help="the environment variable that holds the token (default: none)"),
            _option("--since", **_POSITION, metavar="N", help="begin behind line N (default: the oldest line that is kept)"),
            _switch("--json", help="print the lines as the records of a tape, for `inspect` and `replay`"),
            _backend(),
            *_colours(),
        ],
    ),
    Command(
        "inspect",
        [
            Positional("tape", metavar="TAPE", shell_complete=_FILES, help="a tape, as `record` and RecordingTransport write it"),
            _option("--html", metavar="FILE", help="write a page with the whole timeline; `-` writes it to stdout, without the figures"),
            _switch("--json", help="print the figures as one JSON object"),
            *_colours("no colours, no progress display"),
            _switch("-v", "--verbose", help="list every turn, tool, request and problem, not only the first dozen of each"),
        ],
    ),
    Command(
        "record",
        [
            Positional(
                "prompts",
                nargs=-1,
                metavar="[PROMPT]...",
                help="what to ask, one after the other; `-`, or no PROMPT, reads one from a pipe on stdin",
            ),
            _option(
                "-o",
                "--output",
                metavar="TAPE",
                help="the tape to write, readable only for you; an existing file is refused",
            ),
            _switch("--force", help="overwrite an existing file"),
            *_under(
                "Other hosts",
                [
                    _option(
                        "--as-claude",
                        metavar="TAPE",
                        help="stand in for claude: run the command after `--` for the host that has started this, and record both sides; "
                        "without a command, the claude that is found runs with the arguments. TAPE.2 and so on take further starts",
                    ),
                    _option("--turn", **_COUNT, metavar="N", help="with --as-claude: replace only turn N of TAPE, which is there already"),
                    _option("--to-script", metavar="TAPE", help="print a pytest test, with a scripted MockTransport, made from a tape"),
                ],
            ),
            _offline(),
            _every_message(),
            *_under("Claude", _claude()),
            *_under("Run", [*_one_agent("whom to ask"), *_run(), *_timeouts("all prompts together")]),
        ],
        fixed={"transport": "cli"},
    ),
    Command(
        "replay",
        [
            Positional(
                "tape", metavar="TAPE", shell_complete=_FILES, help="a tape, as `record` writes it; everything after `--` is ignored"
            ),
            _option(
                "--speed",
                **_SPEED,
                default=0.0,
                metavar="TIMES",
                help="1 plays in the recorded time, 2 in half of it, 0 as fast as the host allows",
            ),
            _option(
                "--match",
                multiple=True,
                metavar="WHAT",
                help="what must be as on the tape: prompt, options (the initialize request), requests, answers; repeatable (default: only "
                "the kinds of the lines)",
            ),
            _backend(),
        ],
    ),
    Command(
        "wire",
        [
            Positional(
                "action",
                metavar="check|schema",
                type=click.Choice(("check", "schema")),
                help="what to do: check a claude, or print a schema",
            ),
            Positional(
                "tape",
                metavar="[TAPE]",
                required=False,
                shell_complete=_FILES,
                help="a tape to check, or a file with what claude printed, as lines of JSON; `-` reads stdin",
            ),
            _option("--claude-binary", metavar="PATH", help="the claude to check (default: CLAUDE_CLI_PATH, else search for it)"),
            _choice(
                "--direction",
                ("in", "out"),
                default="out",
                help="the lines of a host (in) or of claude (out): for a file that is no tape, and for `wire schema`",
            ),
            _option(
                "--cli-version",
                metavar="VERSION",
                help="the version of claude, which chooses the schemas (default: the one that claude or the tape names, else the newest)",
            ),
            _switch("--json", help="print the report as one JSON object"),
            _backend(),
            _option("--timeout", **_SECONDS, default=240.0, metavar="SECONDS", help="stop the conversation after this time"),
        ],
    ),
    Command(
        "mcp-bridge",
        [
            _option(
                "--url",
                metavar="URL",
                help="the address of the host: unix:///PATH or tcp://127.0.0.1:PORT (default: CLAUDE_TRANSPORT_BRIDGE_URL)",
            ),
            _option("--server", metavar="NAME", help="the name of the host's server (default: CLAUDE_TRANSPORT_BRIDGE_SERVER)"),
        ],
    ),
    Command(
        "bench",
        [
            _option("--messages", **_COUNT, default=20_000, metavar="N", help="messages in each run, at most a million"),
            _switch("--json", help="print the figures as one JSON object"),
            _backend(),
            *_colours("no colours, no progress display"),
        ],
    ),
    Command(
        "completion",
        [Positional("shell", metavar="SHELL", type=click.Choice(SHELLS), help="the shell that will read the script: bash, zsh or fish")],
    ),
    Command(
        "help",
        [
            Positional(
                "topic",
                metavar="[COMMAND]",
                required=False,
                callback=_known_command,
                shell_complete=_complete_commands,
                help="the command to explain (default: the whole program)",
            )
        ],
    ),
)

program: Final = Program(
    PROGRAM,
    commands={str(command.name): command for command in COMMANDS},
    callback=lambda: None,
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGUMENT]...",
)
"""The whole program. Invoking it returns what `parse()` returns."""
program.manual = MANUAL[""]
click.version_option(
    None,
    "-V",
    "--version",
    package_name="claude-transport",
    prog_name=PROGRAM,
    message="%(prog)s %(version)s",
    help="print the version and exit",
)(program)
for _command in (program, *COMMANDS):
    click.help_option("-h", "--help", help="print this help and exit")(_command)
