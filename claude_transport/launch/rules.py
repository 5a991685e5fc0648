"""Checks permission rules, and the names of tools and skills that rules are made of: each text must be exactly one rule for the CLI.

The CLI splits the value of `--allowedTools`, `--disallowedTools`, `--tools` and the `tools` of an agent at commas and spaces outside
parentheses, and the first `)` ends a parenthesis. So `x),Bash(*` inside `Skill(...)` makes two rules. Escapes of the rule grammar do not
count in this step, so nothing can be escaped: a text that would be split is refused. Observed on CLI 2.1.92 to 2.1.330
(tests/e2e/test_rule_texts.py).

Every place that writes a rule calls these functions. `validate_options` calls them too, before anything is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn

from claude_transport.errors import ConfigurationError

# C0, DEL, C1, and the byte-order mark, which the CLI trims like a space
_CONTROLS: Final = "\x00-\x1f\x7f-\x9f\ufeff"
_CONTROL: Final = re.compile(f"[{_CONTROLS}]")
_SKILL_NAME: Final = re.compile(rf"[^\s(),*{_CONTROLS}]+(?: [^\s(),*{_CONTROLS}]+)*")
_TOOL_NAME: Final = re.compile(rf"[^\s(),\\{_CONTROLS}]+")
_NAME: Final = re.compile(rf"[^\s{_CONTROLS}]+")

_RULE_ADVICE: Final = (
    "give each rule as a separate item, as Tool or Tool(content); content that needs a closing parenthesis before a comma or a space "
    "goes into settings, as permissions.allow or permissions.deny"
)


def check_rules(option: str, rules: Any) -> None:
    """Refuse a list in which an item is not exactly one permission rule for the CLI.

    A deny rule that is split or misread would not deny. An allow rule could allow more than it says.

    Raises:
        ConfigurationError: names the option, the text and the remedy.
    """
    for rule in _texts(option, rules):
        name, parenthesis, content = rule.partition("(")
        if not _TOOL_NAME.fullmatch(name):
            _refuse(option, f"{rule!r} is not one permission rule: {_RULE_ADVICE}")
        if not parenthesis:
            continue
        inner = content.removesuffix(")")
        if inner == content or _ends_in_escape(inner) or not _stays_whole(inner):
            _refuse(option, f"{rule!r} is not one permission rule: {_RULE_ADVICE}")
        if control := _CONTROL.search(inner.replace("\n", "").replace("\t", "")):
            _refuse(option, f"{rule!r} holds the control character {control[0]!r}")


def check_tools(option: str, tools: Any) -> None:
    """Refuse a list in which an item is not the name of a tool, or `default`, which stands for every built-in tool.

    Raises:
        ConfigurationError: names the option, the text and the remedy.
    """
    for tool in _texts(option, tools):
        if not _TOOL_NAME.fullmatch(tool):
            _refuse(option, f"{tool!r} is not the name of one tool: give each tool as a separate item, without parentheses")
        if tool.lower() in ("default", "preset:default"):
            _refuse(option, f'{tool!r} would offer every built-in tool; for that, pass {{"type": "preset", "preset": "claude_code"}}')


def check_names(option: str, names: Any, *, commas: bool = False) -> None:
    """Refuse a name that the CLI would read as several: with spaces, control characters, or commas unless `commas`.

    Raises:
        ConfigurationError: names the option, the text and the remedy.
    """
    for name in _texts(option, names):
        if not _NAME.fullmatch(name) or ("," in name and not commas):
            what = "a space or a control character" if commas else "a space, a comma or a control character"
            _refuse(option, f"{name!r} holds {what}: give each as a separate item")


def check_skills(skills: Any) -> None:
    """Check that `skills` is None, `"all"` or a list of exact names. Each name must make one rule for this skill alone.

    Raises:
        ConfigurationError: names the skill and the remedy.
    """
    if skills is None or (isinstance(skills, str) and skills == "all"):
        return
    if isinstance(skills, str):
        _refuse("skills", f"must be a list or tuple of names, or 'all', not str; did you mean [{skills!r}]?")
    for name in _texts("skills", skills):
        if not _SKILL_NAME.fullmatch(name):
            _refuse(
                "skills",
                f"{name!r} is not an exact skill name: wildcards, commas, parentheses, control characters, a byte-order mark, "
                "and spaces except a single one between words are not possible",
            )
        if name.startswith("/"):
            _refuse("skills", f"{name!r} begins with a slash: give the name of the skill, not its slash command")
        if "\\\\" in name or name.endswith("\\"):
            _refuse("skills", f"{name!r} has a backslash at its end or two in a row, which would make a rule for another name")


def skill_rules(skills: Sequence[str] | str | None) -> list[str]:
    """Return the permission rules that allow `skills`.

    Raises:
        ConfigurationError: `skills` is not a list of exact names (see `check_skills`).
    """
    check_skills(skills)
    if skills is None:
        return []
    return ["Skill"] if isinstance(skills, str) else [f"Skill({name})" for name in skills]


def check_agent_rules(agents: Mapping[Any, Any]) -> None:
    """Refuse agent definitions whose `tools` or `disallowedTools` hold something that is not one rule, or whose `skills` hold no exact
    name.

    Raises:
        ConfigurationError: names the agent, the text and the remedy.
    """
    for name, definition in agents.items():
        if not isinstance(definition, Mapping):
            continue
        for key in ("tools", "disallowedTools", "skills"):
            value = definition.get(key)
            if value is None:
                continue
            try:
                check_skills(value) if key == "skills" else check_rules(key, value)
            except ConfigurationError as error:
                raise ConfigurationError(f"agents[{name!r}]: {error}", option="agents") from None


def _texts(option: str, value: Any) -> Iterable[str]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        _refuse(option, f"must be a list or tuple, not {type(value).__name__}")
    for item in value:
        if not isinstance(item, str) or not item:
            _refuse(option, f"holds {item!r}, which is not a non-empty string")
        if "\0" in item:
            _refuse(option, f"{item!r} holds a NUL character, which no argument can carry")
        yield item


def _ends_in_escape(text: str) -> bool:
    """Whether a parenthesis after `text` would be escaped."""
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1


def _stays_whole(content: str) -> bool:
    """Whether the CLI keeps `content`, followed by the closing parenthesis of its rule, in one piece."""
    inside = True
    for character in content:
        if character in "()":
            inside = character == "("
        elif not inside and character in ", ":
            return False
    return True


def _refuse(option: str, message: str) -> NoReturn:
    raise ConfigurationError(f"{option}: {message}", option=option)
