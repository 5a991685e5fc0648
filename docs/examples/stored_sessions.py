"""List, rename, read, fork and delete stored sessions."""

import json
import os
import tempfile
from pathlib import Path

import anyio
import anyio.to_thread

from claude_transport.sessions import (
    delete_session,
    fork_session,
    get_session_messages,
    list_sessions,
    project_key_for_directory,
    rename_session,
    tag_session,
)

ID = "550e8400-e29b-41d4-a716-446655440000"


def store(project: str) -> None:
    """Store a session, as the CLI would."""
    folder = Path(os.environ["CLAUDE_CONFIG_DIR"], "projects", project_key_for_directory(project))
    folder.mkdir(parents=True)
    question = {"type": "user", "uuid": "q", "parentUuid": None, "sessionId": ID, "message": {"role": "user", "content": "Which word?"}}
    answer = {"type": "assistant", "uuid": "a", "parentUuid": "q", "sessionId": ID, "message": {"role": "assistant", "content": "xyzzy"}}
    (folder / f"{ID}.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in (question, answer)))


def show() -> None:
    """Do all of it: these functions wait for the disk, so a program with an event loop calls them in a thread."""
    with tempfile.TemporaryDirectory() as configuration:
        os.environ["CLAUDE_CONFIG_DIR"] = configuration
        store("/work/shop")
        rename_session(ID, "A magic word")
        tag_session(ID, "games")
        for info in list_sessions("/work/shop", limit=20):
            print(info.session_id, info.summary, info.tag)
        for message in get_session_messages(ID):
            print(message.type, message.message["content"])
        fork = fork_session(ID).session_id  # resume it with ClaudeOptions(resume=fork)
        delete_session(ID)
        print([info.summary for info in list_sessions()], fork != ID)


async def main() -> None:
    await anyio.to_thread.run_sync(show)


if __name__ == "__main__":
    anyio.run(main)
