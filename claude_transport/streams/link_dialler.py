"""`LinkDialler`: makes the connections of a link, the first one and those after a cut."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import anyio
import msgspec

from claude_transport.backoff import Backoff
from claude_transport.errors import AuthenticationError, CLIConnectionError, ConfigurationError, ConnectionLost, ConnectTimeout
from claude_transport.printable import printable
from claude_transport.protocol.link import LinkEnd
from claude_transport.protocol.link_frames import LINK_VERSION, Hello
from claude_transport.streams.link_handshake import ByteStreamOpener, LinkConnection, open_link_connection

__all__ = ["LinkDialler"]

logger: logging.Logger = logging.getLogger(__name__)


class LinkDialler:
    """Dials `opener` and says hello; what a hello holds beside the positions of its end is given once, here."""

    def __init__(
        self,
        opener: ByteStreamOpener,
        *,
        token: str | None,
        options: Mapping[str, Any],
        trace: Mapping[str, str],
        connect_timeout: float,
        backoff: Backoff,
    ) -> None:
        self._opener = opener
        self._hello = Hello(version=LINK_VERSION, token=token, options=dict(options), trace=dict(trace))
        self._connect_timeout = connect_timeout
        self._backoff = backoff
        self._delays: Iterator[float] = iter(())
        self._progress = (-1, -1)

    async def dial(self, end: LinkEnd, *, session: str | None = None, timeout: float | None = None) -> LinkConnection:
        """A connection on which `end` can go on.

        Raises:
            CLIConnectionError: there is nobody, nobody in time (`ConnectTimeout`), or somebody who refuses.
            ReplayGap: the two ends cannot be brought together again.
            ProtocolError: the other side claims what cannot be.
        """
        timeout = self._connect_timeout if timeout is None else min(timeout, self._connect_timeout)
        hello = msgspec.structs.replace(self._hello, session=session, received=end.received, replay_from=end.replay_from, window=end.window)
        try:
            with anyio.fail_after(timeout):
                connection = await open_link_connection(self._opener, hello)
        except TimeoutError as exc:
            raise ConnectTimeout(f"no welcome within {timeout:g} s", waited=timeout) from exc
        except OSError as exc:
            raise CLIConnectionError(f"cannot connect: {exc}") from exc
        welcome = connection.welcome
        try:
            end.resume(received=welcome.received, replay_from=welcome.replay_from, window=welcome.window)
        except BaseException:
            with anyio.CancelScope(shield=True):  # forcefully: it does not wait for anybody
                await anyio.aclose_forcefully(connection.stream)
            raise
        return connection

    async def redial(self, end: LinkEnd, *, session: str, lease: float) -> LinkConnection:
        """A connection that continues `session`, tried again and again for `lease` seconds.

        Raises:
            AuthenticationError: the token is not accepted any more.
            ConnectionLost: it will not come back: the lease has run out, the session is gone, or trying again is no use.
            ReplayGap, ProtocolError: as `dial()`.
        """
        deadline = anyio.current_time() + lease
        progress = (end.received, end.acknowledged)
        if progress != self._progress:
            # the last connection was good for something; one that is cut again and again before that is tried ever more slowly
            self._progress = progress
            self._delays = iter(self._backoff)
            delay = 0.0
        else:
            delay = next(self._delays)
        while True:
            await anyio.sleep(max(0.0, min(delay, deadline - anyio.current_time())))
            try:
                return await self.dial(end, session=session, timeout=max(deadline - anyio.current_time(), 0.001))
            except (AuthenticationError, ConnectionLost):
                raise
            except (CLIConnectionError, ConfigurationError) as exc:
                if not exc.retryable:
                    raise ConnectionLost(f"the connection was cut, and cannot be made again: {exc}") from exc
                logger.info("the link is cut, and could not be made again yet: %s", printable(exc))
                if anyio.current_time() >= deadline:
                    raise ConnectionLost(f"the connection was cut, and could not be made again within {lease:g} s: {exc}") from exc
            delay = next(self._delays)
