"""Which node of a Redis or Valkey cluster has a key: slots, what `CLUSTER SLOTS` says, and redirections. Without I/O."""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from claude_transport.redis.resp import RespError

SLOTS: Final = 16384

_MOST_RANGES: Final = SLOTS
_REDIRECTION: Final = re.compile(r"(MOVED|ASK) (\d{1,5}) ([\w.:-]{0,255}):(\d{1,5})", re.ASCII)
_HOST: Final = re.compile(r"[\w.:-]{1,255}", re.ASCII)


class NodeAddress(NamedTuple):
    """Where a node of a cluster listens. An empty `host` is the host that was asked."""

    host: str
    port: int


class Redirection(NamedTuple):
    """What a node says of a key that it does not have. With `asks`, its slot is being moved, and only this call goes to `node`."""

    slot: int
    node: NodeAddress
    asks: bool


def slot_of(key: str) -> int:
    """Return the slot of a key, or of a channel. What stands in the first braces decides alone, when there is something."""
    _, opened, rest = key.partition("{")
    tag, closed, _ = rest.partition("}")
    hashed = tag if opened and closed and tag else key
    return binascii.crc_hqx(hashed.encode("utf-8", "surrogatepass"), 0) % SLOTS


def redirection_of(error: RespError) -> Redirection | None:
    """Return where an error of a node leads; None for any other error."""
    found = _REDIRECTION.fullmatch(str(error))
    if found is None or not 0 < int(found[4]) < 2**16 or int(found[2]) >= SLOTS:
        return None
    return Redirection(int(found[2]), NodeAddress(found[3], int(found[4])), asks=found[1] == "ASK")


def ranges_of(answer: Any) -> Iterator[tuple[range, NodeAddress]]:
    """Yield the slots of each primary, from the answer to `CLUSTER SLOTS`. Raises `ValueError` for what no node says."""
    if not isinstance(answer, list) or len(answer) > _MOST_RANGES:
        raise ValueError("a cluster has said no list of slots")
    for row in answer:
        match row:
            case [int() as first, int() as last, [host, int() as port, *_], *_] if 0 <= first <= last < SLOTS and 0 < port < 2**16:
                yield range(first, last + 1), NodeAddress(_host_of(host), port)
            case _:
                raise ValueError("a cluster has said slots that cannot be read")


def _host_of(said: Any) -> str:
    host = said.decode("utf-8", "replace") if isinstance(said, bytes) else ""
    if host and not _HOST.fullmatch(host):
        raise ValueError("a cluster has said the name of a node that cannot be one")
    return host
