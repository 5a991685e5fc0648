"""The checks of this project: run `nox` for all of CI, `nox -s quick` while you work, or `nox -s tests -- -k something`.

The sessions of CI share one environment, which the session `checks` installs; the others have their own. All come from the dependency
groups of pyproject.toml. The machine needs git, a supported Python and a package index. Arguments after `--` go to the session's main
command. Programs of others come from tests/foreign_programs.py. The helpers are at the end.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nox

nox.needs_version = ">=2025.5"
# The fastest answers come first. The tests come last, so that the summary of pytest ends the output.
nox.options.sessions = ["without_tests", "e2e", "e2e_old", "tests"]
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_missing_interpreters = False  # `tests_all` covers the installed Pythons, also where CI is set

PYPROJECT = nox.project.load_toml("pyproject.toml")
PYTHONS = nox.project.python_versions(PYPROJECT)
NEXT_PYTHON = "3.14"  # its classifier comes when the tests have passed on it
# The core: no process, no network, no event loop of a transport.
CORE_TESTS = ("tests/protocol", "tests/launch", "tests/test_backoff.py", "tests/test_printable.py", "tests/test_floors.py")
CODEX_TESTS = "tests/codex"
E2E_TESTS = ("tests/e2e", "tests/launch/test_real_cli_flags.py")
WIRE_TESTS = "tests/e2e/test_wire_check.py"
WINDOWS_TESTS = ("tests/windows", "tests/launch/test_windows_decisions.py", "tests/test_locks.py")
# Half of the time of a test with a real CLI is waiting, and two thirds of that of any other test. More than eight workers need more memory
# than they save time.
E2E_WORKERS, WORKERS = (min(8, times * (os.cpu_count() or 1)) for times in (2, 3))
WITHOUT_TESTS = ("lint", "types", "docs", "fuzz", "mutants_of_changes", "collected", "release_check")
APART = {"fuzz": (), "release_check": ("--", "--rehearse")}  # these have an environment of their own


# ------------------------------------------------------------------------------------------------ in the environment of `checks`


@nox.session(default=False)
def checks(session: nox.Session) -> None:
    """Install the environment that the sessions of CI share; each of them runs this first."""
    install(session, "lint", "types", "docs")
    session.install("pip")  # uv leaves it out, and tests/foreign_programs.py needs it


@nox.session(venv_backend="none", requires=["checks"])
def without_tests(session: nox.Session) -> None:
    """The sessions of CI before the tests, beside each other, because most of their programs use one core: see `WITHOUT_TESTS`."""
    with tempfile.TemporaryDirectory(prefix="sessions-") as folder:
        session.log(f"{', '.join(WITHOUT_TESTS)}: some minutes, and then what each of them says")
        running = [(name, start_nox(name, Path(folder, name))) for name in WITHOUT_TESTS]
        failed = [name for name, process in running if process.wait() != 0]
        for name in [*(name for name in WITHOUT_TESTS if name not in failed), *failed]:
            sys.stdout.write(Path(folder, name).read_text("utf-8", "replace"))
    if failed:
        session.error(f"failed: {', '.join(failed)}")


@nox.session(venv_backend="none", requires=["checks"], default=False)
def lint(session: nox.Session) -> None:
    """Style, and the mistakes that a linter finds."""
    run(session, "ruff", "check", *session.posargs, ".")
    run(session, "ruff", "format", "--check", ".")


@nox.session(venv_backend="none", requires=["checks"], default=False)
def types(session: nox.Session) -> None:
    """mypy --strict and pyright on the package, the tests and the examples of tests/typing; no public symbol without a type."""
    run(session, "mypy", *session.posargs)
    run(session, "mypy", *sorted(map(str, Path("tests/typing").glob("*.py"))))
    run(session, "pyright", "--warnings", *session.posargs)
    run(session, "pyright", "--verifytypes", "claude_transport", "--ignoreexternal", silent=True)


@nox.session(venv_backend="none", requires=["checks"], default=False)
def collected(session: nox.Session) -> None:
    """Collect all tests, so that each is compiled once, and not by each worker of pytest at the same time."""
    run(session, "python", "-m", "pytest", "--collect-only", "-qq", env={"PYTEST_ADDOPTS": ""}, silent=True)


@nox.session(venv_backend="none", requires=["checks"], default=False)
def quick(session: nox.Session) -> None:
    """The inner loop, in less than a minute: lint, the types of the package, and the tests of the core, which start no process."""
    run(session, "ruff", "check", ".")
    run(session, "ruff", "format", "--check", ".")
    run(session, "mypy")
    run_pytest(session, "-q", "-m", "not e2e and not nightly", "--hypothesis-profile=quick", *CORE_TESTS)


@nox.session(venv_backend="none", requires=["checks"], default=False)
def docs(session: nox.Session) -> None:
    """The documentation, with every warning an error and every reference resolved; then a draft of the next changelog."""
    options = ("-W", "-n", "--keep-going", "-q", "-j", "auto", "-d", "docs/_build/doctrees")
    run(session, "sphinx-build", *options, *session.posargs, "docs", "docs/_build/html")
    run(session, "towncrier", "build", "--draft", "--version", "unreleased", silent=True)


@nox.session(venv_backend="none", requires=["checks"])
def e2e(session: nox.Session) -> None:
    """The tests that run the real `claude` and `codex` binaries, against a Messages API and a Responses API on loopback."""
    run_pytest(session, "-n", str(E2E_WORKERS), "-m", "e2e and not nightly", *foreign_programs(session))


@nox.session(venv_backend="none", requires=["checks"])
def e2e_old(session: nox.Session) -> None:
    """At most forty of them, which show differences between versions, on the oldest supported CLI, and some on the oldest Codex."""
    oldest = fetched(session, "claude", versions(session, "claude")[0])
    run_pytest(session, "-n", str(E2E_WORKERS), *E2E_TESTS, "-m", "version_sensitive", "--claude-binary", oldest)
    run_pytest(session, "-n", "2", WIRE_TESTS, "-m", "e2e and not nightly", "--claude-binary", oldest)
    for version in versions(session, "codex")[:1]:
        run_pytest(
            session, "-n", str(E2E_WORKERS), CODEX_TESTS, "-m", "codex_versions", "--codex-binary", fetched(session, "codex", version)
        )


@nox.session(venv_backend="none", requires=["checks"], default=False)
def cli_versions(session: nox.Session) -> None:
    """All end-to-end tests on several versions of the CLI, the newest last: nearly an hour; `-- -k "…"` for some of the tests."""
    for version in versions(session, "claude"):
        run_pytest(session, *E2E_TESTS, "-m", "e2e", "--claude-binary", fetched(session, "claude", version))
    run_pytest(session, *E2E_TESTS, "-m", "e2e")


@nox.session(venv_backend="none", requires=["checks"], default=False)
def codex_versions(session: nox.Session) -> None:
    """All end-to-end tests of Codex on five versions, the newest last: about ten minutes; `-- -k "…"` for some of the tests."""
    for version in versions(session, "codex"):
        run_pytest(session, CODEX_TESTS, "-m", "e2e", "--codex-binary", fetched(session, "codex", version))


@nox.session(venv_backend="none", requires=["checks"])
def tests(session: nox.Session) -> None:
    """Every other test, without those for `nightly`, on the Python that runs nox."""
    run_pytest(session, "-m", "not e2e and not nightly", f"--ajv={fetched(session, 'ajv')}")


@nox.session(venv_backend="none", requires=["checks"], default=False)
def nightly(session: nox.Session) -> None:
    """The tests that repeat another one with other parameters or on another event loop, and the wire of other versions of the CLI."""
    run_pytest(session, "-m", "nightly", f"--ajv={fetched(session, 'ajv')}", *foreign_programs(session))
    run(session, "python", "tests/release/supply_chain.py")
    run(session, "python", "tests/release/installs.py")
    for following in ("installing", "sdist_tests"):
        session.notify(following, posargs=[])
    for version in versions(session, "claude"):
        run_pytest(session, WIRE_TESTS, "-m", "e2e", "--claude-binary", fetched(session, "claude", version))


@nox.session(venv_backend="none", requires=["checks"], default=False)
def mutants(session: nox.Session) -> None:
    """Break the package in 400 small ways, and see whether a test notices; `-- PATH…` for some files, `-- --seed 2` for others."""
    run_mutants(session, *(session.posargs or ["--least", "92"]))


@nox.session(venv_backend="none", requires=["checks"], default=False)
def mutants_of_changes(session: nox.Session) -> None:
    """The same with what the last commits changed, in two minutes at most. It shows what survives, and fails for nothing."""
    run_mutants(session, "--changed", "--seconds", "60", "--sample", "40")


# ------------------------------------------------------------------------------------------------- in environments of their own


@nox.session(default=False)
def linkcheck(session: nox.Session) -> None:
    """Follow every external link of the documentation; skipped without a network."""
    if not reaches_the_outside():
        session.skip("docs.python.org cannot be reached, so no link was followed")
    install(session, "docs")
    session.run("sphinx-build", "-b", "linkcheck", "-q", "-d", "docs/_build/doctrees", *session.posargs, "docs", "docs/_build/linkcheck")


@nox.session(default=False)
def release_notes(session: nox.Session) -> None:
    """Show the notes of the next release: `nox -s release_notes -- 0.2.0`; `--write` moves the fragments into CHANGELOG.md."""
    session.install(*nox.project.dependency_groups(PYPROJECT, "docs"))
    named = [argument for argument in session.posargs if argument != "--write"]
    written = ["--yes"] if "--write" in session.posargs else ["--draft"]
    session.run("towncrier", "build", *written, "--version", *(named or [PYPROJECT["project"]["version"]]))


@nox.session(python=[*PYTHONS, NEXT_PYTHON], default=False)
def tests_all(session: nox.Session) -> None:
    """All tests, nightly ones included, on every supported Python that is installed; the others are reported as skipped."""
    install(session, "test")
    session.run("python", "-m", "pytest", "-n", str(WORKERS), *session.posargs, env={"PYTEST_ADDOPTS": ""})


@nox.session(python=PYTHONS[0], default=False)
def lowest(session: nox.Session) -> None:
    """The tests without a real CLI, on the oldest Python and the oldest release of each dependency that pyproject.toml allows."""
    session.install("uv")
    install_lowest(session, [name for name in PYPROJECT["project"]["optional-dependencies"] if name != "all"])
    arguments = ["-m", "not e2e and not nightly", "-n", str(WORKERS), "--dist", "worksteal", *session.posargs]
    # Where CI is set, tests fail without Sphinx, Node and other tools of a developer, of which no oldest release is promised.
    session.run("python", "-m", "pytest", *arguments, env={"PYTEST_ADDOPTS": "", "CI": ""})


@nox.session(default=False)
def release_check(session: nox.Session) -> None:
    """Build sdist and wheel twice, check them, upload them to an index on loopback, and install and ask as the README says.

    `-- --tag v0.1.0` also compares the version. `-- --rehearse` makes up an address of the repository, and leaves nothing in `dist`.
    """
    version = PYPROJECT["project"]["version"]
    if "--tag" in session.posargs and f"v{version}" not in session.posargs:
        session.error(f"pyproject.toml has version {version}, which is not the tag: {' '.join(session.posargs)}")
    dist = Path("dist")
    if "--rehearse" in session.posargs:
        session.env["CLAUDE_TRANSPORT_REPOSITORY"] = "https://example.org/owner/name"
        dist = Path(session.create_tmp()) / "dist"
    session.install(*nox.project.dependency_groups(PYPROJECT, "release"))
    shutil.rmtree(dist, ignore_errors=True)
    session.run("python", "-m", "build", "--outdir", str(dist))  # the wheel is built from the sdist, so the sdist is whole
    session.run("python", "-m", "twine", "check", "--strict", *sorted(map(str, dist.iterdir())))
    session.run("python", "tests/release/reproducible.py", str(dist))
    session.run("towncrier", "build", "--draft", "--version", version, silent=True)
    session.run("python", "tests/release/installing.py", "--quick", "--dist", str(dist))


@nox.session(default=False)
def installing(session: nox.Session) -> None:
    """Install from an index on loopback with pip, uv, pipx and uv tool, on every supported Python that is installed; four minutes."""
    session.install(*nox.project.dependency_groups(PYPROJECT, "installing"))
    session.run("python", "tests/release/installing.py", *session.posargs)


@nox.session(default=False)
def sdist_tests(session: nox.Session) -> None:
    """Unpack the sdist in an empty folder without git, and run `nox -s tests` there; `-- tests/protocol` for some of the tests."""
    session.install(*nox.project.dependency_groups(PYPROJECT, "release"))
    with tempfile.TemporaryDirectory(prefix="sdist-") as folder:
        session.run("python", "-m", "build", "--sdist", "--outdir", folder)
        (packed,) = Path(folder).glob("*.tar.gz")
        with tarfile.open(packed) as archive:
            archive.extractall(folder, filter="data")
        unpacked = Path(folder, packed.name.removesuffix(".tar.gz"), "noxfile.py")
        command = ["-m", "nox", "-f", str(unpacked), "-s", "tests", "--", *session.posargs]
        session.run(sys.executable, *command, env={"PYTHONPATH": ""}, external=True)


@nox.session(default=False)
def rehearsal(session: nox.Session) -> None:
    """Run what the workflow of a release runs, in a clean clone of the last commit, with an index on loopback; see rehearsal.log."""
    session.install(*nox.project.dependency_groups(PYPROJECT, "release"), "pyyaml")
    session.run("python", "tests/release/rehearse.py", *session.posargs)


@nox.session(default=False)
def supply_chain(session: nox.Session) -> None:
    """List what an installation brings along, with its licences and its known weaknesses; `-- sbom`, `licences` or `audit` for one."""
    session.run("python", "tests/release/supply_chain.py", *session.posargs)


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Measure speed for docs/benchmarks; `--quick`, `--check` for the targets, `--resume`; `-- network` or `-- rest` measure the others."""
    which, *arguments = session.posargs if session.posargs[:1] in (["network"], ["rest"]) else ["speed", *session.posargs]
    install(session, "bench", *([] if which == "speed" else ["extras"]))
    others = sorted({path.stem for path in Path("benchmarks").glob("bench_*.py")} - {"bench_speed", "bench_network"})
    for name in others if which == "rest" else [f"bench_{which}"]:
        session.run("python", f"benchmarks/{name}.py", *arguments)


