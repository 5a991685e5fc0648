"""The index of the rehearsals behaves like a real one: a file is taken once, as it was sent, and installers find it."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus

import pytest
from local_index import LocalIndex, digest, local_index

WHEEL = "some_thing-1.0-py3-none-any.whl"
DATA = bytes(range(256)) * 40 + b"\r\n--\n"


@pytest.fixture
def index() -> Iterator[LocalIndex]:
    with local_index() as running:
        yield running


def get(address: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def post(index: LocalIndex, name: str, data: bytes, *, said: str | None = None) -> int:
    """Upload a file as twine does, with a digest that may be wrong."""
    parts = [
        b'--B\r\nContent-Disposition: form-data; name="sha256_digest"\r\n\r\n' + (said or digest(data)).encode(),
        f'--B\r\nContent-Disposition: form-data; name="content"; filename="{name}"\r\n'.encode()
        + b"Content-Type: application/octet-stream\r\n\r\n"
        + data,
        b"--B--\r\n",
    ]
    request = urllib.request.Request(index.address, b"\r\n".join(parts), {"Content-Type": "multipart/form-data; boundary=B"}, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def test_what_was_uploaded_is_found_with_its_digest_and_comes_back_unchanged(index: LocalIndex) -> None:
    assert post(index, WHEEL, DATA) == HTTPStatus.OK
    status, page = get(index.simple + "some-thing/")
    assert status == HTTPStatus.OK
    (link,) = re.findall(r'href="/([^"]+)"', page.decode())
    assert link.partition("#")[2] == f"sha256={digest(DATA)}"
    assert get(index.address + link.partition("#")[0]) == (HTTPStatus.OK, DATA)
    assert index.downloads == [WHEEL]


def test_a_file_is_taken_only_once(index: LocalIndex) -> None:
    assert [post(index, WHEEL, data) for data in (DATA, b"other")] == [HTTPStatus.OK, HTTPStatus.CONFLICT]
    assert index.files == {WHEEL: DATA}


@pytest.mark.parametrize(("name", "said"), [(WHEEL, "0" * 64), ("../a.whl", None), ("notes.txt", None)])
def test_a_file_that_arrived_changed_or_is_no_package_is_refused(name: str, said: str | None, index: LocalIndex) -> None:
    assert post(index, name, DATA, said=said) == HTTPStatus.BAD_REQUEST
    assert index.files == {}


@pytest.mark.parametrize("path", ["simple/anyio/", "files/anyio.whl", "", "simple/"])
def test_what_is_not_there_is_not_found(path: str, index: LocalIndex) -> None:
    assert post(index, WHEEL, DATA) == HTTPStatus.OK
    assert get(index.address + path)[0] == HTTPStatus.NOT_FOUND
