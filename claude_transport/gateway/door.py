"""`Door`: who may come in, and how many may stand in front of it."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
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
import anyio.lowlevel
import msgspec

from claude_transport.errors import ConfigurationError
from claude_transport.gateway.turned_away import TurnedAway

# --- `GatewayTokens`: bearer tokens by the name of their owner, kept as digests, compared in constant time.


logger: logging.Logger = logging.getLogger(__name__)

MIN_TOKEN_CHARS: Final = 16
"""Characters: with fewer, guessing over the network becomes a plan. Python's `secrets.token_urlsafe()` gives 43."""

_MAX_FILE_CHARS: Final = 2**20
"""Characters of a token file: ten thousand tokens. What is larger is another file."""

Compare: TypeAlias = Callable[[bytes, bytes], bool]

_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_TOKEN = re.compile(r"[\x21-\x7e]+")  # what fits into an HTTP header and on a line


class GatewayTokens:
    """The bearer tokens that are accepted, each with the name its owner is known by in logs and limits.

    Only digests are kept: neither a core dump nor a `repr` gives a token away. `bool(tokens)` is False when there are none. Two digests
    are compared by `compare` alone, which takes as long for any two.

    Raises:
        ConfigurationError: a token is too short or has characters that no header can carry, a name is no name, or two owners share a token.
    """

    def __init__(self, tokens: Mapping[str, str] | None = None, *, compare: Compare = hmac.compare_digest) -> None:
        self._compare = compare
        self._names: dict[str, bytes] = {}
        for name, token in (tokens or {}).items():
            self._add(name, token)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> GatewayTokens:
        """The tokens in a file: one on each line, `NAME TOKEN` or only the token; blank lines and those that begin with `#` are nothing.

        Raises:
            ConfigurationError: it cannot be read, holds no token, or may be read by others than its owner and group (`chmod 600`).
        """
        try:
            with Path(path).open(encoding="utf-8") as file:
                mode = os.fstat(file.fileno()).st_mode  # of what is read, not of what stands there a moment later
                text = file.read(_MAX_FILE_CHARS + 1)
        except (OSError, UnicodeDecodeError) as exc:
            raise ConfigurationError(f"the token file {os.fspath(path)!r} cannot be read: {exc}", option="tokens") from exc
        if len(text) > _MAX_FILE_CHARS:  # a token that is cut off would be another token
            raise ConfigurationError(f"the token file {os.fspath(path)!r} is too large to be one", option="tokens")
        if mode & stat.S_IRWXO:
            raise ConfigurationError(f"the token file {os.fspath(path)!r} is open to every user of this system: chmod 600", option="tokens")
        if mode & stat.S_IRWXG:
            logger.warning("the token file %r is open to its group", os.fspath(path))
        tokens = cls()
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) > 2:
                raise ConfigurationError(f"line {number} of the token file has more than a name and a token", option="tokens")
            tokens._add(words[0] if len(words) == 2 else f"token-{number}", words[-1])
        if not tokens:
            raise ConfigurationError(f"the token file {os.fspath(path)!r} holds no token", option="tokens")
        return tokens

    @classmethod
    def from_environment(cls, variable: str, *, env: Mapping[str, str] | None = None) -> GatewayTokens:
        """The one token in an environment variable, whose owner is called like the variable; `ConfigurationError` when it is not set."""
        value = (os.environ if env is None else env).get(variable, "")
        if not value:
            raise ConfigurationError(f"the environment variable {variable} is not set: there is no token in it", option="tokens")
        return cls({variable: value})

    def joined(self, other: GatewayTokens) -> GatewayTokens:
        """These and those; `ConfigurationError` when a name or a token is in both."""
        both = GatewayTokens(compare=self._compare)
        for tokens in (self, other):
            for name, digest in tokens._names.items():  # noqa: SLF001 - one of us
                both._keep(name, digest)
        return both

    def owner(self, presented: str | None) -> str | None:
        """The name of who holds this token, or None. Takes the same time whichever token it is nearly like, or none."""
        digest = _digest(presented or "")
        found = None
        for name, known in self._names.items():
            if self._compare(known, digest):
                found = name  # no early end: how long this takes says nothing about which one it was
        return found

    def _add(self, name: str, token: str) -> None:
        if not _NAME.fullmatch(name):
            raise ConfigurationError("the name of a token's owner is 1 to 64 letters, digits and . _ @ -", option="tokens")
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise ConfigurationError(f"the token of {name} has characters that a header cannot carry", option="tokens")
        if len(token) < MIN_TOKEN_CHARS:
            raise ConfigurationError(f"the token of {name} has fewer than {MIN_TOKEN_CHARS} characters: it can be guessed", option="tokens")
        self._keep(name, _digest(token))

    def _keep(self, name: str, digest: bytes) -> None:
        if name in self._names:
            raise ConfigurationError(f"there are two tokens of the name {name}", option="tokens")
        if digest in self._names.values():
            raise ConfigurationError(f"{name} has somebody else's token: each could take over the other's sessions", option="tokens")
        self._names[name] = digest

    def __bool__(self) -> bool:
        return bool(self._names)

    def __repr__(self) -> str:
        """Names only."""
        return f"GatewayTokens({', '.join(sorted(self._names))})"


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


