"""`Broker`: the Redis or Valkey server of a fleet, or the cluster. It knows which server has a key, and sends each call there.

A lost connection is made again in the background; each call that it cuts raises `BrokerCut`. What a cut means for a session is decided in
`claude_transport.fleet.messages`. The connections to one server are in `shard.py`, and one connection is in `claude_transport.redis`.
"""

from __future__ import annotations

import logging
import re
import ssl
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NoReturn, TypeVar

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import TaskGroup
from anyio.lowlevel import RunVar

from claude_transport.errors import (
    AuthenticationError,
    CLIConnectionError,
    ConfigurationError,
    ConnectionLost,
    ProtocolError,
)
from claude_transport.fleet.answers import MALFORMED, entries_of, reply_of, text_of
from claude_transport.fleet.messages import Append, Call, Entry, Renew, Reply, Side, Sync, Take
from claude_transport.fleet.scripts import APPEND, APPEND_TO_SHARD, RENEW, SYNC, TAKE, FleetKeys, SharedKeys
from claude_transport.fleet.shard import RECONNECTING, Shard
from claude_transport.loggers import logger_for
from claude_transport.loops.background import LoopTask
from claude_transport.loops.current import Wakeup
from claude_transport.redis.address import RedisAddress
from claude_transport.redis.client import COMMAND_TIMEOUT, PostedCall, RespCut, digest_of
from claude_transport.redis.resp import RespError
from claude_transport.redis.slots import SLOTS, NodeAddress, Redirection, ranges_of, redirection_of, slot_of
from claude_transport.text.printable import printable

logger: logging.Logger = logger_for(__name__)

_Answer = TypeVar("_Answer")

DEFAULT_PREFIX: Final = "claude-fleet"

READ_ENTRIES: Final = 64
"""Entries of one stream that are read at once."""

_OWNER: Final = re.compile(r"[\w-]{1,32}", re.ASCII)
_PREFIX: Final = re.compile(r"[\w:.-]{1,64}", re.ASCII)

_DENIED: Final = re.compile(r"run the '([\w|-]{1,40})' command")
"""Which command a server denies to a user."""

_NOT_ACCEPTED: Final = ("WRONGPASS", "NOAUTH", "NOPERM")
"""What a server says of a user that it does not know, or that may not do what the users of a fleet do."""

