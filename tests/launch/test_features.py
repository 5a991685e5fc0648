"""The table of what each version of the CLI can do, the supported range, and the refusals that follow from them."""

from __future__ import annotations

import ast
import inspect
import textwrap
import warnings

import pytest

from claude_transport.client.controls import Controls
from claude_transport.errors import ClaudeTransportWarning, CLIVersionMismatch
from claude_transport.launch.argv import FLAGS
from claude_transport.launch.features import (
    FEATURES,
    NEWEST_CLI,
    OBSERVED,
    OLDEST_CLI,
    Feature,
    SupportedRange,
    check_range,
    find_feature,
    first_lacking,
    parse_version,
    range_note,
    require,
    supports,
)
from claude_transport.launch.payloads import ANNOUNCED, INITIALIZE_FIELDS, PAYLOADS
from claude_transport.protocol.hooks import INPUTS

# ---------------------------------------------------------------------------------------------------------------- versions


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("2.1.330", (2, 1, 330)),
        ("2.1.330-beta.1", (2, 1, 330)),
        ("2.1.330 (Claude Code)", (2, 1, 330)),
        ("2.1", None),
        ("2.1.3.4", None),
        ("v2.1.3", None),
        ("0.0.0-mock", None),
        ("9" * 5000 + ".1.1", None),
        ("", None),
        (None, None),
    ],
)
def test_a_version_is_three_numbers(text: str | None, numbers: tuple[int, int, int] | None) -> None:
    assert parse_version(text) == numbers


# ------------------------------------------------------------------------------------------------------------------- range


@pytest.mark.parametrize("version", [OLDEST_CLI, "2.1.191", NEWEST_CLI, None, "unknown"])
def test_a_version_of_the_range_and_an_unknown_one_are_taken_without_a_word(version: str | None, caplog: pytest.LogCaptureFixture) -> None:
    check_range(version)
    assert range_note(version) is None
    assert caplog.records == []


@pytest.mark.parametrize("version", ["2.1.91", "2.0.999", "1.99.99"])
def test_an_older_version_than_the_range_is_refused_with_the_remedy(version: str) -> None:
    with pytest.raises(CLIVersionMismatch, match="claude update") as caught:
        check_range(version)
    error = caught.value
    assert (error.flag, error.version, error.code, error.exit_code) == (None, version, "exec.cli.version_mismatch", None)
    assert version in str(error)
    assert OLDEST_CLI in str(error)


def test_a_newer_version_than_the_range_is_warned_of_once() -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        for version in ("2.1.990", "2.1.990", "2.2.990"):
            check_range(version)
    assert [warning.category for warning in told] == [ClaudeTransportWarning] * 2
    assert [version in str(warning.message) for version, warning in zip(("2.1.990", "2.2.990"), told, strict=True)] == [True, True]
    assert NEWEST_CLI in str(told[0].message)


def test_a_peer_that_names_ever_newer_versions_is_not_warned_of_without_end() -> None:
    a_program = SupportedRange(program="another", oldest="1.0.0", newest="2.0.0", update="update it")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for number in range(1_000):
            a_program.check(f"3.0.{number}")
    assert 0 < len(told) <= 100
    assert {warning.filename for warning in told} == {__file__}


def test_a_version_that_a_terminal_would_obey_is_shown_harmless() -> None:
    a_program = SupportedRange(program="a third", oldest="1.0.0", newest="2.0.0", update="update it")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        a_program.check("3.0.0\x1b[2J\n")
    (said,) = [str(warning.message) for warning in told]
    assert "this a third is 3.0.0" in said
    assert said.isprintable()


# ------------------------------------------------------------------------------------------------------------------- table


def test_the_range_is_the_one_that_was_examined() -> None:
    assert (OBSERVED[0], OBSERVED[-1]) == (OLDEST_CLI, NEWEST_CLI)
    numbers = [parse_version(version) or () for version in OBSERVED]
    assert numbers == sorted(set(numbers))


