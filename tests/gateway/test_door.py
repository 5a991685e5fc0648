"""Tokens, addresses and choices of a gateway: all of them are checked before anything is opened."""

from __future__ import annotations

import errno
import hashlib
import hmac
import inspect
import socket
import ssl
import stat
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute
from virtual_time import virtual_time

from claude_transport.bridge.host import BridgeHost
from claude_transport.errors import ClaudeTransportWarning, ConfigurationError
from claude_transport.gateway.gateway import Gateway
from claude_transport.launch.options import ClaudeOptions
from claude_transport.serving.choices import DEFAULT_CHOICES, Choices, check_answers
from claude_transport.serving.door import Allowance, Door, GatewayLimits, GatewayTokens
from claude_transport.serving.listeners import open_listeners
from claude_transport.serving.turned_away import TurnedAway
from claude_transport.streams.address import parse_address

TOKEN = "a-token-of-sufficient-length"


def token_file(folder: Path, text: str, *, mode: int = 0o600) -> Path:
    path = folder / "tokens"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_token_belongs_to_its_owner_and_to_nobody_else() -> None:
    tokens = GatewayTokens({"alice": TOKEN, "bob": TOKEN[::-1]})
    assert tokens.owner(TOKEN) == "alice"
    assert tokens.owner(TOKEN[::-1]) == "bob"
    assert [tokens.owner(wrong) for wrong in (None, "", TOKEN + "x", TOKEN[:-1], TOKEN.upper(), "\ud800")] == [None] * 6


def test_no_other_token_opens_the_door() -> None:
    tokens = GatewayTokens({"alice": TOKEN, "bob": TOKEN[::-1]})
    assert {tokens.owner(f"{TOKEN}{number}") for number in range(5000)} == {None}


class Compared:
    """Replaces `hmac.compare_digest`, and records its arguments."""

    def __init__(self) -> None:
        self.pairs: list[tuple[bytes, bytes]] = []

    def __call__(self, known: bytes, shown: bytes) -> bool:
        self.pairs.append((known, shown))
        return hmac.compare_digest(known, shown)


@pytest.mark.parametrize("shown", [TOKEN, TOKEN[::-1], "wrong-token-0123456789", TOKEN[:-1], "", None])
def test_every_known_token_is_compared_in_constant_time_whichever_is_shown(shown: str | None) -> None:
    compared = Compared()
    names = {"alice": TOKEN, "bob": TOKEN[::-1], "carol": f"{TOKEN}-3"}
    tokens = GatewayTokens(names, compare=compared).joined(GatewayTokens({"dave": f"{TOKEN}-4"}))
    tokens.owner(shown)
    known = [hashlib.sha256(token.encode()).digest() for token in (*names.values(), f"{TOKEN}-4")]
    assert compared.pairs == [(digest, hashlib.sha256((shown or "").encode()).digest()) for digest in known]


def test_nothing_but_that_comparison_says_whose_token_it_is() -> None:
    """A comparison that returns False refuses the right token; one that returns True accepts a wrong one."""
    assert GatewayTokens({"alice": TOKEN}, compare=lambda _known, _shown: False).owner(TOKEN) is None
    assert GatewayTokens({"alice": TOKEN}, compare=lambda _known, _shown: True).owner("wrong-token-0123456789") == "alice"


def test_by_default_it_is_the_comparison_of_the_standard_library() -> None:
    assert inspect.signature(GatewayTokens).parameters["compare"].default is hmac.compare_digest
    assert inspect.signature(BridgeHost).parameters["compare"].default is hmac.compare_digest


def test_no_token_is_kept_or_shown() -> None:
    tokens = GatewayTokens({"alice": TOKEN})
    assert TOKEN not in repr(tokens)
    assert TOKEN not in repr(vars(tokens))


@pytest.mark.parametrize("token", ["a-t\u00f6ken-of-sufficient-length", "a token with blanks in it", "a-token-with-a-line\n", 7])
def test_a_token_that_no_header_can_carry_is_refused_without_showing_it(token: Any) -> None:
    with pytest.raises(ConfigurationError) as refused:
        GatewayTokens({"alice": token})
    assert (refused.value.args[0], refused.value.option) == (
        "the token of alice has characters that a header cannot carry: use visible ASCII without blanks",
        "tokens",
    )


def test_tokens_from_a_file_have_names_comments_and_blank_lines(tmp_path: Path) -> None:
    path = token_file(tmp_path, f"# ours\n\nalice {TOKEN}\n{TOKEN[::-1]}\n")
    tokens = GatewayTokens.from_file(path)
    assert tokens.owner(TOKEN) == "alice"
    assert tokens.owner(TOKEN[::-1]) == "token-4"


