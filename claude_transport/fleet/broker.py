"""`Broker`: the connection to the Redis or Valkey server of a fleet, and `Carrier`, which carries out the calls of one end of a session.

A lost connection is made again in the background; each call that it cuts raises `BrokerCut`. What a cut means for a session is decided in
`claude_transport.fleet.messages`. One connection, without fleets, is in `claude_transport.redis`.
"""

from __future__ import annotations

import contextlib
import logging
import re
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, NoReturn

import anyio
import anyio.lowlevel
from anyio.lowlevel import RunVar

from claude_transport.backoff import Backoff
from claude_transport.errors import (
    AuthenticationError,
    ClaudeTransportError,
    CLIConnectionError,
    ConfigurationError,
    ConnectionLost,
    ProtocolError,
)
from claude_transport.fleet.answers import MALFORMED, entries_of, reply_of, text_of
from claude_transport.fleet.ends import FleetEnd
from claude_transport.fleet.messages import Append, Call, Entry, Renew, Reply, Side, Sync, Take
from claude_transport.fleet.scripts import APPEND, RENEW, SYNC, TAKE, FleetKeys
from claude_transport.loggers import logger_for
from claude_transport.loops.background import LoopTask
from claude_transport.loops.current import Wakeup
from claude_transport.redis.address import RedisAddress
from claude_transport.redis.client import (
    COMMAND_TIMEOUT,
    RespConnection,
    RespCut,
    digest_of,
    first_of,
    is_answer,
    is_of_server,
    make_client,
    require_coredis,
)
from claude_transport.redis.resp import RespError
from claude_transport.text.printable import printable

logger: logging.Logger = logger_for(__name__)

DEFAULT_PREFIX: Final = "claude-fleet"

READ_ENTRIES: Final = 64
"""Entries of one stream that are read at once."""

_BACKOFF: Final = Backoff(first=0.05, factor=2.0, maximum=1.0)
"""Delays between attempts to reach a broker that was lost."""

_POLL: Final = Backoff(first=0.005, factor=2.0, maximum=0.25, jitter=0)
"""Delays between questions whether the reader of a full stream has taken something."""

_OWNER: Final = re.compile(r"[\w-]{1,32}", re.ASCII)
_PREFIX: Final = re.compile(r"[\w:.-]{1,64}", re.ASCII)

_DENIED: Final = re.compile(r"run the '([\w|-]{1,40})' command")
"""Which command a server denies to a user."""