_TRANSIENT: Final = ("OOM", "LOADING", "MISCONF", "BUSY", "READONLY", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN", "NOREPLICAS", "UNBLOCKED")
"""What a broker says that will take the call later: it is out of memory, reads its file, or changes its role."""

_PARTS: Final = 16
"""Into how many parts a cluster divides what all sessions share. Programs with another number would not find each other."""

_MOST_SHARDS: Final = 1000
"""The most servers of one cluster. One that names more is not followed there."""

_NAMED_SECONDS: Final = 60.0
"""Seconds for which a server is kept that another one has named, although it has no slot yet."""

_MOST_NAMED: Final = 64
"""The most servers that are kept so."""

_MOST_REDIRECTIONS: Final = 5
"""Redirections of one call."""

_WITHOUT_KEY: Final = frozenset({"time", "info", "ping", "echo", "config", "acl", "client"})
"""The first words of commands that no key sends to a server."""


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
        ConfigurationError: the URL is not one of a broker.
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

    def __str__(self) -> str:
        return str(self.server)

    __repr__ = __str__


class Broker:
    """The connections to the broker of a fleet, one server or a cluster, which are made again whenever they are lost.

    Use it with `start()` and `aclose()`. Each call goes to the server that has its key. One server has all of them.
    """

    def __init__(self, address: BrokerAddress) -> None:
        self.address: BrokerAddress = address
        self.keys: FleetKeys = FleetKeys(address.prefix)
        self._is_cluster: bool | None = None  # None: no server has said it yet
        self._shards: dict[NodeAddress, Shard] = {}
        self._only: Shard | None = None  # the server of the address, when it is no cluster
        self._slots: list[Shard | None] = []  # of a cluster: the shard of each slot
        self._named_at: dict[NodeAddress, float] = {}  # when a call was sent on to a server that has no slots yet
        self._is_stale = False  # a key was not where `_slots` said
        self._failure: Exception | None = None
        self._changed = Wakeup()
        self._tasks: TaskGroup | None = None
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
        if found is None or found._closing or (found._failure is not None and not found.is_connected):  # noqa: SLF001 - of this class
            found = there[address.identity] = cls(address)
        return found

    async def start(self, *, timeout: float) -> None:
        """Connect. Returns when each server of the broker has answered; when time is over, one server of a cluster is enough.

        Raises:
            AuthenticationError: a server does not accept the user or the password.
            CLIConnectionError: no server was reached within `timeout` seconds, or it is none for data (`fleet.refused`).
        """
        self._users += 1
        if self._task is None:
            self._task = LoopTask.spawn(self._run, name=f"broker {self.address}", at_end=self._changed.fire)
        try:
            with anyio.move_on_after(timeout):
                while not self.is_connected and self._refusing is None and (self._failure is None or self._slots):
                    await self._changed.wait()
        except BaseException:
            await self.aclose()
            raise
        if self._refusing is not None or not (self.is_connected or (self._slots and any(shard.link for shard in self._shards.values()))):
            refusing = self._refusing
            await self.aclose()
            raise self._error(str(self.address if refusing is None else refusing.address), refusing.failure if refusing else self._failure)

    @property
    def _refusing(self) -> Shard | None:
        """A server that does not accept the user, or not all that a user does."""
        for shard in self._shards.values():
            if isinstance(shard.failure, RespError) and shard.failure.code in _NOT_ACCEPTED:
                return shard
        return None

    @property
    def is_connected(self) -> bool:
        """True while calls can be made, to each server."""
        is_known = self._is_cluster is False or bool(self._slots)
        return is_known and all(shard.link is not None for shard in self._shards.values())

    @property
    def mode(self) -> str:
        """What the broker is: `standalone`, `cluster`, or an empty text before a server has said it."""
        return "" if self._is_cluster is None else "cluster" if self._is_cluster else "standalone"

    def _greeted(self, greeting: Mapping[bytes, Any]) -> None:
        """Learn whether the broker is a cluster. Raises `CLIConnectionError` for a server that is of no use."""
        mode = text_of(greeting.get(b"mode", b"standalone"))
        if mode not in ("standalone", "cluster"):
            shown = printable(mode, at_most=32)
            message = f"{self.address} is no server for data (its mode is {shown}): a fleet needs a primary, or a node of a cluster"
            raise CLIConnectionError(message, code="fleet.refused", retryable=False)
        is_cluster = mode == "cluster"
        if self._is_cluster is None:
            self._is_cluster = is_cluster
            if is_cluster:
                self._is_stale = True
                self.keys.divide(_PARTS)
        elif self._is_cluster != is_cluster:
            raise CLIConnectionError(f"{self.address} has changed its mode to {mode}", code="fleet.refused", retryable=False)

    def _error(self, where: str, failure: Exception | None) -> CLIConnectionError:
        if isinstance(failure, CLIConnectionError):
            return failure
        said = self.address.server.without_password(f"{type(failure).__name__}: {failure}") if failure else "no answer"
        code = failure.code if isinstance(failure, RespError) else ""
        if code == "NOPERM":
            denied = _DENIED.search(said)
            command = denied[1] if denied else "PING"
            message = f"{where}: the user of the URL may not call {command}: give it the rights of a fleet's users (+{command.lower()})"
            return CLIConnectionError(message, code="fleet.refused", retryable=False)
        if code in _NOT_ACCEPTED or "without any password" in said:
            return AuthenticationError(f"{where} does not accept the user or the password")
        return CLIConnectionError(f"{where} cannot be reached: {printable(said, at_most=300)}", code="fleet.broker_unreachable")

    async def aclose(self) -> None:
        """Close the connections, once each user has closed them. A cancelled call still closes."""
        self._users -= 1
        if self._users > 0:
            return
        self._closing = True
        there = _shared.get({})
        if there.get(self.address.identity) is self:
            del there[self.address.identity]
        self._changed.fire()
        if self._task is not None:
            self._task.cancel()
            await self._task.join()

    async def _run(self) -> None:
        async with anyio.create_task_group() as self._tasks:
            self._only = self._shard_at(self._seed)
            await self._learn_slots()

    # Where keys are.

    @property
    def _seed(self) -> NodeAddress:
        return NodeAddress(self.address.server.host, self.address.server.port)

    def _shard_at(self, node: NodeAddress) -> Shard:
        """Return the shard of a server. Connects to it, when it is new."""
        found = self._shards.get(node)
        if found is None:
            assert self._tasks is not None  # noqa: S101 - for the type checkers: it runs
            address = msgspec.structs.replace(self.address.server, host=node.host, port=node.port)
            found = Shard(address, greeted=self._greeted, heard=self._heard, changed=self._shard_changed, listening=self._tune)
            self._shards[node] = found
            self._tasks.start_soon(found.run)
        return found

    def _shard_changed(self, shard: Shard) -> None:
        """A server is connected, or was lost: what its followers were not told, they read."""
        if shard.failure is not None and not self._slots:
            self._failure = shard.failure
        elif shard.link is not None:
            self._failure = None
        self._tell_followers(*(name for name in self._followed if self._shard_of(name.decode()) is shard))
        self._changed.fire()

    def _shard_of(self, key: str) -> Shard | None:
        """Return the shard that has a key; None while no server is known that has it."""
        if self._slots:
            return self._slots[slot_of(key)]
        return None if self._is_cluster else self._only

    def _outdated(self) -> None:
        """Ask again soon where the slots are."""
        self._is_stale = True
        self._changed.fire()

    async def _learn_slots(self) -> None:
        """Ask a cluster again and again which server has which slot, as long as something was not where it should be."""
        retry = 0
        while True:
            while self._is_cluster is not True or not (self._is_stale or any(shard.link is None for shard in self._shards.values())):
                retry = 0
                await self._changed.wait()
            self._is_stale = False
            if not await self._ask_for_slots():
                self._shard_at(self._seed)  # it may have moved to other machines altogether
            await anyio.sleep(RECONNECTING.delay(retry))
            retry += 1

    async def _ask_for_slots(self) -> bool:
        """Ask each server in turn until one answers. Returns whether one did."""
        for node, shard in tuple(self._shards.items()):
            link = shard.link
            if link is None:
                continue
            try:
                self._take_slots(await link.call(["CLUSTER", "SLOTS"]), of=node)
            except RespCut:
                shard.drop(link)
            except (RespError, ValueError) as exc:
                said = printable(self.address.server.without_password(str(exc)), at_most=200)
                logger.warning("%s does not say where the slots of the cluster are: %s", shard.address, said)
                if not self._slots:
                    self._failure = exc
                    self._changed.fire()
            else:
                return True
        return False

    def _take_slots(self, answer: Any, *, of: NodeAddress) -> None:
        """Take the answer of the server `of`. Raises `ValueError` for what no node says."""
        ranges = [(slots, NodeAddress(node.host or of.host, node.port)) for slots, node in ranges_of(answer)]
        nodes = {node for _, node in ranges}
        if not nodes:
            self._outdated()  # it is being set up, and has no place for keys yet
            return
        if len(nodes) > _MOST_SHARDS:
            raise ValueError(f"a cluster has said {len(nodes)} servers, and no more than {_MOST_SHARDS} are followed")
        found: list[Shard | None] = [None] * SLOTS
        for slots, node in ranges:
            shard = self._shard_at(node)
            for slot in slots:
                found[slot] = shard
        for node in nodes:
            self._named_at.pop(node, None)
        for node in self._shards.keys() - nodes - self._named():
            self._shards.pop(node).stop()
        before, self._slots = self._slots, found
        self._moved(name for name in self._followed if not before or before[slot_of(name.decode())] is not self._shard_of(name.decode()))
        self._changed.fire()

    def _moved(self, names: Iterable[bytes]) -> None:
        """Follow each channel on the server that has it now. What was told meanwhile on those channels was missed."""
        for shard in self._shards.values():
            self._tune(shard)
        self._tell_followers(*names)

    def _note(self, redirection: Redirection, *, by: Shard) -> Shard:
        """Take what a server has said of a slot. Returns the shard that has the key."""
        node = redirection.node
        if not node.host:
            node = NodeAddress(by.address.host, node.port)
        if node not in self._shards or node in self._named_at:
            self._named_at[node] = anyio.current_time()
            if len(self._named()) > _MOST_NAMED:
                raise ProtocolError(f"{self.address} names more servers than a cluster has", code=MALFORMED)
        shard = self._shard_at(node)
        if not redirection.asks and self._slots:
            self._slots[redirection.slot] = shard
            self._moved(name for name in self._followed if slot_of(name.decode()) == redirection.slot)
            self._outdated()
        return shard

    def _named(self) -> set[NodeAddress]:
        """Return the servers without slots to which calls were sent on of late."""
        now = anyio.current_time()
        self._named_at = {node: at for node, at in self._named_at.items() if now - at < _NAMED_SECONDS}
        return set(self._named_at)

    def generation_of(self, session: str) -> tuple[object, int]:
        """Return what changes when the connection to the server of a session is lost, or the session comes to another server.

        What was known of the session before has to be asked again.
        """
        shard = self._shard_of(self.keys.meta(session))
        return shard, -1 if shard is None else shard.generation

    async def reached(self, session: str, *, patience: float) -> None:
        """Wait until the server of a session can be called, at most `patience` seconds.

        Raises:
            ConnectionLost: it cannot (`fleet.broker_lost`).
        """
        key = self.keys.meta(session)
        with anyio.move_on_after(patience):
            while not self._can_call(key) and not self._closing:
                await self._changed.wait()
        if not self._can_call(key):
            raise ConnectionLost(f"{self.address} was not reached again in {patience:g} s", code="fleet.broker_lost")

    def _can_call(self, key: str) -> bool:
        shard = self._shard_of(key)
        return shard is not None and shard.link is not None

    # Calls.

    async def script(self, text: str, keys: Sequence[str], args: Sequence[Any], *, follow: bool = True) -> list[Any]:
        """Run a script. Returns its answer, a list that begins with a word.

        Without `follow`, a script is cut whose keys have come to another server.

        Raises:
            BrokerCut: the connection was lost, or the broker takes no writes now.
            ProtocolError: the broker refused it (`fleet.refused`), or a key holds what no end writes (`fleet.malformed`).
        """
        words = [len(keys), *keys, *args]
        key = keys[0] if keys else self._any_key
        try:
            answer = await self._ask(key, ["EVALSHA", digest_of(text), *words], follow=follow)
        except RespError as exc:
            if exc.code != "NOSCRIPT":
                self._raise_refusal(exc, key, is_script=True)
            try:
                answer = await self._ask(key, ["EVAL", text, *words], follow=follow)
            except RespError as other:
                self._raise_refusal(other, key, is_script=True)
        if not isinstance(answer, list) or not answer:
            raise ProtocolError("a script of the broker has given no list", code=MALFORMED)
        return answer

    async def _ask(self, key: str, words: Sequence[Any], *, follow: bool) -> Any:
        """Make a call to the server that has `key`. Raises `BrokerCut`, or `RespError` for what the server has said.

        With `follow`, a call to a server that has not the key any more goes on to the one that has it. Else it is cut: the caller has to
        compare first what that server knows.
        """
        shard = self._shard_of(key)
        asks = False
        for _ in range(_MOST_REDIRECTIONS):
            link = None if shard is None else shard.link
            if shard is None or link is None:
                await anyio.lowlevel.checkpoint()
                raise BrokerCut("the broker is not connected")
            try:
                if asks:
                    link.post(["ASKING"])  # it goes out together with the call
                return await link.call(words)
            except RespCut as exc:
                shard.drop(link)
                cut = BrokerCut(self.address.server.without_password(str(exc)))
                logger.debug("%s: a call was cut: %s", self.address, cut)
                raise cut from None
            except RespError as exc:
                redirection = redirection_of(exc) if self._is_cluster else None
                if redirection is None:
                    raise
                shard, asks = self._note(redirection, by=shard), redirection.asks
                if not (follow or asks):
                    raise BrokerCut(self.address.server.without_password(f"another server of the broker has the key now: {exc}")) from None
                await self._linked(shard)
        raise BrokerCut("the servers of the broker send a call from one to the other")

    async def _linked(self, shard: Shard) -> None:
        """Wait a moment until a server is connected of which another one has just told."""
        with anyio.move_on_after(COMMAND_TIMEOUT):
            while shard.link is None and not self._closing:
                await self._changed.wait()

    def _raise_refusal(self, exc: RespError, key: str, *, is_script: bool = False) -> NoReturn:
        """Raise what an error of the server means."""
        said = self.address.server.without_password(str(exc))
        if not _is_transient(said):
            spoilt = exc.code in ("WRONGTYPE", "TOOLARGE") or (is_script and exc.code != "NOPERM" and "NOPERM" not in said)
            what = "holds something that no end of a fleet writes" if spoilt else "refused a call"
            raise ProtocolError(f"{self.address} {what}: {printable(said, at_most=300)}", code=MALFORMED if spoilt else "fleet.refused")
        if said.startswith(("READONLY", "LOADING", "MASTERDOWN")) and (shard := self._shard_of(key)) is not None:
            shard.drop(shard.link)
        if exc.code == "CLUSTERDOWN":
            self._outdated()
        cut = BrokerCut(said, refused=True)
        logger.debug("%s: a call was cut: %s", self.address, cut)
        raise cut

    async def command(self, name: str, *args: Any) -> Any:
        """Make a call such as `command("hset", key, {"name": "value"})`, and return the answer. Raises as `script()` does.

        An underscore in `name` separates two words. A list stands for its items, a mapping for names and values, of `zadd` for scores and
        members: `{"member": score}`. The answer to `hgetall` and `config_get` is a mapping.
        """
        words = words_of(name, args)
        has_key = len(words) > 1 and name.partition("_")[0] not in _WITHOUT_KEY
        key = str(words[1]) if has_key else self._any_key
        try:
            answer = await self._ask(key, words, follow=True)
        except RespError as exc:
            self._raise_refusal(exc, key)
        if name in ("hgetall", "config_get"):
            return dict(zip(answer[::2], answer[1::2], strict=False)) if isinstance(answer, list) else {}
        return answer

    async def command_at_each(self, name: str, *args: Any) -> dict[str, Any]:
        """Make the same call to each server, and return the answers by address. Raises as `script()` does."""
        answers: dict[str, Any] = {}
        for shard in tuple(self._shards.values()):
            if (link := shard.link) is None:
                raise BrokerCut(f"{shard.address} is not connected")
            try:
                answers[str(shard.address)] = await link.call(words_of(name, args))
            except RespCut as exc:
                raise BrokerCut(self.address.server.without_password(str(exc))) from None
            except RespError as exc:
                self._raise_refusal(exc, self._any_key)
        return answers

    @property
    def _any_key(self) -> str:
        """A key of a server that can be called, if there is one: for calls that every server answers alike."""
        keys = [part.nodes for part in self.keys.parts]
        return next(filter(self._can_call, keys), keys[0])

    async def at_each_part(
        self, call: Callable[[SharedKeys], Awaitable[_Answer]], parts: Collection[SharedKeys] | None = None
    ) -> list[_Answer]:
        """Make a call for each of `parts` of what all sessions share, by default all, and return the answers in their order.

        The calls are made at once. A part whose server is lost keeps no other one from being asked. Raises as `script()` does, when no part
        has answered.
        """
        parts = self.keys.parts if parts is None else parts
        if len(parts) == 1:
            return [await call(part) for part in parts]
        answers: dict[SharedKeys, _Answer] = {}
        failures: list[Exception] = []

        async def ask(part: SharedKeys) -> None:
            try:
                answers[part] = await call(part)
            except Exception as exc:  # noqa: BLE001 - a task group would wrap it; it is raised below
                failures.append(exc)

        async with anyio.create_task_group() as tasks:
            for part in parts:
                tasks.start_soon(ask, part)
        for failure in failures:
            if not (answers and isinstance(failure, BrokerCut)):
                raise failure
        return [answers[part] for part in parts if part in answers]

    # Channels.

    @property
    def _verbs(self) -> tuple[bytes, bytes, bytes]:
        return (b"ssubscribe", b"sunsubscribe", b"smessage") if self._is_cluster else (b"subscribe", b"unsubscribe", b"message")

    async def follow(self, channel: str, heard: Callable[[bytes], object]) -> None:
        """Call `heard` with each message of a channel, until `unfollow()`. It must not wait or raise.

        An empty message says that some may have been missed. After a lost connection the channel is followed again.

        Raises:
            BrokerCut: the connection was lost. The channel is followed as soon as there is one.
            ProtocolError: the broker refused it (`fleet.refused`).
        """
        name = channel.encode()
        self._followed.setdefault(name, []).append(heard)
        shard = self._shard_of(channel)
        if shard is None or shard.ear is None:
            raise BrokerCut("the channels of the broker are not heard now")
        shard.tuned.add(name)
        try:
            await shard.ear.call([self._verbs[0].upper(), name], topic=(self._verbs[0], name))
        except RespError as exc:
            if self._untuned(shard, name, exc):
                raise BrokerCut("another server of the broker has the channel now") from None
            self.unfollow(channel, heard)
            self._raise_refusal(exc, channel)
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
                for shard in self._shards.values():
                    self._tune(shard, only=(name,))

    def _tune(self, shard: Shard, *, only: Collection[bytes] = ()) -> None:
        """Follow on a server those channels that are there, and leave the others. `only` names those that may have changed."""
        ear = shard.ear
        if ear is None:
            return
        subscribe, unsubscribe, _ = self._verbs
        for name in only or shard.tuned | self._followed.keys():
            wanted = name in self._followed and self._shard_of(name.decode()) is shard
            if wanted and name not in shard.tuned:
                shard.tuned.add(name)
                ear.post([subscribe.upper(), name], topic=(subscribe, name), then=partial(self._tuned, shard, name))
            elif not wanted and name in shard.tuned:
                shard.tuned.discard(name)
                if name not in self._followed:  # a server whose slot is elsewhere tells nobody any more
                    ear.post([unsubscribe.upper(), name], topic=(unsubscribe, name))

    def _tuned(self, shard: Shard, name: bytes, call: PostedCall) -> None:
        """A server has answered that a channel is followed: its followers may have missed something."""
        if not (isinstance(call.answer, RespError) and self._untuned(shard, name, call.answer)):
            self._tell_followers(name)

    def _untuned(self, shard: Shard, name: bytes, said: RespError | None) -> bool:
        """Note that a server does not follow a channel. Returns False for an error which is no redirection."""
        shard.tuned.discard(name)
        redirection = redirection_of(said) if said is not None and self._is_cluster else None
        if said is not None and redirection is None:
            return False
        self._outdated()  # it is followed again when the slots are known again
        return True

    def _tell_followers(self, *names: bytes) -> None:
        """Tell those that follow these channels that they may have missed something."""
        for name in names:
            for heard in tuple(self._followed.get(name, ())):
                heard(b"")

    def _heard(self, shard: Shard, items: list[Any]) -> None:
        """Hand a message on to those that follow its channel."""
        match items:
            case [kind, bytes() as name, bytes() as message] if kind == self._verbs[2]:
                for heard in tuple(self._followed.get(name, ())):
                    heard(message)
            case [b"sunsubscribe", bytes() as name, *_] if name in shard.tuned:
                self._untuned(shard, name, None)  # its slot is on another server now

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

    async def publish(self, channel: str, message: str | bytes) -> int:
        """Tell those that follow a channel. Returns how many did. Raises as `script()` does."""
        return int(await self.command("spublish" if self._is_cluster else "publish", channel, message))

    # Sessions.

    async def call(self, session: str, call: Call) -> Reply:
        """Carry out one call of an end of `session`. Raises as `script()` does.

        A call to a server that has the session no more is cut: another one may have lost the end of a stream.
        """
        meta = self.keys.meta(session)
        stream = self.keys.outgoing(session) if (call.side == Side.WORKER) == isinstance(call, Append) else self.keys.incoming(session)
        match call:
            case Append():
                args: list[Any] = [call.side.value, call.token, call.first]
                args += map(_or_empty, (call.turns, call.stored, call.fed))
                for kind, data in call.entries:
                    args += (kind, data)
                text, keys = APPEND_TO_SHARD if self._is_cluster else APPEND, [meta, stream]
            case Take():
                args = [call.side.value, call.token, call.upto, _or_empty(call.turns), _or_empty(call.fed)]
                text, keys = TAKE, [meta, stream]
            case Sync():
                known = [call.cursor, call.seen, call.taken, call.begun, call.over, call.stored, _or_empty(call.fed), call.heard, call.said]
                args = [call.side.value, call.token, *known]
                text, keys = SYNC, [meta]
            case Renew():
                args = [call.side.value, call.token, int(call.seconds * 1000), call.cursor]
                text, keys = RENEW, [meta, stream]
        return reply_of(call, await self.script(text, keys, args, follow=False))

    async def read(self, key: str, cursor: int, *, count: int = READ_ENTRIES) -> list[Entry]:
        """Return the entries of a stream behind the number `cursor`, at most `count`. Raises as `call()` does."""
        try:
            found = await self._ask(key, ["XREAD", "COUNT", count, "STREAMS", key, f"{cursor}-0"], follow=False)
        except RespError as exc:
            self._raise_refusal(exc, key)
        return entries_of(found)


def words_of(name: str, args: Sequence[Any]) -> list[Any]:
    """Return the words of `Broker.command()`."""
    words: list[Any] = ["DEL"] if name == "delete" else name.upper().split("_")
    for arg in args:
        if isinstance(arg, Mapping):
            for member, value in arg.items():
                words += (value, member) if name == "zadd" else (member, value)
        elif isinstance(arg, Collection) and not isinstance(arg, str | bytes):
            words += arg
        else:
            words.append(arg)
    return words


def _is_transient(said: str) -> bool:
    """Return whether the broker will take the call later. A script of an older server has the word behind a dash."""
    return said.startswith(_TRANSIENT) or any(f"-{word} " in said for word in _TRANSIENT)


def _or_empty(value: int | None) -> int | str:
    """Return a number as a script gets it."""
    return "" if value is None else value