@nox.session(default=False)
def soak(session: nox.Session) -> None:
    """Run 2000 sessions with a misbehaving claude, in at most three minutes: nothing is left over, memory is flat, errors are typed."""
    install(session, "bench")
    session.run("python", "benchmarks/soak.py", *session.posargs)


@nox.session(default=False)
def faults(session: nox.Session) -> None:
    """Let every system call of a session fail, one after the other: in Python, in minutes; then in the kernel, in an hour or two."""
    install(session, "test")
    unhurried = ("-o", "faulthandler_timeout=0")
    session.run("python", "-m", "pytest", "-q", *unhurried, "tests/test_faults.py", env={"PYTEST_ADDOPTS": "", "FAULT_STEP": "1"})
    if shutil.which("strace") is None:
        session.skip("strace is not installed, so no call failed in the kernel")
    session.run("python", "tests/strace_faults.py", *session.posargs)


@nox.session(default=False)
def ports(session: nox.Session) -> None:
    """The tests of packages of the index over our ports of their plumbing, and their main path on the real CLI; `-- NAME` for one.

    For packages in `suites.toml`: our rewritten cases over their code.
    """
    install(session, "test")
    files = [tomllib.loads(Path("tests/ports", name).read_text("utf-8")) for name in ("ports.toml", "suites.toml")]
    session.install("pip", *sorted({need for packages in files for package in packages.values() for need in package["needs"]}))
    session.run("python", "tests/ports/run_ports.py", str(session.cache_dir.resolve() / "ports"), *session.posargs)


