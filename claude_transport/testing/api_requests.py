"""What reached the fake Messages API: each request as it came, and what it was for.

How the main conversation is told from the rest (found out with CLI 2.1.329 against this server):

* Only `POST /v1/messages` is a model request. `/v1/messages/count_tokens` is counting (about 25 of them for one `get_context_usage`).
* Tools do not tell it: `--tools ""` gives a conversation without any, and a side question carries all of them.
* Title generation has no tools but `output_config.format`, and no `context_management`, which every turn has.
* A side question (`side_question` request) opens its last user message with a reminder that begins "This is a side question".
* Compaction ends in a user message that begins "CRITICAL: Respond with TEXT ONLY".
* A quota probe asks for `max_tokens: 1` (interactive mode; stream-json sends none).
* A subagent's turns are conversation too and consume the script, in whatever order they arrive (`agent_id` tells them): where
  order matters, route by prompt.
* Other clients (no `claude-cli/` user agent) make no side requests: whatever they ask is conversation.

Without `CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC` the CLI also sends `HEAD /api/hello`, and nothing else to this base URL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from claude_transport.testing.http_server import HTTPRequest

__all__ = ["Credential", "RecordedRequest", "RequestKind", "parse_request"]

RequestKind: TypeAlias = Literal["conversation", "side", "count_tokens", "models", "probe", "other", "malformed"]
Credential: TypeAlias = Literal["none", "x-api-key", "authorization", "both"]
Outcome: TypeAlias = Literal["pending", "answered", "cut", "client_gone", "stopped"]

REMINDER = re.compile(r"\s*<system-reminder>.*?</system-reminder>", re.DOTALL)


class RecordedRequest(msgspec.Struct, kw_only=True):
    """One request as it came, and how its answer ended."""

    method: str
    path: str
    """Without the query."""
    query: str
    headers: dict[str, str]
    """Names in lower case; repeated ones joined by a comma. They hold the credential: `repr` leaves them out."""
    body: dict[str, Any]
    """Empty when there was none, or when it was no JSON object."""
    http_version: str
    size: int
    """Bytes of the body."""
    kind: RequestKind
    purpose: str
    """Of a side request: title, side_question, compaction, quota. Else empty."""
    prompt: str
    """The text of the last user message that has any, without the CLI's reminders: in a tool loop, still the user's own words."""
    tool_results: list[dict[str, Any]]
    """The `tool_result` blocks of the last user message."""
    credential: Credential
    outcome: Outcome = "pending"
    """`client_gone`: it hung up before the answer was whole. `stopped`: the server was closed first."""

    @property
    def stream(self) -> bool:
        """Whether the answer is to be streamed."""
        return self.body.get("stream") is True

    @property
    def model(self) -> str:
        """The model asked for, or an empty string."""
        return str(self.body.get("model", ""))

    @property
    def agent_id(self) -> str:
        """The subagent that asks (header `x-claude-code-agent-id`), or an empty string for the main conversation."""
        return self.headers.get("x-claude-code-agent-id", "")

    def __repr__(self) -> str:
        return f"RecordedRequest({self.method} {self.path} {self.kind} {self.prompt[:60]!r} {self.outcome})"


def parse_request(request: HTTPRequest) -> RecordedRequest:
    """The request with its body decoded and its purpose told; never raises, whatever the body holds."""
    path, _, query = request.target.partition("?")
    try:
        body = msgspec.json.decode(request.body, type=dict[str, Any]) if request.body else {}
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError):
        body, malformed = {}, True
    else:
        malformed = False
    kind, purpose = _classify(request.method, path, request.headers, body, malformed=malformed)
    return RecordedRequest(
        method=request.method,
        path=path,
        query=query,
        headers=request.headers,
        body=body,
        http_version=request.version,
        size=len(request.body),
        kind=kind,
        purpose=purpose,
        prompt=_prompt(body),
        tool_results=_tool_results(body),
        credential=_credential(request.headers),
    )


def _classify(method: str, path: str, headers: Mapping[str, str], body: dict[str, Any], *, malformed: bool) -> tuple[RequestKind, str]:
    if method in {"GET", "HEAD"} and path in {"/", "/api/hello"}:
        return "probe", ""
    if method == "GET" and (path == "/v1/models" or path.startswith("/v1/models/")):
        return "models", ""
    if method != "POST" or path not in {"/v1/messages", "/v1/messages/count_tokens"}:
        return "other", ""
    if malformed or not isinstance(body.get("messages"), list) or not isinstance(body.get("model"), str):
        return "malformed", ""
    if path == "/v1/messages/count_tokens":
        return "count_tokens", ""
    purpose = _side_purpose(body) if headers.get("user-agent", "").startswith("claude-cli/") else ""
    return ("side", purpose) if purpose else ("conversation", "")


def _side_purpose(body: dict[str, Any]) -> str:
    output = body.get("output_config")
    if not body.get("tools") and "context_management" not in body and isinstance(output, dict) and "format" in output:
        return "title"
    if body.get("max_tokens") == 1:
        return "quota"
    last = next(_user_contents(body), None)
    opening = next(_texts(last), "").lstrip()
    if opening.startswith("<system-reminder>This is a side question"):
        return "side_question"
    if opening.startswith("CRITICAL: Respond with TEXT ONLY"):
        return "compaction"
    return ""


def _user_contents(body: dict[str, Any]) -> Iterator[object]:
    """Contents of the user messages, the last one first (the CLI puts `system` messages after them)."""
    messages = body.get("messages")
    for message in reversed(messages if isinstance(messages, list) else []):
        if isinstance(message, dict) and message.get("role") == "user":
            yield message.get("content")


def _texts(content: object) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    for block in content if isinstance(content, list) else []:
        if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str):
            yield block["text"]


def _prompt(body: dict[str, Any]) -> str:
    for content in _user_contents(body):
        own = [text for text in (REMINDER.sub("", text).strip() for text in _texts(content)) if text]
        if own:
            return "\n".join(own)
    return ""


def _tool_results(body: dict[str, Any]) -> list[dict[str, Any]]:
    last = next(_user_contents(body), None)
    return [block for block in (last if isinstance(last, list) else []) if isinstance(block, dict) and block.get("type") == "tool_result"]


def _credential(headers: Mapping[str, str]) -> Credential:
    match "x-api-key" in headers, "authorization" in headers:
        case True, True:
            return "both"
        case True, False:
            return "x-api-key"
        case False, True:
            return "authorization"
        case _:
            return "none"
