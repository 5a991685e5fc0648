"""A stdio MCP server with one tool and one resource, without any library: what the tests on the real CLI connect to."""

from __future__ import annotations

import json
import sys
from typing import Any

TOOLS = [{"name": "add", "description": "Adds a and b.", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}]
RESOURCES = [{"uri": "ui://sum", "name": "sum"}]


def result_of(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            capabilities: dict[str, Any] = {"tools": {}, "resources": {}}
            server = {"name": "sums", "version": "1.2"}
            return {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": server}
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            return {"content": [{"type": "text", "text": str(sum(params["arguments"].values()))}]}
        case "resources/list":
            return {"resources": RESOURCES}
        case "resources/read":
            return {"contents": [{"uri": params["uri"], "mimeType": "text/html", "text": "<p>3</p>"}]}
        case _:
            return {}


for line in sys.stdin:
    request = json.loads(line)
    if request["method"] == "tools/call" and "--never-answer" in sys.argv:
        continue
    if "id" in request:
        reply = {"jsonrpc": "2.0", "id": request["id"], "result": result_of(request["method"], request.get("params") or {})}
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()
