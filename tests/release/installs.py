"""Install the package with each extra alone, import what the extra is for, and tell what came along: `python tests/release/installs.py`.

Each installation is an environment of its own. The table has the packages, the megabytes and the seconds of each. It fails when an extra
does not do alone, or when the package without extras brings more than `MOST_PACKAGES` or `MOST_MEGABYTES`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

from supply_chain import ROOT, environment

MOST_PACKAGES = 20
MOST_MEGABYTES = 55  # with the compiled files that pip makes; 48 were measured
TOOLS_OF_VENV = ("pip", "setuptools")
IMPORTS = {
    "": "import claude_transport; claude_transport.Query, claude_transport.complete",
    "ws": "import claude_transport.streams.websocket, websockets",
    "zstd": "from backports import zstd",
    "mcp": "import claude_transport.bridge, mcp",
    "otel": "from claude_transport import TracingTransport; import opentelemetry.trace",
    "cli": "from claude_transport.app.main import main; main(['--version'])",
    "testing": "from claude_transport.testing import FakeMessagesAPI; FakeMessagesAPI",
    "redis": "import claude_transport.fleet, coredis",
    "all": "import claude_transport.fleet, claude_transport.bridge, mcp, coredis, websockets, h11, rich, opentelemetry.trace",
}
"""What is imported for each extra; the empty one is the package without extras."""


def main() -> int:
    """Install and import, print the table, and return 1 when something failed."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    failed = [f"{name}: there is no such extra, or no import for it" for name in sorted({"", *extras} ^ IMPORTS.keys())]
    print("| extra | packages | MB | seconds |", "|---|---|---|---|", sep="\n")
    for extra, code in IMPORTS.items():
        with tempfile.TemporaryDirectory() as folder:
            began = time.monotonic()
            programs = environment(Path(folder), f".[{extra}]" if extra else ".")
            seconds = time.monotonic() - began
            site = next(Path(folder).glob("[Ll]ib*/**/site-packages"))
            packages = len([path for path in site.glob("*.dist-info") if not path.name.startswith(("pip-", "setuptools-"))])
            size = sum(
                path.stat().st_size
                for path in site.rglob("*")
                if path.is_file() and path.relative_to(site).parts[0] not in ("pip", "setuptools")
            )
            print(f"| {extra or 'none'} | {packages} | {size / 1e6:.1f} | {seconds:.0f} |", flush=True)
            ran = subprocess.run([programs / "python", "-I", "-c", code], cwd=folder, capture_output=True, text=True, check=False)
            if ran.returncode:
                failed.append(f"{extra or 'none'}: {ran.stderr.strip().splitlines()[-1]}")
            if not extra and (packages > MOST_PACKAGES or size > MOST_MEGABYTES * 1e6):
                failed.append(f"more than {MOST_PACKAGES} packages or {MOST_MEGABYTES} MB come with the package alone")
    print(*failed, sep="\n", end="\n" if failed else "")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
