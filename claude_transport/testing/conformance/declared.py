"""`Declared`: a transport that declares every session term, for the clauses of wrappers; it notes what reaches it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import msgspec

from claude_transport.errors import NotConnected, TransportClosed
from claude_transport.launch.options import ClaudeOptions
from claude_transport.protocol.codec import decode_dict
from claude_transport.protocol.envelope import encode_line
from claude_transport.testing.wire import result
from claude_transport.transport import AtOnce, Client, Confidential, PermissionSetting, SessionTerms, Storage, Transport
from claude_transport.transports.mock import MockTransport

_OPTIONS = ClaudeOptions(env={"CONFORMANCE_TOKEN": "conformance-secret"})

MARK = "and conformance"
"""What `Declared` adds to the content of a prompt."""


def prompt(text: str, *, uuid: str) -> bytes:
    """Return the line of a prompt."""
    message = {"role": "user", "content": text}
    return encode_line({"type": "user", "message": message, "parent_tool_use_id": None, "session_id": "default", "uuid": uuid})


def text_of(line: bytes) -> str:
    """Return the content of the prompt on a line."""
    return str(decode_dict(line)["message"]["content"])


class Declared(Transport):
    """Declares a value for each field of `SessionTerms`, and notes each call of a method or a callback.

    What it does at once, it does not always: `takes_at_once` is how many of three lines it takes so.
    """

    def __init__(self, *, takes_at_once: int = 2) -> None:
        self.calls: list[tuple[str, object]] = []
        self.lines: list[bytes] = []
        self.may_store: anyio.Event = anyio.Event()
        self._takes_at_once = takes_at_once
        self._offered = 0
        self._state = "new"
        self._over = anyio.Event()

    def called(self, name: str) -> list[object]:
        """Return the argument of each call with that name."""
        return [argument for each, argument in self.calls if each == name]

    def attach(self, client: Client) -> SessionTerms:
        """Return terms in which no field has its default."""
        return SessionTerms(
            initialize={"conformance": 1},
            verbatim_prompts=True,
            permissions=(PermissionSetting("mode", "plan", "permission_mode"),),
            session_id="00000000-0000-4000-8000-000000000001",
            forks_session=True,
            structured_output=True,
            billing="subscription",
            agent="another-agent",
            session_class="ConformanceSession",
            thread={"conformance": 2},
            strict=True,
            before_prompt=self._before_prompt,
            on_prompt=lambda uuid: self.calls.append(("on_prompt", uuid)),
            on_failure=lambda failure: self.calls.append(("on_failure", failure)),
            find_cli_version=self._find_cli_version,
            hurry=lambda seconds: self.calls.append(("hurry", seconds)),
            at_once=AtOnce(self._connect_now, self._write_now, self._end_input_now, self._close_now),
            storage=Storage(lambda: not self.may_store.is_set(), self._wait_stored),
        )

    @property
    def confidential(self) -> Confidential:
        """Options and a value, as they are declared for a redactor."""
        return Confidential(options=_OPTIONS, values=("conformance-secret",))

    async def _before_prompt(self, line: bytes) -> bytes:
        self.calls.append(("before_prompt", line))
        await anyio.lowlevel.checkpoint()
        frame = decode_dict(line)
        frame["message"]["content"] = f"{frame['message']['content']} {MARK}"
        return msgspec.json.encode(frame) + b"\n"

    async def _find_cli_version(self, *, said: str | None) -> str | None:
        self.calls.append(("find_cli_version", said))
        await anyio.lowlevel.checkpoint()
        return said

    async def _wait_stored(self) -> None:
        self.calls.append(("wait_stored", None))
        await self.may_store.wait()

    # What it does at once: it declines to connect and to close, so that its methods do that.

    def _connect_now(self) -> bool:
        return False

    def _write_now(self, line: bytes) -> bool:
        self._offered += 1
        if self._offered % 3 >= self._takes_at_once:
            return False
        self._take(line)
        return True

    def _end_input_now(self) -> bool:
        self.calls.append(("end_input", "at once"))
        return True

    def _close_now(self) -> bool:
        return False

    # The six methods.

    async def connect(self) -> None:
        """Note the call, and be ready."""
        self.calls.append(("connect", None))
        await anyio.lowlevel.checkpoint()
        if self._state == "closed":
            raise TransportClosed("the transport is closed")
        self._state = "open"

    async def write(self, data: str | bytes) -> None:
        """Note the lines."""
        await anyio.lowlevel.checkpoint()
        for line in (data.encode() if isinstance(data, str) else data).splitlines(keepends=True):
            self._take(line)

    def _take(self, line: bytes) -> None:
        if self._state != "open":
            raise (TransportClosed if self._state == "closed" else NotConnected)("the transport is not open")
        self.lines.append(line)

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Return an iterator over nothing, which ends when the transport is closed."""
        return _Silence(self._over)

    async def end_input(self) -> None:
        """Note the call."""
        self.calls.append(("end_input", None))
        await anyio.lowlevel.checkpoint()

    async def close(self) -> None:
        """Note the call, and end the iterators."""
        self.calls.append(("close", None))
        self._state = "closed"
        self._over.set()
        await anyio.lowlevel.checkpoint()

    def is_ready(self) -> bool:
        """Return True between `connect()` and `close()`."""
        return self._state == "open"


class _Silence:
    """Gives nothing, and ends with an event."""

    def __init__(self, over: anyio.Event) -> None:
        self._over = over

    def __aiter__(self) -> _Silence:
        return self

    async def __anext__(self) -> dict[str, Any]:
        await self._over.wait()
        raise StopAsyncIteration


class HoldingClaude(MockTransport):
    """A mock that answers each prompt, and with `holds` keeps each one back until `gate` is set."""

    def __init__(self, *, holds: bool, turns: int) -> None:
        super().__init__([result("done") for _ in range(turns)])
        self.gate: anyio.Event = anyio.Event()
        self._holds = holds
        self._begun = anyio.Event()

    def attach(self, client: Client) -> SessionTerms:
        """Return the terms of a mock, with a `before_prompt` that waits for the gate."""
        terms = super().attach(client)
        return terms.with_before_prompt(self._wait) if self._holds else terms

    async def next_batch(self) -> Sequence[bytes]:
        """Wait for the first line: a mock that gets none for a while plays everything and ends, and a wrapper may take its time."""
        await self._begun.wait()
        return await super().next_batch()

    async def write(self, data: str | bytes) -> None:
        """Take the line, and begin to answer."""
        await super().write(data)
        self._begun.set()

    async def close(self) -> None:
        """End the stream."""
        self._begun.set()
        await super().close()

    async def _wait(self, line: bytes) -> bytes:
        await self.gate.wait()
        return line

    @property
    def prompts(self) -> list[str]:
        """The texts of the prompts that it got."""
        return _texts(self.written)

    def prompts_before(self, subtype: str) -> list[str] | None:
        """Return the texts of the prompts that it got before the request; None when the request has not come."""
        for place, message in enumerate(self.written):
            if message["type"] == "control_request" and message["request"]["subtype"] == subtype:
                return _texts(self.written[:place])
        return None


def _texts(messages: list[dict[str, Any]]) -> list[str]:
    return [str(message["message"]["content"]) for message in messages if message["type"] == "user"]
