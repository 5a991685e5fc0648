"""`RedisCluster`: three primaries and three replicas, real redis-servers on loopback, of which slots move and servers die."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from redis_server import free_port, redis_program

from claude_transport.redis.resp import RespError, RespParser, encode_command
from claude_transport.redis.slots import SLOTS, slot_of

_LIMIT = 60.0
"""Seconds for what a cluster does by itself: it takes two or three."""


class ClusterNode:
    """One server of a cluster. `call()` blocks: use it in a thread when an event loop has to run meanwhile."""

    def __init__(self, folder: Path, settings: Sequence[str], *, tls: bool) -> None:
        folder.mkdir(parents=True)
        self.id = ""
        self._has_tls = tls
        self.port = self.bus = self.tls_port = 0
        where = ["--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
        cluster = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1500", "--appendonly", "yes", "--appendfsync", "everysec"]
        replication = ["--repl-diskless-sync-delay", "0"]  # else each replica waits five seconds for others to be served with it
        self._command = [redis_program(), *where, *cluster, *replication, *settings]
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Start it for the first time. A port that was free may be taken a moment later: then others are tried."""
        for _ in range(5):
            self.port, self.bus, self.tls_port = free_port(), free_port(), free_port() if self._has_tls else 0
            if self._starts():
                self.id = self.call("CLUSTER", "MYID").decode()
                return
        raise AssertionError("redis-server did not start")

    def start(self) -> None:
        """Start it again, on the same ports."""
        assert self._starts(), "redis-server did not start"

    def _starts(self) -> bool:
        ports = ["--port", str(self.port), "--cluster-port", str(self.bus), "--tls-port", str(self.tls_port)]
        self._process = subprocess.Popen([*self._command, *ports], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert self._process.stdout is not None
        if any(b"Ready to accept connections" in line for line in self._process.stdout):  # bounded by the time of the test
            return True
        self.kill()
        return False

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def call(self, *words: str | bytes | int) -> bytes:
        """Make a call. Returns a text as it came, anything else as Python shows it; an error of the server is raised."""
        parser = RespParser()
        with socket.create_connection(("127.0.0.1", self.port), timeout=_LIMIT) as connection:
            connection.sendall(encode_command(words))
            while not (answers := parser.feed(connection.recv(2**20))):
                pass
        if isinstance(answers[0], RespError):
            raise answers[0]
        return answers[0] if isinstance(answers[0], bytes) else repr(answers[0]).encode()

    def epoch_of(self, other: ClusterNode) -> str:
        """The configuration epoch of a node as this one knows it."""
        (line,) = (each for each in self.call("CLUSTER", "NODES").decode().splitlines() if each.startswith(other.id))
        return line.split()[6]

    def until(self, said: str, *words: str) -> None:
        """Wait until a call says something."""
        until = time.monotonic() + _LIMIT
        while said.encode() not in self.call(*words):
            assert time.monotonic() < until, self.call(*words)
            time.sleep(0.02)


class RedisCluster:
    """`primaries` have a third of the slots each, and `replicas[i]` follows `primaries[i]`. With `tls`, each has a second port for it."""

    def __init__(self, folder: Path, *settings: str, tls: bool = False) -> None:
        self._folder, self._settings, self._tls = folder, settings, tls
        self.nodes = [ClusterNode(folder / str(number), settings, tls=tls) for number in range(6)]
        self.primaries, self.replicas = self.nodes[:3], self.nodes[3:]

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.primaries[0].port}/0"

    def start(self) -> None:
        for node in self.nodes:
            node.begin()
        share = SLOTS // 3 + 1
        for number, node in enumerate(self.primaries):
            node.call("CLUSTER", "ADDSLOTSRANGE", number * share, min((number + 1) * share, SLOTS) - 1)
            node.call("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for node in self.nodes[1:]:
            node.call("CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port, self.nodes[0].bus)
        for node in self.nodes:
            node.until("cluster_known_nodes:6", "CLUSTER", "INFO")
        for primary, replica in zip(self.primaries, self.replicas, strict=True):
            replica.until(primary.id, "CLUSTER", "NODES")
            replica.call("CLUSTER", "REPLICATE", primary.id)
        for node in self.nodes:
            node.until("cluster_state:ok", "CLUSTER", "INFO")
        for replica in self.replicas:
            replica.until("master_link_status:up", "INFO", "replication")

    def add(self) -> ClusterNode:
        """Start one more primary, without slots."""
        node = ClusterNode(self._folder / str(len(self.nodes)), self._settings, tls=self._tls)
        self.nodes.append(node)
        self.primaries.append(node)
        node.begin()
        node.call("CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port, self.nodes[0].bus)
        for each in self.primaries:
            each.until(node.id, "CLUSTER", "NODES")
        node.until("cluster_state:ok", "CLUSTER", "INFO")
        return node

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()

    def primary_of(self, key: str) -> ClusterNode:
        """The node that has a key now."""
        for node in self.nodes:
            try:
                node.call("TYPE", key)
            except (RespError, OSError):
                continue
            return node
        raise AssertionError(f"no node has {key}")

    def move_slot(self, key: str, *, to: ClusterNode) -> None:
        """Move the slot of a key with all that is in it, as `redis-cli --cluster reshard` does."""
        source = self.primary_of(key)
        self.move_keys(key, to=to)
        self.end_move(key, source, to=to)

    def move_keys(self, key: str, *, to: ClusterNode) -> None:
        """Begin to move the slot of a key: all keys of now are moved, and the node that had them sends each call for them on."""
        slot, source = slot_of(key), self.primary_of(key)
        to.call("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", to.id)
        self._migrate(source, slot, to)

    def _migrate(self, source: ClusterNode, slot: int, to: ClusterNode) -> None:
        while keys := self.keys_in(source, slot):
            source.call("MIGRATE", "127.0.0.1", to.port, "", 0, 10_000, "KEYS", *keys)

    def end_move(self, key: str, source: ClusterNode, *, to: ClusterNode) -> None:
        """Give the slot to the new node. Returns when all primaries know how new that is: another move before that could undo this one."""
        slot = slot_of(key)
        self._migrate(source, slot, to)
        for node in (to, source, *(each for each in self.primaries if each not in (to, source))):
            node.call("CLUSTER", "SETSLOT", slot, "NODE", to.id)
        until = time.monotonic() + _LIMIT
        while len({node.epoch_of(to) for node in self.primaries}) > 1:
            assert time.monotonic() < until
            time.sleep(0.01)

    @staticmethod
    def keys_in(node: ClusterNode, slot: int) -> list[str]:
        """Ten keys of a slot, or what is left of them."""
        return node.call("CLUSTER", "GETKEYSINSLOT", slot, 10).decode().split("'")[1::2]


@contextmanager
def redis_cluster(folder: Path, *settings: str, tls: bool = False) -> Iterator[RedisCluster]:
    """A running cluster, which is gone when the block ends."""
    cluster = RedisCluster(folder, *settings, tls=tls)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()
