"""`SubprocessTransport`: starts the process of an agent from options, talks to it over pipes, and ends it.

What to run is planned by the agent (`agents/`). The pipes, and how a process is ended, are in `streams/process.py`; a process behind a
launcher is in `streams/launched.py`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from logging import Logger
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread
import msgspec

from claude_transport.agents.agent import Agent, StartContext
from claude_transport.agents.claude_code import ClaudeCode
from claude_transport.agents.registry import find_agent
from claude_transport.errors import CLIVersionMismatch, ConfigurationError, ProcessError, SpawnError, warn_caller
from claude_transport.launch.argv import BARE_DROPPED
from claude_transport.launch.discovery import CLI, CLIState, read_cli_state, read_cli_version, remember_cli_version, version_in_state
from claude_transport.launch.environ import build_environment, environment_now
from claude_transport.launch.launch import Launch, PlannedLaunch, without_supervisor
from claude_transport.launch.launcher import Launcher
from claude_transport.launch.options import AgentOptions, ClaudeOptions
from claude_transport.launch.payloads import Delivery
from claude_transport.launch.validation import validate_options
from claude_transport.loggers import logger_for
from claude_transport.platform.winapi import make_private
from claude_transport.protocol.envelope import DecodeFailure
from claude_transport.protocol.framing import DEFAULT_MAX_LINE_BYTES, LineFramer
from claude_transport.streams.at_once import OpensAtOnce
from claude_transport.streams.guard import new_mark
from claude_transport.streams.process import DEFAULT_CLOSE_TIMEOUT, ProcessConnectable, ProcessStream
from claude_transport.text.printable import printable
from claude_transport.transport import Client, Confidential, SessionTerms, Storage, TransportInfo
from claude_transport.transports.stream import StreamTransport

if TYPE_CHECKING:
    from claude_transport.sessions.materialising import FoundSession, PrivatePlace
    from claude_transport.streams.launched import LaunchedStream
    from claude_transport.transports.mirroring import Mirror


logger: Logger = logger_for(__name__)

_CLAUDE: Final = ClaudeCode()
"""The agent for options of Claude. It is made with the module, because a process without a free file descriptor could not import it
later.
"""

_TRACE_VARIABLES = ("TRACEPARENT", "TRACESTATE")

# Some versions add the value, which may be a secret.
_UNKNOWN_OPTION = re.compile(r"error: (?:unknown option|unexpected argument) '(?P<flag>[^'=\n]+)")


class SubprocessTransport(StreamTransport, at_once=True):
    """A transport to a child process: the `claude` CLI or another agent with `options`, or any program that speaks JSON lines.

    Args:
        options: how to run the CLI: `ClaudeOptions`, or the options of another agent. What they alone tell is checked now. What depends on
            files, versions, variables or the user is checked by `connect()`, before anything is started.
        command: a program and its arguments, to run in place of the CLI. No flag is added to it. `cwd` and the environment still come from
            `options`.
        launcher: where or behind which program to run it: `Launcher.ssh(host)`, `.docker(container)`, `.local(prefix)`, … On another
            machine, the paths in the options are paths of that machine, and its environment is inherited.
        max_line_bytes: the most bytes of a line. A longer line is left out and reported to a `Query` as an `OversizedMessage`; the next
            line is read as usual.
        close_timeout: seconds for `close()` in all: end of input, a grace period, SIGTERM, SIGKILL, each to the whole process group.
        on_stderr: called with each line of standard error.
        strict: raise `CLIJSONDecodeError` or `LineTooLong` for a line that holds no message, instead of leaving it out.

    `connect()` raises `CLINotFoundError`, `ConfigurationError` (an option that the CLI would refuse here), `WorkingDirectoryError`,
    `NotExecutableError`, `WrongLibcError` or `SpawnError`. With a launcher to another machine it also raises `AuthenticationError`,
    `ConnectTimeout` and `CLIConnectionError`. Nothing was sent then.

    Raises:
        ConfigurationError: an argument has the wrong type or is out of range, or the CLI would refuse, ignore or misread an option.
            `option` names it.
    """

    def __init__(
        self,
        options: AgentOptions | None = None,
        *,
        command: Sequence[str | os.PathLike[str]] | None = None,
        launcher: Launcher | None = None,
        max_line_bytes: int = DEFAULT_MAX_LINE_BYTES,
        close_timeout: float = DEFAULT_CLOSE_TIMEOUT,
        on_stderr: Callable[[str], object] | None = None,
        strict: bool = False,
    ) -> None:
        if command is not None and (isinstance(command, str | bytes) or not command):
            raise ConfigurationError(
                "command must be a sequence of arguments with the program first, not one string or an empty sequence", option="command"
            )
        if launcher is not None and not isinstance(launcher, Launcher):
            raise ConfigurationError(f"launcher must be a Launcher, not {type(launcher).__name__}", option="launcher")
        if options is not None and not isinstance(options, AgentOptions):
            raise ConfigurationError(
                f"options must be the options of an agent, such as ClaudeOptions, not {type(options).__name__}", option="options"
            )
        self._options: Any = ClaudeOptions() if options is None else options
        self._agent = _CLAUDE if isinstance(self._options, ClaudeOptions) else find_agent(self._options)
        self._agent.check(self._options, command=command, launcher=launcher)
        super().__init__(_Opener(self), max_line_bytes=max_line_bytes, close_timeout=close_timeout, strict=strict)
        self._command = None if command is None else [os.fspath(argument) for argument in command]
        self._launcher = launcher
        self._on_stderr = on_stderr
        self._client: Client | None = None
        self._cli: CLI | None = None
        self._cli_version: str | None = None
        self._cli_state: CLIState | None = None
        self._env: Mapping[str, str] | None = None
        self._read_options: Any = None  # the options with their files read, which is done once
        self._confidential: Sequence[str] | None = None
        self._mirror: Mirror | None = None

    @property
    def options(self) -> Any:
        """The options that this transport was made with, unchanged: `ClaudeOptions`, or those of another agent."""
        return self._options

    @property
    def confidential(self) -> Confidential:
        """The options, and the texts of the settings files that the session reads on this machine. Redactors look for secrets in them."""
        if self._launcher is not None and self._launcher.supervised:
            return Confidential(self.options)
        if self._confidential is None:
            self._confidential = self._agent.confidential(self._read_options or self._options)
        return Confidential(self.options, (self._confidential,))

    def attach(self, client: Client) -> SessionTerms:
        """Prepare the next `connect()` for `client`, the layer above (usually a `Query`), and return the `SessionTerms` of the options.

        If `client` answers `can_use_tool`, the CLI is started so that it asks for permissions. The trace of `client` goes into the
        environment of the process, in place of an inherited one; a variable in the option `env` wins over it.

        Raises:
            ConfigurationError: the CLI runs already, and was started without permission prompts that `client` wants to answer.
        """
        if self.is_ready() and "can_use_tool" in client.answers and self._permission_prompt() is None and self._command is None:
            raise ConfigurationError(
                "the CLI was started before can_use_tool was known, so it will not call it: let Query connect the transport, "
                'or set permission_prompt_tool_name="stdio"',
                option="permission_prompt_tool_name",
            )
        self._client = client
        delivery: Delivery = "files" if self._launcher is None else self._launcher.delivery
        self._read_options = self._agent.read(self._options, delivery=delivery)
        return msgspec.structs.replace(
            self._agent.terms(self._read_options, delivery=delivery, is_command=self._command is not None),
            strict=self._strict,
            on_failure=self._failures,
            hurry=self.hurry,
            find_cli_version=self._find_cli_version,
            at_once=self._at_once(),
            storage=None if self._agent.session_store(self._options) is None else Storage(lambda: self.is_storing, self.wait_stored),
        )

    async def open(self) -> ProcessStream | LaunchedStream:
        """Start the process and return its stream. `connect()` calls it, and raises the same errors. Do not call it yourself."""
        options = self._read_options or self._options
        if self._agent.session_store(options) is None:
            return await self._open(options)
        from claude_transport.transports.mirroring import prepare_stored  # most sessions have no store

        validate_options(options, environment=build_environment(options, environment_now()))
        self._mirror, found, resumed = await prepare_stored(options)
        self._after_close = self._mirror.close
        weakref.finalize(self, self._mirror.abandon).atexit = False
        try:
            stream = await self._open(resumed, found=found)
        except BaseException:
            self._read_options = options  # for the next attempt
            with anyio.CancelScope(shield=True):  # bounded: it gives the session back
                await self._mirror.close()
            raise
        self._tap, self._last_words = self._mirror.take, self._mirror.drain
        return stream

    async def _open(self, options: Any, *, found: FoundSession | None = None) -> ProcessStream | LaunchedStream:
        # in a thread, because looking for the binary and reading files may meet a slow disk
        plan = self._planning(options)
        self._read_options, planned = plan() if self._plans_at_once(options) else await _in_thread(plan)
        self._accept_plan(planned)
        payloads = _Payloads()
        try:
            if self._mirror is not None:
                planned = await _privately(planned, found, mirror=self._mirror, payloads=payloads)
            return await self._connect(planned, payloads)
        except BaseException:
            payloads.remove()
            raise

    def open_now(self) -> ProcessStream | None:
        """Start the process and return its stream, or None when something has to be waited for. `connect_now()` calls it."""
        options = self._read_options or self._options
        if self._agent.session_store(options) is not None or os.name == "nt" or not self._plans_at_once(options):
            return None
        self._read_options, planned = self._planning(options)()
        self._accept_plan(planned)
        payloads = _Payloads()
        try:
            return self._process(planned, payloads, mark=new_mark()).connect_now()
        except BaseException:
            payloads.remove()
            raise

    def _plans_at_once(self, options: Any) -> bool:
        return self._agent.plans_quickly(options, command=self._command, launcher=self._launcher)

    def _planning(self, options: Any) -> Callable[[], tuple[Any, PlannedLaunch]]:
        client = self._client
        context = StartContext(
            inherited=environment_now(),
            command=self._command,
            launcher=self._launcher,
            permission_prompt=self._permission_prompt(),
            trace={} if client is None else {name.upper(): value for name, value in client.trace.items()},
            own_servers=() if client is None else client.mcp_servers,
        )
        return functools.partial(_plan, self._agent, options, context)

    def _accept_plan(self, planned: PlannedLaunch) -> None:
        """Check that the CLI knows what the launch needs of it, and tell what the plan has to say."""
        launch, self._cli = planned.launch, planned.cli
        if self._cli is not None:
            self._cli_state = read_cli_state(self._cli)
            self._cli_version = version_in_state(self._cli_state)
        self._agent.accept(self._options, planned, version=self._cli_version)
        if launch.initialize and (self._client is None or not self._client.initializes):
            names = ", ".join(sorted(launch.initialize))
            warn_caller(f"these options need an initialize request, which this program does not send: {names}")
        for note in launch.notes:
            if note == BARE_DROPPED:
                warn_caller(note)
            else:
                logger.info("%s", printable(note))

    async def _find_cli_version(self, *, said: str | None) -> str | None:
        """Return the version that the CLI `said`, or else that of its binary, which is run once for each state of the file."""
        if said is not None:
            self._cli_version = said
            if self._cli is not None and read_cli_state(self._cli) == self._cli_state:  # the file was not replaced since the start
                remember_cli_version(self._cli, said)
        elif self._cli_version is None and self._cli_state is not None:
            self._cli_version = await _ask_version(self._cli, self._env)
        return self._cli_version

    async def _connect(self, planned: PlannedLaunch, payloads: _Payloads) -> ProcessStream | LaunchedStream:
        mark = new_mark()
        process = self._process(planned, payloads, mark=mark)
        if planned.remote is None:
            return await process.connect()
        from claude_transport.streams.launched import LaunchedConnectable

        launched = LaunchedConnectable(
            process,
            launcher=planned.launcher,
            mark=mark,
            instructions=planned.instructions(mark=mark),
            program=planned.launch.argv[0],
            option=self._agent.path_option,
            cwd=planned.launch.cwd,
            on_banner=lambda line: self._failures(DecodeFailure(kind="noise", error=f"came before {self._program}", raw=line)),
            diagnose=functools.partial(_diagnose, cli=None, env=self._env or {}, name=self._program),
        )
        stream = await launched.connect()
        self._cli = CLI(stream.path, planned.launcher.name) if self._command is None else None
        return stream

    def _process(self, planned: PlannedLaunch, payloads: _Payloads, *, mark: str) -> ProcessConnectable:
        """Return what starts the process on this machine: the CLI, or the client of a launcher to another machine."""
        is_remote = planned.remote is not None
        launch = planned.for_this_machine(planned.launch if is_remote else payloads.make(planned.launch), mark=mark)
        self._env = env = _shared(launch.env)
        return ProcessConnectable(
            launch.argv,
            cwd=launch.cwd,
            env=env,
            user=launch.user,
            on_stderr=without_supervisor(self._on_stderr, mark=mark) if is_remote else self._on_stderr,
            close_timeout=self._close_timeout,
            diagnose=None if is_remote else functools.partial(_diagnose, cli=self._cli, env=env, name=self._program),
            on_gone=payloads.remove,
            on_unread=None if self._mirror is None else functools.partial(_take_unread, self._framer, self._mirror),
            confidential=self.confidential,
        )

    @property
    def _program(self) -> str:
        return self._agent.program

    def _permission_prompt(self) -> str | None:
        if self._client is not None and "can_use_tool" in self._client.answers:
            return "stdio"
        return self._agent.permission_prompt(self._options)

    @property
    def is_storing(self) -> bool:
        """True while a part of the transcript that was read waits for the `session_store`."""
        return self._mirror is not None and self._mirror.is_behind

    async def wait_stored(self) -> None:
        """Wait until the `session_store` has, or has lost, what was read of the transcript. `close()` ends the wait at the latest."""
        if self._mirror is not None:
            await self._mirror.catch_up()

    @property
    def info(self) -> TransportInfo:
        """What is known about the process and the connection now, including the path and the version of the CLI."""
        path = None if self._cli is None else self._cli.path
        lost = 0 if self._mirror is None else self._mirror.lost
        return msgspec.structs.replace(super().info, cli_path=path, cli_version=self._cli_version, unstored_entries=lost)


def _take_unread(framer: LineFramer, mirror: Mirror, data: bytes) -> None:
    """Store the frames of a transcript that come while the transport closes. It is no method: a process must not keep its transport."""
    mirror.take(framer.feed(data))


async def _privately(planned: PlannedLaunch, found: FoundSession | None, *, mirror: Mirror, payloads: _Payloads) -> PlannedLaunch:
    """Start the mirror. Return the launch with a private configuration directory, in which the session of the store is."""
    if found is None:
        mirror.start()
        return planned
    from claude_transport.sessions.materialising import PrivatePlace, configuration_of

    launch = planned.launch
    configuration = configuration_of(launch.env, is_isolated=bool(launch.directories))
    make = functools.partial(PrivatePlace, cwd=launch.cwd, found=found, configuration=configuration)
    try:
        place = await anyio.to_thread.run_sync(make)
    except OSError as exc:
        raise SpawnError(f"the session cannot be written to the temporary directory: {exc}", path=launch.argv[0]) from exc
    payloads.place = place
    mirror.start(at_end=functools.partial(place.let_go, "mirror"))
    env = {**launch.env, "CLAUDE_CONFIG_DIR": str(place.path)}
    return msgspec.structs.replace(planned, launch=msgspec.structs.replace(launch, env=env, directories=()))


async def _in_thread(plan: Callable[[], tuple[Any, PlannedLaunch]]) -> tuple[Any, PlannedLaunch]:
    try:
        return await anyio.to_thread.run_sync(plan)
    except RuntimeError as exc:  # "can't start new thread"
        raise SpawnError(f"starting a session needs a thread, and none can be started: {exc}", path="claude") from exc


def _plan(agent: Agent, options: Any, context: StartContext) -> tuple[Any, PlannedLaunch]:
    """Return the options with their files read, and what to run.

    Not a method: a thread must not hold the last reference to the transport, or it would finalise it.
    """
    options = agent.read(options, delivery="files" if context.launcher is None else context.launcher.delivery)
    planned = agent.plan(options, context)
    if context.launcher is not None and planned.launcher is not context.launcher:
        raise ConfigurationError(f"{agent.title} cannot be started behind {context.launcher.name}: leave launcher out", option="launcher")
    launch = msgspec.structs.replace(planned.launch, env=_with_trace(planned.launch.env, context.trace, given=options.env))
    return options, msgspec.structs.replace(planned, launch=launch)


class _Environment(dict[str, str]):
    """The environment of processes, which is not changed any more."""

    __slots__ = ("__weakref__",)


_last_environment: weakref.ref[_Environment] | None = None


def _shared(env: Mapping[str, str]) -> Mapping[str, str]:
    """Return `env`, as the object that the last process has when it is equal: an environment takes several KB in each of many sessions."""
    global _last_environment
    known = None if _last_environment is None else _last_environment()
    if known is None or known != env:
        known = _Environment(env)
        _last_environment = weakref.ref(known)
    return known


def _with_trace(env: Mapping[str, str], trace: Mapping[str, str], *, given: Mapping[str, str]) -> Mapping[str, str]:
    """Return `env` with the variables of `trace`. Inherited ones belong to another trace and are removed, but `given` ones win."""
    if not trace:
        return env
    kept = {name: value for name, value in env.items() if name not in _TRACE_VARIABLES or name in given}
    return {**trace, **kept}


async def _diagnose(error: ProcessError, *, cli: CLI | None, env: Mapping[str, str], name: str) -> ProcessError:
    """Return `error`, or a `CLIVersionMismatch` that explains it. Not a method: the stream must not keep its transport alive."""
    match = _UNKNOWN_OPTION.search(error.stderr_tail)
    if match is None:
        return error
    version = await _ask_version(cli, env)
    return CLIVersionMismatch(
        f"this {name} ({version or 'of unknown version'}) does not know the option {match['flag']}: update {name}, or leave the option out",
        flag=match["flag"],
        version=version,
        reason=f"{match[0]}'",  # without the value of the option, which may be a secret
        exit_code=error.exit_code,
        stderr_tail=error.stderr_tail,
    )


async def _ask_version(cli: CLI | None, env: Mapping[str, str] | None) -> str | None:
    """Return the version of a binary on this machine. If it must be run for that, a thread waits for it."""
    if cli is None:
        return None
    known = read_cli_version(cli)
    if known is not None:
        return known
    from claude_transport.launch.discovery import ask_cli_version  # most binaries have their version beside them

    return await anyio.to_thread.run_sync(functools.partial(ask_cli_version, cli, env=env))


class _Opener(OpensAtOnce):
    """The opener of a `SubprocessTransport`. Its reference is weak, so that the two do not keep each other alive."""

    def __init__(self, transport: SubprocessTransport) -> None:
        self._transport = weakref.ref(transport)

    async def connect(self) -> ProcessStream | LaunchedStream:
        return await self._owner().open()

    def connect_now(self) -> ProcessStream | None:
        return self._owner().open_now()

    def _owner(self) -> SubprocessTransport:
        transport = self._transport()
        if transport is None:  # pragma: no cover - only its own connect() calls this
            raise ReferenceError("the transport is gone")
        return transport


class _Payloads:
    """The private files and directories of one launch. They exist from before the spawn until the process or the interpreter ends."""

    def __init__(self) -> None:
        self._remove: weakref.finalize[..., _Payloads] | None = None
        self.place: PrivatePlace | None = None
        """Where the session of a store is, which the mirror needs, too."""

    def make(self, launch: Launch) -> Launch:
        """Write the files that `launch` plans, readable only by its user, and return the launch with their paths."""
        if not launch.files and not launch.directories:
            return launch
        try:
            files, directories = self._write(launch)
        except OSError as exc:
            raise SpawnError(
                f"the private files of a session cannot be written to the temporary directory: {exc}", path=launch.argv[0]
            ) from exc
        return launch.with_paths(files=files, directories=directories)

    def _write(self, launch: Launch) -> tuple[list[str], list[str]]:
        import tempfile  # most sessions need no files

        folder = Path(tempfile.mkdtemp(prefix="claude-transport-"))  # mode 0700
        make_private(folder)
        files: list[str] = []
        self._remove = weakref.finalize(self, _remove_folder, str(folder), files, os.getpid())
        for index, planned in enumerate(launch.files):
            path = folder / f"payload-{index}{planned.suffix}"
            files.append(str(path))
            path.touch(mode=0o600)
            path.write_bytes(planned.content)
        directories = [tempfile.mkdtemp(prefix="config-", dir=folder) for _ in launch.directories]
        if launch.user is not None:
            self._give(launch.user, [str(folder), *files, *directories])
        return files, directories

    def _give(self, user: str, paths: Sequence[str]) -> None:
        import shutil

        try:
            for path in paths:
                shutil.chown(path, user)
        except (LookupError, PermissionError):
            logger.debug("files cannot be given to %s; starting the process as that user will fail, too", user)

    def remove(self) -> None:
        """Delete everything, once. What cannot be deleted now is deleted when the interpreter ends."""
        if self.place is not None:
            self.place.let_go("process")
        if self._remove is not None and (planned := self._remove.peek()) is not None:
            _, delete, arguments, _ = planned
            if delete(*arguments):
                self._remove.detach()


def _remove_folder(folder: str, files: Sequence[str], owner: int) -> bool:
    """Delete the folder, and return whether it is gone.

    The `files` may hold secrets. They are deleted one by one, because that needs no free file descriptor; `rmtree()` needs two.
    """
    if os.getpid() != owner:  # a fork of this process must not delete the files when it ends
        return True
    for path in files:
        with contextlib.suppress(OSError):
            os.unlink(path)  # noqa: PTH108 - it must work at the exit of the interpreter, too
    with contextlib.suppress(OSError):
        os.rmdir(folder)  # noqa: PTH106
        return True
    import shutil  # loaded already: `tempfile` needs it

    with contextlib.suppress(OSError):  # rmtree() does not ignore every error
        shutil.rmtree(folder, ignore_errors=True)
    return not os.path.exists(folder)  # noqa: PTH110
