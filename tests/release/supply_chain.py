"""What an installation brings along: `python tests/release/supply_chain.py [sbom] [licences] [audit]`; all three without an argument.

`sbom` writes `sbom/claude-transport.cdx.json`, a list of all packages as CycloneDX. `licences` fails for a package whose licence asks more
than to be named. `audit` fails for a package with a known weakness; it needs the network. Each asks a fresh environment with all extras.
The tools are in another one, so that they are in no list.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOOLS = ("cyclonedx-bom>=7", "pip-audit>=2.9", "pip-licenses>=5")
FREE = ("Apache", "BSD", "ISC", "MIT", "MPL-2.0", "PSF", "Python Software Foundation", "Unlicense")
"""What is in the name of a licence under which anybody may use a package unchanged, if they name it."""


def refused(packages: Iterable[Mapping[str, str]]) -> list[str]:
    """Return the packages whose licence is not in `FREE`, each with it. `A OR B` needs one of them, `A AND B` and `A; B` need both."""
    return [
        f"{package['Name']}: {licence}"
        for package in packages
        for licence in [package["License"]]
        if not all(any(is_free(each) for each in part.split(" OR ")) for part in licence.replace(" AND ", ";").split(";"))
    ]


def is_free(licence: str) -> bool:
    return any(word.lower() in licence.lower() for word in FREE)


def environment(folder: Path, *packages: str) -> Path:
    """Make an environment with these packages, and return the folder of its programs."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    programs = folder / ("Scripts" if sys.platform == "win32" else "bin")
    subprocess.run([programs / "python", "-m", "pip", "install", "--quiet", *packages], cwd=ROOT, check=True)
    return programs


def main(asked: set[str]) -> int:
    """Ask, and return 1 when a licence or a weakness was found."""
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        installed, tools = environment(Path(folder, "package"), ".[all]"), environment(Path(folder, "tools"), *TOOLS)
        python = installed / "python"
        if "sbom" in asked:
            to = ROOT / "sbom" / "claude-transport.cdx.json"
            to.parent.mkdir(exist_ok=True)
            options = ["--pyproject", ROOT / "pyproject.toml", "--mc-type", "library", "--of", "JSON", "--output-reproducible", "-o", to]
            subprocess.run([tools / "cyclonedx-py", "environment", python, *options], check=True)
        if "licences" in asked:
            said = subprocess.run([tools / "pip-licenses", f"--python={python}", "--format=json"], check=True, capture_output=True)
            packages = json.loads(said.stdout)
            print("\n".join(f"{package['Name']} {package['Version']}: {package['License']}" for package in packages))
            if found := refused(packages):
                print("refused:", *found, sep="\n")
                failed = True
        if "audit" in asked:
            where = subprocess.check_output([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True).strip()
            failed |= subprocess.run([tools / "pip-audit", "--path", where], check=False).returncode != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(set(sys.argv[1:]) or {"sbom", "licences", "audit"}))
