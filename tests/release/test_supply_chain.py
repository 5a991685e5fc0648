"""Which licences of dependencies are refused. `nox -s supply_chain` asks the packages themselves."""

from __future__ import annotations

import pytest
from supply_chain import refused


@pytest.mark.parametrize(
    ("licence", "is_refused"),
    [
        ("MIT License", False),
        ("BSD-3-Clause", False),
        ("PSF-2.0", False),
        ("Apache-2.0 OR GPL-3.0-only", False),
        ("GPL-3.0-only OR Apache-2.0", False),
        ("Apache-2.0 AND GPL-3.0-only", True),
        ("Apache Software License; MIT License", False),
        ("MIT License; GNU Affero General Public License v3", True),
        ("GNU General Public License v3 (GPLv3)", True),
        ("UNKNOWN", True),
        ("", True),
    ],
)
def test_a_licence_that_asks_more_than_to_be_named_is_refused(licence: str, is_refused: bool) -> None:
    assert refused([{"Name": "a", "License": licence}]) == ([f"a: {licence}"] if is_refused else [])