_TRANSIENT: Final = ("OOM", "LOADING", "MISCONF", "BUSY", "READONLY", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN", "NOREPLICAS", "UNBLOCKED")
"""What a broker says that will take the call later: it is out of memory, reads its file, or changes its role."""


_ANSWERS: Final = ("ResponseError", "NoScriptError", "StreamConsumerGroupError", "AuthorizationError", "WrongTypeError", "DataError")
"""Errors that the server has said: the connection is as good as before."""


_shared: RunVar[dict[tuple[str, ssl.SSLContext | None], Broker]] = RunVar("brokers of this event loop")


class BrokerCut(Exception):
    """The call was cut: it may or may not have been carried out. The broker is being reached again.

    Its text may quote the server, and goes into logs: it is on one line, with escapes for unprintable characters.
    `refused` is True when the broker has answered, and takes no writes now: it is out of memory, or read-only.
    """

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(printable(message))
        self.refused: bool = refused


class BrokerAddress:
    """The parts of a URL `redis://user:password@host:port/database?prefix=…`, or `rediss://…` for TLS. Its text has no password.

    With `owner=alice` in it, the ids of the sessions that are begun with it start with `alice.`, so that a user of the broker can have
    the rights on these sessions only.

    Raises:
        ConfigurationError: the URL is not one of a broker, or the extra `redis` is not installed.
    """

    def __init__(self, url: str, *, ssl_context: ssl.SSLContext | None = None) -> None:
        self.server: RedisAddress = RedisAddress.of(url, parameters=("prefix", "owner"), ssl_context=ssl_context)
        self.identity: tuple[str, ssl.SSLContext | None] = (url, ssl_context)
        """What is the same for all connections to one place by one user. It holds the password."""
        self.prefix: str = self.server.parameters.get("prefix", DEFAULT_PREFIX)
        self.owner: str = self.server.parameters.get("owner", "")
        if not _PREFIX.fullmatch(self.prefix):
            raise ConfigurationError("prefix may have up to 64 letters, digits and _ : . -", option="prefix")
        if self.owner and not _OWNER.fullmatch(self.owner):
            raise ConfigurationError("owner may have up to 32 letters, digits and _ -", option="owner")
        require_coredis("a fleet")

    def __str__(self) -> str:
        return str(self.server)

    __repr__ = __str__


class Broker:
    """The connections to the server of a fleet, which are made again whenever they are lost. Use it with `start()` and `aclose()`.

    Channels have a connection of their own. A server ends a connection that is told more than it takes, and any client of the fleet may say
    much on a channel: calls do not suffer from that. `generation` grows with each loss of the connection for calls: what was known before
    it has to be asked again.
    """

    def __init__(self, address: BrokerAddress) -> None:
        self.address: BrokerAddress = address
        self.keys: FleetKeys = FleetKeys(address.prefix)
        self.generation: int = 0
        self._client: Any = None
        self._link: RespConnection | None = None  # for calls
        self._ear: RespConnection | None = None  # for channels
        self._failure: Exception | None = None
        self._changed = Wakeup()
        self._dropped = Wakeup()
        self._task: LoopTask | None = None
        self._closing = False
        self._users = 0
        self._followed: dict[bytes, list[Callable[[bytes], object]]] = {}

    @classmethod
    def shared(cls, address: BrokerAddress) -> Broker:
        """Return the connection that the programs of this event loop have to this address, or a new one. Each user starts and closes it."""
        there = _shared.get(None)
        if there is None:
            there = {}
            _shared.set(there)
        found = there.get(address.identity)
        if found is None or found._closing or (found._client is None and found._failure is not None):  # noqa: SLF001 - of this class
            found = there[address.identity] = cls(address)
        return found

    async def start(self, *, timeout: float) -> None:
        """Connect. Returns when the server has answered.

        Raises:
            AuthenticationError: the server does not accept the user or the password.
            CLIConnectionError: the server was not reached within `timeout` seconds, or is a node of a cluster (`fleet.cluster`).
        """
        self._users += 1
        if self._task is None:
            self._task = LoopTask.spawn(self._run, name=f"broker {self.address}", at_end=self._changed.fire)
        try:
            with anyio.move_on_after(timeout):
                while self._client is None and self._failure is None:
                    await self._changed.wait()
        except BaseException:
            await self.aclose()
            raise
        if self._client is None:
            await self.aclose()
            raise self._error()

    @property
    def is_connected(self) -> bool:
        """True while calls can be made."""
        return self._client is not None

    def _refuse_mode(self, greeting: Any) -> None:
        """Raise `CLIConnectionError` for a node of a cluster: keys that are on other nodes are not followed."""
        mode = text_of(greeting.get(b"mode", b"standalone")) if isinstance(greeting, dict) else "standalone"
        if mode != "standalone":
            what = "a node of a cluster" if mode == "cluster" else f"no server for data (its mode is {printable(mode, at_most=32)})"
            message = f"{self.address} is {what}: a fleet needs one primary without cluster mode (cluster-enabled no)"
            raise CLIConnectionError(message, code="fleet.cluster", retryable=False)

    def _error(self) -> CLIConnectionError:
        failure = self._failure
        if isinstance(failure, CLIConnectionError):
            return failure
        said = self.address.server.without_password(f"{type(failure).__name__}: {failure}") if failure else "no answer"
        code = failure.code if isinstance(failure, RespError) else ""
        if code == "NOPERM":
            denied = _DENIED.search(said)
            command = denied[1] if denied else "PING"
            message = (
                f"{self.address}: the user of the URL may not call {command}: give it the rights of a fleet's users (+{command.lower()})"
            )
            return CLIConnectionError(message, code="fleet.refused", retryable=False)
        if code in ("WRONGPASS", "NOAUTH") or "without any password" in said:
            return AuthenticationError(f"{self.address} does not accept the user or the password")
        return CLIConnectionError(f"{self.address} cannot be reached: {printable(said, at_most=300)}", code="fleet.broker_unreachable")

    async def aclose(self) -> None:
        """Close the connection, once each user has closed it. A cancelled call still closes."""
        self._users -= 1
        if self._users > 0:
            return
        self._closing = True
        there = _shared.get({})
        if there.get(self.address.identity) is self:
            del there[self.address.identity]
        self._dropped.fire()
        self._changed.fire()
        if self._task is not None:
            self._task.cancel()
            await self._task.join()

    async def _run(self) -> None:
        retry = 0
        while not self._closing:
            try:
                await self._run_once()
                retry = 0
            except Exception as exc:  # noqa: BLE001 - a task group inside wraps each error in a group
                self._failure = first_of(exc)
                logger.info("%s: the connection was lost (%s)", self.address, type(self._failure).__name__)
            finally:
                self._drop(self._client)
            if not self._closing:
                await anyio.sleep(_BACKOFF.delay(retry))
                retry += 1

    async def _run_once(self) -> None:
        """Connect, and carry calls until the connection is lost. Raises what kept it from being made."""
        async with (
            make_client(self.address.server, connect_timeout=COMMAND_TIMEOUT) as client,
            anyio.create_task_group() as tasks,
            self._connected(self._link_lost) as link,
        ):
            with anyio.fail_after(COMMAND_TIMEOUT):
                await link.call(["PING"])  # a server that reads its file says so now
            tasks.start_soon(self._listen)
            with anyio.fail_after(COMMAND_TIMEOUT):
                while self._ear is None:
                    await self._changed.wait()
            self._client, self._link, self._failure = client, link, None
            self._tell_followers()
            self._changed.fire()
            while self._client is client and not self._closing:
                await self._dropped.wait()
            tasks.cancel_scope.cancel()

    @contextlib.asynccontextmanager
    async def _connected(self, lost: Callable[[RespConnection], object]) -> AsyncIterator[RespConnection]:
        """Make a connection, and carry it. Calls `lost` with it when it is lost."""
        with anyio.fail_after(COMMAND_TIMEOUT):
            link = await RespConnection.open(self.address.server, heard=self._heard, timeout=COMMAND_TIMEOUT)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._carry, link, lost)
                with anyio.fail_after(COMMAND_TIMEOUT):
                    self._refuse_mode(await link.greet(self.address.server))
                yield link
                tasks.cancel_scope.cancel()
        finally:
            await link.aclose()

    async def _carry(self, link: RespConnection, lost: Callable[[RespConnection], object]) -> None:
        try:
            await link.run()
        except RespCut as exc:
            logger.info("%s: a connection was lost (%s)", self.address, printable(exc, at_most=200))
            lost(link)

    def _link_lost(self, link: RespConnection) -> None:
        if link is self._link:
            self._drop(self._client)

    def _ear_lost(self, ear: RespConnection) -> None:
        if ear is self._ear:
            self._ear = None
            self._dropped.fire()

    async def _listen(self) -> None:
        """Keep the connection for channels, until the call is cancelled. One that is lost soon is made again ever more slowly."""
        retry = 0
        while True:
            began = anyio.current_time()
            try:
                async with self._connected(self._ear_lost) as ear:
                    self._ear = ear
                    self._changed.fire()
                    for name in self._followed:
                        self._subscribe(ear, name)
                    while self._ear is ear:
                        await self._dropped.wait()
            except Exception as exc:  # noqa: BLE001 - a task group inside wraps each error in a group
                logger.info("%s: its channels cannot be heard now (%s)", self.address, type(first_of(exc)).__name__)
            finally:
                self._ear = None
            retry = 0 if anyio.current_time() - began > _BACKOFF.maximum else retry + 1
            await anyio.sleep(_BACKOFF.delay(retry))

    def _drop(self, client: Any) -> None:
        """Give `client` up, when it is the one in use."""
        if client is not None and client is self._client:
            self._client = self._link = None
            self.generation += 1
            self._dropped.fire()
            self._tell_followers()
        self._changed.fire()

    async def reached(self, *, patience: float) -> None:
        """Wait until the broker can be called, at most `patience` seconds.

        Raises:
            ConnectionLost: it cannot (`fleet.broker_lost`).
        """
        with anyio.move_on_after(patience):
            while self._client is None and not self._closing:
                await self._changed.wait()
        if self._client is None:
            raise ConnectionLost(f"{self.address} was not reached again in {patience:g} s", code="fleet.broker_lost")

    @contextlib.asynccontextmanager
    async def _using(self, *, timeout: float) -> AsyncIterator[Any]:
        client = self._client
        if client is None:
            await anyio.lowlevel.checkpoint()
            raise BrokerCut("the broker is not connected")
        try:
            with anyio.fail_after(timeout):
                yield client
        except (ClaudeTransportError, BrokerCut):
            raise
        except Exception as exc:
            failure = first_of(exc)
            if not is_of_server(failure):
                raise
            said = self.address.server.without_password(str(failure))
            name = type(failure).__name__
            keeps = name in _ANSWERS
            if keeps and not _is_transient(said):
                spoilt = name == "WrongTypeError"
                what = "holds something that no end of a fleet writes" if spoilt else "refused a call"
                message = f"{self.address} {what}: {name}: {printable(said, at_most=300)}"
                raise ProtocolError(message, code=MALFORMED if spoilt else "fleet.refused") from None
            if not keeps or said.startswith(("READONLY", "LOADING", "MASTERDOWN")):
                self._drop(client)
            cut = BrokerCut(f"{name}: {said}", refused=is_answer(failure))
            logger.debug("%s: a call was cut: %s", self.address, cut)
            raise cut from None

    async def script(self, text: str, keys: Sequence[str], args: Sequence[Any]) -> list[Any]:
        """Run a script. Returns its answer, a list that begins with a word.

        Raises:
            BrokerCut: the connection was lost, or the broker takes no writes now.
            ProtocolError: the broker refused it (`fleet.refused`), or a key holds what no end writes (`fleet.malformed`).
        """
        words = [len(keys), *keys, *args]
        try:
            answer = await self._ask(["EVALSHA", digest_of(text), *words])
        except RespError as exc:
            if exc.code != "NOSCRIPT":
                self._raise_refusal(exc, is_script=True)
            try:
                answer = await self._ask(["EVAL", text, *words])
            except RespError as other:
                self._raise_refusal(other, is_script=True)
        if not isinstance(answer, list) or not answer:
            raise ProtocolError("a script of the broker has given no list", code=MALFORMED)
        return answer

    async def _ask(self, words: Sequence[Any]) -> Any:
        """Make a call. Raises `BrokerCut`, or `RespError` for what the server has said."""
        link = self._link
        if link is None:
            await anyio.lowlevel.checkpoint()
            raise BrokerCut("the broker is not connected")
        try:
            return await link.call(words)
        except RespCut as exc:
            if link is self._link:
                self._drop(self._client)
            cut = BrokerCut(self.address.server.without_password(str(exc)))
            logger.debug("%s: a call was cut: %s", self.address, cut)
            raise cut from None

    def _raise_refusal(self, exc: RespError, *, is_script: bool = False) -> NoReturn:
        """Raise what an error of the server means."""
        said = self.address.server.without_password(str(exc))
        if not _is_transient(said):
            spoilt = exc.code in ("WRONGTYPE", "TOOLARGE") or (is_script and exc.code != "NOPERM" and "NOPERM" not in said)
            what = "holds something that no end of a fleet writes" if spoilt else "refused a call"
            raise ProtocolError(f"{self.address} {what}: {printable(said, at_most=300)}", code=MALFORMED if spoilt else "fleet.refused")
        if said.startswith(("READONLY", "LOADING", "MASTERDOWN")):
            self._drop(self._client)
        cut = BrokerCut(said, refused=True)
        logger.debug("%s: a call was cut: %s", self.address, cut)
        raise cut

    async def command(self, name: str, *args: Any, timeout: float = COMMAND_TIMEOUT, **options: Any) -> Any:
        """Call the method `name` of the client. Raises as `script()` does."""
        async with self._using(timeout=timeout) as client:
            return await getattr(client, name)(*args, **options)

    # Channels.

    async def follow(self, channel: str, heard: Callable[[bytes], object]) -> None:
        """Call `heard` with each message of a channel, until `unfollow()`. It must not wait or raise.

        An empty message says that some may have been missed. After a lost connection the channel is followed again.

        Raises:
            BrokerCut: the connection was lost. The channel is followed as soon as there is one.
            ProtocolError: the broker refused it (`fleet.refused`).
        """
        name = channel.encode()
        self._followed.setdefault(name, []).append(heard)
        if self._ear is None:
            raise BrokerCut("the channels of the broker are not heard now")
        try:
            await self._ear.call(["SUBSCRIBE", name], topic=(b"subscribe", name))
        except RespError as exc:
            self.unfollow(channel, heard)
            self._raise_refusal(exc)
        except RespCut as exc:
            raise BrokerCut(self.address.server.without_password(str(exc))) from None
        heard(b"")

    def unfollow(self, channel: str, heard: Callable[[bytes], object]) -> None:
        """Call `heard` no more. It does not wait."""
        name = channel.encode()
        there = self._followed.get(name, [])
        if heard in there:
            there.remove(heard)
            if not there:
                del self._followed[name]
                if self._ear is not None:
                    self._ear.post(["UNSUBSCRIBE", name], topic=(b"unsubscribe", name))

    def _subscribe(self, ear: RespConnection, name: bytes) -> None:
        """Follow a channel again. Once the server has confirmed it, its followers hear that they may have missed something."""
        ear.post(["SUBSCRIBE", name], topic=(b"subscribe", name), then=lambda: self._tell_followers(name))

    def _tell_followers(self, *names: bytes) -> None:
        """Tell those that follow these channels, or any, that they may have missed something."""
        for name in names or tuple(self._followed):
            for heard in tuple(self._followed.get(name, ())):
                heard(b"")

    def _heard(self, items: list[Any]) -> None:
        """Hand a message on to those that follow its channel."""
        if len(items) == 3 and items[0] == b"message" and isinstance(items[1], bytes) and isinstance(items[2], bytes):
            for heard in tuple(self._followed.get(items[1], ())):
                heard(items[2])

    async def listen(self, channel: str, heard: Callable[[bytes], object]) -> None:
        """Follow a channel until the call is cancelled. A broker that refuses it is not asked again."""
        try:
            try:
                await self.follow(channel, heard)
            except (BrokerCut, ProtocolError) as exc:
                logger.info("%s: the channel is not heard (%s)", self.address, printable(exc, at_most=200))
            await anyio.sleep_forever()
        finally:
            self.unfollow(channel, heard)

    async def call(self, session: str, call: Call) -> Reply:
        """Carry out one call of an end of `session`. Raises as `script()` does."""
        meta = self.keys.meta(session)
        match call:
            case Append():
                stream = self.keys.outgoing(session) if call.side == Side.WORKER else self.keys.incoming(session)
                args: list[Any] = [call.side.value, call.token, call.first]
                args += map(_or_empty, (call.turns, call.stored, call.fed))
                for kind, data in call.entries:
                    args += (kind, data)
                return reply_of(call, await self.script(APPEND, [meta, stream], args))
            case Take():
                stream = self.keys.incoming(session) if call.side == Side.WORKER else self.keys.outgoing(session)
                told = [call.upto, _or_empty(call.turns), _or_empty(call.fed)]
                return reply_of(call, await self.script(TAKE, [meta, stream], [call.side.value, call.token, *told]))
            case Sync():
                known = [call.cursor, call.seen, call.taken, call.begun, call.over, call.stored, _or_empty(call.fed), call.heard, call.said]
                return reply_of(call, await self.script(SYNC, [meta], [call.side.value, call.token, *known]))
            case Renew():
                stream = self.keys.incoming(session) if call.side == Side.WORKER else self.keys.outgoing(session)
                asked = [call.side.value, call.token, int(call.seconds * 1000), call.cursor]
                return reply_of(call, await self.script(RENEW, [meta, stream], asked))

    async def read(self, key: str, cursor: int, *, count: int = READ_ENTRIES) -> list[Entry]:
        """Return the entries of a stream behind the number `cursor`, at most `count`. Raises as `script()` does."""
        try:
            found = await self._ask(["XREAD", "COUNT", count, "STREAMS", key, f"{cursor}-0"])
        except RespError as exc:
            self._raise_refusal(exc)
        return entries_of(found)


