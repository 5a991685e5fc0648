"""Say why a session of nox cannot run on this machine, or nothing: `python tests/missing_here.py network`."""

from __future__ import annotations

import platform
import shutil
import sys
import urllib.error
import urllib.request


def missing_network() -> str:
    """Say nothing when docs.python.org answers within ten seconds, with any status."""
    try:
        urllib.request.urlopen("https://docs.python.org/3/", timeout=10).close()
    except urllib.error.HTTPError:
        return ""  # an answer, although an error
    except OSError:
        return "docs.python.org cannot be reached, so no link was followed"
    return ""


def missing_fuzzer() -> str:
    """Say nothing where there is a wheel of atheris."""
    if sys.platform == "linux" and platform.machine() == "x86_64":
        return ""
    return "atheris has no wheel for this system; tests/protocol/test_fuzz_target.py runs the same oracle"


def missing_strace() -> str:
    """Say nothing where system calls can be made to fail."""
    return "" if shutil.which("strace") else "strace is not installed, so no call failed in the kernel"


def missing_windows() -> str:
    """Say nothing on Windows."""
    return "" if sys.platform == "win32" else "this is no Windows; `nox -s wine` tries it with wine"


MISSING = {"network": missing_network, "fuzzer": missing_fuzzer, "strace": missing_strace, "windows": missing_windows}

if __name__ == "__main__":
    print(MISSING[sys.argv[1]]())
