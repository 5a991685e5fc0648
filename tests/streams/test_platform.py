"""Platforms without child processes get a clear error."""

from __future__ import annotations

import pytest

from claude_transport.errors import ConfigurationError
from claude_transport.streams.process import check_platform


@pytest.mark.parametrize("platform", ["linux", "darwin", "freebsd14"])
def test_children_can_be_started_on_posix(platform: str) -> None:
    check_platform(platform)


def test_windows_is_refused_with_the_remedy_before_anything_is_started() -> None:
    with pytest.raises(ConfigurationError, match="WSL") as caught:
        check_platform("win32")
    assert caught.value.code == "config.unsupported_platform"
