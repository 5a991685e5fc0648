"""The library writes nothing to standard error of a program that has configured no logging."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import claude_transport

ROOT = Path(claude_transport.__file__).parent
OWNERS = {
    ".".join((ROOT.name, *path.relative_to(ROOT).with_suffix("").parts)): path
    for path in sorted(ROOT.rglob("*.py"))
    if re.search(r"logger_for\(|getLogger\(", path.read_text("utf-8")) and path.name not in {"loggers.py", "lazy.py"}
}
EACH = """
import importlib, json, logging, sys
for name in json.loads(sys.argv[1]):
    module = importlib.import_module(name)
    loggers = [each for each in vars(module).values() if isinstance(each, logging.Logger)]
    assert loggers, name
    for each in loggers:
        each.error("the logger of %s was heard", name)
    print(name)
for name in json.loads(sys.argv[2]):
    logging.getLogger(name).error("%s was heard", name)
"""


def test_no_logger_is_heard_in_a_program_that_configured_no_logging() -> None:
    names = [name for name, path in OWNERS.items() if "logger_for(" in path.read_text("utf-8")]
    by_name = ["claude_transport", "claude_transport.completion", "claude_transport.wire"]
    assert len(names) > 50
    script = [sys.executable, "-c", EACH, json.dumps(names), json.dumps(by_name)]
    done = subprocess.run(script, capture_output=True, text=True, timeout=120, check=True)
    assert (done.stdout.split(), done.stderr) == (names, "")


def test_a_module_takes_its_logger_where_it_is_made_silent() -> None:
    others = {name for name, path in OWNERS.items() if "getLogger(" in path.read_text("utf-8")}
    assert others == {
        "claude_transport.app.ask",  # the program shows the log of the library
        "claude_transport.app.serve",
        "claude_transport.app.standard_streams",  # as above
        "claude_transport.completion.api_path",  # keeps the path of an address out of the log of the SDK
        "claude_transport.testing.conformance.checks.reading",  # listens to the log of the program
        "claude_transport.wrappers.logging",  # writes to the logger that its caller names
    }


def test_a_program_that_configured_logging_hears_the_loggers() -> None:
    script = "import logging; logging.basicConfig(); import claude_transport.loops.alarm as a; a.logger.error('heard')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stderr == "ERROR:claude_transport.loops.alarm:heard\n"


def test_the_package_alone_does_not_load_logging() -> None:
    script = "import sys, claude_transport; print('logging' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "False\n"


def test_the_program_shows_the_warnings_of_the_library_while_a_command_runs() -> None:
    script = (
        "import claude_transport.loops.alarm as a; from claude_transport.app.standard_streams import warnings_to_stderr\n"
        "with warnings_to_stderr(): a.logger.warning('heard'); a.logger.info('not this')\n"
        "a.logger.warning('nor this')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stderr == "heard\n"


def test_the_program_shows_a_warning_to_its_user_whatever_the_filters_of_the_interpreter_are() -> None:
    script = (
        "from claude_transport.app.standard_streams import warnings_as_log, warnings_to_stderr\n"
        "from claude_transport.errors import warn_caller\n"
        "with warnings_as_log(), warnings_to_stderr():\n"
        "    for _ in range(2): warn_caller('heard')"
    )
    for filters in ([], ["-W", "error"], ["-W", "ignore"]):
        done = subprocess.run([sys.executable, *filters, "-c", script], capture_output=True, text=True, timeout=120, check=True)
        assert done.stderr == "heard\n"


def test_another_program_is_warned_on_standard_error_once_for_each_line_of_it(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from claude_transport.errors import warn_caller\n"
        "for _ in range(2): warn_caller('token=sk-ant-api03-' + 40 * 'a')\n"
        "warn_caller('another\\nline')",
        "utf-8",
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=120, check=True)
    told = [line for line in done.stderr.splitlines() if "ClaudeTransportWarning" in line]
    assert told == [
        f"{program}:2: ClaudeTransportWarning: token=[secret]",
        f"{program}:3: ClaudeTransportWarning: another\\nline",
    ]
