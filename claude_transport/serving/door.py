"""`Door`: decides which clients of a gateway come in, and counts what each of them has used of the limits.

Beside it stand its parts: `GatewayTokens` (accepted tokens), `GatewayLimits` and `Allowance` (limits, and what one owner has used), and
`UnadmittedConnections` (connections before admission). `pace.py` bounds how often clients connect. It reads nothing from a connection;
`arrival.py` does.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import random
import re
import stat
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

import anyio
import msgspec

from claude_transport.errors import ConfigurationError, warn_caller
from claude_transport.serving.pace import Pace
from claude_transport.serving.turned_away import TurnedAway

ANYBODY = "anybody"
"""The owner of every session of a gateway without tokens."""


class Door:
    """Admits clients by token and by origin, and keeps an `Allowance` for each owner of a token.

    Args:
        tokens: the accepted tokens; without any, every client is admitted.
        origins: values of the `Origin` header that may open a WebSocket, such as `https://example.org`. A browser lets every page connect
            to every address, so pages of other origins are refused.
        limits: the limits of the gateway.
        draw: the random numbers of `UnadmittedConnections`.
    """

    def __init__(
        self,
        *,
        tokens: GatewayTokens,
        origins: Collection[str] = (),
        limits: GatewayLimits,
        draw: Callable[[], float] | None = None,
    ) -> None:
        if isinstance(origins, str) or not all(isinstance(origin, str) and "://" in origin for origin in origins):
            raise ConfigurationError("origins is not a list of origins such as 'https://example.org'", option="origins")
        self._tokens = tokens
        self._origins = frozenset(origin.rstrip("/").lower() for origin in origins)
        self._limits = limits
        self._crowd = UnadmittedConnections(full=limits.half_open, per_source=limits.half_open_per_address, draw=draw)
        self._pace = Pace(
            per_client=limits.connects_per_second,
            client_burst=limits.connections,
            per_source=limits.connects_per_second_per_address,
            source_burst=max(limits.connections, limits.half_open_per_address),
        )
        self._allowances: dict[str, Allowance] = {}

    @property
    def needs_token(self) -> bool:
        """True when a client without a token is refused."""
        return bool(self._tokens)

    @property
    def half_open(self) -> int:
        """Connections that are not admitted yet, and refused ones that are not closed yet."""
        return len(self._crowd)

    @property
    def evicted(self) -> int:
        """Half-open connections that were closed to make room for others."""
        return self._crowd.evicted

    @contextmanager
    def knock(self, peer: str = "") -> Iterator[anyio.CancelScope]:
        """Count a new connection while the block runs. The block must end with the admission of the client.

        The block is cancelled after `handshake_timeout` seconds, or when `UnadmittedConnections` needs the place. `peer` is the address of
        the client.
        """
        with anyio.move_on_after(self._limits.handshake_timeout) as scope, self._crowd.hold(scope, source=source_of(peer)):
            yield scope

    @contextmanager
    def linger(self, peer: str, *, seconds: float) -> Iterator[anyio.CancelScope]:
        """Count a refused connection while the block tells the client why. The block is cancelled after `seconds`, or to make room."""
        with anyio.move_on_after(seconds) as scope, self._crowd.hold(scope, source=source_of(peer), lingers=True):
            yield scope

    def admit(self, token: str | None, *, certified: str | None = None) -> str:
        """Return the owner of `token`.

        A gateway without tokens admits every client. The owner is then `cert:` and `certified`, the name in the client's certificate, or
        `ANYBODY` without a certificate.

        Raises:
            TurnedAway: the token is missing or not accepted. The message does not say more.
        """
        if not self._tokens:
            return f"cert:{certified}" if certified else ANYBODY
        if token is None:
            raise TurnedAway("auth", "a token is needed")
        owner = self._tokens.owner(token)
        if owner is None:
            raise TurnedAway("auth", "this token is not accepted")
        return owner

    async def take_turn(self, peer: str, *, owner: str | None) -> None:
        """Wait until the next connection of `owner`, and of the address of `peer`, is due. The caller bounds the wait.

        Clients that share an owner because the gateway has no tokens count for each address, and so do refused ones, without an `owner`.
        """
        source = source_of(peer)
        await self._pace.turn(f"refused {source}" if owner is None else source if owner == ANYBODY else owner, source)

    def check_origin(self, origin: str | None) -> None:
        """Raise `TurnedAway` for a web page whose origin is not allowed. None passes: programs send no `Origin`."""
        if origin is not None and origin.rstrip("/").lower() not in self._origins:
            raise TurnedAway("origin", "web pages of this origin are not allowed")

    def allowance(self, owner: str) -> Allowance:
        """Return the `Allowance` of `owner`: what it has used of the limits."""
        if owner not in self._allowances:
            # forget idle owners: with client certificates there may be any number of names
            for idle in [name for name, allowance in self._allowances.items() if allowance.is_idle]:
                del self._allowances[idle]
            self._allowances[owner] = Allowance(self._limits)
        return self._allowances[owner]


MIN_TOKEN_CHARS: Final = 16
"""Characters: a shorter token could be guessed over the network. `secrets.token_urlsafe()` gives 43."""

_MAX_FILE_CHARS: Final = 2**20
"""Characters of a token file: ten thousand tokens. A larger file is not a token file."""

Compare: TypeAlias = Callable[[bytes, bytes], bool]

_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_TOKEN = re.compile(r"[\x21-\x7e]+")  # the characters that fit into an HTTP header and on a line


class GatewayTokens:
    """The bearer tokens that a gateway accepts, each with the name of its owner. Names appear in logs, and limits count for each name.

    Only SHA-256 digests are kept, so a core dump or a `repr` shows no token. `bool(tokens)` is False when there are none.

    Args:
        tokens: token by name. A token has at least 16 visible ASCII characters.
        compare: compares two digests; the default takes the same time whether they are equal or not.

    Raises:
        ConfigurationError: a token is too short or has characters that a header cannot carry, a name is not valid, or two owners have the
            same token.
    """

    def __init__(self, tokens: Mapping[str, str] | None = None, *, compare: Compare = hmac.compare_digest) -> None:
        self._compare = compare
        self.digests: dict[str, bytes] = {}
        for name, token in (tokens or {}).items():
            self._add(name, token)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> GatewayTokens:
        """Return the tokens in a text file that has `NAME TOKEN`, or only a token, on each line.

        A token without a name belongs to the owner `token-N`, where N is the number of its line. Blank lines and lines that begin with `#`
        are ignored. A file that its group can read gives a `ClaudeTransportWarning`.

        Raises:
            ConfigurationError: the file cannot be read, holds no token or one that is not valid, or can be read by every user of this
                system (`chmod 600`).
        """
        shown = repr(os.fspath(path))
        try:
            with Path(path).open(encoding="utf-8") as file:
                mode = os.fstat(file.fileno()).st_mode  # of the open file: the path may lead to another one by now
                text = file.read(_MAX_FILE_CHARS + 1)
        except (OSError, UnicodeDecodeError) as exc:
            why = getattr(exc, "strerror", None) or exc
            raise ConfigurationError(f"the token file {shown} cannot be read: {why}", option="tokens") from exc
        if len(text) > _MAX_FILE_CHARS:  # do not read a part: a token that is cut is another token
            raise ConfigurationError(f"the token file {shown} has more than {_MAX_FILE_CHARS} characters", option="tokens")
        if mode & stat.S_IRWXO:
            raise ConfigurationError(f"the token file {shown} is open to every user of this system: run chmod 600 on it", option="tokens")
        if mode & stat.S_IRWXG:
            warn_caller(f"the token file {shown} is open to its group: run chmod 600 on it")
        tokens = cls()
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) > 2:
                raise ConfigurationError(f"line {number} of the token file {shown} has more than a name and a token", option="tokens")
            tokens._add(words[0] if len(words) == 2 else f"token-{number}", words[-1])
        if not tokens:
            raise ConfigurationError(f"the token file {shown} holds no token", option="tokens")
        return tokens

    @classmethod
    def from_environment(cls, variable: str, *, env: Mapping[str, str] | None = None) -> GatewayTokens:
        """Return the one token that is in an environment variable. Its owner has the name of the variable.

        Args:
            variable: the name of the variable.
            env: the environment; `os.environ` by default.

        Raises:
            ConfigurationError: the variable is not set, or its value is not a valid token.
        """
        value = (os.environ if env is None else env).get(variable, "")
        if not value:
            raise ConfigurationError(f"the environment variable {variable} is not set: put a token in it", option="tokens")
        return cls({variable: value})

    def joined(self, other: GatewayTokens) -> GatewayTokens:
        """Return a new object with these tokens and those of `other`. Both stay as they are.

        Raises `ConfigurationError` when both have the same name or the same token.
        """
        both = GatewayTokens(compare=self._compare)
        for name, digest in (*self.digests.items(), *other.digests.items()):
            both._keep(name, digest)
        return both

    def owner(self, presented: str | None) -> str | None:
        """Return the name of the owner of the token that a client has `presented`, or None when the token is not accepted.

        It compares with every token, so the time that it takes tells nothing about the accepted tokens.
        """
        digest = _digest(presented or "")
        found = None
        for name, known in self.digests.items():
            if self._compare(known, digest):
                found = name  # without an early end: the time must not depend on which token it was
        return found

    def _add(self, name: str, token: str) -> None:
        if not _NAME.fullmatch(name):
            raise ConfigurationError(
                "the name of a token's owner is not valid: use 1 to 64 letters, digits and the characters . _ @ -", option="tokens"
            )
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise ConfigurationError(
                f"the token of {name} has characters that a header cannot carry: use visible ASCII without blanks", option="tokens"
            )
        if len(token) < MIN_TOKEN_CHARS:
            raise ConfigurationError(f"the token of {name} can be guessed: use at least {MIN_TOKEN_CHARS} characters", option="tokens")
        self._keep(name, _digest(token))

    def _keep(self, name: str, digest: bytes) -> None:
        if name in self.digests:
            raise ConfigurationError(f"there are two tokens of the name {name}: use each name once", option="tokens")
        if digest in self.digests.values():
            raise ConfigurationError(f"{name} has the token of another owner: each could take over the other's sessions", option="tokens")
        self.digests[name] = digest

    def __bool__(self) -> bool:
        return bool(self.digests)

    def __repr__(self) -> str:
        """Show the names only."""
        return f"GatewayTokens({', '.join(sorted(self.digests))})"


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


_MINUTE = 60.0


class GatewayLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a gateway: numbers, sizes in bytes, times in seconds. A client that goes beyond one is refused, slowed or disconnected.

    Of the whole gateway:

    * `half_open`: connections that are not admitted yet, and refused ones that are not closed yet. When more than half as many are open, a
      new connection may close an older one of them; at the limit it always does.
    * `half_open_per_address`: the same, from one IP address; with IPv6, from one network of 64 bits. Behind a proxy, all clients have the
      address of the proxy.
    * `handshake_timeout`: seconds for everything before admission: TLS, the WebSocket upgrade, the first line.
    * `connects_per_second_per_address`: admitted connections a second from one IP address, after as many at once as `connections` and
      `half_open_per_address` allow (None: no limit). Further ones wait; the client that has connected least goes first.
    * `first_line_bytes`: size of the first line of a connection.
    * `total_sessions`: sessions at the same time. Each has a process.

    Of each token (without tokens: of each name in a client certificate, or of all clients together):

    * `connections`, `sessions`: how many at the same time. `starts_per_minute`: new sessions in a minute (None: no limit).
    * `connects_per_second`: connections a second, after as many at once as `connections` allows (None: no limit). Further ones wait.
    * `bytes_per_second`: from its clients (None: no limit). A faster client waits; nothing is dropped.
    * `line_bytes`: size of one line from a client. A longer line ends the session.
    * `session_bytes`: all bytes of one session in both directions (None: no limit). More bytes end the session.

    Of each session:

    * `stall`: seconds for which a connected client may take nothing of the output that waits for it. Then the session ends. In plain mode
      it has as long for a block of lines, in link mode for its next acknowledgement.

    Of each session in link mode:

    * `replay_bytes`: output kept for a client that is away. When this is full, the gateway stops reading from the process. With less than a
      quarter of the client's window (1 MiB by default), each fill also delays the process by some milliseconds.
    * `lease`: seconds that the session lives without a client.
    * `heartbeat`: seconds of silence after which the gateway sends a ping. After twice as many it closes the connection.

    Of each session that can be observed:

    * `observers`: how many at the same time. One that takes nothing for twice the `heartbeat` is disconnected.
    * `observed_bytes`: lines kept for them. An observer that is further behind misses lines, and is told how many.
    """

    half_open: int = 256
    half_open_per_address: int = 128
    connects_per_second_per_address: float | None = 50.0
    handshake_timeout: float = 10.0
    first_line_bytes: int = 64 * 2**10
    total_sessions: int = 64
    connections: int = 64
    sessions: int = 16
    starts_per_minute: int | None = 120
    connects_per_second: float | None = 20.0
    bytes_per_second: int | None = None
    line_bytes: int = 32 * 2**20
    session_bytes: int | None = None
    stall: float = 3600.0
    replay_bytes: int = 8 * 2**20
    lease: float = 60.0
    heartbeat: float = 20.0
    observers: int = 64
    observed_bytes: int = 4 * 2**20

    def check(self) -> None:
        """Raise `ConfigurationError` for a limit that is not a positive number. `Gateway` calls it.

        The `option` of the error names the limit. Sizes and counts must be whole numbers. None is allowed for what a minute or a
        second may bring, and for `session_bytes`.
        """
        for name in self.__struct_fields__:
            value = getattr(self, name)
            optional = ("_per_" in name and name != "half_open_per_address") or name == "session_bytes"
            if value is None and optional:
                continue
            kinds = (int, float) if name in {"handshake_timeout", "heartbeat", "lease", "stall"} or name.startswith("connects") else (int,)
            if isinstance(value, bool) or not isinstance(value, kinds) or not value > 0:
                wanted = "a positive number or None" if optional else "a positive number"
                raise ConfigurationError(f"the limit {name} is {value!r}: use {wanted}", option=name)


