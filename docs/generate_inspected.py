"""The tape that the how-to "See what is on a tape" shows, and what the program says of it: `python docs/generate_inspected.py`.

`--picture` also opens the tape's page in a Chromium of this machine and takes the screenshot of it. The tape is made up line by line,
with the shapes that CLI 2.1.329 was recorded with, so that it contains no real work and is the same in each run.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from claude_transport.app.inspect_tape import inspection_lines
from claude_transport.app.terminal import Look
from claude_transport.inspection import read_timeline, render_page, summarize
from claude_transport.protocol.tape import INPUT_ENDED, OUTPUT_ENDED, Direction, Tape, TapeHeader, TapeRecord, note_of_exit

HERE = Path(__file__).parent
TAPE = HERE / "examples" / "checkout.ndjson"
SAMPLE = HERE / "examples" / "checkout_inspected.txt"
PICTURE = HERE / "how-to" / "inspect-a-tape.png"
UUID = "3a1c0c52-7d1e-4c55-9a0e-{:012d}"
SESSION = {"session_id": "5f0c2c1e-6a4e-4f1e-9d0a-2c7f4a3b9e11"}
MODEL = "claude-opus-5-5"


class Recording:
    """The tape under construction; each line comes `after` seconds after the last."""

    def __init__(self) -> None:
        created_at = dt.datetime(2026, 11, 20, 14, 3, 11, tzinfo=dt.UTC)
        self.tape = Tape(header=TapeHeader(cli_version="2.1.329", created_at=created_at, scrubbed=True))
        self._t = 0.0
        self._messages = 0

    def line(self, after: float, direction: Direction, line: dict[str, Any] | bytes) -> None:
        """A line, or a note."""
        self._t = round(self._t + after, 3)
        self.tape.append(TapeRecord(self._t, direction, line if isinstance(line, bytes) else json.dumps(line, ensure_ascii=False).encode()))

    def say(self, after: float, kind: str, **fields: Any) -> None:
        """A message of claude."""
        self.line(after, "out", {"type": kind, **fields, **SESSION})

    def answer(self, after: float, request_id: str, payload: dict[str, Any], *, by: Direction) -> None:
        """The answer to a control request, by either side."""
        response = {"subtype": "success", "request_id": request_id, "response": payload}
        self.line(after, by, {"type": "control_response", "response": response})

    def prompt(self, after: float, number: int, text: str) -> None:
        """A prompt, and the init of its turn."""
        uuid = UUID.format(number)
        self.line(after, "in", {"type": "user", "message": {"role": "user", "content": text}, "parent_tool_use_id": None, "uuid": uuid})
        tools = ["Bash", "Edit", "Read"]
        self.say(
            0.05,
            "system",
            subtype="init",
            cwd="/home/user/shop",
            tools=tools,
            model=MODEL,
            permissionMode="default",
            claude_code_version="2.1.329",
        )

    def block(self, after: float, block: dict[str, Any], *, tokens: tuple[int, int]) -> None:
        """One API message of one block, its beginning and its pieces first."""
        self._messages += 1
        usage = {"input_tokens": tokens[0], "output_tokens": tokens[1]}
        api = {"id": f"msg_{self._messages:02d}", "type": "message", "role": "assistant", "model": MODEL}
        event = {"type": "message_start", "message": {**api, "content": [], "usage": {**usage, "output_tokens": 1}}}
        self.say(after, "stream_event", event=event, parent_tool_use_id=None)
        if block["type"] == "text":
            begun = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
            self.say(0.01, "stream_event", event=begun, parent_tool_use_id=None)
            for word in block["text"].split(" "):
                delta = {"type": "text_delta", "text": f"{word} "}
                self.say(0.11, "stream_event", event={"type": "content_block_delta", "index": 0, "delta": delta}, parent_tool_use_id=None)
        self.say(0.02, "assistant", message={**api, "content": [block], "usage": usage}, parent_tool_use_id=None)

    def tool(
        self, took: float, name: str, given: dict[str, Any], gave: str, *, tokens: tuple[int, int], asked: float = 0.0, failed: bool = False
    ) -> None:
        """A call of a tool, the question about it when it is one (`asked`: how long a person thought), and its result."""
        call_id = f"toolu_{len(self.tape.records):03d}"
        self.block(0.15, {"type": "tool_use", "id": call_id, "name": name, "input": given}, tokens=tokens)
        if asked:
            request_id = f"ask-{call_id}"
            request = {"subtype": "can_use_tool", "tool_name": name, "input": given, "tool_use_id": call_id}
            self.line(0.02, "out", {"type": "control_request", "request_id": request_id, "request": request})
            self.answer(asked, request_id, {"behavior": "allow", "updatedInput": given}, by="in")
        content = [{"type": "tool_result", "tool_use_id": call_id, "content": gave, "is_error": failed}]
        self.say(took, "user", message={"role": "user", "content": content}, parent_tool_use_id=None)

    def result(self, after: float, text: str, *, cost: float, tokens: tuple[int, int], prompt: int) -> None:
        """The end of a turn; `cost` is that of the process so far, as on the wire."""
        usage = {"input_tokens": tokens[0], "output_tokens": tokens[1]}
        paid = {MODEL: {"inputTokens": tokens[0], "outputTokens": tokens[1], "costUSD": cost}}
        fields = {"subtype": "success", "is_error": False, "result": text, "total_cost_usd": cost, "usage": usage, "modelUsage": paid}
        self.say(after, "result", **fields, num_turns=1, user_message_uuids=[UUID.format(prompt)])


def fix_the_tests(tape: Recording) -> None:
    """The first turn: a test run that fails, a retry of the API, an edit, a test run that passes."""
    tape.prompt(0.1, 1, "The checkout tests fail since yesterday. Find out why, and fix it.")
    first = "I will run the tests first, and then look at what has changed in the checkout since they last passed."
    tape.block(1.1, {"type": "text", "text": first}, tokens=(4220, 32))
    failure = "2 failed, 41 passed\nE   assert Decimal('10.00') == Decimal('9.99')"
    tape.tool(3.2, "Bash", {"command": "pytest tests/checkout -x -q"}, failure, tokens=(4300, 48), asked=1.4, failed=True)
    tape.tool(0.2, "Read", {"file_path": "shop/checkout.py"}, "def total(lines):\n    return round(sum(lines), 1)\n", tokens=(5100, 40))
    retry = {"attempt": 1, "max_retries": 10, "retry_delay_ms": 600, "error_status": 529, "error": "overloaded"}
    tape.say(0.4, "system", subtype="api_retry", **retry)
    given = {"file_path": "shop/checkout.py", "old_string": "round(sum(lines), 1)", "new_string": 'sum(lines).quantize(Decimal("0.01"))'}
    tape.tool(0.1, "Edit", given, "The file has been updated.", tokens=(5360, 95), asked=2.2)
    tape.tool(2.9, "Bash", {"command": "pytest tests/checkout -q"}, "43 passed in 2.31s", tokens=(5500, 46))
    last = (
        "The total was rounded to one decimal place before the discount was taken off. It is rounded to cents now, and all 43 tests pass."
    )
    tape.block(0.9, {"type": "text", "text": last}, tokens=(5620, 70))
    tape.result(0.1, last, cost=0.0921, tokens=(30100, 331), prompt=1)


def add_a_test(tape: Recording) -> None:
    """The second turn."""
    tape.prompt(2.6, 2, "Add a test for it, please.")
    given = {"file_path": "tests/checkout/test_total.py", "old_string": "", "new_string": "def test_a_total_keeps_its_cents(): …"}
    tape.tool(0.1, "Edit", given, "The file has been updated.", tokens=(2300, 34), asked=1.1)
    tape.tool(2.7, "Bash", {"command": "pytest tests/checkout -q"}, "44 passed in 2.40s", tokens=(2400, 28))
    last = "There is a test for it now, and it passes."
    tape.block(0.8, {"type": "text", "text": last}, tokens=(2500, 19))
    tape.result(0.1, last, cost=0.1184, tokens=(7200, 81), prompt=2)


def make_tape() -> Tape:
    """The conversation of the page, from the handshake to the exit."""
    tape = Recording()
    tape.line(0.02, "in", {"type": "control_request", "request_id": "start", "request": {"subtype": "initialize"}})
    tape.answer(0.28, "start", {"commands": [], "models": []}, by="out")
    fix_the_tests(tape)
    add_a_test(tape)
    tape.line(0.6, "note", INPUT_ENDED)
    tape.line(0.05, "note", OUTPUT_ENDED)
    tape.line(0.01, "note", note_of_exit(exit_code=0, signal=None))
    return tape.tape


def sample() -> str:
    """What the program prints about the tape in a terminal of 80 columns, without its colours: the command, and what follows it."""
    lines = inspection_lines(summarize(TAPE), name=TAPE.name, look=Look(width=80))
    return "\n".join([f"$ claude-transport inspect {TAPE.name}", *lines, ""])


def take_picture() -> None:
    """Open the page of the tape in Chromium, choose the failed call, and keep what is to be seen."""
    sys.path.append(str(HERE.parent / "tests"))
    from chromium import running_chromium  # the tests' own: nothing of it belongs into the package

    with tempfile.TemporaryDirectory() as folder, running_chromium() as browser:
        path = Path(folder, "checkout.html")
        path.write_text("".join(render_page(read_timeline(TAPE), title=TAPE.name)), "utf-8")
        with browser.open(path, width=1300, height=820) as page:
            page.run("[...document.querySelectorAll('a, button')].find(each => each.textContent.startsWith('Bash failed')).click()")
            page.run("document.activeElement.blur(), scrollTo(0, 0)")
            PICTURE.write_bytes(page.screenshot())


def main() -> None:
    TAPE.write_bytes(make_tape().encode())
    SAMPLE.write_text(sample(), "utf-8")
    if "--picture" in sys.argv[1:]:
        take_picture()


if __name__ == "__main__":
    main()
