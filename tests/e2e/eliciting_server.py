"""A stdio MCP server without any library, whose one tool asks the user for a name before it answers."""

from __future__ import annotations

import json
import sys
from typing import Any

TOOLS = [{"name": "greet", "description": "Asks for a name and greets.", "inputSchema": {"type": "object"}}]
QUESTION = {
    "mode": "form",
    "message": "name?",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
}


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


waiting_call: Any = None
for line in sys.stdin:
    heard = json.loads(line)
    match heard.get("method"):
        case "initialize":
            version = heard["params"]["protocolVersion"]
            server = {"name": "greeter", "version": "1"}
            say({"id": heard["id"], "result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}})
        case "tools/list":
            say({"id": heard["id"], "result": {"tools": TOOLS}})
        case "tools/call":
            waiting_call = heard["id"]
            say({"id": "question", "method": "elicitation/create", "params": QUESTION})
        case None if heard.get("id") == "question":
            answer = heard.get("result") or {}
            text = f"{answer.get('action')}: {(answer.get('content') or {}).get('name')}"
            say({"id": waiting_call, "result": {"content": [{"type": "text", "text": text}]}})
        case _ if "id" in heard:
            say({"id": heard["id"], "result": {}})
