"""A wrapper that holds prompts back holds back nothing else: `SessionTerms.before_prompt`. The clocks jump."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
from peers import ForeignTransport, answer_to, permission, result, said, soon
from virtual_time import Backend, jumping_backends

import claude_transport as ct
from claude_transport import Allow, InterruptOutcome, Query
from claude_transport.errors import ConfigurationError, TransportClosed, UsageError
from claude_transport.jsonrpc import JSONRPCPeer
from claude_transport.transport import BeforePrompt, Client, SessionTerms


@pytest.fixture(params=jumping_backends())
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    """Run every test of this module on both event loops, with clocks that jump."""
    backend: Backend = request.param
    return backend


class Holding(ct.TransportWrapper):
    """Gives each prompt to `before` first."""

    def __init__(self, transport: Any, before: BeforePrompt) -> None:
        super().__init__(transport)
        self._before = before

    def attach(self, client: Client) -> SessionTerms:
        return super().attach(client).with_before_prompt(self._before)


async def test_an_interrupt_before_the_start_is_over_does_not_wait_for_a_prompt_that_is_held_back() -> None:
    asked = anyio.Event()
    initialize: list[dict[str, Any]] = []
    outcomes: list[InterruptOutcome] = []

    def answer(frame: dict[str, Any]) -> None:
        if frame.get("request", {}).get("subtype") == "initialize":
            initialize.append(frame)
            asked.set()
        elif frame["type"] == "control_request":
            transport.say(answer_to(frame))

    async def interrupt() -> None:
        outcomes.append(await query.interrupt(timeout=1))

    transport = ForeignTransport(answers=False, on_write=answer)
    query = Query(Holding(transport, four_seconds))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(query.start)
        await asked.wait()
        tasks.start_soon(query.send, "held")
        await settled()
        tasks.start_soon(interrupt)
        await settled()
        transport.say(answer_to(initialize[0]))
        await soon(lambda: outcomes)
        assert (outcomes[0] is InterruptOutcome.TIMED_OUT, texts(transport)) == (False, [])
    assert texts(transport) == ["held"]
    await query.aclose()


class OverBudget(Exception):
    """The error of a program."""


async def settled() -> None:
    """Let the other tasks go as far as they can, without letting the time pass."""
    for _ in range(50):
        await anyio.lowlevel.checkpoint()


async def four_seconds(line: bytes) -> bytes:
    await anyio.sleep(4)
    return line


def texts(transport: ForeignTransport) -> list[str]:
    return [frame["message"]["content"] for frame in transport.prompts()]


async def test_prompts_wait_in_their_order_and_requests_and_answers_pass_them() -> None:
    at: dict[str, float] = {}

    def note(frame: dict[str, Any]) -> None:
        name = frame["message"]["content"] if frame["type"] == "user" else frame.get("request", {}).get("subtype", frame["type"])
        at[name] = anyio.current_time() - begin

    async def send(text: str) -> None:
        await query.send(text)

    async def allow(*_: Any) -> Allow:
        return Allow()

    transport = ForeignTransport(on_write=note)
    begin = anyio.current_time()
    async with Query(Holding(transport, four_seconds), can_use_tool=allow) as query:
        begin = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(send, f"p{number}")
                await settled()
            transport.say(permission())
            await soon(lambda: "control_response" in at)
            assert await query.interrupt(timeout=1) is not InterruptOutcome.TIMED_OUT
        assert at == {"initialize": 0.0, "control_response": 0.0, "interrupt": 0.0, "p0": 4.0, "p1": 8.0, "p2": 12.0}
        query.abandon(timeout=0.0)


async def test_a_sender_that_is_cancelled_sends_nothing_and_the_next_one_has_its_turn() -> None:
    seen: list[str] = []

    async def before(line: bytes) -> bytes:
        try:
            return await four_seconds(line)
        except anyio.get_cancelled_exc_class():
            seen.append("cancelled")
            raise

    transport = ForeignTransport(on_write=lambda frame: transport.say(result()) if frame["type"] == "user" else None)
    async with Query(Holding(transport, before)) as query:
        with anyio.move_on_after(1) as waiting:
            await query.send("never", uuid="u1")
        assert (waiting.cancelled_caught, seen, query.open_turns) == (True, ["cancelled"], ())
        assert (await (await query.send("later", uuid="u1")).result()).result == "done"
        assert texts(transport) == ["later"]


async def test_a_refusal_comes_to_the_sender_unchanged_and_nothing_is_sent() -> None:
    refusal = OverBudget("no money left")

    async def before(line: bytes) -> bytes:
        if b"expensive" in line:
            raise refusal
        return line

    transport = ForeignTransport(on_write=lambda frame: transport.say(result()) if frame["type"] == "user" else None)
    async with Query(Holding(transport, before)) as query:
        with pytest.raises(OverBudget) as caught:
            await query.send("expensive")
        assert (caught.value is refusal, query.open_turns, texts(transport)) == (True, (), [])
        assert (await (await query.send("cheap")).result()).result == "done"


def changed(line: bytes, **fields: Any) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(line) | fields) + b"\n"


async def test_a_prompt_may_get_another_content_and_the_outer_wrapper_is_asked_first() -> None:
    def saying(word: str) -> BeforePrompt:
        async def before(line: bytes) -> bytes:
            message = msgspec.json.decode(line)["message"]
            return changed(line, message=message | {"content": f"{message['content']} {word}"})

        return before

    transport = ForeignTransport(on_write=lambda frame: transport.say(result()) if frame["type"] == "user" else None)
    async with Query(Holding(Holding(transport, saying("inner")), saying("outer"))) as query:
        turn = await query.send("text", uuid="u1")
        assert (await turn.result()).result == "done"
        (prompt,) = transport.prompts()
        assert (prompt["message"]["content"], prompt["uuid"]) == ("text outer inner", "u1")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda line: None, "must return one line, as bytes"),
        (lambda line: line.decode(), "must return one line, as bytes"),
        (lambda line: line.rstrip(), "must return one line, as bytes"),
        (lambda line: line + line, "must return one line, as bytes"),
        (lambda line: b"{half\n", "one line that holds a JSON object"),
        (lambda line: b"[1]\n", "one line that holds a JSON object"),
        (lambda line: b'{"x":"\xff"}\n', "one line that holds a JSON object"),
        (lambda line: changed(line, uuid="other"), "neither its type nor its uuid"),
        (lambda line: changed(line, type="control_request"), "neither its type nor its uuid"),
    ],
    ids=["nothing", "text", "no newline", "two lines", "half", "a list", "no UTF-8", "another uuid", "another type"],
)
async def test_what_is_no_line_of_this_prompt_is_refused_and_nothing_is_sent(change: Callable[[bytes], Any], words: str) -> None:
    async def before(line: bytes) -> Any:
        return change(line)

    transport = ForeignTransport()
    async with Query(Holding(transport, before)) as query:
        with pytest.raises(UsageError, match=words):
            await query.send("text")
        assert (transport.prompts(), query.open_turns) == ([], ())


@pytest.mark.parametrize("end", ["closed", "gone"])
async def test_prompts_that_wait_when_the_conversation_ends_are_not_sent(end: str) -> None:
    failures: list[BaseException] = []
    transport = ForeignTransport(ends=False)  # the peer would get 3 seconds to end

    async def before(line: bytes) -> bytes:
        return line if b"running" in line else await four_seconds(line)

    query = Query(Holding(transport, before))
    await query.start()
    await query.send("running")
    transport.say(said())
    await settled()

    async def send(text: str) -> None:
        try:
            await query.send(text)
        except TransportClosed as exc:
            failures.append(exc)

    begin = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        for number in range(2):
            tasks.start_soon(send, f"p{number}")
        await settled()
        if end == "closed":
            tasks.start_soon(functools.partial(query.aclose, wait_for_background=True, timeout=3.0))
        else:
            transport.finish()
        await settled()
        assert [type(failure) for failure in failures] == [TransportClosed, TransportClosed]
        assert (anyio.current_time() - begin, texts(transport)) == (0.0, ["running"])
    await query.aclose()


async def test_the_end_of_the_input_comes_behind_the_prompts_that_were_sent_before_it() -> None:
    transport = ForeignTransport()
    async with Query(Holding(transport, four_seconds)) as query, anyio.create_task_group() as tasks:
        begin = anyio.current_time()
        tasks.start_soon(query.send, "held")
        await settled()
        await query.end_input()
        ended_at = [anyio.current_time() - begin]
        assert (texts(transport), ended_at) == (["held"], [4.0])


async def passes(line: bytes) -> bytes:
    return line


async def test_a_layer_that_hands_lines_on_refuses_a_transport_that_holds_prompts_back() -> None:
    peer = JSONRPCPeer(Holding(ct.MockTransport(), passes))
    with pytest.raises(ConfigurationError, match="JSONRPCPeer hands lines on") as caught:
        await peer.start()
    assert caught.value.option == "before_prompt"
    await peer.aclose()


def test_no_before_prompt_passes_everywhere() -> None:
    SessionTerms().check_prompts_pass(of="a layer")
    with pytest.raises(ConfigurationError, match="a layer hands lines on as they come"):
        SessionTerms().with_before_prompt(passes).check_prompts_pass(of="a layer")