def _is_transient(said: str) -> bool:
    """Return whether the broker will take the call later. A script of an older server has the word behind a dash."""
    return said.startswith(_TRANSIENT) or any(f"-{word} " in said for word in _TRANSIENT)


def _or_empty(value: int | None) -> int | str:
    """Return a number as a script gets it."""
    return "" if value is None else value


class Carrier:
    """Carries out the calls of one end of a session, and makes them again after a lost connection.

    Args:
        broker: the connection.
        session: the id of the session.
        end: the end.
        patience: seconds for which a broker is waited for that is lost, or takes no writes.
        on_change: called after each answer: there may be room, or input.
    """

    def __init__(self, broker: Broker, session: str, end: FleetEnd, *, patience: float, on_change: Callable[[], object]) -> None:
        self._broker = broker
        self._session = session
        self.end: FleetEnd = end
        self._patience = patience
        self.on_change: Callable[[], object] = on_change
        self._generation = broker.generation
        self._refused_since: float | None = None  # a comparison of the streams succeeds without a write, and ends no refusal
        self._refusals = 0
        self._syncing = anyio.Lock()
        self._output = Wakeup()

    def wake(self) -> None:
        """Tell that the end has something to say."""
        self._output.fire()

    @property
    def is_current(self) -> bool:
        """True while both streams were compared since the last loss of the connection: what is read now belongs to the cursor."""
        return self._generation == self._broker.generation

    async def compare(self) -> None:
        """Compare both streams, if the connection was lost since the last time. Raises as `carry_out()` does."""
        if not self.is_current:
            await self._resync()

    async def carry_out(self, call: Call) -> bool:
        """Carry out one call. Returns False when it was cut; both streams were compared then, and the next call may differ.

        Raises:
            ConnectionLost: this end is over, or the broker was not reached again, or took no writes, in time (`fleet.broker_lost`).
            ReplayGap, ProtocolError: see `FleetEnd.answered()`.
        """
        if not self.is_current:
            self.end.unanswered(call)
            await self._resync()
            return False
        asked_at = anyio.current_time()
        try:
            reply = await self._broker.call(self._session, call)
        except BaseException as exc:
            self.end.unanswered(call)
            if not isinstance(exc, BrokerCut):
                raise
            self._note_refusal(exc)
            await self._resync(cut=True)
            return False
        if not isinstance(call, Sync):
            self._refused_since, self._refusals = None, 0
        self.end.answered(call, reply, asked_at=asked_at, now=anyio.current_time())
        self.on_change()
        return True

    def _note_refusal(self, cut: BrokerCut) -> None:
        if cut.refused:
            self._refused_since = anyio.current_time() if self._refused_since is None else self._refused_since
            self._refusals += 1

    async def _resync(self, *, cut: bool = False) -> None:
        """Compare both streams once the broker is reached again."""
        give_up = anyio.current_time() + self._patience
        async with self._syncing:
            retry = max(self._refusals - 1, 0)
            while cut or self._generation != self._broker.generation:
                if cut:
                    await anyio.sleep(_BACKOFF.delay(retry))
                    retry += 1
                refused_until = give_up if self._refused_since is None else self._refused_since + self._patience
                left = min(give_up, refused_until) - anyio.current_time()
                await self._broker.reached(patience=max(left, 0))
                if left <= 0:
                    raise ConnectionLost(f"{self._broker.address} took no call for {self._patience:g} s", code="fleet.broker_lost")
                generation, call, asked_at = self._broker.generation, self.end.sync_call(), anyio.current_time()
                try:
                    reply = await self._broker.call(self._session, call)
                except BrokerCut as exc:
                    self._note_refusal(exc)
                    cut = True
                    continue
                self.end.answered(call, reply, asked_at=asked_at, now=anyio.current_time())
                self._generation, cut = generation, False
        self.on_change()
        self._output.fire()

    async def append_all(self) -> None:
        """Append what the end says, for ever. Raises as `carry_out()` does."""
        retry = 0
        while True:
            await self.compare()
            call = self.end.append_call()
            if call is not None:
                await self.carry_out(call)
                retry = 0
            elif self.end.writer.waits_for_reader:
                await anyio.sleep(_POLL.delay(min(retry, 10)))
                retry += 1
                await self.carry_out(self.end.sync_call(polls=True))
            else:
                await self._output.wait()

    async def drain(self) -> None:
        """Append what is left to say when `append_all()` does not run. The caller bounds it. Raises as `carry_out()` does."""
        while (call := self.end.append_call()) is not None:
            await self.carry_out(call)
