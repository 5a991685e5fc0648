"""The checks of this project: run `nox` for all of CI, `nox -s quick` while you work, or `nox -s tests -- -k something`.

`shared` declares a session in the environment that `checks` installs, `apart` one with an environment of its own: its name, what it is for,
and its commands. tests/session_steps.py explains `Quiet`, `SkipIf` and the words in braces; `{args}` is what comes after `--`. Groups are
the dependency groups of pyproject.toml. The machine needs git, a supported Python and a package index.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import nox

sys.path.append(str(Path(__file__).parent / "tests"))
from session_steps import Quiet, Sessions, SkipIf

nox.needs_version = ">=2025.5"
# The fastest answers come first. The tests come last, so that the summary of pytest ends the output.
nox.options.sessions = ["without_tests", "e2e", "e2e_old", "tests"]
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_missing_interpreters = False  # `tests_all` covers the installed Pythons, also where CI is set

PYPROJECT = nox.project.load_toml("pyproject.toml")
PYTHONS = nox.project.python_versions(PYPROJECT)
NEXT_PYTHON = "3.14"  # its classifier comes when the tests have passed on it
EXTRAS = " ".join(f"--extra {name}" for name in PYPROJECT["project"]["optional-dependencies"] if name != "all")
DOCS = "-q -d docs/_build/doctrees {args} docs docs/_build"
PYTEST = "python tests/run_pytest.py"
E2E = f"{PYTEST} --per-core 2"  # half of the time of a test with a real agent is waiting
OF_CLAUDE, OF_WIRE = "tests/e2e tests/launch/test_real_cli_flags.py", "tests/e2e/test_wire_check.py"
OTHERS = "--with codex,acp-agent,typescript-sdk"
MUTANTS = "python tests/mutants/run_mutants.py --folder {folder}"
# The core: no process, no network, no event loop of a transport.
CORE = "tests/protocol tests/launch tests/test_backoff.py tests/test_printable.py tests/test_floors.py"
OF_WINDOWS = "tests/windows tests/launch/test_windows_decisions.py tests/test_locks.py"
OURS = "not e2e and not nightly"  # every other test, on no real agent

sessions = Sessions(register=nox.session, groups=functools.partial(nox.project.dependency_groups, PYPROJECT))
shared, apart = sessions.shared, sessions.apart

apart("checks", "The environment of the sessions of CI; each of them installs it first.", install="-e . pip", groups="lint types docs")()
shared("without_tests", "The sessions of CI before the tests, beside each other: some minutes, and then what each of them says.")(
    "{nox} tests/run_sessions.py fuzz 'release_check -- --rehearse' --installed lint types docs mutants_of_changes collected"
)
shared("lint", "Style, and the mistakes that a linter finds.")("ruff check {args} .", "ruff format --check .")
shared("types", "mypy --strict and pyright on the package, tests and examples of types; no public symbol without a type.")(
    "mypy {args}",
    "mypy " + " ".join(sorted(map(str, Path("tests/typing").glob("*.py")))),
    "pyright --warnings {args}",
    Quiet("pyright --verifytypes claude_transport --ignoreexternal"),
)
shared("collected", "Collect all tests, so that each is compiled once, and not by each worker of pytest at the same time.")(
    Quiet("python -m pytest --collect-only -qq")
)
shared("quick", "The inner loop, in less than a minute: lint, the types of the package, and the tests of the core.")(
    "ruff check .", "ruff format --check .", "mypy", f"{PYTEST} -q -m '{OURS}' --hypothesis-profile=quick {CORE} {{args}}"
)
shared("docs", "The documentation, with every warning an error and every reference resolved; then a draft of the next changelog.")(
    f"sphinx-build -W -n --keep-going -j auto {DOCS}/html", Quiet("towncrier build --draft --version unreleased")
)
shared("e2e", "The tests that run the real `claude` and `codex` binaries, against a Messages API and a Responses API on loopback.")(
    f"{E2E} {OTHERS} -m 'e2e and not nightly' {{args}}"
)
shared("e2e_old", "At most forty of them, which show differences between versions, on the oldest CLI, and some on the oldest Codex.")(
    f"{E2E} --oldest claude -m version_sensitive {OF_CLAUDE} {{args}}",
    f"{PYTEST} --oldest claude -n 2 -m 'e2e and not nightly' {OF_WIRE} {{args}}",
    f"{E2E} --oldest codex -m codex_versions tests/codex {{args}}",
)
shared("cli_versions", "All end-to-end tests on several versions of the CLI, the newest last: nearly an hour; `-- -k …` for some tests.")(
    f"{PYTEST} --every claude -m e2e {OF_CLAUDE} {{args}}", f"{PYTEST} -m e2e {OF_CLAUDE} {{args}}"
)
shared("codex_versions", "All end-to-end tests of Codex on six versions: about ten minutes; `-- -k …` for some of the tests.")(
    f"{PYTEST} --every codex -m e2e tests/codex {{args}}"
)
shared("tests", "Every other test, without those for `nightly`, on the Python that runs nox.")(f"{PYTEST} --with ajv -m '{OURS}' {{args}}")
shared("nightly", "Tests that repeat another with other parameters or loops; other CLIs' wire.", then=("installing", "sdist_tests"))(
    f"{PYTEST} {OTHERS},ajv -m nightly {{args}}",
    "python tests/release/supply_chain.py",
    "python tests/release/installs.py",
    f"{PYTEST} --every claude -m e2e {OF_WIRE} {{args}}",
)
shared("mutants", "Break the package in 400 small ways, and see whether a test notices; `-- PATH…` for some files, `--seed 2` for others.")(
    f"{MUTANTS} '{{args or --least 92}}'"
)
shared("mutants_of_changes", "The same with what the last commits changed, in two minutes. It shows what survives, and fails for nothing.")(
    f"{MUTANTS} --changed --seconds 60 --sample 40"
)

apart("linkcheck", "Follow every external link of the documentation; skipped without a network.", groups="docs")(
    SkipIf("python tests/missing_here.py network"), f"sphinx-build -b linkcheck {DOCS}/linkcheck"
)
apart("release_notes", "Show the notes of the next release: `-- 0.2.0`; `--write` moves the fragments.", install="", groups="docs")(
    "python tests/release/release_notes.py {args}"
)
apart("tests_all", "All tests, on every supported Python that is installed.", groups="test", python=[*PYTHONS, NEXT_PYTHON])(
    f"{PYTEST} {{args}}"
)
# Where CI is set, tests fail without Sphinx, Node and other tools of a developer, of which no oldest release is promised.
apart("lowest", "The tests on the oldest Python and packages that we allow.", install="uv", python=PYTHONS[0], env={"CI": ""})(
    f"uv pip compile --quiet pyproject.toml --group test --resolution lowest-direct {EXTRAS} --output-file {{folder}}/lowest.txt",
    "uv pip install -e . -r {folder}/lowest.txt",
    f"{PYTEST} -m '{OURS}' {{args}}",
)
apart("release_check", "Build sdist and wheel twice, check, upload and install them; `-- --tag v0.1.0`.", install="", groups="release")(
    "python tests/release/release_check.py {args}"
)
apart("installing", "Install with pip, uv, pipx and uv tool on every Python here; four minutes.", install="", groups="installing")(
    "python tests/release/installing.py {args}"
)
apart("sdist_tests", "`nox -s tests` in the unpacked sdist; `-- tests/protocol` for some of them.", install="", groups="release")(
    "python tests/release/sdist_tests.py {nox} {args}"
)
apart("rehearsal", "Run what the workflow of a release runs, in a clean clone; see rehearsal.log.", install="pyyaml", groups="release")(
    "python tests/release/rehearse.py {args}"
)
apart("supply_chain", "What an installation brings along, its licences and weaknesses; `-- sbom` for one of them.", install="")(
    "python tests/release/supply_chain.py {args}"
)
apart("bench", "Speed, for docs/benchmarks; `-- --quick`, `--check`, `--resume`; `-- network` and `-- rest`.", groups="bench extras")(
    "python benchmarks {args}"
)
apart("soak", "Run 2000 sessions with a misbehaving claude, in three minutes: nothing is left over, memory is flat.", groups="bench")(
    "python benchmarks/soak.py {args}"
)
apart("faults", "Let each system call of a session fail: in Python, then in the kernel, hours.", groups="test", env={"FAULT_STEP": "1"})(
    "python -m pytest -q -o faulthandler_timeout=0 tests/test_faults.py",
    SkipIf("python tests/missing_here.py strace"),
    "python tests/strace_faults.py {args}",
)
apart("ports", "The tests of packages of the index over our ports of their plumbing.", install="-e . pip", groups="test")(
    "python tests/ports/run_ports.py {cache}/ports {args}"
)
apart("fuzz", "Fuzz framing and decoding with atheris for 20 seconds; arguments of libFuzzer win.", groups="fuzz")(
    SkipIf("python tests/missing_here.py fuzzer"),
    "python tests/fuzz/fuzz_framing.py -max_total_time=20 -max_len=4096 -timeout=10 -artifact_prefix={cache}/fuzz- {args}",
)
apart("windows", "The tests of Windows on a real one, on asyncio and trio.", groups="test", env={"PYTHONUTF8": "1"})(
    SkipIf("python tests/missing_here.py windows"), f"python -m pytest {OF_WINDOWS} {{args}}"
)
apart("wine", "The tests of Windows on a CPython for Windows under wine, without a network; skipped without wine.", install="pip")(
    SkipIf("python tests/windows/run_under_wine.py --cache {cache} --missing"),
    "python tests/windows/run_under_wine.py --cache {cache} {args}",
)
