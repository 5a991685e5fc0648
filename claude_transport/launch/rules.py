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
# the white space of JavaScript, which its `trim()` takes away: not that of `str.strip()`
_TRIMMED: Final = (
    "\t\n\v\f\r \xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
)
_CONTROL: Final = re.compile(f"[{_CONTROLS}]")
_SKILL_NAME: Final = re.compile(rf"[^\s(),*{_CONTROLS}]+(?: [^\s(),*{_CONTROLS}]+)*")
_TOOL_NAME: Final = re.compile(rf"[^\s(),\\{_CONTROLS}]+")
_NAME: Final = re.compile(rf"[^\s{_CONTROLS}]+")

_RULE_ADVICE: Final = (
    "give each rule as a separate item, as Tool or Tool(content); content that needs a closing parenthesis before a comma or a space "
    "goes into settings, as permissions.allow or permissions.deny"
)


def split_rules(text: str) -> list[str]:
    """Return the permission rules in `text`, a value of `--allowedTools`, `--disallowedTools` or `--tools`, as the CLI reads it.

    `split_rules("Read, Bash(git log:*)")` is `["Read", "Bash(git log:*)"]`: commas and spaces separate rules, except in parentheses. There
    is no escape, and the first `)` ends a parenthesis, also an inner one. A piece that is no rule, such as `Bash(git` without its end, is
    returned, too: it has no effect in the CLI, and `ClaudeOptions` refuses it.

    Raises:
        ConfigurationError: `text` is not a str.
    """
    if not isinstance(text, str):
        refuse("rules", f"must be one text, not {type(text).__name__}; split each item of a list by itself")
    pieces, inside = [""], False
    for character in text:
        if character in "()":
            inside = character == "("
        if character in ", " and not inside:
            pieces.append("")
        else:
            pieces[-1] += character
    trimmed = (piece.strip(_TRIMMED) for piece in pieces)
    return [piece for piece in trimmed if piece]


def check_rules(option: str, rules: Any) -> None:
    """Refuse a list in which an item is not exactly one permission rule for the CLI.

    A deny rule that is split or misread would not deny. An allow rule could allow more than it says.

    Raises:
        ConfigurationError: names the option, the text and the remedy.
    """
    for rule in _texts(option, rules):
        name, parenthesis, content = rule.partition("(")
        if not _TOOL_NAME.fullmatch(name):
            refuse(option, f"{rule!r} is not one permission rule: {_RULE_ADVICE}")
        if not parenthesis:
            continue
        inner = content.removesuffix(")")
        if inner == content or _ends_in_escape(inner) or not _stays_whole(inner):
            refuse(option, f"{rule!r} is not one permission rule: {_RULE_ADVICE}")
        if control := _CONTROL.search(inner.replace("\n", "").replace("\t", "")):
            refuse(option, f"{rule!r} holds the control character {control[0]!r}")


def check_tools(option: str, tools: Any) -> None:
    """Refuse a list in which an item is not the name of a tool, or `default`, which stands for every built-in tool.

    Raises:
        ConfigurationError: names the option, the text and the remedy.
    """
    for tool in _texts(option, tools):
        if not _TOOL_NAME.fullmatch(tool):
            refuse(option, f"{tool!r} is not the name of one tool: give each tool as a separate item, without parentheses")
        if tool.lower() in ("default", "preset:default"):
            refuse(option, f'{tool!r} would offer every built-in tool; for that, pass {{"type": "preset", "preset": "claude_code"}}')


def check_names(option: str, names: Any, *, commas: bool = False) -> None:
    """Refuse a name that the CLI would read as several: with spaces, control characters, or commas unless `commas`.

    Raises:
        ConfigurationError: names the option, the text and the remedy.
    """
    for name in _texts(option, names):
        if not _NAME.fullmatch(name) or ("," in name and not commas):
            what = "a space or a control character" if commas else "a space, a comma or a control character"
            refuse(option, f"{name!r} holds {what}: give each as a separate item")


def check_skills(skills: Any) -> None:
    """Check that `skills` is None, `"all"` or a list of exact names. Each name must make one rule for this skill alone.

    Raises:
        ConfigurationError: names the skill and the remedy.
    """
    if skills is None or (isinstance(skills, str) and skills == "all"):
        return
    if isinstance(skills, str):
        refuse("skills", f"must be a list or tuple of names, or 'all', not str; did you mean [{skills!r}]?")
    for name in _texts("skills", skills):
        if not _SKILL_NAME.fullmatch(name):
            refuse(
                "skills",
                f"{name!r} is not an exact skill name: wildcards, commas, parentheses, control characters, a byte-order mark, "
                "and spaces except a single one between words are not possible",
            )
        if name.startswith("/"):
            refuse("skills", f"{name!r} begins with a slash: give the name of the skill, not its slash command")
        if "\\\\" in name or name.endswith("\\"):
            refuse("skills", f"{name!r} has a backslash at its end or two in a row, which would make a rule for another name")


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
    """Refuse agent definitions with a text in `tools` or `disallowedTools` that is not one rule, or in `skills` that is not an exact name.

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
        refuse(option, f"must be a list or tuple, not {type(value).__name__}")
    for item in value:
        if not isinstance(item, str) or not item:
            refuse(option, f"holds {item!r}, which is not a non-empty string")
        if "\0" in item:
            refuse(option, f"{item!r} holds a NUL character, which no argument can carry")
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


def refuse(option: str, message: str) -> NoReturn:
    """Raise the `ConfigurationError` for `option`; `message` says what is wrong and what to do."""
    raise ConfigurationError(f"{option}: {message}", option=option)
