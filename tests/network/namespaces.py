"""A second host on this machine: a network namespace with a cable to it that can be pulled, and made to lose packets."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum


class Missing(Enum):
    """Why this machine cannot play two hosts."""

    linux = "network namespaces are Linux's"
    root = "only root may make a network namespace"
    iproute2 = "iproute2 is not installed"
    refused = "the kernel, or a container, does not let even root make a network namespace"
    lossy = "the kernel has no queue that loses packets (neither netem nor tbf)"


class FarHost:
    """The namespace `name`, reached at `address`."""

    def __init__(self, number: int) -> None:
        self.name = f"claude-far-{number}"
        self.cable = f"ctnear{number % 10**5}"
        self._far_end = f"ctfar{number % 10**5}"
        net = number % 2**14
        self._near = f"198.{18 + net // 2**13}.{net // 32 % 256}.{net % 32 * 8 + 1}"  # 198.18.0.0/15 is kept free for tests of networks
        self.address = f"{self._near.rpartition('.')[0]}.{net % 32 * 8 + 2}"

    def set_up(self) -> None:
        ip("netns", "add", self.name)
        ip("link", "add", self.cable, "type", "veth", "peer", "name", self._far_end, "netns", self.name)
        ip("addr", "add", f"{self._near}/29", "dev", self.cable)
        ip("link", "set", self.cable, "up")
        ip("-n", self.name, "link", "set", self._far_end, "up")
        ip("-n", self.name, "addr", "add", f"{self.address}/29", "dev", self._far_end)

    def tear_down(self) -> None:
        for command in (("link", "del", self.cable), ("netns", "del", self.name)):
            subprocess.run(["ip", *command], capture_output=True, check=False)

    def partition(self) -> None:
        """From now on it hears nothing, and nobody is told: packets to an address that is not there are dropped without a word."""
        ip("-n", self.name, "addr", "del", f"{self.address}/29", "dev", self._far_end)

    def heal(self) -> None:
        ip("-n", self.name, "addr", "add", f"{self.address}/29", "dev", self._far_end)

    def lose_packets(self) -> Missing | None:
        """Make both directions lose packets: at random where the kernel can, else whatever is more than a few at once."""
        for inside, device in (((), self.cable), (("-n", self.name), self._far_end)):
            for queue in (("netem", "loss", "5%"), ("tbf", "rate", "20mbit", "burst", "4k", "limit", "4k")):
                done = subprocess.run(["tc", *inside, "qdisc", "replace", "dev", device, "root", *queue], capture_output=True, check=False)
                if done.returncode == 0:
                    break
            else:
                return Missing.lossy
        return None

    def lost_packets(self) -> int:
        """Packets that the queue at this end of the cable has dropped."""
        shown = subprocess.run(["tc", "-s", "qdisc", "show", "dev", self.cable], capture_output=True, check=True, text=True).stdout
        return int(shown.split("dropped ", 1)[1].split(",", 1)[0])

    @contextmanager
    def running(self, *arguments: str) -> Iterator[str]:
        """A Python program on it: the first line it prints. It is ended with the block."""
        command = ["ip", "netns", "exec", self.name, sys.executable, *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
            try:
                assert program.stdout is not None
                yield program.stdout.readline().strip()
            finally:
                program.kill()


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def what_is_missing() -> Missing | None:
    """None when this machine can play two hosts."""
    if sys.platform != "linux":
        return Missing.linux
    if os.geteuid() != 0:
        return Missing.root
    if shutil.which("ip") is None or shutil.which("tc") is None:
        return Missing.iproute2
    host = FarHost(os.getpid())
    try:
        host.set_up()
    except subprocess.CalledProcessError:
        return Missing.refused
    finally:
        host.tear_down()
    return None
