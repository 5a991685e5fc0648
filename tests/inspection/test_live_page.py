"""The live page in a real browser: it follows a running session, loses nothing when it is loaded again, and runs no word of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from chromium import Chromium, Page, running_chromium, why_no_chromium
from relay import Cut, Relay, relay_to

from claude_transport import Gateway, NetworkTransport
from claude_transport.streams.memory import MemoryConnectable, MemoryStream
from claude_transport.transport import Transport
from claude_transport.transports.stream import StreamTransport

ALICE = "alice-has-a-token-0123456789"
SECRET = "sk-ant-api03-" + "a" * 80
EVIL = (
    "</script><script>document.title='taken'</script><!-- <script> <img src=x onerror=\"document.title='taken'\">"
    "\u2028\u2029 ]]> </style><b id='injected'>bold</b>\n\ndata: {}\n\nevent: end {{script}} \x00\x1b[31m '\"&amp;"
)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    """A browser for all tests of this file."""
    reason = why_no_chromium()
    if reason is not None:
        pytest.skip(reason)
    with running_chromium() as browser:
        yield browser


class Session:
    """A session of a gateway in another thread. The test plays its process and its client."""

    def __init__(self, portal: BlockingPortal) -> None:
        self.portal = portal
        self.opener = MemoryConnectable()
        self.gateway: Gateway
        self.client: NetworkTransport
        self.process: MemoryStream

    def _launch(self, _options: Any) -> Transport:
        return StreamTransport(self.opener)

    async def begin(self) -> None:
        self.gateway = Gateway(listen=["ws://127.0.0.1:0"], tokens={"alice": ALICE}, launch=self._launch, observable=True)
        await self.gateway.start()
        self.client = NetworkTransport(self.gateway.urls[0], token=ALICE)
        await self.client.connect()
        self.process = await self.opener.accept()
        self.id = self.gateway.sessions[0].id
        self.page = self.gateway.urls[0].replace("ws:", "http:").rstrip("/") + f"/observe/{self.id}"

    async def end(self) -> None:
        await self.client.close()
        await self.gateway.aclose()

    async def _say(self, rows: list[dict[str, Any]]) -> None:
        await self.process.send(b"".join(json.dumps(row).encode() + b"\n" for row in rows))

    async def _ask(self, text: str) -> None:
        line = {"type": "user", "message": {"role": "user", "content": text}, "uuid": "7f9c2b1e-5a4d-4c3b-8e2f-1a0b9c8d7e6f"}
        await self.client.write(json.dumps(line))

    def ask(self, text: str) -> None:
        self.portal.call(self._ask, text)

    def says(self, text: str, *, tool: dict[str, Any] | None = None, number: int = 1) -> None:
        content: list[dict[str, Any]] = [{"type": "text", "text": text}]
        if tool is not None:
            content = [{"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": tool}]
        message = {"id": f"m{number}", "type": "message", "role": "assistant", "model": "claude-x", "content": content}
        self.portal.call(self._say, [{"type": "assistant", "message": message, "session_id": "s", "parent_tool_use_id": None}])

    def finishes(self, text: str) -> None:
        done = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": text, "session_id": "s"}
        more = {"duration_ms": 1200, "duration_api_ms": 900, "total_cost_usd": 0.0123, "usage": {"input_tokens": 1200, "output_tokens": 80}}
        self.portal.call(self._say, [{**done, **more, "uuid": "1c1fcf5a-3f5e-4d7b-9d3b-8a5d3c1f8a11"}])

    def exits(self) -> None:
        self.portal.call(self.process.aclose)


@contextmanager
def session() -> Iterator[Session]:
    with start_blocking_portal() as portal:
        played = Session(portal)
        portal.call(played.begin)
        try:
            yield played
        finally:
            portal.call(played.end)


def shown(page: Page) -> list[str]:
    """Return the titles of the visible rows."""
    return list(page.run("[...document.querySelectorAll('#list .row b')].map(cell => cell.textContent)"))


def has_row(page: Page, title: str, *, count: int = 1) -> None:
    page.until(f"[...document.querySelectorAll('#list .row b')].filter(cell => cell.textContent === {json.dumps(title)}).length >= {count}")


def test_the_page_follows_a_session_and_a_reload_in_the_middle_loses_nothing(chromium: Chromium, tmp_path: Path) -> None:
    with session() as played:
        played.ask("Count the files.")
        with chromium.open(played.page, fragment=f"#{ALICE}") as page:
            has_row(page, "Prompt")
            assert ALICE not in page.run("location.href")  # nor in the history
            played.says("", tool={"command": "ls | wc -l"})
            has_row(page, "Bash")
            assert page.run("document.getElementById('verdict').textContent") == "live"
            chromium.reload(page)
            has_row(page, "Bash")
            assert shown(page)[:2] == ["Prompt", "Bash"]
            played.says("There are 42 files.", number=2)
            has_row(page, "Text")
            page.run("[...document.querySelectorAll('#list .row')].find(row => row.textContent.includes('Text')).click()")
            played.finishes("There are 42 files.")
            has_row(page, "Result")
            assert "There are 42 files." in page.run("document.getElementById('details').innerText")  # still selected
            page.until("document.getElementById('summary').textContent.includes('$0.0123')")
            for width, height in ((1280, 900), (390, 844)):
                page.resize(width, height)
                page.until(f"document.documentElement.clientWidth === {width}")
                assert page.run("document.documentElement.scrollWidth <= innerWidth")
                (tmp_path / f"live-{width}.png").write_bytes(page.screenshot())
            played.exits()
            page.until("document.getElementById('link').textContent === 'The session has ended.'")
            assert page.run("document.getElementById('verdict').textContent") == "all turns ok"
            chromium.reload(page)
            has_row(page, "Result")
            assert page.faults == []
            assert {url.partition("/observe/")[0] for url in page.requests if not url.startswith("data:")} == {
                played.page.partition("/observe/")[0]
            }


@contextmanager
def relayed(played: Session) -> Iterator[tuple[Relay, str]]:
    """Gives a relay in front of the gateway, and the address of the page behind it."""
    with played.portal.wrap_async_context_manager(relay_to(played.gateway.urls[0].rstrip("/"))) as relay:
        yield relay, f"http{relay.url.removeprefix('tcp')}/observe/{played.id}"


def rows_of(page: Page) -> list[list[str]]:
    """Return the title and the gist of the visible rows."""
    return list(
        page.run("[...document.querySelectorAll('#list .row')].map(row => ['b', '.gist'].map(of => row.querySelector(of).textContent))")
    )


@pytest.mark.parametrize("is_hard", [False, True], ids=["closed", "reset"])
def test_the_page_comes_back_when_its_connection_was_cut_and_loses_nothing(chromium: Chromium, is_hard: bool) -> None:
    with session() as played, relayed(played) as (relay, address), chromium.open(address, fragment=f"#{ALICE}") as page:
        played.ask("Count.")
        has_row(page, "Prompt")
        page.until("document.getElementById('link').textContent === 'Connected.'")

        def cut() -> None:
            relay.passages[-1].cut = Cut(None, None, hard=is_hard)
            relay.passages[-1].end()

        for number in (2, 3, 4):
            asked = relay.asked
            played.portal.call(cut)
            played.says(f"Number {number}.", number=number)
            has_row(page, "Text", count=number - 1)
            page.until("document.getElementById('link').textContent === 'Connected.'")
            assert relay.asked > asked
        assert rows_of(page) == [["Prompt", "Count."], *(["Text", f"Number {number}."] for number in (2, 3, 4))]
        chromium.reload(page)
        has_row(page, "Text", count=3)
        assert rows_of(page) == [["Prompt", "Count."], *(["Text", f"Number {number}."] for number in (2, 3, 4))]


# Remembers timers of more than 30 seconds: `hurry()` lets them come at once.
HURRY = """
const real = window.setTimeout, forget = window.clearTimeout, long = new Map();
window.setTimeout = (act, ms, ...more) => { const id = real(act, ms, ...more); if (ms >= 30000) long.set(id, act); return id; };
window.clearTimeout = (id) => { long.delete(id); forget(id); };
window.hurry = () => { for (const [id, act] of [...long]) { window.clearTimeout(id); act(); } };
"""


def test_the_page_comes_back_when_its_network_has_fallen_silent(chromium: Chromium) -> None:
    with session() as played, relayed(played) as (relay, address), chromium.open(address, fragment=f"#{ALICE}") as page:
        page.call("Page.addScriptToEvaluateOnNewDocument", source=HURRY)
        chromium.reload(page)
        played.ask("Count.")
        has_row(page, "Prompt")

        async def lose() -> None:
            relay.fall_silent()
            await anyio.lowlevel.checkpoint()

        async def heal() -> None:
            relay.heal(late=False)  # the connections of before stay silent for good

        played.portal.call(lose)
        played.says("Nobody hears this.", number=2)
        played.portal.call(heal)
        page.run("window.hurry()")
        has_row(page, "Text")
        page.until("document.getElementById('link').textContent === 'Connected.'")


def test_another_token_shows_what_that_one_may_see(chromium: Chromium) -> None:
    with session() as played:
        hidden, shown_all = (played.portal.call(partial(played.gateway.grant_observer, played.id, scrub=scrub)) for scrub in (True, False))
        with (
            chromium.open(played.page, fragment=f"#{shown_all.token}") as other,
            chromium.open(played.page, fragment=f"#{hidden.token}") as page,
        ):
            for number in (1, 2):
                played.says(f"Use {SECRET} now.", number=number)
                for each in (other, page):
                    has_row(each, "Text", count=number)
            page.run("document.querySelector('#list .row').click()")
            assert rows_of(page) == [["Text", "Use [secret] now."]] * 2
            played.portal.call(hidden.revoke)
            page.until("!document.getElementById('door').hidden")
            page.run(f"document.getElementById('token').value = {json.dumps(shown_all.token)}")
            page.run("document.querySelector('#door button').click()")
            page.until(f"document.getElementById('list').textContent.includes({json.dumps(SECRET[:20])})")
            assert rows_of(page) == [["Text", f"Use {SECRET} now."]] * 2
            assert "[secret]" not in page.run("document.body.textContent")


@pytest.mark.parametrize("width", [390, 320])
def test_nothing_makes_the_page_wider_than_a_phone(chromium: Chromium, width: int) -> None:
    word = "a-very-long-word-without-a-blank/" * 40
    with session() as played, chromium.open(played.page, width=width, height=844) as page:
        page.until("!document.getElementById('door').hidden")
        assert page.run("document.documentElement.scrollWidth <= innerWidth")
        page.run(f"document.getElementById('token').value = {json.dumps(ALICE)}")
        page.run("document.querySelector('#door button').click()")
        played.ask(word)
        played.says(word)
        played.says("", tool={"command": word, word: 1}, number=2)
        played.finishes(word)
        has_row(page, "Result")
        page.run("document.querySelectorAll('details').forEach(fold => { fold.open = true; })")
        for number in range(4):
            assert page.run("document.documentElement.scrollWidth <= innerWidth")
            page.run(f"document.querySelectorAll('#list .row')[{number}].click()")
            assert page.run("document.documentElement.scrollWidth <= innerWidth")
            page.press("Escape")
        assert page.run("document.documentElement.clientWidth") == width


def test_nothing_that_is_said_is_taken_for_markup_code_or_an_event(chromium: Chromium) -> None:
    with session() as played, chromium.open(played.page, fragment=f"#{ALICE}") as page:
        played.ask(EVIL)
        played.says(EVIL)
        played.says("", tool={"command": EVIL}, number=2)
        played.finishes(EVIL)
        has_row(page, "Result")
        assert page.run("document.title") == f"session {played.id}"
        assert page.run("document.querySelector('#injected, img, main script, #list script')") is None
        page.run("[...document.querySelectorAll('#list .row')].find(row => row.textContent.includes('Text')).click()")
        assert page.run("document.querySelector('#details pre').textContent") == EVIL
        assert page.faults == []
        added = "const code = document.createElement('script'); code.textContent = 'window.taken = 1'; document.body.append(code)"
        assert page.run(f"{{ {added}; }} window.taken ?? 'refused'") == "refused"
        away = "fetch('http://127.0.0.1:1/').then(() => 'sent', () => 'refused')"
        assert page.run(away) == "refused"
        assert any("Content Security Policy" in fault for fault in page.faults)


def test_without_a_token_the_page_asks_for_one_and_a_revoked_one_ends_it(chromium: Chromium) -> None:
    with session() as played:
        played.ask(f"Use {SECRET}.")
        grant = played.portal.call(played.gateway.grant_observer, played.id)
        with chromium.open(played.page) as page:
            page.until("!document.getElementById('door').hidden")
            assert shown(page) == []
            assert page.run("document.getElementById('timeline').hidden")
            for token in ("nobody-has-this-token-at-all", grant.token):
                page.run(f"document.getElementById('token').value = {json.dumps(token)}")
                page.run("document.querySelector('#door button').click()")
                page.until("document.getElementById('door').hidden || document.getElementById('link').textContent.includes('not accepted')")
                if token != grant.token:
                    page.until("document.getElementById('link').textContent.includes('not accepted')")
            has_row(page, "Prompt")
            assert SECRET not in page.run("document.body.innerText")
            page.run("document.querySelector('#list .row').click()")
            assert "[secret]" in page.run("document.getElementById('details').innerText")
            played.portal.call(grant.revoke)
            page.until("!document.getElementById('door').hidden")
            assert "not accepted" in page.run("document.getElementById('link').textContent")


def test_the_page_itself_tells_nothing_of_a_session() -> None:
    with session() as played:
        played.ask("a word of the session")

        async def read(path: str) -> bytes:
            host, _, port = played.gateway.urls[0].removeprefix("ws://").strip("/").rpartition(":")
            stream = await anyio.connect_tcp(host, int(port))
            async with stream:
                await stream.send(f"GET {path} HTTP/1.1\r\nhost: {host}:{port}\r\n\r\n".encode())
                answer = b""
                try:
                    while True:
                        answer += await stream.receive()
                except anyio.EndOfStream:
                    return answer

        known, unknown = (played.portal.call(read, f"/observe/{name}") for name in (played.id, "ffffffff"))
        head, _, body = known.partition(b"\r\n\r\n")
        assert body == unknown.partition(b"\r\n\r\n")[2]
        assert b"a word of the session" not in body
        low = head.lower()
        for header in (
            b"content-security-policy: default-src 'none'; script-src 'sha256-",
            b"x-frame-options: deny",
            b"no-store",
            b"nosniff",
        ):
            assert header in low
        assert b"connect-src 'self'" in low
