"""What reads the lines of Acme: for metrics, and for the inspector."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from claude_transport import TurnState
from claude_transport.agents import (
    CallBook,
    LineMeaning,
    MetricsReader,
    PromptFollower,
    Scene,
    Settle,
    TapeFigures,
    TapeReader,
    WrittenPrompt,
)
from claude_transport.inspection import Section
from claude_transport.messages import DecodeFailure, Message, ResultMessage, UserContent, UserMessage, decode_message


def fields_of(line: bytes) -> dict[str, Any]:
    """Return the fields of a line, or nothing for what Acme would not write."""
    try:
        fields = json.loads(line)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


class AcmePrompts(PromptFollower):
    """One prompt is answered after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[str] = []
        self._count = 0

    @property
    def session_id(self) -> str | None:
        return None

    def sent(self, raw: bytes) -> list[WrittenPrompt]:
        prompts = []
        for fields in map(fields_of, raw.splitlines()):
            if fields.get("acme") == "ask":
                self._count += 1
                prompts.append(WrittenPrompt(f"ask-{self._count}", UserMessage(message=UserContent(content=fields["text"]))))
                self.waiting.append(prompts[-1].uuid)
        return prompts

    def unsent(self, prompt: WrittenPrompt) -> None:
        self.waiting.remove(prompt.uuid)

    def ended(self) -> tuple[Settle, ...]:
        lost, self.waiting = self.waiting, []
        return tuple(Settle(uuid, TurnState.LOST) for uuid in lost)


class AcmeCounts(MetricsReader):
    """Counts prompts and results. Acme tells no tokens."""

    def __init__(self) -> None:
        self._prompts = AcmePrompts()
        self._text = ""

    @property
    def prompts(self) -> PromptFollower:
        return self._prompts

    def kind_of(self, line: bytes) -> str | None:
        return fields_of(line).get("acme")

    def read(self, line: bytes, kind: str) -> Iterator[LineMeaning]:
        waiting = self._prompts.waiting
        if kind == "said":
            self._text = fields_of(line).get("text", "")
            yield LineMeaning(spoke=waiting[0] if waiting else None)
        elif kind == "done":
            result = ResultMessage(subtype="success", is_error=False, result=self._text)
            yield LineMeaning(result=result, settled=[Settle(waiting.pop(0), TurnState.DONE, result)] if waiting else ())


class AcmeTape(TapeReader):
    """Shows prompts and answers."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._asked = CallBook("host")

    def said(self, line: bytes) -> Message:
        message, text = decode_message(line), fields_of(line).get("text", "")
        if not isinstance(message, DecodeFailure):
            event = self._scene.add("user", "prompt", "Prompt", gist=text, status="open", sections=self._scene.text("text", text))
            self._asked.began(None, name="ask", event=event, t=self._scene.t)
        return message

    def heard(self, line: bytes, kept: tuple[Section, ...] = ()) -> Message:
        message, fields = decode_message(line), fields_of(line)
        if fields.get("acme") == "said":
            self._scene.add("assistant", "text", "Text", gist=fields["text"], sections=(*self._scene.text("text", fields["text"]), *kept))
        elif fields.get("acme") == "done" and (asked := self._asked.ended(None, t=self._scene.t, status="ok")) is not None:
            self._scene.close(asked, "done", ())
        return message

    def ended(self) -> None:
        for asked in self._asked.still_open():
            self._scene.worsen(asked.event, "error", "a prompt has no answer", status="lost")

    def figures(self) -> TapeFigures:
        return TapeFigures(requests=self._asked.stats())