def test_a_token_file_that_everybody_can_read_is_refused_and_one_of_a_group_is_worth_a_warning(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigurationError, match="chmod 600"):
        GatewayTokens.from_file(token_file(tmp_path, f"alice {TOKEN}\n", mode=0o644))
    with pytest.warns(ClaudeTransportWarning, match="open to its group") as told:
        GatewayTokens.from_file(token_file(tmp_path, f"alice {TOKEN}\n", mode=0o640))
    assert [warning.filename for warning in told] == [__file__]
    assert TOKEN not in str(told[0].message)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        "alice short\n",
        f"alice {TOKEN} more\n",
        f"alice {TOKEN} {TOKEN[::-1]}\n",
        f"a/b {TOKEN}\n",
        f"a {TOKEN}\na {TOKEN[::-1]}\n",
        f"a {TOKEN}\nb {TOKEN}\n",
        f"{'#' * (2**20 - 20)}\na {TOKEN}\n",
    ],
)
def test_a_token_file_with_a_mistake_is_refused_without_showing_a_token(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        GatewayTokens.from_file(token_file(tmp_path, text))
    assert caught.value.option == "tokens"
    assert TOKEN not in str(caught.value)


def test_a_token_file_that_cannot_be_read_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"alice \xe4" + TOKEN.encode())
    for name, why in (("missing", "No such file or directory"), ("latin", "'utf-8' codec can't decode byte 0xe4 in position 6: ")):
        with pytest.raises(ConfigurationError) as caught:
            GatewayTokens.from_file(tmp_path / name)
        assert caught.value.option == "tokens"
        assert str(caught.value.args[0]).startswith(f"the token file {str(tmp_path / name)!r} cannot be read: {why}")


def test_a_token_from_the_environment_is_called_like_its_variable() -> None:
    tokens = GatewayTokens.from_environment("GATEWAY_TOKEN", env={"GATEWAY_TOKEN": TOKEN})
    assert tokens.owner(TOKEN) == "GATEWAY_TOKEN"
    with pytest.raises(ConfigurationError, match="OTHER is not set"):
        GatewayTokens.from_environment("OTHER", env={})
    assert tokens.joined(GatewayTokens({"bob": TOKEN[::-1]})).owner(TOKEN[::-1]) == "bob"
    with pytest.raises(ConfigurationError, match="two tokens of the name"):
        tokens.joined(tokens)


@pytest.mark.parametrize(
    ("origin", "welcome"),
    [
        (None, True),
        ("https://example.org", True),
        ("https://EXAMPLE.org/", True),
        ("https://example.org.evil.net", False),
        ("http://example.org", False),
        ("null", False),
        ("", False),
    ],
)
def test_a_page_in_a_browser_is_let_in_only_by_its_name(origin: str | None, welcome: bool) -> None:
    door = Door(tokens=GatewayTokens(), origins=["https://example.org"], limits=GatewayLimits())
    if welcome:
        door.check_origin(origin)
    else:
        with pytest.raises(TurnedAway) as caught:
            door.check_origin(origin)
        assert caught.value.status == 403


def server_context() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


def mutual_context() -> ssl.SSLContext:
    context = server_context()
    context.verify_mode = ssl.CERT_REQUIRED
    return context