# --- `GatewayLimits`: how much of everything, and `Allowance`: what one owner of a token has left of it.


_MINUTE = 60.0


class GatewayLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway lets happen: numbers, sizes in bytes, times in seconds.

    Of the whole gateway:

    * `half_open`: connections that have not said who they are, and those that were refused and linger. From half of it on, one more may
      end one of them, at the limit it does: see `Crowd`.
    * `half_open_per_address`: those of one IP address (of one network of 64 bits, with IPv6). Behind a proxy all have its address.
    * `handshake_timeout`: seconds for all that comes before admission: TLS, the WebSocket's upgrade, the first line.
    * `first_line_bytes`: the size of that line.
    * `total_sessions`: processes.

    Of each token:

    * `connections` and `sessions` at once; `starts_per_minute`: new processes (None: any).
    * `bytes_per_second` from its clients (None: any). Whoever is faster waits; nothing is dropped.
    * `line_bytes`: one line from a client; a longer one ends the session.
    * `session_bytes`: all of one session, both directions (None: any); more ends it.

    Of each session on a link:

    * `replay_bytes`: what is kept for a client that is away. A process that says more than that is not read from until the client has it.
      With less than a quarter of the client's window (1 MiB unless it says otherwise), it is also held up for some milliseconds a fill.
    * `lease`: seconds that it lives without a client.
    * `heartbeat`: seconds of silence after which a client is asked whether it is there; after twice as many its connection is over.
    """

    half_open: int = 256
    half_open_per_address: int = 128
    handshake_timeout: float = 10.0
    first_line_bytes: int = 64 * 2**10
    total_sessions: int = 64
    connections: int = 64
    sessions: int = 16
    starts_per_minute: int | None = 120
    bytes_per_second: int | None = None
    line_bytes: int = 32 * 2**20
    session_bytes: int | None = None
    replay_bytes: int = 8 * 2**20
    lease: float = 60.0
    heartbeat: float = 20.0

    def check(self) -> None:
        """Raise `ConfigurationError` for a limit that is no positive number; the option named is the limit."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            optional = name in {"starts_per_minute", "bytes_per_second", "session_bytes"}
            if value is None and optional:
                continue
            kinds = (int, float) if name in {"handshake_timeout", "heartbeat", "lease"} else (int,)
            if isinstance(value, bool) or not isinstance(value, kinds) or not value > 0:
                wanted = "a positive number or None" if optional else "a positive number"
                raise ConfigurationError(f"the limit {name} is {wanted}, not {value!r}", option=name)


class Allowance:
    """What one owner has taken of the limits. Nothing here waits, except `spend`, for its share of the rate."""

    def __init__(self, limits: GatewayLimits) -> None:
        self._limits = limits
        self.connections: int = 0
        self.sessions: int = 0
        self._starts: list[float] = []
        self._free_at = 0.0  # when everything that was sent is paid for

    @property
    def is_idle(self) -> bool:
        """True when it remembers nothing that would be missed."""
        return not (self.connections or self.sessions or self._recent_starts() or self._free_at > anyio.current_time())

    @contextmanager
    def connection(self) -> Iterator[None]:
        """A block in which there is one connection more; raises `TurnedAway` when that is one too many."""
        if self.connections >= self._limits.connections:
            raise TurnedAway("limit", f"this token has {self.connections} connections already", retryable=True)
        self.connections += 1
        try:
            yield
        finally:
            self.connections -= 1

    def begin_session(self) -> None:
        """Count one session more, until `end_session()`; raises `TurnedAway` when that is one too many, at once or in a minute."""
        if self.sessions >= self._limits.sessions:
            raise TurnedAway("limit", f"this token has {self.sessions} sessions already", retryable=True)
        recent = self._recent_starts()
        if self._limits.starts_per_minute is not None:
            if len(recent) >= self._limits.starts_per_minute:
                raise TurnedAway("limit", f"this token has started {len(recent)} sessions in a minute", retryable=True)
            self._starts = [*recent, anyio.current_time()]
        self.sessions += 1

    def end_session(self) -> None:
        """One session less."""
        self.sessions -= 1

    async def spend(self, size: int) -> None:
        """Return when `size` bytes more are within the rate: at once, unless this token's clients have been faster."""
        rate = self._limits.bytes_per_second
        if rate is None:
            return
        now = anyio.current_time()
        # a second's worth may be taken at once; whoever took more waits for what was taken before
        self._free_at = max(self._free_at, now - 1.0) + size / rate
        if self._free_at > now:
            await anyio.sleep(self._free_at - now)

    def _recent_starts(self) -> list[float]:
        since = anyio.current_time() - _MINUTE
        return [start for start in self._starts if start > since]


# --- `Crowd`: the connections that are not admitted, or not any more: how many there may be, and which of them has to leave.


_NETWORK_BITS: Final = 64
"""Of an IPv6 address: the network of one customer, which could use another address of it for each connection."""


