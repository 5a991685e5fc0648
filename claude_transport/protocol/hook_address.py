"""Which registered hook a scripted hook call is for: a test names the event, and the host has given its callbacks ids of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from claude_transport.protocol.expectation import ExpectationFailed, each_registered_hook

_PLACEHOLDER = re.compile(r"\{\{hook\.(\w+)\}\}")
_NAMES_ONLY = re.compile(r"[\w\-|, ]*", re.ASCII)


def with_hook_id(message: Mapping[str, Any], written: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return a hook call with the id of the first hook that `written` registers for it, in place of `{{hook.EVENT}}`.

    Any other message is returned as it is. Raises `ExpectationFailed` when no hook is registered for the event and the tool.
    """
    request = message.get("request")
    named = _PLACEHOLDER.fullmatch(str(request.get("callback_id"))) if isinstance(request, Mapping) else None
    if named is None or not isinstance(request, Mapping):
        return message
    event = named[1]
    given = request.get("input")
    subject = given.get("tool_name") if isinstance(given, Mapping) else None
    registered = [hook for sent in written for hook in each_registered_hook(sent)]
    for known, matcher, callback_id in registered:
        if known == event and (subject is None or _takes(matcher, str(subject))):
            return {**message, "request": {**request, "callback_id": callback_id}}
    of = "" if subject is None else f" of {subject}"
    hooks = ", ".join(known if matcher is None else f"{known} with the matcher {matcher!r}" for known, matcher, _ in registered)
    expected = f"`initialize` to register a hook for {event}{of}, which is called next"
    raise ExpectationFailed.at("hook call", expected=expected, actual=hooks or "no hooks")


def _takes(matcher: object, subject: str) -> bool:
    """Return whether a matcher is for this tool, as the CLI decides it.

    Nothing and `*` are for all tools. Names are whole names, and `Task` also names the tool `Agent`. Other text is a regular expression.
    """
    if not isinstance(matcher, str) or matcher in {"", "*"}:
        return True
    if _NAMES_ONLY.fullmatch(matcher):
        names = {name.strip() for name in re.split(r"[|,]", matcher)}
        return subject in names or (subject == "Agent" and "Task" in names)
    try:
        return re.search(matcher, subject) is not None
    except re.error:
        return False
