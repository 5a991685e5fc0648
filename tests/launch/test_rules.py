"""No text of an option allows or denies something else than it says, on whichever way it reaches the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from claude_transport.client.query import Query
from claude_transport.errors import ConfigurationError
from claude_transport.launch.argv import build_argv
from claude_transport.launch.launch import build_launch
from claude_transport.launch.options import ClaudeOptions
from claude_transport.launch.rules import check_agent_rules, split_rules
from claude_transport.launch.validation import validate_options
from claude_transport.serving.choices import Choices
from claude_transport.serving.turned_away import TurnedAway
from claude_transport.transports.mock import MockTransport

KEY = {"ANTHROPIC_API_KEY": "sk-ant-fake", "PATH": "/usr/bin:/bin"}
JS_SPACES = "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"

# Each was accepted by an earlier version on one way or another.
NO_SKILLS: list[Any] = [
    "pdf",
    "",
    {"pdf"},
    {"pdf": 1},
    3,
    b"pdf",
    [""],
    [3],
    [None],
    ["x),Bash(*"],
    ["x) Bash"],
    ["x", "y),Bash(*"],
    ["a,b"],
    ["*"],
    ["pdf:*"],
    ["pdf *"],
    ["("],
    [")"],
    [" pdf"],
    ["pdf "],
    ["two  spaces"],
    ["\ufeffpdf"],
    ["pdf\ufeff"],
    ["/pdf"],
    ["pdf\\"],
    ["a\\\\b"],
    ["a\nb"],
    ["a\x7fb"],
    ["a\x85b"],
    ["a\x9fb"],
    ["a\x00b"],
    ["a\u2028b"],
]
SKILLS = [None, [], "all", ["pdf"], ("pdf",), ["plugin:skill"], ["my skill"], ["a\\b"], ["ü-é"], ["a_b-c.d"], ["!x"]]

NO_RULES: list[Any] = [
    "Bash",
    {"Bash"},
    [3],
    ["Read Bash"],
    ["Read,Bash"],
    ["Bash "],
    [" Bash"],
    ["\ufeffBash"],
    ["Bash\n"],
    ["Bash("],
    ["Bash)"],
    ["Bash(a"],
    ["Bash(a)b"],
    ["(a)"],
    ["Bash(a\\)"],
    ["Read(x),Bash(*)"],
    ["Read(x) Bash(*)"],
    ["Read(x),Bash(*"],
    ["Bash(echo (a) b)"],
    ["Bash(echo (a), b)"],
    ["Bash\\(a)"],
    ["Bash(a\x7f)"],
    ["Bash(a\x85)"],
    ["Bash(a\ufeff)"],
    ["Bash(a\x1b[2J)"],
]
RULES = [
    *(["Bash"], ["*"], ["--odd"], ["mcp__a"], ["mcp__a__*"], ["Bash(*)"], ["Bash()"], ["Bash(git log:*)"], ["Bash(a\nb)"]),
    *(["Bash(git commit -m 'a, b')"], ["Bash(a)b)"], ["Bash(f(x))"], ["Bash(echo (a b))"], ["Bash(a\\\\)"], ["Bash(a\\b)"]),
    *(["Read(//tmp/**)"], ["Read(~/x y/**)"], ["WebFetch(domain:a.b)"], ["Agent(Explore, Plan)"]),
]


def tokens(values: list[str]) -> list[str]:
    """The rules that the CLI makes of the values of a list flag, as observed on 2.1.92 to 2.1.330 (tests/e2e/test_rule_texts.py)."""
    found = []
    for value in values:
        rule, inside = "", False
        for character in value:
            inside = {"(": True, ")": False}.get(character, inside)
            if character in ", " and not inside:
                found.append(rule.strip(JS_SPACES))
                rule = ""
            else:
                rule += character
        found.append(rule.strip(JS_SPACES))
    return [rule for rule in found if rule]


def read_by_the_cli(argv: list[str], *flags: str) -> list[str]:
    return tokens([argument.partition("=")[2] for argument in argv if argument.partition("=")[0] in flags])


def options_with(option: str, value: Any) -> ClaudeOptions:
    given: dict[str, Any] = {option: value}
    return ClaudeOptions(**given)


def launched(options: ClaudeOptions) -> list[str]:
    return list(build_launch(options, cli="claude", inherited=KEY, uid=1000).argv)


def built(options: ClaudeOptions) -> list[str]:
    return build_argv(options, "claude", environment=KEY)


def chosen_by_a_client(options: ClaudeOptions) -> list[str]:
    given = {name: getattr(options, name) for name in ("skills", "allowed_tools", "disallowed_tools", "tools") if getattr(options, name)}
    of_the_gateway = ClaudeOptions(allowed_tools=given.get("allowed_tools", ()))  # a client may name what the gateway allows, and no more
    try:
        return launched(Choices(given).apply(of_the_gateway, given))
    except TurnedAway as error:
        raise error.__cause__ or error from None


WAYS = {"build_argv": built, "build_launch": launched, "a gateway's client": chosen_by_a_client}
Way = Callable[[ClaudeOptions], list[str]]


@pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
@pytest.mark.parametrize("skills", [skills for skills in NO_SKILLS if skills], ids=repr)
def test_what_is_no_list_of_skill_names_is_refused_on_every_way(way: Way, skills: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        way(ClaudeOptions(skills=skills))
    assert (caught.value.option, caught.value.code) == ("skills", "config.invalid")


@pytest.mark.parametrize("skills", NO_SKILLS, ids=repr)
def test_a_query_refuses_such_skills_among_the_fields_of_initialize(skills: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Query(MockTransport(), initialize={"skills": skills})
    assert caught.value.option == "skills"


@pytest.mark.parametrize("skills", NO_SKILLS, ids=repr)
def test_the_official_options_refuse_such_skills_too(skills: Any) -> None:
    import claude_agent_sdk as sdk

    from claude_transport.interop.agent_sdk import options_from, transport_from

    for convert in (transport_from, options_from):
        with pytest.raises(ConfigurationError) as caught:
            convert(sdk.ClaudeAgentOptions(skills=skills))
        assert caught.value.option == "skills"


@pytest.mark.parametrize("skills", SKILLS, ids=repr)
def test_a_skill_is_allowed_by_a_rule_that_names_it(skills: Any) -> None:
    expected = [] if skills is None else ["Skill"] if skills == "all" else [f"Skill({name})" for name in skills]
    for way in (built, launched):
        assert read_by_the_cli(way(ClaudeOptions(skills=skills)), "--allowedTools") == expected


def test_a_string_of_skills_says_what_was_meant() -> None:
    with pytest.raises(ConfigurationError, match=r"did you mean \['pdf'\]\?"):
        validate_options(ClaudeOptions(skills="pdf"))  # type: ignore[arg-type]


@pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
@pytest.mark.parametrize("option", ["allowed_tools", "disallowed_tools"])
@pytest.mark.parametrize("rules", NO_RULES, ids=repr)
def test_what_is_no_list_of_single_rules_is_refused_on_every_way(way: Way, option: str, rules: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        way(options_with(option, rules))
    assert caught.value.option == option


@pytest.mark.parametrize("option", ["allowed_tools", "disallowed_tools"])
@pytest.mark.parametrize("rules", RULES, ids=repr)
def test_a_rule_reaches_the_cli_as_it_is(option: str, rules: list[str]) -> None:
    for way in WAYS.values():
        assert read_by_the_cli(way(options_with(option, rules)), "--allowedTools", "--disallowedTools") == rules


NO_TOOLS = ["Bash", ["Read Bash"], ["Read,Bash"], ["Bash(x)"], ["default"], ["DEFAULT", "Read"], ["preset:default"], ["\ufeffdefault"]]


@pytest.mark.parametrize("tools", NO_TOOLS, ids=repr)
def test_a_list_of_tools_offers_no_other_tool(tools: Any) -> None:
    for way in WAYS.values():
        with pytest.raises(ConfigurationError) as caught:
            way(ClaudeOptions(tools=tools))
        assert caught.value.option == "tools"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("betas", ["a,b"]),
        ("betas", ["a b"]),
        ("betas", ["a\r\nx-api-key: stolen"]),
        ("fallback_model", ["sonnet,opus"]),
        ("files", ["file_1:a.txt file_2:../../.bashrc"]),
        ("plugin_urls", ["https://one.example/a.zip https://two.example/b.zip"]),
        ("plugin_urls", ["https://one.example/a.zip\thttps://two.example/b.zip"]),
        ("plugins", [{"type": "local", "path": 3}]),
    ],
)
def test_an_item_of_a_list_that_the_cli_would_take_for_several_is_refused(option: str, value: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        build_launch(options_with(option, value), cli="claude", inherited={**KEY, "CLAUDE_CODE_SESSION_ACCESS_TOKEN": "t"})
    assert caught.value.option == option


AGENT = {"description": "d", "prompt": "p"}
NO_AGENTS = [
    *({"tools": "Bash"}, {"tools": ["Read, Bash"]}, {"tools": [3]}),
    *({"disallowedTools": ["Bash("]}, {"skills": ["x),Bash(*"]}, {"skills": "pdf"}),
]


@pytest.mark.parametrize("given", NO_AGENTS, ids=repr)
def test_an_agent_has_no_other_tools_than_its_definition_lists(given: dict[str, Any]) -> None:
    agents = {"helper": {**AGENT, **given}}
    for refused in (lambda: launched(ClaudeOptions(agents=agents)), lambda: Query(MockTransport(), agents=agents)):
        with pytest.raises(ConfigurationError, match="helper") as caught:
            refused()
        assert caught.value.option == "agents"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"skills": ["two words"]}, None),
        ({"skills": "all"}, None),
        ({"skills": None, "tools": None}, None),
        ({"tools": ["Bash(git *)"], "disallowedTools": ["Read(//etc/**)"]}, None),
        ({"tools": ["two words"]}, "agents['helper']: tools: 'two words' is not one permission rule"),
        ({"disallowedTools": ["two words"]}, "agents['helper']: disallowedTools: 'two words' is not one permission rule"),
        ({"skills": ["Bash(git *)"]}, "agents['helper']: skills: 'Bash(git *)' is not an exact skill name"),
    ],
    ids=repr,
)
def test_the_skills_and_the_tools_of_an_agent_have_each_their_own_form(given: dict[str, Any], said: str | None) -> None:
    agents = {"other": "no mapping", "helper": {**AGENT, **given}}
    if said is None:
        check_agent_rules(agents)
        return
    with pytest.raises(ConfigurationError) as caught:
        check_agent_rules(agents)
    assert str(caught.value).startswith(said)
    assert caught.value.option == "agents"


hostile = st.text(st.sampled_from(" ,()*\\/!:ab\n\t\x7f\x85\ufeff\u2028\u00a0") | st.characters(exclude_categories=["Cs"]), max_size=12)


def let_through(way: Way, **options: Any) -> list[str] | None:
    """The command line, or None when one of the options is refused by its name."""
    try:
        return way(ClaudeOptions(**options))
    except ConfigurationError as error:
        return None if error.option in options else [f"--refused={error!r}"]


@settings(deadline=None, max_examples=300)
@given(skills=st.lists(hostile | st.builds("{}),{}".format, hostile, hostile), max_size=3), allowed=st.lists(hostile, max_size=2))
@example(skills=["x),Bash(*"], allowed=[])
@example(skills=["pdf\\"], allowed=["Read"])
@example(skills=["a"], allowed=["Read Bash"])
def test_the_command_line_never_has_a_rule_that_was_not_asked_for(skills: list[str], allowed: list[str]) -> None:
    for way in WAYS.values():
        argv = let_through(way, skills=skills, allowed_tools=allowed)
        if argv is not None:
            asked = {*allowed, *(f"Skill({name})" for name in skills)}
            assert set(read_by_the_cli(argv, "--allowedTools", "--allowed-tools", "--refused")) == asked


@settings(deadline=None, max_examples=300)
@given(denied=st.lists(hostile | st.builds("{}({})".format, hostile, hostile), min_size=1, max_size=3), tools=st.lists(hostile, max_size=3))
def test_the_command_line_never_loses_a_rule_that_denies_and_never_offers_another_tool(denied: list[str], tools: list[str]) -> None:
    for way in WAYS.values():
        argv = let_through(way, disallowed_tools=denied, tools=tools)
        if argv is not None:
            assert set(read_by_the_cli(argv, "--disallowedTools", "--refused")) == set(denied)
            assert set(read_by_the_cli(argv, "--tools")) == set(tools)


SPLIT: list[tuple[str, list[str]]] = [
    ("Read, Bash(git log:*)", ["Read", "Bash(git log:*)"]),
    ("Read Edit,Glob", ["Read", "Edit", "Glob"]),
    ("Bash(git commit -m a, b), Read", ["Bash(git commit -m a, b)", "Read"]),
    ("Bash(a (b) c) d", ["Bash(a (b)", "c)", "d"]),
    (f"{JS_SPACES}Read{JS_SPACES},\x1c{JS_SPACES}", ["Read", "\x1c"]),
    ("Bash(open, to the end", ["Bash(open, to the end"]),
    (" , ,", []),
    ("", []),
]


@pytest.mark.parametrize(("text", "rules"), SPLIT)
def test_a_text_is_split_into_rules(text: str, rules: list[str]) -> None:
    assert split_rules(text) == rules


@pytest.mark.parametrize("value", [None, ["Read"], b"Read", 3])
def test_only_a_text_is_split(value: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        split_rules(value)
    said = f"rules: must be one text, not {type(value).__name__}; split each item of a list by itself"
    assert (caught.value.code, caught.value.option, str(caught.value)) == ("config.invalid", "rules", said)


@given(
    st.lists(st.sampled_from(["Read", "mcp__s__t", "Bash(git log:*)", "Bash(a, b c)", "Skill(y z)"])),
    st.sampled_from([",", " ", ", ", " ,, "]),
)
def test_rules_that_are_accepted_survive_being_joined_and_split(rules: list[str], between: str) -> None:
    validate_options(ClaudeOptions(allowed_tools=rules))
    assert split_rules(between.join(rules)) == rules
