"""The program of the agent: it answers `{"acme": "ask", "text": …}` with what it has heard."""

from __future__ import annotations

import json
import sys


def say(**message: object) -> None:
    print(json.dumps(message), flush=True)


def main() -> int:
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("acme") == "ask":
            say(acme="begun")
            if message["text"] == "crash":
                print("the model is on fire", file=sys.stderr)
                return 3
            say(acme="said", text=f"{' '.join(sys.argv[1:])} heard {message['text']}".strip())
            say(acme="done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
