"""The conversations of convene over claude_transport: those on disk, those in one process, and a pool of the latter."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from anyio.from_thread import BlockingPortal, start_blocking_portal

import claude_transport as ct

from .auth import DEFAULT_AUTH, AuthMode, preflight, subprocess_env
from .config import DEFAULT_MODEL, SANDBOX_WORKDIR, WORKER_TURN_TIMEOUT_S, EffortLevel
from .errors import CLIError, SessionError
from .ledger import check_budgets, get_ledger, recording_enabled
from .logging_ import get_logger
from .runtime import Call, Result, decode_envelope, run, run_sync


@dataclass
class Turn:
    """One exchange. `cost_usd` is that of this turn alone."""

    text: str | None
    structured_output: dict[str, Any] | None
    cost_usd: float
    elapsed_s: float
    result: Result

    @property
    def input_tokens(self) -> int:
        """The tokens that were read."""
        return self.result.input_tokens

    @property
    def output_tokens(self) -> int:
        """The tokens that were written."""
        return self.result.output_tokens


@dataclass(eq=False)
class _Conversation:
    system_prompt: str = "You are a concise, accurate assistant."
    model: str = DEFAULT_MODEL
    effort: EffortLevel | None = None
    json_schema: dict[str, Any] | None = None
    max_budget_usd: float | None = None
    tools: str = ""
    auth_mode: AuthMode = DEFAULT_AUTH


@dataclass
class Session(_Conversation):
    """A conversation on disk. Each turn is a process of its own; `Session.resume(id)` goes on with it, in any process."""

    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    started: bool = False
    turns: list[Turn] = field(default_factory=list)

    @classmethod
    def resume(cls, session_id: str, **kwargs: Any) -> Session:
        """Return a session that was begun earlier."""
        return cls(id=session_id, started=True, **kwargs)

    def _call(self, user_prompt: str, **overrides: Any) -> Call:
        return Call(
            user_prompt=user_prompt,
            system_prompt=self.system_prompt,
            model=self.model,
            json_schema=self.json_schema,
            effort=self.effort,
            max_budget_usd=self.max_budget_usd,
            tools=self.tools,
            session_id=None if self.started else self.id,
            resume=self.id if self.started else None,
            ephemeral=False,
            log_tag="session",
            log_context=f"sid={self.id[:8]}",
            **overrides,
        )

    def _record(self, result: Result) -> Turn:
        turn = Turn(result.text, result.structured_output, result.cost_usd, result.elapsed_s, result)
        self.turns.append(turn)
        self.started = True
        return turn

    def ask(self, user_prompt: str, **overrides: Any) -> Turn:
        """Take one turn, and wait for it."""
        return self._record(run_sync(self._call(user_prompt, **overrides), auth_mode=self.auth_mode))

    async def ask_async(self, user_prompt: str, **overrides: Any) -> Turn:
        """Take one turn."""
        return self._record(await run(self._call(user_prompt, **overrides), auth_mode=self.auth_mode))

    @property
    def total_cost_usd(self) -> float:
        """What all turns cost."""
        return sum(turn.cost_usd for turn in self.turns)


@dataclass(eq=False)
class AsyncLiveSession(_Conversation):
    """A conversation in one process, which ends with it."""

    turn_timeout_s: float = WORKER_TURN_TIMEOUT_S
    turns: list[Turn] = field(default_factory=list)
    session_id: str = ""
    total_cost_usd: float = 0.0
    _query: ct.Query | None = field(default=None, repr=False)

    async def start(self) -> Self:
        """Start the process, unless it runs."""
        if self._query is None:
            preflight(self.auth_mode)
            query = ct.Query(ct.SubprocessTransport(self._options()))
            try:
                await query.start()
            except ct.ClaudeTransportError as error:
                raise SessionError(f"live session did not start: {error.reason}") from error
            self._query = query
        return self

    def _options(self) -> ct.ClaudeOptions:
        return ct.ClaudeOptions(
            system_prompt=self.system_prompt,
            model=self.model,
            effort=self.effort,
            output_format=None if self.json_schema is None else {"type": "json_schema", "schema": self.json_schema},
            max_budget_usd=self.max_budget_usd,
            tools=ct.split_rules(self.tools),
            disable_slash_commands=True,
            setting_sources=["user"],
            strict_mcp_config=True,
            permission_mode="bypassPermissions",
            cwd=SANDBOX_WORKDIR,
            env=subprocess_env(self.auth_mode),
            env_mode="exact",
        )

    async def ask(self, user_prompt: str) -> Turn:
        """Take one turn. Prompts that come meanwhile wait for it."""
        await self.start()
        assert self._query is not None
        check_budgets("session")
        start = time.monotonic()
        try:
            async with asyncio.timeout(self.turn_timeout_s):
                answer = await (await self._query.send(user_prompt)).result()
        except TimeoutError:
            await self._query.interrupt()  # else its answer would still cost
            raise SessionError(f"live session turn exceeded {self.turn_timeout_s:.0f}s") from None
        except ct.ClaudeTransportError as error:
            raise SessionError(f"live session ended without returning a result: {error.reason}") from error
        turn, self.total_cost_usd = _turn_from_envelope(answer.to_dict(), self.total_cost_usd, time.monotonic() - start, self.model)
        self.session_id = turn.result.session_id or self.session_id
        self.turns.append(turn)
        _record_turn(turn, self.model, self.effort)
        return turn

    async def close(self) -> None:
        """End the process. A second call does nothing."""
        query, self._query = self._query, None
        if query is not None:
            await query.aclose()

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._query is not None and not self._query.has_ended

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


class LiveSession:
    """`AsyncLiveSession` for programs without an event loop. It takes the same arguments."""

    def __init__(self, **settings: Any) -> None:
        self._session = AsyncLiveSession(**settings)
        self._loop: AbstractContextManager[BlockingPortal] | None = None

    def start(self) -> Self:
        """Start the process, unless it runs."""
        if self._loop is None:
            self._loop = start_blocking_portal()
            self._portal = self._loop.__enter__()
        self._portal.call(self._session.start)
        return self

    def ask(self, user_prompt: str) -> Turn:
        """Take one turn, and wait for it."""
        return self.start()._portal.call(self._session.ask, user_prompt)

    def close(self) -> None:
        """End the process. A second call does nothing."""
        loop, self._loop = self._loop, None
        if loop is not None:
            self._portal.call(self._session.close)
            loop.__exit__(None, None, None)

    turns = property(lambda self: self._session.turns)
    session_id = property(lambda self: self._session.session_id)
    total_cost_usd = property(lambda self: self._session.total_cost_usd)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.close()


class SessionPool:
    """Live sessions that are lent to one caller at a time, with their history unless `reset_between`."""

    def __init__(self, size: int = 4, *, reset_between: bool = False, **session_kwargs: Any) -> None:
        if size < 1:
            raise ValueError("pool size must be at least 1")
        self.size = size
        self.reset_between = reset_between
        self._settings = session_kwargs
        self._all: set[AsyncLiveSession] = set()
        self._free: asyncio.Queue[AsyncLiveSession] = asyncio.Queue()

    async def start(self) -> Self:
        """Start all sessions, unless they run."""
        if not self._all:
            await asyncio.gather(*(self._add() for _ in range(self.size)))
        return self

    async def _add(self) -> None:
        session = await AsyncLiveSession(**self._settings).start()
        self._all.add(session)
        self._free.put_nowait(session)

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[AsyncLiveSession]:
        """Lend a session. One that failed or died is replaced."""
        await self.start()
        session, failed = await self._free.get(), True
        try:
            yield session
            failed = False
        finally:
            if failed or self.reset_between or not session.is_alive:
                self._all.discard(session)
                await session.close()
                await self._add()
            else:
                self._free.put_nowait(session)

    async def close(self) -> None:
        """End all processes."""
        await asyncio.gather(*(session.close() for session in self._all))
        self._all.clear()

    @property
    def total_cost_usd(self) -> float:
        """What all sessions cost."""
        return sum(session.total_cost_usd for session in self._all)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


def _turn_from_envelope(envelope: dict[str, Any], prior_cost: float, elapsed: float, model: str) -> tuple[Turn, float]:
    """Return a turn of a live session, and what the session has cost since it began, which is what its results say."""
    try:
        result = decode_envelope(json.dumps(envelope), Call("", model=model, log_tag="session"), elapsed)
    except CLIError as error:
        raise SessionError(f"turn failed: {error}") from error
    cost = max(0.0, result.cost_usd - prior_cost)
    return Turn(result.text, result.structured_output, cost, elapsed, result), result.cost_usd


def _record_turn(turn: Turn, model: str, effort: str | None) -> None:
    """Write a turn into the ledger. A ledger that cannot be written loses no answer."""
    if not recording_enabled():
        return
    try:
        get_ledger().record(
            tag="session",
            context=f"sid={turn.result.session_id[:8]}",
            model=model,
            effort=effort,
            input_tokens=turn.input_tokens,
            output_tokens=turn.output_tokens,
            cache_read_tokens=turn.result.cache_read_input_tokens,
            cache_creation_tokens=turn.result.cache_creation_input_tokens,
            cost_usd=turn.cost_usd,
            elapsed_s=turn.elapsed_s,
            session_id=turn.result.session_id,
            kind="turn",
        )
    except Exception:  # noqa: BLE001 - the answer is paid for
        get_logger().exception("failed to write a session turn to the ledger")