class Allowance:
    """What one owner has used of the limits. Only `spend()` waits."""

    def __init__(self, limits: GatewayLimits) -> None:
        self._limits = limits
        self.connections: int = 0
        self.sessions: int = 0
        self._starts: list[float] = []
        self._free_at = 0.0  # the time at which all bytes so far are within the rate

    @property
    def is_idle(self) -> bool:
        """True when nothing is in use, so that the object can be deleted."""
        return not (self.connections or self.sessions or self._recent_starts() or self._free_at > anyio.current_time())

    @contextmanager
    def connection(self) -> Iterator[None]:
        """Count one connection while the block runs. Raises `TurnedAway` at the limit."""
        if self.connections >= self._limits.connections:
            raise TurnedAway("limit", f"this token has {self.connections} connections, which is its limit: close one first", retryable=True)
        self.connections += 1
        try:
            yield
        finally:
            self.connections -= 1

    def begin_session(self) -> None:
        """Count one session until `end_session()`. Raises `TurnedAway` at the limit of sessions, or of starts in a minute."""
        if self.sessions >= self._limits.sessions:
            raise TurnedAway("limit", f"this token has {self.sessions} sessions, which is its limit: end one first", retryable=True)
        recent = self._recent_starts()
        if self._limits.starts_per_minute is not None:
            if len(recent) >= self._limits.starts_per_minute:
                raise TurnedAway(
                    "limit",
                    f"this token has started {len(recent)} sessions in a minute, which is its limit: try again later",
                    retryable=True,
                )
            self._starts = [*recent, anyio.current_time()]
        self.sessions += 1

    def end_session(self) -> None:
        """Count one session less."""
        self.sessions -= 1

    async def spend(self, size: int) -> None:
        """Wait until the owner may send `size` more bytes under `bytes_per_second`. Returns at once without such a limit."""
        rate = self._limits.bytes_per_second
        if rate is None:
            return
        now = anyio.current_time()
        # one second's worth may be sent at once
        self._free_at = max(self._free_at, now - 1.0) + size / rate
        if self._free_at > now:
            await anyio.sleep(self._free_at - now)

    def _recent_starts(self) -> list[float]:
        since = anyio.current_time() - _MINUTE
        return [start for start in self._starts if start > since]


