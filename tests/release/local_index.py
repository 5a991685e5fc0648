"""A package index on loopback, for rehearsals: it takes uploads and serves them. What it has, or what arrived changed, it refuses."""

from __future__ import annotations

import email
import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote, unquote


class LocalIndex(ThreadingHTTPServer):
    """The files of an index by their names, and the names of those that were downloaded."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.downloads: list[str] = []

    @property
    def address(self) -> str:
        """Where to upload to."""
        return f"http://127.0.0.1:{self.server_port}/"

    @property
    def simple(self) -> str:
        """What installers are told."""
        return f"{self.address}simple/"

    def page(self, project: str) -> str | None:
        """Return the page of a project, with a link and a digest for each file, or None when there is no such project."""
        found = {name: data for name, data in self.files.items() if normalised(name.partition("-")[0]) == normalised(project)}
        links = (f'<a href="/files/{quote(name)}#sha256={digest(data)}">{name}</a><br>' for name, data in sorted(found.items()))
        return "<!DOCTYPE html>\n<html><body>\n{}\n</body></html>\n".format("\n".join(links)) if found else None

    def upload(self, fields: dict[str, bytes], name: str) -> HTTPStatus:
        """Keep a file, and return what to answer."""
        if name in self.files:
            return HTTPStatus.CONFLICT
        if not re.fullmatch(r"[\w.+-]+(?:\.whl|\.tar\.gz)", name) or digest(fields["content"]) != fields["sha256_digest"].decode():
            return HTTPStatus.BAD_REQUEST
        self.files[name] = fields["content"]
        return HTTPStatus.OK


@contextmanager
def local_index() -> Iterator[LocalIndex]:
    """Serve an empty index until the block ends."""
    with LocalIndex() as index:
        thread = threading.Thread(target=index.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield index
        finally:
            index.shutdown()
            thread.join(10)


def digest(data: bytes) -> str:
    """Return the digest that links and uploads have."""
    return hashlib.sha256(data).hexdigest()


def normalised(project: str) -> str:
    """Return the name of a project as installers ask for it."""
    return re.sub(r"[-_.]+", "-", project).lower()


def parsed(content_type: str, body: bytes) -> tuple[dict[str, bytes], str]:
    """Return the fields of an uploaded form, and the name of its file."""
    form = email.message_from_bytes(b"Content-Type: " + content_type.encode() + b"\r\n\r\n" + body)
    fields, name = {}, ""
    for part in form.walk():
        if isinstance(data := part.get_payload(decode=True), bytes):
            fields[str(part.get_param("name", header="content-disposition"))] = data
            name = part.get_filename() or name
    return fields, name


class _Handler(BaseHTTPRequestHandler):
    @property
    def index(self) -> LocalIndex:
        assert isinstance(self.server, LocalIndex)
        return self.server

    def do_GET(self) -> None:
        kind, _, name = unquote(self.path).strip("/").partition("/")
        if kind == "simple" and (page := self.index.page(name)) is not None:
            self._answer(HTTPStatus.OK, page.encode(), "text/html; charset=utf-8")
        elif kind == "files" and name in self.index.files:
            self.index.downloads.append(name)
            self._answer(HTTPStatus.OK, self.index.files[name], "application/octet-stream")
        else:
            self._answer(HTTPStatus.NOT_FOUND)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(self.index.upload(*parsed(self.headers["Content-Type"], body)))

    def _answer(self, status: HTTPStatus, body: bytes = b"", kind: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Print nothing: the table of the rehearsal is what counts."""
