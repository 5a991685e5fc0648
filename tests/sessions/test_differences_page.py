"""The table of differences from the official SDK: each row names its test here, and a row without one fails."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parents[1] / "docs" / "reference" / "sessions.md"

# The beginning of each row, in the order of the page, and a test that shows it.
SHOWN = {
    "a session id that is no UUID": "test_an_id_that_is_no_uuid_is_refused_by_name",
    "an id with a newline": "test_an_id_that_is_no_uuid_is_refused_by_name",
    "errors of functions": "test_a_session_that_is_not_there_is_not_made",
    "`delete_session()` while": "test_a_session_that_a_process_runs_is_not_deleted",
    "`delete_session()` where": "test_a_session_that_cannot_be_deleted_whole_can_be_deleted_again",
    "`rename_session()` and": "test_a_title_behind_half_a_line_is_a_line_of_its_own",
    "a title, a tag or a branch": "test_a_title_behind_half_a_line_counts",
    "`fork_session()`": "test_a_fork_is_not_seen_before_it_is_complete",
    "bytes that are no UTF-8": "test_bytes_that_are_no_text_cost_their_line_only",
    "a line that is no JSON": "test_half_a_line_is_not_imported",
    "JSON nested": "test_json_that_is_nested_too_deeply_costs_its_line_only",
    "a line over 64 MiB": "test_an_enormous_line_is_passed_over",
    "a pipe or a device": "test_what_is_no_file_counts_as_no_session",
    "a linked directory": "test_a_linked_directory_of_subagents_leads_in_no_circle",
    "`list_sessions(limit=…)`": "test_a_page_opens_only_the_files_that_it_shows_and_skips",
    "worktrees of a repository": "test_worktrees_of_a_repository_count_alike",
    "`directory`": "test_a_directory_may_be_a_path",
    "`get_session_info_from_store`": "test_the_functions_on_stores_give_what_the_official_ones_give",
    "an entry that a store gets twice": "test_the_official_store_keeps_every_clause_but_two",
    "two hosts": "test_of_two_hosts_that_resume_a_session_the_second_is_refused_or_forks",
    "the history of a fork": "test_the_store_has_the_whole_history_of_a_fork",
    "`list_sessions_from_store(limit=…)`": "test_without_summaries_sessions_are_loaded_until_the_page_is_full",
}


def test_each_difference_is_shown_by_a_test() -> None:
    section = PAGE.read_text("utf-8").partition("## Differences")[2]
    rows = [row.removeprefix("| ") for row in section.splitlines() if row.startswith("| ")][1:]
    files = [*TESTS.glob("test_*.py"), TESTS.parent / "e2e" / "test_session_stores.py"]
    source = "".join(path.read_text("utf-8") for path in files if path != Path(__file__))
    assert len(rows) == len(SHOWN)
    for row, (beginning, test) in zip(rows, SHOWN.items(), strict=True):
        assert row.startswith(beginning)
        assert f"def {test}(" in source
