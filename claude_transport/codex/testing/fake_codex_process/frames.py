"""The objects that the fake sends, with every key that a real `codex app-server` 0.169.0 sends (tests/recordings/codex)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

USAGE: dict[str, int] = {
    "totalTokens": 107,
    "inputTokens": 100,
    "cachedInputTokens": 40,
    "cacheWriteInputTokens": 0,
    "outputTokens": 7,
    "reasoningOutputTokens": 2,
}
"""The usage of one request to the model."""

RATE_LIMITS: dict[str, Any] = {
    "limitId": "codex",
    "limitName": None,
    "normalModelSlug": None,
    "primary": None,
    "secondary": None,
    "credits": None,
    "individualLimit": None,
    "spendControlReached": None,
    "planType": None,
    "rateLimitReachedType": None,
}
SANDBOXES: dict[str, dict[str, Any]] = {
    "read-only": {"type": "readOnly", "networkAccess": False},
    "workspace-write": {
        "type": "workspaceWrite",
        "writableRoots": [],
        "networkAccess": False,
        "excludeTmpdirEnvVar": False,
        "excludeSlashTmp": False,
    },
    "danger-full-access": {"type": "dangerFullAccess"},
}
MAX_PROMPT = 1_048_576  # characters


def thread(thread_id: str, *, cwd: str, model: str, version: str, home: str, now: int) -> dict[str, Any]:
    """A new thread, without turns."""
    return {
        "id": thread_id,
        "environments": [{"environmentId": "local", "cwd": cwd, "runtimeWorkspaceRoots": [cwd]}],
        "extra": None,
        "sessionId": thread_id,
        "forkedFromId": None,
        "attachedToThreadId": None,
        "parentThreadId": None,
        "preview": "",
        "ephemeral": False,
        "section": None,
        "sectionEnteredAt": None,
        "projectId": None,
        "historyMode": "paginated",
        "modelProvider": "fake",
        "model": model,
        "reasoningEffort": None,
        "createdAt": now,
        "updatedAt": now,
        "recencyAt": now,
        "status": {"type": "idle"},
        "path": f"{home}/sessions/rollout-{thread_id}.jsonl",
        "cwd": cwd,
        "cliVersion": version,
        "originator": "fake",
        "source": "vscode",
        "canAcceptDirectInput": True,
        "threadSource": None,
        "agentNickname": None,
        "agentRole": None,
        "gitInfo": None,
        "name": None,
        "daybreakEnabled": None,
        "turns": [],
    }


def opened(made: dict[str, Any], *, approval: Any, sandbox: str) -> dict[str, Any]:
    """The answer to `thread/start`; those to `thread/resume` and `thread/fork` have more."""
    return {
        "thread": made,
        "model": made["model"],
        "modelProvider": made["modelProvider"],
        "serviceTier": None,
        "disabledPluginIds": [],
        "cwd": made["cwd"],
        "runtimeWorkspaceRoots": [made["cwd"]],
        "instructionSources": [],
        "approvalPolicy": approval,
        "approvalsReviewer": "user",
        "sandbox": SANDBOXES.get(sandbox, {"type": sandbox}),
        "activePermissionProfile": {"id": f":{sandbox}", "extends": None},
        "reasoningEffort": None,
        "multiAgentMode": "explicitRequestOnly",
    }


def resumed(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer to `thread/resume`, from that to `thread/start`."""
    more = {
        "collaborationMode": {
            "mode": "default",
            "settings": {"model": answer["model"], "reasoning_effort": None, "developer_instructions": None},
        },
        "initialTurnsPage": None,
        "turnsBackwardsCursor": "{}",
        "itemsBackwardsCursor": "{}",
    }
    return {**answer, **more}


def turn(turn_id: str, **fields: Any) -> dict[str, Any]:
    """A turn, running unless `fields` say otherwise."""
    return {
        "id": turn_id,
        "rootTurnId": turn_id,
        "items": [],
        "itemsView": "notLoaded",
        "status": "inProgress",
        "error": None,
        "startedAt": None,
        "completedAt": None,
        "durationMs": None,
        **fields,
    }


def user_message(item_id: str, content: list[Any]) -> dict[str, Any]:
    return {"type": "userMessage", "id": item_id, "clientId": None, "content": content}


def agent_message(item_id: str, text: str) -> dict[str, Any]:
    return {
        "type": "agentMessage",
        "moderation": None,
        "id": item_id,
        "text": text,
        "phase": None,
        "memoryCitation": None,
        "delivery": None,
        "questions": None,
    }


def reasoning(item_id: str, text: str) -> dict[str, Any]:
    return {"type": "reasoning", "id": item_id, "summary": [text], "content": []}


def command(item_id: str, line: str, *, cwd: str) -> dict[str, Any]:
    return {
        "type": "commandExecution",
        "id": item_id,
        "pluginId": None,
        "scriptPath": None,
        "command": f"/bin/bash -lc '{line}'",
        "cwd": cwd,
        "processId": None,
        "source": "agent",
        "status": "inProgress",
        "commandActions": [{"type": "unknown", "command": line}],
        "aggregatedOutput": None,
        "exitCode": None,
        "durationMs": None,
    }


def file_change(item_id: str, changes: dict[str, str], *, cwd: str) -> dict[str, Any]:
    made = [{"path": f"{cwd}/{path}", "kind": {"type": "add"}, "diff": text} for path, text in changes.items()]
    return {"type": "fileChange", "id": item_id, "changes": made, "status": "inProgress"}


def tool_call(item_id: str, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "dynamicToolCall",
        "id": item_id,
        "namespace": None,
        "tool": tool,
        "arguments": arguments,
        "status": "inProgress",
        "contentItems": None,
        "success": None,
        "durationMs": None,
    }


def turn_error(message: str, info: Any, details: str | None = None) -> dict[str, Any]:
    return {"message": message, "codexErrorInfo": info, "additionalDetails": details, "misalignment": None}
