"""The rows of `systems`: what this library replaces, and for each row the tests that prove it is replaced (S1.1 to S5.7)."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from claude_transport.completion.agent_cli import CLAUDE_CODE, AgentCLI
from claude_transport.launch.discovery import CLI

TESTS = Path(__file__).parent
HERE = "test_systems_rows.py"
RESOLUTION, CLASSIFICATION, CLI_PATH, API_PATH, ASSEMBLY, HEURISTICS, PREFLIGHT, STREAM = (
    f"completion/test_{name}.py"
    for name in ("resolution", "classification", "cli_path", "api_path", "assembly", "heuristics", "preflight", "stream")
)
ARGV, REAL_FLAGS = "launch/test_argv.py", "launch/test_real_cli_flags.py"
COMPLETE, AUTH, MAIN_JOB = "e2e/test_complete.py", "e2e/test_auth_matrix.py", "e2e/test_main_job.py"
BRIDGE, HOSTING, STACK = "e2e/test_bridge.py", "e2e/test_hosting.py", "e2e/test_wrapper_stack.py"

PROOFS: dict[str, tuple[str, ...]] = {
    "S1.1": (
        f"{COMPLETE}::test_both_paths_give_the_same_completion",
        f"{COMPLETE}::test_a_failure_has_its_class_its_code_and_its_attempts",
        f"{COMPLETE}::test_a_stream_is_heard_as_it_is_written",
        f"{CLI_PATH}::test_s1_1_blind_callers_catch_one_class_and_others_what_only_the_cli_raises",
        f"{STREAM}::test_the_pieces_come_as_they_are_written_and_add_up",
    ),
    "S1.2": (
        f"{AUTH}::test_s1_2_each_cell_comes_to_what_the_table_says",
        f"{RESOLUTION}::test_s1_2_the_matrix_has_all_states_and_all_choices",
        f"{RESOLUTION}::test_s1_2_an_explicit_choice_is_taken_whatever_there_is",
        "completion/test_transport_choice_pages.py::test_the_committed_pages_are_what_the_generator_writes",
    ),
    "S1.3": (
        f"{RESOLUTION}::test_s1_3_the_strongest_layer_that_says_something_decides",
        f"{RESOLUTION}::test_s1_3_the_reason_names_who_decided_and_what_was_found",
        f"{RESOLUTION}::test_s1_3_what_is_no_choice_is_refused_with_the_layer_that_said_it",
        f"{CLI_PATH}::test_s1_3_the_call_wins_over_the_environment_and_that_over_the_declaration",
    ),
    "S1.4": (
        "completion/test_announcement.py::test_s1_4_the_first_auto_that_comes_to_the_cli_is_announced_and_no_other",
        "completion/test_announcement.py::test_s1_4_explicit_choices_and_the_api_are_never_announced",
        "completion/test_announcement.py::test_s1_4_the_library_writes_nothing_to_stderr_by_itself",
        "app/test_ask_transport.py::test_s1_4_an_auto_that_comes_to_a_claude_is_one_line_on_stderr",
    ),
    "S1.5": (
        f"{PREFLIGHT}::test_s1_5_passes_when_any_path_is_open_and_fails_when_none_is",
        f"{PREFLIGHT}::test_s1_5_the_strict_check_requires_the_key",
        f"{AUTH}::test_s1_5_the_binary_says_of_itself_what_preflight_says_of_it",
    ),
    "S1.6": (
        f"{CLASSIFICATION}::test_s1_6_the_same_failure_has_the_same_class_code_and_sentence_on_both_paths",
        f"{CLASSIFICATION}::test_s1_6_a_message_is_a_fixed_sentence_and_the_cause_keeps_the_rest",
        "protocol/test_diagnosis.py::test_every_recorded_failure_has_its_place_in_the_taxonomy",
        f"{COMPLETE}::test_a_failure_has_its_class_its_code_and_its_attempts",
    ),
    "S1.7": (
        f"{COMPLETE}::test_a_failure_has_its_class_its_code_and_its_attempts",
        f"{API_PATH}::test_a_failure_has_its_class_its_code_and_its_attempts",
        f"{API_PATH}::test_retry_after_is_waited_for_and_one_that_is_too_long_is_not",
        f"{CLI_PATH}::test_what_may_have_left_traces_is_never_done_a_second_time",
        f"{CLASSIFICATION}::test_s1_7_the_moment_a_limit_lifts_is_read_or_not_known",
    ),
    "S1.8": (
        f"{COMPLETE}::test_both_paths_give_the_same_completion",
        f"{COMPLETE}::test_a_timeout_keeps_the_text_so_far",
        f"{COMPLETE}::test_the_table_of_models_is_what_the_cli_asks_for_and_charges",
        f"{API_PATH}::test_the_answer_has_everything_that_the_api_said",
        f"{CLI_PATH}::test_the_answer_has_everything_that_the_cli_said",
    ),
    "S1.9": (
        "test_spawn_benchmark.py::test_mean_median_percentile_deviation_and_delta_are_what_they_are_called",
        "test_spawn_benchmark.py::test_the_page_shows_the_chart_and_every_row_of_the_table",
        "test_spawn_benchmark.py::test_fewer_than_ten_runs_are_refused",
    ),
    "S1.10": (f"{HERE}::test_s1_10_another_agents_cli_can_be_described_beside_claude_code",),
    "S2.1": (
        "protocol/test_framing.py::test_blank_lines_are_left_out",
        "protocol/test_codec.py::test_a_line_that_is_no_object_is_a_failure_of_its_kind",
        "protocol/test_codec.py::test_failures_stay_in_their_place_with_their_line_number",
        "protocol/test_recordings.py::test_every_line_from_the_cli_is_typed_at_once",
        "transports/test_reading.py::test_read_failure_after_last_message_again_and_again",
    ),
    "S2.2": (f"{ASSEMBLY}::test_s2_the_lines_of_a_run_come_to",),
    "S2.3": (f"{ASSEMBLY}::test_s2_the_lines_of_a_run_come_to", f"{ASSEMBLY}::test_no_shape_of_a_line_ever_raises"),
    "S2.4": (
        f"{ASSEMBLY}::test_s2_4_only_a_strictly_true_is_error_is_a_failure_and_the_first_one_counts",
        f"{CLASSIFICATION}::test_s2_4_a_long_text_is_cut_at_4_kb_and_whole_in_the_result",
        f"{CLASSIFICATION}::test_s2_4_no_text_is_an_api_error_without_detail",
    ),
    "S2.5": (
        f"{CLASSIFICATION}::test_s2_5_words_are_the_last_resort_and_rate_limits_come_first",
        f"{CLASSIFICATION}::test_s2_5_a_field_that_says_something_wins_over_any_words",
    ),
    "S2.6": (f"{CLI_PATH}::test_s2_6_a_run_without_a_result_is_an_answer_with_a_warning",),
    "S2.7": (
        f"{HEURISTICS}::test_s2_7_what_was_recorded_is_judged_by_its_frames",
        f"{HEURISTICS}::test_s2_7_a_hang_wins_over_a_background_task",
        f"{HEURISTICS}::test_s2_7_a_run_that_reports_a_failure_is_left_at_that",
        f"{CLI_PATH}::test_s2_7_a_run_that_waits_for_somebody_is_advised_of_unless_nobody_wants_to_know",
    ),
    "S2.8": (
        f"{CLI_PATH}::test_s2_8_a_timeout_keeps_the_text_and_leaves_no_process",
        f"{CLASSIFICATION}::test_s2_8_a_timeout_keeps_what_had_come_by_then",
        f"{CLI_PATH}::test_no_binary_is_said_to_be_none",
        f"{COMPLETE}::test_a_timeout_keeps_the_text_so_far",
    ),
    "S3.1": (
        f"{AUTH}::test_s3_1_the_billing_policy_decides_what_reaches_the_binary_and_the_api",
        f"{AUTH}::test_s3_1_the_strict_policy_refuses_before_anything_runs",
        "launch/test_environment.py::test_the_environment_of_this_process_is_only_read",
        "launch/test_environment.py::test_the_description_names_exactly_what_the_child_gets_and_never_a_value",
    ),
    "S3.2": (
        "launch/test_credentials.py::test_the_strongest_of_any_set_of_credentials_wins",
        "launch/test_credentials.py::test_the_headers_are_those_that_the_cli_sent",
        "app/test_doctor.py::test_the_winning_credential_and_who_pays_are_told",
    ),
    "S3.3": (
        "e2e/test_program.py::test_the_doctor_tries_the_real_claude_without_the_users_world",
        "e2e/test_program.py::test_the_doctor_says_in_words_that_everything_works",
        "app/test_doctor.py::test_offline_tries_the_simulated_claude_and_times_every_step",
    ),
    "S3.4": (
        "e2e/test_sessions.py::test_a_resumed_session_knows_what_was_said_and_keeps_its_id",
        f"{COMPLETE}::test_a_session_can_be_gone_on_with",
    ),
    "S3.5": (
        f"{HOSTING}::test_s3_5_what_is_long_reaches_the_real_cli_off_the_command_line",
        "launch/test_build_launch.py::test_the_command_line_is_short_whatever_the_options_hold",
        "transports/test_launchers.py::test_no_secret_and_no_argument_is_on_any_command_line_of_either_end",
    ),
    "S3.6": (
        f"{HOSTING}::test_s3_6_the_version_is_known_and_capabilities_come_first",
        f"{MAIN_JOB}::test_an_option_that_this_cli_does_not_know_is_named",
        "app/test_doctor.py::test_the_version_is_read_from_the_files_and_compared",
        f"{REAL_FLAGS}::test_the_version_read_from_the_files_is_the_one_the_binary_says",
    ),
    "S4.1": (
        f"{HOSTING}::test_s4_1_the_arguments_of_a_process_are_those_of_the_table",
        f"{ARGV}::test_bare_is_dropped_with_a_note_when_the_child_has_no_key",
        f"{ARGV}::test_mcp_configuration_is_strict_when_servers_are_given_unless_told_otherwise",
        f"{ARGV}::test_mcp_servers_never_take_the_built_in_tools_away",
        f"{REAL_FLAGS}::test_the_fixed_arguments_are_needed",
        "launch/test_options_page.py::test_the_committed_page_is_what_the_generator_writes",
    ),
    "S4.2": (
        f"{HOSTING}::test_s4_2_the_extras_reach_the_real_cli",
        f"{HOSTING}::test_s4_2_servers_that_are_given_win_over_those_that_the_user_configured",
        f"{ARGV}::test_an_option_becomes_its_arguments",
        f"{REAL_FLAGS}::test_the_cli_knows_every_flag_and_accepts_its_value",
        "launch/test_option_validation.py::test_bypassing_permissions_as_root_is_refused_with_three_remedies",
    ),
    "S4.3": (
        "e2e/test_mcp_servers.py::test_the_model_calls_a_tool_that_runs_in_this_process",
        f"{BRIDGE}::test_the_model_calls_a_tool_through_the_bridge",
        f"{BRIDGE}::test_the_token_is_on_no_command_line",
        f"{BRIDGE}::test_a_host_that_goes_is_an_error_for_the_model_and_not_a_hang",
        "e2e/test_gateway.py::test_permissions_hooks_and_host_tools_are_answered_by_the_client",
    ),
    "S4.4": (
        f"{ASSEMBLY}::test_s4_4_tool_calls_that_were_made_are_stripped_and_the_stop_reason_and_the_events_stay",
        f"{COMPLETE}::test_tools_that_the_cli_has_run_are_events_and_not_in_the_message",
    ),
    "S4.5": (
        f"{CLASSIFICATION}::test_s4_5_the_codes_are_the_seeds_on_every_transport",
        f"{CLASSIFICATION}::test_s4_5_a_denial_that_stops_the_run_is_told_from_one_that_does_not_and_from_an_interrupt",
        "completion/test_transport_choice_pages.py::test_s4_5_every_code_of_the_seed_is_in_the_table",
    ),
    "S4.6": (
        f"{CLI_PATH}::test_s4_6_the_calls_of_tools_are_events_and_not_in_the_message",
        f"{COMPLETE}::test_tools_that_the_cli_has_run_are_events_and_not_in_the_message",
    ),
    "S5.1": (
        "conformance/test_media.py::test_a_medium_keeps_the_clause_or_cannot_express_it",
        "conformance/test_mutants.py::test_every_clause_has_a_mutant_that_breaks_it",
    ),
    "S5.2": (
        f"{MAIN_JOB}::test_a_text_turn",
        f"{MAIN_JOB}::test_one_shot_ends_by_itself",
        "e2e/test_interop_agent_sdk.py::test_our_subprocess_completes_a_turn_of_the_official_sdk",
    ),
    "S5.3": (
        "e2e/test_plain_network.py::test_the_real_cli_is_asked_asks_back_and_leaves_when_the_input_ends",
        "e2e/test_cut_link.py::test_a_turn_with_a_permission_question_survives_its_connection_being_cut_every_few_lines",
        "e2e/test_ssh.py::test_the_main_job_over_ssh",
        "transports/test_network.py::test_a_query_runs_over_every_plain_medium_and_half_close_brings_the_last_words",
        "transports/test_network.py::test_mutual_tls_needs_a_certificate_of_ours",
    ),
    "S5.4": (
        f"{STACK}::test_the_metrics_are_what_the_api_served_and_the_tape_holds",
        f"{STACK}::test_the_spans_are_the_turns_and_tools_that_there_were",
        f"{STACK}::test_the_others_tell_the_same_story",
        "wrappers/test_laws.py::test_it_keeps_every_clause_that_what_it_wraps_keeps",
        "wrappers/test_retrying.py::test_a_write_that_may_have_arrived_is_uncertain_and_never_made_again",
        "wrappers/test_stateful.py::test_a_life_has_five_states_and_each_change_is_told_when_it_happens",
    ),
    "S5.5": (
        "transports/test_mock.py::test_what_is_written_is_recorded_decoded_and_in_order",
        "transports/test_script.py::test_a_query_that_does_what_the_script_says_gets_what_it_says",
        "e2e/test_record_replay.py::test_a_recorded_conversation_with_the_real_cli_is_replayed_message_for_message",
        "testing/test_plugin.py::test_mocks_and_fakes_are_there_without_an_import",
    ),
    "S5.6": (
        f"{HOSTING}::test_s5_6_without_a_query_a_prompt_is_written_and_its_result_read",
        "transports/test_mock.py::test_read_directly_after_a_prompt_it_plays_them_through_as_well",
    ),
    "S5.7": (
        "e2e/test_plain_network.py::test_the_real_cli_is_asked_asks_back_and_leaves_when_the_input_ends",
        "streams/test_compression.py::test_lines_of_json_shrink_to_a_fifth_and_less",
        "streams/test_websocket.py::test_compression_is_used_when_both_ends_want_it",
        "streams/test_tls.py::test_a_server_that_cannot_be_trusted_is_not_spoken_to",
        "transports/test_launchers.py::test_lines_go_both_ways_and_the_end_of_input_arrives",
    ),
}
SECTIONS = {1: 10, 2: 8, 3: 6, 4: 6, 5: 7}
ROWS = [f"S{section}.{row}" for section, count in SECTIONS.items() for row in range(1, count + 1)]


@cache
def declared_in(path: str) -> dict[str, str]:
    """The tests of a file, each with its decorators as text."""
    functions = (
        node for node in ast.parse((TESTS / path).read_text("utf-8")).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return {function.name: " ".join(map(ast.unparse, function.decorator_list)) for function in functions}


def test_every_row_has_a_proof() -> None:
    assert list(PROOFS) == ROWS
    assert all(PROOFS.values())


@pytest.mark.parametrize("row", ROWS)
def test_every_proof_of_a_row_exists_and_is_never_skipped(row: str) -> None:
    for proof in PROOFS[row]:
        path, _, name = proof.partition("::")
        assert name in declared_in(path), proof
        assert "mark.skip" not in declared_in(path)[name], proof
        assert "mark.xfail" not in declared_in(path)[name], proof


def test_s1_10_another_agents_cli_can_be_described_beside_claude_code() -> None:
    """The seam for a second agent; only Claude Code's protocol is spoken."""
    found = CLI(path="/opt/codex", source="explicit", searched=())
    other = AgentCLI(name="codex", find=lambda _explicit=None, /, *, env: found, read_version=lambda _cli, /: "1.0")
    assert other.find(env={}) is found
    assert (other.name, other.read_version(found)) == ("codex", "1.0")
    assert CLAUDE_CODE.name == "claude-code"
