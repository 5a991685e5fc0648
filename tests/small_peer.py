"""A peer that answers `initialize` and exits at the end of its input: the smallest program with which a `Query` has a session."""

from __future__ import annotations

from pathlib import Path

_SCRIPT = r"""#!/bin/sh
read -r line
id=${line#*'"request_id"'}
id=${id#*\"}
id=${id%%\"*}
printf '{"type":"control_response","response":{"subtype":"success","request_id":"%s","response":{}}}\n' "$id"
exec cat > /dev/null
"""


def small_peer(folder: Path) -> Path:
    """Write the program into `folder`, and return its path."""
    path = folder / "claude"
    path.write_text(_SCRIPT)
    path.chmod(0o755)
    return path
