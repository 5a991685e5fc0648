"""What `nox -s release_check` says of two builds that differ, and of a wheel with something else in it."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest
from reproducible import differences

MODULE = {"claude_transport/__init__.py": b"", "claude_transport/py.typed": b"", "claude_transport/wire/schemas/2.1.9/in.json": b"{}"}


LINKED = b"Name: claude-transport\nProject-URL: Source, https://example.org/a/b\n"


def built(folder: Path, *, wheel: dict[str, bytes], sdist: dict[str, bytes], metadata: bytes = LINKED) -> Path:
    """Make a wheel and an sdist with these files."""
    folder.mkdir()
    with zipfile.ZipFile(folder / "claude_transport-1-py3-none-any.whl", "w") as archive:
        for name, data in {**wheel, "claude_transport-1.dist-info/METADATA": metadata}.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    with tarfile.open(folder / "claude_transport-1.tar", "w") as archive:
        for name, data in {**sdist, "tests/test_a.py": b""}.items():
            member = tarfile.TarInfo(f"claude_transport-1/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    (folder / "claude_transport-1.tar").rename(folder / "claude_transport-1.tar.gz")
    return folder


def test_two_equal_builds_have_no_difference(tmp_path: Path) -> None:
    both = [built(tmp_path / name, wheel=MODULE, sdist=MODULE) for name in ("one", "other")]
    assert differences(*both) == []


def test_a_file_that_differs_is_named_with_both_digests(tmp_path: Path) -> None:
    one = built(tmp_path / "one", wheel=MODULE, sdist=MODULE)
    other = built(tmp_path / "other", wheel={**MODULE, "claude_transport/__init__.py": b"1"}, sdist=MODULE)
    (said,) = differences(one, other)
    assert said.startswith("claude_transport-1-py3-none-any.whl: ")
    assert len(set(said.partition(": ")[2].split(" and "))) == 2


@pytest.mark.parametrize("name", ["claude_transport/notes.md", "tests/test_a.py", "claude_transport/wire/schemas/x.py.json", "secret.pem"])
def test_what_no_wheel_should_hold_is_named(name: str, tmp_path: Path) -> None:
    more = {**MODULE, name: b""}
    both = [built(tmp_path / folder, wheel=more, sdist=more) for folder in ("one", "other")]
    assert f"{name} is no file of the package" in differences(*both)


def test_a_module_that_only_the_sdist_has_is_named(tmp_path: Path) -> None:
    more = {**MODULE, "claude_transport/late.pyi": b""}
    both = [built(tmp_path / folder, wheel=MODULE, sdist=more) for folder in ("one", "other")]
    assert differences(*both) == ["claude_transport/late.pyi is in only one of the wheel and the sdist"]


def test_a_release_without_links_to_its_repository_is_refused_with_the_variable_to_set(tmp_path: Path) -> None:
    both = [built(tmp_path / name, wheel=MODULE, sdist=MODULE, metadata=b"Name: claude-transport\n") for name in ("one", "other")]
    assert differences(*both) == ["there are no project URLs: set CLAUDE_TRANSPORT_REPOSITORY to the address of the repository"]
