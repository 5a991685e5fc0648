"""Everything this project claims about itself, checked: run `nox`, or `nox -s tests -- -k something`.

Each session has its own environment, made from the dependency groups of pyproject.toml; nothing is expected of the machine but
git, a supported Python and a package index. Arguments after `--` go to the session's main command.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import nox

nox.needs_version = ">=2025.5"
# The cheapest answer first, and the tests last: pytest's closing line is then the last thing of substance on the screen.
nox.options.sessions = ["lint", "types", "docs", "fuzz", "e2e", "e2e_old", "tests"]
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_missing_interpreters = False  # `tests_all` covers the Pythons that are there, also where CI is set

PYPROJECT = nox.project.load_toml("pyproject.toml")
PYTHONS = nox.project.python_versions(PYPROJECT)

# One more than there are cores, for a test often waits for a process or a peer; more than four would not end sooner.
WORKERS = min(4, (os.cpu_count() or 1) + 1)


def install(session: nox.Session, *groups: str) -> None:
    """The project, editable, with the named dependency groups, in one resolution."""
    session.install("-e", ".", *nox.project.dependency_groups(PYPROJECT, *groups))


def run_pytest(session: nox.Session, *args: str) -> None:
    """pytest without the user's own pytest options, which could change what is run; in `WORKERS` processes."""
    session.run("python", "-m", "pytest", "-n", str(WORKERS), *args, *session.posargs, env={"PYTEST_ADDOPTS": ""})


# Releases of claude-agent-sdk, and the version of the CLI that the wheel of each holds; the newest is the one that the tests install.
CLI_WHEELS = {"2.1.92": "0.1.56", "2.1.191": "0.2.110", "2.1.257": "0.2.150", "2.1.275": "0.2.155"}
OLDEST_CLI = next(iter(CLI_WHEELS))
E2E_TESTS = ("tests/e2e", "tests/launch/test_real_cli_flags.py")


