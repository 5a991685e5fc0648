"""What a real CLI said: every recorded line is decoded by a class of its own, and nothing of it is lost."""

from __future__ import annotations

import json
import pickle
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from recorded_lines import BUNDLED, lines_of, recordings, sample_lines

from claude_transport.protocol.blocks import UnknownBlock
from claude_transport.protocol.codec import LineDecoder, decode_message
from claude_transport.protocol.control import ControlRequest, UnknownControl
from claude_transport.protocol.envelope import HIDDEN_FIELDS, DecodeFailure, Message, OversizedMessage, Part, UnknownMessage, encode_message
from claude_transport.protocol.messages import AssistantMessage, InitMessage, ResultMessage, SystemMessage, UserMessage


def names(paths: tuple[Path, ...]) -> list[str]:
    return [path.stem for path in paths]


every_recording = pytest.mark.parametrize("path", recordings(), ids=names(recordings()))


def test_there_are_recordings_in_this_repository() -> None:
    assert len(list(BUNDLED.glob("*.ndjson"))) >= 30
    assert len(sample_lines()) >= 60


@every_recording
def test_every_line_from_the_cli_comes_back_as_it_was(path: Path) -> None:
    for line in lines_of(path, direction="out"):
        message = decode_message(line)
        assert message.to_dict() == json.loads(line)
        assert message.raw == line
        assert encode_message(message) == line + b"\n"


@every_recording
def test_every_line_from_the_cli_is_typed_at_once(path: Path) -> None:
    lines = list(lines_of(path, direction="out"))
    decoder = LineDecoder()
    messages = decoder.messages(lines)
    assert decoder.counters.typed == decoder.counters.lines == len(lines)
    for message in messages:
        assert not isinstance(message, (UnknownMessage, DecodeFailure, OversizedMessage))
        assert type(message) is not SystemMessage, f"no class for system/{message.to_dict()['subtype']}"
        assert message.misfits == ()
        assert not message.lossy
        assert message.type == json.loads(message.raw)["type"]


@every_recording
def test_the_batch_decoder_and_the_single_one_agree(path: Path) -> None:
    lines = list(lines_of(path, direction="out"))
    assert LineDecoder().messages(lines) == [decode_message(line) for line in lines]
    assert LineDecoder().dicts(lines) == ([json.loads(line) for line in lines], [])


@every_recording
def test_no_block_and_no_request_of_the_cli_is_unknown(path: Path) -> None:
    for line in lines_of(path, direction="out"):
        message = decode_message(line)
        if isinstance(message, (AssistantMessage, UserMessage)) and not isinstance(message.content, str):
            assert not any(isinstance(block, UnknownBlock) for block in message.content)
        if isinstance(message, ControlRequest):
            assert not isinstance(message.request, UnknownControl)


@every_recording
def test_every_line_to_the_cli_that_is_an_object_comes_back_as_it_was(path: Path) -> None:
    for line in lines_of(path, direction="in"):
        message = decode_message(line)
        if not isinstance(message, DecodeFailure):  # some recordings feed the CLI rubbish on purpose
            assert message.to_dict() == json.loads(line)


def unnamed_keys(struct: Message | Part, wire: dict[str, Any]) -> set[str]:
    known = {*struct.__struct_encode_fields__, str(struct.__struct_config__.tag_field)}
    return set(wire) - known


@every_recording
def test_every_top_level_field_the_cli_sent_has_a_name(path: Path) -> None:
    for line in lines_of(path, direction="out"):
        message = decode_message(line)
        assert unnamed_keys(message, json.loads(line)) == set(), type(message)


def test_every_message_can_be_copied_pickled_and_compared() -> None:
    for line in sample_lines():
        message = decode_message(line)
        for twin in (deepcopy(message), pickle.loads(pickle.dumps(message))):
            assert twin == message
            assert twin.raw == line
            assert twin is not message


def test_a_message_rebuilt_from_its_fields_alone_says_the_same() -> None:
    # what is built by hand goes out through to_dict(); decoding that again must give an equal message
    for line in sample_lines():
        message = decode_message(line)
        fields = {name: getattr(message, name) for name in message.__struct_fields__ if name not in HIDDEN_FIELDS}
        rebuilt = type(message)(**fields)
        assert rebuilt.raw == b""
        assert decode_message(encode_message(rebuilt)) == message


def test_init_is_repeated_and_says_what_the_cli_can_do() -> None:
    line = next(lines_of(BUNDLED / "01_oneshot_stdin_eof.ndjson", direction="out"))
    init = decode_message(line)
    assert isinstance(init, InitMessage)
    assert init.subtype == "init"
    assert init.permission_mode == "default"
    assert init.api_key_source == "ANTHROPIC_API_KEY"
    assert "interrupt_receipt_v1" in init.capabilities
    assert init.plugins[0].path == "builtin"


def test_an_api_failure_arrives_as_a_success_with_is_error() -> None:
    messages = LineDecoder().messages(list(lines_of(BUNDLED / "11_429_noretry.ndjson", direction="out")))
    spoken = next(message for message in messages if isinstance(message, AssistantMessage))
    assert spoken.is_synthetic
    assert spoken.error == "rate_limit"
    result = next(message for message in messages if isinstance(message, ResultMessage))
    assert (result.subtype, result.is_error, result.api_error_status) == ("success", True, 429)


def test_a_turn_that_a_background_task_started_is_unsolicited() -> None:
    messages = LineDecoder().messages(list(lines_of(BUNDLED / "15a_subagent_foreground.ndjson", direction="out")))
    results = [message for message in messages if isinstance(message, ResultMessage)]
    assert [result.is_unsolicited for result in results] == [False, True]
    assert results[0].model_usage["claude-opus-5-5"].cost_usd > 0
    assert results[0].usage.total_input_tokens == results[0].usage.input_tokens > 0