@pytest.mark.parametrize(
    ("settings", "option"),
    [
        ({"listen": ["tcp://0.0.0.0:0"]}, "tokens"),
        ({"listen": ["tcp://192.0.2.1:0"]}, "tokens"),
        ({"listen": ["ws://[::]:80"]}, "tokens"),
        ({"listen": ["tcp://example.org:80"]}, "tokens"),
        ({"listen": ["tcp://0.0.0.0:0"], "tokens": {"a": TOKEN}}, "listen"),
        ({"listen": ["ws://0.0.0.0:0"], "tokens": {"a": TOKEN}}, "listen"),
        ({"listen": ["tls://0.0.0.0:0"], "ssl_context": server_context()}, "tokens"),
        ({"listen": ["tls://127.0.0.1:0"]}, "ssl_context"),
        ({"listen": ["wss://127.0.0.1:0"]}, "ssl_context"),
        ({"listen": ["tcp://127.0.0.1:0", "tcp://0.0.0.0:0"], "tokens": {"a": TOKEN}, "ssl_context": server_context()}, "listen"),
        ({"listen": ["http://127.0.0.1:0"]}, "url"),
        ({"listen": [f"tcp://{TOKEN}@127.0.0.1:0"]}, "url"),
        ({"listen": [f"ws://127.0.0.1:80/?token={TOKEN}"]}, "url"),
        ({"listen": "tcp://127.0.0.1:0"}, "listen"),
        ({"modes": ["telnet"]}, "modes"),
        ({"origins": ["example.org"]}, "origins"),
        ({"choices": ["moddel"]}, "choices"),
        ({"limits": GatewayLimits(sessions=0)}, "sessions"),
        ({"limits": GatewayLimits(lease=0)}, "lease"),
        ({"limits": GatewayLimits(stall=0.0)}, "stall"),
        ({"tokens": {"a": "short"}}, "tokens"),
        ({"command": []}, "command"),
        ({"close_timeout": -1.0}, "close_timeout"),
    ],
)
def test_a_gateway_that_would_be_open_or_makes_no_sense_is_not_made(settings: dict[str, Any], option: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Gateway(**settings)
    assert caught.value.option == option
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"listen": ["tls://0.0.0.0:0"], "tokens": {"a": TOKEN}, "ssl_context": server_context()},
        {"listen": ["wss://0.0.0.0:0"], "ssl_context": mutual_context()},
        {"listen": ["tcp://0.0.0.0:0"], "tokens": {"a": TOKEN}, "allow_plaintext": True},
        {"listen": ["tcp://127.0.0.1:0", "tcp://localhost:0", "ws://[::1]:0", "unix:///tmp/x"]},
    ],
)
def test_a_gateway_that_is_safe_may_listen(settings: dict[str, Any]) -> None:
    assert Gateway(**settings).urls == ()


async def test_a_unix_socket_is_for_its_owner_alone_and_is_gone_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "door"
    async with Gateway(listen=[f"unix://{path}"]):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(ConfigurationError, match="another process already listens there"):
            await Gateway(listen=[f"unix://{path}"]).start()
        assert path.exists()
    assert not path.exists()


async def test_a_socket_that_a_killed_gateway_left_behind_is_replaced_and_a_file_is_not(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "stale"))
    async with Gateway(listen=[f"unix://{tmp_path}/stale"]) as gateway:
        assert gateway.urls == (f"unix://{tmp_path}/stale",)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ConfigurationError, match="cannot listen"):
        await Gateway(listen=[f"unix://{tmp_path}/file"]).start()
    assert (tmp_path / "file").read_text() == "mine"


async def test_the_socket_of_whoever_came_after_us_is_not_removed(tmp_path: Path) -> None:
    door = tmp_path / "door"
    before = Gateway(listen=[f"unix://{door}"])
    await before.start()
    door.unlink()
    async with Gateway(listen=[f"unix://{door}"]):
        await before.aclose()
        assert door.is_socket()
    assert not door.exists()


