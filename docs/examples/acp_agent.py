"""An agent that speaks ACP, driven by this program: it asks before it runs a command. A stand-in plays the agent."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import anyio

import claude_transport as ct
from claude_transport.jsonrpc import ACP_CANCEL, Notification, Request


async def on_request(request: Request) -> Any:
    if request.method != "session/request_permission":
        raise ct.JSONRPCError("method not found", rpc_code=-32601)
    print("asked:", request.params["toolCall"]["title"])
    once = next(option for option in request.params["options"] if option["kind"] == "allow_once")
    return {"outcome": {"outcome": "selected", "optionId": once["optionId"]}}


def on_notification(notification: Notification) -> None:
    update = notification.params.get("update", {})
    if update.get("sessionUpdate") == "agent_message_chunk":
        print("said:", update["content"]["text"])


async def converse(transport: ct.Transport, prompt: str, *, cwd: str) -> None:
    async with ct.JSONRPCPeer(transport, on_request=on_request, on_notification=on_notification, cancel=ACP_CANCEL) as agent:
        hello = await agent.request("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        print("agent:", hello["agentInfo"]["title"])
        session = (await agent.request("session/new", {"cwd": cwd, "mcpServers": []}))["sessionId"]
        await agent.request("session/set_mode", {"sessionId": session, "modeId": "default"})  # ask before every change
        params = {"sessionId": session, "prompt": [{"type": "text", "text": prompt}]}
        answer = await agent.request("session/prompt", params, timeout=math.inf)
        print("stopped:", answer["stopReason"])


STAND_IN = """
import json, sys

def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def update(session, text):
    content = {"type": "text", "text": text}
    say(method="session/update", params={"sessionId": session, "update": {"sessionUpdate": "agent_message_chunk", "content": content}})

HELLO = {"protocolVersion": 1, "agentInfo": {"title": "Stand-in"}}
ANSWERS = {"initialize": HELLO, "session/new": {"sessionId": "s1"}, "session/set_mode": {}}
for line in sys.stdin:
    request = json.loads(line)
    if request.get("method") in ANSWERS:
        say(id=request["id"], result=ANSWERS[request["method"]])
    elif request.get("method") == "session/prompt":
        prompt = request["id"]
        call = {"toolCallId": "t1", "title": "make"}
        options = [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}, {"optionId": "no", "name": "No", "kind": "reject_once"}]
        say(id=0, method="session/request_permission", params={"sessionId": "s1", "toolCall": call, "options": options})
    elif request.get("id") == 0:
        update("s1", "It is built." if request["result"]["outcome"]["optionId"] == "yes" else "I may not.")
        say(id=prompt, result={"stopReason": "end_turn"})
"""


async def main() -> None:
    # a real one: command=["npx", "--yes", "@agentclientprotocol/claude-agent-acp"]
    await converse(ct.SubprocessTransport(command=[sys.executable, "-c", STAND_IN]), "Build it.", cwd=str(Path.cwd()))


if __name__ == "__main__":
    anyio.run(main)