def fetch_cli(session: nox.Session, version: str) -> Path:
    """The binary of this version, from the wheel that holds it; downloaded once, into the cache of nox."""
    binary = session.cache_dir / "clis" / version / ("claude.exe" if sys.platform == "win32" else "claude")
    if not binary.exists():
        session.install("pip")
        folder = Path(session.create_tmp())
        package = f"claude-agent-sdk=={CLI_WHEELS[version]}"
        session.run("python", "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(folder), package)
        (wheel,) = folder.glob("claude_agent_sdk-*.whl")
        binary.parent.mkdir(parents=True, exist_ok=True)
        partial = binary.with_suffix(".partial")  # an interrupted copy must not be taken for the binary
        inside = f"claude_agent_sdk/_bundled/{binary.name}"
        with zipfile.ZipFile(wheel) as archive, archive.open(inside) as source, partial.open("wb") as to:
            shutil.copyfileobj(source, to)
        partial.chmod(0o755)
        partial.replace(binary)
        wheel.unlink()
    return binary


def reaches_the_outside() -> bool:
    """Whether the documentation of Python answers, in whatever way, within ten seconds."""
    try:
        urllib.request.urlopen("https://docs.python.org/3/", timeout=10).close()
    except urllib.error.HTTPError:
        return True  # somebody is there
    except OSError:
        return False
    return True


@nox.session
def lint(session: nox.Session) -> None:
    """Style and the mistakes that a linter finds."""
    session.install(*nox.project.dependency_groups(PYPROJECT, "lint"))
    session.run("ruff", "check", *session.posargs, ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """mypy --strict and pyright, on the package, the tests, and what users are told (tests/typing); no public symbol without a type."""
    install(session, "types")
    session.run("mypy", *session.posargs)
    session.run("mypy", *sorted(map(str, Path("tests/typing").glob("*.py"))))
    session.run("pyright", "--warnings", *session.posargs)
    session.run("pyright", "--verifytypes", "claude_transport", "--ignoreexternal", silent=True)


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation, every warning an error and every reference resolved; then the next changelog, from its fragments."""
    install(session, "docs")
    session.run(
        "sphinx-build", "-W", "-n", "--keep-going", "-q", "-d", "docs/_build/doctrees", *session.posargs, "docs", "docs/_build/html"
    )
    session.run("towncrier", "build", "--draft", "--version", "unreleased", silent=True)


@nox.session(default=False)
def linkcheck(session: nox.Session) -> None:
    """Every link of the documentation to somewhere else, followed; skipped, and said to be, where nothing outside can be reached."""
    if not reaches_the_outside():
        session.skip("nothing outside can be reached, so no link was followed")
    install(session, "docs")
    session.run("sphinx-build", "-b", "linkcheck", "-q", "-d", "docs/_build/doctrees", *session.posargs, "docs", "docs/_build/linkcheck")


@nox.session(default=False)
def release_notes(session: nox.Session) -> None:
    """The next release's notes, from the fragments: `nox -s release_notes -- 0.2.0` shows them, `--write` puts them into CHANGELOG.md."""
    session.install(*nox.project.dependency_groups(PYPROJECT, "docs"))
    named = [argument for argument in session.posargs if argument != "--write"]
    written = ["--yes"] if "--write" in session.posargs else ["--draft"]
    session.run("towncrier", "build", *written, "--version", *(named or [PYPROJECT["project"]["version"]]))


@nox.session
def e2e(session: nox.Session) -> None:
    """The tests that run the real `claude` binary, against a Messages API on loopback."""
    install(session, "test")
    run_pytest(session, "-m", "e2e")


@nox.session
def e2e_old(session: nox.Session) -> None:
    """At most forty of them, which show what differs between versions, on the oldest CLI that is promised."""
    install(session, "test")
    run_pytest(session, *E2E_TESTS, "-m", "version_sensitive", "--claude-binary", str(fetch_cli(session, OLDEST_CLI)))


@nox.session(default=False)
def cli_versions(session: nox.Session) -> None:
    """All end-to-end tests on several versions of the CLI, the newest last: most of an hour; `-- -k "…"` for some of the tests."""
    install(session, "test")
    for version in CLI_WHEELS:
        session.log(f"claude {version}")
        run_pytest(session, *E2E_TESTS, "-m", "e2e", "--claude-binary", str(fetch_cli(session, version)))
    run_pytest(session, *E2E_TESTS, "-m", "e2e")


@nox.session
def tests(session: nox.Session) -> None:
    """Every other test, on the Python that runs nox."""
    install(session, "test")
    run_pytest(session, "-m", "not e2e")


@nox.session(python=PYTHONS, default=False)
def tests_all(session: nox.Session) -> None:
    """All tests, on every supported Python that is installed; those that are not are reported as skipped."""
    install(session, "test")
    run_pytest(session)


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Ours, the official SDK and the limit, into the page docs/benchmarks/speed.md, in 20 minutes; `--resume` goes on, `--quick` looks."""
    install(session, "bench")
    session.run("python", "benchmarks/bench_speed.py", *session.posargs)


@nox.session(default=False)
def bench_check(session: nox.Session) -> None:
    """Fails when a figure of speed is more than 15 % under its target, in the best of three tries: two to five minutes."""
    install(session, "bench")
    session.run("python", "benchmarks/bench_speed.py", "--check", *session.posargs)


@nox.session(default=False)
def bench_network(session: nox.Session) -> None:
    """Lines over every medium, into the figures of docs/benchmarks/network.md; `-- --quick` for a look, `-- --check` for the targets."""
    install(session, "bench", "extras")
    session.run("python", "benchmarks/bench_network.py", *session.posargs)


@nox.session(default=False)
def bench_rest(session: nox.Session) -> None:
    """The other benchmarks in benchmarks/, one after the other, so that they do not disturb each other."""
    install(session, "bench", "extras")
    for path in sorted(Path("benchmarks").glob("bench_*.py")):
        if path.name not in {"bench_speed.py", "bench_network.py"}:
            session.run("python", str(path), *session.posargs)


@nox.session(default=False)
def soak(session: nox.Session) -> None:
    """Two thousand sessions with a claude that misbehaves, in at most three minutes: nothing left over, memory flat, failures typed."""
    install(session, "bench")
    session.run("python", "benchmarks/soak.py", *session.posargs)


@nox.session(default=False)
def faults(session: nox.Session) -> None:
    """Every system call of a session fails, one after the other: in Python code, in minutes, then in the kernel, in an hour or two."""
    install(session, "test")
    session.run("python", "-m", "pytest", "-q", "tests/test_faults.py", env={"PYTEST_ADDOPTS": "", "FAULT_STEP": "1"})
    if shutil.which("strace") is None:
        session.skip("there is no strace on this machine, so no call failed in the kernel")
    session.run("python", "tests/strace_faults.py", *session.posargs)


@nox.session
def fuzz(session: nox.Session) -> None:
    """Framing and decoding, fuzzed with atheris for 20 seconds; arguments such as `-max_total_time=600` go to libFuzzer, and win."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        session.skip("atheris has no wheel for this system; tests/protocol/test_fuzz_target.py runs the same oracle")
    install(session, "fuzz")
    kept = f"-artifact_prefix={session.create_tmp()}/"
    session.run("python", "tests/fuzz/fuzz_framing.py", "-max_total_time=20", "-max_len=4096", "-timeout=10", kept, *session.posargs)
