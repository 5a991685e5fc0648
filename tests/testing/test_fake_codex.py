"""`FakeCodex` says what a real `codex app-server` says, and does what a scenario wants."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from claude_transport.codex.testing.scenario import Ask, CallTool, ChangeFiles, Fail, Notify, Retry, RunCommand, Say, Think
from claude_transport.errors import ConfigurationError, UsageError
from claude_transport.testing import CodexReply, CodexRule, CodexScenario, FakeClaude, FakeCodex, Scenario, steps

RECORDINGS = Path(__file__).parent.parent / "recordings" / "codex"
APP_SERVER = sorted(path.stem for path in RECORDINGS.glob("app_*.ndjson") if "socket" not in path.stem)


class Host:
    """A host on plain pipes."""

    def __init__(self, fake: FakeCodex, **env: str) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [fake.path, "app-server"], stdin=pipe, stdout=pipe, stderr=pipe, env={"PATH": os.environ["PATH"], "HOME": "/home/user", **env}
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.stdin, self.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def send(self, **message: Any) -> None:
        self.raw(json.dumps(message).encode())

    def raw(self, line: bytes) -> None:
        self.stdin.write(line + b"\n")
        self.stdin.flush()

    def read(self) -> dict[str, Any]:
        line = self.stdout.readline()
        assert line, "the fake has ended its output"
        return json.loads(line)

    def until(self, method: str) -> list[dict[str, Any]]:
        """What comes up to this method, which is the last of it."""
        heard = [self.read()]
        while heard[-1].get("method") != method:
            heard.append(self.read())
        return heard

    def answer_to(self, number: object) -> dict[str, Any]:
        while True:
            message = self.read()
            if message.get("id") == number and "method" not in message:
                return message

    def request(self, number: object, method: str, **params: Any) -> Any:
        self.send(id=number, method=method, params=params)
        answer = self.answer_to(number)
        return answer["result"] if "result" in answer else answer["error"]

    def begin(self, **params: Any) -> str:
        """Initialize, start a thread, and return its id."""
        self.request(0, "initialize", clientInfo={"name": "test", "title": "Test", "version": "0"})
        self.send(method="initialized")
        thread: str = self.request(1, "thread/start", **{"cwd": "/home/user/work", **params})["thread"]["id"]
        self.until("thread/started")
        return thread

    def prompt(self, thread: str, text: str, number: object = 2) -> Any:
        return self.request(number, "turn/start", threadId=thread, input=[{"type": "text", "text": text, "text_elements": []}])

    def end(self) -> tuple[int, bytes]:
        """End the input, and return the exit code and the standard error."""
        _, stderr = self.process.communicate(timeout=20)
        return self.process.returncode, stderr


def methods(messages: list[dict[str, Any]]) -> list[str]:
    return [message.get("method", "answer") for message in messages]


def recorded_messages() -> Iterator[tuple[str, dict[str, Any]]]:
    """What the real program sent in all recordings, each with what it is: a method, or the method that it answers."""
    for name in APP_SERVER:
        asked: dict[str, str] = {}
        for row in map(json.loads, (RECORDINGS / f"{name}.ndjson").read_text("utf-8").splitlines()):
            try:
                message = json.loads(row["line"])
            except ValueError:
                continue
            if isinstance(message, dict) and row["dir"] == "in" and "method" in message:
                asked[json.dumps(message.get("id"))] = message["method"]
            elif isinstance(message, dict) and row["dir"] == "out":
                yield kind_of(message, asked), message


def kind_of(message: dict[str, Any], asked: dict[str, str]) -> str:
    if "method" not in message:
        return f"{'error' if 'error' in message else 'result'} {asked.get(json.dumps(message.get('id')), '')}"
    item = message.get("params", {}).get("item")
    return f"{message['method']} {item['type']}" if isinstance(item, dict) else message["method"]


def shape(value: object, name: str = "") -> object:
    """The names in a message, without its values. What a tool or a table of the model holds is left out."""
    if name in {"arguments", "availableDecisions", "codexErrorInfo", "turns", "items", "data", "sandbox", "status"}:
        return ...
    if isinstance(value, dict):
        return {key: shape(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(inner) for inner in value[:1]]
    return ...


TELLING = CodexScenario(
    replies=(
        (
            Think("I use a tool."),
            RunCommand("touch it"),
            ChangeFiles({"made.txt": "first line\n"}),
            CallTool("add", arguments={"a": 1, "b": 2}),
            Retry({"responseStreamDisconnected": {"httpStatusCode": None}}),
            Say("Hello, world", chunks=["Hello", ", ", "world"]),
        ),
        (Fail({"httpConnectionFailed": {"httpStatusCode": 401}}),),
    )
)


def test_each_kind_of_message_has_the_names_that_the_real_one_has() -> None:
    recorded: dict[str, list[object]] = {}
    for kind, message in recorded_messages():
        recorded.setdefault(kind, []).append(shape(message))
    asked = {"0": "initialize", "1": "thread/start", "2": "turn/start", "3": "turn/start", "4": "thread/resume", "5": "turn/interrupt"}
    asked |= {"6": "thread/read", "7": "thread/fork"}
    told: list[dict[str, Any]] = []
    with FakeCodex(TELLING) as fake, Host(fake) as host:
        read = host.read
        host.read = lambda: told.append(read()) or told[-1]  # type: ignore[method-assign,func-returns-value]
        thread = host.begin(approvalPolicy="untrusted")
        host.prompt(thread, "Say hello")
        for method, result in (
            ("item/commandExecution/requestApproval", {"decision": "accept"}),
            ("item/fileChange/requestApproval", {"decision": "accept"}),
            ("item/tool/call", {"success": True, "contentItems": [{"type": "inputText", "text": "3"}]}),
        ):
            host.send(id=host.until(method)[-1]["id"], result=result)
        host.until("turn/completed")
        host.prompt(thread, "Fail", number=3)
        host.until("turn/completed")
        host.request(4, "thread/resume", threadId=thread)
        host.request(5, "turn/interrupt", threadId=thread, turnId="none")
        host.request(6, "thread/read", threadId=thread)
        host.request(7, "thread/fork", threadId=thread)
    kinds = {kind_of(message, asked) for message in told}
    assert len(kinds) >= 28
    for message in told:
        kind = kind_of(message, asked)
        assert shape(message) in recorded[kind], f"{kind}: {message}"


@pytest.mark.parametrize("name", APP_SERVER)
def test_a_recording_is_said_again_as_it_was(name: str) -> None:
    rows = [json.loads(line) for line in (RECORDINGS / f"{name}.ndjson").read_text("utf-8").splitlines()]
    wanted = [row["line"] for row in rows if row["dir"] == "out"]
    with FakeCodex(CodexScenario.from_recording(RECORDINGS / f"{name}.ndjson")) as fake, Host(fake) as host:
        for row in rows:
            if row["dir"] == "in":
                host.raw(row["line"].encode())
        said, _ = host.process.communicate(timeout=20)
        assert said.decode().split("\n")[:-1] == wanted
        assert host.process.returncode == 0


def test_a_replayed_answer_has_the_id_of_the_host() -> None:
    with FakeCodex(CodexScenario.from_recording(RECORDINGS / "app_text.ndjson")) as fake, Host(fake) as host:
        host.send(id="mine", method="initialize", params={})
        assert "userAgent" in host.answer_to("mine")["result"]


def test_a_prompt_is_answered_with_deltas_and_one_end() -> None:
    with FakeCodex() as fake, Host(fake, CODEX_HOME="/home/user/elsewhere") as host:
        answer = host.request("text", "initialize", clientInfo={"name": "test", "version": "0"})
        assert answer["codexHome"] == "/home/user/elsewhere"
        thread = host.request(1, "thread/start")["thread"]["id"]
        host.prompt(thread, "Say hello to me")
        heard = host.until("turn/completed")
        deltas = [message["params"]["delta"] for message in heard if message.get("method") == "item/agentMessage/delta"]
        assert deltas == ["Say ", "hello ", "to ", "me"]
        turn = heard[-1]["params"]["turn"]
        assert (turn["status"], turn["items"][0]["text"], turn["itemsView"]) == ("completed", "Say hello to me", "summary")
        assert host.end()[0] == 0
        (call,) = fake.calls()
    assert (call.argv, call.prompts, call.exit_code) == (["app-server"], ["Say hello to me"], 0)
    assert [params["clientInfo"]["name"] for params in call.requests("initialize")] == ["test"]


@pytest.mark.parametrize(
    ("answer", "status", "end"),
    [
        ({"result": {"decision": "accept"}}, "completed", "completed"),
        ({"result": {"decision": "decline"}}, "declined", "completed"),
        ({"result": {"decision": "cancel"}}, "declined", "interrupted"),
        ({"result": {"decision": "perhaps"}}, "failed", "completed"),
        ({"error": {"code": -32000, "message": "no"}}, "failed", "completed"),
    ],
)
def test_a_command_ends_as_the_host_decides(answer: dict[str, Any], status: str, end: str) -> None:
    scenario = CodexScenario(otherwise=(RunCommand("touch it"), Say("done")))
    with FakeCodex(scenario) as fake, Host(fake) as host:
        thread = host.begin(approvalPolicy="untrusted")
        host.prompt(thread, "Run")
        asked = host.until("item/commandExecution/requestApproval")[-1]
        host.send(id=asked["id"], **answer)
        heard = host.until("turn/completed")
        items = [message["params"]["item"] for message in heard if message["method"] == "item/completed"]
        assert items[0]["status"] == status
        assert heard[-1]["params"]["turn"]["status"] == end
        (call,) = fake.calls()
        assert call.answers == [{"id": 0, **answer}]


def test_a_command_that_was_allowed_for_the_session_is_not_asked_for_again() -> None:
    with FakeCodex(CodexScenario(otherwise=(RunCommand("touch it"),))) as fake, Host(fake) as host:
        thread = host.begin(approvalPolicy="untrusted")
        host.prompt(thread, "Run")
        host.send(id=host.until("item/commandExecution/requestApproval")[-1]["id"], result={"decision": "acceptForSession"})
        host.until("turn/completed")
        host.prompt(thread, "Run", number=3)
        assert "item/commandExecution/requestApproval" not in methods(host.until("turn/completed"))


def test_an_interrupt_ends_the_turn_and_withdraws_its_question() -> None:
    with FakeCodex(CodexScenario(otherwise=(RunCommand("touch it", ask=True),))) as fake, Host(fake) as host:
        thread = host.begin()
        turn = host.prompt(thread, "Run")["turn"]["id"]
        host.until("item/commandExecution/requestApproval")
        assert host.request(3, "turn/interrupt", threadId=thread, turnId=turn) == {}
        heard = host.until("turn/completed")
        assert methods(heard) == ["serverRequest/resolved", "thread/status/changed", "turn/completed"]
        assert heard[-1]["params"]["turn"]["status"] == "interrupted"
        assert host.request(4, "turn/interrupt", threadId=thread, turnId=turn)["message"] == "no active turn to interrupt"


def test_steering_and_a_second_prompt_join_the_running_turn() -> None:
    scenario = CodexScenario(replies=((Say("one two", gate="go"),), (Say("three", gate="on"),)))
    with FakeCodex(scenario) as fake, Host(fake) as host:
        thread = host.begin()
        turn = host.prompt(thread, "First")["turn"]["id"]
        host.until("item/agentMessage/delta")
        text = [{"type": "text", "text": "Second", "text_elements": []}]
        wrong = host.request(3, "turn/steer", threadId=thread, expectedTurnId="other", input=text)
        assert wrong["message"] == f"expected active turn id `other` but found `{turn}`"
        assert host.request(4, "turn/steer", threadId=thread, expectedTurnId=turn, input=text) == {"turnId": turn}
        assert host.prompt(thread, "Third", number=5)["turn"]["id"] == turn
        heard = host.until("turn/completed")
        assert heard[-1]["params"]["turn"]["id"] == turn
        assert host.end()[0] == 0
        assert fake.calls()[0].prompts == ["First", "Second", "Second", "Third"]


def test_threads_run_at_once() -> None:
    scenario = CodexScenario(rules=(CodexRule(contains="wait", steps=(Say("a b", gate="go"),)),))
    with FakeCodex(scenario) as fake, Host(fake) as host:
        first = host.begin()
        host.prompt(first, "wait")
        host.until("item/agentMessage/delta")
        second = host.request(3, "thread/start")["thread"]["id"]
        host.prompt(second, "hello", number=4)
        assert host.until("turn/completed")[-1]["params"]["threadId"] == second
        fake.open_gate("go")
        assert host.until("turn/completed")[-1]["params"]["threadId"] == first


def test_a_thread_is_resumed_and_forked_in_another_run() -> None:
    with FakeCodex() as fake:
        with Host(fake) as host:
            thread = host.begin()
            host.prompt(thread, "First")
            host.until("turn/completed")
            assert host.end()[0] == 0
        with Host(fake) as host:
            host.request(0, "initialize", clientInfo={"name": "test", "version": "0"})
            again = host.request(1, "thread/resume", threadId=thread)["thread"]
            assert [item["type"] for item in again["turns"][0]["items"]] == ["userMessage", "agentMessage"]
            forked = host.request(2, "thread/fork", threadId=thread)["thread"]
            assert forked["forkedFromId"] == thread != forked["id"]
            unknown = host.request(3, "thread/resume", threadId="00000000-0000-7000-8000-000000000000")
            assert unknown["message"] == "no rollout found for thread id 00000000-0000-7000-8000-000000000000"


def test_a_wrong_request_gets_the_error_of_the_real_program() -> None:
    with FakeCodex() as fake, Host(fake) as host:
        assert host.request(1, "thread/start")["message"] == "Not initialized"
        host.begin()
        assert host.request(3, "initialize", clientInfo={"name": "test"})["message"] == "Already initialized"
        assert host.request(4, "no/such")["message"].startswith("Invalid request: unknown variant `no/such`, expected one of `")
        assert host.request(5, "turn/start", threadId="none", input=[])["message"] == "thread not found: none"
        thread = host.request(6, "thread/start")["thread"]["id"]
        large = host.prompt(thread, "x" * 1_048_577, number=7)
        assert (large["code"], large["data"]["actual_chars"]) == (-32602, 1_048_577)
        host.raw(b"not json")
        host.raw(b"[]")
        host.raw(b'{"id": 99, "result": {}}')
        assert host.request("last", "model/list")["data"][0]["model"] == "gpt-5.5"
        assert b"Failed to deserialize" in host.end()[1]


def test_a_scenario_answers_any_request_in_its_own_way() -> None:
    answers = {"model/list": CodexReply(result={"data": []}), "account/read": CodexReply(error={"code": 1, "message": "no"})}
    scenario = CodexScenario(answers={**answers, "thread/read": CodexReply(never=True)})
    with FakeCodex(scenario) as fake, Host(fake) as host:
        host.send(id=1, method="thread/read", params={})
        assert host.request(2, "model/list") == {"data": []}
        assert host.request(3, "account/read") == {"code": 1, "message": "no"}


def test_a_cut_message_is_said_again_under_the_same_id() -> None:
    scenario = CodexScenario(otherwise=(Say("Hello, wo", cut=True), Retry("other"), Say("Hello, world")))
    with FakeCodex(scenario) as fake, Host(fake) as host:
        thread = host.begin()
        host.prompt(thread, "Hi")
        heard = host.until("turn/completed")
        started = [m["params"]["item"] for m in heard if m["method"] == "item/started" and m["params"]["item"]["type"] == "agentMessage"]
        assert started[0]["id"] == started[1]["id"]
        assert [m["params"]["willRetry"] for m in heard if m["method"] == "error"] == [True]


def test_anything_can_be_said_and_asked() -> None:
    scenario = CodexScenario(otherwise=(Notify("some/news", params={"x": 1}), Ask("some/question", params={"y": 2})))
    with FakeCodex(scenario) as fake, Host(fake) as host:
        thread = host.begin()
        turn = host.prompt(thread, "Hi")["turn"]["id"]
        assert host.until("some/news")[-1]["params"] == {"threadId": thread, "turnId": turn, "x": 1}
        host.send(id=host.until("some/question")[-1]["id"], result=None)
        assert host.until("turn/completed")[-1]["params"]["turn"]["status"] == "completed"


def test_noise_and_standard_error_are_written_between_messages() -> None:
    scenario = CodexScenario(otherwise=(steps.Noise("not json"), steps.Stderr("busy\n"), Say("done")))
    with FakeCodex(scenario) as fake, Host(fake) as host:
        thread = host.begin()
        host.prompt(thread, "Hi")
        lines = []
        while b"not json" not in lines:
            lines.append(host.stdout.readline().strip())
        host.until("turn/completed")
        assert host.end() == (0, b"busy\n")


def test_the_end_of_input_drops_the_turn() -> None:
    with FakeCodex(CodexScenario(otherwise=(Say("never said", gate="never"),))) as fake, Host(fake) as host:
        thread = host.begin()
        host.prompt(thread, "Hi")
        host.until("item/started")
        stdout, _ = host.process.communicate(timeout=20)
        assert b"turn/completed" not in stdout
        assert host.process.returncode == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, -signal.SIGINT), (signal.SIGHUP, -signal.SIGHUP)])
def test_a_signal_ends_it_as_it_ends_the_real_one(number: signal.Signals, code: int) -> None:
    with FakeCodex() as fake, Host(fake) as host:
        host.begin()
        host.process.send_signal(number)
        assert host.process.wait(20) == code
        assert fake.calls()[0].signals == [number]


def test_a_signal_can_be_ignored() -> None:
    with FakeCodex(CodexScenario(startup=(steps.IgnoreSignal("SIGINT"),))) as fake, Host(fake) as host:
        host.begin()
        host.process.send_signal(signal.SIGINT)
        host.request(9, "model/list")
        host.process.send_signal(signal.SIGTERM)
        assert host.process.wait(20) == 0
        assert fake.calls()[0].signals == [signal.SIGINT, signal.SIGTERM]


@pytest.mark.parametrize(("step", "code"), [(steps.Exit(3), 3), (steps.DieBySignal("SIGKILL"), -signal.SIGKILL)])
def test_it_dies_in_a_turn_as_the_scenario_says(step: Any, code: int) -> None:
    with FakeCodex(CodexScenario(otherwise=(step,))) as fake, Host(fake) as host:
        thread = host.begin()
        host.prompt(thread, "Hi")
        assert host.process.wait(20) == code


def test_it_says_its_version() -> None:
    with FakeCodex() as fake:
        assert subprocess.run([fake.path, "--version"], capture_output=True, check=True).stdout == b"codex-cli 0.169.0\n"


def test_a_scenario_survives_its_json_and_a_wrong_one_is_refused(tmp_path: Path) -> None:
    assert CodexScenario.from_json(TELLING.to_json()).to_json() == TELLING.to_json()
    with pytest.raises(ConfigurationError, match="not a scenario"):
        CodexScenario.from_json(b'{"otherwise": [{"step": "sing"}]}')
    with pytest.raises(ConfigurationError, match="is not a CodexScenario"):
        FakeCodex("hello")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="add up"):
        Say("one", chunks=["o", "n"])
    with pytest.raises(ConfigurationError, match="chunk_size"):
        CodexScenario(chunk_size=0)
    wrong = tmp_path / "wrong.ndjson"
    wrong.write_text("[]", "utf-8")
    with pytest.raises(ConfigurationError, match="not a recording"):
        CodexScenario.from_recording(wrong)


def test_a_closed_fake_says_so() -> None:
    fake = FakeCodex()
    fake.close()
    with pytest.raises(UsageError, match="this FakeCodex is closed"):
        _ = fake.path


@pytest.mark.parametrize("make", [FakeCodex, lambda: FakeClaude(Scenario.echo())])
def test_a_fake_stands_for_the_path_of_its_program_until_it_is_closed(make: Callable[[], FakeCodex | FakeClaude]) -> None:
    with make() as fake:
        assert Path(fake) == fake.path
    with pytest.raises(UsageError, match="is closed"):
        os.fspath(fake)
