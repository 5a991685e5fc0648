"""The sender at the speed of C: threads that hand prepared bytes to sockets, in every medium. The reader is the bottleneck."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from claude_transport.streams.compression import load_zstd
from claude_transport.streams.websocket import client_protocol, parse_url, server_protocol
from wire.flow import CHUNK_BYTES, ECHO, SINGLE, Flow

__all__ = ["fast_side"]

_MESSAGE_BYTES = 2**20


def fast_side(folder: Path, flow: Flow) -> dict[str, str]:
    """Start to serve, in threads. Return the URLs by name of the medium."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    plain, websocket, path = _Plain(flow), _WebSocket(flow, compression=False), folder / "socket"
    attendants: dict[str, tuple[str, Callable[[Any], None]]] = {
        "tcp": ("tcp", plain.attend),
        "unix": ("unix", plain.attend),
        "tls": ("tls", plain.attend),
        "tcp+zstd": ("tcp", _Zstd(flow).attend),
        "ws": ("ws", websocket.attend),
        "wss": ("wss", websocket.attend),
        "ws+deflate": ("ws", _WebSocket(flow, compression=True).attend),
    }
    urls = {}
    for name, (scheme, attend) in attendants.items():
        if scheme == "unix":
            listening, urls[name] = socket.socket(socket.AF_UNIX), f"unix://{path}"
            listening.bind(str(path))
            listening.listen()
        else:
            listening = socket.create_server(("127.0.0.1", 0))
            urls[name] = f"{scheme}://127.0.0.1:{listening.getsockname()[1]}"
        wrap = context if scheme in {"tls", "wss"} else None
        threading.Thread(target=_accept, args=(listening, wrap, attend), daemon=True).start()
    return urls


def _accept(listening: socket.socket, context: ssl.SSLContext | None, attend: Callable[[Any], None]) -> None:
    while True:
        connection, _ = listening.accept()
        with contextlib.suppress(OSError), connection:  # a reader may leave early
            if connection.family != getattr(socket, "AF_UNIX", None):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is None:
                attend(connection)
            else:
                with context.wrap_socket(connection, server_side=True) as encrypted:
                    attend(encrypted)


def _flood(connection: Any, pieces: list[bytes], times: int) -> None:
    for _ in range(times):
        for piece in pieces:
            connection.sendall(piece)


class _Plain:
    """Sends bytes as they are."""

    def __init__(self, flow: Flow) -> None:
        self._chunks, self._times = flow.chunks(), flow.times

    def attend(self, connection: Any) -> None:
        if connection.recv(CHUNK_BYTES) == ECHO:
            connection.sendall(ECHO)
        else:
            _flood(connection, self._chunks, self._times)
        while data := connection.recv(CHUNK_BYTES):
            connection.sendall(data)


class _Zstd:
    """Sends bytes inside one zstd frame for each direction, flushed after each chunk."""

    def __init__(self, flow: Flow) -> None:
        compress = self._compressor()
        self._pieces = [compress(chunk) for _ in range(flow.times) for chunk in flow.chunks()]

    def _compressor(self) -> Callable[[bytes], bytes]:
        zstd = load_zstd()
        compressor = zstd.ZstdCompressor(level=3)
        return lambda data: compressor.compress(data, compressor.FLUSH_BLOCK)

    def attend(self, connection: Any) -> None:
        compress, decompress = self._compressor(), load_zstd().ZstdDecompressor().decompress
        if decompress(connection.recv(CHUNK_BYTES)) == ECHO:
            connection.sendall(compress(ECHO))
        else:
            _flood(connection, self._pieces, 1)
        while data := connection.recv(CHUNK_BYTES):
            if plain := decompress(data):
                connection.sendall(compress(plain))


class _WebSocket:
    """Sends text messages: a chunk in each, or a line in each when the reader asks for that."""

    def __init__(self, flow: Flow, *, compression: bool) -> None:
        self._compression = compression
        self._times = flow.times
        self._batches = _framed(flow.chunks(), times=flow.times if compression else 1, compression=compression)
        self._single = [] if compression else _joined(_framed(flow.lines(), times=1, compression=False))

    def attend(self, connection: Any) -> None:
        protocol = server_protocol(compression=self._compression, max_message_bytes=_MESSAGE_BYTES)
        messages = self._messages(connection, protocol)
        asked = next(messages, b"")
        if asked == ECHO:
            for message in chain([asked], messages):
                protocol.send_text(message)
                connection.sendall(b"".join(protocol.data_to_send()))
        else:
            _flood(connection, self._single if asked == SINGLE else self._batches, 1 if self._compression else self._times)
            for _ in messages:
                pass  # until the closing frame

    def _messages(self, connection: Any, protocol: Any) -> Iterator[bytes]:
        while data := connection.recv(CHUNK_BYTES):
            protocol.receive_data(data)
            events = protocol.events_received()
            if protocol.state.name == "CONNECTING" and events:
                protocol.send_response(protocol.accept(events.pop(0)))
            connection.sendall(b"".join(protocol.data_to_send()))
            yield from (bytes(frame.data) for frame in events if int(frame.opcode) < 8)
            if protocol.state.name != "OPEN" and protocol.state.name != "CONNECTING":
                return


def _framed(messages: list[bytes], *, times: int, compression: bool) -> list[bytes]:
    """Return the frames of a server, after a handshake with our client."""
    client = client_protocol(parse_url("ws://127.0.0.1/"), compression=compression, max_message_bytes=_MESSAGE_BYTES)
    server = server_protocol(compression=compression, max_message_bytes=_MESSAGE_BYTES)
    client.send_request(client.connect())
    server.receive_data(b"".join(client.data_to_send()))
    request: Any = server.events_received()[0]
    server.send_response(server.accept(request))
    server.data_to_send()
    frames = []
    for _ in range(times):
        for message in messages:
            server.send_text(message)
            frames.append(b"".join(server.data_to_send()))
    return frames


def _joined(frames: list[bytes]) -> list[bytes]:
    """Yield the same bytes in pieces that are large enough for a system call each."""
    return [b"".join(frames[at : at + 250]) for at in range(0, len(frames), 250)]
