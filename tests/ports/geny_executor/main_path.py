"""The main path of geny-executor's runner on the real CLI: the lines of one answer."""

import asyncio
import json
import os

from geny_executor.llm_client._cli_runtime import CLIProcessRunner, aiter_bytes
from main_paths import world

ARGUMENTS = ["--print", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]
PROMPT = {"type": "user", "message": {"role": "user", "content": "one"}}


async def talk(claude: str) -> None:
    extras = {name: value for name, value in os.environ.items() if name.startswith(("ANTHROPIC_", "CLAUDE_", "DISABLE_"))}
    runner = CLIProcessRunner(claude, env_extras=extras, timeout_s=60.0)
    lines = [json.loads(line) async for line in runner.stream(ARGUMENTS, stdin_iter=aiter_bytes(json.dumps(PROMPT).encode() + b"\n"))]
    assert lines[-1]["type"] == "result" or any(line["type"] == "result" for line in lines)
    assert next(line for line in lines if line["type"] == "result")["result"] == "The first answer."


with world("The first answer.") as claude:
    asyncio.run(talk(claude))