@nox.session(default=False)
def fuzz(session: nox.Session) -> None:
    """Fuzz framing and decoding with atheris for 20 seconds; arguments such as `-max_total_time=600` go to libFuzzer and win."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        session.skip("atheris has no wheel for this system; tests/protocol/test_fuzz_target.py runs the same oracle")
    install(session, "fuzz")
    kept = f"-artifact_prefix={session.create_tmp()}/"
    session.run("python", "tests/fuzz/fuzz_framing.py", "-max_total_time=20", "-max_len=4096", "-timeout=10", kept, *session.posargs)


@nox.session(default=False)
def windows(session: nox.Session) -> None:
    """The tests of Windows on a real one, on asyncio and trio, and the decisions for it."""
    if sys.platform != "win32":
        session.skip("this is no Windows; `nox -s wine` tries it with wine")
    install(session, "test")
    session.run("python", "-m", "pytest", *WINDOWS_TESTS, *session.posargs, env={"PYTEST_ADDOPTS": "", "PYTHONUTF8": "1"})


@nox.session(default=False)
def wine(session: nox.Session) -> None:
    """The tests of Windows on a CPython for Windows under wine, on asyncio, without a network; skipped where wine cannot run."""
    session.install("pip")
    script = ("python", "tests/windows/run_under_wine.py", "--cache", str(session.cache_dir.resolve()))
    if missing := str(session.run(*script, "--missing", silent=True, stderr=None)).strip():
        session.skip(missing)
    session.run(*script, *session.posargs)


# ------------------------------------------------------------------------------------------------------------------- the helpers


def install(session: nox.Session, *groups: str) -> None:
    """Install the project, editable, with the named dependency groups, in one resolution."""
    session.install("-e", ".", *nox.project.dependency_groups(PYPROJECT, *groups))


def install_lowest(session: nox.Session, extras: list[str]) -> None:
    """Install the project with these extras, and the oldest release of each dependency that pyproject.toml allows."""
    bounds = session.cache_dir / "lowest.txt"
    options = ["--group", "test", "--resolution", "lowest-direct", "--python-version", PYTHONS[0]]
    options += [word for extra in extras for word in ("--extra", extra)]
    bounds.unlink(missing_ok=True)  # what is written there would bind the next run
    session.run("uv", "pip", "compile", "--quiet", "pyproject.toml", *options, "--output-file", str(bounds))
    session.install("-e", ".", "-r", str(bounds))


def run(session: nox.Session, program: str, *arguments: str, env: Mapping[str, str] | None = None, **options: Any) -> str:
    """Run a program of the environment that the sessions of CI share; return its output when it is silent."""
    programs = session.cache_dir.parent / "checks" / ("Scripts" if sys.platform == "win32" else "bin")
    path = os.pathsep.join([str(programs), os.environ.get("PATH", "")])
    # Each worker of pytest would compile all tests again where the machine forbids .pyc files.
    environment = {"PATH": path, "PYTHONDONTWRITEBYTECODE": "", **(env or {})}
    return str(session.run(str(programs / program), *arguments, env=environment, external=True, **options)).strip()


def start_nox(name: str, log: Path) -> subprocess.Popen[bytes]:
    """Start a session. It writes what it says to `log`."""
    options = [] if name in APART else ["--no-install"]
    with log.open("wb") as file:
        command = [sys.executable, "-m", "nox", "-f", __file__, *options, "-s", name, *APART.get(name, ())]
        return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)


def run_pytest(session: nox.Session, *arguments: str) -> None:
    """Run pytest in `WORKERS` processes, without the user's own pytest options, which could change what is run."""
    options = ["-n", str(WORKERS), "--dist", "worksteal"]
    run(session, "python", "-m", "pytest", *options, *arguments, *session.posargs, env={"PYTEST_ADDOPTS": ""})