async def test_a_port_that_is_taken_leaves_no_other_listener_open(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        gateway = Gateway(listen=[f"unix://{tmp_path}/door", f"tcp://127.0.0.1:{taken.getsockname()[1]}"])
        with pytest.raises(ConfigurationError, match="cannot listen on tcp"):
            await gateway.start()
    assert not (tmp_path / "door").exists()


async def test_a_name_that_no_host_can_have_is_nowhere_to_listen() -> None:
    gateway = Gateway(listen=["tcp://\u2603.example:0"], tokens={"a": "x" * 16}, allow_plaintext=True)
    with pytest.raises(ConfigurationError, match=r"cannot listen on tcp.*: .*2603"):
        await gateway.start()


async def test_a_silent_client_is_asked_by_tcp_whether_it_is_there() -> None:
    (listener,) = await open_listeners(parse_address("tcp://127.0.0.1:0"))
    try:
        with socket.create_connection((listener.address.host, listener.address.port)):
            stream, _ = await listener.accept()
            assert stream.extra(SocketAttribute.raw_socket).getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0
            await stream.aclose()
    finally:
        listener.close()


async def test_a_system_without_room_for_a_connection_is_asked_again_in_a_moment(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers = [OSError(errno.EMFILE, "Too many open files"), ConnectionAbortedError()]
    accept = socket.socket.accept

    def accept_at_last(listening: socket.socket) -> Any:
        if answers:
            raise answers.pop(0)
        return accept(listening)

    monkeypatch.setattr(socket.socket, "accept", accept_at_last)
    (listener,) = await open_listeners(parse_address("tcp://127.0.0.1:0"))
    try:
        with socket.create_connection((listener.address.host, listener.address.port)):
            stream, _ = await listener.accept()
            await stream.aclose()
    finally:
        listener.close()
    assert [record.getMessage().partition(" on ")[0] for record in caplog.records] == ["no connection can be accepted"]


def test_a_websocket_is_not_listened_for_without_the_package_that_speaks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "websockets.server", None)
    Gateway(listen=["tcp://127.0.0.1:0"])
    with pytest.raises(ConfigurationError, match=r"pip install 'claude-transport\[ws\]'"):
        Gateway(listen=["tcp://127.0.0.1:0", "ws://127.0.0.1:0/"])


def test_nothing_that_reaches_the_gateways_machine_is_a_choice_by_default() -> None:
    dangerous = {
        "cli_path",
        "cwd",
        "env",
        "extra_args",
        "settings",
        "mcp_servers",
        "add_dirs",
        "user",
        "plugins",
        "resume",
        "permission_mode",
    }
    assert not DEFAULT_CHOICES & dangerous
    for name in dangerous:
        with pytest.raises(TurnedAway) as caught:
            Choices().apply(ClaudeOptions(), {name: None})
        assert caught.value.reason == "options"


def test_a_limit_can_be_lowered_and_not_raised_and_what_is_disallowed_stays_so() -> None:
    ours = ClaudeOptions(max_turns=5, disallowed_tools=("Bash",), model="haiku")
    chosen = Choices().apply(ours, {"max_turns": 3, "disallowed_tools": ["Write"], "model": "opus", "max_budget_usd": 1.5})
    assert (chosen.max_turns, chosen.disallowed_tools, chosen.model, chosen.max_budget_usd) == (3, ("Bash", "Write"), "opus", 1.5)
    assert Choices().apply(ours, {"max_turns": 99, "disallowed_tools": []}).max_turns == 5
    assert Choices().apply(ours, {"max_turns": None, "disallowed_tools": []}).disallowed_tools == ("Bash",)
    assert Choices().apply(ours, {"max_turns": None}).max_turns == 5


@pytest.mark.parametrize(
    "chosen",
    [
        {"max_turns": "many"},
        {"max_turns": True},
        {"model": 3},
        {"system_prompt": {"type": "file", "path": "/etc/passwd"}},
        {"disallowed_tools": "Bash"},
    ],
)
def test_a_choice_of_the_wrong_type_is_refused(chosen: dict[str, Any]) -> None:
    with pytest.raises(TurnedAway) as caught:
        Choices().apply(ClaudeOptions(), chosen)
    assert caught.value.reason == "options"


def test_what_a_client_answers_is_a_list_of_known_words() -> None:
    assert check_answers(["can_use_tool", "telepathy"]) == {"can_use_tool"}
    for nonsense in ("can_use_tool", {"can_use_tool": 1}, [1], None):
        with pytest.raises(TurnedAway):
            check_answers(nonsense)


async def test_an_owner_who_owes_for_what_was_sent_is_not_forgotten() -> None:
    allowance = Allowance(GatewayLimits(bytes_per_second=10))
    assert allowance.is_idle
    with anyio.move_on_after(0):
        await allowance.spend(10_000)
    assert not allowance.is_idle


@virtual_time
async def test_an_owner_does_not_get_new_starts_when_another_one_comes() -> None:
    door = Door(tokens=GatewayTokens(), limits=GatewayLimits(starts_per_minute=1))
    door.allowance("cert:eager").begin_session()
    door.allowance("cert:eager").end_session()
    door.allowance("cert:new")
    with pytest.raises(TurnedAway, match="has started 1 sessions in a minute"):
        door.allowance("cert:eager").begin_session()
    await anyio.sleep(60)
    assert door.allowance("cert:eager").is_idle
    door.allowance("cert:eager").begin_session()


def test_a_connection_that_has_ended_is_not_counted_any_more() -> None:
    allowance = Allowance(GatewayLimits(connections=1))
    for _ in range(2):
        with allowance.connection(), pytest.raises(TurnedAway, match="has 1 connections"), allowance.connection():
            pass


async def test_an_owner_that_uses_nothing_is_forgotten_when_another_one_comes() -> None:
    door = Door(tokens=GatewayTokens(), limits=GatewayLimits())
    idle, busy = door.allowance("cert:idle"), door.allowance("cert:busy")
    busy.begin_session()
    door.allowance("cert:new")
    assert door.allowance("cert:busy") is busy
    assert door.allowance("cert:idle") is not idle
