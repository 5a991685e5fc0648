"""The page in a real browser: it shows the tape, runs no code from it, loads nothing, and can be used with keys alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import Chromium, Page, running_chromium, why_no_chromium
from made_tapes import TapeMaker, text, use

from claude_transport.inspection import read_timeline, render_page
from claude_transport.protocol.tape import Tape

RECORDINGS = Path(__file__).parent.parent / "recordings"
EVIL = (
    "</script><script>document.title='taken'</script><!-- <script> <img src=x onerror=\"document.title='taken'\">"
    "\u2028\u2029 ]]> </style><b id='injected'>bold</b> {{script}} \\u003c \x00\x1b[31m '\"&amp;"
)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    """A browser for all tests of this file."""
    reason = why_no_chromium()
    if reason is not None:
        pytest.skip(reason)
    with running_chromium() as browser:
        yield browser


def page_of(tape: Tape | Path, folder: Path, *, title: str = "a tape", max_events: int = 40_000, max_text_chars: int = 8_000_000) -> Path:
    """The page of a tape, in a file."""
    path = folder / "page.html"
    path.write_text("".join(render_page(read_timeline(tape, max_events=max_events, max_text_chars=max_text_chars), title=title)), "utf-8")
    return path


def shown(page: Page) -> list[str]:
    """Return the titles of the visible rows."""
    return list(page.run("[...document.querySelectorAll('#list .row b')].map(cell => cell.textContent)"))


def test_a_recording_is_shown_without_a_fault_and_without_the_network(chromium: Chromium, tmp_path: Path) -> None:
    path = page_of(RECORDINGS / "04a_permission_allow.ndjson", tmp_path)
    with chromium.open(path) as page:
        assert shown(page)[:5] == ["initialize", "Prompt", "Session", "Text", "Bash"]
        page.run("[...document.querySelectorAll('#list .row')].find(row => row.textContent.includes('Bash')).click()")
        details = page.run("document.getElementById('details').innerText")
        assert "touch /home/user/project/x.txt && echo hi" in details
        assert "77 ms" in details
        assert page.run("document.querySelector('.badge').textContent") == "all turns ok"
        assert page.faults == []
        assert page.requests == [path.as_uri()]
        added = "const code = document.createElement('script'); code.textContent = 'window.taken = 1'; document.body.append(code)"
        assert page.run(f"{{ {added}; }} window.taken ?? 'refused'") == "refused"  # the page's policy refuses it


def test_nothing_on_a_tape_is_taken_for_markup_or_code(chromium: Chromium, tmp_path: Path) -> None:
    maker = TapeMaker().prompt(EVIL).says(text(EVIL), use("t1", EVIL, command=EVIL)).answers_tool("t1", EVIL, failed=True)
    maker.put("out", {"type": "system", "subtype": EVIL, "session_id": EVIL, EVIL: EVIL}).put("err", EVIL.encode())
    maker.put("out", {"type": "system", "subtype": "init", "model": EVIL, "session_id": EVIL}).result(EVIL, is_error=True)
    with chromium.open(page_of(maker.tape, tmp_path, title=EVIL)) as page:
        assert page.run("document.title").startswith("</script><script>document.title='taken'</script><!--")
        assert page.run("document.querySelector('#injected, img, main script, #list script')") is None
        page.run("[...document.querySelectorAll('#list .row')].find(row => row.textContent.includes('Text')).click()")
        assert page.run("document.querySelector('#details pre').textContent") == EVIL  # every character, as plain text
        assert page.faults == []
        assert len(page.requests) == 1


def test_the_page_carries_no_tag_that_came_from_the_tape(tmp_path: Path) -> None:
    maker = TapeMaker().prompt(EVIL).says(text(EVIL)).result(EVIL)
    markup = page_of(maker.tape, tmp_path, title=EVIL).read_text("utf-8")
    plain = page_of(TapeMaker().prompt("x").says(text("x")).result("x").tape, tmp_path, title="x").read_text("utf-8")
    tag = re.compile(r"</?(script|style|img|b)\b|<!--|-->")
    assert [found[0] for found in tag.finditer(markup)] == [found[0] for found in tag.finditer(plain)]
    assert "\u2028" not in markup.partition('id="data"')[2]


def test_filters_and_search_leave_what_fits(chromium: Chromium, tmp_path: Path) -> None:
    maker = TapeMaker().prompt("find the needle").says(use("t1", "Grep", pattern="thread")).answers_tool("t1", "a NEEDLE in it")
    maker.says(text("there is none"), message_id="m2").result("there is none")
    maker.prompt("again", number=2).says(use("t2", command="false"), message_id="m3").answers_tool("t2", "exit 1", failed=True).result("no")
    with chromium.open(page_of(maker.tape, tmp_path)) as page:
        everything = shown(page)
        page.run("document.getElementById('search').value = 'needle'; document.getElementById('search').dispatchEvent(new Event('input'))")
        page.until("document.getElementById('shown').textContent.startsWith('2 of')")
        assert shown(page) == ["Prompt", "Grep"]  # the second one because of its result, which has the word in capitals
        page.run("document.querySelectorAll('#list .row')[1].click()")
        assert page.run("[...document.querySelectorAll('#details mark')].map(mark => mark.textContent)") == ["NEEDLE"]
        page.run("document.getElementById('search').value = ''; document.getElementById('search').dispatchEvent(new Event('input'))")
        page.until("!document.getElementById('shown').textContent.includes('of')")
        page.run("document.getElementById('problems').click()")
        assert shown(page) == ["Bash"]
        page.run("document.getElementById('problems').click(); document.getElementById('lane-tools').click()")
        assert shown(page) == [title for title in everything if title not in ("Grep", "Bash")]
        page.run("const turn = document.getElementById('turn'); turn.value = '2'; turn.dispatchEvent(new Event('change'))")
        assert shown(page) == ["Prompt", "Result"]
        assert page.faults == []


def test_the_rows_of_parallel_subagents_name_the_agent_that_they_are_of(chromium: Chromium, tmp_path: Path) -> None:
    maker = TapeMaker().prompt("look")
    maker.says(use("a", "Agent", description="Find the callers")).says(use("b", "Agent", description="Read the tests"))
    maker.says(use("a1", "Grep", pattern="call"), message_id="m_a", parent_tool_use_id="a")
    maker.says(use("b1", "Read", file_path="/t"), message_id="m_b", parent_tool_use_id="b")
    with chromium.open(page_of(maker.tape, tmp_path)) as page:
        rows = "[...document.querySelectorAll('#list .row.nested .what')].map(what => what.querySelector('b, .agent') && what.textContent)"
        assert page.run(rows) == ["GrepFind the callers", "ReadRead the tests"]
        page.run("document.querySelectorAll('#list .row.nested')[1].click()")
        assert "of the subagent “Read the tests”, started by event 3" in page.run("document.querySelector('#details dl').textContent")
        assert page.faults == []


def test_keys_alone_are_enough(chromium: Chromium, tmp_path: Path) -> None:
    with chromium.open(page_of(RECORDINGS / "11_529_retries2.ndjson", tmp_path), width=700, height=900) as page:
        page.press("/", text="/")
        assert page.run("document.activeElement.id") == "search"
        page.run("document.getElementById('list').focus()")
        page.press("ArrowDown")
        page.press("ArrowDown")
        picked = "document.querySelector('#list [aria-selected=true]')"
        assert page.run(f"{picked}.querySelector('b').textContent") == "Prompt"
        assert page.run(f"document.getElementById('list').getAttribute('aria-activedescendant') === {picked}.id") is True
        page.press("n", text="n")
        assert page.run(f"{picked}.querySelector('b').textContent") == "API retry"
        page.press("Enter")
        assert page.run("[document.activeElement.id, getComputedStyle(document.activeElement).display]") == ["details", "block"]
        page.press("Escape")
        assert page.run("[document.activeElement.id, getComputedStyle(document.getElementById('details')).display]") == ["list", "none"]
        page.press("+", text="+")
        zoomed = page.run("document.getElementById('range').textContent")
        page.press("0", text="0")
        assert page.run("document.getElementById('range').textContent") != zoomed
        assert page.faults == []


def test_a_problem_of_the_summary_leads_to_its_event(chromium: Chromium, tmp_path: Path) -> None:
    with chromium.open(page_of(RECORDINGS / "11_529_retries2.ndjson", tmp_path)) as page:
        page.run("document.getElementById('lane-session').click()")  # the linked event must not be hidden by a filter
        page.run("document.querySelector('details a').click()")
        for place in ("#details h2", "#list [aria-selected=true] b"):
            assert page.run(f"document.querySelector('{place}').textContent") == "API retry"


@pytest.mark.parametrize("width", [360, 900, 1600])
def test_nothing_is_wider_than_the_window_in_dark_and_in_light(chromium: Chromium, tmp_path: Path, width: int) -> None:
    path = page_of(RECORDINGS / "04i_two_parallel_permissions_and_state.ndjson", tmp_path, title="a name without any space " + "x" * 200)
    with chromium.open(path, width=width, dark=width == 900) as page:
        assert page.run("document.documentElement.scrollWidth") == width
        dark = "getComputedStyle(document.body).backgroundColor"
        before = page.run(dark)
        page.run("document.getElementById('theme').click()")
        assert page.run(dark) != before
        assert len(page.screenshot()) > 10_000
        assert page.faults == []


def test_on_a_phone_a_title_stands_on_its_gist_and_both_within_their_row(chromium: Chromium, tmp_path: Path) -> None:
    path = page_of(RECORDINGS / "04a_permission_allow.ndjson", tmp_path)
    with chromium.open(path, width=400) as page:
        boxes = page.run(
            "[...document.querySelectorAll('#list .row:not(.alone)')].map(row =>"
            " [row, row.querySelector('.what'), row.querySelector('.gist')]"
            ".map(cell => { const box = cell.getBoundingClientRect(); return [box.top, box.bottom]; }))"
        )
    assert boxes
    for (row_top, row_bottom), (title_top, title_bottom), (gist_top, gist_bottom) in boxes:
        assert row_top + 2 <= title_top < title_bottom <= gist_top < gist_bottom <= row_bottom - 2
        assert gist_top - title_bottom <= 2


@pytest.mark.parametrize("width", [400, 1600])
def test_a_table_wider_than_a_phone_shows_at_its_edge_that_it_goes_on(chromium: Chromium, tmp_path: Path, width: int) -> None:
    maker = TapeMaker().prompt("a prompt").says(use("t1", command="ls")).answers_tool("t1", "x").result("done")
    path = page_of(maker.tape, tmp_path)
    with chromium.open(path, width=width) as page:
        page.run("document.querySelectorAll('details').forEach(fold => { fold.open = true; })")
        turns = "[...document.querySelectorAll('.scroll')].find(table => table.textContent.includes('First words'))"
        assert page.run(f"{turns}.scrollWidth > {turns}.clientWidth") is (width == 400)
        # two layers scroll with the text and cover two fixed shadows, so that a shadow shows where there is more text
        assert page.run(f"getComputedStyle({turns}).backgroundAttachment.split(', ').sort()") == ["local", "local", "scroll", "scroll"]


def test_of_a_long_tape_only_what_is_to_be_seen_is_in_the_document(chromium: Chromium, tmp_path: Path) -> None:
    maker = TapeMaker()
    for number in range(1500):
        maker.says(text(f"answer {number} " + "word " * 300), message_id=f"m{number}")
    path = page_of(maker.tape, tmp_path, max_events=1000, max_text_chars=150_000)
    assert path.stat().st_size < 1_000_000
    with chromium.open(path) as page:
        assert page.run("document.querySelectorAll('.notice').length") == 2  # events left out, and texts cut
        assert page.run("document.querySelectorAll('#list .row').length") < 100
        page.run("document.getElementById('list').focus()")
        page.press("End")
        page.until("[...document.querySelectorAll('#list .row')].some(row => row.textContent.includes('answer 1499'))")
        assert "are on this page; the tape may have the rest" in page.run("document.getElementById('details').textContent")
        assert page.run("document.querySelectorAll('#list .row').length") < 100
        assert page.faults == []