def test_each_row_has_a_name_of_its_own_and_a_version_of_the_range() -> None:
    assert len({row.name for row in FEATURES}) == len(FEATURES)
    for row in FEATURES:
        oldest, lacked, since, newest = (parse_version(text) for text in (OLDEST_CLI, row.lacked_by, row.since, NEWEST_CLI))
        assert oldest is not None and lacked is not None and since is not None and newest is not None  # noqa: PT018
        assert oldest <= lacked < since <= newest, row
        assert row.lacked_by in OBSERVED, row


def rows(kind: str) -> list[Feature]:
    return [row for row in FEATURES if row.kind == kind]


def test_each_flag_of_the_table_is_one_that_an_option_gives() -> None:
    own = {row.flag for row in FLAGS} | {row.flag for row in PAYLOADS} | {flag.partition("=")[0] for flag, _ in ANNOUNCED.values()}
    assert [row.name for row in rows("flag") if row.name not in own] == []


def test_each_field_of_the_table_is_one_that_an_option_fills() -> None:
    own = {row.field for row in INITIALIZE_FIELDS} | {row.field for row in PAYLOADS} | set(ANNOUNCED)
    assert [row.name for row in rows("initialize") if row.name.removeprefix("initialize.") not in own] == []


def test_each_hook_of_the_table_is_an_event() -> None:
    assert [row.name for row in rows("hook") if row.name.removeprefix("hook.") not in INPUTS] == []


def subtypes() -> dict[str, str]:
    """The subtype that each method of the control requests asks for."""
    found = {}
    for name, method in inspect.getmembers(Controls, inspect.iscoroutinefunction):
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(method)))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in {"request", "_ask", "_tell"}:
                for argument in node.args:
                    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                        found[name] = argument.value
    return found


def test_each_request_of_the_table_is_made_by_the_method_that_it_names() -> None:
    asked = subtypes()
    for row in rows("request"):
        method = row.use.split()[-1].removesuffix("()")
        assert asked[method] == row.name.partition(".")[0], row


# ------------------------------------------------------------------------------------------------------------ what is there


@pytest.mark.parametrize(
    ("name", "version", "has"),
    [
        ("--restricted", "2.1.248", True),
        ("--restricted", "2.1.247", False),
        ("--autocompact", "2.1.219", False),
        ("--autocompact", "2.1.230", None),  # between the last one without and the first one with: the CLI itself will say
        ("--autocompact", "2.1.235", True),
        ("get_usage", "2.1.160", None),
        ("initialize.skills", "2.1.150", False),  # such a CLI would drop it without a word
        ("hook.MessageDisplay", "2.1.151", False),
        ("interrupt.cancel_queued", "2.1.215", False),
        ("--restricted", None, None),
        ("--restricted", "unknown", None),
        ("--model", OLDEST_CLI, True),
        ("anything else", None, True),
    ],
)
def test_a_feature_is_there_missing_or_to_be_tried(name: str, version: str | None, has: bool | None) -> None:
    assert supports(name, version=version) is has


def test_a_capability_says_more_than_the_version() -> None:
    named = ["interrupt_cancel_queued_v1"]
    assert supports("interrupt.cancel_queued", version="2.1.92", capabilities=named) is True
    assert supports("interrupt.cancel_queued", version=None, capabilities=named) is True
    assert supports("mcp_read_resource", version="2.1.92", capabilities=named) is False


def test_what_is_missing_is_refused_with_its_name_the_version_and_the_remedy() -> None:
    with pytest.raises(CLIVersionMismatch, match=r"update claude to 2\.1\.248 or newer") as caught:
        require("--model", "--restricted", "--safe-mode", version="2.1.92")
    error = caught.value
    assert (error.flag, error.version, error.code) == ("--restricted", "2.1.92", "exec.cli.version_mismatch")
    assert "the option restricted" in str(error)


def test_what_is_there_or_not_known_is_not_refused() -> None:
    require("--restricted", version=None)
    require("--restricted", version="2.1.330")
    assert first_lacking(["--restricted", "--safe-mode"], version="2.1.200") == find_feature("--restricted")
    assert find_feature("--model") is None
