"""Options that a client chooses: malformed values are refused with a message, and no value allows more than the gateway's options."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from typing import Any, get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rehearsal import rehearsal

from claude_transport.errors import ConfigurationError
from claude_transport.launch.options import ClaudeOptions, Effort, PermissionMode
from claude_transport.link.machine import Hello, Refusal
from claude_transport.serving.choices import DEFAULT_CHOICES, LIMITED, Choices
from claude_transport.serving.turned_away import TurnedAway
from claude_transport.transport import Client
from claude_transport.transports.subprocess import SubprocessTransport

EVERYTHING = Choices(ClaudeOptions.__struct_fields__)

# Options without a limit: text for the model, output on stdout, and the choice of the conversation.
FREE = {
    *("model", "betas", "autocompact", "append_system_prompt", "append_subagent_system_prompt", "exclude_dynamic_system_prompt_sections"),
    *("system_prompt_snapshot", "plan_mode_instructions", "output_format", "agent_progress_summaries", "supported_dialog_kinds"),
    *(
        "per_task_stop_affordance",
        "continue_conversation",
        "resume",
        "session_id",
        "fork_session",
        "resume_session_at",
        "resume_drops_turn",
    ),
    *("session_mirror", "name", "title", "enable_file_checkpointing", "include_partial_messages", "include_hook_events"),
    *("forward_subagent_text", "replay_user_messages", "prompt_suggestions", "auth_status_events", "session_state_events"),
    *("mcp_servers_delivery", "plugin_delivery", "sdk_mcp_server_manifests", "sdk_mcp_server_manifests_origin", "tool_config"),
    *("await_initialize", "debug", "debug_to_stderr", "client_app", "entrypoint", "workload"),
}
TOGETHER = {"thinking", "max_thinking_tokens", "fallback_model"}


def test_of_every_option_it_is_known_whether_it_limits_a_session() -> None:
    assert FREE | set(LIMITED) | TOGETHER == set(ClaudeOptions.__struct_fields__)
    assert not FREE.intersection(LIMITED)


# Malformed values

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["enabled", "json_schema", "file", "all"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(max_size=5) | st.sampled_from(["type", "schema", "budget_tokens", "path", "total", "preset"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)
OURS = (
    ClaudeOptions(),
    ClaudeOptions(
        thinking={"type": "enabled", "budget_tokens": 1024},
        effort="low",
        max_turns=3,
        task_budget={"total": 9},
        permission_mode="plan",
        allowed_tools=("Read",),
        disallowed_tools=("Bash",),
        tools=("Read", "Bash"),
        add_dirs=("/srv",),
        skills=("pdf",),
        setting_sources=("user",),
    ),
)


@settings(max_examples=600, deadline=None)
@given(name=st.sampled_from(sorted(ClaudeOptions.__struct_fields__)), value=JSON, ours=st.sampled_from(OURS))
@example(name="output_format", value={"type": "json_schema"}, ours=OURS[0])
@example(name="output_format", value={}, ours=OURS[0])
@example(name="output_format", value={"type": "json_schema", "schema": []}, ours=OURS[0])
@example(name="system_prompt", value={"type": []}, ours=OURS[0])
@example(name="system_prompt", value={"type": "preset", "preset": "claude_code", "append": "\ud800"}, ours=OURS[0])
@example(name="thinking", value={"type": "enabled"}, ours=OURS[1])
@example(name="thinking", value={"type": {}}, ours=OURS[1])
@example(name="task_budget", value={"total": "all"}, ours=OURS[1])
@example(name="skills", value=[7], ours=OURS[0])
@example(name="plugins", value=[{"type": "local", "path": 7}], ours=OURS[0])
@example(name="max_budget_usd", value=10**400, ours=OURS[0])
@example(name="env", value=[], ours=OURS[0])
@example(name="mcp_servers", value=7, ours=OURS[0])
@example(name="settings", value=7, ours=OURS[0])
@example(name="project_config_root", value="a\0b", ours=OURS[0])
@example(name="title", value="a\0b", ours=OURS[0])
@example(name="agents", value={"a": 7}, ours=OURS[0])
@example(name="sandbox", value={"": {"": [{}]}}, ours=OURS[0])
def test_a_value_is_taken_as_it_should_be_or_refused_in_words_and_never_an_internal_error(
    name: str, value: Any, ours: ClaudeOptions
) -> None:
    try:
        made = EVERYTHING.apply(ours, {name: value})
        SubprocessTransport(made).attach(Client(answers=frozenset({"can_use_tool"})))
    except TurnedAway as exc:
        refused = exc
    else:
        return
    assert (refused.reason, refused.code, refused.status) == ("options", "gateway.options", 400)
    assert str(refused)


@pytest.mark.parametrize("depth", [64, 900, 100_000])
def test_a_value_with_too_many_levels_is_refused_before_anything_goes_down_into_it(depth: int) -> None:
    value: Any = {}
    for _ in range(depth):
        value = {"a": value}
    with pytest.raises(TurnedAway, match="more than 64 levels"):
        EVERYTHING.apply(ClaudeOptions(), {"output_format": {"type": "json_schema", "schema": value}})


MALFORMED: list[Mapping[str, Any]] = [
    {"output_format": {"type": "json_schema"}},
    {"output_format": {}},
    {"output_format": "json"},
    {"thinking": {"type": "enabled"}},
    {"thinking": {"type": "adaptive"}, "max_thinking_tokens": 5},
    {"max_turns": "3"},
    {"max_turns": True},
    {"effort": ["low"]},
    {"disallowed_tools": "Bash"},
    {"disallowed_tools": None},
    {"fallback_model": {}},
    {"fallback_model": [7]},
    {"system_prompt": {"type": "file", "path": "/etc/passwd"}},
    {"system_prompt": {"type": []}},
    {"title": "\0"},
]


@pytest.mark.parametrize("chosen", MALFORMED, ids=[json.dumps(each) for each in MALFORMED])
async def test_a_malformed_choice_is_a_typed_refusal_on_the_wire(chosen: Mapping[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "claude_transport")
    async with rehearsal(tokens={}, launch=None, command=None) as stage:
        link = stage.connect()
        await link.frame(Hello(version=1, options=dict(chosen)))
        refusal = await link.hear_frame(Refusal)
        assert (refusal.code, refusal.retryable) == ("options", False)
        plain = stage.connect()
        await plain.say({"type": "authenticate", "options": chosen})
        assert json.loads(await plain.hear())["error"] == {"code": "options", "message": refusal.text, "retryable": False}
        assert stage.gateway.metrics.refused == {"options": 2}
    assert next(iter(chosen)).partition("[")[0] in refusal.text or "max_thinking_tokens" in refusal.text
    assert not [record for record in caplog.records if record.exc_info]


# Limits

ALLOWS = {  # what each mode allows with or without a question, written down independently
    "dontAsk": {"rules"},
    "plan": {"read"},
    "default": {"rules", "read", "ask"},
    "manual": {"rules", "read", "ask"},
    "acceptEdits": {"rules", "read", "ask", "edit"},
    "auto": {"rules", "read", "ask", "edit", "judge"},
    "bypassPermissions": {"rules", "read", "ask", "edit", "judge", "all"},
}
AMOUNTS = ("max_turns", "max_output_tokens", "max_retries")
TIMES = ("max_budget_usd", "background_wait_ceiling", "mcp_timeout", "mcp_tool_timeout")
NAMES = st.lists(st.sampled_from(["Read", "Bash", "Bash(git:*)", "Edit", "Write(/srv/**)"]), max_size=4)
WISHES = st.fixed_dictionaries(
    {},
    optional={
        **{name: st.integers(1, 50) | st.none() for name in AMOUNTS},
        **{name: st.floats(0.1, 50) | st.none() for name in TIMES},
        "effort": st.sampled_from(get_args(Effort)) | st.none(),
        "permission_mode": st.sampled_from(get_args(PermissionMode)) | st.none(),
        "task_budget": st.integers(1, 50).map(lambda total: {"total": total}) | st.none(),
        "allowed_tools": NAMES,
        "disallowed_tools": NAMES,
        "tools": NAMES | st.none(),
        "add_dirs": st.lists(st.sampled_from(["/srv", "/home", "/"]), max_size=2),
        "setting_sources": st.lists(st.sampled_from(["user", "project", "local"]), max_size=3) | st.none(),
        "restricted": st.booleans(),
        "safe_mode": st.booleans(),
        "disable_background_tasks": st.booleans(),
    },
)
THINKING = st.one_of(
    st.just({}),
    st.integers(0, 50).map(lambda tokens: {"max_thinking_tokens": tokens}),
    st.integers(1, 50).map(lambda tokens: {"thinking": {"type": "enabled", "budget_tokens": tokens}}),
    st.sampled_from(
        [{"thinking": {"type": "adaptive"}}, {"thinking": {"type": "disabled"}}, {"thinking": None}, {"max_thinking_tokens": None}]
    ),
)


def budget(options: ClaudeOptions) -> float:
    """The tokens that the model may think."""
    if options.max_thinking_tokens is not None:
        return options.max_thinking_tokens
    if options.thinking is None or options.thinking["type"] == "adaptive":
        return math.inf
    return 0 if options.thinking["type"] == "disabled" else options.thinking["budget_tokens"]


def unlimited(value: Any) -> Any:
    return math.inf if value is None else value


def allows_no_more(made: ClaudeOptions, ours: ClaudeOptions) -> None:
    for name in (*AMOUNTS, *TIMES):
        assert unlimited(getattr(made, name)) <= unlimited(getattr(ours, name)), name
    efforts = [*get_args(Effort), None]
    assert ours.effort is None or efforts.index(made.effort) <= efforts.index(ours.effort)
    assert ALLOWS[made.permission_mode or "default"] <= ALLOWS[ours.permission_mode or "default"]
    assert unlimited((made.task_budget or {}).get("total")) <= unlimited((ours.task_budget or {}).get("total"))
    for rule in made.allowed_tools:
        assert rule in ours.allowed_tools or rule.split("(")[0] in ours.allowed_tools
    assert set(ours.disallowed_tools) <= set(made.disallowed_tools)
    for name in ("tools", "setting_sources"):
        limit = getattr(ours, name)
        if limit is not None:
            assert getattr(made, name) is not None
            assert {each for each in getattr(made, name) if each.split("(")[0] not in limit} <= set(limit)
    assert set(made.add_dirs) <= set(ours.add_dirs)
    for name in ("restricted", "safe_mode", "disable_background_tasks"):
        assert getattr(made, name) or not getattr(ours, name)
    assert budget(made) <= budget(ours)


@settings(max_examples=600, deadline=None)
@given(ours=WISHES, our_thinking=THINKING, theirs=WISHES, their_thinking=THINKING)
@example(
    ours={}, our_thinking={"thinking": {"type": "enabled", "budget_tokens": 1024}}, theirs={}, their_thinking={"max_thinking_tokens": 10**6}
)
@example(ours={}, our_thinking={"max_thinking_tokens": 0}, theirs={}, their_thinking={"thinking": {"type": "adaptive"}})
def test_no_choice_allows_more_than_the_gateway_does(
    ours: dict[str, Any], our_thinking: dict[str, Any], theirs: dict[str, Any], their_thinking: dict[str, Any]
) -> None:
    options = ClaudeOptions(**ours, **our_thinking)
    for chosen in (theirs, their_thinking, {**theirs, **their_thinking}):
        try:
            made = EVERYTHING.apply(options, chosen)
        except TurnedAway:
            continue
        allows_no_more(made, options)


@pytest.mark.parametrize(
    ("ours", "chosen", "made"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, {"thinking": {"type": "enabled", "budget_tokens": 10**6}}, 1024),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, {"thinking": {"type": "enabled", "budget_tokens": 99}}, 99),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, {"thinking": {"type": "adaptive"}}, 1024),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, {"thinking": {"type": "disabled"}}, 0),
        ({"thinking": {"type": "disabled"}}, {"thinking": {"type": "adaptive"}}, 0),
        ({"thinking": {"type": "adaptive"}}, {"thinking": {"type": "enabled", "budget_tokens": 99}}, 99),
        ({"max_thinking_tokens": 1024}, {"thinking": {"type": "enabled", "budget_tokens": 10**6}}, 1024),
        ({"max_thinking_tokens": 1024}, {"max_thinking_tokens": 99}, 99),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, {"max_thinking_tokens": 10**6}, 1024),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, {"thinking": None}, 1024),
        ({}, {"thinking": {"type": "enabled", "budget_tokens": 10**6}}, 10**6),
    ],
)
def test_a_thinking_budget_can_be_lowered_and_not_raised(ours: dict[str, Any], chosen: dict[str, Any], made: int) -> None:
    assert budget(Choices().apply(ClaudeOptions(**ours), chosen)) == made


NUMBERS = sorted({*AMOUNTS, *TIMES, "mcp_tool_idle_timeout"})


@pytest.mark.parametrize(
    ("name", "less", "more"),
    [*((name, 3, 9) for name in NUMBERS), ("effort", "low", "max"), ("task_budget", {"total": 3}, {"total": 9})],
)
def test_each_limit_can_be_lowered_and_not_raised(name: str, less: Any, more: Any) -> None:
    """The examples above are drawn, so this names each of them."""
    for ours, chosen, made in ((less, more, less), (more, less, less), (None, more, more), (less, None, less)):
        options: dict[str, Any] = {name: ours}
        assert getattr(EVERYTHING.apply(ClaudeOptions(**options), {name: chosen}), name) == made


WIDER: list[tuple[str, Any, Any, str]] = [  # option, the gateway's value, the client's, and what the client is told
    ("permission_mode", None, "acceptEdits", "may be default, dontAsk, manual, plan, not acceptEdits"),
    ("permission_mode", "plan", "default", "may be plan, not default"),
    ("permission_mode", "acceptEdits", "auto", "may be acceptEdits, default, dontAsk, manual, plan, not auto"),
    ("allowed_tools", ("Read",), ["Bash"], "Bash is not among what the gateway allows"),
    ("allowed_tools", ("Bash(git:*)",), ["Bash"], "Bash is not among what the gateway allows"),
    ("add_dirs", ("/srv",), ["/srv/a", "/srv"], "/srv/a is not among what the gateway allows"),
    ("skills", ("pdf",), "all", "may name only what the gateway's own list names"),
    ("tools", ("Read",), {"type": "preset", "preset": "claude_code"}, "may name only what the gateway's own list names"),
    ("bare", True, False, "is on for every client, and cannot be switched off"),
    ("chrome", False, True, "is off for every client, and cannot be switched on"),
    ("cwd", "/srv", "/", "is set by the gateway, and cannot be replaced"),
    ("system_prompt", None, {"type": "preset", "preset": "claude_code"}, "must be text"),
]


@pytest.mark.parametrize(("name", "ours", "chosen", "why"), WIDER, ids=[f"{each[0]}-{each[2]}" for each in WIDER])
def test_what_would_allow_more_than_the_gateway_is_refused_with_the_reason(name: str, ours: Any, chosen: Any, why: str) -> None:
    options: dict[str, Any] = {name: ours}
    with pytest.raises(TurnedAway) as refused:
        EVERYTHING.apply(ClaudeOptions(**options), {name: chosen})
    assert (refused.value.reason, str(refused.value)) == ("options", f"{name}: {why}")


PRESET = {"type": "preset", "preset": "claude_code"}
NARROWER: list[tuple[str, Any, Any, Any]] = [  # option, the gateway's value, the client's, and that of the session
    ("permission_mode", "acceptEdits", None, "acceptEdits"),
    ("permission_mode", None, "plan", "plan"),
    ("permission_mode", "acceptEdits", "default", "default"),
    ("allowed_tools", ("Read", "Bash"), ["Bash(git:*)", "Read"], ("Bash(git:*)", "Read")),
    ("skills", "all", ["pdf"], ("pdf",)),
    ("skills", "all", "all", "all"),
    ("skills", ("pdf",), None, ("pdf",)),
    ("skills", None, ("pdf",), ("pdf",)),
    ("tools", PRESET, ["Read"], ("Read",)),
    ("tools", PRESET, PRESET, PRESET),
    ("tools", PRESET, None, PRESET),
    ("disallowed_tools", ("Bash",), ["Edit"], ("Bash", "Edit")),
    ("bare", True, True, True),
    ("bare", False, False, False),
    ("bare", False, True, True),
    ("chrome", False, False, False),
    ("chrome", True, False, False),
    ("chrome", True, True, True),
    ("cwd", "/srv", "/srv", "/srv"),
]


@pytest.mark.parametrize(("name", "ours", "chosen", "made"), NARROWER, ids=[f"{each[0]}-{each[1]}-{each[2]}" for each in NARROWER])
def test_what_allows_no_more_than_the_gateway_is_taken(name: str, ours: Any, chosen: Any, made: Any) -> None:
    options: dict[str, Any] = {name: ours}
    found = getattr(EVERYTHING.apply(ClaudeOptions(**options), {name: chosen}), name)
    assert (tuple(found) if isinstance(found, list) else found) == made


@pytest.mark.parametrize("allowed", ["model", [7]])
def test_choices_are_a_list_of_names(allowed: Any) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Choices(allowed)
    assert (refused.value.args[0], refused.value.option) == (
        "choices is not a collection of option names: give a list such as ['model']",
        "choices",
    )


def test_lists_count_as_levels_of_a_value() -> None:
    value: Any = []
    for _ in range(64):
        value = [value]
    with pytest.raises(TurnedAway, match="more than 64 levels"):
        EVERYTHING.apply(ClaudeOptions(), {"output_format": {"type": "json_schema", "schema": {"enum": value}}})


def test_how_thoughts_are_shown_stays_the_clients_choice() -> None:
    ours = ClaudeOptions(thinking={"type": "enabled", "budget_tokens": 1024})
    made = Choices().apply(ours, {"thinking": {"type": "enabled", "budget_tokens": 2048, "display": "omitted"}})
    assert made.thinking == {"type": "enabled", "budget_tokens": 1024, "display": "omitted"}


def test_who_may_not_choose_the_model_may_not_choose_it_as_a_fallback() -> None:
    choices = Choices(DEFAULT_CHOICES - {"model"})
    ours = ClaudeOptions(model="haiku", fallback_model=("sonnet", "haiku"))
    with pytest.raises(TurnedAway, match="fallback_model"):
        choices.apply(ours, {"fallback_model": "opus"})
    assert choices.apply(ours, {"fallback_model": "sonnet"}).fallback_model == "sonnet"
    assert choices.apply(ours, {"fallback_model": None}).fallback_model == ("sonnet", "haiku")
    assert Choices().apply(ours, {"fallback_model": "opus"}).fallback_model == "opus"


def test_a_system_prompt_is_text_and_no_file_of_the_machine_of_the_gateway() -> None:
    assert EVERYTHING.apply(ClaudeOptions(), {"system_prompt": "Be brief."}).system_prompt == "Be brief."
    assert EVERYTHING.apply(ClaudeOptions(system_prompt="Ours."), {"system_prompt": None}).system_prompt is None
    with pytest.raises(TurnedAway, match="system_prompt: must be text"):
        EVERYTHING.apply(ClaudeOptions(), {"system_prompt": {"type": "file", "path": "/etc/shadow"}})


def test_what_the_gateway_has_set_for_its_machine_is_not_replaced() -> None:
    ours = ClaudeOptions(cwd="/srv", env={"A": "1"}, sandbox={"enabled": True})
    for chosen in ({"cwd": "/"}, {"env": {"A": "2"}}, {"sandbox": {"enabled": False}}):
        with pytest.raises(TurnedAway, match="cannot be replaced"):
            EVERYTHING.apply(ours, chosen)
    assert EVERYTHING.apply(ClaudeOptions(), {"cwd": "/"}).cwd == "/"


def test_the_account_of_the_modes_knows_all_of_them() -> None:
    assert set(ALLOWS) == set(get_args(PermissionMode))


def test_a_long_name_of_an_option_hides_no_other_one() -> None:
    with pytest.raises(TurnedAway) as caught:
        Choices(DEFAULT_CHOICES).apply(ClaudeOptions(), {"x" * 10_000: 1, "zeta": 2})
    assert str(caught.value) == f"not for a client to choose: {'x' * 64}, zeta"


def test_no_more_than_eight_names_are_repeated_to_a_client() -> None:
    names = [f"n{number}" for number in range(1, 10)]
    with pytest.raises(TurnedAway) as caught:
        Choices().apply(ClaudeOptions(), dict.fromkeys(names))
    assert str(caught.value).endswith("n7, n8")
    with pytest.raises(TurnedAway) as caught:
        EVERYTHING.apply(ClaudeOptions(allowed_tools=("Read",)), {"allowed_tools": names})
    assert "n7, n8 is not among" in str(caught.value)