def run_mutants(session: nox.Session, *arguments: str) -> None:
    """Run the script, with its copies outside of the repository."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        run(session, "python", "tests/mutants/run_mutants.py", "--folder", folder, *arguments)


def foreign(session: nox.Session, *arguments: str) -> str:
    """Ask tests/foreign_programs.py, and return what it prints. Warnings of pip and npm go to the terminal."""
    script = ("tests/foreign_programs.py", "--cache", str(session.cache_dir.resolve()))
    return run(session, "python", *script, *arguments, silent=True, stderr=None)


def fetched(session: nox.Session, program: str, *version: str) -> str:
    """Return the path of a program of others, which is fetched once."""
    return foreign(session, program, *version)


def versions(session: nox.Session, program: str) -> list[str]:
    """Return the versions of a program that are tested on this system, the oldest first."""
    return foreign(session, "--versions", program).split()


def foreign_programs(session: nox.Session) -> list[str]:
    """Return the options of pytest that name the programs of others."""
    # With "=": pytest would take a path of its own for a file of tests, as long as it has not read the options of tests/conftest.py.
    codex = [f"--codex-binary={fetched(session, 'codex')}"] if versions(session, "codex") else []
    return [*codex, f"--acp-agent={fetched(session, 'acp-agent')}", f"--typescript-sdk={fetched(session, 'typescript-sdk')}"]


def reaches_the_outside() -> bool:
    """Return True when docs.python.org answers within ten seconds, with any status."""
    try:
        urllib.request.urlopen("https://docs.python.org/3/", timeout=10).close()
    except urllib.error.HTTPError:
        return True  # an answer, although an error
    except OSError:
        return False
    return True