class Crowd:
    """At most `full` connections, and at most `per_source` of one source, whatever comes. Nothing here waits.

    From half of `full` on, a random one has to leave for a newcomer, with a probability that grows from 0 to 1 when it is full. First
    those go that have been refused and only linger, the oldest first; then a random one of the source with the most. `draw` gives numbers
    from 0 to below 1.
    """

    def __init__(self, *, full: int, per_source: int, draw: Callable[[], float] | None = None) -> None:
        self._full = full
        self._early = full // 2
        self._per_source = per_source
        self._draw = draw or random.SystemRandom().random
        self._places: dict[anyio.CancelScope, str] = {}  # in the order they came
        self._lingering: dict[anyio.CancelScope, None] = {}  # those of them that were refused
        self._of_source: Counter[str] = Counter()
        self.evicted: int = 0

    def __len__(self) -> int:
        return len(self._places)

    @contextmanager
    def hold(self, scope: anyio.CancelScope, *, source: str, lingers: bool = False) -> Iterator[None]:
        """A block in which a connection of `source` stands here, and may have to leave: `scope` is cancelled then."""
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
            self._evict(source)
        size = len(self._places)
        if size >= self._full or (size > self._early and self._draw() < (size - self._early) / (self._full - self._early)):
            lingering = next(iter(self._lingering), None)
            if lingering is not None:
                self._show_out(lingering)
            else:
                self._evict(self._of_source.most_common(1)[0][0])

    def _evict(self, source: str) -> None:
        """One of this source: the oldest that lingers, else a random one."""
        members = [scope for scope, owner in self._places.items() if owner == source]
        lingering = next((scope for scope in members if scope in self._lingering), None)
        self._show_out(members[int(self._draw() * len(members))] if lingering is None else lingering)

    def _show_out(self, scope: anyio.CancelScope) -> None:
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


def source_of(peer: str) -> str:
    """Return the source that a peer such as `192.0.2.1:4711` counts for: its address without the port; of IPv6, the network of 64 bits."""
    host = peer.rpartition(":")[0].strip("[]").partition("%")[0] or peer
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, _NETWORK_BITS), strict=False))
    return str(getattr(address, "ipv4_mapped", None) or address)


ANYBODY = "anybody"
"""The owner of every session of a gateway without tokens."""


class Door:
    """Admits by token and origin, and keeps what each owner has taken of the limits.

    `origins` are the values of a browser's `Origin` header that may open a WebSocket, written `https://example.org`; every other page
    is refused, for a browser lets any page connect to any address. `draw` is the chance in `Crowd`.
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
            raise ConfigurationError("origins is a collection of origins, each like 'https://example.org'", option="origins")
        self._tokens = tokens
        self._origins = frozenset(origin.rstrip("/").lower() for origin in origins)
        self._limits = limits
        self._crowd = Crowd(full=limits.half_open, per_source=limits.half_open_per_address, draw=draw)
        self._allowances: dict[str, Allowance] = {}

    @property
    def needs_token(self) -> bool:
        """Whether somebody without a token stays outside."""
        return bool(self._tokens)

    @property
    def half_open(self) -> int:
        """Connections that have not said who they are, and those that were refused and linger."""
        return len(self._crowd)

    @property
    def evicted(self) -> int:
        """How many of those had to leave for others."""
        return self._crowd.evicted

    @contextmanager
    def knock(self, peer: str = "") -> Iterator[anyio.CancelScope]:
        """A block for everything before admission, cancelled when it takes too long, or when others need its place (see `Crowd`)."""
        with anyio.move_on_after(self._limits.handshake_timeout) as scope, self._crowd.hold(scope, source=source_of(peer)):
            yield scope

    @contextmanager
    def linger(self, peer: str, *, seconds: float) -> Iterator[anyio.CancelScope]:
        """A block for the last words to a connection that was refused: cancelled after `seconds`, and the first to leave for others."""
        with anyio.move_on_after(seconds) as scope, self._crowd.hold(scope, source=source_of(peer), lingers=True):
            yield scope

    def admit(self, token: str | None, *, certified: str | None = None) -> str:
        """The owner of this token. Without tokens: the name in the client's certificate, if it had to show one, or `ANYBODY`.

        Raises:
            TurnedAway: there is no token, or it is nobody's; which of both is all that is said.
        """
        if not self._tokens:
            return f"cert:{certified}" if certified else ANYBODY
        if token is None:
            raise TurnedAway("auth", "a token is needed")
        owner = self._tokens.owner(token)
        if owner is None:
            raise TurnedAway("auth", "this token is not accepted")
        return owner

    def check_origin(self, origin: str | None) -> None:
        """Raise `TurnedAway` for a page of a browser that was not told to be welcome; programs send no `Origin`."""
        if origin is not None and origin.rstrip("/").lower() not in self._origins:
            raise TurnedAway("origin", "pages of this origin are not let in")

    def allowance(self, owner: str) -> Allowance:
        """What this owner has left."""
        if owner not in self._allowances:
            # only owners with something to remember are kept: with client certificates, anybody's name could become one
            for idle in [name for name, allowance in self._allowances.items() if allowance.is_idle]:
                del self._allowances[idle]
            self._allowances[owner] = Allowance(self._limits)
        return self._allowances[owner]
