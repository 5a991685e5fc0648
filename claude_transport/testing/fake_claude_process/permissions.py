"""What the flags, the settings and the mode of this run say about a tool call, without asking anybody."""

from __future__ import annotations

import json
import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

INTERACTIVE = frozenset({"AskUserQuestion", "ExitPlanMode"})
EDITS = frozenset({"Edit", "MultiEdit", "NotebookEdit", "Write"})
UNASKED = frozenset({"Agent", "Task"})
DONT_ASK = "Permission to use {name} has been denied because Claude Code is running in don't ask mode."


class Rules:
    """The rules of `--allowedTools`, `--disallowedTools` and `--settings`, and those that answers have added."""

    def __init__(self, options: Callable[[str], list[str]]) -> None:
        self.lists: dict[str, list[str]] = {"allow": [], "ask": [], "deny": []}
        for flag, behavior in _FLAGS.items():
            for value in options(flag):
                self.lists[behavior].extend(split_rules(value))
        for value in options("--settings"):
            settings = read_json(value)
            permissions = settings.get("permissions")
            for behavior, rules in permissions.items() if isinstance(permissions, dict) else ():
                if behavior in self.lists and isinstance(rules, list):
                    self.lists[behavior].extend(str(rule) for rule in rules)

    def add(self, update: dict[str, Any]) -> None:
        """Add the rules of one of `updatedPermissions`."""
        if update.get("type") != "addRules" or update.get("behavior") not in self.lists:
            return
        for rule in update.get("rules") or ():
            content = rule.get("ruleContent")
            self.lists[update["behavior"]].append(f"{rule.get('toolName')}({content})" if content else str(rule.get("toolName")))

    def is_disabled(self, name: str) -> bool:
        """Tell whether a rule takes the whole tool from the model."""
        return any("(" not in rule and _names(rule, name) for rule in self.lists["deny"])

    def decide(self, mode: str, name: str, given: dict[str, Any]) -> str:
        """Return `"deny"`, `"ask"` (a rule or the tool itself wants a question), `"allow"`, or `"unlisted"`."""
        for behavior in ("deny", "ask"):
            if any(_covers(rule, name, given) for rule in self.lists[behavior]):
                return behavior
        if name in INTERACTIVE:
            return "ask"
        if any(_covers(rule, name, given) for rule in self.lists["allow"]) or _is_free(mode, name, given):
            return "allow"
        return "unlisted"


_FLAGS = {
    "--allowedTools": "allow",
    "--allowed-tools": "allow",
    "--disallowedTools": "deny",
    "--disallowed-tools": "deny",
}


def _is_free(mode: str, name: str, given: dict[str, Any]) -> bool:
    if mode == "bypassPermissions" or name in UNASKED or (mode == "acceptEdits" and name in EDITS):
        return True
    here = os.path.join(os.getcwd(), "")  # noqa: PTH109, PTH118 - pathlib costs 5 ms
    path = os.path.join(here, str(given.get("file_path", "")))  # noqa: PTH118
    return name == "Read" and os.path.normpath(path).startswith(here)


def split_rules(text: str) -> list[str]:
    """Cut a list of rules at commas and spaces that are outside parentheses."""
    return [rule for rule in re.findall(r"(?:[^\s,(]|\([^)]*\))+", text) if rule]


def read_json(value: str) -> dict[str, Any]:
    """Return an object that a flag gives as JSON or as the path of a file; what cannot be read is empty."""
    try:
        if not value.lstrip().startswith("{"):
            with open(value, encoding="utf-8") as file:  # noqa: PTH123 - pathlib costs 5 ms
                value = file.read()
        found = json.loads(value)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _names(rule: str, name: str) -> bool:
    """Tell whether the rule names the tool: as it is, or as the MCP server that it is of."""
    tool = rule.partition("(")[0]
    if tool.startswith("mcp__"):
        server = tool.removesuffix("__*")
        return name == tool or (server.count("__") == 1 and name.startswith(f"{server}__"))
    return tool == name or {tool, name} == {"Agent", "Task"}


def _covers(rule: str, name: str, given: dict[str, Any]) -> bool:
    content = rule.partition("(")[2].removesuffix(")")
    if not _names(rule, name):
        return False
    if not content or content == "*":
        return True
    # the rules of other tools are about paths and addresses, which nothing here can judge
    return name == "Bash" and _fits(content, str(given.get("command", "")))


def _fits(content: str, command: str) -> bool:
    for ending in (":*", " *"):
        if content.endswith(ending):  # also without any argument
            head = content.removesuffix(ending)
            return command == head or command.startswith(f"{head} ")
    return re.fullmatch(".*".join(re.escape(part) for part in content.split("*")), command, re.DOTALL) is not None
