"""The transcripts on the page of the link protocol are what two ends say to each other, byte for byte."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from claude_transport.link.machine import (
    MAX_CONTROL_FRAME_BYTES,
    MAX_DATA_HEADER_BYTES,
    Ack,
    Bye,
    End,
    Frame,
    Hello,
    LinkEnd,
    Ping,
    Pong,
    ProcessEnd,
    Refusal,
    Welcome,
    decode_frame,
    encode_frame,
    parse_data_header,
)

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "link-protocol.md"
TRANSCRIPTS = sorted(PAGE.with_suffix("").glob("*.txt"))


def spoken(path: Path) -> list[tuple[str, bytes]]:
    """Who says what, frame by frame, without the remarks."""
    frames: list[tuple[str, bytes]] = []
    for line in path.read_text("utf-8").splitlines():
        who, mark, said = line[0], line[1], line[3:].encode() + b"\n"
        if mark == "|":
            assert frames[-1][0] == who
            frames[-1] = (who, frames[-1][1] + said)
        elif who != "#":
            frames.append((who, said))
    return frames


def is_data(said: bytes) -> bool:
    return said.startswith(b"D ")


def heard(said: bytes) -> bytes:
    """The bytes of data that get through of a frame."""
    return said.partition(b"\n")[2].removesuffix(b"...\n")


class Session:
    """Two ends that are made to say a transcript: whose turn it is does what the frame reports, and must then say just that frame."""

    def __init__(self, frames: list[tuple[str, bytes]]) -> None:
        self.ends = {"C": LinkEnd(), "S": LinkEnd()}
        # what each of the two has to say in all: of what was cut off, the rest comes later
        self.whole = {who: b"".join(heard(said) for one, said in frames if one == who and is_data(said)) for who in self.ends}

    def play(self, who: str, said: bytes) -> None:
        end, other = self.ends[who], self.ends["S" if who == "C" else "C"]
        line = said.partition(b"\n")[0]
        if is_data(said):
            position, size = parse_data_header(line)
            end.send(self.whole[who][end.sent : position + size])
            assert end.data_to_send() == line + b"\n" + self.whole[who][position : position + size]
            said = line + b"\n" + heard(said)
        else:
            frame = decode_frame(line)
            assert encode_frame(frame) == said
            if isinstance(frame, Hello | Welcome):
                self._shake_hands(frame)
                return
            self._do(end, frame)
            assert end.data_to_send() == said
        list(other.receive(said))
        other.consume(other.received)

    def _shake_hands(self, frame: Hello | Welcome) -> None:
        end, other = (self.ends["C"], self.ends["S"]) if isinstance(frame, Hello) else (self.ends["S"], self.ends["C"])
        assert (frame.received, frame.replay_from, frame.window) == (end.received, end.replay_from, end.window)
        other.resume(received=frame.received, replay_from=frame.replay_from, window=frame.window)

    def _do(self, end: LinkEnd, frame: Frame) -> None:
        match frame:
            case Ack():
                end.acknowledge()
            case End():
                end.end_input()
            case ProcessEnd(exit_code=code, signal=signal, killed=killed, stderr_tail=tail):
                end.end_process(exit_code=code, signal=signal, killed=killed, stderr_tail=tail)
            case Bye(reason=reason):
                end.bye(reason=reason)
            case _:
                pytest.fail(f"the transcript has {frame!r}")


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_two_ends_say_exactly_what_the_transcript_says(path: Path) -> None:
    frames = spoken(path)
    assert len(frames) > 8
    session = Session(frames)
    for who, said in frames:
        session.play(who, said)


def test_the_page_shows_every_transcript() -> None:
    shown = re.findall(r"\{literalinclude\} (\S+)", PAGE.read_text("utf-8"))
    assert sorted(shown) == [f"{PAGE.stem}/{path.name}" for path in TRANSCRIPTS]


def rows_below(head: str) -> list[str]:
    """The first cells of the table with this head."""
    lines = PAGE.read_text("utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {head} |"))
    cells: list[str] = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        cells += re.findall(r"`(\w+)", line.split("|")[1])
    return cells


@pytest.mark.parametrize(
    ("head", "fields"),
    [
        ("hello", Hello.__struct_fields__),
        ("welcome", Welcome.__struct_fields__),
        ("`X`", ProcessEnd.__struct_fields__),
        ("`code` of a refusal", ("auth", "options", "session", "replay_gap")),
        ("frame", "HWRDEXAPOB"),
    ],
)
def test_the_tables_of_the_page_have_the_members_of_the_frames(head: str, fields: Sequence[str]) -> None:
    assert sorted(rows_below(head)) == sorted(fields)


def test_the_defaults_of_the_page_are_those_of_the_frames() -> None:
    text = PAGE.read_text("utf-8")
    hello = decode_frame(b'H {"version":1}')
    assert isinstance(hello, Hello)
    assert f"| `window` | {hello.window:,} |".replace(",", " ") in text
    assert {type(frame).__struct_fields__ for frame in (Refusal(code="x"), Bye())} == {("code", "text", "retryable"), ("code", "reason")}
    assert [encode_frame(frame) for frame in (Ping(7), Pong(7))] == [b"P 7\n", b"O 7\n"]
    for bound in (MAX_CONTROL_FRAME_BYTES, MAX_DATA_HEADER_BYTES):
        assert f"at most {bound:,}".replace(",", " ") in text