class UnadmittedConnections:
    """Bounds the connections that are not admitted: at most `full`, and at most `per_source` from one source. It never waits.

    From half of `full` on, a new connection closes an old one, with a probability that grows from 0 to 1. Refused connections that linger
    are closed first, the oldest of them before the others. Then a random connection of the source with the most is closed.

    Args:
        full: connections in all.
        per_source: connections of one source (see `source_of`).
        draw: returns random numbers from 0 to below 1; from the system by default.
    """

    def __init__(self, *, full: int, per_source: int, draw: Callable[[], float] | None = None) -> None:
        self._full = full
        self._early = full // 2
        self._per_source = per_source
        self._draw = draw or random.SystemRandom().random
        self._places: dict[anyio.CancelScope, str] = {}  # in the order of arrival
        self._lingering: dict[anyio.CancelScope, None] = {}  # the refused ones among them
        self._of_source: Counter[str] = Counter()
        self.evicted: int = 0

    def __len__(self) -> int:
        return len(self._places)

    @contextmanager
    def hold(self, scope: anyio.CancelScope, *, source: str, lingers: bool = False) -> Iterator[None]:
        """Count one connection of `source` while the block runs. Cancels `scope` when this connection has to make room for another."""
        self._make_room(source)
        self._places[scope] = source
        self._of_source[source] += 1
        if lingers:
            self._lingering[scope] = None
        try:
            yield
        finally:
            self._leave(scope)

    def _make_room(self, source: str) -> None:
        if self._of_source[source] >= self._per_source:
            self._evict_from(source)
        size = len(self._places)
        if size >= self._full or (size > self._early and self._draw() < (size - self._early) / (self._full - self._early)):
            lingering = next(iter(self._lingering), None)
            if lingering is not None:
                self._evict(lingering)
            else:
                self._evict_from(self._of_source.most_common(1)[0][0])

    def _evict_from(self, source: str) -> None:
        """Close a connection of `source`: the oldest that lingers, else a random one."""
        members = [scope for scope, owner in self._places.items() if owner == source]
        lingering = next((scope for scope in members if scope in self._lingering), None)
        self._evict(members[int(self._draw() * len(members))] if lingering is None else lingering)

    def _evict(self, scope: anyio.CancelScope) -> None:
        self._leave(scope)
        self.evicted += 1
        scope.cancel()

    def _leave(self, scope: anyio.CancelScope) -> None:
        source = self._places.pop(scope, None)
        self._lingering.pop(scope, None)
        if source is not None:
            self._of_source[source] -= 1
            if not self._of_source[source]:
                del self._of_source[source]


_NETWORK_BITS: Final = 64
"""Bits of the IPv6 network of one customer. One client could use another address of it for each connection."""


def source_of(peer: str) -> str:
    """Return the source that a peer such as `192.0.2.1:4711` counts for: its address without the port; of IPv6, the network of 64 bits."""
    host = peer.rpartition(":")[0].strip("[]") or peer
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, _NETWORK_BITS), strict=False))
    return str(getattr(address, "ipv4_mapped", None) or address)
